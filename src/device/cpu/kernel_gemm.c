#include "device/cpu/kernel_gemm.h"

#include <string.h>

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

/* Packing a panel costs as much as multiplying a few rows by it, so few rows read it where it lies, if its
 * rows are contiguous, and not of pairs. */
enum { FEW_ROWS = 24 };

cpu_ahead cpu_ahead_of(const cpu_matrix *b, const char *from, int64_t size_bytes) {
  bool by_columns = b->row_stride == 1;
  int64_t length = by_columns ? b->rows : b->columns;
  if (!from) return (cpu_ahead){0};
  return (cpu_ahead){.at = (uintptr_t)from,
                     .pieces = by_columns ? b->columns : b->rows,
                     .lines = (length * size_bytes + 63) / 64,
                     .step = (by_columns ? b->column_stride : b->row_stride) * size_bytes};
}

void cpu_gemm_block(const cpu_gemm_unit *unit, const cpu_matrix *sa, const void *a,
                    const cpu_matrix *sb, const void *b, const cpu_matrix *sc, void *c,
                    cpu_ahead ahead, bool accumulate, char *scratch) {
  check(sb->rows <= CPU_GEMM_DEPTH && sc->column_stride == 1);
  for (int64_t j = 0; j < sc->columns; j += unit->columns) {
    int64_t columns = sc->columns - j < unit->columns ? sc->columns - j : unit->columns;
    cpu_matrix panel = {sb->rows, columns, sb->row_stride, sb->column_stride};
    cpu_matrix to = {sc->rows, columns, sc->row_stride, 1};
    int64_t step = unit->columns * sb->column_stride * unit->element_bytes;
    const char *from = (const char *)b + j / unit->columns * step;
    bool is_last = j + columns == sc->columns;
    bool as_is =
        !unit->pairs && sc->rows < FEW_ROWS && columns == unit->columns && sb->column_stride == 1;
    if (!as_is) unit->pack(&panel, from, scratch);
    unit->multiply(sa, a, as_is ? from : scratch, as_is ? sb->row_stride : unit->columns, &to,
                   (char *)c + j * unit->native_bytes, accumulate,
                   is_last ? ahead : cpu_ahead_of(&panel, from + step, unit->element_bytes));
  }
}
