/* Sums of partial results: they are added before they are reduced, so that one communication does.
 *
 *   a = matmul(x, v);  b = matmul(y, w);  c = a + b        all three reduced along mesh.x
 *     =>  part of a + part of b on every device, and one allreduce for c */
#include "host/internal.h"

typedef struct uses {
  uint32_t *n; /* by tensor: how often it is read, outputs included */
} uses;

static uses count_uses(const lowering *l, arena *scratch) {
  const ir_func *f = l->f;
  uses u = {ARENA_ARRAY(scratch, f->tensors.len, uint32_t)};
  for (uint32_t i = 0; i < f->order.len; i++) {
    const ir_op_data *op = ir_op_at(f, f->order.data[i]);
    for (uint32_t k = 0; k < op->n_operands; k++) u.n[op->operands[k].id]++;
  }
  for (uint32_t i = 0; i < f->outputs.len; i++) u.n[f->outputs.data[i].id]++;
  return u;
}

/* f16 and bf16 are rounded when they are stored, so that each of them is reduced by itself. */
static bool is_exact_enough(const ir_func *f, ir_tensor t) {
  ir_dtype dtype = ir_tensor_at(f, t)->dtype;
  return dtype != IR_F16 && dtype != IR_BF16;
}

/* Can the parts that devices have of `t` be read by `plan` as they are? */
static bool gives_parts(const lowering *l, const uses *u, ir_tensor t, const op_plan *plan) {
  ir_op o = l->producer[t.id];
  /* mutant: sums_read_twice */
  if (o.id == 0 || u->n[t.id] != 1 || !is_exact_enough(l->f, t)) return false;
  const ir_op_data *op = ir_op_at(l->f, o);
  const op_plan *made = &l->ops[o.id];
  bool biased = op->code == IR_OP_LINEAR && op->operands[2].id;
  bool adds = op->code == IR_OP_ADD || op->code == IR_OP_SUB ||
              (ir_op_fold(op->code) == IR_FOLD_SUM && !biased);
  /* mutant: sums_of_maxima */
  if (!adds || !made->partial || made->axes.len != plan->axes.len) return false;
  for (uint32_t q = 0; q < made->axes.len; q++) {
    if (made->axes.data[q].reduction || made->loop[q] != plan->loop[q]) return false;
    if (made->axes.data[q].scattered) return false; /* each slice is scattered when it is there */
  }
  return true;
}

/* Are all dimensions cut alike on both? */
static bool lies_like(const lowering *l, ir_tensor a, ir_tensor b) {
  ir_axis dims[IR_MAX_RANK], others[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(l->f, a, dims);
  const ir_tensor_data *x = ir_tensor_at(l->f, a), *y = ir_tensor_at(l->f, b);
  if (rank != ir_tensor_dims(l->f, b, others) || !IR_SAME(x->mesh, y->mesh)) return false;
  for (uint32_t d = 0; d < rank; d++) {
    const ir_cut *mine, *theirs;
    uint32_t n = host_cuts(l, a, d, 0, &mine);
    if (ir_func_equal(l->f, ir_axis_size(l->f, dims[d]), ir_axis_size(l->f, others[d])) != IR_TRUE)
      return false;
    if (n != host_cuts(l, b, d, 0, &theirs)) return false;
    for (uint32_t i = 0; i < n; i++) {
      if (mine[i].mesh_axis != theirs[i].mesh_axis || mine[i].turn != theirs[i].turn ||
          !host_same_partition(&mine[i].partition, &theirs[i].partition))
        return false;
    }
  }
  return true;
}

static void add_parts(lowering *l, const uses *u, ir_op o) {
  const ir_op_data *op = ir_op_at(l->f, o);
  op_plan *plan = &l->ops[o.id];
  bool sum = op->code == IR_OP_ADD || op->code == IR_OP_SUB;
  if (!sum || plan->kind != STEP_COMPUTES || !is_exact_enough(l->f, op->result)) return;
  op_plan *made[2];
  for (uint32_t k = 0; k < 2; k++) {
    if (!gives_parts(l, u, op->operands[k], plan) || !lies_like(l, op->operands[k], op->result))
      return;
    made[k] = &l->ops[l->producer[op->operands[k].id].id];
  }
  if (made[0]->partial != made[1]->partial) return;
  plan->partial = made[0]->partial;
  made[0]->unreduced = made[1]->unreduced = true;
}

void host_add_parts(lowering *l) {
  if (!l->shard) return;
  uses u = count_uses(l, &l->scratch);
  for (uint32_t i = 0; i < l->f->order.len; i++) add_parts(l, &u, l->f->order.data[i]);
}
