/* Running a tile program: outer positions, tiles, blocks of results and spans of what is folded. */
#include <string.h>

#include "device/cpu/tile/machine.h"

/* Outer position number `outer`. */
static void set_outer(tile_machine *m, int64_t outer) {
  const tile_program *p = m->p;
  for (uint32_t i = p->n_loops - 2; i-- > 0; outer /= p->extents[i])
    m->index[i] = outer % p->extents[i];
  for (uint32_t v = 0; v < p->n_views; v++) {
    const tile_view *view = &p->views[v];
    if (view->place == TILE_NONE) continue;
    char *at = m->places[view->place] + view->first_bytes;
    for (uint32_t i = 0; i + 2 < p->n_loops; i++) at += m->index[i] * view->steps[i];
    m->views[v] = at;
  }
}

static void set_tile(tile_machine *m, int64_t row, int64_t column) {
  const tile_program *p = m->p;
  int64_t rows = p->extents[p->n_loops - 2] - row, columns = p->extents[p->n_loops - 1] - column;
  m->row = row;
  m->column = column;
  m->rows = rows < p->tile_rows ? rows : p->tile_rows;
  m->columns = columns < p->tile_columns ? columns : p->tile_columns;
}

static void set_next(tile_machine *m, int64_t row, int64_t column) {
  m->next_row = row;
  m->next_column = column;
  m->ahead_view = 0;
  m->ahead_row = m->ahead_byte = 0;
}

static void run_tiles(tile_machine *m, int64_t first, int64_t end) {
  const tile_program *p = m->p;
  int64_t across = p->column_tiles, down = p->row_tiles, column = 0, row = 0, at = 0, outer = 0;
  if (first > 0) {
    column = first % across;
    row = first / across % down;
    at = first / across / down;
  }
  for (int64_t unit = first; unit < end; unit++) {
    if (at != outer) set_outer(m, outer = at);
    set_tile(m, row * p->tile_rows, column * p->tile_columns);
    if (++column == across) column = 0, row++;
    if (p->n_ahead) set_next(m, row < down ? row * p->tile_rows : -1, column * p->tile_columns);
    tile_run_code(m, &p->each);
    if (row < down) continue;
    row = 0;
    at++;
  }
}

/* Block `block` of results: its outer position, its row or column. */
static void set_block(tile_machine *m, int64_t block) {
  const tile_program *p = m->p;
  bool columns = p->stream == TILE_STREAM_COLUMNS;
  int64_t n = columns ? p->column_tiles : p->extents[p->n_loops - 2];
  set_outer(m, block / n);
  set_tile(m, columns ? 0 : block % n, columns ? block % n * p->tile_columns : 0);
}

static void reset_accumulators(tile_machine *m) {
  for (uint32_t k = 0; k < m->p->n_accumulators; k++)
    for (int64_t i = 0; i < m->p->width; i++) tile_accumulator(m, k)[i] = m->p->folds[k]->start;
}

static void fold_span(tile_machine *m, int64_t span) {
  const tile_program *p = m->p;
  bool columns = p->stream == TILE_STREAM_COLUMNS;
  int64_t n = p->extents[p->n_loops - (columns ? 2 : 1)], begin = span * p->span;
  int64_t end = begin + p->span < n ? begin + p->span : n, row = m->row, column = m->column;
  for (int64_t at = begin; at < end;) {
    set_tile(m, columns ? at : row, columns ? column : at);
    at += columns ? m->rows : m->columns;
    set_next(m, at < end ? columns ? at : row : -1, columns ? column : at);
    tile_run_code(m, &p->each);
  }
  set_tile(m, row, column);
}

static size_t accumulated_bytes(const tile_program *p) {
  return p->n_accumulators * (size_t)p->width * sizeof(cpu_element);
}

static void run_spans(tile_machine *m, int64_t first, int64_t end, char *shared) {
  const tile_program *p = m->p;
  for (int64_t unit = first; unit < end; unit++) {
    set_block(m, unit / p->n_spans);
    reset_accumulators(m);
    fold_span(m, unit % p->n_spans);
    if (p->n_spans == 1) tile_run_code(m, &p->last);
    else
      memcpy(shared + unit * (int64_t)accumulated_bytes(p), m->accumulators, accumulated_bytes(p));
  }
}

/* The machine is at outer position 0 then. */
static void start(tile_machine *m, const tile_program *p, char *const *places, char *scratch) {
  m->p = p;
  memset(m->index, 0, sizeof m->index);
  m->places = places;
  m->loops = cpu_vectors();
  m->values = (char **)(void *)scratch;
  m->views = m->values + p->n_values;
  for (uint32_t i = 0; i < 2; i++)
    m->temporary[i] = scratch + p->temporary + i * p->temporary_bytes;
  m->accumulators = scratch + p->accumulators;
  for (uint32_t i = 0; i < p->n_values; i++)
    m->values[i] = p->slots[i] == SIZE_MAX ? NULL : scratch + p->slots[i];
  set_outer(m, 0);
  m->row = m->column = 0;
  m->rows = p->tile_rows;
  m->columns = p->tile_columns;
  set_next(m, -1, 0);
  tile_run_code(m, &p->once);
}

void tile_run(const tile_program *p, int64_t first, int64_t end, char *const *at, char *scratch,
              char *shared) {
  tile_machine m;
  start(&m, p, at, scratch);
  if (p->stream == TILE_WHOLE) run_tiles(&m, first, end);
  else run_spans(&m, first, end, shared);
  if (p->past_caches) m.loops->fence();
}

/* Joins what the spans of each block left, in order. Accumulators are f64 or i64. */
static void join_spans(tile_machine *m, int64_t block, const char *shared) {
  const tile_program *p = m->p;
  reset_accumulators(m);
  for (int64_t s = 0; s < p->n_spans; s++) {
    const char *from = shared + (block * p->n_spans + s) * (int64_t)accumulated_bytes(p);
    for (uint32_t k = 0; k < p->n_accumulators; k++)
      p->joins[k]->column(p->width, from + (int64_t)k * p->width * 8, tile_accumulator(m, k),
                          tile_accumulator(m, k));
  }
}

void tile_finish(const tile_program *p, char *const *at, char *scratch, char *shared) {
  if (p->stream == TILE_WHOLE || p->n_spans == 1) return;
  tile_machine m;
  start(&m, p, at, scratch);
  for (int64_t block = 0; block < p->n_units / p->n_spans; block++) {
    join_spans(&m, block, shared);
    set_block(&m, block);
    tile_run_code(&m, &p->last);
  }
  if (p->past_caches) m.loops->fence();
}
