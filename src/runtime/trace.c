#include "runtime/trace.h"

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

static void put_args(const rt_trace *t, const rt_span *s, uint32_t iteration, strbuf *out) {
  const rt_task *task = &t->plan->tasks[t->plan->instrs[s->instr].task];
  strbuf text;
  strbuf_init(&text, out->memory);
  put_slice(t->plan, &t->plan->views[task->result], &text);
  strbuf_puts(out, "\"args\":{");
  put_pair(out, "writes", text.data);
  strbuf_printf(out, ",\"instruction\":%u,\"iteration\":%u,\"thread\":%u", s->instr, iteration,
                s->worker);
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
    if (t->plan->instrs[i].kind == RT_LAUNCH) by_instr[i] = seen[t->plan->instrs[i].origin]++;
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

static void put_names(events *e, const rt_trace *t) {
  arena *memory = e->out->memory;
  put_name(e, "process_name", t->rank, 0, arena_printf(memory, "%s %u", t->device, t->rank));
  for (uint32_t s = 0; s < t->plan->n_streams; s++) {
    const char *name = s == 0 ? "main stream" : arena_printf(memory, "stream %u", s - 1);
    put_name(e, "thread_name", t->rank, s, name);
  }
}

static void put_microseconds(strbuf *out, int64_t ns) {
  strbuf_printf(out, "%lld.%03d", (long long)(ns / 1000), (int)(ns % 1000));
}

static void put_span(events *e, const rt_trace *t, const rt_span *s, uint32_t iteration) {
  const rt_task *task = &t->plan->tasks[t->plan->instrs[s->instr].task];
  strbuf *out = next_event(e);
  strbuf_puts(out, "{\"ph\":\"X\",");
  put_pair(out, "name", ir_op_info_of(task->code)->name);
  strbuf_printf(out, ",\"pid\":%u,\"tid\":%u,\"ts\":", t->rank, s->stream);
  put_microseconds(out, s->start_ns);
  strbuf_puts(out, ",\"dur\":");
  put_microseconds(out, s->end_ns - s->start_ns);
  strbuf_putc(out, ',');
  put_args(t, s, iteration, out);
  strbuf_putc(out, '}');
}

void rt_trace_json(const rt_trace *traces, uint32_t n, strbuf *out) {
  events e = {.out = out};
  strbuf_puts(out, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
  for (uint32_t k = 0; k < n; k++) {
    const rt_trace *t = &traces[k];
    const uint32_t *iterations = count_iterations(t, out->memory);
    put_names(&e, t);
    for (uint32_t i = 0; i < t->n_spans; i++)
      if (t->spans[i].end_ns > t->spans[i].start_ns)
        put_span(&e, t, &t->spans[i], iterations[t->spans[i].instr]);
  }
  strbuf_puts(out, "\n]}\n");
}
