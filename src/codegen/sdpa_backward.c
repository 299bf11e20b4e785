/* sdpa_backward: gradients of attention, without a library.
 *
 * Two launches. In the first a block of threads has one query and goes over tiles of keys: every warp weighs
 * some of them, and then all threads add weighted rows of k, each the columns it owns. In the second a block
 * has one key and goes over the queries of all heads that the key serves. Nothing is added atomically, so
 * results never depend on the order of blocks.
 *
 * With p = exp(scale q.k - lse) and ds = scale p dout.(v - out): dq = ds k, dk = ds q, dv = p dout. */
#include <stdlib.h>

#include "codegen/internal.h"

enum { BLOCK = 128, TILE = 64, COLUMNS = 4 };

/* A warp computes the weights of query i and key j; lane 0 stores them in $h and $w. */
static const char weigh[] =
    "      acc s = 0, d = 0;\n"
    "      for (ix e = lane; e < E; e += 32)\n"
    "        s += (acc)$getq(((const $Q *)p.at[$q])[oq + (i) * $ql + e * $qe]) *\n"
    "             (acc)$getk(((const $K *)p.at[$k])[ok + (j) * $kl + e * $ke]);\n"
    "      for (ix e = lane; e < W; e += 32)\n"
    "        d += (acc)$getg(((const $G *)p.at[$g])[og + (i) * $gl + e * $ge]) *\n"
    "             ((acc)$getv(((const $V *)p.at[$v])[ov + (j) * $vl + e * $ve]) -\n"
    "              (acc)$geto(((const $O *)p.at[$o])[oo + (i) * $ol + e * $oe]));\n"
    "#pragma unroll\n"
    "      for (int x = 16; x > 0; x /= 2) {\n"
    "        s += __shfl_xor_sync(WEIR_ALL, s, x);\n"
    "        d += __shfl_xor_sync(WEIR_ALL, d, x);\n"
    "      }\n"
    "      const acc h = exp(s * (acc)$scale -\n"
    "                        (acc)$getz(((const $Z *)p.at[$z])[oz + (i) * $zl]));\n";

static const char begin[] =
    "  typedef $acc acc;\n"
    "  enum { TILE = $tile, WARPS = $T / 32, COLUMNS = $columns };\n"
    "  const ix L = $L, S = $S, E = $E, W = $W, widest = E > W ? E : W;\n"
    "  const ix parts = widest ? (widest + $T * COLUMNS - 1) / ($T * COLUMNS) : 1;\n"
    "  const ix c0 = (ix)blockIdx.x % parts * ($T * COLUMNS) + (ix)threadIdx.x;\n"
    "  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;\n"
    "  ix oq = 0, ok = 0, ov = 0, oo = 0, oz = 0, og = 0, ox = 0, oy = 0;\n"
    "  (void)ox, (void)oy, (void)W;\n";

static const char query_begin[] =
    "  __shared__ acc weight[TILE];\n"
    "  const ix i = (ix)blockIdx.x / parts % L, batch = (ix)blockIdx.x / parts / L;\n"
    "$offsets"
    "  const ix seen = $causal && i < S ? i + 1 : S;\n"
    "  acc sum[COLUMNS] = {0};\n"
    "  for (ix j0 = 0; j0 < seen; j0 += TILE) {\n"
    "    const int some = seen - j0 < TILE ? (int)(seen - j0) : TILE;\n"
    "    for (int t = warp; t < some; t += WARPS) {\n"
    "      const ix j = j0 + t;\n";

static const char query_end[] =
    "      if (lane == 0) weight[t] = h * d * (acc)$scale;\n"
    "    }\n"
    "    __syncthreads();\n"
    "    for (int t = 0; t < some; t++) {\n"
    "#pragma unroll\n"
    "      for (int c = 0; c < COLUMNS; c++) {\n"
    "        const ix col = c0 + c * $T;\n"
    "        if (col < E)\n"
    "          sum[c] += weight[t] * (acc)$getk(((const $K *)p.at[$k])[ok + (j0 + t) * $kl + col * "
    "$ke]);\n"
    "      }\n"
    "    }\n"
    "    __syncthreads();\n"
    "  }\n"
    "#pragma unroll\n"
    "  for (int c = 0; c < COLUMNS; c++) {\n"
    "    const ix col = c0 + c * $T;\n"
    "    if (col < E) (($X *)p.at[$x])[ox + i * $xl + col * $xe] = $ofx(sum[c]);\n"
    "  }\n";

static const char key_begin[] =
    "  __shared__ acc weight[TILE], share[TILE];\n"
    "  const ix j = (ix)blockIdx.x / parts % S, batch = (ix)blockIdx.x / parts / S;\n"
    "$offsets"
    "  acc sum[COLUMNS] = {0}, more[COLUMNS] = {0};\n"
    "  for (ix head = 0; head < $group; head++) {\n"
    "  for (ix i0 = $causal ? j : 0; i0 < L; i0 += TILE) {\n"
    "    const int some = L - i0 < TILE ? (int)(L - i0) : TILE;\n"
    "    for (int t = warp; t < some; t += WARPS) {\n"
    "      const ix i = i0 + t;\n";

static const char key_end[] =
    "      if (lane == 0) share[t] = h, weight[t] = h * d * (acc)$scale;\n"
    "    }\n"
    "    __syncthreads();\n"
    "    for (int t = 0; t < some; t++) {\n"
    "#pragma unroll\n"
    "      for (int c = 0; c < COLUMNS; c++) {\n"
    "        const ix col = c0 + c * $T;\n"
    "        if (col < E)\n"
    "          sum[c] += weight[t] * (acc)$getq(((const $Q *)p.at[$q])[oq + (i0 + t) * $ql + col * "
    "$qe]);\n"
    "        if ($both && col < W)\n"
    "          more[c] += share[t] * (acc)$getg(((const $G *)p.at[$g])[og + (i0 + t) * $gl + col * "
    "$ge]);\n"
    "      }\n"
    "    }\n"
    "    __syncthreads();\n"
    "  }\n"
    "  oq += $qh, oo += $oh, oz += $zh, og += $gh;\n"
    "  }\n"
    "#pragma unroll\n"
    "  for (int c = 0; c < COLUMNS; c++) {\n"
    "    const ix col = c0 + c * $T;\n"
    "    if (col < E) (($X *)p.at[$x])[ox + j * $xl + col * $xe] = $ofx(sum[c]);\n"
    "    if ($both && col < W) (($Y *)p.at[$y])[oy + j * $yl + col * $ye] = $ofy(more[c]);\n"
    "  }\n";

/* ---- names ---- */
enum { N_IN = 6, N_VIEWS = 8 };

/* Sets the names of a view by its letter: $Q, $q, $getq, $ql, $qe, $qh. */
static void set_view(cg_writer *w, const cg_sdpa_backward *s, char letter, const cg_view *v) {
  char name[8];
  uint32_t at = s->rank; /* of the group, then rows and columns */
  name[0] = (char)(letter - 'a' + 'A'), name[1] = 0;
  cg_set(w, cg_text(w, "%s", name), cg_storage(v->dtype));
  cg_set(w, cg_text(w, "%c", letter), cg_text(w, "%u", cg_address(w, v)));
  cg_set(w, cg_text(w, "get%c", letter), cg_get(w, v->dtype));
  cg_set(w, cg_text(w, "%ch", letter), cg_number_text(w, v->strides[at - 3]));
  cg_set(w, cg_text(w, "%cl", letter), cg_number_text(w, v->strides[at - 2]));
  cg_set(w, cg_text(w, "%ce", letter), cg_number_text(w, v->strides[at - 1]));
}

static const cg_view *in_view(const cg_sdpa_backward *s, int i) {
  const cg_view *views[N_IN] = {&s->q, &s->k, &s->v, &s->out, &s->lse, &s->dout};
  return views[i];
}

static int64_t reach_of(const cg_sdpa_backward *s, const cg_space *batch,
                        const cg_view *const *views, uint32_t n) {
  int64_t rows = s->queries + s->keys + TILE, most = 0;
  int64_t columns = s->width + s->value_width + BLOCK * COLUMNS;
  for (uint32_t v = 0; v < n; v++) {
    int64_t reach = llabs(views[v]->strides[s->rank - 3]) * (s->group + 1) +
                    llabs(views[v]->strides[s->rank - 2]) * rows +
                    llabs(views[v]->strides[s->rank - 1]) * columns;
    if (reach > most) most = reach;
  }
  return cg_space_reach(batch) + most;
}

static void set_numbers(cg_writer *w, const cg_sdpa_backward *s, ir_dtype acc) {
  cg_set(w, "acc", cg_native(acc));
  cg_set_int(w, "tile", TILE);
  cg_set_int(w, "T", BLOCK);
  cg_set_int(w, "columns", COLUMNS);
  cg_set_number(w, "L", s->queries);
  cg_set_number(w, "S", s->keys);
  cg_set_number(w, "E", s->width);
  cg_set_number(w, "W", s->value_width);
  cg_set_number(w, "group", s->group);
  cg_set(w, "causal", s->causal ? "1" : "0");
  cg_set(w, "scale", cg_f64_text(w, s->scale));
}

/* ---- launches ---- */
/* Writes a launch with one block per row of `x` (and `y`, unless that is NULL): rows of queries, or of keys. */
static void write_rows(cg_kernel *k, const cg_sdpa_backward *s, const cg_view *x, const cg_view *y,
                       bool keys) {
  cg_writer w;
  cg_space batch;
  const char *names[N_VIEWS] = {"oq", "ok", "ov", "oo", "oz", "og", "ox", "oy"};
  const cg_view *views[N_VIEWS];
  uint32_t n = N_IN;
  ir_dtype acc = IR_F32;
  for (int i = 0; i < N_IN; i++) {
    views[i] = in_view(s, i);
    if (views[i]->dtype == IR_F64) acc = IR_F64;
  }
  views[n++] = x;
  if (y) views[n++] = y;
  cg_space_make(&batch, s->extents, 0, keys ? s->rank - 3 : s->rank - 2, views, n, false);
  int64_t rows = keys ? s->keys : s->queries;
  int64_t widest = s->width > s->value_width ? s->width : s->value_width;
  int64_t parts = widest ? cg_ceildiv(widest, BLOCK * COLUMNS) : 1;
  int64_t blocks = cg_space_count(&batch) * rows * parts;
  if (blocks == 0) return;
  cg_begin(&w, k->memory, reach_of(s, &batch, views, n) + blocks > CG_NARROW_REACH, BLOCK);
  cg_set_offsets(&w, &batch, "batch", names);
  set_numbers(&w, s, acc);
  cg_set(&w, "both", y ? "1" : "0");
  for (int i = 0; i < N_IN; i++) set_view(&w, s, "qkvozg"[i], views[i]);
  set_view(&w, s, 'x', x);
  set_view(&w, s, 'y', y ? y : x);
  cg_set(&w, "ofx", cg_of(&w, x->dtype, acc));
  cg_set(&w, "ofy", cg_of(&w, y ? y->dtype : x->dtype, acc));
  cg_put(&w, begin);
  cg_put(&w, keys ? key_begin : query_begin);
  cg_put(&w, weigh);
  cg_put(&w, keys ? key_end : query_end);
  cg_end(&w, k, cg_text(&w, "sdpa_%s_%s", keys ? "dkv" : "dq", ir_dtype_text(x->dtype)), blocks, 1);
}

void cg_write_sdpa_backward(cg_kernel *k, const cg_sdpa_backward *s) {
  if (cg_write_sdpa_backward_tiles(k, s)) return;
  write_rows(k, s, &s->dq, NULL, false);
  if (s->n_gradients > 1) write_rows(k, s, &s->dk, s->n_gradients > 2 ? &s->dv : NULL, true);
}
