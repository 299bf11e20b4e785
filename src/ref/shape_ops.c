/* Operations that move elements: copies and shape operations. */
#include "ref/internal.h"

/* Writes the result from a view that has its extents. */
static status copy_view(const ref_call *c, const ir_array *view) {
  ir_array_copy(&c->result, view);
  return STATUS_OK;
}

/* Moves the start of a view; an empty one has no element to start at. */
static void advance(ir_array *view, int64_t elements) {
  if (ref_count(view) > 0)
    view->data = (char *)view->data + elements * (int64_t)ir_dtype_size_bytes(view->dtype);
}

static ir_array empty_view(const ir_array *x) {
  return (ir_array){.dtype = x->dtype, .data = x->data};
}

static void keep_axis(ir_array *view, const ir_array *x, uint32_t axis) {
  view->extents[view->rank] = x->extents[axis];
  view->strides[view->rank++] = x->strides[axis];
}

status ref_copy(const ref_call *c) { return copy_view(c, ref_operand(c, 0)); }

status ref_broadcast(const ref_call *c) {
  const ir_array *x = ref_operand(c, 0);
  const ir_attr *axes = ir_op_attr(c->op, "axes");
  ir_array view = empty_view(x);
  for (uint32_t i = 0, from = 0; i < axes->len; i++) {
    if (!axes->ints[i]) keep_axis(&view, x, from++);
    else view.extents[view.rank++] = 1;
  }
  return copy_view(c, &view);
}

status ref_squeeze(const ref_call *c) {
  const ir_array *x = ref_operand(c, 0);
  ir_array view = empty_view(x);
  bool dropped[IR_MAX_RANK];
  ref_attr_dims(c, "dims", x->rank, dropped);
  for (uint32_t i = 0; i < x->rank; i++)
    if (!dropped[i]) keep_axis(&view, x, i);
  return copy_view(c, &view);
}

status ref_expand(const ref_call *c) {
  ir_array view = ref_broadcast_to(ref_operand(c, 0), c->result.rank, c->result.extents);
  return copy_view(c, &view);
}

/* Source of dimension i of permute or transpose. */
static uint32_t permuted(const ref_call *c, uint32_t i, uint32_t rank) {
  if (c->op->code == IR_OP_TRANSPOSE) return i + 2 < rank ? i : 2 * rank - 3 - i;
  int64_t from = ir_op_attr(c->op, "order")->ints[i];
  return (uint32_t)(from < 0 ? from + rank : from);
}

status ref_permute(const ref_call *c) {
  const ir_array *x = ref_operand(c, 0);
  ir_array view = empty_view(x);
  for (uint32_t i = 0; i < x->rank; i++) keep_axis(&view, x, permuted(c, i, x->rank));
  return copy_view(c, &view);
}

/* Both sides in row-major order, so the result's memory is a dense copy of the operand. */
status ref_reshape(const ref_call *c) {
  const ir_array *x = ref_operand(c, 0);
  ir_array same = *x;
  same.data = c->result.data;
  ir_array_dense(&same);
  ir_array_copy(&same, x);
  return STATUS_OK;
}

/* A position as NumPy reads it: a constant below zero counts from the end. */
static int64_t position_of(const ref_call *c, ir_scalar x, int64_t n) {
  int64_t value = ref_eval_scalar(c, x);
  bool from_end = value < 0 && ir_scalar_is_const(&c->state->f->module->scalars, x, NULL);
  return from_end ? value + n : value;
}

static int64_t clamp_start(int64_t start, int64_t n) {
  if (start < 0) return 0;
  return start > n ? n : start;
}

status ref_slice(const ref_call *c) {
  const ir_array *x = ref_operand(c, 0);
  const ir_attr *starts = ir_op_attr(c->op, "starts"), *steps = ir_op_attr(c->op, "steps");
  ir_array view = empty_view(x);
  int64_t offset = 0;
  view.rank = x->rank;
  for (uint32_t i = 0; i < x->rank; i++) {
    int64_t step = steps->given ? steps->ints[i] : 1;
    int64_t start = clamp_start(position_of(c, starts->scalars[i], x->extents[i]), x->extents[i]);
    view.extents[i] = c->result.extents[i];
    view.strides[i] = view.extents[i] > 1 ? x->strides[i] * step : 0;
    offset += x->strides[i] * start;
  }
  advance(&view, offset);
  return copy_view(c, &view);
}

/* A negative width cuts off, so this reads x at (position - before) wherever that exists. */
status ref_pad(const ref_call *c) {
  const ir_array *x = ref_operand(c, 0);
  const ir_attr *widths = ir_op_attr(c->op, "widths");
  ir_number value = ref_attr_number(c, "value");
  int64_t before[IR_MAX_RANK], index[IR_MAX_RANK] = {0}, from[IR_MAX_RANK];
  for (uint32_t i = 0; i < x->rank; i++) before[i] = ref_eval_scalar(c, widths->scalars[2 * i]);
  if (ref_count(&c->result) == 0) return STATUS_OK;
  do {
    bool inside = true;
    for (uint32_t i = 0; i < x->rank; i++) {
      from[i] = index[i] - before[i];
      inside = inside && from[i] >= 0 && from[i] < x->extents[i];
    }
    ir_array element = {.dtype = x->dtype, .data = inside ? ir_array_at(x, from) : NULL};
    ir_array to = {.dtype = c->result.dtype, .data = ir_array_at(&c->result, index)};
    if (inside) ir_array_copy(&to, &element);
    else ref_set_number(to.dtype, to.data, value);
  } while (ir_array_next(&c->result, index));
  return STATUS_OK;
}

status ref_cat(const ref_call *c) {
  uint32_t dim = ref_attr_dim(c, "dim", c->result.rank);
  int64_t begin = 0;
  for (uint32_t i = 0; i < c->op->n_operands; i++) {
    const ir_array *x = ref_operand(c, i);
    ir_array part = c->result;
    part.extents[dim] = x->extents[dim];
    advance(&part, begin * part.strides[dim]);
    ir_array_copy(&part, x);
    begin += x->extents[dim];
  }
  check(begin == c->result.extents[dim]);
  return STATUS_OK;
}

status ref_select(const ref_call *c) {
  const ir_array *x = ref_operand(c, 0);
  uint32_t dim = ref_attr_dim(c, "dim", x->rank);
  int64_t n = x->extents[dim], index = position_of(c, ir_op_attr(c->op, "index")->scalar, n);
  if (index < 0 || index >= n)
    return ref_fail(c, "index %lld is outside axis %u, which has %lld elements", (long long)index,
                    dim, (long long)n);
  ir_array view = empty_view(x);
  for (uint32_t i = 0; i < x->rank; i++)
    if (i != dim) keep_axis(&view, x, i);
  advance(&view, index * x->strides[dim]);
  return copy_view(c, &view);
}
