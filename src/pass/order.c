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

bool pass_order_machine(const pass_ctx *ctx, order_machine *result) {
  const host_speed *s = &ctx->options->speed;
  if (s->link_bytes_per_ns <= 0) return false;
  *result = (order_machine){.latency_ns = s->link_latency_ns,
                            .post_ns = s->post_ns,
                            .bytes_per_ns = s->link_bytes_per_ns,
                            .launch_ns = s->launch_ns,
                            .flops_per_ns = s->flops_per_ns,
                            .memory_bytes_per_ns = s->memory_bytes_per_ns,
                            .narrow_flops_per_ns = s->narrow_flops_per_ns,
                            .bf16_flops_per_ns = s->bf16_flops_per_ns,
                            .island = s->island,
                            .far_latency_ns = s->far_latency_ns,
                            .far_bytes_per_ns = s->far_bytes_per_ns,
                            .direct = s->direct};
  return true;
}

status pass_order(ir_func *f, pass_ctx *ctx) {
  order_machine m;
  bool known = pass_order_machine(ctx, &m);
  order_program(f, known ? &m : NULL, ctx->scratch, &ctx->changed);
  return STATUS_OK;
}
