/* Instructions of tile programs, on one tile. */
#include <math.h>
#include <string.h>

#include "device/cpu/kernel_make.h"
#include "device/cpu/tile/machine.h"

/* Bytes; computed between two fetches or stores: elements, or bytes where functions are computed. */
enum { LINE = 64, PIECE = 512, HEAVY_BYTES = 512 };

static int64_t count(const tile_machine *m, tile_form f) {
  return (f.rows ? m->rows : 1) * (f.columns ? m->columns : 1);
}

static int64_t row_step(const tile_machine *m, const tile_view *v) {
  return v->steps[m->p->n_loops - 2];
}
static int64_t column_step(const tile_machine *m, const tile_view *v) {
  return v->steps[m->p->n_loops - 1];
}

static char *view_at(const tile_machine *m, uint32_t view) {
  const tile_view *v = &m->p->views[view];
  return m->views[view] + m->row * row_step(m, v) + m->column * column_step(m, v);
}

/* ---- rectangles of memory ---- */
typedef struct rectangle {
  int64_t rows, columns;
  int64_t row_step, column_step; /* in memory, bytes */
  int64_t size;                  /* of an element */
  int64_t pitch;                 /* from row to row in the slot, elements */
  const tile_nest *nest;         /* in place of column_step; or NULL */
} rectangle;

static rectangle rectangle_of(const tile_machine *m, const tile_view *v, tile_form f) {
  int64_t columns = f.columns ? m->columns : 1;
  return (rectangle){.rows = f.rows ? m->rows : 1,
                     .columns = columns,
                     .pitch = columns,
                     .nest = v->nest,
                     .row_step = row_step(m, v),
                     .column_step = column_step(m, v),
                     .size = (int64_t)ir_dtype_size_bytes(v->dtype)};
}

/* Rows that are one run are one row. */
static rectangle flattened(rectangle r) {
  if (r.pitch != r.columns || r.nest) return r;
  if (r.columns == 1 && r.rows > 1) {
    r.columns = r.rows;
    r.column_step = r.row_step;
    r.rows = 1;
  }
  if (r.rows > 1 && r.column_step == r.size && r.row_step == r.columns * r.size) {
    r.columns *= r.rows;
    r.rows = 1;
  }
  r.pitch = r.columns;
  return r;
}

#define TAKE_BITS(T, bits)                                                                         \
  static void take_##bits(const tile_nest *n, char *to, const char *from) {                        \
    for (int64_t i = 0; i < n->n; i++) ((T *)(void *)to)[i] = *(const T *)(from + n->offsets[i]);  \
  }
TAKE_BITS(uint8_t, 8)
TAKE_BITS(uint16_t, 16)
TAKE_BITS(uint32_t, 32)
TAKE_BITS(uint64_t, 64)

/* A row of columns that are several loops. */
static void gather_nest(const tile_machine *m, const tile_nest *n, int64_t size, char *to,
                        const char *from) {
  if (n->length == 1) {
    if (size == 1) take_8(n, to, from);
    else if (size == 2) take_16(n, to, from);
    else if (size == 4) take_32(n, to, from);
    else take_64(n, to, from);
    return;
  }
  for (int64_t i = 0; i < n->n; i++)
    m->loops->copy((size_t)size, n->length, to + i * n->length * size, size, from + n->offsets[i],
                   n->step);
}

static void gather(const tile_machine *m, rectangle r, char *to, const char *from) {
  int64_t pitch = r.pitch * r.size;
  size_t size = (size_t)r.size;
  if (r.nest) {
    for (int64_t i = 0; i < r.rows; i++)
      gather_nest(m, r.nest, r.size, to + i * pitch, from + i * r.row_step);
    return;
  }
  if (r.rows > 1 && r.row_step == r.size && r.column_step != r.size && r.column_step != 0) {
    m->loops->transpose(size, r.rows, r.columns, to, pitch, r.size, from, r.column_step);
    return;
  }
  for (int64_t i = 0; i < r.rows; i++)
    m->loops->copy(size, r.columns, to + i * pitch, r.size, from + i * r.row_step, r.column_step);
}

static void scatter(const tile_machine *m, rectangle r, bool stream, char *to, const char *from) {
  int64_t pitch = r.columns * r.size;
  if (stream && r.column_step == r.size) {
    for (int64_t i = 0; i < r.rows; i++)
      m->loops->stream(pitch, to + i * r.row_step, from + i * pitch);
    return;
  }
  for (int64_t i = 0; i < r.rows; i++)
    m->loops->copy((size_t)r.size, r.columns, to + i * r.row_step, r.column_step, from + i * pitch,
                   r.size);
}

/* Converts while the memory is dense along columns; else by way of a block. */
static void load_rectangle(const tile_machine *m, const tile_instr *t, rectangle r, char *to,
                           const char *from) {
  r = flattened(r);
  if (!t->convert[0]) {
    gather(m, r, to, from);
  } else if (r.column_step == r.size && !r.nest) {
    for (int64_t i = 0; i < r.rows; i++)
      t->convert[0](r.columns, to + i * r.pitch * t->size_bytes, from + i * r.row_step);
  } else {
    gather(m, r, m->temporary[0], from);
    bool one = r.pitch == r.columns;
    for (int64_t i = 0; i < (one ? 1 : r.rows); i++)
      t->convert[0](one ? r.rows * r.columns : r.columns, to + i * r.pitch * t->size_bytes,
                    m->temporary[0] + i * r.pitch * r.size);
  }
}

static void store_rectangle(const tile_machine *m, const tile_instr *t, rectangle r, char *to,
                            const char *from) {
  r = flattened(r);
  if (t->convert[0] && r.column_step == r.size && !t->stream) {
    for (int64_t i = 0; i < r.rows; i++)
      t->convert[0](r.columns, to + i * r.row_step, from + i * r.columns * t->from_bytes);
    return;
  }
  if (t->convert[0]) {
    t->convert[0](r.rows * r.columns, m->temporary[0], from);
    from = m->temporary[0];
  }
  scatter(m, r, t->stream, to, from);
}

/* ---- fetching ahead ---- */
/* The next `lines` lines of the next tile, into the second cache, for the first one is full of this
 * tile; or `close`, into the first one: a tile of a few rows leaves room there. */
static void fetch(tile_machine *m, int64_t lines, bool close) {
  const tile_program *p = m->p;
  while (lines > 0 && m->next_row >= 0 && m->ahead_view < p->n_ahead) {
    const tile_view *v = &p->views[p->ahead[m->ahead_view]];
    const char *at = m->views[p->ahead[m->ahead_view]] + m->next_column * column_step(m, v) +
                     (m->next_row + m->ahead_row) * row_step(m, v);
    int64_t bytes = m->columns * (int64_t)ir_dtype_size_bytes(v->dtype), rows = m->rows;
    if (row_step(m, v) == bytes) bytes *= rows, rows = 1; /* one run */
    int64_t begin = m->ahead_byte,
            end = begin + lines * LINE < bytes ? begin + lines * LINE : bytes;
    if (close)
      for (int64_t i = begin; i < end; i += LINE) __builtin_prefetch(at + i, 0, 3);
    else
      for (int64_t i = begin; i < end; i += LINE) __builtin_prefetch(at + i, 0, 2);
    lines -= (end - begin + LINE - 1) / LINE;
    m->ahead_byte = end;
    if (end < bytes) return;
    m->ahead_byte = 0;
    if (++m->ahead_row < rows) continue;
    m->ahead_row = 0;
    m->ahead_view++;
  }
}

/* Lines of the next tile that go with `n` of `all` elements of this one. */
static int64_t share_of(const tile_machine *m, int64_t n, int64_t all) {
  int64_t lines = m->p->n_ahead * m->rows;
  for (uint32_t i = 0; i < m->p->n_ahead; i++)
    lines += m->rows * m->columns *
             (int64_t)ir_dtype_size_bytes(m->p->views[m->p->ahead[i]].dtype) / LINE;
  return lines * n / all + 1;
}

/* ---- boxes ---- */
/* The part of the tile that lies inside: rows [r0, r1), columns [c0, c1), from the tile's beginning. */
typedef struct inside {
  int64_t r0, r1, c0, c1;
} inside;

static int64_t limited(int64_t x, int64_t n) { return x < 0 ? 0 : x > n ? n : x; }

static inside box_inside(const tile_machine *m, uint32_t box) {
  const tile_box *b = &m->p->boxes[box];
  uint32_t r = m->p->n_loops - 2, c = r + 1;
  for (uint32_t i = 0; i < r; i++)
    if (m->index[i] < b->lo[i] || m->index[i] >= b->hi[i]) return (inside){0, 0, 0, 0};
  return (inside){limited(b->lo[r] - m->row, m->rows), limited(b->hi[r] - m->row, m->rows),
                  limited(b->lo[c] - m->column, m->columns),
                  limited(b->hi[c] - m->column, m->columns)};
}

/* A form that lacks a dimension has no box along it. */
static inside form_inside(inside in, tile_form f) {
  if (!f.rows) in.r0 = 0, in.r1 = in.r1 > in.r0 ? 1 : in.r1;
  if (!f.columns) in.c0 = 0, in.c1 = in.c1 > in.c0 ? 1 : in.c1;
  return in;
}

/* ---- instructions ---- */
/* What lies outside of `in` in a block of rows of `width` bytes: zeros, or what `from` has there. */
static void set_bytes(char *to, const char *from, int64_t at, int64_t end) {
  if (end <= at) return;
  if (from) memcpy(to + at, from + at, (size_t)(end - at));
  else memset(to + at, 0, (size_t)(end - at));
}

static void set_outside(inside in, int64_t rows, int64_t width, int64_t size, char *to,
                        const char *from) {
  if (in.r1 <= in.r0 || in.c1 <= in.c0) {
    set_bytes(to, from, 0, rows * width);
    return;
  }
  set_bytes(to, from, 0, in.r0 * width);
  bool whole = in.c0 == 0 && in.c1 * size == width;
  for (int64_t i = in.r0; i < in.r1 && !whole; i++) {
    set_bytes(to, from, i * width, i * width + in.c0 * size);
    set_bytes(to, from, i * width + in.c1 * size, (i + 1) * width);
  }
  set_bytes(to, from, in.r1 * width, rows * width);
}

static void do_load(tile_machine *m, const tile_instr *t) {
  const tile_view *v = &m->p->views[t->view];
  char *from = view_at(m, t->view);
  if (t->direct) {
    m->values[t->to] = from;
    return;
  }
  rectangle r = rectangle_of(m, v, t->form);
  char *to = m->values[t->to];
  if (!t->guarded) {
    load_rectangle(m, t, r, to, from);
    return;
  }
  inside in = form_inside(box_inside(m, t->box), t->form);
  set_outside(in, r.rows, r.columns * t->size_bytes, t->size_bytes, to, NULL);
  r.rows = in.r1 - in.r0;
  r.columns = in.c1 - in.c0;
  if (r.rows <= 0 || r.columns <= 0) return;
  load_rectangle(m, t, r, to + (in.r0 * r.pitch + in.c0) * t->size_bytes,
                 from + in.r0 * r.row_step + in.c0 * r.column_step);
}

static void do_store(tile_machine *m, const tile_instr *t) {
  const tile_view *v = &m->p->views[t->view];
  store_rectangle(m, t, rectangle_of(m, v, t->form), view_at(m, t->view), m->values[t->x[0]]);
}

static void do_fill(tile_machine *m, const tile_instr *t) {
  memcpy(m->values[t->to], t->value.bytes, t->size_bytes);
}

/* n elements of the accumulators' or makers' type become those of the value. */
static void convert_twice(tile_machine *m, const tile_instr *t, int64_t n, char *to,
                          const char *from) {
  if (t->convert[0] && t->convert[1]) {
    t->convert[0](n, m->temporary[1], from);
    t->convert[1](n, to, m->temporary[1]);
  } else if (t->convert[0] || t->convert[1]) {
    (t->convert[0] ? t->convert[0] : t->convert[1])(n, to, from);
  } else {
    memcpy(to, from, (size_t)n * t->size_bytes);
  }
}

static void do_make(tile_machine *m, const tile_instr *t) {
  const tile_view *v = &m->p->views[t->view];
  rectangle r = rectangle_of(m, v, t->form);
  int64_t first = v->first_bytes + m->row * r.row_step + m->column * r.column_step;
  for (uint32_t i = 0; i + 2 < m->p->n_loops; i++) first += m->index[i] * v->steps[i];
  for (int64_t i = 0; i < r.rows; i++)
    cpu_maker_fill(t->maker, r.columns, first + i * r.row_step, r.column_step,
                   m->temporary[0] + i * r.columns * 8);
  convert_twice(m, t, r.rows * r.columns, m->values[t->to], m->temporary[0]);
}

/* In pieces, so that memory is read and written at the same time: those of the next tile are fetched while
 * this one is computed, and results that go past the caches are on their way while the next are computed. */
static void map_pieces(tile_machine *m, const tile_instr *t, int64_t n, const void **x) {
  char *to = m->values[t->to], *out = t->stream ? view_at(m, t->view) : NULL;
  bool ahead = t->heavy && m->p->n_ahead > 0;
  int64_t piece = t->heavy ? HEAVY_BYTES / t->from_bytes : PIECE;
  int64_t lines = ahead ? share_of(m, piece, n) : 0;
  for (int64_t done = 0, left; done < n; done += left) {
    left = n - done < piece ? n - done : piece;
    if (ahead) fetch(m, lines, false);
    t->map(left, to + done * t->size_bytes, x, t->mode);
    if (out)
      m->loops->stream(left * t->size_bytes, out + done * t->size_bytes, to + done * t->size_bytes);
    for (uint32_t k = 0; k < (t->table ? 1 : 3); k++)
      x[k] = (const char *)x[k] + left * t->from_bytes;
  }
}

/* Only where it is needed, if rows of that are worth a call each; false: not done. */
static bool map_inside(tile_machine *m, const tile_instr *t, const void *const *x) {
  enum { WORTH = 64 };
  inside in = form_inside(box_inside(m, t->need), t->form);
  int64_t rows = t->form.rows ? m->rows : 1, columns = t->form.columns ? m->columns : 1;
  int64_t n = in.c1 - in.c0, first = in.r0, calls = in.r1 - in.r0;
  if (n == columns) n *= calls, calls = 1;
  if (n * calls == rows * columns || n < WORTH) return false;
  for (int64_t i = 0; i < calls; i++) {
    int64_t at = (first + i) * columns + in.c0;
    const void *from[3];
    for (uint32_t k = 0; k < 3; k++) from[k] = (const char *)x[k] + at * t->from_bytes;
    if (t->table) from[1] = t->table;
    t->map(n, m->values[t->to] + at * t->size_bytes, from, t->mode);
  }
  return true;
}

static void do_map(tile_machine *m, const tile_instr *t) {
  const void *x[3] = {m->values[t->x[0]], m->values[t->x[1]], m->values[t->x[2]]};
  int64_t n = count(m, t->form);
  if (t->bounded && map_inside(m, t, x)) return;
  if (t->direct) m->values[t->to] = view_at(m, t->view);
  if (t->table) x[1] = t->table;
  bool pieces = t->heavy && m->p->n_ahead > 0 && n * t->from_bytes > HEAVY_BYTES;
  if (t->stream || pieces) map_pieces(m, t, n, x);
  else t->map(n, m->values[t->to], x, t->mode);
}

static void do_convert(tile_machine *m, const tile_instr *t) {
  convert_twice(m, t, count(m, t->form), m->values[t->to], m->values[t->x[0]]);
}

static void do_round(tile_machine *m, const tile_instr *t) {
  int64_t n = count(m, t->form);
  float *to = (float *)(void *)m->values[t->to];
  if (t->to != t->x[0]) memcpy(to, m->values[t->x[0]], (size_t)n * sizeof *to);
  t->round(n, to);
}

static void do_spread(tile_machine *m, const tile_instr *t) {
  char *to = m->values[t->to];
  const char *from = m->values[t->x[0]];
  int64_t size = t->size_bytes, rows = t->form.rows ? m->rows : 1;
  int64_t width = (t->form.columns ? m->columns : 1) * size;
  for (int64_t i = 0; i < rows; i++) {
    const char *row = t->from.rows ? from + i * (t->from.columns ? width : size) : from;
    if (t->from.columns) memcpy(to + i * width, row, (size_t)width);
    else m->loops->fill((size_t)size, width / size, to + i * width, size, row);
  }
}

static void do_blend(tile_machine *m, const tile_instr *t) {
  inside in = form_inside(box_inside(m, t->box), t->form);
  int64_t size = t->size_bytes, width = (t->form.columns ? m->columns : 1) * size;
  char *to = m->values[t->to];
  const char *x = m->values[t->x[0]];
  set_outside(in, t->form.rows ? m->rows : 1, width, size, to, m->values[t->x[1]]);
  if (in.c1 <= in.c0) return;
  if (in.c0 == 0 && in.c1 * size == width) { /* whole rows are one run */
    set_bytes(to, x, in.r0 * width, in.r1 * width);
    return;
  }
  for (int64_t i = in.r0; i < in.r1; i++)
    set_bytes(to, x, i * width + in.c0 * size, i * width + in.c1 * size);
}

/* y: the other factors, or NULL. */
static void fold_into(const tile_instr *t, int64_t n, const char *x, const char *y,
                      cpu_element *acc) {
  if (y) t->fold->products(n, x, y, acc);
  else t->fold->row(n, x, acc, 0);
}

static cpu_element fold_row(const tile_instr *t, int64_t n, const char *x, const char *y) {
  cpu_element acc = t->fold->start;
  fold_into(t, n, x, y, &acc);
  if (t->divisor != 0) acc.f /= t->divisor;
  if (!t->squares) return acc;
  double mean = acc.f;
  acc = t->squares->start;
  t->squares->row(n, x, &acc, mean);
  acc.f /= t->second_divisor;
  return acc;
}

static void do_fold(tile_machine *m, const tile_instr *t) {
  cpu_element *acc = (cpu_element *)(void *)m->temporary[0];
  const char *x = m->values[t->x[0]], *y = t->products ? m->values[t->x[1]] : NULL;
  for (int64_t i = 0; i < m->rows; i++) {
    int64_t at = i * m->columns * t->from_bytes;
    acc[i] = fold_row(t, m->columns, x + at, y ? y + at : NULL);
  }
  convert_twice(m, t, m->rows, m->values[t->to], (const char *)acc);
}

static void do_accumulate(tile_machine *m, const tile_instr *t) {
  cpu_element *acc = tile_accumulator(m, t->accumulator);
  const char *x = m->values[t->x[0]];
  if (m->p->stream == TILE_STREAM_ROWS) {
    fold_into(t, m->columns, x, t->products ? m->values[t->x[1]] : NULL, acc);
    return;
  }
  for (int64_t i = 0; i < m->rows; i++)
    t->fold->column(m->columns, x + i * m->columns * t->from_bytes, acc, acc);
}

static void do_take(tile_machine *m, const tile_instr *t) {
  cpu_element *acc = tile_accumulator(m, t->accumulator);
  int64_t n = m->p->stream == TILE_STREAM_ROWS ? 1 : m->columns;
  if (t->divisor != 0)
    for (int64_t i = 0; i < n; i++) acc[i].f /= t->divisor;
  convert_twice(m, t, n, m->values[t->to], (const char *)acc);
}

static void norm_row(const tile_machine *m, const tile_instr *t, const char *x, char *y) {
  const cpu_fold *folds = m->loops->folds[t->native];
  cpu_element sum = {.f = 0}, squares = {.f = 0};
  double n = (double)m->columns;
  if (t->centered) folds[CPU_FOLD_SUM].row(m->columns, x, &sum, 0);
  double mean = sum.f / n;
  folds[CPU_FOLD_SQUARES].row(m->columns, x, &squares, mean);
  m->loops->normalize[t->native](m->columns, x, mean, 1 / sqrt(squares.f / n + t->eps),
                                 t->x[1] == TILE_NONE ? NULL : m->values[t->x[1]],
                                 t->x[2] == TILE_NONE ? NULL : m->values[t->x[2]], y);
}

static void do_rows(tile_machine *m, const tile_instr *t) {
  int64_t pitch = m->columns * t->size_bytes;
  char *out = t->direct || t->stream ? view_at(m, t->view) : NULL;
  if (t->direct) m->values[t->to] = out;
  int64_t lines = share_of(m, 1, m->rows);
  for (int64_t i = 0; i < m->rows; i++) {
    const char *x = m->values[t->x[0]] + i * pitch;
    char *y = m->values[t->to] + i * pitch;
    fetch(m, lines, true);
    if (t->softmax) m->loops->softmax[t->native](m->columns, x, y);
    else norm_row(m, t, x, y);
    if (t->stream) m->loops->stream(pitch, out + i * pitch, y);
  }
}

static void run_instr(tile_machine *m, const tile_instr *t) {
  switch (t->kind) {
  case TILE_DO_LOAD: do_load(m, t); return;
  case TILE_DO_FILL: do_fill(m, t); return;
  case TILE_DO_MAKE: do_make(m, t); return;
  case TILE_DO_MAP: do_map(m, t); return;
  case TILE_DO_CONVERT: do_convert(m, t); return;
  case TILE_DO_ROUND: do_round(m, t); return;
  case TILE_DO_SPREAD: do_spread(m, t); return;
  case TILE_DO_BLEND: do_blend(m, t); return;
  case TILE_DO_FOLD: do_fold(m, t); return;
  case TILE_DO_ACCUMULATE: do_accumulate(m, t); return;
  case TILE_DO_TAKE: do_take(m, t); return;
  case TILE_DO_ROWS: do_rows(m, t); return;
  case TILE_DO_STORE: do_store(m, t); return;
  }
}

static bool is_needed(const tile_machine *m, uint32_t box) {
  inside in = box_inside(m, box);
  return in.r1 > in.r0 && in.c1 > in.c0;
}

void tile_run_code(tile_machine *m, const tile_code *code) {
  for (uint32_t i = 0; i < code->n; i++) {
    const tile_instr *t = &code->list[i];
    if (!t->bounded || is_needed(m, t->need)) run_instr(m, t);
  }
}
