/* Copies: operations whose result is a view of their operand, and those made of several copies.
 *
 *   set cast broadcast squeeze expand permute transpose slice select    one copy
 *   pad                                                                 a fill, then one copy
 *   cat                                                                 one copy per operand */
#include <string.h>

#include "device/cpu/kernel_internal.h"

#include "device/cpu/kernel_fast.h"

/* ---- one copy ---- */
/* The dimension in which the source is dense, if that is not the innermost: the copy transposes. */
static uint32_t source_dim(const cpu_loops *l, size_t size_bytes) {
  for (uint32_t d = 0; d + 1 < l->rank; d++)
    if (l->steps[1][d] == (int64_t)size_bytes && l->extents[d] >= 4) return d;
  return l->rank;
}

void cpu_copy_make(cpu_copy *copy, uint32_t rank, const int64_t *extents, const cpu_view *to,
                   const cpu_view *from) {
  size_t size = ir_dtype_size_bytes(from->dtype);
  memset(copy, 0, sizeof *copy);
  copy->views[0] = *to;
  copy->views[1] = *from;
  cpu_loops_make(&copy->loops, CPU_BY_FIRST, rank, extents, copy->views, 2);
  copy->converts = to->dtype != from->dtype;
  int64_t from_step = cpu_run_step(&copy->loops, 1), to_step = cpu_run_step(&copy->loops, 0);
  uint32_t dense = source_dim(&copy->loops, size);
  copy->transposes = !copy->converts && from_step != (int64_t)size && dense < copy->loops.rank;
  if (copy->transposes) cpu_loops_move(&copy->loops, dense, copy->loops.rank - 2);
  copy->load = cpu_transfer_store(from->dtype, from_step, from->dtype); /* as it is */
  copy->store = cpu_transfer_store(to->dtype, to_step, from->dtype);
}

size_t cpu_copy_scratch_bytes(const cpu_copy *copy) {
  return copy->converts ? 2 * cpu_transfer_bytes(CPU_BLOCK) : 0;
}

/* Loads a dense block, converts it, stores it. */
static void convert_run(const cpu_copy *copy, char *to, const char *from, char *scratch) {
  int64_t run = cpu_run_length(&copy->loops);
  char *block = scratch + cpu_transfer_bytes(CPU_BLOCK);
  for (int64_t done = 0; done < run; done += CPU_BLOCK) {
    int64_t n = run - done < CPU_BLOCK ? run - done : CPU_BLOCK;
    const void *x = cpu_load(&copy->load, n, from + done * copy->load.step, scratch);
    cpu_store(&copy->store, n, to + done * copy->store.step, x, block);
  }
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* The two last dimensions; the source is dense along the first of them. */
static void transpose(const cpu_copy *copy, char *to, const char *from) {
  const cpu_loops *l = &copy->loops;
  uint32_t a = l->rank - 2, b = l->rank - 1;
  cpu_transpose(copy->load.size_bytes, l->extents[a], l->extents[b], to, l->steps[0][a],
                l->steps[0][b], from, l->steps[1][b]);
}

void cpu_copy_run(const cpu_copy *copy, char *to, char *from, char *scratch) {
  const cpu_loops *l = &copy->loops;
  cpu_walk w = {.at = {to, from}};
  int64_t n = cpu_run_length(l);
  do {
    if (copy->transposes) transpose(copy, w.at[0], w.at[1]);
    else if (copy->converts) convert_run(copy, w.at[0], w.at[1], scratch);
    else
      cpu_copy_strided(copy->load.size_bytes, n, w.at[0], cpu_run_step(l, 0), w.at[1],
                       cpu_run_step(l, 1));
  } while (cpu_walk_next(l, &w, copy->transposes ? 2 : 1));
}

/* ---- kernels of a fill and copies ---- */
typedef struct copies_kernel {
  cpu_kernel head;
  bool fills;
  cpu_loops fill;
  cpu_view fill_view;
  cpu_element value;
  uint32_t n;
  cpu_copy copies[];
} copies_kernel;

static void run_fill(const copies_kernel *m, char *const *starts) {
  cpu_walk w = cpu_walk_start(&m->fill, &m->fill_view, starts);
  size_t size = ir_dtype_size_bytes(m->fill_view.dtype);
  do
    cpu_fill_strided(size, cpu_run_length(&m->fill), w.at[0], cpu_run_step(&m->fill, 0),
                     m->value.bytes);
  while (cpu_walk_next(&m->fill, &w, 1));
}

static status run_copies(const cpu_kernel *k, char *const *starts, char *scratch) {
  const copies_kernel *m = (const copies_kernel *)k;
  if (m->fills) run_fill(m, starts);
  for (uint32_t i = 0; i < m->n; i++) {
    const cpu_view *views = m->copies[i].views;
    cpu_copy_run(&m->copies[i], cpu_view_start(&views[0], starts),
                 cpu_view_start(&views[1], starts), scratch);
  }
  return STATUS_OK;
}

static copies_kernel *new_copies(const cpu_call *c, uint32_t capacity) {
  return cpu_kernel_new(c, sizeof(copies_kernel) + capacity * sizeof(cpu_copy), run_copies);
}

static void add_copy(copies_kernel *m, uint32_t rank, const int64_t *extents, const cpu_view *to,
                     const cpu_view *from) {
  cpu_copy *copy = &m->copies[m->n++];
  cpu_copy_make(copy, rank, extents, to, from);
  size_t bytes = cpu_copy_scratch_bytes(copy);
  if (bytes > m->head.scratch_bytes) m->head.scratch_bytes = bytes;
}

/* ---- views of one operand ---- */
static cpu_view place_slice(const cpu_call *c) {
  rt_view x = cpu_operand(c, 0);
  cpu_view v = cpu_place_start(c, 0);
  for (uint32_t d = 0; d < x.rank; d++) {
    int64_t start = rt_task_slice_start(c->task, &x, d, c->offset[d]);
    if (c->result->extents[d] > 1) v.strides[d] = x.strides[d] * rt_task_slice_step(c->task, d);
    cpu_view_advance(&v, start * x.strides[d]);
  }
  return v;
}

static status place_select(const cpu_call *c, cpu_view *result) {
  rt_view x = cpu_operand(c, 0);
  uint32_t dim;
  int64_t index;
  int from[IR_MAX_RANK];
  TRY(rt_task_selected(c->task, &x, &dim, &index));
  rt_task_from(c->task, x.rank, from);
  *result = cpu_place(c, 0, from);
  cpu_view_advance(result, index * x.strides[dim]);
  return STATUS_OK;
}

static status place_source(const cpu_call *c, cpu_view *result) {
  uint32_t rank = cpu_operand(c, 0).rank;
  int from[IR_MAX_RANK];
  if (c->info->family == IR_FAMILY_SELECT) return place_select(c, result);
  if (c->info->family == IR_FAMILY_SLICE) {
    *result = place_slice(c);
    return STATUS_OK;
  }
  if (rt_task_moves_dims(c->task)) rt_task_from(c->task, rank, from);
  else rt_align(rank, c->result->rank, from);
  *result = cpu_place(c, 0, from);
  return STATUS_OK;
}

status cpu_prepare_copy(const cpu_call *c, cpu_kernel **result) {
  copies_kernel *m = new_copies(c, 1);
  cpu_view to = cpu_place_result(c), from = {.dtype = IR_DTYPE_NONE};
  TRY(place_source(c, &from));
  add_copy(m, c->result->rank, c->result->extents, &to, &from);
  *result = &m->head;
  return STATUS_OK;
}

/* ---- pad and cat: operands that cover a part of the whole result ---- */

/* Operand k covers, along dimension d, the whole's positions from begin[d] on; a negative begin cuts
 * off. Copies what of it lies in the window. */
static void add_part(const cpu_call *c, copies_kernel *m, uint32_t k, const int64_t *begin) {
  rt_view x = cpu_operand(c, k);
  cpu_view to = cpu_place_result(c), from = cpu_place_start(c, k);
  int64_t extents[IR_MAX_RANK];
  for (uint32_t d = 0; d < x.rank; d++) {
    int64_t origin =
        rt_task_sliced(c->task, k, d) ? 0 : begin[d] - c->offset[d]; /* in the window */
    int64_t first = origin > 0 ? origin : 0, end = origin + x.extents[d];
    extents[d] = smaller(end, c->result->extents[d]) - first;
    if (extents[d] <= 0) return;
    from.strides[d] = x.strides[d];
    cpu_view_advance(&to, first * to.strides[d]);
    cpu_view_advance(&from, (first - origin) * x.strides[d]);
  }
  add_copy(m, x.rank, extents, &to, &from);
}

status cpu_prepare_pad(const cpu_call *c, cpu_kernel **result) {
  copies_kernel *m = new_copies(c, 1);
  const rt_attr *widths = rt_task_attr(c->task, "widths");
  int64_t begin[IR_MAX_RANK];
  for (uint32_t d = 0; d < c->result->rank; d++) begin[d] = widths->list[2 * d];
  m->fills = true;
  m->fill_view = cpu_place_result(c);
  m->value = cpu_element_of(c->result->dtype, rt_task_number(c->task, "value"));
  cpu_loops_make(&m->fill, CPU_BY_FIRST, c->result->rank, c->result->extents, &m->fill_view, 1);
  add_part(c, m, 0, begin);
  *result = &m->head;
  return STATUS_OK;
}

status cpu_prepare_cat(const cpu_call *c, cpu_kernel **result) {
  copies_kernel *m = new_copies(c, c->task->n_operands);
  uint32_t dim = rt_task_dim(c->task, "dim", c->result->rank);
  int64_t begin[IR_MAX_RANK] = {0};
  for (uint32_t k = 0; k < c->task->n_operands; k++) {
    add_part(c, m, k, begin);
    begin[dim] += cpu_operand(c, k).extents[dim];
  }
  *result = &m->head;
  return STATUS_OK;
}
