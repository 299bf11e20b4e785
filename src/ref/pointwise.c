/* Pointwise operations: the scalar expressions of ops.def, compiled twice.
 *
 * Operands are converted to the dtype the operation computes in. Floats are then computed in double
 * and integers in 64 bits, whatever their width, and the result is rounded or cut to its dtype once. */
#include <math.h>

#include "ir/infer.h"
#include "ref/internal.h"

#define PARAMS(...)
#define OP(id, name, family, params) case IR_OP_##id:
#define NO 0

/* ---- floats ---- */
#define K(x) ((double)(x))
#define FMOD(a, b) float_mod(a, b)

/* The sign of the divisor, as np.mod: an exact zero takes it too. */
static double float_mod(double a, double b) {
  double r = fmod(a, b);
  if (r == 0) return copysign(0.0, b);
  return (r < 0) != (b < 0) ? r + b : r;
}

static double float_result(ir_opcode code, double a, double b, double c, bool mode) {
  switch (code) {
#define POINTWISE(id, name, result, params, fexpr, iexpr)                                          \
  case IR_OP_##id:                                                                                 \
    return fexpr;
#include "ir/ops.def"
#undef POINTWISE
  case IR_OP_NONE:
  case IR_OP_COUNT: break;
  }
  check_failed(__FILE__, __LINE__, "a pointwise operation");
}

/* ---- integers and bools ---- */
#define WNEG(a) ref_wrap_sub(0, a)
#define WADD(a, b) ref_wrap_add(a, b)
#define WSUB(a, b) ref_wrap_sub(a, b)
#define WMUL(a, b) ref_wrap_mul(a, b)
#define IMOD(a, b) int_mod(a, b)
#define IPOW(a, b) int_pow(a, b)
#define INVERT(a) (is_bool ? !(a) : ~(a))

/* The sign of the divisor; 0 for a divisor of 0. */
static int64_t int_mod(int64_t a, int64_t b) {
  if (b == 0 || b == -1) return 0; /* -1: INT64_MIN % -1 would overflow */
  int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/* Below zero the power is a fraction, which only 1 and -1 survive. */
static int64_t int_pow(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == -1) return exponent % 2 == 0 ? 1 : -1;
    return base == 1;
  }
  int64_t power = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) power = ref_wrap_mul(power, base);
    base = ref_wrap_mul(base, base);
  }
  return power;
}

static int64_t int_result(ir_opcode code, int64_t a, int64_t b, int64_t c, bool is_bool) {
  switch (code) {
#define POINTWISE(id, name, result, params, fexpr, iexpr)                                          \
  case IR_OP_##id:                                                                                 \
    return iexpr;
#include "ir/ops.def"
#undef POINTWISE
  case IR_OP_NONE:
  case IR_OP_COUNT: break;
  }
  check_failed(__FILE__, __LINE__, "a pointwise operation");
}

/* ---- elements ---- */
enum { MAX_OPERANDS = 3 };

static void convert(ir_dtype to, void *p, const ir_array *a, const int64_t *index) {
  const void *from = ir_array_at(a, index);
  if (ir_dtype_is_float(a->dtype)) ir_element_set_f64(to, p, ir_element_as_f64(a->dtype, from));
  else ir_element_set_i64(to, p, ir_element_as_i64(a->dtype, from));
}

static double load_f64(const ir_array *a, const int64_t *index, ir_dtype compute) {
  double converted;
  convert(compute, &converted, a, index);
  return ir_element_as_f64(compute, &converted);
}

static int64_t load_i64(const ir_array *a, const int64_t *index, ir_dtype compute) {
  int64_t converted;
  convert(compute, &converted, a, index);
  return ir_element_as_i64(compute, &converted);
}

/* In lanes that compute in f64, the values that are a lane's own have not been rounded. */
static void float_element(const ref_call *c, const ir_array *views, uint32_t n, ir_dtype compute,
                          bool mode, const int64_t *index) {
  double x[MAX_OPERANDS] = {0};
  void *p = ir_array_at(&c->result, index);
  for (uint32_t i = 0; i < n; i++) {
    bool own = c->state->wide && c->state->values[c->op->operands[i].id].own;
    x[i] = load_f64(&views[i], index, own ? IR_F64 : compute);
  }
  double value = float_result(c->op->code, x[0], x[1], x[2], mode);
  ir_element_set_f64(c->result.dtype, p, value);
  if (c->noise[0]) ref_note(c, 0, p, ref_pointwise_noise(c, x, value));
}

static void int_element(const ref_call *c, const ir_array *views, uint32_t n, ir_dtype compute,
                        const int64_t *index) {
  int64_t x[MAX_OPERANDS] = {0};
  for (uint32_t i = 0; i < n; i++) x[i] = load_i64(&views[i], index, compute);
  ir_element_set_i64(c->result.dtype, ir_array_at(&c->result, index),
                     int_result(c->op->code, x[0], x[1], x[2], compute == IR_BOOL));
}

/* The value of the op's choice attribute; no pointwise op has another attribute. */
static bool mode_of(const ref_call *c) {
  const ir_op_info *info = ir_op_info_of(c->op->code);
  for (const ir_param *p = info->params; p->kind != IR_PARAM_END; p++)
    if (p->kind == IR_PARAM_CHOICE) return ref_attr_int(c, p->name) != 0;
  return false;
}

status ref_pointwise(const ref_call *c) {
  ir_array views[MAX_OPERANDS];
  int64_t index[IR_MAX_RANK] = {0};
  uint32_t n = c->op->n_operands;
  ir_dtype compute = ir_infer_compute_dtype(c->state->f, c->op);
  bool mode = mode_of(c);
  check(n <= MAX_OPERANDS);
  for (uint32_t i = 0; i < n; i++)
    views[i] = ref_broadcast_to(ref_operand(c, i), c->result.rank, c->result.extents);
  if (ref_count(&c->result) == 0) return STATUS_OK;
  do {
    if (ir_dtype_is_float(compute)) float_element(c, views, n, compute, mode, index);
    else int_element(c, views, n, compute, index);
  } while (ir_array_next(&c->result, index));
  return STATUS_OK;
}
