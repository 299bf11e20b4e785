/* Can an operation compute its local part from what every device holds? */
#include "shard/internal.h"

/* The loop axis of the result that says which piece of the operands a device needs along mesh axis k:
 * a marked reduction cuts the operands, and what the result is cut along is then taken care of by the
 * reduction across devices. */
static shard_leaf needed_leaf(shard_view *v, uint32_t k) {
  shard_placement p;
  shard_placement_of(v->c->f, v->to.tensor, &p);
  bool alone = p.mesh.id && ir_mesh_size(ir_mesh_at(v->c->f, p.mesh), k) <= 1;
  if (!p.axes[k].reduced.id || alone) return shard_leaf_of(v, &v->to, k);
  return shard_leaf_at(v, &v->to, p.axes[k].reduced);
}

/* The bias of a linear is added to what is left when the partial results are added up. */
static bool is_bias(const ir_op_data *op, uint32_t operand) {
  return op->code == IR_OP_LINEAR && operand == 2;
}

static bool holds(shard_view *v, uint32_t kept, int64_t device) {
  if (shard_position(v->c, v->from.mesh, device) < 0) return false;
  for (uint32_t k = 0; k < IR_MESH_MAX_RANK; k++) {
    if (!(kept >> k & 1)) continue;
    int64_t a = shard_coordinate(v->c, v->from.mesh, device, k);
    if (a != shard_coordinate(v->c, v->to.mesh, device, k)) return false;
  }
  return true;
}

bool shard_operand_fits(shard_ctx *c, const ir_op_data *op, uint32_t operand) {
  ir_tensor from = op->operands[operand];
  if (from.id == 0 || ir_tensor_at(c->f, from)->kind == IR_TENSOR_CONST) return true;
  shard_view v;
  shard_view_open(c, op, operand, &v);
  uint32_t kept = 0;
  for (uint32_t k = 0; k < shard_view_rank(&v); k++) {
    shard_leaf a = shard_leaf_of(&v, &v.from, k);
    shard_leaf b = is_bias(op, operand) ? shard_leaf_of(&v, &v.to, k) : needed_leaf(&v, k);
    shard_relation r = shard_leaf_compare(c, &a, &b);
    if (r == SHARD_DIFFERENT) return false;
    if (r == SHARD_EQUAL) kept |= 1u << k;
  }
  if (v.from.mesh.id == 0 || v.to.mesh.id == 0 || v.from.coords == v.to.coords) return true;
  const ir_mesh_data *to = ir_mesh_at(c->f, v.to.mesh);
  for (int64_t i = 0; i < to->n_devices; i++) {
    if (!holds(&v, kept, to->devices[i])) return false;
  }
  return true;
}

bool shard_fits(shard_ctx *c, const ir_op_data *op) {
  for (uint32_t k = 0; k < op->n_operands; k++) {
    if (!shard_operand_fits(c, op, k)) return false;
  }
  return true;
}
