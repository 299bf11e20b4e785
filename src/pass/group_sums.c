/* group-sums: adds partial results to each other before the other terms of a sum, so that one communication
 * reduces them.
 *
 *   a = linear(h, v)    partial results           a = linear(h, v)
 *   b = linear(g, w)    partial results     =>    b = linear(g, w)
 *   y = x + a + b                                 y$1 = a + b        reduced once
 *                                                 y = x + y$1 */
#include "pass/passes.h"
#include "shard/shard.h"

status pass_group_sums(ir_func *f, pass_ctx *ctx) {
  if (!shard_is_distributed(f) || shard_group_sums(f, ctx->scratch) == 0) return STATUS_OK;
  ctx->changed = true;
  return pass_drop_unused(f, ctx);
}
