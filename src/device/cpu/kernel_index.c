/* Operations that take positions from an index tensor: gather scatter index_select.
 *
 * Indexes are read in dense blocks of i64 and checked there; an index lies in 0 .. n-1. */
#include "device/cpu/kernel_internal.h"

typedef struct index_kernel {
  cpu_kernel head;
  cpu_loops loops;
  cpu_view views[3]; /* gather: result, index, x; scatter: index, result, src */
  cpu_transfer load; /* of a run of indexes */
  uint32_t dim;
  int64_t n;        /* extent of the indexed axis */
  int64_t step;     /* of the indexed view along it, in bytes */
  int64_t low, end; /* scatter: targets in the window */
  size_t size_bytes;
  cpu_copy copy;  /* scatter: x to result; index_select: one slice */
  cpu_view index; /* index_select */
  int64_t n_indexes, slice_step;
} index_kernel;

/* A block of indexes, all in range. */
static status load_indexes(const index_kernel *m, int64_t n, const char *from, char *scratch,
                           const int64_t **result) {
  const int64_t *indexes = cpu_load(&m->load, n, from, scratch);
  for (int64_t i = 0; i < n; i++)
    if (indexes[i] < 0 || indexes[i] >= m->n) {
      (void)cpu_fail_index(m->head.name, indexes[i], m->dim, m->n);
      return STATUS_BAD_PROGRAM;
    }
  *result = indexes;
  return STATUS_OK;
}

static void no_dims(int from[IR_MAX_RANK]) {
  for (int d = 0; d < IR_MAX_RANK; d++) from[d] = CPU_NO_DIM;
}

/* Moves elements of one size between an address that steps and one that an index finds. */
typedef uint8_t __attribute__((may_alias)) bits8;
typedef uint16_t __attribute__((may_alias)) bits16;
typedef uint32_t __attribute__((may_alias)) bits32;
typedef uint64_t __attribute__((may_alias)) bits64;

#define MOVE(T)                                                                                    \
  static void gather_##T(int64_t n, char *to, int64_t ts, const char *from, int64_t fs,            \
                         const int64_t *index, int64_t step) {                                     \
    for (int64_t i = 0; i < n; i++)                                                                \
      *(T *)(void *)(to + i * ts) = *(const T *)(const void *)(from + i * fs + index[i] * step);   \
  }
MOVE(bits8)
MOVE(bits16)
MOVE(bits32)
MOVE(bits64)

/* to[i * ts] = from[i * fs + index[i] * step] */
static void gather_elements(size_t size_bytes, int64_t n, char *to, int64_t ts, const char *from,
                            int64_t fs, const int64_t *index, int64_t step) {
  switch (size_bytes) {
  case 1: gather_bits8(n, to, ts, from, fs, index, step); return;
  case 2: gather_bits16(n, to, ts, from, fs, index, step); return;
  case 4: gather_bits32(n, to, ts, from, fs, index, step); return;
  case 8: gather_bits64(n, to, ts, from, fs, index, step); return;
  }
  impossible("an element size");
}

/* ---- gather ---- */
static status gather_run(const index_kernel *m, const cpu_walk *w, char *scratch) {
  int64_t run = cpu_run_length(&m->loops), ts = cpu_run_step(&m->loops, 0),
          fs = cpu_run_step(&m->loops, 2);
  for (int64_t done = 0; done < run; done += CPU_BLOCK) {
    int64_t n = run - done < CPU_BLOCK ? run - done : CPU_BLOCK;
    const int64_t *indexes;
    TRY(load_indexes(m, n, w->at[1] + done * m->load.step, scratch, &indexes));
    gather_elements(m->size_bytes, n, w->at[0] + done * ts, ts, w->at[2] + done * fs, fs, indexes,
                    m->step);
  }
  return STATUS_OK;
}

static status run_gather(const cpu_kernel *k, char *const *starts, char *scratch) {
  const index_kernel *m = (const index_kernel *)k;
  cpu_walk w = cpu_walk_start(&m->loops, m->views, starts);
  do TRY(gather_run(m, &w, scratch));
  while (cpu_walk_next(&m->loops, &w, 1));
  return STATUS_OK;
}

static void set_axis(index_kernel *m, const rt_view *x, uint32_t dim, int64_t n) {
  m->dim = dim;
  m->n = n;
  m->size_bytes = ir_dtype_size_bytes(x->dtype);
  m->step = x->strides[dim] * (int64_t)m->size_bytes;
}

/* result[p] = x[p, with p[dim] = index[p]] */
status cpu_prepare_gather(const cpu_call *c, cpu_kernel **result) {
  index_kernel *m = CPU_KERNEL_NEW(c, index_kernel, run_gather);
  rt_view x = cpu_operand(c, 0);
  int from[IR_MAX_RANK];
  uint32_t dim = cpu_attr_dim(c, "dim", x.rank);
  set_axis(m, &x, dim, x.extents[dim]);
  cpu_align(c, x.rank, x.rank, from);
  m->views[0] = cpu_place_result(c);
  m->views[1] = cpu_place(c, 1, from);
  from[dim] = CPU_NO_DIM;
  m->views[2] = cpu_place(c, 0, from);
  cpu_loops_make(&m->loops, CPU_BY_FIRST, x.rank, c->result->extents, m->views, 3);
  m->load = cpu_transfer_load(m->views[1].dtype, cpu_run_step(&m->loops, 1), IR_I64);
  m->head.scratch_bytes = cpu_transfer_bytes(CPU_BLOCK);
  *result = &m->head;
  return STATUS_OK;
}

/* ---- scatter ---- */
static status scatter_run(const index_kernel *m, const cpu_walk *w, char *scratch) {
  int64_t run = cpu_run_length(&m->loops), ts = cpu_run_step(&m->loops, 1),
          fs = cpu_run_step(&m->loops, 2);
  for (int64_t done = 0; done < run; done += CPU_BLOCK) {
    int64_t n = run - done < CPU_BLOCK ? run - done : CPU_BLOCK;
    const int64_t *indexes;
    TRY(load_indexes(m, n, w->at[0] + done * m->load.step, scratch, &indexes));
    for (int64_t i = 0; i < n; i++) {
      if (indexes[i] < m->low || indexes[i] >= m->end) continue;
      char *to = w->at[1] + (done + i) * ts + (indexes[i] - m->low) * m->step;
      cpu_copy_strided(m->size_bytes, 1, to, 0, w->at[2] + (done + i) * fs, fs);
    }
  }
  return STATUS_OK;
}

static status run_scatter(const cpu_kernel *k, char *const *starts, char *scratch) {
  const index_kernel *m = (const index_kernel *)k;
  const cpu_view *copied = m->copy.views;
  cpu_copy_run(&m->copy, cpu_view_start(&copied[0], starts), cpu_view_start(&copied[1], starts),
               scratch);
  if (m->loops.rank == 0) return STATUS_OK;
  cpu_walk w = cpu_walk_start(&m->loops, m->views, starts);
  do TRY(scatter_run(m, &w, scratch));
  while (cpu_walk_next(&m->loops, &w, 1));
  return STATUS_OK;
}

/* Operand k at index position 0 along `dim` and at the window's start along the others. */
static cpu_view place_indexed(const cpu_call *c, uint32_t k, uint32_t dim) {
  rt_view x = cpu_operand(c, k);
  cpu_view v = cpu_place_start(c, k);
  for (uint32_t d = 0; d < x.rank; d++) {
    v.strides[d] = x.strides[d];
    if (d != dim && !cpu_sliced(c, k, d)) cpu_view_advance(&v, c->offset[d] * x.strides[d]);
  }
  return v;
}

/* Index positions that belong to the window; false when there are none. Along other axes than `dim`
 * an index may be shorter than x. */
static bool index_extents(const cpu_call *c, uint32_t dim, int64_t extents[IR_MAX_RANK]) {
  rt_view index = cpu_operand(c, 1);
  for (uint32_t d = 0; d < index.rank; d++) {
    int64_t first = d == dim || cpu_sliced(c, 1, d) ? 0 : c->offset[d];
    extents[d] = index.extents[d] - first;
    if (d != dim && extents[d] > c->result->extents[d]) extents[d] = c->result->extents[d];
    if (extents[d] <= 0) return false;
  }
  return true;
}

/* result = x; result[p, with p[dim] = index[p]] = src[p], for p in row-major order: later ones win, so
 * the loops keep their order. */
status cpu_prepare_scatter(const cpu_call *c, cpu_kernel **result) {
  index_kernel *m = CPU_KERNEL_NEW(c, index_kernel, run_scatter);
  uint32_t rank = c->result->rank, dim = cpu_attr_dim(c, "dim", rank);
  int64_t extents[IR_MAX_RANK];
  cpu_view to = cpu_place_result(c), from = cpu_place_aligned(c, 0);
  cpu_copy_make(&m->copy, rank, c->result->extents, &to, &from);
  set_axis(m, c->result, dim, c->whole[dim]);
  m->low = c->offset[dim];
  m->end = m->low + c->result->extents[dim];
  *result = &m->head;
  if (!index_extents(c, dim, extents)) return STATUS_OK;
  m->views[0] = place_indexed(c, 1, dim);
  m->views[1] = to;
  m->views[1].strides[dim] = 0;
  m->views[2] = place_indexed(c, 2, dim);
  cpu_loops_make(&m->loops, CPU_IN_ORDER, rank, extents, m->views, 3);
  m->load = cpu_transfer_load(m->views[0].dtype, cpu_run_step(&m->loops, 0), IR_I64);
  m->head.scratch_bytes = cpu_transfer_bytes(CPU_BLOCK);
  return STATUS_OK;
}

/* ---- index_select ---- */
static status run_index_select(const cpu_kernel *k, char *const *starts, char *scratch) {
  const index_kernel *m = (const index_kernel *)k;
  char *to = cpu_view_start(&m->views[0], starts), *from = cpu_view_start(&m->views[1], starts);
  const char *index = cpu_view_start(&m->index, starts);
  for (int64_t done = 0; done < m->n_indexes; done += CPU_BLOCK) {
    int64_t n = m->n_indexes - done < CPU_BLOCK ? m->n_indexes - done : CPU_BLOCK;
    const int64_t *indexes;
    TRY(load_indexes(m, n, index + done * m->load.step, scratch, &indexes));
    for (int64_t i = 0; i < n; i++)
      cpu_copy_run(&m->copy, to + (done + i) * m->slice_step, from + indexes[i] * m->step, NULL);
  }
  return STATUS_OK;
}

/* result[p] = x[p, with p[dim] = index[p[dim]]]: one copy of a slice per index. */
status cpu_prepare_index_select(const cpu_call *c, cpu_kernel **result) {
  index_kernel *m = CPU_KERNEL_NEW(c, index_kernel, run_index_select);
  rt_view x = cpu_operand(c, 0);
  uint32_t dim = cpu_attr_dim(c, "dim", x.rank);
  int from[IR_MAX_RANK];
  int64_t extents[IR_MAX_RANK];
  set_axis(m, &x, dim, x.extents[dim]);
  cpu_align(c, x.rank, x.rank, from);
  from[dim] = CPU_NO_DIM;
  m->views[0] = cpu_place_result(c);
  m->views[1] = cpu_place(c, 0, from);
  no_dims(from);
  from[dim] = 0;
  m->index = cpu_place(c, 1, from);
  for (uint32_t d = 0; d < x.rank; d++) extents[d] = d == dim ? 1 : c->result->extents[d];
  cpu_copy_make(&m->copy, x.rank, extents, &m->views[0], &m->views[1]);
  m->n_indexes = c->result->extents[dim];
  m->slice_step = c->result->strides[dim] * (int64_t)m->size_bytes;
  int64_t index_size = (int64_t)ir_dtype_size_bytes(m->index.dtype);
  m->load = cpu_transfer_load(m->index.dtype, m->index.strides[dim] * index_size, IR_I64);
  m->head.scratch_bytes = cpu_transfer_bytes(CPU_BLOCK);
  *result = &m->head;
  return STATUS_OK;
}
