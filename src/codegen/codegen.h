/* Kernels as text: CUDA C, written out of the op table for one shape of work.
 *
 * This room writes text and knows no device. What it is given are views already placed in one space
 * (device/cuda/kernel_place.c does that): a start and one stride per dimension, 0 where a view repeats.
 * What it gives are launches: source text, entry, grid, and the two blocks of arguments every kernel
 * takes by value,
 *
 *   extern "C" __global__ void ENTRY(const pointers p, const numbers v)
 *
 * Text depends on what makes code differ (op, dtypes, number of dimensions after collapsing, how wide
 * loads may be, 32 or 64 bit positions) and never on extents, strides or constants, which are numbers.
 * So few texts serve many shapes, and a text is a good key for a cache of compiled programs.
 *
 * The text includes no header: NVRTC needs nothing but itself. */
#ifndef WEIR_CODEGEN_CODEGEN_H
#define WEIR_CODEGEN_CODEGEN_H

#include "base/memory.h"

/* Where a pointer of a launch comes from: the start of the task's result (0) or of its operand k
 * (k + 1), its scratch memory, its error record; then so many bytes further. */
enum { CG_START_SCRATCH = UINT32_MAX - 1, CG_START_ERROR = UINT32_MAX };
typedef struct cg_pointer {
  uint32_t start;
  int64_t offset_bytes;
} cg_pointer;

typedef struct cg_launch {
  const char *source; /* ends in NUL */
  size_t source_bytes;
  const char *entry;
  uint32_t grid[3], block; /* block: threads, along x */
  uint32_t n_pointers, n_numbers;
  const cg_pointer *pointers; /* argument 0: n_pointers addresses */
  const int64_t *numbers;     /* argument 1: as it stands; never empty */
} cg_launch;

/* Launches that run one after the other. */
typedef struct cg_kernel {
  uint32_t n_launches;
  cg_launch *launches;
  size_t scratch_bytes; /* memory of the device that nobody else uses meanwhile */
} cg_kernel;

/* What a kernel that met an index outside its axis leaves behind; zeroed before the run. */
typedef struct cg_error {
  int64_t index;
  uint32_t raised, pad;
} cg_error;

#endif
