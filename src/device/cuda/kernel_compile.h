/* Compiles texts into machine code, several at a time.
 *
 * A call of NVRTC has fixed costs, whatever it compiles (20 ms of 35 for a small kernel), and a part of it runs
 * in one thread of the process at a time. So texts are joined into a few programs, which threads compile in
 * parallel: enough programs that the last one is done early, and few enough that the fixed costs do not weigh
 * more (cuda_compile_programs()).
 *
 * On a terminal (stderr), after more than a second, it shows how many programs are done.
 *
 * The threads only call NVRTC. The caller's thread allocates all memory and reports all errors, in the order of
 * the programs, whichever thread was first. */
#ifndef WEIR_DEVICE_CUDA_KERNEL_COMPILE_H
#define WEIR_DEVICE_CUDA_KERNEL_COMPILE_H

#include "device/cuda/kernel.h"

enum {
  CUDA_MOST_TEXTS = 16, /* of one program: more of them save nothing */
  CUDA_COMPILED =
      2, /* part of the keys of kept programs: increase it when the compiler's options change */
};

/* What is compiled in one call. */
typedef struct cuda_job {
  const char *source; /* ends in NUL */
  void *program;      /* of NVRTC; NULL: it could not be created */
  int result;         /* of the compiler */
} cuda_job;

typedef struct cuda_compile_options {
  const cuda_compiler *compiler;
  const char *arch; /* "--gpu-architecture=sm_90a" */
  int version;      /* of NVRTC: the major number */
} cuda_compile_options;

/* How many programs to make of `texts` texts, with `threads` threads. */
uint32_t cuda_compile_programs(uint32_t texts, uint32_t threads);
/* How many threads may compile: as many as the process has cores. */
uint32_t cuda_compile_threads(void);

/* Fills in `program` and `result` of all jobs. */
void cuda_compile_all(const cuda_compile_options *options, cuda_job *jobs, uint32_t n);
/* The machine code of a job, allocated; or why there is none. `name`: of the kernel, for the message. */
NODISCARD status cuda_compile_take(const cuda_compile_options *options, const cuda_job *job,
                                   const char *name, const allocator *memory, void **image,
                                   size_t *size_bytes);
void cuda_compile_end(const cuda_compile_options *options, cuda_job *job);

#endif
