/* Whether a result is right: the tolerance rule of the language.
 *
 * Integers and bools must be equal. A float may differ from its reference by the tolerance of the
 * least precise dtype it depends on, times the largest finite |reference| of its tensor. NaN equals
 * NaN and an infinity itself; against anything else they differ by infinity. */
#ifndef WEIR_RUNTIME_COMPARE_H
#define WEIR_RUNTIME_COMPARE_H

#include "ir/array.h"

typedef struct rt_comparison {
  double max_abs;   /* the largest difference */
  double max_rel;   /* the same over the largest finite |reference| */
  double tolerance; /* what max_rel may be */
  bool ok;
} rt_comparison;

/* Both arrays have the same dtype and extents. */
rt_comparison rt_compare(const ir_array *value, const ir_array *reference, ir_dtype least);

/* The least precise float dtype among `t` and everything its definition depends on; `t`'s own dtype
 * where that is exact. Needs a memory_guard(). */
ir_dtype rt_least_dtype(const ir_func *f, ir_tensor t, arena *scratch);

#endif
