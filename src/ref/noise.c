/* How much devices round on the way to a result. All numbers here are standard deviations of errors that a
 * correct device may make. In doubt they are too large, by a factor of two, rather than too small. */
#include <float.h>
#include <math.h>

#include "ir/infer.h"
#include "ref/internal.h"

double ref_unit_sum(ir_dtype t) { return ir_dtype_unit(ir_dtype_accumulator(t)); }

double ref_tiny(ir_dtype t) {
  if (t == IR_F64) return DBL_MIN;
  return t == IR_F16 ? 0x1p-14 : (double)FLT_MIN;
}

double ref_largest(ir_dtype t) {
  switch (t) {
  case IR_F32: return 0x1.ffffffp127;
  case IR_F16: return 65520;
  case IR_BF16: return 0x1.ffp127;
  case IR_F64:
  case IR_I64:
  case IR_I32:
  case IR_I8:
  case IR_U8:
  case IR_BOOL:
  case IR_DTYPE_NONE:
  case IR_DTYPE_COUNT: break;
  }
  return INFINITY;
}

static double *noise_at(const ref_call *c, uint32_t k, const void *p) {
  const ir_array *a = k ? &c->more[k - 1] : &c->result;
  int64_t bytes = (const char *)p - (const char *)a->data;
  return &c->noise[k][bytes / (int64_t)ir_dtype_size_bytes(a->dtype)];
}

void ref_note(const ref_call *c, uint32_t k, const void *p, double deviation) {
  if (!c->noise[k]) return;
  bool open = deviation > FLT_MAX && ir_dtype_accumulator(c->result.dtype) == IR_F32;
  if (open) *noise_at(c, k, p) = INFINITY;
  else if (isfinite(deviation)) *noise_at(c, k, p) += deviation;
}

/* Adding a term rounds the partial sum. Devices sum long rows in parts of which none is longer than this;
 * parts may be rounded to the dtype before they are added, as when they come from other devices. */
enum { LONGEST_PART = 4096 };

double ref_sum_noise(ir_dtype t, double squares, int64_t n) {
  if (n == 0) return 0;
  if (squares > (double)FLT_MAX * FLT_MAX && t != IR_F64) return REF_OPEN;
  double shorter = n > LONGEST_PART ? sqrt((double)LONGEST_PART / (double)n) : 1;
  return ref_unit_sum(t) * sqrt(squares) * shorter + ir_dtype_unit(t) * sqrt(squares / (double)n);
}

/* Partial products may leave the range though the whole is in it: a part that overflows makes infinity, or NaN
 * beside a zero, and one below the smallest normal number loses its digits before the others make it large. */
static double product_noise(const ref_fold *fold, ir_dtype t) {
  ir_dtype computed = ir_dtype_accumulator(t);
  if (fold->most >= ref_largest(computed)) return REF_OPEN;
  double lost = !fold->has_zero && fold->least < ref_tiny(computed) ? ref_tiny(computed) : 0;
  return ref_unit_sum(t) * sqrt((double)fold->n) * fabs(fold->f) + lost * fold->most;
}

double ref_fold_noise(const ref_fold *fold, ir_dtype t) {
  if (fold->fold == IR_FOLD_PROD) return product_noise(fold, t);
  return fold->is_float ? ref_sum_noise(t, fold->squares, fold->n) : 0;
}

/* ---- which operations round ---- */
/* Functions that devices approximate. */
static bool is_function(ir_opcode code) {
  static const ir_opcode functions[] = {IR_OP_EXP,  IR_OP_LOG, IR_OP_SIN,     IR_OP_COS,
                                        IR_OP_TANH, IR_OP_ERF, IR_OP_SIGMOID, IR_OP_SILU,
                                        IR_OP_GELU, IR_OP_POW};
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    if (functions[i] == code) return true;
  return false;
}

static bool is_division(ir_opcode code) {
  return code == IR_OP_DIV || code == IR_OP_SQRT || code == IR_OP_RSQRT ||
         code == IR_OP_RECIPROCAL || code == IR_OP_MOD;
}

static bool picks(ir_opcode code) {
  static const ir_opcode list[] = {IR_OP_NEG,  IR_OP_ABS,   IR_OP_RELU,  IR_OP_MAX,
                                   IR_OP_MIN,  IR_OP_WHERE, IR_OP_CLAMP, IR_OP_SIGN,
                                   IR_OP_CEIL, IR_OP_FLOOR, IR_OP_ROUND};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++)
    if (list[i] == code) return true;
  return false;
}

/* ---- families, by the names of families.def ---- */
typedef ref_noise noise_fn(const ref_state *s, const ir_op_data *op);

static ref_noise noise_none(const ref_state *s, const ir_op_data *op) {
  (void)s, (void)op;
  return REF_NOISE_NONE;
}

static ref_noise noise_sums(const ref_state *s, const ir_op_data *op) {
  (void)s, (void)op;
  return REF_NOISE_NOTES;
}

/* Sums of exponentials. */
static ref_noise noise_biased(const ref_state *s, const ir_op_data *op) {
  return noise_sums(s, op);
}

static ref_noise noise_pointwise(const ref_state *s, const ir_op_data *op) {
  (void)s;
  if (picks(op->code)) return REF_NOISE_NONE;
  return is_function(op->code) || is_division(op->code) ? REF_NOISE_NOTES : REF_NOISE_ROUNDS;
}

/* A cast to a dtype that holds all values of the operand's is exact. */
static ref_noise noise_cast(const ref_state *s, const ir_op_data *op) {
  ir_dtype from = ir_tensor_at(s->f, op->operands[0])->dtype;
  ir_dtype to = ir_tensor_at(s->f, op->result)->dtype;
  bool exact = !ir_dtype_is_float(from) || ir_dtype_unit(to) <= ir_dtype_unit(from);
  return exact ? REF_NOISE_NONE : REF_NOISE_ROUNDS;
}

static ref_noise noise_reduce(const ref_state *s, const ir_op_data *op) {
  (void)s;
  return ir_fold_info_of(ir_op_fold(op->code))->noun ? REF_NOISE_NONE : REF_NOISE_NOTES;
}

static ref_noise noise_scatter(const ref_state *s, const ir_op_data *op) {
  (void)s;
  const ir_attr *reduce = ir_op_attr(op, "reduce");
  return reduce->given && reduce->i ? REF_NOISE_NOTES : REF_NOISE_NONE;
}

static noise_fn *const families[] = {
#define REF(eval, noise) noise_##noise
#define FAMILY(id, group, ir, shard, host, join, ref, ...) [IR_FAMILY_##id] = ref,
#include "ir/families.def"
};

bool ref_noise_is_biased(const ir_op_data *op) {
  return is_function(op->code) || families[ir_op_info_of(op->code)->family] == noise_biased;
}

ref_noise ref_noise_of(const ref_state *s, const ir_op_data *op) {
  if (!ir_dtype_is_float(ir_tensor_at(s->f, op->result)->dtype)) return REF_NOISE_NONE;
  return families[ir_op_info_of(op->code)->family](s, op);
}

/* ---- functions ---- */
/* In units of what is computed in. gelu is half its operand times 1 + erf, which cancels; sines of
 * large numbers lose digits of the angle; powers are exponentials of products; 1 + exp(-x) may
 * overflow, which makes sigmoid and silu 0. */
double ref_pointwise_noise(const ref_call *c, const double x[3], double value) {
  ir_dtype computed = ir_infer_compute_dtype(c->state->f, c->op);
  double unit = ref_unit_sum(computed), v = fabs(value), least = computed == IR_F64 ? -700 : -87;
  ir_opcode code = c->op->code;
  if (!isfinite(v)) return 0;
  if (code == IR_OP_MOD) return unit * fabs(x[0]);
  if (is_division(code)) return unit * v;
  if (code == IR_OP_GELU) return unit * (3 * v + (x[0] < 0 ? fabs(x[0]) : 0));
  if (code == IR_OP_SIN || code == IR_OP_COS) return unit * 3;
  if ((code == IR_OP_SIGMOID || code == IR_OP_SILU) && x[0] < least) return v;
  if (code == IR_OP_POW) return unit * v * (3 + (v > 0 ? fabs(log(v)) : 0));
  return unit * 3 * v;
}
