/* The table of folds (folds.def) as data. */
#ifndef WEIR_IR_FOLD_H
#define WEIR_IR_FOLD_H

#include "ir/comm.h"
#include "ir/op.h"

typedef enum ir_fold_start_kind {
  IR_START_ZERO,
  IR_START_ONE,
  IR_START_ALL,      /* bits: true, or -1 */
  IR_START_LEAST,    /* of the dtype; -inf */
  IR_START_GREATEST, /* of the dtype; inf */
} ir_fold_start_kind;

typedef struct ir_fold_info {
  const char *name;
  ir_fold_start_kind start;
  const char *fexpr, *iexpr; /* as text, "NO" where none */
  ir_opcode reduction, merge;
  ir_combine combine, truth;
  const char *nvfuser;
  const char *noun; /* what an empty reduction lacks ("maximum"); NULL: it gives `start` */
} ir_fold_info;
const ir_fold_info *ir_fold_info_of(ir_fold fold);

/* The neutral element, in dtype t. */
ir_number ir_fold_start(ir_fold fold, ir_dtype t);
/* How a communication folds partial results of dtype t. */
ir_combine ir_fold_combine(ir_fold fold, ir_dtype t);
/* How results for parts of the reduced dimensions are combined. NONE: the operation is not computed in
 * parts. */
ir_fold ir_op_fold(ir_opcode code);
/* Does it pick one of the elements, as a maximum does? Then nothing is rounded, and an empty reduction has
 * no result. */
bool ir_op_picks(ir_opcode code);

#endif
