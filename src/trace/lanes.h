/* The lanes a trace shows spans in: of each rank its streams, then its communications. Private to the room. */
#ifndef WEIR_TRACE_LANES_H
#define WEIR_TRACE_LANES_H

#include "trace/trace.h"

/* Spans of one lane do not overlap: communications under way at once have lanes of their own. */
typedef struct trace_lanes {
  uint8_t *of_post;
  uint8_t *used; /* by rank: how many lanes its communications have */
} trace_lanes;

uint32_t trace_ranks(const rt_plan *plan);
/* The kind of a launch: "copy" or "compute". */
const char *trace_kind(const rt_task *task);
/* Spans without a length did not run. */
bool trace_shows(const rt_span *s);

trace_lanes trace_assign_lanes(const trace_part *t, arena *memory);
/* Within its rank. */
uint32_t trace_lane(const trace_lanes *l, const trace_part *t, uint32_t span);
uint32_t trace_lane_count(const trace_lanes *l, const trace_part *t, uint32_t rank);
const char *trace_lane_name(const trace_part *t, uint32_t rank, uint32_t lane, arena *memory);

#endif
