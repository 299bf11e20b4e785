/* The least time that a machine allows a program, and where more of it goes.
 *
 * The bound is from what must be done whatever lowering makes of it: a device's arithmetic, its
 * inputs and outputs moved through its memory once, the bytes it receives and sends, the steps of
 * communications that depend on one another, and communications after the work that their first
 * element needs (cost/needs.h). Work may be cut as fine as one likes, so nothing else is a
 * bound. */
#ifndef WEIR_COST_BOUND_H
#define WEIR_COST_BOUND_H

#include "runtime/device.h"

/* In ns; each of the device for which it is largest. */
typedef struct cost_bound {
  double compute, memory, receive, send, chain;
  double all_compute; /* of one thread, for all devices added */
  uint32_t n;         /* devices added */
} cost_bound;

/* Adds one device's plan, which should be of the program without stream loops. Needs a memory_guard(). */
void cost_bound_add(cost_bound *b, const rt_plan *plan, const rt_speed *machine, arena *scratch);
/* After all: so many devices, of which those added are typical, share the cores of their hosts. */
void cost_bound_share_cores(cost_bound *b, const rt_speed *machine, uint32_t devices);
double cost_bound_ns(const cost_bound *b); /* the largest */

/* Where the time of a traced run went, of the rank that ended last. */
typedef struct cost_spent {
  uint32_t rank;        /* in the plan */
  int64_t total_ns;     /* of the run */
  int64_t computing_ns; /* at least one task ran */
  int64_t exposed_ns;   /* communications were under way and no task ran */
  int64_t *by_post;     /* exposed_ns of each post of the plan */
} cost_spent;
void cost_spend(const rt_plan *plan, const rt_span *spans, int64_t total_ns, arena *memory,
                cost_spent *result);

#endif
