/* Element reductions of all dtypes, in team order. */
#include <string.h>

#include "ir/narrow.h"
#include "runtime/comm.h"

/* gcc's -O2 leaves loops of unknown length scalar; see device/cpu for the second option. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3", "no-trapping-math")
#endif

/* `out` may be one of the sources exactly, so no iteration depends on another. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

enum { WIDTH = 4 }; /* sources read in one pass */

/* Folds 2 to WIDTH sources in order. Narrow floats come here as f32. */
typedef void fold_fn(size_t n, uint32_t n_sources, const void *const *sources, void *out);

#define FOLD(name, type, expression)                                                               \
  static inline type name##_of(type x, type y) { return (type)(expression); }                      \
  static void name(size_t n, uint32_t n_sources, const void *const *sources, void *out) {          \
    const type *a = sources[0], *b = sources[1], *c = n_sources > 2 ? sources[2] : NULL;           \
    const type *d = n_sources > 3 ? sources[3] : NULL;                                             \
    type *o = out;                                                                                 \
    if (d) {                                                                                       \
      INDEPENDENT for (size_t i = 0; i < n; i++) o[i] =                                            \
          name##_of(name##_of(name##_of(a[i], b[i]), c[i]), d[i]);                                 \
    } else if (c) {                                                                                \
      INDEPENDENT for (size_t i = 0; i < n; i++) o[i] = name##_of(name##_of(a[i], b[i]), c[i]);    \
    } else {                                                                                       \
      INDEPENDENT for (size_t i = 0; i < n; i++) o[i] = name##_of(a[i], b[i]);                     \
    }                                                                                              \
  }

/* If x is NaN it is taken; if y is, the comparison is false, and y is. */
#define FLOAT_FOLDS(id, type)                                                                      \
  FOLD(sum_##id, type, x + y)                                                                      \
  FOLD(prod_##id, type, x *y)                                                                      \
  FOLD(min_##id, type, ((x < y) | (x != x)) ? x : y)                                               \
  FOLD(max_##id, type, ((x > y) | (x != x)) ? x : y)

/* Integers wrap around, so they are computed in an unsigned type that promotion does not make signed. */
#define INT_FOLDS(id, type, wrap)                                                                  \
  FOLD(sum_##id, type, (wrap)x + (wrap)y)                                                          \
  FOLD(prod_##id, type, (wrap)x *(wrap)y)                                                          \
  FOLD(min_##id, type, x < y ? x : y)                                                              \
  FOLD(max_##id, type, x > y ? x : y)                                                              \
  FOLD(and_##id, type, x &y)                                                                       \
  FOLD(or_##id, type, x | y)                                                                       \
  FOLD(xor_##id, type, x ^ y)

FLOAT_FOLDS(f32, float)
FLOAT_FOLDS(f64, double)
INT_FOLDS(i64, int64_t, uint64_t)
INT_FOLDS(i32, int32_t, uint32_t)
INT_FOLDS(i8, int8_t, uint32_t)
INT_FOLDS(u8, uint8_t, uint32_t)
/* Any byte but 0 is true. */
FOLD(and_bool, uint8_t, (x != 0) & (y != 0))
FOLD(or_bool, uint8_t, (x | y) != 0)
FOLD(xor_bool, uint8_t, (x != 0) ^ (y != 0))

#define FLOAT_ROW(id)                                                                              \
  { sum_##id, prod_##id, min_##id, max_##id, NULL, NULL, NULL }
#define INT_ROW(id)                                                                                \
  { sum_##id, prod_##id, min_##id, max_##id, and_##id, or_##id, xor_##id }

static fold_fn *const folds[IR_DTYPE_COUNT][IR_COMBINE_COUNT] = {
    [IR_F64] = FLOAT_ROW(f64),
    [IR_F32] = FLOAT_ROW(f32),
    [IR_F16] = FLOAT_ROW(f32),
    [IR_BF16] = FLOAT_ROW(f32),
    [IR_I64] = INT_ROW(i64),
    [IR_I32] = INT_ROW(i32),
    [IR_I8] = INT_ROW(i8),
    [IR_U8] = INT_ROW(u8),
    [IR_BOOL] = {or_bool, and_bool, and_bool, or_bool, and_bool, or_bool, xor_bool},
};

/* ---- narrow floats ---- */
enum { BLOCK = 1024 };

static void widen(ir_dtype t, size_t n, const uint16_t *from, float *to) {
  if (t == IR_F16)
    for (size_t i = 0; i < n; i++) to[i] = ir_f16_as_f32(from[i]);
  else
    for (size_t i = 0; i < n; i++) to[i] = ir_bf16_as_f32(from[i]);
}

static void narrow(ir_dtype t, size_t n, const float *from, uint16_t *to) {
  if (t == IR_F16)
    for (size_t i = 0; i < n; i++) to[i] = ir_f32_as_f16(from[i]);
  else
    for (size_t i = 0; i < n; i++) to[i] = ir_f32_as_bf16(from[i]);
}

static void reduce_narrow(fold_fn *fold, ir_dtype t, size_t from, size_t n, uint32_t n_sources,
                          const void *const *sources, uint16_t *out) {
  float sum[BLOCK], next[BLOCK];
  for (size_t done = 0; done < n; done += BLOCK) {
    size_t len = n - done < BLOCK ? n - done : BLOCK;
    widen(t, len, (const uint16_t *)sources[0] + from + done, sum);
    for (uint32_t k = 1; k < n_sources; k++) {
      widen(t, len, (const uint16_t *)sources[k] + from + done, next);
      fold(len, 2, (const void *const[]){sum, next}, sum);
    }
    narrow(t, len, sum, out + done);
  }
}

/* The first pass reads WIDTH sources, each other one the result so far and WIDTH - 1 more. */
static void reduce_wide(fold_fn *fold, size_t from_bytes, size_t n, uint32_t n_sources,
                        const void *const *sources, void *out) {
  const void *pass[WIDTH];
  for (uint32_t done = 0; done < n_sources;) {
    uint32_t width = done > 0;
    while (width < WIDTH && done < n_sources)
      pass[width++] = (const char *)sources[done++] + from_bytes;
    fold(n, width, pass, out);
    pass[0] = out;
  }
}

void rt_comm_reduce(ir_combine op, ir_dtype dtype, size_t from, size_t n, uint32_t n_sources,
                    const void *const *sources, void *out) {
  fold_fn *fold = folds[dtype][op];
  size_t size = ir_dtype_size_bytes(dtype);
  check(fold && n_sources > 0);
  if (n_sources == 1) {
    const char *only = (const char *)sources[0] + from * size;
    if (out != only) memcpy(out, only, n * size);
    return;
  }
  if (dtype == IR_F16 || dtype == IR_BF16)
    reduce_narrow(fold, dtype, from, n, n_sources, sources, out);
  else reduce_wide(fold, from * size, n, n_sources, sources, out);
}
