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

#endif
