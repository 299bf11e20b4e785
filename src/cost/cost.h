/* How long a plan would take: a model of one rank's streams, compute threads and link.
 *
 * The model knows a few numbers (rt_speed): how fast matrix products and memory are, how long a message
 * takes before its first byte, how fast the link is in each direction, and for how long a communication
 * keeps it busy beside its bytes. Peers are assumed to post at the same moment. It is used to choose between
 * variants of one program, so what matters is the ratio. */
#ifndef WEIR_COST_COST_H
#define WEIR_COST_COST_H

#include "runtime/device.h"

/* Bytes that the busiest member of the team sends or receives. */
double cost_post_bytes(const rt_post *post);
/* From the start to the end of the last stream. Needs a memory_guard(). */
double cost_plan_ns(const rt_plan *plan, const rt_speed *s, arena *scratch);
/* The same, with memory of its own. */
NODISCARD status cost_plan_estimate(const rt_plan *plan, const rt_speed *s, const allocator *memory,
                                    double *ns);

#endif
