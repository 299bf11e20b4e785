/* Copies: operations whose result is a view of their operand, and those that are several copies.
 *
 *   set cast broadcast squeeze expand permute transpose slice select    one copy
 *   pad                                                                 a fill, then one copy
 *   cat                                                                 one copy per operand
 *   reshape    one copy by the row-major numbers of elements */
#include "device/cuda/kernel_place.h"

static void write_copy(const cuda_call *c, const cg_source *from) {
  cg_map m = cuda_map(c, "copy");
  m.n_sources = 1;
  m.sources[0] = *from;
  cg_write_map(&c->kernel->code, &m);
}

/* ---- views of one operand ---- */
static cg_view place_slice(const cuda_call *c) {
  rt_view x = rt_task_operand(c->plan, c->task, 0);
  cg_view v = cuda_place_start(c, 0);
  for (uint32_t d = 0; d < x.rank; d++) {
    int64_t start = rt_task_slice_start(c->task, &x, d, c->offset[d]);
    if (c->result->extents[d] > 1) v.strides[d] = x.strides[d] * rt_task_slice_step(c->task, d);
    cuda_advance(&v, start * x.strides[d]);
  }
  return v;
}

static status place_select(const cuda_call *c, cg_view *result) {
  rt_view x = rt_task_operand(c->plan, c->task, 0);
  uint32_t dim;
  int64_t index;
  int from[IR_MAX_RANK];
  TRY(rt_task_selected(c->task, &x, &dim, &index));
  rt_task_from(c->task, x.rank, from);
  *result = cuda_place(c, 0, from);
  cuda_advance(result, index * x.strides[dim]);
  return STATUS_OK;
}

static cg_view place_moved(const cuda_call *c) {
  uint32_t rank = rt_task_operand(c->plan, c->task, 0).rank;
  int from[IR_MAX_RANK];
  if (rt_task_moves_dims(c->task)) rt_task_from(c->task, rank, from);
  else rt_align(rank, c->result->rank, from);
  return cuda_place(c, 0, from);
}

status cuda_prepare_copy(const cuda_call *c) {
  cg_source from = {.kind = CG_VIEW};
  if (c->task->operands[0].kind == RT_OPERAND_NUMBER) from = cuda_source(c, 0);
  else if (c->info->family == IR_FAMILY_SELECT) TRY(place_select(c, &from.view));
  else if (c->info->family == IR_FAMILY_SLICE) from.view = place_slice(c);
  else from.view = place_moved(c);
  write_copy(c, &from);
  return STATUS_OK;
}

/* ---- reshape ---- */
/* Is element number i, in row-major order, always i steps from the first one? */
static bool walks_evenly(const rt_view *x, int64_t *step) {
  int64_t count = 1;
  *step = 0;
  for (uint32_t d = x->rank; d-- > 0;) {
    if (x->extents[d] == 1) continue;
    if (count == 1) *step = x->strides[d];
    else if (x->strides[d] != *step * count) return false;
    count *= x->extents[d];
  }
  return true;
}

status cuda_prepare_reshape(const cuda_call *c) {
  rt_view x = rt_task_operand(c->plan, c->task, 0);
  cg_source numbers = cuda_positions(c, c->task->operands[0].sliced);
  cg_source from = {.kind = CG_VIEW, .view = cuda_place_start(c, 0)};
  int64_t step;
  if (c->task->operands[0].kind == RT_OPERAND_NUMBER || x.rank == 0) return cuda_prepare_copy(c);
  if (walks_evenly(&x, &step)) {
    for (uint32_t d = 0; d < c->result->rank; d++)
      from.view.strides[d] = numbers.view.strides[d] * step;
    cuda_advance(&from.view, numbers.first * step);
    write_copy(c, &from);
    return STATUS_OK;
  }
  cg_map m = cuda_map(c, "reshape");
  from.kind = CG_RESHAPED;
  from.index = 0;
  from.rank = x.rank;
  for (uint32_t d = 0; d < x.rank; d++) {
    from.extents[d] = x.extents[d];
    from.view.strides[d] = x.strides[d];
  }
  m.sources[m.n_sources++] = numbers;
  m.sources[m.n_sources++] = from;
  cg_write_map(&c->kernel->code, &m);
  return STATUS_OK;
}

/* ---- pad and cat: operands that cover a part of the whole result ---- */
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Operand k covers, along dimension d, the positions of the whole result from begin[d] on; if begin[d] is
 * negative, its first elements are cut off. Copies the part of it that is in the window. */
static void add_part(const cuda_call *c, uint32_t k, const int64_t *begin) {
  rt_view x = rt_task_operand(c->plan, c->task, k);
  cg_map m = cuda_map(c, "copy");
  cg_source *from = &m.sources[m.n_sources++];
  *from = (cg_source){.kind = CG_VIEW, .view = cuda_place_start(c, k)};
  for (uint32_t d = 0; d < x.rank; d++) {
    int64_t origin =
        rt_task_sliced(c->task, k, d) ? 0 : begin[d] - c->offset[d]; /* relative to the window */
    int64_t first = origin > 0 ? origin : 0, end = origin + x.extents[d];
    m.extents[d] = smaller(end, c->result->extents[d]) - first;
    if (m.extents[d] <= 0) return;
    from->view.strides[d] = x.strides[d];
    cuda_advance(&m.result, first * m.result.strides[d]);
    cuda_advance(&from->view, (first - origin) * x.strides[d]);
  }
  cg_write_map(&c->kernel->code, &m);
}

status cuda_prepare_pad(const cuda_call *c) {
  const rt_attr *widths = rt_task_attr(c->task, "widths");
  int64_t begin[IR_MAX_RANK];
  cg_map fill = cuda_map(c, "full");
  for (uint32_t d = 0; d < c->result->rank; d++) begin[d] = widths->list[2 * d];
  fill.n_sources = 1;
  fill.sources[0] = (cg_source){.kind = CG_CONSTANT, .number = rt_task_number(c->task, "value")};
  cg_write_map(&c->kernel->code, &fill);
  add_part(c, 0, begin);
  return STATUS_OK;
}

status cuda_prepare_cat(const cuda_call *c) {
  uint32_t dim = rt_task_dim(c->task, "dim", c->result->rank);
  int64_t begin[IR_MAX_RANK] = {0};
  for (uint32_t k = 0; k < c->task->n_operands; k++) {
    add_part(c, k, begin);
    begin[dim] += rt_task_operand(c->plan, c->task, k).extents[dim];
  }
  return STATUS_OK;
}
