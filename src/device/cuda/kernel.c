/* From a task to launches: the table of families, and which tasks may share them. */
#include "device/cuda/kernel.h"

#include "base/table.h"
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
  }
  impossible("a family of operations");
}

static bool is_empty(const rt_view *v) {
  for (uint32_t d = 0; d < v->rank; d++)
    if (v->extents[d] == 0) return true;
  return false;
}

status cuda_kernel_prepare(const rt_plan *plan, const rt_task *task, arena *memory,
                           const cuda_kernel **result) {
  cuda_kernel *k = ARENA_NEW(memory, cuda_kernel);
  cuda_call c = cuda_call_of(plan, task, k);
  k->name = c.info->name;
  cg_kernel_init(&k->code, memory);
  if (!is_empty(c.result)) TRY(family_prepare(c.info->family)(&c));
  *result = k;
  return STATUS_OK;
}

status cuda_kernel_fail(const cuda_kernel *k, const cg_error *error) {
  return cuda_fail_index(k->name, error->index, k->dim, k->n);
}

/* ---- sharing ---- */
static bool equal_views(const rt_view *a, const rt_view *b) {
  return a->dtype == b->dtype && a->rank == b->rank && a->extents == b->extents &&
         a->strides == b->strides && (a->offset_bytes - b->offset_bytes) % CUDA_BUFFER_ALIGN == 0;
}

static bool equal_operands(const rt_plan *plan, const rt_operand *a, const rt_operand *b) {
  if (a->kind != b->kind || a->sliced != b->sliced) return false;
  switch (a->kind) {
  case RT_OPERAND_NONE: return true;
  case RT_OPERAND_VIEW: return equal_views(&plan->views[a->view], &plan->views[b->view]);
  case RT_OPERAND_NUMBER: return ir_number_same(*a->number, *b->number);
  }
  return false;
}

bool cuda_kernel_equal(const rt_plan *plan, const rt_task *a, const rt_task *b) {
  if (a->code != b->code || a->compute != b->compute || a->n_operands != b->n_operands ||
      a->attrs != b->attrs || a->offset != b->offset || a->whole != b->whole ||
      !equal_views(&plan->views[a->result], &plan->views[b->result]))
    return false;
  for (uint32_t k = 0; k < a->n_operands; k++)
    if (!equal_operands(plan, &a->operands[k], &b->operands[k])) return false;
  return true;
}

static uint64_t hash_view(uint64_t hash, const rt_view *v) {
  hash = hash_mix(hash, (uint64_t)v->dtype << 8 | v->rank);
  hash = hash_mix(hash, (uint64_t)v->offset_bytes % CUDA_BUFFER_ALIGN);
  return hash_mix(hash_mix(hash, (uintptr_t)v->extents), (uintptr_t)v->strides);
}

uint64_t cuda_kernel_hash(const rt_plan *plan, const rt_task *task) {
  uint64_t hash = hash_mix(hash_mix(0, (uint64_t)task->code), (uintptr_t)task->attrs);
  hash = hash_mix(hash_mix(hash, (uintptr_t)task->offset), (uintptr_t)task->whole);
  hash = hash_view(hash, &plan->views[task->result]);
  for (uint32_t k = 0; k < task->n_operands; k++) {
    const rt_operand *o = &task->operands[k];
    if (o->kind == RT_OPERAND_VIEW)
      hash = hash_view(hash_mix(hash, o->sliced), &plan->views[o->view]);
    if (o->kind == RT_OPERAND_NUMBER) hash = hash_mix(hash, (uint64_t)o->number->i);
  }
  return hash;
}
