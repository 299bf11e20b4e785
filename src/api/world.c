/* Worlds of the caller: groups of processes (comm/processes/group.h) as objects of the API. */
#include "api/api.h"
#include "base/process.h"
#include "comm/processes/group.h"
#include "comm/processes/launch.h"

struct weir_world {
  rt_group *group;
  uint32_t process; /* the one that made it, and has its connections (base/process.h) */
};

static bool is_of_parent(const weir_world *w) { return w->process != process_number(); }

weir_status api_group_of(const weir_world *w, rt_group **result) {
  if (is_of_parent(w))
    return api_refuse(
        "the world was made before fork(), and its ranks talk to another process: make one here");
  *result = w->group;
  return WEIR_OK;
}

/* ---- where it comes from ---- */
typedef struct world_call {
  weir_world_args args;
  rt_group *group;
} world_call;

/* Keeps the message that the caller's function left in weir_error(), if it failed in a call of Weir. */
static status by_caller(void *context, const void *mine, void *all, size_t size_bytes) {
  const weir_world_args *a = context;
  weir_status st = a->exchange(a->context, mine, all, size_bytes);
  if (st == WEIR_OK) return STATUS_OK;
  return fail((status)st, "the exchange function failed on rank %lld: %s", (long long)a->rank,
              weir_status_text(st));
}

static status from_exchange(const weir_world_args *a, rt_group **result) {
  if (a->size < 1 || a->size > RT_COMM_MAX_RANKS || a->rank < 0 || a->rank >= a->size)
    return fail(STATUS_BAD_USAGE,
                "weir_world_create: rank %lld of %lld; 1 to %d ranks are possible",
                (long long)a->rank, (long long)a->size, RT_COMM_MAX_RANKS);
  mpi_exchange x = {
      .rank = (uint32_t)a->rank, .size = (uint32_t)a->size, .gpu = -1, .exchange = by_caller};
  x.context = (void *)a;
  return tcp_group_create(&x, result);
}

static status by_nccl(void *context, const void *mine, void *all, size_t size_bytes) {
  return rt_device_find("cuda")->caller_exchange(context, mine, all, size_bytes);
}

static status from_nccl(void *comm, rt_group **result) {
  const rt_device_ops *cuda = rt_device_find("cuda");
  rt_caller_comm about;
  if (!cuda || !cuda->caller_comm)
    return fail(STATUS_UNAVAILABLE, "a communicator of NCCL is given to a build without CUDA");
  TRY(cuda->caller_comm(comm, &about));
  mpi_exchange x = {.rank = about.rank, .size = about.size, .gpu = about.gpu, .exchange = by_nccl};
  x.context = comm;
  return tcp_group_create(&x, result);
}

static status from_environment(rt_group **result) {
  mpi_launch mpi;
  torch_launch torch;
  if (mpi_launch_find(&mpi)) return mpi_group_of_launcher(&rt_comm_mpi, result);
  TRY(torch_launch_check());
  if (torch_launch_find(&torch)) return mpi_group_of_launcher(&rt_comm_tcp, result);
  return fail(STATUS_UNAVAILABLE,
              "the environment names no ranks: start the program with mpirun or torchrun, or give "
              "weir_world_create() an MPI communicator or an exchange function");
}

static status check_size(const weir_world_args *a, const rt_group *g) {
  if (a->size == 0 || (a->size == g->size && a->rank == g->rank)) return STATUS_OK;
  return fail(STATUS_BAD_USAGE,
              "weir_world_create: rank %lld of %lld is asked for, but this is rank %u of %u",
              (long long)a->rank, (long long)a->size, g->rank, g->size);
}

static status create_body(arena *scratch, void *context) {
  world_call *c = context;
  const weir_world_args *a = &c->args;
  (void)scratch;
  if (a->exchange) return from_exchange(a, &c->group);
  if (a->nccl_comm) TRY(from_nccl(a->nccl_comm, &c->group));
  else if (a->mpi_comm) TRY(mpi_group_of_communicator(a->mpi_comm, &c->group));
  else TRY(from_environment(&c->group));
  return check_size(a, c->group);
}

weir_status weir_world_create(const weir_world_args *args, weir_world **result) {
  world_call c = {0};
  if (!result) return api_refuse("weir_world_create: result is NULL");
  if (args && api_check_size(args->struct_size, "weir_world_create") != WEIR_OK)
    return WEIR_BAD_USAGE;
  if (args) api_copy_sized(&c.args, args, args->struct_size, sizeof c.args);
  if (!!c.args.mpi_comm + !!c.args.nccl_comm + !!c.args.exchange > 1)
    return api_refuse("weir_world_create: a world is made from one thing, and several are given");
  weir_world *w = memory_alloc(&memory_default, sizeof *w);
  if (!w) return api_end(STATUS_OUT_OF_MEMORY);
  weir_status st = api_call(&memory_default, create_body, &c);
  w->group = c.group;
  w->process = process_number();
  if (st == WEIR_OK) *result = w;
  else weir_world_destroy(w);
  return st;
}

void weir_world_destroy(weir_world *w) {
  if (!w || is_of_parent(w)) return;
  if (w->group) w->group->release(w->group);
  memory_free(&memory_default, w);
}

weir_status weir_world_describe(const weir_world *w, weir_world_info *result) {
  if (!w || !result) return api_refuse("weir_world_describe: an argument is NULL");
  if (api_check_size(result->struct_size, "weir_world_describe") != WEIR_OK) return WEIR_BAD_USAGE;
  const rt_group *g = w->group;
  weir_world_info all = {.struct_size = result->struct_size,
                         .rank = g->rank,
                         .size = g->size,
                         .local = g->local,
                         .carrier = g->ops->name};
  api_copy_sized(result, &all, result->struct_size, sizeof all);
  return WEIR_OK;
}
