/* Sums of exp(g - m) beside the maximum m of g (body_rows.c, rows that are read in each pass).
 *
 * Both are found in one pass: a thread scales its sum when it meets a larger maximum, and pairs of
 * maximum and sum are joined across threads. */
#include "codegen/body_rows.h"

bool cg_rows_has_top(const rows_writer *x, uint32_t i) {
  if (x->top[i] != CG_NO_NODE) return true;
  for (uint32_t s = 0; s < x->b->nodes.len; s++)
    if (x->top[s] == i) return true;
  return false;
}

/* In f32 the fast exponential is good enough: where its argument and its error are large, the value is small
 * compared to that of the maximum. */
static const char *power_text(const rows_writer *x, uint32_t i) {
  return rows_node(x, x->top[i])->dtype == IR_F32 ? "weir_quick_exp" : "exp";
}

static void set_pair(const rows_writer *x, uint32_t i) {
  cg_writer *w = x->w;
  const cg_node *top = rows_node(x, x->top[i]);
  cg_set_int(w, "s", i);
  cg_set_int(w, "m", x->top[i]);
  cg_set_int(w, "V", x->width);
  cg_set(w, "R", cg_native(top->dtype));
  cg_set(w, "T", cg_native(rows_node(x, i)->dtype));
  cg_set(w, "exp", power_text(x, i));
  cg_set(w, "l", cg_letter(top->dtype));
}

void cg_put_tops_begin(const rows_writer *x, uint32_t pass) {
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    if (!rows_folds_in(x, i, pass) || x->top[i] == CG_NO_NODE) continue;
    set_pair(x, i);
    cg_put(x->w, "    $R g$s[$V];\n"
                 "#pragma unroll\n"
                 "    for (int e = 0; e < $V; e++) g$s[e] = -WEIR_INF;\n");
  }
}

void cg_put_tops_element(const rows_writer *x, uint32_t pass) {
  for (uint32_t i = 0; i < x->b->nodes.len; i++)
    if (rows_folds_in(x, i, pass) && x->top[i] != CG_NO_NODE)
      cg_line(x->w, "      g%u[e] = %s;\n", i, x->values.texts[rows_operand(x, i)]);
}

/* A thread that has seen nothing but -inf has the sum 0. */
void cg_put_tops_end(const rows_writer *x, uint32_t pass) {
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    if (!rows_folds_in(x, i, pass) || x->top[i] == CG_NO_NODE) continue;
    set_pair(x, i);
    cg_put(x->w, "    {\n"
                 "      $R top = a$m;\n"
                 "#pragma unroll\n"
                 "      for (int e = 0; e < $V; e++) top = weir_amax_$l(top, g$s[e]);\n"
                 "      if (top > a$m) a$s *= ($T)$exp(a$m - top);\n"
                 "      a$m = top;\n"
                 "      const $R base = top == -WEIR_INF ? ($R)0 : top;\n"
                 "      $R part = 0;\n"
                 "#pragma unroll\n"
                 "      for (int e = 0; e < $V; e++) part += $exp(g$s[e] - base);\n"
                 "      a$s += ($T)part;\n"
                 "    }\n");
  }
}

/* Joins a pair of maximum and sum, m2 and s2, with that of the thread. */
static const char pair[] = "    const $R t = weir_amax_$l(a$m, m2);\n"
                           "    a$s = (a$m == -WEIR_INF ? 0 : a$s * ($T)$exp(a$m - t)) +\n"
                           "          (m2 == -WEIR_INF ? 0 : s2 * ($T)$exp(m2 - t));\n"
                           "    a$m = t;\n";

void cg_put_tops_warp(const rows_writer *x, uint32_t i) {
  cg_writer *w = x->w;
  set_pair(x, i);
  cg_put(w, "#pragma unroll\n"
            "  for (int d = 16; d > 0; d /= 2) {\n"
            "    const $R m2 = __shfl_xor_sync(WEIR_ALL, a$m, d);\n"
            "    const $T s2 = __shfl_xor_sync(WEIR_ALL, a$s, d);\n");
  cg_put(w, pair);
  cg_put(w, "  }\n");
  if (x->threads > 32)
    cg_put(w, "  if (threadIdx.x % 32 == 0) {\n"
              "    part$m[threadIdx.x / 32] = a$m;\n"
              "    part$s[threadIdx.x / 32] = a$s;\n"
              "  }\n");
}

void cg_put_tops_block(const rows_writer *x, uint32_t i) {
  cg_writer *w = x->w;
  set_pair(x, i);
  cg_set_int(w, "warps", x->threads / 32);
  cg_set_int(w, "half", x->threads / 64);
  cg_put(w, "  a$m = part$m[threadIdx.x % $warps];\n"
            "  a$s = part$s[threadIdx.x % $warps];\n"
            "#pragma unroll\n"
            "  for (int d = $half; d > 0; d /= 2) {\n"
            "    const $R m2 = __shfl_xor_sync(WEIR_ALL, a$m, d);\n"
            "    const $T s2 = __shfl_xor_sync(WEIR_ALL, a$s, d);\n");
  cg_put(w, pair);
  cg_put(w, "  }\n");
}
