#include "trace/stats.h"

#include <stdlib.h>

/* ---- times ---- */
typedef struct edge {
  int64_t at_ns;
  int8_t task, comm; /* +1: one starts, -1: one ends */
} edge;

/* Ends come before starts at the same moment: tasks that touch do not overlap. */
static int compare_edges(const void *pa, const void *pb) {
  const edge *a = pa, *b = pb;
  if (a->at_ns != b->at_ns) return a->at_ns < b->at_ns ? -1 : 1;
  return (a->task + a->comm) - (b->task + b->comm);
}

typedef struct times {
  int64_t task_ns, compute_ns, overlap_ns, comm_ns, both_ns;
} times;

/* Spans of some ranks: those in the list, or all n if it is NULL. */
typedef struct chosen {
  const uint32_t *list;
  uint32_t n;
} chosen;

/* As edges; how many. */
static size_t list_edges(const rt_plan *plan, const rt_span *spans, chosen c, edge *edges,
                         times *t) {
  size_t len = 0;
  for (uint32_t k = 0; k < c.n; k++) {
    uint32_t i = c.list ? c.list[k] : k;
    bool task = i < plan->n_tasks;
    edges[len++] = (edge){spans[i].start_ns, task, !task};
    edges[len++] = (edge){spans[i].end_ns, (int8_t)-task, (int8_t) - !task};
    if (task) t->task_ns += spans[i].end_ns - spans[i].start_ns;
  }
  return len;
}

static times measure(const rt_plan *plan, const rt_span *spans, chosen c, arena *scratch) {
  times t = {0};
  edge *edges = ARENA_ARRAY(scratch, (size_t)c.n * 2, edge);
  size_t len = list_edges(plan, spans, c, edges, &t);
  if (len) qsort(edges, len, sizeof *edges, compare_edges);
  int tasks = 0, comms = 0;
  for (size_t i = 0; i + 1 < len; i++) {
    tasks += edges[i].task;
    comms += edges[i].comm;
    int64_t length_ns = edges[i + 1].at_ns - edges[i].at_ns;
    if (tasks >= 1) t.compute_ns += length_ns;
    if (tasks >= 2) t.overlap_ns += length_ns;
    if (comms >= 1) t.comm_ns += length_ns;
    if (comms >= 1 && tasks >= 1) t.both_ns += length_ns;
  }
  return t;
}

/* The spans of rank r are those from first[r] to below first[r + 1] in the list. */
typedef struct grouped {
  uint32_t *list, *first;
} grouped;

static grouped group_by_rank(const rt_plan *plan, const rt_span *spans, uint32_t n,
                             arena *scratch) {
  uint32_t n_ranks = plan->n_ranks ? plan->n_ranks : 1;
  uint32_t *rank_of = ARENA_ARRAY(scratch, plan->n_streams, uint32_t);
  grouped g = {ARENA_ARRAY(scratch, n, uint32_t), ARENA_ARRAY(scratch, n_ranks + 2, uint32_t)};
  for (uint32_t s = 0; s < plan->n_streams; s++) rank_of[s] = rt_plan_rank(plan, s);
  for (uint32_t i = 0; i < n; i++) g.first[rank_of[spans[i].stream] + 2]++;
  for (uint32_t r = 2; r < n_ranks + 2; r++) g.first[r] += g.first[r - 1];
  for (uint32_t i = 0; i < n; i++) g.list[g.first[rank_of[spans[i].stream] + 1]++] = i;
  return g;
}

static chosen spans_of(const grouped *g, uint32_t rank) {
  return (chosen){&g->list[g->first[rank]], g->first[rank + 1] - g->first[rank]};
}

/* What one rank computes while another communicates is no overlap. */
static int64_t most_overlap(const rt_plan *plan, const rt_span *spans, uint32_t n, arena *scratch) {
  int64_t most_ns = 0;
  uint32_t n_ranks = plan->n_ranks ? plan->n_ranks : 1;
  grouped g = group_by_rank(plan, spans, n, scratch);
  for (uint32_t r = 0; r < n_ranks; r++) {
    int64_t both_ns = measure(plan, spans, spans_of(&g, r), scratch).both_ns;
    if (both_ns > most_ns) most_ns = both_ns;
  }
  return most_ns;
}

/* ---- memory ---- */
/* A buffer is freed before the instruction numbered freed_at, and allocated before allocated_at. */
static int64_t peak_bytes(const rt_plan *plan, arena *scratch) {
  int64_t *change = ARENA_ARRAY(scratch, (size_t)plan->n_instrs + 1, int64_t);
  for (uint32_t i = 0; i < plan->n_buffers; i++) {
    const rt_buffer *b = &plan->buffers[i];
    if (b->kind != RT_BUFFER_POOL || b->allocated_at > plan->n_instrs) continue;
    change[b->allocated_at] += b->size_bytes;
    if (b->freed_at <= plan->n_instrs) change[b->freed_at] -= b->size_bytes;
  }
  int64_t now = 0, peak = 0;
  for (uint32_t i = 0; i <= plan->n_instrs; i++) {
    now += change[i];
    if (now > peak) peak = now;
  }
  return peak;
}

static void count_instr(const rt_plan *plan, const rt_instr *instr, trace_stats *s) {
  switch ((rt_instr_kind)instr->kind) {
  case RT_LAUNCH:
    s->launches++;
    s->flops += rt_task_flops(plan, &plan->tasks[instr->task]);
    s->bytes += rt_task_bytes(plan, &plan->tasks[instr->task]);
    break;
  case RT_WAIT: s->waits++; break;
  case RT_JOIN: s->joins++; break;
  case RT_POST:
    s->posts++;
    s->sent_bytes += rt_post_bytes(&plan->posts[instr->task]);
    break;
  }
}

void trace_stats_make(const rt_plan *plan, const rt_span *spans, uint32_t n_spans, int64_t wall_ns,
                      int64_t host_ns, arena *scratch, trace_stats *result) {
  trace_stats s = {.wall_ns = wall_ns, .host_ns = host_ns, .pool_bytes = plan->pool_bytes};
  for (uint32_t i = 0; i < plan->n_instrs; i++) count_instr(plan, &plan->instrs[i], &s);
  if (spans) {
    times t = measure(plan, spans, (chosen){NULL, n_spans}, scratch);
    s.task_ns = t.task_ns;
    s.compute_ns = t.compute_ns;
    s.overlap_ns = t.overlap_ns;
    s.comm_ns = t.comm_ns;
    s.both_ns = most_overlap(plan, spans, n_spans, scratch);
  }
  s.peak_bytes = peak_bytes(plan, scratch);
  *result = s;
}

void trace_stats_of_rank(const rt_plan *plan, const rt_span *spans, uint32_t n_spans, uint32_t rank,
                         arena *scratch, trace_rank_stats *result) {
  trace_rank_stats s = {0};
  for (uint32_t i = 0; i < plan->n_instrs; i++) {
    const rt_instr *instr = &plan->instrs[i];
    if (instr->kind != RT_POST || rt_plan_rank(plan, instr->stream) != rank) continue;
    s.posts++;
    s.sent_bytes += rt_post_bytes(&plan->posts[instr->task]);
    s.received_bytes += rt_post_bytes_in(&plan->posts[instr->task]);
  }
  if (spans) {
    grouped g = group_by_rank(plan, spans, n_spans, scratch);
    times t = measure(plan, spans, spans_of(&g, rank), scratch);
    s.compute_ns = t.compute_ns;
    s.comm_ns = t.comm_ns;
    s.both_ns = t.both_ns;
  }
  *result = s;
}
