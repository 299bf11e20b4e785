/* Operations that look at a whole row to compute each of its elements: softmax and the norms.
 *
 * The row is the operand's, whole; the result may be a window of it. Rows are brought into dense
 * native elements; sums are taken in double. */
#include "device/cpu/kernel_fold.h"

#include <math.h>

/* ---- kernels ---- */
typedef struct row_kernel row_kernel;

struct row_kernel {
  cpu_kernel head;
  cpu_loops loops; /* over rows; views: the result, the operand */
  cpu_view views[2];
  int64_t n;            /* elements of a row */
  int64_t first, count; /* those in the result */
  ir_dtype native;
  cpu_transfer load, store;
  void (*row)(const row_kernel *m, const void *x, char *to, char *block, char *spare,
              const void *const *vectors);
  /* norms */
  bool centered;
  double eps;
  bool has_vector[2]; /* weight, bias */
  cpu_view vectors[2];
  cpu_transfer load_vector[2];
};

static const char *element_at(const row_kernel *m, const void *x, int64_t i) {
  return (const char *)x + i * (int64_t)m->load.native_bytes;
}

/* Straight into the result if all of the row goes there. */
static void softmax_row(const row_kernel *m, const void *x, char *to, char *block, char *spare,
                        const void *const *vectors) {
  char *y = m->count == m->n ? cpu_store_target(&m->store, to, block) : block;
  (void)vectors;
  cpu_vectors()->softmax[m->native](m->n, x, y);
  cpu_store(&m->store, m->count, to, element_at(m, y, m->first), spare);
}

static void norm_row(const row_kernel *m, const void *x, char *to, char *block, char *spare,
                     const void *const *vectors) {
  cpu_element sum = {.f = 0}, squares = {.f = 0};
  double n = (double)m->n;
  char *y = cpu_store_target(&m->store, to, block);
  if (m->centered) cpu_fold_of(CPU_FOLD_SUM, m->native)->row(m->n, x, &sum, 0);
  double mean = sum.f / n;
  cpu_fold_of(CPU_FOLD_SQUARES, m->native)->row(m->n, x, &squares, mean);
  cpu_vectors()->normalize[m->native](m->count, element_at(m, x, m->first), mean,
                                      1 / sqrt(squares.f / n + m->eps), vectors[0], vectors[1], y);
  cpu_store(&m->store, m->count, to, y, spare);
}

/* Weight and bias of the window in the type computed in; NULL where there are none. */
static void load_vectors(const row_kernel *m, char *const *starts, char *to, const void **vectors) {
  for (int v = 0; v < 2; v++) {
    vectors[v] = NULL;
    if (m->has_vector[v])
      vectors[v] = cpu_load(&m->load_vector[v], m->count, cpu_view_start(&m->vectors[v], starts),
                            to + (size_t)v * cpu_transfer_bytes(m->count));
  }
}

/* Scratch: the row on its way in, the results, room to store them, weight and bias. */
static status run_rows(const cpu_kernel *k, char *const *starts, char *scratch) {
  const row_kernel *m = (const row_kernel *)k;
  cpu_walk w = cpu_walk_start(&m->loops, m->views, starts);
  char *block = scratch + cpu_transfer_bytes(m->n), *spare = block + cpu_transfer_bytes(m->n) / 2;
  const void *vectors[2] = {NULL};
  int64_t run = cpu_run_length(&m->loops);
  if (m->row == norm_row) load_vectors(m, starts, scratch + 2 * cpu_transfer_bytes(m->n), vectors);
  do
    for (int64_t i = 0; i < run; i++) {
      char *to = w.at[0] + i * cpu_run_step(&m->loops, 0);
      const char *from = w.at[1] + i * cpu_run_step(&m->loops, 1);
      m->row(m, cpu_load(&m->load, m->n, from, scratch), to, block, spare, vectors);
    }
  while (cpu_walk_next(&m->loops, &w, 1));
  return STATUS_OK;
}

static row_kernel *new_rows(const cpu_call *c, uint32_t axis) {
  row_kernel *m = CPU_KERNEL_NEW(c, row_kernel, run_rows);
  rt_view x = cpu_operand(c, 0);
  int64_t extents[IR_MAX_RANK];
  cpu_place_lines(c, axis, m->views, extents);
  cpu_loops_make(&m->loops, CPU_BY_FIRST, x.rank, extents, m->views, 2);
  m->n = x.extents[axis];
  m->first = rt_task_sliced(c->task, 0, axis) ? 0 : c->offset[axis];
  m->count = c->result->extents[axis];
  check(m->first + m->count <= m->n);
  m->native = cpu_native(c->result->dtype);
  m->load = cpu_transfer_load(x.dtype, x.strides[axis] * (int64_t)ir_dtype_size_bytes(x.dtype),
                              m->native);
  m->store = cpu_transfer_store(
      c->result->dtype, c->result->strides[axis] * (int64_t)ir_dtype_size_bytes(c->result->dtype),
      m->native);
  m->head.scratch_bytes = 2 * cpu_transfer_bytes(m->n);
  return m;
}

status cpu_prepare_softmax(const cpu_call *c, cpu_kernel **result) {
  row_kernel *m = new_rows(c, rt_task_dim(c->task, "dim", c->result->rank));
  m->row = softmax_row;
  *result = &m->head;
  return STATUS_OK;
}

status cpu_prepare_norm(const cpu_call *c, cpu_kernel **result) {
  uint32_t axis = c->result->rank - 1;
  row_kernel *m = new_rows(c, axis);
  int from[IR_MAX_RANK];
  m->row = norm_row;
  m->centered = c->task->code == IR_OP_LAYER_NORM;
  m->eps = ir_number_as_f64(rt_task_number(c->task, "eps"));
  for (uint32_t v = 0; v < 2; v++) {
    m->has_vector[v] = rt_task_has_operand(c->task, 1 + v);
    if (!m->has_vector[v]) continue;
    rt_align(0, c->result->rank, from);
    from[axis] = 0;
    m->vectors[v] = cpu_place(c, 1 + v, from);
    ir_dtype t = m->vectors[v].dtype;
    m->load_vector[v] = cpu_transfer_load_as(
        t, m->vectors[v].strides[axis] * (int64_t)ir_dtype_size_bytes(t), t, m->native);
  }
  m->head.scratch_bytes += 2 * cpu_transfer_bytes(m->count);
  *result = &m->head;
  return STATUS_OK;
}
