#include "ir/fold.h"

#include <math.h>

#include "base/status.h"

static const ir_fold_info infos[] = {
#define FOLD(id, n, s, fx, ix, op, m, c, t, nv, what)                                              \
  [IR_FOLD_##id] = {.name = #n,                                                                    \
                    .start = IR_START_##s,                                                         \
                    .fexpr = #fx,                                                                  \
                    .iexpr = #ix,                                                                  \
                    .reduction = IR_OP_##op,                                                       \
                    .merge = IR_OP_##m,                                                            \
                    .combine = IR_COMBINE_##c,                                                     \
                    .truth = IR_COMBINE_##t,                                                       \
                    .nvfuser = nv,                                                                 \
                    .noun = what},
#include "ir/folds.def"
#undef FOLD
};

const ir_fold_info *ir_fold_info_of(ir_fold fold) {
  check(fold > IR_FOLD_NONE && fold < IR_FOLD_COUNT);
  return &infos[fold];
}

ir_combine ir_fold_combine(ir_fold fold, ir_dtype t) {
  const ir_fold_info *info = ir_fold_info_of(fold);
  return t == IR_BOOL ? info->truth : info->combine;
}

static ir_number extreme(ir_dtype t, bool least) {
  if (ir_dtype_is_float(t)) return ir_number_float(least ? -INFINITY : INFINITY);
  if (t == IR_BOOL) return ir_number_int(!least);
  if (t == IR_U8) return ir_number_int(least ? 0 : UINT8_MAX);
  if (t == IR_I8) return ir_number_int(least ? INT8_MIN : INT8_MAX);
  if (t == IR_I32) return ir_number_int(least ? INT32_MIN : INT32_MAX);
  return ir_number_int(least ? INT64_MIN : INT64_MAX);
}

ir_number ir_fold_start(ir_fold fold, ir_dtype t) {
  switch (ir_fold_info_of(fold)->start) {
  case IR_START_ZERO: return ir_number_int(0);
  case IR_START_ONE: return ir_number_int(1);
  case IR_START_ALL: return ir_number_int(t == IR_BOOL ? 1 : t == IR_U8 ? UINT8_MAX : -1);
  case IR_START_LEAST: return extreme(t, true);
  case IR_START_GREATEST: return extreme(t, false);
  }
  impossible("every start is listed");
}

ir_fold ir_op_fold(ir_opcode code) {
  return ir_op_is_product(code) ? IR_FOLD_SUM : ir_op_info_of(code)->fold;
}

bool ir_op_picks(ir_opcode code) {
  ir_fold fold = ir_op_fold(code);
  return fold != IR_FOLD_NONE && ir_fold_info_of(fold)->noun;
}
