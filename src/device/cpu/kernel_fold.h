/* Folds: the inner loops of reductions. Floats accumulate in double, integers in 64 bits. */
#ifndef WEIR_DEVICE_CPU_KERNEL_FOLD_H
#define WEIR_DEVICE_CPU_KERNEL_FOLD_H

#include "device/cpu/kernel_internal.h"
#include "ir/fold.h"

/* source_dtype: IR_F32, IR_F64 or IR_I64. */
static inline const cpu_fold *cpu_fold_of(cpu_fold_kind kind, ir_dtype source_dtype) {
  const cpu_fold *fold = &cpu_vectors()->folds[source_dtype][kind];
  check(fold->row);
  return fold;
}

#endif
