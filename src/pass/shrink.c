/* shrink: lets the buffers of results that are streamed along a dimension have the length of one slice.
 *
 *   y[0] = stream    =>    y[0] = stream; y.shrink()
 *
 * Lowering then puts the buffer into the iteration, if all that read the result are in the same loop. */
#include "pass/passes.h"
#include "schedule/schedule.h"

/* Is `a` a dimension, or one that is swizzled? */
static bool is_dimension(const ir_func *f, const ir_domains *d, ir_axis a) {
  const ir_axis_data *axis = ir_axis_at(f, a);
  if (axis->def.id && ir_transform_at(f, axis->def)->kind == IR_SWIZZLE)
    a = ir_transform_at(f, axis->def)->in[0];
  for (uint32_t i = 0; i < d->logical.len; i++) {
    if (IR_SAME(d->logical.data[i], a)) return true;
  }
  return false;
}

static bool can_shrink(const ir_func *f, ir_tensor t) {
  const ir_tensor_data *d = ir_tensor_at(f, t);
  if (d->shrinks) return false;
  for (uint32_t i = 0; i < d->now.loop.len; i++) {
    ir_axis a = d->now.loop.data[i];
    if (ir_axis_at(f, a)->mark.kind != IR_MARK_STREAM) continue;
    if (is_dimension(f, &d->now, a)) return true;
  }
  return false;
}

static void add_shrink(ir_func *f, ir_tensor t) {
  ir_target *target = ARENA_NEW(&f->module->memory, ir_target);
  target->name = ir_tensor_at(f, t)->name;
  ir_stmt stmt = {.kind = IR_STMT_SHRINK, .targets = target, .n_targets = 1};
  (void)schedule_add_quiet(f, &stmt);
}

status pass_shrink(ir_func *f, pass_ctx *ctx) {
  for (uint32_t i = 0; i < f->order.len; i++) {
    ir_tensor t = ir_op_at(f, f->order.data[i])->result;
    if (!can_shrink(f, t) || ir_func_returns(f, t)) continue;
    add_shrink(f, t);
    ctx->changed = true;
  }
  return STATUS_OK;
}
