/* Type and shape inference: dtypes and domains of an operation's results from its operands.
 *
 * Reports what does not fit at op->at. On success the dtypes and `defined` domains of the first
 * ir_op_n_results(op) results are written; what can only be known with shapes bound becomes a
 * constraint of the function. */
#ifndef WEIR_IR_INFER_H
#define WEIR_IR_INFER_H

#include "ir/ir.h"

typedef struct ir_inferred {
  ir_dtype dtype;
  ir_domains domains; /* root and logical; allocation and loop are the logical domain */
} ir_inferred;

bool ir_infer(ir_func *f, const ir_op_data *op, ir_inferred results[IR_MAX_RESULTS]);

/* Promotion over operands with weak numbers, as pointwise ops and others use it. */
ir_dtype ir_infer_promote(const ir_func *f, const ir_tensor *operands, uint32_t n);
/* The dtype in which a pointwise op computes (comparisons compute in the promoted operand dtype). */
ir_dtype ir_infer_compute_dtype(const ir_func *f, const ir_op_data *op);

#endif
