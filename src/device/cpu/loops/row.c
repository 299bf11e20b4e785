/* Rows of softmax and norms. */
#include <math.h>
#include <string.h>

#include "device/cpu/loops/move.h"

#include "device/cpu/kernel_fast.h"
/* After it: only functions of equal options are inlined. */
#include "device/cpu/loops/math_f32.h"
#include "device/cpu/loops/pairs.h"

/* Maxima and sums are taken in LANES lanes, so that they are the same at every level. */
enum { LANES = 32 };

/* The largest of `most` and scale * x; NaN wins. In f32, where folds take f64. */
static float most_f32(int64_t n, const float *x, float scale, float most) {
  float lanes[LANES];
  int32_t nan[LANES] = {0}, any = 0, used = n < LANES ? 0 : LANES;
  int64_t i = 0;
  for (int j = 0; j < used; j++) lanes[j] = most;
  for (; i + LANES <= n; i += LANES)
    for (int j = 0; j < LANES; j++) {
      float v = x[i + j] * scale;
      nan[j] |= v != v;
      lanes[j] = v > lanes[j] ? v : lanes[j];
    }
  for (; i < n; i++) {
    float v = x[i] * scale;
    any |= v != v;
    most = v > most ? v : most;
  }
  for (int j = 0; j < used; j++) {
    any |= nan[j];
    most = lanes[j] > most ? lanes[j] : most;
  }
  return any ? NAN : most;
}

static double most_f64(int64_t n, const double *x, double scale, double most) {
  for (int64_t i = 0; i < n; i++) {
    double v = x[i] * scale;
    most = ((v != v) | (v > most)) ? v : most;
  }
  return most;
}

/* By halves, so that additions do not wait for one another. */
#define ADD_UP(name, type)                                                                         \
  static inline double name(const type *lanes) {                                                   \
    double sums[LANES];                                                                            \
    for (int j = 0; j < LANES; j++) sums[j] = (double)lanes[j];                                    \
    for (int half = LANES / 2; half > 0; half /= 2)                                                \
      for (int j = 0; j < half; j++) sums[j] += sums[j + half];                                    \
    return sums[0];                                                                                \
  }
ADD_UP(added_f32, float)
ADD_UP(added_f64, double)

/* The maximum is taken out first, so that no exponential overflows. NaN wins. */
#define SOFTMAX(name, type, most_of, folds, exponential)                                           \
  void name(int64_t n, const void *x_, void *y_) {                                                 \
    const type *x = x_;                                                                            \
    type *y = y_;                                                                                  \
    cpu_element sum = folds[CPU_FOLD_SUM].start;                                                   \
    type most = most_of(n, x, 1, -(type)INFINITY);                                                 \
    for (int64_t i = 0; i < n; i++) y[i] = exponential(x[i] - most);                               \
    folds[CPU_FOLD_SUM].row(n, y, &sum, 0);                                                        \
    type share = (type)(1 / sum.f);                                                                \
    for (int64_t i = 0; i < n; i++) y[i] = y[i] * share;                                           \
  }
SOFTMAX(cpu_row_softmax_f32, float, most_f32, cpu_folds_f32, f32_exp_weight)
SOFTMAX(cpu_row_softmax_f64, double, most_f64, cpu_folds_f64, exp)

/* Where all is -inf so far nothing can be taken out: weights are 0, and so is the sum. */
#define WEIGH(name, type, most_of, added, exponential)                                             \
  void name(int64_t n, void *x_, double scale_, void *state_, void *factor) {                      \
    type *x = x_, *state = state_, scale = (type)scale_, lanes[LANES] = {0};                       \
    type most = most_of(n, x, scale, state[0]), out = most == -(type)INFINITY ? 0 : most;          \
    type old = exponential(state[0] - out);                                                        \
    int64_t i = 0;                                                                                 \
    for (; i + LANES <= n; i += LANES)                                                             \
      for (int j = 0; j < LANES; j++) {                                                            \
        type w = exponential(x[i + j] * scale - out);                                              \
        x[i + j] = w;                                                                              \
        lanes[j] += w;                                                                             \
      }                                                                                            \
    for (; i < n; i++) {                                                                           \
      x[i] = exponential(x[i] * scale - out);                                                      \
      lanes[i % LANES] += x[i];                                                                    \
    }                                                                                              \
    state[0] = most;                                                                               \
    state[1] = state[1] * old + (type)added(lanes);                                                \
    *(type *)factor = old;                                                                         \
  }
WEIGH(cpu_row_weigh_f32, float, most_f32, added_f32, f32_exp_weight)
WEIGH(cpu_row_weigh_f64, double, most_f64, added_f64, exp)

/* In f64: whatever mean and scale are. */
#define NORMALIZE(name, type)                                                                      \
  void name(int64_t n, const void *x_, double mean, double scale, const void *weight_,             \
            const void *bias_, void *y_) {                                                         \
    const type *x = x_, *weight = weight_, *bias = bias_;                                          \
    type *y = y_;                                                                                  \
    for (int64_t i = 0; i < n; i++) {                                                              \
      type v = (type)(((double)x[i] - mean) * scale);                                              \
      if (weight) v *= weight[i];                                                                  \
      y[i] = bias ? v + bias[i] : v;                                                               \
    }                                                                                              \
  }
static NORMALIZE(normalize_wide, float) NORMALIZE(cpu_row_normalize_f64, double)

    /* In f32, by the mean and the scale in two parts each: what is lost is far below the last place. */
    typedef struct split {
  float high, low;
} split;
static split split_of(double x) {
  float high = (float)x;
  return (split){high, (float)(x - (double)high)};
}
static inline float normalized(float x, split mean, split scale) {
  float d = (x - mean.high) - mean.low;
  return f32_fma(d, scale.high, d * scale.low);
}

void cpu_row_normalize_f32(int64_t n, const void *x_, double mean, double scale,
                           const void *weight_, const void *bias_, void *y_) {
  const float *x = x_, *weight = weight_, *bias = bias_;
  float *y = y_;
  split m = split_of(mean), s = split_of(scale);
  if (!(scale > 1e-30 && scale < 1e30 && fabs(mean) < 1e37)) {
    normalize_wide(n, x, mean, scale, weight, bias, y);
    return;
  }
  if (weight && bias)
    for (int64_t i = 0; i < n; i++) y[i] = normalized(x[i], m, s) * weight[i] + bias[i];
  else if (weight)
    for (int64_t i = 0; i < n; i++) y[i] = normalized(x[i], m, s) * weight[i];
  else if (bias)
    for (int64_t i = 0; i < n; i++) y[i] = normalized(x[i], m, s) + bias[i];
  else
    for (int64_t i = 0; i < n; i++) y[i] = normalized(x[i], m, s);
}

/* ---- bf16 ---- */
static inline float weighted(float x, split mean, split scale, float weight, float bias,
                             bool has_weight, bool has_bias) {
  float y = normalized(x, mean, scale);
  if (has_weight) y *= weight;
  return has_bias ? y + bias : y;
}

static inline void normalize_pairs(int64_t n, const pair *x, split m, split s, const pair *weight,
                                   const pair *bias, pair *y) {
  bool w = weight != NULL, b = bias != NULL;
  for (int64_t i = 0; i < n; i++) {
    pair ws = w ? weight[i] : 0, bs = b ? bias[i] : 0;
    y[i] = paired(weighted(lower(x[i]), m, s, lower(ws), lower(bs), w, b),
                  weighted(upper(x[i]), m, s, upper(ws), upper(bs), w, b));
  }
}

static void normalize_bf16_wide(int64_t n, const uint16_t *x, double mean, double scale,
                                const uint16_t *weight, const uint16_t *bias, uint16_t *y) {
  for (int64_t i = 0; i < n; i++) {
    float v = (float)(((double)ir_bf16_as_f32(x[i]) - mean) * scale);
    if (weight) v *= ir_bf16_as_f32(weight[i]);
    y[i] = ir_f32_as_bf16(bias ? v + ir_bf16_as_f32(bias[i]) : v);
  }
}

void cpu_row_normalize_bf16(int64_t n, const void *x, double mean, double scale, const void *weight,
                            const void *bias, void *y) {
  split m = split_of(mean), s = split_of(scale), zero = {0, 0};
  int64_t half = n / 2, done = scale > 1e-30 && scale < 1e30 && fabs(mean) < 1e37 ? 2 * half : 0;
  if (done > 0) {
    if (weight && bias) normalize_pairs(half, x, m, s, weight, bias, y);
    else if (weight && mean == 0) normalize_pairs(half, x, zero, s, weight, NULL, y);
    else if (weight) normalize_pairs(half, x, m, s, weight, NULL, y);
    else if (bias) normalize_pairs(half, x, m, s, NULL, bias, y);
    else normalize_pairs(half, x, m, s, NULL, NULL, y);
  }
  normalize_bf16_wide(n - done, (const uint16_t *)x + done, mean, scale,
                      weight ? (const uint16_t *)weight + done : NULL,
                      bias ? (const uint16_t *)bias + done : NULL, (uint16_t *)y + done);
}
