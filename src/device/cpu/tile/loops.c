/* Loops and tiles of a program: which axes become one, which are rows and columns, how large tiles are. */
#include <stdlib.h>
#include <string.h>

#include "device/cpu/tile/emit.h"

/* A list of axes from the outside in, and the strides that decide how they may be joined. */
typedef struct axes_list {
  tile_emitter *e;
  uint32_t n, axis[TILE_AXES];
  int64_t extents[TILE_AXES];
  uint32_t mask[TILE_AXES];
  bool merged[TILE_AXES];
} axes_list;

static void target_strides(const tile_lowering *l, const tile_target *t, int64_t *strides) {
  const rt_shape *shape = rt_value_shape(l->body, &t->value);
  memset(strides, 0, TILE_AXES * sizeof *strides);
  for (uint32_t d = 0; d < shape->rank; d++)
    for (uint32_t a = 0; a < l->n_axes; a++) strides[a] += l->base.coef[d][a] * t->to.strides[d];
}

/* ---- joining ---- */
static bool even(const int64_t *strides, uint32_t outer, uint32_t inner, int64_t extent) {
  return strides[outer] == strides[inner] * extent;
}

/* Does everything walk both axes as one? `inner` covers `extent` positions. */
static bool can_join(const tile_lowering *l, uint32_t outer, uint32_t inner, int64_t extent) {
  int64_t strides[TILE_AXES];
  for (uint32_t i = 0; i < l->n_nodes; i++) {
    const tile_node *n = &l->nodes[i];
    bool memory = n->kind == TILE_LOAD || n->kind == TILE_MAKE;
    if (memory && !even(n->strides, outer, inner, extent)) return false;
    if (n->kind != TILE_BLEND && !n->guarded) continue;
    for (uint32_t a = 0; a < l->n_axes; a++)
      if ((a == outer || a == inner) && (n->box.lo[a] > 0 || n->box.hi[a] < l->extents[a]))
        return false;
  }
  for (uint32_t t = 0; t < l->n_targets; t++) {
    target_strides(l, &l->targets[t], strides);
    if (!even(strides, outer, inner, extent)) return false;
  }
  return true;
}

static void join(axes_list *x) {
  uint32_t last = 0;
  if (x->n == 0) return;
  for (uint32_t i = 1; i < x->n; i++) {
    if (can_join(x->e->l, x->axis[last], x->axis[i], x->extents[i])) {
      x->extents[last] *= x->extents[i];
      x->axis[last] = x->axis[i];
      x->mask[last] |= x->mask[i];
      x->merged[last] = true;
    } else {
      last++;
      x->extents[last] = x->extents[i];
      x->axis[last] = x->axis[i];
      x->mask[last] = x->mask[i];
      x->merged[last] = x->merged[i];
    }
  }
  x->n = last + 1;
}

/* ---- order ---- */
static void move(axes_list *x, uint32_t from, uint32_t to) {
  axes_list old = *x;
  for (uint32_t i = 0, k = 0; i < x->n; i++) {
    uint32_t source_at = i == to ? from : k;
    if (i != to) {
      if (k == from) source_at = ++k;
      k++;
    }
    x->axis[i] = old.axis[source_at];
    x->extents[i] = old.extents[source_at];
    x->mask[i] = old.mask[source_at];
    x->merged[i] = old.merged[source_at];
  }
}

/* The smallest stride goes inside: of the first target, then of the loads. */
static bool goes_outside(const tile_lowering *l, uint32_t a, uint32_t b) {
  int64_t strides[TILE_AXES];
  for (uint32_t t = 0; t < l->n_targets; t++) {
    target_strides(l, &l->targets[t], strides);
    if (llabs(strides[a]) != llabs(strides[b])) return llabs(strides[a]) > llabs(strides[b]);
  }
  for (uint32_t i = 0; i < l->n_nodes; i++) {
    const int64_t *s = l->nodes[i].strides;
    if (l->nodes[i].kind == TILE_LOAD && llabs(s[a]) != llabs(s[b]))
      return llabs(s[a]) > llabs(s[b]);
  }
  return false;
}

static axes_list list_axes(tile_emitter *e, uint32_t first, uint32_t end) {
  axes_list x = {.e = e};
  for (uint32_t a = first; a < end; a++) {
    uint32_t to = x.n;
    x.axis[x.n] = a;
    x.extents[x.n] = e->l->extents[a];
    x.mask[x.n++] = 1U << a;
    while (to > 0 && goes_outside(e->l, a, x.axis[to - 1])) to--;
    move(&x, x.n - 1, to);
  }
  join(&x);
  return x;
}

static void add_loop(tile_emitter *e, const axes_list *x, uint32_t i) {
  uint32_t at = e->n_loops++;
  e->extents[at] = x ? x->extents[i] : 1;
  e->loop_axis[at] = x ? x->axis[i] : TILE_NONE;
  if (x && x->merged[i]) e->merged[x->axis[i]] = true;
}

/* ---- which form ---- */
static uint32_t first_fold(const tile_lowering *l) {
  for (uint32_t i = 0; i < l->n_nodes; i++) {
    const tile_node *n = &l->nodes[i];
    if (n->kind == TILE_FOLD || n->kind == TILE_ROWS) return (uint32_t)(n->step - l->body->steps);
  }
  return TILE_NONE;
}

/* Do targets have the positions that reductions go over? All do or none. */
static bool stores_rows(const tile_lowering *l) {
  for (uint32_t d = 0; d < TILE_DIMS; d++)
    for (uint32_t a = l->n_kept; a < l->n_axes; a++)
      if (l->base.coef[d][a] != 0) return true;
  return false;
}

/* Must a tile hold whole rows? Yes if a row is used again after a reduction of it. */
static bool needs_rows(const tile_lowering *l) {
  uint32_t inner = ((1U << l->n_axes) - 1) & ~((1U << l->n_kept) - 1);
  for (uint32_t i = 0; i < l->n_nodes; i++) {
    const tile_node *n = &l->nodes[i];
    if (n->kind == TILE_ROWS || (n->kind == TILE_FOLD && tile_is_variance(n->code))) return true;
    if (n->after_fold && n->axes & inner) return true;
    if (n->kind == TILE_FOLD && l->nodes[n->x[0]].after_fold) return true;
  }
  return stores_rows(l);
}

/* Do more of the loads that are folded run along `kept` in memory than along `inner`? */
static bool runs_along(const tile_lowering *l, uint32_t kept, uint32_t inner) {
  int votes = 0;
  for (uint32_t i = 0; i < l->n_nodes; i++) {
    const tile_node *n = &l->nodes[i];
    if (n->kind != TILE_LOAD || n->strides[inner] == 0 || n->strides[kept] == 0) continue;
    votes += llabs(n->strides[kept]) < llabs(n->strides[inner]) ? 1 : -1;
  }
  return votes > 0;
}

/* ---- tiles ---- */
/* A loop other than the last along which some load lies densely that does not so along the last. */
static uint32_t transposed_loop(const tile_lowering *l, const axes_list *x, uint32_t column) {
  for (uint32_t i = 0; i < l->n_nodes; i++) {
    const tile_node *n = &l->nodes[i];
    if (n->kind != TILE_LOAD || llabs(n->strides[column]) <= 1) continue;
    for (uint32_t k = 0; k < x->n; k++)
      if (n->strides[x->axis[k]] == 1 && x->axis[k] != column && x->extents[k] >= 4) return k;
  }
  return TILE_NONE;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Columns in equal parts, whole vectors each; then as many rows as fit. */
static void cut(tile_emitter *e, int64_t columns, int64_t elements) {
  int64_t rows = e->extents[e->n_loops - 2], width = e->extents[e->n_loops - 1];
  int64_t parts = (width + columns - 1) / columns;
  e->tile_columns = parts == 1 ? width : ((width + parts - 1) / parts + 15) / 16 * 16;
  e->tile_rows = least(rows, elements / e->tile_columns);
  if (e->tile_rows < 1) e->tile_rows = 1;
}

static void finish_loops(tile_emitter *e, uint32_t row_mask, uint32_t column_mask) {
  e->row_axes = row_mask;
  e->column_axes = column_mask;
  if (e->tile_columns >= e->extents[e->n_loops - 1]) e->steady_axes = column_mask;
}

/* ---- short columns ---- */
/* May loops i and i + 1 be one for everything but loads? */
static bool can_nest(const axes_list *x, uint32_t i) {
  const tile_lowering *l = x->e->l;
  uint32_t outer = x->axis[i], inner = x->axis[i + 1], mask = x->mask[i] | x->mask[i + 1];
  int64_t strides[TILE_AXES];
  for (uint32_t k = 0; k < l->n_nodes; k++) {
    const tile_node *n = &l->nodes[k];
    if (n->kind == TILE_MAKE && !even(n->strides, outer, inner, x->extents[i + 1])) return false;
    for (uint32_t a = 0; (n->kind == TILE_BLEND || n->guarded) && a < l->n_axes; a++)
      if (mask >> a & 1 && (n->box.lo[a] > 0 || n->box.hi[a] < l->extents[a])) return false;
  }
  for (uint32_t t = 0; t < l->n_targets; t++) {
    target_strides(l, &l->targets[t], strides);
    if (!even(strides, outer, inner, x->extents[i + 1])) return false;
  }
  return true;
}

/* Tiles of rows and columns that are both short would cost more than what is computed in them. Then the
 * columns are the last loops together, and loads that do not walk these evenly go through a table. */
static void nest(axes_list *x) {
  tile_emitter *e = x->e;
  if (x->n < 3) return;
  uint32_t first = x->n - 1;
  int64_t width = x->extents[first];
  if (width * x->extents[first - 1] >= TILE_ELEMENTS / 8) return;
  while (first > 1 && width * x->extents[first - 1] <= TILE_NEST && can_nest(x, first - 1))
    width *= x->extents[--first];
  if (first + 1 == x->n) return;
  for (uint32_t i = first; i < x->n; i++) {
    e->nested_axis[e->n_nested] = x->axis[i];
    e->nested_extents[e->n_nested++] = x->extents[i];
    x->mask[first] |= x->mask[i];
  }
  x->axis[first] = x->axis[x->n - 1];
  x->extents[first] = width;
  x->merged[first] = true;
  x->n = first + 1;
}

/* Do a few steps, short functions among them, wait for memory? Short tiles let what is computed and what is read
 * alternate. */
static bool waits_for_memory(const tile_emitter *e) {
  enum { MOST_STEPS = 4 };
  uint32_t steps = 0, functions = 0;
  for (uint32_t i = 0; i < e->l->n_nodes; i++) {
    const tile_node *n = &e->l->nodes[i];
    if (n->kind == TILE_MAP ? tile_is_long(n->code) : n->kind != TILE_LOAD || n->guarded)
      return false;
    steps += n->kind == TILE_MAP;
    functions += n->kind == TILE_MAP && tile_is_function(n->code);
  }
  return steps <= MOST_STEPS && functions > 0 && tile_is_large(e->l, &e->l->targets[0]);
}

/* A target that is only moved, and its step. */
static uint32_t moved_target(const tile_lowering *l) {
  for (uint32_t t = 0; t < l->n_targets; t++)
    if (l->targets[t].value.kind == RT_VALUE_STEP && l->nodes[l->targets[t].node].kind == TILE_LOAD)
      return l->targets[t].value.index;
  return TILE_NONE;
}

/* What is transposed and a result itself beside others is transposed by its own kernel: tiles of several results have
 * runs too short for memory. */
static bool plain_loops(tile_emitter *e) {
  axes_list x = list_axes(e, 0, e->l->n_axes);
  uint32_t turned = TILE_NONE;
  if (x.n > 1) turned = transposed_loop(e->l, &x, x.axis[x.n - 1]);
  if (turned != TILE_NONE && e->l->n_targets > 1 && moved_target(e->l) != TILE_NONE) {
    e->l->blocked = moved_target(e->l);
    return false;
  }
  if (turned != TILE_NONE) move(&x, turned, x.n - 2);
  else nest(&x);
  for (uint32_t i = x.n; i < 2; i++) add_loop(e, NULL, 0);
  for (uint32_t i = 0; i < x.n; i++) add_loop(e, &x, i);
  int64_t elements = turned == TILE_NONE && waits_for_memory(e) ? TILE_SHORT : TILE_ELEMENTS;
  cut(e, turned != TILE_NONE ? 64 : elements, elements);
  e->store_form = (tile_form){.rows = true, .columns = true};
  finish_loops(e, x.n > 1 ? x.mask[x.n - 2] : 0, x.n > 0 ? x.mask[x.n - 1] : 0);
  return true;
}

/* What is transposed and a result itself is transposed first: rows of a tile are few for that. */
static bool row_loops(tile_emitter *e, axes_list *kept, const axes_list *inner) {
  uint32_t turned = transposed_loop(e->l, kept, inner->axis[0]), moved = moved_target(e->l);
  if (turned != TILE_NONE && moved != TILE_NONE) {
    e->l->blocked = moved;
    return false;
  }
  if (turned != TILE_NONE) move(kept, turned, kept->n - 1);
  if (kept->n == 0) add_loop(e, NULL, 0);
  for (uint32_t i = 0; i < kept->n; i++) add_loop(e, kept, i);
  add_loop(e, inner, 0);
  cut(e, inner->extents[0], turned != TILE_NONE ? 16 * inner->extents[0] : TILE_ELEMENTS);
  e->store_form = (tile_form){.rows = true, .columns = stores_rows(e->l)};
  finish_loops(e, kept->n > 0 ? kept->mask[kept->n - 1] : 0, inner->mask[0]);
  return true;
}

static bool streamed_columns(tile_emitter *e, const axes_list *kept, const axes_list *inner) {
  uint32_t last = kept->n - 1;
  e->stream = TILE_STREAM_COLUMNS;
  for (uint32_t i = 0; i < last; i++) add_loop(e, kept, i);
  add_loop(e, inner, 0);
  add_loop(e, kept, last);
  cut(e, 1024, TILE_ELEMENTS);
  e->store_form.columns = true;
  finish_loops(e, inner->mask[0], kept->mask[last]);
  return true;
}

/* Nothing is computed before the reductions. */
static bool only_loads(const tile_lowering *l) {
  for (uint32_t i = 0; i < l->n_nodes; i++) {
    const tile_node *n = &l->nodes[i];
    bool loads = n->kind == TILE_LOAD && !n->guarded;
    if (!loads && n->kind != TILE_FOLD) return false;
  }
  return true;
}

static bool streamed_rows(tile_emitter *e, const axes_list *kept, const axes_list *inner) {
  e->stream = TILE_STREAM_ROWS;
  if (kept->n == 0) add_loop(e, NULL, 0);
  for (uint32_t i = 0; i < kept->n; i++) add_loop(e, kept, i);
  add_loop(e, inner, 0);
  int64_t elements = only_loads(e->l) ? TILE_LOADED : TILE_ELEMENTS;
  cut(e, elements, elements);
  e->tile_rows = 1;
  e->store_form.rows = true;
  finish_loops(e, kept->n > 0 ? kept->mask[kept->n - 1] : 0, inner->mask[0]);
  return true;
}

bool tile_choose_loops(tile_emitter *e) {
  tile_lowering *l = e->l;
  if (l->n_axes == l->n_kept) return plain_loops(e);
  axes_list kept = list_axes(e, 0, l->n_kept), inner = list_axes(e, l->n_kept, l->n_axes);
  bool whole = needs_rows(l);
  e->n_inner = 1;
  for (uint32_t i = 0; i < inner.n; i++) e->n_inner *= inner.extents[i];
  l->blocked = first_fold(l);
  if (inner.n != 1 || (whole && inner.extents[0] > TILE_ROW)) return false;
  if (!whole && kept.n > 0 && runs_along(l, kept.axis[kept.n - 1], inner.axis[0]))
    return streamed_columns(e, &kept, &inner);
  if (whole || inner.extents[0] <= TILE_ROW) return row_loops(e, &kept, &inner);
  return streamed_rows(e, &kept, &inner);
}
