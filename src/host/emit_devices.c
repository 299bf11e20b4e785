/* Steps of several devices that need no communication, and partial results. */
#include <math.h>

#include "host/emit.h"
#include "ir/build.h"

ir_scalar emit_me(emitter *e, ir_mesh mesh, uint32_t axis) {
  return ir_host_coordinate(e->h, mesh, axis);
}

ir_scalar emit_device_begin(emitter *e, ir_tensor t, uint32_t dim, uint32_t without) {
  ir_scalars *s = emit_scalars(e);
  const ir_cut *cuts;
  ir_axis dims[IR_MAX_RANK];
  (void)ir_tensor_dims(e->f, t, dims);
  ir_mesh mesh = ir_tensor_at(e->f, t)->mesh;
  ir_scalar begin = ir_scalar_const(s, 0), n = ir_axis_size(e->f, dims[dim]);
  uint32_t count = host_cuts(e->l, t, dim, without, &cuts);
  for (uint32_t i = 0; i < count; i++) {
    ir_scalar me = ir_host_cut_index(e->h, mesh, &cuts[i]);
    begin = ir_scalar_add(s, begin, emit_piece_begin(e, &cuts[i].partition, n, me));
    n = ir_host_part(e->h, mesh, &cuts[i], n);
  }
  return begin;
}

/* ---- absence ---- */

void emit_guard(emitter *e, ir_mesh mesh, host_guard *g) {
  *g = (host_guard){.slices = e->slices.len};
  g->on = e->l->shard && !shard_same_devices(e->h, mesh, e->l->everywhere);
  g->a = ir_scalar_const(emit_scalars(e), 0);
  g->relation = IR_LE;
  if (!g->on) return;
  g->b = emit_me(e, mesh, 0);
  g->before = emit_begin(e, &g->body);
}

void emit_guard_if(emitter *e, ir_scalar a, ir_scalar b, host_guard *g) {
  *g = (host_guard){.on = true, .slices = e->slices.len, .a = a, .relation = IR_EQ, .b = b};
  g->before = emit_begin(e, &g->body);
}

void emit_guard_at_most(emitter *e, ir_scalar a, ir_scalar b, host_guard *g) {
  emit_guard_if(e, a, b, g);
  g->relation = IR_LE;
}

/* if 0 <= me(mesh.x) { body }; slices taken inside are not seen outside. */
void emit_unguard(emitter *e, host_guard *g, loc at) {
  if (!g->on) return;
  emit_end(e, g->before);
  e->slices.len = g->slices;
  ir_instr_data d = {.kind = IR_IF, .at = at, .relation = g->relation, .body = g->body};
  d.why = IR_RULE_MEMBER;
  d.a = g->a;
  d.b = g->b;
  emit_instr(e, &d);
}

/* ---- pieces of what a device holds ---- */

void emit_own_piece(emitter *e, const step *s, ir_tensor from, uint32_t dim, ir_tensor to) {
  const shard_comm *m = s->plan->comm;
  uint32_t k = (uint32_t)m->mesh_axis;
  ir_cut cut = host_cut_along(e->l, s->op->result, k);
  if (host_scatters_slices(s->plan, k)) cut.partition = ir_partition_of_period(&cut.partition);
  piece_copy c = {.whole = from, .part = to, .dim = dim, .partition = cut.partition};
  c.index = ir_host_cut_index(e->h, m->to, &cut);
  c.count = ir_scalar_const(emit_scalars(e), ir_mesh_size(ir_mesh_at(e->h, m->to), k));
  c.at = s->op->at;
  ir_rule before = emit_because(e, IR_RULE_OWN);
  emit_copy_piece(e, &c);
  (void)emit_because(e, before);
}

void emit_slicing(emitter *e, step *s) {
  ir_tensor from = emit_operand(e, s, 0);
  emit_result_buffer(e, s);
  ir_tensor to = emit_destination(e, s->plan, s->plan->axes.len, e->buffer[s->op->result.id]);
  host_guard g;
  /* mutant: dev_slice_of_everybody */
  emit_guard(e, ir_tensor_at(e->f, s->op->result)->mesh, &g);
  uint32_t dropped = host_dropped_dims(e->l, s->op, 0);
  emit_own_piece(e, s, from, emit_renumber((uint32_t)s->plan->comm->from_dim, dropped), to);
  emit_unguard(e, &g, s->op->at);
}

/* ---- partial results ---- */

/* The whole reduction must not be empty, though a device's part of it may be. */
static void require_positions(emitter *e, const step *s) {
  ir_axes axes = ir_tensor_at(e->f, s->op->result)->defined.logical;
  ir_scalar one = ir_scalar_const(emit_scalars(e), 1);
  for (uint32_t i = 0; i < axes.len; i++) {
    if (ir_axis_at(e->f, axes.data[i])->kind != IR_AXIS_REDUCTION) continue;
    ir_scalar n = ir_axis_size(e->f, axes.data[i]);
    if (ir_scalar_le(emit_scalars(e), one, n) == IR_TRUE) continue;
    ir_require(e->h, IR_REQUIRE_LE, one, n, "positions that are reduced", s->op->at);
  }
}

/* part <- op(operands); a maximum of nothing is the neutral element:
 *     if n == 0 { part <- full([...], -inf) } else { part <- amax(x) } */
static void emit_part(emitter *e, step *s, ir_tensor part) {
  ir_scalars *sc = emit_scalars(e);
  ir_scalar n = ir_scalar_const(sc, 1), zero = ir_scalar_const(sc, 0);
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(e->h, s->operands[0], dims);
  ir_fold fold = ir_op_fold(s->op->code);
  ir_instr_data d = emit_compute(e, s, part);
  for (uint32_t i = 0; i < rank; i++) n = ir_scalar_mul(sc, n, ir_axis_size(e->h, dims[i]));
  /* mutant: dev_empty_maximum */
  if (!emit_refuses_nothing(s->op) || ir_scalar_lt(sc, zero, n) == IR_TRUE) {
    emit_instr(e, &d);
    return;
  }
  require_positions(e, s);
  ir_instr_data choice = {.kind = IR_IF, .relation = IR_EQ, .a = n, .b = zero, .at = s->op->at};
  choice.why = IR_RULE_EMPTY;
  ir_number value = ir_fold_start(fold, ir_tensor_at(e->h, part)->dtype);
  ir_instr_data fill = emit_fill_number(e, part, value, s->op->at);
  fill.why = IR_RULE_EMPTY;
  ir_block_add(e->h, &choice.body, ir_host_instr(e->h, &fill));
  ir_block_add(e->h, &choice.otherwise, ir_host_instr(e->h, &d));
  emit_instr(e, &choice);
}

/* A mesh of the same devices, whose last axis is the mesh axes in `axes` together. */
static ir_mesh merged_axes(emitter *e, ir_mesh mesh, uint32_t axes) {
  const ir_mesh_data *m = ir_mesh_at(e->h, mesh);
  int64_t shape[IR_MESH_MAX_RANK], together = 1;
  int64_t *devices = ARENA_ARRAY(&e->l->scratch, (size_t)m->n_devices, int64_t);
  uint32_t rank = 0;
  for (uint32_t k = m->rank; k-- > 0;) {
    if (axes >> k & 1) together *= ir_mesh_size(m, k);
    else if (ir_mesh_size(m, k) > 1) shape[rank++] = ir_mesh_size(m, k);
  }
  shape[rank++] = together;
  for (int64_t i = 0; i < m->n_devices; i++) {
    int64_t line = 0, member = 0;
    for (uint32_t k = m->rank; k-- > 0;) {
      int64_t *at = axes >> k & 1 ? &member : &line;
      *at = *at * ir_mesh_size(m, k) + ir_mesh_coordinate(m, i, k);
    }
    devices[line * together + member] = m->devices[i];
  }
  return emit_mesh(e, shape, rank, devices, m->n_devices);
}

static ir_combine combine_of(const emitter *e, const step *s, ir_tensor part) {
  ir_fold fold = ir_op_fold(s->op->code);
  if (fold == IR_FOLD_NONE)
    fold = IR_FOLD_SUM; /* of what was computed from partial results (sums.c) */
  return ir_fold_combine(fold, ir_tensor_at(e->h, part)->dtype);
}

/* Reduces to all devices along several mesh axes at once, or gives each device its piece along one. */
static void reduce_along(emitter *e, step *s, uint32_t axes, ir_tensor from, ir_tensor to) {
  shard_placement p;
  uint32_t k = (uint32_t)__builtin_ctz(axes);
  (void)emit_because(e, IR_RULE_REDUCE);
  shard_placement_of(e->f, s->op->result, &p);
  comm_call c = {.team = p.mesh, .axis = k, .at = s->op->at};
  if (axes & (axes - 1)) {
    c.team = merged_axes(e, p.mesh, axes);
    c.axis = 0;
  }
  c.combine = combine_of(e, s, from);
  if (p.axes[k].kind != SHARD_SHARDED) {
    c.kind = IR_COMM_ALLREDUCE;
    emit_dense_comm(e, &c, from, to);
    return;
  }
  c.kind = IR_COMM_REDUCE_SCATTER;
  uint32_t dim = emit_renumber(p.axes[k].dim, s->result_dropped);
  pieces scattered = emit_pieces_along(e, s->op->result, k);
  scattered.dim = (int32_t)dim;
  if (host_scatters_slices(s->plan, k))
    scattered.partition = ir_partition_of_period(&scattered.partition);
  emit_pieces_comm(e, &c, from, &scattered, to, &scattered);
}

/* How many devices there are along these mesh axes together. */
static int64_t devices_along(const emitter *e, ir_mesh mesh, uint32_t axes) {
  int64_t n = 1;
  for (; axes; axes &= axes - 1)
    n *= ir_mesh_size(ir_mesh_at(e->h, mesh), (uint32_t)__builtin_ctz(axes));
  return n;
}

/* With more devices, reducing so few bytes takes too many steps at once. */
enum { FEW_DEVICES = 16, MANY_BYTES = 64 * 1024 };

/* Are these parts worth being scattered along the last of the axes, and has their first dimension as many
 * pieces as there are devices along it? */
static bool may_scatter(emitter *e, ir_mesh mesh, uint32_t axes, ir_tensor part) {
  ir_axis dims[IR_MAX_RANK];
  if (!(axes & (axes - 1)) || ir_tensor_dims(e->h, part, dims) == 0) return false;
  const int64_t *usual = ir_module_usual(e->h->module, &e->l->scratch);
  double size = (double)ir_dtype_size_bytes(ir_tensor_at(e->h, part)->dtype);
  bool many = ir_tensor_elements(e->h, part, usual) * size >= MANY_BYTES ||
              devices_along(e, mesh, axes) > FEW_DEVICES;
  ir_scalar n = ir_scalar_const(emit_scalars(e), devices_along(e, mesh, axes & -axes));
  return many && ir_func_divides(e->h, n, ir_axis_size(e->h, dims[0])) == IR_TRUE;
}

/* A buffer for one of n pieces of the first dimension. */
static ir_tensor piece_buffer(emitter *e, ir_tensor part, int64_t n, loc at) {
  ir_axis dims[IR_MAX_RANK];
  ir_scalar sizes[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(e->h, part, dims);
  check(rank > 0);
  for (uint32_t i = 0; i < rank; i++) sizes[i] = ir_axis_size(e->h, dims[i]);
  sizes[0] = ir_scalar_floordiv(emit_scalars(e), sizes[0], ir_scalar_const(emit_scalars(e), n));
  ir_tensor piece = emit_scratch(e, part, sizes, rank);
  (void)emit_because(e, IR_RULE_PART);
  emit_allocation(e, piece, at);
  (void)emit_because(e, IR_RULE_REDUCE);
  return piece;
}

/* Along several mesh axes: many bytes are scattered along the last of them, whose devices are
 * near each other, so that only pieces go along the others. */
static void reduce_along_all(emitter *e, step *s, uint32_t axes, ir_tensor from, ir_tensor to) {
  ir_mesh mesh = ir_tensor_at(e->f, s->op->result)->mesh;
  uint32_t near = (uint32_t)__builtin_ctz(axes), far = axes & (axes - 1);
  int64_t n = devices_along(e, mesh, 1u << near);
  if (!may_scatter(e, mesh, axes, from)) {
    reduce_along(e, s, axes, from, to);
    return;
  }
  (void)emit_because(e, IR_RULE_REDUCE);
  comm_call c = {.team = mesh, .axis = near, .at = s->op->at, .kind = IR_COMM_REDUCE_SCATTER};
  c.combine = combine_of(e, s, from);
  pieces p = {.partition = {.kind = IR_PARTS, .size = ir_scalar_const(emit_scalars(e), n)}};
  ir_tensor part = piece_buffer(e, from, n, c.at), whole = piece_buffer(e, from, n, c.at);
  emit_pieces_comm(e, &c, from, &p, part, &p);
  reduce_along(e, s, far, part, whole);
  c.kind = IR_COMM_ALLGATHER;
  emit_pieces_comm(e, &c, whole, &p, to, &p);
}

/* The mesh axes to reduce along next: those that the result is cut along, each by itself, since
 * less is left for the others then; of cuts of one dimension the outermost comes first. Then all
 * others, if they can be reduced at once. */
static uint32_t next_axes(emitter *e, const step *s, uint32_t left, ir_tensor part) {
  shard_placement p;
  uint32_t scatters = 0;
  shard_placement_of(e->f, s->op->result, &p);
  for (uint32_t k = 0; k < p.rank; k++)
    if ((left >> k & 1) && p.axes[k].kind == SHARD_SHARDED) scatters |= 1u << k;
  for (uint32_t rest = scatters; rest; rest &= rest - 1) {
    uint32_t k = (uint32_t)__builtin_ctz(rest), i = 0;
    const ir_cut *cuts;
    uint32_t n = host_cuts(e->l, s->op->result, p.axes[k].dim, 0, &cuts);
    /* mutant: dev_inner_scatter_first */
    while (i < n && cuts[i].mesh_axis != k && !(left >> cuts[i].mesh_axis & 1)) i++;
    if (i == n || cuts[i].mesh_axis == k) return 1u << k;
  }
  if (scatters) return scatters & -scatters;
  bool at_once =
      devices_along(e, p.mesh, left) <= FEW_DEVICES || may_scatter(e, p.mesh, left, part);
  return at_once ? left : left & -left;
}

/* f16 tolerates about two roundings, so its partial results stay in f32 until they are added up; bf16
 * tolerates eight, and is sent as it is. */
static bool reduces_wide(const emitter *e, const step *s) {
  return !ir_op_picks(s->op->code) && ir_tensor_at(e->f, s->op->result)->dtype == IR_F16;
}

/* A buffer for results that are not yet reduced along the mesh axes in `left`. */
static ir_tensor partial_buffer(emitter *e, const step *s, uint32_t left) {
  const op_plan *plan = s->plan;
  ir_tensor part = emit_clone_without(e, s->op->result, plan, plan->axes.len, left);
  if (reduces_wide(e, s)) ir_tensor_at(e->h, part)->dtype = IR_F32;
  emit_allocation(e, part, s->op->at);
  return part;
}

/* Is it a copy of dense parts? Then the parts of the operand are communicated. */
static bool copies_parts(const emitter *e, const step *s) {
  return s->op->code == IR_OP_SET && emit_is_dense(e, s->operands[0]);
}

/* part <- op(operands);  reduce_scatter per mesh axis that the result is cut along, allreduce
 * along the others; then the bias. */
void emit_partial_results(emitter *e, step *s) {
  const op_plan *plan = s->plan;
  ir_mesh mesh = ir_tensor_at(e->f, s->op->result)->mesh;
  bool wide = reduces_wide(e, s);
  ir_tensor bias = ir_op_has_bias(s->op) ? s->operands[2] : (ir_tensor){0};
  /* mutant: dev_bias_everywhere */
  if (bias.id) s->operands[2] = (ir_tensor){0};
  emit_result_buffer(e, s);
  (void)emit_because(e, IR_RULE_PART);
  bool copies = copies_parts(e, s);
  ir_tensor part = copies ? s->operands[0] : partial_buffer(e, s, plan->partial);
  host_guard g;
  if (!copies) {
    emit_guard(e, mesh, &g);
    emit_convert_operand(e, s, ir_tensor_at(e->h, part)->dtype);
    emit_part(e, s, part);
    emit_unguard(e, &g, s->op->at);
  }
  (void)emit_because(e, IR_RULE_NONE);
  ir_tensor to = emit_destination(e, plan, plan->axes.len, e->buffer[s->op->result.id]);
  for (uint32_t left = plan->partial; left;) {
    uint32_t axes = next_axes(e, s, left, part);
    left &= ~axes;
    if (left || wide) (void)emit_because(e, IR_RULE_PART);
    ir_tensor next = left || wide ? partial_buffer(e, s, left) : to;
    reduce_along_all(e, s, axes, part, next);
    part = next;
  }
  (void)emit_because(e, bias.id ? IR_RULE_BIAS : wide ? IR_RULE_WIDE : IR_RULE_NONE);
  if (!bias.id && !wide) return;
  emit_guard(e, mesh, &g);
  if (bias.id) emit_add_bias(e, part, bias, s->op->at);
  if (wide) emit_cast(e, part, to, s->op->at);
  emit_unguard(e, &g, s->op->at);
  (void)emit_because(e, IR_RULE_NONE);
}
