/* Few rows by a matrix that is read once, where it lies: what decoding a token does with its weights. Included
 * by tile.h, which defines vectors, T and MADD. FEW_ROWS, at most 8: rows whose sums stay in registers.
 *
 * Sums are those of tile.h: in the order of k, CPU_GEMM_DEPTH at a time, so the bits are the same.
 *
 * Elements of b are those of T, or with `bf16` (T: float) the upper halves of them; in a unit of pairs they are
 * bf16, and words of two along k are multiplied as they are. */

/* ---- b is contiguous along k: LANES columns ---- */
/* LANES vectors of LANES elements become their transposition. Each step swaps a bit of a vector's number with a
 * bit of an element's: those within 16 bytes, then those of 16 bytes. */
#define TURN_STEP(d, low, high)                                                                    \
  UNROLL for (int i = 0; i < LANES / 2; i++) {                                                     \
    FN(vector) *at = x + 2 * i - i % (d), first = at[0], second = at[d];                           \
    at[0] = __builtin_shufflevector(first, second, JOIN(low, ZIP));                                \
    at[d] = __builtin_shufflevector(first, second, JOIN(high, ZIP));                               \
  }
TARGET static inline __attribute__((always_inline)) void FN(turn)(FN(vector) * x) {
  enum { NEAR = 16 / sizeof(T) };
  UNROLL for (int d = NEAR / 2; d > 0; d /= 2) TURN_STEP(d, ZIP_LOW_, ZIP_HIGH_);
  UNROLL for (int d = NEAR; d < LANES; d *= 2) TURN_STEP(d, EVEN_, ODD_);
}
#undef TURN_STEP

/* LANES columns of LANES words, contiguous along k, become LANES rows. */
TARGET static inline __attribute__((always_inline)) void
FN(transpose)(const E *from, int64_t column, T *to, int64_t row) {
  FN(vector) x[LANES_BYTES / sizeof(T)];
  UNROLL for (int i = 0; i < LANES; i++) x[i] =
      *(const FN(vector) *)(const void *)(from + i * column);
  FN(turn)(x);
  UNROLL for (int i = 0; i < LANES; i++) * (FN(vector) *)(void *)(to + i * row) = x[i];
}

/* FIRST_HALVES, SECOND_HALVES: of words of two bf16, the elements. few_word: word k of a column. few_line: LANES
 * columns of a row at p, in pairs with the next row unless that is NULL. */
#if defined(OF_PAIRS)
#define FIRST_HALVES(x) (x)
#define SECOND_HALVES(x) (x)
typedef E FN(halves) __attribute__((vector_size(LANES_BYTES / 2), aligned(2), may_alias));
#define HALVES(p) __builtin_convertvector(*(const FN(halves) *)(const void *)(p), FN(words))
TARGET static inline FN(vector) FN(few_line)(const char *p, const char *next, bool bf16) {
  (void)bf16;
  return (FN(vector))(next ? HALVES(p) | HALVES(next) << 16 : HALVES(p));
}
static inline T FN(few_word)(const char *column, int64_t k, int64_t depth, bool bf16) {
  const E *p = (const E *)(const void *)column + k;
  uint32_t pair = FN(pair)(*p, k + 1 < depth ? p[1] : 0);
  T x;
  (void)bf16;
  memcpy(&x, &pair, sizeof x);
  return x;
}
#elif defined(OF_BF16)
typedef uint32_t FN(words) __attribute__((vector_size(LANES_BYTES)));
typedef uint16_t FN(halves) __attribute__((vector_size(LANES_BYTES / 2), aligned(2), may_alias));
#define FIRST_HALVES(x) ((FN(vector))((FN(words))(x) << 16))
#define SECOND_HALVES(x) ((FN(vector))((FN(words))(x)&0xffff0000U))
#define HALVES(p) __builtin_convertvector(*(const FN(halves) *)(const void *)(p), FN(words))
TARGET static inline FN(vector) FN(few_line)(const char *p, const char *next, bool bf16) {
  (void)next;
  return bf16 ? (FN(vector))(HALVES(p) << 16) : *(const FN(vector) *)(const void *)p;
}
static inline T FN(few_word)(const char *column, int64_t k, int64_t depth, bool bf16) {
  uint16_t h;
  T x;
  (void)depth;
  if (!bf16) return ((const T *)(const void *)column)[k];
  memcpy(&h, column + 2 * k, sizeof h);
  uint32_t bits = (uint32_t)h << 16;
  memcpy(&x, &bits, sizeof x);
  return x;
}
#else
#define FIRST_HALVES(x) (x)
#define SECOND_HALVES(x) (x)
TARGET static inline FN(vector) FN(few_line)(const char *p, const char *next, bool bf16) {
  (void)next, (void)bf16;
  return *(const FN(vector) *)(const void *)p;
}
static inline T FN(few_word)(const char *column, int64_t k, int64_t depth, bool bf16) {
  (void)depth, (void)bf16;
  return ((const T *)(const void *)column)[k];
}
#endif

/* s[i] += a[i][k + j] * y */
#define FEW_MADD(y, j)                                                                             \
  UNROLL for (int i = 0; i < rows; i++) s[i] = MADD(EACH(at + i * CPU_GEMM_DEPTH + (j)), y, s[i])

/* What is fetched into the second cache, in the order of memory: `run` bytes of a column, then of the next one.
 * Lines of columns that are far apart come slowly when they are fetched as they are read, one of each. */
typedef struct FN(few_ahead) {
  const char *at, *end; /* of a column's run */
  int64_t run, columns; /* columns: left, with this one */
} FN(few_ahead);

/* As much as a step reads. */
TARGET static inline __attribute__((always_inline)) void FN(few_fetch)(FN(few_ahead) * ahead,
                                                                       int64_t column_bytes) {
  if (ahead->columns == 0) return;
  UNROLL for (int i = 0; i < LANES; i++) __builtin_prefetch(ahead->at + i * LANES_BYTES, 0, 2);
  ahead->at += LANES * LANES_BYTES;
  if (ahead->at < ahead->end) return;
  ahead->columns--;
  ahead->end += column_bytes;
  ahead->at = ahead->end - ahead->run;
}

/* One step along k of the sums of a piece. */
TARGET static inline __attribute__((always_inline)) void
FN(few_step)(int rows, bool bf16, const E *restrict at, const char *restrict from,
             int64_t column_bytes, FN(vector) * s) {
  FN(vector) x[LANES_BYTES / sizeof(T)];
  UNROLL for (int j = 0; j < LANES; j++) x[j] =
      *(const FN(vector) *)(const void *)(from + j * column_bytes);
  FN(turn)(x);
  UNROLL for (int j = 0; j < LANES; j++) {
    if (!bf16 || PAIR > 1) {
      FEW_MADD(x[j], PAIR * j);
      continue;
    }
    FN(vector) first = FIRST_HALVES(x[j]), second = SECOND_HALVES(x[j]);
    FEW_MADD(first, 2 * j);
    FEW_MADD(second, 2 * j + 1);
  }
}

/* c[rows x LANES] = or += a[rows x depth] * b[depth x LANES]; `rows`, `pieces` and `bf16` are constants. Rows from
 * `real` on are computed and not stored. Sums of pairs in one row wait for each other long: then 2 pieces
 * of CPU_GEMM_DEPTH are computed in turns, and added to c one after the other. */
TARGET static inline __attribute__((always_inline)) void
FN(few_tile)(int rows, int pieces, bool bf16, int64_t real, int64_t depth, const E *restrict a,
             const char *restrict b, int64_t column_bytes, FN(few_ahead) * ahead, T *restrict c,
             int64_t c_row, bool accumulate) {
  FN(vector) sums[FEW_ROWS];
  int64_t k = 0, step = bf16 ? 2 * LANES : LANES, size = bf16 ? 2 : (int64_t)sizeof(T);
  UNROLL for (int i = 0; i < rows * pieces; i++) sums[i] = (FN(vector)){0};
  for (; k + step <= depth; k += step) UNROLL for (int p = 0; p < pieces; p++) {
      int64_t at = k + p * CPU_GEMM_DEPTH;
      FN(few_fetch)(ahead, column_bytes);
      FN(few_step)(rows, bf16, a + at, b + at * size, column_bytes, sums + p * rows);
    }
  for (const E *at = a + k; k < depth; k += PAIR, at += PAIR) { /* of one piece */
    T y[LANES_BYTES / sizeof(T)];
    FN(vector) *s = sums;
    for (int j = 0; j < LANES; j++) y[j] = FN(few_word)(b + j * column_bytes, k, depth, bf16);
    FN(vector) v = *(const FN(vector) *)(const void *)y;
    FEW_MADD(v, 0);
  }
  UNROLL for (int p = 0; p < pieces; p++) UNROLL for (int i = 0; i < rows; i++) {
    FN(vector) *to = (FN(vector) *)(void *)(c + i * c_row);
    if (i >= real) break;
    if (accumulate || p > 0) *to += sums[p * rows + i];
    else *to = sums[p * rows + i];
  }
}

#define FEW_TILE(name, rows, pieces, bf16)                                                         \
  TARGET static __attribute__((noinline)) void FN(name)(                                           \
      int64_t real, int64_t depth, const E *a, const char *b, int64_t column_bytes,                \
      FN(few_ahead) * ahead, T * c, int64_t c_row, bool accumulate) {                              \
    FN(few_tile)                                                                                   \
    (rows, pieces, bf16, real, depth, a, b, column_bytes, ahead, c, c_row, accumulate);            \
  }
#ifndef OF_PAIRS
FEW_TILE(few_1, 1, 1, false)
FEW_TILE(few_2, 2, 1, false)
FEW_TILE(few_4, 4, 1, false)
FEW_TILE(few_most, FEW_ROWS, 1, false)
#endif
#if defined(OF_BF16) || defined(OF_PAIRS)
FEW_TILE(few_1_bf16, 1, 1, true)
FEW_TILE(few_2_bf16, 2, 1, true)
FEW_TILE(few_4_bf16, 4, 1, true)
FEW_TILE(few_most_bf16, FEW_ROWS, 1, true)
#endif
#if defined(OF_PAIRS)
FEW_TILE(few_1_deep_bf16, 1, 2, true)
#define FEW_OF(name, bf16) FN(name##_bf16)
#elif defined(OF_BF16)
#define FEW_OF(name, bf16) ((bf16) ? FN(name##_bf16) : FN(name))
#else
#define FEW_OF(name, bf16) FN(name)
#endif

typedef void FN(few_fn)(int64_t real, int64_t depth, const E *a, const char *b,
                        int64_t column_bytes, FN(few_ahead) * ahead, T *c, int64_t c_row,
                        bool accumulate);

static FN(few_fn) * FN(few_of)(int64_t rows, int64_t pieces, bool bf16) {
  (void)pieces, (void)bf16;
#if defined(OF_PAIRS)
  if (pieces > 1) return FN(few_1_deep_bf16);
#endif
  if (rows == 1) return FEW_OF(few_1, bf16);
  if (rows == 2) return FEW_OF(few_2, bf16);
  return rows <= 4 ? FEW_OF(few_4, bf16) : FEW_OF(few_most, bf16);
}

/* Elements of a column that are fetched at a time: even parts of it, of `least` each. In pairs long ones, since a line
 * has more of them to multiply; other units gain nothing by that. */
static int64_t FN(few_run)(const cpu_few *f) {
  int64_t least = PAIR * CPU_GEMM_DEPTH;
  int64_t most = PAIR > 1 ? 16 * CPU_GEMM_DEPTH : (f->bf16 ? 2 : 1) * CPU_GEMM_DEPTH;
  int64_t n = (f->b.rows + most - 1) / most;
  return (f->b.rows + n * least - 1) / (n * least) * least;
}

/* What comes after the run from position d on of columns from j on: the next run of these columns, or the first
 * one of the next columns. */
static FN(few_ahead) FN(few_after)(const cpu_few *f, int64_t run, int64_t j, int64_t d) {
  int64_t size = f->bf16 ? 2 : (int64_t)sizeof(T);
  d += run;
  if (d >= f->b.rows) d = 0, j += LANES;
  int64_t left = f->b.rows - d;
  FN(few_ahead)
  ahead = {.at = (const char *)f->from + (j * f->b.column_stride + d) * size,
           .run = (left < run ? left : run) * size,
           .columns = j < f->c.columns ? LANES : 0};
  ahead.end = ahead.at + ahead.run;
  return ahead;
}

/* All of k for a few columns, then the next ones. */
static void FN(few_columns)(const cpu_few *f, const E *a, T *c) {
  int64_t size = f->bf16 ? 2 : (int64_t)sizeof(T), column = f->b.column_stride * size;
  int64_t run = FN(few_run)(f);
  FN(few_ahead) ahead = {0};
  for (int64_t j = 0; j < f->c.columns; j += LANES)
    for (int64_t d = 0, pieces; d < f->b.rows; d += pieces * CPU_GEMM_DEPTH) {
      int64_t depth = f->b.rows - d < CPU_GEMM_DEPTH ? f->b.rows - d : CPU_GEMM_DEPTH;
      pieces = PAIR > 1 && f->c.rows == 1 && f->b.rows - d >= 2 * CPU_GEMM_DEPTH ? 2 : 1;
      if (d % run == 0) ahead = FN(few_after)(f, run, j, d);
      for (int64_t i = 0; i < f->c.rows; i += FEW_ROWS) {
        int64_t real = f->c.rows - i < FEW_ROWS ? f->c.rows - i : FEW_ROWS;
        FN(few_of)
        (real, pieces, f->bf16)(real, depth, a + d * f->a_rows + i * CPU_GEMM_DEPTH,
                                (const char *)f->from + j * column + d * size, column, &ahead,
                                c + i * f->c.row_stride + j, f->c.row_stride,
                                f->accumulate || d > 0);
      }
    }
}

/* ---- b is contiguous along columns: a strip of them ---- */
/* FEW_DEEP rows of b at a time are added to sums in the first cache: sums[rows x columns]. */
TARGET static inline __attribute__((always_inline)) void
FN(few_deep)(int deep, bool bf16, bool first, int64_t rows, const E *restrict a,
             const char *restrict b, int64_t b_row, int64_t columns, T *restrict sums) {
  int64_t size = bf16 ? 2 : (int64_t)sizeof(T);
  for (int64_t j = 0; j < columns; j += LANES) {
    FN(vector) y[FEW_DEEP];
    UNROLL for (int k = 0; k < deep; k++)
        __builtin_prefetch(b + (FEW_DEEP + k) * b_row + j * size, 0, 2);
    UNROLL for (int k = 0; k < deep; k += PAIR) {
      const char *at = b + k * b_row + j * size;
      y[k] = FN(few_line)(at, k + 1 < deep ? at + b_row : NULL, bf16);
    }
    for (int64_t i = 0; i < rows; i++) {
      FN(vector) *to = (FN(vector) *)(void *)(sums + i * columns + j), s = {0};
      if (!first) s = *to;
      UNROLL for (int k = 0; k < deep; k += PAIR) s =
          MADD(EACH(a + i * CPU_GEMM_DEPTH + k), y[k], s);
      *to = s;
    }
  }
}

TARGET static inline __attribute__((always_inline)) void
FN(few_strip_of)(bool bf16, int64_t rows, const E *a, const char *b, int64_t b_row, int64_t depth,
                 int64_t columns, T *sums) {
  int64_t k = 0;
  for (; k + FEW_DEEP <= depth; k += FEW_DEEP) FN(few_deep)
  (FEW_DEEP, bf16, k == 0, rows, a + k, b + k * b_row, b_row, columns, sums);
  for (; k + PAIR <= depth; k += PAIR) FN(few_deep)
  (PAIR, bf16, k == 0, rows, a + k, b + k * b_row, b_row, columns, sums);
  if (k < depth) FN(few_deep)
  (1, bf16, k == 0, rows, a + k, b + k * b_row, b_row, columns, sums);
}

#define FEW_STRIP(name, bf16)                                                                      \
  TARGET static __attribute__((noinline)) void FN(name)(int64_t rows, const E *a, const char *b,   \
                                                        int64_t b_row, int64_t depth,              \
                                                        int64_t columns, T *sums) {                \
    if (rows == 1) FN(few_strip_of)(bf16, 1, a, b, b_row, depth, columns, sums);                   \
    else FN(few_strip_of)(bf16, rows, a, b, b_row, depth, columns, sums);                          \
  }
#ifndef OF_PAIRS
FEW_STRIP(few_strip, false)
#endif
#if defined(OF_BF16) || defined(OF_PAIRS)
FEW_STRIP(few_strip_bf16, true)
#endif

static void FN(few_add)(const cpu_few *f, const T *sums, int64_t columns, T *c, bool accumulate) {
  for (int64_t i = 0; i < f->c.rows; i++)
    for (int64_t j = 0; j < columns; j++) {
      T *to = &c[i * f->c.row_stride + j], x = sums[i * columns + j];
      *to = accumulate ? *to + x : x;
    }
}

static void FN(few_rows)(const cpu_few *f, const E *a, T *c, T *sums) {
  int64_t size = f->bf16 ? 2 : (int64_t)sizeof(T), row = f->b.row_stride * size;
  int64_t most = FEW_SUMS_BYTES / (int64_t)sizeof(T) / f->c.rows / LANES * LANES;
  for (int64_t j = 0; j < f->c.columns; j += most) {
    int64_t columns = f->c.columns - j < most ? f->c.columns - j : most;
    for (int64_t d = 0; d < f->b.rows; d += CPU_GEMM_DEPTH) {
      int64_t depth = f->b.rows - d < CPU_GEMM_DEPTH ? f->b.rows - d : CPU_GEMM_DEPTH;
      FEW_OF(few_strip, f->bf16)
      (f->c.rows, a + d * f->a_rows, (const char *)f->from + d * row + j * size, row, depth,
       columns, sums);
      FN(few_add)(f, sums, columns, c + j, f->accumulate || d > 0);
    }
  }
}

#ifdef OF_PAIRS
#include "device/cpu/gemm/pieces.h"

/* One row: as long as there are pieces for a group. What is left of the product. */
static cpu_few FN(few_groups)(const cpu_few *f, const E *a, T *c, char *scratch) {
  cpu_few left = *f;
  if (f->c.rows > 1) return left;
  for (; left.b.rows >= GROUP_DEPTH; left.b.rows -= GROUP_DEPTH, left.accumulate = true) {
    FN(few_group)(&left, a + (f->b.rows - left.b.rows), c, scratch);
    left.from = (const E *)left.from + GROUP_DEPTH;
  }
  return left;
}
#undef GROUP_DEPTH
#endif

static void FN(few)(const cpu_few *f, const void *a, void *c, char *scratch) {
  if (f->b.row_stride != 1) {
    FN(few_rows)(f, a, c, (T *)(void *)scratch);
    return;
  }
#ifdef OF_PAIRS
  cpu_few left = FN(few_groups)(f, a, c, scratch);
  if (left.b.rows > 0) FN(few_columns)(&left, (const E *)a + (f->b.rows - left.b.rows), c);
#else
  FN(few_columns)(f, a, c);
#endif
}

#undef FEW_STRIP
#undef OF_BF16
#undef FIRST_HALVES
#undef SECOND_HALVES
#undef HALVES
#undef FEW_MADD
#undef FEW_TILE
#undef FEW_OF
