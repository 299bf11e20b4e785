/* Rearrangements of a tensor that has to move are made where it arrives, and so are elementwise operations that make
 * more bytes of what they read. What is made of nothing is made again. */
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

/* Was it copied for an operation that came before? */
static bool is_copied(const decomposing *d, ir_tensor t) {
  for (uint32_t i = 0; i < d->copies.len; i++)
    if (IR_SAME(d->copies.data[i].from, t)) return true;
  return false;
}

static bool is_maker(const ir_op_data *op) {
  return ir_op_info_of(op->code)->family == IR_FAMILY_MAKER;
}

/* Is there something below the rearrangements that made `t` that other operations read too, or
 * that is made of nothing? */
static bool is_worth_it(const decomposing *d, ir_tensor t) {
  for (bool below = false;; below = true) {
    ir_op def = ir_tensor_at(d->f, t)->scheduled_def;
    if (def.id && below && is_maker(ir_op_at(d->f, def))) return true;
    if (def.id == 0 || !rearranges(ir_op_at(d->f, def))) return false;
    t = ir_op_at(d->f, def)->operands[0];
    if (is_copied(d, t) || is_read_elsewhere(d->f, t, def)) return true;
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

void shard_forget(ir_func *f, ir_tensor t) {
  ir_tensor_data *x = ir_tensor_at(f, t);
  ir_func_undeclare(f, x->name);
  *x = (ir_tensor_data){.kind = IR_TENSOR_CONST, .dtype = x->dtype};
}

/* Would a copy of operand k fit `o`? */
static bool fits_when_copied(decomposing *d, ir_op o, uint32_t k) {
  ir_op_data op = *ir_op_at(d->f, o);
  ir_why why = {.rule = IR_RULE_BEFORE, .at = op.at};
  if (ir_tensor_at(d->f, op.operands[k])->kind == IR_TENSOR_CONST) return true;
  ir_tensor copy = ir_op_at(d->f, shard_add_set(d, op.operands[k], why))->result;
  shard_place_for(d, &op, k, copy);
  ir_tensor *list = arena_copy(d->c->scratch, op.operands, op.n_operands * sizeof *list);
  list[k] = copy;
  op.operands = list;
  bool fits = shard_operand_fits(d->c, &op, k);
  shard_forget(d->f, copy);
  return fits;
}

static bool all_fit_when_copied(decomposing *d, ir_op o) {
  for (uint32_t k = 0; k < ir_op_at(d->f, o)->n_operands; k++)
    if (!fits_when_copied(d, o, k)) return false;
  return true;
}

/* What made operand k of `o`, again, where `o` needs it; its operands are not there yet. */
static ir_op repeat_for(decomposing *d, ir_op o, uint32_t k) {
  ir_op_data op = *ir_op_at(d->f, o);
  ir_tensor old = op.operands[k];
  ir_why why = {.rule = IR_RULE_BEFORE, .at = op.at, .from = ir_tensor_at(d->f, old)->name};
  why.because = shard_decided_by(d, &op, k);
  shard_keep_key(d, ir_tensor_at(d->f, old)->scheduled_def);
  ir_op again = repeat(d, ir_tensor_at(d->f, old)->scheduled_def, why);
  shard_place_for(d, &op, k, ir_op_at(d->f, again)->result);
  return again;
}

/* The operands of `again` are brought over, and its result is operand k of `o`. */
static void use_repeated(decomposing *d, ir_op again, ir_op o, uint32_t k) {
  ir_op_data op = *ir_op_at(d->f, o);
  ir_tensor t = ir_op_at(d->f, again)->result;
  for (uint32_t i = 0; i < ir_op_at(d->f, again)->n_operands; i++) {
    shard_reshard_operand(d, again, i);
    check(shard_operand_fits(d->c, ir_op_at(d->f, again), i));
  }
  vec_push(&d->f->module->memory, &d->order, again);
  vec_push(&d->f->module->memory, &d->copies, ((shard_copied){op.operands[k], t}));
  ir_tensor *list = arena_copy(&d->f->module->memory, op.operands, op.n_operands * sizeof *list);
  list[k] = t;
  ir_op_at(d->f, o)->operands = list;
}

static bool has_streams(const decomposing *d, ir_op o) {
  return ir_axes_streamed(d->f, ir_tensor_at(d->f, ir_op_at(d->f, o)->result)->now.loop);
}

/* Can the operation be computed where it is when its operands have been brought over? */
static bool may_be_there(decomposing *d, ir_op o) {
  return ir_op_at(d->f, o)->n_operands ? all_fit_when_copied(d, o) : shard_is_local(d, o);
}

/* Operand k of `o` is computed again for it, if that can be. */
static bool try_repeated(decomposing *d, ir_op o, uint32_t k) {
  ir_op again = repeat_for(d, o, k);
  if (!may_be_there(d, again)) {
    shard_forget(d->f, ir_op_at(d->f, again)->result);
    return false;
  }
  use_repeated(d, again, o, k);
  return true;
}

bool shard_copy_viewed(decomposing *d, ir_op o, uint32_t k) {
  if (has_streams(d, o) || !is_worth_it(d, ir_op_at(d->f, o)->operands[k])) return false;
  return try_repeated(d, o, k);
}

/* ---- what takes fewer bytes before it is computed ---- */

enum { MOST_STEPS = 6 };

/* Does each element come of one of each operand, or of none? */
static bool is_elementwise(const ir_op_data *op) {
  ir_family family = ir_op_info_of(op->code)->family;
  return family == IR_FAMILY_POINTWISE || family == IR_FAMILY_CAST ||
         family == IR_FAMILY_BROADCAST || family == IR_FAMILY_EXPAND || is_maker(op);
}

static bool is_cut(const ir_func *f, ir_tensor t) { return shard_is_cut(f, t, ~0u); }

/* Bytes to bring over, of `t` or of what it is computed from. */
static double least_moved(const decomposing *d, ir_tensor t, const int64_t *usual, uint32_t steps) {
  const ir_tensor_data *x = ir_tensor_at(d->f, t);
  if (t.id == 0 || x->kind == IR_TENSOR_CONST || !is_cut(d->f, t)) return 0;
  double own = ir_tensor_elements(d->f, t, usual) * (double)ir_dtype_size_bytes(x->dtype), sum = 0;
  const ir_op_data *op = x->scheduled_def.id ? ir_op_at(d->f, x->scheduled_def) : NULL;
  if (!op || steps == 0 || !is_elementwise(op)) return own;
  for (uint32_t k = 0; k < op->n_operands; k++)
    sum += least_moved(d, op->operands[k], usual, steps - 1);
  return sum < own ? sum : own;
}

/* A quarter less, at least: it is computed on all devices then. */
static bool is_less_before(const decomposing *d, ir_tensor t) {
  ir_op def = ir_tensor_at(d->f, t)->scheduled_def;
  const int64_t *usual = ir_module_usual(d->f->module, d->c->scratch);
  if (def.id && is_maker(ir_op_at(d->f, def))) return true;
  if (def.id == 0 || !is_elementwise(ir_op_at(d->f, def)) || !is_cut(d->f, t)) return false;
  double own = ir_tensor_elements(d->f, t, usual) *
               (double)ir_dtype_size_bytes(ir_tensor_at(d->f, t)->dtype);
  return least_moved(d, t, usual, MOST_STEPS) <= 0.75 * own;
}

bool shard_copy_narrow(decomposing *d, ir_op o, uint32_t k) {
  ir_tensor old = ir_op_at(d->f, o)->operands[k];
  if (!ir_tensor_at(d->f, old)->scheduled_def.id) return false;
  if (has_streams(d, o) || has_streams(d, ir_tensor_at(d->f, old)->scheduled_def)) return false;
  return is_less_before(d, old) && try_repeated(d, o, k);
}
