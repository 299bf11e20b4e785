/* Turns a task into launches: the table of families, and which tasks may share launches. */
#include "device/cuda/kernel.h"

#include "device/cuda/kernel_body.h"
#include "device/cuda/kernel_place.h"

static cuda_prepare_fn *const families[] = {
#define CUDA(kernel, body) cuda_prepare_##kernel
#define FAMILY(id, group, ir, shard, host, join, ref, runtime, cpu, cuda) [IR_FAMILY_##id] = cuda,
#include "ir/families.def"
};

status cuda_kernel_prepare(const rt_plan *plan, const rt_task *task, const cg_gpu *gpu,
                           arena *memory, const cuda_kernel **result) {
  cuda_kernel *k = ARENA_NEW(memory, cuda_kernel);
  rt_plan made;
  rt_task grouped;
  cg_kernel_init(&k->code, memory, gpu);
  if (task->body) {
    TRY(cuda_prepare_body(plan, task, memory, k));
    *result = k;
    return STATUS_OK;
  }
  if (!rt_task_is_empty(plan, task) && cuda_prepare_single(plan, task, memory, k)) {
    *result = k;
    return STATUS_OK;
  }
  if (rt_task_has_groups(plan, task)) {
    TRY(rt_task_group_heads(plan, task, memory, &made, &grouped));
    plan = &made;
    task = &grouped;
  }
  cuda_call c = cuda_call_of(plan, task, k);
  k->name = c.info->name;
  if (!rt_task_is_empty(plan, task)) TRY(families[c.info->family](&c));
  *result = k;
  return STATUS_OK;
}

void cuda_set_indexed(const cuda_call *c, uint32_t dim, int64_t n) {
  cuda_indexed *where = ARENA_NEW(c->kernel->code.memory, cuda_indexed);
  *where = (cuda_indexed){c->info->name, dim, n};
  c->kernel->indexed = where;
  c->kernel->n_indexed = 1;
}

status cuda_kernel_fail(const cuda_kernel *k, uint32_t record, const cg_error *error) {
  const cuda_indexed *where = &k->indexed[record];
  return rt_fail_index(where->op, error->index, where->dim, where->n);
}
