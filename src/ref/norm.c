/* Operations that look at a whole row to compute each of its elements: softmax and the norms.
 * All in double, one rounding at the end. */
#include <math.h>

#include "ref/internal.h"

static double element(const ir_array *row, int64_t i) {
  return ir_element_as_f64(row->dtype, ir_array_at(row, &i));
}

typedef void row_function(const ref_call *c, const ir_array *to, const ir_array *from);

/* Calls fn for each row along axis `dim` of the operand and of the result. */
static status each_row(const ref_call *c, const ir_array *x, uint32_t dim, row_function *fn) {
  bool chosen[IR_MAX_RANK] = {false};
  int64_t index[IR_MAX_RANK] = {0};
  chosen[dim] = true;
  ref_rows from = ref_rows_of(x, chosen), to = ref_rows_of(&c->result, chosen);
  if (ref_count(&c->result) == 0) return STATUS_OK;
  do {
    ir_array from_row = ref_row_at(&from, index), to_row = ref_row_at(&to, index);
    fn(c, &to_row, &from_row);
  } while (ir_array_next(&from.outer, index));
  return STATUS_OK;
}

/* The deviation of a sum of n terms of one sign, relative to the sum, in units of rounding. */
static double sum_units(int64_t n) { return 0.6 * sqrt((double)(n < 4096 ? n : 4096)); }

/* The maximum is taken out first, so that no exponential overflows. */
static void softmax_row(const ref_call *c, const ir_array *to, const ir_array *from) {
  int64_t n = from->extents[0];
  double top = -INFINITY, sum = 0, unit = ref_unit_sum(c->result.dtype);
  for (int64_t i = 0; i < n; i++) {
    double x = element(from, i);
    if (isnan(x) || x > top) top = x;
  }
  for (int64_t i = 0; i < n; i++) sum += exp(element(from, i) - top);
  for (int64_t i = 0; i < n; i++) {
    double below = element(from, i) - top, value = exp(below) / sum;
    ir_element_set_f64(to->dtype, ir_array_at(to, &i), value);
    if (value > 0)
      ref_note(c, 0, ir_array_at(to, &i), unit * value * (3 + fabs(below) + sum_units(n)));
  }
}

status ref_softmax(const ref_call *c) {
  const ir_array *x = ref_operand(c, 0);
  return each_row(c, x, ref_attr_dim(c, "dim", x->rank), softmax_row);
}

/* ---- norms ---- */
static double mean_of(const ir_array *row) {
  double sum = 0;
  for (int64_t i = 0; i < row->extents[0]; i++) sum += element(row, i);
  return sum / (double)row->extents[0];
}

static double mean_square(const ir_array *row, double center) {
  double sum = 0;
  for (int64_t i = 0; i < row->extents[0]; i++)
    sum += (element(row, i) - center) * (element(row, i) - center);
  return sum / (double)row->extents[0];
}

static double vector_at(const ir_array *vector, int64_t i, double missing) {
  return vector ? element(vector, i) : missing;
}

/* rms_norm is layer_norm around 0 and without a bias. */
static void norm_row(const ref_call *c, const ir_array *to, const ir_array *from) {
  bool centered = c->op->code == IR_OP_LAYER_NORM;
  const ir_array *weight = ref_operand_named(c, "weight");
  const ir_array *bias = centered ? ref_operand_named(c, "bias") : NULL;
  double center = centered ? mean_of(from) : 0;
  double eps = ir_number_as_f64(ref_attr_number(c, "eps"));
  double deviation = sqrt(mean_square(from, center) + eps);
  double unit = ref_unit_sum(c->result.dtype), sums = sum_units(from->extents[0]);
  for (int64_t i = 0; i < from->extents[0]; i++) {
    double x = (element(from, i) - center) / deviation, w = vector_at(weight, i, 1);
    ir_element_set_f64(to->dtype, ir_array_at(to, &i), x * w + vector_at(bias, i, -0.0));
    double before = fabs(element(from, i)) + (1 + sums) * fabs(center) + (centered ? deviation : 0);
    ref_note(c, 0, ir_array_at(to, &i),
             unit * fabs(w) * (before / deviation + fabs(x) * (3 + sums)));
  }
}

status ref_norm(const ref_call *c) {
  const ir_array *x = ref_operand_named(c, "x");
  check(x->rank > 0);
  return each_row(c, x, x->rank - 1, norm_row);
}
