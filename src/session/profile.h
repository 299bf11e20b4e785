/* What a profile keeps of a run: when each launch and communication ran. */
#ifndef WEIR_SESSION_PROFILE_H
#define WEIR_SESSION_PROFILE_H

#include "session/session.h"
#include "trace/stats.h"

struct session_profile {
  session *owner;      /* of the plan */
  const rt_plan *plan; /* NULL: never filled, or the plan is gone */
  const char *device;
  rt_span *spans;
  uint32_t n_spans, room;
  uint32_t first_rank; /* the device of the plan's first rank */
  int64_t origin_ns;   /* of the spans, by this process's clock */
  /* In a profile of all processes: their plans, which it owns; `plan` joins them. NULL and 0: one of this process. */
  rt_plan **world;
  uint32_t n_world;
  uint32_t *path, path_len; /* instructions of the critical path, with a virtual clock */
  trace_stats stats;
};

/* The profile forgets its plan, which is about to go. Accepts NULL. */
void session_profile_release(session_profile *p);
/* Frees what it holds. */
void session_profile_drop(session_profile *p);
/* Runs what is loaded, and records what ran when. */
NODISCARD status session_profile_run(session *x, rt_loaded *loaded, const rt_plan *plan,
                                     void *const *in, void *const *out, rt_control *control,
                                     session_profile *p);
/* Called by all processes, each with its profile of the same run. That of rank 0 then has the devices of all
 * processes. (gather.c) */
NODISCARD status session_profile_gather(session *x, session_profile *p);

#endif
