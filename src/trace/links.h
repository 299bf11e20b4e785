/* Which communications of a trace belong together, as far as the plan has both sides. Private to the room. */
#ifndef WEIR_TRACE_LINKS_H
#define WEIR_TRACE_LINKS_H

#include "trace/trace.h"

/* Posts meet in groups: all members of a collective, or the two sides of a message. Posts of one team are
 * matched by their order, messages by their order between two ranks. */
typedef struct trace_link {
  uint32_t post;  /* in plan->posts */
  uint32_t group; /* links of one group are contiguous */
  bool sends;     /* of a message: the sender */
} trace_link;

typedef struct trace_links {
  const trace_link *data;
  uint32_t len;
  /* By post: when its data could move, because the last of its group had posted; its own start if it waited
   * for no other or that is not known. */
  const int64_t *ready_ns;
  const uint32_t *last; /* by post: the post that it waited for; itself if none */
} trace_links;

/* spans: those of the posts. Only complete groups count. */
trace_links trace_link_posts(const rt_plan *plan, const rt_span *spans, uint32_t n_spans,
                             arena *memory);

#endif
