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
  const char *noun; /* NULL: of no elements it is what it starts from, and it may round */
} ir_fold_info;
const ir_fold_info *ir_fold_info_of(ir_fold fold);

/* What changes nothing, as an element of dtype t. */
ir_number ir_fold_start(ir_fold fold, ir_dtype t);
/* How a communication folds partial results of dtype t. */
ir_combine ir_fold_combine(ir_fold fold, ir_dtype t);
/* How partial results of an operation are folded: of parts of its reduced dimensions. NONE: an operation
 * that is not computed in such parts. */
ir_fold ir_op_fold(ir_opcode code);
/* Does it pick one of the elements, as a maximum does? Then nothing rounds, and of none there is no
 * result. */
bool ir_op_picks(ir_opcode code);

#endif
