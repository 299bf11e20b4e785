/* buckets: small communications of one kind that are ready about the same time travel as one.
 *
 *   c0 = allreduce(a$1 -> a, …)               bucket$3 <- cat(reshape(a$1), reshape(b$1))
 *   wait(c0)                                  c0 = allreduce(bucket$3 -> bucket$4, …)
 *   c1 = allreduce(b$1 -> b, …)       =>      wait(c0)
 *   wait(c1)                                  a <- slice(bucket$4, …)
 *                                             b <- slice(bucket$4, …) */
#include "order/order.h"
#include "pass/passes.h"

/* What the order of communications goes by, too. */
static const order_limits usual = {.latency_ns = 20000, .bytes_per_ns = 0.25};

status pass_buckets(ir_func *f, pass_ctx *ctx) {
  order_limits limits = usual;
  if (ctx->options->link_latency_ns > 0) limits.latency_ns = ctx->options->link_latency_ns;
  if (ctx->options->link_bytes_per_ns > 0) limits.bytes_per_ns = ctx->options->link_bytes_per_ns;
  order_fill_buckets(f, limits, ctx->scratch, &ctx->changed);
  return STATUS_OK;
}
