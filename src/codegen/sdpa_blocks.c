/* sdpa in f32 arithmetic, of any strides: a block has 32 queries, and every key and value is read
 * once for all of them.
 *
 * Queries stay in shared memory; keys and values are taken in tiles of 16. Eight threads share two
 * queries, 16 apart; each computes the scores of two keys of a tile, then adds the weighted values to
 * the columns it owns. What a query does not see is not added, not even times 0. */
#include <stdlib.h>

#include "codegen/internal.h"

enum { BLOCK = 128, ROWS = 32, KEYS = 16, WIDEST = 128, FEWEST_QUERIES = 8 };

static const char begin[] =
    "  enum { ROWS = $rows, KEYS = $keys, DK = $dk, DV = $dv, COLUMNS = DV / 8 };\n"
    "  __shared__ float qs[ROWS * (DK + 1)], ks[KEYS * (DK + 1)], vs[KEYS * DV];\n"
    "  __shared__ float hs[ROWS * (KEYS + 1)];\n"
    "  const ix L = $L, S = $S, E = $E, W = $W;\n"
    "  const ix tiles = (L + ROWS - 1) / ROWS, q0 = (ix)blockIdx.x % tiles * ROWS;\n"
    "  const ix batch = (ix)blockIdx.x / tiles;\n"
    "  const int r = (int)threadIdx.x / 8, c = (int)threadIdx.x % 8;\n"
    "  ix oy = 0, oq = 0, ok = 0, ov = 0, oz = 0;\n"
    "  (void)oz;\n"
    "$offsets"
    "  ix seen[2], most = 0;\n"
    "  float top[2], sum[2], out[2][COLUMNS];\n"
    "#pragma unroll\n"
    "  for (int h = 0; h < 2; h++) {\n"
    "    const long long last = n.at[$first] + q0 + r + 16 * h + 1;\n"
    "    seen[h] = $causal && last < S ? (ix)last : S;\n"
    "    top[h] = -WEIR_INF, sum[h] = 0;\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < COLUMNS; i++) out[h][i] = 0;\n"
    "  }\n"
    "  most = $causal && n.at[$first] + q0 + ROWS < S ? (ix)(n.at[$first] + q0 + ROWS) : S;\n"
    "  for (int i = (int)threadIdx.x; i < ROWS * DK; i += $T) {\n"
    "    const int y = i / DK, x = i % DK;\n"
    "    qs[y * (DK + 1) + x] = q0 + y < L && x < E\n"
    "        ? (float)$getq(((const $Q *)p.at[$q])[oq + (q0 + y) * $ql + x * $qe]) : 0.0f;\n"
    "  }\n";

static const char scores[] =
    "  for (ix j0 = 0; j0 < most; j0 += KEYS) {\n"
    "    __syncthreads();\n"
    "    for (int i = (int)threadIdx.x; i < KEYS * DK; i += $T) {\n"
    "      const int y = i / DK, x = i % DK;\n"
    "      ks[y * (DK + 1) + x] = j0 + y < most && x < E\n"
    "          ? (float)$getk(((const $K *)p.at[$k])[ok + (j0 + y) * $kl + x * $ke]) : 0.0f;\n"
    "    }\n"
    "    for (int i = (int)threadIdx.x; i < KEYS * DV; i += $T) {\n"
    "      const int y = i / DV, x = i % DV;\n"
    "      vs[i] = j0 + y < most && x < W\n"
    "          ? (float)$getv(((const $V *)p.at[$v])[ov + (j0 + y) * $vl + x * $ve]) : 0.0f;\n"
    "    }\n"
    "    __syncthreads();\n"
    "    float s[2][2] = {{0}};\n"
    "#pragma unroll 8\n"
    "    for (int e = 0; e < DK; e++) {\n"
    "      const float a = qs[r * (DK + 1) + e], b = qs[(r + 16) * (DK + 1) + e];\n"
    "      const float x = ks[c * (DK + 1) + e], y = ks[(c + 8) * (DK + 1) + e];\n"
    "      s[0][0] = fma(a, x, s[0][0]), s[0][1] = fma(a, y, s[0][1]);\n"
    "      s[1][0] = fma(b, x, s[1][0]), s[1][1] = fma(b, y, s[1][1]);\n"
    "    }\n";

static const char weights[] =
    "#pragma unroll\n"
    "    for (int h = 0; h < 2; h++) {\n"
    "      float t = top[h];\n"
    "#pragma unroll\n"
    "      for (int i = 0; i < 2; i++) {\n"
    "        s[h][i] = j0 + c + 8 * i < seen[h] ? s[h][i] * (float)$scale : -WEIR_INF;\n"
    "        t = weir_amax_f(t, s[h][i]);\n"
    "      }\n"
    "#pragma unroll\n"
    "      for (int d = 4; d > 0; d /= 2) t = weir_amax_f(t, __shfl_xor_sync(WEIR_ALL, t, d));\n"
    "      const float smaller = top[h] == -WEIR_INF ? 0.0f : exp(top[h] - t);\n"
    "      float all = 0;\n"
    "#pragma unroll\n"
    "      for (int i = 0; i < 2; i++) {\n"
    "        const float x = t == -WEIR_INF ? 0.0f : exp(s[h][i] - t);\n"
    "        hs[(r + 16 * h) * (KEYS + 1) + c + 8 * i] = x;\n"
    "        all += x;\n"
    "      }\n"
    "      sum[h] = sum[h] * smaller + all, top[h] = t;\n"
    "#pragma unroll\n"
    "      for (int i = 0; i < COLUMNS; i++) out[h][i] *= smaller;\n"
    "    }\n"
    "    __syncthreads();\n"
    "    for (int j = 0; j < KEYS; j++) {\n"
    "#pragma unroll\n"
    "      for (int h = 0; h < 2; h++) {\n"
    "        if (j0 + j >= seen[h]) continue;\n"
    "        const float x = hs[(r + 16 * h) * (KEYS + 1) + j];\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < COLUMNS; i++)\n"
    "          out[h][i] = fma(x, vs[j * DV + c + 8 * i], out[h][i]);\n"
    "      }\n"
    "    }\n"
    "  }\n";

static const char end[] =
    "#pragma unroll\n"
    "  for (int h = 0; h < 2; h++) {\n"
    "    const ix at = q0 + r + 16 * h;\n"
    "#pragma unroll\n"
    "    for (int d = 4; d > 0; d /= 2) sum[h] += __shfl_xor_sync(WEIR_ALL, sum[h], d);\n"
    "    if (at >= L) continue;\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < COLUMNS; i++)\n"
    "      if (c + 8 * i < W)\n"
    "        (($Y *)p.at[$y])[oy + at * $yl + (c + 8 * i) * $ye] = $of(out[h][i] / sum[h]);\n";

static const char lse_line[] = "    if (c == 0)\n"
                               "      ((float *)p.at[$z])[oz + at * $zl] = top[h] == -WEIR_INF ? "
                               "top[h] : top[h] + log(sum[h]);\n";

static int64_t padded(int64_t width) {
  int64_t d = 8;
  while (d < width) d *= 2;
  return d;
}

static bool is_taken(const cg_sdpa *s) {
  const cg_view *views[] = {&s->out, &s->q, &s->k, &s->v};
  int64_t W = s->extents[s->rank - 1];
  if (s->width > WIDEST || W > WIDEST || s->width == 0 || W == 0 || s->keys == 0) return false;
  if (s->extents[s->rank - 2] < FEWEST_QUERIES) return false;
  for (int i = 0; i < 4; i++)
    if (!ir_dtype_is_float(views[i]->dtype) || views[i]->dtype == IR_F64) return false;
  return !s->keeps_lse || s->lse.dtype == IR_F32;
}

static const char *stride_text(cg_writer *w, const cg_sdpa *s, const cg_view *v, uint32_t back) {
  return cg_number_text(w, v->strides[s->rank - back]);
}

/* Sets the names of one view: $q, $Q, $getq, $ql, $qe. */
static void set_view(cg_writer *w, const cg_sdpa *s, char letter, const cg_view *v) {
  cg_set_address(w, cg_text(w, "%c", letter), v);
  cg_set(w, cg_text(w, "%c", letter - 'a' + 'A'), cg_storage(v->dtype));
  cg_set(w, cg_text(w, "get%c", letter), cg_get(w, v->dtype));
  cg_set(w, cg_text(w, "%cl", letter), stride_text(w, s, v, 2));
  cg_set(w, cg_text(w, "%ce", letter), stride_text(w, s, v, 1));
}

static void set_all(cg_writer *w, const cg_sdpa *s) {
  int64_t W = s->extents[s->rank - 1];
  cg_set_int(w, "rows", ROWS);
  cg_set_int(w, "keys", KEYS);
  cg_set_int(w, "T", BLOCK);
  cg_set_int(w, "dk", padded(s->width));
  cg_set_int(w, "dv", padded(W));
  cg_set_number(w, "L", s->extents[s->rank - 2]);
  cg_set_number(w, "S", s->keys);
  cg_set_number(w, "E", s->width);
  cg_set_number(w, "W", W);
  cg_set_place(w, "first", s->first);
  cg_set(w, "causal", s->causal ? "1" : "0");
  cg_set(w, "scale", cg_f64_text(w, s->scale));
  set_view(w, s, 'y', &s->out);
  set_view(w, s, 'q', &s->q);
  set_view(w, s, 'k', &s->k);
  set_view(w, s, 'v', &s->v);
  cg_set(w, "of", cg_of(w, s->out.dtype, IR_F32));
  if (!s->keeps_lse) return;
  cg_set_address(w, "z", &s->lse);
  cg_set(w, "zl", stride_text(w, s, &s->lse, 2));
}

static int64_t reach_of(const cg_sdpa *s, const cg_space *batch) {
  const cg_view *views[] = {&s->out, &s->q, &s->k, &s->v, &s->lse};
  int64_t rows = s->keys + s->extents[s->rank - 2] + ROWS + KEYS, most = 0;
  for (int v = 0; v < (s->keeps_lse ? 5 : 4); v++) {
    int64_t reach = llabs(views[v]->strides[s->rank - 2]) * rows +
                    llabs(views[v]->strides[s->rank - 1]) * WIDEST;
    if (reach > most) most = reach;
  }
  return cg_space_reach(batch) + most;
}

bool cg_write_sdpa_blocks(cg_kernel *k, const cg_sdpa *s) {
  cg_writer w;
  cg_space batch;
  const cg_view *views[] = {&s->out, &s->q, &s->k, &s->v, &s->lse};
  const char *names[] = {"oy", "oq", "ok", "ov", "oz"};
  if (!is_taken(s)) return false;
  cg_space_make(&batch, s->extents, 0, s->rank - 2, views, s->keeps_lse ? 5 : 4, false);
  int64_t blocks = cg_space_count(&batch) * cg_ceildiv(s->extents[s->rank - 2], ROWS);
  cg_begin(&w, k->memory, reach_of(s, &batch) + blocks > CG_NARROW_REACH, BLOCK);
  cg_set_offsets(&w, &batch, "batch", names);
  set_all(&w, s);
  cg_put(&w, begin);
  cg_put(&w, scores);
  cg_put(&w, weights);
  cg_put(&w, end);
  if (s->keeps_lse) cg_put(&w, lse_line);
  cg_put(&w, "  }\n");
  cg_end(&w, k, cg_text(&w, "sdpa_blocks_%s", ir_dtype_text(s->out.dtype)), blocks, 1);
  return true;
}
