/* Neighbours exchange what crosses the ends of their pieces.
 *
 *     y[n mesh.x, ..] = pad(x[n mesh.x, ..], [1, -1, ..])
 *       =>   if me <= n - 2 { s = send(x, to=me + 1) }
 *            if 1 <= me { r = recv(y, from=me - 1) }
 *            if me <= n - 2 { wait(s) }
 *            if 1 <= me { wait(r) }
 *            if me <= 0 { y <- full([..], value) } */
#include "host/emit.h"

typedef struct shift {
  emitter *e;
  ir_mesh mesh;
  uint32_t axis;
  int64_t by, n;
  ir_scalar me;
  loc at;
} shift;

static ir_scalar number(const shift *x, int64_t n) {
  return ir_scalar_const(emit_scalars(x->e), n);
}

/* The device `by` places further. */
static ir_scalar further(const shift *x, int64_t by) {
  return ir_scalar_add(emit_scalars(x->e), x->me, number(x, by));
}

/* Only devices that have one `by` places further. */
static void guard_further(const shift *x, int64_t by, host_guard *g) {
  if (by > 0) emit_guard_at_most(x->e, x->me, number(x, x->n - 1 - by), g);
  else emit_guard_at_most(x->e, number(x, -by), x->me, g);
}

/* Only those that have none; a device outside of the mesh is number -1. */
static void guard_none(const shift *x, int64_t by, host_guard *g) {
  if (by > 0) emit_guard_at_most(x->e, number(x, x->n - by), x->me, g);
  else emit_guard_at_most(x->e, x->me, number(x, -by - 1), g);
}

static uint32_t emit_message(const shift *x, ir_comm_kind kind, ir_tensor t, int64_t peer) {
  ir_instr_data d = {.kind = IR_COMMUNICATE, .comm = kind, .at = x->at};
  host_guard g;
  d.team = x->mesh;
  d.team_axis = x->axis;
  d.name = emit_comm_name(x->e);
  if (kind == IR_COMM_SEND) d.from = t;
  else d.tensor = t;
  if (kind == IR_COMM_SEND) d.to = further(x, peer);
  else d.peer = further(x, peer);
  guard_further(x, peer, &g);
  emit_instr(x->e, &d);
  emit_unguard(x->e, &g, x->at);
  return d.name;
}

static void wait_for(const shift *x, uint32_t name, int64_t peer) {
  host_guard g;
  guard_further(x, peer, &g);
  emit_wait(x->e, name, x->at);
  emit_unguard(x->e, &g, x->at);
}

static void fill_rest(const shift *x, const step *s, ir_tensor to) {
  host_guard member, none;
  emit_guard(x->e, x->mesh, &member);
  guard_none(x, -x->by, &none);
  ir_instr_data fill = emit_fill_number(x->e, to, ir_op_attr(s->op, "value")->number, x->at);
  emit_instr(x->e, &fill);
  emit_unguard(x->e, &none, x->at);
  emit_unguard(x->e, &member, x->at);
}

void emit_shift(emitter *e, step *s) {
  const shard_comm *m = s->plan->comm;
  shift x = {.e = e, .mesh = m->from, .axis = (uint32_t)m->mesh_axis, .by = m->shift};
  ir_tensor in = emit_operand(e, s, 0);
  emit_result_buffer(e, s);
  ir_tensor out = emit_destination(e, s->plan, s->plan->axes.len, e->buffer[s->op->result.id]);
  x.n = ir_mesh_size(ir_mesh_at(e->h, x.mesh), x.axis);
  x.me = emit_me(e, x.mesh, x.axis);
  x.at = s->op->at;
  ir_tensor from = emit_densely(e, in, x.mesh, x.at), to = emit_dense_target(e, out, x.at);
  uint32_t sent = emit_message(&x, IR_COMM_SEND, from, x.by);
  uint32_t received = emit_message(&x, IR_COMM_RECV, to, -x.by);
  wait_for(&x, sent, x.by);
  wait_for(&x, received, -x.by);
  fill_rest(&x, s, to);
  emit_copy_back(e, to, out, x.mesh, x.at);
}
