/* From instructions to a program: where values are in scratch memory, how work is cut, what is fetched ahead. */
#include <string.h>

#include "device/cpu/tile/emit.h"

/* ---- slots ---- */
static size_t slot_bytes(const tile_emitter *e, const tile_value *v) {
  size_t n = (v->form.rows ? (size_t)e->tile_rows : 1) *
             (v->form.columns ? (size_t)e->tile_columns : 1) * ir_dtype_size_bytes(v->native);
  return (n + CPU_SCRATCH_ALIGN - 1) & ~(size_t)(CPU_SCRATCH_ALIGN - 1);
}

static uint32_t n_operands(const tile_instr *i) {
  switch (i->kind) {
  case TILE_DO_LOAD:
  case TILE_DO_FILL:
  case TILE_DO_MAKE:
  case TILE_DO_TAKE: return 0;
  case TILE_DO_CONVERT:
  case TILE_DO_ROUND:
  case TILE_DO_SPREAD:
  case TILE_DO_STORE: return 1;
  case TILE_DO_FOLD:
  case TILE_DO_ACCUMULATE: return i->products ? 2 : 1;
  case TILE_DO_BLEND: return 2;
  case TILE_DO_MAP:
  case TILE_DO_ROWS: return 3;
  }
  impossible("a kind of instruction");
}

static void note_uses(tile_emitter *e, tile_phase phase) {
  for (uint32_t i = 0; i < e->code[phase].n; i++) {
    const tile_instr *t = &e->code[phase].list[i];
    for (uint32_t k = 0; k < n_operands(t); k++)
      if (t->x[k] != TILE_NONE) e->values[t->x[k]].last_use = i;
    if (t->kind == TILE_DO_STORE || t->kind == TILE_DO_ACCUMULATE) continue;
    if (!e->values[t->to].made) e->values[t->to].made = i + 1;
    e->values[t->to].last_use = i;
  }
}

/* First fit among the slots of values that are alive at the same time. Slots are of one phase. */
static size_t find_slot(const tile_emitter *e, uint32_t v, const size_t *slots, size_t first) {
  const tile_value *x = &e->values[v];
  size_t at = first, bytes = slot_bytes(e, x);
  for (bool moved = true; moved;) {
    moved = false;
    for (uint32_t i = 0; i < e->n_values; i++) {
      const tile_value *y = &e->values[i];
      if (slots[i] == SIZE_MAX || i == v) continue;
      bool together = y->permanent || y->phase != x->phase ||
                      (y->made <= x->last_use + 1 && x->made <= y->last_use + 1);
      if (!together || at >= slots[i] + slot_bytes(e, y) || slots[i] >= at + bytes) continue;
      at = slots[i] + slot_bytes(e, y);
      moved = true;
    }
  }
  return at;
}

static void place_slots(tile_emitter *e, tile_program *p) {
  p->slots = ARENA_ARRAY(e->memory, e->n_values + 1, size_t);
  for (uint32_t i = 0; i < e->n_values; i++) p->slots[i] = SIZE_MAX;
  for (uint32_t phase = 0; phase < 3; phase++) note_uses(e, (tile_phase)phase);
  size_t end = p->scratch_bytes;
  for (int pass = 0; pass < 2; pass++) /* permanent ones first */
    for (uint32_t i = 0; i < e->n_values; i++) {
      tile_value *v = &e->values[i];
      if (v->elsewhere || v->permanent != (pass == 0)) continue;
      p->slots[i] = find_slot(e, i, p->slots, p->scratch_bytes);
      if (p->slots[i] + slot_bytes(e, v) > end) end = p->slots[i] + slot_bytes(e, v);
    }
  p->scratch_bytes = end;
}

/* ---- units ---- */
static double instr_ns(const tile_instr *i) {
  switch (i->kind) {
  case TILE_DO_MAP: return (double)i->cost_ns;
  case TILE_DO_LOAD: return i->direct ? 0.1 : 0.2;
  case TILE_DO_STORE: return 0.25;
  case TILE_DO_ROWS: return 0.6;
  case TILE_DO_MAKE: return (double)i->cost_ns;
  case TILE_DO_FOLD:
  case TILE_DO_ACCUMULATE: return 0.15;
  case TILE_DO_FILL:
  case TILE_DO_CONVERT:
  case TILE_DO_ROUND:
  case TILE_DO_SPREAD:
  case TILE_DO_BLEND:
  case TILE_DO_TAKE: return 0.1;
  }
  return 0;
}

/* What a row takes beside its elements: short ones take little else. */
static double row_ns(const tile_instr *i) {
  if (i->kind == TILE_DO_ROWS) return 15;
  return i->kind != TILE_DO_FOLD ? 0 : i->squares ? 15 : 8;
}

static double code_ns(const tile_emitter *e, const tile_code *code) {
  double ns = 30;
  for (uint32_t i = 0; i < code->n; i++) {
    const tile_instr *t = &code->list[i];
    double n =
        (t->form.rows ? (double)e->tile_rows : 1) * (t->form.columns ? (double)e->tile_columns : 1);
    ns += 8 + n * instr_ns(t) + (double)e->tile_rows * row_ns(t);
  }
  return ns;
}

static int64_t tiles(int64_t extent, int64_t tile) { return (extent + tile - 1) / tile; }

static void count_units(const tile_emitter *e, tile_program *p) {
  int64_t n = 1, rows = e->extents[e->n_loops - 2], columns = e->extents[e->n_loops - 1];
  for (uint32_t i = 0; i + 2 < e->n_loops; i++) n *= e->extents[i];
  int64_t row_tiles = tiles(rows, e->tile_rows), column_tiles = tiles(columns, e->tile_columns);
  double tile_ns = code_ns(e, &p->each);
  p->row_tiles = row_tiles;
  p->column_tiles = column_tiles;
  p->unit_ns = tile_ns;
  p->n_units = n * row_tiles * column_tiles;
  if (p->stream == TILE_WHOLE) return;
  bool by_columns = p->stream == TILE_STREAM_COLUMNS;
  int64_t blocks = n * (by_columns ? column_tiles : row_tiles);
  int64_t folded = by_columns ? rows : columns, tile = by_columns ? e->tile_rows : e->tile_columns;
  double block_ns = tile_ns * (double)tiles(folded, tile);
  /* Spans of about 100 us where there are few blocks. */
  int64_t spans = blocks < 64 ? (int64_t)(block_ns / 100000) : 1;
  if (spans < 1) spans = 1;
  if (spans > 64) spans = 64;
  p->span = tiles(tiles(folded, tile), spans) * tile;
  p->n_spans = tiles(folded, p->span);
  p->n_units = blocks * p->n_spans;
  p->unit_ns = block_ns / (double)p->n_spans + 30;
}

/* ---- fetching ahead ---- */
/* Where nothing is reduced, short functions leave memory no time to rest. */
static bool fetches_ahead(const tile_emitter *e, const tile_code *code) {
  bool reduces = e->l->n_axes > e->l->n_kept, any = false, any_long = false;
  for (uint32_t i = 0; i < code->n; i++) {
    any = any || code->list[i].heavy || code->list[i].kind == TILE_DO_ROWS;
    any_long = any_long || code->list[i].is_long;
  }
  return reduces ? any : any_long;
}

static void list_ahead(const tile_emitter *e, tile_program *p) {
  bool ahead = fetches_ahead(e, &p->each);
  for (uint32_t i = 0; i < p->each.n && ahead && p->n_ahead < TILE_AHEAD; i++) {
    const tile_instr *t = &p->each.list[i];
    const tile_view *v = &p->views[t->view];
    bool dense = t->kind == TILE_DO_LOAD && t->form.columns && !t->guarded && !v->nest &&
                 v->steps[e->n_loops - 1] == (int64_t)ir_dtype_size_bytes(v->dtype);
    if (dense) p->ahead[p->n_ahead++] = t->view;
  }
}

/* ---- the program ---- */
tile_program *tile_assemble(tile_emitter *e) {
  tile_program *p = ARENA_NEW(e->memory, tile_program);
  size_t elements = (size_t)(e->tile_rows * e->tile_columns);
  p->n_loops = e->n_loops;
  memcpy(p->extents, e->extents, sizeof e->extents);
  p->tile_rows = e->tile_rows;
  p->tile_columns = e->tile_columns;
  p->n_views = e->n_views;
  p->views = arena_copy(e->memory, e->views, (e->n_views + 1) * sizeof *e->views);
  p->n_boxes = e->n_boxes;
  p->boxes = arena_copy(e->memory, e->boxes, (e->n_boxes + 1) * sizeof *e->boxes);
  p->stream = e->stream;
  p->n_values = e->n_values;
  p->n_accumulators = e->n_accumulators;
  p->folds = arena_copy(e->memory, e->folds, (e->n_accumulators + 1) * sizeof *e->folds);
  p->joins = arena_copy(e->memory, e->joins, (e->n_accumulators + 1) * sizeof *e->joins);
  tile_code *codes[] = {&p->once, &p->each, &p->last};
  for (uint32_t i = 0; i < 3; i++) {
    codes[i]->n = e->code[i].n;
    codes[i]->list = ARENA_ARRAY(e->memory, e->code[i].n + 1, tile_instr);
    if (e->code[i].n > 0)
      memcpy(codes[i]->list, e->code[i].list, e->code[i].n * sizeof(tile_instr));
    for (uint32_t k = 0; k < codes[i]->n; k++)
      p->past_caches = p->past_caches || codes[i]->list[k].stream;
  }
  list_ahead(e, p);
  /* Scratch: addresses of values and views, two blocks for conversions, accumulators, slots. */
  size_t bytes = (e->n_values + e->n_views) * sizeof(char *);
  p->temporary = (bytes + CPU_SCRATCH_ALIGN - 1) & ~(size_t)(CPU_SCRATCH_ALIGN - 1);
  p->temporary_bytes = (elements * 8 + CPU_SCRATCH_ALIGN - 1) & ~(size_t)(CPU_SCRATCH_ALIGN - 1);
  p->accumulators = p->temporary + 2 * p->temporary_bytes;
  p->width = e->stream == TILE_STREAM_COLUMNS ? e->tile_columns : 1;
  p->scratch_bytes = p->accumulators + p->n_accumulators * (size_t)p->width * sizeof(cpu_element);
  p->scratch_bytes = (p->scratch_bytes + CPU_SCRATCH_ALIGN - 1) & ~(size_t)(CPU_SCRATCH_ALIGN - 1);
  place_slots(e, p);
  count_units(e, p);
  return p;
}

size_t tile_shared_bytes(const tile_program *p) {
  if (p->stream == TILE_WHOLE || p->n_spans == 1) return 0;
  return (size_t)p->n_units * p->n_accumulators * (size_t)p->width * sizeof(cpu_element);
}
