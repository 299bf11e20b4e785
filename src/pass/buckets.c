/* buckets: communications of one kind travel as one where that saves time.
 *
 *   c0 = allreduce(a$1 -> a, …)               bucket$3 <- cat(reshape(a$1), reshape(b$1))
 *   wait(c0)                                  c0 = allreduce(bucket$3 -> bucket$4, …)
 *   c1 = allreduce(b$1 -> b, …)       =>      wait(c0)
 *   wait(c1)                                  a <- slice(bucket$4, …)
 *                                             b <- slice(bucket$4, …) */
#include "order/order.h"
#include "pass/passes.h"

/* What is assumed of a machine that is not known. */
static order_machine usual(void) {
  order_machine m = order_nominal;
  m.latency_ns = m.post_ns;
  m.post_ns = 0;
  return m;
}

status pass_buckets(ir_func *f, pass_ctx *ctx) {
  order_machine m;
  if (!pass_order_machine(ctx, &m)) m = usual();
  order_fill_buckets(f, &m, ctx->scratch, &ctx->changed);
  return STATUS_OK;
}
