/* Nodes and indexes. */
#include <string.h>

#include "device/cuda/lower.h"

uint32_t lower_fail(lowering *l) {
  l->failed = true;
  return CG_NO_NODE;
}

/* ---- nodes ---- */
static bool same_terms(const cg_node *a, const cg_node *b) {
  if (a->n_terms != b->n_terms) return false;
  for (uint32_t t = 0; t < a->n_terms; t++)
    if (a->terms[t].node != b->terms[t].node || a->terms[t].scale != b->terms[t].scale)
      return false;
  return true;
}

static bool same_view(const cg_view *a, const cg_view *b) {
  return a->start == b->start && a->dtype == b->dtype && a->offset_bytes == b->offset_bytes &&
         memcmp(a->strides, b->strides, sizeof a->strides) == 0;
}

static bool same_step(const cg_step *a, const cg_step *b) {
  return a->code == b->code && a->compute == b->compute && a->result == b->result &&
         a->mode == b->mode && a->quick == b->quick;
}

static bool same(const cg_node *a, const cg_node *b) {
  if (a->kind != b->kind || a->dtype != b->dtype || a->n_operands != b->n_operands ||
      a->first != b->first || a->guard != b->guard || a->n != b->n || a->low != b->low ||
      a->high != b->high || a->error != b->error || a->fold != b->fold || a->columns != b->columns)
    return false;
  for (uint32_t k = 0; k < a->n_operands; k++)
    if (a->operands[k] != b->operands[k]) return false;
  return ir_number_same(a->number, b->number) && same_terms(a, b) &&
         same_view(&a->view, &b->view) && same_step(&a->step, &b->step);
}

uint32_t lower_node(lowering *l, const cg_node *n) {
  cg_body *b = l->out;
  for (uint32_t k = 0; k < n->n_operands; k++)
    if (n->operands[k] == CG_NO_NODE) return lower_fail(l);
  for (uint32_t i = b->nodes.len; i-- > 0;)
    if (same(&b->nodes.data[i], n)) return i;
  if (b->nodes.len == CG_MAX_NODES) return lower_fail(l);
  vec_push(l->memory, &b->nodes, *n);
  return b->nodes.len - 1;
}

uint32_t lower_number(lowering *l, ir_number number) {
  cg_node n = {.kind = CG_NODE_CONSTANT, .number = number, .guard = CG_NO_NODE};
  n.dtype = number.is_float ? IR_F64 : IR_I64;
  return lower_node(l, &n);
}

uint32_t lower_key(lowering *l, ir_number number) {
  cg_node n = {.kind = CG_NODE_KEY, .dtype = IR_I64, .number = number, .guard = CG_NO_NODE};
  return lower_node(l, &n);
}

uint32_t lower_constant(lowering *l, ir_number number, ir_dtype t) {
  uint64_t bits = 0;
  if (!ir_dtype_is_float(t)) return lower_cast(l, lower_number(l, number), t);
  if (number.is_float) ir_element_set_f64(t, &bits, number.f);
  else ir_element_set_i64(t, &bits, number.i);
  cg_node n = {.kind = CG_NODE_CONSTANT, .dtype = t, .guard = CG_NO_NODE};
  n.number = ir_number_float(ir_element_as_f64(t, &bits));
  return lower_node(l, &n);
}

uint32_t lower_cast(lowering *l, uint32_t node, ir_dtype t) {
  if (node == CG_NO_NODE || l->out->nodes.data[node].dtype == t) return node;
  cg_node n = {.kind = CG_NODE_CAST, .dtype = t, .n_operands = 1, .guard = CG_NO_NODE};
  n.operands[0] = node;
  return lower_node(l, &n);
}

uint32_t lower_step_node(lowering *l, const cg_step *step, uint32_t count,
                         const uint32_t *operands) {
  cg_node n = {.kind = CG_NODE_STEP, .dtype = step->result, .guard = CG_NO_NODE, .step = *step};
  check(count <= CG_MAX_OPERANDS);
  n.n_operands = n.step.n_operands = count;
  for (uint32_t k = 0; k < count; k++) n.operands[k] = operands[k];
  return lower_node(l, &n);
}

uint32_t lower_apply(lowering *l, ir_opcode code, ir_dtype t, uint32_t a, uint32_t b) {
  cg_step step = {.code = code, .compute = t, .result = t};
  uint32_t operands[] = {a, b};
  return lower_step_node(l, &step, b == CG_NO_NODE ? 1 : 2, operands);
}

uint32_t lower_at(lowering *l, const lower_index *i) {
  cg_node n = {.kind = CG_NODE_AT, .dtype = IR_I64, .guard = CG_NO_NODE};
  n.view = (cg_view){.dtype = IR_I64, .align = CG_ALIGN};
  memcpy(n.view.strides, i->strides, sizeof i->strides);
  n.first = i->first;
  n.n_terms = i->n_terms;
  memcpy(n.terms, i->terms, sizeof i->terms);
  return lower_node(l, &n);
}

uint32_t lower_divided(lowering *l, cg_node_kind kind, uint32_t node, int64_t by, int64_t high) {
  cg_node n = {.kind = kind, .dtype = IR_I64, .n_operands = 1, .guard = CG_NO_NODE, .n = by};
  n.operands[0] = node;
  n.high = high;
  return lower_node(l, &n);
}

uint32_t lower_range(lowering *l, const lower_index *i, int64_t low, int64_t high) {
  cg_node n = {.kind = CG_NODE_RANGE, .dtype = IR_BOOL, .n_operands = 1, .guard = CG_NO_NODE};
  n.operands[0] = lower_at(l, i);
  n.low = low;
  n.high = high;
  return lower_node(l, &n);
}

uint32_t lower_both(lowering *l, uint32_t a, uint32_t b) {
  cg_node n = {.kind = CG_NODE_BOTH, .dtype = IR_BOOL, .n_operands = 2, .guard = CG_NO_NODE};
  if (a == CG_NO_NODE || b == CG_NO_NODE) return a == CG_NO_NODE ? b : a;
  n.operands[0] = a;
  n.operands[1] = b;
  return lower_node(l, &n);
}

uint32_t lower_choose(lowering *l, uint32_t truth, uint32_t yes, uint32_t no) {
  cg_node n = {.kind = CG_NODE_CHOOSE, .n_operands = 3, .guard = CG_NO_NODE};
  if (truth == CG_NO_NODE || yes == CG_NO_NODE || no == CG_NO_NODE) return lower_fail(l);
  n.dtype = l->out->nodes.data[yes].dtype;
  n.operands[0] = truth;
  n.operands[1] = yes;
  n.operands[2] = no;
  check(l->out->nodes.data[no].dtype == n.dtype);
  return lower_node(l, &n);
}

uint32_t lower_inside(lowering *l, uint32_t node, const char *op, uint32_t dim, int64_t n) {
  cg_node x = {.kind = CG_NODE_INSIDE, .dtype = IR_I64, .n_operands = 1, .guard = l->guard, .n = n};
  x.operands[0] = node;
  x.error = l->indexed.len;
  vec_push(l->memory, &l->indexed, ((cuda_indexed){op, dim, n}));
  return lower_node(l, &x);
}

/* ---- indexes ---- */
lower_index lower_index_of(uint32_t node) {
  return (lower_index){.n_terms = 1, .terms = {{node, 1}}};
}

static void add_term(lowering *l, lower_index *to, cg_term term) {
  for (uint32_t t = 0; t < to->n_terms; t++)
    if (to->terms[t].node == term.node) {
      to->terms[t].scale += term.scale;
      return;
    }
  if (to->n_terms == CG_MAX_TERMS) (void)lower_fail(l);
  else to->terms[to->n_terms++] = term;
}

void lower_index_add(lowering *l, lower_index *to, const lower_index *x, int64_t scale) {
  to->first += x->first * scale;
  for (uint32_t s = 0; s < IR_MAX_RANK; s++) to->strides[s] += x->strides[s] * scale;
  for (uint32_t t = 0; t < x->n_terms; t++)
    add_term(l, to, (cg_term){x->terms[t].node, x->terms[t].scale * scale});
}

bool lower_index_same(const lower_index *a, const lower_index *b) {
  if (a->first != b->first || a->n_terms != b->n_terms) return false;
  for (uint32_t t = 0; t < a->n_terms; t++)
    if (a->terms[t].node != b->terms[t].node || a->terms[t].scale != b->terms[t].scale)
      return false;
  return memcmp(a->strides, b->strides, sizeof a->strides) == 0;
}

/* ---- splitting row-major numbers ---- */
static int64_t term_range(const lowering *l, uint32_t node) {
  const cg_node *n = &l->out->nodes.data[node];
  return n->kind == CG_NODE_DIV ? n->high : n->n;
}

/* Splits i = quotient * n + rest, both affine, with rest < n everywhere; false: that is not possible. */
static bool splits(const lowering *l, const lower_index *i, int64_t n, lower_index *quotient,
                   lower_index *rest) {
  *quotient = *rest = (lower_index){.first = 0};
  if (i->first < 0) return false;
  quotient->first = i->first / n;
  rest->first = i->first % n;
  int64_t most = rest->first;
  for (uint32_t s = 0; s < l->out->rank; s++) {
    int64_t c = i->strides[s];
    if (c < 0) return false;
    if (c % n == 0) quotient->strides[s] = c / n;
    else {
      rest->strides[s] = c;
      most += c * (l->out->extents[s] - 1);
    }
  }
  for (uint32_t t = 0; t < i->n_terms; t++) {
    cg_term x = i->terms[t];
    if (x.scale < 0) return false;
    if (x.scale % n == 0) quotient->terms[quotient->n_terms++] = (cg_term){x.node, x.scale / n};
    else {
      rest->terms[rest->n_terms++] = x;
      most += x.scale * (term_range(l, x.node) - 1);
    }
  }
  return most < n;
}

void lower_unravel(lowering *l, lower_index i, const rt_shape *shape, lower_index *at) {
  int64_t left = 1;
  for (uint32_t d = 0; d < shape->rank; d++) left *= shape->extents[d];
  for (uint32_t d = shape->rank; d-- > 0;) {
    int64_t n = shape->extents[d];
    lower_index quotient;
    left /= n > 0 ? n : 1;
    if (n == 1) {
      at[d] = (lower_index){.first = 0};
      continue;
    }
    if (left == 1) {
      at[d] = i;
      i = (lower_index){.first = 0};
      continue;
    }
    if (splits(l, &i, n, &quotient, &at[d])) {
      i = quotient;
      continue;
    }
    uint32_t number = lower_at(l, &i);
    if (l->failed) return;
    at[d] = lower_index_of(lower_divided(l, CG_NODE_MOD, number, n, 0));
    i = lower_index_of(lower_divided(l, CG_NODE_DIV, number, n, left));
  }
}
