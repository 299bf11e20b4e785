#include "runtime/stats.h"

#include <stdlib.h>

/* ---- times ---- */
typedef struct edge {
  int64_t at_ns;
  int step; /* +1: a task starts, -1: one ends */
} edge;

/* Ends come before starts at the same moment: tasks that touch do not overlap. */
static int compare_edges(const void *pa, const void *pb) {
  const edge *a = pa, *b = pb;
  if (a->at_ns != b->at_ns) return a->at_ns < b->at_ns ? -1 : 1;
  return a->step - b->step;
}

static void add_times(const rt_span *spans, uint32_t n, arena *scratch, rt_stats *s) {
  edge *edges = ARENA_ARRAY(scratch, (size_t)n * 2, edge);
  for (uint32_t i = 0; i < n; i++) {
    edges[2 * i] = (edge){spans[i].start_ns, 1};
    edges[2 * i + 1] = (edge){spans[i].end_ns, -1};
    s->task_ns += spans[i].end_ns - spans[i].start_ns;
  }
  if (n) qsort(edges, (size_t)n * 2, sizeof *edges, compare_edges);
  int depth = 0;
  for (size_t i = 0; i + 1 < (size_t)n * 2; i++) {
    depth += edges[i].step;
    int64_t length_ns = edges[i + 1].at_ns - edges[i].at_ns;
    if (depth >= 1) s->compute_ns += length_ns;
    if (depth >= 2) s->overlap_ns += length_ns;
  }
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

void rt_stats_make(const rt_plan *plan, const rt_span *spans, uint32_t n_spans, int64_t wall_ns,
                   int64_t host_ns, arena *scratch, rt_stats *result) {
  rt_stats s = {.wall_ns = wall_ns, .host_ns = host_ns, .pool_bytes = plan->pool_bytes};
  for (uint32_t i = 0; i < plan->n_instrs; i++) {
    const rt_instr *instr = &plan->instrs[i];
    if (instr->kind == RT_WAIT) {
      s.waits++;
      continue;
    }
    s.launches++;
    s.flops += rt_task_flops(plan, &plan->tasks[instr->task]);
    s.bytes += rt_task_bytes(plan, &plan->tasks[instr->task]);
  }
  if (spans) add_times(spans, n_spans, scratch, &s);
  s.peak_bytes = peak_bytes(plan, scratch);
  *result = s;
}

double rt_stats_host_ns_per_instr(const rt_stats *s) {
  uint32_t n = s->launches + s->waits;
  return n ? (double)s->host_ns / n : 0;
}

/* ---- text ---- */
static void put_time(strbuf *out, int64_t ns) {
  if (ns >= 1000000000) strbuf_printf(out, "%.3f s", (double)ns / 1e9);
  else if (ns >= 1000000) strbuf_printf(out, "%.3f ms", (double)ns / 1e6);
  else strbuf_printf(out, "%.3f us", (double)ns / 1e3);
}

static void put_row(strbuf *out, const char *name, int64_t ns) {
  strbuf_printf(out, "  %-12s", name);
  put_time(out, ns);
}

void rt_stats_text(const rt_stats *s, strbuf *out) {
  put_row(out, "wall", s->wall_ns);
  strbuf_puts(out, "\n");
  put_row(out, "compute", s->compute_ns);
  strbuf_puts(out, ", two or more tasks at once ");
  put_time(out, s->overlap_ns);
  strbuf_puts(out, ", tasks in all ");
  put_time(out, s->task_ns);
  strbuf_printf(out, "\n  %-12s%lld bytes at their peak, in a pool of %lld\n", "buffers",
                (long long)s->peak_bytes, (long long)s->pool_bytes);
  put_row(out, "host", s->host_ns);
  strbuf_printf(out, " for %u launches and %u waits, %.1f ns each\n", s->launches, s->waits,
                rt_stats_host_ns_per_instr(s));
}

void rt_stats_json(const rt_stats *s, strbuf *out) {
  strbuf_printf(out, "{\"wall_ns\":%lld,\"compute_ns\":%lld,\"overlap_ns\":%lld,\"task_ns\":%lld,",
                (long long)s->wall_ns, (long long)s->compute_ns, (long long)s->overlap_ns,
                (long long)s->task_ns);
  strbuf_printf(out, "\"host_ns\":%lld,\"host_ns_per_instr\":%.3f,\"launches\":%u,\"waits\":%u,",
                (long long)s->host_ns, rt_stats_host_ns_per_instr(s), s->launches, s->waits);
  strbuf_printf(out, "\"peak_bytes\":%lld,\"pool_bytes\":%lld,\"flops\":%.0f,\"bytes\":%.0f}",
                (long long)s->peak_bytes, (long long)s->pool_bytes, s->flops, s->bytes);
}
