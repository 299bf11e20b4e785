/* softmax layer_norm rms_norm of rows that are interleaved in memory, as along the first of two
 * dimensions.
 *
 * A thread has $V neighbouring rows, loaded at once; $T threads are side by side, and $L of them share
 * the elements of a row. So a block reads strips of some sectors, and has many loads under way. The
 * elements are read again in every pass. Softmax has two, and finds maximum and sum together in the first.
 *
 * `item` is the number of a thread's $V rows, `j` a place in a row. Every pass takes UNROLLED elements of
 * a row at a time; beyond the last one it loads the last one again, and leaves it out. */
#include <stdlib.h>

#include "codegen/internal.h"

enum { BLOCK = 256, LARGE_BLOCK = 512, UNROLLED = 4, STRIP_BYTES = 64, SECTOR_BYTES = 32 };

typedef struct across_writer {
  cg_writer *w;
  const cg_rows *r;
  cg_space outer, along; /* the rows; their elements. Views: x, result */
  int64_t n, items;
  uint32_t width, threads, lanes, block; /* $V $T $L */
  bool tail, stores_vectors;
  ir_dtype real, acc; /* what elements and sums are computed in */
  uint32_t x, y, vector[2];
} across_writer;

/* ---- planning ---- */
static uint32_t width_of(const across_writer *x) {
  const cg_view *v = &x->r->x;
  uint32_t width = cg_widest(ir_dtype_size_bytes(v->dtype), 8);
  if (cg_space_step(&x->outer, 0) != 1) return 1;
  width = cg_vector_width(v, &x->outer, 0, width);
  while (width > 1 && !cg_rows_aligned(v, &x->along, 0, width)) width /= 2;
  return width;
}

static bool stores_vectors(const across_writer *x) {
  const cg_view *v = &x->r->result;
  return x->width > 1 && cg_space_step(&x->outer, 1) == 1 &&
         cg_vector_width(v, &x->outer, 1, x->width) == x->width &&
         cg_rows_aligned(v, &x->along, 1, x->width);
}

/* Chooses strips no narrower than a sector, enough of them for a large GPU, with some elements for each lane. */
static void place_threads(across_writer *x) {
  uint32_t bytes = x->width * (uint32_t)ir_dtype_size_bytes(x->r->x.dtype);
  x->threads = 1;
  while (x->threads < 32 && x->threads * bytes < STRIP_BYTES) x->threads *= 2;
  while (x->threads > 1 && x->items / x->threads < 132 && x->threads * bytes > SECTOR_BYTES)
    x->threads /= 2;
  x->block = x->n >= 4096 && x->items / x->threads < 512 ? LARGE_BLOCK : BLOCK;
  while (x->threads < x->block && x->block / x->threads * UNROLLED > x->n) x->threads *= 2;
  x->lanes = x->block / x->threads;
}

static void plan(across_writer *x) {
  const cg_rows *r = x->r;
  const cg_view *views[] = {&r->x, &r->result};
  cg_space_make(&x->outer, r->extents, 0, r->rank - 1, views, 2, true);
  cg_space_make(&x->along, r->extents, r->rank - 1, r->rank, views, 2, true);
  x->n = r->extents[r->rank - 1];
  x->real = r->result.dtype == IR_F64 ? IR_F64 : IR_F32;
  x->acc = cg_accumulator(r->result.dtype);
  x->width = width_of(x);
  int64_t run = cg_space_run(&x->outer);
  x->tail = run % x->width != 0;
  x->items = cg_space_count(&x->outer) / run * cg_ceildiv(run, x->width);
  x->stores_vectors = stores_vectors(x);
  place_threads(x);
}

/* ---- a pass ---- */
static const char pass_begin[] =
    "  for (ix j = $from + lane; j < $to; j += $U * $L) {\n"
    "    v x[$U];\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < $U; i++) {\n"
    "      const $S *at = (const $S *)p.at[$x] + ox + weir_least(j + i * $L, $to - 1) * $xs;\n";

static const char pass_tail[] =
    "    if (left >= $V) {\n"
    "$load"
    "    } else {\n"
    "#pragma unroll\n"
    "      for (int e = 0; e < $V; e++) x[i].e[e] = e < left ? at[e] : 0;\n"
    "    }\n";

/* Loads x[$U], of elements `from` to below `to` of the rows. */
static void put_pass(const across_writer *x, const char *from, const char *to) {
  cg_writer *w = x->w;
  strbuf body = cg_apart_begin(w);
  cg_put_vector_load(w, x->r->x.dtype, x->width, "x[i]", "at");
  cg_set(w, "load", cg_apart_end(w, body));
  cg_set(w, "from", from);
  cg_set(w, "to", to);
  cg_set(w, "S", cg_storage(x->r->x.dtype));
  cg_put(w, pass_begin);
  cg_put(w, x->tail ? pass_tail : "$load");
  cg_put(w, "    }\n");
}

/* ---- the threads of a row ---- */
/* $join adds a2 (and b2) to a[e] (and b[e]). */
static const char join_warp[] = "#pragma unroll\n"
                                "  for (int d = $T; d < 32; d *= 2) {\n"
                                "#pragma unroll\n"
                                "    for (int e = 0; e < $V; e++) {\n"
                                "      const real b2 = __shfl_xor_sync(WEIR_ALL, b[e], d);\n"
                                "      const acc a2 = __shfl_xor_sync(WEIR_ALL, a[e], d);\n"
                                "      (void)b2;\n"
                                "$join"
                                "    }\n"
                                "  }\n";

/* The groups are warps, or threads side by side if those are more; the first threads join a row each. */
static const char join_groups[] = "  __syncthreads();\n"
                                  "  if (threadIdx.x % $group < $T) {\n"
                                  "#pragma unroll\n"
                                  "    for (int e = 0; e < $V; e++) {\n"
                                  "      sums[threadIdx.x / $group][e * $T + side] = a[e];\n"
                                  "      tops[threadIdx.x / $group][e * $T + side] = b[e];\n"
                                  "    }\n"
                                  "  }\n"
                                  "  __syncthreads();\n"
                                  "  for (int t = (int)threadIdx.x; t < $T * $V; t += $block) {\n"
                                  "    const int e = 0;\n"
                                  "    acc a[1] = {sums[0][t]};\n"
                                  "    real b[1] = {tops[0][t]};\n"
                                  "    for (int g = 1; g < $groups; g++) {\n"
                                  "      const real b2 = tops[g][t];\n"
                                  "      const acc a2 = sums[g][t];\n"
                                  "      (void)b2;\n"
                                  "$join"
                                  "    }\n"
                                  "    sums[0][t] = a[0];\n"
                                  "    tops[0][t] = b[0];\n"
                                  "  }\n"
                                  "  __syncthreads();\n"
                                  "#pragma unroll\n"
                                  "  for (int e = 0; e < $V; e++) a[e] = sums[0][e * $T + side], "
                                  "b[e] = tops[0][e * $T + side];\n";

static uint32_t group_of(const across_writer *x) { return x->threads < 32 ? 32 : x->threads; }

static void put_join(const across_writer *x, const char *join) {
  cg_writer *w = x->w;
  cg_set(w, "join", join);
  cg_put(w, join_warp);
  if (x->block > group_of(x)) cg_put(w, join_groups);
}

/* ---- results ---- */
static const char *vector_text(const across_writer *x, int i, const cg_view *v) {
  cg_writer *w = x->w;
  return cg_text(w, "(acc)%s(((const %s *)p.at[%u])[(q - first) * %s])", cg_get(w, v->dtype),
                 cg_storage(v->dtype), x->vector[i], cg_number_text(w, v->strides[x->r->rank - 1]));
}

static const char result_begin[] = "#pragma unroll\n"
                                   "    for (int i = 0; i < $U; i++) {\n"
                                   "      const ix q = j + i * $L;\n"
                                   "      if (q >= first + count) break;\n";

static const char result_each[] = "#pragma unroll\n"
                                  "      for (int e = 0; e < $V; e++) {\n"
                                  "        const real g = (real)$get(x[i].e[e]);\n"
                                  "        $guard\n"
                                  "        $to = $of($value);\n"
                                  "      }\n";

/* `value` of an element g, with weight and bias. */
static void put_results(const across_writer *x, const char *value) {
  cg_writer *w = x->w;
  const cg_rows *r = x->r;
  const char *storage = cg_storage(r->result.dtype), *text = value;
  put_pass(x, "first", "(first + count)");
  cg_put(w, result_begin);
  if (r->has_weight) {
    cg_line(w, "      const acc weight = %s;\n", vector_text(x, 0, &r->weight));
    text = cg_text(w, "%s * weight", text);
  }
  if (r->has_bias) {
    cg_line(w, "      const acc bias = %s;\n", vector_text(x, 1, &r->bias));
    text = cg_text(w, "%s + bias", text);
  }
  cg_line(w, "      %s *to = (%s *)p.at[%u] + oy + (q - first) * %s;\n", storage, storage, x->y,
          cg_number_text(w, r->result.strides[r->rank - 1]));
  cg_set(w, "value", text);
  cg_set(w, "of", cg_of(w, r->result.dtype, x->acc));
  cg_set(w, "guard", x->tail && !x->stores_vectors ? "if (e >= left) continue;" : "");
  if (x->stores_vectors) cg_line(w, "      vy o;\n");
  cg_set(w, "to",
         x->stores_vectors
             ? "o.e[e]"
             : cg_text(w, "to[e * %s]", cg_number_text(w, cg_space_step(&x->outer, 1))));
  cg_put(w, result_each);
  if (x->stores_vectors) {
    if (x->tail) cg_put(w, "    if (left >= $V) {\n");
    cg_put_vector_store(w, r->result.dtype, x->width, "to", "o");
    if (x->tail)
      cg_put(w, "    } else {\n"
                "      for (int e = 0; e < $V; e++) if (e < left) to[e] = o.e[e];\n"
                "    }\n");
  }
  cg_put(w, "    }\n  }\n");
}

/* ---- softmax ----
 * b are the maxima so far, a the sums of exp(x - b). A thread that has seen nothing but -inf has the
 * sum 0. */
static const char softmax_pass[] =
    "#pragma unroll\n"
    "    for (int e = 0; e < $V; e++) {\n"
    "      real g[$U], top = b[e];\n"
    "#pragma unroll\n"
    "      for (int i = 0; i < $U; i++) {\n"
    "        g[i] = j + i * $L < length ? (real)$get(x[i].e[e]) : -WEIR_INF;\n"
    "        top = weir_amax_$l(top, g[i]);\n"
    "      }\n"
    "      const real base = top == -WEIR_INF ? (real)0 : top;\n"
    "      a[e] *= $exp(b[e] - base);\n"
    "#pragma unroll\n"
    "      for (int i = 0; i < $U; i++) a[e] += $exp(g[i] - base);\n"
    "      b[e] = top;\n"
    "    }\n"
    "  }\n";

static const char softmax_join[] =
    "      const real t = weir_amax_$l(b[e], b2);\n"
    "      a[e] = (b[e] == -WEIR_INF ? 0 : a[e] * $exp(b[e] - t)) +\n"
    "             (b2 == -WEIR_INF ? 0 : a2 * $exp(b2 - t));\n"
    "      b[e] = t;\n";

static void put_softmax(const across_writer *x) {
  cg_writer *w = x->w;
  ir_dtype t = x->r->result.dtype;
  const char *exponential = t == IR_F16 || t == IR_BF16 ? "weir_quick_exp" : "exp";
  cg_set(w, "exp", exponential);
  cg_set(w, "l", cg_letter(x->real));
  const char *join = cg_filled(w, softmax_join);
  cg_put(w, "#pragma unroll\n"
            "  for (int e = 0; e < $V; e++) a[e] = 0, b[e] = -WEIR_INF;\n");
  put_pass(x, "0", "length");
  cg_put(w, softmax_pass);
  put_join(x, join);
  cg_put(w, "#pragma unroll\n"
            "  for (int e = 0; e < $V; e++) {\n"
            "    if (b[e] == -WEIR_INF) b[e] = 0;\n"
            "    a[e] = 1 / a[e];\n"
            "  }\n");
  put_results(x, cg_text(w, "%s(g - b[e]) * a[e]", exponential));
}

/* ---- norms: b are the means ---- */
static const char sum_pass[] = "#pragma unroll\n"
                               "    for (int i = 0; i < $U; i++) {\n"
                               "      if (j + i * $L >= length) break;\n"
                               "#pragma unroll\n"
                               "      for (int e = 0; e < $V; e++) {\n"
                               "        const acc d = (acc)(real)$get(x[i].e[e]) - mean[e];\n"
                               "        a[e] += $term;\n"
                               "      }\n"
                               "    }\n"
                               "  }\n";

static void put_sum(const across_writer *x, const char *term) {
  cg_writer *w = x->w;
  cg_put(w, "#pragma unroll\n"
            "  for (int e = 0; e < $V; e++) a[e] = 0;\n");
  put_pass(x, "0", "length");
  cg_set(w, "term", term);
  cg_put(w, sum_pass);
  put_join(x, "      a[e] += a2;\n");
}

static void put_norm(const across_writer *x) {
  cg_writer *w = x->w;
  cg_set(w, "count", cg_text(w, "(acc)%s", cg_f64_text(w, (double)x->n)));
  cg_set(w, "eps", cg_text(w, "(acc)%s", cg_f64_text(w, x->r->eps)));
  cg_put(w, "  acc mean[$V];\n"
            "#pragma unroll\n"
            "  for (int e = 0; e < $V; e++) mean[e] = 0, b[e] = 0;\n");
  if (x->r->code == IR_OP_LAYER_NORM) {
    put_sum(x, "d");
    cg_put(w, "#pragma unroll\n"
              "  for (int e = 0; e < $V; e++) mean[e] = a[e] / $count;\n");
  }
  put_sum(x, "d * d");
  cg_put(w, "#pragma unroll\n"
            "  for (int e = 0; e < $V; e++) a[e] = 1 / sqrt(a[e] / $count + $eps);\n");
  put_results(x, "((acc)g - mean[e]) * a[e]");
}

/* ---- the kernel ---- */
static const char place[] =
    "  typedef $real real;\n"
    "  typedef $acc acc;\n"
    "  const int side = (int)threadIdx.x % $T, lane = (int)threadIdx.x / $T;\n"
    "  const ix item = (ix)blockIdx.x * $T + side;\n"
    "  const ix length = item < $items ? $n : 0, first = $first;\n"
    "  const ix count = item < $items ? $some : -first;\n"
    "  ix ox = 0, oy = 0, column = 0;\n"
    "  acc a[$V];\n"
    "  real b[$V];\n"
    "  (void)column;\n";

static void put_place(const across_writer *x) {
  cg_writer *w = x->w;
  const char *names[] = {"ox", "oy"};
  int64_t run = cg_space_run(&x->outer);
  cg_put(w, place);
  cg_put_offsets(w, &x->outer, "item", names, "column", cg_ceildiv(run, x->width));
  cg_line(w, "  column *= %u;\n", x->width);
  cg_line(w, "  ox += column * %s;\n", cg_number_text(w, cg_space_step(&x->outer, 0)));
  cg_line(w, "  oy += column * %s;\n", cg_number_text(w, cg_space_step(&x->outer, 1)));
  if (x->tail) cg_line(w, "  const ix left = %s - column;\n", cg_number_text(w, run));
  cg_put_vector(w, "v", x->r->x.dtype, x->width);
  if (x->stores_vectors) cg_put_vector(w, "vy", x->r->result.dtype, x->width);
  if (x->block > group_of(x))
    cg_put(w, "  __shared__ acc sums[$groups][$T * $V];\n"
              "  __shared__ real tops[$groups][$T * $V];\n");
}

static void put_kernel(const across_writer *x) {
  cg_writer *w = x->w;
  const cg_rows *r = x->r;
  cg_set(w, "real", cg_native(x->real));
  cg_set(w, "acc", cg_native(x->acc));
  cg_set_int(w, "T", x->threads);
  cg_set_int(w, "L", x->lanes);
  cg_set_int(w, "V", x->width);
  cg_set_int(w, "U", UNROLLED);
  cg_set_int(w, "block", x->block);
  cg_set_int(w, "group", group_of(x));
  cg_set_int(w, "groups", x->block / group_of(x));
  cg_set_int(w, "x", x->x);
  cg_set_number(w, "items", x->items);
  cg_set_number(w, "n", x->n);
  cg_set_number(w, "first", r->first);
  cg_set_number(w, "some", r->count);
  cg_set_number(w, "xs", r->x.strides[r->rank - 1]);
  cg_set(w, "get", cg_get(w, r->x.dtype));
  put_place(x);
  if (r->code == IR_OP_SOFTMAX) put_softmax(x);
  else put_norm(x);
}

static bool is_wide(const across_writer *x) {
  int64_t reach = cg_space_reach(&x->outer) + cg_space_reach(&x->along);
  return reach + (int64_t)UNROLLED * LARGE_BLOCK > CG_NARROW_REACH;
}

bool cg_write_rows_across(cg_kernel *k, const cg_rows *r) {
  cg_writer w;
  across_writer x = {.w = &w, .r = r};
  plan(&x);
  int64_t step = llabs(cg_space_step(&x.outer, 0));
  if (step == 0 || cg_space_run(&x.outer) < 32 || step >= llabs(r->x.strides[r->rank - 1]))
    return false;
  cg_begin(&w, k->memory, is_wide(&x), x.block);
  x.y = cg_address(&w, &r->result);
  x.x = cg_address(&w, &r->x);
  if (r->has_weight) x.vector[0] = cg_address(&w, &r->weight);
  if (r->has_bias) x.vector[1] = cg_address(&w, &r->bias);
  put_kernel(&x);
  const char *name =
      cg_text(&w, "%s_%s", ir_op_info_of(r->code)->name, ir_dtype_text(r->result.dtype));
  cg_end(&w, k, name, cg_ceildiv(x.items, x.threads), 1);
  return true;
}
