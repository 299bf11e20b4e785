/* argsort, topk, topk_index: rows in order.
 *
 * Elements become 64-bit keys that compare as they do: NaN above every number, both zeros equal, and
 * all bits inverted where the largest come first. A key together with its position is unique, so every
 * way of sorting gives the stable order, and no window or cut of other dimensions can change it. */
#include <string.h>

#include "device/cpu/kernel_internal.h"

typedef struct entry {
  int64_t key, at;
} entry;

enum {
  FEW = 32, /* of the first ones are kept in order while a row passes by; more are sorted */
};

typedef struct sort_kernel {
  cpu_kernel head;
  cpu_loops loops; /* over rows; views: the result, the operand, the indices */
  cpu_view views[3];
  int64_t n;            /* elements of a row */
  int64_t first, count; /* those in the result */
  cpu_transfer load;
  bool is_float, descending, values, indices; /* which of both are written; not both: to views[0] */
  int64_t to_step, index_step;
  size_t size_bytes; /* of a value */
} sort_kernel;

/* ---- keys ---- */
static int64_t float_key(double x) {
  int64_t bits;
  if (x != x) return INT64_MAX;
  x += 0.0; /* -0 becomes 0 */
  memcpy(&bits, &x, sizeof bits);
  return bits < 0 ? INT64_MIN - bits : bits;
}

static int64_t key_at(const sort_kernel *m, const void *row, int64_t i) {
  int64_t key = m->is_float ? float_key(((const double *)row)[i]) : ((const int64_t *)row)[i];
  return m->descending ? ~key : key;
}

static bool before(const entry *a, const entry *b) {
  return a->key != b->key ? a->key < b->key : a->at < b->at;
}

/* ---- orders ---- */
/* The first `few` of the row. Later elements never overtake equal ones. */
static void take_few(const sort_kernel *m, const void *row, int64_t few, entry *to) {
  int64_t have = 0;
  for (int64_t i = 0; i < m->n; i++) {
    int64_t key = key_at(m, row, i), at = have;
    if (have == few && key >= to[few - 1].key) continue;
    if (have == few) at--;
    else have++;
    for (; at > 0 && key < to[at - 1].key; at--) to[at] = to[at - 1];
    to[at] = (entry){key, i};
  }
}

static void merge(const entry *a, int64_t na, const entry *b, int64_t nb, entry *to) {
  int64_t i = 0, j = 0;
  while (i < na && j < nb) *to++ = before(&b[j], &a[i]) ? b[j++] : a[i++];
  memcpy(to, a + i, (size_t)(na - i) * sizeof *to);
  memcpy(to + (na - i), b + j, (size_t)(nb - j) * sizeof *to);
}

/* Runs of 1, 2, 4 … entries are merged, from one half of the room into the other. */
static const entry *sort_all(const sort_kernel *m, const void *row, entry *room) {
  entry *from = room, *to = room + m->n;
  for (int64_t i = 0; i < m->n; i++) from[i] = (entry){key_at(m, row, i), i};
  for (int64_t run = 1; run < m->n; run *= 2) {
    for (int64_t i = 0; i < m->n; i += 2 * run) {
      int64_t na = m->n - i < run ? m->n - i : run, left = m->n - i - na;
      merge(from + i, na, from + i + na, left < run ? left : run, to + i);
    }
    entry *swap = from;
    from = to;
    to = swap;
  }
  return from;
}

/* ---- rows ---- */
static void write_values(const sort_kernel *m, const entry *order, char *to, const char *from) {
  for (int64_t i = 0; i < m->count; i++, to += m->to_step) {
    int64_t at = order[m->first + i].at;
    cpu_copy_strided(m->size_bytes, 1, to, 0, from + at * m->load.step, 1);
  }
}

static void write_indices(const sort_kernel *m, const entry *order, char *to) {
  for (int64_t i = 0; i < m->count; i++, to += m->index_step)
    memcpy(to, &order[m->first + i].at, sizeof order->at);
}

/* Scratch: the row on its way in, then the entries. */
static status run_sort(const cpu_kernel *k, char *const *starts, char *scratch) {
  const sort_kernel *m = (const sort_kernel *)k;
  cpu_walk w = cpu_walk_start(&m->loops, m->views, starts);
  entry *room = (entry *)(void *)(scratch + cpu_transfer_bytes(m->n));
  int64_t few = m->first + m->count;
  do {
    const void *row = cpu_load(&m->load, m->n, w.at[1], scratch);
    const entry *order = room;
    if (few <= FEW) take_few(m, row, few, room);
    else order = sort_all(m, row, room);
    if (m->values) write_values(m, order, w.at[0], w.at[1]);
    if (m->indices) write_indices(m, order, w.at[m->values ? 2 : 0]);
  } while (cpu_walk_next(&m->loops, &w, 0));
  return STATUS_OK;
}

status cpu_prepare_sort(const cpu_call *c, cpu_kernel **result) {
  sort_kernel *m = CPU_KERNEL_NEW(c, sort_kernel, run_sort);
  rt_view x = cpu_operand(c, 0);
  uint32_t dim = rt_task_dim(c->task, "dim", x.rank);
  int64_t extents[IR_MAX_RANK];
  cpu_place_lines(c, dim, m->views, extents);
  bool both = c->task->n_more > 0;
  if (both) m->views[2] = cpu_place_more(c, 1);
  cpu_loops_make(&m->loops, CPU_BY_FIRST, x.rank, extents, m->views, both ? 3 : 2);
  m->n = x.extents[dim];
  m->first = c->offset[dim];
  m->count = c->result->extents[dim];
  check(m->first + m->count <= m->n);
  m->values = c->task->code == IR_OP_TOPK;
  m->indices = both || !m->values;
  m->descending = c->task->code != IR_OP_ARGSORT || rt_task_int(c->task, "descending") != 0;
  m->is_float = ir_dtype_is_float(x.dtype);
  m->size_bytes = ir_dtype_size_bytes(x.dtype);
  m->load = cpu_transfer_load(x.dtype, x.strides[dim] * (int64_t)m->size_bytes,
                              m->is_float ? IR_F64 : IR_I64);
  m->to_step = c->result->strides[dim] * (int64_t)ir_dtype_size_bytes(c->result->dtype);
  m->index_step = cpu_result(c, both)->strides[dim] * (int64_t)sizeof(int64_t);
  m->head.scratch_bytes = cpu_transfer_bytes(m->n) + 2 * (size_t)m->n * sizeof(entry);
  *result = &m->head;
  return STATUS_OK;
}
