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
  const host_speed *s = &ctx->options->speed;
  order_machine m = usual();
  if (s->link_bytes_per_ns > 0)
    m = (order_machine){s->link_latency_ns,     s->post_ns,          s->link_bytes_per_ns,
                        s->launch_ns,           s->flops_per_ns,     s->memory_bytes_per_ns,
                        s->narrow_flops_per_ns, s->bf16_flops_per_ns};
  order_fill_buckets(f, &m, ctx->scratch, &ctx->changed);
  return STATUS_OK;
}
