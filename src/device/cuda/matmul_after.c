/* Finds bodies that are a product with steps after it which the library can compute. */
#include "device/cuda/matmul.h"

typedef struct making {
  const rt_body *body;
  cuda_after *after;
  rt_operand *operands;
  bool ended;
} making;

static bool is_last_dim(const rt_shape *x, const rt_shape *result) {
  if (x->rank == 0 || x->extents[x->rank - 1] != result->extents[result->rank - 1]) return false;
  for (uint32_t d = 0; d + 1 < x->rank; d++)
    if (x->extents[d] != 1) return false;
  return true;
}

/* Takes parameter v of the body as an added tensor of the result's shape, or as a bias. */
static bool take_sum(making *m, const rt_value *v, const rt_shape *result) {
  if (v->kind != RT_VALUE_PARAM) return false;
  const rt_shape *x = rt_value_shape(m->body, v);
  bool whole = rt_extents_same(x->rank, x->extents, result->rank, result->extents);
  bool *taken = whole ? &m->after->added : &m->after->bias;
  rt_operand *to = &m->operands[whole ? 3 : 2];
  if (*taken || to->kind != RT_OPERAND_NONE || (!whole && !is_last_dim(x, result))) return false;
  *to = (rt_operand){.kind = RT_OPERAND_VIEW, .view = v->index};
  return *taken = true;
}

/* Takes step i, which must read step i - 1. */
static bool take_step(making *m, uint32_t i) {
  const rt_step *s = &m->body->steps[i];
  const rt_value *x = s->operands;
  const rt_shape *result = &m->body->steps[0].results[0];
  if (m->ended || s->offset || s->results[0].dtype != result->dtype || s->compute != result->dtype)
    return false;
  bool first = x[0].kind == RT_VALUE_STEP && x[0].index == i - 1;
  if (s->code == IR_OP_GELU) {
    rt_task t = {.code = s->code, .attrs = s->attrs};
    m->ended = m->after->gelu = rt_task_int(&t, "approximate") != 0;
    return first && m->ended;
  }
  if (s->code != IR_OP_ADD) return false;
  bool second = x[1].kind == RT_VALUE_STEP && x[1].index == i - 1;
  return first != second && take_sum(m, &x[first], result);
}

static bool take_product(const making *m) {
  const rt_step *s = &m->body->steps[0];
  if (!ir_op_is_plain_product(s->code) || s->offset) return false;
  for (uint32_t k = 0; k < s->n_operands; k++) {
    const rt_value *v = &s->operands[k];
    if (v->kind == RT_VALUE_NONE) continue;
    if (v->kind != RT_VALUE_PARAM) return false;
    m->operands[k] = (rt_operand){.kind = RT_OPERAND_VIEW, .view = v->index, .sliced = v->sliced};
  }
  return true;
}

const rt_task *cuda_after_of(const rt_body *body, uint32_t result, arena *memory,
                             cuda_after *made) {
  making m = {.body = body, .after = made, .operands = ARENA_ARRAY(memory, 4, rt_operand)};
  *made = (cuda_after){.bias = false};
  for (int k = 0; k < 4; k++) m.operands[k].kind = RT_OPERAND_NONE;
  if (body->n_results != 1 || !take_product(&m)) return NULL;
  for (uint32_t i = 1; i < body->n_steps; i++)
    if (!take_step(&m, i)) return NULL;
  if (body->results[0].kind != RT_VALUE_STEP || body->results[0].index + 1 != body->n_steps)
    return NULL;
  rt_task *t = ARENA_NEW(memory, rt_task);
  *t = (rt_task){.code = body->steps[0].code,
                 .result = result,
                 .n_operands = 4,
                 .operands = m.operands,
                 .compute = body->steps[0].compute,
                 .attrs = body->steps[0].attrs};
  return t;
}
