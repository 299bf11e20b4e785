/* Pointwise loops of the floats; f16 and bf16 are computed in f32. Those of f64 call the functions of the C
 * library, those of f32 the own ones of math_f32.h. */
#include <math.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "device/cpu/loops/loops.h"

#include "device/cpu/kernel_fast.h"
/* After it: only functions of equal options are inlined. */
#include "device/cpu/loops/math_f32.h"
#include "ir/narrow.h"

#define MAP_EXPRESSION(fexpr, iexpr) fexpr

/* The sign of the divisor; an exact zero takes it too. */
#define FLOAT_MOD(name, type, remainder, with_sign)                                                \
  static inline type name(type a, type b) {                                                        \
    type r = remainder(a, b);                                                                      \
    if (r == 0) return with_sign((type)0, b);                                                      \
    return (r < 0) != (b < 0) ? r + b : r;                                                         \
  }
FLOAT_MOD(mod_f32, float, fmodf, copysignf)
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
/* Arguments that the vectors cannot do are rare: they are done again. */
#define WITH_SPECIAL(name, expression, is_special, special)                                        \
  static void name(int64_t n, void *to_, const void *const *x, bool mode) {                        \
    float *restrict to = to_;                                                                      \
    const float *x0 = x[0], *x1 = x[1];                                                            \
    uint32_t any = 0;                                                                              \
    (void)x1, (void)mode;                                                                          \
    for (int64_t i = 0; i < n; i++) {                                                              \
      any |= is_special;                                                                           \
      to[i] = expression;                                                                          \
    }                                                                                              \
    for (int64_t i = 0; any && i < n; i++)                                                         \
      if (is_special) to[i] = special;                                                             \
  }
WITH_SPECIAL(sines, f32_sin_turned(x0[i], 0), f32_turns_far(x0[i]), sinf(x0[i]))
WITH_SPECIAL(cosines, f32_sin_turned(x0[i], 1), f32_turns_far(x0[i]), cosf(x0[i]))
WITH_SPECIAL(powers, f32_power(x0[i], x1[i]), f32_power_special(x0[i], x1[i]), powf(x0[i], x1[i]))

static void gelus(int64_t n, void *to_, const void *const *x_, bool mode) {
  float *restrict to = to_;
  const float *x = x_[0];
  if (mode)
    for (int64_t i = 0; i < n; i++) to[i] = f32_gelu_tanh(x[i]);
  else
    for (int64_t i = 0; i < n; i++) to[i] = f32_gelu(x[i]);
}

static inline float f32_max(float a, float b) { return ((a != a) | (a > b)) ? a : b; }
static inline float f32_min(float a, float b) { return ((a != a) | (a < b)) ? a : b; }

#define BOTH(name, function)                                                                       \
  static void name(int64_t n, void *to_, const void *const *x, bool mode) {                        \
    float *restrict to = to_;                                                                      \
    const float *x0 = x[0], *x1 = x[1];                                                            \
    (void)mode;                                                                                    \
    for (int64_t i = 0; i < n; i++) to[i] = function(x0[i], x1[i]);                                \
  }
#define ONE(name, function)                                                                        \
  static void name(int64_t n, void *to_, const void *const *x, bool mode) {                        \
    float *restrict to = to_;                                                                      \
    const float *x0 = x[0];                                                                        \
    (void)mode;                                                                                    \
    for (int64_t i = 0; i < n; i++) to[i] = function(x0[i]);                                       \
  }
ONE(sigmoids, f32_sigmoid)
ONE(silus, f32_silu)

BOTH(maxima, f32_max)
BOTH(minima, f32_min)

/* Those of f16: computed, then rounded. */
#define ROUNDED(name)                                                                              \
  static void name##_f16(int64_t n, void *to, const void *const *x, bool mode) {                   \
    float *y = to;                                                                                 \
    name(n, to, x, mode);                                                                          \
    for (int64_t i = 0; i < n; i++) y[i] = ir_f32_round_f16(y[i]);                                 \
  }
/* Those of bf16: a block is read, computed and written. */
enum { NARROW_BLOCK = 256 };
#define NARROW(name)                                                                               \
  static void name##_bf16(int64_t n, void *to_, const void *const *x, bool mode) {                 \
    float values[3][NARROW_BLOCK];                                                                 \
    const void *operands[3] = {values[0], values[1], values[1]};                                   \
    for (int64_t done = 0; done < n; done += NARROW_BLOCK) {                                       \
      int64_t left = n - done < NARROW_BLOCK ? n - done : NARROW_BLOCK;                            \
      uint16_t *restrict to = (uint16_t *)to_ + done;                                              \
      for (int k = 0; k < 2; k++)                                                                  \
        for (int64_t i = 0; i < left; i++)                                                         \
          values[k][i] = ir_bf16_as_f32(((const uint16_t *)x[k])[done + i]);                       \
      name(left, values[2], operands, mode);                                                       \
      for (int64_t i = 0; i < left; i++) to[i] = ir_f32_as_bf16(values[2][i]);                     \
    }                                                                                              \
  }
#define ROUNDED_AND_NARROW(name) ROUNDED(name) NARROW(name)
ROUNDED_AND_NARROW(sines)
ROUNDED_AND_NARROW(cosines)
ROUNDED_AND_NARROW(powers)
ROUNDED_AND_NARROW(gelus)
ROUNDED_AND_NARROW(sigmoids)
ROUNDED_AND_NARROW(silus)
ROUNDED_AND_NARROW(maxima)
ROUNDED_AND_NARROW(minima)

void cpu_lookup(int64_t n, void *to_, const void *const *x, bool mode) {
  uint16_t *restrict to = to_;
  const uint16_t *restrict x0 = x[0];
  const uint32_t *restrict table = x[1];
  int64_t i = 0;
  (void)mode;
#if defined(__AVX512F__) /* gcc does not find the gather */
  for (; i + 16 <= n; i += 16) {
    __m512i at = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(x0 + i)));
    __m512i y = _mm512_i32gather_epi32(at, table, 4);
    _mm256_storeu_si256((__m256i *)(void *)(to + i), _mm512_cvtepi32_epi16(y));
  }
#endif
  for (; i < n; i++) to[i] = (uint16_t)table[x0[i]];
}

/* Expressions of these do not serve: loops of their own take their places. */
#define MAP_ENTRY(id)                                                                              \
  (IR_OP_##id == IR_OP_SIN       ? sines                                                           \
   : IR_OP_##id == IR_OP_COS     ? cosines                                                         \
   : IR_OP_##id == IR_OP_POW     ? powers                                                          \
   : IR_OP_##id == IR_OP_MAX     ? maxima                                                          \
   : IR_OP_##id == IR_OP_MIN     ? minima                                                          \
   : IR_OP_##id == IR_OP_SILU    ? silus                                                           \
   : IR_OP_##id == IR_OP_SIGMOID ? sigmoids                                                        \
   : IR_OP_##id == IR_OP_GELU    ? gelus                                                           \
                                 : f32_##id)

#define exp(x) f32_exp(x)
#define log(x) f32_log(x)
#define tanh(x) f32_tanh(x)
#define erf(x) f32_erf(x)
#define sqrt(x) sqrtf(x)
#define fabs(x) fabsf(x)
#define sin(x) sinf(x)
#define cos(x) cosf(x)
#define pow(x, y) powf(x, y)
#define K(x) ((float)(x))
#define FMOD(a, b) mod_f32(a, b)
#define MAP_TYPE float
#define MAP_WIDE float
#define MAP_TABLE cpu_map_f32
#define MAP_NAME(id) f32_##id
#define MAP_FINISH(x) (x)
#include "device/cpu/loops/map_loops.h"

#define MAP_ENTRY_OF(dtype, id)                                                                    \
  (IR_OP_##id == IR_OP_SIN       ? sines_##dtype                                                   \
   : IR_OP_##id == IR_OP_COS     ? cosines_##dtype                                                 \
   : IR_OP_##id == IR_OP_POW     ? powers_##dtype                                                  \
   : IR_OP_##id == IR_OP_MAX     ? maxima_##dtype                                                  \
   : IR_OP_##id == IR_OP_MIN     ? minima_##dtype                                                  \
   : IR_OP_##id == IR_OP_SILU    ? silus_##dtype                                                   \
   : IR_OP_##id == IR_OP_SIGMOID ? sigmoids_##dtype                                                \
   : IR_OP_##id == IR_OP_GELU    ? gelus_##dtype                                                   \
                                 : dtype##_##id)

#define MAP_ENTRY(id) MAP_ENTRY_OF(bf16, id)
#define MAP_TYPE uint16_t
#define MAP_WIDE float
#define MAP_TABLE cpu_map_bf16
#define MAP_NAME(id) bf16_##id
#define MAP_READ(x) ir_bf16_as_f32(x)
#define MAP_FINISH(x) ir_f32_as_bf16((float)(x))
#include "device/cpu/loops/map_loops.h"

#define MAP_ENTRY(id) MAP_ENTRY_OF(f16, id)
#define MAP_TYPE float
#define MAP_WIDE float
#define MAP_TABLE cpu_map_f16
#define MAP_NAME(id) f16_##id
#define MAP_FINISH(x) ir_f32_round_f16((float)(x))
#include "device/cpu/loops/map_loops.h"
