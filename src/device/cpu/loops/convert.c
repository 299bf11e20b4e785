/* Conversion between dtypes in dense runs, and strided copies. The rules are those of ir/dtype.h.
 *
 * Every dtype is read as one of four carriers (float, double, int32_t, int64_t) and written from any
 * of them, so 9 readers and 9 writers make the 81 loops. */
#include <math.h>
#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "base/status.h"
#include "device/cpu/loops/loops.h"
#include "device/cpu/loops/move.h"

#include "device/cpu/kernel_fast.h"
/* After it: only functions of equal options are inlined. */
#include "ir/narrow.h"

/* ---- readers ---- */
static inline double read_F64(double x) { return x; }
static inline float read_F32(float x) { return x; }
static inline float read_F16(uint16_t x) { return ir_f16_as_f32(x); }
static inline float read_BF16(uint16_t x) { return ir_bf16_as_f32(x); }
static inline int64_t read_I64(int64_t x) { return x; }
static inline int32_t read_I32(int32_t x) { return x; }
/* Exact in every float. */
static inline int16_t read_I8(int8_t x) { return x; }
static inline int16_t read_U8(uint8_t x) { return x; }
static inline int16_t read_BOOL(uint8_t x) { return x != 0; }

/* ---- writers ---- */
/* As f32 rounded to odd: toward zero, with the last bit set where something was lost. Rounding that to a dtype with
 * fewer bits by two or more is rounding once. */
static inline float f32_to_odd(double x) {
  float f = (float)x;
  double back = (double)f;
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  bits -= fabs(back) > fabs(x);
  bits |= back != x;
  memcpy(&f, &bits, sizeof f);
  return f;
}
static inline uint16_t f16_from_f64(double x) { return ir_f32_as_f16(f32_to_odd(x)); }
static inline uint16_t bf16_from_f64(double x) { return ir_f32_as_bf16(f32_to_odd(x)); }

static inline uint16_t f16_from_i64(int64_t x) {
  uint16_t h;
  ir_element_set_i64(IR_F16, &h, x);
  return h;
}

static inline uint16_t bf16_from_i64(int64_t x) {
  uint16_t h;
  ir_element_set_i64(IR_BF16, &h, x);
  return h;
}

static inline uint16_t f16_from_i32(int32_t x) { return f16_from_f64(x); }
static inline uint16_t bf16_from_i32(int32_t x) { return bf16_from_f64(x); }

/* Cuts toward zero; out of range gives the nearest end, NaN 0. */
static inline int64_t saturate(double x, int64_t lowest, int64_t highest, double limit) {
  if (isnan(x)) return 0;
  if (x >= limit) return highest;
  return x <= -limit ? lowest : (int64_t)x;
}

static inline int64_t i64_from_f64(double x) { return saturate(x, INT64_MIN, INT64_MAX, 0x1p63); }
static inline int32_t i32_from_f64(double x) {
  return (int32_t)saturate(x, INT32_MIN, INT32_MAX, 0x1p31);
}
static inline int8_t i8_from_f64(double x) {
  return (int8_t)saturate(x, INT8_MIN, INT8_MAX, 0x1p7);
}
static inline uint8_t u8_from_f64(double x) {
  return (uint8_t)(x <= 0 ? 0 : saturate(x, 0, UINT8_MAX, 0x1p8));
}
static inline int64_t i64_from_i64(int64_t x) { return x; }
static inline int32_t i32_from_i64(int64_t x) { return (int32_t)(uint32_t)(uint64_t)x; }
static inline int8_t i8_from_i64(int64_t x) { return (int8_t)(uint8_t)(uint64_t)x; }
static inline uint8_t u8_from_i64(int64_t x) { return (uint8_t)(uint64_t)x; }

#define BY_CARRIER(x, of_double, of_float, of_i64, of_i32, of_i16)                                 \
  _Generic((x), double                                                                             \
           : of_double, float                                                                      \
           : of_float, int64_t                                                                     \
           : of_i64, int32_t                                                                       \
           : of_i32, int16_t                                                                       \
           : of_i16)(x)
#define write_F64(x) ((double)(x))
#define write_F32(x) ((float)(x))
#define write_F16(x)                                                                               \
  BY_CARRIER(x, f16_from_f64, ir_f32_as_f16, f16_from_i64, f16_from_i32, ir_f32_as_f16)
#define write_BF16(x)                                                                              \
  BY_CARRIER(x, bf16_from_f64, ir_f32_as_bf16, bf16_from_i64, bf16_from_i32, ir_f32_as_bf16)
#define write_I64(x)                                                                               \
  BY_CARRIER(x, i64_from_f64, i64_from_f64, i64_from_i64, i64_from_i64, i64_from_i64)
#define write_I32(x)                                                                               \
  BY_CARRIER(x, i32_from_f64, i32_from_f64, i32_from_i64, i32_from_i64, i32_from_i64)
#define write_I8(x) BY_CARRIER(x, i8_from_f64, i8_from_f64, i8_from_i64, i8_from_i64, i8_from_i64)
#define write_U8(x) BY_CARRIER(x, u8_from_f64, u8_from_f64, u8_from_i64, u8_from_i64, u8_from_i64)
#define write_BOOL(x) ((uint8_t)((x) != 0))

/* ---- the loops ---- */
#define CTYPE_F64 double
#define CTYPE_F32 float
#define CTYPE_F16 uint16_t
#define CTYPE_BF16 uint16_t
#define CTYPE_I64 int64_t
#define CTYPE_I32 int32_t
#define CTYPE_I8 int8_t
#define CTYPE_U8 uint8_t
#define CTYPE_BOOL uint8_t

#define CONVERT(TO, FROM)                                                                          \
  static void TO##_from_##FROM(int64_t n, void *to_, const void *from_) {                          \
    CTYPE_##TO *restrict to = to_;                                                                 \
    const CTYPE_##FROM *restrict from = from_;                                                     \
    for (int64_t i = 0; i < n; i++) to[i] = write_##TO(read_##FROM(from[i]));                      \
  }
#define EACH_FROM(M, TO)                                                                           \
  M(TO, F64) M(TO, F32) M(TO, F16) M(TO, BF16) M(TO, I64) M(TO, I32) M(TO, I8) M(TO, U8) M(TO, BOOL)

#define DTYPE(id, ...) EACH_FROM(CONVERT, id)
#include "ir/dtype.def"
#undef DTYPE

/* gcc packs halves of vectors one by one. */
#if defined(__AVX512BW__)
static inline __m512i bf16_in_upper_half(__m512 x) {
  __m512i bits = _mm512_castps_si512(x);
  __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
}

static void narrow(int64_t n, void *to_, const void *from_) {
  uint16_t *to = to_;
  const float *from = from_;
  uint16_t odd[32];
  for (int k = 0; k < 32; k++) odd[k] = (uint16_t)(2 * k + 1);
  __m512i upper = _mm512_loadu_si512(odd); /* halves of two vectors */
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    __m512i low = bf16_in_upper_half(_mm512_loadu_ps(from + i));
    __m512i high = bf16_in_upper_half(_mm512_loadu_ps(from + i + 16));
    _mm512_storeu_si512(to + i, _mm512_permutex2var_epi16(low, upper, high));
  }
  for (; i < n; i++) to[i] = ir_f32_as_bf16(from[i]);
}
#else
#define narrow BF16_from_F32
#endif

#define ENTRY(TO, FROM)                                                                            \
  [IR_##FROM] = IR_##TO == IR_BF16 && IR_##FROM == IR_F32 ? narrow : TO##_from_##FROM,
cpu_convert_fn *const cpu_conversions[IR_DTYPE_COUNT][IR_DTYPE_COUNT] = {
#define DTYPE(id, ...) [IR_##id] = {EACH_FROM(ENTRY, id)},
#include "ir/dtype.def"
#undef DTYPE
};

#define ROUND(name, rounded)                                                                       \
  void name(int64_t n, float *x) {                                                                 \
    for (int64_t i = 0; i < n; i++) x[i] = rounded(x[i]);                                          \
  }
ROUND(cpu_round_f16, ir_f32_round_f16)
ROUND(cpu_round_bf16, ir_f32_round_bf16)

/* ---- strided copies ---- */
/* Elements move as bits, whatever their type. */
typedef uint8_t __attribute__((may_alias)) bits8;
typedef uint16_t __attribute__((may_alias)) bits16;
typedef uint32_t __attribute__((may_alias)) bits32;
typedef uint64_t __attribute__((may_alias)) bits64;

#define EACH_SIZE(M)                                                                               \
  M(bits8)                                                                                         \
  M(bits16)                                                                                        \
  M(bits32)                                                                                        \
  M(bits64)

#define STRIDED(T)                                                                                 \
  static void copy_##T(int64_t n, char *to, int64_t ts, const char *from, int64_t fs) {            \
    T *restrict dense = (T *)(void *)to;                                                           \
    if (ts == (int64_t)sizeof(T) && fs == 2 * ts) { /* of pairs: vectorizes */                     \
      const T *pairs = (const T *)(const void *)from;                                              \
      for (int64_t i = 0; i < n; i++) dense[i] = pairs[2 * i];                                     \
    } else if (ts == (int64_t)sizeof(T)) {                                                         \
      for (int64_t i = 0; i < n; i++) dense[i] = *(const T *)(const void *)(from + i * fs);        \
    } else {                                                                                       \
      for (int64_t i = 0; i < n; i++)                                                              \
        *(T *)(void *)(to + i * ts) = *(const T *)(const void *)(from + i * fs);                   \
    }                                                                                              \
  }                                                                                                \
  static void fill_##T(int64_t n, char *to, int64_t ts, const void *value_) {                      \
    T value;                                                                                       \
    memcpy(&value, value_, sizeof value);                                                          \
    if (ts == (int64_t)sizeof(T)) {                                                                \
      T *restrict dense = (T *)(void *)to;                                                         \
      for (int64_t i = 0; i < n; i++) dense[i] = value;                                            \
    } else {                                                                                       \
      for (int64_t i = 0; i < n; i++) *(T *)(void *)(to + i * ts) = value;                         \
    }                                                                                              \
  }
EACH_SIZE(STRIDED)

/* Blocks that are turned in vectors of 16 bytes: at(i) is row i of the source, which is column i of the
 * target. Pairs of rows are interleaved as often as it takes. */
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define HAS_SHUFFLES
#endif
#endif

#ifdef HAS_SHUFFLES
typedef uint16_t u16x8 __attribute__((vector_size(16)));
typedef uint32_t u32x4 __attribute__((vector_size(16)));
typedef uint64_t u64x2 __attribute__((vector_size(16)));
#define LOW_bits16(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH_bits16(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define LOW_bits32(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH_bits32(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define LOW_bits64(a, b) __builtin_shufflevector(a, b, 0, 2)
#define HIGH_bits64(a, b) __builtin_shufflevector(a, b, 1, 3)
#define TURN(T, vector, n)                                                                         \
  static inline void turn_##T(char *to, int64_t to_row, const char *from, int64_t from_step) {     \
    vector x[n], y[n];                                                                             \
    for (int k = 0; k < n; k++) memcpy(&x[k], from + k * from_step, 16);                           \
    for (int width = 1; width < n; width *= 2) {                                                   \
      for (int k = 0; k < n / 2; k++) {                                                            \
        y[2 * k] = LOW_##T(x[k], x[k + n / 2]);                                                    \
        y[2 * k + 1] = HIGH_##T(x[k], x[k + n / 2]);                                               \
      }                                                                                            \
      for (int k = 0; k < n; k++) x[k] = y[k];                                                     \
    }                                                                                              \
    for (int k = 0; k < n; k++) memcpy(to + k * to_row, &x[k], 16);                                \
  }
TURN(bits16, u16x8, 8)
TURN(bits32, u32x4, 4)
TURN(bits64, u64x2, 2)
#define TURNED_bits8 0
#define TURNED_bits16 8
#define TURNED_bits32 4
#define TURNED_bits64 2
#else
#define TURNED_bits8 0
#define TURNED_bits16 0
#define TURNED_bits32 0
#define TURNED_bits64 0
#define turn_bits16(to, to_row, from, from_step) (void)0
#define turn_bits32(to, to_row, from, from_step) (void)0
#define turn_bits64(to, to_row, from, from_step) (void)0
#endif
#define turn_bits8(to, to_row, from, from_step) (void)0

/* Element by element: rows [i, rows), columns [j, n). Source lines are read along. */
#define TRANSPOSE(T)                                                                               \
  static void turn_rest_##T(int64_t i0, int64_t rows, int64_t j0, int64_t n, char *to,             \
                            int64_t to_row, int64_t to_step, const char *from,                     \
                            int64_t from_step) {                                                   \
    for (int64_t j = j0; j < n; j++) {                                                             \
      const T *line = (const T *)(const void *)(from + j * from_step);                             \
      for (int64_t i = i0; i < rows; i++) *(T *)(void *)(to + i * to_row + j * to_step) = line[i]; \
    }                                                                                              \
  }                                                                                                \
  static void transpose_##T(int64_t rows, int64_t n, char *to, int64_t to_row, int64_t to_step,    \
                            const char *from, int64_t from_step) {                                 \
    int64_t size = sizeof(T), block = to_step == size ? TURNED_##T : 0;                            \
    int64_t whole = block ? rows / block * block : 0, columns = block ? n / block * block : 0;     \
    for (int64_t j = 0; j < columns; j += block ? block : 1)                                       \
      for (int64_t i = 0; i < whole; i += block ? block : 1)                                       \
        turn_##T(to + i * to_row + j * size, to_row, from + i * size + j * from_step, from_step);  \
    turn_rest_##T(whole, rows, 0, columns, to, to_row, to_step, from, from_step);                  \
    turn_rest_##T(0, rows, columns, n, to, to_row, to_step, from, from_step);                      \
  }
EACH_SIZE(TRANSPOSE)

void cpu_move_transpose(size_t size_bytes, int64_t rows, int64_t n, char *to, int64_t to_row,
                        int64_t to_step, const char *from, int64_t from_step) {
  switch (size_bytes) {
  case 1: transpose_bits8(rows, n, to, to_row, to_step, from, from_step); return;
  case 2: transpose_bits16(rows, n, to, to_row, to_step, from, from_step); return;
  case 4: transpose_bits32(rows, n, to, to_row, to_step, from, from_step); return;
  case 8: transpose_bits64(rows, n, to, to_row, to_step, from, from_step); return;
  }
  impossible("an element size");
}

/* Past the caches, where they would only push out what is needed again. */
#if defined(__AVX512F__)
enum { STREAM = 64 };
static inline void stream(char *to, const char *from) {
  _mm512_stream_si512((void *)to, _mm512_loadu_si512(from));
}
#elif defined(__AVX__)
enum { STREAM = 32 };
static inline void stream(char *to, const char *from) {
  _mm256_stream_si256((__m256i *)(void *)to,
                      _mm256_loadu_si256((const __m256i *)(const void *)from));
}
#elif defined(__SSE2__)
enum { STREAM = 16 };
static inline void stream(char *to, const char *from) {
  _mm_stream_si128((__m128i *)(void *)to, _mm_loadu_si128((const __m128i *)(const void *)from));
}
#endif

#if defined(__SSE2__)
void cpu_move_stream(int64_t bytes, char *to, const char *from) {
  int64_t head = (int64_t)(-(uintptr_t)to & 63), i;
  if (head > bytes) head = bytes;
  memcpy(to, from, (size_t)head);
  for (i = head; i + 64 <= bytes; i += 64)
    for (int k = 0; k < 64; k += STREAM) stream(to + i + k, from + i + k);
  memcpy(to + i, from + i, (size_t)(bytes - i));
}
void cpu_move_fence(void) { _mm_sfence(); }
#else
void cpu_move_stream(int64_t bytes, char *to, const char *from) { memcpy(to, from, (size_t)bytes); }
void cpu_move_fence(void) {}
#endif

void cpu_move_fill(size_t size_bytes, int64_t n, char *to, int64_t step, const void *value) {
  switch (size_bytes) {
  case 1: fill_bits8(n, to, step, value); return;
  case 2: fill_bits16(n, to, step, value); return;
  case 4: fill_bits32(n, to, step, value); return;
  case 8: fill_bits64(n, to, step, value); return;
  }
  impossible("an element size");
}

void cpu_move_copy(size_t size_bytes, int64_t n, char *to, int64_t to_step, const char *from,
                   int64_t from_step) {
  if (from_step == (int64_t)size_bytes && to_step == from_step) {
    memcpy(to, from, (size_t)n * size_bytes);
    return;
  }
  if (from_step == 0) {
    cpu_move_fill(size_bytes, n, to, to_step, from);
    return;
  }
  switch (size_bytes) {
  case 1: copy_bits8(n, to, to_step, from, from_step); return;
  case 2: copy_bits16(n, to, to_step, from, from_step); return;
  case 4: copy_bits32(n, to, to_step, from, from_step); return;
  case 8: copy_bits64(n, to, to_step, from, from_step); return;
  }
  impossible("an element size");
}
