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

/* out <- in: my own piece. Where slices drop the dimension, that of one position is taken off. */
static void copy_own(const pipeline *x) {
  ir_tensor from = x->in;
  if (x->drops) {
    uint32_t dropped = 0;
    for (uint32_t q = 0; q < x->s->plan->axes.len; q++) {
      uint32_t dim;
      bool stretched;
      if (q == x->level || !host_drops(x->e->l, x->s->plan, q)) continue;
      if (host_operand_dim(x->e->l, x->s->op, 0, &x->s->plan->axes.data[q], &dim, &stretched))
        dropped |= 1u << dim;
    }
    uint32_t dim = emit_renumber((uint32_t)x->m->from_dim, dropped);
    ir_instr_data d = {.kind = IR_SELECT, .from = from, .dim = dim, .at = x->at};
    d.index = ir_scalar_const(scalars(x), 0);
    stream_axis cut = {.count = x->n};
    d.tensor = emit_slice_tensor(x->e, from, dim, &cut, true, d.index);
    emit_instr(x->e, &d);
    from = d.tensor;
  }
  emit_simple(x->e, IR_OP_SET, &from, 1, x->out, x->at);
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

static void emit_p2p(pipeline *x, bool offset) {
  ir_scalar to_peer = offset ? backward(x, x->i) : x->piece;
  ir_instr_data d = choice(x, x->piece, IR_EQ, x->me);
  ir_block *before = emit_begin(x->e, &d.body);
  copy_own(x);
  emit_end(x->e, before);
  before = emit_begin(x->e, &d.otherwise);
  ir_tensor to = emit_dense_target(x->e, x->out, x->at);
  ir_tensor from = emit_densely(x->e, x->in, x->mesh, x->at);
  exchange(x, to, x->piece, from, to_peer, emit_comm_name(x->e));
  emit_copy_back(x->e, to, x->out, x->mesh, x->at);
  emit_end(x->e, before);
  emit_instr(x->e, &d);
}

/* The piece of the iteration before, in the buffer of all pieces. */
static ir_tensor piece_before(pipeline *x) {
  open_loop *loop = &x->e->loops[x->level];
  ir_scalar index = loop->index;
  uint32_t slices = x->e->slices.len;
  loop->index = shifted(x, ir_scalar_sub(scalars(x), x->i, ir_scalar_const(scalars(x), 1)));
  x->e->slices.len = 0; /* those taken are of this iteration */
  ir_tensor t =
      emit_destination(x->e, x->s->plan, x->s->plan->axes.len, x->e->buffer[x->s->op->result.id]);
  loop->index = index;
  x->e->slices.len = slices;
  return t;
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

/* In a swizzled loop, or a turned one, piece and peers follow the device's coordinate. */
void emit_piece(emitter *e, step *s, uint32_t q) {
  const shard_comm *m = s->plan->comm;
  pipeline x = {
      .e = e, .s = s, .m = m, .mesh = m->from, .axis = (uint32_t)m->mesh_axis, .level = q};
  x.at = s->op->at;
  x.n = ir_scalar_const(emit_scalars(e), ir_mesh_size(ir_mesh_at(e->h, x.mesh), x.axis));
  x.me = emit_me(e, x.mesh, x.axis);
  x.i = e->loops[q].variable;
  x.piece = e->loops[q].index;
  x.drops = host_drops(e->l, s->plan, q);
  s->whole = 1u << q;
  x.in = emit_operand(e, s, 0);
  emit_result_buffer(e, s);
  x.out = emit_destination(e, s->plan, s->plan->axes.len, e->buffer[s->op->result.id]);
  bool turned = !IR_SAME(x.piece, x.i);
  bool dense = emit_is_dense(e, x.out);
  switch (e->l->options->pipeline) {
  case HOST_AUTO:
  case HOST_P2P_OFFSET: emit_p2p(&x, turned); return;
  case HOST_P2P: emit_p2p(&x, turned); return;
  case HOST_RING:
    if (turned && dense && s->plan->inside <= q) emit_ring(&x);
    else emit_p2p(&x, turned);
    return;
  case HOST_COLLECTIVE:
  case HOST_BROADCAST:
    if (turned) emit_p2p(&x, true);
    else emit_from_owner(&x);
    return;
  }
}
