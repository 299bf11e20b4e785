/* Keeps loops: a *window* of iterations that later windows repeat is bound once, and becomes a loop of the plan.
 *
 *   i = 0, 1      bound one by one; iteration 1 shows how many iterations a window has (streams take turns)
 *   window 1, 2   bound and watched: for each computed value the binder notes how it changes from window to window,
 *                 and for how many windows that stays true. If window 2 did what window 1 did, it becomes a loop of
 *                 so many repetitions
 *   the rest      bound one by one, or the next loop
 *
 * docs/loops.md says why the binder would do the same in all these windows. */
#ifndef WEIR_BIND_LOOP_H
#define WEIR_BIND_LOOP_H

#include "bind/internal.h"

enum { BIND_LONGEST_WINDOW = 64, BIND_LONGEST_BLOCK = 8192 }; /* iterations; instructions */

/* ---- how values move (affine.c) ---- */
/* A value that is value + k * step in the k-th window from now, for k below the horizon. */
typedef struct bind_motion {
  int64_t value, step, horizon;
} bind_motion;

struct bind_watch {
  uint32_t symbol; /* the loop's index */
  int64_t period;  /* iterations of a window */
  int64_t left;    /* windows left, this one included */
  int64_t windows; /* how many of them are known to repeat this one, itself included */
  bool probes;     /* a window of one iteration, to find a better length: */
  int64_t wanted;
  bool too_long;
  uint64_t
      turned; /* a hash of the slices that move with the rank, and of what they are slices of */
  const char *why; /* why it cannot be repeated; NULL: no reason is known */
};

/* How x changes from window to window. False: it has no value. */
bool bind_motion_of(const binder *b, bind_watch *w, ir_scalar x, bind_motion *result);
/* For how many windows the value stays <= limit; >= limit. */
int64_t bind_moves_above(bind_motion m, int64_t limit);
int64_t bind_moves_below(bind_motion m, int64_t limit);

/* ---- windows (loop.c) ---- */
typedef struct bind_mark {
  uint32_t instrs, tasks, buffers, posts;
} bind_mark;

typedef enum bind_phase {
  BIND_PLAIN, /* iterations are bound one by one */
  BIND_FIRST,
  BIND_PROBE,
  BIND_WINDOW_1,
  BIND_WINDOW_2,
} bind_phase;

/* The attempt to keep a loop. */
typedef struct bind_try {
  uint32_t origin;
  bind_phase phase;
  int64_t n;          /* iterations of the loop */
  int64_t left;       /* iterations left in this window */
  uint32_t tries;     /* how many more attempts may fail */
  uint32_t loops;     /* the plan's loops before this attempt */
  bind_mark marks[2]; /* where window 1 and window 2 begin */
  int64_t horizon;    /* of window 1: so many windows, itself included, repeat it */
  uint64_t turned;    /* of window 1 */
  bind_watch watch;
} bind_try;

/* Begins the attempt for a loop (`origin`, an ir_instr) of n iterations. */
void bind_try_begin(binder *b, uint32_t origin, uint32_t symbol, int64_t n, bind_try *t);
/* To be called before iteration i, and when i iterations are bound. The second returns how many of the next ones to
 * skip, because a loop that was made has them; most often 0. */
void bind_try_before(binder *b, bind_try *t, int64_t i);
int64_t bind_try_after(binder *b, bind_try *t, int64_t i);
/* To be called when all iterations are bound. */
void bind_try_end(binder *b, bind_try *t);

#endif
