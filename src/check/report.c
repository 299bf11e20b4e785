/* Findings in words. */
#include <inttypes.h>

#include "check/internal.h"

const char *check_kind_name(check_kind kind) {
  static const char *const names[] = {
#define KIND(id, name) [CHECK_##id] = (name),
#include "check/kinds.def"
#undef KIND
  };
  return names[kind];
}

bool check_instr_place(const rt_plan *plan, uint32_t instr, arena *memory, const char **file,
                       uint32_t *line, uint32_t *column) {
  const ir_func *h = plan->host;
  uint32_t origin = plan->instrs[instr].origin;
  if (!h || !h->host || origin == 0 || origin >= h->host->instrs.len) return false;
  loc at = h->host->instrs.data[origin].at;
  if (!at.known || !h->module->src.text) return false;
  source src = h->module->src; /* a copy: finding a line fills its table */
  source_position(&src, memory, at.offset, line, column);
  *file = src.name ? src.name : "";
  return true;
}

bool check_add_place(const rt_plan *plan, uint32_t instr, strbuf *out) {
  const char *file;
  uint32_t line, column;
  if (instr == CHECK_NONE) return false;
  if (!check_instr_place(plan, instr, out->memory, &file, &line, &column)) return false;
  strbuf_printf(out, "%s:%u:%u", file, line, column);
  return true;
}

/* ---- pieces of sentences ---- */
/* By its number on its rank. */
static void add_stream(const rt_plan *plan, uint32_t stream, strbuf *out) {
  uint32_t main = plan->n_ranks > 1 ? plan->first_stream[rt_plan_rank(plan, stream)] : 0;
  if (stream == main) strbuf_puts(out, "main");
  else strbuf_int(out, (int64_t)stream - main - 1);
}

static uint32_t stream_of(const rt_plan *plan, uint32_t instr) {
  return plan->instrs[instr].stream;
}

static bool is_post(const rt_plan *plan, uint32_t instr) {
  return plan->instrs[instr].kind == RT_POST;
}

static const char *post_kind(const rt_plan *plan, uint32_t instr) {
  return ir_comm_text(plan->posts[plan->instrs[instr].task].kind);
}

/* What wait() calls the communication that an instruction posts, by itself or in a group; NULL: not
 * known. */
static const char *wait_name(const rt_plan *plan, uint32_t instr) {
  const ir_func *h = plan->host;
  uint32_t origin = plan->instrs[instr].origin;
  if (!h || !h->host || origin == 0) return NULL;
  for (uint32_t i = origin; i < h->host->instrs.len; i++) {
    const ir_instr_data *d = &h->host->instrs.data[i];
    if (d->name && (i == origin || d->kind == IR_GROUP_END)) return ir_name_text(h, d->name);
  }
  return NULL;
}

static const char *buffer_name(const rt_plan *plan, uint32_t buffer) {
  const char *name = plan->buffers[buffer].name;
  return name && *name ? name : "(unnamed)";
}

static void add_list(const char *open, const int64_t *list, uint32_t n, strbuf *out) {
  strbuf_puts(out, open);
  for (uint32_t k = 0; k < n; k++) {
    if (k) strbuf_puts(out, ", ");
    strbuf_int(out, list[k]);
  }
  strbuf_putc(out, ']');
}

/* "    rank 2, instruction 7 on stream 1: t2$1 <- set(t1$1)  (f.weir:9:5)" */
void check_add_instr(const check_report *report, uint32_t instr, strbuf *out) {
  const rt_plan *plan = report->plan;
  if (instr == CHECK_NONE) return;
  strbuf_puts(out, "    ");
  if (plan->n_ranks > 1)
    strbuf_printf(out, "rank %u, ", rt_plan_rank(plan, stream_of(plan, instr)));
  else if (report->rank != CHECK_NONE) strbuf_printf(out, "rank %u, ", report->rank);
  strbuf_printf(out, "instruction %u on stream ", instr);
  add_stream(plan, stream_of(plan, instr), out);
  strbuf_puts(out, ": ");
  rt_describe(plan, instr, out);
  strbuf_puts(out, "  (");
  if (!check_add_place(plan, instr, out)) strbuf_puts(out, "place not known");
  strbuf_puts(out, ")\n");
}

/* "    f32[4, 2] at byte 8 of t1, strides [8, 1]" */
static void add_view(const rt_plan *plan, uint32_t view, strbuf *out) {
  if (view == CHECK_NONE) return;
  const rt_view *v = &plan->views[view];
  strbuf_printf(out, "      touches %s", ir_dtype_text(v->dtype));
  add_list("[", v->extents, v->rank, out);
  strbuf_printf(out, " at byte %" PRId64 " of %s", v->offset_bytes, buffer_name(plan, v->buffer));
  add_list(", strides [", v->strides, v->rank, out);
  strbuf_putc(out, '\n');
}

static void add_bytes(const rt_plan *plan, const check_finding *f, strbuf *out) {
  if (f->buffer == CHECK_NONE) return;
  strbuf_printf(out,
                "    where: bytes %" PRId64 "..%" PRId64 " of buffer %s (%" PRId64 " bytes)%s\n",
                f->begin_bytes, f->end_bytes, buffer_name(plan, f->buffer),
                plan->buffers[f->buffer].size_bytes,
                f->may ? "; too many pieces to compare exactly, they may be disjoint" : "");
}

/* ---- sentences ---- */
/* "stream 1 reads t", "stream 1 posts a send that reads t" */
static void add_later(const rt_plan *plan, const check_finding *f, const char *does, strbuf *out) {
  strbuf_puts(out, "stream ");
  add_stream(plan, stream_of(plan, f->b), out);
  if (is_post(plan, f->b)) strbuf_printf(out, " posts %s, which", post_kind(plan, f->b));
  strbuf_printf(out, " %s", does);
}

/* "the write on stream 1", "the end of the send posted on stream 1" */
static void add_earlier(const rt_plan *plan, const check_finding *f, const char *what,
                        strbuf *out) {
  if (is_post(plan, f->a)) strbuf_printf(out, "the end of the %s posted", post_kind(plan, f->a));
  else strbuf_printf(out, "the %s", what);
  strbuf_puts(out, " on stream ");
  add_stream(plan, stream_of(plan, f->a), out);
}

static void race_sentence(const rt_plan *plan, const check_finding *f, strbuf *out) {
  add_later(plan, f, f->kind == CHECK_RACE_RAW ? "reads" : "writes", out);
  strbuf_printf(out, " %s, and nothing orders it after ", buffer_name(plan, f->buffer));
  add_earlier(plan, f, f->kind == CHECK_RACE_WAR ? "read" : "write", out);
}

static void reuse_sentence(const rt_plan *plan, const check_finding *f, strbuf *out) {
  add_later(plan, f, "uses", out);
  strbuf_printf(out, " the memory of %s for %s, and nothing orders it after ",
                buffer_name(plan, f->other), buffer_name(plan, f->buffer));
  add_earlier(plan, f, "access", out);
}

static void unjoined_sentence(const rt_plan *plan, const check_finding *f, strbuf *out) {
  strbuf_puts(out, "the program ends without waiting for ");
  if (is_post(plan, f->a)) strbuf_printf(out, "the %s posted on ", post_kind(plan, f->a));
  strbuf_puts(out, "stream ");
  add_stream(plan, stream_of(plan, f->a), out);
}

static void rule_sentence(const rt_plan *plan, const check_finding *f, strbuf *out) {
  const char *why;
  (void)check_post_fits(plan, &plan->posts[plan->instrs[f->b].task], &why);
  strbuf_puts(out, why);
  status_clear();
}

static void order_sentence(const rt_plan *plan, const check_finding *f, strbuf *out) {
  strbuf_puts(out, "streams ");
  add_stream(plan, stream_of(plan, f->a), out);
  strbuf_puts(out, " and ");
  add_stream(plan, stream_of(plan, f->b), out);
  strbuf_puts(out, " post to the same peers, and nothing orders which comes first");
}

static void sentence(const rt_plan *plan, const check_finding *f, strbuf *out) {
  const char *name = f->buffer == CHECK_NONE ? "" : buffer_name(plan, f->buffer);
  switch (f->kind) {
  case CHECK_RACE_RAW:
  case CHECK_RACE_WAR:
  case CHECK_RACE_WAW: race_sentence(plan, f, out); return;
  case CHECK_REUSE: reuse_sentence(plan, f, out); return;
  case CHECK_UNWRITTEN:
    strbuf_printf(out, "%s is read before all that is read of it was written", name);
    return;
  case CHECK_OUTPUT_UNWRITTEN:
    strbuf_printf(out, "the output %s is not written completely", name);
    return;
  case CHECK_BEFORE_ALLOCATE: strbuf_printf(out, "%s is used before it is allocated", name); return;
  case CHECK_AFTER_FREE: strbuf_printf(out, "%s is used after it was deallocated", name); return;
  case CHECK_UNJOINED: unjoined_sentence(plan, f, out); return;
  case CHECK_IN_TASK:
    strbuf_printf(out, "the result overwrites %s while the operation still reads it", name);
    return;
  case CHECK_SHARED:
    strbuf_printf(out, "%s share the same bytes of %s",
                  f->view_a == CHECK_NONE ? "several elements of the result" : "two results", name);
    return;
  case CHECK_LAYOUT:
    strbuf_printf(out, "%s and %s live at the same time and share memory",
                  buffer_name(plan, f->other), name);
    return;
  case CHECK_BOUNDS: strbuf_printf(out, "a slice of %s reaches outside of it", name); return;
  case CHECK_FREED_IN_FLIGHT:
    strbuf_printf(out, "%s is deallocated while a communication uses it", name);
    return;
  case CHECK_POST_RULE: rule_sentence(plan, f, out); return;
  case CHECK_POST_ORDER: order_sentence(plan, f, out); return;
  case CHECK_MISMATCH:
  case CHECK_ABSENT:
  case CHECK_DEADLOCK:
  case CHECK_KIND_COUNT: break;
  }
  impossible("kind of finding");
}

static bool is_race(check_kind kind) {
  return kind == CHECK_RACE_RAW || kind == CHECK_RACE_WAR || kind == CHECK_RACE_WAW ||
         kind == CHECK_REUSE;
}

/* "wait(c)", "wait_stream(1)" */
static void add_wait_for(const rt_plan *plan, uint32_t instr, strbuf *out) {
  if (!is_post(plan, instr)) {
    strbuf_puts(out, "wait_stream(");
    add_stream(plan, stream_of(plan, instr), out);
    strbuf_putc(out, ')');
    return;
  }
  const char *name = wait_name(plan, instr);
  if (name) strbuf_printf(out, "wait(%s)", name);
  else strbuf_printf(out, "to wait for the %s", post_kind(plan, instr));
}

/* Where another stream waits for the communication already; CHECK_NONE: none does. */
static uint32_t joined_at(const rt_plan *plan, uint32_t instr) {
  for (uint32_t i = plan->n_instrs; is_post(plan, instr) && i-- > instr;)
    if (plan->instrs[i].kind == RT_JOIN && plan->instrs[i].task == plan->instrs[instr].task)
      return i;
  return CHECK_NONE;
}

static void end_remedy(const rt_plan *plan, const check_finding *f, strbuf *out) {
  uint32_t join = joined_at(plan, f->a);
  strbuf_puts(out, "    to do: stream main needs ");
  add_wait_for(plan, join == CHECK_NONE ? f->a : join, out);
  strbuf_printf(out, " after instruction %u, before the end\n", join == CHECK_NONE ? f->a : join);
}

static void add_remedy(const rt_plan *plan, const check_finding *f, strbuf *out) {
  if (f->kind == CHECK_UNJOINED) end_remedy(plan, f, out);
  if (f->kind == CHECK_FREED_IN_FLIGHT) {
    strbuf_puts(out, "    to do: deallocate it after ");
    add_wait_for(plan, f->b, out);
    strbuf_putc(out, '\n');
  }
  if (!is_race(f->kind)) return;
  strbuf_puts(out, "    to do: stream ");
  add_stream(plan, stream_of(plan, f->b), out);
  strbuf_puts(out, " needs ");
  add_wait_for(plan, f->a, out);
  strbuf_printf(out, " after instruction %u and before instruction %u\n", f->a, f->b);
}

void check_add_finding(const check_report *report, const check_finding *f, const char *who,
                       strbuf *out) {
  const rt_plan *plan = report->plan;
  if (check_add_place(plan, f->b != CHECK_NONE ? f->b : f->a, out)) strbuf_puts(out, ": ");
  strbuf_printf(out, "error: %s", who);
  sentence(plan, f, out);
  strbuf_putc(out, '\n');
  check_add_instr(report, f->a == f->b ? CHECK_NONE : f->a, out);
  add_view(plan, f->view_a, out);
  check_add_instr(report, f->b, out);
  add_view(plan, f->view_b, out);
  add_bytes(plan, f, out);
  add_remedy(plan, f, out);
}

/* ---- waits and totals ---- */
static void wait_text(const check_report *report, const check_wait *w, strbuf *out) {
  const rt_plan *plan = report->plan;
  if (check_add_place(plan, w->instr, out)) strbuf_puts(out, ": ");
  strbuf_printf(out, "note: redundant wait, instruction %u: stream ", w->instr);
  add_stream(plan, stream_of(plan, w->instr), out);
  strbuf_puts(out, " waits for stream ");
  add_stream(plan, plan->instrs[w->instr].other, out);
  strbuf_puts(out, w->verdict == CHECK_WAIT_IMPLIED ? ", where nothing is left to wait for\n"
                                                    : ", and no later access needs that\n");
}

void check_waits_text(const check_report *report, strbuf *out) {
  for (uint32_t k = 0; k < report->waits.len; k++) {
    const check_wait *w = &report->waits.data[k];
    if (w->verdict == CHECK_WAIT_IMPLIED || w->verdict == CHECK_WAIT_UNUSED)
      wait_text(report, w, out);
  }
}

void check_add_count(strbuf *out, const char *before, uint64_t n, const char *noun) {
  strbuf_printf(out, "%s%" PRIu64 " %s%s", before, n, noun, n == 1 ? "" : "s");
}

static void totals_text(const check_report *report, strbuf *out) {
  const rt_plan *plan = report->plan;
  check_add_count(out, "checked ", rt_plan_n_done(plan), "instruction");
  check_add_count(out, " on ", plan->n_streams, "stream");
  if (report->n_found == 0) {
    check_add_count(out, ": ordered; ", report->waits.len, "wait");
    strbuf_printf(out, ", %u of them redundant", report->n_redundant);
    if (report->n_unexamined) strbuf_printf(out, ", %u not examined", report->n_unexamined);
    strbuf_putc(out, '\n');
    return;
  }
  check_add_count(out, ": ", report->n_found, "error");
  strbuf_putc(out, '\n');
  for (uint32_t k = 0; k < CHECK_KIND_COUNT; k++)
    if (report->count[k])
      strbuf_printf(out, "    %" PRIu64 " x %s\n", report->count[k],
                    check_kind_name((check_kind)k));
}

void check_report_text(const check_report *report, strbuf *out) {
  for (uint32_t k = 0; k < report->findings.len; k++)
    check_add_finding(report, &report->findings.data[k], "", out);
  if (report->n_found > report->findings.len)
    strbuf_printf(out, "error: and %" PRIu64 " more errors\n",
                  report->n_found - report->findings.len);
  check_waits_text(report, out);
  totals_text(report, out);
}
