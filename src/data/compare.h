/* Compares results with references: the tolerance rule of the language.
 *
 * Integers and bools must be equal. A float may differ from its reference by the tolerance of the
 * least precise dtype it depends on, times the largest finite |reference| of its tensor. NaN equals
 * NaN and an infinity itself; against anything else they differ by infinity. */
#ifndef WEIR_DATA_COMPARE_H
#define WEIR_DATA_COMPARE_H

#include "ir/array.h"

typedef struct data_comparison {
  double max_abs;   /* the largest difference */
  double max_rel;   /* the same over the largest finite |reference| */
  double tolerance; /* what max_rel may be */
  bool ok;
} data_comparison;

/* Both arrays have the same dtype and extents. */
data_comparison data_compare(const ir_array *value, const ir_array *reference, ir_dtype least);

/* ---- with a tolerance for each element ----
 * `squares` has, per element in row-major order, the mean square of the change that rounding alone makes
 * (ref_spread()). An element may differ from the reference by DATA_DEVIATIONS times the root of that. NULL: by `rtol`
 * times the largest finite |reference|. `rows` has a flag for each position of all dimensions but the last: only
 * elements of these rows are compared; NULL: all. */
enum { DATA_DEVIATIONS = 6 };
typedef struct data_verdict {
  double max_abs, max_rel; /* as in data_comparison */
  /* The worst element: where the difference is the largest, measured by the tolerance. */
  int64_t index[IR_MAX_RANK];
  double value, reference, tolerance;
  double worst;                /* its difference, as a multiple of its tolerance */
  int64_t n_elements, n_wrong; /* looked at, and those beyond their tolerance */
} data_verdict;
data_verdict data_judge(const ir_array *value, const ir_array *reference, const double *squares,
                        double rtol, const uint8_t *rows);

/* The least precise float dtype among `t` and everything its definition depends on; `t`'s own dtype
 * where that is exact. Needs a memory_guard(). */
ir_dtype data_least_dtype(const ir_func *f, ir_tensor t, arena *scratch);

#endif
