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
    if (!a->contiguous)
      return refuse(l, t, "lies inside an axis that is not placed: not lowered yet");
  }
  return true;
}

bool host_check_inputs(lowering *l) {
  bool ok = true;
  for (uint32_t i = 0; l->shard && i < l->f->inputs.len; i++) {
    ok = check_placement(l, l->f->inputs.data[i]) && ok;
  }
  return ok;
}

bool host_needs_device_offset(const lowering *l, const ir_op_data *op, uint32_t dim) {
  ir_cut cuts[IR_MESH_MAX_RANK];
  stream_axis cut = {.dim = dim};
  if (host_cuts(l, op->result, dim, 0, cuts) == 0) return false;
  return op->code != IR_OP_RESHAPE && host_needs_offset(l, op, &cut);
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
    if (resized && host_cuts(l, op->result, d, 0, cuts) &&
        host_cuts(l, op->operands[0], d, 0, cuts))
      return refuse(l, op->result, "is the one that is sliced or padded: not lowered yet");
  }
  return true;
}

static void plan_move(lowering *l, const ir_op_data *op, op_plan *plan) {
  ir_family family = ir_op_info_of(op->code)->family;
  bool may_move = family == IR_FAMILY_SET || family == IR_FAMILY_REDUCE;
  shard_comm *m = ARENA_NEW(&l->scratch, shard_comm);
  if (!may_move || shard_comm_of(l->shard, op, m) != SHARD_ONE || m->kind == SHARD_NONE) return;
  plan->comm = m;
  plan->kind = m->kind == SHARD_LOCAL_SLICE ? STEP_SLICES : STEP_MOVES;
  if (!m->by_iteration || host_piece_level(plan) >= 0) return;
  m->by_iteration = false; /* the stream that goes over the pieces lies inside another cut */
  m->kind = SHARD_ALLGATHER;
}

/* The result's dimension that comes from dimension `dim` of the operand; -1: none. */
static int32_t image_of(const lowering *l, const ir_op_data *op, int32_t dim) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(l->f, op->result, dims), found;
  bool stretched;
  for (uint32_t d = 0; dim >= 0 && d < rank; d++) {
    stream_axis a = {.dim = d};
    bool maps = host_operand_dim(l, op, 0, &a, &found, &stretched);
    if (maps && (int32_t)found == dim) return (int32_t)d;
  }
  return -1;
}

/* Does the move, or the reduction of partial results, take the dimension apart or put it together? A
 * stream along it then has no slices of its own, but for the pieces themselves. */
static bool is_recut(const lowering *l, const ir_op_data *op, const op_plan *plan, uint32_t dim) {
  ir_cut all[IR_MESH_MAX_RANK], kept[IR_MESH_MAX_RANK];
  if (plan->kind == STEP_COMPUTES) {
    return host_cuts(l, op->result, dim, 0, all) !=
           host_cuts(l, op->result, dim, plan->partial, kept);
  }
  const shard_comm *m = plan->comm;
  if (m->mesh_axis < 0) return false;
  bool scatters = m->after.axes[m->mesh_axis].kind == SHARD_SHARDED;
  if (scatters && m->after.axes[m->mesh_axis].dim == dim) return true;
  bool gathers =
      m->before.axes[m->mesh_axis].kind == SHARD_SHARDED && m->reduce == SHARD_REDUCE_NONE;
  return gathers && image_of(l, op, (int32_t)m->before.axes[m->mesh_axis].dim) == (int32_t)dim;
}

void host_drop_recut_streams(const lowering *l, const ir_op_data *op, op_plan *plan) {
  uint32_t kept = 0;
  if (!l->shard) return;
  for (uint32_t q = 0; q < plan->axes.len; q++) {
    const stream_axis *a = &plan->axes.data[q];
    bool pieces = host_piece_level(plan) == (int32_t)q;
    bool moves = plan->kind != STEP_COMPUTES;
    bool recut = a->reduction ? moves || plan->partial : is_recut(l, op, plan, a->dim);
    plan->by_pieces = plan->by_pieces || (recut && moves);
    if (!recut || pieces) plan->axes.data[kept++] = *a;
  }
  plan->axes.len = kept;
}

/* Is an axis reduced that repeats one position? It is the same everywhere, and not cut. */
static bool reduces_repeated(const lowering *l, const ir_op_data *op, uint32_t k) {
  ir_pair pairs[IR_MAX_RANK];
  uint32_t n = ir_map_pairs(l->f, op, k, pairs);
  for (uint32_t i = 0; i < n; i++) {
    bool reduced = ir_axis_at(l->f, pairs[i].consumer)->kind == IR_AXIS_REDUCTION;
    if (reduced && ir_axis_at(l->f, pairs[i].producer)->expanded.id) return true;
  }
  return false;
}

/* Are operands cut along mesh axis k, and with them the reduction? */
static bool is_cut_for(const lowering *l, const ir_op_data *op, uint32_t k) {
  shard_placement p;
  bool any = false;
  for (uint32_t i = 0; i < op->n_operands; i++) {
    if (op->operands[i].id == 0) continue;
    shard_placement_of(l->f, op->operands[i], &p);
    bool cut = k < p.rank && p.axes[k].kind == SHARD_SHARDED;
    if (!cut && reduces_repeated(l, op, i)) return false;
    any = any || cut;
  }
  return any;
}

bool host_plan_devices(lowering *l, const ir_op_data *op, op_plan *plan) {
  if (!l->shard) return true;
  if (!check_placement(l, op->result) || !check_resized(l, op)) return false;
  plan_move(l, op, plan);
  if (plan->kind != STEP_COMPUTES) return true;
  shard_placement p;
  shard_placement_of(l->f, op->result, &p);
  for (uint32_t k = 0; k < p.rank; k++) {
    if (!p.axes[k].reduced.id || ir_mesh_size(ir_mesh_at(l->f, p.mesh), k) <= 1) continue;
    if (!is_cut_for(l, op, k))
      return refuse(l, op->result, "is a reduction of what repeats itself: not lowered yet");
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

static bool is_whole(const shard_comm *m, bool after) {
  const shard_axis *a = after ? &m->after.axes[m->mesh_axis] : &m->before.axes[m->mesh_axis];
  return a->kind == SHARD_SHARDED && a->cut == SHARD_WHOLE;
}

/* Which level of the operand's loops goes over dimension `dim`, one position at a time. */
static int32_t level_over(const op_plan *made, int32_t dim) {
  for (uint32_t q = 0; q < made->axes.len; q++) {
    const stream_axis *a = &made->axes.data[q];
    if (a->logical && !a->reduction && !a->swizzled && (int32_t)a->dim == dim) return (int32_t)q;
  }
  return -1;
}

bool host_join_pieces(const lowering *l, const ir_op_data *op, op_plan *plan, const op_plan *made) {
  const shard_comm *m = plan->comm;
  host_pipeline form = l->options->pipeline;
  if (plan->kind != STEP_MOVES || !plan->by_pieces || m->mesh_axis < 0) return false;
  bool exchanges = m->kind == SHARD_ALL_TO_ALL && is_whole(m, false) && is_whole(m, true) &&
                   shard_same_coordinates(l->f, m->from, m->to, (uint32_t)m->mesh_axis) &&
                   form != HOST_COLLECTIVE && form != HOST_BROADCAST;
  bool reduces = m->kind == SHARD_REDUCE_SCATTER && is_whole(m, true);
  if (op->code != IR_OP_SET && exchanges) return false;
  if ((!exchanges && !reduces) || plan->axes.len > 0) return false;
  if (level_over(made, exchanges ? m->to_dim : m->from_dim) != 0 || made->axes.len != 1)
    return false;
  plan->kind = exchanges ? STEP_EXCHANGES : STEP_REDUCES;
  plan->axes.data[0] = made->axes.data[0];
  plan->axes.data[0].dim = (uint32_t)(exchanges ? m->from_dim : m->to_dim);
  plan->axes.len = 1;
  return true;
}
