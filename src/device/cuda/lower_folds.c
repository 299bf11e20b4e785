/* Steps that fold (reductions, moments, softmax, norms), as folds with elementwise nodes around them. */
#include <math.h>

#include "device/cuda/lower.h"

/* ---- the space ---- */
/* Which dimensions of operand 0 a step folds; false: it is no fold. */
static bool reduced_dims(const rt_task *t, const rt_shape *x, bool reduced[IR_MAX_RANK]) {
  ir_family family = ir_op_info_of(t->code)->family;
  for (uint32_t d = 0; d < IR_MAX_RANK; d++) reduced[d] = false;
  if (family == IR_FAMILY_REDUCE || family == IR_FAMILY_MOMENT)
    rt_task_dims(t, "dims", x->rank, reduced);
  else if (family == IR_FAMILY_SOFTMAX) reduced[rt_task_dim(t, "dim", x->rank)] = true;
  else if (family == IR_FAMILY_NORM) reduced[x->rank - 1] = true;
  else return false;
  return true;
}

/* Position of each of x's dimensions in the result; -1: it is reduced away. */
static void result_dims(const rt_task *t, const rt_shape *x, const bool *reduced, int *to) {
  ir_family family = ir_op_info_of(t->code)->family;
  bool all =
      family == IR_FAMILY_SOFTMAX || family == IR_FAMILY_NORM || rt_task_int(t, "keepdim") != 0;
  int next = 0;
  for (uint32_t d = 0; d < x->rank; d++) to[d] = reduced[d] && !all ? -1 : next++;
}

typedef struct fold_shape {
  uint32_t rank, mask; /* bit d: reduced */
  int64_t extents[IR_MAX_RANK];
} fold_shape;

static bool fold_shape_of(const rt_body *b, const rt_step *step, fold_shape *f) {
  rt_task t = {.code = step->code, .attrs = step->attrs};
  bool reduced[IR_MAX_RANK];
  int to[IR_MAX_RANK];
  if (step->n_operands == 0 || step->operands[0].kind == RT_VALUE_NUMBER) return false;
  const rt_shape *x = rt_value_shape(b, &step->operands[0]);
  if (!reduced_dims(&t, x, reduced)) return false;
  result_dims(&t, x, reduced, to);
  *f = (fold_shape){.rank = x->rank};
  for (uint32_t d = 0; d < x->rank; d++) {
    f->extents[d] = reduced[d] ? x->extents[d] : step->results[0].extents[to[d]];
    if (reduced[d]) f->mask |= 1U << d;
  }
  return true;
}

static uint32_t long_dims(const fold_shape *f) {
  uint32_t mask = 0;
  for (uint32_t d = 0; d < f->rank; d++)
    if (f->extents[d] > 1) mask |= 1U << d;
  return mask;
}

/* The row consists of the reduced dimensions or of all others, whichever include the last dimension. Folds go along
 * the row or along all other dimensions. */
bool lower_find_rows(lowering *l) {
  fold_shape first = {0}, f;
  bool found = false;
  uint32_t all = 0, last = 0;
  for (uint32_t i = 0; i < l->body->n_steps; i++) {
    if (!fold_shape_of(l->body, &l->body->steps[i], &f)) continue;
    if (!found) {
      found = true;
      first = f;
      all = long_dims(&f);
      last = all ? 1U << (31 - __builtin_clz(all)) : 0;
      l->row = first.mask & last ? first.mask & all : all & ~first.mask;
    }
    uint32_t mask = f.mask & all;
    if (!rt_extents_same(first.rank, first.extents, f.rank, f.extents) ||
        (mask != l->row && mask != (all & ~l->row)))
      return false;
  }
  if (!found || l->row == 0) return false;
  l->rank = first.rank;
  for (uint32_t d = 0; d < first.rank; d++) l->extents[d] = first.extents[d];
  return true;
}

/* ---- folds ---- */
/* Is it just the position along one dimension of the space? *dim says which. */
static bool is_position(const lowering *l, const lower_index *i, uint32_t *dim) {
  uint32_t n = 0;
  if (i->first != 0 || i->n_terms > 0) return false;
  for (uint32_t s = 0; s < l->out->rank; s++) {
    if (i->strides[s] == 0) continue;
    if (i->strides[s] != 1 || n++ > 0) return false;
    *dim = s;
  }
  return n == 1;
}

/* The dimensions of the space in `mask` that are longer than 1. */
static uint32_t long_in(const lowering *l, uint32_t mask) {
  uint32_t found = 0;
  for (uint32_t d = 0; d < l->out->rank; d++)
    if (mask >> d & 1 && l->out->extents[d] > 1) found |= 1U << d;
  return found;
}

/* The index of operand 0 at all positions that are folded for the result at `at`. False: those are not the
 * positions of a row, or of a column. */
static bool fold_index(const lower_step *s, const lower_index *at, lower_index *own,
                       bool *columns) {
  lowering *l = s->l;
  const rt_shape *x = lower_shape(s, 0);
  bool reduced[IR_MAX_RANK];
  int to[IR_MAX_RANK];
  uint32_t used = 0, dim = 0, all = (1U << l->out->rank) - 1;
  (void)reduced_dims(&s->task, x, reduced);
  result_dims(&s->task, x, reduced, to);
  for (uint32_t d = 0; d < x->rank; d++) {
    own[d] = (lower_index){.first = 0};
    if (reduced[d] || x->extents[d] == 1) continue;
    if (s->result->extents[to[d]] > 1) {
      if (!is_position(l, &at[to[d]], &dim) || used >> dim & 1) return false;
      used |= 1U << dim;
    }
    own[d] = lower_moved(s, 0, (uint32_t)to[d], at);
  }
  uint32_t row = long_in(l, l->out->row), others = long_in(l, all & ~l->out->row);
  *columns = used == row && used != others;
  if (!*columns && used != others) return false;
  uint32_t left = *columns ? others : row;
  for (uint32_t d = 0; d < x->rank; d++) {
    if (!reduced[d] || x->extents[d] == 1) continue;
    if (left == 0) return false;
    dim = (uint32_t)__builtin_ctz(left);
    if (l->out->extents[dim] != x->extents[d]) return false;
    own[d].strides[dim] = 1;
    left &= left - 1;
  }
  return left == 0;
}

static uint32_t fold_node(lowering *l, ir_fold fold, uint32_t node, ir_dtype acc, bool columns) {
  cg_node n = {.kind = CG_NODE_FOLD, .dtype = acc, .n_operands = 1, .guard = CG_NO_NODE};
  n.operands[0] = lower_cast(l, node, acc);
  n.fold = fold;
  n.columns = columns;
  return lower_node(l, &n);
}

static int64_t folded_count(const lower_step *s) {
  const rt_shape *x = lower_shape(s, 0);
  bool reduced[IR_MAX_RANK];
  int64_t n = 1;
  (void)reduced_dims(&s->task, x, reduced);
  for (uint32_t d = 0; d < x->rank; d++) n *= reduced[d] ? x->extents[d] : 1;
  return n;
}

/* ---- reductions and moments ---- */
/* Divides. A power of two is multiplied by its inverse, which gives the same number and is much faster. */
static uint32_t divided(lowering *l, uint32_t node, ir_dtype t, double by) {
  int exponent;
  if (by > 0 && frexp(by, &exponent) == 0.5)
    return lower_apply(l, IR_OP_MUL, t, node, lower_constant(l, ir_number_float(1 / by), t));
  return lower_apply(l, IR_OP_DIV, t, node, lower_constant(l, ir_number_float(by), t));
}

/* The mean of the squared distances from the mean. */
static uint32_t lower_variance(const lower_step *s, uint32_t x, ir_dtype acc, bool columns) {
  lowering *l = s->l;
  double n = (double)folded_count(s), m = n - (double)rt_task_int(&s->task, "correction");
  if (columns) return lower_fail(l); /* it would need a second pass over the columns */
  uint32_t wide = lower_cast(l, x, acc);
  uint32_t mean = divided(l, fold_node(l, IR_FOLD_SUM, wide, acc, false), acc, n);
  uint32_t d = lower_apply(l, IR_OP_SUB, acc, wide, mean);
  uint32_t squares = fold_node(l, IR_FOLD_SUM, lower_apply(l, IR_OP_MUL, acc, d, d), acc, false);
  return divided(l, squares, acc, m > 0 ? m : 0);
}

static uint32_t lower_reduce(const lower_step *s, const lower_index *at) {
  lowering *l = s->l;
  lower_index own[IR_MAX_RANK];
  bool columns, moment = s->info->family == IR_FAMILY_MOMENT;
  ir_opcode code = s->step->code;
  ir_fold fold = moment ? IR_FOLD_SUM : ir_op_fold(code);
  if (!fold_index(s, at, own, &columns)) return lower_fail(l);
  uint32_t x = lower_operand(s, 0, own);
  if (l->failed) return CG_NO_NODE;
  ir_dtype t = lower_shape(s, 0)->dtype;
  ir_dtype acc = moment && !ir_dtype_is_float(t) ? IR_F64 : cg_fold_dtype(fold, t);
  uint32_t node;
  if (code == IR_OP_VAR || code == IR_OP_VAR_MEAN) node = lower_variance(s, x, acc, columns);
  else node = fold_node(l, fold, x, acc, columns);
  if (code == IR_OP_MEAN) node = divided(l, node, acc, (double)folded_count(s));
  return l->failed ? CG_NO_NODE : lower_cast(l, node, s->result->dtype);
}

/* ---- softmax and norms ---- */
/* Operand 0 at `at`; *folded: the same operand as it is folded. */
static uint32_t row_operand(const lower_step *s, const lower_index *at, uint32_t *folded) {
  lowering *l = s->l;
  lower_index own[IR_MAX_RANK];
  bool columns;
  *folded = CG_NO_NODE;
  if (!fold_index(s, at, own, &columns) || columns) return lower_fail(l);
  *folded = lower_operand(s, 0, own);
  for (uint32_t d = 0; d < s->result->rank; d++) own[d] = lower_moved(s, 0, d, at);
  return lower_operand(s, 0, own);
}

static uint32_t shifted_exp(lowering *l, uint32_t x, uint32_t top, ir_dtype real, bool quick) {
  cg_step step = {.code = IR_OP_EXP, .compute = real, .result = real, .quick = quick};
  uint32_t distance = lower_apply(l, IR_OP_SUB, real, lower_cast(l, x, real), top);
  return lower_step_node(l, &step, 1, &distance);
}

static uint32_t lower_softmax(const lower_step *s, const lower_index *at) {
  lowering *l = s->l;
  ir_dtype t = s->result->dtype, real = t == IR_F64 ? IR_F64 : IR_F32,
           acc = cg_fold_dtype(IR_FOLD_SUM, t);
  bool quick = t == IR_F16 || t == IR_BF16;
  uint32_t folded, x = row_operand(s, at, &folded);
  if (l->failed) return CG_NO_NODE;
  uint32_t top = fold_node(l, IR_FOLD_MAX, folded, real, false);
  uint32_t sum = fold_node(l, IR_FOLD_SUM, shifted_exp(l, folded, top, real, quick), acc, false);
  uint32_t one = lower_constant(l, ir_number_float(1), acc);
  uint32_t scale = lower_apply(l, IR_OP_DIV, acc, one, sum);
  uint32_t y = lower_cast(l, shifted_exp(l, x, top, real, quick), acc);
  return lower_cast(l, lower_apply(l, IR_OP_MUL, acc, y, scale), t);
}

static uint32_t with_vector(const lower_step *s, uint32_t k, ir_opcode code, ir_dtype acc,
                            const lower_index *at, uint32_t node) {
  uint32_t axis = s->result->rank - 1;
  lower_index own = lower_moved(s, k, axis, at);
  if (!lower_has_operand(s, k)) return node;
  return lower_apply(s->l, code, acc, node, lower_cast(s->l, lower_operand(s, k, &own), acc));
}

static uint32_t lower_norm(const lower_step *s, const lower_index *at) {
  lowering *l = s->l;
  ir_dtype t = s->result->dtype, acc = cg_fold_dtype(IR_FOLD_SUM, t);
  double n = (double)folded_count(s);
  uint32_t folded, x = row_operand(s, at, &folded);
  if (l->failed) return CG_NO_NODE;
  x = lower_cast(l, x, acc);
  folded = lower_cast(l, folded, acc);
  if (s->step->code == IR_OP_LAYER_NORM) {
    uint32_t mean = divided(l, fold_node(l, IR_FOLD_SUM, folded, acc, false), acc, n);
    x = lower_apply(l, IR_OP_SUB, acc, x, mean);
    folded = lower_apply(l, IR_OP_SUB, acc, folded, mean);
  }
  uint32_t squares = lower_apply(l, IR_OP_MUL, acc, folded, folded);
  uint32_t q = divided(l, fold_node(l, IR_FOLD_SUM, squares, acc, false), acc, n);
  uint32_t eps = lower_constant(l, rt_task_number(&s->task, "eps"), acc);
  uint32_t scale =
      lower_apply(l, IR_OP_RSQRT, acc, lower_apply(l, IR_OP_ADD, acc, q, eps), CG_NO_NODE);
  uint32_t y = lower_apply(l, IR_OP_MUL, acc, x, scale);
  y = with_vector(s, 1, IR_OP_MUL, acc, at, y);
  if (s->step->code == IR_OP_LAYER_NORM) y = with_vector(s, 2, IR_OP_ADD, acc, at, y);
  return l->failed ? CG_NO_NODE : lower_cast(l, y, t);
}

uint32_t lower_folds(const lower_step *s, const lower_index *at) {
  if (s->l->out->row == 0 || s->step->operands[0].kind == RT_VALUE_NUMBER) return lower_fail(s->l);
  if (s->info->family == IR_FAMILY_SOFTMAX) return lower_softmax(s, at);
  if (s->info->family == IR_FAMILY_NORM) return lower_norm(s, at);
  return lower_reduce(s, at);
}
