/* Grouped products of f16 and bf16 on GPUs of compute capability 9.0, in two launches.
 *
 * The first launch is a single block, which reads the index. For each group it finds where its rows
 * begin and end, in how many runs they are, and how many tiles of the result come before them. The
 * second launch has one block per multiprocessor; a block takes every n-th tile, where n is the number
 * of blocks. One warp copies tiles of both operands, up to STAGES ahead, also across tiles of the
 * result; two teams of four warps multiply them. The teams share a tile of the result by rows, or by
 * columns if groups have few rows. The host knows only how many blocks there are.
 *
 * grouped_matmul: a tile has rows of one group. Rows after the group's end are multiplied too but not
 * stored: another tile has them. A group may have several runs, as when rows come from several ranks.
 * Then its tiles are pieces of all rows, of the height of a tile, that have some rows of the group;
 * rows of other groups are not stored. Rows without a group are a group of depth 0.
 *
 * grouped_outer: the depth of a tile is the rows of its group; if these are several runs, the pieces
 * that have some of them. Lines of other groups are set to 0 in shared memory before they are
 * multiplied, in both operands, since they may hold numbers that are not finite. */
#include <stdlib.h>

#include "codegen/grouped.h"

enum {
  DEPTH = 64,
  LINE_BYTES = 128,
  TEAMS = 2,
  TEAM = 128,
  BLOCK = TEAMS * TEAM + 32,
  LIST_BLOCK = 1024,
  MAP_BYTES = 128,
  MOST_LIST_BYTES = 1 << 30,
};

/* The tile of a result. split_rows: each team has half of the rows; otherwise half of the columns. */
typedef struct shape {
  int64_t rows, columns, stages;
  bool split_rows;
} shape;

static int64_t width_of(const shape *s) { return s->split_rows ? s->columns : s->columns / TEAMS; }
static int64_t stage_bytes(const shape *s) { return (s->rows + s->columns) * LINE_BYTES; }
static int64_t shared_bytes(const shape *s) { return s->stages * stage_bytes(s) + 1024; }

/* If groups have few rows, reading the weights takes the time: small tiles keep all multiprocessors
 * reading. */
static shape shape_of(const cg_matmul *m) {
  if (!m->by_depth && m->extents[0] < 32 * m->n_groups) return (shape){64, 256, 5, false};
  return (shape){128, 256, 4, true};
}

/* ---- what groups have, in scratch memory ---- */
static const char places[] =
    "  char *const maps = (char *)(((unsigned long long)p.at[$lists] + 127) & ~127ull);\n"
    "  const int groups = (int)n.at[$groups];\n"
    "  int *const first = (int *)(maps + 2 * $mapbytes), *const last = first + groups + 1;\n"
    "  int *const runs = last + groups + 1, *const start = runs + groups + 1;\n"
    "  const int words = (int)n.at[$words];\n"
    "  unsigned *const used = (unsigned *)(start + groups + 3);\n"
    "  int *const parts = (int *)(used + (ix)words * (groups + 1));\n"
    "  (void)parts;\n"
    "  const $I *const index = (const $I *)p.at[$i];\n";

/* How many pieces all rows have, and how many words with a bit for each piece. */
static int64_t count_pieces(const cg_matmul *m, const shape *s) {
  return m->by_depth ? cg_ceildiv(m->extents[m->rank - 1], DEPTH)
                     : cg_ceildiv(m->extents[0], s->rows);
}
static int64_t count_words(const cg_matmul *m, const shape *s) {
  return cg_ceildiv(count_pieces(m, s), 32);
}

static int64_t lists_bytes(const cg_matmul *m, const shape *s) {
  int64_t groups = m->n_groups + 1, ints = 4 * groups + 2 + groups * count_words(m, s);
  int64_t parts = groups * count_pieces(m, s);
  if (m->by_depth) parts = 0;
  else if (parts > m->extents[0]) parts = m->extents[0];
  return MAP_BYTES + 2 * MAP_BYTES + (ints + 2 * parts) * (int64_t)sizeof(int32_t);
}

static const char list[] = "  enum { T = $T, SOME = 4 };\n"
                           "  __shared__ __align__(128) unsigned shared[2][32];\n"
                           "$places"
                           "  const ix M = $m;\n"
                           "  for (int g = (int)threadIdx.x; g <= groups; g += T)\n"
                           "    first[g] = 0x7fffffff, last[g] = 0, runs[g] = 0;\n"
                           "  __syncthreads();\n"
                           "$maps"
                           "  for (ix from = (ix)threadIdx.x; from < M; from += SOME * T) {\n"
                           "    long long before[SOME], at[SOME], after[SOME];\n"
                           "#pragma unroll\n"
                           "    for (int i = 0; i < SOME; i++) {\n"
                           "      const ix r = from + i * T < M ? from + i * T : M - 1;\n"
                           "      before[i] = $geti(index[(r > 0 ? r - 1 : 0) * $is]);\n"
                           "      at[i] = $geti(index[r * $is]);\n"
                           "      after[i] = $geti(index[(r < M - 1 ? r + 1 : r) * $is]);\n"
                           "    }\n"
                           "#pragma unroll\n"
                           "    for (int i = 0; i < SOME; i++) {\n"
                           "      const ix r = from + i * T;\n"
                           "      const bool begins = r == 0 || before[i] != at[i], ends = r == M "
                           "- 1 || after[i] != at[i];\n"
                           "      if (r >= M || !(begins || ends)) continue;\n"
                           "      if (!weir_inside(at[i], groups + 1, p.at[$error])) continue;\n"
                           "      if (begins) {\n"
                           "        atomicMin(&first[at[i]], (int)r);\n"
                           "        atomicAdd(&runs[at[i]], 1);\n"
                           "      }\n"
                           "      if (ends) atomicMax(&last[at[i]], (int)r + 1);\n"
                           "    }\n"
                           "  }\n";

/* For groups of several runs: marks the pieces of all rows that have some of theirs. In grouped_matmul,
 * each of them is a tile. */
static const char mark_pieces[] =
    "  __shared__ int mixed;\n"
    "  if (threadIdx.x == 0) mixed = 0, start[groups + 2] = 0;\n"
    "  __syncthreads();\n"
    "  for (int g = (int)threadIdx.x; g <= groups; g += T)\n"
    "    if (runs[g] > 1) mixed = 1;\n"
    "  __syncthreads();\n"
    "  if (mixed) {\n"
    "    for (ix i = (ix)threadIdx.x; i < (ix)words * (groups + 1); i += T) used[i] = 0;\n"
    "    __syncthreads();\n"
    "    for (ix r = (ix)threadIdx.x; r < M; r += T) {\n"
    "      const long long at = $geti(index[r * $is]);\n"
    "      const int piece = (int)(r / $piece);\n"
    "      if (at < 0 || at > groups || runs[at] == 1) continue;\n"
    "      if (r % $piece && $geti(index[(r - 1) * $is]) == at) continue;\n"
    "      const unsigned bit = 1u << piece % 32;\n"
    "      const unsigned old = atomicOr(&used[(ix)at * words + piece / 32], bit);\n"
    "$mark"
    "    }\n"
    "  }\n";

static const char mark_tile[] = "      if (old & bit) continue;\n"
                                "      const int part = atomicAdd(&start[groups + 2], 1);\n"
                                "      parts[2 * part] = piece * $piece;\n"
                                "      parts[2 * part + 1] = (int)at;\n";

static const char add_tiles[] =
    "  __shared__ int sums[T];\n"
    "  int before = 0;\n"
    "  __syncthreads();\n"
    "  for (int g0 = 0; g0 <= groups; g0 += T) {\n"
    "    const int g = g0 + (int)threadIdx.x, there = g <= groups && runs[g] == 1;\n"
    "    sums[threadIdx.x] = there ? (last[g] - first[g] + $rows - 1) / $rows : 0;\n"
    "    __syncthreads();\n"
    "    for (int far = 1; far < T && far <= groups; far *= 2) {\n"
    "      const int other = (int)threadIdx.x >= far ? sums[threadIdx.x - far] : 0;\n"
    "      __syncthreads();\n"
    "      sums[threadIdx.x] += other;\n"
    "      __syncthreads();\n"
    "    }\n"
    "    if (g <= groups) start[g + 1] = before + sums[threadIdx.x];\n"
    "    before += sums[T - 1];\n"
    "    __syncthreads();\n"
    "  }\n"
    "  if (threadIdx.x == 0) start[0] = 0;\n";

/* ---- tiles of the result ---- */
/* Finds the group of a tile: the last one that begins at or before it. The tiles after all of these are pieces of
 * groups with several runs. */
static const char find_rows[] =
    "      const ix plain = (ix)start[groups + 1] * across;\n"
    "      const bool whole = tile < plain;\n"
    "      int group = 0;\n"
    "      for (int end = groups + 1; whole && end - group > 1;) {\n"
    "        const int middle = (group + end) / 2;\n"
    "        if ((ix)start[middle] * across <= tile) group = middle;\n"
    "        else end = middle;\n"
    "      }\n"
    "      const int *const part = parts + (whole ? 0 : (tile - plain) / across * 2);\n"
    "      if (!whole) group = part[1];\n"
    "      const int in_group = (int)(whole ? tile - (ix)start[group] * across : (tile - plain) % "
    "across);\n"
    "      const int top = whole ? first[group] : part[0];\n"
    "      const int down = whole ? start[group + 1] - start[group] : 1;\n"
    "      const int rows = whole ? last[group] : top + ROWS < M ? top + ROWS : M;\n"
    "      const int from = 0, end = group < groups ? K : 0;\n";

static const char find_outer[] =
    "      const int in_group = (int)(tile % $each), group = (int)(tile / $each) + (int)$first;\n"
    "      const int top = 0, down = (M + ROWS - 1) / ROWS, rows = M;\n"
    "      const bool whole = runs[group] <= 1;\n"
    "      const unsigned *const pieces = used + (ix)group * words;\n"
    "      const int end = last[group];\n"
    "      const int from = whole ? first[group] : first[group] / DEPTH * DEPTH;\n";

/* Skips pieces of the depth that have no rows of a group with several runs. */
static const char skip[] = "        while (!whole && k0 < end && !(pieces[k0 / DEPTH / 32] >> k0 / "
                           "DEPTH % 32 & 1)) k0 += DEPTH;\n";

/* Finds the rows and columns of a tile: bands of rows, and in a band one column after the other. */
static const char find_place[] =
    "      const int band = in_group / ($band * across), in_band = in_group % ($band * across);\n"
    "      const int left = down - band * $band, high = left < $band ? left : $band;\n"
    "      const int i0 = top + (band * $band + in_band % high) * ROWS;\n"
    "      const int j0 = in_band / high * COLUMNS;\n"
    "      (void)whole;\n"
    "      (void)rows;\n";

/* ---- the second launch ---- */
static const char begin[] =
    "  enum { ROWS = $rows, COLUMNS = $columns, DEPTH = $depth, STAGES = $stages };\n"
    "  enum { WIDTH = $width, FIRST = ROWS * 128, STAGE = (ROWS + COLUMNS) * 128 };\n"
    "#ifdef __CUDA_ARCH__\n"
    "  extern __shared__ uint4 weir_stage[];\n"
    "#else\n"
    "  __shared__ uint4 weir_stage[$shared / 16];\n"
    "#endif\n"
    "  __shared__ unsigned long long full[STAGES], empty[STAGES];\n"
    "  char *const stages = (char *)(((unsigned long long)weir_stage + 1023) & ~1023ull);\n"
    "$places"
    "  const int M = (int)$m, N = (int)$n, K = (int)$k, across = (N + COLUMNS - 1) / COLUMNS;\n"
    "  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, team = warp / 4;\n"
    "  const ix tiles = $tiles;\n"
    "  (void)M;\n"
    "  (void)K;\n"
    "  if (threadIdx.x == 0) {\n"
    "    for (int i = 0; i < STAGES; i++) {\n"
    "      weir_gate_make(&full[i], 1);\n"
    "      weir_gate_make(&empty[i], 8);\n"
    "    }\n"
    "    weir_gates_made();\n"
    "  }\n"
    "  __syncthreads();\n"
    "  int s = 0, turn = 0;\n"
    "  if (warp == 8) {\n"
    "    if (lane > 0) return;\n"
    "    weir_map_take(maps);\n"
    "    weir_map_take(maps + $mapbytes);\n"
    "    for (ix tile = (ix)blockIdx.x; tile < tiles; tile += (ix)gridDim.x) {\n"
    "$find"
    "      for (int k0 = from; k0 < end;) {\n"
    "        char *const stage = stages + s * STAGE;\n"
    "        weir_gate_wait(&empty[s], turn ^ 1);\n"
    "        weir_gate_expect(&full[s], STAGE);\n"
    "$copies"
    "        if (++s == STAGES) s = 0, turn ^= 1;\n"
    "        k0 += DEPTH;\n"
    "$skip"
    "      }\n"
    "    }\n"
    "    return;\n"
    "  }\n";

/* A stage is free when the next products have begun: its own are done then. */
static const char multiply[] =
    "  float c[WIDTH / 2];\n"
    "  for (ix tile = (ix)blockIdx.x; tile < tiles; tile += (ix)gridDim.x) {\n"
    "$find"
    "    const int row0 = i0 + $teamrow, column0 = j0 + $teamcolumn;\n"
    "    const bool busy = row0 < rows && column0 < N;\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < WIDTH / 2; i++) c[i] = 0;\n"
    "    for (int k0 = from; k0 < end;) {\n"
    "      char *const stage = stages + s * STAGE;\n"
    "      weir_gate_wait(&full[s], turn);\n"
    "$clear"
    "      if (busy) {\n"
    "        const char *const a = stage + $teamrow * 128;\n"
    "        const char *const b = stage + FIRST + $teamcolumn * 128;\n"
    "        weir_products_begin();\n"
    "#pragma unroll\n"
    "        for (int d = 0; d < DEPTH; d += 16) {\n"
    "$product"
    "        }\n"
    "        weir_products_end();\n"
    "      }\n"
    "      weir_products_last();\n"
    "      if (k0 > from && lane == 0) weir_gate_arrive(&empty[s ? s - 1 : STAGES - 1]);\n"
    "      if (++s == STAGES) s = 0, turn ^= 1;\n"
    "      k0 += DEPTH;\n"
    "$skip"
    "    }\n"
    "    weir_products_done(c, WIDTH / 2);\n"
    "    if (end > from && lane == 0) weir_gate_arrive(&empty[s ? s - 1 : STAGES - 1]);\n"
    "$offset"
    "#pragma unroll\n"
    "    for (int h = 0; h < 2; h++) {\n"
    "      const int row = row0 + warp % 4 * 16 + h * 8 + lane / 4;\n"
    "      const bool mine = row < rows$mine;\n"
    "      $C *const y = ($C *)p.at[$c] + oc + (ix)row * $cm + column0;\n"
    "$store"
    "    }\n"
    "  }\n";

/* Clears the lines of a stage that belong to other groups: four threads clear a line, in all tiles of the stage. */
static const char clear[] =
    "      if (!whole || k0 + DEPTH > end) {\n"
    "        const int y = (int)threadIdx.x / 4, r = k0 + y;\n"
    "        const bool mine = r < end && (whole || $geti(index[r * $is]) == group);\n"
    "        const uint4 zero = {0, 0, 0, 0};\n"
    "        for (int i = (int)threadIdx.x % 4; !mine && i < STAGE / (DEPTH * 16); i += 4)\n"
    "          ((uint4 *)stage)[i / 8 * DEPTH * 8 + y * 8 + i % 8] = zero;\n"
    "        weir_shared_written();\n"
    "        weir_meet(1, $teams);\n"
    "      }\n";

static const char store_narrow[] =
    "#pragma unroll\n"
    "      for (int j = 0; j < WIDTH; j += 32) {\n"
    "        unsigned w[4];\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < 4; i++) {\n"
    "          const float *const x = &c[(j + i * 8) / 2 + h * 2];\n"
    "          w[i] = weir_pair_$t(x[0], x[1]);\n"
    "        }\n"
    "        const uint4 v = weir_turned_words(w[0], w[1], w[2], w[3]);\n"
    "        const int column = j + lane % 4 * 8;\n"
    "        if (mine && column0 + column < N) *(uint4 *)(y + column) = v;\n"
    "      }\n";

static const char store_wide[] =
    "#pragma unroll\n"
    "      for (int j = 0; j < WIDTH; j += 8) {\n"
    "        uint2 v;\n"
    "        v.x = __float_as_uint(c[j / 2 + h * 2]);\n"
    "        v.y = __float_as_uint(c[j / 2 + h * 2 + 1]);\n"
    "        if (mine && column0 + j < N) *(uint2 *)(y + j + lane % 4 * 2) = v;\n"
    "      }\n";

/* ---- writing ---- */
typedef struct writing {
  const cg_matmul *m;
  cg_grouped_sides sides;
  shape shape;
} writing;

static const char *stride_text(cg_writer *w, const cg_matmul *m, const cg_view *v, uint32_t back) {
  return cg_number_text(w, v->strides[m->rank - back]);
}

static void set_places(cg_writer *w, const writing *x) {
  const cg_matmul *m = x->m;
  const cg_view lists = {.start = CG_START_SCRATCH};
  cg_set_address(w, "lists", &lists);
  cg_set_address(w, "i", &m->index);
  cg_set_place(w, "groups", m->n_groups);
  cg_set_place(w, "words", count_words(m, &x->shape));
  cg_set_number(w, "is", m->by_depth ? m->index_step : m->index.strides[m->rank - 3]);
  cg_set_int(w, "mapbytes", MAP_BYTES);
  cg_set(w, "I", cg_storage(m->index.dtype));
  cg_set(w, "geti", cg_get(w, m->index.dtype));
  cg_set(w, "places", cg_filled(w, places));
}

/* Writes the map of an operand: lines along the depth, or across it, as many as a tile has. */
static void put_map(cg_writer *w, const writing *x, bool is_second) {
  const cg_matmul *m = x->m;
  const cg_view *v = is_second ? &m->b : &m->a;
  uint32_t depth = m->rank - 1, side = is_second ? m->rank - 2 : m->rank - 3;
  bool turned = is_second ? x->sides.b_turned : x->sides.a_turned;
  uint32_t along = turned ? side : depth, other = turned ? depth : side;
  int64_t step = 2 * v->strides[other], lines = is_second ? x->shape.columns : x->shape.rows;
  bool grouped = is_second && !m->by_depth;
  cg_set_int(w, "which", is_second);
  cg_set_address(w, "x", v);
  cg_set_number(w, "along", m->extents[along]);
  cg_set_number(w, "lines", m->extents[other]);
  cg_set_number(w, "count", grouped ? m->n_groups : 1);
  cg_set_place(w, "step", step);
  cg_set_place(w, "far", grouped ? 2 * m->group_step : step);
  cg_set_int(w, "tile", turned ? DEPTH : lines);
  cg_put(w, "  if (threadIdx.x / 32 == $which)\n"
            "    weir_map_make(maps + $which * $mapbytes, shared[$which], p.at[$x], (int)$along,\n"
            "                  (int)$lines, (int)$count, n.at[$step], n.at[$far], $tile);\n");
}

static void write_list(cg_kernel *k, const writing *x) {
  cg_writer w;
  const cg_matmul *m = x->m;
  int64_t rows = m->extents[m->rank - (m->by_depth ? 1 : 3)];
  int64_t step = m->by_depth ? m->index_step : m->index.strides[m->rank - 3];
  cg_begin(&w, k->memory, llabs(step) * (rows + 4 * LIST_BLOCK) > CG_NARROW_REACH, LIST_BLOCK);
  set_places(&w, x);
  cg_set_number(&w, "m", rows);
  cg_set_int(&w, "rows", x->shape.rows);
  cg_set_int(&w, "T", LIST_BLOCK);
  cg_set_int(&w, "error", cg_error_address(&w));
  strbuf body = cg_apart_begin(&w);
  put_map(&w, x, false);
  put_map(&w, x, true);
  cg_set(&w, "maps", cg_apart_end(&w, body));
  cg_put(&w, list);
  cg_set_int(&w, "piece", m->by_depth ? DEPTH : x->shape.rows);
  cg_set(&w, "mark", m->by_depth ? "" : cg_filled(&w, mark_tile));
  cg_put(&w, mark_pieces);
  if (!m->by_depth) cg_put(&w, add_tiles);
  cg_end(&w, k, m->by_depth ? "grouped_outer_list" : "grouped_matmul_list", 1, 1);
}

/* Writes the copies of a tile: one copy if its lines are along the depth, otherwise one for each 64 elements. */
static void put_copies(cg_writer *w, const writing *x, bool is_second) {
  bool turned = is_second ? x->sides.b_turned : x->sides.a_turned;
  cg_set(w, "to", is_second ? "stage + FIRST" : "stage");
  cg_set(w, "map", is_second ? cg_text(w, "maps + %d", MAP_BYTES) : "maps");
  cg_set(w, "at", is_second ? "j0" : "i0");
  cg_set(w, "size", is_second ? "COLUMNS" : "ROWS");
  cg_set(w, "which", is_second && !x->m->by_depth ? "group" : "0");
  cg_put(w, turned
                ? "#pragma unroll\n"
                  "        for (int i = 0; i < $size; i += 64)\n"
                  "          weir_tile_copy($to + i * 128, $map, $at + i, k0, $which, &full[s]);\n"
                : "        weir_tile_copy($to, $map, k0, $at, $which, &full[s]);\n");
}

/* $product: a team's part of the product at depth d; it has as many results as registers for them. */
static void put_product(cg_writer *w, const writing *x) {
  const char *t = ir_dtype_text(x->m->a.dtype);
  int width = (int)width_of(&x->shape), n = width / 2;
  bool a = x->sides.a_turned, b = x->sides.b_turned;
  cg_line(w,
          "#ifdef __CUDA_ARCH__\n          asm volatile(\"{ .reg .pred p; setp.ne.b32 p, %%%d, 0; "
          "wgmma.mma_async.sync.aligned.m64n%dk16.f32.%s.%s {\"\n            \"",
          n + 2, width, t, t);
  for (int i = 0; i < n; i++) cg_line(w, "%s%%%d", i ? ", " : "", i);
  cg_line(w, "}, \"\n            \"%%%d, %%%d, p, 1, 1, %d, %d; }\" :", n, n + 1, a, b);
  for (int i = 0; i < n; i++) cg_line(w, "%s\"+f\"(c[%d])", i ? ", " : " ", i);
  cg_line(w,
          "\n            : \"l\"(weir_matrix_at(a + d * %d, %d)), \"l\"(weir_matrix_at(b + d * %d, "
          "%d)), "
          "\"r\"(1));\n",
          a ? LINE_BYTES : 2, a ? DEPTH * LINE_BYTES : 16, b ? LINE_BYTES : 2,
          b ? DEPTH * LINE_BYTES : 16);
  cg_line(w, "#else\n          shim_product(c, a, b, d, WIDTH, %d, %d, %d);\n#endif\n", a, b,
          x->m->a.dtype == IR_F16);
}

static void set_team(cg_writer *w, const writing *x) {
  bool by_rows = x->shape.split_rows;
  cg_set(w, "teamrow", by_rows ? "team * 64" : "0");
  cg_set(w, "teamcolumn", by_rows ? "0" : "team * WIDTH");
  strbuf body = cg_apart_begin(w);
  put_copies(w, x, false);
  put_copies(w, x, true);
  cg_set(w, "copies", cg_apart_end(w, body));
  body = cg_apart_begin(w);
  put_product(w, x);
  cg_set(w, "product", cg_apart_end(w, body));
}

static void set_result(cg_writer *w, const cg_matmul *m) {
  cg_set(w, "C", cg_storage(m->c.dtype));
  cg_set_address(w, "c", &m->c);
  cg_set(w, "cm", stride_text(w, m, &m->c, 3));
  cg_set(w, "t", ir_dtype_text(m->a.dtype));
  cg_set(w, "store", cg_filled(w, m->c.dtype == m->a.dtype ? store_narrow : store_wide));
}

/* How many tiles of a column follow each other before the next column, so that both operands stay in
 * the cache. If the depth is small, writing the result takes the time, which is faster row by row. */
static int64_t band_of(const cg_matmul *m) {
  enum { HIGH = 16, SMALL_DEPTH = 1024 };
  return m->by_depth && m->extents[m->rank - 1] < SMALL_DEPTH * m->n_groups ? 1 : HIGH;
}

/* Where tiles are, and which of their rows or lines count. */
static void set_groups(cg_writer *w, const writing *x) {
  const cg_matmul *m = x->m;
  int64_t each = cg_ceildiv(m->extents[m->rank - 3], x->shape.rows) *
                 cg_ceildiv(m->extents[m->rank - 2], x->shape.columns);
  cg_set_int(w, "teams", TEAMS * TEAM);
  cg_set_int(w, "band", band_of(m));
  cg_set(w, "tiles", "((ix)start[groups + 1] + start[groups + 2]) * across");
  cg_set(w, "offset", "    const ix oc = 0;\n");
  cg_set(w, "mine",
         cg_text(w, " && (whole || %s(index[(ix)row * %s]) == group)", cg_get(w, m->index.dtype),
                 cg_number_text(w, m->index.strides[m->rank - 3])));
  if (m->by_depth) {
    cg_set_number(w, "each", each);
    cg_set_number(w, "first", m->first_group);
    cg_set_number(w, "tiles", each * m->extents[0]);
    cg_set(w, "offset",
           cg_text(w, "    const ix oc = (tile / %s) * %s;\n", cg_number_text(w, each),
                   cg_number_text(w, m->c.strides[0])));
    cg_set(w, "mine", "");
  }
  cg_set(w, "clear", m->by_depth ? cg_filled(w, clear) : "");
  cg_set(w, "skip", m->by_depth ? skip : "");
  strbuf body = cg_apart_begin(w);
  cg_put(w, m->by_depth ? find_outer : find_rows);
  cg_put(w, find_place);
  cg_set(w, "find", cg_apart_end(w, body));
}

static int64_t reach_of(const cg_matmul *m, const shape *s) {
  const int64_t *e = &m->extents[m->rank - 3];
  int64_t reach = llabs(m->c.strides[m->rank - 3]) * (e[0] + s->rows) + e[1] + s->columns;
  int64_t rows = m->by_depth ? e[2] : e[0], step = m->index_step;
  if (m->by_depth) reach += llabs(m->c.strides[0]) * m->extents[0];
  else step = m->index.strides[m->rank - 3];
  int64_t tiles = cg_ceildiv(rows, s->rows) * (m->n_groups + 1) * cg_ceildiv(e[1], s->columns);
  int64_t most = llabs(step) * (rows + s->rows);
  if (tiles > most) most = tiles;
  return reach > most ? reach : most;
}

/* The number of tiles of grouped_outer; the most that grouped_matmul has, unless rows of groups are mixed. */
static int64_t count_tiles(const writing *x) {
  const cg_matmul *m = x->m;
  const int64_t *e = &m->extents[m->rank - 3];
  int64_t across = cg_ceildiv(e[1], x->shape.columns);
  if (m->by_depth) return m->extents[0] * cg_ceildiv(e[0], x->shape.rows) * across;
  int64_t groups = m->n_groups + 1 < e[0] ? m->n_groups + 1 : e[0];
  return (e[0] / x->shape.rows + groups) * across;
}

static void write_products(cg_kernel *k, const writing *x) {
  cg_writer w;
  const cg_matmul *m = x->m;
  const int64_t *e = &m->extents[m->rank - 3];
  cg_begin(&w, k->memory, reach_of(m, &x->shape) > CG_NARROW_REACH, BLOCK);
  w.shared_bytes = (uint32_t)shared_bytes(&x->shape);
  w.resident = 1;
  set_places(&w, x);
  cg_set_int(&w, "rows", x->shape.rows);
  cg_set_int(&w, "columns", x->shape.columns);
  cg_set_int(&w, "depth", DEPTH);
  cg_set_int(&w, "stages", x->shape.stages);
  cg_set_int(&w, "width", width_of(&x->shape));
  cg_set_int(&w, "shared", shared_bytes(&x->shape));
  cg_set_number(&w, "m", e[0]);
  cg_set_number(&w, "n", e[1]);
  cg_set_number(&w, "k", e[2]);
  set_groups(&w, x);
  set_team(&w, x);
  set_result(&w, m);
  cg_put(&w, begin);
  cg_put(&w, multiply);
  int64_t tiles = count_tiles(x), units = k->gpu.units;
  cg_end(&w, k,
         cg_text(&w, "%s_%s", m->by_depth ? "grouped_outer" : "grouped_matmul",
                 ir_dtype_text(m->a.dtype)),
         tiles < units ? tiles : units, 1);
}

/* ---- what it can take ---- */
/* Can the copying unit's maps describe it? They have positions of 32 bits and strides that are not 0. */
static bool is_mapped(const cg_matmul *m, const cg_grouped_sides *s) {
  uint32_t row = m->rank - 3, column = m->rank - 2, depth = m->rank - 1;
  for (uint32_t d = 0; d < m->rank; d++)
    if (m->extents[d] > INT32_MAX / 2) return false;
  if (m->n_groups < 1 || m->n_groups > INT32_MAX / 8) return false;
  if (!m->by_depth && m->group_step <= 0) return false;
  return m->a.strides[s->a_turned ? depth : row] > 0 &&
         m->b.strides[s->b_turned ? depth : column] > 0;
}

bool cg_write_grouped_90(cg_kernel *k, const cg_matmul *m) {
  writing x = {.m = m};
  if (!k->gpu.is_90 || !m->grouped || m->rank != (m->by_depth ? 4u : 3u)) return false;
  if (!cg_grouped_is_taken(m, &x.sides) || !is_mapped(m, &x.sides)) return false;
  x.shape = shape_of(m);
  if (shared_bytes(&x.shape) > k->gpu.shared_bytes) return false;
  if (lists_bytes(m, &x.shape) > MOST_LIST_BYTES) return false;
  if ((int64_t)k->scratch_bytes < lists_bytes(m, &x.shape))
    k->scratch_bytes = (size_t)lists_bytes(m, &x.shape);
  write_list(k, &x);
  write_products(k, &x);
  return true;
}
