#include "trace/trace.h"
#include "trace/json.h"
#include "trace/lanes.h"
#include "trace/links.h"

static void put_pair(strbuf *out, const char *key, const char *text) {
  trace_json_string(out, key);
  strbuf_putc(out, ':');
  trace_json_string(out, text);
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

static void put_place(const trace_part *t, uint32_t instr, strbuf *out) {
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

static void put_task_args(const trace_part *t, const rt_span *s, strbuf *out) {
  const rt_task *task = &t->plan->tasks[t->plan->instrs[s->instr].task];
  strbuf text;
  strbuf_init(&text, out->memory);
  for (uint32_t k = 0; k < rt_task_n_results(task); k++) {
    if (k) strbuf_puts(&text, ", ");
    put_slice(t->plan, &t->plan->views[rt_task_result(task, k)], &text);
  }
  put_pair(out, "writes", text.data);
}

static void put_side(const trace_part *t, const char *key, uint32_t view, strbuf *out) {
  if (view == RT_NO_VIEW) return;
  strbuf text;
  strbuf_init(&text, out->memory);
  put_slice(t->plan, &t->plan->views[view], &text);
  put_pair(out, key, text.data);
  strbuf_putc(out, ',');
}

static void put_post_args(const trace_part *t, const rt_post *p, strbuf *out) {
  strbuf team;
  strbuf_init(&team, out->memory);
  for (uint32_t i = 0; i < p->n_team; i++) strbuf_printf(&team, i ? " %u" : "(%u", p->team[i]);
  strbuf_putc(&team, ')');
  put_side(t, "reads", p->in, out);
  put_side(t, "writes", p->out, out);
  put_pair(out, "team", team.data);
  if (ir_comm_has_root(p->kind)) strbuf_printf(out, ",\"root\":%u", p->team[p->root]);
  if (ir_comm_is_message(p->kind) && p->to >= 0 && p->kind != IR_COMM_RECV)
    strbuf_printf(out, ",\"to\":%u", p->team[p->to]);
  if (ir_comm_is_message(p->kind) && p->from >= 0 && p->kind != IR_COMM_SEND)
    strbuf_printf(out, ",\"from\":%u", p->team[p->from]);
}

static void put_args(const trace_part *t, const rt_span *s, uint32_t iteration, bool critical,
                     strbuf *out) {
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
  if (instr->origin) strbuf_printf(out, ",\"origin\":%u", instr->origin);
  if (critical) strbuf_puts(out, ",\"critical\":true");
  strbuf_putc(out, '}');
}

/* How often the rank launched an instruction of the host program before: the iteration, by instruction of
 * the plan. */
static const uint32_t *count_iterations(const trace_part *t, arena *memory) {
  const rt_plan *plan = t->plan;
  size_t most = 0;
  for (uint32_t i = 0; i < plan->n_instrs; i++)
    if (plan->instrs[i].origin > most) most = plan->instrs[i].origin;
  uint32_t *seen = ARENA_ARRAY(memory, (most + 1) * trace_ranks(plan), uint32_t);
  uint32_t *by_instr = ARENA_ARRAY(memory, plan->n_instrs, uint32_t);
  for (uint32_t i = 0; i < plan->n_instrs; i++) {
    const rt_instr *instr = &plan->instrs[i];
    size_t rank = rt_plan_rank(plan, instr->stream);
    if (instr->kind == RT_LAUNCH || instr->kind == RT_POST)
      by_instr[i] = seen[rank * (most + 1) + instr->origin]++;
  }
  return by_instr;
}

/* ---- events ---- */
typedef struct events {
  strbuf *out;
  bool more; /* one is there already */
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

static void put_names(events *e, const trace_part *t, const trace_lanes *l, uint32_t rank) {
  arena *memory = e->out->memory;
  uint32_t pid = t->rank + rank, n = trace_lane_count(l, t, rank);
  put_name(e, "process_name", pid, 0, arena_printf(memory, "%s %u", t->device, pid));
  for (uint32_t k = 0; k < n; k++)
    put_name(e, "thread_name", pid, k, trace_lane_name(t, rank, k, memory));
}

static void put_microseconds(strbuf *out, int64_t ns) {
  strbuf_printf(out, "%lld.%03d", (long long)(ns / 1000), (int)(ns % 1000));
}

/* ---- spans ---- */
/* What is known of one process's part of a run while its events are written. */
typedef struct writing {
  events *e;
  const trace_part *t;
  const uint32_t *iterations;
  const bool *critical; /* by instruction */
  trace_lanes lanes;
  trace_links links;
  uint32_t *next_flow;
} writing;

static uint32_t pid_of(const writing *w, const rt_span *s) {
  return w->t->rank + rt_plan_rank(w->t->plan, s->stream);
}

/* Where an event is shown: the lane of a span, at a time. */
static void put_lane(const writing *w, uint32_t span, int64_t at_ns, strbuf *out) {
  strbuf_printf(out, ",\"pid\":%u,\"tid\":%u,\"ts\":", pid_of(w, &w->t->spans[span]),
                trace_lane(&w->lanes, w->t, span));
  put_microseconds(out, at_ns);
}

static strbuf *begin_span(const writing *w, uint32_t span, const char *name, const char *category,
                          int64_t start_ns, int64_t end_ns) {
  strbuf *out = next_event(w->e);
  strbuf_puts(out, "{\"ph\":\"X\",");
  put_pair(out, "name", name);
  put_lane(w, span, start_ns, out);
  strbuf_puts(out, ",\"dur\":");
  put_microseconds(out, end_ns - start_ns);
  strbuf_putc(out, ',');
  put_pair(out, "cat", category);
  strbuf_putc(out, ',');
  return out;
}

static void put_launch(const writing *w, uint32_t span) {
  const rt_span *s = &w->t->spans[span];
  const rt_task *task = &w->t->plan->tasks[w->t->plan->instrs[s->instr].task];
  rt_label label;
  strbuf *out =
      begin_span(w, span, rt_task_label(task, label), trace_kind(task), s->start_ns, s->end_ns);
  put_args(w->t, s, w->iterations[s->instr], w->critical[s->instr], out);
  strbuf_putc(out, '}');
}

/* A communication that waited for another rank is two events, since nothing moved in the first. */
static void put_post(const writing *w, uint32_t span) {
  const rt_plan *plan = w->t->plan;
  const rt_span *s = &w->t->spans[span];
  uint32_t post = span - plan->n_tasks, last = w->links.last[post];
  int64_t ready_ns = w->links.ready_ns[post];
  const char *kind = ir_comm_text(plan->posts[post].kind);
  strbuf *out;
  if (ready_ns > s->start_ns) {
    const char *name = arena_printf(w->e->out->memory, "%s: wait for %u", kind,
                                    pid_of(w, &w->t->spans[plan->n_tasks + last]));
    out = begin_span(w, span, name, "wait", s->start_ns, ready_ns);
    strbuf_printf(out, "\"args\":{\"instruction\":%u", s->instr);
    put_place(w->t, s->instr, out);
    if (plan->instrs[s->instr].origin)
      strbuf_printf(out, ",\"origin\":%u", plan->instrs[s->instr].origin);
    strbuf_puts(out, "}}");
  }
  out = begin_span(w, span, kind, "communication", ready_ns, s->end_ns);
  put_args(w->t, s, w->iterations[s->instr], w->critical[s->instr], out);
  strbuf_putc(out, '}');
}

/* ---- arrows ---- */
static void put_flow_end(const writing *w, const char *category, bool start, uint32_t span,
                         int64_t at_ns) {
  strbuf *out = next_event(w->e);
  strbuf_printf(out, "{\"ph\":\"%s\",\"id\":%u,", start ? "s" : "f\",\"bp\":\"e", *w->next_flow);
  put_pair(out, "name", category);
  strbuf_putc(out, ',');
  put_pair(out, "cat", category);
  put_lane(w, span, at_ns, out);
  strbuf_putc(out, '}');
}

static void put_flow(const writing *w, const char *category, uint32_t from, int64_t from_ns,
                     uint32_t to, int64_t to_ns) {
  if (!trace_shows(&w->t->spans[from]) || !trace_shows(&w->t->spans[to])) return;
  put_flow_end(w, category, true, from, from_ns);
  put_flow_end(w, category, false, to, to_ns);
  ++*w->next_flow;
}

/* Between ranks: from a sender to its receiver, and from the last member of a collective to those that
 * waited for it. */
static void put_meetings(const writing *w) {
  const rt_span *spans = w->t->spans;
  uint32_t first = w->t->plan->n_tasks;
  for (uint32_t i = 0; i < w->links.len; i++) {
    const trace_link *l = &w->links.data[i];
    uint32_t post = l->post, last = w->links.last[post];
    bool message = ir_comm_is_message(w->t->plan->posts[post].kind);
    if (message && l->sends) {
      bool before = i > 0 && w->links.data[i - 1].group == l->group;
      uint32_t to = w->links.data[before ? i - 1 : i + 1].post;
      put_flow(w, "message", first + post, spans[first + post].start_ns, first + to,
               spans[first + to].end_ns);
    } else if (!message && last != post)
      put_flow(w, "meeting", first + last, spans[first + last].start_ns, first + post,
               w->links.ready_ns[post]);
  }
}

/* From a communication to the first launch after a wait for it, by stream. */
static void put_joins(const writing *w) {
  const rt_plan *plan = w->t->plan;
  arena *memory = w->e->out->memory;
  uint32_t *waited = ARENA_ARRAY(memory, plan->n_streams, uint32_t); /* post + 1; 0: none */
  for (uint32_t i = 0, task = 0; i < plan->n_instrs; i++) {
    const rt_instr *instr = &plan->instrs[i];
    if (instr->kind == RT_JOIN) waited[instr->stream] = instr->task + 1;
    if (instr->kind != RT_LAUNCH) continue;
    uint32_t post = waited[instr->stream], span = task++;
    waited[instr->stream] = 0;
    if (post && plan->n_tasks + post - 1 < w->t->n_spans)
      put_flow(w, "wait", plan->n_tasks + post - 1, w->t->spans[plan->n_tasks + post - 1].end_ns,
               span, w->t->spans[span].start_ns);
  }
}

static const bool *mark_path(const trace_part *t, arena *memory) {
  bool *critical = ARENA_ARRAY(memory, (size_t)t->plan->n_instrs + 1, bool);
  for (size_t i = 0; i < t->path_len; i++) {
    const rt_instr *instr = &t->plan->instrs[t->path[i]];
    if (instr->kind == RT_LAUNCH || instr->kind == RT_POST) critical[t->path[i]] = true;
  }
  return critical;
}

static bool is_shown(const trace_part *t, uint32_t rank) {
  if (!t->sparse) return true;
  for (uint32_t i = 0; i < t->n_spans; i++)
    if (trace_shows(&t->spans[i]) && rt_plan_rank(t->plan, t->spans[i].stream) == rank) return true;
  return false;
}

static void put_trace(events *e, const trace_part *t, uint32_t *next_flow) {
  const rt_plan *plan = t->plan;
  arena *memory = e->out->memory;
  uint32_t n_posts = t->n_spans > plan->n_tasks ? t->n_spans - plan->n_tasks : 0;
  writing w = {.e = e, .t = t, .next_flow = next_flow};
  w.iterations = count_iterations(t, memory);
  w.critical = mark_path(t, memory);
  w.lanes = trace_assign_lanes(t, memory);
  w.links = trace_link_posts(plan, n_posts ? t->spans + plan->n_tasks : NULL, n_posts, memory);
  for (uint32_t r = 0; r < trace_ranks(plan); r++)
    if (is_shown(t, r)) put_names(e, t, &w.lanes, r);
  for (uint32_t i = 0; i < t->n_spans; i++) {
    if (!trace_shows(&t->spans[i])) continue;
    if (i < plan->n_tasks) put_launch(&w, i);
    else put_post(&w, i);
  }
  if (n_posts) put_meetings(&w), put_joins(&w);
}

/* ---- the program ---- */
/* The text of every instruction that spans come from, once. */
static void put_steps(const trace_part *t, strbuf *out) {
  const ir_func *host = t->plan->host;
  bool *done = ARENA_ARRAY(out->memory, host->host->instrs.len + 1, bool), more = false;
  for (uint32_t i = 0; i < t->plan->n_instrs; i++) {
    const rt_instr *instr = &t->plan->instrs[i];
    bool spans = instr->kind == RT_LAUNCH || instr->kind == RT_POST;
    if (!spans || !instr->origin || instr->origin >= host->host->instrs.len || done[instr->origin])
      continue;
    done[instr->origin] = true;
    strbuf text;
    strbuf_init(&text, out->memory);
    t->describe(host, (ir_instr){instr->origin}, &text);
    strbuf_printf(out, "%s\n\"%u\":", more ? "," : "", instr->origin);
    trace_json_string(out, text.data);
    more = true;
  }
}

static void put_program(const trace_part *t, strbuf *out) {
  const ir_func *host = t->plan->host;
  strbuf_puts(out, "\"weir\":{");
  if (host && t->describe) {
    const source *src = &host->module->src;
    put_pair(out, "file", src->name ? src->name : "");
    strbuf_putc(out, ',');
    put_pair(out, "source", src->text ? src->text : "");
    strbuf_puts(out, ",\"steps\":{");
    put_steps(t, out);
    strbuf_putc(out, '}');
  }
  strbuf_puts(out, "},\n");
}

void trace_json(const trace_part *traces, uint32_t n, strbuf *out) {
  events e = {.out = out};
  uint32_t next_flow = 1;
  strbuf_puts(out, "{\"displayTimeUnit\":\"ns\",");
  if (n) put_program(&traces[0], out);
  strbuf_puts(out, "\"traceEvents\":[");
  for (uint32_t k = 0; k < n; k++) put_trace(&e, &traces[k], &next_flow);
  strbuf_puts(out, "\n]}\n");
}
