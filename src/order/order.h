/* Ordering: communications are posted early and waited for late.
 *
 *   y$1 <- matmul(h, w)                   c1 = allgather(v -> v$1, team=d.x)
 *   c0 = allreduce(y$1 -> y, ...)         y$1 <- matmul(h, w)
 *   wait(c0)                              c0 = allreduce(y$1 -> y, ...)
 *   c1 = allgather(v -> v$1, ...)   =>    wait(c1)
 *   wait(c1)                              z <- matmul(u, v$1)
 *   z <- matmul(u, v$1)                   wait(c0)
 *   t <- y + z                            t <- y + z
 *
 * Only the order of the instructions of the outermost block changes, so every device still runs the same
 * text, and posts are in the same order everywhere. docs/overlap.md says how places are chosen. */
#ifndef WEIR_ORDER_ORDER_H
#define WEIR_ORDER_ORDER_H

#include "ir/host.h"

/* The machine that times are estimated for. A communication keeps its link busy for post_ns, each of its steps for
 * latency_ns, and its bytes. */
typedef struct order_machine {
  double latency_ns, post_ns, bytes_per_ns;
  double launch_ns, flops_per_ns, memory_bytes_per_ns;
  double narrow_flops_per_ns;              /* products of f16 and bf16; 0: as f32 */
  double bf16_flops_per_ns;                /* products of bf16; 0: as f16 */
  double island;                           /* consecutive devices that the link connects; 0: all */
  double far_latency_ns, far_bytes_per_ns; /* of the link to others; 0: as within */
  double direct; /* 1: an allreduce takes 1.5 times the steps of others; 0: twice as many */
} order_machine;
/* A slow link beside a fast processor, so that communications are started generously early. */
extern const order_machine order_nominal;

/* Reorders the program; `changed`: something moved. A program that changes streams in a way that lowering does
 * not is left as it is. `machine`: for which it is; NULL: not known. */
void order_program(ir_func *h, const order_machine *machine, arena *scratch, bool *changed);

/* Buckets: allreduces, reduce-scatters and allgathers of one team, reduction and dtype travel as one where that
 * saves time.
 *
 *   c0 = allreduce(a$1 -> a, …)           b$1 <- …
 *   wait(c0)                              bucket$3 <- cat(reshape(a$1), reshape(b$1))
 *   b$1 <- …                        =>    c0 = allreduce(bucket$3 -> bucket$4, …)
 *   c1 = allreduce(b$1 -> b, …)           wait(c0)
 *   wait(c1)                              a <- slice(bucket$4, …)
 *                                         b <- slice(bucket$4, …)
 *
 * That saves the steps of all communications but one. It costs copies; the first tensors wait until the last
 * is ready; and readers of the first wait until all have arrived. docs/overlap.md has the rule. */
void order_fill_buckets(ir_func *h, const order_machine *machine, arena *scratch, bool *changed);

#endif
