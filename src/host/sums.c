/* Steps on partial results: what sums and linear operations read need not be reduced before. One
 * communication of their result does.
 *
 *   a = matmul(x, v);  b = matmul(y, w);  c = a + b        all three reduced along mesh.x
 *     =>  part of a + part of b on every device, and one allreduce for c
 *   a = matmul(x, v);  b = mean(a, dims=[0])               a reduced along mesh.x
 *     =>  the mean of a device's part, and an allreduce of b, which is less
 *   b = set(a), of which each device takes its piece
 *     =>  a reduce-scatter */
#include <math.h>

#include "host/internal.h"

enum { MOST_STEPS = 4, FARTHEST = 8, MOST_READERS = 8, MOST_ROUNDS = 4 };

typedef struct uses {
  ir_reads reads;
  int64_t *values; /* by symbol: what is expected of it */
  bool changed;    /* in this round */
} uses;

/* Parts of f16 stay in f32 until they are reduced, so that each of them is reduced by itself. */
static bool is_stored_as_is(const ir_func *f, ir_tensor t) {
  return ir_tensor_at(f, t)->dtype != IR_F16;
}

/* Mesh axes along which devices compute, or hold, partial results: an allreduce that is an
 * operation of its own can wait like the one after a product. */
static uint32_t parts_of(const op_plan *made) {
  const shard_comm *m = made->comm;
  if (made->kind == STEP_COMPUTES) return made->partial;
  bool reduces = made->kind == STEP_MOVES && m->reduces && m->combine == IR_COMBINE_SUM;
  bool sums = reduces && (m->kind == SHARD_ALLREDUCE || m->kind == SHARD_REDUCE_SCATTER);
  return sums && IR_SAME(m->from, m->to) && m->mesh_axis >= 0 ? 1u << m->mesh_axis : 0;
}

static void leave_unreduced(op_plan *made) {
  made->partial = parts_of(made);
  made->kind = STEP_COMPUTES;
  made->unreduced = true;
}

/* Could `plan` read the parts that devices have of `t`? */
static bool may_give_parts(const lowering *l, ir_tensor t, const op_plan *plan) {
  ir_op o = l->producer[t.id];
  if (o.id == 0 || !is_stored_as_is(l->f, t)) return false;
  const ir_op_data *op = ir_op_at(l->f, o);
  const op_plan *made = &l->ops[o.id];
  ir_fold fold = ir_op_fold(op->code);
  bool adds = fold == IR_FOLD_NONE || (fold == IR_FOLD_SUM && !ir_op_has_bias(op));
  /* mutant: sums_of_maxima */
  if (!adds || !parts_of(made) || made->axes.len != plan->axes.len) return false;
  for (uint32_t q = 0; q < made->axes.len; q++) {
    if (made->axes.data[q].reduction || made->loop[q] != plan->loop[q]) return false;
    if (made->axes.data[q].scattered) return false; /* each slice is scattered when it is there */
  }
  return true;
}

/* The same, where no other operation reads `t`. */
static bool gives_parts(const lowering *l, const uses *u, ir_tensor t, const op_plan *plan) {
  /* mutant: sums_read_twice */
  return u->reads.n[t.id] == 1 && may_give_parts(l, t, plan);
}

/* Are all dimensions cut alike on both? */
static bool lies_like(const lowering *l, ir_tensor a, ir_tensor b) {
  ir_axis dims[IR_MAX_RANK], others[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(l->f, a, dims);
  const ir_tensor_data *x = ir_tensor_at(l->f, a), *y = ir_tensor_at(l->f, b);
  if (rank != ir_tensor_dims(l->f, b, others) || !IR_SAME(x->mesh, y->mesh)) return false;
  for (uint32_t d = 0; d < rank; d++) {
    const ir_cut *mine, *theirs;
    uint32_t n = host_cuts(l, a, d, 0, &mine);
    if (ir_func_equal(l->f, ir_axis_size(l->f, dims[d]), ir_axis_size(l->f, others[d])) != IR_TRUE)
      return false;
    if (n != host_cuts(l, b, d, 0, &theirs)) return false;
    for (uint32_t i = 0; i < n; i++) {
      if (mine[i].mesh_axis != theirs[i].mesh_axis || mine[i].turn != theirs[i].turn ||
          !host_same_partition(l, &mine[i].partition, &theirs[i].partition))
        return false;
    }
  }
  return true;
}

static void add_parts(lowering *l, uses *u, ir_op o) {
  const ir_op_data *op = ir_op_at(l->f, o);
  op_plan *plan = &l->ops[o.id];
  if (plan->kind != STEP_COMPUTES || !is_stored_as_is(l->f, op->result)) return;
  op_plan *made[2];
  for (uint32_t k = 0; k < 2; k++) {
    if (!gives_parts(l, u, op->operands[k], plan) || !lies_like(l, op->operands[k], op->result))
      return;
    made[k] = &l->ops[l->producer[op->operands[k].id].id];
  }
  if (parts_of(made[0]) != parts_of(made[1])) return;
  u->changed = u->changed || plan->partial != parts_of(made[0]);
  plan->partial = parts_of(made[0]);
  for (uint32_t k = 0; k < 2; k++) leave_unreduced(made[k]);
}

/* ---- linear operations ---- */
/* Are operand k and the result whole along `mesh_axes`, or both to be scattered? Then all that the operation
 * reads must be whole there, since parts are. */
static bool scatters_alike(const lowering *l, const ir_op_data *op, uint32_t k,
                           uint32_t mesh_axes) {
  for (uint32_t left = mesh_axes; left; left &= left - 1) {
    uint32_t axis = left & -left;
    bool cut = shard_is_cut(l->f, op->result, axis);
    if (cut != shard_is_cut(l->f, op->operands[k], axis)) return false;
    for (uint32_t i = 0; cut && i < op->n_operands; i++)
      if (i != k && op->operands[i].id && shard_is_cut(l->f, op->operands[i], axis)) return false;
  }
  return true;
}

/* Can `o` be computed from the parts of its operand `t` along `mesh_axes`, so that its results are parts? */
static bool takes_parts(const lowering *l, ir_op o, ir_tensor t, uint32_t mesh_axes) {
  const ir_op_data *op = ir_op_at(l->f, o);
  const op_plan *plan = &l->ops[o.id];
  const ir_tensor_data *from = ir_tensor_at(l->f, t), *to = ir_tensor_at(l->f, op->result);
  uint32_t k = 0;
  while (!IR_SAME(op->operands[k], t)) k++;
  return ir_op_is_linear(op, k) && plan->kind == STEP_COMPUTES && !(plan->partial & mesh_axes) &&
         !plan->axes.len && from->dtype == to->dtype && IR_SAME(from->mesh, to->mesh) &&
         scatters_alike(l, op, k, mesh_axes);
}

/* Are there parts of `t` along `mesh_axes`, or will there be, through linear operations that come
 * later here? */
static bool has_parts(const lowering *l, const uses *u, ir_tensor t, const op_plan *plan,
                      uint32_t mesh_axes, uint32_t steps) {
  ir_op o = l->producer[t.id];
  if (gives_parts(l, u, t, plan)) return parts_of(&l->ops[o.id]) == mesh_axes;
  if (steps == 0 || o.id == 0 || u->reads.n[t.id] != 1) return false;
  const ir_op_data *op = ir_op_at(l->f, o);
  for (uint32_t k = 0; k < 2 && k < op->n_operands; k++) {
    ir_tensor x = op->operands[k];
    if (x.id && ir_op_is_linear(op, k) && takes_parts(l, o, x, mesh_axes) &&
        has_parts(l, u, x, &l->ops[o.id], mesh_axes, steps - 1))
      return true;
  }
  return false;
}

/* Does the other operand of the sum come in parts of the same devices? */
static bool meets_parts(const lowering *l, const uses *u, ir_op sum, ir_tensor t,
                        uint32_t mesh_axes) {
  const ir_op_data *op = ir_op_at(l->f, sum);
  ir_tensor other = op->operands[IR_SAME(op->operands[0], t)];
  const op_plan *plan = &l->ops[sum.id];
  return plan->kind == STEP_COMPUTES && lies_like(l, other, op->result) &&
         has_parts(l, u, other, plan, mesh_axes, MOST_STEPS);
}

/* The operations that read `t`; 0: there are many, one does so twice, or it is an output. */
static uint32_t readers_of(const uses *u, ir_tensor t, const ir_op **readers) {
  uint32_t from = u->reads.from[t.id], n = u->reads.from[t.id + 1] - from;
  *readers = &u->reads.readers[from];
  if (n > MOST_READERS || n != u->reads.n[t.id]) return 0;
  for (uint32_t i = 1; i < n; i++)
    if (IR_SAME((*readers)[i - 1], (*readers)[i])) return 0;
  return n;
}

static double least_reduced(const lowering *l, const uses *u, ir_tensor t, uint32_t mesh_axes,
                            uint32_t steps);

/* How many elements are reduced if `o` takes the parts of `t`: those of its result, or of a later one; 0
 * where that meets other parts in a sum. */
static double reduced_after(const lowering *l, const uses *u, ir_op o, ir_tensor t,
                            uint32_t mesh_axes, uint32_t steps) {
  if (ir_op_adds(ir_op_at(l->f, o)))
    return u->reads.n[t.id] == 1 && meets_parts(l, u, o, t, mesh_axes) ? 0 : INFINITY;
  if (!takes_parts(l, o, t, mesh_axes)) return INFINITY;
  ir_tensor result = ir_op_at(l->f, o)->result;
  double own = ir_tensor_elements(l->f, result, u->values);
  double later = steps ? least_reduced(l, u, result, mesh_axes, steps - 1) : INFINITY;
  return later < own ? later : own;
}

/* The same if all that read `t` take its parts; infinitely many: they do not. */
static double least_reduced(const lowering *l, const uses *u, ir_tensor t, uint32_t mesh_axes,
                            uint32_t steps) {
  const ir_op *readers;
  uint32_t n = readers_of(u, t, &readers);
  double sum = n ? 0 : INFINITY;
  for (uint32_t i = 0; i < n; i++) sum += reduced_after(l, u, readers[i], t, mesh_axes, steps);
  return sum;
}

/* Lets all readers of `t` take its parts if fewer elements than `t` has are reduced then. As many would only
 * be reduced in another order. */
static bool carry(lowering *l, uses *u, ir_tensor t, uint32_t mesh_axes) {
  const ir_op *readers;
  uint32_t n = readers_of(u, t, &readers);
  if (least_reduced(l, u, t, mesh_axes, FARTHEST) >= ir_tensor_elements(l->f, t, u->values))
    return false;
  for (uint32_t i = 0; i < n; i++)
    if (!may_give_parts(l, t, &l->ops[readers[i].id])) return false;
  for (uint32_t i = 0; i < n; i++) l->ops[readers[i].id].partial |= mesh_axes;
  op_plan *made = &l->ops[l->producer[t.id].id];
  leave_unreduced(made);
  made->carried = true;
  u->changed = true;
  return true;
}

static void carry_parts(lowering *l, uses *u, ir_op o) {
  const ir_op_data *op = ir_op_at(l->f, o);
  for (uint32_t k = 0; k < op->n_operands && k < 2; k++) {
    ir_tensor t = op->operands[k];
    if (!t.id || !may_give_parts(l, t, &l->ops[o.id])) continue;
    uint32_t mesh_axes = parts_of(&l->ops[l->producer[t.id].id]);
    if (takes_parts(l, o, t, mesh_axes) && carry(l, u, t, mesh_axes)) return;
  }
}

/* Where each device takes its piece of what is reduced, the parts are scattered instead. */
static void scatter_parts(lowering *l, const uses *u, ir_op o) {
  op_plan *plan = &l->ops[o.id];
  if (plan->kind != STEP_SLICES || plan->axes.len || plan->comm->mesh_axis < 0) return;
  ir_tensor t = ir_op_at(l->f, o)->operands[0];
  if (ir_op_at(l->f, o)->code != IR_OP_SET || !gives_parts(l, u, t, plan)) return;
  op_plan *made = &l->ops[l->producer[t.id].id];
  uint32_t mesh_axes = parts_of(made), axis = 1u << plan->comm->mesh_axis;
  ir_mesh mesh = ir_tensor_at(l->f, ir_op_at(l->f, o)->result)->mesh;
  if (!(mesh_axes & axis) || shard_is_cut(l->f, t, mesh_axes)) return;
  if (!IR_SAME(ir_tensor_at(l->f, t)->mesh, mesh)) return;
  plan->kind = STEP_COMPUTES;
  plan->partial = mesh_axes;
  leave_unreduced(made);
  made->carried = true;
}

/* Goes in rounds, because a sum that takes parts is a reason to carry others to it. */
void host_add_parts(lowering *l) {
  if (!l->shard) return;
  uses u = {ir_func_readers(l->f, &l->scratch), ir_module_usual(l->f->module, &l->scratch), true};
  for (uint32_t round = 0; u.changed && round < MOST_ROUNDS; round++) {
    u.changed = false;
    for (uint32_t i = 0; i < l->f->order.len; i++) {
      ir_op o = l->f->order.data[i];
      if (ir_op_adds(ir_op_at(l->f, o))) add_parts(l, &u, o);
      else carry_parts(l, &u, o);
    }
  }
  for (uint32_t i = 0; i < l->f->order.len; i++) scatter_parts(l, &u, l->f->order.data[i]);
}
