/* Cuts that cross a reshape: which part of an axis on one side is an axis on the other.
 *
 * The dimensions of a group that a reshape merges or splits count the same elements. An axis counts `size` steps
 * of `step` elements; it is a part of another one if that has its steps, whole:
 *
 *     x[b, 16, e] -> rows[b * 16, e]      16 of x: 16 steps of 1;  b of x: b steps of 16
 *                                         rows: 16 b steps of 1 = b times (16 steps of 1), or b steps of (16 steps of 1)
 *
 * Splitting rows by 16 gives both as axes, whatever b is, and the cuts of x are repeated on them. */
#include "ir/build.h"
#include "shard/internal.h"

enum { NO_GROUP = UINT32_MAX, MAX_DEPTH = 32 };

/* One side of the reshape. */
typedef struct side {
  ir_tensor t;
  ir_axis dims[IR_MAX_RANK];
  uint32_t group[IR_MAX_RANK]; /* dimensions of both sides that become each other have the same */
  ir_scalar step[IR_MAX_RANK];
  uint32_t rank;
} side;

/* What an axis counts in the elements of its group. */
typedef struct counts {
  uint32_t group;
  ir_scalar size, step;
} counts;

/* ---- groups ---- */
static void set_group(const ir_func *f, ir_axes root, ir_axis a, uint32_t group, uint32_t *groups) {
  for (uint32_t i = 0; i < root.len; i++) {
    if (IR_SAME(root.data[i], a)) groups[i] = group;
  }
  ir_transform def = ir_axis_at(f, a)->def;
  if (def.id == 0) return;
  const ir_transform_data *t = ir_transform_at(f, def);
  set_group(f, root, t->in[0], group, groups);
  if (t->in[1].id) set_group(f, root, t->in[1], group, groups);
}

static ir_axis first_of(const ir_func *f, ir_axis a) {
  while (ir_axis_at(f, a)->def.id) a = ir_transform_at(f, ir_axis_at(f, a)->def)->in[0];
  return a;
}

static void count_steps(ir_func *f, side *s) {
  ir_scalars *x = &f->module->scalars;
  for (uint32_t i = 0; i < s->rank; i++) {
    s->step[i] = ir_scalar_const(x, 1);
    for (uint32_t j = i + 1; j < s->rank; j++) {
      if (s->group[j] == s->group[i])
        s->step[i] = ir_scalar_mul(x, s->step[i], ir_axis_size(f, s->dims[j]));
    }
  }
}

/* By root axis of the result: the group that it becomes a part of. */
static void group_result(ir_func *f, side *result, uint32_t *roots) {
  const ir_domains *now = &ir_tensor_at(f, result->t)->now;
  for (uint32_t i = 0; i < now->root.len; i++) roots[i] = NO_GROUP;
  for (uint32_t i = 0; i < result->rank; i++) {
    result->group[i] = first_of(f, result->dims[i]).id;
    set_group(f, now->root, result->dims[i], result->group[i], roots);
  }
}

static uint32_t group_of_operand(ir_axes root, const uint32_t *roots, ir_axis dim,
                                 const ir_pair *pairs, uint32_t n) {
  for (uint32_t j = 0; j < n; j++) {
    for (uint32_t r = 0; r < root.len; r++) {
      bool same = IR_SAME(pairs[j].producer, dim) && IR_SAME(pairs[j].consumer, root.data[r]);
      if (same) return roots[r];
    }
  }
  return NO_GROUP;
}

static uint32_t group_size(const side *s, uint32_t group) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < s->rank; i++) n += s->group[i] == group;
  return n;
}

static void open_sides(ir_func *f, const ir_op_data *op, side *operand, side *result) {
  uint32_t roots[IR_MAX_RANK] = {0};
  ir_pair pairs[IR_MAX_RANK];
  ir_axes root = ir_tensor_at(f, op->result)->now.root;
  *operand = (side){.t = op->operands[0]}, *result = (side){.t = op->result};
  operand->rank = ir_axes_dims(f, ir_tensor_at(f, operand->t)->now.logical, operand->dims);
  result->rank = ir_axes_dims(f, ir_tensor_at(f, result->t)->now.logical, result->dims);
  group_result(f, result, roots);
  uint32_t n = ir_map_pairs(f, op, 0, pairs);
  for (uint32_t i = 0; i < operand->rank; i++)
    operand->group[i] = group_of_operand(root, roots, operand->dims[i], pairs, n);
  count_steps(f, operand);
  count_steps(f, result);
  for (uint32_t i = 0; i < operand->rank; i++) { /* dimensions that stay */
    uint32_t g = operand->group[i];
    if (group_size(operand, g) == 1 && group_size(result, g) == 1) operand->group[i] = NO_GROUP;
  }
}

/* ---- what axes count ---- */
static bool is_exact(ir_func *f, const ir_transform_data *t) {
  ir_scalar all =
      ir_scalar_mul(&f->module->scalars, ir_axis_size(f, t->out[0]), ir_axis_size(f, t->out[1]));
  return ir_func_equal(f, all, ir_axis_size(f, t->in[0])) == IR_TRUE;
}

/* False: not the same steps everywhere. */
static bool count(ir_func *f, const side *s, ir_axis a, counts *result) {
  for (uint32_t i = 0; i < s->rank; i++) {
    if (!IR_SAME(s->dims[i], a)) continue;
    *result = (counts){s->group[i], ir_axis_size(f, a), s->step[i]};
    return s->group[i] != NO_GROUP && ir_axis_at(f, a)->kind != IR_AXIS_BROADCAST;
  }
  ir_transform def = ir_axis_at(f, a)->def;
  if (def.id == 0) return false;
  const ir_transform_data *t = ir_transform_at(f, def);
  bool split = t->kind == IR_SPLIT || t->kind == IR_OUTER_SPLIT;
  if (!split || !is_exact(f, t) || !count(f, s, t->in[0], result)) return false;
  result->size = ir_axis_size(f, a);
  if (IR_SAME(a, t->out[0]))
    result->step = ir_scalar_mul(&f->module->scalars, result->step, ir_axis_size(f, t->out[1]));
  return true;
}

/* x / by, if that is exact. */
static bool divide(ir_func *f, ir_scalar x, ir_scalar by, ir_scalar *result) {
  ir_scalars *s = &f->module->scalars;
  *result = ir_scalar_floordiv(s, x, by);
  if (ir_scalar_is_overflow(*result)) return false;
  return ir_func_equal(f, ir_scalar_mul(s, *result, by), x) == IR_TRUE;
}

static bool is_part(ir_func *f, const counts *a, const counts *of, schedule_part *part) {
  ir_scalar again;
  if (a->group != of->group || !divide(f, a->step, of->step, &part->step)) return false;
  ir_scalar whole = ir_scalar_mul(&f->module->scalars, a->size, part->step);
  part->size = a->size;
  return divide(f, of->size, whole, &again);
}

/* The loop axis of `to` that `a`, an axis of the other side, is a part of. */
static bool find_part(ir_func *f, const counts *a, const side *to, schedule_part *part) {
  ir_axes loop = ir_tensor_at(f, to->t)->now.loop;
  for (uint32_t i = 0; i < loop.len; i++) {
    counts of;
    part->to = loop.data[i];
    if (ir_axis_at(f, part->to)->mark.kind != IR_MARK_NONE || !count(f, to, part->to, &of))
      continue;
    if (is_part(f, a, &of, part)) return true;
  }
  return false;
}

/* From the axis that is cut along a mesh axis up to its dimension, and further. */
typedef struct way {
  ir_axis axes[MAX_DEPTH];
  uint32_t len; /* 0: not cut, or in a way that is not repeated */
} way;

static way way_of(ir_func *f, const side *s, uint32_t k) {
  ir_axes loop = ir_tensor_at(f, s->t)->now.loop;
  way w = {.len = 0};
  for (uint32_t i = 0; i < loop.len && w.len == 0; i++) {
    const ir_axis_data *a = ir_axis_at(f, loop.data[i]);
    bool cut = a->mark.kind == IR_MARK_MESH && a->mark.mesh_axis == k;
    if (cut && a->kind != IR_AXIS_REDUCTION && a->kind != IR_AXIS_BROADCAST)
      w.axes[w.len++] = loop.data[i];
  }
  while (w.len && w.len < MAX_DEPTH && ir_axis_at(f, w.axes[w.len - 1])->def.id) {
    w.axes[w.len] = ir_transform_at(f, ir_axis_at(f, w.axes[w.len - 1])->def)->in[0];
    w.len++;
  }
  return w;
}

/* Is the axis at the end of the way, from axes[n] down, cut out by splits only? Where pieces come again and again, it
 * must not lie inside of some that differ in length: nothing but a list says where those are. */
static bool is_repeatable(ir_func *f, const way *w, uint32_t n, bool again) {
  for (uint32_t i = 0; i < n; i++) {
    const ir_transform_data *t = ir_transform_at(f, ir_axis_at(f, w->axes[i])->def);
    if (t->kind != IR_SPLIT && t->kind != IR_OUTER_SPLIT) return false;
    if (again && IR_SAME(t->out[1], w->axes[i]) && !is_exact(f, t)) return false;
  }
  return true;
}

/* Are there elements of the group outside of one round of the axis? */
static bool comes_again(ir_func *f, const side *s, const counts *a) {
  ir_scalar all = ir_scalar_const(&f->module->scalars, 1);
  for (uint32_t i = 0; i < s->rank; i++) {
    if (s->group[i] == a->group)
      all = ir_scalar_mul(&f->module->scalars, all, ir_axis_size(f, s->dims[i]));
  }
  ir_scalar round = ir_scalar_mul(&f->module->scalars, a->size, a->step);
  return ir_func_equal(f, round, all) != IR_TRUE;
}

/* What is cut, or what that is a part of: the outermost that the other side has as a part. `again`: there are
 * elements outside of one round of it. */
static bool find_cut(ir_func *f, const side *from, const side *to, const way *w,
                     schedule_part *part, bool *again) {
  for (uint32_t n = w->len; n-- > 0;) {
    counts a;
    part->from = w->axes[n];
    if (!count(f, from, w->axes[n], &a)) continue;
    *again = comes_again(f, from, &a);
    if (is_repeatable(f, w, n, *again) && find_part(f, &a, to, part)) return true;
  }
  return false;
}

/* The mesh axes of `among` that cut parts of `a`. */
static uint32_t cuts_of(ir_func *f, const side *s, ir_axis a, uint32_t among, bool again) {
  uint32_t mask = 0;
  for (uint32_t k = 0; k < IR_MESH_MAX_RANK; k++) {
    way w = way_of(f, s, k);
    for (uint32_t n = 0; n < w.len && (among >> k & 1); n++) {
      if (IR_SAME(w.axes[n], a) && is_repeatable(f, &w, n, again)) mask |= 1u << k;
    }
  }
  return mask;
}

uint32_t shard_cross_reshape(ir_func *f, const ir_op_data *op, bool forward, uint32_t mesh_axes,
                             const ir_why *why) {
  side operand, result;
  uint32_t n = 0;
  open_sides(f, op, &operand, &result);
  const side *from = forward ? &operand : &result, *to = forward ? &result : &operand;
  for (uint32_t k = 0; k < IR_MESH_MAX_RANK; k++) {
    schedule_part part;
    bool again;
    way w = way_of(f, from, k);
    if (!(mesh_axes >> k & 1) || !find_cut(f, from, to, &w, &part, &again)) continue;
    schedule_marks together = {.mesh_axes = cuts_of(f, from, part.from, mesh_axes, again)};
    n += schedule_replay_part(f, from->t, to->t, &part, together, why);
    mesh_axes &= ~together.mesh_axes;
  }
  return n;
}
