/* merge-rfactor: makes one operation of each reduction that was rfactored, where there are several
 * devices. The places of its steps say which parts of the reduction devices compute:
 *
 *   u[m, 4 mesh.x, r k/4] = sum(x);  t[m, r 4] = sum(u)
 *     =>  t[m, r 4 mesh.x, r k/4] = sum(x)     partial results, reduced along mesh.x */
#include "pass/passes.h"
#include "schedule/schedule.h"
#include "shard/shard.h"

status pass_merge_rfactor(ir_func *f, pass_ctx *ctx) {
  if (!shard_rfactors_fit(f)) return fail(STATUS_BAD_PROGRAM, "the program cannot be lowered");
  if (shard_is_distributed(f)) ctx->changed = shard_merge_rfactors(f) > 0;
  if (ctx->changed) schedule_restate(f);
  return STATUS_OK;
}
