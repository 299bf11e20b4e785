/* Pointwise loops of bf16, computed in f32 and rounded. */
#include <math.h>
#include <string.h>

#include "device/cpu/loops/loops.h"

#include "device/cpu/kernel_fast.h"
/* After it: only functions of equal options are inlined. */
#include "device/cpu/loops/math_f32.h"
#include "device/cpu/loops/pairs.h"

#include "device/cpu/loops/as_f32.h"

/* An operand that the op does not have is not read. */
#define EACH_PAIR(name, params, expression)                                                        \
  static inline float name##_of(float a, float b, float c, bool mode) {                            \
    (void)a, (void)b, (void)c, (void)mode;                                                         \
    return expression;                                                                             \
  }                                                                                                \
  static void name(int64_t n, void *to_, const void *const *x, bool mode) {                        \
    pair *restrict to = to_;                                                                       \
    const pair *x0 = x[0], *x1 = x[params > 1], *x2 = x[params > 2 ? 2 : 0];                       \
    int64_t half = n / 2;                                                                          \
    (void)mode;                                                                                    \
    for (int64_t i = 0; i < half; i++)                                                             \
      to[i] = paired(name##_of(lower(x0[i]), params > 1 ? lower(x1[i]) : 0,                        \
                               params > 2 ? lower(x2[i]) : 0, mode),                               \
                     name##_of(upper(x0[i]), params > 1 ? upper(x1[i]) : 0,                        \
                               params > 2 ? upper(x2[i]) : 0, mode));                              \
    if (n % 2) {                                                                                   \
      float a = ir_bf16_as_f32(((const uint16_t *)x[0])[n - 1]), b = 0, c = 0;                     \
      if (params > 1) b = ir_bf16_as_f32(((const uint16_t *)x[1])[n - 1]);                         \
      if (params > 2) c = ir_bf16_as_f32(((const uint16_t *)x[2])[n - 1]);                         \
      ((uint16_t *)to_)[n - 1] = (uint16_t)(rounded(name##_of(a, b, c, mode)) >> 16);              \
    }                                                                                              \
  }

#define EACH_TRUTH(name, params, expression)                                                       \
  static void name(int64_t n, void *to_, const void *const *x, bool mode) {                        \
    uint8_t *restrict to = to_;                                                                    \
    const uint16_t *x0 = x[0], *x1 = x[1];                                                         \
    (void)mode;                                                                                    \
    for (int64_t i = 0; i < n; i++) {                                                              \
      float a = ir_bf16_as_f32(x0[i]), b = ir_bf16_as_f32(x1[i]);                                  \
      to[i] = expression;                                                                          \
    }                                                                                              \
  }

/* PARAMS(X(a), X(b)) counts tensor params: it becomes 2. */
#define X(name) 1
#define C(...) 0
#define PARAMS(...) COUNT(__VA_ARGS__, 0, 0, 0)
#define COUNT(a, b, c, ...) ((a) + (b) + (c))
#define OP(id, name, family, params)
#define NO 0

#define LOOP_SAME EACH_PAIR
#define LOOP_NUMBER EACH_PAIR
#define LOOP_FLOAT EACH_PAIR
#define LOOP_BITS EACH_PAIR
#define LOOP_CHOICE EACH_PAIR
#define LOOP_TRUTH EACH_TRUTH
#define POINTWISE(id, name, result, params, fexpr, iexpr) LOOP_##result(bf16_##id, params, fexpr)
#include "ir/ops.def"
#undef POINTWISE

/* Blocks are computed without regard to the ends of the range, with the same bits where all magnitudes are
 * below 80; else they are done again. The two of a word are compared at once: their sums with the
 * distance to 2^15 do not meet. */
enum { BLOCK = 512, NEAR = 0x42a0 /* 80 */ };
enum { MAGNITUDES = 0x7fff7fff };
static inline uint32_t too_far(pair x) { return (x & MAGNITUDES) + (0x8000 - NEAR) * 0x10001U; }

/* exp(x) of such numbers, to 21 bits: rounded to bf16 it is what f32_exp gives, and so are the
 * functions below. tests/conform/test_tables.c compares all of them. */
static inline float near_exp(float x) {
  uint32_t whole;
  float r = f32_exp_reduced(x, &whole), p = 8.31074081e-3F;
  p = f32_fma(p, r, 4.18728031e-2F);
  p = f32_fma(p, r, 1.66675597e-1F);
  p = f32_fma(p, r, 4.99997199e-1F);
  return f32_scaled(f32_fma(p, r * r, r) + 1.0F, whole);
}

/* A result may be written over its operand, which is then kept. */
#define NEAR_OR_FAR(name, near, all)                                                               \
  EACH_PAIR(name##_all, 1, all)                                                                    \
  static inline float name##_near(float a) { return near; }                                        \
  static bool name##_block(int64_t n, void *to_, const void *x_) {                                 \
    pair *restrict to = to_;                                                                       \
    const pair *x = x_;                                                                            \
    int64_t half = n / 2;                                                                          \
    uint32_t far = 0;                                                                              \
    for (int64_t i = 0; i < half; i++) {                                                           \
      far |= too_far(x[i]);                                                                        \
      to[i] = paired(name##_near(lower(x[i])), name##_near(upper(x[i])));                          \
    }                                                                                              \
    if (n % 2) {                                                                                   \
      uint16_t last = ((const uint16_t *)x_)[n - 1];                                               \
      far |= too_far(last);                                                                        \
      ((uint16_t *)to_)[n - 1] = (uint16_t)(rounded(name##_near(ir_bf16_as_f32(last))) >> 16);     \
    }                                                                                              \
    return (far & ~(uint32_t)MAGNITUDES) != 0;                                                     \
  }                                                                                                \
  static void name(int64_t n, void *to_, const void *const *x_, bool mode) {                       \
    uint16_t kept[BLOCK], *to = to_;                                                               \
    for (int64_t done = 0; done < n; done += BLOCK, to += BLOCK) {                                 \
      int64_t left = n - done < BLOCK ? n - done : BLOCK;                                          \
      const void *x[3] = {(const uint16_t *)x_[0] + done};                                         \
      if (x[0] == to) x[0] = memcpy(kept, to, (size_t)left * sizeof *to);                          \
      if (name##_block(left, to, x[0])) name##_all(left, to, x, mode);                             \
    }                                                                                              \
  }
NEAR_OR_FAR(exponentials, near_exp(a), f32_exp(a))
NEAR_OR_FAR(sigmoids, 1.0F / (1.0F + near_exp(-a)), f32_sigmoid(a))
NEAR_OR_FAR(silus, a / (1.0F + near_exp(-a)), f32_silu(a))
EACH_PAIR(maxima, 2, f32_max(a, b))
EACH_PAIR(minima, 2, f32_min(a, b))

/* By the loops of f32: a block is read, computed and written. */
static void by_blocks(ir_opcode code, int64_t n, void *to, const void *const *x, bool mode) {
  float values[3][BLOCK];
  const void *operands[3] = {values[0], values[1], values[1]};
  for (int64_t done = 0; done < n; done += BLOCK) {
    int64_t left = n - done < BLOCK ? n - done : BLOCK;
    for (int k = 0; k < 2; k++)
      cpu_conversions[IR_F32][IR_BF16](left, values[k], (const uint16_t *)x[k] + done);
    cpu_map_f32[code](left, values[2], operands, mode);
    cpu_conversions[IR_BF16][IR_F32](left, (uint16_t *)to + done, values[2]);
  }
}
#define BY_BLOCKS(name, code)                                                                      \
  static void name(int64_t n, void *to, const void *const *x, bool mode) {                         \
    by_blocks(IR_OP_##code, n, to, x, mode);                                                       \
  }
BY_BLOCKS(sines, SIN)
BY_BLOCKS(cosines, COS)
BY_BLOCKS(powers, POW)
BY_BLOCKS(remainders, MOD)
BY_BLOCKS(gelus, GELU)

/* Expressions of these do not serve: loops of their own take their places. */
#define ENTRY(id)                                                                                  \
  (IR_OP_##id == IR_OP_SIN       ? sines                                                           \
   : IR_OP_##id == IR_OP_COS     ? cosines                                                         \
   : IR_OP_##id == IR_OP_POW     ? powers                                                          \
   : IR_OP_##id == IR_OP_MOD     ? remainders                                                      \
   : IR_OP_##id == IR_OP_MAX     ? maxima                                                          \
   : IR_OP_##id == IR_OP_MIN     ? minima                                                          \
   : IR_OP_##id == IR_OP_EXP     ? exponentials                                                    \
   : IR_OP_##id == IR_OP_SILU    ? silus                                                           \
   : IR_OP_##id == IR_OP_SIGMOID ? sigmoids                                                        \
   : IR_OP_##id == IR_OP_GELU    ? gelus                                                           \
                                 : bf16_##id)
cpu_map_fn *const cpu_map_bf16[IR_OP_COUNT] = {
#define POINTWISE(id, name, result, params, fexpr, iexpr) [IR_OP_##id] = ENTRY(id),
#include "ir/ops.def"
#undef POINTWISE
};

void cpu_lookup(int64_t n, void *to_, const void *const *x, bool mode) {
  uint16_t *restrict to = to_;
  const uint16_t *restrict x0 = x[0];
  const uint16_t *restrict table = x[1];
  enum { AT_ONCE = 16 };
  int64_t i = 0;
  (void)mode;
  for (; i + AT_ONCE <= n; i += AT_ONCE)
    for (int k = 0; k < AT_ONCE; k++) to[i + k] = table[x0[i + k]];
  for (; i < n; i++) to[i] = table[x0[i]];
}
