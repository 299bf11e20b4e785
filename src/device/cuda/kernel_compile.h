/* Texts into machine code, several at a time.
 *
 * A call of NVRTC has costs of its own, whatever it compiles (20 ms of 35 for a small kernel), and a part
 * of it runs in one thread of the process at a time. So texts are joined into a few programs, which
 * threads compile side by side. How many: enough that the last is done early, few enough that their own
 * costs do not weigh more (cuda_compile_programs()).
 *
 * On a terminal (stderr), after more than a second, it says how many programs are done.
 *
 * Threads do nothing else but call NVRTC. All memory is allocated, and all errors are told, by the caller's:
 * in the order of the programs, whatever thread was first. */
#ifndef WEIR_DEVICE_CUDA_KERNEL_COMPILE_H
#define WEIR_DEVICE_CUDA_KERNEL_COMPILE_H

#include "device/cuda/kernel.h"

enum {
  CUDA_MOST_TEXTS = 16, /* of one program: more of them save nothing */
  CUDA_COMPILED =
      2, /* counts up when the compiler's options change: what is kept was compiled so */
};

/* What is compiled in one call. */
typedef struct cuda_job {
  const char *source; /* ends in NUL */
  void *program;      /* of NVRTC; NULL: it took none */
  int result;         /* of the compiler */
} cuda_job;

typedef struct cuda_compile_options {
  const cuda_compiler *compiler;
  const char *arch; /* "--gpu-architecture=sm_90a" */
  int version;      /* of NVRTC: the major number */
} cuda_compile_options;

/* How many programs to make of so many texts, with so many threads. */
uint32_t cuda_compile_programs(uint32_t texts, uint32_t threads);
/* Threads that may compile: as many as the process has cores. */
uint32_t cuda_compile_threads(void);

/* Fills in `program` and `result` of all. */
void cuda_compile_all(const cuda_compile_options *options, cuda_job *jobs, uint32_t n);
/* The machine code of a job, allocated; or why there is none. `name`: of the kernel, for the message. */
NODISCARD status cuda_compile_take(const cuda_compile_options *options, const cuda_job *job,
                                   const char *name, const allocator *memory, void **image,
                                   size_t *size_bytes);
void cuda_compile_end(const cuda_compile_options *options, cuda_job *job);

#endif
