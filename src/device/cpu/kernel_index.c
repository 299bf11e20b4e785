/* Operations that take positions from an index tensor: gather scatter update index_select
 * one_hot, and group_index, which makes one.
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
  cpu_view index; /* index_select; update: the position */
  int64_t n_indexes, slice_step;
  cpu_element one; /* one_hot */
} index_kernel;

/* A block of indexes, all in range. */
static status load_indexes(const index_kernel *m, int64_t n, const char *from, char *scratch,
                           const int64_t **result) {
  const int64_t *indexes = cpu_load(&m->load, n, from, scratch);
  for (int64_t i = 0; i < n; i++)
    if (indexes[i] < 0 || indexes[i] >= m->n) {
      (void)rt_fail_index(m->head.name, indexes[i], m->dim, m->n);
      return STATUS_BAD_PROGRAM;
    }
  *result = indexes;
  return STATUS_OK;
}

static void no_dims(int from[IR_MAX_RANK]) {
  for (int d = 0; d < IR_MAX_RANK; d++) from[d] = RT_NO_DIM;
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
  uint32_t dim = rt_task_dim(c->task, "dim", x.rank);
  set_axis(m, &x, dim, x.extents[dim]);
  rt_align(x.rank, x.rank, from);
  m->views[0] = cpu_place_result(c);
  m->views[1] = cpu_place(c, 1, from);
  from[dim] = RT_NO_DIM;
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
    if (d != dim && !rt_task_sliced(c->task, k, d))
      cpu_view_advance(&v, c->offset[d] * x.strides[d]);
  }
  return v;
}

/* Index positions that belong to the window; false when there are none. Along other axes than `dim`
 * an index may be shorter than x. */
static bool index_extents(const cpu_call *c, uint32_t dim, int64_t extents[IR_MAX_RANK]) {
  rt_view index = cpu_operand(c, 1);
  for (uint32_t d = 0; d < index.rank; d++) {
    int64_t first = d == dim || rt_task_sliced(c->task, 1, d) ? 0 : c->offset[d];
    extents[d] = index.extents[d] - first;
    if (d != dim && extents[d] > c->result->extents[d]) extents[d] = c->result->extents[d];
    if (extents[d] <= 0) return false;
  }
  return true;
}

/* ---- scatter with add ----
 * Positions whose coordinates differ outside of `dim` never meet. So lines along `dim` are taken one
 * after the other, or, where they lie side by side, a block of columns at a time: their sums are kept
 * wide until all of `src` is added, in order, and rounded once. */
typedef struct add_kernel {
  index_kernel base; /* loops over lines or blocks of columns; load: a run of indexes */
  int64_t rows;      /* targets of a line */
  int64_t positions; /* of the index along `dim` */
  int64_t columns, block;
  int64_t along[3]; /* steps along a line, in bytes: index, result, src */
  cpu_transfer sums_in, sums_out, src;
  bool is_float, by_columns;
} add_kernel;

enum { SUMS = 1 << 15, FEWEST = 8 }; /* of a block, unless that were fewer columns than these */

/* sums[(index[i] - low) * row + i * lane] += x[i], where that lies in the window. */
#define ADD(name, type)                                                                            \
  static void name(const add_kernel *m, int64_t n, const int64_t *index, const type *x,            \
                   type *sums) {                                                                   \
    int64_t lane = m->by_columns ? 1 : 0;                                                          \
    for (int64_t i = 0; i < n; i++) {                                                              \
      int64_t row = index[i] - m->base.low;                                                        \
      if (row >= 0 && row < m->rows) sums[row * m->block + i * lane] += x[i];                      \
    }                                                                                              \
  }
ADD(add_f64, double)
ADD(add_u64, uint64_t)

typedef struct add_room {
  char *index, *src, *sums;
} add_room;

/* A run of indexes and what is to be added there. */
static status add_run(const add_kernel *m, int64_t n, const char *index, const char *src,
                      add_room room) {
  const int64_t *indexes;
  TRY(load_indexes(&m->base, n, index, room.index, &indexes));
  const void *x = cpu_load(&m->src, n, src, room.src);
  if (m->is_float) add_f64(m, n, indexes, x, (double *)(void *)room.sums);
  else add_u64(m, n, indexes, x, (uint64_t *)(void *)room.sums);
  return STATUS_OK;
}

/* Elements of the result become sums, or sums elements, a run at a time. */
static void move_sums(const add_kernel *m, int64_t n, char *result, bool out, add_room room) {
  int64_t step = m->by_columns ? 1 : CPU_BLOCK;
  for (int64_t r = 0; r < m->rows; r += step) {
    int64_t run = m->by_columns ? n : m->rows - r < step ? m->rows - r : step;
    char *at = result + r * m->along[1], *sums = room.sums + r * m->block * 8;
    if (out) cpu_store(&m->sums_out, run, at, sums, room.src);
    else cpu_load_to(&m->sums_in, run, at, sums, room.src);
  }
}

/* n columns, or one line. */
static status add_block(const add_kernel *m, int64_t n, const char *index, char *result,
                        const char *src, add_room room) {
  int64_t step = m->by_columns ? 1 : CPU_BLOCK;
  move_sums(m, n, result, false, room);
  for (int64_t q = 0; q < m->positions; q += step) {
    int64_t run = m->by_columns ? n : m->positions - q < step ? m->positions - q : step;
    TRY(add_run(m, run, index + q * m->along[0], src + q * m->along[2], room));
  }
  move_sums(m, n, result, true, room);
  return STATUS_OK;
}

static status run_scatter_add(const cpu_kernel *k, char *const *starts, char *scratch) {
  const add_kernel *m = (const add_kernel *)k;
  const cpu_view *copied = m->base.copy.views;
  size_t bytes = cpu_transfer_bytes(CPU_BLOCK);
  add_room room = {scratch, scratch + bytes, scratch + 2 * bytes};
  cpu_copy_run(&m->base.copy, cpu_view_start(&copied[0], starts),
               cpu_view_start(&copied[1], starts), scratch);
  if (m->base.loops.rank == 0) return STATUS_OK;
  cpu_walk w = cpu_walk_start(&m->base.loops, m->base.views, starts);
  do
    for (int64_t done = 0; done < m->columns; done += m->block) {
      int64_t n = m->columns - done < m->block ? m->columns - done : m->block;
      TRY(add_block(m, n, w.at[0] + done * m->base.load.step, w.at[1] + done * m->sums_in.step,
                    w.at[2] + done * m->src.step, room));
    }
  while (cpu_walk_next(&m->base.loops, &w, 0));
  return STATUS_OK;
}

static int64_t step_of(const cpu_view *v, uint32_t d) {
  return v->strides[d] * (int64_t)ir_dtype_size_bytes(v->dtype);
}

/* How runs go: across columns, or along lines. */
static void place_runs(const cpu_call *c, add_kernel *m, uint32_t dim, int64_t *extents) {
  cpu_view *v = m->base.views;
  uint32_t rank = c->result->rank, across = cpu_columns_of(&v[1], rank, extents, dim);
  m->by_columns = across < rank;
  uint32_t run = m->by_columns ? across : dim;
  ir_dtype native = m->is_float ? IR_F64 : IR_I64;
  m->positions = extents[dim];
  m->columns = m->by_columns ? extents[across] : 1;
  int64_t most = SUMS / (m->rows > 0 ? m->rows : 1);
  m->block = most < FEWEST ? FEWEST : most < CPU_BLOCK ? most : CPU_BLOCK;
  if (m->block > m->columns) m->block = m->columns;
  for (int i = 0; i < 3; i++) m->along[i] = step_of(&v[i], dim);
  m->base.load = cpu_transfer_load(v[0].dtype, step_of(&v[0], run), IR_I64);
  m->sums_in = cpu_transfer_load(v[1].dtype, step_of(&v[1], run), native);
  m->sums_out = cpu_transfer_store(v[1].dtype, step_of(&v[1], run), native);
  m->src = cpu_transfer_load(v[2].dtype, step_of(&v[2], run), native);
  extents[dim] = extents[run] = 1;
  cpu_loops_make(&m->base.loops, CPU_IN_ORDER, rank, extents, v, 3);
}

/* result = x; result[p, with p[dim] = index[p]] += src[p]. */
static status prepare_scatter_add(const cpu_call *c, cpu_kernel **result) {
  add_kernel *m = CPU_KERNEL_NEW(c, add_kernel, run_scatter_add);
  uint32_t rank = c->result->rank, dim = rt_task_dim(c->task, "dim", rank);
  int64_t extents[IR_MAX_RANK] = {0};
  cpu_view to = cpu_place_result(c), from = cpu_place_aligned(c, 0);
  cpu_copy_make(&m->base.copy, rank, c->result->extents, &to, &from);
  set_axis(&m->base, c->result, dim, c->whole[dim]);
  m->base.low = c->offset[dim];
  m->rows = c->result->extents[dim];
  m->is_float = ir_dtype_is_float(c->result->dtype);
  *result = &m->base.head;
  if (!index_extents(c, dim, extents)) return STATUS_OK;
  m->base.views[0] = place_indexed(c, 1, dim);
  m->base.views[1] = to;
  m->base.views[2] = place_indexed(c, 2, dim);
  place_runs(c, m, dim, extents);
  m->base.head.scratch_bytes = 2 * cpu_transfer_bytes(CPU_BLOCK) + (size_t)(m->rows * m->block) * 8;
  return STATUS_OK;
}

/* result = x; result[p, with p[dim] = index[p]] = src[p], for p in row-major order: later ones win, so
 * the loops keep their order. */
status cpu_prepare_scatter(const cpu_call *c, cpu_kernel **result) {
  if (rt_task_int(c->task, "reduce")) return prepare_scatter_add(c, result);
  index_kernel *m = CPU_KERNEL_NEW(c, index_kernel, run_scatter);
  uint32_t rank = c->result->rank, dim = rt_task_dim(c->task, "dim", rank);
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

/* ---- update ---- */
typedef struct update_kernel {
  index_kernel base; /* `n`: positions that may be; `copy`: x to the result */
  bool same_layout;  /* of both: where they are one, nothing is copied */
  cpu_copy slice;    /* of src to the result, at one position */
  int64_t rows, src_step;
} update_kernel;

static status run_update(const cpu_kernel *k, char *const *starts, char *scratch) {
  const update_kernel *m = (const update_kernel *)k;
  const cpu_view *copied = m->base.copy.views, *moved = m->slice.views;
  const int64_t *at = NULL;
  if (m->rows > 0)
    TRY(load_indexes(&m->base, 1, cpu_view_start(&m->base.index, starts), scratch, &at));
  int64_t first = m->rows > 0 ? *at : 0;
  char *to = cpu_view_start(&copied[0], starts), *from = cpu_view_start(&copied[1], starts);
  if (to != from || !m->same_layout) cpu_copy_run(&m->base.copy, to, from, scratch);
  for (int64_t i = 0; i < m->rows; i++) {
    int64_t row = first + i;
    if (row < m->base.low || row >= m->base.end) continue;
    cpu_copy_run(&m->slice, to + (row - m->base.low) * m->base.step,
                 cpu_view_start(&moved[1], starts) + i * m->src_step, scratch);
  }
  return STATUS_OK;
}

/* result = x; result[p, with p[dim] = at + p[dim]] = src[p]: one copy of a slice per position. */
status cpu_prepare_update(const cpu_call *c, cpu_kernel **result) {
  update_kernel *m = CPU_KERNEL_NEW(c, update_kernel, run_update);
  uint32_t rank = c->result->rank, dim = rt_task_dim(c->task, "dim", rank);
  int64_t extents[IR_MAX_RANK];
  cpu_view to = cpu_place_result(c), from = cpu_place_aligned(c, 0);
  rt_view src = cpu_operand(c, 1);
  cpu_copy_make(&m->base.copy, rank, c->result->extents, &to, &from);
  m->same_layout = true;
  for (uint32_t d = 0; d < rank; d++) {
    extents[d] = d == dim ? 1 : c->result->extents[d];
    if (c->result->extents[d] != 1 && to.strides[d] != from.strides[d]) m->same_layout = false;
  }
  m->rows = src.extents[dim];
  set_axis(&m->base, c->result, dim, c->whole[dim] - m->rows + 1);
  m->base.low = c->offset[dim];
  m->base.end = m->base.low + c->result->extents[dim];
  m->src_step = src.strides[dim] * (int64_t)m->base.size_bytes;
  cpu_view lines = place_indexed(c, 1, dim);
  cpu_copy_make(&m->slice, rank, extents, &to, &lines);
  m->base.index = cpu_place_start(c, 2);
  m->base.load = cpu_transfer_load(m->base.index.dtype, 0, IR_I64);
  m->base.head.scratch_bytes = cpu_transfer_bytes(CPU_BLOCK);
  *result = &m->base.head;
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
  uint32_t dim = rt_task_dim(c->task, "dim", x.rank);
  int from[IR_MAX_RANK];
  int64_t extents[IR_MAX_RANK];
  set_axis(m, &x, dim, x.extents[dim]);
  cpu_place_lines(c, dim, m->views, extents);
  no_dims(from);
  from[dim] = 0;
  m->index = cpu_place(c, 1, from);
  cpu_copy_make(&m->copy, x.rank, extents, &m->views[0], &m->views[1]);
  m->n_indexes = c->result->extents[dim];
  m->slice_step = c->result->strides[dim] * (int64_t)m->size_bytes;
  int64_t index_size = (int64_t)ir_dtype_size_bytes(m->index.dtype);
  m->load = cpu_transfer_load(m->index.dtype, m->index.strides[dim] * index_size, IR_I64);
  m->head.scratch_bytes = cpu_transfer_bytes(CPU_BLOCK);
  *result = &m->head;
  return STATUS_OK;
}

/* ---- one_hot ---- */
static void hot_row(const index_kernel *m, int64_t hot, char *to) {
  static const cpu_element zero;
  cpu_fill_strided(m->size_bytes, m->end - m->low, to, m->step, zero.bytes);
  if (hot < m->low || hot >= m->end) return;
  cpu_fill_strided(m->size_bytes, 1, to + (hot - m->low) * m->step, 0, m->one.bytes);
}

static status run_one_hot(const cpu_kernel *k, char *const *starts, char *scratch) {
  const index_kernel *m = (const index_kernel *)k;
  cpu_walk w = cpu_walk_start(&m->loops, m->views, starts);
  int64_t run = cpu_run_length(&m->loops), step = cpu_run_step(&m->loops, 0);
  do
    for (int64_t done = 0; done < run; done += CPU_BLOCK) {
      int64_t n = run - done < CPU_BLOCK ? run - done : CPU_BLOCK;
      const int64_t *indexes;
      TRY(load_indexes(m, n, w.at[1] + done * m->load.step, scratch, &indexes));
      for (int64_t i = 0; i < n; i++) hot_row(m, indexes[i], w.at[0] + (done + i) * step);
    }
  while (cpu_walk_next(&m->loops, &w, 1));
  return STATUS_OK;
}

/* result[p, i] = index[p] == i */
status cpu_prepare_one_hot(const cpu_call *c, cpu_kernel **result) {
  index_kernel *m = CPU_KERNEL_NEW(c, index_kernel, run_one_hot);
  uint32_t last = c->result->rank - 1;
  int from[IR_MAX_RANK];
  int64_t extents[IR_MAX_RANK];
  set_axis(m, c->result, last, c->whole[last]);
  m->low = c->offset[last];
  m->end = m->low + c->result->extents[last];
  m->one = cpu_element_of(c->result->dtype, ir_number_int(1));
  rt_align(last, last, from);
  m->views[0] = cpu_place_result(c);
  m->views[1] = cpu_place(c, 0, from);
  for (uint32_t d = 0; d <= last; d++) extents[d] = d == last ? 1 : c->result->extents[d];
  cpu_loops_make(&m->loops, CPU_BY_FIRST, c->result->rank, extents, m->views, 2);
  m->load = cpu_transfer_load(m->views[1].dtype, cpu_run_step(&m->loops, 1), IR_I64);
  m->head.scratch_bytes = cpu_transfer_bytes(CPU_BLOCK);
  *result = &m->head;
  return STATUS_OK;
}

/* ---- group_index ---- */
/* Rows first .. end of a line belong to a group; those in the window are written. */
static void put_group(const index_kernel *m, int64_t first, int64_t end, int64_t group, char *to) {
  if (first < m->low) first = m->low;
  if (end > m->end) end = m->end;
  if (first >= end) return;
  cpu_fill_strided(m->size_bytes, end - first, to + (first - m->low) * m->step, m->step, &group);
}

static status group_line(const index_kernel *m, char *to, const char *from, char *scratch) {
  int64_t row = 0, end;
  for (int64_t done = 0; done < m->n_indexes; done += CPU_BLOCK) {
    int64_t n = m->n_indexes - done < CPU_BLOCK ? m->n_indexes - done : CPU_BLOCK;
    const int64_t *lengths = cpu_load(&m->load, n, from + done * m->slice_step, scratch);
    for (int64_t i = 0; i < n; i++, row = end) {
      if (__builtin_add_overflow(row, lengths[i], &end)) end = INT64_MAX;
      if (lengths[i] < 0) end = lengths[i];
      if (end < 0 || end > m->n) return rt_fail_index(m->head.name, end, m->dim, m->n + 1);
      put_group(m, row, end, done + i, to);
    }
  }
  put_group(m, row, m->n, m->n_indexes, to);
  return STATUS_OK;
}

static status run_group_index(const cpu_kernel *k, char *const *starts, char *scratch) {
  const index_kernel *m = (const index_kernel *)k;
  cpu_walk w = cpu_walk_start(&m->loops, m->views, starts);
  do TRY(group_line(m, w.at[0], w.at[1], scratch));
  while (cpu_walk_next(&m->loops, &w, 0));
  return STATUS_OK;
}

/* result[p, i] = the group of row i, where group g has lengths[p, g] rows */
status cpu_prepare_group_index(const cpu_call *c, cpu_kernel **result) {
  index_kernel *m = CPU_KERNEL_NEW(c, index_kernel, run_group_index);
  rt_view lengths = cpu_operand(c, 0);
  uint32_t last = c->result->rank - 1;
  int64_t extents[IR_MAX_RANK];
  set_axis(m, c->result, last, c->whole[last]);
  m->low = c->offset[last];
  m->end = m->low + c->result->extents[last];
  m->n_indexes = lengths.extents[last];
  cpu_place_lines(c, last, m->views, extents);
  cpu_loops_make(&m->loops, CPU_IN_ORDER, c->result->rank, extents, m->views, 2);
  m->slice_step = lengths.strides[last] * (int64_t)ir_dtype_size_bytes(lengths.dtype);
  m->load = cpu_transfer_load(lengths.dtype, m->slice_step, IR_I64);
  m->head.scratch_bytes = cpu_transfer_bytes(CPU_BLOCK);
  *result = &m->head;
  return STATUS_OK;
}
