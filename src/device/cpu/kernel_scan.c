/* cumsum: each element of a line is the sum of the operand's elements up to it.
 *
 * The line is the operand's, from its start; the result may be a window of it. Floats accumulate in
 * double, integers in 64 bits. Where lines lie side by side, as the columns of a matrix do, a block of
 * them is summed at a time. */
#include <string.h>

#include "device/cpu/kernel_internal.h"

typedef struct scan_kernel {
  cpu_kernel head;
  cpu_loops loops; /* over lines, or blocks of them; views: the result, the operand */
  cpu_view views[2];
  int64_t first, count; /* positions of a line in the result */
  int64_t columns;      /* lines side by side; 0: one at a time */
  int64_t along[2];     /* steps along a line, in bytes */
  bool is_float;
  cpu_transfer load, store; /* of a run: of a line, or across lines */
} scan_kernel;

/* y[i] = x[0] + … + x[i], and what came before. */
#define SCAN(name, type)                                                                           \
  static type name(int64_t n, const type *x, type *y, type sum) {                                  \
    for (int64_t i = 0; i < n; i++) y[i] = sum += x[i];                                            \
    return sum;                                                                                    \
  }
SCAN(scan_f64, double)
SCAN(scan_u64, uint64_t)

static void add_f64(int64_t n, const double *x, double *sums) {
  for (int64_t i = 0; i < n; i++) sums[i] += x[i];
}
static void add_u64(int64_t n, const uint64_t *x, uint64_t *sums) {
  for (int64_t i = 0; i < n; i++) sums[i] += x[i];
}

/* Scratch: a run on its way in, then sums, then room to store them. */
typedef struct scan_room {
  char *load, *sums, *spare;
} scan_room;

static void scan_line(const scan_kernel *m, char *to, const char *from, scan_room room) {
  int64_t end = m->first + m->count;
  double f = 0;
  uint64_t u = 0;
  for (int64_t done = 0; done < end; done += CPU_BLOCK) {
    int64_t n = end - done < CPU_BLOCK ? end - done : CPU_BLOCK;
    int64_t skipped = m->first > done ? m->first - done : 0;
    const void *x = cpu_load(&m->load, n, from + done * m->along[1], room.load);
    if (m->is_float) f = scan_f64(n, x, (double *)(void *)room.sums, f);
    else u = scan_u64(n, x, (uint64_t *)(void *)room.sums, u);
    if (skipped >= n) continue;
    cpu_store(&m->store, n - skipped, to + (done + skipped - m->first) * m->along[0],
              room.sums + skipped * 8, room.spare);
  }
}

/* n lines side by side. */
static void scan_columns(const scan_kernel *m, int64_t n, char *to, const char *from,
                         scan_room room) {
  memset(room.sums, 0, (size_t)n * 8);
  for (int64_t i = 0; i < m->first + m->count; i++) {
    const void *x = cpu_load(&m->load, n, from + i * m->along[1], room.load);
    if (m->is_float) add_f64(n, x, (double *)(void *)room.sums);
    else add_u64(n, x, (uint64_t *)(void *)room.sums);
    if (i >= m->first)
      cpu_store(&m->store, n, to + (i - m->first) * m->along[0], room.sums, room.spare);
  }
}

static status run_scan(const cpu_kernel *k, char *const *starts, char *scratch) {
  const scan_kernel *m = (const scan_kernel *)k;
  size_t half = cpu_transfer_bytes(CPU_BLOCK) / 2;
  scan_room room = {scratch, scratch + 2 * half, scratch + 3 * half};
  cpu_walk w = cpu_walk_start(&m->loops, m->views, starts);
  do {
    if (m->columns == 0) scan_line(m, w.at[0], w.at[1], room);
    for (int64_t done = 0; done < m->columns; done += CPU_BLOCK) {
      int64_t n = m->columns - done < CPU_BLOCK ? m->columns - done : CPU_BLOCK;
      scan_columns(m, n, w.at[0] + done * m->store.step, w.at[1] + done * m->load.step, room);
    }
  } while (cpu_walk_next(&m->loops, &w, 0));
  return STATUS_OK;
}

static int64_t step_of(const cpu_view *v, uint32_t d) {
  return v->strides[d] * (int64_t)ir_dtype_size_bytes(v->dtype);
}

status cpu_prepare_scan(const cpu_call *c, cpu_kernel **result) {
  scan_kernel *m = CPU_KERNEL_NEW(c, scan_kernel, run_scan);
  rt_view x = cpu_operand(c, 0);
  uint32_t dim = rt_task_dim(c->task, "dim", x.rank);
  int64_t extents[IR_MAX_RANK];
  cpu_place_lines(c, dim, m->views, extents);
  m->views[1].strides[dim] = x.strides[dim];
  extents[dim] = c->result->extents[dim];
  m->first = rt_task_sliced(c->task, 0, dim) ? 0 : c->offset[dim];
  m->count = extents[dim];
  check(m->first + m->count <= x.extents[dim]);
  uint32_t across = cpu_columns_of(&m->views[0], x.rank, extents, dim);
  m->columns = across < x.rank ? extents[across] : 0;
  uint32_t run = across < x.rank ? across : dim;
  for (int v = 0; v < 2; v++) m->along[v] = step_of(&m->views[v], dim);
  m->is_float = ir_dtype_is_float(x.dtype);
  ir_dtype native = m->is_float ? IR_F64 : IR_I64;
  m->load = cpu_transfer_load(x.dtype, step_of(&m->views[1], run), native);
  m->store = cpu_transfer_store(c->result->dtype, step_of(&m->views[0], run), native);
  extents[dim] = extents[run] = 1;
  cpu_loops_make(&m->loops, CPU_BY_FIRST, x.rank, extents, m->views, 2);
  m->head.scratch_bytes = 2 * cpu_transfer_bytes(CPU_BLOCK);
  *result = &m->head;
  return STATUS_OK;
}
