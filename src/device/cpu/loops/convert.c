/* Conversion between dtypes in dense runs, and strided copies. The rules are those of ir/dtype.h.
 *
 * Every dtype is read as one of four carriers (float, double, int32_t, int64_t) and written from any
 * of them, so 9 readers and 9 writers make the 81 loops. */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "device/cpu/loops/loops.h"
#include "device/cpu/loops/move.h"

#include "device/cpu/kernel_fast.h"

/* ---- narrow floats, without branches so that loops over them vectorize ---- */
static inline uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline float read_bf16(uint16_t h) { return float_of((uint32_t)h << 16); }

/* Shifted into place the exponent is 112 too small; a product mends that and normalizes subnormals. */
static inline float read_f16(uint16_t h) {
  uint32_t magnitude = (uint32_t)(h & 0x7fff) << 13, sign = (uint32_t)(h & 0x8000) << 16;
  uint32_t finite = bits_of(float_of(magnitude) * 0x1p112F), special = magnitude | 0x7f800000U;
  return float_of(sign | ((h & 0x7fff) >= 0x7c00 ? special : finite));
}

static inline uint16_t bf16_from_f32(float value) {
  uint32_t x = bits_of(value), rounded = (x + 0x7fff + (x >> 16 & 1)) >> 16;
  return (uint16_t)((x & 0x7fffffff) > 0x7f800000U ? x >> 16 | 0x40 : rounded);
}

/* A subnormal result: adding 0.5, whose last place is f16's smallest number, rounds as wanted. */
static inline uint16_t f16_from_f32(float value) {
  uint32_t x = bits_of(value), sign = x >> 16 & 0x8000, m = x & 0x7fffffff;
  uint32_t small = bits_of(float_of(m) + 0.5F) - 0x3f000000U;
  uint32_t normal = (m + 0xc8000fffU + (m >> 13 & 1)) >> 13;
  uint32_t large = m > 0x7f800000U ? 0x7e00 : 0x7c00;
  uint32_t h = m < 0x38800000U ? small : normal;
  return (uint16_t)(sign | (m >= 0x47800000U ? large : h));
}

/* ---- readers ---- */
static inline double read_F64(double x) { return x; }
static inline float read_F32(float x) { return x; }
static inline float read_F16(uint16_t x) { return read_f16(x); }
static inline float read_BF16(uint16_t x) { return read_bf16(x); }
static inline int64_t read_I64(int64_t x) { return x; }
static inline int32_t read_I32(int32_t x) { return x; }
static inline int32_t read_I8(int8_t x) { return x; }
static inline int32_t read_U8(uint8_t x) { return x; }
static inline int32_t read_BOOL(uint8_t x) { return x != 0; }

/* ---- writers ---- */
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

static inline uint16_t f16_from_i32(int32_t x) { return ir_f16_from_f64(x); }
static inline uint16_t bf16_from_i32(int32_t x) { return ir_bf16_from_f64(x); }

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

#define BY_CARRIER(x, of_double, of_float, of_i64, of_i32)                                         \
  _Generic((x), double : of_double, float : of_float, int64_t : of_i64, int32_t : of_i32)(x)
#define write_F64(x) ((double)(x))
#define write_F32(x) ((float)(x))
#define write_F16(x) BY_CARRIER(x, ir_f16_from_f64, f16_from_f32, f16_from_i64, f16_from_i32)
#define write_BF16(x) BY_CARRIER(x, ir_bf16_from_f64, bf16_from_f32, bf16_from_i64, bf16_from_i32)
#define write_I64(x) BY_CARRIER(x, i64_from_f64, i64_from_f64, i64_from_i64, i64_from_i64)
#define write_I32(x) BY_CARRIER(x, i32_from_f64, i32_from_f64, i32_from_i64, i32_from_i64)
#define write_I8(x) BY_CARRIER(x, i8_from_f64, i8_from_f64, i8_from_i64, i8_from_i64)
#define write_U8(x) BY_CARRIER(x, u8_from_f64, u8_from_f64, u8_from_i64, u8_from_i64)
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

#define DTYPE(id, text, size, kind, rank, ctype, nvfuser) EACH_FROM(CONVERT, id)
#include "ir/dtype.def"
#undef DTYPE

#define ENTRY(TO, FROM) [IR_##FROM] = TO##_from_##FROM,
cpu_convert_fn *const cpu_conversions[IR_DTYPE_COUNT][IR_DTYPE_COUNT] = {
#define DTYPE(id, text, size, kind, rank, ctype, nvfuser) [IR_##id] = {EACH_FROM(ENTRY, id)},
#include "ir/dtype.def"
#undef DTYPE
};

#define ROUND(name, write, read)                                                                   \
  void name(int64_t n, float *x) {                                                                 \
    for (int64_t i = 0; i < n; i++) x[i] = read(write(x[i]));                                      \
  }
ROUND(cpu_round_f16, f16_from_f32, read_f16)
ROUND(cpu_round_bf16, bf16_from_f32, read_bf16)

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
    if (ts == (int64_t)sizeof(T)) {                                                                \
      T *restrict dense = (T *)(void *)to;                                                         \
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

/* Cache lines of the source, some neighbouring ones each, are read whole into the tile; lines of the
 * target are written whole from it. */
#define TALL(T) ((int64_t)(256 / sizeof(T)))
#define WIDE(T) ((int64_t)(64 / sizeof(T)))
#define TRANSPOSE(T)                                                                               \
  static void tile_##T(int64_t rows, int64_t n, char *to, int64_t to_row, int64_t to_step,         \
                       const char *from, int64_t from_step) {                                      \
    T tile[256 / sizeof(T)][64 / sizeof(T)];                                                       \
    for (int64_t j = 0; j < n; j++) {                                                              \
      const T *line = (const T *)(const void *)(from + j * from_step);                             \
      for (int64_t i = 0; i < rows; i++) tile[i][j] = line[i];                                     \
    }                                                                                              \
    for (int64_t i = 0; i < rows; i++)                                                             \
      copy_##T(n, to + i * to_row, to_step, (const char *)tile[i], sizeof(T));                     \
  }                                                                                                \
  static void transpose_##T(int64_t rows, int64_t n, char *to, int64_t to_row, int64_t to_step,    \
                            const char *from, int64_t from_step) {                                 \
    for (int64_t i = 0; i < rows; i += TALL(T))                                                    \
      for (int64_t j = 0; j < n; j += WIDE(T))                                                     \
        tile_##T(rows - i < TALL(T) ? rows - i : TALL(T), n - j < WIDE(T) ? n - j : WIDE(T),       \
                 to + i * to_row + j * to_step, to_row, to_step,                                   \
                 from + i * (int64_t)sizeof(T) + j * from_step, from_step);                        \
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
