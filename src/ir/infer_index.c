/* cat, select, gather, scatter, update, index_select, one_hot, group_index and the makers. */
#include "ir/infer_internal.h"

static ir_dtype operand_dtype(const infer *c, uint32_t i) {
  return ir_tensor_at(c->f, c->op->operands[i])->dtype;
}

bool infer_is_index(infer *c, uint32_t i) {
  ir_dtype t = operand_dtype(c, i);
  if (ir_dtype_kind_of(t) == IR_KIND_INT) return true;
  const char *what = c->op->code == IR_OP_GROUP_INDEX ? "lengths" : "the index";
  return infer_error(c, "%s must be of an integer dtype, not %s", what, ir_dtype_text(t));
}

static bool cat_meets(infer *c, dims *first, uint32_t operand, uint32_t axis, ir_scalar *sum) {
  dims d = infer_dims(c, operand);
  if (d.len != first->len) {
    return infer_error(c, "operands must have one rank, not %u and %u", first->len, d.len);
  }
  for (uint32_t i = 0; i < d.len; i++) {
    ir_scalar want = infer_size(c, first->data[i]), have = infer_size(c, d.data[i]);
    if (i != axis && !infer_same_size(c, want, have, "extents")) return false;
    first->data[i] = infer_varying(c, first->data[i], d.data[i]);
  }
  if (operand) *sum = ir_scalar_add(&c->f->module->scalars, *sum, infer_size(c, d.data[axis]));
  return true;
}

bool infer_cat(infer *c) {
  dims first = infer_dims(c, 0), out = {.len = 0};
  uint32_t axis = 0;
  if (first.len == 0) return infer_error(c, "needs operands with at least one axis");
  if (!infer_axis(c, ir_op_attr(c->op, "dim")->i, first.len, &axis)) return false;
  ir_scalar sum = infer_size(c, first.data[axis]);
  for (uint32_t i = 0; i < c->op->n_operands; i++) {
    if (!cat_meets(c, &first, i, axis, &sum)) return false;
  }
  for (uint32_t i = 0; i < first.len; i++) {
    out.data[out.len++] = i == axis ? infer_new_dim(c, sum) : infer_copy_dim(c, first.data[i]);
  }
  ir_dtype t = ir_infer_promote(c->f, c->op->operands, c->op->n_operands);
  return infer_done(c, t, &out, &out);
}

/* A constant index may count from the end; other indexes are checked when extents are bound. */
bool infer_select(infer *c) {
  ir_scalars *s = &c->f->module->scalars;
  dims in = infer_dims(c, 0), out = {.len = 0};
  uint32_t axis = 0;
  int64_t value;
  if (!infer_axis(c, ir_op_attr(c->op, "dim")->i, in.len, &axis)) return false;
  ir_scalar index = ir_op_attr(c->op, "index")->scalar, size = infer_size(c, in.data[axis]);
  if (ir_scalar_is_overflow(index))
    return infer_error(c, "the index %s", ir_scalar_overflow_text(&c->f->module->scalars));
  if (ir_scalar_is_const(s, index, &value) && value < 0) index = ir_scalar_add(s, size, index);
  ir_scalar zero = ir_scalar_const(s, 0), next = ir_scalar_add(s, index, ir_scalar_const(s, 1));
  bool outside = ir_scalar_lt(s, index, zero) == IR_TRUE || ir_scalar_le(s, size, index) == IR_TRUE;
  if (outside) {
    return infer_error(c, "index %s is out of range for an axis of %s",
                       ir_scalar_text(c->f, ir_op_attr(c->op, "index")->scalar),
                       ir_scalar_text(c->f, size));
  }
  if (!infer_at_most(c, zero, index, "the index") ||
      !infer_at_most(c, next, size, "the index + 1")) {
    return false;
  }
  for (uint32_t i = 0; i < in.len; i++) {
    if (i != axis) out.data[out.len++] = infer_copy_dim(c, in.data[i]);
  }
  return infer_done(c, operand_dtype(c, 0), &out, &out);
}

/* ---- indexed ---- */

static ir_axis indexed_dim(infer *c, ir_axis from) {
  ir_axis a = infer_copy_dim(c, from);
  ir_axis_data *d = ir_axis_at(c->f, a);
  if (d->kind == IR_AXIS_ITERATION) d->kind = IR_AXIS_GATHER;
  return a;
}

static bool same_rank(infer *c, const dims *x, const dims *index) {
  if (x->len == index->len && x->len > 0) return true;
  return infer_error(c, "x and index must have one rank of at least 1, not %u and %u", x->len,
                     index->len);
}

static bool index_within(infer *c, const dims *index, const dims *of, uint32_t but,
                         const char *what) {
  for (uint32_t i = 0; i < index->len; i++) {
    ir_scalar a = infer_size(c, index->data[i]), b = infer_size(c, of->data[i]);
    if (i != but && !infer_at_most(c, a, b, what)) return false;
  }
  return true;
}

/* A dimension with the size of the index. It is a broadcast axis only if x has the same value all along it too. */
static ir_axis looked_up_dim(infer *c, ir_axis index, ir_axis x) {
  bool varies = IR_SAME(infer_varying(c, index, x), x);
  return varies ? infer_new_dim(c, infer_size(c, index)) : infer_copy_dim(c, index);
}

bool infer_gather(infer *c) {
  dims x = infer_dims(c, 0), index = infer_dims(c, 1), out = {.len = 0};
  uint32_t axis = 0;
  if (!infer_is_index(c, 1) || !same_rank(c, &x, &index)) return false;
  if (!infer_axis(c, ir_op_attr(c->op, "dim")->i, x.len, &axis)) return false;
  if (!index_within(c, &index, &x, axis, "extent of index over x")) return false;
  for (uint32_t i = 0; i < index.len; i++)
    out.data[out.len++] =
        i == axis ? indexed_dim(c, index.data[i]) : looked_up_dim(c, index.data[i], x.data[i]);
  return infer_done(c, operand_dtype(c, 0), &out, &out);
}

static bool same_dtype(infer *c, uint32_t x, uint32_t src) {
  if (operand_dtype(c, x) == operand_dtype(c, src)) return true;
  return infer_error(c, "x and src must have one dtype, not %s and %s; cast one",
                     ir_dtype_text(operand_dtype(c, x)), ir_dtype_text(operand_dtype(c, src)));
}

/* A dimension with the size of x. It is no broadcast axis along `dim`, nor where index or src differ from position
 * to position. */
static ir_axis scattered_dim(infer *c, ir_axis x, ir_axis index, ir_axis src, bool is_dim) {
  bool same =
      !is_dim && IR_SAME(infer_varying(c, x, index), x) && IR_SAME(infer_varying(c, x, src), x);
  bool one = ir_axis_at(c->f, x)->kind == IR_AXIS_BROADCAST && !ir_axis_at(c->f, x)->expanded.id;
  if (same || one) return infer_copy_dim(c, x);
  ir_axis a = infer_new_dim(c, infer_size(c, x));
  return is_dim ? indexed_dim(c, a) : a;
}

bool infer_scatter(infer *c) {
  dims x = infer_dims(c, 0), index = infer_dims(c, 1), src = infer_dims(c, 2), out = {.len = 0};
  uint32_t axis = 0;
  if (!infer_is_index(c, 1) || !same_rank(c, &x, &index) || !same_rank(c, &src, &index))
    return false;
  if (!same_dtype(c, 0, 2)) return false;
  if (!infer_axis(c, ir_op_attr(c->op, "dim")->i, x.len, &axis)) return false;
  if (!index_within(c, &index, &x, axis, "extent of index over x")) return false;
  if (!index_within(c, &index, &src, IR_MAX_RANK, "extent of index over src")) return false;
  for (uint32_t i = 0; i < x.len; i++)
    out.data[out.len++] = scattered_dim(c, x.data[i], index.data[i], src.data[i], i == axis);
  return infer_done(c, operand_dtype(c, 0), &out, &out);
}

/* The position is known at run time, and whether src fits there is checked then. */
static bool is_position(infer *c, uint32_t i) {
  dims at = infer_dims(c, i);
  if (!infer_is_index(c, i)) return false;
  bool is_tensor = ir_tensor_at(c->f, c->op->operands[i])->kind != IR_TENSOR_CONST;
  if (is_tensor && at.len == 0) return true;
  return infer_error(c, "the position must be a tensor without axes");
}

bool infer_update(infer *c) {
  dims x = infer_dims(c, 0), src = infer_dims(c, 1), out = {.len = 0};
  uint32_t axis = 0;
  if (!is_position(c, 2) || !same_dtype(c, 0, 1)) return false;
  if (x.len != src.len || x.len == 0)
    return infer_error(c, "x and src must have one rank of at least 1, not %u and %u", x.len,
                       src.len);
  if (!infer_axis(c, ir_op_attr(c->op, "dim")->i, x.len, &axis)) return false;
  for (uint32_t i = 0; i < x.len; i++) {
    ir_scalar all = infer_size(c, x.data[i]), part = infer_size(c, src.data[i]);
    bool fits = i == axis ? infer_at_most(c, part, all, "extent of src over x")
                          : infer_same_size(c, all, part, "extents");
    if (!fits) return false;
    out.data[out.len++] = infer_new_dim(c, all);
  }
  return infer_done(c, operand_dtype(c, 0), &out, &out);
}

bool infer_index_select(infer *c) {
  dims x = infer_dims(c, 0), index = infer_dims(c, 1), out = {.len = 0};
  uint32_t axis = 0;
  if (!infer_is_index(c, 1)) return false;
  if (index.len != 1)
    return infer_error(c, "the index must have one axis, not %u: reshape(index, [-1]) has one",
                       index.len);
  if (!infer_axis(c, ir_op_attr(c->op, "dim")->i, x.len, &axis)) return false;
  for (uint32_t i = 0; i < x.len; i++) {
    ir_axis a = i == axis ? indexed_dim(c, index.data[0]) : infer_copy_dim(c, x.data[i]);
    out.data[out.len++] = a;
  }
  return infer_done(c, operand_dtype(c, 0), &out, &out);
}

bool infer_one_hot(infer *c) {
  dims index = infer_dims(c, 0), out = {.len = 0};
  ir_scalar n = ir_op_attr(c->op, "n")->scalar;
  if (!infer_is_index(c, 0) || !infer_not_negative(c, n)) return false;
  for (uint32_t i = 0; i < index.len; i++) {
    out.data[out.len++] = infer_copy_dim(c, index.data[i]);
  }
  if (!infer_push(c, &out, infer_new_dim(c, n))) return false;
  return infer_done(c, (ir_dtype)ir_op_attr(c->op, "dtype")->i, &out, &out);
}

/* lengths[*, g] -> [*, n]. Whether the lengths fit in n is checked at run time. */
bool infer_group_index(infer *c) {
  dims lengths = infer_dims(c, 0), out = {.len = 0};
  ir_scalar n = ir_op_attr(c->op, "n")->scalar;
  if (!infer_is_index(c, 0) || !infer_not_negative(c, n)) return false;
  if (lengths.len == 0) return infer_error(c, "lengths need at least one axis");
  for (uint32_t i = 0; i + 1 < lengths.len; i++)
    out.data[out.len++] = infer_copy_dim(c, lengths.data[i]);
  return infer_push(c, &out, infer_new_dim(c, n)) && infer_done(c, IR_I64, &out, &out);
}

/* ---- makers ---- */

static bool maker_dim(infer *c, ir_scalar size, dims *out) {
  return infer_not_negative(c, size) && infer_push(c, out, infer_new_dim(c, size));
}

bool infer_maker(infer *c) {
  dims out = {.len = 0};
  ir_dtype t = (ir_dtype)ir_op_attr(c->op, "dtype")->i;
  if (c->op->code == IR_OP_IOTA) {
    if (!maker_dim(c, ir_op_attr(c->op, "n")->scalar, &out)) return false;
    return infer_done(c, t, &out, &out);
  }
  const ir_attr *shape = ir_op_attr(c->op, "shape");
  for (uint32_t i = 0; i < shape->len; i++) {
    if (!maker_dim(c, shape->scalars[i], &out)) return false;
  }
  return infer_done(c, t, &out, &out);
}
