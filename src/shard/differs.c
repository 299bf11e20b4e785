/* Does data have to move? */
#include "shard/internal.h"

/* Do the coordinates along all kept axes agree? Both devices are in their meshes. */
static bool holds_kept(shard_view *v, uint32_t kept, int64_t from, int64_t to) {
  for (uint32_t k = 0; k < IR_MESH_MAX_RANK; k++) {
    if (!(kept >> k & 1)) continue;
    int64_t a = shard_coordinate(v->c, v->from.mesh, from, k);
    if (a != shard_coordinate(v->c, v->to.mesh, to, k)) return false;
  }
  return true;
}

/* Can `device`, which the operand's mesh lacks, get its data from a neighbour along axis k? */
static bool along(shard_view *v, uint32_t kept, int64_t device, uint32_t k) {
  int64_t n = ir_mesh_size(ir_mesh_at(v->c->f, v->to.mesh), k);
  for (int64_t i = 0; i < n; i++) {
    int64_t other = shard_neighbour(v->c, v->to.mesh, device, k, i);
    bool there = shard_position(v->c, v->from.mesh, other) >= 0;
    if (there && holds_kept(v, kept & ~(1u << k), other, device)) return true;
  }
  return false;
}

/* A device without the data names the axes along which a neighbour has it, or else all of them. */
static bool missing_names(shard_view *v, uint32_t kept, int64_t device, uint32_t k) {
  if (along(v, kept, device, k)) return true;
  for (uint32_t other = 0; other < shard_view_rank(v); other++) {
    if (along(v, kept, device, other)) return false;
  }
  return true;
}

static bool mesh_differs(shard_view *v, uint32_t kept, uint32_t k) {
  const ir_mesh_data *to = ir_mesh_at(v->c->f, v->to.mesh);
  for (int64_t i = 0; i < to->n_devices; i++) {
    int64_t device = to->devices[i];
    bool there = shard_position(v->c, v->from.mesh, device) >= 0;
    bool moved = there && !holds_kept(v, kept & 1u << k, device, device);
    if (moved || (!there && missing_names(v, kept, device, k))) return true;
  }
  return false;
}

bool shard_differs(shard_ctx *c, const ir_op_data *op, uint32_t operand, uint32_t mesh_axis) {
  ir_tensor from = op->operands[operand];
  if (from.id == 0 || ir_tensor_at(c->f, from)->kind == IR_TENSOR_CONST) return false;
  shard_view v;
  shard_view_open(c, op, operand, &v);
  if (mesh_axis >= shard_view_rank(&v)) return false;
  if (shard_relate(&v, mesh_axis) == SHARD_DIFFERENT) return true;
  if (v.from.mesh.id == 0 || v.to.mesh.id == 0 || v.from.coords == v.to.coords) return false;
  return mesh_differs(&v, shard_view_changes(&v).kept, mesh_axis);
}

static uint32_t mesh_rank(const ir_func *f, ir_tensor t) {
  ir_mesh m = t.id ? ir_tensor_at(f, t)->mesh : (ir_mesh){0};
  return m.id ? ir_mesh_at(f, m)->rank : 0;
}

bool shard_is_resharding(shard_ctx *c, const ir_op_data *op) {
  for (uint32_t i = 0; i < op->n_operands; i++) {
    uint32_t a = mesh_rank(c->f, op->operands[i]), b = mesh_rank(c->f, op->result);
    for (uint32_t k = 0; k < (a > b ? a : b); k++) {
      if (shard_differs(c, op, i, k)) return true;
    }
  }
  return false;
}
