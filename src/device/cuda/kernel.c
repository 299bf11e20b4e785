/* From a task to launches: the table of families, and which tasks may share them. */
#include "device/cuda/kernel.h"

#include "device/cuda/kernel_body.h"
#include "device/cuda/kernel_place.h"

static cuda_prepare_fn *family_prepare(ir_family family) {
  switch (family) {
  case IR_FAMILY_POINTWISE: return cuda_prepare_map;
  case IR_FAMILY_REDUCE:
  case IR_FAMILY_MOMENT: return cuda_prepare_reduce;
  case IR_FAMILY_SET:
  case IR_FAMILY_CAST:
  case IR_FAMILY_BROADCAST:
  case IR_FAMILY_SQUEEZE:
  case IR_FAMILY_EXPAND:
  case IR_FAMILY_PERMUTE:
  case IR_FAMILY_SLICE:
  case IR_FAMILY_SELECT: return cuda_prepare_copy;
  case IR_FAMILY_RESHAPE: return cuda_prepare_reshape;
  case IR_FAMILY_PAD: return cuda_prepare_pad;
  case IR_FAMILY_CAT: return cuda_prepare_cat;
  case IR_FAMILY_MAKER: return cuda_prepare_maker;
  case IR_FAMILY_GATHER: return cuda_prepare_gather;
  case IR_FAMILY_SCATTER: return cuda_prepare_scatter;
  case IR_FAMILY_UPDATE: return cuda_prepare_update;
  case IR_FAMILY_INDEX_SELECT: return cuda_prepare_index_select;
  case IR_FAMILY_SCAN: return cuda_prepare_scan;
  case IR_FAMILY_SORT:
  case IR_FAMILY_TOPK: return cuda_prepare_sort;
  case IR_FAMILY_ONE_HOT: return cuda_prepare_one_hot;
  case IR_FAMILY_MATMUL: return cuda_prepare_matmul;
  case IR_FAMILY_LINEAR: return cuda_prepare_linear;
  case IR_FAMILY_SOFTMAX: return cuda_prepare_softmax;
  case IR_FAMILY_NORM: return cuda_prepare_norm;
  case IR_FAMILY_SDPA: return cuda_prepare_sdpa;
  case IR_FAMILY_SDPA_BACKWARD: return cuda_prepare_sdpa_backward;
  }
  impossible("a family of operations");
}

status cuda_kernel_prepare(const rt_plan *plan, const rt_task *task, arena *memory,
                           const cuda_kernel **result) {
  cuda_kernel *k = ARENA_NEW(memory, cuda_kernel);
  rt_plan made;
  rt_task grouped;
  if (task->body) {
    TRY(cuda_prepare_body(plan, task, memory, k));
    *result = k;
    return STATUS_OK;
  }
  if (!rt_task_is_empty(plan, task) && cuda_prepare_crossed(plan, task, memory, k)) {
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
  cg_kernel_init(&k->code, memory);
  if (!rt_task_is_empty(plan, task)) TRY(family_prepare(c.info->family)(&c));
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
