/* The world: its ranks, its queues, its end. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "comm/inproc/inproc.h"

void *inproc_alloc(const allocator *memory, size_t size_bytes, void **block) {
  *block = memory_alloc(memory, size_bytes + INPROC_LINE_BYTES);
  if (!*block) return NULL;
  uintptr_t up = -(uintptr_t)*block & (INPROC_LINE_BYTES - 1);
  return memset((char *)*block + up, 0, size_bytes);
}

/* ---- queues ---- */
static void queue_init(inproc_queue *q, inproc_world *w, const uint32_t *devices, uint32_t n) {
  q->world = w;
  q->n = n;
  (void)pthread_mutex_init(&q->lock, NULL);
  for (uint32_t r = 0; r < w->n_ranks; r++) q->positions[r] = -1;
  for (uint32_t i = n; i-- > 0;) {
    q->devices[i] = devices[i];
    q->positions[devices[i]] = (int32_t)i;
    q->members[i].rank = &w->ranks[devices[i]];
    q->members[i].queue = q;
  }
}

/* One block: the queue, its members, its tables. */
static inproc_queue *queue_create(inproc_world *w, const uint32_t *devices, uint32_t n) {
  size_t members = sizeof(inproc_queue) + n * sizeof(inproc_member);
  size_t ends = 2 * n * sizeof(void *), tables = (n + w->n_ranks) * sizeof(uint32_t);
  void *block;
  inproc_queue *q = inproc_alloc(w->memory, members + ends + tables, &block);
  if (!q) return NULL;
  q->block = block;
  q->ins = (const void **)(void *)((char *)q + members);
  q->outs = (char **)(void *)(q->ins + n);
  q->devices = (uint32_t *)(void *)(q->outs + n);
  q->positions = (int32_t *)(q->devices + n);
  queue_init(q, w, devices, n);
  q->id = atomic_load(&w->n_queues);
  atomic_store(&w->queues[q->id], q);
  atomic_store(&w->n_queues, q->id + 1);
  return q;
}

static void queue_destroy(inproc_queue *q) {
  const allocator *memory = q->world->memory;
  for (uint32_t i = 0; i < q->n; i++)
    for (inproc_record *b = q->members[i].blocks, *next; b; b = next) {
      next = b->next;
      memory_free(memory, b);
    }
  (void)pthread_mutex_destroy(&q->lock);
  memory_free(memory, q->block);
}

static uint32_t team_hash(const uint32_t *devices, uint32_t n) {
  uint32_t h = 2166136261U ^ n;
  for (uint32_t i = 0; i < n; i++) h = (h ^ devices[i]) * 16777619U;
  return h;
}

/* The slot of a team in the hash table; NULL in it: the team has no queue yet. */
static _Atomic(inproc_queue *) *team_slot(inproc_world *w, const uint32_t *devices, uint32_t n) {
  for (uint32_t i = team_hash(devices, n);; i++) {
    _Atomic(inproc_queue *) *slot = &w->teams[i % INPROC_TEAM_SLOTS];
    const inproc_queue *q = atomic_load(slot);
    if (!q || (q->n == n && memcmp(q->devices, devices, n * sizeof *devices) == 0)) return slot;
  }
}

static status team_create(inproc_world *w, const uint32_t *devices, uint32_t n,
                          inproc_queue **result) {
  _Atomic(inproc_queue *) *slot = team_slot(w, devices, n);
  *result = atomic_load(slot);
  if (*result) return STATUS_OK;
  if (w->n_teams == INPROC_MAX_TEAMS)
    return fail(STATUS_UNAVAILABLE, "more than %d teams", INPROC_MAX_TEAMS);
  *result = queue_create(w, devices, n);
  if (!*result) return STATUS_OUT_OF_MEMORY;
  w->n_teams++;
  atomic_store(slot, *result);
  return STATUS_OK;
}

status inproc_team(inproc_world *w, const uint32_t *devices, uint32_t n, inproc_queue **result) {
  *result = atomic_load(team_slot(w, devices, n));
  if (*result) return STATUS_OK;
  (void)pthread_mutex_lock(&w->registry);
  status st = team_create(w, devices, n, result);
  (void)pthread_mutex_unlock(&w->registry);
  return st;
}

status inproc_pair(inproc_world *w, uint32_t sender, uint32_t receiver, inproc_queue **result) {
  _Atomic(inproc_queue *) *slot = &w->pairs[sender * w->n_ranks + receiver];
  *result = atomic_load(slot);
  if (*result) return STATUS_OK;
  (void)pthread_mutex_lock(&w->registry);
  *result = atomic_load(slot);
  if (!*result) {
    *result = queue_create(w, (const uint32_t[]){sender, receiver}, 2);
    if (*result) {
      (*result)->is_pair = true;
      atomic_store(slot, *result);
    }
  }
  (void)pthread_mutex_unlock(&w->registry);
  return *result ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

/* ---- failure ---- */
void inproc_fail(inproc_world *w, status why, const char *reason) {
  (void)pthread_mutex_lock(&w->reason_lock);
  if (!atomic_load(&w->failed)) {
    w->why = why;
    (void)snprintf(w->reason, sizeof w->reason, "%s", reason);
    atomic_store(&w->failed, true);
  }
  (void)pthread_mutex_unlock(&w->reason_lock);
  for (uint32_t r = 0; r < w->n_ranks; r++) inproc_wake_rank(&w->ranks[r]);
}

bool inproc_is_quiet(inproc_rank *r) {
  inproc_world *w = r->world;
  for (uint32_t i = 0, n = atomic_load(&w->n_queues); i < n; i++) {
    inproc_queue *q = atomic_load(&w->queues[i]);
    if (q->positions[r->base.rank] >= 0 && atomic_load(&q->helpers) > 0) return false;
  }
  return true;
}

/* Spins: chunks are short, and no new ones are begun. */
void inproc_quiesce(inproc_rank *r) {
  while (!inproc_is_quiet(r)) (void)sched_yield();
}

/* ---- opening and closing ---- */
static void world_destroy(inproc_world *w) {
  for (uint32_t i = 0, n = atomic_load(&w->n_queues); i < n; i++)
    queue_destroy(atomic_load(&w->queues[i]));
  (void)pthread_mutex_destroy(&w->registry);
  (void)pthread_mutex_destroy(&w->reason_lock);
  memory_free(w->memory, w->block);
}

inproc_world *inproc_world_create(const rt_comm_options *options, const allocator *memory,
                                  const rt_comm_ops *ops) {
  uint32_t n = options->ranks, max_queues = INPROC_MAX_TEAMS + n * n;
  size_t ranks = sizeof(inproc_world) + n * sizeof(inproc_rank), pointer = sizeof(void *);
  size_t tables = (max_queues + INPROC_TEAM_SLOTS + n * n) * pointer;
  void *block;
  inproc_world *w = inproc_alloc(memory, ranks + tables + (max_queues / 64 + 1) * 8, &block);
  if (!w) return NULL;
  w->block = block;
  w->memory = memory;
  w->n_ranks = n;
  w->notify = options->notify;
  w->context = options->context;
  w->queues = (_Atomic(inproc_queue *) *)(void *)((char *)w + ranks);
  w->teams = w->queues + max_queues;
  w->pairs = w->teams + INPROC_TEAM_SLOTS;
  w->active = (_Atomic uint64_t *)(void *)(w->pairs + n * n);
  atomic_store(&w->open_ranks, n);
  (void)pthread_mutex_init(&w->registry, NULL);
  (void)pthread_mutex_init(&w->reason_lock, NULL);
  for (uint32_t r = 0; r < n; r++) {
    w->ranks[r].base = (rt_comm){.ops = ops, .rank = r, .n_ranks = n};
    w->ranks[r].world = w;
    atomic_store(&w->ranks[r].last_kind, -1);
  }
  return w;
}

/* Fails the world if a rank waits for this one, or if this one has not waited for its own posts. */
static void check_nobody_waits(inproc_rank *r) {
  inproc_world *w = r->world;
  char waits[INPROC_REASON_BYTES / 2], text[INPROC_REASON_BYTES];
  for (uint32_t i = 0, n = atomic_load(&w->n_queues); i < n; i++) {
    inproc_queue *q = atomic_load(&w->queues[i]);
    if (q->positions[r->base.rank] < 0) continue;
    inproc_describe_waiter(q, waits, sizeof waits);
    if (!waits[0]) continue;
    (void)snprintf(text, sizeof text, "rank %u left while %s", r->base.rank, waits);
    inproc_fail(w, STATUS_UNAVAILABLE, text);
  }
}

void inproc_leave(inproc_rank *r) {
  inproc_world *w = r->world;
  atomic_store(&r->left, true);
  if (!atomic_load(&w->failed)) check_nobody_waits(r);
  if (atomic_load(&w->failed)) inproc_quiesce(r);
  if (atomic_fetch_sub(&w->open_ranks, 1) == 1) world_destroy(w);
}
