/* The driver: which operations run, in which order, and how long their results live. */
#include <string.h>

#include "ref/internal.h"

static ref_fn *const families[] = {
#define REF(eval, noise) ref_##eval
#define FAMILY(id, group, ir, shard, host, join, ref, ...) [IR_FAMILY_##id] = ref,
#include "ir/families.def"
};

status ref_call_family(const ref_call *c) {
  return families[ir_op_info_of(c->op->code)->family](c);
}

/* ---- lifetimes ---- */
static void find_last_uses(ref_state *s) {
  for (uint32_t i = 0; i < s->n_order; i++) {
    const ir_op_data *op = ir_op_at(s->f, s->order[i]);
    for (uint32_t k = 0; k < ir_op_n_results(op); k++)
      s->values[ir_op_result(op, k).id].last_use = i;
    for (uint32_t k = 0; k < op->n_operands; k++) s->values[op->operands[k].id].last_use = i;
  }
  for (uint32_t i = 0; i < s->f->outputs.len; i++)
    s->values[s->f->outputs.data[i].id].last_use = UINT32_MAX;
}

static void release(const ref_state *s, ir_tensor t) {
  ref_value *v = &s->values[t.id];
  if (!v->owned) return;
  memory_free(s->options->memory, v->array.data);
  v->owned = false;
}

void ref_release_unneeded(const ref_state *s, uint32_t position) {
  const ir_op_data *op = ir_op_at(s->f, s->order[position]);
  for (uint32_t k = 0; k < op->n_operands; k++)
    if (s->values[op->operands[k].id].last_use == position) release(s, op->operands[k]);
  for (uint32_t k = 0; k < ir_op_n_results(op); k++)
    if (s->values[ir_op_result(op, k).id].last_use == position) release(s, ir_op_result(op, k));
}

/* ---- values ---- */
/* A constant keeps all the digits it was written with, until an operation gives it a dtype. */
static void make_constant(const ref_state *s, ir_tensor t) {
  const ir_tensor_data *data = ir_tensor_at(s->f, t);
  ref_value *v = &s->values[t.id];
  bool is_float = data->value.id == 0 && data->number.is_float;
  v->array = (ir_array){.dtype = is_float ? IR_F64 : IR_I64, .data = &v->number};
  if (is_float) v->number.f = data->number.f;
  else if (data->value.id == 0) v->number.i = data->number.i;
  else check(ir_env_eval(s->env, data->value, &v->number.i));
}

static void make_constants(const ref_state *s) {
  for (uint32_t id = 1; id < s->f->tensors.len; id++)
    if (s->f->tensors.data[id].kind == IR_TENSOR_CONST) make_constant(s, (ir_tensor){id});
}

void ref_set_shape(const ref_state *s, ir_tensor t, ir_array *a) {
  ir_axis dims[IR_MAX_RANK];
  a->dtype = ir_tensor_at(s->f, t)->dtype;
  a->rank = ir_axes_dims(s->f, ref_domains(s, t).logical, dims);
  for (uint32_t i = 0; i < a->rank; i++)
    check(ir_env_eval(s->env, ir_axis_size(s->f, dims[i]), &a->extents[i]));
}

static void check_shape(const ref_state *s, ir_tensor t, const ir_array *given) {
  ir_array want = {0};
  ref_set_shape(s, t, &want);
  check(given->dtype == want.dtype && given->rank == want.rank);
  for (uint32_t i = 0; i < want.rank; i++) check(given->extents[i] == want.extents[i]);
}

static void take_inputs(const ref_state *s, const ir_array *inputs) {
  for (uint32_t i = 0; i < s->f->inputs.len; i++) {
    ir_tensor t = s->f->inputs.data[i];
    check_shape(s, t, &inputs[i]);
    s->values[t.id].array = inputs[i];
  }
}

status ref_eval_op(const ref_state *s, const ir_op_data *op, double *const *noise) {
  ref_call c = {.state = s, .op = op};
  for (uint32_t k = 0; k < ir_op_n_results(c.op); k++) {
    ref_value *v = &s->values[ir_op_result(c.op, k).id];
    ir_array *a = k ? &c.more[k - 1] : &c.result;
    ref_set_shape(s, ir_op_result(c.op, k), a);
    TRY(ir_array_alloc(a, s->options->memory));
    v->array = *a;
    v->owned = true;
    c.noise[k] = noise ? noise[k] : NULL;
  }
  return ref_call_family(&c);
}

void ref_give_outputs(const ref_state *s, const ir_array *outputs) {
  for (uint32_t i = 0; i < s->f->outputs.len; i++) {
    ir_tensor t = s->f->outputs.data[i];
    check_shape(s, t, &outputs[i]);
    ir_array_copy(&outputs[i], &s->values[t.id].array);
  }
}

/* ---- all of it ---- */
status ref_state_begin(ref_state *s, const ir_env *env, const ref_options *options,
                       const ir_array *inputs) {
  const ir_func *f = env->func;
  *s = (ref_state){.env = env, .f = f, .options = options};
  s->scheduled = options->scheduled && f->applied;
  s->order = s->scheduled ? f->scheduled.data : f->order.data;
  s->n_order = s->scheduled ? f->scheduled.len : f->order.len;
  size_t values_bytes = (f->tensors.len + 1) * sizeof *s->values;
  s->values = memory_alloc(options->memory, values_bytes);
  if (!s->values) return STATUS_OUT_OF_MEMORY;
  memset(s->values, 0, values_bytes);
  find_last_uses(s);
  take_inputs(s, inputs);
  make_constants(s);
  return STATUS_OK;
}

void ref_state_end(ref_state *s) {
  if (!s->values) return;
  for (uint32_t id = 1; id < s->f->tensors.len; id++) release(s, (ir_tensor){id});
  memory_free(s->options->memory, s->values);
}

status ref_eval(const ir_env *env, const ir_array *inputs, const ir_array *outputs,
                const ref_options *options) {
  ref_options filled = *options;
  ref_state s;
  if (!filled.memory) filled.memory = &memory_default;
  status st = ref_state_begin(&s, env, &filled, inputs);
  for (uint32_t i = 0; st == STATUS_OK && i < s.n_order; i++) {
    st = ref_eval_op(&s, ir_op_at(s.f, s.order[i]), NULL);
    ref_release_unneeded(&s, i);
  }
  if (st == STATUS_OK) ref_give_outputs(&s, outputs);
  ref_state_end(&s);
  return st;
}
