/* Bodies for tests: a random program as one task whose body has a step for each of its operations. */
#ifndef WEIR_TESTS_FUZZ_BODY_KIT_H
#define WEIR_TESTS_FUZZ_BODY_KIT_H

#include <string.h>

#include "base/table.h"
#include "gen.h"
#include "ir/bind.h"
#include "ir/infer.h"
#include "runtime/plan.h"

enum { BODY_SEED = 11 };

/* Where the tensors of the function are in the body. */
typedef struct body_maker {
  const ir_env *env;
  const ir_func *f;
  arena *memory;
  rt_value *values; /* by tensor id */
} body_maker;

static rt_shape body_shape(const body_maker *m, ir_tensor t) {
  rt_shape s = {.dtype = ir_tensor_at(m->f, t)->dtype};
  int64_t extents[IR_MAX_RANK];
  check(ir_env_shape(m->env, t, extents, &s.rank));
  s.extents = arena_copy(m->memory, extents, sizeof extents);
  return s;
}

static rt_attr body_attr(const body_maker *m, const ir_op_data *op, const ir_param *p,
                         const ir_attr *a) {
  rt_attr out = {.given = a->given, .i = a->i, .len = a->len, .list = a->ints};
  if (p->kind == IR_PARAM_NUMBER) {
    out.is_float = a->number.is_float;
    out.i = a->number.i;
    out.f = a->number.f;
  }
  if (p->kind == IR_PARAM_SCALAR && a->given) check(ir_env_eval(m->env, a->scalar, &out.i));
  if (p->kind == IR_PARAM_SCALARS) {
    int64_t *list = ARENA_ARRAY(m->memory, a->len + 1, int64_t);
    for (uint32_t i = 0; i < a->len; i++) check(ir_env_eval(m->env, a->scalars[i], &list[i]));
    out.list = list;
  }
  if (!a->given && strcmp(p->name, "key") == 0) { /* plans always have one */
    const char *name = ir_tensor_name(m->f, op->result);
    out.given = true;
    out.i = (int64_t)hash_bytes(name, strlen(name));
  }
  return out;
}

static const rt_attr *body_attrs(const body_maker *m, const ir_op_data *op) {
  const ir_op_info *info = ir_op_info_of(op->code);
  rt_attr *attrs = ARENA_ARRAY(m->memory, info->n_attrs + 1, rt_attr);
  uint32_t n = 0;
  for (const ir_param *p = info->params; p->kind != IR_PARAM_END; p++)
    if (p->kind != IR_PARAM_TENSOR && p->kind != IR_PARAM_TENSORS)
      attrs[n] = body_attr(m, op, p, &op->attrs[n]), n++;
  return attrs;
}

static rt_value body_value(const body_maker *m, ir_tensor t) {
  if (t.id == 0) return (rt_value){.kind = RT_VALUE_NONE};
  const ir_tensor_data *data = ir_tensor_at(m->f, t);
  if (data->kind == IR_TENSOR_CONST)
    return (rt_value){.kind = RT_VALUE_NUMBER, .number = &data->number};
  return m->values[t.id];
}

static rt_step body_step(const body_maker *m, const ir_op_data *op) {
  rt_value *operands = ARENA_ARRAY(m->memory, op->n_operands + 1, rt_value);
  rt_shape *shapes = ARENA_ARRAY(m->memory, 1 + op->n_more, rt_shape);
  shapes[0] = body_shape(m, op->result);
  for (uint32_t r = 0; r < op->n_more; r++)
    shapes[1 + r] = op->more[r].id ? body_shape(m, op->more[r]) : shapes[0];
  for (uint32_t k = 0; k < op->n_operands; k++) operands[k] = body_value(m, op->operands[k]);
  rt_step s = {.code = op->code,
               .n_operands = op->n_operands,
               .operands = operands,
               .attrs = body_attrs(m, op),
               .n_results = 1 + op->n_more,
               .results = shapes};
  if (ir_op_info_of(op->code)->family == IR_FAMILY_POINTWISE)
    s.compute = ir_infer_compute_dtype(m->f, op);
  return s;
}

/* The whole definition of the environment's function. */
static const rt_body *body_of(const ir_env *env, arena *memory) {
  const ir_func *f = env->func;
  body_maker m = {.env = env, .f = f, .memory = memory};
  m.values = ARENA_ARRAY(memory, f->tensors.len + 1, rt_value);
  rt_shape *params = ARENA_ARRAY(memory, f->inputs.len + 1, rt_shape);
  rt_step *steps = ARENA_ARRAY(memory, f->order.len + 1, rt_step);
  rt_value *results = ARENA_ARRAY(memory, f->outputs.len + 1, rt_value);
  for (uint32_t i = 0; i < f->inputs.len; i++) {
    params[i] = body_shape(&m, f->inputs.data[i]);
    m.values[f->inputs.data[i].id] = (rt_value){.kind = RT_VALUE_PARAM, .index = i};
  }
  for (uint32_t i = 0; i < f->order.len; i++) {
    const ir_op_data *op = ir_op_at(f, f->order.data[i]);
    steps[i] = body_step(&m, op);
    m.values[op->result.id] = (rt_value){.kind = RT_VALUE_STEP, .index = i};
    for (uint32_t r = 0; r < op->n_more; r++)
      m.values[op->more[r].id] = (rt_value){.kind = RT_VALUE_STEP, .index = i, .result = 1 + r};
  }
  for (uint32_t i = 0; i < f->outputs.len; i++) results[i] = body_value(&m, f->outputs.data[i]);
  rt_body b = {.n_params = f->inputs.len,
               .n_steps = f->order.len,
               .n_results = f->outputs.len,
               .params = params,
               .steps = steps,
               .results = results};
  return arena_copy(memory, &b, sizeof b);
}

#endif
