/* Bodies of tasks: comparing, copying, and what they do with a parameter. */
#include <stdio.h>
#include <string.h>

#include "base/table.h"
#include "ir/host.h"
#include "runtime/plan.h"
#include "runtime/task.h"

const rt_shape *rt_value_shape(const rt_body *body, const rt_value *v) {
  check(v->kind == RT_VALUE_PARAM || v->kind == RT_VALUE_STEP);
  return v->kind == RT_VALUE_PARAM ? &body->params[v->index]
                                   : &body->steps[v->index].results[v->result];
}

const char *rt_task_name(const rt_task *t) {
  return t->body ? "kernel" : ir_op_info_of(t->code)->name;
}

/* ---- labels ---- */
/* One more name, if there is room for it and for "+...". */
static bool add_name(char *to, size_t *n, const char *name) {
  const size_t room = sizeof(rt_label) - sizeof "+...";
  size_t more = strlen(name) + (*n ? 1 : 0);
  bool fits = *n + more <= room;
  (void)snprintf(to + *n, sizeof(rt_label) - *n, "%s%s", *n ? "+" : "", fits ? name : "...");
  *n += fits ? more : strlen(to + *n);
  return fits;
}

static bool is_shown(ir_opcode code) {
  return !ir_op_is_view(code) && code != IR_OP_SET && code != IR_OP_CAST && code != IR_OP_RESHAPE;
}

const char *rt_task_label(const rt_task *t, rt_label to) {
  size_t n = 0;
  if (!t->body) return rt_task_name(t);
  for (uint32_t i = 0; i < t->body->n_steps; i++) {
    ir_opcode code = t->body->steps[i].code;
    if (is_shown(code) && !add_name(to, &n, ir_op_info_of(code)->name)) break;
  }
  return n ? to : rt_task_name(t);
}

/* ---- equality ---- */
static bool same_list(const int64_t *a, const int64_t *b, uint32_t n) {
  return a == b || (a && b && memcmp(a, b, n * sizeof *a) == 0);
}

static bool same_shape(const rt_shape *a, const rt_shape *b) {
  return a->dtype == b->dtype && a->rank == b->rank && same_list(a->extents, b->extents, a->rank);
}

static bool same_shapes(const rt_shape *a, const rt_shape *b, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    if (!same_shape(&a[i], &b[i])) return false;
  }
  return true;
}

static bool same_values(const rt_value *a, const rt_value *b, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    bool same = a[i].kind == b[i].kind && a[i].index == b[i].index && a[i].result == b[i].result &&
                a[i].sliced == b[i].sliced;
    if (!same) return false;
    if (a[i].kind == RT_VALUE_NUMBER && !ir_number_same(*a[i].number, *b[i].number)) return false;
  }
  return true;
}

bool rt_attr_equal(const rt_attr *a, const rt_attr *b) {
  return a->given == b->given && a->is_float == b->is_float && a->i == b->i &&
         ir_number_same(ir_number_float(a->f), ir_number_float(b->f)) && a->len == b->len &&
         same_list(a->list, b->list, a->len);
}

static bool same_attrs(const rt_step *a, const rt_step *b) {
  uint32_t n = a->attrs == b->attrs ? 0 : ir_op_info_of(a->code)->n_attrs;
  for (uint32_t i = 0; i < n; i++) {
    if (!rt_attr_equal(&a->attrs[i], &b->attrs[i])) return false;
  }
  return true;
}

static bool same_step(const rt_step *a, const rt_step *b) {
  return a->code == b->code && a->compute == b->compute && a->n_operands == b->n_operands &&
         a->n_results == b->n_results && same_values(a->operands, b->operands, a->n_operands) &&
         same_attrs(a, b) && same_shapes(a->results, b->results, a->n_results) &&
         same_list(a->offset, b->offset, a->results[0].rank) &&
         same_list(a->whole, b->whole, a->results[0].rank);
}

bool rt_body_equal(const rt_body *a, const rt_body *b) {
  if (a == b) return true;
  if (!a || !b || a->n_params != b->n_params || a->n_steps != b->n_steps ||
      a->n_results != b->n_results)
    return false;
  for (uint32_t i = 0; i < a->n_steps; i++) {
    if (!same_step(&a->steps[i], &b->steps[i])) return false;
  }
  return same_shapes(a->params, b->params, a->n_params) &&
         same_values(a->results, b->results, a->n_results);
}

static uint64_t hash_values(uint64_t hash, const rt_value *v, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    hash = hash_mix(hash, (uint64_t)v[i].kind << 32 | v[i].index << 8 | v[i].result);
  return hash;
}

uint64_t rt_body_hash(const rt_body *body) {
  uint64_t hash = hash_mix(body->n_params, body->n_steps);
  for (uint32_t i = 0; i < body->n_steps; i++) {
    const rt_step *s = &body->steps[i];
    hash = hash_values(hash_mix(hash, (uint64_t)s->code), s->operands, s->n_operands);
    for (uint32_t d = 0; d < s->results[0].rank; d++)
      hash = hash_mix(hash, (uint64_t)s->results[0].extents[d]);
  }
  return hash_values(hash, body->results, body->n_results);
}

/* ---- copying ---- */
const rt_body *rt_body_copy(const rt_body *body, arena *memory) {
  rt_body copy = *body;
  rt_step *steps = arena_copy(memory, body->steps, body->n_steps * sizeof *steps);
  for (uint32_t i = 0; i < body->n_steps; i++) {
    rt_step *s = &steps[i];
    s->operands = arena_copy(memory, s->operands, s->n_operands * sizeof *s->operands);
    s->results = arena_copy(memory, s->results, s->n_results * sizeof *s->results);
  }
  copy.steps = steps;
  copy.params = arena_copy(memory, body->params, body->n_params * sizeof *body->params);
  copy.results = arena_copy(memory, body->results, body->n_results * sizeof *body->results);
  return arena_copy(memory, &copy, sizeof copy);
}

/* ---- in place ---- */
enum { MOST_STEPS = 1024 };

static bool has_shape(const rt_shape *a, const rt_shape *b) {
  return a->rank == b->rank && same_list(a->extents, b->extents, a->rank);
}

/* Does the step fold its operand along the first dimensions: columns? */
static bool folds_columns(const rt_body *body, const rt_step *s) {
  bool named[IR_MAX_RANK] = {false};
  uint32_t n = 0;
  if (ir_op_info_of(s->code)->family != IR_FAMILY_REDUCE || s->offset) return false;
  const rt_shape *x = rt_value_shape(body, &s->operands[0]);
  rt_task t = {.code = s->code, .attrs = s->attrs};
  rt_task_dims(&t, "dims", x->rank, named);
  while (n < x->rank && named[n]) n++;
  for (uint32_t d = n; d < x->rank; d++)
    if (named[d]) return false;
  return n > 0 && n < x->rank;
}

/* What a step has to do with a parameter. */
typedef enum reach {
  APART,
  HERE,  /* each element depends on the one at its own place */
  FOLDED /* on those of a column */
} reach;

static reach reach_of(const rt_step *s, const reach *of, uint32_t param) {
  reach most = APART;
  for (uint32_t k = 0; k < s->n_operands; k++) {
    const rt_value *v = &s->operands[k];
    reach r = v->kind == RT_VALUE_STEP ? of[v->index] : APART;
    if (v->kind == RT_VALUE_PARAM && v->index == param) r = HERE;
    if (r > most) most = r;
  }
  return most;
}

bool rt_body_in_place(const rt_body *body, uint32_t param) {
  const rt_shape *shape = &body->params[param];
  reach of[MOST_STEPS];
  if (body->n_steps > MOST_STEPS) return false;
  for (uint32_t i = 0; i < body->n_steps; i++) {
    const rt_step *s = &body->steps[i];
    bool like = has_shape(&s->results[0], shape), single = ir_op_is_elementwise(s->code);
    of[i] = reach_of(s, of, param);
    if (of[i] == HERE && !(single && like)) {
      if (!folds_columns(body, s)) return false;
      of[i] = FOLDED;
    } else if (of[i] == FOLDED && (!single || like)) {
      return false; /* it needs all of the column */
    }
  }
  return true;
}

/* The shape of the results that are not folded; NULL: there is none. */
static const rt_shape *swept_shape(const rt_body *body, const bool *folded) {
  for (uint32_t r = 0; r < body->n_results; r++) {
    const rt_value *v = &body->results[r];
    if (v->kind != RT_VALUE_STEP || !folded[v->index]) return rt_value_shape(body, v);
  }
  return NULL;
}

/* Does each element depend on elements at its own place only? Those of a maker depend on the place alone. */
static bool is_pointwise(ir_opcode code) {
  return ir_op_is_elementwise(code) || ir_op_info_of(code)->family == IR_FAMILY_MAKER;
}

bool rt_body_is_sweep(const rt_body *body) {
  bool folded[MOST_STEPS] = {false};
  if (body->n_steps > MOST_STEPS) return false;
  for (uint32_t i = 0; i < body->n_steps; i++) {
    const rt_step *s = &body->steps[i];
    for (uint32_t k = 0; k < s->n_operands; k++)
      if (s->operands[k].kind == RT_VALUE_STEP && folded[s->operands[k].index]) folded[i] = true;
    if (is_pointwise(s->code)) continue;
    if (folded[i] || !folds_columns(body, s)) return false;
    folded[i] = true;
  }
  const rt_shape *shape = swept_shape(body, folded);
  for (uint32_t i = 0; i < body->n_steps && shape; i++) {
    const rt_step *s = &body->steps[i];
    bool folds = !is_pointwise(s->code);
    if (folds && !has_shape(rt_value_shape(body, &s->operands[0]), shape)) return false;
    if (folded[i] && has_shape(&s->results[0], shape)) return false;
  }
  for (uint32_t r = 0; r < body->n_results && shape; r++) {
    const rt_value *v = &body->results[r];
    bool swept = v->kind != RT_VALUE_STEP || !folded[v->index];
    if (swept && !has_shape(rt_value_shape(body, v), shape)) return false;
  }
  return shape != NULL;
}
