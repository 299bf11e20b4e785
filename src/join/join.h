/* Joining: operations of a host program become kernels that compute several of them in one launch.
 *
 * What is joined computes the same: each operation rounds as before, only intermediate results lose their
 * buffers. Launches are joined inside a *run*: instructions of one block between two that change or wait
 * for streams, communicate, loop or branch. So no work moves past a communication, and a kernel is put on
 * the stream that its operations were on.
 *
 *   t <- mul(x, w)                   y <- kernel(x, w, b) {
 *   u <- add(t, b)          =>         t = x * w
 *   y <- gelu(u)                       u = t + b
 *   deallocate(t)                      return gelu(u)
 *   deallocate(u)                    }
 *
 * What is decided, each in a file of its own:
 *   facts.c    which buffers are seen by operations of one block only, so that they may go
 *   spaces.c   which groups of operations one kernel can compute: the rule, which can be replaced
 *   groups.c   which operations are grouped: greedily, in program order, consumers with their producers
 *   peak.c     which groups need more memory than their operations alone, and are found again
 * and build.c rewrites the block. */
#ifndef WEIR_JOIN_JOIN_H
#define WEIR_JOIN_JOIN_H

#include "ir/host.h"

/* Joins what can be joined, in all blocks of `h`; `changed`: something was. */
void join_kernels(ir_func *h, arena *scratch, bool *changed);

#endif
