/* Taking out waits that a plan can do without.
 *
 * The walk (order.c) leaves what must stay ordered, the edges. A sweep from the end to the start
 * carries along what each line (steps.c) still has to know, and decides each wait with all earlier ones
 * in place: if its line knows enough without it, it goes; otherwise it stays, and from there on the line
 * waited for must know what the wait brings. Posts and joins always stay.
 *
 *   stream 1:  a . . . . . .          need 1: -      -      -
 *   stream 2:  . (wait 1) b . .       need 2: 1>=a   -      -     kept, if 2 did not know of a before
 *   stream 0:  . . . . (wait 2) c     need 0: -      1>=a   1>=a  kept; to know of a is now 2's need
 *
 * What goes is never missed: the knowledge a decision relies on comes from waits that are decided later
 * and then kept for it. */
#include <string.h>

#include "check/internal.h"

/* An entry of a line's clock that a wait has raised, so that it can be undone. */
typedef struct lesson {
  uint32_t line, before; /* of which line, and the clock's entry before */
} lesson;

typedef struct sweep {
  check_analysis *c;
  uint32_t n_lines;
  bool *dropped;       /* by step */
  uint32_t *clocks;    /* row per line, with all waits that are not dropped */
  uint32_t *needs;     /* row per line: what it must know here */
  uint32_t *last;      /* per line: number + 1 of its last access */
  VEC(lesson) lessons; /* of all waits, in order */
  uint32_t *n_lessons; /* by step: how many come before it, and the total */
  uint32_t n_dropped;
} sweep;

enum { MAX_LESSONS = 1 << 26 };

static uint32_t *row(const sweep *s, uint32_t *rows, uint32_t line) {
  return &rows[(size_t)line * s->n_lines];
}

static const check_step *at(const sweep *s, uint32_t step) { return &s->c->steps.data[step]; }

static bool is_wait(const sweep *s, uint32_t step) {
  const check_step *w = at(s, step);
  return w->kind == CHECK_STEP_WAIT && w->line != w->other && !s->dropped[step];
}

static void note_accesses(sweep *s, uint32_t step) {
  const uint32_t *first = &s->c->first_access[step];
  if (first[1] > first[0]) s->last[at(s, step)->other] = first[1];
}

static void learn(sweep *s, uint32_t line, uint32_t about, uint32_t value) {
  uint32_t *known = &row(s, s->clocks, line)[about];
  if (value <= *known || about == line) return;
  vec_push(s->c->scratch, &s->lessons, ((lesson){about, *known}));
  *known = value;
}

/* The clocks at the end, and what each wait changed. False: there is too much of it. */
static bool run_forward(sweep *s) {
  uint32_t n = s->c->steps.len;
  memset(s->clocks, 0, (size_t)s->n_lines * s->n_lines * sizeof *s->clocks);
  memset(s->last, 0, s->n_lines * sizeof *s->last);
  s->lessons.len = 0;
  for (uint32_t i = 0; i < n; i++) {
    const check_step *w = at(s, i);
    s->n_lessons[i] = s->lessons.len;
    note_accesses(s, i);
    if (!is_wait(s, i)) continue;
    const uint32_t *from = row(s, s->clocks, w->other);
    for (uint32_t k = 0; k < s->n_lines; k++)
      if (k != w->other) learn(s, w->line, k, from[k]);
    learn(s, w->line, w->other, s->last[w->other]);
    if (s->lessons.len > MAX_LESSONS) return false;
  }
  s->n_lessons[n] = s->lessons.len;
  return true;
}

static void forget(sweep *s, uint32_t step) {
  uint32_t *known = row(s, s->clocks, at(s, step)->line);
  for (uint32_t k = s->n_lessons[step + 1]; k > s->n_lessons[step]; k--)
    known[s->lessons.data[k - 1].line] = s->lessons.data[k - 1].before;
}

/* Does the line know what it must? Only what the wait taught can be missing without it. */
static bool knows_enough(const sweep *s, uint32_t step) {
  const uint32_t *need = row(s, s->needs, at(s, step)->line);
  for (uint32_t k = s->n_lessons[step]; k < s->n_lessons[step + 1]; k++)
    if (need[s->lessons.data[k].line] > s->lessons.data[k].before) return false;
  return true;
}

/* The wait stays: it brings all it can, and the other line must know that now. With `sparing`, only
 * what its line would miss otherwise. */
static void hand_over(sweep *s, uint32_t step, bool sparing) {
  const check_step *w = at(s, step);
  uint32_t *need = row(s, s->needs, w->line), *others = row(s, s->needs, w->other);
  const uint32_t *known = row(s, s->clocks, w->line), *from = row(s, s->clocks, w->other);
  for (uint32_t k = 0; k < s->n_lines; k++) {
    if (need[k] == 0 || (k != w->other && from[k] < need[k])) continue;
    if (k != w->other && sparing && known[k] >= need[k] && others[k] < need[k]) continue;
    if (k != w->other && others[k] < need[k]) others[k] = need[k];
    need[k] = 0;
  }
}

static void demand(sweep *s, uint32_t line, uint32_t *edge, uint32_t step) {
  uint32_t *need = row(s, s->needs, line);
  for (; *edge > 0 && s->c->edges.data[*edge - 1].step == step; --*edge) {
    check_edge e = s->c->edges.data[*edge - 1];
    if (e.bound > need[e.line]) need[e.line] = e.bound;
  }
}

/* From the end to the start. False: too much to remember. */
static bool run_backward(sweep *s, bool sparing) {
  uint32_t edge = s->c->edges.len, n = s->c->steps.len;
  if (!run_forward(s)) return false;
  memset(s->needs, 0, (size_t)s->n_lines * s->n_lines * sizeof *s->needs);
  demand(s, 0, &edge, n);
  for (uint32_t i = n; i-- > 0;) {
    if (at(s, i)->kind != CHECK_STEP_WAIT) demand(s, at(s, i)->line, &edge, i);
    if (at(s, i)->kind != CHECK_STEP_WAIT || s->dropped[i]) continue;
    bool idle = !is_wait(s, i); /* on itself */
    if (!idle && (at(s, i)->fixed || !knows_enough(s, i))) {
      forget(s, i);
      hand_over(s, i, sparing);
      continue;
    }
    if (!idle) forget(s, i);
    s->dropped[i] = true;
    s->n_dropped++;
  }
  return true;
}

/* Whether all edges hold without the waits that were dropped: the proof of the result. */
static bool all_hold(sweep *s) {
  uint32_t edge = 0, n = s->c->steps.len;
  memset(s->clocks, 0, (size_t)s->n_lines * s->n_lines * sizeof *s->clocks);
  memset(s->last, 0, s->n_lines * sizeof *s->last);
  for (uint32_t i = 0; i <= n; i++) {
    uint32_t line = i < n ? at(s, i)->line : 0;
    for (; edge < s->c->edges.len && s->c->edges.data[edge].step == i; edge++) {
      check_edge e = s->c->edges.data[edge];
      if (row(s, s->clocks, line)[e.line] < e.bound) return false;
    }
    if (i == n) break;
    note_accesses(s, i);
    if (!is_wait(s, i)) continue;
    uint32_t other = at(s, i)->other, *to = row(s, s->clocks, line);
    const uint32_t *from = row(s, s->clocks, other);
    for (uint32_t k = 0; k < s->n_lines; k++)
      if (from[k] > to[k]) to[k] = from[k];
    to[other] = s->last[other];
  }
  return true;
}

/* ---- the last ones ---- */
enum { MAX_TRIES = 64, JUDGE_STEPS = 1 << 26 };

/* Waits are chosen one by one, so one may be left that later choices have made redundant. Each wait is judged once
 * more, and those that seem redundant are tried. */
static void drop_left_over(sweep *s) {
  check_analysis *c = s->c;
  check_report *r = c->report;
  uint32_t tries = 0;
  c->dropped = s->dropped;
  c->options.max_wait_steps = JUDGE_STEPS;
  check_waits(c);
  for (uint32_t k = 0; k < r->waits.len && tries < MAX_TRIES; k++) {
    const check_wait *w = &r->waits.data[k];
    if (w->verdict != CHECK_WAIT_IMPLIED && w->verdict != CHECK_WAIT_UNUSED) continue;
    uint32_t step = s->c->step_of[w->instr];
    s->dropped[step] = true;
    bool holds = tries++ == 0 || all_hold(s); /* one alone is proven already */
    s->dropped[step] = holds;
    s->n_dropped += holds;
  }
}

/* ---- the plan ---- */
typedef struct pruning {
  rt_plan *plan;
  uint32_t n_dropped;
} pruning;

/* The instruction numbers of buffers move with the instructions. */
static void renumber(const uint32_t *number, uint32_t n_instrs, rt_buffer *b) {
  if (b->allocated_at <= n_instrs) b->allocated_at = number[b->allocated_at];
  if (b->freed_at <= n_instrs) b->freed_at = number[b->freed_at];
}

static void take_out(rt_plan *plan, const sweep *s) {
  arena *scratch = s->c->scratch;
  uint32_t *number = ARENA_ARRAY(scratch, (size_t)plan->n_instrs + 1, uint32_t), n = 0;
  for (uint32_t i = 0; i < plan->n_instrs; i++) {
    bool gone = plan->instrs[i].kind == RT_WAIT && s->dropped[s->c->step_of[i]];
    number[i] = n;
    if (!gone) plan->instrs[n++] = plan->instrs[i];
  }
  number[plan->n_instrs] = n;
  for (uint32_t b = 0; b < plan->n_buffers; b++)
    renumber(number, plan->n_instrs, &plan->buffers[b]);
  plan->n_instrs = n;
}

static bool has_waits(const rt_plan *plan) {
  for (uint32_t i = 0; i < plan->n_instrs; i++)
    if (plan->instrs[i].kind == RT_WAIT) return true;
  return false;
}

static void prune(check_analysis *c, void *context) {
  pruning *p = context;
  uint32_t n_steps = c->steps.len, n = c->n_lines;
  if (c->report->n_found) return;
  p->plan->passed = true;
  p->plan->passed_for_all = c->options.any_root || !rt_plan_has_roots(p->plan);
  if (!has_waits(p->plan)) return;
  sweep s = {.c = c, .n_lines = n};
  s.dropped = ARENA_ARRAY(c->scratch, n_steps, bool);
  s.n_lessons = ARENA_ARRAY(c->scratch, (size_t)n_steps + 1, uint32_t);
  s.clocks = ARENA_ARRAY(c->scratch, (size_t)n * n, uint32_t);
  s.needs = ARENA_ARRAY(c->scratch, (size_t)n * n, uint32_t);
  s.last = ARENA_ARRAY(c->scratch, n, uint32_t);
  for (uint32_t before = UINT32_MAX, k = 0; before != s.n_dropped && k < 4; k++) {
    before = s.n_dropped;
    if (!run_backward(&s, k % 2 == 1)) break;
  }
  check(all_hold(&s));
  drop_left_over(&s);
  if (s.n_dropped) take_out(p->plan, &s);
  p->n_dropped = s.n_dropped;
}

static status prune_plan(rt_plan *plan, bool any_root, const allocator *memory, uint32_t *removed) {
  pruning p = {.plan = plan};
  check_options options = {.memory = memory, .max_findings = 1, .any_root = any_root};
  if (plan->n_ranks <= 1) TRY(check_analyse(plan, &options, prune, &p));
  *removed = p.n_dropped;
  return STATUS_OK;
}

status check_prune_waits(rt_plan *plan, const allocator *memory, uint32_t *removed) {
  if (plan->n_loops) return check_prune_looped(plan, false, memory, removed);
  return prune_plan(plan, false, memory, removed);
}

status check_prune_alike(rt_plan *plan, const allocator *memory, uint32_t *removed) {
  if (plan->n_loops) return check_prune_looped(plan, true, memory, removed);
  return prune_plan(plan, true, memory, removed);
}

static bool same_instr(const rt_instr *a, const rt_instr *b) {
  return a->kind == b->kind && a->stream == b->stream && a->other == b->other &&
         a->task == b->task && a->origin == b->origin;
}

/* Is `like` the plan, but for some waits? Between two other instructions waits keep their order, so
 * those that are left are found one after the other. */
static bool differs_by_waits(const rt_plan *plan, const rt_plan *like) {
  uint32_t at = 0;
  if (plan->n_buffers != like->n_buffers || plan->n_streams != like->n_streams) return false;
  for (uint32_t i = 0; i < plan->n_instrs; i++) {
    if (at < like->n_instrs && same_instr(&plan->instrs[i], &like->instrs[at])) at++;
    else if (plan->instrs[i].kind != RT_WAIT) return false;
  }
  return at == like->n_instrs;
}

bool check_prune_like(rt_plan *plan, const rt_plan *like) {
  bool alike = plan->alike && like->alike && like->passed && !rt_plan_has_roots(like);
  if (plan->n_loops || like->n_loops)
    return false; /* loops may end where slices begin anew: elsewhere on each rank */
  if (!alike || !differs_by_waits(plan, like)) return false;
  memcpy(plan->instrs, like->instrs, like->n_instrs * sizeof *plan->instrs);
  plan->n_instrs = like->n_instrs;
  for (uint32_t b = 0; b < plan->n_buffers; b++) {
    plan->buffers[b].allocated_at = like->buffers[b].allocated_at;
    plan->buffers[b].freed_at = like->buffers[b].freed_at;
  }
  plan->passed = plan->passed_for_all = true;
  return true;
}
