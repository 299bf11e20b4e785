/* Orders of lines: argsort, topk, topk_index, of elements of up to 4 bytes.
 *
 * An element becomes a number: a key that grows as the order does, and its place in the line, by which
 * equal elements keep their order and all numbers differ. A block sorts in shared memory: some short
 * lines by a bitonic network; a long line, or a piece of one, by digits of 8 bits of the key, the lowest
 * first (radix.c). As many elements of each sorted piece as are wanted go to scratch memory. In a second
 * launch each element finds its place: by bisection it counts, in every other piece, the elements that
 * come before it. */
#include "codegen/sort.h"

#include <stdlib.h>

enum { BLOCK = 256, AT_ONCE = 512, SHORT_LINE = 1024 };
#define MOST_SCRATCH (INT64_C(4) << 30)

/* ---- planning ---- */
static int64_t power_above(int64_t n) {
  int64_t p = 1;
  while (p < n) p *= 2;
  return p;
}

static void plan(sort_writer *x) {
  const cg_lines *l = x->l;
  const cg_view *views[] = {&l->result, &l->x};
  cg_space_make(&x->space, l->extents, 0, l->rank, views, 2, true);
  x->lines = cg_space_count(&x->space);
  x->end = l->first + l->count;
  x->radix = l->n > SHORT_LINE;
  uint32_t most = x->radix ? cg_radix_piece(l->x.dtype) : SHORT_LINE;
  x->piece = (uint32_t)(l->n < most ? power_above(l->n) : most);
  x->items = x->piece < AT_ONCE ? AT_ONCE : x->piece;
  x->pieces = cg_ceildiv(l->n, x->piece);
  x->kept = x->end < x->piece ? power_above(x->end) : x->piece;
}

static int64_t scratch_items(const sort_writer *x) {
  return x->pieces > 1 ? x->lines * x->pieces * x->kept : 0;
}

static bool is_wide(const sort_writer *x) {
  const cg_lines *l = x->l;
  int64_t reach = cg_space_reach(&x->space) + (x->lines + AT_ONCE) * x->piece * x->pieces +
                  (l->n + x->piece) * llabs(l->x_step) + l->n * llabs(l->result_step);
  return reach > CG_NARROW_REACH;
}

/* ---- keys ---- */
/* NaN is above every number, and -0 equals 0. */
static const char float_key[] = "      unsigned b = ((const $B *)p.at[$x])[ox + j * $xs];\n"
                                "      if (b == $sign) b = 0;\n"
                                "      const unsigned m = b & ($sign - 1);\n"
                                "      unsigned key = b & $sign ? $sign - 1 - m : b | $sign;\n"
                                "      if (m > $inf) key = 2 * $sign - 1;\n"
                                "$reverse";

static const char int_key[] =
    "      unsigned key = ((unsigned)$get(((const $X *)p.at[$x])[ox + j * $xs]) ^ $sign) & $mask;\n"
    "$reverse";

const char *cg_sort_key(cg_writer *w, const cg_lines *l) {
  ir_dtype t = l->x.dtype;
  size_t size = ir_dtype_size_bytes(t);
  const char *mask = size == 4 ? "0xffffffffu" : size == 2 ? "0xffffu" : "0xffu";
  cg_set(w, "X", cg_storage(t));
  cg_set(w, "get", cg_get(w, t));
  cg_set(w, "mask", mask);
  cg_set(w, "reverse", l->descending ? cg_text(w, "      key ^= %s;\n", mask) : "");
  cg_set(w, "sign", t == IR_I32 ? "0x80000000u" : t == IR_I8 ? "0x80u" : "0");
  if (!ir_dtype_is_float(t)) return int_key;
  cg_set(w, "B", t == IR_F32 ? "unsigned" : "unsigned short");
  cg_set(w, "sign", t == IR_F32 ? "0x80000000u" : "0x8000u");
  cg_set(w, "inf", t == IR_F32 ? "0x7f800000u" : t == IR_F16 ? "0x7c00u" : "0x7f80u");
  return float_key;
}

/* ---- text ---- */
static const char load_begin[] =
    "  __shared__ unsigned long long s[$items];\n"
    "  const ix piece = (ix)blockIdx.y;\n"
    "  for (int t = (int)threadIdx.x; t < $items; t += $T) {\n"
    "    const ix line = (ix)blockIdx.x * ($items / $P) + t / $P, j = piece * $P + t % $P;\n"
    "    s[t] = ~0ull;\n"
    "    if (line < $lines && j < $n) {\n"
    "      ix oy = 0, ox = 0;\n"
    "      (void)oy;\n";

static const char load_end[] = "      s[t] = (unsigned long long)key << 32 | (unsigned)j;\n"
                               "    }\n"
                               "  }\n";

/* The elements of a pair are d apart. In every other run of k the order is reversed, except in the last round. */
static const char network[] = "  for (int k = 2; k <= $P; k *= 2)\n"
                              "    for (int d = k / 2; d > 0; d /= 2) {\n"
                              "      __syncthreads();\n"
                              "      for (int t = (int)threadIdx.x; t < $items / 2; t += $T) {\n"
                              "        const int i = 2 * t - (t & (d - 1));\n"
                              "        const int up = (i & ($P - 1) & k) == 0;\n"
                              "        const unsigned long long a = s[i], b = s[i + d];\n"
                              "        if ((a > b) == up) s[i] = b, s[i + d] = a;\n"
                              "      }\n"
                              "    }\n"
                              "  __syncthreads();\n"
                              "  for (int t = (int)threadIdx.x; t < $items; t += $T) {\n"
                              "    const ix line = (ix)blockIdx.x * ($items / $P) + t / $P;\n"
                              "    const ix rank = t % $P;\n";

static const char store_piece[] = "    if (line < $lines && rank < $kept)\n"
                                  "      ((unsigned long long *)p.at[$scratch])[(line * $pieces + "
                                  "piece) * $kept + rank] = s[t];\n"
                                  "  }\n";

static const char store_begin[] = "    if (line < $lines && rank >= $first && rank < $end) {\n"
                                  "      const ix j = (ix)(unsigned)s[t];\n"
                                  "      ix oy = 0, ox = 0;\n"
                                  "      (void)ox;\n";

static const char store_end[] = "      (($Y *)p.at[$y])[oy + (rank - $first) * $ys] = $value;\n"
                                "    }\n"
                                "  }\n";

static const char place_body[] =
    "  const ix item = (ix)blockIdx.x * $T + (ix)threadIdx.x;\n"
    "  if (item >= $lines * $pieces * $kept) return;\n"
    "  const unsigned long long *all = (const unsigned long long *)p.at[$scratch];\n"
    "  const unsigned long long v = all[item];\n"
    "  const ix run = item / $kept, line = run / $pieces;\n"
    "  ix rank = item - run * $kept;\n"
    "  if (v == ~0ull) return;\n"
    "  for (ix c = line * $pieces; c < (line + 1) * $pieces && rank < $end; c++) {\n"
    "    const unsigned long long *q = all + c * $kept;\n"
    "    ix at = 0;\n"
    "    if (c == run) continue;\n"
    "    for (ix d = $kept / 2; d > 0; d /= 2)\n"
    "      if (q[at + d - 1] < v) at += d;\n"
    "    rank += at + (q[at] < v);\n"
    "  }\n"
    "  {\n";

static void set_common(const sort_writer *x, const cg_view *scratch) {
  cg_writer *w = x->w;
  const cg_lines *l = x->l;
  cg_set_int(w, "T", BLOCK);
  cg_set_int(w, "P", x->piece);
  cg_set_int(w, "items", x->items);
  cg_set_number(w, "lines", x->lines);
  cg_set_number(w, "n", l->n);
  cg_set_number(w, "first", l->first);
  cg_set_number(w, "end", x->end);
  cg_set_number(w, "pieces", x->pieces);
  cg_set_number(w, "kept", x->kept);
  cg_set_number(w, "xs", l->x_step);
  cg_set_number(w, "ys", l->result_step);
  cg_set_address(w, "x", &l->x);
  cg_set_address(w, "y", &l->result);
  cg_set_address(w, "scratch", scratch);
  cg_set(w, "Y", cg_storage(l->result.dtype));
  const char *element = cg_text(w, "((const %s *)p.at[%u])[ox + j * %s]", cg_storage(l->x.dtype),
                                cg_address(w, &l->x), cg_number_text(w, l->x_step));
  cg_set(w, "value", l->code == IR_OP_TOPK ? element : "(long long)j");
}

void cg_sort_put_offsets(const sort_writer *x) {
  const char *names[] = {"oy", "ox"};
  cg_put_offsets(x->w, &x->space, "line", names, NULL, 0);
}

static void put_network(const sort_writer *x) {
  cg_writer *w = x->w;
  const char *key = cg_sort_key(w, x->l);
  cg_put(w, load_begin);
  cg_sort_put_offsets(x);
  cg_put(w, key);
  cg_put(w, load_end);
  cg_put(w, network);
  if (x->pieces > 1) {
    cg_put(w, store_piece);
    return;
  }
  cg_put(w, store_begin);
  cg_sort_put_offsets(x);
  cg_put(w, store_end);
}

static void put_places(const sort_writer *x) {
  cg_writer *w = x->w;
  cg_put(w, place_body);
  cg_put(w, "  if (rank >= $first && rank < $end) {\n"
            "      const ix j = (ix)(unsigned)v;\n"
            "      ix oy = 0, ox = 0;\n"
            "      (void)ox;\n");
  cg_sort_put_offsets(x);
  cg_put(w, store_end);
}

/* ---- launches ---- */
bool cg_write_sorted(cg_kernel *k, const cg_lines *l) {
  cg_writer w;
  sort_writer x = {.w = &w, .l = l};
  cg_view scratch = {.start = CG_START_SCRATCH, .dtype = IR_I64, .align = CG_ALIGN};
  const char *name = ir_op_info_of(l->code)->name;
  if (ir_dtype_size_bytes(l->x.dtype) > 4 || l->n > INT32_MAX) return false;
  plan(&x);
  if (x.pieces > UINT16_MAX || scratch_items(&x) > MOST_SCRATCH / 8) return false;
  uint32_t block = x.radix ? CG_RADIX_BLOCK : BLOCK;
  cg_begin(&w, k->memory, is_wide(&x), block);
  set_common(&x, &scratch);
  cg_set_int(&w, "T", block);
  if (x.radix) cg_put_radix(&x);
  else put_network(&x);
  cg_end(&w, k, name, x.radix ? x.lines : cg_ceildiv(x.lines, x.items / x.piece), x.pieces);
  if (x.pieces == 1) return true;
  k->scratch_bytes = (size_t)scratch_items(&x) * 8;
  cg_begin(&w, k->memory, is_wide(&x), BLOCK);
  set_common(&x, &scratch);
  put_places(&x);
  cg_end(&w, k, name, cg_ceildiv(scratch_items(&x), BLOCK), 1);
  return true;
}
