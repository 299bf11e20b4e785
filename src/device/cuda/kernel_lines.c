/* Operations along lines of one axis: cumsum, argsort, topk, topk_index, one_hot, group_index. */
#include "device/cuda/kernel_place.h"

/* The lines of the result; the operand is placed from where they start. */
static cg_lines lines_of(const cuda_call *c, uint32_t dim) {
  cg_lines l = {.code = c->task->code, .rank = c->result->rank};
  l.result = cuda_place_result(c);
  l.result_step = c->result->strides[dim];
  l.first = c->offset[dim];
  l.count = c->result->extents[dim];
  for (uint32_t d = 0; d < l.rank; d++) l.extents[d] = d == dim ? 1 : c->result->extents[d];
  return l;
}

static cg_lines place_axis(const cuda_call *c, uint32_t dim) {
  rt_view x = rt_task_operand(c->plan, c->task, 0);
  cg_lines l = lines_of(c, dim);
  int from[IR_MAX_RANK];
  rt_align(x.rank, x.rank, from);
  from[dim] = RT_NO_DIM;
  l.x = cuda_place(c, 0, from);
  l.x_step = x.strides[dim];
  l.n = x.extents[dim];
  return l;
}

status cuda_prepare_scan(const cuda_call *c) {
  uint32_t dim = rt_task_dim(c->task, "dim", c->result->rank);
  cg_lines l = place_axis(c, dim);
  if (rt_task_sliced(c->task, 0, dim)) l.first = 0;
  cg_write_lines(&c->kernel->code, &l);
  return STATUS_OK;
}

status cuda_prepare_sort(const cuda_call *c) {
  cg_lines l = place_axis(c, rt_task_dim(c->task, "dim", c->result->rank));
  l.descending = l.code != IR_OP_ARGSORT || rt_task_int(c->task, "descending") != 0;
  cg_write_lines(&c->kernel->code, &l);
  if (!c->task->n_more) return STATUS_OK;
  l.code = IR_OP_TOPK_INDEX; /* the indices, in a launch of their own */
  l.result = cuda_place_more(c, 1);
  l.result_step = l.result.strides[rt_task_dim(c->task, "dim", c->result->rank)];
  cg_write_lines(&c->kernel->code, &l);
  return STATUS_OK;
}

/* The last dimension has n positions; the index has the other dimensions. */
status cuda_prepare_one_hot(const cuda_call *c) {
  uint32_t last = c->result->rank - 1;
  cg_lines l = lines_of(c, last);
  int from[IR_MAX_RANK];
  rt_align(last, last, from);
  l.x = cuda_place(c, 0, from);
  l.n = l.count;
  l.whole = c->whole[last];
  cuda_set_indexed(c, last, l.whole);
  cg_write_lines(&c->kernel->code, &l);
  return STATUS_OK;
}

/* In an error record an index is below `n`; a sum of lengths may equal the number of rows, so n is one more. */
status cuda_prepare_group_index(const cuda_call *c) {
  uint32_t last = c->result->rank - 1;
  cg_lines l = place_axis(c, last);
  l.whole = c->whole[last];
  cuda_set_indexed(c, last, l.whole + 1);
  cg_write_lines(&c->kernel->code, &l);
  return STATUS_OK;
}
