/* join: operations that one kernel can compute become one launch.
 *
 *   t <- mul(x, w)                   y <- kernel(x, w) {
 *   y <- gelu(t)             =>        t = x * w
 *   deallocate(t)                      return gelu(t)
 *                                    } */
#include "join/join.h"

#include "pass/passes.h"

status pass_join(ir_func *f, pass_ctx *ctx) {
  join_kernels(f, ctx->scratch, &ctx->changed);
  return STATUS_OK;
}
