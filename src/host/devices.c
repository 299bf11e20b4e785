/* Placements as the emitter needs them: which part of a dimension a device holds. */
#include "host/internal.h"

ir_partition host_partition_of(const lowering *l, const shard_axis *a) {
  ir_scalars *s = &l->f->module->scalars;
  if (a->cut == SHARD_WHOLE) return (ir_partition){.kind = IR_CHUNK, .size = ir_scalar_const(s, 1)};
  if (a->cut == SHARD_CHUNKS) {
    return (ir_partition){.kind = IR_CHUNKS, .chunks = a->chunks, .n_chunks = a->n_chunks};
  }
  const ir_transform_data *t = ir_transform_at(l->f, ir_axis_at(l->f, a->loop)->def);
  return (ir_partition){.kind = t->kind == IR_SPLIT ? IR_CHUNK : IR_PARTS, .size = t->factor};
}

/* How many transforms lie between an axis and its logical one: of two cuts of one dimension, the one
 * further down cuts what the other leaves. */
static uint32_t depth_of(const ir_func *f, ir_axis a) {
  uint32_t n = 0;
  for (ir_transform def = ir_axis_at(f, a)->def; def.id; n++) {
    def = ir_axis_at(f, ir_transform_at(f, def)->in[0])->def;
  }
  return n;
}

uint32_t host_cuts(const lowering *l, ir_tensor t, uint32_t dim, uint32_t without,
                   ir_cut cuts[IR_MESH_MAX_RANK]) {
  shard_placement p;
  uint32_t n = 0, depths[IR_MESH_MAX_RANK];
  if (!l->shard) return 0;
  shard_placement_of(l->f, t, &p);
  for (uint32_t k = 0; k < p.rank; k++) {
    if (p.axes[k].kind != SHARD_SHARDED || p.axes[k].dim != dim || (without >> k & 1)) continue;
    uint32_t depth = depth_of(l->f, p.axes[k].loop), at = n++;
    for (; at > 0 && depths[at - 1] > depth; at--) {
      depths[at] = depths[at - 1];
      cuts[at] = cuts[at - 1];
    }
    depths[at] = depth;
    cuts[at] = (ir_cut){k, host_partition_of(l, &p.axes[k])};
  }
  return n;
}

static bool refuse(lowering *l, ir_tensor t, const char *why) {
  diag_error(&l->f->module->errors, ir_tensor_at(l->f, t)->at, "the device axis of '%s' %s",
             ir_tensor_name(l->f, t), why);
  return false;
}

/* Is the marked axis a part of what a stream axis leaves? A device then holds a piece of each slice. */
static bool inside_stream(const ir_func *f, ir_axis a) {
  for (ir_transform def = ir_axis_at(f, a)->def; def.id;) {
    const ir_transform_data *t = ir_transform_at(f, def);
    bool inner = t->out[1].id && IR_SAME(t->out[1], a);
    if (inner && ir_axis_at(f, t->out[0])->mark.kind == IR_MARK_STREAM) return true;
    a = t->in[0];
    def = ir_axis_at(f, a)->def;
  }
  return false;
}

static bool check_placement(lowering *l, ir_tensor t) {
  shard_placement p;
  shard_placement_of(l->f, t, &p);
  for (uint32_t k = 0; k < p.rank; k++) {
    const shard_axis *a = &p.axes[k];
    if (a->kind == SHARD_REPLICATED) continue;
    if (a->cut == SHARD_INNER) return refuse(l, t, "is the inner part of a split: not lowered yet");
    if (a->cut == SHARD_MERGED) return refuse(l, t, "comes from merged axes: not lowered yet");
    if (a->swizzled) return refuse(l, t, "is swizzled: not lowered yet");
    if (inside_stream(l->f, a->loop))
      return refuse(l, t, "lies inside a stream axis of the same dimension: not lowered yet");
  }
  return true;
}

bool host_needs_device_offset(const lowering *l, const ir_op_data *op, uint32_t dim) {
  ir_cut cuts[IR_MESH_MAX_RANK];
  ir_axis dims[IR_MAX_RANK];
  if (host_cuts(l, op->result, dim, 0, cuts) == 0) return false;
  if (op->code == IR_OP_IOTA || op->code == IR_OP_UNIFORM) return true;
  bool rows = dim + 2 == ir_tensor_dims(l->f, op->result, dims);
  return op->code == IR_OP_SDPA && rows && ir_op_attr(op, "causal")->i != 0;
}

/* The result of a slice or pad along a cut dimension is no slice or pad of the device's part. */
static bool check_resized(lowering *l, const ir_op_data *op) {
  ir_family family = ir_op_info_of(op->code)->family;
  ir_axis dims[IR_MAX_RANK];
  if (family != IR_FAMILY_SLICE && family != IR_FAMILY_PAD) return true;
  uint32_t rank = ir_tensor_dims(l->f, op->result, dims);
  for (uint32_t d = 0; d < rank; d++) {
    ir_cut cuts[IR_MESH_MAX_RANK];
    ir_transform def = ir_axis_at(l->f, dims[d])->def;
    bool resized = def.id && ir_transform_at(l->f, def)->kind == IR_RESIZE;
    if (resized && host_cuts(l, op->result, d, 0, cuts))
      return refuse(l, op->result, "is the one that is sliced or padded: not lowered yet");
  }
  return true;
}

static void plan_move(lowering *l, const ir_op_data *op, op_plan *plan) {
  ir_family family = ir_op_info_of(op->code)->family;
  bool may_move =
      family == IR_FAMILY_SET || family == IR_FAMILY_SQUEEZE || family == IR_FAMILY_REDUCE;
  shard_comm *m = ARENA_NEW(&l->scratch, shard_comm);
  if (!may_move || shard_comm_of(l->shard, op, m) != SHARD_ONE || m->kind == SHARD_NONE) return;
  plan->comm = m;
  plan->kind = m->kind == SHARD_LOCAL_SLICE ? STEP_SLICES : STEP_MOVES;
}

bool host_plan_devices(lowering *l, const ir_op_data *op, op_plan *plan) {
  if (!l->shard) return true;
  if (!check_placement(l, op->result) || !check_resized(l, op)) return false;
  plan_move(l, op, plan);
  if (plan->kind != STEP_COMPUTES) return true;
  shard_placement p;
  shard_placement_of(l->f, op->result, &p);
  for (uint32_t k = 0; k < p.rank; k++) {
    if (p.axes[k].reduced.id && ir_mesh_size(ir_mesh_at(l->f, p.mesh), k) > 1)
      plan->partial |= 1u << k;
  }
  return true;
}

int32_t host_piece_level(const op_plan *plan) {
  if (plan->kind != STEP_MOVES || !plan->comm->by_iteration) return -1;
  for (uint32_t q = 0; q < plan->axes.len; q++) {
    const stream_axis *a = &plan->axes.data[q];
    if (!a->reduction && (int32_t)a->dim == plan->comm->to_dim && a->depth == 0) return (int32_t)q;
  }
  return -1;
}
