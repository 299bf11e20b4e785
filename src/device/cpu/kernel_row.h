/* One row of a softmax; also used by attention. */
#ifndef WEIR_DEVICE_CPU_KERNEL_ROW_H
#define WEIR_DEVICE_CPU_KERNEL_ROW_H

#include "device/cpu/kernel_fold.h"

/* y = exp(x - max) / sum of that, n dense elements; y may be x. */
void cpu_softmax_f32(int64_t n, const void *x, void *y);
void cpu_softmax_f64(int64_t n, const void *x, void *y);

#endif
