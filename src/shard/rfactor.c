/* Reductions in two steps, as one. What an rfactor made is not computed on its own: its place says where
 * the parts of the reduction are computed.
 *
 *     U[m, 4 mesh.x, r k/4] = sum(x);  T[m, r 4] = sum(U)
 *       =>  T[m, r 4 mesh.x, r k/4] = sum(x)     partial results, reduced along mesh.x */
#include "ir/build.h"
#include "schedule/schedule.h"
#include "shard/shard.h"

/* The tensor that is computed from the operands of the definition. */
static ir_tensor first_step(const ir_func *f, ir_tensor t) {
  for (;;) {
    const ir_tensor_data *d = ir_tensor_at(f, t);
    if (IR_SAME(d->def, d->scheduled_def)) return t;
    t = ir_op_at(f, d->scheduled_def)->operands[0];
  }
}

/* A mark on what T still reduces is one on the dimension of U that it reduces. */
static void move_marks_up(ir_func *f, ir_tensor t) {
  const ir_tensor_data *d = ir_tensor_at(f, t);
  ir_tensor u = ir_op_at(f, d->scheduled_def)->operands[0];
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_axes_dims(f, ir_tensor_at(f, u)->now.logical, dims);
  for (uint32_t i = 0; i < d->now.root.len && i < rank; i++) {
    const ir_axis_data *a = ir_axis_at(f, d->now.root.data[i]);
    ir_mark *mark = &ir_axis_at(f, dims[i])->mark;
    if (a->kind != IR_AXIS_REDUCTION || a->mark.kind != IR_MARK_MESH) continue;
    if (mark->kind != IR_MARK_NONE) continue;
    *mark = a->mark;
    ir_axis_at(f, dims[i])->why = a->why;
  }
}

/* A tensor that is only looked at: the schedule of `of` between these axes and its loop domain. */
static ir_tensor view_of(ir_func *f, ir_tensor of, ir_axes from) {
  ir_tensor_data d = *ir_tensor_at(f, of);
  ir_tensor t = {f->tensors.len};
  d.now.logical = from;
  vec_push(&f->module->memory, &f->tensors, d);
  return t;
}

static uint32_t pair_up(const ir_func *f, ir_axes from, ir_axes to, bool reductions,
                        ir_pair *pairs) {
  uint32_t n = 0, k = 0;
  for (uint32_t i = 0; i < to.len; i++) {
    bool reduction = ir_axis_at(f, to.data[i])->kind == IR_AXIS_REDUCTION;
    if (reduction != reductions) {
      k += reductions; /* roots have all of them; without reductions only the others are there */
      continue;
    }
    if (k < from.len) pairs[n++] = (ir_pair){from.data[k++], to.data[i], IR_PAIR_EXACT};
  }
  return n;
}

/* What was between T and the operands is computed with T. */
static void note_steps(ir_func *f, ir_tensor t) {
  uint32_t name = ir_tensor_at(f, t)->name;
  for (;;) {
    const ir_tensor_data *d = ir_tensor_at(f, t);
    if (IR_SAME(d->def, d->scheduled_def)) return;
    t = ir_op_at(f, d->scheduled_def)->operands[0];
    ir_removed step = {ir_tensor_at(f, t)->name, IR_RULE_STEPS, name};
    vec_push(&f->module->memory, &f->removed, step);
  }
}

static void merge_steps(ir_func *f, ir_tensor t) {
  ir_pair pairs[IR_MAX_RANK];
  ir_axis dims[IR_MAX_RANK];
  ir_tensor u = first_step(f, t);
  move_marks_up(f, t);
  bool together = IR_SAME(ir_tensor_at(f, u)->mesh, ir_tensor_at(f, t)->mesh);
  uint32_t rank = ir_axes_dims(f, ir_tensor_at(f, t)->now.logical, dims);
  ir_tensor parts = view_of(f, u, ir_tensor_at(f, u)->now.root);
  ir_tensor whole = view_of(f, t, ir_axes_new(f, dims, rank));
  ir_tensor_data *d = ir_tensor_at(f, t);
  d->scheduled_def = d->def;
  d->now = d->defined;
  for (uint32_t i = 0; i < d->now.logical.len; i++)
    ir_axis_at(f, d->now.logical.data[i])->mark = (ir_mark){0};
  ir_axes logical = d->now.logical;
  uint32_t n = pair_up(f, ir_tensor_at(f, whole)->now.logical, logical, false, pairs);
  schedule_marks all = {true, ~0u}, placed = {false, ~0u};
  (void)schedule_replay_marked(f, whole, t, pairs, n, all, NULL);
  n = pair_up(f, ir_tensor_at(f, parts)->now.logical, logical, true, pairs);
  /* mutant: rfactor_forgotten */
  if (together) (void)schedule_replay_marked(f, parts, t, pairs, n, placed, NULL);
}

bool shard_rfactors_fit(ir_func *f) {
  bool ok = true;
  if (f->scheduled.len == f->order.len) return true; /* there are none */
  for (uint32_t i = 0; i < f->scheduled.len; i++) {
    const ir_op_data *op = ir_op_at(f, f->scheduled.data[i]);
    bool made = op->result.id >= f->n_defined.tensors;
    if (!made || !ir_axes_streamed(f, ir_tensor_at(f, op->result)->now.loop)) continue;
    diag_error(&f->module->errors, op->at,
               "'%s' was made by rfactor and cannot be streamed: mark the tensor it was made from",
               ir_tensor_name(f, op->result));
    ok = false;
  }
  return ok;
}

/* What the schedule made, and the tensors that were only looked at, are no more. */
static void forget_steps(ir_func *f, uint32_t first) {
  for (uint32_t i = first; i < f->tensors.len; i++) {
    ir_tensor_data *t = &f->tensors.data[i];
    if (ir_func_lookup(f, t->name).id == i) ir_func_undeclare(f, t->name);
    *t = (ir_tensor_data){.kind = IR_TENSOR_CONST, .dtype = t->dtype};
  }
}

uint32_t shard_merge_rfactors(ir_func *f) {
  uint32_t merged = 0, n_tensors = f->n_defined.tensors;
  for (uint32_t i = 0; i < f->order.len; i++) {
    ir_tensor t = ir_op_at(f, f->order.data[i])->result;
    const ir_tensor_data *d = ir_tensor_at(f, t);
    if (IR_SAME(d->def, d->scheduled_def)) continue;
    note_steps(f, t);
    merge_steps(f, t);
    merged++;
  }
  if (!merged) return 0;
  forget_steps(f, n_tensors);
  f->scheduled.data =
      arena_copy(&f->module->memory, f->order.data, f->order.len * sizeof *f->order.data);
  f->scheduled.len = f->scheduled.cap = f->order.len;
  return merged;
}
