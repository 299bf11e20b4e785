#include "device/cpu/kernel_epilogue.h"

#include "device/cpu/tile/body.h"

static bool is_product(const rt_step *s) { return ir_op_is_plain_product(s->code) && !s->offset; }

/* ---- the form ---- */
/* The only product, which reads parameters and is computed like the result. */
static bool find_product(cpu_epilogue *e, const rt_view *result) {
  const rt_body *b = e->body;
  uint32_t found = 0;
  for (uint32_t s = 0; s < b->n_steps; s++) {
    const rt_shape *made = b->steps[s].results;
    if (b->steps[s].n_results != 1 ||
        !rt_extents_same(made->rank, made->extents, result->rank, result->extents))
      return false;
    if (!is_product(&b->steps[s])) continue;
    e->product = s;
    found++;
  }
  if (found != 1) return false;
  const rt_step *p = &b->steps[e->product];
  for (uint32_t k = 0; k < p->n_operands; k++) {
    if (p->operands[k].kind == RT_VALUE_STEP) return false;
    e->starts[k + 1] = p->operands[k].kind == RT_VALUE_PARAM ? p->operands[k].index + 1 : 0;
  }
  return p->results[0].dtype == result->dtype;
}

static bool add_other(cpu_epilogue *e, uint32_t param) {
  for (uint32_t i = 0; i < e->n_others; i++)
    if (e->params[i] == param) return true;
  if (e->n_others == CPU_MAX_OTHERS) return false;
  e->params[e->n_others++] = param;
  return true;
}

static bool takes_step(cpu_epilogue *e, const rt_step *s) {
  if (!ir_op_is_elementwise(s->code) || s->offset) return false;
  for (uint32_t k = 0; k < s->n_operands; k++) {
    const rt_value *v = &s->operands[k];
    if (v->kind == RT_VALUE_NONE) return false;
    if (v->kind == RT_VALUE_PARAM && !add_other(e, v->index)) return false;
  }
  return true;
}

static bool has_form(cpu_epilogue *e, const rt_task *task) {
  const rt_body *b = e->body;
  const rt_view *result = &e->plan->views[task->result];
  if (b->n_results != 1 || b->results[0].kind != RT_VALUE_STEP || rt_view_is_empty(result))
    return false;
  if (!find_product(e, result) || b->results[0].index == e->product) return false;
  for (uint32_t s = 0; s < b->n_steps; s++)
    if (s != e->product && !takes_step(e, &b->steps[s])) return false;
  return !cpu_body_in_place(e->plan, task);
}

/* ---- the product ---- */
/* Aligned at the last dimension; one of size 1 repeats. */
static cpu_view place_other(const cpu_epilogue *e, const rt_task *task, uint32_t param) {
  const rt_view *r = &e->plan->views[task->result];
  const rt_view *x = &e->plan->views[task->operands[param].view];
  cpu_view v = {.start = param + 1, .dtype = x->dtype};
  for (uint32_t d = 0; d < x->rank; d++)
    if (x->extents[d] != 1) v.strides[r->rank - x->rank + d] = x->strides[d];
  return v;
}

static rt_task product_of(const cpu_epilogue *e, const rt_task *task, rt_operand *operands) {
  const rt_step *s = &e->body->steps[e->product];
  for (uint32_t k = 0; k < s->n_operands; k++) {
    const rt_value *v = &s->operands[k];
    operands[k] = (rt_operand){.kind = RT_OPERAND_NONE};
    if (v->kind == RT_VALUE_NUMBER)
      operands[k] = (rt_operand){.kind = RT_OPERAND_NUMBER, .number = v->number};
    if (v->kind == RT_VALUE_PARAM) operands[k] = task->operands[v->index];
    operands[k].sliced = v->sliced;
  }
  return (rt_task){.code = s->code,
                   .result = task->result,
                   .n_operands = s->n_operands,
                   .compute = s->compute,
                   .operands = operands,
                   .attrs = s->attrs};
}

status cpu_prepare_epilogue(const rt_plan *plan, const rt_task *task, arena *memory,
                            cpu_kernel **result) {
  cpu_epilogue e = {.plan = plan, .body = task->body};
  rt_operand operands[RT_MAX_OPERANDS];
  *result = NULL;
  if (!has_form(&e, task)) return STATUS_OK;
  for (uint32_t i = 0; i < e.n_others; i++) e.others[i] = place_other(&e, task, e.params[i]);
  rt_task product = product_of(&e, task, operands);
  cpu_call c = cpu_call_of(plan, &product, memory);
  c.epilogue = &e;
  bool is_linear = c.info->family == IR_FAMILY_LINEAR;
  return is_linear ? cpu_prepare_linear(&c, result) : cpu_prepare_matmul(&c, result);
}

/* ---- a block ---- */
/* The body over a block: parameter 0 is the product, which lies where the result will. */
typedef struct making {
  const cpu_epilogue *e;
  arena *memory;
  int64_t (*extents)[2], (*strides)[2]; /* by parameter */
  rt_view *views;                       /* the result, then the parameters */
  rt_shape *params;
} making;

static void add_param(making *m, const cpu_epilogue_block *b, uint32_t i, ir_dtype dtype) {
  int64_t row = b->row_strides[i], column = b->column_strides[i];
  m->extents[i][0] = row ? b->rows : 1;
  m->extents[i][1] = column ? b->columns : 1;
  if (i == 0) m->extents[i][0] = b->rows, m->extents[i][1] = b->columns;
  m->strides[i][0] = row;
  m->strides[i][1] = column;
  m->views[1 + i] = (rt_view){.buffer = i > 0,
                              .dtype = dtype,
                              .rank = 2,
                              .extents = m->extents[i],
                              .strides = m->strides[i]};
  m->params[i] = (rt_shape){dtype, 2, m->extents[i]};
}

static rt_value value_of(const cpu_epilogue *e, const rt_value *v) {
  rt_value x = *v;
  x.sliced = 0;
  if (v->kind == RT_VALUE_STEP && v->index == e->product) {
    x = (rt_value){.kind = RT_VALUE_PARAM};
  } else if (v->kind == RT_VALUE_STEP) {
    x.index -= v->index > e->product;
  } else if (v->kind == RT_VALUE_PARAM) {
    for (uint32_t i = 0; i < e->n_others; i++)
      if (e->params[i] == v->index) x.index = 1 + i;
  }
  return x;
}

static rt_step step_of(const making *m, const rt_step *from) {
  rt_step s = *from;
  rt_value *operands = ARENA_ARRAY(m->memory, from->n_operands + (size_t)1, rt_value);
  rt_shape *made = ARENA_NEW(m->memory, rt_shape);
  for (uint32_t k = 0; k < from->n_operands; k++) operands[k] = value_of(m->e, &from->operands[k]);
  *made = (rt_shape){from->results[0].dtype, 2, m->extents[0]};
  s.operands = operands;
  s.results = made;
  return s;
}

static void make_params(making *m, const cpu_epilogue_block *block) {
  const cpu_epilogue *e = m->e;
  uint32_t n = 1 + e->n_others;
  m->extents = arena_alloc(m->memory, n * sizeof *m->extents);
  m->strides = arena_alloc(m->memory, n * sizeof *m->strides);
  m->views = ARENA_ARRAY(m->memory, n + (size_t)1, rt_view);
  m->params = ARENA_ARRAY(m->memory, n, rt_shape);
  add_param(m, block, 0, e->body->steps[e->product].results[0].dtype);
  for (uint32_t i = 0; i < e->n_others; i++) add_param(m, block, 1 + i, e->others[i].dtype);
  m->views[0] = m->views[1];
}

status cpu_epilogue_kernel(const cpu_epilogue *e, const cpu_epilogue_block *block, arena *memory,
                           const cpu_kernel **result) {
  making m = {.e = e, .memory = memory};
  uint32_t n = 1 + e->n_others, n_steps = 0;
  make_params(&m, block);
  rt_step *steps = ARENA_ARRAY(memory, e->body->n_steps, rt_step);
  rt_operand *operands = ARENA_ARRAY(memory, n, rt_operand);
  for (uint32_t s = 0; s < e->body->n_steps; s++)
    if (s != e->product) steps[n_steps++] = step_of(&m, &e->body->steps[s]);
  for (uint32_t i = 0; i < n; i++)
    operands[i] = (rt_operand){.kind = RT_OPERAND_VIEW, .view = 1 + i};
  rt_value last = value_of(e, &e->body->results[0]);
  rt_body body = {.n_params = n,
                  .n_steps = n_steps,
                  .n_results = 1,
                  .params = m.params,
                  .steps = steps,
                  .results = &last};
  rt_plan plan = *e->plan;
  plan.views = m.views;
  plan.n_views = n + 1;
  rt_task task = {.n_operands = n, .operands = operands, .body = &body};
  return cpu_kernel_prepare(&plan, &task, memory, result);
}
