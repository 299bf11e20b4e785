/* Rearrangements of a tensor that has to move are made where it arrives. */
#include "ir/build.h"
#include "ir/infer.h"
#include "shard/decompose.h"

typedef shard_decomposing decomposing;

/* Has the result exactly the elements of the operand? */
static bool rearranges(const ir_op_data *op) {
  ir_family family = ir_op_info_of(op->code)->family;
  return family == IR_FAMILY_RESHAPE || family == IR_FAMILY_PERMUTE ||
         family == IR_FAMILY_BROADCAST || family == IR_FAMILY_SQUEEZE;
}

static bool is_read_elsewhere(const ir_func *f, ir_tensor t, ir_op by) {
  for (uint32_t i = 0; i < f->order.len; i++) {
    const ir_op_data *op = ir_op_at(f, f->order.data[i]);
    for (uint32_t k = 0; k < op->n_operands && !IR_SAME(f->order.data[i], by); k++)
      if (IR_SAME(op->operands[k], t)) return true;
  }
  return false;
}

/* Is there something below the rearrangements that made `t` that other operations read too? */
static bool is_worth_it(const decomposing *d, ir_tensor t) {
  for (;;) {
    ir_op def = ir_tensor_at(d->f, t)->scheduled_def;
    if (def.id == 0 || !rearranges(ir_op_at(d->f, def))) return false;
    t = ir_op_at(d->f, def)->operands[0];
    if (is_read_elsewhere(d->f, t, def)) return true;
  }
}

/* The same operation again, not in the order; its result has no marks and no mesh. */
static ir_op repeat(decomposing *d, ir_op o, ir_why why) {
  ir_func *f = d->f;
  ir_op_data op = *ir_op_at(f, o);
  ir_inferred types[IR_MAX_RESULTS];
  uint32_t constraints = f->constraints.len;
  check(ir_infer(f, &op, types));
  f->constraints.len = constraints; /* asserted once already */
  uint32_t name = ir_func_fresh_name(f, ir_tensor_at(f, op.result)->name);
  ir_tensor_data t = {.kind = IR_TENSOR_RESULT, .name = name, .at = op.at, .dtype = types[0].dtype};
  t.defined = t.now = types[0].domains;
  t.def = t.scheduled_def = (ir_op){f->ops.len};
  op.result = (ir_tensor){f->tensors.len};
  op.why = ir_why_add(f, why);
  vec_push(&f->module->memory, &f->tensors, t);
  vec_push(&f->module->memory, &f->ops, op);
  ir_func_declare(f, name, (ir_name_entry){IR_NAME_TENSOR, op.result.id});
  return t.def;
}

/* What was only tried is no longer a result of any operation. */
static void forget(ir_func *f, ir_tensor t) {
  ir_tensor_data *x = ir_tensor_at(f, t);
  ir_func_undeclare(f, x->name);
  *x = (ir_tensor_data){.kind = IR_TENSOR_CONST, .dtype = x->dtype};
}

/* Would a copy of what `o` rearranges fit it? */
static bool fits_when_copied(decomposing *d, ir_op o) {
  ir_op_data op = *ir_op_at(d->f, o);
  ir_why why = {.rule = IR_RULE_BEFORE, .at = op.at};
  ir_tensor copy = ir_op_at(d->f, shard_add_set(d, op.operands[0], why))->result;
  shard_place_for(d, &op, 0, copy);
  op.operands = &copy;
  bool fits = shard_operand_fits(d->c, &op, 0);
  forget(d->f, copy);
  return fits;
}

bool shard_copy_viewed(decomposing *d, ir_op o, uint32_t k) {
  ir_op_data op = *ir_op_at(d->f, o);
  ir_tensor old = op.operands[k];
  if (ir_axes_streamed(d->f, ir_tensor_at(d->f, op.result)->now.loop) || !is_worth_it(d, old))
    return false;
  ir_op def = ir_tensor_at(d->f, old)->scheduled_def;
  ir_why why = {.rule = IR_RULE_BEFORE, .at = op.at, .from = ir_tensor_at(d->f, old)->name};
  why.because = shard_decided_by(d, &op, k);
  ir_op again = repeat(d, def, why);
  ir_tensor t = ir_op_at(d->f, again)->result;
  shard_place_for(d, &op, k, t);
  if (!fits_when_copied(d, again)) {
    forget(d->f, t);
    return false;
  }
  shard_reshard_operand(d, again, 0);
  check(shard_operand_fits(d->c, ir_op_at(d->f, again), 0));
  vec_push(&d->f->module->memory, &d->order, again);
  vec_push(&d->f->module->memory, &d->copies, ((shard_copied){old, t}));
  ir_tensor *list = arena_copy(&d->f->module->memory, op.operands, op.n_operands * sizeof *list);
  list[k] = t;
  ir_op_at(d->f, o)->operands = list;
  return true;
}
