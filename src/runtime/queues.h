/* The queues of a plan: the entries of each stream in order. A wait is a number of entries of another stream.
 *
 * A wait of stream s on stream t means "everything put on t before this". The plan is known in full
 * when it is loaded, so that is a number: how many entries of t are before the wait. A device then
 * needs one counter per stream and no events:
 *
 *   plan                 queue of 1         queue of 2
 *   launch a on 1        a   (signals)      wait 1, target 1
 *   wait 2 for 1         c                  b
 *   launch b on 2
 *   launch c on 1
 *
 * An entry signals when some wait has it as its last: only there must a device publish its counter.
 *
 * Entries are numbered as they are done. Those of a loop are in memory once; rt_queue_at() tells what an entry of a
 * later repetition is. */
#ifndef WEIR_RUNTIME_QUEUES_H
#define WEIR_RUNTIME_QUEUES_H

#include "runtime/plan.h"

typedef struct rt_entry {
  uint32_t instr;  /* how many instructions are executed before it; without loops, its number */
  uint32_t task;   /* LAUNCH; POST, JOIN: in plan->posts */
  uint32_t launch; /* LAUNCH, POST: how many of them are done before it; its span's place */
  uint32_t target; /* WAIT: entries of `other` that must be complete; 0: nothing to wait for */
  uint32_t turn;   /* the repetition of its loop; of a join after a loop, that of what it joins */
  uint32_t others; /* WAIT: entries of `other` in a repetition. JOIN: rt_post.next + 1; 0: none */
  uint16_t other;  /* WAIT */
  uint8_t kind;    /* rt_instr_kind */
  bool signals;
} rt_entry;

/* Entries [first, first + n * times) are those at `at` … at + n - 1, again and again. */
typedef struct rt_queue_loop {
  uint32_t first, n, times, at;
  uint32_t instrs, launches, posts; /* of a repetition, on all streams */
} rt_queue_loop;

typedef struct rt_queue {
  rt_entry *entries;
  uint32_t n; /* that are done; without loops there are as many in memory */
  rt_queue_loop *loops;
  uint32_t n_loops;
} rt_queue;

typedef struct rt_queues {
  rt_queue *streams;
  uint32_t n_streams, n_launches, n_posts;
} rt_queues;

/* The number-th entry; `room` is used for one of a loop. */
rt_entry rt_queue_find(const rt_queue *q, uint32_t number);
static inline const rt_entry *rt_queue_at(const rt_queue *q, uint32_t number, rt_entry *room) {
  if (!q->n_loops) return &q->entries[number];
  *room = rt_queue_find(q, number);
  return room;
}

/* Needs a memory_guard(). */
void rt_queues_build(const rt_plan *plan, arena *memory, rt_queues *result);

#endif
