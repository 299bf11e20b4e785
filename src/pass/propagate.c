/* propagate: adds the marks that follow from those the user wrote. */
#include "pass/passes.h"
#include "shard/shard.h"

status pass_propagate(ir_func *f, pass_ctx *ctx) {
  uint32_t n = shard_propagate(f);
  f->spread = arena_copy(&f->module->memory, f->statements.data + f->statements.len - n,
                         n * sizeof *f->spread);
  f->n_spread = n;
  ctx->changed = n > 0;
  return STATUS_OK;
}
