/* lower: from a scheduled fusion to a host program, which the manager lists after it. */
#include "host/host.h"
#include "pass/passes.h"

/* Lowering has room for this many operands. */
enum { MAX_OPERANDS = 64 };

status pass_lower(ir_func *f, pass_ctx *ctx) {
  for (uint32_t i = 0; i < f->order.len; i++) {
    const ir_op_data *op = ir_op_at(f, f->order.data[i]);
    if (op->n_operands <= MAX_OPERANDS) continue;
    diag_error(&f->module->errors, op->at,
               "%s of %u tensors cannot be lowered: there is room for %d; do some of them first",
               ir_op_info_of(op->code)->name, op->n_operands, MAX_OPERANDS);
    return fail(STATUS_BAD_PROGRAM, "the program cannot be lowered");
  }
  if (!ctx->decomposed && !host_is_decomposed(f, ctx->scratch))
    return fail(STATUS_BAD_PROGRAM, "the program cannot be lowered");
  ctx->changed = true;
  TRY(host_lower(f, ctx->options, &ctx->made));
  ir_host_resize_slices(ctx->made);
  return STATUS_OK;
}
