/* Kernels of host programs: launches with a body. */
#include "ir/host.h"
#include "ir/infer.h"

static arena *memory_of(ir_func *h) { return &h->module->memory; }

ir_op ir_host_launch_op(ir_func *h, const ir_tensor *operands, uint32_t n_operands,
                        const ir_tensor *results, uint32_t n_results, loc at) {
  check(n_results > 0);
  ir_op_data op = {.code = IR_OP_NONE, .at = at, .n_operands = n_operands, .result = results[0]};
  op.operands = arena_copy(memory_of(h), operands, n_operands * sizeof *operands);
  op.n_more = n_results - 1;
  op.more = arena_copy(memory_of(h), results + 1, op.n_more * sizeof *results);
  ir_op o = {h->ops.len};
  vec_push(memory_of(h), &h->ops, op);
  return o;
}

/* Inference appends axes and constraints. They are dropped again: only the sizes are wanted. */
bool ir_host_infer(ir_func *h, const ir_op_data *op, ir_dtype *dtype, ir_scalar sizes[IR_MAX_RANK],
                   uint32_t *rank) {
  ir_counts before = {
      .axes = h->axes.len, .transforms = h->transforms.len, .constraints = h->constraints.len};
  ir_inferred types[IR_MAX_RESULTS];
  bool ok = ir_infer(h, op, types);
  if (ok) {
    ir_axis dims[IR_MAX_RANK];
    *dtype = types[0].dtype;
    *rank = ir_axes_dims(h, types[0].domains.logical, dims);
    for (uint32_t i = 0; i < *rank; i++) sizes[i] = ir_axis_size(h, dims[i]);
  }
  h->axes.len = before.axes;
  h->transforms.len = before.transforms;
  h->constraints.len = before.constraints;
  return ok;
}

void ir_host_retype(ir_func *h, ir_tensor t, ir_dtype dtype, const ir_scalar *sizes,
                    uint32_t rank) {
  const ir_tensor_data *old = ir_tensor_at(h, t);
  ir_tensor made = ir_host_tensor(h, old->name, dtype, sizes, rank, old->at);
  *ir_tensor_at(h, t) = *ir_tensor_at(h, made);
  h->tensors.len--;
}

bool ir_host_same_type(const ir_func *h, ir_tensor a, ir_tensor b) {
  ir_axis x[IR_MAX_RANK], y[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(h, a, x);
  if (ir_tensor_at(h, a)->dtype != ir_tensor_at(h, b)->dtype) return false;
  if (ir_tensor_dims(h, b, y) != rank) return false;
  for (uint32_t i = 0; i < rank; i++) {
    if (!IR_SAME(ir_axis_size(h, x[i]), ir_axis_size(h, y[i]))) return false;
  }
  return true;
}
