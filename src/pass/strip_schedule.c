/* strip-schedule: drops the whole schedule. By the language's promise this never changes results. */
#include "ir/build.h"
#include "pass/passes.h"

status pass_strip_schedule(ir_func *f, pass_ctx *ctx) {
  if (f->statements.len == 0) return STATUS_OK;
  ctx->changed = true;
  ir_func_unschedule(f);
  f->statements.len = 0;
  return STATUS_OK;
}
