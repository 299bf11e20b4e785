/* Pointwise loops of f64, f32 and f16, which is computed in f32. Those of f64 call the functions of the C
 * library, those of f32 the own ones of math_f32.h. */
#include <math.h>
#include <string.h>

#include "device/cpu/loops/loops.h"

#include "device/cpu/kernel_fast.h"
/* After it: only functions of equal options are inlined. */
#include "device/cpu/loops/math_f32.h"
#include "ir/narrow.h"

#define MAP_EXPRESSION(fexpr, iexpr) fexpr

FLOAT_MOD(mod_f64, double, fmod, copysign)

#define K(x) ((double)(x))
#define FMOD(a, b) mod_f64(a, b)
#define MAP_TYPE double
#define MAP_WIDE double
#define MAP_TABLE cpu_map_f64
#define MAP_NAME(id) f64_##id
#define MAP_ENTRY(id) f64_##id
#define MAP_FINISH(x) (x)
#include "device/cpu/loops/map_loops.h"
#undef K
#undef FMOD

/* ---- f32 ---- */
/* These read operands a second time. Where the result is written over one of them, a block of it is kept. */
enum { KEPT = 512 };
typedef void map_block(int64_t n, float *to, const float *x0, const float *x1);

static void over_operand(map_block *block, int64_t n, float *to, const float *x0, const float *x1) {
  float kept[KEPT];
  for (int64_t done = 0; done < n; done += KEPT) {
    int64_t left = n - done < KEPT ? n - done : KEPT;
    memcpy(kept, to + done, (size_t)left * sizeof *kept);
    block(left, to + done, x0 == to ? kept : x0 + done, x1 == to ? kept : x1 + done);
  }
}

#define IN_BLOCKS(name, operands)                                                                  \
  static void name(int64_t n, void *to, const void *const *x, bool mode) {                         \
    const float *x0 = x[0], *x1 = operands > 1 ? x[1] : x[0];                                      \
    (void)mode;                                                                                    \
    if (x0 == to || x1 == to) over_operand(name##_block, n, to, x0, x1);                           \
    else name##_block(n, to, x0, x1);                                                              \
  }
/* Arguments that the vectors cannot do are rare: they are done again. */
#define WITH_SPECIAL(name, operands, expression, is_special, special)                              \
  static void name##_block(int64_t n, float *restrict to, const float *x0, const float *x1) {      \
    uint32_t any = 0;                                                                              \
    (void)x1;                                                                                      \
    for (int64_t i = 0; i < n; i++) {                                                              \
      any |= is_special;                                                                           \
      to[i] = expression;                                                                          \
    }                                                                                              \
    for (int64_t i = 0; any && i < n; i++)                                                         \
      if (is_special) to[i] = special;                                                             \
  }                                                                                                \
  IN_BLOCKS(name, operands)
/* Those that vectors can do too, but more slowly: all are done again. is_far tells by its highest bit. */
#define WITH_FAR(name, near, is_far, all)                                                          \
  static void name##_block(int64_t n, float *restrict to, const float *x, const float *x1) {       \
    uint32_t any = 0;                                                                              \
    (void)x1;                                                                                      \
    for (int64_t i = 0; i < n; i++) {                                                              \
      any |= is_far(x[i]);                                                                         \
      to[i] = near;                                                                                \
    }                                                                                              \
    if (any >> 31)                                                                                 \
      for (int64_t i = 0; i < n; i++) to[i] = all(x[i]);                                           \
  }                                                                                                \
  IN_BLOCKS(name, 1)
WITH_FAR(exponentials, f32_exp_near(x[i]), f32_exp_far, f32_exp)
WITH_FAR(logarithms, f32_log_scaled(x[i], 0), f32_log_far, f32_log)
WITH_FAR(sigmoids, 1.0F / (1.0F + f32_exp_near(-x[i])), f32_exp_far, f32_sigmoid)
WITH_FAR(silus, x[i] / (1.0F + f32_exp_near(-x[i])), f32_exp_far, f32_silu)
WITH_SPECIAL(sines, 1, f32_sin_turned(x0[i], 0), f32_turns_far(x0[i]), sinf(x0[i]))
WITH_SPECIAL(cosines, 1, f32_sin_turned(x0[i], 1), f32_turns_far(x0[i]), cosf(x0[i]))
WITH_SPECIAL(powers, 2, f32_power(x0[i], x1[i]), f32_power_special(x0[i], x1[i]),
             powf(x0[i], x1[i]))
WITH_SPECIAL(remainders, 2, f32_mod_near(x0[i], x1[i]), f32_mod_special(x0[i], x1[i]),
             f32_mod(x0[i], x1[i]))

static void gelus(int64_t n, void *to_, const void *const *x_, bool mode) {
  float *restrict to = to_;
  const float *x = x_[0];
  if (mode)
    for (int64_t i = 0; i < n; i++) to[i] = f32_gelu_tanh(x[i]);
  else
    for (int64_t i = 0; i < n; i++) to[i] = f32_gelu(x[i]);
}

#define BOTH(name, function)                                                                       \
  static void name(int64_t n, void *to_, const void *const *x, bool mode) {                        \
    float *restrict to = to_;                                                                      \
    const float *x0 = x[0], *x1 = x[1];                                                            \
    (void)mode;                                                                                    \
    for (int64_t i = 0; i < n; i++) to[i] = function(x0[i], x1[i]);                                \
  }
BOTH(maxima, f32_max)
BOTH(minima, f32_min)

/* Those of f16: computed, then rounded. */
#define ROUNDED(name)                                                                              \
  static void name##_f16(int64_t n, void *to, const void *const *x, bool mode) {                   \
    float *y = to;                                                                                 \
    name(n, to, x, mode);                                                                          \
    for (int64_t i = 0; i < n; i++) y[i] = ir_f32_round_f16(y[i]);                                 \
  }
ROUNDED(exponentials)
ROUNDED(logarithms)
ROUNDED(sines)
ROUNDED(cosines)
ROUNDED(powers)
ROUNDED(remainders)
ROUNDED(gelus)
ROUNDED(sigmoids)
ROUNDED(silus)
ROUNDED(maxima)
ROUNDED(minima)

/* Expressions of these do not serve: loops of their own take their places. */
#define MAP_ENTRY(id)                                                                              \
  (IR_OP_##id == IR_OP_EXP       ? exponentials                                                    \
   : IR_OP_##id == IR_OP_LOG     ? logarithms                                                      \
   : IR_OP_##id == IR_OP_SIN     ? sines                                                           \
   : IR_OP_##id == IR_OP_COS     ? cosines                                                         \
   : IR_OP_##id == IR_OP_POW     ? powers                                                          \
   : IR_OP_##id == IR_OP_MOD     ? remainders                                                      \
   : IR_OP_##id == IR_OP_MAX     ? maxima                                                          \
   : IR_OP_##id == IR_OP_MIN     ? minima                                                          \
   : IR_OP_##id == IR_OP_SILU    ? silus                                                           \
   : IR_OP_##id == IR_OP_SIGMOID ? sigmoids                                                        \
   : IR_OP_##id == IR_OP_GELU    ? gelus                                                           \
                                 : f32_##id)

#include "device/cpu/loops/as_f32.h"
#define MAP_TYPE float
#define MAP_WIDE float
#define MAP_TABLE cpu_map_f32
#define MAP_NAME(id) f32_##id
#define MAP_FINISH(x) (x)
#include "device/cpu/loops/map_loops.h"

#define MAP_ENTRY(id)                                                                              \
  (IR_OP_##id == IR_OP_EXP       ? exponentials_f16                                                \
   : IR_OP_##id == IR_OP_LOG     ? logarithms_f16                                                  \
   : IR_OP_##id == IR_OP_SIN     ? sines_f16                                                       \
   : IR_OP_##id == IR_OP_COS     ? cosines_f16                                                     \
   : IR_OP_##id == IR_OP_POW     ? powers_f16                                                      \
   : IR_OP_##id == IR_OP_MOD     ? remainders_f16                                                  \
   : IR_OP_##id == IR_OP_MAX     ? maxima_f16                                                      \
   : IR_OP_##id == IR_OP_MIN     ? minima_f16                                                      \
   : IR_OP_##id == IR_OP_SILU    ? silus_f16                                                       \
   : IR_OP_##id == IR_OP_SIGMOID ? sigmoids_f16                                                    \
   : IR_OP_##id == IR_OP_GELU    ? gelus_f16                                                       \
                                 : f16_##id)
#define MAP_TYPE float
#define MAP_WIDE float
#define MAP_TABLE cpu_map_f16
#define MAP_NAME(id) f16_##id
#define MAP_FINISH(x) ir_f32_round_f16((float)(x))
#include "device/cpu/loops/map_loops.h"
