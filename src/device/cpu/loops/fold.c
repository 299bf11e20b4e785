/* Folds: the inner loops of reductions. Floats accumulate in f64, integers in 64 bits.
 *
 * A row is folded into 32 partial results, element i into number i mod 32, which are joined in order: the
 * same at every level, however long its vectors are. */
#include <math.h>
#include <string.h>

#include "device/cpu/loops/loops.h"

#include "device/cpu/kernel_fast.h"

#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64 };
#elif defined(__AVX__)
enum { VECTOR_BYTES = 32 };
#else
enum { VECTOR_BYTES = 16 };
#endif
enum { LANES = 32, WIDTH = VECTOR_BYTES / 8, CHAINS = LANES / WIDTH };

typedef double f64s __attribute__((vector_size(VECTOR_BYTES)));
typedef int64_t i64s __attribute__((vector_size(VECTOR_BYTES)));
typedef uint64_t u64s __attribute__((vector_size(VECTOR_BYTES)));
typedef float f32s __attribute__((vector_size(VECTOR_BYTES / 2)));

#define KEEP(mask, a, b) ((f64s)(((mask) & (i64s)(a)) | (~(mask) & (i64s)(b))))
#define KEEP_I(mask, a, b) (((mask) & (a)) | (~(mask) & (b)))

/* On vectors, what folds.def says of numbers: of floats and of integers. */
#define SUM_F(b, a, center) ((b) + (a))
#define PROD_F(b, a, center) ((b) * (a))
#define MAX_F(b, a, center) KEEP(((a) != (a)) | ((a) > (b)), a, b)
#define MIN_F(b, a, center) KEEP(((a) != (a)) | ((a) < (b)), a, b)
#define SQUARES_F(b, a, center) ((b) + ((a) - (center)) * ((a) - (center)))
#define SUM_I(b, a, center) ((i64s)((u64s)(b) + (u64s)(a)))
#define PROD_I(b, a, center) ((i64s)((u64s)(b) * (u64s)(a)))
#define MAX_I(b, a, center) KEEP_I((a) > (b), a, b)
#define MIN_I(b, a, center) KEEP_I((a) < (b), a, b)

/* On numbers. */
#define NO 0 /* the operation refuses such elements */
#define W(x) (uint64_t)(x)
#define FOLD(id, name, start, fexpr, iexpr, ...)                                                   \
  static inline double id##_f64(double b, double a) {                                              \
    (void)b, (void)a; /* of NO */                                                                  \
    return fexpr;                                                                                  \
  }                                                                                                \
  static inline int64_t id##_i64(int64_t b, int64_t a) { return (int64_t)(iexpr); }
#include "ir/folds.def"
#undef FOLD
static inline double SQUARES_f64(double b, double a, double center) {
  return b + (a - center) * (a - center);
}

#define FLOAT_ZERO 0.0
#define FLOAT_ONE 1.0
#define FLOAT_ALL 0.0
#define FLOAT_LEAST -INFINITY
#define FLOAT_GREATEST INFINITY
#define INT_ZERO 0
#define INT_ONE 1
#define INT_ALL -1
#define INT_LEAST INT64_MIN
#define INT_GREATEST INT64_MAX

static inline void load_float(const float *x, f64s *to) {
  f32s v;
  memcpy(&v, x, sizeof v);
  *to = __builtin_convertvector(v, f64s);
}
static inline void load_double(const double *x, f64s *to) { memcpy(to, x, sizeof *to); }
static inline void load_int64_t(const int64_t *x, i64s *to) { memcpy(to, x, sizeof *to); }

/* in_row, in_column: further arguments of `step`. */
#define LOOPS(name, source, wide, vector, field, begin, steps, step, join, in_row, in_column)      \
  static void name##_row(int64_t n, const void *x_, cpu_element *acc, double center) {             \
    const source *x = x_;                                                                          \
    vector chain[CHAINS];                                                                          \
    wide lane[LANES];                                                                              \
    int64_t i = 0;                                                                                 \
    (void)center;                                                                                  \
    for (int c = 0; c < CHAINS; c++)                                                               \
      for (int l = 0; l < WIDTH; l++) chain[c][l] = begin;                                         \
    for (; i + LANES <= n; i += LANES)                                                             \
      for (int c = 0; c < CHAINS; c++) {                                                           \
        vector v;                                                                                  \
        load_##source(x + i + c * WIDTH, &v);                                                      \
        chain[c] = steps(chain[c], v, center);                                                     \
      }                                                                                            \
    memcpy(lane, chain, sizeof lane);                                                              \
    for (int64_t l = 0; i + l < n; l++) lane[l] = step(lane[l], (wide)x[i + l] in_row);            \
    for (int l = 0; l < LANES; l++) acc->field = join(acc->field, lane[l]);                        \
  }                                                                                                \
  static void name##_column(int64_t n, const void *x_, cpu_element *acc_,                          \
                            const cpu_element *center_) {                                          \
    const source *restrict x = x_;                                                                 \
    wide *restrict acc = &acc_->field;                                                             \
    const wide *restrict center = &center_->field;                                                 \
    (void)center;                                                                                  \
    for (int64_t i = 0; i < n; i++) acc[i] = step(acc[i], (wide)x[i] in_column);                   \
  }

/* By source: f32, f64, i64. */
#define FOLD(id, name, start, ...)                                                                 \
  LOOPS(id##_of_f32, float, double, f64s, f, FLOAT_##start, id##_F, id##_f64, id##_f64, , )        \
  LOOPS(id##_of_f64, double, double, f64s, f, FLOAT_##start, id##_F, id##_f64, id##_f64, , )       \
  LOOPS(id##_of_i64, int64_t, int64_t, i64s, i, INT_##start, id##_I, id##_i64, id##_i64, , )
#include "ir/folds.def"
#undef FOLD
#define AND(x) , x
LOOPS(SQUARES_of_f32, float, double, f64s, f, 0.0, SQUARES_F, SQUARES_f64, SUM_f64, AND(center),
      AND(center[i]))
LOOPS(SQUARES_of_f64, double, double, f64s, f, 0.0, SQUARES_F, SQUARES_f64, SUM_f64, AND(center),
      AND(center[i]))

const cpu_fold cpu_folds_f32[CPU_FOLD_COUNT] = {
#define FOLD(id, name, start, ...)                                                                 \
  [CPU_FOLD_##id] = {id##_of_f32_row, id##_of_f32_column, {.f = FLOAT_##start}},
#include "ir/folds.def"
#undef FOLD
    [CPU_FOLD_SQUARES] = {SQUARES_of_f32_row, SQUARES_of_f32_column, {.f = 0}},
};

const cpu_fold cpu_folds_f64[CPU_FOLD_COUNT] = {
#define FOLD(id, name, start, ...)                                                                 \
  [CPU_FOLD_##id] = {id##_of_f64_row, id##_of_f64_column, {.f = FLOAT_##start}},
#include "ir/folds.def"
#undef FOLD
    [CPU_FOLD_SQUARES] = {SQUARES_of_f64_row, SQUARES_of_f64_column, {.f = 0}},
};

const cpu_fold cpu_folds_i64[CPU_FOLD_COUNT] = {
#define FOLD(id, name, start, ...)                                                                 \
  [CPU_FOLD_##id] = {id##_of_i64_row, id##_of_i64_column, {.i = INT_##start}},
#include "ir/folds.def"
#undef FOLD
};
