/* What is found about several ranks, in words. */
#include <inttypes.h>
#include <string.h>

#include "check/internal.h"

/* ---- what ranks have in common ---- */
static bool same_place(const rt_plan *p, uint32_t a, const rt_plan *q, uint32_t b) {
  if (a == CHECK_NONE || b == CHECK_NONE) return a == b;
  return p->instrs[a].origin == q->instrs[b].origin && p->instrs[a].stream == q->instrs[b].stream;
}

static const char *name_of(const rt_plan *plan, uint32_t buffer) {
  const char *name = buffer == CHECK_NONE ? NULL : plan->buffers[buffer].name;
  return name ? name : "";
}

static bool same_finding(const rt_plan *p, const check_finding *f, const rt_plan *q,
                         const check_finding *g) {
  return f->kind == g->kind && same_place(p, f->a, q, g->a) && same_place(p, f->b, q, g->b) &&
         strcmp(name_of(p, f->buffer), name_of(q, g->buffer)) == 0 &&
         strcmp(name_of(p, f->other), name_of(q, g->other)) == 0;
}

static bool has_finding(const check_report *r, const rt_plan *plan, const check_finding *f) {
  for (uint32_t k = 0; k < r->findings.len; k++)
    if (same_finding(r->plan, &r->findings.data[k], plan, f)) return true;
  return false;
}

/* "rank 2: ", "ranks 0 to 3: ", "ranks 0, 2, 3: " */
static const char *who(const check_world_report *report, uint32_t from, const rt_plan *plan,
                       const check_finding *f, arena *memory) {
  uint32_t first = CHECK_NONE, last = 0, n = 0;
  strbuf list, text;
  strbuf_init(&list, memory);
  strbuf_init(&text, memory);
  for (uint32_t r = from; r < report->n_ranks; r++) {
    if (!has_finding(&report->ranks[check_plan_number(report, r)], plan, f)) continue;
    if (first == CHECK_NONE) first = r;
    strbuf_printf(&list, "%s%u", n++ ? ", " : "", r);
    last = r;
  }
  if (n == 1) strbuf_printf(&text, "rank %u: ", first);
  else if (n > 2 && last - first == n - 1) strbuf_printf(&text, "ranks %u to %u: ", first, last);
  else strbuf_printf(&text, "ranks %s: ", list.data);
  return text.data;
}

static void rank_text(const check_world_report *report, uint32_t rank, strbuf *out) {
  const check_report *r = &report->ranks[rank];
  for (uint32_t k = 0; k < r->findings.len; k++) {
    const check_finding *f = &r->findings.data[k];
    bool said = false;
    for (uint32_t q = 0; q < rank && !said; q++) said = has_finding(&report->ranks[q], r->plan, f);
    if (!said) check_add_finding(r, f, who(report, rank, r->plan, f, out->memory), out);
  }
}

/* ---- meetings ---- */
static const rt_post *post_of(const check_world_report *report, uint32_t rank, uint32_t instr) {
  const rt_plan *plan = check_plan_of(report, rank);
  return &plan->posts[plan->instrs[instr].task];
}

static void add_request(const check_world_report *report, uint32_t rank, uint32_t instr,
                        strbuf *out) {
  char text[160];
  rt_comm_request r = check_request(check_plan_of(report, rank), post_of(report, rank, instr));
  rt_comm_request_text(&r, text, sizeof text);
  strbuf_puts(out, text);
}

/* "communication 3 of team (0 1)", "message 1 from rank 0 to rank 1" */
static void add_channel(const check_world_report *report, const check_meeting *f, strbuf *out) {
  const rt_post *p = post_of(report, f->rank_a, f->a);
  strbuf_puts(out, "    where: ");
  if (ir_comm_is_message(p->kind)) {
    bool sends = p->kind != IR_COMM_RECV && p->to >= 0 && p->team[p->to] == f->rank_b;
    strbuf_printf(out, "message %u from rank %u to rank %u\n", f->turn + 1,
                  sends ? f->rank_a : f->rank_b, sends ? f->rank_b : f->rank_a);
    return;
  }
  strbuf_printf(out, "communication %u of team (", f->turn + 1);
  for (uint32_t k = 0; k < p->n_team; k++) strbuf_printf(out, "%s%u", k ? " " : "", p->team[k]);
  strbuf_puts(out, ")\n");
}

static void add_instr_of(const check_world_report *report, uint32_t rank, uint32_t instr,
                         strbuf *out) {
  check_report one = report->ranks[check_plan_number(report, rank)];
  one.rank = report->n_ranks > 1 ? rank : CHECK_NONE;
  check_add_instr(&one, instr, out);
}

static void mismatch_text(const check_world_report *report, const check_meeting *f, strbuf *out) {
  strbuf_printf(out, "rank %u posts ", f->rank_a);
  add_request(report, f->rank_a, f->a, out);
  strbuf_printf(out, ", but rank %u posts ", f->rank_b);
  add_request(report, f->rank_b, f->b, out);
  strbuf_putc(out, '\n');
  add_instr_of(report, f->rank_a, f->a, out);
  add_instr_of(report, f->rank_b, f->b, out);
  add_channel(report, f, out);
}

static void absent_text(const check_world_report *report, const check_meeting *f, strbuf *out) {
  strbuf_printf(out, "rank %u posts ", f->rank_a);
  add_request(report, f->rank_a, f->a, out);
  bool exists = f->rank_b < report->n_ranks;
  strbuf_printf(out, ", but rank %u %s\n", f->rank_b,
                exists ? "never posts its part" : "does not exist");
  add_instr_of(report, f->rank_a, f->a, out);
  if (f->b != CHECK_NONE) {
    add_instr_of(report, f->rank_b, f->b, out);
    strbuf_puts(out, "      is its last one there\n");
  } else if (exists) {
    strbuf_printf(out, "    rank %u posts nothing there\n", f->rank_b);
  }
  add_channel(report, f, out);
}

static void add_waiter(const check_world_report *report, const check_stop *s, strbuf *out) {
  const rt_plan *plan = check_plan_of(report, s->rank);
  add_instr_of(report, s->rank, s->instr, out);
  if (plan->instrs[s->instr].kind == RT_POST)
    strbuf_puts(out, "      comes after a post of the same rank\n");
  if (s->for_instr == CHECK_NONE) {
    strbuf_puts(out, "      for what is posted nowhere\n");
    return;
  }
  strbuf_printf(out, "      until rank %u gets past instruction %u: ", s->for_rank, s->for_instr);
  rt_describe(check_plan_of(report, s->for_rank), s->for_instr, out);
  strbuf_puts(out, "  (");
  if (!check_add_place(check_plan_of(report, s->for_rank), s->for_instr, out))
    strbuf_puts(out, "place not known");
  strbuf_puts(out, ")\n");
}

enum { MOST = 16 }; /* stops that are shown */

/* "rank 0 waits for rank 1, which waits for rank 0"; streams of a rank among themselves are left out. */
static void cycle_sentence(const check_stop *stops, uint32_t n, strbuf *out) {
  strbuf_printf(out, "deadlock: rank %u waits for ", stops[0].rank);
  bool others = false;
  for (uint32_t k = 0; k < n; k++) {
    if (stops[k].for_rank == stops[k].rank) continue;
    strbuf_printf(out, "%srank %u", others ? ", which waits for " : "", stops[k].for_rank);
    others = true;
  }
  strbuf_puts(out, others ? "\n" : "itself\n");
}

static void deadlock_text(const check_world_report *report, const check_meeting *f, strbuf *out) {
  const check_stop *stops = &report->stops.data[f->first];
  cycle_sentence(stops, f->n < MOST ? f->n : MOST, out);
  for (uint32_t k = 0; k < f->n && k < MOST; k++) add_waiter(report, &stops[k], out);
  if (f->n > MOST) strbuf_printf(out, "    and %u more\n", f->n - MOST);
}

static void meeting_text(const check_world_report *report, const check_meeting *f, strbuf *out) {
  if (check_add_place(check_plan_of(report, f->rank_a), f->a, out)) strbuf_puts(out, ": ");
  strbuf_puts(out, "error: ");
  if (f->kind == CHECK_MISMATCH) mismatch_text(report, f, out);
  else if (f->kind == CHECK_ABSENT) absent_text(report, f, out);
  else deadlock_text(report, f, out);
}

/* ---- totals ---- */
typedef struct totals {
  uint64_t instrs, streams, waits, redundant, unexamined, kept;
  uint64_t count[CHECK_KIND_COUNT];
} totals;

/* Ranks that are alike share a plan, and count each. */
static uint32_t times_of(const check_world_report *report, uint32_t plan) {
  if (report->times) return report->times[plan];
  return report->n_plans > 0 ? report->n_ranks / report->n_plans : 1;
}

static totals sum(const check_world_report *report) {
  totals t = {.kept = report->meetings.len * (uint64_t)times_of(report, 0)};
  memcpy(t.count, report->count, sizeof t.count);
  for (uint32_t r = 0; r < report->n_plans; r++) {
    const check_report *one = &report->ranks[r];
    uint64_t times = times_of(report, r);
    t.instrs += times * rt_plan_n_done(one->plan);
    t.streams += times * one->plan->n_streams;
    t.waits += times * one->waits.len;
    t.redundant += times * one->n_redundant;
    t.unexamined += times * one->n_unexamined;
    t.kept += times * one->findings.len;
    for (uint32_t k = 0; k < CHECK_KIND_COUNT; k++) t.count[k] += times * one->count[k];
  }
  return t;
}

static void totals_text(const check_world_report *report, const totals *t, strbuf *out) {
  check_add_count(out, "checked ", report->n_ranks, "device");
  check_add_count(out, " with ", t->instrs, "instruction");
  check_add_count(out, " on ", t->streams, "stream");
  if (report->n_found) {
    check_add_count(out, ": ", report->n_found, "error");
    strbuf_putc(out, '\n');
    for (uint32_t k = 0; k < CHECK_KIND_COUNT; k++)
      if (t->count[k])
        strbuf_printf(out, "    %" PRIu64 " x %s\n", t->count[k], check_kind_name((check_kind)k));
    return;
  }
  check_add_count(out, ": ordered; ", report->n_met, "communication");
  strbuf_printf(out, " %s, and all get to their end", report->n_met == 1 ? "matches" : "match");
  check_add_count(out, "; ", t->waits, "wait");
  strbuf_printf(out, ", %" PRIu64 " of them redundant", t->redundant);
  if (t->unexamined) strbuf_printf(out, ", %" PRIu64 " not examined", t->unexamined);
  strbuf_putc(out, '\n');
}

enum { MOST_NOTED = 64 }; /* ranks that are alike: of more, notes are given once */

void check_world_text(const check_world_report *report, strbuf *out) {
  if (report->n_ranks == 1 && report->meetings.len == 0) {
    check_report_text(&report->ranks[0], out);
    return;
  }
  totals t = sum(report);
  for (uint32_t r = 0; r < report->n_plans; r++) rank_text(report, r, out);
  for (uint32_t k = 0; k < report->meetings.len; k++)
    meeting_text(report, &report->meetings.data[k], out);
  if (report->n_found > t.kept)
    strbuf_printf(out, "error: and %" PRIu64 " more errors\n", report->n_found - t.kept);
  bool each = !report->times && times_of(report, 0) < MOST_NOTED;
  uint32_t most = each ? report->n_ranks : report->n_plans;
  for (uint32_t r = 0; r < most && report->n_found == 0; r++)
    check_waits_text(&report->ranks[each ? check_plan_number(report, r) : r], out);
  totals_text(report, &t, out);
}
