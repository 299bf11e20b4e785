/* The lanes a trace shows spans in: of each rank its streams, then its communications. Private to trace*.c. */
#ifndef WEIR_RUNTIME_TRACE_LANES_H
#define WEIR_RUNTIME_TRACE_LANES_H

#include "runtime/trace.h"

/* Spans of one lane do not overlap: communications under way at once have lanes of their own. */
typedef struct rt_trace_lanes {
  uint8_t *of_post;
  uint8_t *used; /* by rank: how many lanes its communications have */
} rt_trace_lanes;

uint32_t rt_trace_ranks(const rt_plan *plan);
/* The kind of a launch: "copy" or "compute". */
const char *rt_trace_kind(const rt_task *task);
/* Spans without a length did not run. */
bool rt_trace_shows(const rt_span *s);

rt_trace_lanes rt_trace_assign_lanes(const rt_trace *t, arena *memory);
/* Within its rank. */
uint32_t rt_trace_lane(const rt_trace_lanes *l, const rt_trace *t, uint32_t span);
uint32_t rt_trace_lane_count(const rt_trace_lanes *l, const rt_trace *t, uint32_t rank);
const char *rt_trace_lane_name(const rt_trace *t, uint32_t rank, uint32_t lane, arena *memory);

#endif
