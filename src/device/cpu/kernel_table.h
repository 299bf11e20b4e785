/* Tables of functions of bf16: all 2^16 results. Looking one up is several times faster than computing it, and
 * gives the same bits. */
#ifndef WEIR_DEVICE_CPU_KERNEL_TABLE_H
#define WEIR_DEVICE_CPU_KERNEL_TABLE_H

#include "device/cpu/kernel_internal.h"

enum { CPU_TABLE_WORTH = 1 << 17 }; /* elements that are worth making a table for */

/* For the lookup of loops/loops.h; made on first use. NULL: the operation has no table, because it has several
 * operands or is as fast without. `mode` as in cpu_map_fn. */
const uint32_t *cpu_table_of(ir_opcode code, bool mode);

#endif
