/* unstream: drops all stream marks, so that everything runs in one piece. */
#include "pass/passes.h"
#include "shard/shard.h"

status pass_unstream(ir_func *f, pass_ctx *ctx) {
  ctx->changed = shard_forget_streams(f) > 0;
  return STATUS_OK;
}
