/* Copies between a source and a result that are dense along different dimensions.
 *
 * A block moves a tile through shared memory: it reads along the source's dense dimension, c, and writes
 * along the result's, r, each time a word of V elements per thread, so that both are accessed in long
 * pieces. A tile has 32 words in both directions; its lines in shared memory are one word longer, so that
 * threads in a column access different banks. */
#include "codegen/internal.h"

enum { BLOCK = 256, WARPS = BLOCK / 32, LEAST = 16, WORD_BYTES = 4 };

typedef struct transpose {
  const cg_map *m;
  const cg_space *space; /* views: the result, the source */
  uint32_t r, c;         /* dimensions: the result's dense one, the source's */
  uint32_t width;        /* V */
  ir_dtype bits;
} transpose;

/* ---- planning ---- */
static bool find_dims(transpose *t) {
  const cg_space *s = t->space;
  t->r = s->rank - 1;
  if (s->strides[0][t->r] != 1 || s->strides[1][t->r] == 1) return false;
  for (t->c = 0; t->c < t->r; t->c++)
    if (s->extents[t->c] >= LEAST && s->strides[1][t->c] == 1) break;
  return t->c < t->r && s->extents[t->r] >= LEAST;
}

/* Is every word of the view aligned? */
static bool aligned_along(const transpose *t, const cg_view *v, uint32_t view, uint32_t d) {
  cg_space others = *t->space;
  others.extents[d] = 1;
  return t->space->extents[d] % t->width == 0 && cg_rows_aligned(v, &others, view, t->width);
}

static void find_width(transpose *t) {
  size_t size = ir_dtype_size_bytes(t->bits);
  t->width = size < WORD_BYTES ? (uint32_t)(WORD_BYTES / size) : 1;
  if (!aligned_along(t, &t->m->result, 0, t->r) ||
      !aligned_along(t, &t->m->sources[0].view, 1, t->c))
    t->width = 1;
}

/* The space of tiles: the same dimensions, but along r and c it counts tiles. Views: the result, the source, and
 * how far the tile's corner is from the first row and column. */
static cg_space tiles_of(const transpose *t) {
  cg_space s = *t->space;
  int64_t side = 32 * t->width;
  s.n_views = 4;
  for (uint32_t d = 0; d < s.rank; d++) {
    bool cut = d == t->r || d == t->c;
    s.strides[2][d] = d == t->r ? side : 0;
    s.strides[3][d] = d == t->c ? side : 0;
    for (uint32_t v = 0; v < 2 && cut; v++) s.strides[v][d] *= side;
    if (cut) s.extents[d] = cg_ceildiv(s.extents[d], side);
  }
  return s;
}

/* ---- text ---- */
static const char body[] =
    "  __shared__ v tile[$side][33];\n"
    "  v x[$each];\n"
    "#pragma unroll\n"
    "  for (int k = 0; k < $each; k++) {\n"
    "    const int r = k * $warps + warp;\n"
    "    if (r0 + r < $rows && c0 + lane * $V < $columns)\n"
    "      x[k] = *(const v *)((const $S *)p.at[$x] + ox + r * $xr + lane * $V);\n"
    "  }\n"
    "#pragma unroll\n"
    "  for (int k = 0; k < $each; k++) {\n"
    "    const int r = k * $warps + warp;\n"
    "    if (r0 + r < $rows && c0 + lane * $V < $columns) {\n"
    "#pragma unroll\n"
    "      for (int e = 0; e < $V; e++) tile[lane * $V + e][r / $V].e[r % $V] = x[k].e[e];\n"
    "    }\n"
    "  }\n"
    "  __syncthreads();\n"
    "#pragma unroll\n"
    "  for (int k = 0; k < $each; k++) {\n"
    "    const int c = k * $warps + warp;\n"
    "    if (c0 + c < $columns && r0 + lane * $V < $rows)\n"
    "      *(v *)(($S *)p.at[$y] + oy + c * $yc + lane * $V) = tile[c][lane];\n"
    "  }\n";

static void put_kernel(cg_writer *w, const transpose *t, const cg_space *tiles) {
  const char *names[] = {"oy", "ox", "r0", "c0"};
  uint32_t side = 32 * t->width;
  cg_line(w, "  const int lane = (int)threadIdx.x %% 32, warp = (int)threadIdx.x / 32;\n"
             "  ix oy = 0, ox = 0, r0 = 0, c0 = 0;\n");
  cg_put_offsets(w, tiles, "(ix)blockIdx.x", names, NULL, 0);
  cg_put_vector(w, "v", t->bits, t->width);
  cg_set_int(w, "side", side);
  cg_set_int(w, "each", side / WARPS);
  cg_set_int(w, "warps", WARPS);
  cg_set_int(w, "V", t->width);
  cg_set(w, "S", cg_storage(t->bits));
  cg_set_address(w, "x", &t->m->sources[0].view);
  cg_set_address(w, "y", &t->m->result);
  cg_set_number(w, "rows", t->space->extents[t->r]);
  cg_set_number(w, "columns", t->space->extents[t->c]);
  cg_set_number(w, "xr", t->space->strides[1][t->r]);
  cg_set_number(w, "yc", t->space->strides[0][t->c]);
  cg_put(w, body);
}

bool cg_write_transposed(cg_kernel *k, const cg_map *m, const cg_space *space) {
  cg_writer w;
  transpose t = {.m = m, .space = space, .bits = cg_bits(m->result.dtype)};
  if (m->n_sources != 1 || m->sources[0].kind != CG_VIEW || !find_dims(&t)) return false;
  find_width(&t);
  cg_space tiles = tiles_of(&t);
  cg_begin(&w, k->memory, cg_space_reach(space) > CG_NARROW_REACH, BLOCK);
  put_kernel(&w, &t, &tiles);
  cg_end(&w, k, "transpose", cg_space_count(&tiles), 1);
  return true;
}
