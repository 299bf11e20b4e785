/* A task while its kernel is written: operands, attributes, and views placed in the result's space.
 *
 * Placing an operand gives it a start, and one stride per dimension of the result, 0 where it repeats. The
 * start is moved to the window along each dimension along which the operand was not cut already. After
 * placing there are no windows, broadcasts, permutes or slices any more, only strides. */
#ifndef WEIR_DEVICE_CUDA_KERNEL_PLACE_H
#define WEIR_DEVICE_CUDA_KERNEL_PLACE_H

#include "device/cuda/kernel.h"

typedef struct cuda_call {
  const rt_plan *plan;
  const rt_task *task;
  const ir_op_info *info;
  const rt_view *result;
  /* Where the result begins in the whole, and the extents of the whole; without a window, 0 and the
   * result's own extents. */
  int64_t offset[IR_MAX_RANK], whole[IR_MAX_RANK];
  cuda_kernel *kernel; /* being written */
} cuda_call;

cuda_call cuda_call_of(const rt_plan *plan, const rt_task *task, cuda_kernel *kernel);

/* The choice attribute; pointwise operations have at most one attribute. */
bool cuda_attr_mode(const cuda_call *c);

/* ---- views ---- */
static inline void cuda_advance(cg_view *v, int64_t elements) {
  v->offset_bytes += elements * (int64_t)ir_dtype_size_bytes(v->dtype);
}

cg_view cuda_place_result(const cuda_call *c);
/* A further result, k > 0, in its own dimensions. */
cg_view cuda_place_more(const cuda_call *c, uint32_t k);
/* The operand's first element, repeated everywhere: all strides 0, no window. */
cg_view cuda_place_start(const cuda_call *c, uint32_t k);
/* As rt_task_place(). */
cg_view cuda_place(const cuda_call *c, uint32_t k, const int *from);
/* Places operand k with broadcasting as in NumPy. */
cg_view cuda_place_aligned(const cuda_call *c, uint32_t k);
/* The same as a source of a map: a constant if the operand is a number. */
cg_source cuda_source(const cuda_call *c, uint32_t k);
/* As rt_task_place_numbers(), as a source. */
cg_source cuda_positions(const cuda_call *c, uint32_t cut);

/* Notes that the kernel may find an index out of range along axis `dim`, which has `n` elements. */
void cuda_set_indexed(const cuda_call *c, uint32_t dim, int64_t n);

/* Is it a uniform from 0 to 1 whose values f32 can represent (cg_step.quick)? */
static inline bool cuda_is_unit(double lo, double hi, ir_dtype t) {
  return !(lo < 0) && !(lo > 0) && !(hi < 1) && !(hi > 1) && ir_dtype_is_float(t) && t != IR_F64;
}

/* A map over the result's space, still without sources. */
cg_map cuda_map(const cuda_call *c, const char *name);

/* ---- one function per family ---- */
typedef status cuda_prepare_fn(const cuda_call *c);

#define CUDA(kernel, body) cuda_prepare_##kernel
#define FAMILY(id, group, ir, shard, host, join, ref, runtime, cpu, cuda) cuda_prepare_fn cuda;
#include "ir/families.def"

/* For a task with a body. */
NODISCARD status cuda_prepare_body(const rt_plan *plan, const rt_task *task, arena *memory,
                                   cuda_kernel *k);

#endif
