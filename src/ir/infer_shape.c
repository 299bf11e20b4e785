/* Operations that move, insert, drop, cut or stretch axes without computing. */
#include "ir/infer_internal.h"

static ir_dtype operand_dtype(const infer *c) {
  return ir_tensor_at(c->f, c->op->operands[0])->dtype;
}

static ir_scalar constant(infer *c, int64_t v) { return ir_scalar_const(infer_scalars(c), v); }

bool infer_insert(infer *c) {
  dims in = infer_dims(c, 0), out = {.len = 0};
  const ir_attr *flags = ir_op_attr(c->op, "axes");
  uint32_t taken = 0, kept = 0;
  for (uint32_t i = 0; i < flags->len; i++) kept += flags->ints[i] == 0;
  if (kept != in.len) {
    return infer_error(c, "has %u 'false' entries for a tensor of rank %u; they must be as many",
                       kept, in.len);
  }
  for (uint32_t i = 0; i < flags->len; i++) {
    ir_axis a = flags->ints[i] ? ir_axis_new(c->f, IR_AXIS_BROADCAST, constant(c, 1))
                               : infer_copy_dim(c, in.data[taken++]);
    if (!infer_push(c, &out, a)) return false;
  }
  return infer_done(c, operand_dtype(c), &out, &out);
}

bool infer_squeeze(infer *c) {
  dims in = infer_dims(c, 0), out = {.len = 0};
  bool chosen[IR_MAX_RANK];
  if (!infer_axis_set(c, ir_op_attr(c->op, "dims"), in.len, chosen)) return false;
  for (uint32_t i = 0; i < in.len; i++) {
    ir_scalar size = infer_size(c, in.data[i]), one = constant(c, 1);
    if (!chosen[i]) {
      out.data[out.len++] = infer_copy_dim(c, in.data[i]);
    } else if (ir_func_equal(c->f, size, one) == IR_FALSE) {
      return infer_error(c, "axis %u has %s positions; only an axis of 1 can be squeezed", i,
                         ir_scalar_text(c->f, size));
    } else if (!infer_same_size(c, size, one, "a squeezed extent")) {
      return false;
    }
  }
  return infer_done(c, operand_dtype(c), &out, &out);
}

static bool expand_dim(infer *c, ir_axis from, ir_scalar size, ir_axis *result) {
  int64_t value;
  bool keep = ir_scalar_is_const(infer_scalars(c), size, &value) && value == -1;
  if (keep || !infer_is_one(c, from)) {
    *result = infer_copy_dim(c, from);
    return keep || infer_same_size(c, infer_size(c, from), size, "extents");
  }
  *result = ir_axis_new(c->f, IR_AXIS_BROADCAST, constant(c, 1));
  if (!(ir_scalar_is_const(infer_scalars(c), size, &value) && value == 1)) {
    ir_axis_at(c->f, *result)->expanded = size;
  }
  return infer_not_negative(c, size);
}

/* New axes may be added in front, as NumPy's broadcast_to does. */
bool infer_expand(infer *c) {
  dims in = infer_dims(c, 0), out = {.len = 0};
  const ir_attr *shape = ir_op_attr(c->op, "shape");
  if (shape->len < in.len) {
    return infer_error(c, "cannot expand a tensor of rank %u to %u extents", in.len, shape->len);
  }
  uint32_t fresh = shape->len - in.len;
  for (uint32_t i = 0; i < shape->len; i++) {
    ir_axis one = ir_axis_new(c->f, IR_AXIS_BROADCAST, constant(c, 1)), a;
    if (!expand_dim(c, i < fresh ? one : in.data[i - fresh], shape->scalars[i], &a)) return false;
    if (!infer_push(c, &out, a)) return false;
  }
  return infer_done(c, operand_dtype(c), &out, &out);
}

bool infer_permute(infer *c) {
  dims in = infer_dims(c, 0), root = {.len = in.len}, out = {.len = 0};
  for (uint32_t i = 0; i < in.len; i++) root.data[i] = infer_copy_dim(c, in.data[i]);
  if (c->op->code == IR_OP_TRANSPOSE) {
    if (in.len < 2) return infer_error(c, "needs at least two axes");
    out = root;
    out.data[in.len - 2] = root.data[in.len - 1];
    out.data[in.len - 1] = root.data[in.len - 2];
    return infer_done(c, operand_dtype(c), &root, &out);
  }
  const ir_attr *order = ir_op_attr(c->op, "order");
  bool used[IR_MAX_RANK] = {false};
  if (order->len != in.len) {
    return infer_error(c, "the order has %u entries for a tensor of rank %u", order->len, in.len);
  }
  for (uint32_t i = 0; i < order->len; i++) {
    uint32_t axis = 0;
    if (!infer_axis(c, order->ints[i], in.len, &axis)) return false;
    if (used[axis]) return infer_error(c, "axis %lld is listed twice", (long long)order->ints[i]);
    used[axis] = true;
    out.data[out.len++] = root.data[axis];
  }
  return infer_done(c, operand_dtype(c), &root, &out);
}

/* ---- slice and pad: resized axes ---- */

static ir_axis resize(infer *c, ir_axis from, ir_scalar start, int64_t step, ir_scalar size) {
  ir_axis to = infer_new_dim(c, size);
  ir_transform_data t = {.kind = IR_RESIZE, .in = {from}, .out = {to}};
  t.start = start;
  t.step = constant(c, step);
  (void)ir_transform_new(c->f, &t);
  return to;
}

/* NumPy's reading of a bound: negative constants count from the end. */
static ir_scalar slice_bound(infer *c, ir_scalar bound, ir_scalar size) {
  ir_scalars *s = infer_scalars(c);
  int64_t value;
  bool from_end = ir_scalar_is_const(s, bound, &value) && value < 0;
  return from_end ? ir_scalar_add(s, size, bound) : bound;
}

/* How many of `span` positions from `low` on are taken. To the end of a size that the step divides, a start
 * below the step takes as many as a start at 0, which is the simpler expression. */
static ir_scalar slice_count(infer *c, ir_scalar size, ir_scalar low, ir_scalar span,
                             int64_t step) {
  ir_scalars *s = infer_scalars(c);
  ir_scalar every = constant(c, step);
  int64_t start;
  bool among_first = step > 1 && ir_scalar_is_const(s, low, &start) && start > 0 && start < step;
  bool to_end =
      among_first && IR_SAME(span, ir_scalar_max(s, ir_scalar_sub(s, size, low), constant(c, 0)));
  if (to_end && ir_func_divides(c->f, every, size) == IR_TRUE) span = size;
  return ir_scalar_ceildiv(s, span, every);
}

static bool slice_dim(infer *c, uint32_t i, ir_axis from, ir_axis *result) {
  ir_scalars *s = infer_scalars(c);
  const ir_attr *steps = ir_op_attr(c->op, "steps");
  int64_t step = steps->given ? steps->ints[i] : 1;
  if (step < 1) return infer_error(c, "steps must be 1 or larger, not %lld", (long long)step);
  ir_scalar size = infer_size(c, from);
  ir_scalar first = slice_bound(c, ir_op_attr(c->op, "starts")->scalars[i], size);
  ir_scalar last = slice_bound(c, ir_op_attr(c->op, "stops")->scalars[i], size);
  /* Both are clamped to 0 … size. For the length it is enough to clamp each on one side: where the other
   * one matters, the slice is empty. */
  ir_scalar low = ir_scalar_max(s, first, constant(c, 0)), start = ir_scalar_min(s, low, size);
  ir_scalar stop = ir_scalar_min(s, last, size);
  ir_scalar span = ir_scalar_max(s, ir_scalar_sub(s, stop, low), constant(c, 0));
  ir_scalar extent = slice_count(c, size, low, span, step);
  if (ir_scalar_is_overflow(extent))
    return infer_error(c, "a bound %s", ir_scalar_overflow_text(s));
  bool whole = step == 1 && ir_scalar_eq(s, extent, size) == IR_TRUE;
  *result = whole ? from : resize(c, from, start, step, extent);
  return true;
}

bool infer_slice(infer *c) {
  dims in = infer_dims(c, 0), root = {.len = in.len}, out = {.len = in.len};
  const ir_attr *lists[] = {ir_op_attr(c->op, "starts"), ir_op_attr(c->op, "stops"),
                            ir_op_attr(c->op, "steps")};
  for (int k = 0; k < 3; k++) {
    if ((k == 2 && !lists[k]->given) || lists[k]->len == in.len) continue;
    return infer_error(c, "needs one start, stop and step per axis: %u, not %u", in.len,
                       lists[k]->len);
  }
  for (uint32_t i = 0; i < in.len; i++) {
    root.data[i] = infer_copy_dim(c, in.data[i]);
    if (!slice_dim(c, i, root.data[i], &out.data[i])) return false;
  }
  return infer_done(c, operand_dtype(c), &root, &out);
}

static bool pad_value_fits(infer *c) {
  ir_number n = ir_op_attr(c->op, "value")->number;
  ir_dtype t = operand_dtype(c);
  if (ir_dtype_is_float(t)) return true;
  int64_t kept;
  ir_element_set_i64(t, &kept, n.i);
  bool fits = !n.is_float && ir_element_as_i64(t, &kept) == n.i;
  return fits || infer_error(c, "the value does not fit %s", ir_dtype_text(t));
}

bool infer_pad(infer *c) {
  ir_scalars *s = infer_scalars(c);
  dims in = infer_dims(c, 0), root = {.len = in.len}, out = {.len = in.len};
  const ir_attr *widths = ir_op_attr(c->op, "widths");
  if (widths->len != 2 * in.len) {
    return infer_error(c, "needs two widths per axis: %u, not %u", 2 * in.len, widths->len);
  }
  if (!pad_value_fits(c)) return false;
  for (uint32_t i = 0; i < in.len; i++) {
    root.data[i] = out.data[i] = infer_copy_dim(c, in.data[i]);
    ir_scalar before = widths->scalars[2 * i], after = widths->scalars[2 * i + 1];
    ir_scalar size = ir_scalar_add(s, ir_scalar_add(s, infer_size(c, in.data[i]), before), after);
    int64_t none_before = 1, none_after = 1;
    (void)ir_scalar_is_const(s, before, &none_before);
    (void)ir_scalar_is_const(s, after, &none_after);
    if (none_before == 0 && none_after == 0) continue;
    if (!infer_not_negative(c, size)) return false;
    ir_scalar start = ir_scalar_sub(s, constant(c, 0), before);
    out.data[i] = resize(c, root.data[i], start, 1, size);
  }
  return infer_done(c, operand_dtype(c), &root, &out);
}
