/* Reductions: sum prod amax amin, and the moments mean, var and var_mean. */
#include <math.h>

#include "ref/internal.h"

/* ---- one accumulation ---- */
ref_fold ref_fold_start(const ref_state *s, ir_fold fold, bool is_float, ir_dtype result) {
  ir_number start = ir_fold_start(fold, result);
  return (ref_fold){.fold = fold,
                    .is_float = is_float,
                    .accumulator = ref_accumulator(s, result),
                    .f = ir_number_as_f64(start),
                    .i = start.i,
                    .most = 1,
                    .least = 1};
}

#define NO 0 /* no element of this kind gets here */
#define W(x) (uint64_t)(x)

static double float_folded(ir_fold fold, double a, double b) {
  switch (fold) {
#define FOLD(id, name, start, fexpr, iexpr, ...)                                                   \
  case IR_FOLD_##id:                                                                               \
    return fexpr;
#include "ir/folds.def"
#undef FOLD
  case IR_FOLD_NONE:
  case IR_FOLD_COUNT: break;
  }
  impossible("every fold is listed");
}

static int64_t int_folded(ir_fold fold, int64_t a, int64_t b) {
  switch (fold) {
#define FOLD(id, name, start, fexpr, iexpr, ...)                                                   \
  case IR_FOLD_##id:                                                                               \
    return (int64_t)(iexpr);
#include "ir/folds.def"
#undef FOLD
  case IR_FOLD_NONE:
  case IR_FOLD_COUNT: break;
  }
  impossible("every fold is listed");
}

static void note_factor(ref_fold *fold, double size) {
  if (size == 0) fold->has_zero = true;
  else if (size < 1) fold->least *= size;
  else if (isfinite(size)) fold->most *= size;
}

void ref_fold_f64(ref_fold *fold, double value) {
  if (fold->fold == IR_FOLD_PROD) note_factor(fold, fabs(value));
  double folded = float_folded(fold->fold, value, fold->f);
  bool picks = ir_fold_info_of(fold->fold)->noun != NULL;
  fold->f = picks ? folded : ref_accumulated(fold->accumulator, folded);
  fold->squares += fold->f * fold->f;
  fold->n++;
}

void ref_fold_i64(ref_fold *fold, int64_t value) {
  fold->i = int_folded(fold->fold, value, fold->i);
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

bool ref_terms_right(const ref_terms *terms, const int64_t *index, int64_t *elements) {
  *elements = 0;
  if (!terms->has_group && !terms->has_member) return true;
  int64_t group = ir_element_as_i64(terms->group.dtype, ir_array_at(&terms->group, index));
  if (terms->has_member) return group == index[terms->group_axis];
  *elements = group * terms->group_step;
  return group < terms->n_groups;
}

void ref_fold_term(ref_fold *fold, const ref_terms *terms, const int64_t *index) {
  ir_array right = terms->right;
  int64_t elements;
  if (!terms->has_right) {
    fold_element(fold, &terms->left, index);
    return;
  }
  if (!ref_terms_right(terms, index, &elements)) return;
  right.data = (char *)right.data + elements * (int64_t)ir_dtype_size_bytes(right.dtype);
  fold_product(fold, &terms->left, &right, index);
}

void ref_fold_store(const ref_fold *fold, ir_dtype t, void *p) {
  if (fold->is_float) ir_element_set_f64(t, p, fold->f);
  else ir_element_set_i64(t, p, fold->i);
}

/* ---- sum prod amax amin ---- */
static void reduce_row(const ref_call *c, const ir_array *row, void *p) {
  int64_t index[IR_MAX_RANK] = {0};
  bool is_float = ir_dtype_is_float(row->dtype);
  ref_fold fold = ref_fold_start(c->state, ir_op_fold(c->op->code), is_float, c->result.dtype);
  if (ref_count(row) > 0) do
      fold_element(&fold, row, index);
    while (ir_array_next(row, index));
  ref_fold_store(&fold, c->result.dtype, p);
  ref_note(c, 0, p, ref_fold_noise(&fold, c->result.dtype));
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
  const char *noun = ir_fold_info_of(ir_op_fold(c->op->code))->noun;
  bool starts = ref_attr_int(c, "empty") != 0;
  if (noun && !starts && ref_count(x) == 0 && ref_count(&c->result) > 0)
    return ref_fail(c, "a zero-size reduction has no %s; reduce an axis that has elements", noun);
  if (ref_is_partial(c)) return ref_reduce_partial(c, &(ref_terms){.left = *x});
  ref_rows rows = operand_rows(c);
  each_row(c, &rows, &c->result, reduce_row);
  return STATUS_OK;
}

/* ---- mean var ---- */
static double row_mean(const ref_call *c, const ir_array *row, double *noise) {
  int64_t index[IR_MAX_RANK] = {0}, n = ref_count(row);
  ref_fold sum = ref_fold_start(c->state, IR_FOLD_SUM, true, c->result.dtype);
  *noise = 0;
  if (n == 0) return NAN;
  do fold_element(&sum, row, index);
  while (ir_array_next(row, index));
  *noise = ref_fold_noise(&sum, c->result.dtype) / (double)n;
  return sum.f / (double)n;
}

static void mean_row(const ref_call *c, const ir_array *row, void *p) {
  double noise;
  ir_element_set_f64(c->result.dtype, p, row_mean(c, row, &noise));
  ref_note(c, c->op->code == IR_OP_MEAN ? 0 : 1, p, noise);
}

/* Two passes: the mean first, then the squared distances from it. */
static void var_row(const ref_call *c, const ir_array *row, void *p) {
  int64_t index[IR_MAX_RANK] = {0}, n = ref_count(row);
  double divisor = (double)n - (double)ref_attr_int(c, "correction");
  ref_fold sum = ref_fold_start(c->state, IR_FOLD_SUM, true, c->result.dtype);
  double noise, mean = ref_accumulated(sum.accumulator, row_mean(c, row, &noise));
  if (n > 0) do {
      double d = ir_element_as_f64(row->dtype, ir_array_at(row, index)) - mean;
      ref_fold_f64(&sum, d * d);
    } while (ir_array_next(row, index));
  divisor = divisor > 0 ? divisor : 0;
  ir_element_set_f64(c->result.dtype, p, sum.f / divisor);
  noise = (double)n * noise * noise + ref_fold_noise(&sum, c->result.dtype);
  noise += ref_unit_sum(c->result.dtype) * 2 * fabs(mean) * sqrt(sum.f); /* of each distance */
  ref_note(c, 0, p, divisor > 0 ? noise / divisor : 0);
}

status ref_moment(const ref_call *c) {
  ref_rows rows = operand_rows(c);
  each_row(c, &rows, &c->result, c->op->code == IR_OP_MEAN ? mean_row : var_row);
  if (ref_wants(c, 1)) each_row(c, &rows, &c->more[0], mean_row);
  return STATUS_OK;
}
