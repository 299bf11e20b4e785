/* Products and attention whose result is to lie where nothing else brings it cheaply: operands are exchanged, so that
 * devices compute pieces along another dimension (turn.c), and these are brought to where they are to be.
 *
 *     y[h, s mesh.x, e] = sdpa(q, k, v)    all cut like y
 *       =>  q$1, k$1, v$1 = set(…);  y$1[h mesh.x, s, e] = sdpa(q$1, k$1, v$1);  y = set(y$1)
 *
 * Propagation does the same where the result is not placed yet. */
#include <math.h>

#include "schedule/schedule.h"
#include "shard/decompose.h"

typedef shard_decomposing decomposing;

typedef struct turn {
  ir_op_data op;
  uint32_t mesh_axis;
  uint32_t operand; /* the first that is cut along it */
  ir_axis to;       /* of the result */
} turn;

/* Of the whole line of devices, by the usual extents where none are expected. */
static double bytes_of(const decomposing *d, ir_tensor t, uint32_t mesh_axis) {
  const ir_scalars *s = &d->f->module->scalars;
  const int64_t *usual = ir_module_usual(d->f->module, d->c->scratch);
  int64_t n = 0;
  ir_scalar elements = shard_local_elements(d->c, t, 1u << mesh_axis);
  if (!ir_scalar_eval(s, elements, usual, s->symbols.len, &n)) return INFINITY;
  return (double)n * (double)ir_dtype_size_bytes(ir_tensor_at(d->f, t)->dtype);
}

/* What a device receives if operands are exchanged, and results brought to where they are to be. */
static double cost_of_turn(const decomposing *d, const turn *t, double n) {
  uint32_t mask = 1u << t->mesh_axis;
  double cost = 0;
  for (uint32_t k = 0; k < t->op.n_operands; k++) {
    ir_tensor x = t->op.operands[k];
    if (x.id && shard_is_cut(d->f, x, mask)) cost += bytes_of(d, x, t->mesh_axis) * (n - 1) / n / n;
  }
  for (uint32_t k = 0; k < ir_op_n_results(&t->op); k++) {
    ir_tensor y = ir_op_result(&t->op, k);
    cost += bytes_of(d, y, t->mesh_axis) * (n - 1) / n / (shard_is_cut(d->f, y, mask) ? n : 1);
  }
  return cost;
}

/* Does no operand have to be moved along another mesh axis, or to another mesh? */
static bool differs_only_along(decomposing *d, const turn *t) {
  const ir_mesh_data *mesh = ir_mesh_at(d->f, ir_tensor_at(d->f, t->op.result)->mesh);
  for (uint32_t k = 0; k < t->op.n_operands; k++) {
    if (!t->op.operands[k].id) continue;
    const ir_tensor_data *x = ir_tensor_at(d->f, t->op.operands[k]);
    if (x->kind == IR_TENSOR_CONST) continue;
    if (!x->mesh.id || !ir_mesh_same(ir_mesh_at(d->f, x->mesh), mesh)) return false;
    for (uint32_t axis = 0; axis < mesh->rank; axis++)
      if (axis != t->mesh_axis && shard_differs(d->c, &t->op, k, axis)) return false;
  }
  return true;
}

/* The cut of the first operand that has one is repeated on the result. */
static bool find_operand(const decomposing *d, turn *t) {
  shard_placement p;
  for (t->operand = 0; t->operand < t->op.n_operands; t->operand++) {
    ir_tensor x = t->op.operands[t->operand];
    if (!x.id || !shard_is_cut(d->f, x, 1u << t->mesh_axis)) continue;
    shard_placement_of(d->f, x, &p);
    return p.axes[t->mesh_axis].cut == SHARD_OUTER && !p.axes[t->mesh_axis].nested;
  }
  return false;
}

static bool find_turn(decomposing *d, ir_op o, turn *t) {
  const ir_func *f = d->f;
  const ir_tensor_data *y = ir_tensor_at(f, t->op.result);
  uint32_t at;
  if (!shard_may_turn(&t->op) || ir_axes_streamed(f, y->now.loop)) return false;
  for (t->mesh_axis = 0; t->mesh_axis < ir_mesh_at(f, y->mesh)->rank; t->mesh_axis++) {
    int64_t n = ir_mesh_size(ir_mesh_at(f, y->mesh), t->mesh_axis);
    if (!shard_turn_of(f, &t->op, y->mesh, t->mesh_axis, &at)) continue;
    t->to = y->now.loop.data[at];
    if (ir_axis_at(f, t->to)->kind == IR_AXIS_REDUCTION || !find_operand(d, t)) continue;
    if (!differs_only_along(d, t)) continue;
    double before = shard_usual_before(d->c, &t->op, shard_copied_already(d, o));
    if (before < INFINITY && cost_of_turn(d, t, (double)n) < before) return true;
  }
  return false;
}

/* The result is cut along `to` as the operand is along its own dimension, and otherwise as it is to be. */
static void place_turned(decomposing *d, const turn *t, ir_tensor arrives) {
  shard_placement p;
  ir_tensor from = t->op.operands[t->operand], to = t->op.result;
  schedule_marks along = {false, 1u << t->mesh_axis}, others = {false, ~along.mesh_axes};
  shard_placement_of(d->f, from, &p);
  ir_pair cut = {p.axes[t->mesh_axis].logical, t->to, IR_PAIR_EXACT};
  ir_why why = {.rule = IR_RULE_TURNED, .at = t->op.at, .from = ir_tensor_at(d->f, from)->name};
  shard_put_on_mesh_of(d, arrives, to);
  shard_mark_like(d, arrives, to, others);
  (void)schedule_replay_marked(d->f, from, to, &cut, 1, along, &why);
}

bool shard_turn(decomposing *d, ir_op o) {
  turn t = {.op = *ir_op_at(d->f, o)};
  if (!find_turn(d, o, &t)) return false;
  ir_why why = {.rule = IR_RULE_AFTER, .at = t.op.at};
  why.because = shard_decided_by(d, &t.op, t.operand);
  ir_op set = shard_set_of_result(d, t.op.result, why);
  place_turned(d, &t, ir_op_at(d->f, set)->result);
  for (uint32_t k = 0; k < t.op.n_operands; k++) shard_reshard_operand(d, o, k);
  vec_push(&d->f->module->memory, &d->order, o);
  shard_settle(d, set, 0);
  return true;
}
