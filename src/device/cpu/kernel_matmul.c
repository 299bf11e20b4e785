/* matmul and linear, and what the grouped products (kernel_matmul_groups.c) share with them.
 *
 * They are products over the space [result dimensions ..., k]: a, b and the bias are placed in it with
 * stride 0 where they repeat. Of the result's dimensions but the last (n), one along which b repeats
 * becomes m and the others are walked: so rows of several dimensions are one product where their
 * strides allow, and a batch along which an operand repeats needs no copy of it.
 *
 * A product is cut into blocks of rows and columns; each block sums up all of k, CPU_GEMM_DEPTH at a time.
 * Operands of another dtype than the unit's (native, or bf16 in pairs) are staged into scratch, rows of `a`
 * for the whole block, columns of `b` for one panel. A result of another dtype, or without unit strides, is
 * computed in scratch and stored at the end. A bias is there before the first product is added.
 *
 * Few rows are multiplied by b where it lies, without packing (gemm/few.h).
 *
 * What follows the product in a body (kernel_epilogue.h) overwrites each finished block.
 *
 * Blocks are the parts of a launch: some of one product, or several products of a batch. */
#include "device/cpu/kernel_matmul.h"

#include <string.h>

/* Less than that, 0.1 to 0.2 ms, is one part. */
static const double small_flops = 2e7;

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

/* Lines that repeat are loaded once. */
static char *stage_in(const side *s, const cpu_matrix *block, char *from, char *to, char *spare) {
  lines l = lines_of(s, block);
  int64_t bytes = l.length * (int64_t)s->load.native_bytes;
  if (!s->staged) return from;
  if (s->turned) {
    int64_t size = (int64_t)s->load.native_bytes;
    cpu_transpose(s->load.native_bytes, l.count, l.length, to, bytes, size, from, s->load.step);
    return to;
  }
  for (int64_t i = 0; i < l.count; i++)
    if (l.step == 0 && i > 0) memcpy(to + i * bytes, to, (size_t)bytes);
    else cpu_load_to(&s->load, l.length, from + i * l.step, to + i * bytes, spare);
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
/* The bias of a block, as the result begins. */
static void begin_with_bias(const matmul_kernel *g, char *bias, const cpu_matrix *block, char *to,
                            char *spare) {
  const side *s = &g->sides[BIAS];
  int64_t size = (int64_t)s->load.native_bytes, bytes = block->columns * size;
  for (int64_t i = 0; i < block->rows; i++) {
    char *row = to + i * block->row_stride * size;
    if (i > 0 && s->shape.row_stride == 0) memcpy(row, to, (size_t)bytes);
    else
      cpu_load_to(&s->load, block->columns, bias + i * s->shape.row_stride * s->size_bytes, row,
                  spare);
  }
}

static void begin_with_zeros(const matmul_kernel *g, const cpu_matrix *block, char *to) {
  int64_t size = (int64_t)ir_dtype_size_bytes(g->native);
  for (int64_t i = 0; i < block->rows; i++)
    memset(to + i * block->row_stride * size, 0, (size_t)(block->columns * size));
}

/* Columns of c from `shapes`, panel by panel; `at`: where the operands begin at this depth. b_next: the first column
 * of b that is read after them, or NULL. */
static void run_panels(const matmul_kernel *g, const cpu_matrix *a, const char *a_at, char *b_at,
                       const char *b_next, int64_t depth, const cpu_matrix *c, char *c_at,
                       bool accumulate, char *scratch) {
  const side *b = &g->sides[B];
  int64_t size = (int64_t)ir_dtype_size_bytes(g->native);
  int64_t step = b->staged ? g->unit->columns : c->columns;
  for (int64_t j = 0; j < c->columns; j += step) {
    cpu_matrix to = {c->rows, smaller(step, c->columns - j), c->row_stride, 1};
    cpu_matrix block = block_shape(b, depth, to.columns);
    char *from = stage_in(b, &block, block_start(b, b_at, 0, j), scratch + g->offsets[B],
                          scratch + g->transfer_offset);
    cpu_matrix panel = {depth, smaller(g->unit->columns, c->columns), b->shape.row_stride,
                        b->shape.column_stride};
    const char *next = j + step < c->columns ? block_start(b, b_at, 0, j + step) : b_next;
    cpu_gemm_block(g->unit, a, a_at, &block, from, &to, c_at + j * size,
                   cpu_ahead_of(&panel, next, b->size_bytes), accumulate,
                   scratch + g->panel_offset);
  }
}

/* What follows, on a finished block. */
static status run_after(const matmul_kernel *g, char *const *at, int64_t i, int64_t j,
                        char *scratch) {
  const cpu_kernel *k = g->after[i + g->block_m > g->m][j + g->block_n > g->n];
  char *starts[2 + CPU_MAX_OTHERS];
  if (!k) return STATUS_OK;
  starts[0] = starts[1] = block_start(&g->sides[C], at[C], i, j);
  for (uint32_t v = OTHERS; v < g->n_views; v++)
    starts[2 + v - OTHERS] = block_start(&g->sides[v], at[v], i, j);
  return cpu_kernel_run(k, starts, scratch + g->after_offset);
}

/* Rows of a as cpu_few has them. */
static void stage_few(const matmul_kernel *g, const char *from, char *to, char *spare) {
  const side *s = &g->sides[A];
  int64_t size = (int64_t)s->load.native_bytes, row = s->shape.row_stride * s->size_bytes;
  for (int64_t d = 0; d < g->k; d += CPU_GEMM_DEPTH) {
    int64_t depth = smaller(CPU_GEMM_DEPTH, g->k - d);
    const char *at = from + d * s->shape.column_stride * s->size_bytes;
    char *block = to + d * cpu_few_rows(g->m) * size;
    for (int64_t i = 0; i < g->m; i++) {
      char *line = block + i * CPU_GEMM_DEPTH * size;
      cpu_load_to(&g->few_load, depth, at + i * row, line, spare);
      memset(line + depth * size, 0, (size_t)((CPU_GEMM_DEPTH - depth) * size));
    }
    for (int64_t i = g->m; i < cpu_few_rows(g->m); i++)
      memset(block + i * CPU_GEMM_DEPTH * size, 0, (size_t)(CPU_GEMM_DEPTH * size));
  }
}

/* Columns of c that are done where b lies: all but those that do not fill a vector. */
static int64_t run_few(const matmul_kernel *g, const char *a, const char *b, const cpu_matrix *c,
                       char *to, char *scratch) {
  cpu_few f = {.b = g->sides[B].shape,
               .c = *c,
               .a_rows = cpu_few_rows(g->m),
               .from = b,
               .bf16 = g->views[B].dtype == IR_BF16,
               .accumulate = g->has_bias};
  f.c.columns = c->columns / g->unit->lanes * g->unit->lanes;
  if (f.c.columns == 0) return 0;
  stage_few(g, a, scratch + g->few_offset, scratch + g->transfer_offset);
  g->unit->few(&f, scratch + g->few_offset, to, scratch + g->panel_offset);
  return f.c.columns;
}

void cpu_matmul_rows(const matmul_kernel *g, char *const *at, int64_t i, int64_t rows, int64_t j,
                     int64_t group, char *scratch) {
  const side *s = g->sides;
  bool has_bias = g->has_bias;
  int64_t k = at[B] ? g->k : 0;
  char *spare = scratch + g->transfer_offset, *c = block_start(&s[C], at[C], i, j);
  char *to = s[C].staged ? scratch + g->offsets[C] : c;
  cpu_matrix sc = block_shape(&s[C], rows, smaller(g->block_n, g->n - j));
  if (has_bias) begin_with_bias(g, block_start(&s[BIAS], at[BIAS], i, j), &sc, to, spare);
  else if (k == 0) begin_with_zeros(g, &sc, to);
  cpu_matrix rest = sc;
  if (g->few) {
    int64_t done = run_few(g, block_start(&s[A], at[A], i, 0), block_start(&s[B], at[B], 0, j), &sc,
                           to, scratch);
    rest.columns -= done;
    j += done;
  }
  char *rest_to = to + (sc.columns - rest.columns) * (int64_t)ir_dtype_size_bytes(g->native);
  bool begun = has_bias;
  for (int64_t d = 0, depth; (depth = cpu_matmul_next_depth(g, at[OTHERS], group, k, &d)) > 0;
       d += depth) {
    if (rest.columns == 0) break;
    cpu_matrix sa = block_shape(&s[A], sc.rows, depth);
    char *a = stage_in(&s[A], &sa, block_start(&s[A], at[A], i, d), scratch + g->offsets[A], spare);
    const char *next = d + depth < k             ? block_start(&s[B], at[B], d + depth, j)
                       : j + rest.columns < g->n ? block_start(&s[B], at[B], 0, j + rest.columns)
                                                 : NULL;
    run_panels(g, &sa, a, block_start(&s[B], at[B], d, j), next, depth, &rest, rest_to, begun,
               scratch);
    begun = true;
  }
  if (g->by_depth && !begun && k > 0) begin_with_zeros(g, &sc, to);
  stage_out(&s[C], &sc, c, to, spare);
}

static status run_block(const matmul_kernel *g, int64_t item, char *const *at, int64_t i, int64_t j,
                        char *scratch) {
  int64_t rows = smaller(g->block_m, g->m - i);
  if (g->by_depth) return cpu_matmul_outer(g, item, at, i, rows, j, scratch);
  if (g->grouped) return cpu_matmul_groups(g, at, i, j, scratch);
  cpu_matmul_rows(g, at, i, rows, j, 0, scratch);
  return run_after(g, at, i, j, scratch);
}

/* Where the matrices of an item of the batch begin. */
static void find_item(const matmul_kernel *g, int64_t item, char *const *starts, char **at) {
  for (uint32_t v = 0; v < g->n_views; v++) at[v] = cpu_view_start(&g->views[v], starts);
  for (uint32_t d = g->batch.rank; d-- > 0; item /= g->batch.extents[d])
    for (uint32_t v = 0; v < g->n_views; v++)
      at[v] += item % g->batch.extents[d] * g->batch.steps[v][d];
}

/* Blocks are counted by item, then by rows, then by columns. */
static status run_part(const cpu_kernel *k, uint32_t part, char *const *starts, char *scratch,
                       char *shared) {
  const matmul_kernel *g = (const matmul_kernel *)k;
  int64_t blocks = g->blocks_m * g->blocks_n, first = part / blocks * g->items_at_once;
  int64_t block = part % blocks, end = smaller(g->items, first + g->items_at_once);
  (void)shared;
  for (int64_t item = first; item < end; item++) {
    char *at[MOST_SIDES] = {NULL};
    int64_t i = block / g->blocks_n * g->block_m, j = block % g->blocks_n * g->block_n;
    find_item(g, item, starts, at);
    TRY(run_block(g, item, at, i, j, scratch));
  }
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
  for (uint32_t v = 0; v < g->n_views; v++)
    if (v != B) g->sides[v].shape.row_stride = l->steps[v][best] / g->sides[v].size_bytes;
  l->extents[best] = 1;
}

static void set_shapes(matmul_kernel *g) {
  cpu_matrix *c = &g->sides[C].shape, *a = &g->sides[A].shape, *b = &g->sides[B].shape;
  cpu_matrix *bias = &g->sides[BIAS].shape;
  c->rows = a->rows = bias->rows = g->m;
  c->columns = b->columns = bias->columns = g->n;
  a->columns = b->rows = g->k;
}

static int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

static void swap_strides(cpu_matrix *m) {
  int64_t row = m->row_stride;
  m->row_stride = m->column_stride;
  m->column_stride = row;
}

/* Elements that are computed for m rows of n columns, which come by the panel. */
static double padded(const matmul_kernel *g, int64_t m, int64_t n) {
  return (double)m * (double)(pieces(n, g->unit->columns) * g->unit->columns);
}

/* c' = b' a' where the columns of c are contiguous and its rows are not, or where panels would be mostly
 * empty. */
static void transpose_if_better(matmul_kernel *g) {
  side *s = g->sides;
  bool lies_so = s[C].shape.column_stride != 1 && s[C].shape.row_stride == 1 && g->m > 1;
  double as_is = padded(g, g->m, g->n), other_way = padded(g, g->n, g->m);
  if (!(lies_so && as_is * 2 > other_way) && !(other_way * 2 < as_is)) return;
  for (uint32_t i = 0; i < MOST_SIDES; i++) swap_strides(&s[i].shape);
  side a = s[A];
  s[A] = s[B], s[B] = a;
  cpu_view view = g->views[A];
  g->views[A] = g->views[B], g->views[B] = view;
  int64_t steps[IR_MAX_RANK], m = g->m, bytes = sizeof steps;
  memcpy(steps, g->batch.steps[A], (size_t)bytes);
  memcpy(g->batch.steps[A], g->batch.steps[B], (size_t)bytes);
  memcpy(g->batch.steps[B], steps, (size_t)bytes);
  g->m = g->n, g->n = m;
}

/* Units read rows of a with any strides, a few at a time: those of a transposed a come from another page for every
 * element along k. */
static bool is_far_apart(const side *s, uint32_t i) {
  enum { FAR_BYTES = 512 };
  return i == A && s->by_columns && s->shape.rows > CPU_GEMM_FEW &&
         magnitude(s->shape.column_stride) * s->size_bytes >= FAR_BYTES;
}

/* What the unit reads or writes on that side. */
static ir_dtype unit_dtype(const matmul_kernel *g, uint32_t i) {
  return g->unit->pairs && (i == A || i == B) ? IR_BF16 : g->native;
}

/* Lines lie along the dimension with the smaller stride, unless that repeats. Units read a with any strides and
 * pack b, so only other dtypes are staged, and an a that is transposed; c must have dense rows, and so must an a
 * of pairs. */
static void plan_side(matmul_kernel *g, uint32_t i) {
  side *s = &g->sides[i];
  ir_dtype t = g->views[i].dtype, to = unit_dtype(g, i);
  bool pairs = g->unit->pairs && i == A;
  int64_t row = magnitude(s->shape.row_stride), column = magnitude(s->shape.column_stride);
  s->by_columns =
      i != C && i != BIAS && !pairs && ((row != 0 && row < column) || s->shape.columns == 1);
  s->staged = t != to || is_far_apart(s, i) ||
              ((i == C || pairs) && s->shape.column_stride != 1 && s->shape.columns > 1);
  int64_t step = (s->by_columns ? s->shape.row_stride : s->shape.column_stride) * s->size_bytes;
  s->load = cpu_transfer_load_as(t, step, to, to);
  s->turned = pairs && s->staged && s->shape.row_stride == 1;
  if (i != C) return;
  s->store = cpu_transfer_store(t, step, g->native);
  s->store.direct = false;
  if (!s->staged) s->shape.column_stride = 1;
}

/* Few rows cost what reading b costs. */
static void plan_few(matmul_kernel *g) {
  const cpu_matrix *a = &g->sides[A].shape, *b = &g->sides[B].shape;
  ir_dtype t = g->views[B].dtype;
  bool of_unit = t == g->native || (t == IR_BF16 && g->native == IR_F32);
  bool lies_so = b->row_stride == 1 || b->column_stride == 1;
  g->few = !g->grouped && of_unit && lies_so && g->m <= CPU_GEMM_FEW && g->k > 0 &&
           g->k <= CPU_GEMM_FEW_STAGED / g->m;
  ir_dtype to = unit_dtype(g, A);
  g->few_load =
      cpu_transfer_load_as(g->views[A].dtype, a->column_stride * g->sides[A].size_bytes, to, to);
}

/* The rows that cost as much as `rows` of this product do. */
static double rows_worth(const matmul_kernel *g, int64_t rows) {
  return (double)(g->few ? larger(rows, CPU_GEMM_FEW) : rows);
}

static size_t reserve(matmul_kernel *g, size_t bytes) {
  size_t at = g->head.scratch_bytes;
  g->head.scratch_bytes += (bytes + CPU_SCRATCH_ALIGN - 1) & ~(size_t)(CPU_SCRATCH_ALIGN - 1);
  return at;
}

static size_t side_bytes(const matmul_kernel *g, uint32_t i, int64_t rows, int64_t columns) {
  return (size_t)rows * (size_t)columns * ir_dtype_size_bytes(unit_dtype(g, i));
}

/* n cut evenly into pieces of at least `least`, which are multiples of `unit`. */
static int64_t even_piece(int64_t n, double least, int64_t unit) {
  int64_t count = least < (double)n ? (int64_t)((double)n / least) : 1;
  return smaller(larger(n, 1), pieces(pieces(n, count), unit) * unit);
}

static double bounded(double x, double least, double most) {
  return x < least ? least : x > most ? most : x;
}

/* Every block packs the columns of b that it needs, and stages the rows of a: rows are cut as little as
 * the second cache allows, columns then as the part's size says; a staged `a` is worth more columns, and
 * where one panel is too much, rows are cut again. Few rows read rows of b in long runs, or many columns. */
static void plan_blocks(matmul_kernel *g) {
  enum {
    STAGED_COLUMNS = 512,
    STAGED_ROWS = 256,
    FEW_COLUMNS = 1024,
    FEW_BYTES = 1 << 20,
    LEAST_ROWS = 504,
    ROWS_UNIT = 12
  };
  bool staged = g->sides[A].staged;
  double depth_flops = 2.0 * (double)larger(1, g->k);
  double all_flops = depth_flops * rows_worth(g, g->m) * (double)g->n;
  double flops = all_flops < small_flops ? all_flops : bounded(all_flops / 64, 1e7, 1.5e8);
  int64_t rows = staged ? STAGED_ROWS : g->unit->rows, columns = g->unit->columns;
  g->block_m = even_piece(g->m, (double)g->m / (double)pieces(g->m, rows), ROWS_UNIT);
  double least = flops / (depth_flops * rows_worth(g, g->block_m));
  if (staged && !g->few && least < STAGED_COLUMNS) least = STAGED_COLUMNS;
  double few_least = g->sides[B].shape.row_stride != 1
                         ? FEW_COLUMNS
                         : (double)FEW_BYTES / (double)(larger(1, g->k) * g->sides[B].size_bytes);
  if (g->few && least < few_least) least = few_least;
  g->block_n = even_piece(g->n, least < (double)columns ? (double)columns : least, columns);
  least = flops / (depth_flops * (double)g->block_n);
  if (!staged && !g->few && least < (double)g->block_m)
    g->block_m = even_piece(g->m, least < LEAST_ROWS ? LEAST_ROWS : least, ROWS_UNIT);
  g->blocks_m = pieces(g->m, g->block_m);
  g->blocks_n = pieces(g->n, g->block_n);
}

/* Parts follow from shapes alone. */
static void plan_parts(matmul_kernel *g) {
  double item_flops = 2.0 * rows_worth(g, g->m) * (double)g->n * (double)larger(1, g->k);
  int64_t blocks = g->blocks_m * g->blocks_n, at_once = 1;
  g->items = 1;
  for (uint32_t d = 0; d < g->batch.rank; d++) g->items *= g->batch.extents[d];
  if (blocks == 1) at_once = smaller(g->items, 1 + (int64_t)(small_flops / 2 / item_flops));
  while (pieces(g->items, at_once) * blocks > INT32_MAX) at_once *= 2;
  g->items_at_once = at_once;
  g->head.n_parts = (uint32_t)(pieces(g->items, at_once) * blocks);
  g->head.run_part = run_part;
}

static void plan_scratch(matmul_kernel *g) {
  const side *s = g->sides;
  if (s[A].staged) g->offsets[A] = reserve(g, side_bytes(g, A, g->block_m, CPU_GEMM_DEPTH));
  if (s[B].staged) g->offsets[B] = reserve(g, side_bytes(g, B, CPU_GEMM_DEPTH, g->unit->columns));
  if (s[C].staged) g->offsets[C] = reserve(g, side_bytes(g, C, g->block_m, g->block_n));
  int64_t longest = larger(CPU_GEMM_DEPTH, larger(g->block_n, g->block_m));
  g->transfer_offset = reserve(g, cpu_transfer_bytes(longest));
  g->panel_offset = reserve(g, cpu_gemm_scratch_bytes());
  if (g->few)
    g->few_offset = reserve(
        g, side_bytes(g, A, cpu_few_rows(g->m), pieces(g->k, CPU_GEMM_DEPTH) * CPU_GEMM_DEPTH));
}

/* What operands and result fit in. */
static ir_dtype widest(const matmul_kernel *g) {
  ir_dtype t = g->views[C].dtype;
  for (uint32_t i = A; i < (g->has_bias ? N_SIDES : BIAS); i++)
    t = ir_dtype_promote(t, g->views[i].dtype);
  return t;
}

/* ---- what follows ---- */
/* Where the body's task has the operands, and what is read besides. Without a bias, one that is nowhere. */
static void place_others(const cpu_epilogue *e, matmul_kernel *g) {
  for (uint32_t v = A; v < g->n_views; v++) g->views[v].start = e->starts[g->views[v].start];
  if (!g->has_bias) g->views[BIAS] = (cpu_view){.dtype = g->views[C].dtype};
  for (uint32_t i = 0; i < e->n_others; i++) g->views[OTHERS + i] = e->others[i];
  g->n_views = OTHERS + e->n_others;
}

/* One kernel per shape of blocks. */
static status prepare_after(const cpu_call *c, matmul_kernel *g) {
  cpu_epilogue_block b;
  size_t bytes = 0;
  for (uint32_t v = 0; v < g->n_views; v++) {
    uint32_t to = v < OTHERS ? 0 : 1 + v - OTHERS;
    if (v > C && v < OTHERS) continue;
    b.row_strides[to] = g->sides[v].shape.row_stride;
    b.column_strides[to] = g->sides[v].shape.column_stride;
  }
  int64_t block_m = g->block_m, block_n = g->block_n;
  check(block_m > 0 && block_n > 0);
  for (int i = 0; i < 4; i++) {
    b.rows = i & 2 ? g->m % block_m : block_m;
    b.columns = i & 1 ? g->n % block_n : block_n;
    if (b.rows == 0 || b.columns == 0) continue;
    const cpu_kernel **k = &g->after[i >> 1][i & 1];
    TRY(cpu_epilogue_kernel(c->epilogue, &b, c->memory, k));
    if (cpu_kernel_scratch_bytes(*k) > bytes) bytes = cpu_kernel_scratch_bytes(*k);
  }
  g->after_offset = reserve(g, bytes);
  return STATUS_OK;
}

status cpu_matmul_plan(const cpu_call *c, matmul_kernel *g, bool n_last) {
  uint32_t rank = c->result->rank, outer = n_last ? rank - 1 : rank;
  g->has_bias = g->n_views > BIAS;
  if (c->epilogue) place_others(c->epilogue, g);
  if (g->grouped) cpu_matmul_place_index(g);
  for (uint32_t i = 0; i < g->n_views; i++)
    g->sides[i].size_bytes = (int64_t)ir_dtype_size_bytes(g->views[i].dtype);
  g->n = n_last ? c->result->extents[rank - 1] : 1;
  g->sides[C].shape.column_stride = n_last ? g->views[C].strides[rank - 1] : 0;
  g->sides[B].shape.column_stride = n_last ? g->views[B].strides[rank - 1] : 0;
  for (uint32_t i = BIAS; i < g->n_views; i++)
    g->sides[i].shape.column_stride = n_last ? g->views[i].strides[rank - 1] : 0;
  if (g->grouped) outer--;
  cpu_loops_make(&g->batch, CPU_IN_ORDER, outer, c->result->extents, g->views, g->n_views);
  g->native = cpu_gemm_native(widest(g));
  g->unit = cpu_gemm_unit_for(g->views[A].dtype, g->views[B].dtype, g->native);
  if (g->grouped) cpu_matmul_take_rows(g, c);
  else take_m(g);
  if (!g->grouped) transpose_if_better(g);
  set_shapes(g);
  for (uint32_t i = 0; i < (g->has_bias ? N_SIDES : BIAS); i++) plan_side(g, i);
  plan_few(g);
  plan_blocks(g);
  plan_parts(g);
  plan_scratch(g);
  return c->epilogue ? prepare_after(c, g) : STATUS_OK;
}

/* a[*, m, k] and b[*, k, n]; a vector has no m, or no n. */
status cpu_prepare_matmul(const cpu_call *c, cpu_kernel **result) {
  matmul_kernel *g = CPU_KERNEL_NEW(c, matmul_kernel, NULL);
  rt_view a = cpu_operand(c, 0), b = cpu_operand(c, 1);
  uint32_t rank = c->result->rank, has_m = a.rank > 1, has_n = b.rank > 1;
  uint32_t n_batch = rank - has_m - has_n;
  int from[IR_MAX_RANK];
  g->n_views = BIAS;
  g->views[C] = cpu_place_result(c);
  rt_align(a.rank - 1 - has_m, n_batch, from);
  if (has_m) from[n_batch] = (int)a.rank - 2;
  g->views[A] = cpu_place(c, 0, from);
  rt_align(b.rank - 1 - has_n, n_batch, from);
  if (has_n) from[rank - 1] = (int)b.rank - 1;
  g->views[B] = cpu_place(c, 1, from);
  g->k = a.extents[a.rank - 1];
  g->sides[A].shape.column_stride = a.strides[a.rank - 1];
  g->sides[B].shape.row_stride = b.strides[has_n ? b.rank - 2 : 0];
  TRY(cpu_matmul_plan(c, g, has_n));
  *result = &g->head;
  return STATUS_OK;
}

static void place_bias(const cpu_call *c, matmul_kernel *g) {
  uint32_t rank = c->result->rank, lead = cpu_operand(c, 2).rank - 1;
  int from[IR_MAX_RANK];
  for (uint32_t d = 0; d < rank; d++) from[d] = d < lead ? (int)d : RT_NO_DIM;
  from[rank - 1] = (int)lead;
  g->views[BIAS] = cpu_place(c, 2, from);
  g->n_views = N_SIDES;
}

/* x[*, k], weight[*w, n, k], bias[*w, n] in the result [*w, *, n]. */
status cpu_prepare_linear(const cpu_call *c, cpu_kernel **result) {
  matmul_kernel *g = CPU_KERNEL_NEW(c, matmul_kernel, NULL);
  rt_view x = cpu_operand(c, 0), w = cpu_operand(c, 1);
  uint32_t rank = c->result->rank, lead = w.rank - 2;
  int from[IR_MAX_RANK];
  g->n_views = BIAS;
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
  if (rt_task_has_operand(c->task, 2)) place_bias(c, g);
  TRY(cpu_matmul_plan(c, g, true));
  *result = &g->head;
  return STATUS_OK;
}
