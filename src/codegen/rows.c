/* Operations that look at a whole row to compute each of its elements: softmax layer_norm rms_norm.
 *
 * T threads share a row: part of a warp or a block. Two forms:
 *   kept     the row is read once, V elements at a time, and stays in registers     (dense rows)
 *   looped   the row is read again in every pass                                    (all others)
 * Rows that are interleaved in memory have a form of their own (across.c). */
#include <stdlib.h>

#include "codegen/internal.h"

enum { SMALL_BLOCK = 128, BLOCK = 256, MAX_BLOCK = 1024, KEPT_WORDS = 32 };

typedef struct row_writer {
  cg_writer *w;
  const cg_rows *r;
  cg_space outer; /* views: x, result */
  int64_t n;
  bool kept;
  uint32_t width, vectors; /* kept: elements of a vector, vectors of a thread */
  uint32_t threads, block;
  bool window, stores_vectors, reads_vectors[2];
  ir_dtype real, acc; /* what elements and sums are computed in */
  uint32_t x, y, vector[2];
} row_writer;

/* ---- planning ---- */
static uint32_t rank_of(const row_writer *x) { return x->r->rank - 1; }
static int64_t step_of(const row_writer *x, const cg_view *v) { return v->strides[rank_of(x)]; }

/* Can it be read or written V elements at a time, from its start on? */
static bool dense(const row_writer *x, const cg_view *v, uint32_t width, bool moves,
                  uint32_t view) {
  cg_space none = {.rank = 0};
  if (step_of(x, v) != 1 && x->n > 1) return false;
  return cg_rows_aligned(v, moves ? &x->outer : &none, view, width);
}

static uint32_t power_above(int64_t n) {
  uint32_t p = 1;
  while (p < n) p *= 2;
  return p;
}

/* Plans few threads with several vectors each, so that sums over threads are short. */
static void plan_kept(row_writer *x) {
  uint32_t words = (uint32_t)ir_dtype_size_bytes(x->real) / 4;
  uint32_t most = KEPT_WORDS / (x->width * words);
  int64_t items = cg_ceildiv(x->n, x->width);
  uint32_t few = most < 4 ? most : 4;
  int64_t wanted = cg_ceildiv(items, few);
  x->threads = wanted <= 32 ? 32 : wanted <= BLOCK ? BLOCK : power_above(wanted);
  if (x->threads > MAX_BLOCK) x->threads = MAX_BLOCK;
  x->vectors = (uint32_t)cg_ceildiv(items, x->threads);
  x->kept = x->vectors <= most;
  x->block = x->threads < SMALL_BLOCK ? SMALL_BLOCK : x->threads;
}

static void plan_looped(row_writer *x) {
  x->width = x->vectors = 1;
  x->threads = x->n <= 1024 ? 32 : BLOCK;
  x->block = BLOCK;
}

static void plan(row_writer *x) {
  const cg_rows *r = x->r;
  const cg_view *views[] = {&r->x, &r->result}, *vectors[] = {&r->weight, &r->bias};
  const bool has[] = {r->has_weight, r->has_bias};
  x->n = r->extents[rank_of(x)];
  cg_space_make(&x->outer, r->extents, 0, rank_of(x), views, 2, true);
  x->real = r->result.dtype == IR_F64 ? IR_F64 : IR_F32;
  x->acc = cg_accumulator(r->result.dtype);
  x->window = r->count != x->n;
  x->width = cg_widest(ir_dtype_size_bytes(r->x.dtype), 8);
  while (x->width > 1 && (x->width > x->n || !dense(x, &r->x, x->width, true, 0))) x->width /= 2;
  bool along = step_of(x, &r->x) == 1 || x->n == 1;
  if (along) plan_kept(x);
  if (!x->kept) plan_looped(x);
  x->stores_vectors = !x->window && dense(x, &r->result, x->width, true, 1);
  for (int i = 0; i < 2; i++)
    x->reads_vectors[i] = has[i] && !x->window && dense(x, vectors[i], x->width, false, 0);
}

/* ---- loops over the elements of a thread ---- */
/* Does every thread have all of its vectors? Otherwise some have fewer, or, with a tail, part of a vector. */
static bool is_full(const row_writer *x) {
  return x->threads == x->block && x->n == (int64_t)x->vectors * x->threads * x->width;
}
static bool has_tail(const row_writer *x) { return x->n % x->width != 0; }

/* Begins a loop in which `g` is the element and j its place in the row. */
static const char *each(const row_writer *x) {
  cg_writer *w = x->w;
  if (!x->kept)
    return cg_text(w,
                   "  for (ix j = lane; j < length; j += %u) {\n"
                   "    const real g = (real)%s(((const %s *)p.at[%u])[ox + j * %s]);\n",
                   x->threads, cg_get(w, x->r->x.dtype), cg_storage(x->r->x.dtype), x->x,
                   cg_number_text(w, step_of(x, &x->r->x)));
  return cg_text(w,
                 "#pragma unroll\n"
                 "  for (int i = 0; i < %u; i++)\n"
                 "#pragma unroll\n"
                 "  for (int e = 0; e < %u; e++) {\n"
                 "    const ix j = ((ix)lane + i * %u) * %u + e;\n"
                 "    if (%s) continue;\n"
                 "    const real g = f[i][e];\n",
                 x->vectors, x->width, x->threads, x->width,
                 is_full(x)    ? "0"
                 : has_tail(x) ? "j >= length"
                               : "j - e >= length");
}

/* Writes `if (the whole vector at j is in the row) {`, and below what is done otherwise. */
static void put_whole(const row_writer *x) {
  if (!is_full(x)) cg_line(x->w, "    if (j + %u <= length) {\n", x->width);
}
static void put_else(const row_writer *x, const char *to, const char *from) {
  cg_writer *w = x->w;
  if (is_full(x)) return;
  cg_set(w, "to", to);
  cg_set(w, "from", has_tail(x) ? cg_text(w, "j + e < length ? %s[e] : 0", from) : "0");
  cg_put(w, "    } else {\n"
            "#pragma unroll\n"
            "      for (int e = 0; e < $V; e++) $to.e[e] = $from;\n"
            "    }\n");
}

/* A row is read once: loads say so (__ldcs), which leaves the cache to weight and bias. */
static void put_load(const row_writer *x) {
  cg_writer *w = x->w;
  ir_dtype t = x->r->x.dtype;
  if (!x->kept) return;
  cg_put_vector(w, "v", t, x->width);
  cg_set_int(w, "NV", x->vectors);
  cg_set_int(w, "V", x->width);
  cg_set_int(w, "T", x->threads);
  cg_set(w, "S", cg_storage(t));
  cg_set_int(w, "p", x->x);
  cg_put(w, "  real f[$NV][$V];\n"
            "  {\n"
            "  v x[$NV];\n"
            "#pragma unroll\n"
            "  for (int i = 0; i < $NV; i++) {\n"
            "    const ix j = ((ix)lane + i * $T) * $V;\n"
            "    const $S *at = (const $S *)p.at[$p] + ox + j;\n");
  put_whole(x);
  cg_put_vector_stream(w, t, x->width, "x[i]", "at");
  put_else(x, "x[i]", "at");
  cg_set(w, "get", cg_get(w, t));
  cg_put(w, "  }\n"
            "#pragma unroll\n"
            "  for (int i = 0; i < $NV; i++)\n"
            "#pragma unroll\n"
            "  for (int e = 0; e < $V; e++) f[i][e] = (real)$get(x[i].e[e]);\n"
            "  }\n");
}

/* ---- results ---- */
static const char *vector_text(const row_writer *x, int i, const cg_view *v) {
  cg_writer *w = x->w;
  const char *get = cg_get(w, v->dtype);
  if (x->kept && x->reads_vectors[i]) return cg_text(w, "(acc)%s(u%d.e[e])", get, i);
  const char *place =
      x->kept && x->stores_vectors ? "weir_least(j + e, length - 1)" : "(j - first)";
  return cg_text(w, "(acc)%s(((const %s *)p.at[%u])[%s * %s])", get, cg_storage(v->dtype),
                 x->vector[i], place, cg_number_text(w, step_of(x, v)));
}

/* `value` of an element g, with weight and bias. */
static const char *result_text(const row_writer *x, const char *value) {
  const cg_rows *r = x->r;
  const char *text = value;
  if (r->has_weight) text = cg_text(x->w, "%s * %s", text, vector_text(x, 0, &r->weight));
  if (r->has_bias) text = cg_text(x->w, "%s + %s", text, vector_text(x, 1, &r->bias));
  return text;
}

static void put_result_one(const row_writer *x, const char *value) {
  cg_writer *w = x->w;
  cg_set(w, "S", cg_storage(x->r->result.dtype));
  cg_set_int(w, "p", x->y);
  cg_set_number(w, "step", step_of(x, &x->r->result));
  cg_set(w, "of", cg_of(w, x->r->result.dtype, x->acc));
  cg_set(w, "value", value);
  cg_put(w, "    if (row < rows && j >= first && j < first + count)\n"
            "      (($S *)p.at[$p] + oy)[(j - first) * $step] = $of($value);\n"
            "  }\n");
}

static void put_reads(const row_writer *x) {
  cg_writer *w = x->w;
  const cg_view *views[] = {&x->r->weight, &x->r->bias};
  for (int i = 0; i < 2; i++) {
    if (!x->reads_vectors[i]) continue;
    const char *storage = cg_storage(views[i]->dtype), *name = cg_text(w, "u%d", i);
    cg_line(w, "    u%dt u%d;\n    {\n    const %s *at = (const %s *)p.at[%u] + j;\n", i, i,
            storage, storage, x->vector[i]);
    put_whole(x);
    cg_put_vector_load(w, views[i]->dtype, x->width, name, "at");
    put_else(x, name, "at");
    cg_line(w, "    }\n");
  }
}

static void put_results_vector(const row_writer *x, const char *value) {
  cg_writer *w = x->w;
  ir_dtype t = x->r->result.dtype;
  cg_set_int(w, "NV", x->vectors);
  cg_set_int(w, "T", x->threads);
  cg_set_int(w, "V", x->width);
  cg_set(w, "skip", is_full(x) ? "" : "if (j >= length) continue;");
  cg_put(w, "#pragma unroll\n"
            "  for (int i = 0; i < $NV; i++) {\n"
            "    const ix j = ((ix)lane + i * $T) * $V;\n"
            "    $skip\n"
            "    o_t o;\n");
  put_reads(x);
  cg_set(w, "of", cg_of(w, t, x->acc));
  cg_set(w, "value", value);
  cg_set(w, "S", cg_storage(t));
  cg_set_int(w, "p", x->y);
  cg_put(w, "#pragma unroll\n"
            "    for (int e = 0; e < $V; e++) {\n"
            "      const real g = f[i][e];\n"
            "      o.e[e] = $of($value);\n"
            "    }\n"
            "    $S *at = ($S *)p.at[$p] + oy + j;\n");
  if (has_tail(x)) put_whole(x);
  cg_put_vector_store(w, t, x->width, "at", "o");
  if (has_tail(x))
    cg_put(w, "    } else {\n"
              "#pragma unroll\n"
              "      for (int e = 0; e < $V; e++) if (j + e < length) at[e] = o.e[e];\n"
              "    }\n");
  cg_line(w, "  }\n");
}

static void put_results(row_writer *x, const char *value) {
  cg_writer *w = x->w;
  const cg_view *views[] = {&x->r->weight, &x->r->bias};
  bool vectors = x->kept && x->stores_vectors;
  for (int i = 0; i < 2; i++) {
    x->reads_vectors[i] = x->reads_vectors[i] && vectors;
    if (x->reads_vectors[i]) cg_put_vector(w, cg_text(w, "u%dt", i), views[i]->dtype, x->width);
  }
  if (vectors) {
    cg_put_vector(w, "o_t", x->r->result.dtype, x->width);
    put_results_vector(x, result_text(x, value));
    return;
  }
  cg_put(w, each(x));
  put_result_one(x, result_text(x, value));
}

/* ---- sums over the threads of a row ---- */
static const char sum_warp[] =
    "#pragma unroll\n"
    "  for (int d = $half; d > 0; d /= 2) $s += __shfl_xor_sync(WEIR_ALL, $s, d);\n";
static const char sum_block[] = "  __syncthreads();\n"
                                "  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = $s;\n"
                                "  __syncthreads();\n"
                                "  $s = 0;\n"
                                "#pragma unroll\n"
                                "  for (int i = 0; i < $warps; i++) $s += part[i];\n";

static void put_sum(const row_writer *x, const char *name) {
  cg_writer *w = x->w;
  cg_set(w, "half", "16");
  cg_set(w, "s", name);
  cg_put(w, sum_warp);
  if (x->threads > 32) {
    cg_set_int(w, "warps", x->threads / 32);
    cg_set(w, "s", name);
    cg_put(w, sum_block);
  }
}

/* ---- softmax ----
 * Each thread sums exp(x - m) with its own maximum m; then pairs of maximum and sum are joined. A thread
 * that has seen nothing but -inf has the sum 0. */
static const char softmax_begin[] = "  real m = -WEIR_INF;\n"
                                    "$each"
                                    "    m = weir_amax_$l(m, g);\n"
                                    "  }\n"
                                    "  const real base = m == -WEIR_INF ? (real)0 : m;\n"
                                    "  acc s = 0;\n"
                                    "$each"
                                    "    const real h = $exp(g - base);\n"
                                    "    s += h;\n"
                                    "    $keep\n"
                                    "  }\n"
                                    "  real top = m;\n";

static const char pair_weigh[] = "    const real t = weir_amax_$l(top, m2);\n"
                                 "    s = (top == -WEIR_INF ? 0 : s * $exp(top - t)) +\n"
                                 "        (m2 == -WEIR_INF ? 0 : s2 * $exp(m2 - t));\n"
                                 "    top = t;\n";

static const char pair_warp[] = "#pragma unroll\n"
                                "  for (int d = 16; d > 0; d /= 2) {\n"
                                "    const real m2 = __shfl_xor_sync(WEIR_ALL, top, d);\n"
                                "    const acc s2 = __shfl_xor_sync(WEIR_ALL, s, d);\n"
                                "$weigh"
                                "  }\n";

static const char pair_block[] = "  __shared__ real tops[$warps];\n"
                                 "  if (threadIdx.x % 32 == 0) {\n"
                                 "    part[threadIdx.x / 32] = s;\n"
                                 "    tops[threadIdx.x / 32] = top;\n"
                                 "  }\n"
                                 "  __syncthreads();\n"
                                 "  top = -WEIR_INF, s = 0;\n"
                                 "#pragma unroll\n"
                                 "  for (int i = 0; i < $warps; i++) {\n"
                                 "    const real m2 = tops[i];\n"
                                 "    const acc s2 = part[i];\n"
                                 "$weigh"
                                 "  }\n";

static void put_softmax(row_writer *x) {
  cg_writer *w = x->w;
  const char *letter = cg_letter(x->real);
  ir_dtype t = x->r->result.dtype;
  const char *exponential = t == IR_F16 || t == IR_BF16 ? "weir_quick_exp" : "exp";
  cg_writer piece;
  cg_begin(&piece, w->memory, w->wide, w->block);
  cg_set(w, "exp", exponential);
  cg_set(&piece, "exp", exponential);
  cg_set(&piece, "l", letter);
  cg_put(&piece, pair_weigh);
  cg_set(w, "each", each(x));
  cg_set(w, "l", letter);
  cg_set(w, "keep", x->kept ? "f[i][e] = h;" : "");
  cg_put(w, softmax_begin);
  cg_set(w, "weigh", piece.body.data);
  cg_put(w, pair_warp);
  if (x->threads > 32) {
    cg_set_int(w, "warps", x->threads / 32);
    cg_put(w, pair_block);
  }
  cg_put(w, "  const acc scale = (m == -WEIR_INF ? (acc)0 : (acc)$exp(m - top)) / s;\n");
  put_results(x, x->kept ? "g * scale" : cg_text(w, "%s(g - base) * scale", exponential));
}

/* ---- norms ---- */
static void put_norm(row_writer *x) {
  cg_writer *w = x->w;
  bool centered = x->r->code == IR_OP_LAYER_NORM;
  const char *count = cg_text(w, "(acc)%s", cg_f64_text(w, (double)x->n));
  if (centered) {
    cg_set(w, "each", each(x));
    cg_put(w, "  acc s = 0;\n$each    s += g;\n  }\n");
    put_sum(x, "s");
  }
  cg_line(w, "  const acc mean = %s;\n", centered ? cg_text(w, "s / %s", count) : "0");
  cg_set(w, "each", each(x));
  cg_put(w, "  acc q = 0;\n"
            "$each"
            "    const acc d = (acc)g - mean;\n"
            "    q += d * d;\n"
            "  }\n");
  put_sum(x, "q");
  cg_line(w, "  const acc scale = 1 / sqrt(q / %s + (acc)%s);\n", count, cg_f64_text(w, x->r->eps));
  put_results(x, "((acc)g - mean) * scale");
}

/* ---- the kernel ---- */
static const char place[] = "  typedef $real real;\n"
                            "  typedef $acc acc;\n"
                            "  const int lane = (int)threadIdx.x % $T;\n"
                            "  const ix row = (ix)blockIdx.x * $R + (ix)threadIdx.x / $T;\n"
                            "  const ix rows = $rows, n_row = $n, first = $first, count = $count;\n"
                            "  const ix length = row < rows ? n_row : 0;\n"
                            "  (void)first, (void)count;\n"
                            "  ix ox = 0, oy = 0;\n";

static void put_kernel(row_writer *x) {
  cg_writer *w = x->w;
  const char *names[] = {"ox", "oy"};
  cg_set(w, "real", cg_native(x->real));
  cg_set(w, "acc", cg_native(x->acc));
  cg_set_int(w, "T", x->threads);
  cg_set_int(w, "R", x->block / x->threads);
  cg_set_number(w, "rows", cg_space_count(&x->outer));
  cg_set_number(w, "n", x->n);
  cg_set_number(w, "first", x->r->first);
  cg_set_number(w, "count", x->r->count);
  cg_put(w, place);
  cg_put_offsets(w, &x->outer, "row", names, NULL, 0);
  if (x->threads > 32) cg_line(w, "  __shared__ acc part[%u];\n", x->threads / 32);
  put_load(x);
  if (x->r->code == IR_OP_SOFTMAX) put_softmax(x);
  else put_norm(x);
}

static bool is_wide(const row_writer *x) {
  const cg_rows *r = x->r;
  int64_t row = x->n * (llabs(step_of(x, &r->x)) + llabs(step_of(x, &r->result)) + 1);
  return cg_space_reach(&x->outer) + row + MAX_BLOCK > CG_NARROW_REACH;
}

void cg_write_rows(cg_kernel *k, const cg_rows *r) {
  cg_writer w;
  row_writer x = {.w = &w, .r = r};
  if (cg_write_rows_across(k, r)) return;
  plan(&x);
  cg_begin(&w, k->memory, is_wide(&x), x.block);
  x.y = cg_address(&w, &r->result);
  x.x = cg_address(&w, &r->x);
  if (r->has_weight) x.vector[0] = cg_address(&w, &r->weight);
  if (r->has_bias) x.vector[1] = cg_address(&w, &r->bias);
  put_kernel(&x);
  const char *name =
      cg_text(&w, "%s_%s", ir_op_info_of(r->code)->name, ir_dtype_text(r->result.dtype));
  cg_end(&w, k, name, cg_ceildiv(cg_space_count(&x.outer), x.block / x.threads), 1);
}
