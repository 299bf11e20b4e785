/* CPU kernels: a task of a plan, made ready once and run many times.
 *
 * Preparing a task folds its window, its attributes and its views into loops: nothing is looked up,
 * interpreted per element or allocated while it runs. A prepared kernel is immutable, so any number
 * of threads may run it, and any others, at the same time; what a run needs besides the buffers is
 * the scratch memory of its thread.
 *
 * Numbers: f32 and f64 are computed natively, f16 and bf16 in f32, integers natively and wrapping
 * around. docs/kernels.md says how the kernels differ from the reference evaluator. */
#ifndef WEIR_DEVICE_CPU_KERNELS_H
#define WEIR_DEVICE_CPU_KERNELS_H

#include "runtime/task.h"

typedef struct cpu_kernel cpu_kernel;

/* Makes `task` ready; the kernel lives in `memory` and reads nothing of the plan any more but
 * the seed of the run. Only inside a
 * memory_guard(). An attribute that no run could obey (a select outside its axis, the maximum of
 * nothing) is STATUS_BAD_PROGRAM. */
NODISCARD status cpu_kernel_prepare(const rt_plan *plan, const rt_task *task, arena *memory,
                                    const cpu_kernel **result);

/* A kernel does not know where its views begin: tasks that differ in nothing else (rt_task_equal()) share
 * one. */

/* Scratch that a run of this kernel needs. A thread sizes its own once, for the largest kernel. */
size_t cpu_kernel_scratch_bytes(const cpu_kernel *k);
enum { CPU_SCRATCH_ALIGN = 64 };

/* Where the views of a task begin: its result, then one per operand (NULL where that is no view), then its
 * further results. bases: the address of each buffer of the plan. */
enum { CPU_MAX_STARTS = 1 + RT_MAX_OPERANDS + RT_MAX_RESULTS };
static inline uint32_t cpu_kernel_n_starts(const rt_task *task) {
  return task->n_operands + rt_task_n_results(task);
}
static inline void cpu_kernel_starts(const rt_plan *plan, const rt_task *task, char *const *bases,
                                     char **starts) {
  const rt_view *r = &plan->views[task->result];
  starts[0] = bases[r->buffer] + r->offset_bytes;
  for (uint32_t k = 0; k < task->n_operands; k++) {
    const rt_operand *o = &task->operands[k];
    const rt_view *x = o->kind == RT_OPERAND_VIEW ? &plan->views[o->view] : NULL;
    starts[k + 1] = x ? bases[x->buffer] + x->offset_bytes : NULL;
  }
  for (uint32_t k = 1; k <= task->n_more; k++) {
    const rt_view *x = &plan->views[rt_task_result(task, k)];
    starts[task->n_operands + k] = bases[x->buffer] + x->offset_bytes;
  }
}

/* The same in a later repetition of its loop. */
static inline void cpu_kernel_move(const rt_plan *plan, const rt_task *task, uint32_t turn,
                                   char **starts) {
  starts[0] += turn * plan->views[task->result].step_bytes;
  for (uint32_t k = 0; k < task->n_operands; k++)
    if (task->operands[k].kind == RT_OPERAND_VIEW)
      starts[k + 1] += turn * plan->views[task->operands[k].view].step_bytes;
  for (uint32_t k = 1; k <= task->n_more; k++)
    starts[task->n_operands + k] += turn * plan->views[rt_task_result(task, k)].step_bytes;
}

/* Runs the kernel, all of it. starts: as above. scratch: aligned to CPU_SCRATCH_ALIGN, of at least
 * cpu_kernel_scratch_bytes(), used by no other thread meanwhile.
 * An index out of range is STATUS_BAD_PROGRAM; the message of this thread names op and value. */
NODISCARD status cpu_kernel_run(const cpu_kernel *k, char *const *starts, void *scratch);

/* A kernel whose work is worth more than one thread has parts, which may run in any order and at the same
 * time, each with scratch of its own; then comes the end, once, if none failed. 0: it has none.
 * shared: what all of them share, a place in the scratch of the thread that begins the launch. */
uint32_t cpu_kernel_parts(const cpu_kernel *k);
char *cpu_kernel_shared(const cpu_kernel *k, char *scratch);
NODISCARD status cpu_kernel_run_part(const cpu_kernel *k, uint32_t part, char *const *starts,
                                     void *scratch, void *shared);
NODISCARD status cpu_kernel_finish(const cpu_kernel *k, char *const *starts, void *scratch,
                                   void *shared);

/* A kernel may be several that run one after the other, each with parts of its own; most are one. Stages are
 * asked for in order, each after the end of the one before. Their starts are in `scratch`, that of the thread that
 * begins the launch. Every thread that runs a part uses its own scratch from `scratch_at` on. */
typedef struct cpu_stage {
  const cpu_kernel *kernel;
  char *const *starts;
  size_t scratch_at;
} cpu_stage;
uint32_t cpu_kernel_stages(const cpu_kernel *k);
cpu_stage cpu_kernel_stage(const cpu_kernel *k, uint32_t i, char *const *starts, char *scratch);

#endif
