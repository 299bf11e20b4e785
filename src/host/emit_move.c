/* Steps that only move data: from the rule that shard/ found to communications. */
#include "host/emit.h"
#include "ir/build.h"

/* ---- the dimensions that pieces are cut from ---- */

static int32_t shown(const emitter *e, const step *s, int32_t dim, bool of_operand) {
  uint32_t dropped = of_operand ? host_dropped_dims(e->l, s->op, 0) : s->result_dropped;
  if (dim < 0) return -1;
  return (int32_t)emit_renumber((uint32_t)dim, dropped);
}

/* The dimension of the operand that dimension `dim` of the result comes from. */
static int32_t preimage(const emitter *e, const step *s, int32_t dim) {
  stream_axis a = {.dim = (uint32_t)dim};
  uint32_t found;
  bool stretched;
  return host_operand_dim(e->l, s->op, 0, &a, &found, &stretched) ? (int32_t)found : -1;
}

static int32_t image(const emitter *e, const step *s, int32_t dim) {
  ir_axis dims[IR_MAX_RANK];
  int32_t rank = (int32_t)ir_tensor_dims(e->f, s->op->result, dims);
  for (int32_t d = 0; d < rank; d++) {
    if (preimage(e, s, d) == dim) return d;
  }
  return -1;
}

/* Does the exchange cut one dimension in another way, or among the same devices in another order? The
 * receiver of a position then does not follow from the sender's place; every device gets everything
 * instead, and takes its new piece. */
static bool recuts(const emitter *e, const step *s) {
  const shard_comm *m = s->plan->comm;
  if (m->kind != SHARD_ALL_TO_ALL) return false;
  /* mutant: dev_recut_exchanged, dev_order_ignored */
  return preimage(e, s, m->to_dim) == m->from_dim ||
         !shard_same_coordinates(e->f, m->from, m->to, (uint32_t)m->mesh_axis);
}

/* The length of the dimension after the cuts outside of the one along mesh axis k; none if there are none.
 * Between meshes a device has other coordinates on either side, and the length of pieces follows from those
 * on the tensor's own mesh. */
static ir_scalar left_for(emitter *e, ir_tensor t, uint32_t dim, uint32_t k) {
  const ir_cut *cuts;
  ir_axis dims[IR_MAX_RANK];
  (void)ir_tensor_dims(e->f, t, dims);
  ir_scalar n = ir_axis_size(e->f, dims[dim]);
  uint32_t count = host_cuts(e->l, t, dim, 0, &cuts), i = 0;
  for (; i < count && cuts[i].mesh_axis != k; i++)
    n = ir_host_part(e->h, ir_tensor_at(e->f, t)->mesh, &cuts[i], n);
  return i ? n : (ir_scalar){0};
}

/* Pieces of operand (p) and result (q). A gather puts together what the operand is cut into, a scatter
 * takes apart what the result is cut into; an exchange does both. */
static void find_pieces(emitter *e, const step *s, pieces *p, pieces *q) {
  const shard_comm *m = s->plan->comm;
  *p = *q = (pieces){.dim = -1};
  if (m->mesh_axis < 0) return;
  bool recut = recuts(e, s), exchanges = m->kind == SHARD_ALL_TO_ALL && !recut;
  bool gathers = m->kind == SHARD_GATHER || m->kind == SHARD_ALLGATHER || recut;
  uint32_t k = (uint32_t)m->mesh_axis;
  bool cut_before = m->before.axes[k].kind == SHARD_SHARDED;
  pieces before = {0}, after = {0};
  if (cut_before) before = emit_pieces_along(e, s->op->operands[0], k);
  if (s->plan->gathered) before.partition = ir_partition_of_period(&before.partition);
  if (!gathers) after = emit_pieces_along(e, s->op->result, k);
  if (host_scatters_slices(s->plan, k)) after.partition = ir_partition_of_period(&after.partition);
  *p = gathers ? before : after;
  *q = gathers || exchanges ? before : after;
  p->dim = shown(e, s, exchanges ? preimage(e, s, m->to_dim) : m->from_dim, true);
  q->dim = shown(e, s, exchanges || gathers ? image(e, s, m->from_dim) : m->to_dim, false);
  p->count = q->count = ir_mesh_size(ir_mesh_at(e->h, gathers ? m->from : m->to), k);
  /* mutant: padded_by_others */
  if (IR_SAME(m->from, m->to) || exchanges) return;
  if (gathers) p->whole = left_for(e, s->op->operands[0], m->before.axes[k].dim, k);
  else q->whole = left_for(e, s->op->result, m->after.axes[k].dim, k);
}

/* ---- one communication ---- */

static void emit_one(emitter *e, step *s, const comm_call *c, ir_tensor in, ir_tensor out) {
  pieces p, q;
  if (!ir_comm_in_pieces(c->kind) && !ir_comm_out_pieces(c->kind)) {
    emit_dense_comm(e, c, in, out);
    return;
  }
  find_pieces(e, s, &p, &q);
  emit_pieces_comm(e, c, in, &p, out, &q);
}

ir_mesh emit_mesh(emitter *e, const int64_t *shape, uint32_t rank, const int64_t *devices,
                  int64_t n) {
  ir_mesh_data wanted = {.rank = rank, .shape = shape, .devices = devices, .n_devices = n};
  for (uint32_t i = 1; i < e->h->meshes.len; i++)
    if (ir_mesh_same(&e->h->meshes.data[i], &wanted)) return (ir_mesh){i};
  uint32_t name = emit_fresh_name(e, "team", true);
  return ir_build_mesh(e->h, name, shape, rank, devices, n, (loc){0});
}

/* A mesh of the host program for a team that no mesh of the fusion has as a line. */
static ir_mesh team_mesh(emitter *e, const shard_team *team) {
  int64_t n = team->len;
  return emit_mesh(e, &n, 1, team->devices, n);
}

/* A team of one device: its piece is already there. */
static void emit_local(emitter *e, ir_mesh mesh, ir_tensor in, ir_tensor out, loc at) {
  ir_block body = {0};
  ir_rule why = emit_because(e, IR_RULE_OWN);
  ir_block *before = emit_begin(e, &body);
  emit_simple(e, IR_OP_SET, &in, 1, out, at);
  emit_end(e, before);
  ir_instr_data d = {.kind = IR_IF, .at = at, .relation = IR_LE, .body = body};
  d.a = ir_scalar_const(emit_scalars(e), 0);
  d.b = emit_me(e, mesh, 0);
  emit_instr(e, &d);
  (void)emit_because(e, why);
}

/* The members that have a piece, if the root is not among them and still holds the tensor that pieces are
 * of: it must not take part with that tensor. */
static ir_mesh line_beside_root(emitter *e, const shard_comm *m, const shard_team *team,
                                ir_tensor in, ir_tensor out) {
  bool scatters = m->kind == SHARD_SCATTER;
  if (!scatters && m->kind != SHARD_GATHER && m->kind != SHARD_REDUCE) return (ir_mesh){0};
  const ir_mesh_data *owners = ir_mesh_at(e->h, scatters ? m->to : m->from);
  const ir_mesh_data *mesh = ir_mesh_at(e->h, ir_tensor_at(e->h, scatters ? out : in)->mesh);
  if (team->len <= ir_mesh_size(owners, (uint32_t)m->mesh_axis)) return (ir_mesh){0};
  /* mutant: dev_root_takes_part */
  if (ir_mesh_find(mesh, team->devices[team->root]) < 0) return (ir_mesh){0};
  shard_team line = {.devices = team->devices, .len = team->len - 1};
  return team_mesh(e, &line);
}

/* A buffer like `t` on the devices of `mesh` only. */
static ir_tensor buffer_on(emitter *e, ir_tensor t, ir_mesh mesh, loc at) {
  ir_axis dims[IR_MAX_RANK];
  ir_scalar sizes[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(e->h, t, dims);
  for (uint32_t i = 0; i < rank; i++) sizes[i] = ir_axis_size(e->h, dims[i]);
  ir_tensor tmp = emit_scratch(e, t, sizes, rank);
  ir_tensor_at(e->h, tmp)->mesh = mesh;
  emit_allocation_because(e, tmp, IR_RULE_ASIDE, at);
  return tmp;
}

static void emit_team(emitter *e, step *s, const comm_call *c, const shard_team *team, ir_tensor in,
                      ir_tensor out) {
  const shard_comm *m = s->plan->comm;
  ir_mesh line = line_beside_root(e, m, team, in, out);
  bool scatters = m->kind == SHARD_SCATTER;
  ir_tensor from = in, to = out;
  if (line.id && scatters) to = buffer_on(e, out, line, c->at);
  if (line.id && !scatters) {
    from = buffer_on(e, in, line, c->at);
    emit_copy_because(e, in, from, line, IR_RULE_ASIDE, c->at);
  }
  emit_one(e, s, c, from, to);
  if (line.id && scatters) emit_copy_because(e, to, out, line, IR_RULE_ASIDE, c->at);
}

static void emit_teams(emitter *e, step *s, comm_call *c, ir_tensor in, ir_tensor out) {
  const shard_comm *m = s->plan->comm;
  shard_teams teams = shard_comm_teams(e->l->shard, m, SHARD_EVERY_DEVICE);
  for (uint32_t i = 0; i < teams.list.len; i++) {
    const shard_team *team = &teams.list.data[i];
    c->team = team_mesh(e, team);
    c->axis = 0;
    /* mutant: dev_root_first */
    c->root = ir_scalar_const(emit_scalars(e), team->root < 0 ? 0 : team->root);
    if (team->len == 1) emit_local(e, c->team, in, out, c->at);
    else emit_team(e, s, c, team, in, out);
  }
}

/* gather, reduce: the whole arrives, and the receiver takes its piece. */
static ir_tensor whole_target(emitter *e, step *s) {
  const shard_comm *m = s->plan->comm;
  ir_tensor t =
      emit_clone_without(e, s->op->result, s->plan, s->plan->axes.len, 1u << m->mesh_axis);
  ir_rule before = emit_because(e, IR_RULE_ARRIVE);
  emit_allocation(e, t, s->op->at);
  (void)emit_because(e, before);
  return t;
}

static void take_piece(emitter *e, step *s, ir_tensor whole, ir_tensor out) {
  const shard_comm *m = s->plan->comm;
  ir_rule before = emit_because(e, IR_RULE_ARRIVE);
  host_guard g;
  emit_guard(e, m->to, &g);
  emit_own_piece(e, s, whole, (uint32_t)shown(e, s, m->to_dim, false), out);
  emit_unguard(e, &g, s->op->at);
  (void)emit_because(e, before);
}

/* With a stream that does not run over the pieces there is no choice of a form. */
static void note_across(emitter *e, const step *s) {
  host_pipeline form = e->l->options->pipeline;
  bool asked = form != HOST_AUTO && form != HOST_COLLECTIVE;
  if (asked && (s->plan->axes.len || s->plan->by_pieces))
    emit_fallback(e, IR_RULE_COLLECTIVE, IR_RULE_ACROSS);
}

void emit_move(emitter *e, step *s) {
  const shard_comm *m = s->plan->comm;
  int32_t level = host_piece_level(s->plan);
  if (level >= 0) {
    emit_piece(e, s, (uint32_t)level);
    return;
  }
  if (m->kind == SHARD_SHIFT) {
    emit_shift(e, s);
    return;
  }
  ir_tensor in = emit_operand(e, s, 0);
  emit_result_buffer(e, s);
  ir_tensor out = emit_destination(e, s->plan, s->plan->axes.len, e->buffer[s->op->result.id]);
  bool sliced = m->sliced || recuts(e, s);
  ir_tensor target = sliced ? whole_target(e, s) : out;
  comm_call c = {.kind = shard_comm_posted(m->kind), .combine = m->combine, .at = s->op->at};
  bool in_lines = shard_comm_is_in_lines(m->kind);
  ir_rule before = emit_because(e, s->plan->axes.len ? IR_RULE_COLLECTIVE : IR_RULE_NONE);
  note_across(e, s);
  if (in_lines) {
    c.team = m->kind == SHARD_REDUCE_SCATTER ? m->to : m->from;
    c.axis = (uint32_t)m->mesh_axis;
    if (recuts(e, s)) c.kind = IR_COMM_ALLGATHER;
    emit_one(e, s, &c, in, target);
  } else {
    emit_teams(e, s, &c, in, target);
  }
  (void)emit_because(e, before);
  if (sliced) take_piece(e, s, target, out);
}
