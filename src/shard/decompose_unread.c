/* The end of decomposition: operations go that were read before it and are not read any more, because something else
 * is computed in their place. */
#include "shard/decompose.h"

static void note_reads(const ir_func *f, ir_op o, bool *read) {
  const ir_op_data *op = ir_op_at(f, o);
  for (uint32_t k = 0; k < op->n_operands; k++) read[op->operands[k].id] = true;
}

const bool *shard_reads(const ir_func *f, arena *memory) {
  bool *read = ARENA_ARRAY(memory, f->tensors.len, bool);
  for (uint32_t i = 0; i < f->order.len; i++) note_reads(f, f->order.data[i], read);
  return read;
}

/* Of the program's own operations it is said why they are gone. */
static void note_removed(ir_func *f, const ir_op_data *op) {
  for (uint32_t k = 0; k < ir_op_n_results(op); k++) {
    ir_tensor t = ir_op_result(op, k);
    ir_removed removed = {ir_tensor_at(f, t)->name, IR_RULE_AGAIN, 0};
    if (!op->why) vec_push(&f->module->memory, &f->removed, removed);
    shard_forget(f, t);
  }
}

/* Was it read, or is it a copy for something that is gone? Others have the name of a result of the program. */
static bool may_go(const ir_func *f, const ir_op_data *op, const bool *was_read,
                   uint32_t n_tensors) {
  ir_rule rule = op->why ? ir_why_at(f, op->why)->rule : IR_RULE_NONE;
  if (op->result.id >= n_tensors) return rule == IR_RULE_BEFORE || rule == IR_RULE_STEP;
  for (uint32_t k = 0; k < ir_op_n_results(op); k++)
    if (!was_read[ir_op_result(op, k).id]) return false;
  return true;
}

/* Does it bring over a result that all others read where it is computed? */
static bool is_bypassed(const ir_func *f, const ir_op_data *op, const bool *read) {
  ir_rule rule = op->why ? ir_why_at(f, op->why)->rule : IR_RULE_NONE;
  bool brings = (rule == IR_RULE_AFTER || rule == IR_RULE_APART) && op->code == IR_OP_SET;
  return brings && !read[op->result.id] && read[op->operands[0].id];
}

/* A result that is brought over for nobody has the name that its copy had. */
static void give_name(ir_func *f, ir_tensor t, uint32_t name) {
  ir_func_undeclare(f, ir_tensor_at(f, t)->name);
  ir_tensor_at(f, t)->name = name;
  ir_func_declare(f, name, (ir_name_entry){IR_NAME_TENSOR, t.id});
}

void shard_drop_unread(shard_decomposing *d, const bool *was_read, uint32_t n_tensors) {
  ir_func *f = d->f;
  bool *read = ARENA_ARRAY(d->c->scratch, f->tensors.len, bool);
  ir_op *kept = ARENA_ARRAY(d->c->scratch, d->order.len, ir_op);
  uint32_t n = 0;
  for (uint32_t i = 0; i < f->outputs.len; i++) read[f->outputs.data[i].id] = true;
  for (uint32_t i = d->order.len; i-- > 0;) {
    const ir_op_data *op = ir_op_at(f, d->order.data[i]);
    bool bypassed = is_bypassed(f, op, read),
         unread = bypassed || may_go(f, op, was_read, n_tensors);
    for (uint32_t k = 0; k < ir_op_n_results(op); k++)
      unread = unread && !read[ir_op_result(op, k).id];
    if (unread) {
      uint32_t name = ir_tensor_at(f, op->result)->name;
      note_removed(f, op);
      if (bypassed) give_name(f, op->operands[0], name);
      continue;
    }
    note_reads(f, d->order.data[i], read);
    kept[n++] = d->order.data[i];
  }
  for (uint32_t i = 0; i < n; i++) d->order.data[i] = kept[n - 1 - i];
  d->order.len = n;
}
