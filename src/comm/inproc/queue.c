/* Matching posts, and taking part in the operation at the front. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>

#include "comm/inproc/inproc.h"

enum { RING_RECORDS = 8 };

/* What happened at the front of a queue. The holder of the lock tells others after unlocking. */
typedef enum front_change { NOTHING = 0, ENDED = 1, STARTED = 2, STARTED_SMALL = 4 } front_change;

/* ---- records ---- */
/* Makes room after `tail`. A block's first record only links the blocks, to free them by. */
static status ring_grow(inproc_queue *q, inproc_member *m) {
  inproc_record *block = memory_alloc(q->world->memory, RING_RECORDS * sizeof *block);
  if (!block) return STATUS_OUT_OF_MEMORY;
  block->next = m->blocks;
  m->blocks = block;
  inproc_record *first = block + 1, *last = block + RING_RECORDS - 1;
  for (inproc_record *r = first; r < last; r++) r->next = r + 1;
  last->next = m->tail ? m->tail->next : first;
  if (m->tail) m->tail->next = first;
  else m->head = m->tail = first;
  return STATUS_OK;
}

static bool has_post(const inproc_member *m) {
  return m->posted > atomic_load_explicit(&m->completed, memory_order_relaxed);
}

/* ---- disagreement ---- */
/* Fails the world if the posts at the front of members a and b disagree. */
static void check_agreement(inproc_queue *q, uint32_t a, uint32_t b) {
  char text[INPROC_REASON_BYTES];
  rt_comm_party party = {q->devices, q->n, q->is_pair};
  if (!rt_comm_party_agrees(party, a, &q->members[a].head->request, b, &q->members[b].head->request,
                            text, sizeof text))
    inproc_fail(q->world, STATUS_BAD_PROGRAM, text);
}

/* Notes that member m has a post at the front. */
static void arrive(inproc_queue *q, uint32_t m) {
  if (q->present++ == 0) q->first = m;
  else check_agreement(q, q->first, m);
}

/* ---- the front; the lock is held ---- */
static void end_operation(inproc_queue *q) {
  q->is_running = false;
  q->finished++;
  q->present = 0;
  for (uint32_t p = 0; p < q->n; p++) {
    inproc_member *m = &q->members[p];
    m->head = m->head->next;
    (void)atomic_fetch_add_explicit(&m->rank->ended, 1, memory_order_relaxed);
    (void)atomic_fetch_add(&m->completed, 1);
    if (has_post(m)) arrive(q, p);
  }
}

static void set_active(inproc_queue *q, bool on) {
  uint64_t bit = (uint64_t)1 << (q->id % 64);
  _Atomic uint64_t *word = &q->world->active[q->id / 64];
  if (on) (void)atomic_fetch_or(word, bit);
  else (void)atomic_fetch_and(word, ~bit);
}

/* Sets `remaining` before the parts: a thread that takes a chunk may be done with it before the last part is set. */
static void start_operation(inproc_queue *q, uint32_t chunks) {
  q->is_running = true;
  atomic_store_explicit(&q->remaining, chunks, memory_order_relaxed);
  for (uint32_t p = 0; p < q->n; p++)
    atomic_store_explicit(&q->members[p].left, inproc_range(0, q->members[p].chunks),
                          memory_order_release);
  set_active(q, true);
}

/* Starts the operation at the front if it can start. Operations without data end here. */
static unsigned advance(inproc_queue *q) {
  unsigned change = NOTHING;
  while (!q->is_running && q->present == q->n && !atomic_load(&q->world->failed)) {
    uint32_t chunks = inproc_job_make(q);
    if (chunks == 0) {
      end_operation(q);
      change |= ENDED;
      continue;
    }
    bool small = inproc_job_is_small(q);
    start_operation(q, chunks);
    return change | (small ? STARTED_SMALL : STARTED);
  }
  return change;
}

/* Called without the lock. The caller runs a small operation; for others it wakes some threads that may help. */
static void tell(inproc_queue *q, unsigned change) {
  if (change & ENDED) inproc_wake(q, UINT32_MAX);
  else if (change & STARTED) inproc_wake(q, q->world->cores);
}

/* ---- helping ---- */
/* Takes the next chunk of a part, unless it is one of the last `leave` and another thread works on the part. */
static bool take(inproc_member *m, bool own, uint32_t leave, uint32_t *chunk) {
  uint64_t left = atomic_load_explicit(&m->left, memory_order_relaxed);
  for (;;) {
    uint32_t begin = inproc_range_begin(left), end = inproc_range_end(left);
    if (begin == end) return false;
    if (end - begin <= leave && atomic_load_explicit(&m->is_tended, memory_order_relaxed))
      return false;
    *chunk = own ? begin : end - 1;
    uint64_t rest = own ? inproc_range(begin + 1, end) : inproc_range(begin, end - 1);
    if (atomic_compare_exchange_weak_explicit(&m->left, &left, rest, memory_order_acq_rel,
                                              memory_order_relaxed))
      return true;
  }
}

/* False after a failure: then no thread may touch buffers any more, since their owners free them. */
static bool enter(inproc_queue *q) {
  (void)atomic_fetch_add(&q->helpers, 1);
  if (!atomic_load(&q->world->failed)) return true;
  (void)atomic_fetch_sub(&q->helpers, 1);
  return false;
}

static uint32_t run_part(inproc_queue *q, uint32_t p, bool own, uint32_t leave, uint32_t budget) {
  uint32_t chunk, taken = 0;
  while (taken < budget && !atomic_load_explicit(&q->world->failed, memory_order_relaxed) &&
         take(&q->members[p], own, leave, &chunk)) {
    inproc_chunk_run(q, p, chunk);
    taken++;
  }
  return taken;
}

static uint32_t run_own(inproc_queue *q, uint32_t p, uint32_t budget) {
  inproc_member *m = &q->members[p];
  atomic_store_explicit(&m->is_tended, true, memory_order_relaxed);
  uint32_t taken = run_part(q, p, true, 0, budget);
  atomic_store_explicit(&m->is_tended, false, memory_order_relaxed);
  return taken;
}

/* With more ranks than cores, any thread may run on a core when an operation begins. So a thread begins
 * with the parts of its core, not with that of its rank: what a core has written, and may still have in
 * its cache, it then writes again in the next operation. */
static uint32_t run_chunks(inproc_queue *q, uint32_t first, uint32_t budget, uint32_t leave) {
  uint32_t cores = q->world->cores, taken = 0, n = q->n, step = n;
  int core = q->world->n_ranks > cores ? sched_getcpu() : -1;
  if (core >= 0 && cores < n) first = (uint32_t)core % cores, step = cores;
  for (uint32_t p = first; p < n && taken < budget; p += step)
    taken += run_own(q, p, budget - taken);
  for (uint32_t k = 1; k < n && taken < budget; k++)
    taken += run_part(q, (first + k) % n, false, leave, budget - taken);
  return taken;
}

/* Called by the thread that did the last chunk. */
static unsigned finish(inproc_queue *q) {
  (void)pthread_mutex_lock(&q->lock);
  set_active(q, false);
  end_operation(q);
  unsigned change = advance(q) | ENDED;
  (void)pthread_mutex_unlock(&q->lock);
  return change;
}

bool inproc_help(inproc_queue *q, uint32_t first, uint32_t budget, uint32_t leave) {
  if (!enter(q)) return false;
  bool helped = false;
  for (;;) {
    uint32_t taken = run_chunks(q, first, budget, leave);
    helped |= taken > 0;
    if (taken == 0 || atomic_fetch_sub(&q->remaining, taken) != taken) break;
    unsigned change = finish(q);
    tell(q, change);
    if (!(change & STARTED_SMALL)) break;
    budget = UINT32_MAX, leave = 0; /* no thread was woken for the small operation */
  }
  (void)atomic_fetch_sub(&q->helpers, 1);
  return helped;
}

/* ---- posting ---- */
static status append(inproc_queue *q, uint32_t member, const rt_comm_request *request,
                     uint64_t *turn) {
  inproc_member *m = &q->members[member];
  if (!m->tail || m->tail->next == m->head) TRY(ring_grow(q, m));
  m->tail->request = *request;
  m->tail->request.team = q->is_pair ? request->team : q->devices;
  m->tail = m->tail->next;
  *turn = ++m->posted;
  if (*turn == atomic_load_explicit(&m->completed, memory_order_relaxed) + 1) arrive(q, member);
  return STATUS_OK;
}

status inproc_enqueue(inproc_queue *q, uint32_t member, const rt_comm_request *request,
                      rt_comm_ticket *ticket, uint32_t half) {
  unsigned change = NOTHING;
  uint64_t turn = 0;
  (void)pthread_mutex_lock(&q->lock);
  status st = append(q, member, request, &turn);
  if (st == STATUS_OK) change = advance(q);
  (void)pthread_mutex_unlock(&q->lock);
  if (st != STATUS_OK) return st;
  ticket->half[half].where = &q->members[member];
  ticket->half[half].turn = turn;
  tell(q, change);
  if (change & STARTED_SMALL) (void)inproc_help(q, member, UINT32_MAX, 0);
  return STATUS_OK;
}
