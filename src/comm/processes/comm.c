/* The operations of the mpi backend. */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/processes/internal.h"
#include "runtime/device.h"

enum { START_SECONDS = 60 };
static _Atomic int64_t asked_ns; /* start_ns of the endpoint that was opened last; 0: none */

int64_t mpi_start_timeout_ns(void) {
  const char *text = getenv("WEIR_MPI_START_SECONDS");
  double seconds = text ? strtod(text, NULL) : 0;
  int64_t asked = atomic_load(&asked_ns);
  if (seconds > 0) return (int64_t)(seconds * 1e9);
  return asked > 0 ? asked : START_SECONDS * INT64_C(1000000000);
}

/* ---- opening ---- */
static status check_options(mpi_engine *e, const rt_comm_options *options, uint32_t room) {
  uint32_t n = options->ranks, size = e->place.size;
  if (n > size)
    return fail(STATUS_BAD_USAGE, "%s: %u ranks are wanted, but there are %u", e->base.ops->name, n,
                size);
  if (n > RT_COMM_MAX_RANKS || room == 0)
    return fail(STATUS_BAD_USAGE, "%s: %u ranks; 1 to %d are possible", e->base.ops->name, n,
                RT_COMM_MAX_RANKS);
  return STATUS_OK;
}

/* *all: all ranks have opened the world. UNAVAILABLE: one of them never will. The lock is held. */
static status look_who_came(mpi_engine *e, uint32_t epoch, bool *all) {
  *all = true;
  if (e->is_broken) return fail(STATUS_SYSTEM, "%s", e->broken_text);
  for (uint32_t r = 0; r < e->place.size; r++) {
    const mpi_process *p = &e->processes[r];
    if (p->epoch >= epoch) continue;
    *all = false;
    if (p->is_dead || p->said_bye)
      return fail(STATUS_UNAVAILABLE, "%s: rank %u ended before it opened its endpoint",
                  e->base.ops->name, r);
  }
  return STATUS_OK;
}

static status fail_by_absence(mpi_engine *e, uint32_t epoch) {
  uint32_t r = 0;
  while (r + 1 < e->place.size && e->processes[r].epoch >= epoch) r++;
  return fail(STATUS_UNAVAILABLE, "%s: rank %u has not opened its endpoint within %g s",
              e->base.ops->name, r, (double)mpi_start_timeout_ns() * 1e-9);
}

static status meet(mpi_engine *e, uint32_t epoch) {
  int64_t end_ns = rt_clock_ns() + mpi_start_timeout_ns();
  status st = STATUS_OK;
  bool all = false;
  for (uint32_t tries = 0; st == STATUS_OK && !all; tries++) {
    mpi_engine_lock(e);
    if (mpi_engine_poll(e)) tries = 0;
    st = look_who_came(e, epoch, &all);
    if (st == STATUS_OK && !all && rt_clock_ns() > end_ns) st = fail_by_absence(e, epoch);
    mpi_engine_unlock(e);
    if (!all) mpi_pause(tries);
  }
  return st;
}

/* All processes take part, also those whose rank is not in this world. */
static mpi_world *enter(mpi_engine *e, const rt_comm_options *options, const allocator *memory,
                        uint32_t *epoch) {
  mpi_engine_lock(e);
  *epoch = ++e->epochs;
  mpi_world *w = mpi_world_create(e, options, memory, e->base.ops, *epoch);
  if (w) {
    w->next = e->worlds;
    e->worlds = w;
    e->processes[e->place.rank].epoch = *epoch;
    mpi_say_open(e, *epoch);
  }
  mpi_engine_unlock(e);
  return w;
}

bool mpi_are_crowded(const mpi_process *processes, uint32_t n, uint32_t me, uint32_t cores) {
  uint32_t sharing = 0;
  for (uint32_t r = 0; r < n; r++) sharing += processes[r].cores == processes[me].cores;
  return sharing > cores;
}

static void first_meeting(mpi_engine *e) {
  mpi_engine_lock(e);
  for (uint32_t r = 0; r < e->place.size; r++)
    e->n_here += e->processes[r].host == e->processes[e->place.rank].host;
  e->is_crowded = mpi_are_crowded(e->processes, e->place.size, e->place.rank, e->own_cores);
  if (e->transport->met) e->transport->met(e->link);
  mpi_engine_unlock(e);
}

static void destroy(mpi_world *w) {
  mpi_engine *e = w->engine;
  mpi_engine_lock(e);
  mpi_world **link = &e->worlds;
  while (*link != w) link = &(*link)->next;
  *link = w->next;
  mpi_io_detach(w);
  mpi_world_destroy(w);
  mpi_engine_unlock(e);
}

static status open_in(mpi_engine *e, const rt_comm_options *wanted, const allocator *memory,
                      rt_comm **endpoints, uint32_t *count) {
  uint32_t epoch;
  mpi_world *w = enter(e, wanted, memory, &epoch);
  if (!w) return STATUS_OUT_OF_MEMORY;
  status st = meet(e, epoch);
  if (st == STATUS_OK && epoch == 1) first_meeting(e);
  bool takes_part = w->base.rank < wanted->ranks;
  if (st != STATUS_OK || !takes_part) destroy(w);
  if (st != STATUS_OK) return st;
  if (takes_part) endpoints[0] = &w->base;
  *count = takes_part;
  return STATUS_OK;
}

/* Opens an endpoint, which is a user of its engine. */
static status open_group(mpi_engine *e, const rt_comm_options *options, const allocator *memory,
                         uint32_t room, rt_comm **endpoints, uint32_t *count) {
  rt_comm_options wanted = *options;
  if (wanted.ranks == 0) wanted.ranks = e->place.size;
  status st = check_options(e, &wanted, room);
  if (st == STATUS_OK) st = open_in(e, &wanted, memory, endpoints, count);
  if (st != STATUS_OK || *count == 0) mpi_engine_release(e);
  return st;
}

static status open_with(const rt_comm_ops *ops, const rt_comm_options *options,
                        const allocator *memory, uint32_t room, rt_comm **endpoints,
                        uint32_t *count) {
  rt_group *group = options->group;
  if (options->start_ns > 0) atomic_store(&asked_ns, options->start_ns);
  if (group) group->retain(group);
  else TRY(mpi_group_of_launcher(ops, &group));
  return open_group((mpi_engine *)group, options, memory, room, endpoints, count);
}

static status mpi_open(const rt_comm_options *options, const allocator *memory, uint32_t room,
                       rt_comm **endpoints, uint32_t *count) {
  return open_with(&rt_comm_mpi, options, memory, room, endpoints, count);
}

static status tcp_open(const rt_comm_options *options, const allocator *memory, uint32_t room,
                       rt_comm **endpoints, uint32_t *count) {
  return open_with(&rt_comm_tcp, options, memory, room, endpoints, count);
}

/* ---- failure ---- */
static status mpi_error(rt_comm *comm) {
  const mpi_world *w = (mpi_world *)comm;
  return mpi_world_state(w) == MPI_FAILED ? fail(w->why, "%s", w->reason) : STATUS_OK;
}

static void mpi_end(rt_comm *comm, status why, const char *reason) {
  mpi_world *w = (mpi_world *)comm;
  mpi_engine *e = w->engine;
  mpi_engine_lock(e);
  mpi_world_fail(w, why, reason);
  mpi_engine_unlock(e);
  mpi_world_settle(w);
}

/* Fails the world if a rank waits for this one, or if this one has not waited for its own posts. */
static void check_nobody_waits(mpi_world *w) {
  char waits[MPI_REASON_BYTES / 2], text[MPI_REASON_BYTES];
  uint32_t at = 0;
  for (mpi_queue *q; (q = mpi_world_queue(w, &at)) && mpi_world_state(w) == MPI_WELL;) {
    mpi_describe_waiter(q, waits, sizeof waits);
    if (!waits[0]) continue;
    (void)snprintf(text, sizeof text, "rank %u left while %s", w->base.rank, waits);
    mpi_world_fail(w, STATUS_UNAVAILABLE, text);
  }
}

static void mpi_close(rt_comm *comm) {
  if (!comm) return;
  mpi_world *w = (mpi_world *)comm;
  mpi_engine *e = w->engine;
  mpi_engine_lock(e);
  (void)mpi_engine_poll(e);
  w->peers[w->base.rank].has_left = true;
  check_nobody_waits(w);
  mpi_engine_unlock(e);
  mpi_world_settle(w);
  mpi_engine_lock(e);
  mpi_say_leave(w);
  mpi_engine_unlock(e);
  destroy(w);
  mpi_engine_release(e);
}

/* ---- posting ---- */
static void note(mpi_world *w, const rt_comm_request *r) {
  w->last_kind = (int)r->kind;
  (void)snprintf(w->last_origin, sizeof w->last_origin, "%s", r->origin ? r->origin : "");
}

static status submit(mpi_world *w, mpi_queue *q, uint32_t member, const rt_comm_request *request,
                     rt_comm_ticket *ticket, uint32_t half) {
  mpi_engine *e = q->world->engine;
  mpi_record *r = mpi_record_take(w);
  if (!r) return STATUS_OUT_OF_MEMORY;
  r->request = *request;
  if (!q->is_pair) r->request.team = q->devices;
  r->queue = q;
  r->member = member;
  r->is_local = true;
  if (e->submit_first) e->submit_last->next = r;
  else e->submit_first = r;
  e->submit_last = r;
  (void)atomic_fetch_add(&w->unfinished, 1);
  ticket->half[half].where = &q->members[member];
  ticket->half[half].turn = ++q->members[member].posted;
  atomic_store(&e->has_submitted, true);
  return STATUS_OK;
}

/* A permute is a send and a recv. Both queues exist before either half is posted. */
static status submit_messages(mpi_world *w, const rt_comm_request *r, rt_comm_ticket *ticket) {
  mpi_queue *out = NULL, *in = NULL;
  if (r->kind != IR_COMM_RECV && r->to >= 0) TRY(mpi_pair(w, true, r->team[r->to], &out));
  if (r->kind != IR_COMM_SEND && r->from >= 0) TRY(mpi_pair(w, false, r->team[r->from], &in));
  if (out) TRY(submit(w, out, 0, r, ticket, 0));
  if (!in) return STATUS_OK;
  rt_comm_request received = *r;
  if (r->kind == IR_COMM_PERMUTE) received.count = r->count_from;
  return submit(w, in, 1, &received, ticket, 1);
}

static status submit_all(mpi_world *w, const rt_comm_request *r, rt_comm_ticket *ticket) {
  note(w, r);
  if (ir_comm_is_message(r->kind)) return submit_messages(w, r, ticket);
  mpi_queue *q;
  TRY(mpi_team(w, r->team, r->n_team, &q));
  return submit(w, q, r->me, r, ticket, 0);
}

static status mpi_post(rt_comm *comm, const rt_comm_request *r, rt_comm_ticket *ticket) {
  mpi_world *w = (mpi_world *)comm;
  mpi_engine *e = w->engine;
  TRY(mpi_error(comm));
  TRY(rt_comm_request_check(r, comm->rank, comm->n_ranks));
  rt_comm_ticket t = {0};
  (void)pthread_mutex_lock(&e->submit_lock);
  status st = submit_all(w, r, &t);
  (void)pthread_mutex_unlock(&e->submit_lock);
  if (st != STATUS_OK) mpi_end(comm, st, status_message()); /* half of it may be posted */
  mpi_engine_kick(e);
  mpi_engine_wake(e);
  *ticket = t;
  return mpi_error(comm);
}

static status mpi_prepare(rt_comm *comm, const uint32_t *team, uint32_t n_team) {
  mpi_engine *e = ((mpi_world *)comm)->engine;
  rt_comm_request r = {.kind = IR_COMM_ALLREDUCE, .dtype = IR_F32, .team = team, .n_team = n_team};
  while (r.me + 1 < n_team && team[r.me] != comm->rank) r.me++;
  TRY(rt_comm_request_check(&r, comm->rank, comm->n_ranks));
  mpi_queue *q;
  (void)pthread_mutex_lock(&e->submit_lock);
  status st = mpi_team((mpi_world *)comm, team, n_team, &q);
  (void)pthread_mutex_unlock(&e->submit_lock);
  return st;
}

/* ---- waiting ---- */
static bool mpi_done(rt_comm *comm, const rt_comm_ticket *ticket) {
  return mpi_is_complete(ticket) || mpi_world_state((mpi_world *)comm) == MPI_FAILED;
}

/* A thread that finds nothing to do here will sleep, so the progress thread polls more often. Where ranks share
 * cores, it also yields its core, which what it waits for may need. */
static bool mpi_progress(rt_comm *comm) {
  mpi_engine *e = ((mpi_world *)comm)->engine;
  bool moved = mpi_engine_drive(e);
  if (!moved && !atomic_load(&e->is_awaited)) atomic_store(&e->is_awaited, true);
  if (!moved && e->is_crowded) (void)sched_yield();
  return moved;
}

static void time_out(rt_comm *comm, const rt_comm_ticket *ticket, int64_t timeout_ns) {
  char text[MPI_REASON_BYTES];
  int used = snprintf(text, sizeof text, "no progress in %.3g s: ", (double)timeout_ns * 1e-9);
  mpi_describe(comm, ticket, text + used, sizeof text - (size_t)used);
  if (!mpi_done(comm, ticket)) mpi_end(comm, STATUS_UNAVAILABLE, text);
}

static int64_t mpi_stirred(rt_comm *comm) { return atomic_load(&((mpi_world *)comm)->stirred_ns); }

static status mpi_wait(rt_comm *comm, const rt_comm_ticket *ticket, int64_t timeout_ns) {
  mpi_engine *e = ((mpi_world *)comm)->engine;
  int64_t start_ns = timeout_ns >= 0 ? rt_clock_ns() : 0;
  (void)atomic_fetch_add(&e->waiters, 1);
  for (uint32_t tries = 0; !mpi_done(comm, ticket); tries++) {
    if (mpi_engine_drive(e)) {
      tries = 0;
      continue;
    }
    int64_t stirred_ns = mpi_stirred(comm);
    if (stirred_ns > start_ns) start_ns = stirred_ns;
    if (timeout_ns >= 0 && rt_clock_ns() - start_ns > timeout_ns)
      time_out(comm, ticket, timeout_ns);
    else mpi_pause(tries);
  }
  (void)atomic_fetch_sub(&e->waiters, 1);
  return mpi_is_complete(ticket) ? STATUS_OK : mpi_error(comm);
}

#define OPERATIONS                                                                                 \
  .close = mpi_close, .prepare = mpi_prepare, .post = mpi_post, .done = mpi_done,                  \
  .progress = mpi_progress, .wait = mpi_wait, .abort = mpi_end, .error = mpi_error,                \
  .describe = mpi_describe, .stirred = mpi_stirred

const rt_comm_ops rt_comm_mpi = {
    .name = "mpi",
    .summary = "each device is a process that an MPI launcher started",
    .open = mpi_open,
    .examine = mpi_examine,
    OPERATIONS,
};

const rt_comm_ops rt_comm_tcp = {
    .name = "tcp",
    .summary = "each device is a process that torchrun or a caller's world started, without MPI",
    .open = tcp_open,
    OPERATIONS,
};
