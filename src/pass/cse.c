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
  if (a->code != b->code || a->n_operands != b->n_operands || a->n_more > b->n_more) return false;
  if (memcmp(a->operands, b->operands, a->n_operands * sizeof *a->operands) != 0) return false;
  for (uint32_t i = 0; i < ir_op_info_of(a->code)->n_attrs; i++) {
    if (!same_attr(&a->attrs[i], &b->attrs[i])) return false;
  }
  return true;
}

static uint64_t op_hash(const ir_op_data *op) {
  return hash_mix(hash_bytes(op->operands, op->n_operands * sizeof *op->operands), op->code);
}

/* Outputs, and what the schedule names. */
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

static bool is_unique(const ir_op_data *op, const bool *pinned) {
  bool unique = op->code == IR_OP_UNIFORM;
  /* mutant: cse_of_pinned */
  for (uint32_t k = 0; k < ir_op_n_results(op); k++)
    unique = unique || pinned[ir_op_result(op, k).id];
  return unique;
}

/* The operation that computes the same, which comes before; none: this is the first. */
static ir_op find_same(const ir_func *f, table *seen, ir_op o) {
  const ir_op_data *op = ir_op_at(f, o);
  op_key key = {f, op};
  uint64_t hash = op_hash(op);
  ir_op first = {table_find(seen, hash, same_op, &key)};
  if (!first.id) table_add(seen, hash, o.id);
  return first;
}

/* Is there anything to do? The schedule stays applied unless there is. */
static bool has_repeats(const ir_func *f, const bool *pinned, arena *scratch) {
  table seen;
  table_init(&seen, scratch);
  for (uint32_t i = 0; i < f->order.len; i++) {
    ir_op first = find_same(f, &seen, f->order.data[i]);
    if (first.id && !is_unique(ir_op_at(f, f->order.data[i]), pinned)) return true;
  }
  return false;
}

/* Notes that the results of `first` take the place of those of `op`. */
static void replace(ir_func *f, const ir_op_data *op, const ir_op_data *first, ir_tensor *instead) {
  for (uint32_t k = 0; k < ir_op_n_results(op); k++) {
    ir_tensor was = ir_op_result(op, k), is = ir_op_result(first, k);
    instead[was.id] = is;
    ir_removed removed = {ir_tensor_at(f, was)->name, IR_RULE_SAME, ir_tensor_at(f, is)->name};
    vec_push(&f->module->memory, &f->removed, removed);
  }
}

status pass_cse(ir_func *f, pass_ctx *ctx) {
  const bool *pinned = find_pinned(f, ctx->scratch);
  if (!has_repeats(f, pinned, ctx->scratch)) return STATUS_OK;
  ir_func_unschedule(f);
  ir_tensor *instead = ARENA_ARRAY(ctx->scratch, f->tensors.len, ir_tensor);
  table seen;
  table_init(&seen, ctx->scratch);
  uint32_t kept = 0;
  bool stated = false;
  for (uint32_t i = 0; i < f->order.len; i++) {
    ir_op o = f->order.data[i];
    ir_op_data *op = ir_op_at(f, o);
    ir_op_redirect(f, op, instead);
    ir_op first = find_same(f, &seen, o);
    if (first.id && !is_unique(op, pinned)) {
      stated = stated || ir_tensor_at(f, op->result)->stated; /* which asserts more */
      replace(f, op, ir_op_at(f, first), instead);
    } else {
      f->order.data[kept++] = o;
    }
  }
  f->order.len = kept;
  ctx->changed = true;
  if (stated) ir_func_forget_unused(f);
  else ir_func_forget_repeated(f);
  return STATUS_OK;
}
