/* Questions about a program that need no run: memory and time. */
#ifndef WEIR_SESSION_QUESTIONS_H
#define WEIR_SESSION_QUESTIONS_H

#include "cost/bound.h"
#include "session/session.h"

/* ---- memory (peak.c) ---- */
typedef struct session_peak {
  uint32_t rank; /* the rank that needs most */
  int64_t pool_bytes, live_bytes;
} session_peak;
/* The memory of buffers on the rank that needs most. Unless `out` is NULL it gets a text that names the values
 * that are in use at the peak. Needs a memory_guard(). */
NODISCARD status session_find_peak(session *x, const ir_env *env, arena *scratch,
                                   session_peak *result, strbuf *out);

/* ---- time (bound.c) ---- */
/* Called for an exposed communication: its line, its text, and for how long nothing is computed meanwhile. */
typedef void (*session_exposed)(void *context, const char *place, const char *text,
                                double exposed_s);
typedef struct session_bound {
  cost_bound least; /* no schedule can be faster */
  int64_t rank;     /* the rank that ends last, as predicted: */
  int64_t total_ns, computing_ns, exposed_ns;
  const char *program; /* the predicted variant: "marked", or the pass that makes it */
} session_bound;
/* The bound, and the simulator's prediction for what a run takes. Needs a memory_guard(). */
NODISCARD status session_find_bound(session *x, const ir_env *env, arena *scratch,
                                    session_exposed tell, void *context, session_bound *result);

#endif
