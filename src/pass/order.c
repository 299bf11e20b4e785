/* order: communications are posted early, and waited for right before their first use.
 *
 *   c0 = allgather(w -> w$1, …)               c0 = allgather(w -> w$1, …)
 *   wait(c0)                                  c1 = allgather(v -> v$1, …)
 *   h <- matmul(x, w$1)                       wait(c0)
 *   c1 = allgather(v -> v$1, …)       =>      h <- matmul(x, w$1)
 *   wait(c1)                                  wait(c1)
 *   y <- matmul(h, v$1)                       y <- matmul(h, v$1) */
#include "order/order.h"

#include "pass/passes.h"

status pass_order(ir_func *f, pass_ctx *ctx) {
  order_program(f, ctx->scratch, &ctx->changed);
  return STATUS_OK;
}
