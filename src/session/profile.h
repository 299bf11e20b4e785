/* What a profile keeps of a run: when each launch and communication ran. */
#ifndef WEIR_SESSION_PROFILE_H
#define WEIR_SESSION_PROFILE_H

#include "runtime/stats.h"
#include "session/session.h"

struct session_profile {
  session *owner;      /* of the plan */
  const rt_plan *plan; /* NULL: never filled, or the plan is gone */
  const char *device;
  rt_span *spans;
  uint32_t n_spans, room;
  uint32_t first_rank; /* the device of the plan's first rank */
  int64_t origin_ns;   /* of the spans, by this process's clock */
  rt_plan **world;  /* of a profile of all processes: their plans, which are its own, and which */
  uint32_t n_world; /* `plan` joins then; NULL and 0: of this process */
  uint32_t *path, path_len; /* of a virtual clock: the critical path's instructions */
  rt_stats stats;
};

/* The profile looks at no plan any more. Accepts NULL. */
void session_profile_release(session_profile *p);
/* Frees what it holds. */
void session_profile_drop(session_profile *p);
/* Runs what is loaded, and keeps what ran when. */
NODISCARD status session_profile_run(session *x, rt_loaded *loaded, const rt_plan *plan,
                                     void *const *in, void *const *out, rt_control *control,
                                     session_profile *p);
/* Makes the profile of a run on several processes, which all call it, that of all of them, at rank
 * 0. (gather.c) */
NODISCARD status session_profile_gather(session *x, session_profile *p);

#endif
