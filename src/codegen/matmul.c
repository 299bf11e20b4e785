/* Products of matrices of any dtype and strides, where no library takes them. A block of threads computes
 * a tile of the result from tiles of both operands in shared memory. */
#include <stdlib.h>

#include "codegen/internal.h"

enum { BLOCK = 256, TILE = 32, DEPTH = 16 };

/* 16 x 16 threads, each with 2 x 2 results that are 16 apart. */
static const char body[] =
    "  typedef $acc acc;\n"
    "  enum { TILE = $tile, DEPTH = $depth, HALF = TILE / 2 };\n"
    "  __shared__ acc sa[DEPTH][TILE + 1], sb[DEPTH][TILE + 1];\n"
    "  const ix M = $m, N = $n, K = $k, tiles = $tiles;\n"
    "  const ix block = (ix)blockIdx.x / tiles, tile = (ix)blockIdx.x % tiles;\n"
    "  const ix across = (N + TILE - 1) / TILE;\n"
    "  const ix i0 = tile / across * TILE, j0 = tile % across * TILE;\n"
    "  const int ti = (int)threadIdx.x / HALF, tj = (int)threadIdx.x % HALF;\n"
    "  ix oc = 0, oa = 0, ob = 0, obias = 0;\n"
    "  (void)obias;\n"
    "$offsets$open"
    "  acc c[2][2] = {{0, 0}, {0, 0}};\n"
    "  for (ix k0 = $from; k0 < $last; k0 += DEPTH) {\n"
    "    for (int i = (int)threadIdx.x; i < TILE * DEPTH; i += $T) {\n"
    "      const ix ra = i0 + $arow, ka = k0 + $acol, cb = j0 + $bcol, kb = k0 + $brow;\n"
    "      sa[$acol][$arow] = $has && ka < K ?\n"
    "        (acc)$geta(((const $A *)p.at[$a])[oa + ra * $am + ka * $ak]) : (acc)0;\n"
    "      sb[$brow][$bcol] = cb < N && $hasb ?\n"
    "        (acc)$getb(((const $B *)p.at[$b])[$ob + kb * $bk + cb * $bn]) : (acc)0;\n"
    "    }\n"
    "    __syncthreads();\n"
    "#pragma unroll\n"
    "    for (int k = 0; k < DEPTH; k++) {\n"
    "#pragma unroll\n"
    "      for (int u = 0; u < 2; u++)\n"
    "#pragma unroll\n"
    "      for (int v = 0; v < 2; v++)\n"
    "        c[u][v] = $fma(sa[k][ti + u * HALF], sb[k][tj + v * HALF], c[u][v]);\n"
    "    }\n"
    "    __syncthreads();\n"
    "  }\n"
    "  for (int u = 0; u < 2; u++)\n"
    "    for (int v = 0; v < 2; v++) {\n"
    "      const ix i = i0 + ti + u * HALF, j = j0 + tj + v * HALF;\n"
    "      if ($hasnot || j >= N) continue;\n"
    "      acc y = c[u][v];\n"
    "      $bias\n"
    "      (($C *)p.at[$c])[oc + i * $cm + j * $cn] = $of(y);\n"
    "    }\n"
    "$close";

/* Goes over the runs of rows with the same index: no row is multiplied by the matrix of another
 * group. */
static const char open_groups[] =
    "  const ix end = i0 + TILE < M ? i0 + TILE : M;\n"
    "  for (ix lo = i0, hi; lo < end; lo = hi) {\n"
    "  const $I *index = (const $I *)p.at[$i] + obias;\n"
    "  const long long group = $geti(index[lo * $is]);\n"
    "  for (hi = lo + 1; hi < end && $geti(index[hi * $is]) == group;) hi++;\n"
    "  const int some = weir_inside(group, n.at[$groups] + 1, p.at[$error]) && group != "
    "n.at[$groups];\n"
    "  const ix og = some ? ob + (ix)group * $gs : ob, last = some ? K : 0;\n";

static const char open_depth[] = "  const $I *index = (const $I *)p.at[$i] + obias;\n";

const char cg_group_depth[] =
    "  __shared__ ix firsts[$T], lasts[$T];\n"
    "  const long long group = (long long)(block % $count) + $first;\n"
    "  ix from = K, last = 0;\n"
    "  for (ix r = (ix)threadIdx.x; r < K; r += $T) {\n"
    "    const long long at = $geti(index[r * $is]);\n"
    "    if (!weir_inside(at, n.at[$groups] + 1, p.at[$error]) || at != group) continue;\n"
    "    if (r < from) from = r;\n"
    "    last = r + 1;\n"
    "  }\n"
    "  firsts[threadIdx.x] = from;\n"
    "  lasts[threadIdx.x] = last;\n"
    "  __syncthreads();\n"
    "  for (int t = 0; t < $T; t++) {\n"
    "    if (firsts[t] < from) from = firsts[t];\n"
    "    if (lasts[t] > last) last = lasts[t];\n"
    "  }\n";

/* Beyond the depth both factors are 0, so that no infinity or NaN of an operand is multiplied by a made-up 0. */
static ir_dtype acc_of(ir_dtype t) {
  if (ir_dtype_is_float(t)) return t == IR_F64 ? IR_F64 : IR_F32;
  return t == IR_I64 || t == IR_BOOL ? IR_I64 : IR_I32;
}

/* The dtype that operands and result fit in. */
static ir_dtype widest(const cg_matmul *m) {
  ir_dtype t = ir_dtype_promote(m->c.dtype, ir_dtype_promote(m->a.dtype, m->b.dtype));
  return m->has_bias ? ir_dtype_promote(t, m->bias.dtype) : t;
}

/* The last dimension of the batch is that of the groups. */
void cg_set_groups(cg_writer *w, const cg_matmul *m, int threads) {
  cg_set(w, "I", cg_storage(m->index.dtype));
  cg_set(w, "geti", cg_get(w, m->index.dtype));
  cg_set_address(w, "i", &m->index);
  cg_set_number(w, "is", m->by_depth ? m->index_step : m->index.strides[m->rank - 3]);
  cg_set_place(w, "groups", m->n_groups);
  cg_set_int(w, "error", cg_error_address(w));
  cg_set_number(w, "gs", m->group_step);
  cg_set_number(w, "count", m->rank > 3 ? m->extents[m->rank - 4] : 1);
  cg_set_number(w, "first", m->first_group);
  cg_set_int(w, "T", threads);
}

/* Sets the names for tiles whose rows, or whose positions along k, belong to groups. */
static void set_groups(cg_writer *w, const cg_matmul *m) {
  cg_set_groups(w, m, BLOCK);
  strbuf kernel = cg_apart_begin(w);
  cg_put(w, m->by_depth ? open_depth : open_groups);
  if (m->by_depth) cg_put(w, cg_group_depth);
  cg_set(w, "open", cg_apart_end(w, kernel));
}

/* Is position `k` along the depth one of the group? */
static const char *of_group(cg_writer *w, const cg_matmul *m, const char *k) {
  return cg_text(w, "%s < last && %s(index[%s * %s]) == group", k, cg_get(w, m->index.dtype), k,
                 cg_number_text(w, m->index_step));
}

static void set_rows(cg_writer *w, const cg_matmul *m) {
  bool by_rows = m->grouped && !m->by_depth;
  if (m->grouped) set_groups(w, m);
  else cg_set(w, "open", "");
  cg_set(w, "close", by_rows ? "  }\n" : "");
  cg_set(w, "from", m->by_depth ? "from" : "0");
  cg_set(w, "last", m->grouped ? "last" : "K");
  cg_set(w, "ob", by_rows ? "og" : "ob");
  cg_set(w, "has", by_rows ? "ra >= lo && ra < hi" : "ra < M");
  if (m->by_depth) cg_set(w, "has", cg_text(w, "ra < M && %s", of_group(w, m, "ka")));
  cg_set(w, "hasb", m->by_depth ? of_group(w, m, "kb") : "kb < K");
  cg_set(w, "hasnot", by_rows ? "i < lo || i >= hi" : "i >= M");
}

static const char *stride_text(cg_writer *w, const cg_matmul *m, const cg_view *v, uint32_t back) {
  return cg_number_text(w, v->strides[m->rank - back]);
}

static const char *bias_text(cg_writer *w, const cg_matmul *m, ir_dtype acc) {
  const cg_view *v = &m->bias;
  if (!m->has_bias) return "";
  const char *along_m = stride_text(w, m, v, 3), *along_n = stride_text(w, m, v, 2);
  return cg_text(w, "y = weir_sum_%s(y, (acc)%s(((const %s *)p.at[%u])[obias + i * %s + j * %s]));",
                 cg_letter(acc), cg_get(w, v->dtype), cg_storage(v->dtype), cg_address(w, v),
                 along_m, along_n);
}

/* Multiplies and adds: floats with one rounding, integers wrap around. */
static const char *fma_of(ir_dtype acc) {
  if (ir_dtype_is_float(acc)) return "fma";
  return acc == IR_I64 ? "weir_muladd_l" : "weir_muladd_i";
}

/* Do neighbouring threads read along the first of two dimensions? They read along the one with the smaller stride. */
static bool along_first(const cg_matmul *m, const cg_view *v, uint32_t first, uint32_t second) {
  int64_t a = llabs(v->strides[m->rank - first]), b = llabs(v->strides[m->rank - second]);
  return a != 0 && (a < b || b == 0);
}

static int64_t reach_of(const cg_matmul *m, const cg_space *batch) {
  const cg_view *views[] = {&m->c, &m->a, &m->b, m->grouped ? &m->index : &m->bias};
  int64_t most = cg_space_reach(batch), longest = 0;
  for (int v = 0; v < (m->has_bias || m->grouped ? 4 : 3); v++) {
    int64_t reach = 0;
    for (uint32_t d = m->rank - 3; d < m->rank; d++)
      reach += llabs(views[v]->strides[d]) * (m->extents[d] + TILE);
    if (reach > longest) longest = reach;
  }
  return most + longest + llabs(m->group_step) * m->n_groups +
         llabs(m->index_step) * (m->extents[m->rank - 1] + DEPTH);
}

static void set_names(cg_writer *w, const cg_matmul *m, ir_dtype acc, int64_t tiles) {
  const int64_t *e = &m->extents[m->rank - 3];
  bool a_rows = along_first(m, &m->a, 3, 1), b_rows = along_first(m, &m->b, 1, 2);
  set_rows(w, m);
  cg_set(w, "acc", cg_native(acc));
  cg_set_int(w, "tile", TILE);
  cg_set_int(w, "depth", DEPTH);
  cg_set_number(w, "m", e[0]);
  cg_set_number(w, "n", e[1]);
  cg_set_number(w, "k", e[2]);
  cg_set_number(w, "tiles", tiles);
  cg_set_int(w, "T", BLOCK);
  cg_set(w, "arow", a_rows ? "i % TILE" : "i / DEPTH");
  cg_set(w, "acol", a_rows ? "i / TILE" : "i % DEPTH");
  cg_set(w, "bcol", b_rows ? "i / DEPTH" : "i % TILE");
  cg_set(w, "brow", b_rows ? "i % DEPTH" : "i / TILE");
  cg_set(w, "geta", cg_get(w, m->a.dtype));
  cg_set(w, "A", cg_storage(m->a.dtype));
  cg_set_address(w, "a", &m->a);
  cg_set(w, "am", stride_text(w, m, &m->a, 3));
  cg_set(w, "ak", stride_text(w, m, &m->a, 1));
  cg_set(w, "getb", cg_get(w, m->b.dtype));
  cg_set(w, "B", cg_storage(m->b.dtype));
  cg_set_address(w, "b", &m->b);
  cg_set(w, "bk", stride_text(w, m, &m->b, 1));
  cg_set(w, "bn", stride_text(w, m, &m->b, 2));
  cg_set(w, "fma", fma_of(acc));
  cg_set(w, "bias", bias_text(w, m, acc));
  cg_set(w, "C", cg_storage(m->c.dtype));
  cg_set_address(w, "c", &m->c);
  cg_set(w, "cm", stride_text(w, m, &m->c, 3));
  cg_set(w, "cn", stride_text(w, m, &m->c, 2));
  cg_set(w, "of", cg_of(w, m->c.dtype, acc));
}

void cg_write_matmul(cg_kernel *k, const cg_matmul *m) {
  cg_writer w;
  cg_space batch;
  const cg_view *views[] = {&m->c, &m->a, &m->b, m->grouped ? &m->index : &m->bias};
  const char *names[] = {"oc", "oa", "ob", m->has_bias || m->grouped ? "obias" : NULL};
  if (cg_write_grouped_90(k, m) || cg_write_grouped_tiles(k, m)) return;
  cg_space_make(&batch, m->extents, 0, m->rank - 3, views, 4, false);
  const int64_t *e = &m->extents[m->rank - 3];
  int64_t tiles = cg_ceildiv(e[0], TILE) * cg_ceildiv(e[1], TILE), blocks = cg_space_count(&batch);
  ir_dtype acc = acc_of(widest(m));
  cg_begin(&w, k->memory, reach_of(m, &batch) > CG_NARROW_REACH, BLOCK);
  cg_set_offsets(&w, &batch, "block", names);
  set_names(&w, m, acc, tiles);
  cg_put(&w, body);
  const char *name = m->by_depth ? "grouped_outer" : m->grouped ? "grouped_matmul" : "matmul";
  cg_end(&w, k, cg_text(&w, "%s_%s", name, ir_dtype_text(m->c.dtype)), tiles * blocks, 1);
}
