/* Operations without operands: full zeros ones iota uniform. */
#include <math.h>
#include <string.h>

#include "base/random.h"
#include "base/table.h"
#include "ref/internal.h"

/* Each uniform has a random stream of its own, found by the name of its result, so that dropping or
 * moving other operations does not change its values; an explicit key overrides the name. */
static uint64_t uniform_key(const ref_call *c) {
  const ir_attr *key = ir_op_attr(c->op, "key");
  const char *name = ir_tensor_name(c->state->f, c->op->result);
  uint64_t stream = key->given ? (uint64_t)key->i : hash_bytes(name, strlen(name));
  return random_bits(c->state->options->seed, stream);
}

/* In [0, 1), with as many bits as a result of dtype `t` can use. */
static double unit_fraction(uint64_t bits, ir_dtype t) {
  return t == IR_F64 ? (double)(bits >> 11) * 0x1p-53 : (double)(bits >> 40) * 0x1p-24;
}

/* Rounding to the dtype may reach hi; the number before hi takes its place. */
static void store_below(ir_dtype t, void *p, double value, double lo, double hi) {
  ir_element_set_f64(t, p, value);
  double step = fabs(hi) * 0x1p-54 + 0x1p-1074;
  for (; ir_element_as_f64(t, p) >= hi && lo < hi && value > lo; step *= 2) {
    value = hi - step > lo ? hi - step : lo;
    ir_element_set_f64(t, p, value);
  }
}

static void uniform_element(const ref_call *c, uint64_t bits, double lo, double hi, void *p) {
  ir_dtype t = c->result.dtype;
  double value = lo + (hi - lo) * unit_fraction(bits, ir_dtype_is_float(t) ? t : IR_F64);
  if (ir_dtype_is_float(t)) store_below(t, p, value, lo, hi);
  else ir_element_set_f64(t, p, floor(value));
}

static void make_uniform(const ref_call *c, int64_t n) {
  uint64_t key = uniform_key(c);
  double lo = ir_number_as_f64(ref_attr_number(c, "lo"));
  double hi = ir_number_as_f64(ref_attr_number(c, "hi"));
  for (int64_t i = 0; i < n; i++)
    uniform_element(c, random_bits(key, (uint64_t)i), lo, hi, ref_element(&c->result, i));
}

/* ---- the others ---- */
static void make_full(const ref_call *c, int64_t n, ir_number value) {
  for (int64_t i = 0; i < n; i++)
    ref_set_number(c->result.dtype, ref_element(&c->result, i), value);
}

static void make_iota(const ref_call *c, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    ir_element_set_i64(c->result.dtype, ref_element(&c->result, i), i);
}

status ref_maker(const ref_call *c) {
  int64_t n = ref_count(&c->result);
  if (c->op->code == IR_OP_UNIFORM) make_uniform(c, n);
  else if (c->op->code == IR_OP_IOTA) make_iota(c, n);
  else if (c->op->code == IR_OP_FULL) make_full(c, n, ref_attr_number(c, "value"));
  else make_full(c, n, ir_number_int(c->op->code == IR_OP_ONES));
  return STATUS_OK;
}
