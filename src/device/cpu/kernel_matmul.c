/* matmul and linear.
 *
 * Both are products over the space [result dimensions ..., k]: a, b and the bias are placed in it with
 * stride 0 where they repeat. Of the result's dimensions but the last (n), one along which b repeats
 * becomes m and the others are walked: so rows of several dimensions are one product where their
 * strides allow, and a batch along which an operand repeats needs no copy of it.
 *
 * Operands of another dtype, or laid out as no BLAS takes them, are staged block by block into scratch
 * in native elements; a result of another dtype, or strided both ways, likewise on its way out. The
 * bias is copied to the result first, and the product added to it. */
#include "device/cpu/dnnl.h"
#include "device/cpu/kernel_gemm.h"

enum { BLOCK_M = 256, BLOCK_N = 512, BLOCK_K = 512 };
enum { C, A, B, N_SIDES };

/* A matrix that is multiplied as it lies in memory, or staged. */
typedef struct side {
  cpu_matrix shape; /* in elements, of the whole product */
  int64_t size_bytes;
  bool staged;
  bool by_columns; /* staged with columns dense, because memory is */
  cpu_transfer load, store;
} side;

typedef struct matmul_kernel {
  cpu_kernel head;
  cpu_loops batch; /* views: c, a, b; the run is a dimension like the others */
  cpu_view views[N_SIDES];
  side sides[N_SIDES];
  int64_t m, n, k;
  int64_t block_m, block_n, block_k;
  ir_dtype native;
  bool blas, bf16; /* bf16: multiplied as such by oneDNN */
  bool has_bias;
  cpu_copy bias;
  size_t offsets[N_SIDES], transfer_offset, gemm_offset; /* of scratch */
} matmul_kernel;

/* ---- staging ---- */
static cpu_matrix block_shape(const side *s, int64_t rows, int64_t columns) {
  cpu_matrix shape = s->shape;
  shape.rows = rows;
  shape.columns = columns;
  if (s->staged) {
    shape.row_stride = s->by_columns ? 1 : columns;
    shape.column_stride = s->by_columns ? rows : 1;
  }
  return shape;
}

static char *block_start(const side *s, char *from, int64_t row, int64_t column) {
  return from + (row * s->shape.row_stride + column * s->shape.column_stride) * s->size_bytes;
}

/* Lines of a block: how many, how long, how far apart in memory. */
typedef struct lines {
  int64_t count, length, step;
} lines;

static lines lines_of(const side *s, const cpu_matrix *block) {
  if (s->by_columns)
    return (lines){block->columns, block->rows, s->shape.column_stride * s->size_bytes};
  return (lines){block->rows, block->columns, s->shape.row_stride * s->size_bytes};
}

static char *stage_in(const side *s, const cpu_matrix *block, char *from, char *to, char *spare) {
  lines l = lines_of(s, block);
  int64_t bytes = l.length * (int64_t)s->load.native_bytes;
  if (!s->staged) return from;
  for (int64_t i = 0; i < l.count; i++)
    cpu_load_to(&s->load, l.length, from + i * l.step, to + i * bytes, spare);
  return to;
}

static void stage_out(const side *s, const cpu_matrix *block, char *to, const char *from,
                      char *spare) {
  lines l = lines_of(s, block);
  int64_t bytes = l.length * (int64_t)s->store.native_bytes;
  for (int64_t i = 0; s->staged && i < l.count; i++)
    cpu_store(&s->store, l.length, to + i * l.step, from + i * bytes, spare);
}

/* ---- running ---- */
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static void multiply(const matmul_kernel *g, const cpu_matrix shapes[N_SIDES],
                     char *const at[N_SIDES], bool accumulate, char *scratch) {
  if (g->bf16)
    cpu_dnnl_bgemm(&shapes[A], (const uint16_t *)(void *)at[A], &shapes[B],
                   (const uint16_t *)(void *)at[B], &shapes[C], (float *)(void *)at[C], accumulate);
  else
    cpu_gemm_run(g->native, g->blas, &shapes[A], at[A], &shapes[B], at[B], &shapes[C], at[C],
                 accumulate, scratch + g->gemm_offset);
}

/* One block of c: all of k, in steps. */
static void run_block(const matmul_kernel *g, char *const at[N_SIDES], int64_t i, int64_t j,
                      char *scratch) {
  const side *s = g->sides;
  char *spare = scratch + g->transfer_offset, *from[N_SIDES];
  int64_t m = smaller(g->block_m, g->m - i), n = smaller(g->block_n, g->n - j);
  cpu_matrix shapes[N_SIDES] = {[C] = block_shape(&s[C], m, n)};
  char *c = block_start(&s[C], at[C], i, j);
  from[C] = s[C].staged ? scratch + g->offsets[C] : c;
  if (g->has_bias) (void)stage_in(&s[C], &shapes[C], c, from[C], spare);
  int64_t d = 0;
  do {
    int64_t k = smaller(g->block_k, g->k - d);
    shapes[A] = block_shape(&s[A], m, k);
    shapes[B] = block_shape(&s[B], k, n);
    from[A] = stage_in(&s[A], &shapes[A], block_start(&s[A], at[A], i, d), scratch + g->offsets[A],
                       spare);
    from[B] = stage_in(&s[B], &shapes[B], block_start(&s[B], at[B], d, j), scratch + g->offsets[B],
                       spare);
    multiply(g, shapes, from, g->has_bias || d > 0, scratch);
    d += k;
  } while (d < g->k);
  stage_out(&s[C], &shapes[C], c, from[C], spare);
}

static status run_matmul(const cpu_kernel *k, char *const *starts, char *scratch) {
  const matmul_kernel *g = (const matmul_kernel *)k;
  cpu_walk w = cpu_walk_start(&g->batch, g->views, starts);
  const cpu_view *bias = g->bias.views;
  if (g->has_bias)
    cpu_copy_run(&g->bias, cpu_view_start(&bias[0], starts), cpu_view_start(&bias[1], starts),
                 scratch);
  do
    for (int64_t i = 0; i < g->m; i += g->block_m)
      for (int64_t j = 0; j < g->n; j += g->block_n) run_block(g, w.at, i, j, scratch);
  while (cpu_walk_next(&g->batch, &w, 0));
  return STATUS_OK;
}

/* ---- preparing ---- */

/* The dimension to call m: the longest along which b repeats. Its strides are taken out of the
 * batch. */
static void take_m(matmul_kernel *g) {
  cpu_loops *l = &g->batch;
  uint32_t best = l->rank;
  for (uint32_t d = 0; d < l->rank; d++)
    if (l->steps[B][d] == 0 && (best == l->rank || l->extents[d] >= l->extents[best])) best = d;
  g->m = 1;
  if (best == l->rank || l->extents[best] == 1) return;
  g->m = l->extents[best];
  g->sides[C].shape.row_stride = l->steps[C][best] / g->sides[C].size_bytes;
  g->sides[A].shape.row_stride = l->steps[A][best] / g->sides[A].size_bytes;
  l->extents[best] = 1;
}

static void set_shapes(matmul_kernel *g) {
  cpu_matrix *c = &g->sides[C].shape, *a = &g->sides[A].shape, *b = &g->sides[B].shape;
  c->rows = a->rows = g->m;
  c->columns = b->columns = g->n;
  a->columns = b->rows = g->k;
}

static int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

/* Lines lie along the dimension with the smaller stride, unless that repeats. */
static void plan_side(matmul_kernel *g, uint32_t i, bool store) {
  side *s = &g->sides[i];
  ir_dtype t = g->views[i].dtype;
  int64_t row = magnitude(s->shape.row_stride), column = magnitude(s->shape.column_stride);
  s->by_columns = (row != 0 && row < column) || s->shape.columns == 1;
  s->staged = t != g->native || (g->blas && !cpu_blas_takes(&s->shape));
  int64_t step = (s->by_columns ? s->shape.row_stride : s->shape.column_stride) * s->size_bytes;
  s->load = cpu_transfer_load(t, step, g->native);
  if (store) s->store = cpu_transfer_store(t, step, g->native);
  s->store.direct = false;
}

static size_t reserve(matmul_kernel *g, size_t bytes) {
  size_t at = g->head.scratch_bytes;
  g->head.scratch_bytes += (bytes + CPU_SCRATCH_ALIGN - 1) & ~(size_t)(CPU_SCRATCH_ALIGN - 1);
  return at;
}

static size_t native_bytes(const matmul_kernel *g, int64_t rows, int64_t columns) {
  return (size_t)rows * (size_t)columns * ir_dtype_size_bytes(g->native);
}

/* A dimension is cut into blocks only where something staged has it. */
static void plan_blocks(matmul_kernel *g) {
  const side *s = g->sides;
  g->block_m = s[A].staged || s[C].staged ? smaller(g->m, BLOCK_M) : g->m;
  g->block_n = s[B].staged || s[C].staged ? smaller(g->n, BLOCK_N) : g->n;
  g->block_k = s[A].staged || s[B].staged ? smaller(g->k, BLOCK_K) : g->k;
  if (s[A].staged) g->offsets[A] = reserve(g, native_bytes(g, g->block_m, g->block_k));
  if (s[B].staged) g->offsets[B] = reserve(g, native_bytes(g, g->block_k, g->block_n));
  if (s[C].staged) g->offsets[C] = reserve(g, native_bytes(g, g->block_m, g->block_n));
  int64_t longest = s[A].staged || s[B].staged || s[C].staged ? BLOCK_K : 0;
  g->transfer_offset = reserve(g, cpu_transfer_bytes(longest));
  g->gemm_offset = reserve(g, cpu_gemm_scratch_bytes());
}

/* oneDNN multiplies bf16 as it is, into f32. */
static void plan_bf16(matmul_kernel *g) {
  side *a = &g->sides[A], *b = &g->sides[B], *c = &g->sides[C];
  g->bf16 = g->native == IR_F32 && g->views[A].dtype == IR_BF16 && g->views[B].dtype == IR_BF16 &&
            g->k > 0 && cpu_blas_takes(&a->shape) && cpu_blas_takes(&b->shape) &&
            cpu_dnnl_available();
  if (!g->bf16) return;
  a->staged = b->staged = false;
  c->staged = true;
  c->by_columns = false;
  int64_t step = c->shape.column_stride * c->size_bytes;
  c->load = cpu_transfer_load(g->views[C].dtype, step, g->native);
  c->store = cpu_transfer_store(g->views[C].dtype, step, g->native);
  c->store.direct = false;
}

/* n_last: does the result's last dimension belong to b alone? Else n is 1. */
static void plan(const cpu_call *c, matmul_kernel *g, bool n_last) {
  uint32_t rank = c->result->rank, outer = n_last ? rank - 1 : rank;
  for (uint32_t i = 0; i < N_SIDES; i++)
    g->sides[i].size_bytes = (int64_t)ir_dtype_size_bytes(g->views[i].dtype);
  g->n = n_last ? c->result->extents[rank - 1] : 1;
  g->sides[C].shape.column_stride = n_last ? g->views[C].strides[rank - 1] : 0;
  g->sides[B].shape.column_stride = n_last ? g->views[B].strides[rank - 1] : 0;
  cpu_loops_make(&g->batch, CPU_IN_ORDER, outer, c->result->extents, g->views, N_SIDES);
  take_m(g);
  set_shapes(g);
  g->native = cpu_gemm_native(c->result->dtype);
  g->blas = cpu_gemm_uses_blas(g->native);
  for (uint32_t i = 0; i < N_SIDES; i++) plan_side(g, i, i == C);
  plan_bf16(g);
  plan_blocks(g);
}

/* a[*, m, k] and b[*, k, n]; a vector has no m, or no n. */
status cpu_prepare_matmul(const cpu_call *c, cpu_kernel **result) {
  matmul_kernel *g = CPU_KERNEL_NEW(c, matmul_kernel, run_matmul);
  rt_view a = cpu_operand(c, 0), b = cpu_operand(c, 1);
  uint32_t rank = c->result->rank, has_m = a.rank > 1, has_n = b.rank > 1;
  uint32_t n_batch = rank - has_m - has_n;
  int from[IR_MAX_RANK];
  g->views[C] = cpu_place_result(c);
  cpu_align(c, a.rank - 1 - has_m, n_batch, from);
  if (has_m) from[n_batch] = (int)a.rank - 2;
  g->views[A] = cpu_place(c, 0, from);
  cpu_align(c, b.rank - 1 - has_n, n_batch, from);
  if (has_n) from[rank - 1] = (int)b.rank - 1;
  g->views[B] = cpu_place(c, 1, from);
  g->k = a.extents[a.rank - 1];
  g->sides[A].shape.column_stride = a.strides[a.rank - 1];
  g->sides[B].shape.row_stride = b.strides[has_n ? b.rank - 2 : 0];
  plan(c, g, has_n);
  *result = &g->head;
  return STATUS_OK;
}

static void add_bias(const cpu_call *c, matmul_kernel *g) {
  uint32_t rank = c->result->rank, lead = cpu_operand(c, 2).rank - 1;
  int from[IR_MAX_RANK];
  for (uint32_t d = 0; d < rank; d++) from[d] = d < lead ? (int)d : RT_NO_DIM;
  from[rank - 1] = (int)lead;
  cpu_view bias = cpu_place(c, 2, from);
  g->has_bias = true;
  cpu_copy_make(&g->bias, rank, c->result->extents, &g->views[C], &bias);
  size_t bytes = cpu_copy_scratch_bytes(&g->bias);
  if (bytes > g->head.scratch_bytes) g->head.scratch_bytes = bytes;
}

/* x[*, k], weight[*w, n, k], bias[*w, n] in the result [*w, *, n]. */
status cpu_prepare_linear(const cpu_call *c, cpu_kernel **result) {
  matmul_kernel *g = CPU_KERNEL_NEW(c, matmul_kernel, run_matmul);
  rt_view x = cpu_operand(c, 0), w = cpu_operand(c, 1);
  uint32_t rank = c->result->rank, lead = w.rank - 2;
  int from[IR_MAX_RANK];
  g->views[C] = cpu_place_result(c);
  for (uint32_t d = 0; d < rank; d++)
    from[d] = d >= lead && d + 1 < rank ? (int)(d - lead) : RT_NO_DIM;
  g->views[A] = cpu_place(c, 0, from);
  for (uint32_t d = 0; d < rank; d++) from[d] = d < lead ? (int)d : RT_NO_DIM;
  from[rank - 1] = (int)lead;
  g->views[B] = cpu_place(c, 1, from);
  g->k = x.extents[x.rank - 1];
  g->sides[A].shape.column_stride = x.strides[x.rank - 1];
  g->sides[B].shape.row_stride = w.strides[w.rank - 1];
  plan(c, g, true);
  if (rt_task_has_operand(c->task, 2)) add_bias(c, g);
  *result = &g->head;
  return STATUS_OK;
}
