/* The own product, for types that no BLAS has and for machines without one.
 *
 * Blocks of b [DEPTH x WIDTH] and of a [HEIGHT x DEPTH] are packed into panels, so that the tile in
 * the middle reads both in order, whatever their strides, and keeps MR x NR sums in registers. Panels
 * are filled up with zeros; only what exists of a tile is written. */
#include "device/cpu/kernel_gemm.h"

#include <string.h>

#include "device/cpu/kernel_fast.h"

enum { HEIGHT = 64, DEPTH = 256, WIDTH = 256, MR = 4, NR = 8 };

ir_dtype cpu_gemm_native(ir_dtype t) {
  switch (t) {
  case IR_F64: return IR_F64;
  case IR_F32:
  case IR_F16:
  case IR_BF16: return IR_F32;
  case IR_I32:
  case IR_I8:
  case IR_U8: return IR_I32;
  case IR_I64:
  case IR_BOOL: return IR_I64;
  case IR_DTYPE_NONE:
  case IR_DTYPE_COUNT: break;
  }
  impossible("an element type");
}

bool cpu_gemm_uses_blas(ir_dtype native) {
  return ir_dtype_is_float(native) && cpu_blas_available();
}

size_t cpu_gemm_scratch_bytes(void) { return (HEIGHT + WIDTH) * DEPTH * sizeof(double); }

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

#define OWN_GEMM(T, name)                                                                          \
  /* Panels of `width` lines (rows of a, columns of b), each line's elements `width` apart. */     \
  static void pack_##name(const T *from, int64_t lines, int64_t line_step, int64_t depth,          \
                          int64_t depth_step, int width, T *restrict to) {                         \
    for (int64_t line = 0; line < lines; line += width) {                                          \
      int64_t some = smaller(width, lines - line);                                                 \
      for (int64_t d = 0; d < depth; d++, to += width) {                                           \
        const T *x = from + line * line_step + d * depth_step;                                     \
        for (int64_t i = 0; i < some; i++) to[i] = x[i * line_step];                               \
        for (int64_t i = some; i < width; i++) to[i] = 0;                                          \
      }                                                                                            \
    }                                                                                              \
  }                                                                                                \
  static void tile_##name(int64_t depth, const T *restrict a, const T *restrict b,                 \
                          T sums[MR][NR]) {                                                        \
    T s[MR][NR];                                                                                   \
    memset(s, 0, sizeof s);                                                                        \
    for (int64_t d = 0; d < depth; d++, a += MR, b += NR)                                          \
      for (int i = 0; i < MR; i++)                                                                 \
        for (int j = 0; j < NR; j++) s[i][j] += a[i] * b[j];                                       \
    memcpy(sums, s, sizeof s);                                                                     \
  }                                                                                                \
  static void write_##name(const cpu_matrix *sc, T *c, int64_t rows, int64_t columns,              \
                           T sums[MR][NR], bool accumulate) {                                      \
    for (int64_t i = 0; i < rows; i++)                                                             \
      for (int64_t j = 0; j < columns; j++) {                                                      \
        T *to = &c[i * sc->row_stride + j * sc->column_stride];                                    \
        *to = accumulate ? *to + sums[i][j] : sums[i][j];                                          \
      }                                                                                            \
  }                                                                                                \
  static void block_##name(const cpu_matrix *sc, T *c, int64_t height, int64_t width,              \
                           int64_t depth, const T *a, const T *b, bool accumulate) {               \
    T sums[MR][NR];                                                                                \
    for (int64_t j = 0; j < width; j += NR)                                                        \
      for (int64_t i = 0; i < height; i += MR) {                                                   \
        tile_##name(depth, a + i * depth, b + j * depth, sums);                                    \
        write_##name(sc, c + i * sc->row_stride + j * sc->column_stride, smaller(MR, height - i),  \
                     smaller(NR, width - j), sums, accumulate);                                    \
      }                                                                                            \
  }                                                                                                \
  static void own_##name(const cpu_matrix *sa, const T *a, const cpu_matrix *sb, const T *b,       \
                         const cpu_matrix *sc, T *c, bool accumulate, T *scratch) {                \
    T *packed_b = scratch, *packed_a = scratch + DEPTH * WIDTH;                                    \
    int64_t m = sc->rows, n = sc->columns, k = sa->columns;                                        \
    for (int64_t j = 0; j < n; j += WIDTH)                                                         \
      for (int64_t d = 0; d < k; d += DEPTH) {                                                     \
        int64_t width = smaller(WIDTH, n - j), depth = smaller(DEPTH, k - d);                      \
        pack_##name(b + d * sb->row_stride + j * sb->column_stride, width, sb->column_stride,      \
                    depth, sb->row_stride, NR, packed_b);                                          \
        for (int64_t i = 0; i < m; i += HEIGHT) {                                                  \
          int64_t height = smaller(HEIGHT, m - i);                                                 \
          pack_##name(a + i * sa->row_stride + d * sa->column_stride, height, sa->row_stride,      \
                      depth, sa->column_stride, MR, packed_a);                                     \
          block_##name(sc, c + i * sc->row_stride + j * sc->column_stride, height, width, depth,   \
                       packed_a, packed_b, accumulate || d > 0);                                   \
        }                                                                                          \
      }                                                                                            \
  }
OWN_GEMM(float, f32)
OWN_GEMM(double, f64)
OWN_GEMM(uint32_t, i32)
OWN_GEMM(uint64_t, i64)

static void clear(ir_dtype native, const cpu_matrix *sc, char *c) {
  const double zero = 0; /* all bits 0 in every type */
  int64_t size = (int64_t)ir_dtype_size_bytes(native);
  for (int64_t i = 0; i < sc->rows; i++)
    cpu_fill_strided((size_t)size, sc->columns, c + i * sc->row_stride * size,
                     sc->column_stride * size, &zero);
}

static bool takes_all(const cpu_matrix *sa, const cpu_matrix *sb, const cpu_matrix *sc) {
  return cpu_blas_takes(sa) && cpu_blas_takes(sb) && cpu_blas_takes(sc);
}

void cpu_gemm_run(ir_dtype native, bool blas, const cpu_matrix *sa, const void *a,
                  const cpu_matrix *sb, const void *b, const cpu_matrix *sc, void *c,
                  bool accumulate, char *scratch) {
  void *room = scratch;
  check(sa->rows == sc->rows && sb->columns == sc->columns && sa->columns == sb->rows);
  if (sc->rows == 0 || sc->columns == 0) return;
  if (sa->columns == 0) {
    if (!accumulate) clear(native, sc, c);
    return;
  }
  blas = blas && takes_all(sa, sb, sc);
  if (native == IR_F32 && blas) cpu_blas_sgemm(sa, a, sb, b, sc, c, accumulate);
  else if (native == IR_F64 && blas) cpu_blas_dgemm(sa, a, sb, b, sc, c, accumulate);
  else if (native == IR_F32) own_f32(sa, a, sb, b, sc, c, accumulate, room);
  else if (native == IR_F64) own_f64(sa, a, sb, b, sc, c, accumulate, room);
  else if (native == IR_I32) own_i32(sa, a, sb, b, sc, c, accumulate, room);
  else own_i64(sa, a, sb, b, sc, c, accumulate, room);
}
