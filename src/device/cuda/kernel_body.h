/* Tasks with bodies: one kernel if there is a form for the body, otherwise step by step. */
#ifndef WEIR_DEVICE_CUDA_KERNEL_BODY_H
#define WEIR_DEVICE_CUDA_KERNEL_BODY_H

#include "device/cuda/kernel_place.h"

/* Result r of a task as the start of a cg_pointer. */
static inline uint32_t cuda_start_of_result(const rt_task *t, uint32_t r) {
  return r == 0 ? 0 : t->n_operands + r;
}

/* Writes some single operations as bodies of one step: pointwise ones with operands that are dense along
 * other dimensions than the result, which go through tiles; softmax and norms of short rows. False: it is
 * neither, or there is no form for it. */
bool cuda_prepare_single(const rt_plan *plan, const rt_task *task, arena *memory, cuda_kernel *k);

/* Writes a body in parts, with the values between them in scratch memory (kernel_steps.c). joined: runs of
 * steps that have a form are one part; otherwise every step is a part. */
NODISCARD status cuda_prepare_steps(const rt_plan *plan, const rt_task *task, bool joined,
                                    arena *memory, cuda_kernel *k);

#endif
