/* Loops that are kept: a window of iterations that the next ones repeat is bound once.
 *
 *   i = 0, 1      bound as ever; iteration 1 tells how many iterations a window has (streams that take turns)
 *   window 1, 2   bound, and watched: each value that is computed tells how it moves from window to window, and for
 *                 how many windows that holds. If window 2 did what window 1 did, it becomes a loop of so many repetitions
 *   the rest      bound as ever, or the next loop
 *
 * Why the binder would do the same in all of them is told in docs/scale.md. */
#ifndef WEIR_RUNTIME_BIND_LOOP_H
#define WEIR_RUNTIME_BIND_LOOP_H

#include "runtime/bind_internal.h"

enum { BIND_LONGEST_WINDOW = 64, BIND_LONGEST_BLOCK = 8192 }; /* iterations; instructions */

/* ---- how values move (bind_affine.c) ---- */
/* In the k-th window from now it is value + k * step, for k below the horizon. */
typedef struct bind_motion {
  int64_t value, step, horizon;
} bind_motion;

struct bind_watch {
  uint32_t symbol; /* the loop's index */
  int64_t period;  /* iterations of a window */
  int64_t left;    /* windows that there are, this one included */
  int64_t windows; /* for so many of them all is as in this one */
  bool probes;     /* a window of one iteration, to find a better length: */
  int64_t wanted;
  bool too_long;
  uint64_t turned; /* a hash of the slices that turn with the rank, and where they are slices of */
  const char *why; /* it cannot be repeated; NULL: nothing is known against it */
};

/* False: it has no value. */
bool bind_motion_of(const binder *b, bind_watch *w, ir_scalar x, bind_motion *result);
/* For how many windows it is at most, or at least, `limit`. */
int64_t bind_moves_above(bind_motion m, int64_t limit);
int64_t bind_moves_below(bind_motion m, int64_t limit);

/* ---- windows (bind_loop.c) ---- */
typedef struct bind_mark {
  uint32_t instrs, tasks, buffers, posts;
} bind_mark;

typedef enum bind_phase {
  BIND_PLAIN, /* nothing is tried */
  BIND_FIRST,
  BIND_PROBE,
  BIND_WINDOW_1,
  BIND_WINDOW_2,
} bind_phase;

/* The attempt to keep a loop. */
typedef struct bind_try {
  uint32_t origin;
  bind_phase phase;
  int64_t n;          /* iterations in all */
  int64_t left;       /* of this window */
  uint32_t tries;     /* that may still fail */
  uint32_t loops;     /* of the plan, before */
  bind_mark marks[2]; /* where window 1 and window 2 begin */
  int64_t horizon;    /* of window 1: for so many windows, itself included, all is as in it */
  uint64_t turned;    /* of window 1 */
  bind_watch watch;
} bind_try;

/* Of the loop `origin`, an ir_instr, of n iterations. */
void bind_try_begin(binder *b, uint32_t origin, uint32_t symbol, int64_t n, bind_try *t);
/* Before iteration i, and after it: how many iterations are done with that. */
void bind_try_before(binder *b, bind_try *t, int64_t i);
int64_t bind_try_after(binder *b, bind_try *t, int64_t i);
/* When all are bound. */
void bind_try_end(binder *b, bind_try *t);

#endif
