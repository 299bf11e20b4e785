/* Kernels as text: CUDA C, written out of the op table for one shape of work.
 *
 * This room writes text and knows no device. It is given views that are already placed in one space
 * (device/cuda/kernel_place.c does that): a start and one stride per dimension, 0 where a view repeats.
 * It returns launches: source text, entry, grid, and the two blocks of arguments that every kernel takes
 * by value,
 *
 *   extern "C" __global__ void ENTRY(const ENTRY_p p, const ENTRY_n n)
 *
 * `p` holds addresses, `n` 64-bit numbers. Text depends on what makes code differ (op, dtypes, number
 * of dimensions after collapsing, how wide loads may be, 32 or 64 bit positions) and never on extents,
 * strides or constants, which are numbers. So few texts serve many shapes, and a text is a good key
 * for a cache of compiled programs. The entry's name contains a hash of the text, and definitions that
 * texts share have include guards: any number of texts can be joined into one program.
 *
 * The text includes no header, so NVRTC needs nothing but itself. It is plain enough for a C compiler
 * too: tests/standin/cuda_shim.h runs it on the CPU.
 *
 * Everything here allocates from an arena: only inside a memory_guard(). */
#ifndef WEIR_CODEGEN_CODEGEN_H
#define WEIR_CODEGEN_CODEGEN_H

#include "base/memory.h"
#include "ir/fold.h"
#include "ir/ir.h"
#include "ir/op.h"

/* ---- results: launches ---- */
/* A pointer of a launch: `offset_bytes` after the start of the task's result (0), its operand k (k + 1), its further
 * result k > 0 (the number of operands + k), its scratch memory, its error record, or the seed of the run
 * (8 bytes). */
enum {
  CG_START_SEED = UINT32_MAX - 2,
  CG_START_SCRATCH = UINT32_MAX - 1,
  CG_START_ERROR = UINT32_MAX
};
typedef struct cg_pointer {
  uint32_t start;
  int64_t offset_bytes;
} cg_pointer;

typedef struct cg_launch {
  const char *source; /* ends in NUL */
  size_t source_bytes;
  const char *entry;
  bool moves;              /* it only copies: not needed if addresses 0 and 1 are equal */
  bool joins;              /* the text may be compiled together with other texts that say so */
  uint32_t grid[3], block; /* block: threads, along x */
  uint32_t shared_bytes;   /* dynamic shared memory, beside what the text declares */
  uint32_t n_pointers, n_numbers;
  const cg_pointer *pointers; /* argument 0: n_pointers addresses */
  const int64_t *numbers;     /* argument 1; never empty */
} cg_launch;

/* The properties of a GPU that decide how kernels are written. */
typedef struct cg_gpu {
  uint32_t shared_bytes; /* the most that a launch can have */
  uint32_t units;        /* its multiprocessors */
  bool is_90; /* of compute capability 9.0: products of four warps, and copies of tiles */
} cg_gpu;
#define CG_H100 (&(const cg_gpu){227 << 10, 132, true})
#define CG_A10 (&(const cg_gpu){99 << 10, 72, false})

/* Launches that run one after the other. */
typedef struct cg_kernel {
  arena *memory;
  uint32_t n_launches, cap_launches;
  cg_launch *launches;
  size_t scratch_bytes; /* device memory that the launches need for themselves */
  cg_gpu gpu;
} cg_kernel;

void cg_kernel_init(cg_kernel *k, arena *memory, const cg_gpu *gpu);
void cg_kernel_add(cg_kernel *k, const cg_launch *launch);

/* The record in which a kernel reports an index that is out of range; zeroed before the run. */
typedef struct cg_error {
  int64_t index;
  uint32_t raised, pad;
} cg_error;

/* ---- arguments: views and operations ---- */
/* The alignment of starts. */
enum { CG_ALIGN = 16 };

typedef struct cg_view {
  uint32_t start; /* as in cg_pointer */
  ir_dtype dtype;
  int64_t offset_bytes;
  /* The alignment of the start: a power of two, CG_ALIGN at most. */
  uint32_t align;
  int64_t strides[IR_MAX_RANK]; /* in elements, per dimension of the space */
} cg_view;

/* Where the elements of a map come from. */
typedef enum cg_source_kind {
  CG_VIEW,
  CG_CONSTANT, /* `number`, as an f64 or i64 */
  CG_KEY, /* the key of random stream `number` for the seed of the run; only for IR_OP_UNIFORM */
  CG_POSITION, /* the view's offset at this position, in elements, + `first`: an i64, no memory */
  CG_INDEXED, /* the view, `index` times `step` elements further; an index not in 0 … n - 1 is an error */
  CG_RESHAPED, /* the element with row-major number `index` of a view with dimensions of its own */
} cg_source_kind;

typedef struct cg_source {
  cg_source_kind kind;
  cg_view view;
  ir_number number;
  int64_t first;
  uint32_t index; /* INDEXED, RESHAPED: the earlier source that has the index */
  int64_t step, n;
  uint32_t rank; /* RESHAPED: of the operand, like the strides of its view */
  int64_t extents[IR_MAX_RANK];
} cg_source;

/* One scalar operation: a pointwise op, or IR_OP_UNIFORM of (position, key, lo, hi). An operand is the
 * number of a source, or n_sources + the number of an earlier step; operands are converted to `compute`
 * first. The result is rounded to `result`. */
enum { CG_MAX_OPERANDS = 4 };
typedef struct cg_step {
  ir_opcode code;
  ir_dtype compute, result;
  bool mode; /* the op's choice attribute */
  uint32_t n_operands, operands[CG_MAX_OPERANDS];
  /* exp: an error below 2^-15 of the value is allowed. uniform: from 0 to 1, of a float up to f32. */
  bool quick;
} cg_step;

/* Element by element: result[i] = the value at i of the last step or, without steps, of the last source. */
enum { CG_MAX_SOURCES = 8, CG_MAX_STEPS = 16 };
typedef struct cg_map {
  const char *name; /* of the entry, for profilers */
  uint32_t rank;
  int64_t extents[IR_MAX_RANK]; /* none of them 0 */
  cg_view result;
  uint32_t n_sources, n_steps;
  cg_source sources[CG_MAX_SOURCES];
  cg_step steps[CG_MAX_STEPS];
} cg_map;
void cg_write_map(cg_kernel *k, const cg_map *m);

/* The accumulator of a fold of elements of dtype t. */
ir_dtype cg_fold_dtype(ir_fold fold, ir_dtype t);

/* sum prod amax amin mean var: the first n_kept dimensions are the result's, the others are folded.
 * divisor: of mean and var. */
typedef struct cg_reduce {
  ir_opcode code;
  uint32_t n_kept, n_reduced;
  int64_t extents[IR_MAX_RANK];
  cg_view result, x;
  double divisor;
} cg_reduce;
void cg_write_reduce(cg_kernel *k, const cg_reduce *r);

/* softmax layer_norm rms_norm: the last dimension is the row, of `n` elements; the result has `count`
 * of them from `first` on. x begins at the row's first element; result, weight and bias at `first`. */
typedef struct cg_rows {
  ir_opcode code;
  uint32_t rank;
  int64_t extents[IR_MAX_RANK]; /* the last one is n */
  int64_t first, count;
  cg_view result, x, weight, bias;
  bool has_weight, has_bias;
  double eps;
} cg_rows;
void cg_write_rows(cg_kernel *k, const cg_rows *r);

/* cumsum argsort topk topk_index one_hot group_index: lines along one axis, whose entry in `extents` is
 * 1. A line of x has `n` elements, `x_step` apart; a line of the result has `count` elements of the
 * whole result, from `first` on. one_hot: a line of x is one index below `whole`, and n is count.
 * group_index: x has n lengths, of `whole` rows at most. */
typedef struct cg_lines {
  ir_opcode code;
  uint32_t rank;
  int64_t extents[IR_MAX_RANK];
  cg_view result, x;
  int64_t result_step, x_step;
  int64_t n, first, count, whole;
  bool descending; /* of orders */
} cg_lines;
void cg_write_lines(cg_kernel *k, const cg_lines *l);

/* The second half of a scatter: one thread takes each line along the indexed axis, in order, so that the
 * later of two writes wins. Strides along the axis are `…_step`; targets below `low` or from `end` on are
 * outside the window. */
typedef struct cg_scatter {
  uint32_t rank; /* of the lines */
  int64_t extents[IR_MAX_RANK];
  int64_t length; /* of a line */
  cg_view result, index, source;
  int64_t result_step, index_step, source_step;
  int64_t n, low, end; /* the size of the axis; the window */
  bool runs;           /* an update: there is one index, and a line is written from there on */
  int64_t positions;   /* update: how many values the index may have */
  bool adds; /* adds to the target in the accumulator's dtype, rounded once; a thread per target */
} cg_scatter;
void cg_write_scatter(cg_kernel *k, const cg_scatter *s);

/* c[…, m, n] = sum over k of a[…, m, k] * b[…, k, n], + bias. The first rank - 3 dimensions are a
 * batch; then m, n, k. */
typedef struct cg_matmul {
  uint32_t rank;
  int64_t extents[IR_MAX_RANK];
  cg_view c, a, b, bias;
  bool has_bias;
  /* b is one of `n_groups` matrices, `group_step` elements apart: the one whose number the index of a
   * row gives. If that is n_groups, there is none, and the row is 0. Without a bias. */
  bool grouped;
  cg_view index;
  int64_t n_groups, group_step;
  /* Or position g of the last dimension of the batch sums those positions along k whose index is
   * first_group + g; indexes are index_step elements apart, and n_groups is the number of all
   * groups. */
  bool by_depth;
  int64_t first_group, index_step;
} cg_matmul;
void cg_write_matmul(cg_kernel *k, const cg_matmul *m);

/* softmax(q · kᵀ · scale) · v. The first rank - 2 dimensions are a batch, then [L or S, E or Ev]; the
 * extents are the result's. `first`, for `causal`: the position of the first query in the whole tensor. */
typedef struct cg_sdpa {
  uint32_t rank;
  int64_t extents[IR_MAX_RANK];
  int64_t keys, width; /* S, E */
  cg_view out, q, k, v;
  cg_view lse; /* the second result, without columns */
  bool keeps_lse;
  bool causal;
  int64_t first;
  double scale;
} cg_sdpa;
void cg_write_sdpa(cg_kernel *k, const cg_sdpa *s);

/* Its gradients. The space is [batch …, heads of k and v, heads of q for each of these, row, column];
 * `extents` has all but the last two. */
typedef struct cg_sdpa_backward {
  uint32_t rank;
  int64_t extents[IR_MAX_RANK];
  int64_t queries, keys, width, value_width, group;
  cg_view q, k, v, out, lse, dout, dq, dk, dv;
  uint32_t n_gradients; /* how many of dq, dk, dv are wanted, in this order */
  bool causal;
  double scale;
} cg_sdpa_backward;
void cg_write_sdpa_backward(cg_kernel *k, const cg_sdpa_backward *s);

#endif
