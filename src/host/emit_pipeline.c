/* One piece per iteration: the stream runs over the pieces that lie on different devices.
 *
 *   broadcast    piece i comes from its owner, root i
 *   p2p          with peer i: it gets mine, I get its; my own is a copy
 *   p2p-offset   I get that of (me + i) mod n, and mine goes to (me - i) mod n
 *   ring         I get from my right neighbour what it got before, and pass it on to the left
 */
#include "host/emit.h"

typedef struct pipeline {
  emitter *e;
  step *s;
  const shard_comm *m;
  ir_mesh mesh;
  uint32_t axis, level;
  ir_scalar n, me, i; /* devices, own coordinate, iteration */
  ir_scalar piece;    /* which one this iteration brings */
  ir_tensor in, out;
  bool drops;
  loc at;
} pipeline;

static ir_scalars *scalars(const pipeline *x) { return emit_scalars(x->e); }

/* (me + by) mod n */
static ir_scalar shifted(const pipeline *x, ir_scalar by) {
  return ir_scalar_mod(scalars(x), ir_scalar_add(scalars(x), x->me, by), x->n);
}

static ir_scalar backward(const pipeline *x, ir_scalar by) {
  ir_scalars *s = scalars(x);
  ir_scalar sum = ir_scalar_sub(s, ir_scalar_add(s, x->n, x->me), by);
  return ir_scalar_mod(s, sum, x->n);
}

/* My own piece, where it is. If slices drop the dimension, it is selected: the piece has one position. */
static ir_tensor own_part(const pipeline *x) {
  uint32_t dropped = 0;
  if (!x->drops) return x->in;
  for (uint32_t q = 0; q < x->s->plan->axes.len; q++) {
    uint32_t dim;
    bool stretched;
    if (q == x->level || !host_drops(x->e->l, x->s->plan, q)) continue;
    if (host_operand_dim(x->e->l, x->s->op, 0, &x->s->plan->axes.data[q], &dim, &stretched))
      dropped |= 1u << dim;
  }
  uint32_t dim = emit_renumber((uint32_t)x->m->from_dim, dropped);
  stream_axis cut = {.count = x->n};
  return emit_cut(x->e, x->in, dim, &cut, true, ir_scalar_const(scalars(x), 0), x->at);
}

/* out <- in */
static void copy_own(const pipeline *x) {
  ir_rule before = emit_because(x->e, IR_RULE_OWN);
  ir_tensor from = own_part(x);
  emit_simple(x->e, IR_OP_SET, &from, 1, x->out, x->at);
  (void)emit_because(x->e, before);
}

static void emit_half(const pipeline *x, ir_comm_kind kind, ir_tensor t, ir_scalar peer) {
  ir_instr_data d = {.kind = IR_COMMUNICATE, .comm = kind, .at = x->at};
  d.team = x->mesh;
  d.team_axis = x->axis;
  if (kind == IR_COMM_SEND) {
    d.from = t;
    d.to = peer;
  } else {
    d.tensor = t;
    d.peer = peer;
  }
  emit_instr(x->e, &d);
}

/* A receive and a send in a group, and the wait for it. */
static void exchange(const pipeline *x, ir_tensor to, ir_scalar from_peer, ir_tensor from,
                     ir_scalar to_peer, uint32_t name) {
  emit_instr(x->e, &(ir_instr_data){.kind = IR_GROUP_START, .at = x->at});
  emit_half(x, IR_COMM_RECV, to, from_peer);
  emit_half(x, IR_COMM_SEND, from, to_peer);
  emit_instr(x->e, &(ir_instr_data){.kind = IR_GROUP_END, .at = x->at, .name = name});
  emit_wait(x->e, name, x->at);
}

static ir_instr_data choice(const pipeline *x, ir_scalar a, ir_relation r, ir_scalar b) {
  return (ir_instr_data){.kind = IR_IF, .at = x->at, .a = a, .relation = r, .b = b};
}

static void fetch(pipeline *x, ir_scalar to_peer) {
  ir_tensor to = emit_dense_target(x->e, x->out, x->at);
  ir_tensor from = emit_densely(x->e, x->in, x->mesh, x->at);
  exchange(x, to, x->piece, from, to_peer, emit_comm_name(x->e));
  emit_copy_back(x->e, to, x->out, x->mesh, x->at);
}

static void emit_p2p(pipeline *x, bool offset) {
  ir_scalar to_peer = offset ? backward(x, x->i) : x->piece;
  if (x->e->l->own[x->s->plan->loop[0]].on) { /* the own piece is not among these */
    fetch(x, to_peer);
    return;
  }
  ir_instr_data d = choice(x, x->piece, IR_EQ, x->me);
  ir_block *before = emit_begin(x->e, &d.body);
  copy_own(x);
  emit_end(x->e, before);
  before = emit_begin(x->e, &d.otherwise);
  fetch(x, to_peer);
  emit_end(x->e, before);
  emit_instr(x->e, &d);
}

/* The piece of the iteration before, in the buffer of all pieces. */
static ir_tensor piece_before(pipeline *x) {
  emitter *e = x->e;
  open_loop *loop = &e->loops[x->level];
  open_loop kept = *loop;
  loop->index = shifted(x, ir_scalar_sub(scalars(x), x->i, ir_scalar_const(scalars(x), 1)));
  ir_tensor at = e->buffer[x->s->op->result.id];
  uint32_t dropped = 0;
  for (uint32_t q = 0; q < x->s->plan->axes.len; q++) { /* not through the cache of this turn */
    const stream_axis *a = &x->s->plan->axes.data[q];
    bool drops = host_drops(e->l, x->s->plan, q);
    uint32_t dim = emit_renumber(a->dim, dropped);
    /* mutant: ring_cut_again */
    if (q >= x->s->plan->inside) at = emit_cut(e, at, dim, a, drops, e->loops[q].index, x->at);
    if (drops) dropped |= 1u << a->dim;
  }
  *loop = kept;
  return at;
}

/* if i == 0 { copy } else { if i == 1 { exchange mine } else { pass on what came before } } */
static void emit_ring(pipeline *x) {
  ir_scalars *s = scalars(x);
  ir_scalar one = ir_scalar_const(s, 1), right = shifted(x, one), left = backward(x, one);
  uint32_t name = emit_comm_name(x->e);
  ir_instr_data d = choice(x, x->i, IR_EQ, ir_scalar_const(s, 0));
  ir_block *outside = emit_begin(x->e, &d.body);
  copy_own(x);
  emit_end(x->e, outside);
  outside = emit_begin(x->e, &d.otherwise);
  ir_instr_data first = choice(x, x->i, IR_EQ, one);
  ir_block *before = emit_begin(x->e, &first.body);
  exchange(x, x->out, right, emit_densely(x->e, x->in, x->mesh, x->at), left, name);
  emit_end(x->e, before);
  before = emit_begin(x->e, &first.otherwise);
  emit_wait(x->e, name, x->at);
  exchange(x, x->out, right, piece_before(x), left, name);
  emit_end(x->e, before);
  emit_instr(x->e, &first);
  emit_end(x->e, outside);
  emit_instr(x->e, &d);
}

static void emit_from_owner(pipeline *x) {
  comm_call c = {.kind = IR_COMM_BROADCAST, .team = x->mesh, .axis = x->axis, .root = x->piece};
  c.at = x->at;
  emit_dense_comm(x->e, &c, x->in, x->out);
}

/* ---- the form ---- */
/* The form that is possible. Devices that are at different pieces at a time must not also meet in another
 * communication of the loop: if they do, all of them take the pieces in the same order. */
static ir_rule form_of(const pipeline *x) {
  const op_plan *plan = x->s->plan;
  bool turned = !IR_SAME(x->piece, x->i), meets = x->e->l->loop_meets[plan->loop[x->level]];
  ir_form asked = host_form_asked(x->e->l, x->s->op);
  bool rings = turned && emit_is_dense(x->e, x->out) && plan->inside <= x->level;
  if (asked == IR_FORM_RING && rings) return IR_RULE_RING;
  if (turned) return IR_RULE_OFFSET;
  /* mutant: dev_p2p_anyway */
  return asked == IR_FORM_BROADCAST || meets ? IR_RULE_BROADCAST : IR_RULE_P2P;
}

static ir_rule preferred(ir_form asked) {
  switch (asked) {
  case IR_FORM_OFFSET:
  case IR_FORM_OWN: return IR_RULE_OFFSET;
  case IR_FORM_P2P: return IR_RULE_P2P;
  case IR_FORM_RING: return IR_RULE_RING;
  case IR_FORM_NONE:
  case IR_FORM_BROADCAST:
  case IR_FORM_COUNT: break;
  }
  return IR_RULE_BROADCAST;
}

/* Says why the form is not the preferred one. */
static void note_form(const pipeline *x, ir_rule used) {
  const op_plan *plan = x->s->plan;
  ir_rule asked = preferred(host_form_asked(x->e->l, x->s->op)), why = IR_RULE_MEETS;
  /* mutant: why_form_unsaid */
  if (used == asked) return;
  if (used == IR_RULE_OFFSET) why = asked == IR_RULE_RING ? IR_RULE_SPARSE : IR_RULE_SWIZZLED;
  if (plan->axes.data[x->level].swizzled) why = IR_RULE_SWIZZLED;
  if (used == IR_RULE_P2P) why = IR_RULE_ORDERED;
  emit_fallback(x->e, used, why);
}

static void emit_form(pipeline *x) {
  ir_rule form = form_of(x), before = emit_because(x->e, form);
  note_form(x, form);
  if (form == IR_RULE_RING) emit_ring(x);
  else if (form == IR_RULE_BROADCAST) emit_from_owner(x);
  else emit_p2p(x, form == IR_RULE_OFFSET);
  (void)emit_because(x->e, before);
}

/* In a swizzled loop, or a turned one, piece and peers follow the device's coordinate. */
void emit_piece(emitter *e, step *s, uint32_t q) {
  const shard_comm *m = s->plan->comm;
  pipeline x = {
      .e = e, .s = s, .m = m, .mesh = m->from, .axis = (uint32_t)m->mesh_axis, .level = q};
  x.at = s->op->at;
  x.n = ir_scalar_const(emit_scalars(e), ir_mesh_size(ir_mesh_at(e->h, x.mesh), x.axis));
  x.me = emit_me(e, x.mesh, x.axis);
  x.i = e->loops[q].turn;
  x.piece = e->loops[q].index;
  x.drops = host_drops(e->l, s->plan, q);
  s->whole = 1u << q;
  x.in = emit_operand(e, s, 0);
  /* mutant: own_piece_copied */
  if (e->own && s->plan->inside > 0) { /* readers read it there */
    e->buffer[s->op->result.id] = own_part(&x);
    return;
  }
  emit_result_buffer(e, s);
  x.out = emit_destination(e, s->plan, s->plan->axes.len, e->buffer[s->op->result.id]);
  host_guard g;
  /* mutant: dev_ring_unguarded */
  emit_guard(e, x.mesh, &g);
  if (e->own) copy_own(&x);
  else emit_form(&x);
  emit_unguard(e, &g, x.at);
}

/* ---- pieces that a loop makes ---- */

static pipeline pieces_of_loop(emitter *e, step *s) {
  const shard_comm *m = s->plan->comm;
  pipeline x = {.e = e, .s = s, .m = m, .mesh = m->from, .axis = (uint32_t)m->mesh_axis};
  x.at = s->op->at;
  x.n = ir_scalar_const(emit_scalars(e), ir_mesh_size(ir_mesh_at(e->h, x.mesh), x.axis));
  x.me = emit_me(e, x.mesh, x.axis);
  x.i = e->loops[0].variable;
  x.piece = e->loops[0].index;
  return x;
}

/* This iteration's piece of the operand, which its own loop has just made. */
static ir_tensor made_piece(const pipeline *x) {
  emitter *e = x->e;
  ir_tensor t = x->s->op->operands[0], buffer = e->buffer[t.id];
  const op_plan *made = &e->l->ops[e->l->producer[t.id].id];
  if (made->inside > 0) return buffer;
  const stream_axis *a = &made->axes.data[0];
  return emit_slice(e, buffer, a->dim, 0, a, host_drops(e->l, made, 0));
}

/* The device's own piece. Operand and result have lost different dimensions to the loop, and each has one
 * position of what the other has lost: where those are different dimensions, both lose them.
 *     [a mesh.x, b, c stream]  =>  [a stream, b, c mesh.x]:   [1, b] and [b, 1]  =>  [b] and [b] */
static void copy_own_piece(const pipeline *x, bool drops) {
  emitter *e = x->e;
  uint32_t lost = (uint32_t)x->m->from_dim, left = (uint32_t)x->m->to_dim;
  uint32_t in = emit_renumber(lost, 1u << left), out = emit_renumber(left, 1u << lost);
  ir_tensor from = x->in, to = x->out;
  /* mutant: own_piece_misshapen */
  if (drops && in != out) {
    const stream_axis *a = &x->s->plan->axes.data[0];
    ir_scalar zero = ir_scalar_const(emit_scalars(e), 0);
    from = emit_cut(e, from, in, a, true, zero, x->at);
    to = emit_cut(e, to, out, a, true, zero, x->at);
  }
  emit_simple(e, IR_OP_SET, &from, 1, to, x->at);
}

/* Piece p of the operand is for device p: mine goes to (me + i) mod n, and I get that of
 * (me - i) mod n. */
void emit_exchanged_piece(emitter *e, step *s) {
  pipeline x = pieces_of_loop(e, s);
  x.in = made_piece(&x);
  emit_result_buffer(e, s);
  ir_scalar from = backward(&x, x.i);
  const stream_axis *cut = &s->plan->axes.data[0];
  bool drops = host_drops(e->l, s->plan, 0);
  x.out = emit_cut(e, e->buffer[s->op->result.id], cut->dim, cut, drops, from, x.at);
  ir_form asked = host_form_asked(e->l, s->op);
  if (asked == IR_FORM_RING || asked == IR_FORM_P2P)
    emit_fallback(e, IR_RULE_OFFSET, IR_RULE_PERSONAL);
  (void)emit_because(e, IR_RULE_OWN);
  ir_instr_data c = choice(&x, x.piece, IR_EQ, x.me);
  ir_block *before = emit_begin(e, &c.body);
  copy_own_piece(&x, drops);
  emit_end(e, before);
  (void)emit_because(e, IR_RULE_OFFSET);
  before = emit_begin(e, &c.otherwise);
  ir_tensor to = emit_dense_target(e, x.out, x.at);
  exchange(&x, to, from, emit_densely(e, x.in, x.mesh, x.at), x.piece, emit_comm_name(e));
  emit_copy_back(e, to, x.out, x.mesh, x.at);
  emit_end(e, before);
  emit_instr(e, &c);
  (void)emit_because(e, IR_RULE_NONE);
}

/* reduce(piece i -> the whole result of device i) */
void emit_reduced_piece(emitter *e, step *s) {
  pipeline x = pieces_of_loop(e, s);
  comm_call c = {
      .kind = IR_COMM_REDUCE, .team = s->plan->comm->to, .axis = x.axis, .root = x.piece};
  c.combine = s->plan->comm->combine;
  c.at = x.at;
  x.in = made_piece(&x);
  emit_result_buffer(e, s);
  host_pipeline asked = e->l->options->pipeline;
  if (asked != HOST_AUTO && asked != HOST_COLLECTIVE)
    emit_fallback(e, IR_RULE_OWNER, IR_RULE_REDUCED);
  (void)emit_because(e, IR_RULE_OWNER);
  emit_dense_comm(e, &c, x.in, e->buffer[s->op->result.id]);
  (void)emit_because(e, IR_RULE_NONE);
}
