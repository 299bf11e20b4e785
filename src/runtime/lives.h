/* Lifetimes of the buffers of a plan: from the first access to the last, in plan order, and as the order between
 * streams has it. */
#ifndef WEIR_RUNTIME_LIVES_H
#define WEIR_RUNTIME_LIVES_H

#include "runtime/plan.h"

/* Of a buffer of the pool, or an output. Instructions [first, end) access it; a communication does so from its post
 * to the last join. Inputs have no lifetime. touched: something accesses it. used: it is also in the pool and still
 * needs a place there. */
typedef struct rt_life {
  bool used, touched;
  uint32_t first, end;
} rt_life;

typedef struct rt_lives {
  const rt_plan *plan;
  rt_life *of; /* by buffer */
  /* By buffer and stream: the position of the last access on that stream, 0: none; and the position on that stream
   * that every first access is ordered after. */
  uint32_t *last, *known;
  /* Of a plan with loops; NULL if there are none. Two repetitions of a loop are looked at: what is ordered
   * in them is ordered in all (docs/loops.md). By buffer: does a loop touch it, and the number + 1 of the
   * loop that it is allocated and freed in, or 0. By buffer and stream, of such a one: as `last` and
   * `known`, in the second repetition. A buffer that a loop touches, but that is not its own, lives from the
   * loop's first instruction to its last. */
  bool *in_loop;
  uint32_t *loop_of, *later, *again;
  bool in_order; /* all accesses are on one stream, so lifetimes apart in the plan are ordered */
} rt_lives;

/* Needs a memory_guard(). Of one rank's plan. */
void rt_lives_find(const rt_plan *plan, arena *memory, rt_lives *result);
/* Is every access to `a` ordered before every access to `b`? For two buffers of one loop: in each repetition, and
 * are accesses to `b` ordered before those to `a` in the next one? */
bool rt_lives_before(const rt_lives *l, uint32_t a, uint32_t b);
/* `b` becomes a part of `a`, which it follows. No loop touches them. */
void rt_lives_merge(const rt_lives *l, uint32_t a, uint32_t b);
/* The most bytes in use at once, in plan order, each buffer rounded up to RT_POOL_ALIGN; `at` is the first
 * instruction with that many. */
int64_t rt_lives_peak(const rt_lives *l, arena *memory, uint32_t *at);

enum { RT_POOL_ALIGN = 64 };
/* The bytes that a buffer takes in the pool. */
int64_t rt_pool_bytes(int64_t size_bytes);

#endif
