/* Attention with fewer heads of k and v than of q. */
#include "runtime/task.h"

static int64_t heads_of(const rt_view *v) { return v->rank > 2 ? v->extents[v->rank - 3] : 1; }

/* Operands that a window cuts differ in length too, but only from those that it does not cut. */
bool rt_task_has_groups(const rt_plan *plan, const rt_task *t) {
  const rt_view *r = &plan->views[t->result];
  if (t->code != IR_OP_SDPA || r->rank < 3) return false;
  uint32_t at = r->rank - 3;
  bool window = t->whole && t->whole[at] != r->extents[at];
  int64_t all = heads_of(&plan->views[t->operands[0].view]);
  for (uint32_t k = 1; k <= 2; k++) {
    int64_t heads = heads_of(&plan->views[t->operands[k].view]);
    bool alike = !window || rt_task_sliced(t, 0, at) == rt_task_sliced(t, k, at);
    if (alike && heads != 1 && all != 1 && heads != all) return true;
  }
  return false;
}

typedef struct grouping {
  const rt_plan *plan;
  arena *memory;
  rt_view *views;
  uint32_t n;
  int64_t heads, group; /* of k, and how many of q each serves */
} grouping;

/* A copy of a list of `rank` numbers, in which axis `at` became the two given. */
static const int64_t *with_two(grouping *g, const int64_t *list, uint32_t rank, uint32_t at,
                               int64_t outer, int64_t inner) {
  int64_t *to = ARENA_ARRAY(g->memory, rank + 1, int64_t);
  for (uint32_t i = 0; i < rank; i++) to[i < at ? i : i + 1] = list[i];
  to[at] = outer;
  to[at + 1] = inner;
  return to;
}

/* `from_end`: the head axis, counted from the end. It has all heads, those of k or v, or one. */
static uint32_t add_view(grouping *g, uint32_t view, uint32_t from_end) {
  rt_view v = g->plan->views[view];
  if (v.rank >= from_end) {
    uint32_t at = v.rank - from_end;
    int64_t n = v.extents[at], step = v.strides[at];
    bool all = n == g->heads * g->group, one = n == 1 && !all;
    v.extents = with_two(g, v.extents, v.rank, at, one ? 1 : g->heads, all ? g->group : 1);
    v.strides = with_two(g, v.strides, v.rank, at, all ? step * g->group : step, step);
    v.rank++;
  }
  g->views[g->n] = v;
  return g->n++;
}

/* Bits of the result's dimensions after the head move up; the head itself becomes two. */
static uint32_t moved(uint32_t mask, uint32_t at) {
  uint32_t below = mask & ((1u << at) - 1), head = mask >> at & 1, above = mask >> (at + 1);
  return below | head << at | head << (at + 1) | above << (at + 2);
}

static void group_operands(grouping *g, rt_task *t, uint32_t at) {
  rt_operand *operands = ARENA_ARRAY(g->memory, t->n_operands, rt_operand);
  for (uint32_t k = 0; k < t->n_operands; k++) {
    operands[k] = t->operands[k];
    operands[k].view = add_view(g, t->operands[k].view, 3);
    operands[k].sliced = moved(t->operands[k].sliced, at);
  }
  t->operands = operands;
}

status rt_task_group_heads(const rt_plan *plan, const rt_task *t, arena *memory, rt_plan *made,
                           rt_task *grouped) {
  const rt_view *r = &plan->views[t->result], *k = &plan->views[t->operands[1].view];
  const rt_view *v = &plan->views[t->operands[2].view];
  uint32_t at = r->rank - 3;
  if (r->rank == IR_MAX_RANK)
    return fail(STATUS_BAD_PROGRAM, "%s: with fewer heads of k than of q there are at most %d axes",
                ir_op_info_of(t->code)->name, IR_MAX_RANK - 1);
  grouping g = {.plan = plan, .memory = memory};
  g.views = ARENA_ARRAY(memory, t->n_operands + rt_task_n_results(t), rt_view);
  g.heads = heads_of(k) == 1 ? heads_of(v) : heads_of(k);
  g.group = heads_of(r) / g.heads;
  *grouped = *t;
  grouped->result = add_view(&g, t->result, 3);
  uint32_t *more = ARENA_ARRAY(memory, t->n_more, uint32_t);
  for (uint32_t i = 0; i < t->n_more; i++) more[i] = add_view(&g, t->more[i], 2);
  grouped->more = more;
  group_operands(&g, grouped, at);
  if (t->offset) grouped->offset = with_two(&g, t->offset, r->rank, at, 0, 0);
  if (t->whole) grouped->whole = with_two(&g, t->whole, r->rank, at, g.heads, g.group);
  *made = *plan;
  made->views = g.views;
  made->n_views = g.n;
  return STATUS_OK;
}
