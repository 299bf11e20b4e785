/* cse: computes equal expressions once.
 *
 *   a = exp(x)            a = exp(x)
 *   b = exp(x)      =>
 *   c = a + b             c = a + a
 *
 * A result that the schedule names or that is returned keeps its own computation: it may be placed
 * elsewhere. So does uniform(), whose values depend on its place among the random operations. */
#include <string.h>

#include "ir/build.h"
#include "pass/passes.h"

typedef struct op_key {
  const ir_func *f;
  const ir_op_data *op;
} op_key;

static bool same_attr(const ir_attr *a, const ir_attr *b) {
  if (a->given != b->given || a->i != b->i || a->len != b->len) return false;
  if (!IR_SAME(a->scalar, b->scalar) || !ir_number_same(a->number, b->number)) return false;
  bool ints = a->ints && a->len, scalars = a->scalars && a->len;
  if (ints && memcmp(a->ints, b->ints, a->len * sizeof *a->ints) != 0) return false;
  return !scalars || memcmp(a->scalars, b->scalars, a->len * sizeof *a->scalars) == 0;
}

static bool same_op(const void *context, uint32_t id) {
  const op_key *k = context;
  const ir_op_data *a = k->op, *b = ir_op_at(k->f, (ir_op){id});
  if (a->code != b->code || a->n_operands != b->n_operands) return false;
  if (memcmp(a->operands, b->operands, a->n_operands * sizeof *a->operands) != 0) return false;
  for (uint32_t i = 0; i < ir_op_info_of(a->code)->n_attrs; i++) {
    if (!same_attr(&a->attrs[i], &b->attrs[i])) return false;
  }
  return true;
}

static uint64_t op_hash(const ir_op_data *op) {
  return hash_mix(hash_bytes(op->operands, op->n_operands * sizeof *op->operands), op->code);
}

static bool *find_pinned(const ir_func *f, arena *scratch) {
  bool *pinned = arena_alloc(scratch, f->tensors.len);
  for (uint32_t i = 0; i < f->outputs.len; i++) pinned[f->outputs.data[i].id] = true;
  for (uint32_t i = 0; i < f->statements.len; i++) {
    const ir_stmt *s = &f->statements.data[i];
    for (uint32_t k = 0; k < s->n_targets; k++) {
      ir_name_entry e = ir_func_lookup(f, s->targets[k].name);
      if (e.kind == IR_NAME_TENSOR) pinned[e.id] = true;
    }
  }
  return pinned;
}

static void redirect(ir_func *f, ir_op_data *op, const ir_tensor *instead) {
  ir_tensor *operands =
      arena_copy(&f->module->memory, op->operands, op->n_operands * sizeof *op->operands);
  for (uint32_t i = 0; i < op->n_operands; i++) {
    if (instead[operands[i].id].id) operands[i] = instead[operands[i].id];
  }
  op->operands = operands;
}

status pass_cse(ir_func *f, pass_ctx *ctx) {
  const bool *pinned = find_pinned(f, ctx->scratch);
  ir_tensor *instead = ARENA_ARRAY(ctx->scratch, f->tensors.len, ir_tensor);
  table seen;
  table_init(&seen, ctx->scratch);
  uint32_t kept = 0;
  for (uint32_t i = 0; i < f->order.len; i++) {
    ir_op o = f->order.data[i];
    ir_op_data *op = ir_op_at(f, o);
    redirect(f, op, instead);
    op_key key = {f, op};
    uint64_t hash = op_hash(op);
    ir_op first = {table_find(&seen, hash, same_op, &key)};
    bool unique = pinned[op->result.id] || op->code == IR_OP_UNIFORM;
    if (first.id && !unique) {
      instead[op->result.id] = ir_op_at(f, first)->result;
      continue;
    }
    if (!first.id) table_add(&seen, hash, o.id);
    f->order.data[kept++] = o;
  }
  ctx->changed = kept < f->order.len;
  f->order.len = kept;
  ir_func_forget_unused(f);
  return STATUS_OK;
}
