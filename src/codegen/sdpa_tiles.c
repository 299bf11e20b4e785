/* sdpa of f16 and bf16 on tensor cores: a block has 64 queries, each of its four warps 16, and takes keys in
 * tiles of 64.
 *
 * A warp keeps its queries, the scores of a tile and the sums of its rows in registers, in the layout of the
 * instruction that multiplies (m16n8k16): lane 4 g + t has the rows g and g + 8, and of every 8 columns the
 * two at 2 t. Maximum and sum of a row are running; when the maximum grows, what was added before is scaled
 * down.
 *
 * Keys and values have one tile of shared memory each. While scores are computed the values arrive; while
 * values are added the next keys arrive. A row of a tile is cut into pieces of 16 bytes, and piece c of row r is
 * at c ^ r (of the lowest bits), so that the eight rows that are read together are in different banks.
 *
 * Scores are exponentiated with base 2: exp(scale (s - top)) = exp2(sl (s - top)), with sl = |scale| log2(e).
 * The sign of the scale goes to the queries. Weights are rounded to the operands' dtype, as every fused
 * attention does. */
#include <math.h>
#include <stdlib.h>

#include "codegen/internal.h"

enum { WARPS = 4, BLOCK = WARPS * 32, ROWS = WARPS * 16, KEYS = 64, NARROWEST = 16, WIDEST = 128 };

static const char begin[] =
    "  enum { ROWS = $rows, KEYS = $keys, DK = $dk, DV = $dv, PK = DK / 8, PV = DV / 8 };\n"
    "  __shared__ __align__(16) unsigned short ks[KEYS * DK];\n"
    "  __shared__ __align__(16) unsigned short vs[KEYS * DV];\n"
    "  const ix L = $L, S = $S, E = $E, W = $W, batches = $batches;\n"
    "  const ix tiles = (L + ROWS - 1) / ROWS, tile = tiles - 1 - (ix)blockIdx.x / batches;\n"
    "  const ix batch = (ix)blockIdx.x % batches, q0 = tile * ROWS;\n"
    "  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;\n"
    "  const int g = lane / 4, t = lane % 4, part = lane / 8, in_part = lane % 8;\n"
    "  ix oy = 0, oq = 0, ok = 0, ov = 0, oz = 0;\n"
    "  (void)oz;\n"
    "$offsets"
    "  const unsigned short *const q = (const unsigned short *)p.at[$q] + oq;\n"
    "  const unsigned short *const k = (const unsigned short *)p.at[$k] + ok;\n"
    "  const unsigned short *const v = (const unsigned short *)p.at[$v] + ov;\n"
    "  const long long first = n.at[$first] + q0;\n"
    "  const ix seen = $causal && first + ROWS < S ? (ix)(first + ROWS) : S;\n"
    "  const float scale = (float)$scale;\n"
    "  const float sl = fmaxf(fabsf(scale) * 1.442695041f, 1e-30f);\n"
    "  const unsigned flip = scale < 0 ? 0x80008000u : 0u;\n"
    "  const ix row = q0 + warp * 16 + g;\n"
    "  const int ky0 = part / 2 * 8 + in_part, vy0 = part % 2 * 8 + in_part;\n"
    "  const int kf = (ky0 * PK + (part % 2 ^ (ky0 / $tk & $mk))) * 8;\n"
    "  const int vf = (vy0 * PV + (part / 2 ^ (vy0 / $tv & $mv))) * 8;\n"
    "  unsigned qf[DK / 16][4], r[4], a[4];\n"
    "  float s[KEYS / 8][4], o[DV / 8][4], top[2], sum[2];\n"
    "#pragma unroll\n"
    "  for (int i = 0; i < DK / 16; i++) {\n"
    "#pragma unroll\n"
    "    for (int j = 0; j < 4; j++) {\n"
    "      const ix at = row + (j & 1) * 8, e = i * 16 + (j / 2) * 8 + t * 2;\n"
    "      qf[i][j] = at < L && e < E ? *(const unsigned *)(q + at * $ql + e) ^ flip : 0u;\n"
    "    }\n"
    "  }\n"
    "#pragma unroll\n"
    "  for (int i = 0; i < DV / 8; i++) o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0;\n"
    "  top[0] = top[1] = -WEIR_INF, sum[0] = sum[1] = 0;\n";

/* A thread copies the same piece of every n-th row, at equal distances in shared memory: n is a multiple
 * of 8, after which the swizzle repeats. Rows past the last key, and columns past the width, are 0. */
static const char place_tile[] =
    "  const int $x_y = (int)threadIdx.x / $P, $x_c = (int)threadIdx.x % $P;\n"
    "  const unsigned short *$x_p = $x + $x_y * $step + $x_c * 8;\n"
    "  unsigned short *const $x_d = &$s[($x_y * $P + ($x_c ^ ($x_y / $turn & $mask))) * 8];\n"
    "  const bool $x_in = $x_c * 8 < $width;\n";

static const char load_tile[] =
    "#pragma unroll\n"
    "    for (int i = 0; i < KEYS * $P / $T; i++)\n"
    "      weir_copy16($x_d + i * ($T * 8), $x_p + i * ($T / $P) * $step,\n"
    "                  $x_in && $j + $x_y + i * ($T / $P) < seen);\n"
    "    $x_p += KEYS * $step;\n"
    "    weir_copies_end();\n";

static const char scores[] =
    "    weir_copies_wait();\n"
    "    __syncthreads();\n"
    "$values"
    "#pragma unroll\n"
    "    for (int i = 0; i < KEYS / 8; i++) s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0;\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < DK / 16; i++) {\n"
    "#pragma unroll\n"
    "      for (int j = 0; j < KEYS / 16; j++) {\n"
    "        weir_matrices(r, ks + (kf ^ i * 16) + j * (16 * DK));\n"
    "        weir_mma_$t(s[2 * j], qf[i], r[0], r[1]);\n"
    "        weir_mma_$t(s[2 * j + 1], qf[i], r[2], r[3]);\n"
    "      }\n"
    "    }\n"
    "    if (j0 + KEYS > S || ($causal && first + warp * 16 < j0 + KEYS - 1)) {\n"
    "#pragma unroll\n"
    "      for (int i = 0; i < KEYS / 8; i++) {\n"
    "#pragma unroll\n"
    "        for (int j = 0; j < 4; j++) {\n"
    "          const ix at = j0 + i * 8 + t * 2 + (j & 1);\n"
    "          const bool sees = !$causal || at <= first + (row - q0) + (j / 2) * 8;\n"
    "          if (at >= S || !sees) s[i][j] = -WEIR_INF;\n"
    "        }\n"
    "      }\n"
    "    }\n";

/* The next keys may be copied as soon as all warps have their scores. */
static const char weights[] =
    "    float smaller[2];\n"
    "#pragma unroll\n"
    "    for (int h = 0; h < 2; h++) {\n"
    "      float most = top[h];\n"
    "#pragma unroll\n"
    "      for (int i = 0; i < KEYS / 8; i++)\n"
    "        most = fmaxf(most, fmaxf(s[i][2 * h], s[i][2 * h + 1]));\n"
    "      most = fmaxf(most, __shfl_xor_sync(WEIR_ALL, most, 1));\n"
    "      most = fmaxf(most, __shfl_xor_sync(WEIR_ALL, most, 2));\n"
    "      smaller[h] = weir_exp2((top[h] - most) * sl);\n"
    "      top[h] = most;\n"
    "      const float low = most * sl;\n"
    "      float all = 0;\n"
    "#pragma unroll\n"
    "      for (int i = 0; i < KEYS / 8; i++) {\n"
    "        s[i][2 * h] = weir_exp2(fma(s[i][2 * h], sl, -low));\n"
    "        s[i][2 * h + 1] = weir_exp2(fma(s[i][2 * h + 1], sl, -low));\n"
    "        all += s[i][2 * h] + s[i][2 * h + 1];\n"
    "      }\n"
    "      sum[h] = sum[h] * smaller[h] + all;\n"
    "    }\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < DV / 8; i++) {\n"
    "      o[i][0] *= smaller[0], o[i][1] *= smaller[0];\n"
    "      o[i][2] *= smaller[1], o[i][3] *= smaller[1];\n"
    "    }\n"
    "    weir_copies_wait();\n"
    "    __syncthreads();\n"
    "    if (j0 + KEYS < seen) {\n"
    "$keysnext"
    "    }\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < KEYS / 16; i++) {\n"
    "      a[0] = weir_pair_$t(s[2 * i][0], s[2 * i][1]);\n"
    "      a[1] = weir_pair_$t(s[2 * i][2], s[2 * i][3]);\n"
    "      a[2] = weir_pair_$t(s[2 * i + 1][0], s[2 * i + 1][1]);\n"
    "      a[3] = weir_pair_$t(s[2 * i + 1][2], s[2 * i + 1][3]);\n"
    "#pragma unroll\n"
    "      for (int j = 0; j < DV / 16; j++) {\n"
    "        weir_turned_matrices(r, vs + (vf ^ j * 16) + i * (16 * DV));\n"
    "        weir_mma_$t(o[2 * j], a, r[0], r[1]);\n"
    "        weir_mma_$t(o[2 * j + 1], a, r[2], r[3]);\n"
    "      }\n"
    "    }\n"
    "  }\n";

static const char end[] =
    "#pragma unroll\n"
    "  for (int h = 0; h < 2; h++) {\n"
    "    sum[h] += __shfl_xor_sync(WEIR_ALL, sum[h], 1);\n"
    "    sum[h] += __shfl_xor_sync(WEIR_ALL, sum[h], 2);\n"
    "    const float part_of = 1 / sum[h];\n"
    "    const ix at = row + h * 8;\n"
    "    if (at >= L) continue;\n"
    "    unsigned short *const y = (unsigned short *)p.at[$y] + oy + at * $yl;\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < DV / 8; i++)\n"
    "      if (i * 8 < W)\n"
    "        *(unsigned *)(y + i * 8 + t * 2) =\n"
    "            weir_pair_$t(o[i][2 * h] * part_of, o[i][2 * h + 1] * part_of);\n";

static const char lse_line[] =
    "    if (t == 0) ((float *)p.at[$z])[oz + at * $zl] = top[h] * fabsf(scale) + log(sum[h]);\n";

/* ---- what it can take ---- */
bool cg_in_pieces(int64_t width, int64_t widest) {
  return width > 0 && width <= widest && width % CG_PIECE == 0;
}

bool cg_view_in_pieces(const cg_view *v, uint32_t rank) {
  if (v->strides[rank - 1] != 1 || v->align < CG_ALIGN || v->offset_bytes % CG_ALIGN) return false;
  for (uint32_t d = 0; d + 1 < rank; d++)
    if (v->strides[d] % CG_PIECE) return false;
  return true;
}

static bool is_taken(const cg_sdpa *s) {
  const cg_view *views[] = {&s->out, &s->q, &s->k, &s->v};
  ir_dtype t = s->out.dtype;
  int64_t W = s->extents[s->rank - 1];
  if (t != IR_F16 && t != IR_BF16) return false;
  if (!cg_in_pieces(s->width, WIDEST) || !cg_in_pieces(W, WIDEST) || s->keys == 0) return false;
  if (s->keeps_lse && s->lse.dtype != IR_F32) return false;
  for (int i = 0; i < 4; i++)
    if (views[i]->dtype != t || !cg_view_in_pieces(views[i], s->rank)) return false;
  return true;
}

/* ---- writing ---- */
int64_t cg_padded(int64_t width, int64_t least) {
  while (least < width) least *= 2;
  return least;
}

void cg_set_turn(cg_writer *w, const char *turn, const char *mask, int64_t d) {
  int64_t pieces = d / CG_PIECE < 8 ? d / CG_PIECE : 8;
  cg_set_int(w, turn, 8 / pieces);
  cg_set_int(w, mask, pieces - 1);
}

typedef struct tile {
  const char *x, *s, *pieces, *width, *step;
  int64_t d;
} tile;

static void set_tile(cg_writer *w, const tile *t) {
  cg_set(w, "x", t->x);
  cg_set(w, "s", t->s);
  cg_set(w, "P", t->pieces);
  cg_set(w, "width", t->width);
  cg_set(w, "step", t->step);
  cg_set_int(w, "T", BLOCK);
  cg_set_turn(w, "turn", "mask", t->d);
}

static const char *tile_text(cg_writer *w, const tile *t, const char *j) {
  strbuf body = cg_apart_begin(w);
  set_tile(w, t);
  cg_set(w, "j", j);
  cg_put(w, load_tile);
  return cg_apart_end(w, body);
}

static const char *stride_text(cg_writer *w, const cg_sdpa *s, const cg_view *v) {
  return cg_number_text(w, v->strides[s->rank - 2]);
}

static void set_extents(cg_writer *w, const cg_sdpa *s, int64_t batches) {
  int64_t W = s->extents[s->rank - 1];
  cg_set_int(w, "rows", ROWS);
  cg_set_int(w, "keys", KEYS);
  cg_set_int(w, "dk", cg_padded(s->width, NARROWEST));
  cg_set_int(w, "dv", cg_padded(W, NARROWEST));
  cg_set_number(w, "L", s->extents[s->rank - 2]);
  cg_set_number(w, "S", s->keys);
  cg_set_number(w, "E", s->width);
  cg_set_number(w, "W", W);
  cg_set_number(w, "batches", batches);
  cg_set_place(w, "first", s->first);
  cg_set(w, "causal", s->causal ? "1" : "0");
  cg_set(w, "scale", cg_f64_text(w, s->scale));
  cg_set_turn(w, "tk", "mk", cg_padded(s->width, NARROWEST));
  cg_set_turn(w, "tv", "mv", cg_padded(W, NARROWEST));
}

static void set_views(cg_writer *w, const cg_sdpa *s) {
  cg_set_address(w, "y", &s->out);
  cg_set_address(w, "q", &s->q);
  cg_set_address(w, "k", &s->k);
  cg_set_address(w, "v", &s->v);
  cg_set(w, "yl", stride_text(w, s, &s->out));
  cg_set(w, "ql", stride_text(w, s, &s->q));
  cg_set(w, "t", ir_dtype_text(s->out.dtype));
  if (!s->keeps_lse) return;
  cg_set_address(w, "z", &s->lse);
  cg_set(w, "zl", stride_text(w, s, &s->lse));
}

static void put_body(cg_writer *w, const cg_sdpa *s) {
  const char *kl = stride_text(w, s, &s->k), *vl = stride_text(w, s, &s->v);
  tile keys = {"k", "ks", "PK", "E", kl, cg_padded(s->width, NARROWEST)};
  tile values = {"v", "vs", "PV", "W", vl, cg_padded(s->extents[s->rank - 1], NARROWEST)};
  cg_put(w, begin);
  set_tile(w, &keys);
  cg_put(w, place_tile);
  set_tile(w, &values);
  cg_put(w, place_tile);
  cg_line(w, "  {\n%s  }\n", tile_text(w, &keys, "0"));
  cg_set(w, "keysnext", tile_text(w, &keys, "j0 + KEYS"));
  cg_set(w, "values", tile_text(w, &values, "j0"));
  cg_put(w, "  for (ix j0 = 0; j0 < seen; j0 += KEYS) {\n");
  cg_put(w, scores);
  cg_put(w, weights);
  cg_put(w, end);
  if (s->keeps_lse) cg_put(w, lse_line);
  cg_put(w, "  }\n");
}

static int64_t reach_of(const cg_sdpa *s, const cg_space *batch) {
  const cg_view *views[] = {&s->out, &s->q, &s->k, &s->v, &s->lse};
  int64_t rows = s->keys + s->extents[s->rank - 2] + ROWS + KEYS, most = 0;
  for (int v = 0; v < (s->keeps_lse ? 5 : 4); v++) {
    int64_t reach = llabs(views[v]->strides[s->rank - 2]) * rows + 2 * WIDEST;
    if (reach > most) most = reach;
  }
  return cg_space_reach(batch) + most;
}

bool cg_write_sdpa_tiles(cg_kernel *k, const cg_sdpa *s) {
  cg_writer w;
  cg_space batch;
  const cg_view *views[] = {&s->out, &s->q, &s->k, &s->v, &s->lse};
  const char *names[] = {"oy", "oq", "ok", "ov", "oz"};
  if (!is_taken(s)) return false;
  cg_space_make(&batch, s->extents, 0, s->rank - 2, views, s->keeps_lse ? 5 : 4, false);
  int64_t batches = cg_space_count(&batch);
  int64_t blocks = batches * cg_ceildiv(s->extents[s->rank - 2], ROWS);
  cg_begin(&w, k->memory, reach_of(s, &batch) + blocks > CG_NARROW_REACH, BLOCK);
  w.resident = 3; /* 168 registers: enough, or nearly (width 128) */
  cg_set_offsets(&w, &batch, "batch", names);
  set_extents(&w, s, batches);
  set_views(&w, s);
  put_body(&w, s);
  cg_end(&w, k, cg_text(&w, "sdpa_tiles_%s", ir_dtype_text(s->out.dtype)), blocks, 1);
  return true;
}
