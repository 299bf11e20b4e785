/* propagate: adds the marks that follow from those the user wrote. */
#include "pass/passes.h"
#include "shard/shard.h"

status pass_propagate(ir_func *f, pass_ctx *ctx) {
  ctx->changed = shard_propagate(f) > 0;
  return STATUS_OK;
}
