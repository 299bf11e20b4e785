#include "session/ranks.h"

#include <string.h>
#include <time.h>

#include "comm/processes/launch.h"

static uint32_t devices_of(const ir_func *host) {
  int64_t most = 0;
  for (uint32_t i = 1; host && i < host->meshes.len; i++) {
    const ir_mesh_data *m = &host->meshes.data[i];
    for (int64_t k = 0; k < m->n_devices; k++) most = m->devices[k] > most ? m->devices[k] : most;
  }
  return (uint32_t)most + 1;
}

/* A team may be one device, too: what that posts needs an endpoint. */
static bool communicates(const ir_func *host) {
  for (uint32_t i = 1; host && i < host->host->instrs.len; i++)
    if (host->host->instrs.data[i].kind == IR_COMMUNICATE) return true;
  return false;
}

/* ---- where the ranks are ---- */
static bool is_of_processes(const rt_comm_ops *ops) {
  return ops == &rt_comm_mpi || ops == &rt_comm_tcp;
}

/* A program for one device runs in each process of torchrun by itself, unless more are asked for. */
static const rt_comm_ops *default_backend(const session_place *p, bool is_together) {
  mpi_launch mpi;
  torch_launch torch;
  if (p->group) return p->group->ops;
  if (mpi_launch_find(&mpi)) return &rt_comm_mpi;
  return is_together && torch_launch_find(&torch) ? &rt_comm_tcp : &rt_comm_inproc;
}

static status choose(const char *name, bool has_program, session_place *p) {
  bool is_auto = strcmp(name, "auto") == 0, is_together = !has_program || p->world > 1;
  p->ops = is_auto ? default_backend(p, is_together) : rt_comm_find(name);
  if (!p->group && (is_auto ? is_together : p->ops == &rt_comm_tcp)) TRY(torch_launch_check());
  if (!p->ops) return fail(STATUS_BAD_USAGE, "there is no communication backend '%s'", name);
  if (p->group && p->ops != p->group->ops)
    return fail(STATUS_BAD_USAGE, "--comm %s, but the world that was given communicates by %s",
                name, p->group->ops->name);
  p->is_spread = is_of_processes(p->ops);
  return STATUS_OK;
}

/* Finds how many processes there are, and which one on its machine this is. */
static status find_processes(session_place *p, uint32_t *size) {
  mpi_launch mpi;
  torch_launch torch;
  bool by_mpi = mpi_launch_find(&mpi);
  if (p->group) {
    *size = p->group->size;
    p->local = p->group->gpu >= 0 ? (uint32_t)p->group->gpu : p->group->local;
  } else if (p->ops == &rt_comm_mpi && by_mpi) {
    *size = mpi.size;
    p->local = mpi.local;
  } else if (p->ops == &rt_comm_tcp && torch_launch_find(&torch)) {
    *size = torch.size;
    p->local = torch.local;
  } else {
    return fail(STATUS_BAD_USAGE, "start the program with %s to use --comm %s",
                p->ops == &rt_comm_mpi ? "mpirun" : "torchrun", p->ops->name);
  }
  return STATUS_OK;
}

static const char *starter(const session_place *p) {
  if (p->group) return "the world has";
  return p->ops == &rt_comm_mpi ? "mpirun started" : "torchrun started";
}

status session_place_find(const ir_func *host, const char *comm, rt_group *group, uint32_t devices,
                          session_place *result) {
  uint32_t needed = devices_of(host), size = 1;
  session_place p = {.group = group, .world = devices ? devices : needed};
  TRY(choose(comm, host != NULL, &p));
  if (p.is_spread) {
    TRY(find_processes(&p, &size));
    if (devices && devices != size)
      return fail(STATUS_BAD_USAGE, "--devices %u, but %s %u ranks", devices, starter(&p), size);
    p.world = size;
  }
  if (needed > p.world)
    return fail(STATUS_BAD_PROGRAM, "the program needs %u devices, but there are %u", needed,
                p.world);
  if (p.world > IR_MESH_MAX_DEVICES)
    return fail(STATUS_BAD_USAGE, "%u devices are more than the %d supported", p.world,
                IR_MESH_MAX_DEVICES);
  p.needs_endpoints = p.world > 1 || communicates(host);
  *result = p;
  return STATUS_OK;
}

int64_t session_launch_rank(void) {
  mpi_launch mpi;
  torch_launch torch;
  if (mpi_launch_find(&mpi)) return mpi.rank;
  return torch_launch_find(&torch) ? (int64_t)torch.rank : -1;
}

/* ---- endpoints ---- */

/* Tells others whether this process computes; outside a run too: it may bind, prove, or evaluate the definition. */
static void pulse(void *context, rt_pulse *p) {
  const session_ranks *r = context;
  *p = (rt_pulse){0};
  if (r->device->ops->pulse) r->device->ops->pulse(r->device, p);
  if (atomic_load(&r->busy) > 0 && atomic_load(&r->waiting) == 0) p->is_busy = true;
}

/* Starting processes takes longer than a message: they get at least this long, however short the timeout is. */
static const int64_t least_start_ns = INT64_C(10000000000);

static status open_endpoints(session_ranks *r, const allocator *memory) {
  rt_device *device = r->device;
  rt_comm_options options = {.ranks = r->world, .group = r->group};
  options.start_ns = r->timeout_ns > least_start_ns ? r->timeout_ns : least_start_ns;
  options.notify = device->ops->notify;
  options.context = device;
  options.pulse = pulse;
  options.pulse_context = r;
  TRY(r->ops->open(&options, memory, r->world, r->endpoints, &r->n_endpoints));
  if (device->ops->attach) device->ops->attach(device, r->endpoints, r->n_endpoints, r->timeout_ns);
  return STATUS_OK;
}

static status open_world(session_ranks *r, const rt_comm_ops *ops, rt_device *device,
                         const allocator *memory) {
  r->device = device;
  r->ops = ops;
  r->endpoints = memory_alloc(memory, r->world * sizeof *r->endpoints);
  r->everybody = memory_alloc(memory, r->world * sizeof *r->everybody);
  r->answers = memory_alloc(memory, r->world * sizeof *r->answers);
  if (!r->endpoints || !r->everybody || !r->answers) return STATUS_OUT_OF_MEMORY;
  for (uint32_t i = 0; i < r->world; i++) r->everybody[i] = i;
  r->n = r->world;
  if (!is_of_processes(ops)) return STATUS_OK; /* endpoints are opened when something is loaded */
  TRY(open_endpoints(r, memory));
  r->n = r->n_endpoints;
  r->first = r->endpoints[0]->rank;
  r->world = r->endpoints[0]->n_ranks;
  return STATUS_OK;
}

status session_ranks_open(session_ranks *r, const session_place *place, int64_t timeout_ns,
                          rt_device *device, const allocator *memory) {
  *r = (session_ranks){
      .n = 1, .world = place->world, .timeout_ns = timeout_ns, .group = place->group};
  if (r->group) r->group->retain(r->group);
  return place->needs_endpoints ? open_world(r, place->ops, device, memory) : STATUS_OK;
}

static void close_endpoints(session_ranks *r) {
  for (uint32_t i = 0; i < r->n_endpoints; i++) r->endpoints[i]->ops->close(r->endpoints[i]);
  r->n_endpoints = 0;
}

/* Has the world of the endpoints failed? Asking is no error of the caller's, so its message is dropped. */
static bool is_failed(const session_ranks *r) {
  bool silent = status_message()[0] == '\0';
  bool failed = r->endpoints[0]->ops->error(r->endpoints[0]) != STATUS_OK;
  if (silent) status_clear();
  return failed;
}

void session_ranks_renew(session_ranks *r) {
  if (r->n_endpoints == 0 || r->n < r->world) return;
  if (is_failed(r)) close_endpoints(r);
}

/* A device that moves no data needs no endpoints in one process. Processes need theirs to agree. */
status session_ranks_need(session_ranks *r, const allocator *memory) {
  if (r->n_endpoints || !r->endpoints) return STATUS_OK;
  bool unused = !r->device->ops->attach && !session_ranks_are_spread(r);
  return unused ? STATUS_OK : open_endpoints(r, memory);
}

void session_ranks_close(session_ranks *r, const allocator *memory) {
  close_endpoints(r);
  memory_free(memory, r->endpoints);
  memory_free(memory, r->everybody);
  memory_free(memory, r->answers);
  if (r->group) r->group->release(r->group);
  *r = (session_ranks){0};
}

/* ---- agreements between processes ---- */

bool session_ranks_are_spread(const session_ranks *r) { return r->n < r->world; }

static status wait_for(const session_ranks *r, const rt_comm_ticket *ticket) {
  rt_comm *comm = r->endpoints[0];
  _Atomic uint32_t *waiting = &((session_ranks *)r)->waiting;
  (void)atomic_fetch_add(waiting, 1);
  status st = comm->ops->wait(comm, ticket, r->timeout_ns);
  (void)atomic_fetch_sub(waiting, 1);
  return st;
}

static status post(const session_ranks *r, rt_comm_request *q, rt_comm_ticket *ticket) {
  rt_comm *comm = r->endpoints[0];
  q->team = r->everybody;
  q->n_team = r->world;
  q->me = comm->rank;
  q->origin = "the start of the program";
  return comm->ops->post(comm, q, ticket);
}

static status collective(const session_ranks *r, rt_comm_request *q) {
  rt_comm_ticket ticket;
  TRY(post(r, q, &ticket));
  return wait_for(r, &ticket);
}

/* Posts a request, and waits for it as session_ranks_pass_on() says. */
static status run_with_naps(const session_ranks *r, rt_comm_request *q, int64_t nap_ns) {
  const struct timespec nap = {.tv_nsec = nap_ns};
  rt_comm_ticket ticket;
  TRY(post(r, q, &ticket));
  for (int64_t end_ns = rt_clock_ns() + 1000000000;
       nap_ns && rt_clock_ns() < end_ns && !r->endpoints[0]->ops->done(r->endpoints[0], &ticket);)
    (void)nanosleep(&nap, NULL);
  return wait_for(r, &ticket);
}

status session_ranks_share(const session_ranks *r, const void *in, void *out, int64_t bytes,
                           int64_t nap_ns) {
  rt_comm_request q = {
      .kind = IR_COMM_ALLGATHER, .dtype = IR_U8, .count = bytes, .in = in, .out = out};
  return run_with_naps(r, &q, nap_ns);
}

status session_ranks_add(const session_ranks *r, const float *in, float *out, int64_t count,
                         int64_t nap_ns) {
  rt_comm_request q = {
      .kind = IR_COMM_ALLREDUCE, .op = IR_COMBINE_SUM, .dtype = IR_F32, .count = count};
  q.in = in;
  q.out = out;
  return run_with_naps(r, &q, nap_ns);
}

status session_ranks_pass_on(const session_ranks *r, void *in, void *out, int64_t bytes,
                             int64_t nap_ns) {
  uint32_t n = r->world, me = r->endpoints[0]->rank;
  rt_comm_request q = {
      .kind = IR_COMM_PERMUTE, .dtype = IR_U8, .count = bytes, .count_from = bytes};
  q.to = (int32_t)((me + 1) % n);
  q.from = (int32_t)((me + n - 1) % n);
  q.in = in;
  q.out = out;
  return run_with_naps(r, &q, nap_ns);
}

status session_ranks_agree(const session_ranks *r, uint64_t program) {
  int64_t mine = (int64_t)program, *all = r->answers;
  if (!session_ranks_are_spread(r)) return STATUS_OK;
  rt_comm_request q = {.kind = IR_COMM_ALLGATHER, .dtype = IR_I64, .count = 1, .in = &mine};
  q.out = all;
  TRY(collective(r, &q));
  for (uint32_t i = 1; i < r->world; i++) {
    if (all[i] != all[0])
      return fail(STATUS_BAD_PROGRAM,
                  "rank %u runs another program, other extents or other options than rank 0", i);
  }
  return STATUS_OK;
}

status session_ranks_tell(const session_ranks *r, void *data, int64_t bytes) {
  if (!session_ranks_are_spread(r)) return STATUS_OK;
  rt_comm_request q = {.kind = IR_COMM_BROADCAST, .dtype = IR_U8, .count = bytes, .in = data};
  q.out = data;
  return collective(r, &q);
}

status session_ranks_decide(const session_ranks *r, uint8_t *choice) {
  return session_ranks_tell(r, choice, 1);
}

/* ---- data ---- */

status session_ranks_exchange(const session_ranks *r, const void *mine, void *all, int64_t bytes) {
  rt_comm_request q = {.kind = IR_COMM_ALLGATHER, .dtype = IR_U8, .count = bytes, .in = mine};
  q.out = all;
  if (session_ranks_are_spread(r)) return collective(r, &q);
  memcpy(all, mine, (size_t)bytes);
  return STATUS_OK;
}

status session_ranks_transfer(const session_ranks *r, bool sends, uint32_t peer, void *data,
                              int64_t bytes) {
  rt_comm *comm = r->endpoints[0];
  uint32_t team[2] = {0, sends ? comm->rank : peer};
  rt_comm_request q = {.kind = sends ? IR_COMM_SEND : IR_COMM_RECV, .dtype = IR_U8, .team = team};
  rt_comm_ticket ticket;
  q.n_team = 2;
  q.me = sends ? 1 : 0;
  q.to = sends ? 0 : RT_COMM_NOBODY;
  q.from = sends ? RT_COMM_NOBODY : 1;
  q.count = bytes;
  q.in = sends ? data : NULL;
  q.out = sends ? NULL : data;
  q.origin = "the inputs and outputs";
  TRY(comm->ops->post(comm, &q, &ticket));
  return wait_for(r, &ticket);
}

status session_ranks_receive(const session_ranks *r, uint32_t from, const allocator *memory,
                             const ir_array *view) {
  ir_array local = *view;
  int64_t bytes;
  local.data = NULL;
  check(ir_array_size_bytes(&local, &bytes));
  TRY(ir_array_alloc(&local, memory));
  status st = session_ranks_transfer(r, false, from, local.data, bytes);
  if (st == STATUS_OK) ir_array_copy(view, &local);
  memory_free(memory, local.data);
  return st;
}
