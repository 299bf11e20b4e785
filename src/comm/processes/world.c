/* Worlds: their queues, and how they fail.
 *
 * A world fails for the same reason on all ranks. A rank that finds a reason proposes it to the arbiter, the
 * lowest rank that is still there. The arbiter takes the first proposal and tells all ranks. In between the
 * world is FAILING: nothing moves, and callers do not see the failure yet. If the arbiter is gone, the next
 * one is asked; if it does not answer, each rank decides for itself. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "comm/processes/internal.h"
#include "runtime/device.h"

enum { DECIDE_SECONDS = 3, BEAT_NS = 200000000 };

/* ---- queues; submit_lock is held ---- */
static mpi_queue *queue_create(mpi_world *w, const uint32_t *devices, uint32_t n) {
  size_t members = sizeof(mpi_queue) + n * sizeof(mpi_member);
  mpi_queue *q = memory_alloc(w->memory, members + n * (sizeof(void *) + sizeof *devices));
  if (!q) return NULL;
  memset(q, 0, members);
  q->world = w;
  q->n = n;
  q->sources = (const void **)(void *)((char *)q + members);
  q->devices = (uint32_t *)(void *)(q->sources + n);
  memcpy(q->devices, devices, n * sizeof *devices);
  for (uint32_t i = n; i-- > 0;) {
    q->members[i].queue = q;
    q->members[i].device = devices[i];
    if (devices[i] == w->base.rank) q->me = i;
  }
  return q;
}

static uint32_t team_hash(const uint32_t *devices, uint32_t n) {
  uint32_t h = 2166136261U ^ n;
  for (uint32_t i = 0; i < n; i++) h = (h ^ devices[i]) * 16777619U;
  return h;
}

status mpi_team(mpi_world *w, const uint32_t *devices, uint32_t n, mpi_queue **result) {
  uint32_t hash = team_hash(devices, n);
  for (uint32_t i = 0; i < w->n_teams; i++) {
    mpi_queue *q = w->teams[i];
    if (q->hash != hash || q->n != n || memcmp(q->devices, devices, n * sizeof *devices) != 0)
      continue;
    *result = q;
    return STATUS_OK;
  }
  if (w->n_teams == MPI_MAX_TEAMS)
    return fail(STATUS_UNAVAILABLE, "more than %d teams", MPI_MAX_TEAMS);
  mpi_queue *q = queue_create(w, devices, n);
  if (!q) return STATUS_OUT_OF_MEMORY;
  q->hash = hash;
  w->teams[w->n_teams] = q;
  q->id = ++w->n_teams;
  *result = q;
  return STATUS_OK;
}

status mpi_pair(mpi_world *w, bool sends, uint32_t other, mpi_queue **result) {
  uint32_t me = w->base.rank, n = w->base.n_ranks;
  mpi_queue **slot = &w->pairs[sends || other == me ? other : n + other];
  if (!*slot) {
    uint32_t devices[] = {sends ? me : other, sends ? other : me};
    *slot = queue_create(w, devices, 2);
    if (!*slot) return STATUS_OUT_OF_MEMORY;
    (*slot)->is_pair = true;
  }
  *result = *slot;
  return STATUS_OK;
}

mpi_record *mpi_record_take(mpi_world *w) {
  mpi_record *r = w->free_records;
  if (r) w->free_records = r->next;
  else r = memory_alloc(w->memory, sizeof *r);
  if (r) *r = (mpi_record){0};
  return r;
}

/* ---- failure ---- */
static bool is_gone(const mpi_world *w, uint32_t rank) {
  return w->peers[rank].has_left || w->peers[rank].has_died;
}

static uint32_t arbiter_of(const mpi_world *w) {
  uint32_t r = 0;
  while (r < w->base.rank && is_gone(w, r)) r++;
  return r;
}

static void set_reason(mpi_world *w, status why, const char *reason) {
  w->why = why;
  if (reason != w->reason) (void)snprintf(w->reason, sizeof w->reason, "%s", reason);
}

void mpi_world_decide(mpi_world *w, status why, const char *reason, bool tell) {
  mpi_engine *e = w->engine;
  if (mpi_world_state(w) == MPI_FAILED) return;
  set_reason(w, why, reason);
  e->has_failed = true;
  for (uint32_t r = 0; tell && r < w->base.n_ranks; r++)
    if (r != w->base.rank && !is_gone(w, r)) mpi_say_reason(w, true, r);
  atomic_store(&w->state, MPI_FAILED);
  if (w->notify) w->notify(w->context, w->base.rank);
}

static void propose(mpi_world *w) {
  mpi_engine *e = w->engine;
  w->arbiter = arbiter_of(w);
  w->decide_ns = rt_clock_ns() + DECIDE_SECONDS * (int64_t)1000000000;
  if (w->arbiter == w->base.rank || e->is_broken) mpi_world_decide(w, w->why, w->reason, true);
  else mpi_say_reason(w, false, w->arbiter);
}

void mpi_world_fail(mpi_world *w, status why, const char *reason) {
  if (mpi_world_state(w) != MPI_WELL) return;
  set_reason(w, why, reason);
  atomic_store(&w->state, MPI_FAILING);
  propose(w);
}

void mpi_world_stir(mpi_world *w) { atomic_store(&w->stirred_ns, rt_clock_ns()); }

/* Tells others that this rank makes progress. A rank that makes none sends nothing, so all ranks notice if none does. */
static void beat(mpi_world *w, int64_t now_ns) {
  rt_pulse now = {0};
  if (!w->pulse || now_ns - w->beat_ns < BEAT_NS) return;
  w->pulse(w->pulse_context, &now);
  w->beat_ns = now_ns;
  if (now.is_busy || now.done != w->beat_done) mpi_say_beat(w);
  w->beat_done = now.done;
}

void mpi_world_tick(mpi_world *w, int64_t now_ns) {
  if (mpi_world_state(w) == MPI_WELL) beat(w, now_ns);
  if (mpi_world_state(w) == MPI_FAILING && now_ns > w->decide_ns)
    mpi_world_decide(w, w->why, w->reason, true);
}

/* The i-th of all queues, or NULL: teams, then pairs. They do not go away while the lock is held. */
static mpi_queue *queue_at(mpi_world *w, uint32_t i) {
  mpi_engine *e = w->engine;
  (void)pthread_mutex_lock(&e->submit_lock);
  mpi_queue *q = i < MPI_MAX_TEAMS ? w->teams[i] : w->pairs[i - MPI_MAX_TEAMS];
  (void)pthread_mutex_unlock(&e->submit_lock);
  return q;
}

mpi_queue *mpi_world_queue(mpi_world *w, uint32_t *i) {
  uint32_t end = MPI_MAX_TEAMS + 2 * w->base.n_ranks;
  while (*i < end) {
    mpi_queue *q = queue_at(w, (*i)++);
    if (q) return q;
    if (*i < MPI_MAX_TEAMS) *i = MPI_MAX_TEAMS;
  }
  return NULL;
}

/* What this rank waits for, or where it is: "" if nothing is known. */
static void describe_own(mpi_world *w, char *text, size_t size_bytes) {
  rt_pulse now = {0};
  uint32_t at = 0;
  text[0] = 0;
  for (mpi_queue *q; (q = mpi_world_queue(w, &at));) {
    if (!q->members[q->me].head) continue;
    mpi_describe_waiter(q, text, size_bytes);
    if (text[0]) return;
  }
  if (w->pulse) w->pulse(w->pulse_context, &now);
  if (now.where[0]) (void)snprintf(text, size_bytes, "rank %u is at %s", w->base.rank, now.where);
}

static void fail_by_death(mpi_world *w, uint32_t rank) {
  char text[MPI_REASON_BYTES], own[MPI_REASON_BYTES / 2];
  describe_own(w, own, sizeof own);
  (void)snprintf(text, sizeof text, "rank %u (process %d) has died%s%s", rank,
                 w->engine->processes[rank].pid, own[0] ? "; " : "", own);
  mpi_world_fail(w, STATUS_UNAVAILABLE, text);
}

void mpi_world_peer_gone(mpi_world *w, uint32_t rank) {
  if (mpi_world_state(w) == MPI_FAILING && w->arbiter == rank) propose(w);
  if (w->peers[rank].has_died) fail_by_death(w, rank);
  uint32_t at = 0;
  for (mpi_queue *q; (q = mpi_world_queue(w, &at));) mpi_queue_check_gone(q);
}

void mpi_world_settle(mpi_world *w) {
  mpi_engine *e = w->engine;
  (void)atomic_fetch_add(&e->waiters, 1);
  for (uint32_t tries = 0; mpi_world_state(w) == MPI_FAILING; tries++)
    if (mpi_engine_drive(e)) tries = 0;
    else mpi_pause(tries);
  (void)atomic_fetch_sub(&e->waiters, 1);
}

/* ---- opening and closing ---- */
mpi_world *mpi_world_of(mpi_engine *e, uint32_t epoch) {
  mpi_world *w = e->worlds;
  while (w && w->epoch != epoch) w = w->next;
  return w;
}

static status tables_create(mpi_world *w) {
  uint32_t n = w->base.n_ranks;
  size_t pointer = sizeof(void *), teams = MPI_MAX_TEAMS * pointer;
  w->peers = memory_alloc(w->memory, n * sizeof *w->peers);
  w->pairs = memory_alloc(w->memory, 2 * n * pointer);
  w->teams = memory_alloc(w->memory, (n + 1) * teams);
  if (!w->peers || !w->pairs || !w->teams) return STATUS_OUT_OF_MEMORY;
  memset(w->peers, 0, n * sizeof *w->peers);
  memset(w->pairs, 0, 2 * n * pointer);
  memset(w->teams, 0, (n + 1) * teams);
  for (uint32_t r = 0; r < n; r++) {
    w->peers[r].teams = w->teams + (r + 1) * MPI_MAX_TEAMS;
    w->peers[r].last_kind = -1;
  }
  return STATUS_OK;
}

mpi_world *mpi_world_create(mpi_engine *e, const rt_comm_options *options, const allocator *memory,
                            const rt_comm_ops *ops, uint32_t epoch) {
  mpi_world *w = memory_alloc(memory, sizeof *w);
  if (!w) return NULL;
  *w = (mpi_world){.engine = e, .memory = memory, .epoch = epoch, .last_kind = -1};
  w->base = (rt_comm){.ops = ops, .rank = e->place.rank, .n_ranks = options->ranks};
  w->notify = options->notify;
  w->context = options->context;
  w->pulse = options->pulse;
  w->pulse_context = options->pulse_context;
  if (tables_create(w) == STATUS_OK) return w;
  mpi_world_destroy(w);
  return NULL;
}

static void records_free(mpi_world *w, mpi_record *r) {
  for (mpi_record *next; r; r = next) {
    next = r->next;
    mpi_io_free(r->payload);
    memory_free(w->memory, r);
  }
}

static void stream_free(mpi_stream *s) {
  for (uint32_t i = 0; i < MPI_WINDOW; i++)
    if (s->window[i] && s->window[i]->has_arrived) mpi_io_free(s->window[i]);
}

static void queue_destroy(mpi_queue *q) {
  if (!q) return;
  for (uint32_t p = 0; p < q->n; p++) {
    records_free(q->world, q->members[p].head);
    for (int phase = 0; phase < 2; phase++) stream_free(&q->members[p].in[phase]);
  }
  memory_free(q->world->memory, q);
}

void mpi_world_destroy(mpi_world *w) {
  for (uint32_t i = 0; w->teams && i < w->n_teams; i++) queue_destroy(w->teams[i]);
  for (uint32_t i = 0; w->pairs && i < 2 * w->base.n_ranks; i++) queue_destroy(w->pairs[i]);
  records_free(w, w->free_records);
  memory_free(w->memory, w->teams);
  memory_free(w->memory, w->pairs);
  for (uint32_t r = 0; w->peers && r < w->base.n_ranks; r++)
    memory_free(w->memory, w->peers[r].told);
  memory_free(w->memory, w->peers);
  memory_free(w->memory, w);
}
