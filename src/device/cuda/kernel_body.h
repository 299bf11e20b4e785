/* Tasks with bodies: one kernel where there is a form for the body, step by step otherwise. */
#ifndef WEIR_DEVICE_CUDA_KERNEL_BODY_H
#define WEIR_DEVICE_CUDA_KERNEL_BODY_H

#include "device/cuda/kernel_place.h"

/* Result r of a task as the start of a cg_pointer. */
static inline uint32_t cuda_start_of_result(const rt_task *t, uint32_t r) {
  return r == 0 ? 0 : t->n_operands + r;
}

/* As a body of one step: a pointwise operation whose operands are dense along other dimensions than
 * its result, which goes through tiles; softmax and norms of short rows. False: it is none of them,
 * or has no form. */
bool cuda_prepare_single(const rt_plan *plan, const rt_task *task, arena *memory, cuda_kernel *k);

/* In parts, with values between them in scratch memory (kernel_steps.c). joined: runs of steps that have a
 * form are one part; otherwise every step is. */
NODISCARD status cuda_prepare_steps(const rt_plan *plan, const rt_task *task, bool joined,
                                    arena *memory, cuda_kernel *k);

#endif
