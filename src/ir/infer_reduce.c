/* Reductions, moments, softmax, norms, sums up to a position and sorting: operations over whole
 * axes. */
#include "ir/infer_internal.h"

static ir_dtype operand_dtype(const infer *c, uint32_t i) {
  return ir_tensor_at(c->f, c->op->operands[i])->dtype;
}

static ir_dtype float_of(ir_dtype t) { return ir_dtype_is_float(t) ? t : IR_F32; }

/* Sums and products of integers are wide, so that they do not wrap early. */
static ir_dtype reduced_dtype(ir_result_rule rule, ir_dtype t) {
  return rule == IR_RESULT_WIDE && !ir_dtype_is_float(t) ? IR_I64 : t;
}

static ir_axis kept_axis(infer *c) {
  return ir_axis_new(c->f, IR_AXIS_BROADCAST, ir_scalar_const(&c->f->module->scalars, 1));
}

bool infer_reduce(infer *c) {
  dims in = infer_dims(c, 0), out = {.len = 0};
  bool chosen[IR_MAX_RANK];
  if (!infer_axis_set(c, ir_op_attr(c->op, "dims"), in.len, chosen)) return false;
  bool keep = ir_op_attr(c->op, "keepdim")->i != 0;
  for (uint32_t i = 0; i < in.len; i++) {
    ir_axis a;
    if (!chosen[i]) a = infer_copy_dim(c, in.data[i]);
    else if (keep) a = kept_axis(c);
    else a = ir_axis_new(c->f, IR_AXIS_REDUCTION, infer_size(c, in.data[i]));
    out.data[out.len++] = a;
  }
  ir_result_rule rule = ir_op_info_of(c->op->code)->rule;
  ir_dtype t = operand_dtype(c, 0);
  if (rule == IR_RESULT_BITS && ir_dtype_is_float(t))
    return infer_error(c, "needs integers or bools, not %s", ir_dtype_text(t));
  if (ir_op_attr(c->op, "empty")->i != 0 && !ir_dtype_is_float(t))
    return infer_error(c, "starts from infinity where there is nothing: needs floats, not %s",
                       ir_dtype_text(t));
  return infer_done(c, reduced_dtype(rule, t), &out, &out);
}

bool infer_moment(infer *c) {
  dims in = infer_dims(c, 0), out = {.len = 0};
  bool chosen[IR_MAX_RANK];
  if (!infer_axis_set(c, ir_op_attr(c->op, "dims"), in.len, chosen)) return false;
  bool keep = ir_op_attr(c->op, "keepdim")->i != 0;
  for (uint32_t i = 0; i < in.len; i++) {
    if (!chosen[i]) out.data[out.len++] = infer_copy_dim(c, in.data[i]);
    else if (keep) out.data[out.len++] = kept_axis(c);
  }
  ir_dtype t = float_of(operand_dtype(c, 0));
  return infer_done(c, t, &out, &out) && infer_more_like(c, 1, t, &out);
}

bool infer_softmax(infer *c) {
  dims in = infer_dims(c, 0), out = {.len = 0};
  uint32_t axis = 0;
  if (in.len == 0) return infer_error(c, "needs at least one axis");
  if (!infer_axis(c, ir_op_attr(c->op, "dim")->i, in.len, &axis)) return false;
  for (uint32_t i = 0; i < in.len; i++) out.data[out.len++] = infer_copy_dim(c, in.data[i]);
  return infer_done(c, float_of(operand_dtype(c, 0)), &out, &out);
}

/* ---- along one axis, in order ---- */

/* The axis of `dim`; an operand without any is refused. */
static bool ordered_axis(infer *c, const dims *in, uint32_t *axis) {
  if (in->len == 0) return infer_error(c, "needs at least one axis");
  return infer_axis(c, ir_op_attr(c->op, "dim")->i, in->len, axis);
}

bool infer_ordered(infer *c) {
  dims in = infer_dims(c, 0), out = {.len = 0};
  uint32_t axis = 0;
  if (!ordered_axis(c, &in, &axis)) return false;
  for (uint32_t i = 0; i < in.len; i++)
    out.data[out.len++] =
        i == axis ? infer_unlike_dim(c, in.data[i]) : infer_copy_dim(c, in.data[i]);
  return infer_done(
      c, c->op->code == IR_OP_CUMSUM ? reduced_dtype(IR_RESULT_WIDE, operand_dtype(c, 0)) : IR_I64,
      &out, &out);
}

bool infer_topk(infer *c) {
  dims in = infer_dims(c, 0), out = {.len = 0};
  uint32_t axis = 0;
  ir_scalar k = ir_op_attr(c->op, "k")->scalar;
  if (!ordered_axis(c, &in, &axis) || !infer_not_negative(c, k)) return false;
  if (!infer_at_most(c, k, infer_size(c, in.data[axis]), "k")) return false;
  for (uint32_t i = 0; i < in.len; i++) {
    out.data[out.len++] = i == axis ? infer_new_dim(c, k) : infer_copy_dim(c, in.data[i]);
  }
  ir_dtype t = c->op->code == IR_OP_TOPK ? operand_dtype(c, 0) : IR_I64;
  return infer_done(c, t, &out, &out) && infer_more_like(c, 1, IR_I64, &out);
}

static bool is_given(const infer *c, uint32_t i) {
  return i < c->op->n_operands && c->op->operands[i].id != 0;
}

static bool norm_vector(infer *c, uint32_t i, ir_axis last) {
  if (!is_given(c, i)) return true;
  dims v = infer_dims(c, i);
  const char *what = i == 1 ? "weight" : "bias";
  const char *sizes = i == 1 ? "the axis and the weight" : "the axis and the bias";
  if (v.len != 1) return infer_error(c, "the %s must have one axis, not %u", what, v.len);
  return infer_same_size(c, infer_size(c, last), infer_size(c, v.data[0]), sizes);
}

bool infer_norm(infer *c) {
  dims in = infer_dims(c, 0), out = {.len = 0};
  if (in.len == 0) return infer_error(c, "needs at least one axis");
  for (uint32_t i = 1; i <= 2; i++) {
    if (!norm_vector(c, i, in.data[in.len - 1])) return false;
  }
  bool weighted = is_given(c, 1) || is_given(c, 2);
  for (uint32_t i = 0; i < in.len; i++) {
    bool differs = weighted && i + 1 == in.len;
    out.data[out.len++] = differs ? infer_unlike_dim(c, in.data[i]) : infer_copy_dim(c, in.data[i]);
  }
  ir_dtype t = ir_infer_promote(c->f, c->op->operands, c->op->n_operands);
  return infer_done(c, float_of(t), &out, &out);
}
