/* Folds: the inner loops of reductions. Floats accumulate in double, integers in 64 bits. */
#ifndef WEIR_DEVICE_CPU_KERNEL_FOLD_H
#define WEIR_DEVICE_CPU_KERNEL_FOLD_H

#include <stdint.h>

#include "device/cpu/kernel_internal.h"

typedef enum cpu_fold_kind {
  CPU_FOLD_SUM,
  CPU_FOLD_PROD,
  CPU_FOLD_MAX, /* NaN wins */
  CPU_FOLD_MIN,
  CPU_FOLD_SQUARES, /* the sum of (x - center)², floats only */
  CPU_FOLD_COUNT
} cpu_fold_kind;

typedef struct cpu_fold {
  /* Folds n dense elements into *acc. */
  void (*row)(int64_t n, const void *x, cpu_element *acc, double center);
  /* Folds x[i] into acc[i]. */
  void (*column)(int64_t n, const void *x, cpu_element *acc, const cpu_element *center);
  cpu_element start;
} cpu_fold;

/* source: IR_F32, IR_F64 or IR_I64. */
const cpu_fold *cpu_fold_of(cpu_fold_kind kind, ir_dtype source);

#endif
