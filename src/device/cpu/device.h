/* Inside the CPU device: a loaded program, and the errors of its tasks.
 *
 * Two executors share them. device.c and device_threads.c run the streams on compute threads, as fast
 * as they can; adversary.c runs them on the calling thread in an order chosen to do harm.
 * docs/runtime.md tells how both work. */
#ifndef WEIR_DEVICE_CPU_DEVICE_H
#define WEIR_DEVICE_CPU_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>

#include "device/cpu/kernels.h"
#include "runtime/device.h"
#include "runtime/queues.h"

enum { CPU_LINE_BYTES = 64 };

/* Memory aligned to a cache line: `block` is what memory_free() takes. */
NODISCARD status cpu_alloc_aligned(const allocator *memory, size_t size_bytes, void **block,
                                   void **aligned);

/* ---- programs (device_program.c) ---- */
typedef struct cpu_program {
  const rt_plan *plan;
  const allocator *allocator;
  arena memory; /* queues, kernels, bases */
  rt_queues queues;
  const cpu_kernel **kernels; /* by task; equal tasks share one */
  uint32_t n_kernels;
  char **bases;       /* by buffer */
  uint32_t *external; /* buffers that are the caller's memory */
  uint32_t n_external;
  char *pool;
  void *pool_block;
  char *scratch; /* one part per compute thread: for kernels, then for the starts of a task */
  size_t scratch_bytes, part_bytes;
  uint32_t max_starts;
  void *scratch_block;
} cpu_program;

/* Prepares every task and allocates all that `threads` threads need to run them. On failure nothing
 * is left behind. */
NODISCARD status cpu_program_init(cpu_program *p, const rt_plan *plan, uint32_t threads,
                                  const allocator *memory);
void cpu_program_destroy(cpu_program *p); /* accepts a zeroed program */
/* Takes the caller's memory for the next run. */
void cpu_program_bind(cpu_program *p, void *const *inputs, void *const *outputs);

/* ---- errors of tasks (device_program.c) ----
 * The failing task that comes first in the plan is the one reported. Tasks behind it are skipped,
 * those before it still run, so the error is the same in every order of execution. */
typedef struct cpu_errors {
  _Atomic uint32_t first; /* instruction; UINT32_MAX: none; 0: no task runs any more */
  pthread_mutex_t lock;   /* of what follows */
  status st;
  uint32_t instr; /* that failed */
  char message[2048];
} cpu_errors;

void cpu_errors_reset(cpu_errors *e);
/* Instruction `instr` failed. Takes the message of the calling thread. */
void cpu_errors_keep(cpu_errors *e, uint32_t instr, status st);
/* Something other than an instruction failed: nothing more is run. An error of a task stays the one
 * reported. Takes the message of the calling thread. */
void cpu_errors_stop(cpu_errors *e, status st);
/* Ends the run: records the error for the calling thread. */
status cpu_errors_report(cpu_errors *e);

/* Runs the task of an entry on compute thread `thread`, unless an earlier one failed. Fills its span
 * when `spans` is not NULL, in ns from `origin_ns`. */
void cpu_program_run(const cpu_program *p, const rt_entry *entry, uint16_t stream, uint32_t thread,
                     rt_span *spans, int64_t origin_ns, cpu_errors *errors);

#endif
