/* sharded-forms: writes operations that work along a sharded axis as several that reduce along it, so that
 * only partial results are sent and not the operand.
 *
 *   y[n, mesh.x] = softmax(x)          y$1 = amax(x, dims=[1])          partial results, n of them
 *                                =>    y$4 = exp(x - y$1)               as x is sharded
 *                                      y$5 = sum(y$4, dims=[1])         partial results
 *                                      y = y$4 / y$5 */
#include "pass/passes.h"
#include "shard/shard.h"

/* Reasons are kept, although the view that has them is dropped. */
status pass_drop_unused(ir_func *f, pass_ctx *ctx) {
  uint32_t reasons = f->whys.len;
  TRY(pass_dce(f, ctx));
  if (f->whys.len < reasons) f->whys.len = reasons;
  return STATUS_OK;
}

status pass_sharded_forms(ir_func *f, pass_ctx *ctx) {
  if (!shard_is_distributed(f) || shard_write_forms(f, ctx->scratch) == 0) return STATUS_OK;
  ctx->changed = true;
  return pass_drop_unused(f, ctx);
}
