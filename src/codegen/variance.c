/* Variances in one pass.
 *
 * A thread takes its first element, k, and sums the distances d from it and their squares. Then
 *
 *   mean = k + sum(d) / n        squares = sum(d * d) - sum(d)^2 / n
 *
 * is as accurate as with two passes: k is one of the elements, so sum(d * d) is at most n times the
 * squares, and n is only what one thread has. Means are kept as distances from the first element of all,
 * so that no digits are lost if all are far from zero. The squares of the union of two sets are
 *
 *   squares_a + squares_b + (mean_b - mean_a)^2 * n_a * n_b / (n_a + n_b)
 *
 * In this way threads, warps and segments are joined, in a fixed order. `count`, `m` and `s` below are the
 * count, the means and the squares of a thread: of one result, or of $W neighbouring ones, which share a
 * count. */
#include "codegen/reduce.h"

/* ---- one pass ---- */
static const char begin[] = "  $acc count = 0, m[$W], s[$W];\n"
                            "#pragma unroll\n"
                            "  for (int e = 0; e < $W; e++) m[e] = s[e] = 0;\n";

static const char first[] = "  if (result < results && begin + lane < end) {\n"
                            "  $acc k[$W], a[$V], b[$V];\n";

/* With columns, the first elements are read before the loop. */
static const char column_first[] = "  {\n"
                                   "    const ix item = begin + lane;\n";

static const char column_first_end[] =
    "#pragma unroll\n"
    "    for (int e = 0; e < $W; e++) k[e] = ($acc)$get(x.e[e]);\n"
    "  }\n";

/* With rows, a thread has few items: all are being loaded before the first one is used. */
static const char row_first[] = "  const $acc origin = ($acc)$get($from);\n"
                                "  k[0] = 0;\n";

static const char sums[] = "#pragma unroll\n"
                           "  for (int e = 0; e < $V; e++) a[e] = b[e] = 0;\n"
                           "#pragma unroll 4\n"
                           "  for (ix item = begin + lane; item < end; item += lanes) {\n";

static const char row_begins[] = "    if (count == 0) k[0] = ($acc)$get(x.e[0]);\n";

static const char sums_end[] = "#pragma unroll\n"
                               "    for (int e = 0; e < $V; e++) {\n"
                               "      $guard\n"
                               "      const $acc d = ($acc)$get(x.e[e]) - k[$e];\n"
                               "      a[e] += d;\n"
                               "      b[e] = fma(d, d, b[e]);\n"
                               "    }\n"
                               "    count += $some;\n"
                               "  }\n";

/* Rounding must not make squares negative; NaN stays. Squares that overflow are infinite, not NaN:
 * a is finite then, and a - a is 0. */
static const char finish[] = "#pragma unroll\n"
                             "  for (int e = $W; e < $V; e++) a[0] += a[e], b[0] += b[e];\n"
                             "#pragma unroll\n"
                             "  for (int e = 0; e < $W; e++) {\n"
                             "    m[e] = k[e] - $origin + a[e] / count;\n"
                             "    s[e] = b[e] - a[e] * (a[e] / count);\n"
                             "    if (a[e] - a[e] == 0 && b[e] - b[e] != 0) s[e] = b[e];\n"
                             "    if (s[e] < 0) s[e] = 0;\n"
                             "  }\n"
                             "  }\n";

static void put_elements(const reduce_writer *x) {
  cg_writer *w = x->w;
  uint32_t address = cg_address(w, &x->r->x);
  const char *storage = cg_storage(x->r->x.dtype);
  cg_put(w, first);
  if (x->columns) {
    cg_put(w, column_first);
    cg_reduce_put_at(x);
    cg_reduce_put_load(x, address, "x");
    cg_put(w, column_first_end);
  } else {
    cg_set(w, "from", cg_text(w, "((const %s *)p.at[%u])[ox]", storage, address));
    cg_put(w, row_first);
  }
  cg_put(w, sums);
  cg_reduce_put_at(x);
  cg_reduce_put_load(x, address, "x");
  if (!x->columns) cg_put(w, row_begins);
  cg_put(w, sums_end);
  if (x->columns) {
    cg_put(w, "    const ix at = ox;\n");
    cg_reduce_put_load(x, address, "x");
  }
  const char *here = cg_text(w, "(%s)%s(x.e[e])", cg_native(x->acc), cg_get(w, x->r->x.dtype));
  cg_set(w, "origin", x->columns ? here : "origin");
  cg_put(w, finish);
}

/* ---- parts of others ---- */
/* $on, $om, $os: count, mean and squares that are joined to those of result e. */
static const char join_columns[] =
    "    {\n"
    "      const $acc on = $on, share = on > 0 ? on / (count + on) : 0;\n"
    "#pragma unroll\n"
    "      for (int e = 0; e < $W; e++) {\n"
    "        const $acc d = $om - m[e];\n"
    "        s[e] += $os + d * (count * share) * d;\n"
    "        m[e] += d * share;\n"
    "      }\n"
    "      count += on;\n"
    "    }\n";

static void put_join(cg_writer *w, const char *n, const char *m, const char *s) {
  cg_set(w, "on", n);
  cg_set(w, "om", m);
  cg_set(w, "os", s);
  cg_put(w, join_columns);
}

static void put_parts(const reduce_writer *x) {
  static const char *const names[] = {"xn", "xm", "xs"};
  cg_writer *w = x->w;
  cg_view plane = x->r->x;
  uint32_t addresses[3];
  for (int i = 0; i < 3; i++, plane.offset_bytes += x->plane_bytes)
    addresses[i] = cg_address(w, &plane);
  cg_put(w, "  if (result < results) {\n"
            "  for (ix item = begin + lane; item < end; item += lanes) {\n");
  cg_reduce_put_at(x);
  for (int i = 0; i < 3; i++) cg_reduce_put_load(x, addresses[i], names[i]);
  if (x->columns) put_join(w, "xn.e[0]", "xm.e[e]", "xs.e[e]");
  else {
    cg_put(w, "#pragma unroll\n"
              "    for (int j = 0; j < $V; j++) {\n");
    if (cg_reduce_is_guarded(x)) cg_put(w, "      if (j >= left) continue;\n");
    put_join(w, "xn.e[j]", "xm.e[j]", "xs.e[j]");
    cg_put(w, "    }\n");
  }
  cg_put(w, "  }\n  }\n");
}

/* ---- the threads of a result ---- */
static const char shuffle_columns[] = "#pragma unroll\n"
                                      "  for (int d2 = $T; d2 < 32; d2 *= 2) {\n";
static const char shuffle_rows[] = "#pragma unroll\n"
                                   "  for (int d2 = $half; d2 > 0; d2 /= 2) {\n";

static void put_shuffles(const reduce_writer *x) {
  cg_writer *w = x->w;
  cg_put(w, x->columns ? shuffle_columns : shuffle_rows);
  put_join(w, "__shfl_xor_sync(WEIR_ALL, count, d2)", "__shfl_xor_sync(WEIR_ALL, m[e], d2)",
           "__shfl_xor_sync(WEIR_ALL, s[e], d2)");
  cg_put(w, "  }\n");
}

static const char row_warps[] = "  __shared__ $acc part[3][$warps];\n"
                                "  if (threadIdx.x % 32 == 0) {\n"
                                "    part[0][threadIdx.x / 32] = count;\n"
                                "    part[1][threadIdx.x / 32] = m[0];\n"
                                "    part[2][threadIdx.x / 32] = s[0];\n"
                                "  }\n"
                                "  __syncthreads();\n"
                                "  if (threadIdx.x >= 32) return;\n"
                                "  count = part[0][0], m[0] = part[1][0], s[0] = part[2][0];\n"
                                "#pragma unroll\n"
                                "  for (int i = 1; i < $warps; i++) {\n";

/* The first warp joins what the others have; neighbouring threads access neighbouring words. */
static const char column_warps[] =
    "  __shared__ $acc counts[$warps][$T], part[2][$warps][$T * $W];\n"
    "  if (threadIdx.x % 32 < $T) {\n"
    "    counts[threadIdx.x / 32][side] = count;\n"
    "#pragma unroll\n"
    "    for (int e = 0; e < $W; e++) {\n"
    "      part[0][threadIdx.x / 32][e * $T + side] = m[e];\n"
    "      part[1][threadIdx.x / 32][e * $T + side] = s[e];\n"
    "    }\n"
    "  }\n"
    "  __syncthreads();\n"
    "  if (threadIdx.x >= $T) return;\n"
    "#pragma unroll\n"
    "  for (int i = 1; i < $warps; i++) {\n";

static void put_warps(const reduce_writer *x) {
  cg_writer *w = x->w;
  if (!x->columns && x->threads <= 32) return;
  cg_put(w, x->columns ? column_warps : row_warps);
  if (x->columns)
    put_join(w, "counts[i][side]", cg_text(w, "part[0][i][e * %u + side]", x->threads),
             cg_text(w, "part[1][i][e * %u + side]", x->threads));
  else put_join(w, "part[0][i]", "part[1][i]", "part[2][i]");
  cg_put(w, "  }\n");
}

/* ---- all of it ---- */
static void put_plane(const reduce_writer *x, int plane, const char *value) {
  cg_put(x->w, "  {\n");
  cg_reduce_put_results(x, x->parts_at + plane * cg_reduce_plane_bytes(x), value);
  cg_put(x->w, "  }\n");
}

void cg_put_variance(const reduce_writer *x) {
  cg_writer *w = x->w;
  cg_reduce_set_names(x);
  cg_set(w, "W", x->columns ? cg_text(w, "%u", x->width) : "1");
  cg_set(w, "e", x->columns ? "e" : "0");
  const char *some = cg_reduce_is_guarded(x) ? "weir_least(left, %u)" : "%u";
  cg_set(w, "some", x->columns ? "1" : cg_text(w, some, x->width));
  cg_put(w, begin);
  if (x->of_parts) put_parts(x);
  else put_elements(x);
  put_shuffles(x);
  put_warps(x);
  if (x->segments == 1) {
    put_plane(x, 0, cg_text(w, "(s[e] / %s)", cg_f64_text(w, x->r->divisor)));
    return;
  }
  put_plane(x, 0, "count");
  put_plane(x, 1, "m[e]");
  put_plane(x, 2, "s[e]");
}
