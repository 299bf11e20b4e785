/* Errors that kernels find while they run (errors.c). */
#ifndef WEIR_DEVICE_CUDA_ERRORS_H
#define WEIR_DEVICE_CUDA_ERRORS_H

#include "device/cuda/device.h"

/* Makes the records of a plan, when the number of its kernels' records is known. */
NODISCARD status cuda_errors_make(cuda_loaded *l);
/* Clears the records before a run that the host waits for, when nothing of the plan is under way. */
void cuda_errors_clear(cuda_loaded *l);
/* Returns the error of a run that is over. */
NODISCARD status cuda_errors_tell(cuda_loaded *l);
/* Notes that a run was issued that nobody waits for. */
void cuda_errors_follow(cuda_loaded *l);
/* Returns the error that such a run of any plan has found. If there is none yet, it does not wait. */
NODISCARD status cuda_errors_earlier(cuda_device *d);
/* For a plan that is unloaded: its errors are not returned any more; then, when its streams are done, they
 * are written to the log. */
void cuda_errors_leave(cuda_loaded *l);
void cuda_errors_end(cuda_loaded *l);

#endif
