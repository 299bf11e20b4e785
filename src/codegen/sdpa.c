/* sdpa: softmax(q · kᵀ · scale) · v, a block of threads per query.
 *
 * Keys are taken in tiles: every warp computes the scores of some keys, then all threads together add the
 * weighted rows of v, each the columns it owns. Maximum and sum are running; whenever the maximum grows,
 * what was added before is scaled down. A key that a causal query does not see is never read. */
#include <stdlib.h>

#include "codegen/internal.h"

enum { BLOCK = 128, KEYS = 64, COLUMNS = 4 };

static const char body[] =
    "  typedef $acc acc;\n"
    "  enum { KEYS = $keys, WARPS = $T / 32, COLUMNS = $columns };\n"
    "  __shared__ acc score[KEYS];\n"
    "  const ix L = $L, S = $S, E = $E, W = $W;\n"
    "  const ix parts = W ? (W + $T * COLUMNS - 1) / ($T * COLUMNS) : 1;\n"
    "  const ix query = (ix)blockIdx.x / parts % L, batch = (ix)blockIdx.x / parts / L;\n"
    "  const ix w0 = (ix)blockIdx.x % parts * ($T * COLUMNS) + (ix)threadIdx.x;\n"
    "  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;\n"
    "  ix oy = 0, oq = 0, ok = 0, ov = 0, oz = 0;\n"
    "  (void)oz;\n"
    "$offsets"
    "  const long long last = n.at[$first] + query + 1;\n"
    "  const ix seen = $causal && last < S ? (ix)last : S;\n"
    "  acc top = -WEIR_INF, sum = 0, out[COLUMNS] = {0};\n"
    "  oq += query * $ql, oy += query * $yl;\n"
    "  for (ix j0 = 0; j0 < seen; j0 += KEYS) {\n"
    "    const int some = seen - j0 < KEYS ? (int)(seen - j0) : KEYS;\n"
    "    for (int j = warp; j < some; j += WARPS) {\n"
    "      acc s = 0;\n"
    "      for (ix e = lane; e < E; e += 32)\n"
    "        s += (acc)$getq(((const $Q *)p.at[$q])[oq + e * $qe]) *\n"
    "             (acc)$getk(((const $K *)p.at[$k])[ok + (j0 + j) * $kl + e * $ke]);\n"
    "#pragma unroll\n"
    "      for (int d = 16; d > 0; d /= 2) s += __shfl_xor_sync(WEIR_ALL, s, d);\n"
    "      if (lane == 0) score[j] = s * (acc)$scale;\n"
    "    }\n"
    "    __syncthreads();\n"
    "    acc t = top;\n"
    "    for (int j = 0; j < some; j++) t = weir_amax_$l(t, score[j]);\n"
    "    const acc smaller = top == -WEIR_INF ? (acc)0 : exp(top - t);\n"
    "    sum *= smaller, top = t;\n"
    "#pragma unroll\n"
    "    for (int c = 0; c < COLUMNS; c++) out[c] *= smaller;\n"
    "    for (int j = 0; j < some; j++) {\n"
    "      const acc h = t == -WEIR_INF ? (acc)0 : exp(score[j] - t);\n"
    "      sum += h;\n"
    "#pragma unroll\n"
    "      for (int c = 0; c < COLUMNS; c++) {\n"
    "        const ix col = w0 + c * $T;\n"
    "        if (col < W)\n"
    "          out[c] += h * (acc)$getv(((const $V *)p.at[$v])[ov + (j0 + j) * $vl + col * $ve]);\n"
    "      }\n"
    "    }\n"
    "    __syncthreads();\n"
    "  }\n"
    "#pragma unroll\n"
    "  for (int c = 0; c < COLUMNS; c++) {\n"
    "    const ix col = w0 + c * $T;\n"
    "    if (col >= W) continue;\n"
    "    const acc y = seen == 0 ? (acc)0 : out[c] / sum;\n"
    "    (($Y *)p.at[$y])[oy + col * $ye] = $of(y);\n"
    "  }\n";

/* The sum over all keys is the same in every part. */
static const char lse_body[] =
    "  if (threadIdx.x == 0 && (ix)blockIdx.x % parts == 0)\n"
    "    (($Z *)p.at[$z])[oz + query * $zl] = top == -WEIR_INF ? top : top + log(sum);\n";

static const char *stride_text(cg_writer *w, const cg_sdpa *s, const cg_view *v, uint32_t back) {
  return cg_number_text(w, v->strides[s->rank - back]);
}

static int64_t reach_of(const cg_sdpa *s, const cg_space *batch) {
  const cg_view *views[] = {&s->out, &s->q, &s->k, &s->v, &s->lse};
  int64_t rows = s->keys + s->extents[s->rank - 2];
  int64_t columns = s->width + s->extents[s->rank - 1] + BLOCK * COLUMNS, most = 0;
  for (int v = 0; v < (s->keeps_lse ? 5 : 4); v++) {
    int64_t reach = llabs(views[v]->strides[s->rank - 2]) * rows +
                    llabs(views[v]->strides[s->rank - 1]) * columns;
    if (reach > most) most = reach;
  }
  return cg_space_reach(batch) + most;
}

static const char *pointer(cg_writer *w, const cg_view *v) {
  return cg_text(w, "%u", cg_address(w, v));
}

static void put_lse(cg_writer *w, const cg_sdpa *s) {
  if (!s->keeps_lse) return;
  cg_set(w, "Z", cg_storage(s->lse.dtype));
  cg_set(w, "z", pointer(w, &s->lse));
  cg_set(w, "zl", stride_text(w, s, &s->lse, 2));
  cg_put(w, lse_body);
}

static void set_names(cg_writer *w, const cg_sdpa *s, ir_dtype acc) {
  cg_set(w, "acc", cg_native(acc));
  cg_set(w, "l", cg_letter(acc));
  cg_set_int(w, "keys", KEYS);
  cg_set_int(w, "T", BLOCK);
  cg_set_int(w, "columns", COLUMNS);
  cg_set_number(w, "L", s->extents[s->rank - 2]);
  cg_set_number(w, "S", s->keys);
  cg_set_number(w, "E", s->width);
  cg_set_number(w, "W", s->extents[s->rank - 1]);
  cg_set_place(w, "first", s->first);
  cg_set(w, "causal", s->causal ? "1" : "0");
  cg_set(w, "ql", stride_text(w, s, &s->q, 2));
  cg_set(w, "qe", stride_text(w, s, &s->q, 1));
  cg_set(w, "kl", stride_text(w, s, &s->k, 2));
  cg_set(w, "ke", stride_text(w, s, &s->k, 1));
  cg_set(w, "vl", stride_text(w, s, &s->v, 2));
  cg_set(w, "ve", stride_text(w, s, &s->v, 1));
  cg_set(w, "yl", stride_text(w, s, &s->out, 2));
  cg_set(w, "ye", stride_text(w, s, &s->out, 1));
  cg_set(w, "getq", cg_get(w, s->q.dtype));
  cg_set(w, "Q", cg_storage(s->q.dtype));
  cg_set(w, "q", pointer(w, &s->q));
  cg_set(w, "getk", cg_get(w, s->k.dtype));
  cg_set(w, "K", cg_storage(s->k.dtype));
  cg_set(w, "k", pointer(w, &s->k));
  cg_set(w, "getv", cg_get(w, s->v.dtype));
  cg_set(w, "V", cg_storage(s->v.dtype));
  cg_set(w, "v", pointer(w, &s->v));
  cg_set(w, "Y", cg_storage(s->out.dtype));
  cg_set(w, "y", pointer(w, &s->out));
  cg_set(w, "scale", cg_f64_text(w, s->scale));
  cg_set(w, "of", cg_of(w, s->out.dtype, acc));
}

void cg_write_sdpa(cg_kernel *k, const cg_sdpa *s) {
  cg_writer w;
  cg_space batch;
  const cg_view *views[] = {&s->out, &s->q, &s->k, &s->v, &s->lse};
  const char *names[] = {"oy", "oq", "ok", "ov", "oz"};
  if (cg_write_sdpa_tiles(k, s) || cg_write_sdpa_blocks(k, s)) return;
  cg_space_make(&batch, s->extents, 0, s->rank - 2, views, s->keeps_lse ? 5 : 4, false);
  int64_t L = s->extents[s->rank - 2], W = s->extents[s->rank - 1];
  ir_dtype acc = s->out.dtype == IR_F64 ? IR_F64 : IR_F32;
  int64_t blocks = cg_space_count(&batch) * L * (W ? cg_ceildiv(W, BLOCK * COLUMNS) : 1);
  cg_begin(&w, k->memory, reach_of(s, &batch) + blocks > CG_NARROW_REACH, BLOCK);
  cg_set_offsets(&w, &batch, "batch", names);
  set_names(&w, s, acc);
  cg_put(&w, body);
  put_lse(&w, s);
  cg_end(&w, k, cg_text(&w, "sdpa_%s", ir_dtype_text(s->out.dtype)), blocks, 1);
}
