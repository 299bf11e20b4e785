/* The space of a tile program: the dimensions of its targets, and those that reductions go over.
 *
 * A softmax of rows reads each row three times, along the same dimension: that of the result, of the
 * maximum and of the sum. So dimensions that reductions go over are found in all values that have them:
 * labels start at the operands of the reductions and go along operations that keep dimensions as they
 * are. A dimension of a target that has a label is that inner axis; the others are kept axes. */
#include <string.h>

#include "device/cpu/tile/lower.h"

enum { NO_LABEL = -1 };

typedef struct labels {
  tile_lowering *l;
  bool *reached; /* steps that the targets need and that are not in memory */
  int8_t (*params)[TILE_DIMS], (*steps)[TILE_DIMS];
  uint32_t n_inner;
  int64_t extents[TILE_AXES];
  uint32_t first; /* the first step that goes over rows */
} labels;

static bool is_reduction(const rt_step *s) {
  ir_family f = ir_op_info_of(s->code)->family;
  return f == IR_FAMILY_REDUCE || f == IR_FAMILY_MOMENT;
}

static bool is_rows(const rt_step *s) {
  ir_family f = ir_op_info_of(s->code)->family;
  return f == IR_FAMILY_SOFTMAX || f == IR_FAMILY_NORM;
}

static bool moves_positions(const rt_step *s) {
  ir_family f = ir_op_info_of(s->code)->family;
  return f == IR_FAMILY_SLICE || f == IR_FAMILY_PAD || f == IR_FAMILY_CAT ||
         f == IR_FAMILY_RESHAPE || f == IR_FAMILY_MAKER;
}

/* ---- which steps ---- */
static void reach(labels *b, const rt_value *v) {
  if (v->kind == RT_VALUE_STEP && b->l->steps[v->index][v->result].place == TILE_NONE)
    b->reached[v->index] = true;
}

static void find_reached(labels *b) {
  const rt_body *body = b->l->body;
  for (uint32_t t = 0; t < b->l->n_targets; t++) reach(b, &b->l->targets[t].value);
  for (uint32_t s = body->n_steps; s-- > 0;)
    for (uint32_t k = 0; b->reached[s] && k < body->steps[s].n_operands; k++)
      reach(b, &body->steps[s].operands[k]);
}

/* ---- labels ---- */
static int8_t *label_of(labels *b, const rt_value *v) {
  return v->kind == RT_VALUE_PARAM ? b->params[v->index] : b->steps[v->index];
}

/* The reduced dimensions of a step, by dimension of its operand. */
static void reduced_dims(const labels *b, const rt_step *s, bool reduced[IR_MAX_RANK]) {
  rt_task t = tile_step_task(b->l->work, s);
  uint32_t rank = rt_value_shape(b->l->body, &s->operands[0])->rank;
  memset(reduced, 0, IR_MAX_RANK * sizeof *reduced);
  if (is_reduction(s)) rt_task_dims(&t, "dims", rank, reduced);
  else reduced[s->code == IR_OP_SOFTMAX ? rt_task_dim(&t, "dim", rank) : rank - 1] = true;
}

static bool set_label(int8_t *label, int8_t value, bool *changed) {
  if (*label == value || value == NO_LABEL) return true;
  if (*label != NO_LABEL) return false;
  *label = value;
  *changed = true;
  return true;
}

/* The labels that a reduction itself gives. All must go over the same extents. */
static bool label_reduction(labels *b, const rt_step *s, bool first) {
  bool reduced[IR_MAX_RANK], changed;
  const rt_shape *x = rt_value_shape(b->l->body, &s->operands[0]);
  uint32_t n = 0;
  reduced_dims(b, s, reduced);
  for (uint32_t e = 0; e < x->rank; e++) {
    if (!reduced[e] || (x->extents[e] == 1 && !is_rows(s))) continue;
    if (first && n < TILE_AXES) b->extents[n] = x->extents[e];
    if (n == TILE_AXES || (!first && (n >= b->n_inner || b->extents[n] != x->extents[e])))
      return false;
    if (!set_label(&label_of(b, &s->operands[0])[e], (int8_t)n, &changed)) return false;
    n++;
  }
  if (first) b->n_inner = n;
  return n == b->n_inner && n > 0;
}

/* Along one operand: what has a label on one side has it on the other. */
static bool label_operand(labels *b, uint32_t step, uint32_t k, bool *changed) {
  const rt_step *s = &b->l->body->steps[step];
  const rt_value *v = &s->operands[k];
  int from[IR_MAX_RANK];
  if (v->kind == RT_VALUE_NONE || v->kind == RT_VALUE_NUMBER) return true;
  const rt_shape *x = rt_value_shape(b->l->body, v);
  tile_dims_of(b->l, s, k, from);
  for (uint32_t d = 0; d < s->results[0].rank; d++) {
    if (from[d] == RT_NO_DIM || x->extents[from[d]] != s->results[0].extents[d]) continue;
    if (s->results[0].extents[d] == 1 && !is_rows(s)) continue;
    int8_t *own = &b->steps[step][d], *theirs = &label_of(b, v)[from[d]];
    if (!set_label(own, *theirs, changed) || !set_label(theirs, *own, changed)) return false;
  }
  return true;
}

static bool label_all(labels *b) {
  const rt_body *body = b->l->body;
  bool changed = true, first = true;
  for (uint32_t s = 0; s < body->n_steps; s++) {
    if (!b->reached[s] || !(is_reduction(&body->steps[s]) || is_rows(&body->steps[s]))) continue;
    if (first) b->first = s;
    if (!label_reduction(b, &body->steps[s], first)) {
      b->first = s;
      return false;
    }
    first = false;
  }
  while (changed && !first) {
    changed = false;
    for (uint32_t s = 0; s < body->n_steps; s++)
      for (uint32_t k = 0; b->reached[s] && k < body->steps[s].n_operands; k++)
        if (!moves_positions(&body->steps[s]) && !label_operand(b, s, k, &changed)) return false;
  }
  return true;
}

/* ---- the space ---- */
static bool same_labels(labels *b, const rt_shape *shape) {
  const int8_t *first = label_of(b, &b->l->targets[0].value);
  for (uint32_t t = 1; t < b->l->n_targets; t++)
    if (memcmp(first, label_of(b, &b->l->targets[t].value), shape->rank) != 0) return false;
  return true;
}

static bool add_axis(tile_lowering *l, int64_t extent) {
  if (l->n_axes == TILE_AXES) return false;
  l->extents[l->n_axes++] = extent;
  return true;
}

/* Kept dimensions in order, then the inner ones; dimensions of size 1 are none. */
static bool make_axes(labels *b) {
  tile_lowering *l = b->l;
  tile_map *base = &l->base;
  const rt_shape *shape = rt_value_shape(l->body, &l->targets[0].value);
  const int8_t *label = label_of(b, &l->targets[0].value);
  uint32_t n_labelled = 0;
  memset(base, 0, sizeof *base);
  l->n_axes = 0;
  for (uint32_t d = 0; d < shape->rank; d++) {
    if (label[d] != NO_LABEL) n_labelled++;
    if (label[d] != NO_LABEL || shape->extents[d] == 1) continue;
    if (!add_axis(l, shape->extents[d])) return false;
    base->coef[d][l->n_axes - 1] = 1;
  }
  l->n_kept = l->n_axes;
  for (uint32_t i = 0; i < b->n_inner; i++)
    if (!add_axis(l, b->extents[i])) return false;
  for (uint32_t d = 0; d < shape->rank; d++)
    if (label[d] != NO_LABEL) base->coef[d][l->n_kept + (unsigned)(uint8_t)label[d]] = 1;
  return (n_labelled == 0 || n_labelled == b->n_inner) && same_labels(b, shape);
}

bool tile_space(tile_lowering *l) {
  labels b = {.l = l, .first = TILE_NONE};
  const rt_shape *shape = rt_value_shape(l->body, &l->targets[0].value);
  if (shape->rank > TILE_DIMS) {
    l->blocked = l->targets[0].value.index;
    return false;
  }
  b.reached = ARENA_ARRAY(l->work, l->body->n_steps + 1, bool);
  b.params = arena_array(l->work, l->body->n_params + 1, sizeof *b.params);
  b.steps = arena_array(l->work, l->body->n_steps + 1, sizeof *b.steps);
  memset(b.params, NO_LABEL, (l->body->n_params + 1) * sizeof *b.params);
  memset(b.steps, NO_LABEL, (l->body->n_steps + 1) * sizeof *b.steps);
  find_reached(&b);
  for (uint32_t s = 0; s < l->body->n_steps; s++)
    if (b.reached[s] && !tile_knows(l->body, &l->body->steps[s])) {
      l->blocked = s;
      return false;
    }
  if (label_all(&b) && make_axes(&b)) return true;
  l->blocked = b.first != TILE_NONE ? b.first : l->targets[0].value.index;
  return false;
}
