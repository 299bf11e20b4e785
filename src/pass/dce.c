/* dce: drops operations that reach no output, and the schedule statements of their results. */
#include "ir/build.h"
#include "pass/passes.h"

static bool *find_live(const ir_func *f, arena *scratch) {
  bool *live = arena_alloc(scratch, f->tensors.len);
  for (uint32_t i = 0; i < f->outputs.len; i++) live[f->outputs.data[i].id] = true;
  for (uint32_t i = f->order.len; i-- > 0;) {
    const ir_op_data *op = ir_op_at(f, f->order.data[i]);
    if (!live[op->result.id]) continue;
    for (uint32_t k = 0; k < op->n_operands; k++) live[op->operands[k].id] = true;
  }
  return live;
}

/* A name made by the schedule (rfactor) is live while the tensor it comes from is. */
static bool target_is_live(const ir_func *f, const map *derived, const bool *live, uint32_t name) {
  ir_name_entry e = ir_func_lookup(f, name);
  if (e.kind != IR_NAME_TENSOR) {
    uint32_t from = map_get(derived, name, 0);
    return from == 0 || target_is_live(f, derived, live, from);
  }
  const ir_tensor_data *t = ir_tensor_at(f, (ir_tensor){e.id});
  return t->kind == IR_TENSOR_INPUT || live[e.id];
}

static void drop_statements(ir_func *f, pass_ctx *ctx, const bool *live) {
  map derived;
  map_init(&derived, ctx->scratch);
  uint32_t kept = 0;
  for (uint32_t i = 0; i < f->statements.len; i++) {
    ir_stmt s = f->statements.data[i];
    if (s.kind == IR_STMT_RFACTOR) map_put(&derived, s.result.name, s.targets[0].name);
    ir_target *targets = ARENA_ARRAY(&f->module->memory, s.n_targets, ir_target);
    uint32_t n = 0;
    for (uint32_t k = 0; k < s.n_targets; k++) {
      if (target_is_live(f, &derived, live, s.targets[k].name)) targets[n++] = s.targets[k];
    }
    s.targets = targets;
    s.n_targets = n;
    if (n > 0) f->statements.data[kept++] = s;
  }
  f->statements.len = kept;
}

status pass_dce(ir_func *f, pass_ctx *ctx) {
  const bool *live = find_live(f, ctx->scratch);
  drop_statements(f, ctx, live);
  uint32_t kept = 0;
  for (uint32_t i = 0; i < f->order.len; i++) {
    ir_op o = f->order.data[i];
    if (live[ir_op_at(f, o)->result.id]) f->order.data[kept++] = o;
  }
  ctx->changed = kept < f->order.len;
  f->order.len = kept;
  ir_func_forget_unused(f);
  return STATUS_OK;
}
