/* Units: what multiplies small blocks of matrices, one per element type and set of instructions.
 *
 * A unit multiplies rows of `a`, as they lie in memory, by a *panel* of `b`: `columns` columns, packed so
 * that the elements of one row are contiguous. It keeps rows x columns sums in registers, adds up the
 * products in the order of k, and adds the sum to the result. So an element of a product depends on its row
 * of a, its column of b and the cuts along k, and not on the other rows and columns that are computed with
 * it: a window of a product has the same bits as the whole.
 *
 * A unit of pairs multiplies bf16 as they are: two along k in one instruction, into sums of f32. A row of its
 * panels has pairs of elements along k, one per column, and rows of `a` are contiguous along k.
 *
 * This is the whole of what depends on the processor. docs/kernels.md has figures. */
#ifndef WEIR_DEVICE_CPU_GEMM_UNIT_H
#define WEIR_DEVICE_CPU_GEMM_UNIT_H

#include <stdbool.h>

#include "ir/dtype.h"

/* A matrix in memory; strides in elements. */
typedef struct cpu_matrix {
  int64_t rows, columns;
  int64_t row_stride, column_stride;
} cpu_matrix;

/* c = a * b, or c += a * b, of at most CPU_GEMM_FEW rows and all of k, with the sums of a unit. b is read once,
 * as it lies: one of its strides is 1. The columns of c are a multiple of the unit's lanes.
 *
 * `a` has the unit's elements and is cut along k: CPU_GEMM_DEPTH elements of each of a_rows rows, then the next
 * ones; for a unit of pairs, an odd depth is followed by a 0. a_rows is that of c, rounded up by
 * cpu_few_rows(). */
typedef struct cpu_few {
  cpu_matrix b, c;
  int64_t a_rows;
  const void *from; /* b; bf16: its elements are, and the unit is that of f32 or of pairs */
  bool bf16, accumulate;
} cpu_few;

/* Memory that will be read next. While products are computed, its cache lines are asked for, piece by piece. It need
 * not be there: addresses are not followed. {0}: nothing. */
typedef struct cpu_ahead {
  uintptr_t at;          /* the piece that is asked for */
  int64_t pieces, lines; /* pieces left; cache lines of each */
  int64_t step;          /* from one piece to the next, in bytes */
  int64_t line;          /* of this piece */
} cpu_ahead;

/* Elements of `b`, of size_bytes each, at `from`; NULL: nothing. */
cpu_ahead cpu_ahead_of(const cpu_matrix *b, const char *from, int64_t size_bytes);

typedef struct cpu_gemm_unit {
  bool pairs;
  int64_t element_bytes; /* of a and b; those of c are native */
  int64_t native_bytes;
  int64_t columns; /* of a panel */
  int64_t lanes;   /* elements of a vector */
  int64_t rows;    /* of `a` to hand over at a time, so that they stay in the second cache */
  /* c = a * panel, or c += a * panel. `panel_row`: from one row of the panel to the next, in native elements.
   * c has unit strides along its rows; of the panel's columns the first c->columns are used. As much of
   * `ahead` as there is time for is fetched. */
  void (*multiply)(const cpu_matrix *sa, const void *a, const void *panel, int64_t panel_row,
                   const cpu_matrix *sc, void *c, bool accumulate, cpu_ahead ahead);
  /* Packs b, of at most `columns` columns; the others become 0. */
  void (*pack)(const cpu_matrix *sb, const void *b, void *panel);
  /* See cpu_few. scratch: of the size of a panel. */
  void (*few)(const cpu_few *f, const void *a, void *c, char *scratch);
} cpu_gemm_unit;

enum {
  CPU_GEMM_FEW = 16, /* rows */
  CPU_GEMM_FEW_STAGED =
      1 << 18,          /* elements of an `a` of few rows that is converted first, at most */
  CPU_GEMM_DEPTH = 256, /* rows of a panel at most: products along k that are summed at a time */
  CPU_GEMM_PANEL_BYTES = 64 * CPU_GEMM_DEPTH * 4, /* the largest panel */
};

/* Rows are computed by 1, 2, 4 or 8. */
static inline int64_t cpu_few_rows(int64_t rows) {
  return rows <= 2 ? rows : rows <= 4 ? 4 : (rows + 7) / 8 * 8;
}

/* The unit of the level that cpu_vectors() has chosen (loops/loops.h). `native`: f32, f64, i32 or i64. */
const cpu_gemm_unit *cpu_gemm_unit_of(ir_dtype native);
/* The same for operands of these dtypes: a unit of pairs if both are bf16, sums are f32 and the level has one.
 * It follows from nothing else, so that windows are computed as the whole is. */
const cpu_gemm_unit *cpu_gemm_unit_for(ir_dtype a, ir_dtype b, ir_dtype native);

#endif
