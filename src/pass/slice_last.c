/* slice-last: the last product, if its result is reduced or gathered, in four slices. Nothing else
 * is left to compute while that moves, so it is cut:
 *
 *   dw1 <- matmul(...)                        for i in 4 stream {
 *   c0 = allreduce(dw1, ...)        =>          dw1$1 <- matmul(...)
 *                                               c0 = allreduce(dw1$1, ...)
 *                                             } */
#include "pass/passes.h"
#include "shard/shard.h"

status pass_slice_last(ir_func *f, pass_ctx *ctx) {
  ctx->changed = shard_slice_products(f, SHARD_SLICE_LAST, ctx->scratch) > 0;
  return STATUS_OK;
}
