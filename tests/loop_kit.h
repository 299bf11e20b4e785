/* Plans with loops against the same plans without. */
#ifndef WEIR_TESTS_LOOP_KIT_H
#define WEIR_TESTS_LOOP_KIT_H

#include <string.h>

#include "check/check.h"
#include "runtime/plan.h"
#include "runtime/queues.h"

/* Of the caller's memory by slot. In the pool places may differ, and in plans without loops results
 * may be where operands were. */
static inline bool loop_same_buffer(const rt_buffer *a, const rt_buffer *b) {
  return a->kind == b->kind && (a->kind == RT_BUFFER_POOL || a->slot == b->slot);
}

static inline bool loop_same_view(const rt_plan *p, uint32_t a, const rt_plan *q, uint32_t b) {
  const rt_view *x = &p->views[a], *y = &q->views[b];
  return x->step_bytes == 0 && y->step_bytes == 0 && x->dtype == y->dtype &&
         x->offset_bytes == y->offset_bytes &&
         rt_extents_same(x->rank, x->extents, y->rank, y->extents) &&
         rt_extents_same(x->rank, x->strides, y->rank, y->strides) &&
         loop_same_buffer(&p->buffers[x->buffer], &q->buffers[y->buffer]);
}

static inline bool loop_same_task(const rt_plan *p, const rt_task *a, const rt_plan *q,
                                  const rt_task *b) {
  if (a->code != b->code || a->n_more != b->n_more || a->n_operands != b->n_operands) return false;
  if (!a->body != !b->body || (a->body && !rt_body_equal(a->body, b->body))) return false;
  for (uint32_t k = 0; k < rt_task_n_results(a); k++)
    if (!loop_same_view(p, rt_task_result(a, k), q, rt_task_result(b, k))) return false;
  for (uint32_t k = 0; k < a->n_operands; k++) {
    const rt_operand *x = &a->operands[k], *y = &b->operands[k];
    if (x->kind != y->kind || x->sliced != y->sliced) return false;
    if (x->kind == RT_OPERAND_VIEW && !loop_same_view(p, x->view, q, y->view)) return false;
  }
  return true;
}

static inline bool loop_same_side(const rt_plan *p, uint32_t a, const rt_plan *q, uint32_t b) {
  return a == RT_NO_VIEW || b == RT_NO_VIEW ? a == b : loop_same_view(p, a, q, b);
}

/* They have the same numbers, of one rank. */
static inline bool loop_same_post(const rt_plan *p, const rt_post *a, const rt_plan *q,
                                  const rt_post *b) {
  return a->kind == b->kind && a->op == b->op && a->dtype == b->dtype && a->n_team == b->n_team &&
         memcmp(a->team, b->team, a->n_team * sizeof *a->team) == 0 && a->me == b->me &&
         a->root == b->root && a->to == b->to && a->from == b->from && !rt_post_moves(a) &&
         !rt_post_moves(b) && a->count == b->count && a->count_from == b->count_from &&
         a->rank == b->rank && a->before == b->before && a->joined == b->joined && !a->loop &&
         !b->loop && loop_same_side(p, a->in, q, b->in) && loop_same_side(p, a->out, q, b->out);
}

/* Two plans without loops do the same; else the number of the first instruction that differs. */
static inline bool loop_same_plan(const rt_plan *p, const rt_plan *q, uint32_t *at) {
  for (*at = 0; *at < p->n_instrs && *at < q->n_instrs; ++*at) {
    const rt_instr *a = &p->instrs[*at], *b = &q->instrs[*at];
    if (a->kind != b->kind || a->stream != b->stream || a->other != b->other ||
        a->origin != b->origin)
      return false;
    if (a->kind == RT_LAUNCH && !loop_same_task(p, &p->tasks[a->task], q, &q->tasks[b->task]))
      return false;
    bool comm = a->kind == RT_POST || a->kind == RT_JOIN;
    if (comm &&
        (a->task != b->task || !loop_same_post(p, &p->posts[a->task], q, &q->posts[b->task])))
      return false;
  }
  return p->n_instrs == q->n_instrs && p->n_posts == q->n_posts && p->n_tasks == q->n_tasks &&
         p->n_streams == q->n_streams;
}

static inline bool loop_same_entry(const rt_entry *a, const rt_entry *b) {
  bool numbered = a->kind == RT_LAUNCH || a->kind == RT_POST;
  return a->instr == b->instr && a->kind == b->kind && a->other == b->other &&
         a->target == b->target && (!numbered || a->launch == b->launch) &&
         (a->signals || !b->signals);
}

/* The cursor, the numbers and the queues of a plan are those of the unrolled one. */
static inline bool loop_same_walk(const rt_plan *looped, const rt_plan *unrolled) {
  uint32_t n = 0;
  for (rt_cursor c = {.plan = looped}; rt_cursor_next(&c); n++) {
    if (n >= unrolled->n_instrs || rt_plan_nth(looped, n) != c.instr) return false;
    if (looped->instrs[c.instr].kind != unrolled->instrs[n].kind ||
        looped->instrs[c.instr].stream != unrolled->instrs[n].stream)
      return false;
  }
  return n == unrolled->n_instrs && rt_plan_n_done(looped) == n &&
         rt_plan_n_launched(looped) == unrolled->n_tasks;
}

static inline bool loop_same_queues(const rt_plan *looped, const rt_plan *unrolled, arena *memory) {
  rt_queues a, b;
  rt_queues_build(looped, memory, &a);
  rt_queues_build(unrolled, memory, &b);
  if (a.n_launches != b.n_launches || a.n_streams != b.n_streams) return false;
  for (uint32_t s = 0; s < a.n_streams; s++) {
    if (a.streams[s].n != b.streams[s].n) return false;
    for (uint32_t k = 0; k < a.streams[s].n; k++) {
      rt_entry room;
      if (!loop_same_entry(rt_queue_at(&a.streams[s], k, &room), &b.streams[s].entries[k]))
        return false;
    }
  }
  return true;
}

#endif
