/* Rows of softmax and norms. */
#include <math.h>
#include <string.h>

#include "device/cpu/loops/move.h"

#include "device/cpu/kernel_fast.h"
/* After it: only functions of equal options are inlined. */
#include "device/cpu/loops/math_f32.h"

/* The maximum is taken out first, so that no exponential overflows. NaN wins. */
#define SOFTMAX(name, type, folds, exponential)                                                    \
  void name(int64_t n, const void *x_, void *y_) {                                                 \
    const type *x = x_;                                                                            \
    type *y = y_;                                                                                  \
    cpu_element top = folds[CPU_FOLD_MAX].start, sum = folds[CPU_FOLD_SUM].start;                  \
    folds[CPU_FOLD_MAX].row(n, x, &top, 0);                                                        \
    type most = (type)top.f;                                                                       \
    for (int64_t i = 0; i < n; i++) y[i] = exponential(x[i] - most);                               \
    folds[CPU_FOLD_SUM].row(n, y, &sum, 0);                                                        \
    type share = (type)(1 / sum.f);                                                                \
    for (int64_t i = 0; i < n; i++) y[i] = y[i] * share;                                           \
  }
SOFTMAX(cpu_row_softmax_f32, float, cpu_folds_f32, f32_exp)
SOFTMAX(cpu_row_softmax_f64, double, cpu_folds_f64, exp)

#define NORMALIZE(name, type)                                                                      \
  void name(int64_t n, const void *x_, double mean, double scale, const void *weight_,             \
            const void *bias_, void *y_) {                                                         \
    const type *x = x_, *weight = weight_, *bias = bias_;                                          \
    type *y = y_;                                                                                  \
    if (weight && bias)                                                                            \
      for (int64_t i = 0; i < n; i++)                                                              \
        y[i] = (type)(((double)x[i] - mean) * scale) * weight[i] + bias[i];                        \
    else if (weight)                                                                               \
      for (int64_t i = 0; i < n; i++) y[i] = (type)(((double)x[i] - mean) * scale) * weight[i];    \
    else if (bias)                                                                                 \
      for (int64_t i = 0; i < n; i++) y[i] = (type)(((double)x[i] - mean) * scale) + bias[i];      \
    else                                                                                           \
      for (int64_t i = 0; i < n; i++) y[i] = (type)(((double)x[i] - mean) * scale);                \
  }
NORMALIZE(cpu_row_normalize_f32, float)
NORMALIZE(cpu_row_normalize_f64, double)
