/* Reductions: sum prod amax amin, and the moments mean, var and var_mean. */
#include <math.h>

#include "ref/internal.h"

/* ---- one accumulation ---- */
static double float_start(ir_opcode code) {
  if (code == IR_OP_AMAX) return -INFINITY;
  if (code == IR_OP_AMIN) return INFINITY;
  return code == IR_OP_PROD ? 1 : 0;
}

/* amax and amin start at the end of the dtype's range, so that a partial result without elements can
 * be stored and passed over later. */
static int64_t int_start(ir_opcode code, ir_dtype t) {
  int64_t end;
  if (code != IR_OP_AMAX && code != IR_OP_AMIN) return code == IR_OP_PROD;
  if (t == IR_BOOL) return code == IR_OP_AMIN;
  ir_element_set_f64(t, &end, float_start(code));
  return ir_element_as_i64(t, &end);
}

ref_fold ref_fold_start(const ref_state *s, ir_opcode code, bool is_float, ir_dtype result) {
  return (ref_fold){.code = code,
                    .is_float = is_float,
                    .accumulator = ref_accumulator(s, result),
                    .f = float_start(code),
                    .i = int_start(code, result)};
}

/* NaN wins over everything in amax and amin, and stays. */
void ref_fold_f64(ref_fold *fold, double value) {
  if (fold->code == IR_OP_AMAX) fold->f = isnan(value) || value > fold->f ? value : fold->f;
  else if (fold->code == IR_OP_AMIN) fold->f = isnan(value) || value < fold->f ? value : fold->f;
  else if (fold->code == IR_OP_PROD) fold->f = ref_accumulated(fold->accumulator, fold->f * value);
  else fold->f = ref_accumulated(fold->accumulator, fold->f + value);
}

void ref_fold_i64(ref_fold *fold, int64_t value) {
  if (fold->code == IR_OP_AMAX) fold->i = value > fold->i ? value : fold->i;
  else if (fold->code == IR_OP_AMIN) fold->i = value < fold->i ? value : fold->i;
  else if (fold->code == IR_OP_PROD) fold->i = ref_wrap_mul(fold->i, value);
  else fold->i = ref_wrap_add(fold->i, value);
}

static void fold_element(ref_fold *fold, const ir_array *a, const int64_t *index) {
  const void *p = ir_array_at(a, index);
  if (fold->is_float) ref_fold_f64(fold, ir_element_as_f64(a->dtype, p));
  else ref_fold_i64(fold, ir_element_as_i64(a->dtype, p));
}

static void fold_product(ref_fold *fold, const ir_array *a, const ir_array *b,
                         const int64_t *index) {
  const void *pa = ir_array_at(a, index), *pb = ir_array_at(b, index);
  if (fold->is_float)
    ref_fold_f64(fold, ir_element_as_f64(a->dtype, pa) * ir_element_as_f64(b->dtype, pb));
  else
    ref_fold_i64(fold,
                 ref_wrap_mul(ir_element_as_i64(a->dtype, pa), ir_element_as_i64(b->dtype, pb)));
}

void ref_fold_term(ref_fold *fold, const ref_terms *terms, const int64_t *index) {
  if (terms->has_right) fold_product(fold, &terms->left, &terms->right, index);
  else fold_element(fold, &terms->left, index);
}

void ref_fold_store(const ref_fold *fold, ir_dtype t, void *p) {
  if (fold->is_float) ir_element_set_f64(t, p, fold->f);
  else ir_element_set_i64(t, p, fold->i);
}

/* ---- sum prod amax amin ---- */
static bool needs_elements(ir_opcode code) { return code == IR_OP_AMAX || code == IR_OP_AMIN; }

static void reduce_row(const ref_call *c, const ir_array *row, void *p) {
  int64_t index[IR_MAX_RANK] = {0};
  ref_fold fold =
      ref_fold_start(c->state, c->op->code, ir_dtype_is_float(row->dtype), c->result.dtype);
  if (ref_count(row) > 0) do
      fold_element(&fold, row, index);
    while (ir_array_next(row, index));
  ref_fold_store(&fold, c->result.dtype, p);
}

/* Walks the result. With keepdim the axes of size 1 do not change the order of elements, so element
 * number i belongs to row number i either way. */
static void each_row(const ref_call *c, const ref_rows *rows, const ir_array *result,
                     void (*reduce)(const ref_call *, const ir_array *row, void *p)) {
  int64_t index[IR_MAX_RANK] = {0}, i = 0;
  if (ref_count(result) == 0) return;
  do {
    ir_array row = ref_row_at(rows, index);
    reduce(c, &row, ref_element(result, i++));
  } while (ir_array_next(&rows->outer, index));
}

static ref_rows operand_rows(const ref_call *c) {
  const ir_array *x = ref_operand(c, 0);
  bool reduced[IR_MAX_RANK];
  ref_attr_dims(c, "dims", x->rank, reduced);
  return ref_rows_of(x, reduced);
}

status ref_reduce(const ref_call *c) {
  const ir_array *x = ref_operand(c, 0);
  if (needs_elements(c->op->code) && ref_count(x) == 0 && ref_count(&c->result) > 0)
    return ref_fail(c, "a zero-size reduction has no %s; reduce an axis that has elements",
                    c->op->code == IR_OP_AMAX ? "maximum" : "minimum");
  if (ref_is_partial(c)) return ref_reduce_partial(c, &(ref_terms){.left = *x});
  ref_rows rows = operand_rows(c);
  each_row(c, &rows, &c->result, reduce_row);
  return STATUS_OK;
}

/* ---- mean var ---- */
static double row_mean(const ref_call *c, const ir_array *row) {
  int64_t index[IR_MAX_RANK] = {0}, n = ref_count(row);
  ref_fold sum = ref_fold_start(c->state, IR_OP_SUM, true, c->result.dtype);
  if (n == 0) return NAN;
  do fold_element(&sum, row, index);
  while (ir_array_next(row, index));
  return sum.f / (double)n;
}

static void mean_row(const ref_call *c, const ir_array *row, void *p) {
  ir_element_set_f64(c->result.dtype, p, row_mean(c, row));
}

/* Two passes: the mean first, then the squared distances from it. */
static void var_row(const ref_call *c, const ir_array *row, void *p) {
  int64_t index[IR_MAX_RANK] = {0}, n = ref_count(row);
  double divisor = (double)n - (double)ref_attr_int(c, "correction");
  ref_fold sum = ref_fold_start(c->state, IR_OP_SUM, true, c->result.dtype);
  double mean = ref_accumulated(sum.accumulator, row_mean(c, row));
  if (n > 0) do {
      double d = ir_element_as_f64(row->dtype, ir_array_at(row, index)) - mean;
      ref_fold_f64(&sum, d * d);
    } while (ir_array_next(row, index));
  ir_element_set_f64(c->result.dtype, p, sum.f / (divisor > 0 ? divisor : 0));
}

status ref_moment(const ref_call *c) {
  ref_rows rows = operand_rows(c);
  each_row(c, &rows, &c->result, c->op->code == IR_OP_MEAN ? mean_row : var_row);
  if (ref_wants(c, 1)) each_row(c, &rows, &c->more[0], mean_row);
  return STATUS_OK;
}
