/* Operands as the positions of a task's result see them. */
#include "runtime/task.h"

void rt_task_window(const rt_plan *plan, const rt_task *t, int64_t offset[IR_MAX_RANK],
                    int64_t whole[IR_MAX_RANK]) {
  const rt_view *result = &plan->views[t->result];
  for (uint32_t d = 0; d < result->rank; d++) {
    offset[d] = t->offset ? t->offset[d] : 0;
    whole[d] = t->whole ? t->whole[d] : result->extents[d];
  }
}

void rt_align(uint32_t n, uint32_t dims, int from[IR_MAX_RANK]) {
  check(n <= dims && dims <= IR_MAX_RANK);
  for (uint32_t d = 0; d < IR_MAX_RANK; d++)
    from[d] = d < dims && d + n >= dims ? (int)(d + n - dims) : RT_NO_DIM;
}

void rt_align_with(uint32_t n, uint32_t dims, uint32_t at, uint32_t dim, int from[IR_MAX_RANK]) {
  rt_align(n, dims, from);
  from[at] = (int)dim;
}

int64_t rt_task_place(const rt_plan *plan, const rt_task *t, uint32_t k, const int *from,
                      int64_t strides[IR_MAX_RANK]) {
  const rt_view *result = &plan->views[t->result];
  rt_view x = rt_task_operand(plan, t, k);
  int64_t start = 0;
  for (uint32_t d = 0; d < result->rank; d++) {
    if (from[d] == RT_NO_DIM || x.extents[from[d]] == 1) continue;
    int64_t first = t->offset && !rt_task_sliced(t, k, d) ? t->offset[d] : 0;
    check(first + result->extents[d] <= x.extents[from[d]]);
    strides[d] = x.strides[from[d]];
    start += first * strides[d];
  }
  return start;
}

int64_t rt_task_place_numbers(const rt_plan *plan, const rt_task *t, uint32_t cut,
                              int64_t strides[IR_MAX_RANK]) {
  const rt_view *result = &plan->views[t->result];
  int64_t offset[IR_MAX_RANK], whole[IR_MAX_RANK], stride = 1, first = 0;
  rt_task_window(plan, t, offset, whole);
  for (uint32_t d = result->rank; d-- > 0;) {
    bool counts_here = cut >> d & 1;
    strides[d] = stride;
    first += counts_here ? 0 : offset[d] * stride;
    stride *= counts_here ? result->extents[d] : whole[d];
  }
  return first;
}
