/* Tables of pointwise loops, one per type computed in; each entry runs over dense elements. */
#ifndef WEIR_DEVICE_CPU_KERNEL_MAP_TABLE_H
#define WEIR_DEVICE_CPU_KERNEL_MAP_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/op.h"

/* x: the operands; to: results of the same type, or bytes of truth. mode: the choice attribute. */
typedef void cpu_map_fn(int64_t n, void *to, const void *const *x, bool mode);

extern cpu_map_fn *const cpu_map_f32[IR_OP_COUNT], *const cpu_map_f64[IR_OP_COUNT];
extern cpu_map_fn *const cpu_map_i64[IR_OP_COUNT], *const cpu_map_i32[IR_OP_COUNT];
extern cpu_map_fn *const cpu_map_i8[IR_OP_COUNT], *const cpu_map_u8[IR_OP_COUNT];
extern cpu_map_fn *const cpu_map_bool[IR_OP_COUNT];

#endif
