/* What the kernels of products share: kernel_matmul.c, and kernel_matmul_groups.c for grouped ones. */
#ifndef WEIR_DEVICE_CPU_KERNEL_MATMUL_H
#define WEIR_DEVICE_CPU_KERNEL_MATMUL_H

#include "device/cpu/kernel_epilogue.h"
#include "device/cpu/kernel_gemm.h"

enum { C, A, B, BIAS, N_SIDES, OTHERS = N_SIDES, MOST_SIDES = N_SIDES + CPU_MAX_OTHERS };

/* A matrix that is multiplied as it lies in memory, or staged. */
typedef struct side {
  cpu_matrix shape; /* in elements, of the whole product */
  int64_t size_bytes;
  bool staged;
  bool by_columns; /* staged with columns dense, because memory is */
  bool turned;     /* staged with rows dense, though columns are in memory */
  cpu_transfer load, store;
} side;

typedef struct matmul_kernel {
  cpu_kernel head;
  const cpu_gemm_unit *unit;
  cpu_loops batch; /* views: c, a, b, bias, others; the run is a dimension like the others */
  cpu_view views[MOST_SIDES];
  uint32_t n_views; /* with the bias and the others, or without */
  bool has_bias;
  bool few; /* few rows: b is read once, as it lies */
  cpu_transfer few_load;
  bool grouped;                               /* the first of the others is the index of each row */
  int64_t n_groups, group_step;               /* in bytes */
  bool by_depth;                              /* or of each position of the depth */
  int64_t first_group, n_results, index_step; /* of item i: first_group + i % n_results; in bytes */
  side sides[MOST_SIDES];
  const cpu_kernel
      *after[2][2]; /* for blocks of full size, and with less rows or columns; or NULL */
  int64_t m, n, k;
  int64_t block_m, block_n;     /* of a block */
  int64_t blocks_m, blocks_n;   /* of one product */
  int64_t items, items_at_once; /* of the batch; a part has so many of them */
  ir_dtype native;
  size_t offsets[N_SIDES], transfer_offset, panel_offset, few_offset, after_offset; /* of scratch */
} matmul_kernel;

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t pieces(int64_t n, int64_t size) {
  check(size > 0);
  return (n + size - 1) / size;
}

/* ---- kernel_matmul.c ---- */
/* After views, k and the strides along k are set. n_last: does the result's last dimension belong to b alone?
 * Else n is 1. */
NODISCARD status cpu_matmul_plan(const cpu_call *c, matmul_kernel *g, bool n_last);
/* Rows from i on and columns from j on of c: all of k, in steps. Without b they are 0. */
void cpu_matmul_rows(const matmul_kernel *g, char *const *at, int64_t i, int64_t rows, int64_t j,
                     int64_t group, char *scratch);

/* ---- kernel_matmul_groups.c ---- */
/* Rows from i on of a block, run by run of rows of one group. */
NODISCARD status cpu_matmul_groups(const matmul_kernel *g, char *const *starts_at, int64_t i,
                                   int64_t j, char *scratch);
/* A block of the result of one group: the item of the batch says which. */
NODISCARD status cpu_matmul_outer(const matmul_kernel *g, int64_t item, char *const *at, int64_t i,
                                  int64_t rows, int64_t j, char *scratch);
/* The next positions of the depth, at most CPU_GEMM_DEPTH from *d on; 0: there are no more. */
int64_t cpu_matmul_next_depth(const matmul_kernel *g, const char *index, int64_t group, int64_t k,
                              int64_t *d);
/* For the plan of a grouped product: the index is the first of the others, and there is no bias. */
void cpu_matmul_place_index(matmul_kernel *g);
/* Groups are runs of rows, so the rows are those of the result, whatever b repeats along. */
void cpu_matmul_take_rows(matmul_kernel *g, const cpu_call *c);

#endif
