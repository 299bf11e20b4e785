/* CUDA kernels: a task of a plan as launches of generated code, and the cache of compiled programs.
 *
 * Preparing a task writes text (codegen/) and needs neither CUDA nor a GPU. Loading compiles the text, or
 * finds it compiled in memory or on disk. Running is then
 *
 *   for each launch l:
 *     for each pointer i: address[i] = start of pointers[i] + pointers[i].offset_bytes
 *     void *params[] = {address, (void *)l->numbers};
 *     cuLaunchKernel(function, l->grid[0], l->grid[1], l->grid[2], l->block, 1, 1,
 *                    l->shared_bytes, stream, params, NULL)
 *
 * on one stream, in order. Only addresses (params[0]) differ between tasks that share a kernel, and between
 * runs.
 *
 * Starts. A view begins at its buffer's address + its offset_bytes. The kernels are written for buffers
 * aligned to CUDA_BUFFER_ALIGN: a caller's buffer that is not must be staged. Loads are as wide as the
 * offsets within the buffers allow, in every repetition of a loop.
 *
 * Scratch. A kernel may need device memory of its own (aligned likewise, with any contents); kernels of
 * one stream may share it.
 *
 * Errors. A kernel that takes indexes from memory has `n_indexed` records: give each such task that many
 * of its own (cg_error, contiguous, zeroed before every run, where the device can write) as
 * CG_START_ERROR. After the run the first one in plan order with `raised` set is the error, and
 * cuda_kernel_fail() makes its message.
 *
 * Bodies. What no kernel computes as a whole is computed step by step (kernel_body.c): each step is a
 * part, and values between parts are in the scratch memory. */
#ifndef WEIR_DEVICE_CUDA_KERNEL_H
#define WEIR_DEVICE_CUDA_KERNEL_H

#include "codegen/codegen.h"
#include "runtime/task.h"

enum { CUDA_BUFFER_ALIGN = 16 };

/* Where an index may be out of range: in `op`, along axis `dim`, which has `n` elements. */
typedef struct cuda_indexed {
  const char *op;
  uint32_t dim;
  int64_t n;
} cuda_indexed;

/* Launches [first, first + n_launches) compute `task` of `plan`. Its views begin at `starts`: the result,
 * then the operands, then further results. A device that has a library for the task may call that
 * instead. */
typedef struct cuda_part {
  uint32_t first, n_launches;
  const rt_plan *plan; /* NULL: no operation of its own */
  const rt_task *task;
  const cg_pointer *starts;
  /* A product with what follows it, which can replace this part and all after it; or NULL. */
  const rt_task *whole;
  const struct cuda_after *after;
  const cg_pointer *whole_starts;
} cuda_part;

typedef struct cuda_kernel {
  cg_kernel code;   /* n_launches 0: there is nothing to do */
  const char *name; /* of the op */
  uint32_t n_indexed, n_parts;
  const cuda_indexed *indexed;
  const cuda_part *parts; /* of a body; n_parts 0: one operation */
} cuda_kernel;

/* Prepares `task`. The kernel is in `memory` and does not read the plan afterwards. Only inside a
 * memory_guard(). An attribute that no run could obey is STATUS_BAD_PROGRAM. Matrix products become
 * generated kernels, for those that no library takes. gpu: the GPU that the kernels run on. */
NODISCARD status cuda_kernel_prepare(const rt_plan *plan, const rt_task *task, const cg_gpu *gpu,
                                     arena *memory, const cuda_kernel **result);

/* The alignment of the view within its buffer, in every repetition of a loop: a power of two, CG_ALIGN at most. */
uint32_t cuda_view_align(const rt_view *v);

/* Tasks that differ only in where their views begin, by multiples of CUDA_BUFFER_ALIGN (rt_task_equal()),
 * may share a kernel. */

/* STATUS_BAD_PROGRAM: "gather: index 7 is outside axis 0, which has 3 elements". */
status cuda_kernel_fail(const cuda_kernel *k, uint32_t record, const cg_error *error);

/* ---- compiled programs (kernel_programs.c) ---- */

/* The functions of NVRTC and the driver that compiling needs; int results are 0 for success. */
typedef struct cuda_compiler {
  int (*nvrtcVersion)(int *major, int *minor);
  int (*nvrtcCreateProgram)(void **program, const char *source, const char *name, int n_headers,
                            const char *const *headers, const char *const *include_names);
  int (*nvrtcDestroyProgram)(void **program);
  int (*nvrtcCompileProgram)(void *program, int n_options, const char *const *options);
  int (*nvrtcGetCUBINSize)(void *program, size_t *size_bytes);
  int (*nvrtcGetCUBIN)(void *program, char *cubin);
  int (*nvrtcGetProgramLogSize)(void *program, size_t *size_bytes);
  int (*nvrtcGetProgramLog)(void *program, char *log);
  /* In the context current to the calling thread; NULL in tests that only compile. */
  int (*cuModuleLoadData)(void **module, const void *image);
  int (*cuModuleUnload)(void *module);
  int (*cuModuleGetFunction)(void **function, void *module, const char *name);
  int (*cuFuncSetAttribute)(void *function, int attribute, int value);
} cuda_compiler;

typedef struct cuda_programs cuda_programs;

typedef struct cuda_programs_options {
  const cuda_compiler *compiler; /* must outlive the cache */
  int major, minor;              /* compute capability of the GPU: 9, 0 */
  /* Where compiled programs are kept; NULL: $XDG_CACHE_HOME/weir or ~/.cache/weir; "": nowhere. It is
   * made if missing, and left alone unless it is a folder that only its owner, the user, can write. */
  const char *folder;
} cuda_programs_options;

/* One cache per context. Its functions may be called from several threads; each call that may load a
 * module runs with the context current. */
NODISCARD status cuda_programs_open(const cuda_programs_options *options, const allocator *memory,
                                    cuda_programs **result);
void cuda_programs_close(cuda_programs *programs); /* unloads the modules; accepts NULL */

/* A launch, and its function (a CUfunction). */
typedef struct cuda_wanted {
  const cg_launch *launch;
  void *function;
  struct cuda_entry *entry; /* of the cache, meanwhile */
} cuda_wanted;

/* Gets the functions of launches. All that are missing are compiled together, which is much faster than one by
 * one. After a failure `function` is undefined. */
NODISCARD status cuda_programs_get_all(cuda_programs *programs, cuda_wanted *wanted, uint32_t n);
/* The same for one launch. */
NODISCARD status cuda_programs_get(cuda_programs *programs, const cg_launch *launch,
                                   void **function);

typedef struct cuda_programs_counts {
  uint32_t compiled, from_disk, from_memory; /* texts */
  uint32_t programs;                         /* that texts were compiled into */
} cuda_programs_counts;
cuda_programs_counts cuda_programs_count(const cuda_programs *programs);

#endif
