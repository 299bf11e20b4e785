#include "device/cuda/lower.h"

/* The dimension that a view is dense along; its rank: none. */
static uint32_t dense_dim(const rt_view *v) {
  for (uint32_t d = v->rank; d-- > 0;)
    if (v->strides[d] == 1 && v->extents[d] > 1) return d;
  return v->rank;
}

static bool is_crossed(const rt_plan *plan, const rt_task *t) {
  const rt_view *r = &plan->views[t->result];
  uint32_t inner = dense_dim(r);
  bool crossed = false;
  if (ir_op_info_of(t->code)->family != IR_FAMILY_POINTWISE || t->offset || inner == r->rank)
    return false;
  for (uint32_t k = 0; k < t->n_operands; k++) {
    if (t->operands[k].kind != RT_OPERAND_VIEW) return false;
    const rt_view *x = &plan->views[t->operands[k].view];
    uint32_t own = dense_dim(x);
    bool same = x->rank == r->rank && own < x->rank && x->extents[inner] == r->extents[inner];
    crossed = crossed || (same && own != inner);
  }
  return crossed;
}

/* Is it a softmax or norm of rows with few elements? As a body, a thread may have a whole row; rows.c
 * has a warp for each. */
static bool is_short(const rt_plan *plan, const rt_task *t) {
  enum { MOST = 16 };
  const rt_view *r = &plan->views[t->result];
  ir_family family = ir_op_info_of(t->code)->family;
  if ((family != IR_FAMILY_SOFTMAX && family != IR_FAMILY_NORM) || t->offset) return false;
  if (r->rank == 0 || r->extents[r->rank - 1] > MOST || t->n_more > 0) return false;
  for (uint32_t k = 0; k < t->n_operands; k++)
    if (t->operands[k].kind != RT_OPERAND_VIEW && t->operands[k].kind != RT_OPERAND_NONE)
      return false;
  return family == IR_FAMILY_NORM || rt_task_dim(t, "dim", r->rank) == r->rank - 1;
}

static rt_shape shape_of(const rt_plan *plan, uint32_t view) {
  const rt_view *v = &plan->views[view];
  return (rt_shape){v->dtype, v->rank, v->extents};
}

bool cuda_prepare_single(const rt_plan *plan, const rt_task *task, arena *memory, cuda_kernel *k) {
  if (!is_crossed(plan, task) && !is_short(plan, task)) return false;
  uint32_t n = task->n_operands;
  rt_shape *params = ARENA_ARRAY(memory, n, rt_shape), *made = ARENA_NEW(memory, rt_shape);
  rt_value *values = ARENA_ARRAY(memory, n, rt_value), *result = ARENA_NEW(memory, rt_value);
  rt_step *step = ARENA_NEW(memory, rt_step);
  rt_body *body = ARENA_NEW(memory, rt_body);
  for (uint32_t i = 0; i < n; i++) {
    if (task->operands[i].kind == RT_OPERAND_NONE) {
      params[i] = shape_of(plan, task->result); /* not used */
      values[i] = (rt_value){.kind = RT_VALUE_NONE};
      continue;
    }
    params[i] = shape_of(plan, task->operands[i].view);
    values[i] = (rt_value){.kind = RT_VALUE_PARAM, .index = i, .sliced = task->operands[i].sliced};
  }
  *made = shape_of(plan, task->result);
  *result = (rt_value){.kind = RT_VALUE_STEP};
  *step = (rt_step){.code = task->code,
                    .compute = task->compute,
                    .n_operands = n,
                    .operands = values,
                    .attrs = task->attrs,
                    .n_results = 1,
                    .results = made};
  *body = (rt_body){.n_params = n,
                    .n_steps = 1,
                    .n_results = 1,
                    .params = params,
                    .steps = step,
                    .results = result};
  rt_task copy = *task;
  copy.code = IR_OP_NONE;
  copy.body = body;
  k->name = ir_op_info_of(task->code)->name;
  return cuda_lower_body(plan, &copy, memory, k);
}

status cuda_prepare_body(const rt_plan *plan, const rt_task *task, arena *memory, cuda_kernel *k) {
  check(task->n_operands == task->body->n_params);
  check(rt_task_n_results(task) == task->body->n_results);
  k->name = "body";
  if (cuda_lower_body(plan, task, memory, k)) return STATUS_OK;
  k->code.n_launches = 0;
  k->code.scratch_bytes = 0;
  return cuda_prepare_steps(plan, task, true, memory, k);
}
