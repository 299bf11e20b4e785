#include "ir/dtype.h"

#include <math.h>
#include <string.h>

#include "base/status.h"

typedef struct dtype_row {
  const char *text, *nvfuser;
  size_t size_bytes;
  ir_dtype_kind kind;
  int rank;
  double unit, tolerance;
} dtype_row;

static const dtype_row rows[IR_DTYPE_COUNT] = {
    [IR_DTYPE_NONE] = {"none", "none", 0, IR_KIND_BOOL, 0, 0, 0},
#define DTYPE(id, text, size, kind, rank, ctype, nvfuser, unit, tolerance)                         \
  [IR_##id] = {text, nvfuser, size, IR_KIND_##kind, rank, unit, tolerance},
#include "ir/dtype.def"
#undef DTYPE
};

#define DTYPE(id, text, size, kind, rank, ctype, ...)                                              \
  _Static_assert(sizeof(ctype) == (size), "storage size of " text);
#include "ir/dtype.def"
#undef DTYPE

static const dtype_row *row_of(ir_dtype t) {
  check(t < IR_DTYPE_COUNT);
  return &rows[t];
}

const char *ir_dtype_text(ir_dtype t) { return row_of(t)->text; }
const char *ir_dtype_nvfuser(ir_dtype t) { return row_of(t)->nvfuser; }
size_t ir_dtype_size_bytes(ir_dtype t) { return row_of(t)->size_bytes; }
ir_dtype_kind ir_dtype_kind_of(ir_dtype t) { return row_of(t)->kind; }

ir_dtype ir_dtype_parse(const char *text, size_t length) {
  for (int t = IR_DTYPE_NONE + 1; t < IR_DTYPE_COUNT; t++)
    if (strlen(rows[t].text) == length && memcmp(rows[t].text, text, length) == 0)
      return (ir_dtype)t;
  return IR_DTYPE_NONE;
}

ir_dtype ir_dtype_promote(ir_dtype a, ir_dtype b) {
  const dtype_row *ra = row_of(a), *rb = row_of(b);
  if (a == b) return a;
  if (ra->kind != rb->kind) return ra->kind > rb->kind ? a : b;
  if (ra->rank != rb->rank) return ra->rank > rb->rank ? a : b;
  return ra->kind == IR_KIND_FLOAT ? IR_F32 : IR_I32;
}

ir_dtype ir_dtype_accumulator(ir_dtype t) { return t == IR_F16 || t == IR_BF16 ? IR_F32 : t; }

double ir_dtype_unit(ir_dtype t) { return row_of(t)->unit; }
double ir_dtype_tolerance(ir_dtype t) { return row_of(t)->tolerance; }

/* ---- narrow floats ---- */
enum { F64_MANTISSA = 52, F64_BIAS = 1023 };

typedef struct narrow_format {
  int mantissa_bits, bias, exponent_max; /* exponent_max: of inf and nan */
} narrow_format;

static const narrow_format format_f16 = {10, 15, 31}, format_bf16 = {7, 127, 255};

/* Shifts right, rounding to nearest, ties to even. */
static uint64_t round_shift(uint64_t value, int shift) {
  if (shift > 62) return 0; /* less than half of the last place */
  uint64_t half = (uint64_t)1 << (shift - 1), rest = value & ((half << 1) - 1);
  uint64_t kept = value >> shift;
  return kept + (rest > half || (rest == half && (kept & 1)));
}

/* With exponent and mantissa side by side, a carry out of the mantissa is the right exponent, and out
 * of the largest exponent it is infinity. */
static uint16_t narrow(double value, narrow_format to) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  uint16_t sign = (uint16_t)(bits >> 63 << 15);
  uint64_t fraction = bits & (((uint64_t)1 << F64_MANTISSA) - 1);
  int exponent = (int)(bits >> F64_MANTISSA & 0x7ff) - F64_BIAS + to.bias;
  int shift = F64_MANTISSA - to.mantissa_bits;
  uint16_t infinity = (uint16_t)(to.exponent_max << to.mantissa_bits);
  if (isnan(value)) return (uint16_t)(sign | infinity | 1 << (to.mantissa_bits - 1));
  if (exponent >= to.exponent_max) return (uint16_t)(sign | infinity);
  if (exponent > 0) {
    uint64_t joined = (uint64_t)exponent << F64_MANTISSA | fraction;
    return (uint16_t)(sign | round_shift(joined, shift));
  }
  uint64_t with_leading_one = fraction | (uint64_t)1 << F64_MANTISSA;
  return (uint16_t)(sign | round_shift(with_leading_one, shift + 1 - exponent));
}

uint16_t ir_f16_from_f64(double value) { return narrow(value, format_f16); }
uint16_t ir_bf16_from_f64(double value) { return narrow(value, format_bf16); }

float ir_f32_from_bf16(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

float ir_f32_from_f16(uint16_t bits) {
  int exponent = bits >> 10 & 31, fraction = bits & 1023;
  float magnitude;
  if (exponent == 31) magnitude = fraction ? NAN : INFINITY;
  else if (exponent == 0) magnitude = ldexpf((float)fraction, -24);
  else magnitude = ldexpf((float)(fraction + 1024), exponent - 25);
  return copysignf(magnitude, bits >> 15 ? -1.0F : 1.0F);
}

/* ---- single elements ---- */
__attribute__((noreturn)) static void not_an_element_type(void) {
  check_failed(__FILE__, __LINE__, "an element type");
}

/* memcpy, because a caller's array may be unaligned. */
#define LOAD(ctype, p, to)                                                                         \
  ctype to;                                                                                        \
  memcpy(&to, p, sizeof to)

/* Truncates toward zero and saturates. `limit` is 2 to the power of the integer's value bits, and so
 * exact as a double, which the largest integer need not be. */
static int64_t saturate(double value, int64_t lowest, int64_t highest, double limit) {
  if (isnan(value)) return 0;
  if (value >= limit) return highest;
  if (value <= (double)lowest) return lowest;
  return (int64_t)value;
}

static int64_t f64_to_i64(double value) { return saturate(value, INT64_MIN, INT64_MAX, 0x1p63); }

double ir_element_as_f64(ir_dtype t, const void *p) {
  switch (t) {
  case IR_F64: {
    LOAD(double, p, value);
    return value;
  }
  case IR_F32: {
    LOAD(float, p, value);
    return (double)value;
  }
  case IR_F16: {
    LOAD(uint16_t, p, bits);
    return (double)ir_f32_from_f16(bits);
  }
  case IR_BF16: {
    LOAD(uint16_t, p, bits);
    return (double)ir_f32_from_bf16(bits);
  }
  case IR_I64:
  case IR_I32:
  case IR_I8:
  case IR_U8:
  case IR_BOOL: return (double)ir_element_as_i64(t, p);
  case IR_DTYPE_NONE:
  case IR_DTYPE_COUNT: break;
  }
  not_an_element_type();
}

int64_t ir_element_as_i64(ir_dtype t, const void *p) {
  switch (t) {
  case IR_I64: {
    LOAD(int64_t, p, value);
    return value;
  }
  case IR_I32: {
    LOAD(int32_t, p, value);
    return value;
  }
  case IR_I8: return *(const int8_t *)p;
  case IR_U8: return *(const uint8_t *)p;
  case IR_BOOL: return *(const uint8_t *)p != 0;
  case IR_F64:
  case IR_F32:
  case IR_F16:
  case IR_BF16: return f64_to_i64(ir_element_as_f64(t, p));
  case IR_DTYPE_NONE:
  case IR_DTYPE_COUNT: break;
  }
  not_an_element_type();
}

void ir_element_set_f64(ir_dtype t, void *p, double value) {
  switch (t) {
  case IR_F64: memcpy(p, &value, sizeof value); return;
  case IR_F32: memcpy(p, &(float){(float)value}, sizeof(float)); return;
  case IR_F16: memcpy(p, &(uint16_t){ir_f16_from_f64(value)}, sizeof(uint16_t)); return;
  case IR_BF16: memcpy(p, &(uint16_t){ir_bf16_from_f64(value)}, sizeof(uint16_t)); return;
  case IR_I64: ir_element_set_i64(t, p, f64_to_i64(value)); return;
  case IR_I32: ir_element_set_i64(t, p, saturate(value, INT32_MIN, INT32_MAX, 0x1p31)); return;
  case IR_I8: ir_element_set_i64(t, p, saturate(value, INT8_MIN, INT8_MAX, 0x1p7)); return;
  case IR_U8: ir_element_set_i64(t, p, saturate(value, 0, UINT8_MAX, 0x1p8)); return;
  case IR_BOOL: ir_element_set_i64(t, p, value != 0); return;
  case IR_DTYPE_NONE:
  case IR_DTYPE_COUNT: break;
  }
  not_an_element_type();
}

/* An integer past 53 bits would be rounded twice on its way through double to a narrow float. Folding
 * the bits that do not fit into one "there was more" bit leaves the second rounding the only one. */
static double sticky_f64(int64_t value) {
  uint64_t magnitude = value < 0 ? -(uint64_t)value : (uint64_t)value;
  if (magnitude >> 53) magnitude = (magnitude & ~(uint64_t)0x7ff) | (magnitude & 0x7ff ? 0x800 : 0);
  return value < 0 ? -(double)magnitude : (double)magnitude;
}

void ir_element_set_i64(ir_dtype t, void *p, int64_t value) {
  switch (t) {
  case IR_I64: memcpy(p, &value, sizeof value); return;
  case IR_I32: memcpy(p, &(uint32_t){(uint32_t)(uint64_t)value}, sizeof(uint32_t)); return;
  case IR_I8:
  case IR_U8: memcpy(p, &(uint8_t){(uint8_t)(uint64_t)value}, sizeof(uint8_t)); return;
  case IR_BOOL: memcpy(p, &(uint8_t){value != 0}, sizeof(uint8_t)); return;
  case IR_F64: ir_element_set_f64(t, p, (double)value); return;
  case IR_F32: memcpy(p, &(float){(float)value}, sizeof(float)); return;
  case IR_F16:
  case IR_BF16: ir_element_set_f64(t, p, sticky_f64(value)); return;
  case IR_DTYPE_NONE:
  case IR_DTYPE_COUNT: break;
  }
  not_an_element_type();
}
