/* sdpa: softmax(q · kᵀ · scale) · v, some queries at a time.
 *
 * With `causal` a query sees the keys up to its own position in the whole result. The keys that all
 * queries of a block see are one product; the few at the end that only some see are added one by one,
 * because a key that is not seen must not take part, not even as 0 · NaN. */
#include <math.h>

#include "device/cpu/kernel_gemm.h"
#include "device/cpu/kernel_row.h"

#include "device/cpu/kernel_fast.h"

enum { QUERIES = 64 }; /* at a time */
enum { OUT, Q, K, V, N_SIDES };

/* A matrix of one batch; staged into dense native rows unless it lies so that it can be multiplied. */
typedef struct side {
  cpu_matrix shape;
  int64_t size_bytes;
  bool staged;
  cpu_transfer load;
  size_t offset; /* in scratch */
} side;

typedef struct sdpa_kernel {
  cpu_kernel head;
  cpu_loops batch; /* the run is a dimension like the others */
  cpu_view views[N_SIDES];
  side sides[N_SIDES];
  int64_t first; /* position of the first query in the whole */
  bool causal;
  const cpu_gemm_unit *unit;
  double scale;
  ir_dtype native;
  cpu_transfer store;
  size_t scores_offset, transfer_offset, gemm_offset;
} sdpa_kernel;

/* ---- one row ---- */
#define ROW_STEPS(T, name)                                                                         \
  static void scale_##name(int64_t n, void *x_, double scale) {                                    \
    T *x = x_;                                                                                     \
    for (int64_t i = 0; i < n; i++) x[i] = (T)((double)x[i] * scale);                              \
  }                                                                                                \
  /* to += weight * row of v */                                                                    \
  static void add_##name(int64_t n, void *to_, const void *weight, const void *v_, int64_t step) { \
    T *to = to_;                                                                                   \
    const T w = *(const T *)weight, *v = v_;                                                       \
    for (int64_t i = 0; i < n; i++) to[i] += w * v[i * step];                                      \
  }
ROW_STEPS(float, f32)
ROW_STEPS(double, f64)

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* How many keys query i of this task sees. */
static int64_t seen(const sdpa_kernel *m, int64_t i) {
  int64_t keys = m->sides[K].shape.rows;
  return m->causal ? smaller(keys, m->first + i + 1) : keys;
}

/* ---- staging ---- */
typedef struct placed {
  cpu_matrix shape;
  char *at;
} placed;

/* Rows [row, row + rows) of a side. */
static placed rows_of(const side *s, char *from, int64_t row, int64_t rows, char *to, char *spare) {
  placed p = {s->shape, from + row * s->shape.row_stride * s->size_bytes};
  p.shape.rows = rows;
  if (!s->staged) return p;
  int64_t bytes = s->shape.columns * (int64_t)s->load.native_bytes;
  for (int64_t i = 0; i < rows; i++)
    cpu_load_to(&s->load, s->shape.columns, p.at + i * s->shape.row_stride * s->size_bytes,
                to + i * bytes, spare);
  p.shape.row_stride = s->shape.columns;
  p.shape.column_stride = 1;
  p.at = to;
  return p;
}

/* ---- a block of queries ---- */
static cpu_matrix transposed(cpu_matrix m) {
  return (cpu_matrix){m.columns, m.rows, m.column_stride, m.row_stride};
}

/* Scores of the block, then their softmax; row i has `stride` elements of room. */
static void weigh(const sdpa_kernel *m, const placed *q, const placed *k, int64_t i0, char *scores,
                  int64_t stride, char *scratch) {
  int64_t rows = q->shape.rows, n = seen(m, i0 + rows - 1);
  int64_t size = (int64_t)ir_dtype_size_bytes(m->native);
  cpu_matrix keys = transposed(k->shape), out = {rows, n, stride, 1};
  keys.columns = n;
  cpu_gemm_run(m->unit, &q->shape, q->at, &keys, k->at, &out, scores, m->native, false,
               scratch + m->gemm_offset);
  for (int64_t i = 0; i < rows; i++) {
    char *row = scores + i * stride * size;
    int64_t count = seen(m, i0 + i);
    (m->native == IR_F64 ? scale_f64 : scale_f32)(count, row, m->scale);
    (m->native == IR_F64 ? cpu_softmax_f64 : cpu_softmax_f32)(count, row, row);
  }
}

static void mix(const sdpa_kernel *m, const placed *v, int64_t i0, int64_t rows, char *scores,
                int64_t stride, char *out, char *scratch) {
  int64_t width = v->shape.columns, size = (int64_t)ir_dtype_size_bytes(m->native);
  int64_t common = seen(m, i0);
  cpu_matrix weights = {rows, common, stride, 1}, values = v->shape, to = {rows, width, width, 1};
  values.rows = common;
  cpu_gemm_run(m->unit, &weights, scores, &values, v->at, &to, out, m->native, false,
               scratch + m->gemm_offset);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = common; j < seen(m, i0 + i); j++)
      (m->native == IR_F64 ? add_f64 : add_f32)(
          width, out + i * width * size, scores + (i * stride + j) * size,
          v->at + j * v->shape.row_stride * size, v->shape.column_stride);
}

static void run_queries(const sdpa_kernel *m, char *const at[N_SIDES], const placed *k,
                        const placed *v, int64_t i0, char *scratch) {
  const side *s = m->sides;
  char *spare = scratch + m->transfer_offset, *scores = scratch + m->scores_offset;
  char *out = scratch + s[OUT].offset;
  int64_t rows = smaller(QUERIES, s[OUT].shape.rows - i0), width = s[OUT].shape.columns;
  placed q = rows_of(&s[Q], at[Q], i0, rows, scratch + s[Q].offset, spare);
  weigh(m, &q, k, i0, scores, s[K].shape.rows, scratch);
  mix(m, v, i0, rows, scores, s[K].shape.rows, out, scratch);
  for (int64_t i = 0; i < rows; i++)
    cpu_store(&m->store, width, at[OUT] + (i0 + i) * s[OUT].shape.row_stride * s[OUT].size_bytes,
              out + i * width * (int64_t)m->store.native_bytes, spare);
}

static status run_sdpa(const cpu_kernel *head, char *const *starts, char *scratch) {
  const sdpa_kernel *m = (const sdpa_kernel *)head;
  const side *s = m->sides;
  cpu_walk w = cpu_walk_start(&m->batch, m->views, starts);
  char *spare = scratch + m->transfer_offset;
  do {
    placed k = rows_of(&s[K], w.at[K], 0, s[K].shape.rows, scratch + s[K].offset, spare);
    placed v = rows_of(&s[V], w.at[V], 0, s[V].shape.rows, scratch + s[V].offset, spare);
    for (int64_t i = 0; i < s[OUT].shape.rows; i += QUERIES)
      run_queries(m, w.at, &k, &v, i, scratch);
  } while (cpu_walk_next(&m->batch, &w, 0));
  return STATUS_OK;
}

/* ---- preparing ---- */

/* The result's dimensions that operand `operand` has: its batch, and rows or columns as asked. */
static void place_side(const cpu_call *c, sdpa_kernel *m, uint32_t i, bool rows, bool columns) {
  rt_view x = cpu_operand(c, i - Q);
  uint32_t rank = c->result->rank;
  int from[IR_MAX_RANK];
  cpu_align(c, x.rank - 2, rank - 2, from);
  if (rows) from[rank - 2] = (int)x.rank - 2;
  if (columns) from[rank - 1] = (int)x.rank - 1;
  m->views[i] = cpu_place(c, i - Q, from);
  m->sides[i].shape = (cpu_matrix){rows ? c->result->extents[rank - 2] : x.extents[x.rank - 2],
                                   columns ? c->result->extents[rank - 1] : x.extents[x.rank - 1],
                                   x.strides[x.rank - 2], x.strides[x.rank - 1]};
}

static size_t reserve(sdpa_kernel *m, int64_t rows, int64_t columns) {
  size_t at = m->head.scratch_bytes, bytes = (size_t)rows * (size_t)columns * sizeof(double);
  m->head.scratch_bytes += (bytes + CPU_SCRATCH_ALIGN - 1) & ~(size_t)(CPU_SCRATCH_ALIGN - 1);
  return at;
}

static void plan_side(sdpa_kernel *m, uint32_t i) {
  side *s = &m->sides[i];
  ir_dtype t = m->views[i].dtype;
  s->size_bytes = (int64_t)ir_dtype_size_bytes(t);
  s->staged = i != OUT && t != m->native;
  s->load = cpu_transfer_load(t, s->shape.column_stride * s->size_bytes, m->native);
  if (s->staged || i == OUT)
    s->offset = reserve(m, i == Q || i == OUT ? QUERIES : s->shape.rows, s->shape.columns);
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static void plan(const cpu_call *c, sdpa_kernel *m) {
  const side *s = m->sides;
  uint32_t rank = c->result->rank;
  m->views[OUT] = cpu_place_result(c);
  m->sides[OUT].shape = (cpu_matrix){c->result->extents[rank - 2], c->result->extents[rank - 1],
                                     c->result->strides[rank - 2], c->result->strides[rank - 1]};
  m->native = cpu_native(c->result->dtype);
  m->unit = cpu_gemm_unit_of(m->native);
  for (uint32_t i = 0; i < N_SIDES; i++) plan_side(m, i);
  m->store = cpu_transfer_store(c->result->dtype, s[OUT].shape.column_stride * s[OUT].size_bytes,
                                m->native);
  m->scores_offset = reserve(m, QUERIES, s[K].shape.rows);
  int64_t longest = larger(s[Q].shape.columns, s[OUT].shape.columns);
  m->transfer_offset = reserve(m, 1, (int64_t)(cpu_transfer_bytes(longest) / sizeof(double)));
  m->gemm_offset = reserve(m, 1, (int64_t)(cpu_gemm_scratch_bytes() / sizeof(double)));
  cpu_loops_make(&m->batch, CPU_IN_ORDER, rank - 2, c->result->extents, m->views, N_SIDES);
}

status cpu_prepare_sdpa(const cpu_call *c, cpu_kernel **result) {
  sdpa_kernel *m = CPU_KERNEL_NEW(c, sdpa_kernel, run_sdpa);
  const rt_attr *scale = rt_task_attr(c->task, "scale");
  place_side(c, m, Q, true, false);
  place_side(c, m, K, false, false);
  place_side(c, m, V, false, true);
  plan(c, m);
  m->causal = rt_task_int(c->task, "causal") != 0;
  m->first = c->offset[c->result->rank - 2];
  m->scale = scale->given ? ir_number_as_f64(rt_task_number(c->task, "scale"))
                          : 1 / sqrt((double)m->sides[Q].shape.columns);
  *result = &m->head;
  return STATUS_OK;
}
