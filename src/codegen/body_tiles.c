/* Maps whose operands are dense along different dimensions.
 *
 * The results are dense along r, the last dimension; some loads along another, c. A block has a
 * tile of 32 words in both directions. It reads those loads along c, V elements per thread, and
 * stores them transposed in shared memory; then it computes along r as other maps do. Lines in shared
 * memory are one word longer, so that threads in a column access different banks.
 *
 * If elements of 16 bits or less are aligned to four (V = 4), a thread transposes 4 x 4 of them in
 * its registers, so that shared memory is written and read by vectors. The vectors of a line are
 * permuted by the line's number, so that neighbouring threads access different banks both ways. */
#include "codegen/body_map.h"

enum { LEAST = 16, MOST_TILES = 4 };

static const cg_node *node_at(const map_writer *x, uint32_t i) { return &x->b->nodes.data[i]; }
static uint32_t last_dim(const map_writer *x) { return x->space.rank - 1; }

/* ---- planning ---- */
static bool is_far(const map_writer *x, uint32_t i) {
  const cg_node *n = node_at(x, i);
  int64_t step = n->kind == CG_NODE_LOAD ? cg_space_step(&x->space, x->walks.of_node[i]) : 0;
  return step != 0 && step != 1 && n->n_terms == 0 && n->guard == CG_NO_NODE;
}

/* The dimension that far loads are dense along: one for all. */
static bool find_turned(map_writer *x) {
  uint32_t found = 0;
  x->turned = last_dim(x);
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    if (!is_far(x, i)) continue;
    const int64_t *strides = x->space.strides[x->walks.of_node[i]];
    uint32_t d = 0;
    while (d < last_dim(x) && (strides[d] != 1 || x->space.extents[d] < LEAST)) d++;
    if (d == last_dim(x) || (found > 0 && d != x->turned)) return false;
    x->turned = d;
    x->crossed[i] = true;
    found++;
  }
  return found > 0 && found <= MOST_TILES;
}

static bool aligned_along(const map_writer *x, const cg_view *v, uint32_t walk, uint32_t d) {
  cg_space others = x->space;
  others.extents[d] = 1;
  return x->space.extents[d] % x->width == 0 && cg_rows_aligned(v, &others, walk, x->width);
}

static bool allows_width(map_writer *x, uint32_t width) {
  x->width = width;
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    const cg_node *n = node_at(x, i);
    if (!x->crossed[i]) continue;
    if (ir_dtype_size_bytes(n->dtype) > 2 ||
        !aligned_along(x, &n->view, x->walks.of_node[i], x->turned))
      return false;
  }
  return x->space.extents[last_dim(x)] % width == 0;
}

/* For elements of 16 bits or less: vectors of four, or two in a word, if all loads and results are so aligned. */
static void find_width(map_writer *x) {
  if (!allows_width(x, 4) && !allows_width(x, 2)) x->width = 1;
  x->lanes = x->width == 4 ? 16 : 32;
}

static uint32_t side_of(const map_writer *x) { return x->lanes * x->width; }

static void make_tiles(map_writer *x) {
  int64_t side = side_of(x);
  uint32_t n = x->walks.n;
  x->tiles = x->space;
  x->tiles.n_views = n + 2;
  for (uint32_t d = 0; d < x->tiles.rank; d++) {
    bool cut = d == last_dim(x) || d == x->turned;
    x->tiles.strides[n][d] = d == last_dim(x) ? side : 0;
    x->tiles.strides[n + 1][d] = d == x->turned ? side : 0;
    for (uint32_t k = 0; k < n && cut; k++) x->tiles.strides[k][d] *= side;
    if (cut) x->tiles.extents[d] = cg_ceildiv(x->tiles.extents[d], side);
  }
}

bool cg_map_find_tiles(map_writer *x, arena *memory) {
  (void)memory;
  bool dense = cg_space_step(&x->space, x->walks.of_output[0]) == 1;
  if (!dense || cg_space_run(&x->space) < LEAST || x->walks.n + 2 > CG_MAX_VIEWS ||
      !find_turned(x)) {
    for (uint32_t i = 0; i < x->b->nodes.len; i++) x->crossed[i] = false;
    return false;
  }
  find_width(x);
  make_tiles(x);
  x->items = side_of(x) / cg_map_tile_rows(x);
  return true;
}

/* ---- text ---- */
static bool turns_inside(const map_writer *x) { return x->width == 4; }

const char *cg_map_tile_text(const map_writer *x, uint32_t i) {
  uint32_t rows = cg_map_tile_rows(x);
  const char *line = cg_text(x->w, "u * %u + line", rows);
  if (!turns_inside(x)) return cg_text(x->w, "tile%u[%s][lane]", i, line);
  return cg_text(x->w, "tile%u[%s][lane ^ (%s) / %u]", i, line, line, x->width);
}

static void set_tile(map_writer *x, uint32_t i) {
  cg_writer *w = x->w;
  cg_set_int(w, "k", i);
  cg_set_int(w, "side", side_of(x));
  cg_set_int(w, "pitch", turns_inside(x) ? x->lanes : x->lanes + 1);
  cg_set_int(w, "each", x->items);
  cg_set_int(w, "V", x->width);
  /* the row of a tile that a thread reads in turn u */
  cg_set(w, "row",
         turns_inside(x) ? cg_text(w, "line * %u + u", x->width)
                         : cg_text(w, "u * %u + line", cg_map_tile_rows(x)));
}

static void put_load(map_writer *x, uint32_t i) {
  cg_writer *w = x->w;
  const cg_node *n = node_at(x, i);
  uint32_t walk = x->walks.of_node[i];
  cg_put_vector(w, cg_text(w, "v%u", i), n->dtype, x->width);
  set_tile(x, i);
  cg_set(w, "S", cg_storage(n->dtype));
  cg_set_int(w, "p", x->values.address[i]);
  cg_set_int(w, "walk", walk);
  cg_set_number(w, "step", x->space.strides[walk][last_dim(x)]);
  cg_put(w,
         "  __shared__ v$k tile$k[$side][$pitch];\n"
         "  v$k q$k[$each];\n"
         "#pragma unroll\n"
         "  for (int u = 0; u < $each; u++) {\n"
         "    const int r = $row;\n"
         "    if (r0 + r < rows && c0 + lane * $V < columns)\n"
         "      q$k[u] = *(const v$k *)((const $S *)p.at[$p] + b$walk + r * $step + lane * $V);\n"
         "  }\n");
}

static void put_turn(map_writer *x, uint32_t i) {
  set_tile(x, i);
  if (turns_inside(x))
    cg_put(x->w, "  if (r0 + line * $V < rows && c0 + lane * $V < columns) {\n"
                 "#pragma unroll\n"
                 "    for (int e = 0; e < $V; e++) {\n"
                 "      v$k turned;\n"
                 "#pragma unroll\n"
                 "      for (int u = 0; u < $V; u++) turned.e[u] = q$k[u].e[e];\n"
                 "      tile$k[lane * $V + e][line ^ lane] = turned;\n"
                 "    }\n"
                 "  }\n");
  else
    cg_put(x->w, "#pragma unroll\n"
                 "  for (int u = 0; u < $each; u++) {\n"
                 "    const int r = $row;\n"
                 "    if (r0 + r < rows && c0 + lane * $V < columns) {\n"
                 "#pragma unroll\n"
                 "      for (int e = 0; e < $V; e++)\n"
                 "        tile$k[lane * $V + e][r / $V].e[r % $V] = q$k[u].e[e];\n"
                 "    }\n"
                 "  }\n");
}

void cg_map_put_tiles(map_writer *x) {
  cg_writer *w = x->w;
  const char *names[CG_MAX_VIEWS];
  cg_line(w, "  const int lane = (int)threadIdx.x %% %u, line = (int)threadIdx.x / %u;\n", x->lanes,
          x->lanes);
  cg_line(w, "  ix r0 = 0, c0 = 0;\n");
  for (uint32_t k = 0; k < x->walks.n; k++) {
    names[k] = cg_text(w, "b%u", k);
    cg_line(w, "  ix b%u = 0;\n", k);
  }
  names[x->walks.n] = "r0";
  names[x->walks.n + 1] = "c0";
  cg_put_offsets(w, &x->tiles, "(ix)blockIdx.x", names, NULL, 0);
  cg_line(w, "  const ix rows = %s;\n", cg_number_text(w, cg_space_run(&x->space)));
  cg_line(w, "  const ix columns = %s;\n", cg_number_text(w, x->space.extents[x->turned]));
  for (uint32_t i = 0; i < x->b->nodes.len; i++)
    if (x->crossed[i]) put_load(x, i);
}

void cg_map_put_turns(map_writer *x) {
  for (uint32_t i = 0; i < x->b->nodes.len; i++)
    if (x->crossed[i]) put_turn(x, i);
  cg_line(x->w, "  __syncthreads();\n");
}

void cg_map_put_tile_item(map_writer *x) {
  cg_writer *w = x->w;
  for (uint32_t k = 0; k < x->walks.n; k++) {
    const char *down = cg_number_text(w, x->space.strides[k][x->turned]);
    const char *along = cg_number_text(w, cg_space_step(&x->space, k));
    cg_line(w, "    o%u[u] = b%u + (u * %u + line) * %s + lane * %u * %s;\n", k, k,
            cg_map_tile_rows(x), down, x->width, along);
  }
}
