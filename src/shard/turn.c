/* Operations that are turned: what devices have pieces of is exchanged, so that each gets a piece along another
 * dimension, which the operation leaves as it is, and computes that piece of the result.
 *
 *     y[n, k] = linear(x[n, m mesh.x], w)          =>  y[n mesh.x, k] = linear(x[n mesh.x, m], w)
 *     s[h, q, k] = matmul(a[h, q mesh.x, e], b[h, e, k mesh.x])
 *                                                  =>  s[h mesh.x, q, k], of heads of both
 *     g[n, n] = matmul(x[n mesh.x, m], transpose(x))
 *                                                  =>  partial results of x[n, m mesh.x]
 *
 * An exchange is a part of a gather, one of as many as there are devices. choose.c says which operations are turned. */
#include "shard/internal.h"

typedef struct turning {
  const ir_func *f;
  const ir_op_data *op;
  uint32_t mesh_axis;
  int64_t devices;
} turning;

static bool is_attention(const ir_op_data *op) {
  ir_family family = ir_op_info_of(op->code)->family;
  return family == IR_FAMILY_SDPA || family == IR_FAMILY_SDPA_BACKWARD;
}

bool shard_may_turn(const ir_op_data *op) {
  return op->code == IR_OP_MATMUL || op->code == IR_OP_LINEAR || is_attention(op);
}

bool shard_attention_meets(const ir_func *f, const ir_op_data *op, uint32_t mesh_axis) {
  ir_axis dims[IR_MAX_RANK];
  shard_placement p;
  if (!is_attention(op)) return false;
  for (uint32_t k = 0; k < 3; k++) {
    uint32_t rank = ir_tensor_dims(f, op->operands[k], dims);
    shard_placement_of(f, op->operands[k], &p);
    if (mesh_axis >= p.rank || p.axes[mesh_axis].kind != SHARD_SHARDED) continue;
    if (p.axes[mesh_axis].dim + 2 != rank) return false;
    if (k > 0) return true;
  }
  return false;
}

/* Provably, or as far as that is expected. */
static bool devices_divide(const turning *t, ir_axis a) {
  ir_module *m = t->f->module;
  ir_scalar size = ir_axis_size(t->f, a), devices = ir_scalar_const(&m->scalars, t->devices);
  int64_t n;
  if (ir_module_expects(m, size, &n)) return n > 0 && n % t->devices == 0;
  return ir_func_divides((ir_func *)t->f, devices, size) == IR_TRUE; /* which only notes scalars */
}

/* Is the operand cut along the mesh axis, and how? */
static bool is_cut(const turning *t, uint32_t k, shard_placement *p) {
  ir_tensor x = t->op->operands[k];
  if (!x.id) return false;
  shard_placement_of(t->f, x, p);
  return t->mesh_axis < p->rank && p->axes[t->mesh_axis].kind == SHARD_SHARDED;
}

/* Can operand k be exchanged, so that it is cut where the result's axis `to` is? */
static bool brings(const turning *t, uint32_t k, const shard_placement *p, ir_axis to) {
  ir_pair pairs[IR_MAX_RANK];
  uint32_t n = ir_map_pairs(t->f, t->op, k, pairs);
  for (uint32_t i = 0; i < n; i++) {
    if (!IR_SAME(pairs[i].consumer, to)) continue;
    bool walks = pairs[i].kind == IR_PAIR_EXACT || pairs[i].kind == IR_PAIR_GROUP;
    for (uint32_t j = 0; j < p->rank; j++)
      if (p->axes[j].kind == SHARD_SHARDED && IR_SAME(p->axes[j].logical, pairs[i].producer))
        return false;
    return walks && devices_divide(t, pairs[i].producer);
  }
  return false;
}

/* Is it one of as many ranges of the whole dimension as there are devices? Another dimension is cut likewise then, of
 * whatever length; a split into ranges of n would give another number of them. */
static bool is_one_of_ranges(const turning *t, const shard_axis *a) {
  const ir_axis_data *loop = ir_axis_at(t->f, a->loop);
  if (IR_SAME(a->loop, a->logical)) return true;
  if (!loop->def.id) return false;
  const ir_transform_data *def = ir_transform_at(t->f, loop->def);
  return def->kind == IR_OUTER_SPLIT && IR_SAME(def->in[0], a->logical) &&
         IR_SAME(def->out[0], a->loop);
}

/* All operands that are cut can. */
static bool all_bring(const turning *t, ir_axis to) {
  bool any = false;
  for (uint32_t k = 0; k < t->op->n_operands; k++) {
    shard_placement p;
    if (!is_cut(t, k, &p)) continue;
    const shard_axis *a = &p.axes[t->mesh_axis];
    if (a->swizzled || !is_one_of_ranges(t, a) || !brings(t, k, &p, to)) return false;
    any = true;
  }
  return any;
}

/* In the result's loop domain; none: it is cut already. */
static bool find_loop(const turning *t, ir_axis a, uint32_t *at) {
  ir_axes loop = ir_tensor_at(t->f, t->op->result)->now.loop;
  for (*at = 0; *at < loop.len; ++*at)
    if (IR_SAME(loop.data[*at], a)) return ir_axis_at(t->f, a)->mark.kind == IR_MARK_NONE;
  return false;
}

/* Heads and batches of attention; of a product all dimensions, and at last the one it reduces along. */
static uint32_t candidates(const turning *t, ir_axis *list) {
  const ir_domains *now = &ir_tensor_at(t->f, t->op->result)->now;
  uint32_t n = 0, dims = now->root.len < 2 ? 0 : now->root.len - 2;
  bool attention = is_attention(t->op);
  for (uint32_t i = 0; i < now->root.len; i++) {
    bool reduced = ir_axis_at(t->f, now->root.data[i])->kind == IR_AXIS_REDUCTION;
    if (attention ? i < dims : !reduced) list[n++] = now->root.data[i];
  }
  for (uint32_t i = 0; i < now->root.len && !attention; i++)
    if (ir_axis_at(t->f, now->root.data[i])->kind == IR_AXIS_REDUCTION)
      list[n++] = now->root.data[i];
  return n;
}

bool shard_turn_of(const ir_func *f, const ir_op_data *op, ir_mesh mesh, uint32_t mesh_axis,
                   uint32_t *at) {
  turning t = {f, op, mesh_axis, ir_mesh_size(ir_mesh_at(f, mesh), mesh_axis)};
  ir_axis list[IR_MAX_RANK];
  if (!shard_may_turn(op) || t.devices < 2) return false;
  uint32_t n = candidates(&t, list);
  for (uint32_t i = 0; i < n; i++)
    if (all_bring(&t, list[i]) && find_loop(&t, list[i], at)) return true;
  return false;
}
