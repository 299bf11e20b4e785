/* own-first: lets streams over the pieces of devices begin with the device's own piece, where each device counts
 * from its own. That piece is there already, so it comes before the loop, and others arrive meanwhile.
 *
 *   a$1[0] = stream.offset    =>    a$1[0] = stream.own */
#include "pass/passes.h"
#include "schedule/schedule.h"

status pass_own_first(ir_func *f, pass_ctx *ctx) {
  for (uint32_t i = 1; i < f->axes.len; i++) {
    ir_mark *mark = &f->axes.data[i].mark;
    if (mark->form != IR_FORM_OFFSET) continue;
    mark->form = IR_FORM_OWN;
    ctx->changed = true;
  }
  if (ctx->changed) schedule_restate(f);
  return STATUS_OK;
}
