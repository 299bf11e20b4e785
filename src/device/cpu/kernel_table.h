/* Tables of functions of bf16: all 2^16 results. Looking one up gives the same bits as computing
 * it; which is faster depends on the function and on the processor. */
#ifndef WEIR_DEVICE_CPU_KERNEL_TABLE_H
#define WEIR_DEVICE_CPU_KERNEL_TABLE_H

#include "device/cpu/kernel_internal.h"

enum { CPU_TABLE_WORTH = 1 << 17 }; /* elements that are worth making a table for */

/* A loop for the operation: the lookup of loops/loops.h with the table it needs, or with NULL the
 * loop that computes. */
typedef struct cpu_table {
  cpu_map_fn *map;
  const uint16_t *results;
} cpu_table;

/* The faster one, by times that are taken on first use. The operation has one operand; `mode` as in
 * cpu_map_fn. */
cpu_table cpu_table_of(ir_opcode code, bool mode);

/* For tests: the table, whether it is faster or not; NULL: such operations are always computed. */
const uint16_t *cpu_table_results(ir_opcode code, bool mode);

#endif
