/* Sums of rows without the factors that a row has in common (body_rows.c).
 *
 *   sum(p * (d * s)) => s * sum(p * d)      s: one number for the whole row
 *
 * If s itself comes from a fold, as the scale of a norm does in its backward form, the sum need not
 * wait for it: it is found a pass earlier, and each pass over the row costs a barrier. In such bodies,
 * sums of f32 stay in f32 from end to end, so that threads wait less for them: a thread adds up its
 * own numbers, and then pairs of sums are added. */
#include "codegen/body_rows.h"

typedef struct factoring {
  const rows_writer *x;
  cg_body *to;
  arena *memory;
  uint32_t *places; /* by node of the old body: the new node; CG_NO_NODE: there is only `narrow` */
  uint32_t *narrow; /* likewise: the new node with its value in f32; CG_NO_NODE: there is none */
} factoring;

/* sum(p * (d * s)), as nodes of the old body. */
typedef struct scaled_sum {
  uint32_t product, p, d, s;
} scaled_sum;

static bool is_product(const rows_writer *x, uint32_t i) {
  const cg_node *n = rows_node(x, i);
  return n->kind == CG_NODE_STEP && n->step.code == IR_OP_MUL && n->step.compute == IR_F32 &&
         n->dtype == IR_F32;
}

/* Splits factor `inner` of the product into s, which a row has in common, and d, if the sum is known earlier
 * without s. */
static bool find_scale(const rows_writer *x, uint32_t fold, uint32_t inner, scaled_sum *f) {
  const cg_node *n = rows_node(x, inner);
  if (!is_product(x, inner)) return false;
  for (uint32_t k = 0; k < 2; k++) {
    f->s = n->operands[k];
    f->d = n->operands[1 - k];
    bool early = x->level[f->d] + 1 < x->level[fold] && x->level[f->p] + 1 < x->level[fold];
    if (!x->along[f->s] && x->along[f->d] && early) return true;
  }
  return false;
}

static bool find_scaled(const rows_writer *x, uint32_t fold, scaled_sum *f) {
  const uint32_t *factors = rows_node(x, f->product)->operands;
  for (uint32_t k = 0; is_product(x, f->product) && k < 2; k++) {
    f->p = factors[1 - k];
    if (find_scale(x, fold, factors[k], f)) return true;
  }
  return false;
}

static uint32_t add(factoring *f, const cg_node *n) {
  vec_push(f->memory, &f->to->nodes, *n);
  return f->to->nodes.len - 1;
}

static uint32_t cast(factoring *f, uint32_t node, ir_dtype t) {
  cg_node n = {.kind = CG_NODE_CAST, .dtype = t, .n_operands = 1, .guard = CG_NO_NODE};
  n.operands[0] = node;
  return add(f, &n);
}

static uint32_t times(factoring *f, uint32_t a, uint32_t b) {
  cg_node n = {.kind = CG_NODE_STEP, .dtype = IR_F32, .n_operands = 2, .guard = CG_NO_NODE};
  n.step = (cg_step){.code = IR_OP_MUL, .compute = IR_F32, .result = IR_F32, .n_operands = 2};
  n.operands[0] = a;
  n.operands[1] = b;
  return add(f, &n);
}

static uint32_t add_constant(factoring *f, const cg_node *n) {
  cg_node own = *n;
  own.dtype = IR_F32;
  own.number = ir_number_float((float)n->number.f);
  return add(f, &own);
}

/* The new node with the value of an old one, in the dtype of the old one. */
static uint32_t place_of(factoring *f, uint32_t i) {
  if (f->places[i] == CG_NO_NODE) f->places[i] = cast(f, f->narrow[i], rows_node(f->x, i)->dtype);
  return f->places[i];
}

static void add_copy(factoring *f, uint32_t i) {
  cg_node n = *rows_node(f->x, i);
  for (uint32_t k = 0; k < n.n_operands; k++) n.operands[k] = place_of(f, n.operands[k]);
  for (uint32_t k = 0; k < n.n_terms; k++) n.terms[k].node = place_of(f, n.terms[k].node);
  bool guarded = n.kind == CG_NODE_LOAD || n.kind == CG_NODE_INSIDE;
  if (guarded && n.guard != CG_NO_NODE) n.guard = place_of(f, n.guard);
  f->places[i] = add(f, &n);
}

/* Adds a sum of rows in f32, without a factor that the row has in common. */
static bool add_sum(factoring *f, uint32_t i) {
  cg_node fold = *rows_node(f->x, i);
  scaled_sum s = {.product = cg_rows_narrow(f->x, i)};
  if (s.product == CG_NO_NODE || fold.columns || f->x->top[i] != CG_NO_NODE) return false;
  bool scaled = find_scaled(f->x, i, &s) && rows_node(f->x, s.s)->dtype == IR_F32;
  fold.dtype = IR_F32;
  fold.operands[0] = scaled ? times(f, place_of(f, s.p), place_of(f, s.d)) : place_of(f, s.product);
  f->narrow[i] = add(f, &fold);
  if (scaled) f->narrow[i] = times(f, f->narrow[i], place_of(f, s.s));
  return true;
}

/* Adds what is computed from such a sum and a constant, as the mean is, in f32 too. */
static bool add_narrow(factoring *f, uint32_t i) {
  const cg_node *n = rows_node(f->x, i);
  uint32_t first = n->n_operands > 0 ? n->operands[0] : i;
  if (n->n_operands == 0 || f->narrow[first] == CG_NO_NODE) return false;
  if (n->kind == CG_NODE_CAST && n->dtype == IR_F32) {
    f->places[i] = f->narrow[first];
    return true;
  }
  bool scales = n->kind == CG_NODE_STEP && n->n_operands == 2 && n->step.compute == IR_F64 &&
                n->dtype == IR_F64 && (n->step.code == IR_OP_MUL || n->step.code == IR_OP_DIV);
  if (!scales || rows_node(f->x, n->operands[1])->kind != CG_NODE_CONSTANT) return false;
  cg_node own = *n;
  own.dtype = own.step.compute = own.step.result = IR_F32;
  own.operands[0] = f->narrow[first];
  own.operands[1] = add_constant(f, rows_node(f->x, n->operands[1]));
  f->narrow[i] = add(f, &own);
  return true;
}

const cg_body *cg_rows_factored(const rows_writer *x, arena *memory) {
  factoring f = {.x = x, .to = ARENA_NEW(memory, cg_body), .memory = memory};
  f.places = ARENA_ARRAY(memory, x->b->nodes.len + (size_t)1, uint32_t);
  f.narrow = ARENA_ARRAY(memory, x->b->nodes.len + (size_t)1, uint32_t);
  *f.to = *x->b;
  f.to->nodes.data = NULL;
  f.to->nodes.len = f.to->nodes.cap = 0;
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    f.places[i] = f.narrow[i] = CG_NO_NODE;
    if (!add_sum(&f, i) && !add_narrow(&f, i)) add_copy(&f, i);
  }
  for (uint32_t r = 0; r < f.to->n_outputs; r++)
    f.to->outputs[r].node = place_of(&f, f.to->outputs[r].node);
  return f.to->nodes.len <= CG_MAX_NODES ? f.to : NULL;
}
