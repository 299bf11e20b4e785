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

/* On vectors. */
#define ADD_V(acc, v, center) ((acc) + (v))
#define MUL_V(acc, v, center) ((acc) * (v))
#define MAX_V(acc, v, center) KEEP(((v) != (v)) | ((v) > (acc)), v, acc)
#define MIN_V(acc, v, center) KEEP(((v) != (v)) | ((v) < (acc)), v, acc)
#define SQR_V(acc, v, center) ((acc) + ((v) - (center)) * ((v) - (center)))
#define ADD_VI(acc, v, center) ((i64s)((u64s)(acc) + (u64s)(v)))
#define MUL_VI(acc, v, center) ((i64s)((u64s)(acc) * (u64s)(v)))
#define MAX_VI(acc, v, center) KEEP_I((v) > (acc), v, acc)
#define MIN_VI(acc, v, center) KEEP_I((v) < (acc), v, acc)

/* On numbers. */
#define ADD_F(acc, v, center) ((acc) + (v))
#define MUL_F(acc, v, center) ((acc) * (v))
#define MAX_F(acc, v, center) ((((v) != (v)) | ((v) > (acc))) ? (v) : (acc))
#define MIN_F(acc, v, center) ((((v) != (v)) | ((v) < (acc))) ? (v) : (acc))
#define SQR_F(acc, v, center) ((acc) + ((v) - (center)) * ((v) - (center)))
#define ADD_I(acc, v, center) ((int64_t)((uint64_t)(acc) + (uint64_t)(v)))
#define MUL_I(acc, v, center) ((int64_t)((uint64_t)(acc) * (uint64_t)(v)))
#define MAX_I(acc, v, center) ((v) > (acc) ? (v) : (acc))
#define MIN_I(acc, v, center) ((v) < (acc) ? (v) : (acc))

static inline void load_float(const float *x, f64s *to) {
  f32s v;
  memcpy(&v, x, sizeof v);
  *to = __builtin_convertvector(v, f64s);
}
static inline void load_double(const double *x, f64s *to) { memcpy(to, x, sizeof *to); }
static inline void load_int64_t(const int64_t *x, i64s *to) { memcpy(to, x, sizeof *to); }

#define FOLD(name, source, wide, vector, field, begin, steps, step, join)                          \
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
    for (int64_t l = 0; i + l < n; l++) lane[l] = step(lane[l], (wide)x[i + l], center);           \
    for (int l = 0; l < LANES; l++) acc->field = join(acc->field, lane[l], 0);                     \
  }                                                                                                \
  static void name##_column(int64_t n, const void *x_, cpu_element *acc_,                          \
                            const cpu_element *center_) {                                          \
    const source *restrict x = x_;                                                                 \
    wide *restrict acc = &acc_->field;                                                             \
    const wide *restrict center = &center_->field;                                                 \
    (void)center;                                                                                  \
    for (int64_t i = 0; i < n; i++) acc[i] = step(acc[i], (wide)x[i], center[i]);                  \
  }

#define FLOAT_FOLDS(t, source)                                                                     \
  FOLD(sum_##t, source, double, f64s, f, 0.0, ADD_V, ADD_F, ADD_F)                                 \
  FOLD(prod_##t, source, double, f64s, f, 1.0, MUL_V, MUL_F, MUL_F)                                \
  FOLD(max_##t, source, double, f64s, f, -INFINITY, MAX_V, MAX_F, MAX_F)                           \
  FOLD(min_##t, source, double, f64s, f, INFINITY, MIN_V, MIN_F, MIN_F)                            \
  FOLD(squares_##t, source, double, f64s, f, 0.0, SQR_V, SQR_F, ADD_F)
FLOAT_FOLDS(f32, float)
FLOAT_FOLDS(f64, double)
FOLD(sum_i64, int64_t, int64_t, i64s, i, 0, ADD_VI, ADD_I, ADD_I)
FOLD(prod_i64, int64_t, int64_t, i64s, i, 1, MUL_VI, MUL_I, MUL_I)
FOLD(max_i64, int64_t, int64_t, i64s, i, INT64_MIN, MAX_VI, MAX_I, MAX_I)
FOLD(min_i64, int64_t, int64_t, i64s, i, INT64_MAX, MIN_VI, MIN_I, MIN_I)

#define FLOAT_ROWS(t)                                                                              \
  {                                                                                                \
    [CPU_FOLD_SUM] = {sum_##t##_row, sum_##t##_column, {.f = 0}},                                  \
    [CPU_FOLD_PROD] = {prod_##t##_row, prod_##t##_column, {.f = 1}},                               \
    [CPU_FOLD_MAX] = {max_##t##_row, max_##t##_column, {.f = -INFINITY}},                          \
    [CPU_FOLD_MIN] = {min_##t##_row, min_##t##_column, {.f = INFINITY}},                           \
    [CPU_FOLD_SQUARES] = {squares_##t##_row, squares_##t##_column, {.f = 0}},                      \
  }

const cpu_fold cpu_folds_f32[CPU_FOLD_COUNT] = FLOAT_ROWS(f32);
const cpu_fold cpu_folds_f64[CPU_FOLD_COUNT] = FLOAT_ROWS(f64);
const cpu_fold cpu_folds_i64[CPU_FOLD_COUNT] = {
    [CPU_FOLD_SUM] = {sum_i64_row, sum_i64_column, {.i = 0}},
    [CPU_FOLD_PROD] = {prod_i64_row, prod_i64_column, {.i = 1}},
    [CPU_FOLD_MAX] = {max_i64_row, max_i64_column, {.i = INT64_MIN}},
    [CPU_FOLD_MIN] = {min_i64_row, min_i64_column, {.i = INT64_MAX}},
};
