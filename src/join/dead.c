/* Operations that write what nothing reads any more, because every reader computes it for itself. */
#include "join/internal.h"

typedef struct sweep {
  ir_func *h;
  ir_tensor *root;
  uint32_t *reads;    /* by tensor id, of roots */
  bool *is_allocated; /* by tensor id */
  bool changed;
} sweep;

static void count_op(sweep *s, const ir_instr_data *d, uint32_t by) {
  const ir_op_data *op = ir_op_at(s->h, d->op);
  for (uint32_t k = 0; k < op->n_operands; k++) s->reads[s->root[op->operands[k].id].id] += by;
}

/* An operation has its first results, whichever are read; so all of them stay. */
static void keep_results(sweep *s, const ir_instr_data *d) {
  const ir_op_data *op = ir_op_at(s->h, d->op);
  for (uint32_t k = 0; op->n_more && k < ir_op_n_results(op); k++)
    s->reads[s->root[ir_op_result(op, k).id].id]++;
}

static void note(void *context, ir_func *h, ir_instr i, uint32_t depth) {
  sweep *s = context;
  const ir_instr_data *d = ir_instr_at(h, i);
  (void)depth;
  if (d->kind == IR_ALLOCATE) s->is_allocated[d->tensor.id] = true;
  if (d->kind == IR_SELECT || d->kind == IR_SHARD) {
    s->root[d->tensor.id] = s->root[d->from.id];
    s->reads[s->root[d->from.id].id]++;
  }
  if (d->kind == IR_VIEW) s->root[d->tensor.id] = s->root[ir_op_at(h, d->op)->operands[0].id];
  if (d->kind == IR_COMPUTE || d->kind == IR_LAUNCH) count_op(s, d, 1);
  if (d->kind == IR_COMPUTE) keep_results(s, d);
  if (d->kind == IR_COMMUNICATE && d->from.id) s->reads[s->root[d->from.id].id]++;
  if (d->kind == IR_COMMUNICATE && d->tensor.id) s->reads[s->root[d->tensor.id].id]++;
}

static bool is_dead(const sweep *s, ir_tensor t) {
  ir_tensor root = s->root[t.id];
  return s->is_allocated[root.id] && s->reads[root.id] == 0;
}

static bool writes_dead(const sweep *s, const ir_instr_data *d) {
  const ir_op_data *op = ir_op_at(s->h, d->op);
  for (uint32_t k = 0; k < ir_op_n_results(op); k++) {
    if (!is_dead(s, ir_op_result(op, k))) return false;
  }
  return true;
}

/* ---- kernels with some results that nothing reads ---- */
static bool is_used(const sweep *s, const ir_instr_data *d, uint32_t n_returns, uint32_t step) {
  ir_tensor t = ir_instr_at(s->h, d->body.data[step])->tensor;
  for (uint32_t k = 0; k < n_returns; k++) {
    if (IR_SAME(d->returns[k], t)) return true;
  }
  for (uint32_t i = step + 1; i < d->body.len; i++) {
    const ir_op_data *op = ir_op_at(s->h, ir_instr_at(s->h, d->body.data[i])->op);
    for (uint32_t k = 0; k < op->n_operands; k++) {
      if (IR_SAME(op->operands[k], t)) return true;
    }
  }
  return false;
}

static void drop_results(sweep *s, ir_instr at, arena *scratch) {
  ir_instr_data d = *ir_instr_at(s->h, at);
  const ir_op_data op = *ir_op_at(s->h, d.op);
  uint32_t n = ir_op_n_results(&op), kept = 0;
  ir_tensor *results = ARENA_ARRAY(scratch, n, ir_tensor);
  ir_tensor *returns = ARENA_ARRAY(&s->h->module->memory, n, ir_tensor);
  for (uint32_t k = 0; k < n; k++) {
    if (is_dead(s, ir_op_result(&op, k))) continue;
    results[kept] = ir_op_result(&op, k);
    returns[kept++] = d.returns[k];
  }
  if (kept == n) return;
  d.returns = returns;
  for (uint32_t i = d.body.len; i-- > 0;) {
    if (is_used(s, &d, kept, i)) continue;
    for (uint32_t k = i; k + 1 < d.body.len; k++) d.body.data[k] = d.body.data[k + 1];
    d.body.len--;
  }
  d.tensor = results[0];
  d.op = ir_host_launch_op(s->h, op.operands, op.n_operands, results, kept, d.at);
  *ir_instr_at(s->h, at) = d;
}

/* ---- blocks ---- */
/* From the end, since what an operation that is removed read may then be unused too. */
static void mark(sweep *s, const ir_block *block, bool *out) {
  for (uint32_t i = block->len; i-- > 0;) {
    const ir_instr_data *d = ir_instr_at(s->h, block->data[i]);
    bool op = d->kind == IR_COMPUTE || d->kind == IR_LAUNCH;
    out[i] = op && writes_dead(s, d);
    if (out[i]) count_op(s, d, UINT32_MAX);
  }
  for (uint32_t i = 0; i < block->len; i++) {
    const ir_instr_data *d = ir_instr_at(s->h, block->data[i]);
    bool names = d->kind == IR_ALLOCATE || d->kind == IR_DEALLOCATE || d->kind == IR_VIEW;
    if (names && is_dead(s, d->tensor)) out[i] = true;
  }
}

static void sweep_block(sweep *s, ir_block *block, arena *scratch) {
  bool *out = ARENA_ARRAY(scratch, block->len, bool);
  mark(s, block, out);
  uint32_t kept = 0;
  for (uint32_t i = 0; i < block->len; i++) {
    if (out[i]) continue;
    if (ir_instr_at(s->h, block->data[i])->kind == IR_LAUNCH)
      drop_results(s, block->data[i], scratch);
    ir_instr_data *d = ir_instr_at(s->h, block->data[i]);
    if (d->kind == IR_FOR || d->kind == IR_IF) {
      sweep_block(s, &d->body, scratch);
      sweep_block(s, &d->otherwise, scratch);
    }
    block->data[kept++] = block->data[i];
  }
  block->len = kept;
}

void join_remove_dead(ir_func *h, arena *scratch) {
  sweep s = {.h = h};
  s.root = ARENA_ARRAY(scratch, h->tensors.len, ir_tensor);
  s.reads = ARENA_ARRAY(scratch, h->tensors.len, uint32_t);
  s.is_allocated = ARENA_ARRAY(scratch, h->tensors.len, bool);
  for (uint32_t i = 0; i < h->tensors.len; i++) s.root[i] = (ir_tensor){i};
  ir_host_walk(h, note, &s);
  for (uint32_t i = 0; i < h->outputs.len; i++) s.reads[h->outputs.data[i].id]++;
  sweep_block(&s, &h->host->body, scratch);
}
