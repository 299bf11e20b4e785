/* Kernels of a host program become tasks with a body. */
#include <string.h>

#include "bind/internal.h"
#include "ir/infer.h"
#include "runtime/task.h"

typedef struct building {
  binder *b;
  const ir_instr_data *launch;
  const ir_op_data *op; /* its operands and destinations */
  rt_step *steps;
  uint32_t n_steps;
} building;

/* ---- values ---- */
/* Does step number `step`, counted from 1, of this kernel compute t? Numbers that other kernels left do not. */
static bool is_step(const building *w, uint32_t step, ir_tensor t) {
  return step > 0 && step <= w->n_steps &&
         IR_SAME(ir_instr_at(w->b->h, w->launch->body.data[step - 1])->tensor, t);
}

static bool value_of(const building *w, ir_tensor t, rt_value *v) {
  uint32_t step = w->b->steps_at[t.id];
  if (is_step(w, step, t)) {
    *v = (rt_value){.kind = RT_VALUE_STEP, .index = step - 1};
    return true;
  }
  for (uint32_t i = 0; i < w->op->n_operands; i++) {
    if (!IR_SAME(w->op->operands[i], t)) continue;
    *v = (rt_value){.kind = RT_VALUE_PARAM, .index = i};
    return true;
  }
  return false;
}

static const rt_value *values_of(building *w, const ir_op_data *op, const rt_task *task) {
  rt_value *values = ARENA_ARRAY(&w->b->work, task->n_operands, rt_value);
  for (uint32_t k = 0; k < task->n_operands; k++) {
    const rt_operand *o = &task->operands[k];
    values[k] = (rt_value){.kind = RT_VALUE_NUMBER, .number = o->number};
    if (o->kind == RT_OPERAND_NONE) values[k].kind = RT_VALUE_NONE;
    if (o->kind == RT_OPERAND_VIEW) {
      bool known = value_of(w, op->operands[k], &values[k]);
      check(known);
    }
    values[k].sliced = o->sliced;
  }
  return values;
}

/* ---- extents of locals ---- */
static const rt_view *operand_view(const binder *b, const rt_task *t, uint32_t k) {
  bool view = k < t->n_operands && t->operands[k].kind == RT_OPERAND_VIEW;
  return view ? bind_view_at(b, t->operands[k].view) : NULL;
}

static void broadcast_extents(const binder *b, const rt_task *t, bind_shape *s) {
  for (uint32_t d = 0; d < s->view.rank; d++) s->extents[d] = 1;
  for (uint32_t k = 0; k < t->n_operands; k++) {
    const rt_view *x = operand_view(b, t, k);
    for (uint32_t p = 0; x && p < x->rank && x->rank <= s->view.rank; p++) {
      uint32_t d = s->view.rank - x->rank + p;
      if (x->extents[p] != 1) s->extents[d] = x->extents[p];
    }
  }
}

static void reduced_extents(const rt_task *t, const rt_view *x, bind_shape *s) {
  bool named[IR_MAX_RANK], keep = rt_task_int(t, "keepdim") != 0;
  uint32_t r = 0;
  rt_task_dims(t, "dims", x->rank, named);
  for (uint32_t d = 0; d < x->rank; d++) {
    if (!named[d] || keep) s->extents[r++] = named[d] ? 1 : x->extents[d];
  }
}

static void moved_extents(const rt_task *t, const rt_view *x, bind_shape *s) {
  int from[IR_MAX_RANK];
  rt_task_from(t, x->rank, from);
  for (uint32_t d = 0; d < s->view.rank; d++)
    s->extents[d] = from[d] == RT_NO_DIM ? 1 : x->extents[from[d]];
}

/* A slice at the end of a loop may be shorter than the program can say. So where the operands show how
 * long the local is, they decide. False: they do not show it. */
static bool extents_follow(const binder *b, const rt_task *t, bind_shape *s) {
  const rt_view *x = operand_view(b, t, 0);
  ir_family family = ir_op_info_of(t->code)->family;
  bool same = family == IR_FAMILY_SET || family == IR_FAMILY_CAST || family == IR_FAMILY_SOFTMAX ||
              family == IR_FAMILY_NORM;
  bool reduces = family == IR_FAMILY_REDUCE || family == IR_FAMILY_MOMENT;
  if (family == IR_FAMILY_POINTWISE) broadcast_extents(b, t, s);
  else if (!x) return false;
  else if (same) memcpy(s->extents, x->extents, x->rank * sizeof *x->extents);
  else if (reduces) reduced_extents(t, x, s);
  else if (rt_task_moves_dims(t)) moved_extents(t, x, s);
  else return false;
  return true;
}

/* An elementwise operation fills its destination, as it does outside of kernels: a dimension that has size
 * 1 in all operands may be longer there, or have no position. Of other operations an empty destination
 * says that nothing is computed. */
static bool extents_returned(const building *w, const ir_instr_data *d, const rt_task *t,
                             bind_shape *s) {
  const ir_instr_data *launch = w->launch;
  bool elements = ir_op_info_of(t->code)->family == IR_FAMILY_POINTWISE;
  for (uint32_t k = 0; k < ir_op_n_results(w->op); k++) {
    ir_tensor to = ir_op_result(w->op, k);
    if (!IR_SAME(launch->returns[k], d->tensor) || !w->b->bound[to.id]) continue;
    const rt_view *v = &w->b->views[to.id];
    if (v->rank != s->view.rank || (!elements && !rt_view_is_empty(v))) return false;
    memcpy(s->extents, v->extents, v->rank * sizeof *v->extents);
    return true;
  }
  return false;
}

/* ---- steps ---- */
/* From here on the local has these extents, and no memory. */
static bool bind_local(building *w, const ir_instr_data *d, const rt_task *task) {
  binder *b = w->b;
  ir_axis dims[IR_MAX_RANK];
  bind_shape s = {.view = {.buffer = BIND_LOCAL, .dtype = ir_tensor_at(b->h, d->tensor)->dtype}};
  s.view.rank = ir_tensor_dims(b->h, d->tensor, dims);
  bool follow = !d->offsets && (extents_returned(w, d, task, &s) || extents_follow(b, task, &s));
  int64_t stride = 1;
  for (uint32_t i = s.view.rank; i-- > 0;) {
    if (!follow && !bind_eval(b, d, ir_axis_size(b->h, dims[i]), &s.extents[i])) return false;
    if (s.extents[i] < 0)
      return bind_error(b, d, "extent %u of '%s' is negative: %lld", i,
                        ir_tensor_name(b->h, d->tensor), (long long)s.extents[i]);
    s.strides[i] = stride;
    if (s.extents[i] && __builtin_mul_overflow(stride, s.extents[i], &stride))
      return bind_error(b, d, "the extents of '%s' overflow", ir_tensor_name(b->h, d->tensor));
  }
  bind_tensor(b, d->tensor, &s);
  return true;
}

static bool bind_step(building *w, const ir_instr_data *d) {
  binder *b = w->b;
  const ir_op_data *op = ir_op_at(b->h, d->op);
  rt_task task = {.code = op->code};
  if (!bind_operands(b, d, op, &b->work, &task) || !bind_attrs(b, d, op, &task)) return false;
  if (!bind_local(w, d, &task)) return false;
  const rt_view *result = &b->views[d->tensor.id];
  task.result = bind_add_view(b, d->tensor);
  if (!rt_view_is_empty(result) && !bind_shapes_fit(b, d, &task)) return false;
  rt_shape shape = {result->dtype, result->rank, result->extents};
  rt_step step = {.code = op->code, .n_operands = task.n_operands, .attrs = task.attrs};
  if (ir_op_info_of(op->code)->family == IR_FAMILY_POINTWISE)
    step.compute = ir_infer_compute_dtype(b->h, op);
  step.operands = values_of(w, op, &task);
  step.n_results = 1;
  step.results = arena_copy(&b->work, &shape, sizeof shape);
  step.offset = task.offset;
  step.whole = task.whole;
  w->steps[w->n_steps++] = step;
  b->steps_at[d->tensor.id] = w->n_steps;
  return true;
}

/* ---- bodies ---- */
static const rt_shape *params_of(const building *w, const rt_task *task) {
  rt_shape *params = ARENA_ARRAY(&w->b->work, task->n_operands, rt_shape);
  for (uint32_t k = 0; k < task->n_operands; k++) {
    const rt_view *v = bind_view_at(w->b, task->operands[k].view);
    params[k] = (rt_shape){v->dtype, v->rank, v->extents};
  }
  return params;
}

/* One body for all iterations that are alike. */
static const rt_body *body_of(building *w, const rt_task *task) {
  binder *b = w->b;
  uint32_t n = ir_op_n_results(w->op);
  rt_value *results = ARENA_ARRAY(&b->work, n, rt_value);
  for (uint32_t k = 0; k < n; k++) {
    bool known = value_of(w, w->launch->returns[k], &results[k]);
    check(known);
  }
  rt_body body = {.n_params = task->n_operands, .n_steps = w->n_steps, .n_results = n};
  body.params = params_of(w, task);
  body.steps = w->steps;
  body.results = results;
  const rt_body **last = &b->bodies[w->launch->op.id];
  if (!*last || !rt_body_equal(*last, &body)) *last = rt_body_copy(&body, b->memory);
  return *last;
}

static bool bind_results(building *w, rt_task *task) {
  binder *b = w->b;
  const ir_instr_data *d = w->launch;
  uint32_t *more = ARENA_ARRAY(b->memory, w->op->n_more, uint32_t);
  for (uint32_t k = 0; k < ir_op_n_results(w->op); k++) {
    ir_tensor to = ir_op_result(w->op, k);
    if (!bind_is_bound(b, d, to)) return false;
    const rt_view *v = &b->views[to.id], *made = &b->views[d->returns[k].id];
    bool same = v->rank == made->rank;
    for (uint32_t i = 0; same && i < v->rank; i++) same = v->extents[i] == made->extents[i];
    if (!same)
      return bind_error(b, d, "the kernel returns '%s' with other extents than '%s' has",
                        ir_tensor_name(b->h, d->returns[k]), ir_tensor_name(b->h, to));
    if (rt_view_overlap(v) != RT_APART && !rt_view_is_empty(v))
      return bind_error(b, d, "several elements of the destination '%s' share the same bytes",
                        ir_tensor_name(b->h, to));
    uint32_t view = bind_add_view(b, to);
    if (k == 0) task->result = view;
    else more[k - 1] = view;
  }
  task->n_more = w->op->n_more;
  task->more = more;
  return true;
}

static bool all_empty(const binder *b, const rt_task *task) {
  for (uint32_t k = 0; k < rt_task_n_results(task); k++) {
    if (!rt_view_is_empty(bind_view_at(b, rt_task_result(task, k)))) return false;
  }
  return true;
}

bool bind_launch(binder *b, ir_instr at, const ir_instr_data *d) {
  building w = {.b = b, .launch = d, .op = ir_op_at(b->h, d->op)};
  rt_task task = {.code = IR_OP_NONE};
  b->locals.len = 0;
  arena_reset(&b->work);
  w.steps = ARENA_ARRAY(&b->work, d->body.len, rt_step);
  if (w.op->n_operands > RT_MAX_OPERANDS || ir_op_n_results(w.op) > RT_MAX_RESULTS)
    return bind_error(b, d, "a kernel has at most %d parameters and %d results, not %u and %u",
                      RT_MAX_OPERANDS, RT_MAX_RESULTS, w.op->n_operands, ir_op_n_results(w.op));
  if (!bind_operands(b, d, w.op, b->memory, &task)) return false;
  for (uint32_t i = 0; i < d->body.len; i++) {
    if (!bind_step(&w, ir_instr_at(b->h, d->body.data[i]))) return false;
  }
  if (!bind_results(&w, &task)) return false;
  if (all_empty(b, &task)) return true;
  task.body = body_of(&w, &task);
  bind_put_launch(b, at, &task);
  return true;
}
