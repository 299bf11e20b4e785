/* Plans bodies with folds: which threads have a row, and what stays in registers. */
#include <string.h>

#include "codegen/body_rows.h"

enum {
  SMALL_BLOCK = 128,
  MAX_BLOCK = 1024,
  LOOPED_BLOCK = 512, /* half of it if there are many rows: other blocks then load theirs */
  COLUMN_THREADS = 256,
  COLUMN_BLOCK = 512,
  COLUMN_ROWS = 4, /* rows of a thread, at least */
  FEW_ROWS = 128,  /* fewer long rows than this would leave multiprocessors idle */
  LONG_ROW = 8192,
  /* Beside columns, threads share a row. If rows are short most of these threads are idle, which
   * matters if there are many rows. */
  SHORT_ROW = 32,
  MANY_ROWS = 1 << 16,
  REGISTERS = 65536,     /* of a multiprocessor */
  COMPUTING_WORDS = 18,  /* registers of a thread beside those for rows and sums */
  STAGED_WORDS = 48,     /* the same with rows in shared memory */
  MOST_WORDS = 128,      /* registers of a thread, with rows in shared memory */
  STAGED_THREADS = 1024, /* threads that share a multiprocessor, with rows in shared memory */
  HELD_THREADS = 512,    /* the same, if registers hold rows beside sums of columns */
  STAGE_BYTES = 113 << 10,
  STATIC_BYTES = 3 << 9,
  SHARED_BYTES = 228 << 10, /* of a multiprocessor */
  PROCESSORS = 132,         /* of an H200: blocks that go over all rows fill them evenly */
};

/* ---- spaces ---- */
static void place(rows_writer *x, const cg_view *v, cg_view *to) {
  uint32_t n = 0;
  *to = *v;
  for (int in_row = 0; in_row < 2; in_row++)
    for (uint32_t d = 0; d < x->b->rank; d++)
      if ((x->b->row >> d & 1) == (uint32_t)in_row) to->strides[n++] = v->strides[d];
}

static bool make_spaces(rows_writer *x, arena *memory) {
  const cg_view *views[CG_MAX_VIEWS];
  int64_t extents[IR_MAX_RANK];
  uint32_t n = 0, outer = 0;
  if (!cg_walks_find(&x->walks, x->b, memory)) return false;
  for (uint32_t k = 0; k < x->walks.n; k++) {
    place(x, x->walks.views[k], &x->placed[k]);
    views[k] = &x->placed[k];
  }
  for (int in_row = 0; in_row < 2; in_row++)
    for (uint32_t d = 0; d < x->b->rank; d++)
      if ((x->b->row >> d & 1) == (uint32_t)in_row) {
        extents[n++] = x->b->extents[d];
        outer += in_row == 0;
      }
  cg_space_make(&x->outer, extents, 0, outer, views, x->walks.n, true);
  cg_space_make(&x->inner, extents, outer, x->b->rank, views, x->walks.n, false);
  x->n = cg_space_count(&x->inner);
  x->rows = cg_space_count(&x->outer);
  return x->inner.rank == 1;
}

/* ---- nodes ---- */
static bool moves(const cg_space *s, uint32_t walk) {
  for (uint32_t d = 0; d < s->rank; d++)
    if (s->extents[d] > 1 && s->strides[walk][d] != 0) return true;
  return false;
}

static void join(rows_writer *x, uint32_t i, uint32_t from) {
  x->along[i] = x->along[i] || x->along[from];
  x->across[i] = x->across[i] || x->across[from];
  x->late[i] = x->late[i] || x->late[from];
  if (x->level[from] > x->level[i]) x->level[i] = x->level[from];
}

/* The node without casts around it. */
static uint32_t bare(const rows_writer *x, uint32_t i) {
  while (rows_node(x, i)->kind == CG_NODE_CAST) i = rows_node(x, i)->operands[0];
  return i;
}

uint32_t cg_rows_narrow(const rows_writer *x, uint32_t i) {
  const cg_node *n = rows_node(x, i);
  if (n->kind != CG_NODE_FOLD || n->fold != IR_FOLD_SUM) return CG_NO_NODE;
  if (n->dtype == IR_F32) return x->has_columns && !n->columns ? n->operands[0] : CG_NO_NODE;
  if (n->dtype != IR_F64) return CG_NO_NODE;
  const cg_node *cast = rows_node(x, n->operands[0]);
  if (cast->kind != CG_NODE_CAST) return CG_NO_NODE;
  return rows_node(x, cast->operands[0])->dtype == IR_F32 ? cast->operands[0] : CG_NO_NODE;
}

static bool is_step(const rows_writer *x, uint32_t i, ir_opcode code) {
  return rows_node(x, i)->kind == CG_NODE_STEP && rows_node(x, i)->step.code == code;
}

/* For a sum of exp(g - m) where m is the maximum of g: the fold m. CG_NO_NODE: it is no such sum. */
static uint32_t find_top(const rows_writer *x, uint32_t i) {
  const cg_node *sum = rows_node(x, i);
  if (!x->online || sum->fold != IR_FOLD_SUM || !ir_dtype_is_float(sum->dtype)) return CG_NO_NODE;
  uint32_t power = bare(x, sum->operands[0]);
  if (!is_step(x, power, IR_OP_EXP)) return CG_NO_NODE;
  uint32_t distance = bare(x, rows_node(x, power)->operands[0]);
  if (!is_step(x, distance, IR_OP_SUB)) return CG_NO_NODE;
  uint32_t top = bare(x, rows_node(x, distance)->operands[1]);
  uint32_t g = bare(x, rows_node(x, distance)->operands[0]);
  if (!rows_is_fold(x, top, false) || rows_node(x, top)->fold != IR_FOLD_MAX) return CG_NO_NODE;
  return bare(x, rows_node(x, top)->operands[0]) == g ? top : CG_NO_NODE;
}

static bool classify(rows_writer *x, uint32_t i) {
  const cg_node *n = rows_node(x, i);
  if (n->kind == CG_NODE_LOAD || n->kind == CG_NODE_AT) {
    x->along[i] = moves(&x->inner, x->walks.of_node[i]);
    x->across[i] = moves(&x->outer, x->walks.of_node[i]);
  }
  for (uint32_t k = 0; k < n->n_operands; k++) join(x, i, n->operands[k]);
  for (uint32_t t = 0; t < n->n_terms; t++) join(x, i, n->terms[t].node);
  bool guarded = n->kind == CG_NODE_LOAD || n->kind == CG_NODE_INSIDE;
  if (guarded && n->guard != CG_NO_NODE) join(x, i, n->guard);
  if (n->kind != CG_NODE_FOLD) return true;
  if (x->late[i]) return false; /* its operand needs folds of columns */
  if (n->columns) {
    x->along[i] = true;
    x->across[i] = false;
    x->late[i] = x->has_columns = true;
  } else {
    x->along[i] = false;
    x->across[i] = true;
    x->top[i] = find_top(x, i);
    x->level[i] = x->top[i] == CG_NO_NODE ? x->level[i] + 1 : x->level[x->top[i]];
    if (x->level[i] > x->passes) x->passes = x->level[i];
  }
  return true;
}

/* A result that needs folds of columns is known after all rows: it cannot differ between rows. Other results must
 * differ between rows. */
static bool fits_outputs(const rows_writer *x) {
  for (uint32_t r = 0; r < x->b->n_outputs; r++) {
    uint32_t node = x->b->outputs[r].node, walk = x->walks.of_output[r];
    bool writes_rows = x->rows == 1 || moves(&x->outer, walk);
    bool writes_along = x->n == 1 || moves(&x->inner, walk);
    if (x->late[node] && (x->across[node] || (writes_rows && x->rows > 1) || !writes_along))
      return false;
    if (!x->late[node] && !writes_rows) return false;
    if (!x->late[node] && !writes_along && x->along[node]) return false;
  }
  return true;
}

static bool find_nodes(rows_writer *x, arena *memory) {
  size_t n = x->b->nodes.len + (size_t)1;
  x->level = ARENA_ARRAY(memory, n, uint32_t);
  x->part = ARENA_ARRAY(memory, n, uint32_t);
  x->along = ARENA_ARRAY(memory, n, bool);
  x->across = ARENA_ARRAY(memory, n, bool);
  x->late = ARENA_ARRAY(memory, n, bool);
  x->vector = ARENA_ARRAY(memory, n, bool);
  x->spare = ARENA_ARRAY(memory, n, bool);
  x->saved = ARENA_ARRAY(memory, n, bool);
  x->top = ARENA_ARRAY(memory, n, uint32_t);
  x->n_parts = x->passes = 0;
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    x->top[i] = CG_NO_NODE;
    if (!classify(x, i)) return false;
    if (rows_is_fold(x, i, true)) x->part[i] = x->n_parts++;
  }
  return fits_outputs(x);
}

/* ---- vectors ---- */
static bool fits(const rows_writer *x, const cg_view *v, uint32_t walk, uint32_t width) {
  return rows_step(x, walk) == 1 && x->n >= width && cg_rows_aligned(v, &x->outer, walk, width);
}

static bool loads_vector(const rows_writer *x, uint32_t i, uint32_t width) {
  const cg_node *n = rows_node(x, i);
  return n->kind == CG_NODE_LOAD && !x->late[i] && n->n_terms == 0 && n->guard == CG_NO_NODE &&
         fits(x, &n->view, x->walks.of_node[i], width);
}

/* The widest vectors that all loads along the row, and results there, allow. */
static bool find_width(rows_writer *x) {
  size_t smallest = 8, largest = 1;
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    const cg_node *n = rows_node(x, i);
    if (n->kind != CG_NODE_LOAD || !x->along[i] || n->n_terms > 0) continue;
    size_t size = ir_dtype_size_bytes(n->dtype);
    int64_t step = rows_step(x, x->walks.of_node[i]);
    if (step != 0 && step != 1 && x->across[i]) return false; /* rows are interleaved */
    if (size < smallest) smallest = size;
    if (size > largest) largest = size;
  }
  x->width = cg_widest(smallest, largest);
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    const cg_node *n = rows_node(x, i);
    if (n->kind != CG_NODE_LOAD || rows_step(x, x->walks.of_node[i]) != 1 || x->late[i]) continue;
    if (n->n_terms > 0 || n->guard != CG_NO_NODE) continue;
    while (x->width > 1 && !loads_vector(x, i, x->width)) x->width /= 2;
  }
  return true;
}

/* Finds vectors that are the same for all rows, and that only results need; beside columns, folds may need them
 * too. */
static void find_spare(rows_writer *x, arena *memory) {
  bool *needed = ARENA_ARRAY(memory, x->b->nodes.len + (size_t)1, bool);
  cg_values none = {.b = x->b,
                    .texts = ARENA_ARRAY(memory, x->b->nodes.len + (size_t)1, const char *)};
  for (uint32_t i = 0; i < x->b->nodes.len; i++)
    if (rows_is_fold(x, i, false)) cg_mark_cone(&none, i, needed);
  for (uint32_t i = 0; i < x->b->nodes.len; i++)
    x->spare[i] = x->vector[i] && !x->across[i] && (x->has_columns || !needed[i]);
}

/* ---- values that are kept ---- */
/* Is node i read after the first pass, by something that is not known in it? */
static bool is_read_later(const rows_writer *x, uint32_t i) {
  for (uint32_t r = 0; r < x->b->n_outputs; r++)
    if (x->b->outputs[r].node == i) return true;
  for (uint32_t c = i + 1; c < x->b->nodes.len; c++) {
    bool first_pass = x->level[c] == 0 || (rows_is_fold(x, c, false) && x->level[c] == 1);
    if (first_pass && !rows_is_fold(x, c, true)) continue;
    for (uint32_t k = 0; k < rows_node(x, c)->n_operands; k++)
      if (rows_node(x, c)->operands[k] == i) return true;
  }
  return false;
}

static uint32_t narrowest(const rows_writer *x, uint32_t i) {
  while (rows_node(x, i)->kind == CG_NODE_CAST) {
    uint32_t from = rows_node(x, i)->operands[0];
    if (ir_dtype_size_bytes(rows_node(x, from)->dtype) >
        ir_dtype_size_bytes(rows_node(x, i)->dtype))
      break;
    i = from;
  }
  return i;
}

/* Saves what the first pass computes and later passes read again, instead of what it is computed from, if
 * that is no larger. */
static void find_saved(rows_writer *x) {
  size_t saved = 0, loaded = 0;
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    const cg_node *n = rows_node(x, i);
    if (x->vector[i] && !x->spare[i]) loaded += ir_dtype_size_bytes(n->dtype);
    if (x->level[i] > 0 || !x->along[i] || x->late[i] || !is_read_later(x, i)) continue;
    uint32_t bare = narrowest(x, i);
    cg_node_kind kind = rows_node(x, bare)->kind;
    bool computes = kind == CG_NODE_STEP || kind == CG_NODE_CHOOSE || kind == CG_NODE_CAST;
    if (!computes || x->saved[bare]) continue;
    x->saved[bare] = true;
    saved += ir_dtype_size_bytes(rows_node(x, bare)->dtype);
  }
  bool fits_in = x->passes > 0 && x->kept && saved <= loaded;
  for (uint32_t i = 0; i < x->b->nodes.len; i++) x->saved[i] = x->saved[i] && fits_in;
}

/* Saves loaded vectors that folds after the first pass need too, in the dtype in which they need them. */
static void save_rows(rows_writer *x, arena *memory) {
  bool *needed = ARENA_ARRAY(memory, x->b->nodes.len + (size_t)1, bool);
  cg_values values = {.b = x->b,
                      .texts = ARENA_ARRAY(memory, x->b->nodes.len + (size_t)1, const char *)};
  for (uint32_t i = 0; i < x->b->nodes.len; i++)
    if (x->saved[i]) values.texts[i] = "";
  for (uint32_t i = 0; i < x->b->nodes.len; i++)
    if (rows_is_fold(x, i, false) && x->level[i] > 1)
      cg_mark_cone(&values, rows_operand(x, i), needed);
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    const cg_node *n = rows_node(x, i);
    bool loads = n->kind == CG_NODE_CAST && x->vector[n->operands[0]] && !x->spare[n->operands[0]];
    x->saved[i] = x->saved[i] || (needed[i] && loads);
  }
}

static uint32_t saved_words(const rows_writer *x) {
  uint32_t words = 0;
  for (uint32_t i = 0; i < x->b->nodes.len; i++)
    if (x->saved[i]) words += x->width * (uint32_t)ir_dtype_size_bytes(rows_node(x, i)->dtype) / 4;
  return words;
}

static uint32_t words_of(const rows_writer *x) {
  size_t bytes = 0;
  for (uint32_t i = 0; i < x->b->nodes.len; i++)
    if (x->vector[i] && !x->spare[i])
      bytes += ir_dtype_size_bytes(rows_node(x, i)->dtype) * x->width;
  return bytes < 4 ? 1 : (uint32_t)(bytes / 4);
}

/* Registers for the accumulators of columns. */
static uint32_t column_words(const rows_writer *x) {
  uint32_t words = 0;
  for (uint32_t i = 0; i < x->b->nodes.len; i++)
    if (rows_is_fold(x, i, true))
      words += x->width * (uint32_t)ir_dtype_size_bytes(rows_part_dtype(x, i)) / 4;
  return words;
}

/* ---- threads ---- */
static uint32_t power_above(int64_t n) {
  uint32_t p = 1;
  while (p < n) p *= 2;
  return p;
}

/* Registers for the row: what a thread may have, less what computing takes. */
static uint32_t most_words(uint32_t threads) {
  return threads >= MAX_BLOCK ? 32 : threads >= 512 ? 64 : 96;
}

/* With accumulators: the fewest threads whose registers hold the row, but not fewer than 512 if each of these
 * still has two vectors. */
static int64_t columns_wanted(int64_t items, uint32_t words) {
  int64_t least = cg_ceildiv(items * words, most_words(512)), half = cg_ceildiv(items, 2);
  int64_t many = half < 512 ? half : 512;
  return least > many ? least : many;
}

static void plan_kept(rows_writer *x) {
  uint32_t words = words_of(x) + column_words(x);
  uint32_t few = words >= 32 ? 1 : 32 / words < 4 ? 32 / words : 4;
  int64_t items = cg_ceildiv(x->n, x->width), wanted = cg_ceildiv(items, few);
  bool small = wanted <= 32 && !x->has_columns;
  if (x->has_columns) wanted = columns_wanted(items, words);
  x->threads = small && items <= 16    ? power_above(items)
               : small                 ? 32
               : wanted <= SMALL_BLOCK ? SMALL_BLOCK
                                       : power_above(wanted);
  if (x->threads > MAX_BLOCK) x->threads = MAX_BLOCK;
  x->vectors = (uint32_t)cg_ceildiv(items, x->threads);
  x->kept = (int64_t)x->vectors * words <= most_words(x->threads);
  words += words_of(x);
  x->early = x->has_columns && (int64_t)x->vectors * words <= most_words(x->threads);
  x->block = x->threads < SMALL_BLOCK ? SMALL_BLOCK : x->threads;
}

/* At least three blocks, or 24 warps, share a multiprocessor: while some load rows, others compute. */
static void plan_resident(rows_writer *x) {
  uint32_t words = x->vectors * words_of(x);
  if (x->has_columns || x->block > 512 || (x->block == 512 && words > 24)) return;
  x->resident = x->block == 512 ? 2 : 768 / x->block;
}

/* For rows in shared memory: how many blocks of so many threads have room on a multiprocessor; 0: none has. */
static uint32_t staged_blocks(rows_writer *x, uint32_t threads) {
  x->threads = x->block = threads;
  x->vectors = (uint32_t)cg_ceildiv(cg_ceildiv(x->n, x->width), threads);
  uint32_t per_vector = column_words(x) + (x->held ? saved_words(x) : 0);
  uint32_t words = x->vectors * per_vector + STAGED_WORDS;
  uint32_t bytes = cg_stage_bytes(x);
  if (words > MOST_WORDS || bytes > STAGE_BYTES || bytes + STATIC_BYTES > x->most_staged) return 0;
  uint32_t by_registers = REGISTERS / (words * threads);
  uint32_t by_memory = SHARED_BYTES / (bytes + STATIC_BYTES);
  uint32_t blocks = by_registers < by_memory ? by_registers : by_memory;
  return blocks * threads > STAGED_THREADS ? STAGED_THREADS / threads : blocks;
}

/* Finds the number of threads per row with which most threads have room on a multiprocessor; the smallest
 * such number, so that little is added up across threads. Returns how many have room; 0: none. */
static uint32_t staged_threads(rows_writer *x, uint32_t *threads) {
  uint32_t best = 0;
  if (!cg_stage_fits(x)) return 0;
  for (uint32_t t = SMALL_BLOCK; t <= STAGED_THREADS / 2; t *= 2) /* two blocks, if they can */
    if (staged_blocks(x, t) * t > best) {
      best = staged_blocks(x, t) * t;
      *threads = t;
    }
  return best;
}

/* Two vectors per thread, which registers hold from pass to pass, while the next two rows are loaded:
 * if sums of columns leave room for few threads only, this is faster than reading the row again. */
static void plan_held(rows_writer *x, arena *memory) {
  rows_writer y = *x;
  y.saved = ARENA_ARRAY(memory, x->b->nodes.len + (size_t)1, bool);
  y.held = true;
  y.slots = 3;
  find_saved(&y);
  save_rows(&y, memory);
  uint32_t threads = power_above(cg_ceildiv(cg_ceildiv(x->n, x->width), 2));
  if (threads < SMALL_BLOCK || threads > HELD_THREADS) return;
  y.resident = staged_blocks(&y, threads);
  if (y.resident * threads >= HELD_THREADS) *x = y;
}

/* Keeps what the first pass computes if that leaves room for as many threads. */
static bool plan_staged(rows_writer *x, arena *memory) {
  uint32_t threads = 0, with = 0, n = x->b->nodes.len;
  x->kept = true;
  x->slots = 2;
  uint32_t best = staged_threads(x, &threads);
  find_saved(x);
  bool saves = staged_threads(x, &with) >= best;
  for (uint32_t i = 0; i < n && !saves; i++) x->saved[i] = false;
  x->kept = x->staged = best > 0;
  if (best > 0) x->resident = staged_blocks(x, saves ? with : threads);
  if (best > 0 && best <= HELD_THREADS && x->passes > 1) plan_held(x, memory);
  return best > 0;
}

static void plan_looped(rows_writer *x) {
  uint32_t words = words_of(x);
  x->vectors = words >= 16 ? 1 : words >= 8 ? 2 : 4;
  x->threads = x->block = x->rows >= 8 * PROCESSORS ? LOOPED_BLOCK / 2 : LOOPED_BLOCK;
}

/* Folds of columns only: a block has some of the columns, and goes down the rows. */
static void plan_columns(rows_writer *x) {
  int64_t items = cg_ceildiv(x->n, x->width);
  x->kept = true;
  x->vectors = 1;
  x->threads = items >= COLUMN_THREADS ? COLUMN_THREADS : power_above(items);
  x->block = COLUMN_BLOCK;
  x->tile = (int64_t)x->threads * x->width;
  uint32_t words = 2 * words_of(x) + column_words(x) + COMPUTING_WORDS;
  x->early = true;
  x->resident = REGISTERS / (words * x->block);
  if (x->resident < 1) x->resident = 1;
  if (x->resident > 2048 / COLUMN_BLOCK) x->resident = 2048 / COLUMN_BLOCK;
}

static void plan_grid(rows_writer *x) {
  int64_t tiles = cg_ceildiv(x->n, x->tile), resident = x->resident;
  int64_t blocks =
      cg_ceildiv(x->rows, x->block / x->threads * (x->passes > 0 ? 2 * COLUMN_ROWS : COLUMN_ROWS));
  if (x->passes > 0 && !x->staged)
    resident = x->block >= 512 ? 1 : 768 / x->block; /* registers allow no more */
  int64_t most = cg_ceildiv(PROCESSORS * resident, tiles);
  x->grid = blocks < most ? blocks : most;
  int64_t least = x->passes > 0 ? cg_ceildiv(x->rows, CG_PART_ROWS) : 1;
  if (x->grid < least) x->grid = least;
}

static bool is_stored(const rows_writer *x, uint32_t r) {
  const cg_output *o = &x->b->outputs[r];
  return !x->late[o->node] && fits(x, &o->view, x->walks.of_output[r], x->width);
}

bool cg_rows_plan(rows_writer *x, arena *memory) {
  if (!make_spaces(x, memory) || !find_nodes(x, memory) || !find_width(x)) return false;
  if (x->rows < FEW_ROWS && x->n > LONG_ROW) return false;
  for (uint32_t i = 0; i < x->b->nodes.len; i++) x->vector[i] = loads_vector(x, i, x->width);
  find_spare(x, memory);
  x->tile = x->n;
  if (x->has_columns && x->passes > 0 && x->n < SHORT_ROW && x->rows > MANY_ROWS) return false;
  if (x->has_columns && x->passes == 0) plan_columns(x);
  else if (!x->has_columns || !plan_staged(x, memory)) plan_kept(x);
  if (!x->kept && x->has_columns) return false;
  if (!x->kept && !x->online) {
    x->online = true;
    return cg_rows_plan(x, memory);
  }
  if (!x->kept) plan_looped(x);
  if (!x->staged) find_saved(x);
  plan_resident(x);
  if (x->has_columns) plan_grid(x);
  for (uint32_t r = 0; r < x->b->n_outputs; r++) x->stores[r] = is_stored(x, r);
  return true;
}
