/* Grouped products of f16 and bf16 on tensor cores: a block has 128 rows and 64 columns of a result,
 * each of its four warps 32 rows. The depth is taken in tiles of 32; one arrives while another one is
 * multiplied.
 *
 * grouped_matmul goes over the runs of rows with one index, as the kernel for other dtypes does
 * (matmul.c): rows of other groups are 0 while it multiplies by the weight of a group, and a warp
 * without rows of the run waits. In grouped_outer a block has one group, and rows of other groups are
 * 0 along the depth. The kernel finds these rows itself: the host does not know them.
 *
 * A tile of an operand is in shared memory as it is in memory: lines along the depth, or along rows
 * or columns, which are transposed when a warp reads them. A line is cut into pieces of 16 bytes, and
 * pieces are swizzled as in sdpa_tiles.c, so that the eight lines that are read together are in
 * different banks. */
#include <stdlib.h>

#include "codegen/grouped.h"

enum { BLOCK = 128, ROWS = 128, COLUMNS = 64, DEPTH = 32, PIECE = 8 };

static const char begin[] =
    "  enum { ROWS = $rows, COLUMNS = $columns, DEPTH = $depth };\n"
    "  __shared__ __align__(16) unsigned short as[2][ROWS * DEPTH];\n"
    "  __shared__ __align__(16) unsigned short bs[2][COLUMNS * DEPTH];\n"
    "  const ix M = $m, N = $n, K = $k, tiles = $tiles;\n"
    "  const ix block = (ix)blockIdx.x / tiles, tile = (ix)blockIdx.x % tiles;\n"
    "  const ix across = (N + COLUMNS - 1) / COLUMNS;\n"
    "  const ix i0 = tile / across * ROWS, j0 = tile % across * COLUMNS;\n"
    "  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;\n"
    "  const int g = lane / 4, t = lane % 4, part = lane / 8, in_part = lane % 8;\n"
    "  ix oc = 0, oa = 0, ob = 0, oi = 0;\n"
    "$offsets"
    "  const unsigned short *const a = (const unsigned short *)p.at[$a] + oa;\n"
    "  const unsigned short *b = (const unsigned short *)p.at[$b] + ob;\n"
    "  const $I *const index = (const $I *)p.at[$i] + oi;\n"
    "  const ix end = i0 + ROWS < M ? i0 + ROWS : M;\n";

/* Finds a run of rows with one index; all threads find the same. */
static const char open_rows[] =
    "  for (ix lo = i0, hi; lo < end; lo = hi) {\n"
    "  const long long group = $geti(index[lo * $is]);\n"
    "  for (hi = lo + 1; hi < end && $geti(index[hi * $is]) == group;) hi++;\n"
    "  const int some = weir_inside(group, n.at[$groups] + 1, p.at[$error]) && group != "
    "n.at[$groups];\n"
    "  const ix from = 0, last = some ? K : 0;\n"
    "  b = (const unsigned short *)p.at[$b] + ob + (some ? (ix)group * $gs : 0);\n";

static const char open_depth[] = "  {\n"
                                 "  const ix lo = i0, hi = end;\n";

/* Loads $lines lines of $pieces pieces; line y of the tile is line $line of the operand, piece c begins at $column. */
static const char load_tile[] =
    "#pragma unroll\n"
    "    for (int i = 0; i < $lines * $pieces / $T; i++) {\n"
    "      const int at = i * $T + (int)threadIdx.x, y = at / $pieces, c = at % $pieces;\n"
    "      const ix line = $linestart + y, column = $columnstart + c * 8;\n"
    "      weir_copy16(&$s[$stage][(y * $pieces + (c ^ (y / $turn & $mask))) * 8],\n"
    "                  $x + line * $step + column, $in);\n"
    "    }\n";

static const char multiply[] =
    "  float c[2][COLUMNS / 8][4];\n"
    "#pragma unroll\n"
    "  for (int u = 0; u < 2; u++)\n"
    "#pragma unroll\n"
    "    for (int j = 0; j < COLUMNS / 8; j++) c[u][j][0] = c[u][j][1] = c[u][j][2] = c[u][j][3] = "
    "0;\n"
    "  const bool busy = i0 + warp * 32 < hi && i0 + warp * 32 + 32 > lo;\n"
    "  if (from < last) {\n"
    "    const ix d0 = from;\n"
    "    const int next = 0;\n"
    "$load"
    "  }\n"
    "  weir_copies_end();\n"
    "  int now = 0;\n"
    "  for (ix k0 = from; k0 < last; k0 += DEPTH, now ^= 1) {\n"
    "    if (k0 + DEPTH < last) {\n"
    "    const ix d0 = k0 + DEPTH;\n"
    "    const int next = now ^ 1;\n"
    "$load"
    "    }\n"
    "    weir_copies_end();\n"
    "    weir_copies_wait_but_one();\n"
    "    __syncthreads();\n"
    "    if (busy) {\n"
    "#pragma unroll\n"
    "    for (int d = 0; d < DEPTH / 16; d++) {\n"
    "      unsigned x[2][4], r[4];\n"
    "#pragma unroll\n"
    "      for (int u = 0; u < 2; u++) {\n"
    "        const int y = $ay, q = $aq;\n"
    "        $aread(x[u], &as[now][(y * $apieces + (q ^ (y / $aturn & $amask))) * 8]);\n"
    "      }\n"
    "#pragma unroll\n"
    "      for (int j = 0; j < COLUMNS / 16; j++) {\n"
    "        const int y = $by, q = $bq;\n"
    "        $bread(r, &bs[now][(y * $bpieces + (q ^ (y / $bturn & $bmask))) * 8]);\n"
    "#pragma unroll\n"
    "        for (int u = 0; u < 2; u++) {\n"
    "          weir_mma_$t(c[u][2 * j], x[u], r[0], r[1]);\n"
    "          weir_mma_$t(c[u][2 * j + 1], x[u], r[2], r[3]);\n"
    "        }\n"
    "      }\n"
    "    }\n"
    "    }\n"
    "    __syncthreads();\n"
    "  }\n"
    "#pragma unroll\n"
    "  for (int u = 0; u < 2; u++)\n"
    "#pragma unroll\n"
    "    for (int h = 0; h < 2; h++) {\n"
    "      const ix row = i0 + warp * 32 + u * 16 + h * 8 + g;\n"
    "      if (row < lo || row >= hi) continue;\n"
    "      $C *const y = ($C *)p.at[$c] + oc + row * $cm + j0 + t * 2;\n"
    "#pragma unroll\n"
    "      for (int j = 0; j < COLUMNS / 8; j++)\n"
    "        if (j0 + j * 8 < N) {\n"
    "          $store\n"
    "        }\n"
    "    }\n"
    "  }\n";

/* ---- what it can take ---- */
/* Is it dense along dimension `along`, with lines (along `other`) that begin at multiples of 16 bytes? */
static bool is_lined(const cg_matmul *m, const cg_view *v, uint32_t along, uint32_t other) {
  if (v->strides[along] != 1 || v->align < CG_ALIGN || v->offset_bytes % CG_ALIGN) return false;
  if (v->strides[other] % PIECE) return false;
  for (uint32_t d = 0; d + 3 < m->rank; d++)
    if (v->strides[d] % PIECE) return false;
  return true;
}

bool cg_grouped_is_taken(const cg_matmul *m, cg_grouped_sides *s) {
  uint32_t row = m->rank - 3, column = m->rank - 2, depth = m->rank - 1;
  const int64_t *e = m->extents;
  ir_dtype t = m->a.dtype;
  if ((t != IR_F16 && t != IR_BF16) || m->b.dtype != t) return false;
  if (m->c.dtype != t && m->c.dtype != IR_F32) return false;
  if (e[depth] == 0 || e[column] % PIECE || m->group_step % PIECE) return false;
  s->a_turned = m->by_depth;
  s->b_turned = m->by_depth || is_lined(m, &m->b, column, depth);
  if (e[m->by_depth ? row : depth] % PIECE) return false;
  return is_lined(m, &m->c, column, row) &&
         is_lined(m, &m->a, s->a_turned ? row : depth, s->a_turned ? depth : row) &&
         is_lined(m, &m->b, s->b_turned ? column : depth, s->b_turned ? depth : column);
}

/* ---- writing ---- */
/* A tile of an operand: its lines and pieces, and where they are in the operand. */
typedef struct tile {
  const char *x, *s, *step, *line0, *column0, *in;
  int64_t lines, width;
} tile;

static int64_t pieces_of(int64_t width) { return width / PIECE; }
static int64_t turn_of(int64_t width) { return width / PIECE < 8 ? 8 / (width / PIECE) : 1; }
static int64_t mask_of(int64_t width) { return width / PIECE < 8 ? width / PIECE - 1 : 7; }

static void put_tile(cg_writer *w, const tile *t) {
  cg_set(w, "x", t->x);
  cg_set(w, "s", t->s);
  cg_set(w, "step", t->step);
  cg_set(w, "linestart", t->line0);
  cg_set(w, "columnstart", t->column0);
  cg_set(w, "in", t->in);
  cg_set(w, "stage", "next");
  cg_set_int(w, "lines", t->lines);
  cg_set_int(w, "pieces", pieces_of(t->width));
  cg_set_int(w, "turn", turn_of(t->width));
  cg_set_int(w, "mask", mask_of(t->width));
  cg_set_int(w, "T", BLOCK);
  cg_put(w, load_tile);
}

static const char *stride_text(cg_writer *w, const cg_matmul *m, const cg_view *v, uint32_t back) {
  return cg_number_text(w, v->strides[m->rank - back]);
}

/* Both tiles at depth d0. */
static const char *load_text(cg_writer *w, const cg_matmul *m, const cg_grouped_sides *s) {
  const char *mine = cg_text(w, "line < last && %s(index[line * %s]) == group",
                             cg_get(w, m->index.dtype), cg_number_text(w, m->index_step));
  tile a = {"a",  "as", stride_text(w, m, &m->a, 3),
            "i0", "d0", "line >= lo && line < hi && column < K",
            ROWS, DEPTH};
  tile b = {"b",     "bs", stride_text(w, m, &m->b, 2), "j0", "d0", "line < N && column < K",
            COLUMNS, DEPTH};
  if (s->a_turned)
    a = (tile){"a",   "as", stride_text(w, m, &m->a, 1),
               "d0",  "i0", cg_text(w, "%s && column < M", mine),
               DEPTH, ROWS};
  if (s->b_turned)
    b = (tile){"b",   "bs",   stride_text(w, m, &m->b, 1),
               "d0",  "j0",   cg_text(w, "%s && column < N", m->by_depth ? mine : "line < K"),
               DEPTH, COLUMNS};
  strbuf body = cg_apart_begin(w);
  put_tile(w, &a);
  put_tile(w, &b);
  return cg_apart_end(w, body);
}

/* Where lane (part, in_part) finds its line of four matrices of 8 x 8, in the order of the
 * product's operands. */
static void set_reads(cg_writer *w, const cg_grouped_sides *s) {
  int64_t a = s->a_turned ? ROWS : DEPTH, b = s->b_turned ? COLUMNS : DEPTH;
  cg_set(w, "aread", s->a_turned ? "weir_turned_matrices" : "weir_matrices");
  cg_set(w, "bread", s->b_turned ? "weir_turned_matrices" : "weir_matrices");
  cg_set(w, "ay",
         s->a_turned ? "d * 16 + part / 2 * 8 + in_part"
                     : "warp * 32 + u * 16 + part % 2 * 8 + in_part");
  cg_set(w, "aq", s->a_turned ? "warp * 4 + u * 2 + part % 2" : "d * 2 + part / 2");
  cg_set(w, "by",
         s->b_turned ? "d * 16 + part % 2 * 8 + in_part" : "j * 16 + part / 2 * 8 + in_part");
  cg_set(w, "bq", s->b_turned ? "j * 2 + part / 2" : "d * 2 + part % 2");
  cg_set_int(w, "apieces", pieces_of(a));
  cg_set_int(w, "aturn", turn_of(a));
  cg_set_int(w, "amask", mask_of(a));
  cg_set_int(w, "bpieces", pieces_of(b));
  cg_set_int(w, "bturn", turn_of(b));
  cg_set_int(w, "bmask", mask_of(b));
}

static void set_result(cg_writer *w, const cg_matmul *m) {
  const char *t = ir_dtype_text(m->a.dtype);
  bool narrow = m->c.dtype == m->a.dtype;
  cg_set(w, "t", t);
  cg_set(w, "C", cg_storage(m->c.dtype));
  cg_set_address(w, "c", &m->c);
  cg_set(w, "cm", stride_text(w, m, &m->c, 3));
  cg_set(
      w, "store",
      narrow
          ? cg_text(w,
                    "*(unsigned *)(y + j * 8) = weir_pair_%s(c[u][j][2 * h], c[u][j][2 * h + 1]);",
                    t)
          : "y[j * 8] = c[u][j][2 * h], y[j * 8 + 1] = c[u][j][2 * h + 1];");
}

static int64_t reach_of(const cg_matmul *m, const cg_space *batch) {
  const cg_view *views[] = {&m->c, &m->a, &m->b, &m->index};
  int64_t longest = 0;
  for (int v = 0; v < 4; v++) {
    int64_t reach = 0;
    for (uint32_t d = m->rank - 3; d < m->rank; d++)
      reach += llabs(views[v]->strides[d]) * (m->extents[d] + ROWS);
    if (reach > longest) longest = reach;
  }
  return cg_space_reach(batch) + longest + llabs(m->group_step) * m->n_groups +
         llabs(m->index_step) * (m->extents[m->rank - 1] + DEPTH);
}

bool cg_write_grouped_tiles(cg_kernel *k, const cg_matmul *m) {
  cg_writer w;
  cg_space batch;
  cg_grouped_sides s;
  const cg_view *views[] = {&m->c, &m->a, &m->b, &m->index};
  const char *names[] = {"oc", "oa", "ob", "oi"};
  if (!m->grouped || !cg_grouped_is_taken(m, &s)) return false;
  cg_space_make(&batch, m->extents, 0, m->rank - 3, views, 4, false);
  const int64_t *e = &m->extents[m->rank - 3];
  int64_t tiles = cg_ceildiv(e[0], ROWS) * cg_ceildiv(e[1], COLUMNS);
  cg_begin(&w, k->memory, reach_of(m, &batch) > CG_NARROW_REACH, BLOCK);
  cg_set_offsets(&w, &batch, "block", names);
  cg_set_int(&w, "rows", ROWS);
  cg_set_int(&w, "columns", COLUMNS);
  cg_set_int(&w, "depth", DEPTH);
  cg_set_number(&w, "m", e[0]);
  cg_set_number(&w, "n", e[1]);
  cg_set_number(&w, "k", e[2]);
  cg_set_number(&w, "tiles", tiles);
  cg_set_address(&w, "a", &m->a);
  cg_set_address(&w, "b", &m->b);
  cg_set_groups(&w, m, BLOCK);
  cg_put(&w, begin);
  cg_put(&w, m->by_depth ? open_depth : open_rows);
  if (m->by_depth) cg_put(&w, cg_group_depth);
  const char *load = load_text(&w, m, &s);
  cg_set(&w, "load", load);
  set_reads(&w, &s);
  set_result(&w, m);
  cg_put(&w, multiply);
  cg_end(&w, k,
         cg_text(&w, "%s_tiles_%s", m->by_depth ? "grouped_outer" : "grouped_matmul",
                 ir_dtype_text(m->a.dtype)),
         tiles * cg_space_count(&batch), 1);
  return true;
}
