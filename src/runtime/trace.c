#include "runtime/trace.h"

#include <stdlib.h>
#include <string.h>

/* '<' is escaped so that no text can end the script it stands in. Bytes above 0x7f are UTF-8 and
 * pass as they are; the two line separators that old script engines reject cannot occur in names. */
void rt_json_string(strbuf *out, const char *text) {
  strbuf_putc(out, '"');
  for (; *text; text++) {
    unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\') strbuf_putc(out, '\\'), strbuf_putc(out, (char)c);
    else if (c < 0x20 || c == '<' || c == 0x7f) strbuf_printf(out, "\\u%04x", c);
    else strbuf_putc(out, (char)c);
  }
  strbuf_putc(out, '"');
}

static void put_pair(strbuf *out, const char *key, const char *text) {
  rt_json_string(out, key);
  strbuf_putc(out, ':');
  rt_json_string(out, text);
}

/* ---- what is known of a launch ---- */
/* "t2[4x32]+256": the view it writes. */
static void put_slice(const rt_plan *plan, const rt_view *v, strbuf *out) {
  const char *name = plan->buffers[v->buffer].name;
  strbuf_puts(out, name ? name : "?");
  strbuf_putc(out, '[');
  for (uint32_t d = 0; d < v->rank; d++) {
    if (d) strbuf_putc(out, 'x');
    strbuf_int(out, v->extents[d]);
  }
  strbuf_putc(out, ']');
  if (v->offset_bytes) strbuf_printf(out, "+%lld", (long long)v->offset_bytes);
}

static void put_place(const rt_trace *t, uint32_t instr, strbuf *out) {
  const ir_func *host = t->plan->host;
  uint32_t origin = t->plan->instrs[instr].origin;
  if (!host || !origin || origin >= host->host->instrs.len) return;
  loc at = host->host->instrs.data[origin].at;
  source *src = &host->module->src;
  if (!at.known || !src->text) return;
  uint32_t line, column;
  source_position(src, out->memory, at.offset, &line, &column);
  strbuf_printf(out, ",\"line\":%u", line);
}

static void put_task_args(const rt_trace *t, const rt_span *s, strbuf *out) {
  const rt_task *task = &t->plan->tasks[t->plan->instrs[s->instr].task];
  strbuf text;
  strbuf_init(&text, out->memory);
  for (uint32_t k = 0; k < rt_task_n_results(task); k++) {
    if (k) strbuf_puts(&text, ", ");
    put_slice(t->plan, &t->plan->views[rt_task_result(task, k)], &text);
  }
  put_pair(out, "writes", text.data);
}

static void put_side(const rt_trace *t, const char *key, uint32_t view, strbuf *out) {
  if (view == RT_NO_VIEW) return;
  strbuf text;
  strbuf_init(&text, out->memory);
  put_slice(t->plan, &t->plan->views[view], &text);
  put_pair(out, key, text.data);
  strbuf_putc(out, ',');
}

static void put_post_args(const rt_trace *t, const rt_post *p, strbuf *out) {
  strbuf team;
  strbuf_init(&team, out->memory);
  for (uint32_t i = 0; i < p->n_team; i++) strbuf_printf(&team, i ? " %u" : "(%u", p->team[i]);
  strbuf_putc(&team, ')');
  put_side(t, "reads", p->in, out);
  put_side(t, "writes", p->out, out);
  put_pair(out, "team", team.data);
  if (rt_comm_has_root(p->kind)) strbuf_printf(out, ",\"root\":%u", p->team[p->root]);
  if (rt_comm_is_message(p->kind) && p->to >= 0 && p->kind != RT_COMM_RECV)
    strbuf_printf(out, ",\"to\":%u", p->team[p->to]);
  if (rt_comm_is_message(p->kind) && p->from >= 0 && p->kind != RT_COMM_SEND)
    strbuf_printf(out, ",\"from\":%u", p->team[p->from]);
}

static void put_args(const rt_trace *t, const rt_span *s, uint32_t iteration, strbuf *out) {
  const rt_instr *instr = &t->plan->instrs[s->instr];
  bool is_post = instr->kind == RT_POST;
  const rt_task *task = is_post ? NULL : &t->plan->tasks[instr->task];
  const rt_post *post = is_post ? &t->plan->posts[instr->task] : NULL;
  strbuf_puts(out, "\"args\":{");
  if (post) put_post_args(t, post, out);
  else put_task_args(t, s, out);
  strbuf_printf(out, ",\"instruction\":%u,\"iteration\":%u,\"thread\":%u", s->instr, iteration,
                s->worker);
  if (post) strbuf_printf(out, ",\"bytes\":%.0f", rt_post_bytes(post));
  else
    strbuf_printf(out, ",\"bytes\":%.0f,\"flops\":%.0f", rt_task_bytes(t->plan, task),
                  rt_task_flops(t->plan, task));
  put_place(t, s->instr, out);
  strbuf_putc(out, '}');
}

/* How often each instruction of the host program was launched before: the iteration, by span. */
static const uint32_t *count_iterations(const rt_trace *t, arena *memory) {
  uint32_t most = 0;
  for (uint32_t i = 0; i < t->plan->n_instrs; i++)
    if (t->plan->instrs[i].origin > most) most = t->plan->instrs[i].origin;
  uint32_t *seen = ARENA_ARRAY(memory, (size_t)most + 1, uint32_t);
  uint32_t *by_instr = ARENA_ARRAY(memory, t->plan->n_instrs, uint32_t);
  for (uint32_t i = 0; i < t->plan->n_instrs; i++)
    if (t->plan->instrs[i].kind == RT_LAUNCH || t->plan->instrs[i].kind == RT_POST)
      by_instr[i] = seen[t->plan->instrs[i].origin]++;
  return by_instr;
}

/* ---- events ---- */
typedef struct events {
  strbuf *out;
  bool more; /* one stands already */
} events;

static strbuf *next_event(events *e) {
  strbuf_puts(e->out, e->more ? ",\n" : "\n");
  e->more = true;
  return e->out;
}

static void put_name(events *e, const char *kind, uint32_t pid, uint32_t tid, const char *name) {
  strbuf *out = next_event(e);
  strbuf_printf(out, "{\"ph\":\"M\",\"pid\":%u,\"tid\":%u,", pid, tid);
  put_pair(out, "name", kind);
  strbuf_puts(out, ",\"args\":{");
  put_pair(out, "name", name);
  strbuf_puts(out, "}}");
}

/* ---- ranks ---- */
static uint32_t rank_count(const rt_plan *plan) { return plan->n_ranks > 1 ? plan->n_ranks : 1; }

static uint32_t first_stream(const rt_plan *plan, uint32_t rank) {
  return plan->n_ranks > 1 ? plan->first_stream[rank] : 0;
}

static uint32_t stream_count(const rt_plan *plan, uint32_t rank) {
  return plan->n_ranks > 1 ? plan->first_stream[rank + 1] - plan->first_stream[rank]
                           : plan->n_streams;
}

static bool is_shown(const rt_span *s) { return s->end_ns > s->start_ns; }

/* ---- lanes of communications ---- */
/* Events of one thread must not overlap, so those under way at once stand in lanes of their own. */
enum { MAX_LANES = 16 };

typedef struct lanes {
  uint8_t *of_post;
  uint8_t *used; /* by rank: how many */
} lanes;

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
static lanes assign_lanes(const rt_trace *t, arena *memory) {
  const rt_plan *plan = t->plan;
  uint32_t n = t->n_spans > plan->n_tasks ? t->n_spans - plan->n_tasks : 0;
  lanes l = {.of_post = ARENA_ARRAY(memory, (size_t)n + 1, uint8_t)};
  l.used = ARENA_ARRAY(memory, rank_count(plan), uint8_t);
  int64_t(*ends_ns)[MAX_LANES] = arena_array(memory, rank_count(plan), sizeof *ends_ns);
  lane_order *order = ARENA_ARRAY(memory, (size_t)n + 1, lane_order);
  for (uint32_t p = 0; p < n; p++) order[p] = (lane_order){t->spans[plan->n_tasks + p].start_ns, p};
  if (n) qsort(order, n, sizeof *order, compare_starts);
  for (uint32_t k = 0; k < n; k++) {
    const rt_span *s = &t->spans[plan->n_tasks + order[k].post];
    uint32_t rank = rt_plan_rank(plan, s->stream);
    uint8_t lane = 0;
    while (lane + 1 < MAX_LANES && ends_ns[rank][lane] > s->start_ns) lane++;
    if (!is_shown(s)) continue;
    ends_ns[rank][lane] = s->end_ns;
    l.of_post[order[k].post] = lane;
    if (lane >= l.used[rank]) l.used[rank] = (uint8_t)(lane + 1);
  }
  return l;
}

static void put_names(events *e, const rt_trace *t, uint32_t rank, uint32_t n_lanes) {
  arena *memory = e->out->memory;
  uint32_t pid = t->rank + rank, n = stream_count(t->plan, rank);
  put_name(e, "process_name", pid, 0, arena_printf(memory, "%s %u", t->device, pid));
  for (uint32_t s = 0; s < n; s++) {
    const char *name = s == 0 ? "main stream" : arena_printf(memory, "stream %u", s - 1);
    put_name(e, "thread_name", pid, s, name);
  }
  for (uint32_t k = 0; k < n_lanes; k++) {
    const char *name = k == 0 ? "communication" : arena_printf(memory, "communication %u", k + 1);
    put_name(e, "thread_name", pid, n + k, name);
  }
}

static void put_microseconds(strbuf *out, int64_t ns) {
  strbuf_printf(out, "%lld.%03d", (long long)(ns / 1000), (int)(ns % 1000));
}

static void put_span(events *e, const rt_trace *t, const rt_span *s, uint32_t tid,
                     uint32_t iteration) {
  const rt_instr *instr = &t->plan->instrs[s->instr];
  const char *name = instr->kind == RT_POST ? rt_comm_kind_text(t->plan->posts[instr->task].kind)
                                            : rt_task_name(&t->plan->tasks[instr->task]);
  strbuf *out = next_event(e);
  strbuf_puts(out, "{\"ph\":\"X\",");
  put_pair(out, "name", name);
  strbuf_printf(out, ",\"pid\":%u,\"tid\":%u,\"ts\":", t->rank + rt_plan_rank(t->plan, s->stream),
                tid);
  put_microseconds(out, s->start_ns);
  strbuf_puts(out, ",\"dur\":");
  put_microseconds(out, s->end_ns - s->start_ns);
  strbuf_putc(out, ',');
  put_args(t, s, iteration, out);
  strbuf_putc(out, '}');
}

static void put_trace(events *e, const rt_trace *t) {
  const rt_plan *plan = t->plan;
  const uint32_t *iterations = count_iterations(t, e->out->memory);
  lanes l = assign_lanes(t, e->out->memory);
  for (uint32_t r = 0; r < rank_count(plan); r++) {
    uint32_t n_lanes = l.used[r] || plan->n_posts == 0 ? l.used[r] : 1;
    put_names(e, t, r, n_lanes);
  }
  for (uint32_t i = 0; i < t->n_spans; i++) {
    const rt_span *s = &t->spans[i];
    if (!is_shown(s)) continue;
    uint32_t rank = rt_plan_rank(plan, s->stream), tid = s->stream - first_stream(plan, rank);
    if (i >= plan->n_tasks) tid = stream_count(plan, rank) + l.of_post[i - plan->n_tasks];
    put_span(e, t, s, tid, iterations[s->instr]);
  }
}

void rt_trace_json(const rt_trace *traces, uint32_t n, strbuf *out) {
  events e = {.out = out};
  strbuf_puts(out, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
  for (uint32_t k = 0; k < n; k++) put_trace(&e, &traces[k]);
  strbuf_puts(out, "\n]}\n");
}
