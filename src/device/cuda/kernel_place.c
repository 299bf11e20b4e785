/* Operands, attributes and windows of a task. */
#include "device/cuda/kernel_place.h"

cuda_call cuda_call_of(const rt_plan *plan, const rt_task *task, cuda_kernel *kernel) {
  cuda_call c = {.plan = plan,
                 .task = task,
                 .info = ir_op_info_of(task->code),
                 .result = &plan->views[task->result],
                 .kernel = kernel};
  rt_task_window(plan, task, c.offset, c.whole);
  return c;
}

bool cuda_attr_mode(const cuda_call *c) {
  for (const ir_param *p = c->info->params; p->kind != IR_PARAM_END; p++)
    if (p->kind == IR_PARAM_CHOICE) return rt_task_int(c->task, p->name) != 0;
  return false;
}

/* ---- views ---- */
uint32_t cuda_view_align(const rt_view *v) {
  uint32_t align = CG_ALIGN;
  /* mutant: cuda_loop_aligned_once */
  while (rt_view_offset_bits(v) % align != 0) align /= 2;
  return align;
}

cg_view cuda_place_result(const cuda_call *c) {
  const rt_view *r = c->result;
  cg_view v = {.dtype = r->dtype, .align = cuda_view_align(r)};
  for (uint32_t d = 0; d < r->rank; d++) v.strides[d] = r->strides[d];
  return v;
}

cg_view cuda_place_more(const cuda_call *c, uint32_t k) {
  const rt_view *r = &c->plan->views[rt_task_result(c->task, k)];
  cg_view v = {.start = c->task->n_operands + k, .dtype = r->dtype, .align = cuda_view_align(r)};
  for (uint32_t d = 0; d < r->rank; d++) v.strides[d] = r->strides[d];
  return v;
}

cg_view cuda_place_start(const cuda_call *c, uint32_t k) {
  rt_view x = rt_task_operand(c->plan, c->task, k);
  return (cg_view){.start = k + 1, .dtype = x.dtype, .align = cuda_view_align(&x)};
}

cg_view cuda_place(const cuda_call *c, uint32_t k, const int *from) {
  cg_view v = cuda_place_start(c, k);
  cuda_advance(&v, rt_task_place(c->plan, c->task, k, from, v.strides));
  return v;
}

cg_view cuda_place_aligned(const cuda_call *c, uint32_t k) {
  int from[IR_MAX_RANK];
  rt_align(rt_task_operand(c->plan, c->task, k).rank, c->result->rank, from);
  return cuda_place(c, k, from);
}

cg_source cuda_source(const cuda_call *c, uint32_t k) {
  const rt_operand *o = &c->task->operands[k];
  if (o->kind == RT_OPERAND_NUMBER) return (cg_source){.kind = CG_CONSTANT, .number = *o->number};
  return (cg_source){.kind = CG_VIEW, .view = cuda_place_aligned(c, k)};
}

cg_source cuda_positions(const cuda_call *c, uint32_t cut) {
  cg_source s = {.kind = CG_POSITION, .view = {.dtype = IR_I64, .align = CG_ALIGN}};
  s.first = rt_task_place_numbers(c->plan, c->task, cut, s.view.strides);
  return s;
}

cg_map cuda_map(const cuda_call *c, const char *name) {
  cg_map m = {.name = name, .rank = c->result->rank, .result = cuda_place_result(c)};
  for (uint32_t d = 0; d < m.rank; d++) m.extents[d] = c->result->extents[d];
  return m;
}
