/* The vendor's libraries, loaded when the first device is opened: the binary needs none of them to start.
 *
 * There is one table of functions per library (driver.def, nvrtc.def, cublaslt.def); types come from the
 * toolkit's headers. A function is called as cu->cuMemAlloc(...). */
#ifndef WEIR_DEVICE_CUDA_VENDOR_H
#define WEIR_DEVICE_CUDA_VENDOR_H

#include <cublasLt.h>
#include <cuda.h>
#include <nvrtc.h>

#include "base/status.h"
#include "device/cuda/kernel.h"

typedef struct cuda_vendor {
#define SYMBOL(name) __typeof__(&name) name;
#include "device/cuda/cublaslt.def"
#include "device/cuda/driver.def"
#include "device/cuda/nvrtc.def"
#undef SYMBOL
} cuda_vendor;

/* Loads all of them, once per process. UNAVAILABLE says what is missing. */
NODISCARD status cuda_vendor_load(const cuda_vendor **result);
/* The functions that compile kernels, of the same libraries. */
const cuda_compiler *cuda_vendor_compiler(void);

/* For libraries that only some programs need: loads the first one that is found (NULL: none is); looks up functions,
 * each of which goes to its place in `functions`. UNAVAILABLE names the missing one. */
typedef struct cuda_symbol {
  const char *name;
  size_t offset; /* among the functions */
} cuda_symbol;
void *cuda_library_open(const char *const *names, size_t n);
NODISCARD status cuda_library_find(void *library, const char *which, const cuda_symbol *symbols,
                                   size_t n, void *functions);

/* The result of a call of the driver as a status; `what` was attempted, for the message. */
NODISCARD status cuda_try(CUresult r, const char *what);
/* The same for the library of matrix products. */
NODISCARD status cuda_try_lt(cublasStatus_t r, const char *what);

#endif
