#include "data/compare.h"

#include <math.h>
#include <string.h>

static double difference_int(int64_t a, int64_t b) {
  return a > b ? (double)((uint64_t)a - (uint64_t)b) : (double)((uint64_t)b - (uint64_t)a);
}

static double difference_float(double a, double b) {
  if (isnan(a) && isnan(b)) return 0;
  if (a == b) return 0; /* equal infinities too */
  double d = fabs(a - b);
  return isnan(d) ? INFINITY : d;
}

/* Folds one pair of elements into the largest difference and the largest |reference|. */
static void compare_element(ir_dtype t, const void *value, const void *reference, double *max_abs,
                            double *scale) {
  double d, r;
  if (ir_dtype_is_float(t)) {
    r = fabs(ir_element_as_f64(t, reference));
    d = difference_float(ir_element_as_f64(t, value), ir_element_as_f64(t, reference));
  } else {
    r = fabs((double)ir_element_as_i64(t, reference));
    d = difference_int(ir_element_as_i64(t, value), ir_element_as_i64(t, reference));
  }
  if (d > *max_abs) *max_abs = d;
  if (isfinite(r) && r > *scale) *scale = r;
}

data_comparison data_compare(const ir_array *value, const ir_array *reference, ir_dtype least) {
  int64_t index[IR_MAX_RANK] = {0}, n;
  double scale = 0;
  data_comparison c = {0};
  check(value->dtype == reference->dtype && value->rank == reference->rank);
  check(ir_array_count(value, &n));
  for (uint32_t i = 0; i < value->rank; i++) check(value->extents[i] == reference->extents[i]);
  if (ir_dtype_is_float(value->dtype)) c.tolerance = ir_dtype_tolerance(least);
  if (n > 0) {
    do
      compare_element(value->dtype, ir_array_at(value, index), ir_array_at(reference, index),
                      &c.max_abs, &scale);
    while (ir_array_next(value, index));
  }
  if (c.max_abs > 0) c.max_rel = scale > 0 ? c.max_abs / scale : INFINITY;
  c.ok = c.max_rel <= c.tolerance;
  return c;
}

/* ---- with a tolerance for each element ---- */
static double as_number(ir_dtype t, const void *p) {
  return ir_dtype_is_float(t) ? ir_element_as_f64(t, p) : (double)ir_element_as_i64(t, p);
}

static double distance(ir_dtype t, const void *value, const void *reference) {
  if (ir_dtype_is_float(t))
    return difference_float(ir_element_as_f64(t, value), ir_element_as_f64(t, reference));
  return difference_int(ir_element_as_i64(t, value), ir_element_as_i64(t, reference));
}

/* Is element i, in row-major order, looked at? */
static bool is_asked(const ir_array *a, const uint8_t *rows, int64_t i) {
  return !rows || rows[i / a->extents[a->rank - 1]];
}

static double largest(const ir_array *a, const uint8_t *rows) {
  int64_t index[IR_MAX_RANK] = {0}, i = 0;
  double most = 0;
  do {
    double x = fabs(as_number(a->dtype, ir_array_at(a, index)));
    if (is_asked(a, rows, i++) && isfinite(x) && x > most) most = x;
  } while (ir_array_next(a, index));
  return most;
}

/* How many times its tolerance a difference is. */
static double times(double difference, double tolerance) {
  if (difference <= tolerance)
    return difference > 0 && isfinite(tolerance) ? difference / tolerance : 0;
  return tolerance > 0 ? difference / tolerance : INFINITY;
}

data_verdict data_judge(const ir_array *value, const ir_array *reference, const double *squares,
                        double rtol, const uint8_t *rows) {
  int64_t index[IR_MAX_RANK] = {0}, i = 0;
  data_verdict v = {0};
  double scale;
  check(value->dtype == reference->dtype && value->rank == reference->rank);
  int64_t n;
  check(ir_array_count(value, &n));
  if (n == 0) return v;
  v.worst = -1;
  scale = largest(reference, rows);
  do {
    double square = squares ? squares[i] : 0;
    if (!is_asked(value, rows, i++)) continue;
    v.n_elements++;
    const void *p = ir_array_at(value, index), *q = ir_array_at(reference, index);
    double d = distance(value->dtype, p, q);
    double tolerance = squares ? DATA_DEVIATIONS * sqrt(square) : rtol * scale;
    if (d > v.max_abs) v.max_abs = d;
    if (d > tolerance) v.n_wrong++;
    if (times(d, tolerance) <= v.worst) continue;
    v.worst = times(d, tolerance);
    memcpy(v.index, index, sizeof index);
    v.value = as_number(value->dtype, p);
    v.reference = as_number(value->dtype, q);
    v.tolerance = tolerance;
  } while (ir_array_next(value, index));
  if (v.max_abs > 0) v.max_rel = scale > 0 ? v.max_abs / scale : INFINITY;
  return v;
}

/* ---- what a tensor depends on ---- */
static ir_dtype less_precise(ir_dtype a, ir_dtype b) {
  return ir_dtype_tolerance(b) > ir_dtype_tolerance(a) ? b : a;
}

/* A number takes the dtype it meets, so it is never the least precise one. */
static ir_dtype known(const ir_func *f, const ir_dtype *least, ir_tensor t) {
  const ir_tensor_data *data = ir_tensor_at(f, t);
  if (t.id == 0 || data->kind == IR_TENSOR_CONST) return IR_DTYPE_NONE;
  return data->kind == IR_TENSOR_INPUT ? data->dtype : least[t.id];
}

/* Operations are in program order, so every operand is known before its use. */
ir_dtype data_least_dtype(const ir_func *f, ir_tensor t, arena *scratch) {
  ir_dtype own = ir_tensor_at(f, t)->dtype;
  if (!ir_dtype_is_float(own)) return own;
  ir_dtype *least = ARENA_ARRAY(scratch, f->tensors.len, ir_dtype);
  for (uint32_t i = 0; i < f->order.len; i++) {
    const ir_op_data *op = ir_op_at(f, f->order.data[i]);
    ir_dtype read = IR_DTYPE_NONE;
    for (uint32_t k = 0; k < op->n_operands; k++)
      read = less_precise(read, known(f, least, op->operands[k]));
    for (uint32_t k = 0; k < ir_op_n_results(op); k++) {
      ir_tensor result = ir_op_result(op, k);
      least[result.id] = less_precise(ir_tensor_at(f, result)->dtype, read);
    }
  }
  return known(f, least, t);
}
