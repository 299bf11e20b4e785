/* Bodies without folds: every position is computed independently.
 *
 * As in map.c for single operations, a thread computes some items, each of V neighbouring elements of the
 * last dimension:
 *
 *   for each of U items:  offsets of all walks, vector loads, values that are the same for the item
 *   for each of U items:  V times all other nodes, then the stores
 *
 * Loads that are dense along the last dimension and aligned there are vectors; others are done element by
 * element. A condition that does not change within an item (the border of a cat, if it is aligned) guards a
 * whole vector. */
#include <stdlib.h>
#include <string.h>

#include "codegen/body_map.h"

enum {
  BLOCK = 256,
  MANY_ITEMS = 4 << 20,
  MOST_VECTORS = 4,
  KEY_BLOCK = 128, /* threads of a block, for maps that draw random numbers */
  KEY_BLOCKS = 8,  /* of these blocks share a multiprocessor */
  KEY_TURNS = 4,
  FAR_STEP = 16
};

static const cg_node *node_at(const map_writer *x, uint32_t i) { return &x->b->nodes.data[i]; }

/* ---- planning ---- */
static int64_t step_of(const map_writer *x, uint32_t walk) {
  return cg_space_run(&x->space) > 1 ? cg_space_step(&x->space, walk) : 0;
}

/* Is it the border of a part, at a multiple of V? Then it is the same for all elements of an item. */
static bool is_border(const map_writer *x, const cg_node *n) {
  const cg_node *at = node_at(x, n->operands[0]);
  uint32_t walk = x->walks.of_node[n->operands[0]];
  if (at->kind != CG_NODE_AT || at->n_terms > 0 || step_of(x, walk) != 1) return false;
  int64_t v = x->width;
  for (uint32_t d = 0; d + 1 < x->space.rank; d++)
    if (x->space.extents[d] > 1 && x->space.strides[walk][d] % v != 0) return false;
  return (n->low - at->first) % v == 0 && (n->high - at->first) % v == 0;
}

static bool find_varies(const map_writer *x, uint32_t i) {
  const cg_node *n = node_at(x, i);
  bool placed = n->kind == CG_NODE_LOAD || n->kind == CG_NODE_AT;
  if (placed && step_of(x, x->walks.of_node[i]) != 0) return true;
  if (n->kind == CG_NODE_RANGE && is_border(x, n)) return false;
  for (uint32_t k = 0; k < n->n_operands; k++)
    if (x->varies[n->operands[k]]) return true;
  for (uint32_t t = 0; t < n->n_terms; t++)
    if (x->varies[n->terms[t].node]) return true;
  bool guarded = n->kind == CG_NODE_LOAD || n->kind == CG_NODE_INSIDE;
  return guarded && n->guard != CG_NO_NODE && x->varies[n->guard];
}

static bool is_vector(const map_writer *x, uint32_t i, uint32_t width) {
  const cg_node *n = node_at(x, i);
  uint32_t walk = x->walks.of_node[i];
  int64_t size = (int64_t)ir_dtype_size_bytes(n->dtype), bytes = width * size;
  if (n->kind != CG_NODE_LOAD || width == 1 || step_of(x, walk) != 1 || x->crossed[i]) return false;
  if (cg_vector_width(&n->view, &x->space, walk, width) < width) return false;
  for (uint32_t t = 0; t < n->n_terms; t++)
    if (x->varies[n->terms[t].node] ||
        n->terms[t].scale * size % (bytes < CG_ALIGN ? bytes : CG_ALIGN) != 0)
      return false;
  return n->guard == CG_NO_NODE || !x->varies[n->guard];
}

static bool is_stored(const map_writer *x, uint32_t r, uint32_t width) {
  uint32_t walk = x->walks.of_output[r];
  return width > 1 && step_of(x, walk) == 1 &&
         cg_vector_width(&x->b->outputs[r].view, &x->space, walk, width) == width;
}

static uint32_t widest(const map_writer *x) {
  size_t smallest = 8, largest = 1;
  for (uint32_t r = 0; r < x->b->n_outputs; r++) {
    size_t size = ir_dtype_size_bytes(x->b->outputs[r].view.dtype);
    if (size < smallest) smallest = size;
    if (size > largest) largest = size;
  }
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    const cg_node *n = node_at(x, i);
    if (n->kind != CG_NODE_LOAD || step_of(x, x->walks.of_node[i]) == 0) continue;
    size_t size = ir_dtype_size_bytes(n->dtype);
    if (size < smallest) smallest = size;
    if (size > largest) largest = size;
  }
  return cg_widest(smallest, largest);
}

/* The widest vectors in which every output can be stored. Loads that do not allow half of that are done element by
 * element; otherwise all loads decide, too. */
static uint32_t find_width(const map_writer *x) {
  uint32_t most = widest(x), all;
  for (uint32_t r = 0; r < x->b->n_outputs; r++)
    while (most > 1 && !is_stored(x, r, most)) most /= 2;
  all = most;
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    const cg_node *n = node_at(x, i);
    int64_t step = n->kind == CG_NODE_LOAD ? step_of(x, x->walks.of_node[i]) : 0;
    if (step != 0 && step != 1) return 1; /* neighbouring lanes read far apart already */
    if (step != 1 || n->n_terms > 0) continue;
    uint32_t fits = cg_vector_width(&n->view, &x->space, x->walks.of_node[i], all);
    if (fits < all) all = fits;
  }
  return 2 * all < most ? most : all;
}

static int64_t count_items(const map_writer *x) {
  int64_t run = cg_space_run(&x->space);
  check(run > 0 && x->width > 0);
  return cg_space_count(&x->space) / run * cg_ceildiv(run, x->width);
}

/* A thread has several items, if many waves of blocks and enough registers remain. If random numbers are drawn, it
 * has more, and takes several turns: they share the work on a key, which is read from memory and mixed first. */
static void find_items(map_writer *x) {
  uint32_t vectors = 0, keys = 0;
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    vectors += x->vector[i];
    keys += node_at(x, i)->kind == CG_NODE_KEY;
  }
  x->items = x->turns = 1;
  x->block = BLOCK;
  if (count_items(x) < MANY_ITEMS || vectors > MOST_VECTORS) return;
  x->items = keys > 0 && vectors <= 1 ? 4 : 2;
  x->turns = keys > 0 ? KEY_TURNS : 1;
  if (keys > 0) x->block = KEY_BLOCK;
}

static bool plan(map_writer *x, arena *memory) {
  uint32_t n = x->b->nodes.len;
  if (!cg_walks_find(&x->walks, x->b, memory)) return false;
  cg_space_make(&x->space, x->b->extents, 0, x->b->rank, x->walks.views, x->walks.n, true);
  x->varies = ARENA_ARRAY(memory, n + (size_t)1, bool);
  x->vector = ARENA_ARRAY(memory, n + (size_t)1, bool);
  x->crossed = ARENA_ARRAY(memory, n + (size_t)1, bool);
  x->tiled = cg_map_find_tiles(x, memory);
  if (!x->tiled) x->width = find_width(x);
  check(x->width > 0);
  x->tail = cg_space_run(&x->space) % x->width != 0;
  for (uint32_t i = 0; i < n; i++) {
    x->varies[i] = find_varies(x, i);
    x->vector[i] = is_vector(x, i, x->width);
  }
  for (uint32_t r = 0; r < x->b->n_outputs; r++) x->stores[r] = is_stored(x, r, x->width);
  if (!x->tiled) find_items(x);
  return true;
}

/* ---- items ---- */
static const char *walk_text(const map_writer *x, uint32_t walk) {
  return cg_text(x->w, "o%u[u]", walk);
}

/* Is it computed once per item? */
static bool is_early(const map_writer *x, uint32_t i) {
  return !x->varies[i] && !cg_node_is_constant(node_at(x, i)->kind);
}

static void put_keys(map_writer *x) {
  for (uint32_t i = 0; i < x->b->nodes.len; i++)
    if (node_at(x, i)->kind == CG_NODE_KEY) cg_put_node(&x->values, i, "", "", false);
}

static void put_declarations(map_writer *x) {
  cg_writer *w = x->w;
  for (uint32_t k = 0; k < x->walks.n; k++) cg_line(w, "  ix o%u[%u];\n", k, x->items);
  if (x->tail) cg_line(w, "  ix left[%u];\n", x->items);
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    const cg_node *n = node_at(x, i);
    if (x->crossed[i]) {
      x->values.texts[i] = cg_element(w, n->dtype, x->width, cg_map_tile_text(x, i));
    } else if (x->vector[i]) {
      cg_put_vector(w, cg_text(w, "v%u", i), n->dtype, x->width);
      cg_line(w, "  v%u x%u[%u];\n", i, i, x->items);
      x->values.texts[i] = cg_element(w, n->dtype, x->width, cg_text(w, "x%u[u]", i));
    } else if (is_early(x, i)) {
      cg_line(w, "  %s t%u[%u];\n", cg_native(n->dtype), i, x->items);
    } else if (n->kind == CG_NODE_CONSTANT) {
      cg_put_node(&x->values, i, "", "", false);
    }
  }
  for (uint32_t r = 0; r < x->b->n_outputs; r++)
    if (x->stores[r]) cg_put_vector(w, cg_text(w, "w%u", r), x->b->outputs[r].view.dtype, x->width);
}

static void put_offsets(map_writer *x) {
  if (x->tiled) {
    cg_map_put_tile_item(x);
    return;
  }
  cg_writer *w = x->w;
  const char *names[CG_MAX_VIEWS];
  int64_t run = cg_space_run(&x->space);
  cg_line(w, "    ix c = 0;\n");
  for (uint32_t k = 0; k < x->walks.n; k++) {
    names[k] = walk_text(x, k);
    cg_line(w, "    %s = 0;\n", names[k]);
  }
  cg_put_offsets(w, &x->space, "item", names, "c", cg_ceildiv(run, x->width));
  if (x->tail) cg_line(w, "    left[u] = %s - c * %u;\n", cg_number_text(w, run), x->width);
  for (uint32_t k = 0; k < x->walks.n; k++) {
    int64_t step = cg_space_step(&x->space, k);
    if (run > 1 && step == 1) cg_line(w, "    %s += c * %u;\n", names[k], x->width);
    else if (run > 1 && step != 0)
      cg_line(w, "    %s += c * %u * %s;\n", names[k], x->width, cg_number_text(w, step));
  }
}

static void put_vector(map_writer *x, uint32_t i) {
  cg_writer *w = x->w;
  const cg_node *n = node_at(x, i);
  const char *to = cg_text(w, "x%u[u]", i);
  const char *from =
      cg_text(w, "(const %s *)p.at[%u] + %s", cg_storage(n->dtype), x->values.address[i],
              cg_place_text(&x->values, i, walk_text(x, x->walks.of_node[i])));
  cg_set_int(w, "V", x->width);
  cg_set(w, "to", to);
  cg_set(w, "from", from);
  bool guarded = n->guard != CG_NO_NODE;
  if (guarded || x->tail) {
    const char *truth = guarded ? x->values.texts[n->guard] : "1";
    const char *whole = x->tail ? cg_text(w, "left[u] >= %u", x->width) : "1";
    cg_line(w, "    if (%s && %s) {\n", truth, whole);
  }
  cg_put_vector_load(w, n->dtype, x->width, to, from);
  if (!guarded && !x->tail) return;
  cg_set(w, "truth", guarded ? x->values.texts[n->guard] : "1");
  cg_set(w, "inside", x->tail ? "e < left[u]" : "0");
  cg_put(w, "    } else {\n"
            "#pragma unroll\n"
            "      for (int e = 0; e < $V; e++) $to.e[e] = $truth && $inside ? ($from)[e] : 0;\n"
            "    }\n");
}

/* The condition of a border is computed at the item's first element. */
static void put_early(map_writer *x, uint32_t i) {
  const cg_node *n = node_at(x, i);
  cg_writer *w = x->w;
  bool placed = n->kind == CG_NODE_LOAD || n->kind == CG_NODE_AT;
  const char *at = placed ? walk_text(x, x->walks.of_node[i]) : "";
  uint32_t first = n->n_operands > 0 ? n->operands[0] : 0;
  bool border = n->kind == CG_NODE_RANGE && x->varies[first];
  if (border)
    x->values.texts[first] =
        cg_text(w, "(long long)(%s)",
                cg_place_text(&x->values, first, walk_text(x, x->walks.of_node[first])));
  cg_put_node(&x->values, i, cg_text(w, "t%u[u]", i), at, true);
  if (border) x->values.texts[first] = NULL;
}

static bool waits(const cg_node *n) { return n->n_terms > 0 || n->guard != CG_NO_NODE; }

static void put_item(map_writer *x) {
  put_offsets(x);
  for (uint32_t i = 0; i < x->b->nodes.len; i++)
    if (x->vector[i] && !waits(node_at(x, i))) put_vector(x, i);
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    if (is_early(x, i)) put_early(x, i);
    if (x->vector[i] && waits(node_at(x, i))) put_vector(x, i);
  }
}

/* ---- elements ---- */
static const char *element_text(const map_writer *x, uint32_t walk) {
  int64_t step = step_of(x, walk);
  if (x->width == 1 || step == 0) return walk_text(x, walk);
  if (step == 1) return cg_text(x->w, "o%u[u] + e", walk);
  return cg_text(x->w, "o%u[u] + e * %s", walk, cg_number_text(x->w, step));
}

static void put_element(map_writer *x) {
  cg_writer *w = x->w;
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    const cg_node *n = node_at(x, i);
    bool placed = n->kind == CG_NODE_LOAD || n->kind == CG_NODE_AT;
    if (x->vector[i] || x->crossed[i] || !x->varies[i]) continue;
    const char *at = placed ? element_text(x, x->walks.of_node[i]) : "";
    cg_put_node(&x->values, i, cg_text(w, "t%u", i), at, false);
  }
  for (uint32_t r = 0; r < x->b->n_outputs; r++) {
    const cg_output *o = &x->b->outputs[r];
    if (x->stores[r]) cg_put_result(&x->values, r, x->width);
    else
      cg_line(w, "      ((%s *)p.at[%u])[%s] = %s;\n", cg_storage(o->view.dtype), x->values.out[r],
              element_text(x, x->walks.of_output[r]),
              cg_stored_text(&x->values, o->node, o->view.dtype));
  }
}

static void put_store(map_writer *x, uint32_t r) {
  cg_writer *w = x->w;
  ir_dtype t = x->b->outputs[r].view.dtype;
  const char *from = cg_text(w, "y%u", r);
  cg_put_result_end(&x->values, r, x->width);
  const char *to =
      cg_text(w, "(%s *)p.at[%u] + o%u[u]", cg_storage(t), x->values.out[r], x->walks.of_output[r]);
  if (x->tail) cg_line(w, "    if (left[u] >= %u) {\n", x->width);
  cg_put_vector_store(w, t, x->width, to, from);
  if (!x->tail) return;
  cg_set_int(w, "V", x->width);
  cg_set(w, "to", to);
  cg_set(w, "from", from);
  cg_put(w, "    } else {\n"
            "#pragma unroll\n"
            "      for (int e = 0; e < $V; e++) if (e < left[u]) ($to)[e] = $from.e[e];\n"
            "    }\n");
}

/* ---- the kernel ---- */
static const char item_loop[] = "#pragma unroll\n"
                                "  for (int u = 0; u < $U; u++) {\n"
                                "    const ix item = base + u * $T;\n"
                                "    if (item >= count) continue;\n";

static void put_loop(map_writer *x) {
  if (x->tiled) {
    cg_set_int(x->w, "U", x->items);
    cg_set_int(x->w, "W", cg_map_tile_rows(x));
    cg_set_int(x->w, "V", x->width);
    cg_put(x->w, "#pragma unroll\n"
                 "  for (int u = 0; u < $U; u++) {\n"
                 "    if (c0 + u * $W + line >= columns || r0 + lane * $V >= rows) continue;\n");
    return;
  }
  cg_set_int(x->w, "U", x->items);
  cg_set_int(x->w, "T", x->w->block);
  cg_put(x->w, item_loop);
}

static void put_kernel(map_writer *x) {
  cg_writer *w = x->w;
  put_keys(x);
  if (x->tiled) cg_map_put_tiles(x);
  else {
    cg_line(w, "  const ix count = %s;\n", cg_number_text(w, count_items(x)));
    if (x->turns > 1)
      cg_line(w, "#pragma unroll 1\n  for (int turn = 0; turn < %u; turn++) {\n", x->turns);
    cg_line(w, "  const ix base = %s * %u + (ix)threadIdx.x;\n",
            x->turns > 1 ? cg_text(w, "((ix)blockIdx.x * %u + turn)", x->turns) : "(ix)blockIdx.x",
            x->items * w->block);
  }
  put_declarations(x);
  put_loop(x);
  put_item(x);
  cg_line(w, "  }\n");
  if (x->tiled) cg_map_put_turns(x);
  put_loop(x);
  for (uint32_t r = 0; r < x->b->n_outputs; r++)
    if (x->stores[r]) cg_put_result_begin(&x->values, r, x->width);
  cg_line(w, "#pragma unroll\n    for (int e = 0; e < %u; e++) {\n", x->width);
  if (x->tail) cg_line(w, "      if (e >= left[u]) continue;\n");
  put_element(x);
  cg_line(w, "    }\n");
  for (uint32_t r = 0; r < x->b->n_outputs; r++)
    if (x->stores[r]) put_store(x, r);
  cg_line(w, "  }\n%s", x->turns > 1 ? "  }\n" : "");
}

/* How many consecutive elements of memory a load reads, in whatever order the space visits them. */
static int64_t dense_run(const map_writer *x, uint32_t walk) {
  int64_t run = 1, before = 0;
  while (run != before) {
    before = run;
    for (uint32_t d = 0; d < x->space.rank; d++)
      if (x->space.extents[d] > 1 && x->space.strides[walk][d] == run) run *= x->space.extents[d];
  }
  return run;
}

/* A transpose through tiles needs one dimension along which the load is dense. If another operand
 * splits that dimension into several short ones, there are no tiles, and one kernel per step of the
 * body is faster. */
static bool is_torn(const map_writer *x) {
  for (uint32_t i = 0; i < x->b->nodes.len && !x->tiled; i++) {
    const cg_node *n = node_at(x, i);
    if (n->kind != CG_NODE_LOAD || n->n_terms > 0 || n->guard != CG_NO_NODE) continue;
    uint32_t walk = x->walks.of_node[i];
    bool far = llabs(cg_space_step(&x->space, walk)) > FAR_STEP;
    if (far && count_items(x) >= MANY_ITEMS && dense_run(x, walk) > FAR_STEP) return true;
  }
  return false;
}

bool cg_write_body_map(cg_kernel *k, const cg_body *b) {
  cg_writer w;
  map_writer x = {.w = &w, .b = b};
  if (!plan(&x, k->memory) || is_torn(&x)) return false;
  int64_t reach = cg_space_reach(&x.space) + cg_body_reach(b);
  cg_begin(&w, k->memory, reach > CG_NARROW_REACH, x.tiled ? BLOCK : x.block);
  if (x.turns > 1) w.resident = KEY_BLOCKS;
  cg_values_begin(&x.values, &w, b);
  put_kernel(&x);
  int64_t blocks = x.tiled ? cg_space_count(&x.tiles)
                           : cg_ceildiv(count_items(&x), (int64_t)x.block * x.items * x.turns);
  cg_end(&w, k, x.tiled ? "tiles" : "body", blocks, 1);
  return true;
}
