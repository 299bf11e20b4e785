/* sdpa_backward: gradients of attention, one query after the other.
 *
 * Of each head of k and v, rows are brought into dense native memory once, and their gradients are added up
 * there over all queries that see them, of all heads of q that they serve. With p = exp(scale q.k - lse) and
 * ds = scale p (dout.v - dout.out), the gradients are dq = ds k, dk = ds q, dv = p dout. */
#include <math.h>
#include <string.h>

#include "device/cpu/kernel_internal.h"

enum { Q, K, V, OUT, LSE, DOUT, N_OPERANDS, N_RESULTS = 3 };

/* Rows of one head, and how to get from head to head. */
typedef struct side {
  ir_dtype dtype;
  uint32_t start;             /* in the task's starts */
  int64_t batch[IR_MAX_RANK]; /* bytes from one batch to the next, per axis */
  int64_t head, row;          /* likewise */
  cpu_transfer load, store;   /* of a row; operands, results */
  int64_t width;              /* elements of a row */
  bool present;
} side;

typedef struct backward_kernel {
  cpu_kernel head;
  uint32_t n_batch;
  int64_t batch[IR_MAX_RANK]; /* extents */
  int64_t heads, group;       /* of k, and how many of q each serves */
  int64_t queries, keys, width, value_width;
  side in[N_OPERANDS], out[N_RESULTS];
  bool causal;
  double scale;
  ir_dtype native;
  size_t k, v, dk, dv, q, o, g, dq, weights, transfer; /* places in scratch */
} backward_kernel;

/* ---- one query ---- */
typedef struct query {
  const void *q, *o, *g; /* rows of q, out and dout */
  double lse;
  int64_t seen;
} query;

#define QUERY_STEP(T, name)                                                                        \
  static T dot_##name(int64_t n, const T *a, const T *b) {                                         \
    T sum = 0;                                                                                     \
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];                                            \
    return sum;                                                                                    \
  }                                                                                                \
  static void add_##name(int64_t n, T *to, T weight, const T *x) {                                 \
    for (int64_t i = 0; i < n; i++) to[i] += weight * x[i];                                        \
  }                                                                                                \
  /* The dq of the query, and its share in all dk and dv. */                                       \
  static void step_##name(const backward_kernel *m, const query *one, char *scratch) {             \
    const T *k = (const T *)(const void *)(scratch + m->k), *q = one->q, *g = one->g;              \
    const T *v = (const T *)(const void *)(scratch + m->v);                                        \
    T *dk = (T *)(void *)(scratch + m->dk), *dv = (T *)(void *)(scratch + m->dv);                  \
    T *dq = (T *)(void *)(scratch + m->dq);                                                        \
    const T mean = dot_##name(m->value_width, g, one->o);                                          \
    memset(dq, 0, (size_t)m->width * sizeof *dq);                                                  \
    for (int64_t j = 0; j < one->seen; j++) {                                                      \
      double s = (double)dot_##name(m->width, q, k + j * m->width) * m->scale;                     \
      T p = (T)exp(s - one->lse);                                                                  \
      T ds = p * (dot_##name(m->value_width, g, v + j * m->value_width) - mean) * (T)m->scale;     \
      add_##name(m->width, dq, ds, k + j * m->width);                                              \
      add_##name(m->width, dk + j * m->width, ds, q);                                              \
      add_##name(m->value_width, dv + j * m->value_width, p, g);                                   \
    }                                                                                              \
  }
QUERY_STEP(float, f32)
QUERY_STEP(double, f64)

/* ---- heads ---- */
static void load_rows(const backward_kernel *m, const side *s, int64_t rows, const char *from,
                      char *to, char *scratch) {
  int64_t bytes = s->width * (int64_t)ir_dtype_size_bytes(m->native);
  for (int64_t i = 0; i < rows; i++)
    cpu_load_to(&s->load, s->width, from + i * s->row, to + i * bytes, scratch + m->transfer);
}

static void store_rows(const backward_kernel *m, const side *s, int64_t rows, char *to, char *from,
                       char *scratch) {
  int64_t bytes = s->width * (int64_t)ir_dtype_size_bytes(m->native);
  for (int64_t i = 0; i < rows && s->present; i++)
    cpu_store(&s->store, s->width, to + i * s->row, from + i * bytes, scratch + m->transfer);
}

static void run_query(const backward_kernel *m, char *const *at, char *dq, int64_t i,
                      char *scratch) {
  const side *in = m->in;
  load_rows(m, &in[Q], 1, at[Q] + i * in[Q].row, scratch + m->q, scratch);
  load_rows(m, &in[OUT], 1, at[OUT] + i * in[OUT].row, scratch + m->o, scratch);
  load_rows(m, &in[DOUT], 1, at[DOUT] + i * in[DOUT].row, scratch + m->g, scratch);
  query one = {.q = scratch + m->q, .o = scratch + m->o, .g = scratch + m->g, .seen = m->keys};
  one.lse = ir_element_as_f64(in[LSE].dtype, at[LSE] + i * in[LSE].row);
  if (m->causal && i < m->keys) one.seen = i + 1;
  (m->native == IR_F64 ? step_f64 : step_f32)(m, &one, scratch);
  store_rows(m, &m->out[0], 1, dq + i * m->out[0].row, scratch + m->dq, scratch);
}

/* A head of k and v, with all heads of q that it serves. */
static void run_head(const backward_kernel *m, char *const *in, char *const *out, int64_t h,
                     char *scratch) {
  size_t size = ir_dtype_size_bytes(m->native);
  char *at[N_OPERANDS];
  load_rows(m, &m->in[K], m->keys, in[K] + h * m->in[K].head, scratch + m->k, scratch);
  load_rows(m, &m->in[V], m->keys, in[V] + h * m->in[V].head, scratch + m->v, scratch);
  memset(scratch + m->dk, 0, (size_t)(m->keys * m->width) * size);
  memset(scratch + m->dv, 0, (size_t)(m->keys * m->value_width) * size);
  for (int64_t g = h * m->group; g < (h + 1) * m->group; g++) {
    for (uint32_t i = 0; i < N_OPERANDS; i++) at[i] = in[i] + g * m->in[i].head;
    for (int64_t i = 0; i < m->queries; i++)
      run_query(m, at, out[0] + g * m->out[0].head, i, scratch);
  }
  store_rows(m, &m->out[1], m->keys, out[1] + h * m->out[1].head, scratch + m->dk, scratch);
  store_rows(m, &m->out[2], m->keys, out[2] + h * m->out[2].head, scratch + m->dv, scratch);
}

/* ---- batches ---- */
static char *start_of(const side *s, uint32_t n, const int64_t *index, char *const *starts) {
  char *at = s->present ? starts[s->start] : NULL;
  for (uint32_t d = 0; d < n && at; d++) at += index[d] * s->batch[d];
  return at;
}

static bool next_batch(const backward_kernel *m, int64_t *index) {
  for (uint32_t d = m->n_batch; d-- > 0;) {
    if (++index[d] < m->batch[d]) return true;
    index[d] = 0;
  }
  return false;
}

static status run_backward(const cpu_kernel *head, char *const *starts, char *scratch) {
  const backward_kernel *m = (const backward_kernel *)head;
  int64_t index[IR_MAX_RANK] = {0};
  do {
    char *in[N_OPERANDS], *out[N_RESULTS];
    for (uint32_t i = 0; i < N_OPERANDS; i++)
      in[i] = start_of(&m->in[i], m->n_batch, index, starts);
    for (uint32_t i = 0; i < N_RESULTS; i++)
      out[i] = start_of(&m->out[i], m->n_batch, index, starts);
    for (int64_t h = 0; h < m->heads; h++) run_head(m, in, out, h, scratch);
  } while (next_batch(m, index));
  return STATUS_OK;
}

/* ---- preparing ---- */
/* [batches, head, row, column]; the lse has no columns. */
static side side_of(const rt_view *v, uint32_t start, bool columns, ir_dtype native) {
  side s = {.dtype = v->dtype, .start = start, .present = true, .width = 1};
  int64_t size = (int64_t)ir_dtype_size_bytes(v->dtype);
  uint32_t row = v->rank - 1 - columns, batches = row ? row - 1 : 0;
  for (uint32_t d = 0; d < batches; d++) s.batch[d] = v->strides[d] * size;
  if (row) s.head = v->strides[row - 1] * size;
  s.row = v->strides[row] * size;
  if (columns) s.width = v->extents[row + 1];
  int64_t step = columns ? v->strides[row + 1] * size : size;
  s.load = cpu_transfer_load(v->dtype, step, native);
  s.store = cpu_transfer_store(v->dtype, step, native);
  s.store.direct = false; /* gradients are added up elsewhere */
  return s;
}

static size_t reserve(backward_kernel *m, int64_t rows, int64_t columns) {
  size_t at = m->head.scratch_bytes, bytes = (size_t)rows * (size_t)columns * sizeof(double);
  m->head.scratch_bytes += (bytes + CPU_SCRATCH_ALIGN - 1) & ~(size_t)(CPU_SCRATCH_ALIGN - 1);
  return at;
}

static void plan_scratch(backward_kernel *m) {
  int64_t widest = m->width > m->value_width ? m->width : m->value_width;
  m->k = reserve(m, m->keys, m->width);
  m->v = reserve(m, m->keys, m->value_width);
  m->dk = reserve(m, m->keys, m->width);
  m->dv = reserve(m, m->keys, m->value_width);
  m->q = reserve(m, 1, m->width);
  m->dq = reserve(m, 1, m->width);
  m->o = reserve(m, 1, m->value_width);
  m->g = reserve(m, 1, m->value_width);
  m->transfer = reserve(m, 1, (int64_t)(cpu_transfer_bytes(widest) / sizeof(double)));
}

static ir_dtype native_of(const cpu_call *c) {
  for (uint32_t i = 0; i < N_OPERANDS; i++)
    if (cpu_operand(c, i).dtype == IR_F64) return IR_F64;
  return IR_F32;
}

static void plan_shape(const cpu_call *c, backward_kernel *m) {
  rt_view q = cpu_operand(c, Q), k = cpu_operand(c, K), v = cpu_operand(c, V);
  uint32_t rank = q.rank;
  m->n_batch = rank > 2 ? rank - 3 : 0;
  for (uint32_t d = 0; d < m->n_batch; d++) m->batch[d] = q.extents[d];
  m->heads = rank > 2 ? k.extents[rank - 3] : 1;
  m->group = rank > 2 && m->heads ? q.extents[rank - 3] / m->heads : 1;
  m->queries = q.extents[rank - 2];
  m->keys = k.extents[rank - 2];
  m->width = q.extents[rank - 1];
  m->value_width = v.extents[rank - 1];
}

static bool no_batch(const backward_kernel *m) {
  for (uint32_t d = 0; d < m->n_batch; d++)
    if (m->batch[d] == 0) return true;
  return false;
}

static status run_none(const cpu_kernel *k, char *const *starts, char *scratch) {
  (void)k, (void)starts, (void)scratch;
  return STATUS_OK;
}

status cpu_prepare_sdpa_backward(const cpu_call *c, cpu_kernel **result) {
  backward_kernel *m = CPU_KERNEL_NEW(c, backward_kernel, run_backward);
  const rt_attr *scale = rt_task_attr(c->task, "scale");
  m->native = native_of(c);
  plan_shape(c, m);
  for (uint32_t i = 0; i < N_OPERANDS; i++) {
    rt_view x = cpu_operand(c, i);
    m->in[i] = side_of(&x, i + 1, i != LSE, m->native);
  }
  for (uint32_t i = 0; i < rt_task_n_results(c->task); i++)
    m->out[i] = side_of(cpu_result(c, i), i ? c->task->n_operands + i : 0, true, m->native);
  plan_scratch(m);
  if (no_batch(m)) m->head.run = run_none;
  m->causal = rt_task_int(c->task, "causal") != 0;
  m->scale = scale->given ? ir_number_as_f64(rt_task_number(c->task, "scale"))
                          : 1 / sqrt((double)m->width);
  *result = &m->head;
  return STATUS_OK;
}
