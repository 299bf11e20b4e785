/* How long a plan would take: a model of one rank's streams, compute threads and link.
 *
 * The model knows a few numbers: how fast matrix products and memory are, how long a message takes before
 * its first byte, how fast the link is, and what a communication costs beside its bytes. Peers are assumed to post at the same moment. It is used to
 * choose between variants of one program, so what matters is the ratio. */
#ifndef WEIR_COST_COST_H
#define WEIR_COST_COST_H

#include "runtime/plan.h"

typedef struct cost_machine {
  double flops_per_ns;        /* one compute thread, f32 */
  double narrow_flops_per_ns; /* products whose result is f16 or bf16; 0: as f32 */
  double bytes_per_ns;        /* memory, one compute thread */
  bool reads_ahead;           /* memory is read while a task computes, not before */
  double launch_ns;           /* to start a task */
  uint32_t threads;
  double link_latency_ns, link_bytes_per_ns; /* one communication at a time and direction */
  double post_ns; /* for which a communication keeps the link busy beside its bytes */
} cost_machine;

/* Bytes that the busiest member of the team sends or receives. */
double cost_post_bytes(const rt_post *post);
double cost_task_ns(const rt_plan *plan, const rt_task *task, const cost_machine *m);
/* From the start to the end of the last stream. Needs a memory_guard(). */
double cost_plan_ns(const rt_plan *plan, const cost_machine *m, arena *scratch);

#endif
