/* The plans of a session: what is kept for the extents of a run. For the files of this room. */
#ifndef WEIR_SESSION_PLANS_H
#define WEIR_SESSION_PLANS_H

#include "session/pieces.h"
#include "session/session.h"

struct session_plan {
  session_plan *next;
  int64_t *symbols; /* the key: extents, and what is donated */
  uint32_t n_symbols;
  int64_t *donated; /* by output; NULL: none */
  bool *in_place;   /* by output: a donated one that is computed in its input's memory */
  rt_plan *own;     /* of the first rank of this process */
  rt_plan **ranks;  /* by rank of the world, `own` among them; NULL: not bound yet */
  rt_plan *plan;    /* what a device loads: `own`, or this process's ranks as one; NULL: not yet */
  /* `plan` without its loops, for profiles and for devices that take none. NULL: not needed yet, or
   * `plan` has none. */
  rt_plan *unrolled;
  session_pieces *pieces; /* with several ranks */
  /* The number of streams, if it is below the session's because buffers would take `too_large_bytes` per device
   * with all of them, more than the limit. 0: it has all of the session's. */
  uint32_t streams;
  int64_t too_large_bytes;
  bool apart;        /* the ranks are of too many kinds: each is bound by itself */
  bool captured;     /* a CUDA graph of the caller's uses what is loaded */
  rt_loaded *loaded; /* NULL: not yet */
};

/* If more ranks than this are alike, only one of them is shown and simulated. */
enum { SESSION_MOST_SHOWN = 64 };

/* The plan of a run with these extents and `donated` inputs (NULL: none), bound if there is none yet. */
NODISCARD status session_plan_bound(session *x, const ir_env *env, const int64_t *donated,
                                    session_plan **result);
/* The same, loaded on the device. */
NODISCARD status session_plan_loaded(session *x, const ir_env *env, const int64_t *donated,
                                     session_plan **result);
/* Binds ranks first … first + n - 1 of the world. */
NODISCARD status session_plan_need_ranks(session *x, const ir_env *env, session_plan *p,
                                         uint32_t first, uint32_t n);
/* Binds the ranks of this process, and makes one plan of them. */
NODISCARD status session_plan_need_joined(session *x, const ir_env *env, session_plan *p);
/* The same plan with its loops unrolled. Spans and paths refer to its instructions. */
NODISCARD status session_plan_need_unrolled(session *x, session_plan *p, const rt_plan **result);
/* Are the ranks alike and more than SESSION_MOST_SHOWN, so that one is shown and simulated for all? */
bool session_plan_is_typical(const session *x, const session_plan *p);

/* For many ranks that are of a few kinds: a plan of each kind, and how many ranks have it. */
enum { SESSION_MOST_KINDS = 8 };
typedef struct session_kinds {
  uint32_t n; /* 0: there are not many ranks, or too many kinds */
  rt_plan *plans[SESSION_MOST_KINDS];
  uint32_t times[SESSION_MOST_KINDS];
} session_kinds;
NODISCARD status session_plan_kinds(session *x, const ir_env *env, session_plan *p,
                                    session_kinds *result);

/* Drops plans until those that are kept have at most `most_bytes`: the least recently used first, and none that a
 * caller's CUDA graph needs. */
void session_plans_evict(session *x, int64_t most_bytes);
void session_plans_close(session *x);
/* The variant for these extents: 0 is the program as it is marked. (session.c) */
NODISCARD status session_pick(session *x, const ir_env *env, uint8_t *choice);
/* Prints the plan to standard error. (show.c) */
NODISCARD status session_show_plan(const session *x, const rt_plan *plan);
/* Computes donated outputs where their inputs are, in the plans of all these ranks or, where one of
 * them may not, in none. (donate.c) */
NODISCARD status session_donate_plans(rt_plan *const *plans, uint32_t n, const int64_t *donated,
                                      const allocator *memory, bool *in_place);

#endif
