#include "device/cuda/lower.h"

status cuda_prepare_body(const rt_plan *plan, const rt_task *task, arena *memory, cuda_kernel *k) {
  check(task->n_operands == task->body->n_params);
  check(rt_task_n_results(task) == task->body->n_results);
  k->name = "body";
  cg_kernel_init(&k->code, memory);
  if (cuda_lower_body(plan, task, memory, k)) return STATUS_OK;
  k->code.n_launches = 0;
  k->code.scratch_bytes = 0;
  return cuda_prepare_steps(plan, task, true, memory, k);
}
