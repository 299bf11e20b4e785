/* pipelines: writes on each stream over the pieces of devices how it fetches them.
 *
 *   a$1[0] = stream    =>    a$1[0] = stream.ring        with --pipeline ring
 *
 * A form that the program states is kept. */
#include "pass/passes.h"
#include "schedule/schedule.h"
#include "shard/shard.h"

static ir_form form_of(host_pipeline asked) {
  switch (asked) {
  case HOST_AUTO:
  case HOST_P2P_OFFSET: return IR_FORM_OFFSET;
  case HOST_COLLECTIVE:
  case HOST_BROADCAST: return IR_FORM_BROADCAST;
  case HOST_P2P: return IR_FORM_P2P;
  case HOST_RING: return IR_FORM_RING;
  }
  impossible("a pipeline of no form");
}

/* Does the stream bring one piece per iteration, or could it? */
static bool goes_over_pieces(const shard_comm *m, ir_axis a) {
  return m->by_iteration ? IR_SAME(m->stream, a) : m->kind == SHARD_ALL_TO_ALL;
}

static uint32_t write_form(shard_ctx *c, ir_func *f, const ir_op_data *op, ir_form form) {
  ir_axes loop = ir_tensor_at(f, op->result)->now.loop;
  ir_family family = ir_op_info_of(op->code)->family;
  shard_comm m = {0};
  uint32_t n = 0;
  if ((family != IR_FAMILY_SET && family != IR_FAMILY_REDUCE) || !ir_axes_streamed(f, loop))
    return 0;
  if (shard_comm_of(c, op, &m) != SHARD_ONE || m.mesh_axis < 0) return 0;
  for (uint32_t i = 0; i < loop.len; i++) {
    ir_mark *mark = &ir_axis_at(f, loop.data[i])->mark;
    if (mark->kind != IR_MARK_STREAM || mark->form != IR_FORM_NONE) continue;
    if (!goes_over_pieces(&m, loop.data[i])) continue;
    mark->form = form;
    n++;
  }
  return n;
}

status pass_pipelines(ir_func *f, pass_ctx *ctx) {
  if (!shard_is_distributed(f)) return STATUS_OK;
  shard_ctx *c = shard_begin(f, ctx->scratch);
  ir_form form = form_of(ctx->options->pipeline);
  uint32_t n = 0;
  for (uint32_t i = 0; i < f->order.len; i++)
    n += write_form(c, f, ir_op_at(f, f->order.data[i]), form);
  ctx->changed = n > 0;
  if (ctx->changed) schedule_restate(f);
  return STATUS_OK;
}
