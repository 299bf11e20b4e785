/* Binding: a host program and the extents of its symbols become the plan of one rank.
 *
 * The binder walks the host program with every symbol known, keeps the view that each tensor is now, and writes
 * down launches, waits, posts and joins. It checks all extents with numbers, gives buffers their places, leaves
 * out waits that order nothing, and keeps loops that repeat themselves (docs/host.md, docs/loops.md). */
#ifndef WEIR_BIND_BIND_H
#define WEIR_BIND_BIND_H

#include "runtime/plan.h"

/* Limits of binding: steps (instructions of the host program and iterations, empty ones too) and memory. Beyond
 * them it stops with an error at the outermost loop. */
enum { BIND_MAX_STEPS = 50 * 1000 * 1000 };
#define BIND_MAX_PLAN_BYTES (INT64_C(4) << 30)

typedef struct bind_options {
  uint32_t streams;    /* worker streams, >= 1 */
  uint64_t seed;       /* of the first run; *plan->seed is that of the next */
  int64_t rank;        /* the device that the plan is for */
  uint32_t world;      /* the number of ranks, to find out whether they are alike; 0: do not */
  bool keep_waits;     /* also waits for streams that did nothing new since the last wait */
  bool folds_in_place; /* as in rt_device_ops */
  bool lends;          /* the memory of outputs may hold other values before they are written */
  /* With `lends`: by output, >= 0 if it will be in the memory of an input, so that it is not lent. NULL:
   * none. */
  const int64_t *donated;
  uint32_t loops;               /* keep loops of so many repetitions or more; 0: unroll all */
  int64_t max_steps, max_bytes; /* 0: BIND_MAX_STEPS, BIND_MAX_PLAN_BYTES */
} bind_options;

/* Binds a host program to the extents of `env` (complete and checked). Errors of the program that show only now
 * are diagnostics of the module, with STATUS_BAD_PROGRAM. */
NODISCARD status bind_plan(const ir_env *env, const bind_options *options, const allocator *memory,
                           rt_plan **result);

#endif
