/* The queues of a plan: what each stream runs, in order, with waits as positions on a timeline.
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
 * An entry signals when some wait has it as its last: only there must a device publish its counter. */
#ifndef WEIR_RUNTIME_QUEUES_H
#define WEIR_RUNTIME_QUEUES_H

#include "runtime/plan.h"

typedef struct rt_entry {
  uint32_t instr;  /* in the plan */
  uint32_t task;   /* LAUNCH; POST, JOIN: in plan->posts */
  uint32_t launch; /* LAUNCH: how many launches are before it in the plan; its span's place */
  uint32_t target; /* WAIT: entries of `other` that must be complete; 0: nothing to wait for */
  uint16_t other;  /* WAIT */
  uint8_t kind;    /* rt_instr_kind */
  bool signals;
} rt_entry;

typedef struct rt_queue {
  rt_entry *entries;
  uint32_t n;
} rt_queue;

typedef struct rt_queues {
  rt_queue *streams;
  uint32_t n_streams, n_launches;
} rt_queues;

/* Needs a memory_guard(). */
void rt_queues_build(const rt_plan *plan, arena *memory, rt_queues *result);

#endif
