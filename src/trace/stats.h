/* Statistics of a run, from its plan and its spans. */
#ifndef WEIR_TRACE_STATS_H
#define WEIR_TRACE_STATS_H

#include "base/strbuf.h"
#include "runtime/device.h"

typedef struct trace_stats {
  uint32_t launches, waits;
  int64_t wall_ns;
  int64_t host_ns;    /* spent issuing */
  int64_t task_ns;    /* the sum over all tasks */
  int64_t compute_ns; /* at least one task ran */
  int64_t overlap_ns; /* two or more tasks ran at once */
  int64_t pool_bytes; /* of the plan's own memory */
  int64_t peak_bytes; /* of its buffers alive at once, in plan order */
  double flops, bytes;
  uint32_t posts, joins;
  int64_t comm_ns;   /* at least one communication was under way, of any rank in the plan */
  int64_t both_ns;   /* and a task of the same rank ran: of the rank that has most of that */
  double sent_bytes; /* to other ranks; see rt_post_bytes() */
} trace_stats;

/* One rank's part of it. */
typedef struct trace_rank_stats {
  int64_t compute_ns; /* at least one of its tasks ran */
  int64_t comm_ns;    /* at least one of its communications was under way */
  int64_t both_ns;    /* both at once */
  uint32_t posts;
  double sent_bytes, received_bytes;
} trace_rank_stats;

/* spans: n_spans of them, NULL if the run was not traced (the times are then 0). Those of the posts
 * follow the n_tasks of the tasks; they may be left out.
 * Needs a memory_guard(); `scratch` may be destroyed afterwards. */
void trace_stats_make(const rt_plan *plan, const rt_span *spans, uint32_t n_spans, int64_t wall_ns,
                      int64_t host_ns, arena *scratch, trace_stats *result);
/* `rank`: in the plan. */
void trace_stats_of_rank(const rt_plan *plan, const rt_span *spans, uint32_t n_spans, uint32_t rank,
                         arena *scratch, trace_rank_stats *result);

#endif
