/* What kernels find wrong while they run (errors.c). */
#ifndef WEIR_DEVICE_CUDA_ERRORS_H
#define WEIR_DEVICE_CUDA_ERRORS_H

#include "device/cuda/device.h"

/* The records of a plan, when it is known how many its kernels have. */
NODISCARD status cuda_errors_make(cuda_loaded *l);
/* Before a run that the host waits for, when nothing of the plan is under way. */
void cuda_errors_clear(cuda_loaded *l);
/* When a run is over: the error it found. */
NODISCARD status cuda_errors_tell(cuda_loaded *l);
/* A run was issued that nobody waits for. */
void cuda_errors_follow(cuda_loaded *l);
/* The error that such a run of any plan has found. Nothing is waited for if there is none yet. */
NODISCARD status cuda_errors_earlier(cuda_device *d);
/* A plan that is given back: nobody asks for its errors any more; then, when its streams are done,
 * the log gets them. */
void cuda_errors_leave(cuda_loaded *l);
void cuda_errors_end(cuda_loaded *l);

#endif
