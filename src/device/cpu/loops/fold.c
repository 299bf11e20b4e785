/* Folds: the inner loops of reductions. Floats accumulate in f64, integers in 64 bits.
 *
 * A row is folded into 32 partial results, element i into number i mod 32, which are joined by halves: the
 * same at every level, however long its vectors are. Of bf16, sums are those of pairs of neighbours, which
 * are added in f32 first, and so are sums of squares. */
#include <math.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "device/cpu/loops/loops.h"

#include "device/cpu/kernel_fast.h"
/* After it: only functions of equal options are inlined. */
#include "device/cpu/loops/pairs.h"
#include "ir/narrow.h"

#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64 };
#elif defined(__AVX__)
enum { VECTOR_BYTES = 32 };
#else
enum { VECTOR_BYTES = 16 };
#endif
enum { SHORT = 8, LANES = 32, WIDTH = VECTOR_BYTES / 8, CHAINS = LANES / WIDTH };

/* Long rows come from memory: what comes later is fetched, also beyond the end of this piece of a row. */
enum { LINE = 64, AHEAD = 8192 }; /* bytes */
static inline void fetch_ahead(const void *x, size_t bytes) {
  for (size_t at = 0; at < bytes; at += LINE)
    __builtin_prefetch((const void *)((uintptr_t)x + AHEAD + at));
}

typedef double f64s __attribute__((vector_size(VECTOR_BYTES)));
typedef int64_t i64s __attribute__((vector_size(VECTOR_BYTES)));
typedef uint64_t u64s __attribute__((vector_size(VECTOR_BYTES)));

#define KEEP(mask, a, b) ((f64s)(((mask) & (i64s)(a)) | (~(mask) & (i64s)(b))))
#define KEEP_I(mask, a, b) (((mask) & (a)) | (~(mask) & (b)))

/* On vectors, what folds.def says of numbers: of floats and of integers. */
#define SUM_F(b, a, center) ((b) + (a))
#define PROD_F(b, a, center) ((b) * (a))
#define MAX_F(b, a, center) KEEP(((a) != (a)) | ((a) > (b)), a, b)
#define MIN_F(b, a, center) KEEP(((a) != (a)) | ((a) < (b)), a, b)
#define SQUARES_F(b, a, center) square_added(b, (a) - (center))
#define RAW_SQUARES_F(b, a, center) square_added(b, a)
#define SUM_I(b, a, center) ((i64s)((u64s)(b) + (u64s)(a)))
#define PROD_I(b, a, center) ((i64s)((u64s)(b) * (u64s)(a)))
#define MAX_I(b, a, center) KEEP_I((a) > (b), a, b)
#define MIN_I(b, a, center) KEEP_I((a) < (b), a, b)

/* Rounded once, where the processor has that in one instruction. */
static inline f64s square_added(f64s b, f64s d) {
#if defined(__AVX512F__)
  return (f64s)_mm512_fmadd_pd((__m512d)d, (__m512d)d, (__m512d)b);
#elif defined(__FMA__)
  return (f64s)_mm256_fmadd_pd((__m256d)d, (__m256d)d, (__m256d)b);
#else
  return b + d * d;
#endif
}

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

/* gcc widens vectors half by half. bf16 are summed in the order of f32. */
typedef uint16_t bf16;
#if defined(__AVX512F__)
static inline void load_float(const float *x, f64s *to) {
  *to = (f64s)_mm512_cvtps_pd(_mm256_loadu_ps(x));
}
static inline void load_bf16(const bf16 *x, f64s *to) {
  __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)x));
  *to = (f64s)_mm512_cvtps_pd(_mm256_castsi256_ps(_mm256_slli_epi32(bits, 16)));
}
#elif defined(__AVX2__)
static inline void load_float(const float *x, f64s *to) {
  *to = (f64s)_mm256_cvtps_pd(_mm_loadu_ps(x));
}
static inline void load_bf16(const bf16 *x, f64s *to) {
  __m128i bits = _mm_cvtepu16_epi32(_mm_loadl_epi64((const __m128i *)(const void *)x));
  *to = (f64s)_mm256_cvtps_pd(_mm_castsi128_ps(_mm_slli_epi32(bits, 16)));
}
#else
static inline void load_float(const float *x, f64s *to) {
  for (int l = 0; l < WIDTH; l++) (*to)[l] = (double)x[l];
}
static inline void load_bf16(const bf16 *x, f64s *to) {
  for (int l = 0; l < WIDTH; l++) (*to)[l] = (double)ir_bf16_as_f32(x[l]);
}
#endif
static inline void load_double(const double *x, f64s *to) { memcpy(to, x, sizeof *to); }
static inline void load_int64_t(const int64_t *x, i64s *to) { memcpy(to, x, sizeof *to); }

#define READ_float(x) (double)(x)
#define READ_bf16(x) (double)ir_bf16_as_f32(x)
#define READ_double(x) (x)
#define READ_int64_t(x) (x)

/* A short row needs only as many partial results as it has elements; the others would change nothing.
 * in_row, in_column: further arguments of `step`. */
#define ROW_LOOP(name, source, wide, vector, field, begin, steps, step, join, in_row)              \
  static void name##_short(int64_t n, const source *x, cpu_element *acc, double center) {          \
    wide lane[SHORT];                                                                              \
    int half = 1;                                                                                  \
    (void)center;                                                                                  \
    while (half < n) half *= 2;                                                                    \
    for (int l = 0; l < SHORT; l++) lane[l] = begin;                                               \
    for (int64_t l = 0; l < n; l++) lane[l] = step(lane[l], READ_##source(x[l]) in_row);           \
    for (half /= 2; half > 0; half /= 2)                                                           \
      for (int l = 0; l < half; l++) lane[l] = join(lane[l], lane[l + half]);                      \
    acc->field = join(acc->field, lane[0]);                                                        \
  }                                                                                                \
  static void name##_row(int64_t n, const void *x_, cpu_element *acc, double center) {             \
    const source *x = x_;                                                                          \
    vector chain[CHAINS];                                                                          \
    wide lane[LANES];                                                                              \
    int64_t i = 0;                                                                                 \
    if (n <= SHORT) {                                                                              \
      name##_short(n, x, acc, center);                                                             \
      return;                                                                                      \
    }                                                                                              \
    for (int c = 0; c < CHAINS; c++)                                                               \
      for (int l = 0; l < WIDTH; l++) chain[c][l] = begin;                                         \
    for (; i + LANES <= n; i += LANES) {                                                           \
      fetch_ahead(x + i, LANES * sizeof *x);                                                       \
      for (int c = 0; c < CHAINS; c++) {                                                           \
        vector v;                                                                                  \
        load_##source(x + i + c * WIDTH, &v);                                                      \
        chain[c] = steps(chain[c], v, center);                                                     \
      }                                                                                            \
    }                                                                                              \
    memcpy(lane, chain, sizeof lane);                                                              \
    for (int64_t l = 0; i + l < n; l++) lane[l] = step(lane[l], READ_##source(x[i + l]) in_row);   \
    for (int half = LANES / 2; half > 0; half /= 2)                                                \
      for (int l = 0; l < half; l++) lane[l] = join(lane[l], lane[l + half]);                      \
    acc->field = join(acc->field, lane[0]);                                                        \
  }
#define COLUMN_LOOP(name, source, wide, field, step, in_column)                                    \
  static void name##_column(int64_t n, const void *x_, cpu_element *acc_,                          \
                            const cpu_element *center_) {                                          \
    const source *restrict x = x_;                                                                 \
    wide *restrict acc = &acc_->field;                                                             \
    const wide *restrict center = &center_->field;                                                 \
    (void)center;                                                                                  \
    for (int64_t i = 0; i < n; i++) acc[i] = step(acc[i], READ_##source(x[i]) in_column);          \
  }

#define LOOPS(name, source, wide, vector, field, begin, steps, step)                               \
  ROW_LOOP(name, source, wide, vector, field, begin, steps, step, step, )                          \
  COLUMN_LOOP(name, source, wide, field, step, )

/* By source: f32, bf16, f64, i64. */
#define FOLD(id, name, start, ...)                                                                 \
  LOOPS(id##_of_f32, float, double, f64s, f, FLOAT_##start, id##_F, id##_f64)                      \
  LOOPS(id##_of_bf16, bf16, double, f64s, f, FLOAT_##start, id##_F, id##_f64)                      \
  LOOPS(id##_of_f64, double, double, f64s, f, FLOAT_##start, id##_F, id##_f64)                     \
  LOOPS(id##_of_i64, int64_t, int64_t, i64s, i, INT_##start, id##_I, id##_i64)
#include "ir/folds.def"
#undef FOLD
#define AND(x) , x
#define SQUARES(of, source)                                                                        \
  ROW_LOOP(CENTERED_##of, source, double, f64s, f, 0.0, SQUARES_F, SQUARES_f64, SUM_f64,           \
           AND(center))                                                                            \
  COLUMN_LOOP(CENTERED_##of, source, double, f, SQUARES_f64, AND(center[i]))                       \
  ROW_LOOP(RAW_##of, source, double, f64s, f, 0.0, RAW_SQUARES_F, SQUARES_f64, SUM_f64, AND(0))    \
  static void SQUARES_##of##_row(int64_t n, const void *x, cpu_element *acc, double center) {      \
    (center == 0 ? RAW_##of##_row : CENTERED_##of##_row)(n, x, acc, center);                       \
  }
SQUARES(of_f32, float)
SQUARES(of_bf16, bf16)
SQUARES(of_f64, double)

/* Of 64 elements sums of neighbours, or of their squares, which are exact; the next is for the next
 * partial result. */
#if defined(__AVX512F__)
#define SUM_OF_PAIR(low, high) _mm512_add_ps(low, high)
#define SQUARES_OF_PAIR(low, high) _mm512_fmadd_ps(high, high, _mm512_mul_ps(low, low))
#define ADD_PAIRS(NAME, name)                                                                      \
  static inline void name(const bf16 *x, f64s *chain) {                                            \
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000U);                                     \
    for (int k = 0; k < 2; k++) {                                                                  \
      __m512i word = _mm512_loadu_si512(x + 32 * k);                                               \
      __m512 low = _mm512_castsi512_ps(_mm512_slli_epi32(word, 16));                               \
      __m512 high = _mm512_castsi512_ps(_mm512_and_si512(word, upper));                            \
      __m512 both = NAME##_OF_PAIR(low, high);                                                     \
      chain[2 * k] += (f64s)_mm512_cvtps_pd(_mm512_castps512_ps256(both));                         \
      chain[2 * k + 1] += (f64s)_mm512_cvtps_pd(_mm512_extractf32x8_ps(both, 1));                  \
    }                                                                                              \
  }
#else
#define SUM_OF_PAIR(low, high) ((low) + (high))
#define SQUARES_OF_PAIR(low, high) ((low) * (low) + (high) * (high))
#define ADD_PAIRS(NAME, name)                                                                      \
  static inline void name(const bf16 *x, f64s *chain) {                                            \
    for (int l = 0; l < LANES; l++) {                                                              \
      float low = ir_bf16_as_f32(x[2 * l]), high = ir_bf16_as_f32(x[2 * l + 1]);                   \
      chain[l / WIDTH][l % WIDTH] += (double)NAME##_OF_PAIR(low, high);                            \
    }                                                                                              \
  }
#endif
#define LAST_SUM(x) (x)
#define LAST_SQUARES(x) ((x) * (x))

/* Of lanes from `used` on, which are 0, as few are added as can be. */
static double joined_lanes(double *lane, int64_t used) {
  int half = LANES / 2;
  while (half > 0 && half >= used) half /= 2;
  for (; half > 0; half /= 2)
    for (int l = 0; l < half; l++) lane[l] += lane[l + half];
  return lane[0];
}

#define PAIRS(NAME, name)                                                                          \
  ADD_PAIRS(NAME, add_##name)                                                                      \
  static double name(int64_t n, const bf16 *x) {                                                   \
    f64s chain[CHAINS] = {{0}};                                                                    \
    double lane[LANES];                                                                            \
    int64_t i = 0;                                                                                 \
    for (; i + 2 * LANES <= n; i += 2 * LANES) {                                                   \
      fetch_ahead(x + i, 2 * LANES * sizeof *x);                                                   \
      add_##name(x + i, chain);                                                                    \
    }                                                                                              \
    memcpy(lane, chain, sizeof lane);                                                              \
    for (int l = 0; i < n; l++, i += 2) {                                                          \
      float both = LAST_##NAME(ir_bf16_as_f32(x[i]));                                              \
      if (i + 1 < n) both += LAST_##NAME(ir_bf16_as_f32(x[i + 1]));                                \
      lane[l] += (double)both;                                                                     \
    }                                                                                              \
    return joined_lanes(lane, (n + 1) / 2);                                                        \
  }
PAIRS(SUM, sum_pairs)
PAIRS(SQUARES, square_pairs)

static void sum_bf16_row(int64_t n, const void *x, cpu_element *acc, double center) {
  (void)center;
  acc->f += sum_pairs(n, x);
}

/* In f32 squares may overflow, or lose too much to being subnormal: such rows are done again. */
static void squares_bf16_row(int64_t n, const void *x, cpu_element *acc, double center) {
  double sum = center == 0 ? square_pairs(n, x) : 0;
  if (sum > 0x1p-100 && sum < (double)INFINITY) acc->f += sum;
  else SQUARES_of_bf16_row(n, x, acc, center);
}

/* ---- sums of products ---- */
/* Of 8, 4 or 2 elements. */
#if defined(__AVX512F__)
static inline f64s products_f32(const float *x, const float *y) {
  return (f64s)_mm512_cvtps_pd(_mm256_mul_ps(_mm256_loadu_ps(x), _mm256_loadu_ps(y)));
}
#elif defined(__AVX2__)
static inline f64s products_f32(const float *x, const float *y) {
  return (f64s)_mm256_cvtps_pd(_mm_mul_ps(_mm_loadu_ps(x), _mm_loadu_ps(y)));
}
#else
static inline f64s products_f32(const float *x, const float *y) {
  f64s p;
  for (int l = 0; l < WIDTH; l++) p[l] = (double)(x[l] * y[l]);
  return p;
}
#endif

/* Partial results and their order are those of SUM_of_f32_row. */
static void sum_f32_products(int64_t n, const void *x_, const void *y_, cpu_element *acc) {
  const float *x = x_, *y = y_;
  f64s chain[CHAINS] = {{0}};
  double lane[LANES];
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    fetch_ahead(x + i, LANES * sizeof *x);
    fetch_ahead(y + i, LANES * sizeof *y);
    for (int c = 0; c < CHAINS; c++) chain[c] += products_f32(x + i + c * WIDTH, y + i + c * WIDTH);
  }
  memcpy(lane, chain, sizeof lane);
  for (int64_t l = 0; i + l < n; l++) lane[l] += (double)(x[i + l] * y[i + l]);
  acc->f += joined_lanes(lane, n);
}

static inline float bf16_product(float a, float b) {
  return ir_f32_of_bits(rounded(a * b) & 0xffff0000U);
}

#if defined(__AVX512F__)
static inline __m512 bf16_products(__m512 a, __m512 b) {
  __m512i bits = _mm512_castps_si512(_mm512_mul_ps(a, b));
  __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  bits = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  return _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32((int)0xffff0000U)));
}
static inline void add_product_pairs(const bf16 *x, const bf16 *y, f64s *chain) {
  const __m512i upper = _mm512_set1_epi32((int)0xffff0000U);
  for (int k = 0; k < 2; k++) {
    __m512i a = _mm512_loadu_si512(x + 32 * k), b = _mm512_loadu_si512(y + 32 * k);
    __m512 low = bf16_products(_mm512_castsi512_ps(_mm512_slli_epi32(a, 16)),
                               _mm512_castsi512_ps(_mm512_slli_epi32(b, 16)));
    __m512 high = bf16_products(_mm512_castsi512_ps(_mm512_and_si512(a, upper)),
                                _mm512_castsi512_ps(_mm512_and_si512(b, upper)));
    __m512 both = _mm512_add_ps(low, high);
    chain[2 * k] += (f64s)_mm512_cvtps_pd(_mm512_castps512_ps256(both));
    chain[2 * k + 1] += (f64s)_mm512_cvtps_pd(_mm512_extractf32x8_ps(both, 1));
  }
}
#else
static inline void add_product_pairs(const bf16 *x, const bf16 *y, f64s *chain) {
  for (int l = 0; l < LANES; l++) {
    float low = bf16_product(ir_bf16_as_f32(x[2 * l]), ir_bf16_as_f32(y[2 * l]));
    float high = bf16_product(ir_bf16_as_f32(x[2 * l + 1]), ir_bf16_as_f32(y[2 * l + 1]));
    chain[l / WIDTH][l % WIDTH] += (double)(low + high);
  }
}
#endif

/* In the order of sum_pairs. */
static void sum_bf16_products(int64_t n, const void *x_, const void *y_, cpu_element *acc) {
  const bf16 *x = x_, *y = y_;
  f64s chain[CHAINS] = {{0}};
  double lane[LANES];
  int64_t i = 0;
  for (; i + 2 * LANES <= n; i += 2 * LANES) {
    fetch_ahead(x + i, 2 * LANES * sizeof *x);
    fetch_ahead(y + i, 2 * LANES * sizeof *y);
    add_product_pairs(x + i, y + i, chain);
  }
  memcpy(lane, chain, sizeof lane);
  for (int l = 0; i < n; l++, i += 2) {
    float both = bf16_product(ir_bf16_as_f32(x[i]), ir_bf16_as_f32(y[i]));
    if (i + 1 < n) both += bf16_product(ir_bf16_as_f32(x[i + 1]), ir_bf16_as_f32(y[i + 1]));
    lane[l] += (double)both;
  }
  acc->f += joined_lanes(lane, (n + 1) / 2);
}

const cpu_fold cpu_folds_f32[CPU_FOLD_COUNT] = {
#define FOLD(id, name, start, ...)                                                                 \
  [CPU_FOLD_##id] = {id##_of_f32_row,                                                              \
                     id##_of_f32_column,                                                           \
                     CPU_FOLD_##id == CPU_FOLD_SUM ? sum_f32_products : NULL,                      \
                     {.f = FLOAT_##start}},
#include "ir/folds.def"
#undef FOLD
    [CPU_FOLD_SQUARES] = {SQUARES_of_f32_row, CENTERED_of_f32_column, NULL, {.f = 0}},
};

const cpu_fold cpu_folds_bf16[CPU_FOLD_COUNT] = {
#define FOLD(id, name, start, ...)                                                                 \
  [CPU_FOLD_##id] = {CPU_FOLD_##id == CPU_FOLD_SUM ? sum_bf16_row : id##_of_bf16_row,              \
                     id##_of_bf16_column,                                                          \
                     CPU_FOLD_##id == CPU_FOLD_SUM ? sum_bf16_products : NULL,                     \
                     {.f = FLOAT_##start}},
#include "ir/folds.def"
#undef FOLD
    [CPU_FOLD_SQUARES] = {squares_bf16_row, CENTERED_of_bf16_column, NULL, {.f = 0}},
};

const cpu_fold cpu_folds_f64[CPU_FOLD_COUNT] = {
#define FOLD(id, name, start, ...)                                                                 \
  [CPU_FOLD_##id] = {id##_of_f64_row, id##_of_f64_column, NULL, {.f = FLOAT_##start}},
#include "ir/folds.def"
#undef FOLD
    [CPU_FOLD_SQUARES] = {SQUARES_of_f64_row, CENTERED_of_f64_column, NULL, {.f = 0}},
};

const cpu_fold cpu_folds_i64[CPU_FOLD_COUNT] = {
#define FOLD(id, name, start, ...)                                                                 \
  [CPU_FOLD_##id] = {id##_of_i64_row, id##_of_i64_column, NULL, {.i = INT_##start}},
#include "ir/folds.def"
#undef FOLD
};
