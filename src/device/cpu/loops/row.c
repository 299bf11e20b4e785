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
SOFTMAX(cpu_row_softmax_f32, float, cpu_folds_f32, f32_exp_weight)
SOFTMAX(cpu_row_softmax_f64, double, cpu_folds_f64, exp)

/* Sums are taken in LANES lanes, so that they are the same at every level. Where all is -inf so far nothing
 * can be taken out: weights are 0, and so is the sum. */
enum { LANES = 32 };
#define WEIGH(name, type, folds, exponential)                                                      \
  void name(int64_t n, void *x_, double scale_, void *state_, void *factor) {                      \
    type *x = x_, *state = state_, scale = (type)scale_, lanes[LANES] = {0};                       \
    cpu_element top = {.f = (double)state[0]}, sum = folds[CPU_FOLD_SUM].start;                    \
    for (int64_t i = 0; i < n; i++) x[i] = x[i] * scale;                                           \
    folds[CPU_FOLD_MAX].row(n, x, &top, 0);                                                        \
    type most = (type)top.f, out = most == -(type)INFINITY ? 0 : most;                             \
    type old = exponential(state[0] - out);                                                        \
    int64_t i = 0;                                                                                 \
    for (; i + LANES <= n; i += LANES)                                                             \
      for (int j = 0; j < LANES; j++) {                                                            \
        type w = exponential(x[i + j] - out);                                                      \
        x[i + j] = w;                                                                              \
        lanes[j] += w;                                                                             \
      }                                                                                            \
    for (; i < n; i++) {                                                                           \
      x[i] = exponential(x[i] - out);                                                              \
      lanes[i % LANES] += x[i];                                                                    \
    }                                                                                              \
    folds[CPU_FOLD_SUM].row(LANES, lanes, &sum, 0);                                                \
    state[0] = most;                                                                               \
    state[1] = state[1] * old + (type)sum.f;                                                       \
    *(type *)factor = old;                                                                         \
  }
WEIGH(cpu_row_weigh_f32, float, cpu_folds_f32, f32_exp)
WEIGH(cpu_row_weigh_f64, double, cpu_folds_f64, exp)

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
