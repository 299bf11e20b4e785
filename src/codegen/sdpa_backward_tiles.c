/* sdpa_backward of f16 and bf16 on tensor cores, in two launches. A block has 64 rows, each of its four warps 16,
 * and goes over tiles of the other side; one arrives while another one is used.
 *
 * The first launch computes dq: the rows are queries, the tiles keys. A warp keeps its rows of q and dout in
 * registers. The sum of dout * out of each query is written to scratch memory. The second launch computes dk and
 * dv: the rows are keys, the tiles queries of all heads that the keys serve. A warp keeps its rows of k in
 * registers; those of v are in shared memory. Scores are computed in both launches, so that nothing is added
 * atomically and results never depend on the order of blocks.
 *
 * With p = exp(scale q.k - lse) and ds = p (dout.v - sum): dq = scale ds k, dk = scale ds q, dv = p dout. p and
 * ds are rounded to the operands' dtype, as every fused attention does. Registers and shared memory are laid
 * out as in sdpa_tiles.c. */
#include <stdlib.h>

#include "codegen/internal.h"

enum { WARPS = 4, BLOCK = WARPS * 32, ROWS = WARPS * 16, WIDEST = 128 };

static const char begin[] =
    "  enum { ROWS = $rows, TILE = $tile, DK = $dk, DV = $dv, PK = DK / 8, PV = DV / 8 };\n"
    "  enum { STAGE = TILE * (DK + DV) };\n"
    "#ifdef __CUDA_ARCH__\n"
    "  extern __shared__ uint4 weir_stage[];\n"
    "#else\n"
    "  __shared__ uint4 weir_stage[$shared / 16];\n"
    "#endif\n"
    "  unsigned short *const stages = (unsigned short *)weir_stage;\n"
    "  const ix L = $L, S = $S, E = $E, W = $W, batches = $batches;\n"
    "  const ix batch = (ix)blockIdx.x % batches;\n"
    "  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;\n"
    "  const int g = lane / 4, t = lane % 4, part = lane / 8, in_part = lane % 8;\n"
    "  ix oq = 0, ok = 0, ov = 0, oo = 0, oz = 0, og = 0, ox = 0, oy = 0;\n"
    "  (void)oo, (void)oy;\n"
    "$offsets"
    "  const unsigned short *const q = (const unsigned short *)p.at[$q] + oq;\n"
    "  const unsigned short *const k = (const unsigned short *)p.at[$k] + ok;\n"
    "  const unsigned short *const v = (const unsigned short *)p.at[$v] + ov;\n"
    "  const unsigned short *const dout = (const unsigned short *)p.at[$g] + og;\n"
    "  const float *const lse = (const float *)p.at[$z] + oz;\n"
    "  float *const sums = (float *)p.at[$sums];\n"
    "  const float scale = (float)$scale, log2e = 1.442695041f, sl = scale * log2e;\n"
    "  const int plain = part / 2 * 8 + in_part, turned = part % 2 * 8 + in_part;\n"
    "  const int plain_k = (plain * PK + (part % 2 ^ (plain / $tk & $mk))) * 8;\n"
    "  const int plain_v = (plain * PV + (part % 2 ^ (plain / $tv & $mv))) * 8;\n"
    "  const int turned_k = (turned * PK + (part / 2 ^ (turned / $tk & $mk))) * 8;\n"
    "  const int turned_v = (turned * PV + (part / 2 ^ (turned / $tv & $mv))) * 8;\n"
    "  unsigned r[4], a[4];\n"
    "  float s[TILE / 8][4], u[TILE / 8][4];\n";

/* Loads $lines lines of $src from line $from on; $src has $limit lines. */
static const char load_tile[] =
    "#pragma unroll\n"
    "      for (int i = 0; i < $lines * $P / $T; i++) {\n"
    "        const int at = i * $T + (int)threadIdx.x, y = at / $P, c = at % $P;\n"
    "        weir_copy16($to + (y * $P + (c ^ (y / $turn & $mask))) * 8,\n"
    "                    $src + ($from + y) * $step + c * 8, $from + y < $limit && c * 8 < "
    "$width);\n"
    "      }\n";

/* Loads the rows of $src that this lane multiplies with. */
static const char load_rows[] =
    "  unsigned $f[$P / 2][4];\n"
    "#pragma unroll\n"
    "  for (int i = 0; i < $P / 2; i++) {\n"
    "#pragma unroll\n"
    "    for (int j = 0; j < 4; j++) {\n"
    "      const ix at = row + (j & 1) * 8, e = i * 16 + (j / 2) * 8 + t * 2;\n"
    "      $f[i][j] = at < $limit && e < $width ? *(const unsigned *)($src + at * $step + e) : "
    "0u;\n"
    "    }\n"
    "  }\n";

/* $s = rows in the registers $f times the tile at $b, along $P pieces. */
static const char multiply[] =
    "#pragma unroll\n"
    "      for (int i = 0; i < TILE / 8; i++)\n"
    "        $s[i][0] = $s[i][1] = $s[i][2] = $s[i][3] = 0;\n"
    "#pragma unroll\n"
    "      for (int i = 0; i < $P / 2; i++) {\n"
    "$fetch"
    "#pragma unroll\n"
    "        for (int j = 0; j < TILE / 16; j++) {\n"
    "          weir_matrices(r, $b + ($plain ^ i * 16) + j * (128 * $P));\n"
    "          weir_mma_$t($s[2 * j], $f, r[0], r[1]);\n"
    "          weir_mma_$t($s[2 * j + 1], $f, r[2], r[3]);\n"
    "        }\n"
    "      }\n";

/* $d += s times the tile at $b, $P pieces wide; s is rounded. */
static const char add_product[] =
    "#pragma unroll\n"
    "      for (int i = 0; i < TILE / 16; i++) {\n"
    "        a[0] = weir_pair_$t(s[2 * i][0], s[2 * i][1]);\n"
    "        a[1] = weir_pair_$t(s[2 * i][2], s[2 * i][3]);\n"
    "        a[2] = weir_pair_$t(s[2 * i + 1][0], s[2 * i + 1][1]);\n"
    "        a[3] = weir_pair_$t(s[2 * i + 1][2], s[2 * i + 1][3]);\n"
    "#pragma unroll\n"
    "        for (int j = 0; j < $P / 2; j++) {\n"
    "          weir_turned_matrices(r, $b + ($turned ^ j * 16) + i * (128 * $P));\n"
    "          weir_mma_$t($d[2 * j], a, r[0], r[1]);\n"
    "          weir_mma_$t($d[2 * j + 1], a, r[2], r[3]);\n"
    "        }\n"
    "      }\n";

static const char zero[] =
    "  float $d[$P][4];\n"
    "#pragma unroll\n"
    "  for (int i = 0; i < $P; i++) $d[i][0] = $d[i][1] = $d[i][2] = $d[i][3] = 0;\n";

static const char store[] =
    "#pragma unroll\n"
    "  for (int h = 0; h < 2; h++) {\n"
    "    const ix at = row + h * 8;\n"
    "    if (at >= $limit) continue;\n"
    "    unsigned short *const to = (unsigned short *)p.at[$to] + $offset + at * $step;\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < $P; i++)\n"
    "      if (i * 8 < $width)\n"
    "        *(unsigned *)(to + i * 8 + t * 2) =\n"
    "            weir_pair_$t($d[i][2 * h] * $by, $d[i][2 * h + 1] * $by);\n"
    "  }\n";

/* ---- dq ---- */
static const char query_begin[] = "  const ix tiles = (L + ROWS - 1) / ROWS, q0 = (tiles - 1 - "
                                  "(ix)blockIdx.x / batches) * ROWS;\n"
                                  "  const ix row = q0 + warp * 16 + g;\n"
                                  "  const ix seen = $causal && q0 + ROWS < S ? q0 + ROWS : S;\n";

static const char query_sums[] =
    "  float low[2], sum[2] = {0, 0};\n"
    "#pragma unroll\n"
    "  for (int i = 0; i < PV / 2; i++) {\n"
    "#pragma unroll\n"
    "    for (int j = 0; j < 4; j++) {\n"
    "      const ix at = row + (j & 1) * 8, e = i * 16 + (j / 2) * 8 + t * 2;\n"
    "      if (at >= L || e >= W) continue;\n"
    "      const unsigned x = *(const unsigned *)((const unsigned short *)p.at[$o] + oo + at * $ol "
    "+ e);\n"
    "      sum[j & 1] += weir_get_$t((unsigned short)x) * weir_get_$t((unsigned short)gf[i][j]) +\n"
    "                    weir_get_$t((unsigned short)(x >> 16)) *\n"
    "                        weir_get_$t((unsigned short)(gf[i][j] >> 16));\n"
    "    }\n"
    "  }\n"
    "#pragma unroll\n"
    "  for (int h = 0; h < 2; h++) {\n"
    "    const ix at = row + h * 8;\n"
    "    sum[h] += __shfl_xor_sync(WEIR_ALL, sum[h], 1);\n"
    "    sum[h] += __shfl_xor_sync(WEIR_ALL, sum[h], 2);\n"
    "    low[h] = at < L ? lse[at * $zl] * log2e : WEIR_INF;\n"
    "    if (t == 0 && at < L) sums[batch * L + at] = sum[h];\n"
    "  }\n";

static const char query_loop[] = "  int stage = 0;\n"
                                 "  {\n"
                                 "$load"
                                 "    weir_copies_end();\n"
                                 "  }\n"
                                 "  for (ix j0 = 0; j0 < seen; j0 += TILE, stage ^= 1) {\n"
                                 "    const unsigned short *const ks = stages + stage * STAGE;\n"
                                 "    const unsigned short *const vs = ks + TILE * DK;\n"
                                 "    weir_copies_wait();\n"
                                 "    __syncthreads();\n"
                                 "    if (j0 + TILE < seen) {\n"
                                 "$next"
                                 "      weir_copies_end();\n"
                                 "    }\n";

static const char query_scores[] =
    "#pragma unroll\n"
    "      for (int i = 0; i < TILE / 8; i++) {\n"
    "#pragma unroll\n"
    "        for (int j = 0; j < 4; j++)\n"
    "          s[i][j] = weir_exp2(fma(s[i][j], sl, -low[j / 2])) * (u[i][j] - sum[j / 2]);\n"
    "      }\n"
    "      if (j0 + TILE > S || ($causal && q0 + warp * 16 < j0 + TILE - 1)) {\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < TILE / 8; i++) {\n"
    "#pragma unroll\n"
    "          for (int j = 0; j < 4; j++) {\n"
    "            const ix at = j0 + i * 8 + t * 2 + (j & 1);\n"
    "            if (at >= S || ($causal && at > row + (j / 2) * 8)) s[i][j] = 0;\n"
    "          }\n"
    "        }\n"
    "      }\n";

/* ---- dk and dv ---- */
static const char key_begin[] =
    "  const ix j0 = (ix)blockIdx.x / batches * ROWS, row = j0 + warp * 16 + g, group = $group;\n"
    "  const ix first = $causal ? j0 / TILE * TILE : 0;\n"
    "  unsigned short *const vs = stages + 2 * STAGE;\n"
    "  float *const stats = (float *)(vs + ROWS * DV);\n";

/* The next tile: from query `ni` of head `nh` on. One thread for each query loads its numbers. */
static const char key_loop[] =
    "  const unsigned short *nq = q, *ng = dout;\n"
    "  const float *nz = lse, *ns = sums + batch * group * L;\n"
    "  ix ni = first, nh = first < L ? 0 : group;\n"
    "  float low = WEIR_INF, sum = 0;\n"
    "  int stage = 0;\n"
    "  {\n"
    "$values"
    "  }\n"
    "  if (nh < group) {\n"
    "$next"
    "  }\n"
    "  weir_copies_end();\n"
    "  if ((int)threadIdx.x < TILE) stats[threadIdx.x] = low, stats[TILE + threadIdx.x] = sum;\n"
    "  for (ix head = 0; head < group; head++) {\n"
    "    for (ix i0 = first; i0 < L; i0 += TILE) {\n"
    "      const unsigned short *const qs = stages + stage * STAGE, *const gs = qs + TILE * DK;\n"
    "      const float *const of = stats + stage * (2 * TILE) + t * 2;\n"
    "      weir_copies_wait();\n"
    "      __syncthreads();\n"
    "      ni += TILE, stage ^= 1;\n"
    "      if (ni >= L) ni = first, nh++, nq += $qh, ng += $gh, nz += $zh, ns += L;\n"
    "      if (nh < group) {\n"
    "$next"
    "        weir_copies_end();\n"
    "      }\n";

static const char key_stats[] = "      if ((int)threadIdx.x < TILE) {\n"
                                "        const ix at = ni + (ix)threadIdx.x;\n"
                                "        low = at < L ? nz[at * $zl] * log2e : WEIR_INF;\n"
                                "        sum = at < L ? ns[at] : 0;\n"
                                "      }\n";

static const char key_weights[] =
    "#pragma unroll\n"
    "      for (int i = 0; i < TILE / 8; i++) {\n"
    "#pragma unroll\n"
    "        for (int j = 0; j < 4; j++)\n"
    "          s[i][j] = weir_exp2(fma(s[i][j], sl, -of[i * 8 + (j & 1)]));\n"
    "      }\n"
    "      if ($causal && i0 < j0 + warp * 16 + 15) {\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < TILE / 8; i++) {\n"
    "#pragma unroll\n"
    "          for (int j = 0; j < 4; j++)\n"
    "            if (i0 + i * 8 + t * 2 + (j & 1) < row + (j / 2) * 8) s[i][j] = 0;\n"
    "        }\n"
    "      }\n";

static const char key_scores[] =
    "#pragma unroll\n"
    "      for (int i = 0; i < TILE / 8; i++) {\n"
    "#pragma unroll\n"
    "        for (int j = 0; j < 4; j++) s[i][j] *= u[i][j] - of[TILE + i * 8 + (j & 1)];\n"
    "      }\n";

static const char key_end[] =
    "      if ((int)threadIdx.x < TILE) {\n"
    "        float *const to = stats + stage * (2 * TILE) + threadIdx.x;\n"
    "        to[0] = low, to[TILE] = sum;\n"
    "      }\n"
    "    }\n"
    "  }\n";

/* ---- what it can take ---- */
static bool is_taken(const cg_kernel *k, const cg_sdpa_backward *s) {
  const cg_view *views[] = {&s->q, &s->k, &s->v, &s->out, &s->dout, &s->dq, &s->dk, &s->dv};
  ir_dtype t = s->q.dtype;
  if (t != IR_F16 && t != IR_BF16) return false;
  if (s->lse.dtype != IR_F32 || s->queries == 0 || s->keys == 0) return false;
  if (!cg_in_pieces(s->width, WIDEST) || !cg_in_pieces(s->value_width, WIDEST)) return false;
  for (uint32_t i = 0; i < 5 + s->n_gradients; i++)
    if (views[i]->dtype != t || !cg_view_in_pieces(views[i], s->rank)) return false;
  return k->gpu.shared_bytes >= 64 << 10;
}

/* ---- writing ---- */
enum { Q, K, V, OUT, LSE, DOUT, X, Y, N_VIEWS };
static const char letters[] = "qkvozgxy";

typedef struct writing {
  cg_writer w;
  const cg_sdpa_backward *s;
  const cg_view *views[N_VIEWS];
  uint32_t n_views;
  int64_t tile, dk, dv; /* rows of a tile; widths of rows in shared memory */
  const char *step[N_VIEWS];
} writing;

static void set_side(writing *x, bool values) {
  cg_set(&x->w, "P", values ? "PV" : "PK");
  cg_set(&x->w, "width", values ? "W" : "E");
  cg_set(&x->w, "plain", values ? "plain_v" : "plain_k");
  cg_set(&x->w, "turned", values ? "turned_v" : "turned_k");
  cg_set_turn(&x->w, "turn", "mask", values ? x->dv : x->dk);
}

static void set_lines(writing *x, int view, const char *from, const char *limit) {
  set_side(x, view == V || view == DOUT);
  cg_set(&x->w, "src", from);
  cg_set(&x->w, "step", x->step[view]);
  cg_set(&x->w, "limit", limit);
}

/* Copies a tile of view 0 and one of view 1, from line `at` on, to a stage. */
static const char *load_text(writing *x, const int view[2], const char *const from[2],
                             const char *stage, const char *at, const char *limit) {
  const char *text[2];
  cg_set(&x->w, "lines", "TILE");
  cg_set(&x->w, "from", at);
  for (int i = 0; i < 2; i++) {
    set_lines(x, view[i], from[i], limit);
    cg_set(&x->w, "to", cg_text(&x->w, "stages + (%s) * STAGE%s", stage, i ? " + TILE * DK" : ""));
    text[i] = cg_filled(&x->w, load_tile);
  }
  cg_set(&x->w, "one", text[0]);
  cg_set(&x->w, "two", text[1]);
  return cg_filled(&x->w, "$one$two");
}

static void put_rows(writing *x, int view, const char *to, const char *from, const char *limit) {
  set_lines(x, view, from, limit);
  cg_set(&x->w, "f", to);
  cg_put(&x->w, load_rows);
}

static void put_product(writing *x, const char *to, const char *rows, const char *tile,
                        bool values) {
  set_side(x, values);
  cg_set(&x->w, "s", to);
  cg_set(&x->w, "f", rows);
  cg_set(&x->w, "b", tile);
  cg_put(&x->w, multiply);
}

static void put_sum(writing *x, const char *to, const char *tile, bool values) {
  set_side(x, values);
  cg_set(&x->w, "d", to);
  cg_set(&x->w, "b", tile);
  cg_put(&x->w, add_product);
}

static void put_zero(writing *x, const char *of, bool values) {
  set_side(x, values);
  cg_set(&x->w, "d", of);
  cg_put(&x->w, zero);
}

static void put_store(writing *x, int view, const char *of, const char *limit, bool values) {
  set_side(x, values);
  cg_set(&x->w, "d", of);
  cg_set_address(&x->w, "to", x->views[view]);
  cg_set(&x->w, "offset", view == X ? "ox" : "oy");
  cg_set(&x->w, "step", x->step[view]);
  cg_set(&x->w, "limit", limit);
  cg_set(&x->w, "by", values ? "1.0f" : "scale");
  cg_put(&x->w, store);
}

static void set_numbers(writing *x, int64_t batches) {
  const cg_sdpa_backward *s = x->s;
  const cg_view sums = {.start = CG_START_SCRATCH, .dtype = IR_F32, .align = CG_ALIGN};
  cg_writer *w = &x->w;
  cg_set_int(w, "rows", ROWS);
  cg_set_int(w, "tile", x->tile);
  cg_set_int(w, "dk", x->dk);
  cg_set_int(w, "dv", x->dv);
  cg_set_int(w, "T", BLOCK);
  cg_set_int(w, "shared", w->shared_bytes);
  cg_set_number(w, "L", s->queries);
  cg_set_number(w, "S", s->keys);
  cg_set_number(w, "E", s->width);
  cg_set_number(w, "W", s->value_width);
  cg_set_number(w, "group", s->group);
  cg_set_number(w, "batches", batches);
  cg_set(w, "causal", s->causal ? "1" : "0");
  cg_set(w, "scale", cg_f64_text(w, s->scale));
  cg_set(w, "t", ir_dtype_text(s->q.dtype));
  cg_set_turn(w, "tk", "mk", x->dk);
  cg_set_turn(w, "tv", "mv", x->dv);
  cg_set_address(w, "sums", &sums);
  for (uint32_t i = 0; i < x->n_views; i++) {
    x->step[i] = cg_number_text(w, x->views[i]->strides[s->rank - 2]);
    cg_set(w, cg_text(w, "%cl", letters[i]), x->step[i]);
    cg_set_number(w, cg_text(w, "%ch", letters[i]), x->views[i]->strides[s->rank - 3]);
    if (i < X) cg_set_address(w, cg_text(w, "%c", letters[i]), x->views[i]);
  }
}

static void put_queries(writing *x) {
  const int views[2] = {K, V};
  const char *const from[2] = {"k", "v"};
  cg_put(&x->w, query_begin);
  put_rows(x, Q, "qf", "q", "L");
  put_rows(x, DOUT, "gf", "dout", "L");
  cg_put(&x->w, query_sums);
  put_zero(x, "d", false);
  cg_set(&x->w, "load", load_text(x, views, from, "stage", "0", "seen"));
  cg_set(&x->w, "next", load_text(x, views, from, "stage ^ 1", "j0 + TILE", "seen"));
  cg_put(&x->w, query_loop);
  cg_set(&x->w, "fetch", "");
  put_product(x, "s", "qf[i]", "ks", false);
  put_product(x, "u", "gf[i]", "vs", true);
  cg_put(&x->w, query_scores);
  put_sum(x, "d", "ks", false);
  cg_line(&x->w, "  }\n");
  put_store(x, X, "d", "L", false);
}

static void put_keys(writing *x) {
  const int views[2] = {Q, DOUT};
  const char *const from[2] = {"nq", "ng"};
  bool both = x->n_views > Y;
  cg_put(&x->w, key_begin);
  put_rows(x, K, "kf", "k", "S");
  put_zero(x, "dk", false);
  if (both) put_zero(x, "dv", true);
  cg_set(&x->w, "lines", "ROWS");
  cg_set(&x->w, "from", "j0");
  cg_set(&x->w, "to", "vs");
  set_lines(x, V, "v", "S");
  cg_set(&x->w, "values", cg_filled(&x->w, load_tile));
  cg_set(&x->w, "tiles", load_text(x, views, from, "stage", "ni", "L"));
  cg_set(&x->w, "stats", cg_filled(&x->w, key_stats));
  cg_set(&x->w, "next", cg_filled(&x->w, "$tiles$stats"));
  cg_put(&x->w, key_loop);
  cg_set(&x->w, "fetch", "");
  put_product(x, "s", "kf[i]", "qs", false);
  cg_put(&x->w, key_weights);
  if (both) put_sum(x, "dv", "gs", true);
  cg_set(&x->w, "fetch",
         "        weir_matrices(a, vs + (turned_v ^ i * 16) + warp * (16 * DV));\n");
  put_product(x, "u", "a", "gs", true);
  cg_put(&x->w, key_scores);
  put_sum(x, "dk", "qs", false);
  cg_put(&x->w, key_end);
  put_store(x, X, "dk", "S", false);
  if (both) put_store(x, Y, "dv", "S", true);
}

static int64_t reach_of(const writing *x, const cg_space *batch) {
  const cg_sdpa_backward *s = x->s;
  int64_t rows = s->queries + s->keys + 2 * ROWS, most = 0;
  for (uint32_t v = 0; v < x->n_views; v++) {
    int64_t reach = llabs(x->views[v]->strides[s->rank - 3]) * (s->group + 1) +
                    llabs(x->views[v]->strides[s->rank - 2]) * rows + 2 * WIDEST;
    if (reach > most) most = reach;
  }
  return cg_space_reach(batch) + most;
}

/* One for each query of each head. */
static int64_t n_sums(const cg_sdpa_backward *s) {
  int64_t n = s->queries;
  for (uint32_t d = 0; d < s->rank - 2; d++) n *= s->extents[d];
  return n;
}

static void write_launch(cg_kernel *k, const cg_sdpa_backward *s, bool keys) {
  const char *names[N_VIEWS] = {"oq", "ok", "ov", "oo", "oz", "og", "ox", "oy"};
  writing x = {
      .s = s,
      .views = {&s->q, &s->k, &s->v, &s->out, &s->lse, &s->dout, keys ? &s->dk : &s->dq, &s->dv},
      .n_views = keys && s->n_gradients > 2 ? N_VIEWS : N_VIEWS - 1};
  cg_space batch;
  int64_t widest = s->width > s->value_width ? s->width : s->value_width;
  x.tile = widest > 64 ? 32 : 64;
  x.dk = cg_padded(s->width, BLOCK * CG_PIECE / x.tile);
  x.dv = cg_padded(s->value_width, BLOCK * CG_PIECE / x.tile);
  cg_space_make(&batch, s->extents, 0, keys ? s->rank - 3 : s->rank - 2, x.views, x.n_views, false);
  int64_t batches = cg_space_count(&batch);
  int64_t blocks = batches * cg_ceildiv(keys ? s->keys : s->queries, ROWS);
  if (blocks == 0) return;
  int64_t reach = reach_of(&x, &batch) + n_sums(s) + blocks;
  cg_begin(&x.w, k->memory, reach > CG_NARROW_REACH, BLOCK);
  int64_t elements = 2 * x.tile * (x.dk + x.dv) + (keys ? ROWS * x.dv + 8 * x.tile : 0);
  x.w.shared_bytes = (uint32_t)elements * 2;
  x.w.resident = 2;
  cg_set_offsets(&x.w, &batch, "batch", names);
  set_numbers(&x, batches);
  cg_put(&x.w, begin);
  if (keys) put_keys(&x);
  else put_queries(&x);
  cg_end(&x.w, k, cg_text(&x.w, "sdpa_tiles_%s_%s", keys ? "dkv" : "dq", ir_dtype_text(s->q.dtype)),
         blocks, 1);
}

bool cg_write_sdpa_backward_tiles(cg_kernel *k, const cg_sdpa_backward *s) {
  if (!is_taken(k, s)) return false;
  size_t bytes = (size_t)n_sums(s) * sizeof(float);
  if (bytes > k->scratch_bytes) k->scratch_bytes = bytes;
  write_launch(k, s, false);
  if (s->n_gradients > 1) write_launch(k, s, true);
  return true;
}
