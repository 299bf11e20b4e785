/* Placements as the emitter needs them: which part of a dimension a device holds. */
#include "host/internal.h"

static bool refuse(lowering *l, ir_tensor t, const char *why) {
  diag_error(&l->f->module->errors, ir_tensor_at(l->f, t)->at, "the device axis of '%s' %s",
             ir_tensor_name(l->f, t), why);
  return false;
}

/* Two axes that are turned by each other's coordinates do not take all pairs of pieces. */
static bool turns_in_a_circle(const shard_placement *p, uint32_t k) {
  uint32_t at = k;
  for (uint32_t i = 0; i < p->rank; i++) {
    if (at >= p->rank || p->axes[at].kind != SHARD_SHARDED || !p->axes[at].swizzled) return false;
    at = p->axes[at].swizzle_axis;
    if (at == k) return true;
  }
  return false;
}

static bool check_placement(lowering *l, ir_tensor t) {
  shard_placement p;
  shard_placement_of(l->f, t, &p);
  for (uint32_t k = 0; k < p.rank; k++) {
    if (p.axes[k].kind != SHARD_SHARDED) continue;
    if (turns_in_a_circle(&p, k))
      return refuse(l, t,
                    "is swizzled along one that is swizzled along it: some pieces would lie "
                    "nowhere");
    const char *why = host_cuts_problem(l, t, p.axes[k].dim);
    if (why) return refuse(l, t, why);
    /* mutant: merged_rows_unchecked */
    host_require_cuts(l, t, p.axes[k].dim);
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

bool host_resizes_part(const lowering *l, const ir_op_data *op, uint32_t dim) {
  ir_axis dims[IR_MAX_RANK];
  ir_family family = ir_op_info_of(op->code)->family;
  if (!l->shard || (family != IR_FAMILY_SLICE && family != IR_FAMILY_PAD)) return false;
  (void)ir_tensor_dims(l->f, op->result, dims);
  ir_transform def = ir_axis_at(l->f, dims[dim])->def;
  bool resized = def.id && ir_transform_at(l->f, def)->kind == IR_RESIZE;
  return resized && host_cuts(l, op->operands[0], dim, 0, NULL) > 0;
}

bool host_needs_device_offset(const lowering *l, const ir_op_data *op, const op_plan *plan,
                              uint32_t dim) {
  stream_axis cut = {.dim = dim};
  if (host_cuts(l, op->result, dim, plan->partial, NULL) == 0) return false;
  /* mutant: dev_no_offsets */
  return op->code != IR_OP_RESHAPE && !host_resizes_part(l, op, dim) &&
         host_needs_offset(l, op, &cut);
}

static void plan_move(lowering *l, const ir_op_data *op, op_plan *plan) {
  ir_family family = ir_op_info_of(op->code)->family;
  bool may_move = family == IR_FAMILY_SET || family == IR_FAMILY_REDUCE || family == IR_FAMILY_PAD;
  shard_comm found = {0};
  if (!may_move || shard_comm_of(l->shard, op, &found) != SHARD_ONE || found.kind == SHARD_NONE)
    return;
  shard_comm *m = arena_copy(&l->scratch, &found, sizeof found);
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
  if (plan->kind == STEP_COMPUTES) {
    return host_cuts(l, op->result, dim, 0, NULL) !=
           host_cuts(l, op->result, dim, plan->partial, NULL);
  }
  const shard_comm *m = plan->comm;
  if (m->mesh_axis < 0) return false;
  bool scatters = m->after.axes[m->mesh_axis].kind == SHARD_SHARDED;
  if (scatters && m->after.axes[m->mesh_axis].dim == dim) return true;
  bool gathers = m->before.axes[m->mesh_axis].kind == SHARD_SHARDED && !m->reduces;
  return gathers && image_of(l, op, (int32_t)m->before.axes[m->mesh_axis].dim) == (int32_t)dim;
}

/* Does each slice of the stream, and nothing else, have a piece for every device? A slice of a single
 * position has none to give, and may lose its dimension. */
static bool cuts_slices(const lowering *l, const ir_op_data *op, const stream_axis *a,
                        const ir_cut *cut) {
  ir_scalars *s = &l->f->module->scalars;
  ir_axis dims[IR_MAX_RANK];
  const ir_partition *p = &cut->partition;
  int64_t one_position; /* such pieces count as even, but the last slice may have fewer of them */
  if (a->logical || cut->turn || !p->period.id || p->kind != IR_CHUNK ||
      (ir_scalar_is_const(s, p->size, &one_position) && one_position == 1))
    return false;
  (void)ir_tensor_dims(l->f, op->result, dims);
  ir_scalar slice = ir_partition_longest(s, &a->slice, ir_axis_size(l->f, dims[a->dim]));
  ir_scalar one = ir_scalar_const(s, 1);
  /* mutant: slices_of_any_length */
  return ir_func_equal(l->f, p->period, ir_scalar_max(s, slice, one)) == IR_TRUE;
}

/* Is the operand's dimension cut over devices within each slice of the stream, so that each is gathered by
 * itself?
 *     x[stream, mesh.x, n]  =>  x$1[stream, n] */
static bool gathers_slices(const lowering *l, const ir_op_data *op, const op_plan *plan,
                           const stream_axis *a) {
  const shard_comm *m = plan->comm;
  const ir_cut *cuts;
  if (plan->kind != STEP_MOVES || m->kind != SHARD_ALLGATHER || a->reduction || a->swizzled ||
      a->depth || host_cuts(l, op->result, a->dim, 0, NULL))
    return false;
  uint32_t from = m->before.axes[m->mesh_axis].dim;
  if (host_cuts_problem(l, op->operands[0], from)) return false; /* reported elsewhere */
  uint32_t n = host_cuts(l, op->operands[0], from, 0, &cuts);
  return n == 1 && cuts_slices(l, op, a, &cuts[0]);
}

/* Does the communication take apart the dimension that mesh axis k cuts in the result, and no other way?
 */
static bool takes_apart(const lowering *l, const ir_op_data *op, const op_plan *plan, uint32_t k,
                        uint32_t dim) {
  const shard_comm *m = plan->comm;
  if (plan->kind == STEP_COMPUTES) return plan->partial >> k & 1;
  if (m->mesh_axis != (int32_t)k || m->sliced) return false;
  if (m->kind == SHARD_ALL_TO_ALL)
    return shard_same_coordinates(l->f, m->from, m->to, k) &&
           image_of(l, op, m->from_dim) != (int32_t)dim;
  return m->kind == SHARD_REDUCE_SCATTER || m->kind == SHARD_SCATTER ||
         m->kind == SHARD_LOCAL_SLICE;
}

/* Is the result's dimension cut over devices within each slice of the stream, so that each is scattered by
 * itself?
 *     y$1[stream, n]  =>  y[stream, mesh.x, n] */
static bool scatters_slices(const lowering *l, const ir_op_data *op, const op_plan *plan,
                            stream_axis *a) {
  const ir_cut *cuts;
  if (a->reduction || a->swizzled || a->depth || plan->kind == STEP_EXCHANGES) return false;
  if (host_cuts(l, op->result, a->dim, 0, &cuts) != 1) return false;
  if (!cuts_slices(l, op, a, &cuts[0])) return false;
  a->scatter_axis = cuts[0].mesh_axis;
  a->scattered = takes_apart(l, op, plan, cuts[0].mesh_axis, a->dim);
  return a->scattered;
}

/* Does the stream cut the pieces themselves, so that each of them arrives slice by slice?
 *     x[mesh.x, n]  =>  x$1[stream, stream, n / slices] */
static bool cuts_pieces(const op_plan *plan, const stream_axis *a) {
  int32_t q = host_piece_level(plan);
  /* mutant: pieces_uncut */
  return q >= 0 && !a->reduction && !a->swizzled && a->depth == 1 &&
         a->dim == plan->axes.data[q].dim;
}

void host_drop_recut_streams(const lowering *l, const ir_op_data *op, op_plan *plan) {
  uint32_t kept = 0;
  if (!l->shard) return;
  for (uint32_t q = 0; q < plan->axes.len; q++) {
    stream_axis *a = &plan->axes.data[q];
    bool pieces = host_piece_level(plan) == (int32_t)q;
    bool moves = plan->kind != STEP_COMPUTES;
    bool recut = a->reduction ? moves || plan->partial : is_recut(l, op, plan, a->dim);
    /* mutant: slices_never_gathered */
    if (recut && !pieces && gathers_slices(l, op, plan, a)) {
      plan->gathered = true;
      plan->axes.data[kept++] = *a;
      continue;
    }
    pieces = pieces || cuts_pieces(plan, a);
    /* mutant: slices_never_scattered */
    if (recut && !pieces && scatters_slices(l, op, plan, a)) {
      plan->axes.data[kept++] = *a;
      continue;
    }
    plan->by_pieces = plan->by_pieces || (recut && moves);
    if (!recut || pieces) plan->axes.data[kept++] = *a;
  }
  plan->axes.len = kept;
}

/* Drops the streams along dimensions whose slices do not lie within a device's part. */
static void fit_streams(const lowering *l, ir_tensor t, stream_axes *axes) {
  uint32_t unfit = 0, kept = 0;
  for (uint32_t q = 0; q < axes->len; q++) {
    stream_axis *a = &axes->data[q];
    if (!host_fit_stream(l, t, a)) unfit |= 1u << a->dim;
  }
  for (uint32_t q = 0; q < axes->len; q++) {
    const stream_axis *a = &axes->data[q];
    if (a->reduction || !(unfit >> a->dim & 1)) axes->data[kept++] = *a;
  }
  axes->len = kept;
}

bool host_plan_devices(lowering *l, const ir_op_data *op, op_plan *plan) {
  if (!l->shard) return true;
  for (uint32_t k = 0; k < ir_op_n_results(op); k++) {
    if (!check_placement(l, ir_op_result(op, k))) return false;
  }
  fit_streams(l, op->result, &plan->axes);
  plan_move(l, op, plan);
  if (plan->kind != STEP_COMPUTES) return true;
  shard_placement p;
  shard_placement_of(l->f, op->result, &p);
  for (uint32_t k = 0; k < p.rank; k++) {
    if (!p.axes[k].reduced.id || ir_mesh_size(ir_mesh_at(l->f, p.mesh), k) <= 1) continue;
    plan->partial |= 1u << k;
  }
  return true;
}

ir_form host_form_asked(const lowering *l, const ir_op_data *op) {
  ir_axes loop = ir_tensor_at(l->f, op->result)->now.loop;
  for (uint32_t i = 0; i < loop.len; i++) {
    ir_form form = ir_axis_at(l->f, loop.data[i])->mark.form;
    if (form != IR_FORM_NONE) return form;
  }
  return IR_FORM_BROADCAST;
}

int32_t host_piece_level(const op_plan *plan) {
  if (plan->kind != STEP_MOVES || !plan->comm->by_iteration) return -1;
  for (uint32_t q = 0; q < plan->axes.len; q++) {
    const stream_axis *a = &plan->axes.data[q];
    if (a->reduction || a->cut_short || a->depth > 0) continue;
    /* mutant: pieces_by_dimension */
    if (IR_SAME(a->axis, plan->comm->stream)) return (int32_t)q;
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
  if (plan->kind != STEP_MOVES || !plan->by_pieces || m->mesh_axis < 0) return false;
  bool exchanges = m->kind == SHARD_ALL_TO_ALL && is_whole(m, false) && is_whole(m, true) &&
                   shard_same_coordinates(l->f, m->from, m->to, (uint32_t)m->mesh_axis) &&
                   host_form_asked(l, op) != IR_FORM_BROADCAST;
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

bool host_scatters_slices(const op_plan *plan, uint32_t k) {
  for (uint32_t q = 0; q < plan->axes.len; q++) {
    const stream_axis *a = &plan->axes.data[q];
    if (a->scattered && a->scatter_axis == k) return true;
  }
  return false;
}
