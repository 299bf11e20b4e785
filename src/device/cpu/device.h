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
/* Memory for buffers and scratch. All programs of a device share one, since one of them runs at a time: it is as
 * large as the largest needs. */
typedef struct cpu_pool {
  const allocator *memory;
  void *block;
  char *base; /* of the block, aligned */
  size_t size_bytes;
  uint32_t users; /* programs */
} cpu_pool;

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
  cpu_pool *shared;
  bool counted;  /* as one of its users */
  char *pool;    /* where buffers are, as of the last run */
  char *scratch; /* one piece per compute thread: for kernels, then for the starts of a task */
  size_t scratch_bytes, piece_bytes;
  uint32_t max_starts, threads;
} cpu_program;

/* Prepares every task for `threads` threads. On failure nothing is left over. */
NODISCARD status cpu_program_init(cpu_program *p, const rt_plan *plan, uint32_t threads,
                                  cpu_pool *shared, const allocator *memory);
/* Makes the pool large enough for it. No program of the device may run meanwhile, nor while one is destroyed. */
NODISCARD status cpu_program_reserve(cpu_program *p);
void cpu_program_destroy(cpu_program *p); /* accepts a zeroed program */
/* Takes the caller's memory for the next run, and the pool as it is now. */
void cpu_program_bind(cpu_program *p, void *const *inputs, void *const *outputs);

/* ---- errors of tasks (device_program.c) ----
 * The failing task that comes first in the plan is the one reported. Tasks after it are skipped,
 * those before it still run, so the error is the same in every order of execution. */
typedef struct cpu_errors {
  _Atomic uint32_t first; /* instruction; UINT32_MAX: none; 0: no task runs any more */
  pthread_mutex_t lock;   /* of what follows */
  status st;
  bool placed;          /* an instruction failed, and not something else */
  uint32_t instr, part; /* that failed */
  char message[2048];
} cpu_errors;

void cpu_errors_reset(cpu_errors *e);
/* Instruction `instr` failed, in its part `part` (0: it has none). Of one instruction the error of the
 * first part is kept. Takes the message of the calling thread. */
void cpu_errors_keep(cpu_errors *e, uint32_t instr, uint32_t part, status st);
/* Something other than an instruction failed: nothing more is run. An error of a task stays the one
 * reported. Takes the message of the calling thread. */
void cpu_errors_stop(cpu_errors *e, status st);
/* The caller wants no more of it. */
void cpu_errors_cancel(cpu_errors *e);
/* Ends the run: records the error for the calling thread, with the line of the task that failed. */
status cpu_errors_report(cpu_errors *e, const rt_plan *plan);

/* ---- running (device_program.c) ---- */
/* A run of a loaded program, as launches see it. */
typedef struct cpu_run {
  const cpu_program *program;
  cpu_errors *errors;
  rt_span *spans; /* or NULL */
  int64_t origin_ns;
} cpu_run;

/* A launch, or a stage of one, whose kernel has parts, while it runs. */
typedef struct cpu_launch {
  const cpu_run *run;
  const cpu_kernel *kernel;
  uint32_t instr, n_parts;
  char *const *starts;
  size_t scratch_at; /* in the scratch of each thread */
  char *shared;
} cpu_launch;

/* Runs one part on compute thread `thread`; false: it failed, and its error is kept. A part that was
 * begun must be run to its end, even if a later one fails: the first one's error is the one reported. */
bool cpu_launch_run_part(const cpu_launch *l, uint32_t part, uint32_t thread);
/* How an executor runs the parts of a launch: all of them, or up to one that fails. Returns when none is
 * running any more. */
typedef void cpu_parts_fn(void *executor, const cpu_launch *l);

/* Runs the task of an entry on compute thread `thread`, unless an earlier one failed; its parts, if it has
 * any, by parts(executor, …). Fills its span. */
void cpu_program_run(const cpu_run *run, const rt_entry *entry, uint16_t stream, uint32_t thread,
                     cpu_parts_fn *parts, void *executor);

#endif
