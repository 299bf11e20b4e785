/* Plans with loops, checked in time that does not depend on how often they are repeated.
 *
 * A short plan is checked instead (rt_plan_shorten): of each loop all repetitions but two as one,
 * whose views cover what all of them touch, then the last two. If it passes, and `may_shorten`
 * holds, so does the whole plan; docs/loops.md has the proof. If not, the plan is unrolled, and
 * that is checked: so verdicts are those of the unrolled plan always. */
#include "check/internal.h"

/* ---- what the proof needs besides ---- */
typedef struct touched {
  bool read, written, mixed;
  int64_t step_bytes;
} touched;

typedef struct examining {
  const rt_plan *plan;
  const rt_loop *loop;
  touched *of; /* by buffer */
  bool *known; /* by view: the repetition before has written it */
  arena scratch;
  bool fits, any_known;
} examining;

/* Buffers of one slot of the caller are the same memory: the first of them counts. */
static uint32_t object_of(const rt_plan *plan, uint32_t buffer) {
  const rt_buffer *b = &plan->buffers[buffer];
  for (uint32_t k = 0; k < buffer && b->kind != RT_BUFFER_POOL; k++)
    if (plan->buffers[k].kind == b->kind && plan->buffers[k].slot == b->slot) return k;
  return buffer;
}

static void touch(examining *x, uint32_t view, bool writes) {
  const rt_view *v = &x->plan->views[view];
  touched *t = &x->of[object_of(x->plan, v->buffer)];
  if ((t->read || t->written) && t->step_bytes != v->step_bytes) t->mixed = true;
  if (writes) t->written = true;
  else t->read = true;
  t->step_bytes = v->step_bytes;
}

static const rt_task *task_at(const examining *x, uint32_t instr) {
  const rt_instr *i = &x->plan->instrs[instr];
  return i->kind == RT_LAUNCH ? &x->plan->tasks[i->task] : NULL;
}

static const rt_post *post_at(const examining *x, uint32_t instr) {
  const rt_instr *i = &x->plan->instrs[instr];
  return i->kind == RT_POST ? &x->plan->posts[i->task] : NULL;
}

static void touch_post(examining *x, const rt_post *p) {
  if (p->in != RT_NO_VIEW) touch(x, p->in, false);
  if (p->out != RT_NO_VIEW) touch(x, p->out, true);
}

static void touch_all(examining *x) {
  for (uint32_t i = x->loop->first; i < x->loop->first + x->loop->n; i++) {
    const rt_task *t = task_at(x, i);
    const rt_post *p = post_at(x, i);
    if (p) touch_post(x, p);
    if (!t) continue;
    for (uint32_t k = 0; k < rt_task_n_results(t); k++) touch(x, rt_task_result(t, k), true);
    for (uint32_t k = 0; k < t->n_operands; k++)
      if (t->operands[k].kind == RT_OPERAND_VIEW) touch(x, t->operands[k].view, false);
  }
}

/* Has the same repetition written all of the view before instruction `end`? */
static bool is_written(const examining *x, uint32_t view, uint32_t end) {
  for (uint32_t i = x->loop->first; i < end; i++) {
    const rt_task *t = task_at(x, i);
    const rt_post *p = post_at(x, i);
    for (uint32_t k = 0; t && k < rt_task_n_results(t); k++)
      if (check_same_view(x->plan, rt_task_result(t, k), view)) return true;
    if (p && p->out != RT_NO_VIEW && check_same_view(x->plan, p->out, view)) return true;
  }
  return false;
}

/* Does every repetition write what `view` is in the next one? */
static bool is_next(const examining *x, uint32_t written, uint32_t view) {
  const rt_view *w = &x->plan->views[written], *v = &x->plan->views[view];
  return w->buffer == v->buffer && w->dtype == v->dtype &&
         w->offset_bytes == v->offset_bytes + v->step_bytes && w->step_bytes == v->step_bytes &&
         rt_extents_same(w->rank, w->extents, v->rank, v->extents) &&
         rt_extents_same(w->rank, w->strides, v->rank, v->strides);
}

static bool is_written_before(const examining *x, uint32_t view) {
  for (uint32_t i = x->loop->first; i < x->loop->first + x->loop->n; i++) {
    const rt_task *t = task_at(x, i);
    const rt_post *p = post_at(x, i);
    for (uint32_t k = 0; t && k < rt_task_n_results(t); k++)
      if (is_next(x, rt_task_result(t, k), view)) return true;
    if (p && p->out != RT_NO_VIEW && is_next(x, p->out, view)) return true;
  }
  return false;
}

/* A view that moves through memory that the loop writes: has the repetition written it, or the one before? */
static bool is_own(examining *x, uint32_t view, uint32_t instr) {
  const rt_view *v = &x->plan->views[view];
  const touched *of = &x->of[object_of(x->plan, v->buffer)];
  bool begins_empty = x->plan->buffers[v->buffer].kind != RT_BUFFER_INPUT;
  if (!of->written || !begins_empty || v->step_bytes == 0 || is_written(x, view, instr))
    return true;
  if (!is_written_before(x, view)) return false;
  x->known[view] = x->any_known = true;
  return true;
}

/* Condition 2 of docs/loops.md: a view that moves through memory that the loop writes reads what the same repetition
 * wrote, or the one before. */
static bool reads_its_own(examining *x) {
  for (uint32_t i = x->loop->first; i < x->loop->first + x->loop->n; i++) {
    const rt_task *t = task_at(x, i);
    const rt_post *p = post_at(x, i);
    for (uint32_t k = 0; t && k < t->n_operands; k++)
      if (t->operands[k].kind == RT_OPERAND_VIEW && !is_own(x, t->operands[k].view, i))
        return false;
    if (p && p->in != RT_NO_VIEW && !is_own(x, p->in, i)) return false;
  }
  return true;
}

/* ---- communications ---- */
/* Is what is posted at `instr` joined in the same repetition by the stream that posts it? Then it
 * is over before it is posted again. A root would write what others do not. */
static bool is_joined(const examining *x, uint32_t instr) {
  const rt_instr *post = &x->plan->instrs[instr];
  const rt_post *p = &x->plan->posts[post->task];
  if (p->n_team > 1 && ir_comm_has_root(p->kind)) return false;
  for (uint32_t i = instr + 1; i < x->loop->first + x->loop->n; i++) {
    const rt_instr *join = &x->plan->instrs[i];
    if (join->kind == RT_JOIN && join->task == post->task && join->stream == post->stream)
      return true;
  }
  return false;
}

static bool is_posted_until(const examining *x, uint32_t post, uint32_t end) {
  for (uint32_t i = x->loop->first; i < end; i++)
    if (x->plan->instrs[i].kind == RT_POST && x->plan->instrs[i].task == post) return true;
  return false;
}

/* Is what is joined at `instr` posted before, in the same repetition, or in the one before? */
static bool is_posted(const examining *x, uint32_t instr) {
  uint32_t post = x->plan->instrs[instr].task, next = x->plan->posts[post].next;
  if (next != RT_NO_POST) return is_posted_until(x, next, x->loop->first + x->loop->n);
  return is_posted_until(x, post, instr);
}

/* Peers that move do so within the team: of an arithmetic progression the last one tells. */
static bool is_in_team(const examining *x, const rt_post *p) {
  int64_t to = p->to + (int64_t)p->to_step * (x->loop->times - 1);
  int64_t from = p->from + (int64_t)p->from_step * (x->loop->times - 1);
  bool sends = p->to_step == 0 || (p->to >= 0 && to >= 0 && to < p->n_team);
  return sends && (p->from_step == 0 || (p->from >= 0 && from >= 0 && from < p->n_team));
}

static bool communicates_alone(const examining *x) {
  for (uint32_t i = x->loop->first; i < x->loop->first + x->loop->n; i++) {
    uint8_t kind = x->plan->instrs[i].kind;
    if (kind == RT_POST && !is_in_team(x, &x->plan->posts[x->plan->instrs[i].task])) return false;
    if (kind == RT_POST && !is_joined(x, i)) return false;
    if (kind == RT_JOIN && !is_posted(x, i)) return false;
  }
  return true;
}

static bool loop_fits(examining *x) {
  for (uint32_t b = 0; b < x->plan->n_buffers; b++) x->of[b] = (touched){0};
  touch_all(x);
  for (uint32_t b = 0; b < x->plan->n_buffers; b++)
    if (x->of[b].written && x->of[b].mixed) return false;
  return reads_its_own(x) && communicates_alone(x);
}

static status examine(void *context) {
  examining *x = context;
  x->of = ARENA_ARRAY(&x->scratch, x->plan->n_buffers, touched);
  x->known = ARENA_ARRAY(&x->scratch, x->plan->n_views, bool);
  x->fits = x->plan->n_ranks <= 1;
  for (uint32_t k = 0; k < x->plan->n_loops && x->fits; k++) {
    x->loop = &x->plan->loops[k];
    x->fits = loop_fits(x);
  }
  return STATUS_OK;
}

status check_shorten(const rt_plan *plan, const rt_plan *examined, const allocator *memory,
                     rt_plan **shortened, const uint32_t **from) {
  examining x = {.plan = examined};
  *shortened = NULL;
  arena_init(&x.scratch, memory);
  status st = memory_guard(examine, &x);
  if (st == STATUS_OK && x.fits)
    st = rt_plan_shorten(plan, x.any_known ? x.known : NULL, memory, shortened, from);
  arena_destroy(&x.scratch);
  return st;
}

/* ---- waits ---- */
enum { MOST_GROUPS = 64 }; /* of waits that are tried */

typedef struct judging {
  const rt_plan *plan;
  rt_plan *shortened;
  const uint32_t *from;
  const check_options *options;
  const check_report *found; /* of the short plan */
  uint32_t tries;
  check_report *report;
} judging;

/* Does the short plan pass without any copy of the wait? Meanwhile each copy waits for its own stream, which
 * orders nothing. */
static status is_redundant(judging *j, uint32_t instr, bool *result) {
  rt_plan *s = j->shortened;
  check_options o = *j->options;
  check_report r;
  o.no_waits = true;
  for (uint32_t i = 0; i < s->n_instrs; i++)
    if (j->from[i] == instr) s->instrs[i].other = s->instrs[i].stream;
  status st = check_plan(s, &o, &r);
  for (uint32_t i = 0; i < s->n_instrs; i++)
    if (j->from[i] == instr) s->instrs[i].other = j->plan->instrs[instr].other;
  if (st != STATUS_OK) return st;
  *result = r.n_found == 0;
  check_report_destroy(&r);
  return STATUS_OK;
}

static check_verdict worse(check_verdict a, check_verdict b) {
  if (a == CHECK_WAIT_NEEDED || b == CHECK_WAIT_NEEDED) return CHECK_WAIT_NEEDED;
  if (a == CHECK_WAIT_UNEXAMINED || b == CHECK_WAIT_UNEXAMINED) return CHECK_WAIT_UNEXAMINED;
  return a == CHECK_WAIT_IMPLIED ? b : a;
}

static uint32_t in_plan(const judging *j, uint32_t instr) {
  return instr == CHECK_NONE ? CHECK_NONE : j->from[instr];
}

/* The verdict on a wait: that on its copies in the short plan together. */
static status judge_wait(judging *j, uint32_t instr, check_wait *w) {
  uint32_t n = 0;
  *w = (check_wait){.instr = instr, .a = CHECK_NONE, .b = CHECK_NONE};
  for (uint32_t k = 0; k < j->found->waits.len; k++) {
    const check_wait *copy = &j->found->waits.data[k];
    if (j->from[copy->instr] != instr) continue;
    w->verdict = n++ ? worse(w->verdict, copy->verdict) : copy->verdict;
    if (copy->verdict != CHECK_WAIT_NEEDED) continue;
    w->a = in_plan(j, copy->a);
    w->b = in_plan(j, copy->b);
  }
  bool redundant = w->verdict == CHECK_WAIT_IMPLIED || w->verdict == CHECK_WAIT_UNUSED;
  if (n < 2 || !redundant) return STATUS_OK;
  if (j->tries++ < MOST_GROUPS) TRY(is_redundant(j, instr, &redundant));
  else w->verdict = CHECK_WAIT_UNEXAMINED;
  if (!redundant) w->verdict = CHECK_WAIT_NEEDED; /* each copy could go, but not all of them */
  return STATUS_OK;
}

static status judge_guarded(void *context) {
  judging *j = context;
  for (uint32_t i = 0; i < j->plan->n_instrs && j->found->waits.len; i++) {
    check_wait w;
    if (j->plan->instrs[i].kind != RT_WAIT) continue;
    TRY(judge_wait(j, i, &w));
    vec_push(&j->report->memory, &j->report->waits, w);
    j->report->n_unexamined += w.verdict == CHECK_WAIT_UNEXAMINED;
    j->report->n_redundant += w.verdict == CHECK_WAIT_IMPLIED || w.verdict == CHECK_WAIT_UNUSED;
  }
  return STATUS_OK;
}

/* ---- checking ---- */
/* *known: it passes. */
static status check_shortened(const rt_plan *plan, const check_options *options, bool *known,
                              check_report *report) {
  rt_plan *shortened;
  const uint32_t *from;
  check_report found = {0};
  *known = false;
  TRY(check_shorten(plan, plan, options->memory, &shortened, &from));
  if (!shortened) return STATUS_OK;
  check_report r = check_report_new(plan, options->memory);
  status st = check_plan(shortened, options, &found);
  *known = st == STATUS_OK && found.n_found == 0;
  judging j = {plan, shortened, from, options, &found, 0, &r};
  if (*known) st = memory_guard(judge_guarded, &j);
  check_report_destroy(&found);
  rt_plan_destroy(shortened);
  if (st == STATUS_OK && *known) *report = r;
  else check_report_destroy(&r);
  return st;
}

status check_looped(const rt_plan *plan, const check_options *options, check_report *report) {
  rt_plan *unrolled;
  bool known;
  TRY(check_shortened(plan, options, &known, report));
  if (known) return STATUS_OK;
  TRY(rt_plan_unroll(plan, options->memory, &unrolled));
  status st = check_plan(unrolled, options, report);
  if (st == STATUS_OK) report->unrolled = unrolled;
  else rt_plan_destroy(unrolled);
  return st;
}

/* ---- taking out waits ---- */
/* Takes out waits of which no copy is left. */
static uint32_t take_out(rt_plan *plan, const bool *kept, uint32_t *number) {
  uint32_t n = 0, old = plan->n_instrs;
  for (uint32_t i = 0; i < old; i++) {
    number[i] = n;
    if (plan->instrs[i].kind == RT_WAIT && !kept[i]) continue;
    plan->instrs[n++] = plan->instrs[i];
  }
  number[old] = plan->n_instrs = n;
  for (uint32_t b = 0; b < plan->n_buffers; b++) {
    rt_buffer *x = &plan->buffers[b];
    if (x->allocated_at <= old) x->allocated_at = number[x->allocated_at];
    if (x->freed_at <= old) x->freed_at = number[x->freed_at];
  }
  for (uint32_t k = 0; k < plan->n_loops; k++) {
    rt_loop *l = &plan->loops[k];
    uint32_t end = number[l->first + l->n];
    l->first = number[l->first];
    l->n = end - l->first;
  }
  return old - n;
}

/* The short plan has lost the waits that it does not need. The plan loses those of which no copy is left. It
 * keeps no fewer waits than the short plan, so it passes too. */
static status take_out_like(rt_plan *plan, const rt_plan *shortened, const uint32_t *from,
                            const allocator *memory, uint32_t *removed) {
  size_t n = (size_t)plan->n_instrs + 1;
  uint32_t *number = memory_alloc(memory, n * (sizeof *number + sizeof(bool)));
  if (!number) return STATUS_OUT_OF_MEMORY;
  bool *kept = (bool *)(number + n);
  for (size_t i = 0; i < n; i++) kept[i] = false;
  for (uint32_t i = 0; i < shortened->n_instrs; i++)
    if (shortened->instrs[i].kind == RT_WAIT) kept[from[shortened->instrs[i].task]] = true;
  *removed = take_out(plan, kept, number);
  plan->passed = plan->passed_for_all = true;
  memory_free(memory, number);
  return STATUS_OK;
}

status check_prune_looped(rt_plan *plan, bool any_root, const allocator *memory,
                          uint32_t *removed) {
  rt_plan *shortened;
  const uint32_t *from;
  *removed = 0;
  TRY(check_shorten(plan, plan, memory, &shortened, &from));
  if (!shortened) return STATUS_OK;
  for (uint32_t i = 0; i < shortened->n_instrs; i++) /* waits have no task */
    if (shortened->instrs[i].kind == RT_WAIT) shortened->instrs[i].task = i;
  uint32_t gone;
  status st = any_root ? check_prune_alike(shortened, memory, &gone)
                       : check_prune_waits(shortened, memory, &gone);
  if (st == STATUS_OK && shortened->passed)
    st = take_out_like(plan, shortened, from, memory, removed);
  plan->passed_for_all = plan->passed_for_all && shortened->passed_for_all;
  rt_plan_destroy(shortened);
  return st;
}
