/* views: turns results that only look at their operand differently into views.
 *
 *   t : f32[m, n] = allocate()
 *   t <- transpose(x)                =>    t : f32[m, n] = transpose(x)
 *   y <- t + 1                             y <- t + 1 */
#include "host/host.h"
#include "pass/passes.h"

status pass_views(ir_func *f, pass_ctx *ctx) {
  ctx->changed = host_make_views(f) > 0;
  return STATUS_OK;
}
