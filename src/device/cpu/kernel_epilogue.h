/* Bodies of a product and of elementwise operations that follow it.
 *
 * The product is computed where the result of the body will be, block by block; each block, while it is in
 * the cache, is then overwritten in place by a tile program of the other steps. So every step rounds as it
 * does alone, and nothing has memory of its own. */
#ifndef WEIR_DEVICE_CPU_KERNEL_EPILOGUE_H
#define WEIR_DEVICE_CPU_KERNEL_EPILOGUE_H

#include "device/cpu/kernel_internal.h"

enum { CPU_MAX_OTHERS = 4 };

typedef struct cpu_epilogue {
  const rt_plan *plan;
  const rt_body *body;
  uint32_t product; /* the step */
  uint32_t starts[RT_MAX_OPERANDS +
                  1]; /* of the product's operands, by operand + 1: of the body's task */
  uint32_t n_others;
  uint32_t params[CPU_MAX_OTHERS]; /* of the body: what the other steps read besides the product */
  cpu_view others[CPU_MAX_OTHERS]; /* the same, in the dimensions of the result */
} cpu_epilogue;

/* *result stays NULL where the body has not that form. */
NODISCARD status cpu_prepare_epilogue(const rt_plan *plan, const rt_task *task, arena *memory,
                                      cpu_kernel **result);

/* A block of the result and of what is read besides, in elements; a stride of 0 repeats. */
typedef struct cpu_epilogue_block {
  int64_t rows, columns;
  int64_t row_strides[1 + CPU_MAX_OTHERS], column_strides[1 + CPU_MAX_OTHERS];
} cpu_epilogue_block;

/* The kernel for blocks of that shape. Its starts: the result, the result again, then the others. */
NODISCARD status cpu_epilogue_kernel(const cpu_epilogue *e, const cpu_epilogue_block *block,
                                     arena *memory, const cpu_kernel **result);

#endif
