/* dce: drops operations that reach no output, the last results of others if nothing uses them, and the
 * schedule statements of both. */
#include "ir/build.h"
#include "pass/passes.h"

/* How many results must stay, up to the last one that is used; 0: none is used. */
static uint32_t n_needed(const ir_op_data *op, const bool *live) {
  uint32_t n = ir_op_n_results(op);
  while (n > 0 && !live[ir_op_result(op, n - 1).id]) n--;
  return n;
}

static bool *find_live(const ir_func *f, arena *scratch) {
  bool *live = arena_alloc(scratch, f->tensors.len);
  for (uint32_t i = 0; i < f->outputs.len; i++) live[f->outputs.data[i].id] = true;
  for (uint32_t i = f->order.len; i-- > 0;) {
    const ir_op_data *op = ir_op_at(f, f->order.data[i]);
    uint32_t n = n_needed(op, live);
    for (uint32_t k = 0; k < n; k++) live[ir_op_result(op, k).id] = true;
    for (uint32_t k = 0; n && k < op->n_operands; k++) live[op->operands[k].id] = true;
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

static void note_removed(ir_func *f, uint32_t name) {
  vec_push(&f->module->memory, &f->removed, ((ir_removed){name, IR_RULE_DEAD, 0}));
}

/* Notes that the results from the first-th on are removed; not those of steps of a sharded form, which the
 * user did not write. */
static void note_results(ir_func *f, const ir_op_data *op, uint32_t first) {
  if (op->why) return;
  for (uint32_t k = first; k < ir_op_n_results(op); k++)
    note_removed(f, ir_tensor_at(f, ir_op_result(op, k))->name);
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
    else if (s.kind == IR_STMT_RFACTOR) note_removed(f, s.result.name);
  }
  f->statements.len = kept;
}

status pass_dce(ir_func *f, pass_ctx *ctx) {
  const bool *live = find_live(f, ctx->scratch);
  uint32_t kept = 0;
  bool all = true;
  for (uint32_t i = 0; i < f->order.len; i++) {
    const ir_op_data *op = ir_op_at(f, f->order.data[i]);
    all = all && n_needed(op, live) == ir_op_n_results(op);
  }
  /* mutant: dce_keeps_dead */
  if (all) return STATUS_OK;
  ir_func_unschedule(f);
  drop_statements(f, ctx, live);
  for (uint32_t i = 0; i < f->order.len; i++) {
    ir_op o = f->order.data[i];
    uint32_t n = n_needed(ir_op_at(f, o), live);
    note_results(f, ir_op_at(f, o), n);
    if (n == 0) continue;
    ir_op_at(f, o)->n_more = n - 1;
    f->order.data[kept++] = o;
  }
  f->order.len = kept;
  ctx->changed = true;
  ir_func_forget_unused(f);
  return STATUS_OK;
}
