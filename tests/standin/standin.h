/* Stand-ins for NVIDIA's libraries, so that the CUDA device runs on machines without a GPU.
 *
 * build/tests/standin holds libcuda.so.1, libnvrtc.so.13, libcublasLt.so.13 and libcudnn.so.9; with
 * that folder in LD_LIBRARY_PATH, --device cuda runs on GPUs that are not there. Streams are
 * queues, worked off in random legal orders; memory is known by range; kernels are compiled by the
 * system's C compiler. What a real driver would let pass silently, or punish some other day, ends
 * the process with a message.
 *
 * Environment:
 *   WEIR_STANDIN_GPUS=N        that many GPUs (1)
 *   WEIR_STANDIN_PEERS=0       none of them reads another's memory
 *   WEIR_STANDIN_ORDER=...     eager: work runs when it can; lazy: only when somebody waits for it, or
 *                              nothing else happens for a while; else, now one, now the other
 *   WEIR_STANDIN_SEED=N        of all random choices (1)
 *   WEIR_STANDIN_FAIL=F:N      call number N (from 1) of function F fails, say cuMemAlloc:2 or
 *                              cublasLtMatmul:1; kernel:N: the N-th kernel fails while it runs;
 *                              F:N+: all calls from that one on. A test may change this while it runs
 *   WEIR_STANDIN_PRODUCTS=0    cublasLt knows no algorithm for any product
 *   WEIR_STANDIN_KERNELS=skip  any machine code loads, and kernels do nothing: fills the cache of compiled
 *                              kernels with what the vendor's own NVRTC makes
 *   WEIR_STANDIN_MISUSE=return misuse gives an error code and goes on (for tests of the stand-ins) */
#ifndef WEIR_TESTS_STANDIN_H
#define WEIR_TESTS_STANDIN_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#define STANDIN_API __attribute__((visibility("default")))

/* Memory that work reads or writes: checked when it runs. */
typedef struct standin_range {
  CUdeviceptr at;
  size_t size_bytes;
} standin_range;

/* Work of another library, put on a stream as a kernel would be, recorded by captures too. */
typedef struct standin_work {
  const char *name; /* of a static text */
  void (*run)(void *args);
  bool (*ready)(void *args); /* may it begin? Called often, with a lock held. NULL: always */
  const void *args;          /* copied */
  size_t args_bytes;
  const standin_range *ranges; /* copied */
  size_t n_ranges;
} standin_work;

STANDIN_API CUresult standin_submit(CUstream stream, const standin_work *work);

/* Whether this call of the function is the one that WEIR_STANDIN_FAIL names. */
STANDIN_API bool standin_fails(const char *function);
/* Says what is wrong and ends the process, unless WEIR_STANDIN_MISUSE=return. */
STANDIN_API void standin_misuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
