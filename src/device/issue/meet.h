/* The communications of a plan: the posts that meet (runtime/meet.h), and whether they fit. */
#ifndef WEIR_DEVICE_ISSUE_MEET_H
#define WEIR_DEVICE_ISSUE_MEET_H

#include "base/vec.h"
#include "runtime/meet.h"

enum { ISSUE_NOBODY = UINT32_MAX };

/* One communication. In a pair, member 0 sends and member 1 receives. */
typedef struct issue_meeting {
  bool is_pair;
  uint32_t circle;
  uint32_t n;
  uint32_t n_here;            /* members that this process runs, whose posts arrive */
  uint32_t *posts;            /* by member; ISSUE_NOBODY: it posts none */
  uint32_t arrived;           /* members, while an order is made */
  bool complete;              /* its steps are in the order */
  uint32_t first_end, n_ends; /* events at which it has ended */
} issue_meeting;

typedef struct issue_meetings {
  const rt_plan *plan;
  VEC(issue_meeting) list;
  rt_meet meet;           /* its circles */
  uint32_t (*of_post)[2]; /* meetings, by post; a permute may have two; ISSUE_NOBODY: none */
  uint32_t *rank_of_post; /* in the plan */
  uint32_t *instr_of_post;
} issue_meetings;

/* Needs a memory_guard(). Posts that meet but do not fit together are BAD_PROGRAM, a member outside
 * this process is UNAVAILABLE unless `elsewhere` allows it. */
NODISCARD status issue_meetings_make(const rt_plan *plan, bool elsewhere, arena *memory,
                                     issue_meetings *result);
/* "allreduce of 16 f32 (sum) at f:7" */
void issue_meetings_text(const issue_meetings *m, uint32_t post, arena *memory, char *text,
                         size_t size_bytes);

#endif
