/* What the files of the CPU kernels share.
 *
 * Preparing works in three steps that every family uses:
 *   place      each operand as the result's positions see it: a start and one stride per dimension of
 *              the result (0 where it repeats), with the window already added      (cpu_place)
 *   collapse   dimensions that all views walk evenly become one; the last one is the run  (cpu_loops)
 *   transfer   runs of another dtype or stride pass through dense blocks of the native type, the one
 *              computed in                                                    (cpu_transfer)
 * Running then walks the outer dimensions and calls one dense loop per run or block. */
#ifndef WEIR_DEVICE_CPU_KERNEL_INTERNAL_H
#define WEIR_DEVICE_CPU_KERNEL_INTERNAL_H

#include "device/cpu/kernels.h"
#include "device/cpu/loops/loops.h"

/* The start of every kernel. A kernel runs as a whole (`run`), in parts, or in stages.
 *
 * Parts are independent: they write different bytes, may run in any order and at the same time, and none
 * reads what another writes. How many there are follows from the shapes alone, never from the machine or
 * from idle threads, so that results do not depend on either. A part should take 50 us or more, some
 * 500 us at most; work below 100 us stays whole, because waking a thread costs that much.
 *
 * What parts leave for one another lies in `shared`, of `shared_bytes`: one per launch, contents
 * undefined at first. `finish` runs once, after all parts and if none failed.
 *
 * Stages are kernels that run one after the other, without stages of their own. */
struct cpu_kernel {
  status (*run)(const cpu_kernel *k, char *const *starts, char *scratch);
  uint32_t n_parts; /* 0: `run` is called, else these */
  status (*run_part)(const cpu_kernel *k, uint32_t part, char *const *starts, char *scratch,
                     char *shared);
  status (*finish)(const cpu_kernel *k, char *const *starts, char *scratch,
                   char *shared); /* or NULL */
  uint32_t n_stages;              /* 0: none, else these */
  cpu_stage (*stage)(const cpu_kernel *k, uint32_t i, char *const *starts, char *scratch);
  size_t scratch_bytes, shared_bytes;
  const char *name; /* of the op, for messages */
};

enum { CPU_BLOCK = 512 }; /* elements that pass through scratch at a time */

/* ---- a task while it is made ready (kernel.c) ---- */
typedef struct cpu_call {
  const rt_plan *plan;
  const rt_task *task;
  const ir_op_info *info;
  arena *memory;
  const rt_view *result;
  /* Where the result begins in the whole, and the whole's extents; 0 and the result's own extents
   * where there is no window. */
  int64_t offset[IR_MAX_RANK], whole[IR_MAX_RANK];
  const struct cpu_epilogue *epilogue; /* of a product: what follows it; NULL: nothing */
} cpu_call;
cpu_call cpu_call_of(const rt_plan *plan, const rt_task *task, arena *memory);

/* A kernel of `size_bytes`, its head filled in. */
void *cpu_kernel_new(const cpu_call *c, size_t size_bytes,
                     status (*run)(const cpu_kernel *, char *const *, char *));
#define CPU_KERNEL_NEW(c, type, run) ((type *)cpu_kernel_new((c), sizeof(type), (run)))

/* Its buffer is its place among the starts of the task (cpu_kernel_starts), where it has offset 0. A
 * number is a view of rank 0. */
rt_view cpu_operand(const cpu_call *c, uint32_t k);
/* ---- views ---- */
typedef struct cpu_view {
  void *constant; /* a number of the plan, f64 or i64; else NULL */
  uint32_t start; /* in the task's starts */
  ir_dtype dtype;
  int64_t offset_bytes;
  int64_t strides[IR_MAX_RANK]; /* in elements, per dimension of the space it is placed in */
} cpu_view;

static inline char *cpu_view_start(const cpu_view *v, char *const *starts) {
  return v->constant ? v->constant : starts[v->start] + v->offset_bytes;
}
static inline void cpu_view_advance(cpu_view *v, int64_t elements) {
  v->offset_bytes += elements * (int64_t)ir_dtype_size_bytes(v->dtype);
}

cpu_view cpu_place_result(const cpu_call *c);
/* A further result, k > 0, in its own dimensions. */
const rt_view *cpu_result(const cpu_call *c, uint32_t k);
cpu_view cpu_place_more(const cpu_call *c, uint32_t k);
/* The operand's first element, repeated everywhere: all strides 0, no window. */
cpu_view cpu_place_start(const cpu_call *c, uint32_t k);
/* As rt_task_place(). */
cpu_view cpu_place(const cpu_call *c, uint32_t k, const int *from);
/* The result and operand 0, of the same rank, for kernels that go along dimension `dim` themselves: there
 * the operand stays at its beginning, and the extent is 1. */
void cpu_place_lines(const cpu_call *c, uint32_t dim, cpu_view views[2],
                     int64_t extents[IR_MAX_RANK]);
/* Broadcast as in NumPy. */
cpu_view cpu_place_aligned(const cpu_call *c, uint32_t k);

/* As rt_task_place_numbers(), as a view whose byte offsets are the numbers. */
int64_t cpu_place_numbers(const cpu_call *c, uint32_t cut, cpu_view *numbers);

/* ---- loops (kernel_loops.c) ---- */
enum { CPU_MAX_VIEWS = 8 };

typedef struct cpu_loops {
  uint32_t n_views, rank; /* rank >= 1 */
  int64_t extents[IR_MAX_RANK];
  int64_t steps[CPU_MAX_VIEWS][IR_MAX_RANK]; /* in bytes */
} cpu_loops;

/* BY_FIRST: the order of dimensions is free, the first view's smallest stride goes inside. */
typedef enum cpu_loop_order { CPU_IN_ORDER, CPU_BY_FIRST } cpu_loop_order;

void cpu_loops_make(cpu_loops *l, cpu_loop_order order, uint32_t rank, const int64_t *extents,
                    const cpu_view *views, uint32_t n_views);
/* The dimension other than `dim` that the view walks in the smallest steps, if they are smaller than
 * those along `dim`; `rank`: there is none. Lines along `dim` lie side by side along it. */
uint32_t cpu_columns_of(const cpu_view *v, uint32_t rank, const int64_t *extents, uint32_t dim);
/* Moves dimension `from` to position `to`, the ones between move up. */
void cpu_loops_move(cpu_loops *l, uint32_t from, uint32_t to);

static inline int64_t cpu_run_length(const cpu_loops *l) { return l->extents[l->rank - 1]; }
static inline int64_t cpu_run_step(const cpu_loops *l, uint32_t view) {
  return l->steps[view][l->rank - 1];
}

typedef struct cpu_walk {
  int64_t index[IR_MAX_RANK];
  char *at[CPU_MAX_VIEWS];
} cpu_walk;

cpu_walk cpu_walk_start(const cpu_loops *l, const cpu_view *views, char *const *starts);

/* The next position of all but the `inner` last dimensions; false after the last. The first
 * `n_views` views move. */
static inline bool cpu_walk_step(const cpu_loops *l, cpu_walk *w, uint32_t inner,
                                 uint32_t n_views) {
  for (uint32_t d = l->rank - inner; d-- > 0;) {
    for (uint32_t v = 0; v < n_views; v++) w->at[v] += l->steps[v][d];
    if (++w->index[d] < l->extents[d]) return true;
    for (uint32_t v = 0; v < n_views; v++) w->at[v] -= l->steps[v][d] * l->extents[d];
    w->index[d] = 0;
  }
  return false;
}
static inline bool cpu_walk_next(const cpu_loops *l, cpu_walk *w, uint32_t inner) {
  return cpu_walk_step(l, w, inner, l->n_views);
}

/* Where view `v` is, from its start; for views that are not memory. */
static inline int64_t cpu_walk_offset(const cpu_loops *l, const cpu_walk *w, uint32_t v) {
  int64_t offset = 0;
  for (uint32_t d = 0; d + 1 < l->rank; d++) offset += w->index[d] * l->steps[v][d];
  return offset;
}

/* ---- dtypes (kernel_convert.c) ---- */
/* What `t` is computed in: f32 for f16 and bf16, else `t`. */
static inline ir_dtype cpu_native(ir_dtype t) { return ir_dtype_accumulator(t); }

cpu_convert_fn *cpu_convert_of(ir_dtype to, ir_dtype from);

/* Elements of 1, 2, 4 or 8 bytes, steps in bytes. */
void cpu_copy_strided(size_t size_bytes, int64_t n, char *to, int64_t to_step, const char *from,
                      int64_t from_step);
void cpu_fill_strided(size_t size_bytes, int64_t n, char *to, int64_t step, const void *value);
/* to[i * to_row + j * to_step] = from[i * size + j * from_step] for i < rows, j < n. */
void cpu_transpose(size_t size_bytes, int64_t rows, int64_t n, char *to, int64_t to_row,
                   int64_t to_step, const char *from, int64_t from_step);

/* The way between runs in memory and dense native elements: at most two conversions. */
typedef struct cpu_transfer {
  size_t size_bytes, native_bytes; /* of an element in memory, and of a native one */
  int64_t step;
  cpu_convert_fn *convert[2];
  bool direct; /* memory already holds dense native elements */
} cpu_transfer;

/* Bytes of scratch for `n` elements on their way: two buffers. */
static inline size_t cpu_transfer_bytes(int64_t n) {
  return 2 * (((size_t)n * 8 + CPU_SCRATCH_ALIGN - 1) & ~(size_t)(CPU_SCRATCH_ALIGN - 1));
}

/* Loading converts to `compute` first (rounding there), then to `native`, by default what `compute` is
 * computed in. */
cpu_transfer cpu_transfer_load_as(ir_dtype dtype, int64_t step, ir_dtype compute, ir_dtype native);
static inline cpu_transfer cpu_transfer_load(ir_dtype dtype, int64_t step, ir_dtype compute) {
  return cpu_transfer_load_as(dtype, step, compute, cpu_native(compute));
}
cpu_transfer cpu_transfer_store(ir_dtype dtype, int64_t step, ir_dtype native);
/* The elements, in `scratch` (cpu_transfer_bytes(n)) unless direct. */
const void *cpu_load(const cpu_transfer *t, int64_t n, const char *from, char *scratch);
/* The same, always at `to`. */
void cpu_load_to(const cpu_transfer *t, int64_t n, const char *from, void *to, char *scratch);
/* Where to compute results that go to `to`: there if direct, else in `block`; then bring them there.
 * scratch: half of cpu_transfer_bytes(n), not in the block. */
static inline void *cpu_store_target(const cpu_transfer *t, char *to, void *block) {
  return t->direct ? to : block;
}
void cpu_store(const cpu_transfer *t, int64_t n, char *to, const void *block, char *scratch);

/* ---- copies that others build on (kernel_copy.c) ---- */
typedef struct cpu_copy {
  cpu_loops loops;
  cpu_view views[2]; /* to, from */
  cpu_transfer load, store;
  bool converts, transposes;
} cpu_copy;

void cpu_copy_make(cpu_copy *copy, uint32_t rank, const int64_t *extents, const cpu_view *to,
                   const cpu_view *from);
size_t cpu_copy_scratch_bytes(const cpu_copy *copy);
/* `to` and `from`: where the views begin. */
void cpu_copy_run(const cpu_copy *copy, char *to, char *from, char *scratch);

/* A number as an element. */
cpu_element cpu_element_of(ir_dtype t, ir_number n);

/* ---- one function per family ---- */
typedef status cpu_prepare_fn(const cpu_call *c, cpu_kernel **result);
#define CPU(kernel, tile) cpu_prepare_##kernel
#define FAMILY(id, group, ir, shard, host, join, ref, runtime, cpu, ...) cpu_prepare_fn cpu;
#include "ir/families.def"

#endif
