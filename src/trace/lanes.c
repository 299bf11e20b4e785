#include "trace/lanes.h"

#include <stdlib.h>

uint32_t trace_ranks(const rt_plan *plan) { return plan->n_ranks > 1 ? plan->n_ranks : 1; }

static uint32_t streams_of(const rt_plan *plan, uint32_t rank) {
  return plan->n_ranks > 1 ? plan->first_stream[rank + 1] - plan->first_stream[rank]
                           : plan->n_streams;
}

const char *trace_kind(const rt_task *task) {
  return !task->body && task->code == IR_OP_SET ? "copy" : "compute";
}

bool trace_shows(const rt_span *s) { return s->end_ns > s->start_ns; }

enum { MAX_LANES = 16 };

typedef struct lane_order {
  int64_t start_ns;
  uint32_t post;
} lane_order;

static int compare_starts(const void *pa, const void *pb) {
  const lane_order *a = pa, *b = pb;
  if (a->start_ns != b->start_ns) return a->start_ns < b->start_ns ? -1 : 1;
  return a->post < b->post ? -1 : a->post > b->post;
}

/* The first lane that is free; the last one when none is. */
trace_lanes trace_assign_lanes(const trace_part *t, arena *memory) {
  const rt_plan *plan = t->plan;
  uint32_t n = t->n_spans > plan->n_tasks ? t->n_spans - plan->n_tasks : 0;
  trace_lanes l = {.of_post = ARENA_ARRAY(memory, (size_t)n + 1, uint8_t)};
  l.used = ARENA_ARRAY(memory, trace_ranks(plan), uint8_t);
  int64_t(*ends_ns)[MAX_LANES] = arena_array(memory, trace_ranks(plan), sizeof *ends_ns);
  lane_order *order = ARENA_ARRAY(memory, (size_t)n + 1, lane_order);
  for (uint32_t p = 0; p < n; p++) order[p] = (lane_order){t->spans[plan->n_tasks + p].start_ns, p};
  if (n) qsort(order, n, sizeof *order, compare_starts);
  for (uint32_t k = 0; k < n; k++) {
    const rt_span *s = &t->spans[plan->n_tasks + order[k].post];
    uint32_t rank = rt_plan_rank(plan, s->stream);
    uint8_t lane = 0;
    while (lane + 1 < MAX_LANES && ends_ns[rank][lane] > s->start_ns) lane++;
    if (!trace_shows(s)) continue;
    ends_ns[rank][lane] = s->end_ns;
    l.of_post[order[k].post] = lane;
    if (lane >= l.used[rank]) l.used[rank] = (uint8_t)(lane + 1);
  }
  return l;
}

uint32_t trace_lane(const trace_lanes *l, const trace_part *t, uint32_t span) {
  const rt_plan *plan = t->plan;
  uint32_t stream = t->spans[span].stream, rank = rt_plan_rank(plan, stream);
  if (span < plan->n_tasks) return stream - rt_plan_first_stream(plan, rank);
  return streams_of(plan, rank) + l->of_post[span - plan->n_tasks];
}

uint32_t trace_lane_count(const trace_lanes *l, const trace_part *t, uint32_t rank) {
  uint32_t used = l->used[rank] || t->plan->n_posts == 0 ? l->used[rank] : 1;
  return streams_of(t->plan, rank) + used;
}

const char *trace_lane_name(const trace_part *t, uint32_t rank, uint32_t lane, arena *memory) {
  uint32_t n = streams_of(t->plan, rank);
  if (lane == 0) return "main stream";
  if (lane < n) return arena_printf(memory, "stream %u", lane - 1);
  return lane == n ? "communication" : arena_printf(memory, "communication %u", lane - n + 1);
}
