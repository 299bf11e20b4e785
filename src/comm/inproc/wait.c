/* Waiting: help, look for a while, sleep.
 *
 * Sleeping follows one pattern, with sequentially consistent operations on both sides:
 *   sleeper: announce itself, then look;   other: change something, then look for sleepers. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/pause.h"
#include "comm/inproc/inproc.h"
#include "runtime/device.h"

enum {
  SPINS = 2000,   /* waking a sleeper takes 20 to 50 us; this is about as long */
  YIELDS = 100,   /* likewise with more threads than cores: lets the awaited ones run */
  LEFT_ALONE = 8, /* chunks left to a thread that works on a part, in the first half of those */
  BUDGET = 8,     /* chunks per call of progress(): 2 MiB read and written */
};

static _Atomic uint32_t waiting; /* threads in wait(), of all worlds */

/* ---- waking ---- */
void inproc_wake_rank(inproc_rank *r) {
  if (r->world->notify) r->world->notify(r->world->context, r->base.rank);
  if (atomic_load(&r->sleepers) == 0) return;
  (void)atomic_fetch_add(&r->events, 1);
  (void)syscall(SYS_futex, &r->events, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

void inproc_wake(inproc_queue *q, uint32_t most) {
  bool notifies = q->world->notify != NULL;
  for (uint32_t i = 0; i < q->n && most > 0; i++) {
    inproc_rank *r = q->members[i].rank;
    if (!notifies && atomic_load(&r->sleepers) == 0) continue;
    inproc_wake_rank(r);
    most--;
  }
}

/* ---- helping ---- */
/* The part a rank begins with: its own, or any if it is no member. */
static uint32_t part_of(const inproc_queue *q, const inproc_rank *r) {
  int32_t position = q->positions[r->base.rank];
  return position >= 0 ? (uint32_t)position : r->base.rank % q->n;
}

/* Helps in queues with a job: those of which this rank is a member, or, without `member`, the others. */
static bool help_some(inproc_rank *r, bool member, uint32_t leave) {
  inproc_world *w = r->world;
  uint32_t words = (atomic_load(&w->n_queues) + 63) / 64;
  for (uint32_t i = 0; i < words; i++)
    for (uint64_t bits = atomic_load(&w->active[i]); bits; bits &= bits - 1) {
      inproc_queue *q = atomic_load(&w->queues[i * 64 + (uint32_t)__builtin_ctzll(bits)]);
      if ((q->positions[r->base.rank] >= 0) != member) continue;
      if (inproc_help(q, part_of(q, r), BUDGET, leave)) return true;
    }
  return false;
}

bool inproc_progress(rt_comm *comm) {
  inproc_rank *r = (inproc_rank *)comm;
  return help_some(r, true, 0) || help_some(r, false, 0);
}

/* Whether there is a chunk to take. */
static bool has_work(const inproc_world *w) {
  uint32_t words = (atomic_load(&w->n_queues) + 63) / 64;
  for (uint32_t i = 0; i < words; i++)
    for (uint64_t bits = atomic_load(&w->active[i]); bits; bits &= bits - 1) {
      inproc_queue *q = atomic_load(&w->queues[i * 64 + (uint32_t)__builtin_ctzll(bits)]);
      for (uint32_t p = 0; p < q->n; p++) {
        uint64_t left = atomic_load(&q->members[p].left);
        if (inproc_range_begin(left) != inproc_range_end(left)) return true;
      }
    }
  return false;
}

/* ---- waiting ---- */
bool inproc_done(rt_comm *comm, const rt_comm_ticket *ticket) {
  if (inproc_is_complete(ticket)) return true;
  return atomic_load(&inproc_world_of(comm)->failed) && inproc_is_quiet((inproc_rank *)comm);
}

/* Whether all ranks and waiting threads have a core each. */
static bool is_roomy(const inproc_world *w) {
  return w->n_ranks <= w->cores && atomic_load_explicit(&waiting, memory_order_relaxed) <= w->cores;
}

/* Whether to look again, the spins-th time in a row, before sleeping. */
static bool looks_again(bool roomy, uint32_t spins) {
  if (spins >= (roomy ? SPINS : YIELDS)) return false;
  if (roomy) thread_pause();
  else (void)sched_yield();
  return true;
}

/* Sleeps until something changes; false: the deadline has passed. */
static bool doze(inproc_rank *r, const rt_comm_ticket *t, int64_t deadline_ns) {
  uint32_t events = atomic_load(&r->events);
  (void)atomic_fetch_add(&r->sleepers, 1);
  int64_t rest_ns = deadline_ns < 0 ? 3600 * (int64_t)1000000000 : deadline_ns - rt_clock_ns();
  bool awake = inproc_is_complete(t) || has_work(r->world) || atomic_load(&r->world->failed);
  if (!awake && rest_ns > 0) {
    struct timespec rest = {.tv_sec = rest_ns / 1000000000, .tv_nsec = rest_ns % 1000000000};
    (void)syscall(SYS_futex, &r->events, FUTEX_WAIT_PRIVATE, events, &rest, NULL, 0);
  }
  (void)atomic_fetch_sub(&r->sleepers, 1);
  return awake || rest_ns > 0;
}

static void time_out(inproc_rank *r, const rt_comm_ticket *ticket, int64_t timeout_ns) {
  char text[INPROC_REASON_BYTES];
  int used = snprintf(text, sizeof text, "no progress in %.3g s: ", (double)timeout_ns * 1e-9);
  inproc_describe(&r->base, ticket, text + used, sizeof text - (size_t)used);
  inproc_fail(r->world, STATUS_UNAVAILABLE, text);
}

/* A failure ends the wait when no thread touches the caller's buffers any more. */
static bool is_over(inproc_rank *r, const rt_comm_ticket *ticket) {
  if (inproc_is_complete(ticket)) return true;
  if (!atomic_load(&r->world->failed)) return false;
  inproc_quiesce(r);
  return true;
}

static void wait_for(inproc_rank *r, const rt_comm_ticket *ticket, int64_t timeout_ns) {
  int64_t deadline_ns = timeout_ns < 0 ? -1 : rt_clock_ns() + timeout_ns;
  for (uint32_t spins = 0; !is_over(r, ticket); spins++) {
    bool roomy = is_roomy(r->world);
    uint32_t leave = spins < (roomy ? SPINS : YIELDS) / 2 ? LEFT_ALONE : 0;
    if (!help_some(r, true, leave) && !help_some(r, false, leave)) {
      if (looks_again(roomy, spins)) continue;
      if (!doze(r, ticket, deadline_ns)) time_out(r, ticket, timeout_ns);
    }
    spins = 0;
  }
}

status inproc_wait(rt_comm *comm, const rt_comm_ticket *ticket, int64_t timeout_ns) {
  if (inproc_is_complete(ticket)) return STATUS_OK;
  (void)atomic_fetch_add_explicit(&waiting, 1, memory_order_relaxed);
  wait_for((inproc_rank *)comm, ticket, timeout_ns);
  (void)atomic_fetch_sub_explicit(&waiting, 1, memory_order_relaxed);
  return inproc_is_complete(ticket) ? STATUS_OK : comm->ops->error(comm);
}
