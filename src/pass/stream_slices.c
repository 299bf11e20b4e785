/* stream-slices: takes away streams over pieces that lie on different devices, where slices are streamed
 * too: each slice is gathered by one collective.
 *
 *   a$1[stream, stream, n/s, k] = set(a[mesh.x, n, k])
 *     =>  a$1[2, stream, n/s, k] = set(a[mesh.x, n, k]) */
#include "pass/passes.h"
#include "schedule/schedule.h"
#include "shard/shard.h"

status pass_stream_slices(ir_func *f, pass_ctx *ctx) {
  if (!shard_is_distributed(f)) return STATUS_OK;
  shard_ctx *c = shard_begin(f, ctx->scratch);
  ctx->changed = shard_vary_streams(c, false, ctx->scratch) > 0;
  if (ctx->changed) schedule_restate(f);
  return STATUS_OK;
}
