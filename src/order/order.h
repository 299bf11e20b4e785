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

/* Reorders the program; `changed`: something moved. A program that changes streams in a way of its own stays
 * as it is. */
void order_program(ir_func *h, arena *scratch, bool *changed);

/* What a link is like: how long a communication takes before its first byte, and how fast bytes go then. */
typedef struct order_limits {
  double latency_ns, bytes_per_ns;
} order_limits;
/* A bucket is not larger than that many times what moves within the latency. */
enum { ORDER_BUCKET_TIMES = 4 };

/* Buckets: small allreduces, reduce-scatters and allgathers of one team, reduction and dtype that are ready about
 * the same time travel as one.
 *
 *   c0 = allreduce(a$1 -> a, …)           b$1 <- …
 *   wait(c0)                              bucket$3 <- cat(reshape(a$1), reshape(b$1))
 *   b$1 <- …                        =>    c0 = allreduce(bucket$3 -> bucket$4, …)
 *   c1 = allreduce(b$1 -> b, …)           wait(c0)
 *   wait(c1)                              a <- slice(bucket$4, …)
 *                                         b <- slice(bucket$4, …)
 *
 * Each must be so small that the latency is what counts, and too little work comes between them for that to be
 * hidden. Results are needed after the last of them only. */
void order_fill_buckets(ir_func *h, order_limits limits, arena *scratch, bool *changed);

#endif
