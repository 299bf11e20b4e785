#include "device/cpu/kernel_fold.h"

#include <math.h>

#include "device/cpu/kernel_fast.h"

/* Independent partial results, so that neither the compiler nor the processor waits for the last. */
enum { LANES = 16 };

#define ADD_F(acc, v, center) ((acc) + (v))
#define MUL_F(acc, v, center) ((acc) * (v))
#define MAX_F(acc, v, center) ((((v) != (v)) | ((v) > (acc))) ? (v) : (acc))
#define MIN_F(acc, v, center) ((((v) != (v)) | ((v) < (acc))) ? (v) : (acc))
#define SQR_F(acc, v, center) ((acc) + ((v) - (center)) * ((v) - (center)))
#define ADD_I(acc, v, center) ((int64_t)((uint64_t)(acc) + (uint64_t)(v)))
#define MUL_I(acc, v, center) ((int64_t)((uint64_t)(acc) * (uint64_t)(v)))
#define MAX_I(acc, v, center) ((v) > (acc) ? (v) : (acc))
#define MIN_I(acc, v, center) ((v) < (acc) ? (v) : (acc))

#define FOLD(name, source, wide, field, begin, step, join)                                         \
  static void name##_row(int64_t n, const void *x_, cpu_element *acc, double center) {             \
    const source *x = x_;                                                                          \
    wide lane[LANES];                                                                              \
    int64_t i = 0;                                                                                 \
    (void)center;                                                                                  \
    for (int l = 0; l < LANES; l++) lane[l] = begin;                                               \
    for (; i + LANES <= n; i += LANES)                                                             \
      for (int l = 0; l < LANES; l++) lane[l] = step(lane[l], (wide)x[i + l], center);             \
    for (; i < n; i++) lane[0] = step(lane[0], (wide)x[i], center);                                \
    for (int l = 0; l < LANES; l++) acc->field = join(acc->field, lane[l], 0);                     \
  }                                                                                                \
  static void name##_column(int64_t n, const void *x_, cpu_element *restrict acc,                  \
                            const cpu_element *restrict center) {                                  \
    const source *restrict x = x_;                                                                 \
    (void)center;                                                                                  \
    for (int64_t i = 0; i < n; i++)                                                                \
      acc[i].field = step(acc[i].field, (wide)x[i], center[i].field);                              \
  }

#define FLOAT_FOLDS(t, source)                                                                     \
  FOLD(sum_##t, source, double, f, 0.0, ADD_F, ADD_F)                                              \
  FOLD(prod_##t, source, double, f, 1.0, MUL_F, MUL_F)                                             \
  FOLD(max_##t, source, double, f, -INFINITY, MAX_F, MAX_F)                                        \
  FOLD(min_##t, source, double, f, INFINITY, MIN_F, MIN_F)                                         \
  FOLD(squares_##t, source, double, f, 0.0, SQR_F, ADD_F)
FLOAT_FOLDS(f32, float)
FLOAT_FOLDS(f64, double)
FOLD(sum_i64, int64_t, int64_t, i, 0, ADD_I, ADD_I)
FOLD(prod_i64, int64_t, int64_t, i, 1, MUL_I, MUL_I)
FOLD(max_i64, int64_t, int64_t, i, INT64_MIN, MAX_I, MAX_I)
FOLD(min_i64, int64_t, int64_t, i, INT64_MAX, MIN_I, MIN_I)

#define FLOAT_ROWS(t)                                                                              \
  {                                                                                                \
    [CPU_FOLD_SUM] = {sum_##t##_row, sum_##t##_column, {.f = 0}},                                  \
    [CPU_FOLD_PROD] = {prod_##t##_row, prod_##t##_column, {.f = 1}},                               \
    [CPU_FOLD_MAX] = {max_##t##_row, max_##t##_column, {.f = -INFINITY}},                          \
    [CPU_FOLD_MIN] = {min_##t##_row, min_##t##_column, {.f = INFINITY}},                           \
    [CPU_FOLD_SQUARES] = {squares_##t##_row, squares_##t##_column, {.f = 0}},                      \
  }

static const cpu_fold folds_f32[CPU_FOLD_COUNT] = FLOAT_ROWS(f32);
static const cpu_fold folds_f64[CPU_FOLD_COUNT] = FLOAT_ROWS(f64);
static const cpu_fold folds_i64[CPU_FOLD_COUNT] = {
    [CPU_FOLD_SUM] = {sum_i64_row, sum_i64_column, {.i = 0}},
    [CPU_FOLD_PROD] = {prod_i64_row, prod_i64_column, {.i = 1}},
    [CPU_FOLD_MAX] = {max_i64_row, max_i64_column, {.i = INT64_MIN}},
    [CPU_FOLD_MIN] = {min_i64_row, min_i64_column, {.i = INT64_MAX}},
};

const cpu_fold *cpu_fold_of(cpu_fold_kind kind, ir_dtype source_dtype) {
  const cpu_fold *folds = source_dtype == IR_F32   ? folds_f32
                          : source_dtype == IR_F64 ? folds_f64
                                                   : folds_i64;
  check(folds[kind].row);
  return &folds[kind];
}
