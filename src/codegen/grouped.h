/* What writers of grouped products on tensor cores share. */
#ifndef WEIR_CODEGEN_GROUPED_H
#define WEIR_CODEGEN_GROUPED_H

#include "codegen/internal.h"

/* How the operands are in memory: lines along the depth, or along rows (a) or columns (b). */
typedef struct cg_grouped_sides {
  bool a_turned, b_turned; /* lines are not along the depth */
} cg_grouped_sides;

/* Do dtypes, extents and strides suit tensor cores? Lines are dense and begin at multiples of 16 bytes. */
bool cg_grouped_is_taken(const cg_matmul *m, cg_grouped_sides *sides);

#endif
