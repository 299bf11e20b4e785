/* decompose: makes operations of those steps in which data moves between devices, so that every
 * operation either computes from what devices hold or only moves data.
 *
 *   y[mesh.x, n] = relu(x)  on all of x        x$1[mesh.x, n] = set(x)
 *                                        =>    y[mesh.x, n] = relu(x$1) */
#include "pass/passes.h"
#include "schedule/schedule.h"
#include "shard/shard.h"

status pass_decompose(ir_func *f, pass_ctx *ctx) {
  if (!shard_is_distributed(f)) return STATUS_OK;
  ctx->changed = true;
  if (!shard_decompose(shard_begin(f, ctx->scratch)))
    return fail(STATUS_BAD_PROGRAM, "the program cannot be lowered");
  schedule_restate(f);
  return STATUS_OK;
}
