/* Checks that the tensors of a run share no memory that they must not share. */
#ifndef WEIR_API_OVERLAP_H
#define WEIR_API_OVERLAP_H

#include "base/memory.h"
#include "ir/array.h"

/* A tensor of the caller, or a shard of one. */
typedef struct api_operand {
  const ir_array *array;
  const char *what; /* "output y" */
  bool is_output;
} api_operand;

/* BAD_USAGE if an output shares memory with an input or another output. Addresses of different devices are
 * different: they share one address space. Needs a memory_guard(). */
NODISCARD status api_check_overlap(const api_operand *operands, size_t n, arena *scratch);

#endif
