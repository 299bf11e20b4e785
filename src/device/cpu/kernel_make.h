/* Elements that depend on their number alone: iota and uniform. */
#ifndef WEIR_DEVICE_CPU_KERNEL_MAKE_H
#define WEIR_DEVICE_CPU_KERNEL_MAKE_H

#include "device/cpu/kernel_internal.h"

typedef struct cpu_maker cpu_maker;

/* Of an iota or uniform of that dtype. */
const cpu_maker *cpu_maker_new(const rt_plan *plan, const rt_task *task, ir_dtype dtype,
                               arena *memory);
/* Writes n dense elements, from element `number` on in steps of `step`: i64 of iota, f64 of uniform. */
void cpu_maker_fill(const cpu_maker *m, int64_t n, int64_t number, int64_t step, void *to);

#endif
