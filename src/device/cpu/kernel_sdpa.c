/* sdpa: softmax(q · kᵀ · scale) · v, in blocks of queries and keys.
 *
 * For each block of keys, packed once, the queries of a part go by, some at a time: their scores, the
 * weights by the maximum so far, and the weighted values added to sums that are corrected when the maximum
 * grows. At the end a row of sums is divided by the sum of its weights. So scores are never in memory as a
 * whole, and what a query gets does not depend on the queries beside it.
 *
 *            keys 0..255   256..511   …
 *   q  ┌──────────────┬──────────────┐
 *   0… │ scores →     │ (causal:     │   sums[query] = sums · exp(old maximum − new) + weights · v
 *      │ weights → Σ  │  skipped)    │
 *
 * With `causal` a query sees the keys up to its own position in the whole result. A key that is not seen
 * must not take part, not even as 0 · NaN: where values are not finite, queries that do not see all keys
 * of a block are computed one by one.
 *
 * Parts of a launch are blocks of queries, or several items of the batch. */
#include <math.h>
#include <string.h>

#include "device/cpu/kernel_gemm.h"

#include "device/cpu/kernel_fast.h"

enum { KEYS = CPU_GEMM_DEPTH, QUERIES = 96, MOST_QUERIES = 768, LEAST_QUERIES = 384 };
enum { OUT, Q, K, V, LSE, N_SIDES }; /* LSE: log of the sum of exp of the scores, one per query */

/* One matrix per item of the batch; staged into dense native rows unless it is of the native type. */
typedef struct side {
  cpu_view view;
  cpu_matrix shape;
  int64_t size_bytes;
  bool staged;
  cpu_transfer load;
  int64_t steps[IR_MAX_RANK]; /* by dimension of the batch, in bytes */
  int64_t first_head, heads_each,
      head_step; /* of dimension `heads`: (first + head) / each * step */
} side;

typedef struct sdpa_kernel {
  cpu_kernel head;
  const cpu_gemm_unit *unit;
  uint32_t n_sides; /* with the second result, or without */
  uint32_t batch_rank;
  int64_t batch[IR_MAX_RANK]; /* extents */
  side sides[N_SIDES];
  int64_t first; /* position of the first query in the whole */
  bool causal;
  double scale;
  ir_dtype native;
  int64_t size; /* of a native element */
  cpu_transfer store;
  int64_t queries, items;                  /* of a part; of the batch */
  int64_t blocks, items_at_once;           /* parts of an item; or items of a part */
  int64_t n_queries, n_keys, depth, width; /* of an item */
  void (*weigh)(int64_t n, void *x, double scale, void *state, void *factor);
  /* scratch */
  size_t state_at, sums_at, scores_at, keys_at, values_at, queries_at, rows_at, transfer_at;
} sdpa_kernel;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* How many keys query i sees. */
static int64_t seen(const sdpa_kernel *m, int64_t i) {
  return m->causal ? smaller(m->n_keys, m->first + i + 1) : m->n_keys;
}

/* ---- rows of native elements ---- */
#define ROW_STEPS(T, name)                                                                         \
  static void multiply_##name(int64_t n, void *x_, const void *by) {                               \
    T *x = x_, factor = *(const T *)by;                                                            \
    for (int64_t i = 0; i < n; i++) x[i] = x[i] * factor;                                          \
  }                                                                                                \
  static void divide_##name(int64_t n, void *x_, const void *by) {                                 \
    T *x = x_, share = 1 / *(const T *)by;                                                         \
    for (int64_t i = 0; i < n; i++) x[i] = x[i] * share;                                           \
  }                                                                                                \
  static void begin_##name(void *state_) {                                                         \
    T *state = state_;                                                                             \
    state[0] = -(T)INFINITY;                                                                       \
    state[1] = 0;                                                                                  \
  }
ROW_STEPS(float, f32)
ROW_STEPS(double, f64)
/* Of words: sums of floats would have to be in order. */
#define IS_FINITE(word, name, exponent)                                                            \
  static bool is_finite_##name(int64_t n, const void *x_) {                                        \
    const word *x = x_;                                                                            \
    word found = 0;                                                                                \
    for (int64_t i = 0; i < n; i++) found |= (x[i] & (exponent)) == (exponent);                    \
    return !found;                                                                                 \
  }
IS_FINITE(uint32_t, f32, 0x7f800000U)
IS_FINITE(uint64_t, f64, 0x7ff0000000000000U)
#define OF_TYPE(m, name) ((m)->native == IR_F64 ? name##_f64 : name##_f32)

/* ---- staging and packing ---- */
/* Rows [row, row + rows) of a side, as `shape` says. */
static const char *rows_of(const sdpa_kernel *m, const side *s, const char *from, int64_t row,
                           int64_t rows, size_t to_at, char *scratch, cpu_matrix *shape) {
  int64_t step = s->shape.row_stride * s->size_bytes, columns = s->shape.columns;
  char *to = scratch + to_at;
  from += row * step;
  *shape = (cpu_matrix){rows, columns, s->shape.row_stride, s->shape.column_stride};
  if (!s->staged) return from;
  for (int64_t i = 0; i < rows; i++)
    cpu_load_to(&s->load, columns, from + i * step, to + i * columns * m->size,
                scratch + m->transfer_at);
  shape->row_stride = columns;
  shape->column_stride = 1;
  return to;
}

/* Panels of b, contiguous. */
static void pack_panels(const sdpa_kernel *m, const cpu_matrix *b, const char *from, char *to) {
  int64_t columns = m->unit->columns, panel_bytes = b->rows * columns * m->size;
  for (int64_t j = 0; j < b->columns; j += columns, to += panel_bytes) {
    cpu_matrix panel = {b->rows, smaller(columns, b->columns - j), b->row_stride, b->column_stride};
    m->unit->pack(&panel, from + j * b->column_stride * m->size, to);
  }
}

/* c (+)= a * b, of b's panels of `depth` rows the first a->columns. */
static void multiply_panels(const sdpa_kernel *m, const cpu_matrix *a, const char *a_at,
                            const char *panels, int64_t depth, const cpu_matrix *c, char *c_at,
                            bool accumulate) {
  int64_t columns = m->unit->columns, panel_bytes = depth * columns * m->size;
  for (int64_t j = 0; j < c->columns; j += columns, panels += panel_bytes) {
    cpu_matrix to = {c->rows, smaller(columns, c->columns - j), c->row_stride, 1};
    m->unit->multiply(a, a_at, panels, columns, &to, c_at + j * m->size, accumulate,
                      (cpu_ahead){0});
  }
}

/* ---- a block of keys ---- */
typedef struct block {
  int64_t first, n; /* keys */
  bool finite;      /* all values are */
  char *keys, *values, *scratch;
} block;

static block pack_block(const sdpa_kernel *m, char *const at[N_SIDES], int64_t first, int64_t n,
                        char *scratch) {
  block b = {first, n, true, scratch + m->keys_at, scratch + m->values_at, scratch};
  cpu_matrix k, v;
  const char *rows = rows_of(m, &m->sides[K], at[K], first, n, m->rows_at, scratch, &k);
  cpu_matrix transposed = {k.columns, k.rows, k.column_stride, k.row_stride};
  pack_panels(m, &transposed, rows, b.keys);
  rows = rows_of(m, &m->sides[V], at[V], first, n, m->rows_at, scratch, &v);
  pack_panels(m, &v, rows, b.values);
  if (!m->causal) return b;
  int64_t columns = (v.columns + m->unit->columns - 1) / m->unit->columns * m->unit->columns;
  b.finite = OF_TYPE(m, is_finite)(n * columns, b.values);
  return b;
}

/* Scores of queries [i, i + rows) become weights; the sums so far follow the maximum. */
static void weigh_rows(const sdpa_kernel *m, const block *b, int64_t i, int64_t part, int64_t rows,
                       int64_t columns, char *scores) {
  for (int64_t r = 0; r < rows; r++) {
    int64_t n = smaller(columns, larger(0, seen(m, i + r) - b->first)), at = i - part + r;
    char *row = scores + r * KEYS * m->size;
    double factor; /* holds one of either type */
    if (n > 0) {
      m->weigh(n, row, m->scale, b->scratch + m->state_at + (size_t)(at * 2 * m->size), &factor);
      OF_TYPE(m, multiply)
      (m->width, b->scratch + m->sums_at + (size_t)(at * m->width * m->size), &factor);
    }
    memset(row + n * m->size, 0, (size_t)((columns - n) * m->size));
  }
}

static void add_values(const sdpa_kernel *m, const block *b, int64_t i, int64_t rows,
                       int64_t columns, const char *weights, char *sums) {
  cpu_matrix a = {rows, columns, KEYS, 1}, c = {rows, m->width, m->width, 1};
  if (b->finite || seen(m, i) - b->first >= columns) {
    multiply_panels(m, &a, weights, b->values, b->n, &c, sums, true);
    return;
  }
  a.rows = c.rows = 1;
  for (int64_t r = 0; r < rows; r++) {
    a.columns = smaller(columns, seen(m, i + r) - b->first);
    if (a.columns > 0)
      multiply_panels(m, &a, weights + r * KEYS * m->size, b->values, b->n, &c,
                      sums + r * m->width * m->size, true);
  }
}

/* Queries [i, i + rows) of the part that begins at `part`. */
static void run_queries(const sdpa_kernel *m, const block *b, const char *q_at, int64_t i,
                        int64_t part, int64_t rows) {
  int64_t columns = smaller(b->n, seen(m, i + rows - 1) - b->first);
  char *scores = b->scratch + m->scores_at;
  cpu_matrix q, c = {rows, columns, KEYS, 1};
  if (columns <= 0) return;
  const char *queries = rows_of(m, &m->sides[Q], q_at, i, rows, m->queries_at, b->scratch, &q);
  if (m->depth > 0) multiply_panels(m, &q, queries, b->keys, m->depth, &c, scores, false);
  else memset(scores, 0, (size_t)(rows * KEYS * m->size)); /* sums of nothing */
  weigh_rows(m, b, i, part, rows, columns, scores);
  add_values(m, b, i, rows, columns, scores,
             b->scratch + m->sums_at + (size_t)((i - part) * m->width * m->size));
}

/* ---- a part ---- */
static void begin_sums(const sdpa_kernel *m, int64_t queries, char *scratch) {
  memset(scratch + m->sums_at, 0, (size_t)(queries * m->width * m->size));
  for (int64_t i = 0; i < queries; i++)
    OF_TYPE(m, begin)(scratch + m->state_at + (size_t)(i * 2 * m->size));
}

static void store_lse(const sdpa_kernel *m, char *to, int64_t part, int64_t queries,
                      const char *scratch) {
  const side *s = &m->sides[LSE];
  for (int64_t i = 0; i < queries; i++) {
    const char *state = scratch + m->state_at + (size_t)(i * 2 * m->size);
    double most = ir_element_as_f64(m->native, state);
    double sum = ir_element_as_f64(m->native, state + m->size);
    ir_element_set_f64(s->view.dtype, to + (part + i) * s->shape.row_stride * s->size_bytes,
                       most + log(sum));
  }
}

/* Without keys there is nothing to divide, and the result is 0. */
static void store_sums(const sdpa_kernel *m, char *to, int64_t part, int64_t queries,
                       char *scratch) {
  int64_t step = m->sides[OUT].shape.row_stride * m->sides[OUT].size_bytes;
  for (int64_t i = 0; i < queries; i++) {
    char *row = scratch + m->sums_at + (size_t)(i * m->width * m->size);
    const char *state = scratch + m->state_at + (size_t)(i * 2 * m->size);
    if (m->n_keys > 0) OF_TYPE(m, divide)(m->width, row, state + m->size);
    cpu_store(&m->store, m->width, to + (part + i) * step, row, scratch + m->transfer_at);
  }
}

static void run_block(const sdpa_kernel *m, char *const at[N_SIDES], int64_t part, char *scratch) {
  int64_t end = smaller(m->n_queries, part + m->queries), last = seen(m, end - 1);
  begin_sums(m, end - part, scratch);
  for (int64_t j = 0; j < last; j += KEYS) {
    block b = pack_block(m, at, j, smaller(KEYS, last - j), scratch);
    for (int64_t i = part; i < end; i += QUERIES)
      run_queries(m, &b, at[Q], i, part, smaller(QUERIES, end - i));
  }
  store_sums(m, at[OUT], part, end - part, scratch);
  if (m->n_sides > LSE) store_lse(m, at[LSE], part, end - part, scratch);
}

static void find_item(const sdpa_kernel *m, int64_t item, char *const *starts, char **at) {
  for (uint32_t v = 0; v < m->n_sides; v++) at[v] = cpu_view_start(&m->sides[v].view, starts);
  for (uint32_t d = m->batch_rank; d-- > 0; item /= m->batch[d])
    for (uint32_t v = 0; v < m->n_sides; v++) at[v] += item % m->batch[d] * m->sides[v].steps[d];
}

static status run_part(const cpu_kernel *head, uint32_t part, char *const *starts, char *scratch,
                       char *shared) {
  const sdpa_kernel *m = (const sdpa_kernel *)head;
  int64_t first = part / m->blocks * m->items_at_once;
  int64_t end = smaller(m->items, first + m->items_at_once);
  (void)shared;
  for (int64_t item = first; item < end; item++) {
    char *at[N_SIDES] = {NULL};
    find_item(m, item, starts, at);
    run_block(m, at, part % m->blocks * m->queries, scratch);
  }
  return STATUS_OK;
}

/* ---- preparing ---- */
/* The result's dimensions that the operand has: its batch, and rows or columns as asked. */
static void place_side(const cpu_call *c, sdpa_kernel *m, uint32_t i, bool rows, bool columns) {
  rt_view x = cpu_operand(c, i - Q);
  uint32_t rank = c->result->rank;
  int from[IR_MAX_RANK];
  rt_align(x.rank - 2, rank - 2, from);
  if (rows) from[rank - 2] = (int)x.rank - 2;
  if (columns) from[rank - 1] = (int)x.rank - 1;
  m->sides[i].view = cpu_place(c, i - Q, from);
  m->sides[i].shape = (cpu_matrix){rows ? c->result->extents[rank - 2] : x.extents[x.rank - 2],
                                   columns ? c->result->extents[rank - 1] : x.extents[x.rank - 1],
                                   x.strides[x.rank - 2], x.strides[x.rank - 1]};
}

static void place_result(const cpu_call *c, sdpa_kernel *m) {
  const rt_view *r = c->result;
  m->sides[OUT].view = cpu_place_result(c);
  m->sides[OUT].shape = (cpu_matrix){r->extents[r->rank - 2], r->extents[r->rank - 1],
                                     r->strides[r->rank - 2], r->strides[r->rank - 1]};
  m->n_sides = c->task->n_more > 0 ? N_SIDES : LSE;
  if (m->n_sides == LSE) return;
  const rt_view *lse = cpu_result(c, 1);
  m->sides[LSE].view = cpu_place_more(c, 1);
  m->sides[LSE].shape =
      (cpu_matrix){lse->extents[lse->rank - 1], 1, lse->strides[lse->rank - 1], 1};
}

static void plan_side(sdpa_kernel *m, side *s) {
  s->size_bytes = (int64_t)ir_dtype_size_bytes(s->view.dtype);
  s->staged = s->view.dtype != m->native;
  s->load = cpu_transfer_load(s->view.dtype, s->shape.column_stride * s->size_bytes, m->native);
  for (uint32_t d = 0; d < m->batch_rank; d++) s->steps[d] = s->view.strides[d] * s->size_bytes;
}

static double bounded(double x, double least, double most) {
  return x < least ? least : x > most ? most : x;
}

/* As many queries that packing keys and values is cheap beside them; parts follow from shapes alone. */
static void plan_parts(sdpa_kernel *m) {
  double query_flops = 2.0 * (double)larger(1, m->n_keys) * (double)larger(1, m->depth + m->width);
  double item_flops = query_flops * (double)m->n_queries, all = item_flops * (double)m->items;
  double part_flops = bounded(all / 64, 1e7, 1.5e8);
  int64_t queries = (int64_t)bounded(part_flops / query_flops, LEAST_QUERIES, MOST_QUERIES);
  m->blocks = (m->n_queries + queries - 1) / queries;
  m->queries = (m->n_queries + m->blocks - 1) / m->blocks;
  m->items_at_once =
      m->blocks > 1 ? 1 : smaller(m->items, 1 + (int64_t)(part_flops / item_flops / 2));
  while ((m->items / m->items_at_once + 1) * m->blocks > INT32_MAX) m->items_at_once *= 2;
  m->head.n_parts = (uint32_t)((m->items + m->items_at_once - 1) / m->items_at_once * m->blocks);
  m->head.run_part = run_part;
}

static size_t reserve(sdpa_kernel *m, int64_t rows, int64_t columns) {
  size_t at = m->head.scratch_bytes, bytes = (size_t)(rows * columns * m->size);
  m->head.scratch_bytes += (bytes + CPU_SCRATCH_ALIGN - 1) & ~(size_t)(CPU_SCRATCH_ALIGN - 1);
  return at;
}

static void plan_scratch(sdpa_kernel *m) {
  int64_t columns = m->unit->columns, keys = smaller(KEYS, m->n_keys);
  int64_t longest = larger(m->depth, m->width);
  m->state_at = reserve(m, m->queries, 2);
  m->sums_at = reserve(m, m->queries, m->width);
  m->scores_at = reserve(m, smaller(QUERIES, m->queries), KEYS);
  m->keys_at = reserve(m, keys + columns, m->depth);
  m->values_at = reserve(m, keys, m->width + columns);
  if (m->sides[Q].staged) m->queries_at = reserve(m, QUERIES, m->depth);
  if (m->sides[K].staged || m->sides[V].staged) m->rows_at = reserve(m, keys, longest);
  m->transfer_at = reserve(m, 1, (int64_t)cpu_transfer_bytes(longest) / m->size);
}

static void plan(const cpu_call *c, sdpa_kernel *m) {
  m->native = cpu_native(c->result->dtype);
  m->size = (int64_t)ir_dtype_size_bytes(m->native);
  m->unit = cpu_gemm_unit_of(m->native);
  m->weigh = cpu_vectors()->weigh[m->native];
  m->batch_rank = c->result->rank - 2;
  m->items = 1;
  for (uint32_t d = 0; d < m->batch_rank; d++) m->items *= m->batch[d] = c->result->extents[d];
  for (uint32_t i = 0; i < m->n_sides; i++) plan_side(m, &m->sides[i]);
  const side *out = &m->sides[OUT];
  m->store =
      cpu_transfer_store(c->result->dtype, out->shape.column_stride * out->size_bytes, m->native);
  m->store.direct = false;
  m->n_queries = out->shape.rows, m->width = out->shape.columns;
  m->n_keys = m->sides[K].shape.rows, m->depth = m->sides[Q].shape.columns;
  plan_parts(m);
  plan_scratch(m);
}

status cpu_prepare_sdpa(const cpu_call *c, cpu_kernel **result) {
  sdpa_kernel *m = CPU_KERNEL_NEW(c, sdpa_kernel, NULL);
  const rt_attr *scale = rt_task_attr(c->task, "scale");
  place_result(c, m);
  place_side(c, m, Q, true, false);
  place_side(c, m, K, false, false);
  place_side(c, m, V, false, true);
  plan(c, m);
  m->causal = rt_task_int(c->task, "causal") != 0;
  m->first = c->offset[c->result->rank - 2];
  m->scale = scale->given ? ir_number_as_f64(rt_task_number(c->task, "scale"))
                          : 1 / sqrt((double)m->depth);
  *result = &m->head;
  return STATUS_OK;
}
