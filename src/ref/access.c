/* What every operation needs: its operands and attributes, views of arrays, numbers. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ref/internal.h"

static const ir_array *value_of(const ref_state *s, ir_tensor t) {
  return t.id == 0 ? NULL : &s->values[t.id].array;
}

const ir_array *ref_operand(const ref_call *c, uint32_t i) {
  return i < c->op->n_operands ? value_of(c->state, c->op->operands[i]) : NULL;
}

const ir_array *ref_operand_named(const ref_call *c, const char *name) {
  return value_of(c->state, ir_op_operand(c->op, name));
}

static double default_of(const ref_call *c, const char *name) {
  const ir_param *p = ir_op_info_of(c->op->code)->params;
  while (p->kind != IR_PARAM_END && strcmp(p->name, name) != 0) p++;
  check(p->kind != IR_PARAM_END && p->use == IR_USE_DEFAULT);
  return p->value;
}

int64_t ref_attr_int(const ref_call *c, const char *name) {
  const ir_attr *a = ir_op_attr(c->op, name);
  return a->given ? a->i : (int64_t)default_of(c, name);
}

ir_number ref_attr_number(const ref_call *c, const char *name) {
  const ir_attr *a = ir_op_attr(c->op, name);
  return a->given ? a->number : ir_number_float(default_of(c, name));
}

static uint32_t from_front(int64_t dim, uint32_t rank) {
  if (dim < 0) dim += rank;
  check(dim >= 0 && dim < rank);
  return (uint32_t)dim;
}

uint32_t ref_attr_dim(const ref_call *c, const char *name, uint32_t rank) {
  return from_front(ref_attr_int(c, name), rank);
}

void ref_attr_dims(const ref_call *c, const char *name, uint32_t rank, bool named[IR_MAX_RANK]) {
  const ir_attr *a = ir_op_attr(c->op, name);
  for (uint32_t i = 0; i < IR_MAX_RANK; i++) named[i] = !a->given && i < rank;
  for (uint32_t i = 0; a->given && i < a->len; i++) named[from_front(a->ints[i], rank)] = true;
}

int64_t ref_eval_scalar(const ref_call *c, ir_scalar x) {
  int64_t value;
  check(ir_env_eval(c->state->env, x, &value));
  return value;
}

ir_domains ref_domains(const ref_state *s, ir_tensor t) {
  const ir_tensor_data *data = ir_tensor_at(s->f, t);
  return s->scheduled ? data->now : data->defined;
}

status ref_fail(const ref_call *c, const char *fmt, ...) {
  char what[512];
  va_list args;
  va_start(args, fmt);
  (void)vsnprintf(what, sizeof what, fmt, args);
  va_end(args);
  return fail(STATUS_BAD_PROGRAM, "%s = %s(...): %s", ir_tensor_name(c->state->f, c->op->result),
              ir_op_info_of(c->op->code)->name, what);
}

/* ---- views ---- */
int64_t ref_count(const ir_array *a) {
  int64_t n;
  check(ir_array_count(a, &n));
  return n;
}

void *ref_element(const ir_array *dense, int64_t i) {
  return (char *)dense->data + i * (int64_t)ir_dtype_size_bytes(dense->dtype);
}

ir_array ref_broadcast_to(const ir_array *a, uint32_t rank, const int64_t *extents) {
  check(a->rank <= rank);
  ir_array view = {.dtype = a->dtype, .rank = rank, .data = a->data};
  uint32_t lead = rank - a->rank;
  for (uint32_t i = 0; i < rank; i++) {
    bool repeats = i < lead || (a->extents[i - lead] == 1 && extents[i] != 1);
    check(repeats || a->extents[i - lead] == extents[i]);
    view.extents[i] = extents[i];
    view.strides[i] = repeats ? 0 : a->strides[i - lead];
  }
  return view;
}

static void add_axis(ir_array *to, const ir_array *from, uint32_t axis) {
  to->extents[to->rank] = from->extents[axis];
  to->strides[to->rank++] = from->strides[axis];
}

ref_rows ref_rows_of(const ir_array *a, const bool chosen[IR_MAX_RANK]) {
  ref_rows rows = {.outer = {.dtype = a->dtype, .data = a->data},
                   .row = {.dtype = a->dtype, .data = a->data}};
  for (uint32_t i = 0; i < a->rank; i++) add_axis(chosen[i] ? &rows.row : &rows.outer, a, i);
  return rows;
}

ir_array ref_row_at(const ref_rows *rows, const int64_t *index) {
  ir_array row = rows->row;
  if (ref_count(&row) > 0) row.data = ir_array_at(&rows->outer, index);
  return row;
}

/* ---- numbers ---- */
ir_dtype ref_accumulator(const ref_state *s, ir_dtype t) {
  return s->options->native_accumulate ? ir_dtype_accumulator(t) : IR_F64;
}

double ref_accumulated(ir_dtype t, double value) {
  return t == IR_F32 ? (double)(float)value : value;
}

void ref_set_number(ir_dtype t, void *p, ir_number n) {
  if (n.is_float) ir_element_set_f64(t, p, n.f);
  else ir_element_set_i64(t, p, n.i);
}
