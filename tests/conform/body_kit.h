/* Bodies for tests: a fusion as one task whose body computes all of it.
 *
 * Every operation of the fusion is a step, every input a parameter, every output a result. Inputs and
 * outputs have memory of their own, dense. */
#ifndef WEIR_TESTS_CONFORM_BODY_KIT_H
#define WEIR_TESTS_CONFORM_BODY_KIT_H

#include <string.h>

#include "base/table.h"
#include "data/compare.h"
#include "data/fill.h"
#include "ir/bind.h"
#include "ir/infer.h"
#include "ref/ref.h"
#include "runtime/plan.h"
#include "text/text.h"

enum { BODY_SEED = 11, BODY_MAX = 64 };

typedef struct body_case {
  arena *memory;
  bool shapes_only; /* arrays have no memory */
  ir_module module;
  ir_env env;
  const ir_func *f;
  ir_array inputs[BODY_MAX], expected[BODY_MAX];
  ir_dtype least[BODY_MAX];
  rt_plan plan;
  rt_task task;
  uint32_t *step_of; /* by tensor: 1 + the step that computes it; 0: an input */
  uint32_t *result_of;
} body_case;

/* ---- arrays ---- */
static ir_array body_array(const body_case *c, ir_tensor t) {
  ir_array a = {.dtype = ir_tensor_at(c->f, t)->dtype};
  int64_t size_bytes;
  check(ir_env_shape(&c->env, t, a.extents, &a.rank));
  ir_array_dense(&a);
  check(ir_array_size_bytes(&a, &size_bytes));
  if (!c->shapes_only) a.data = arena_alloc(c->memory, (size_t)size_bytes + 16);
  return a;
}

static rt_shape body_shape(const body_case *c, ir_tensor t) {
  ir_array a = {.dtype = ir_tensor_at(c->f, t)->dtype};
  check(ir_env_shape(&c->env, t, a.extents, &a.rank));
  return (rt_shape){a.dtype, a.rank, arena_copy(c->memory, a.extents, sizeof a.extents)};
}

static uint32_t body_view(body_case *c, const ir_array *a) {
  rt_view v = {.buffer = c->plan.n_views, .dtype = a->dtype, .rank = a->rank};
  v.extents = arena_copy(c->memory, a->extents, sizeof a->extents);
  v.strides = arena_copy(c->memory, a->strides, sizeof a->strides);
  c->plan.views[c->plan.n_views] = v;
  return c->plan.n_views++;
}

/* ---- steps ---- */
static rt_value body_value(const body_case *c, ir_tensor t) {
  const ir_tensor_data *d = ir_tensor_at(c->f, t);
  if (t.id == 0) return (rt_value){.kind = RT_VALUE_NONE};
  if (d->kind == IR_TENSOR_CONST) return (rt_value){.kind = RT_VALUE_NUMBER, .number = &d->number};
  if (c->step_of[t.id])
    return (rt_value){
        .kind = RT_VALUE_STEP, .index = c->step_of[t.id] - 1, .result = c->result_of[t.id]};
  for (uint32_t i = 0; i < c->f->inputs.len; i++)
    if (IR_SAME(c->f->inputs.data[i], t)) return (rt_value){.kind = RT_VALUE_PARAM, .index = i};
  impossible("a tensor without a value");
}

static rt_attr body_attr(const body_case *c, const ir_op_data *op, const ir_param *p,
                         const ir_attr *a) {
  rt_attr out = {.given = a->given, .i = a->i, .len = a->len, .list = a->ints};
  if (p->kind == IR_PARAM_NUMBER) {
    out.is_float = a->number.is_float;
    out.i = a->number.i;
    out.f = a->number.f;
  }
  if (p->kind == IR_PARAM_SCALAR && a->scalar.id) check(ir_env_eval(&c->env, a->scalar, &out.i));
  if (p->kind == IR_PARAM_SCALARS) {
    int64_t *list = ARENA_ARRAY(c->memory, a->len + (size_t)1, int64_t);
    for (uint32_t i = 0; i < a->len; i++) check(ir_env_eval(&c->env, a->scalars[i], &list[i]));
    out.list = list;
  }
  if (!a->given && strcmp(p->name, "key") == 0) { /* plans always have one */
    const char *name = ir_tensor_name(c->f, op->result);
    out.given = true;
    out.i = (int64_t)hash_bytes(name, strlen(name));
  }
  return out;
}

static rt_step body_step(body_case *c, uint32_t i) {
  const ir_op_data *op = ir_op_at(c->f, c->f->order.data[i]);
  const ir_op_info *info = ir_op_info_of(op->code);
  rt_value *operands = ARENA_ARRAY(c->memory, op->n_operands + (size_t)1, rt_value);
  rt_attr *attrs = ARENA_ARRAY(c->memory, info->n_attrs + (size_t)1, rt_attr);
  rt_shape *results = ARENA_ARRAY(c->memory, ir_op_n_results(op), rt_shape);
  uint32_t n = 0;
  for (uint32_t k = 0; k < op->n_operands; k++) operands[k] = body_value(c, op->operands[k]);
  for (const ir_param *p = info->params; p->kind != IR_PARAM_END; p++)
    if (p->kind != IR_PARAM_TENSOR && p->kind != IR_PARAM_TENSORS)
      attrs[n] = body_attr(c, op, p, &op->attrs[n]), n++;
  for (uint32_t r = 0; r < ir_op_n_results(op); r++) {
    ir_tensor t = r == 0 ? op->result : op->more[r - 1];
    results[r] = body_shape(c, t);
    c->step_of[t.id] = i + 1;
    c->result_of[t.id] = r;
  }
  rt_step step = {.code = op->code,
                  .n_operands = op->n_operands,
                  .operands = operands,
                  .attrs = attrs,
                  .n_results = ir_op_n_results(op),
                  .results = results};
  if (info->family == IR_FAMILY_POINTWISE) step.compute = ir_infer_compute_dtype(c->f, op);
  return step;
}

static const rt_body *body_of(body_case *c) {
  const ir_func *f = c->f;
  rt_body *b = ARENA_NEW(c->memory, rt_body);
  rt_shape *params = ARENA_ARRAY(c->memory, f->inputs.len + (size_t)1, rt_shape);
  rt_step *steps = ARENA_ARRAY(c->memory, f->order.len + (size_t)1, rt_step);
  rt_value *results = ARENA_ARRAY(c->memory, f->outputs.len + (size_t)1, rt_value);
  c->step_of = ARENA_ARRAY(c->memory, f->tensors.len + (size_t)1, uint32_t);
  c->result_of = ARENA_ARRAY(c->memory, f->tensors.len + (size_t)1, uint32_t);
  for (uint32_t i = 0; i < f->inputs.len; i++) params[i] = body_shape(c, f->inputs.data[i]);
  for (uint32_t i = 0; i < f->order.len; i++) steps[i] = body_step(c, i);
  for (uint32_t i = 0; i < f->outputs.len; i++) results[i] = body_value(c, f->outputs.data[i]);
  *b = (rt_body){.n_params = f->inputs.len,
                 .n_steps = f->order.len,
                 .n_results = f->outputs.len,
                 .params = params,
                 .steps = steps,
                 .results = results};
  return b;
}

/* ---- cases ---- */
/* Parses and binds; the inputs have memory but no contents. False: it does not bind. */
static bool body_open(body_case *c, const char *text) {
  ir_module_init(&c->module, &memory_default);
  if (text_parse(&c->module, "body", text, strlen(text)) != STATUS_OK) return false;
  c->f = c->module.funcs.data[0];
  ir_env_init(&c->env, c->module.funcs.data[0], c->memory);
  if (!ir_bind_complete(&c->env) || !ir_bind_check(&c->env)) return false;
  if (c->f->inputs.len + c->f->outputs.len > BODY_MAX) return false;
  for (uint32_t i = 0; i < c->f->inputs.len; i++)
    c->inputs[i] = body_array(c, c->f->inputs.data[i]);
  for (uint32_t i = 0; i < c->f->outputs.len; i++)
    c->expected[i] = body_array(c, c->f->outputs.data[i]);
  return true;
}

static inline bool body_evaluate(body_case *c) {
  ref_options options = {.seed = BODY_SEED};
  status_clear();
  for (uint32_t i = 0; i < c->f->outputs.len; i++)
    c->least[i] = data_least_dtype(c->f, c->f->outputs.data[i], c->memory);
  return ref_eval(&c->env, c->inputs, c->expected, &options) == STATUS_OK;
}

/* One task: views 0 … are the inputs, then the outputs; each is a buffer of its own. */
static void body_make_task(body_case *c) {
  uint32_t n = c->f->inputs.len, m = c->f->outputs.len;
  rt_operand *operands = ARENA_ARRAY(c->memory, n + (size_t)1, rt_operand);
  uint32_t *more = ARENA_ARRAY(c->memory, m, uint32_t);
  c->plan.views = ARENA_ARRAY(c->memory, n + (size_t)m, rt_view);
  c->plan.seed = ARENA_NEW(c->memory, uint64_t);
  *c->plan.seed = BODY_SEED;
  for (uint32_t i = 0; i < n; i++)
    operands[i] = (rt_operand){.kind = RT_OPERAND_VIEW, .view = body_view(c, &c->inputs[i])};
  for (uint32_t i = 0; i < m; i++) (void)body_view(c, &c->expected[i]);
  for (uint32_t i = 1; i < m; i++) more[i - 1] = n + i;
  c->task = (rt_task){.result = n,
                      .n_more = m - 1,
                      .more = more,
                      .n_operands = n,
                      .operands = operands,
                      .body = body_of(c)};
}

#endif
