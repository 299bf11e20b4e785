/* The operations of the in-process backend. */
#include <stdio.h>
#include <unistd.h>

#include "comm/inproc/inproc.h"

/* Read from sysfs: sysconf() gives the sum over a whole package, and a core can use only a part of that. */
static size_t shared_cache_bytes(void) {
  size_t kib = 0;
  FILE *f = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r");
  if (f && fscanf(f, "%zuK", &kib) != 1) kib = 0;
  if (f) (void)fclose(f);
  return kib > 0 ? kib << 10 : (size_t)32 << 20;
}

static void measure_machine(inproc_world *w) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  w->cores = cores > 0 ? (uint32_t)cores : 1;
  w->cache_bytes = shared_cache_bytes();
}

static status inproc_open(const rt_comm_options *options, const allocator *memory, uint32_t room,
                          rt_comm **endpoints, uint32_t *count) {
  uint32_t n = options->ranks;
  if (n == 0 || n > RT_COMM_MAX_RANKS || n > room)
    return fail(STATUS_BAD_USAGE,
                "inproc: %u ranks; 1 to %d are possible, and there is room for %u", n,
                RT_COMM_MAX_RANKS, room);
  inproc_world *w = inproc_world_create(options, memory, &rt_comm_inproc);
  if (!w) return STATUS_OUT_OF_MEMORY;
  measure_machine(w);
  for (uint32_t r = 0; r < n; r++) endpoints[r] = &w->ranks[r].base;
  *count = n;
  return STATUS_OK;
}

static void inproc_close(rt_comm *comm) {
  if (comm) inproc_leave((inproc_rank *)comm);
}

static status inproc_error(rt_comm *comm) {
  inproc_world *w = inproc_world_of(comm);
  if (!atomic_load(&w->failed)) return STATUS_OK;
  (void)pthread_mutex_lock(&w->reason_lock);
  status st = fail(w->why, "%s", w->reason);
  (void)pthread_mutex_unlock(&w->reason_lock);
  return st;
}

static void inproc_abort(rt_comm *comm, status why, const char *reason) {
  inproc_fail(inproc_world_of(comm), why, reason);
}

static status inproc_prepare(rt_comm *comm, const uint32_t *team, uint32_t n_team) {
  rt_comm_request r = {.kind = IR_COMM_ALLREDUCE, .dtype = IR_F32, .team = team, .n_team = n_team};
  while (r.me + 1 < n_team && team[r.me] != comm->rank) r.me++;
  TRY(rt_comm_request_check(&r, comm->rank, comm->n_ranks));
  inproc_queue *q;
  return inproc_team(inproc_world_of(comm), team, n_team, &q);
}

/* ---- posting ---- */
static void note(inproc_rank *me, const rt_comm_request *r) {
  atomic_store_explicit(&me->last_origin, r->origin, memory_order_relaxed);
  atomic_store_explicit(&me->last_kind, (int)r->kind, memory_order_relaxed);
}

/* Fails the world if a member of the queue has left: it will not post its part. */
static void check_nobody_left(inproc_rank *me, const inproc_queue *q, const rt_comm_ticket *ticket,
                              uint32_t half) {
  bool left = false;
  for (uint32_t i = 0; i < q->n; i++) left |= atomic_load(&q->members[i].rank->left);
  if (!left || inproc_half_is_complete(ticket, half)) return;
  char text[INPROC_REASON_BYTES];
  inproc_describe(&me->base, ticket, text, sizeof text);
  inproc_fail(me->world, STATUS_UNAVAILABLE, text);
}

static status enqueue(inproc_rank *me, inproc_queue *q, uint32_t member, const rt_comm_request *r,
                      rt_comm_ticket *ticket, uint32_t half) {
  (void)atomic_fetch_add_explicit(&me->posts, 1, memory_order_relaxed);
  TRY(inproc_enqueue(q, member, r, ticket, half));
  check_nobody_left(me, q, ticket, half);
  return STATUS_OK;
}

static status post_team(inproc_rank *me, const rt_comm_request *r, rt_comm_ticket *ticket) {
  inproc_queue *q;
  TRY(inproc_team(me->world, r->team, r->n_team, &q));
  return enqueue(me, q, r->me, r, ticket, 0);
}

/* A permute is a send and a recv. Both queues exist before either half is posted. */
static status post_messages(inproc_rank *me, const rt_comm_request *r, rt_comm_ticket *ticket) {
  inproc_queue *out = NULL, *in = NULL;
  uint32_t self = me->base.rank;
  if (r->kind != IR_COMM_RECV && r->to >= 0)
    TRY(inproc_pair(me->world, self, r->team[r->to], &out));
  if (r->kind != IR_COMM_SEND && r->from >= 0)
    TRY(inproc_pair(me->world, r->team[r->from], self, &in));
  if (out) TRY(enqueue(me, out, 0, r, ticket, 0));
  if (!in) return STATUS_OK;
  rt_comm_request received = *r;
  if (r->kind == IR_COMM_PERMUTE) received.count = r->count_from;
  return enqueue(me, in, 1, &received, ticket, 1);
}

static status inproc_post(rt_comm *comm, const rt_comm_request *r, rt_comm_ticket *ticket) {
  inproc_rank *me = (inproc_rank *)comm;
  TRY(inproc_error(comm));
  TRY(rt_comm_request_check(r, comm->rank, comm->n_ranks));
  note(me, r);
  rt_comm_ticket t = {0};
  status st = ir_comm_is_message(r->kind) ? post_messages(me, r, &t) : post_team(me, r, &t);
  if (st != STATUS_OK) inproc_fail(me->world, st, status_message()); /* half of it may be posted */
  *ticket = t;
  return inproc_error(comm);
}

const rt_comm_ops rt_comm_inproc = {
    .name = "inproc",
    .summary = "devices are threads of one process and read each other's memory",
    .open = inproc_open,
    .close = inproc_close,
    .prepare = inproc_prepare,
    .post = inproc_post,
    .done = inproc_done,
    .progress = inproc_progress,
    .wait = inproc_wait,
    .abort = inproc_abort,
    .error = inproc_error,
    .describe = inproc_describe,
};
