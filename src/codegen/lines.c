/* Lines along one axis: one_hot, group_index, and the orders that sort.c does not take, where an
 * element's place is the number of elements that come before it. Running sums are in scan.c. */
#include <stdlib.h>

#include "codegen/internal.h"

enum { BLOCK = 128 };

/* ---- text ---- */
/* One thread per element. NaN is above every number; equal ones stay in their order. */
static const char sort_body[] = "  const ix item = (ix)blockIdx.x * $T + (ix)threadIdx.x;\n"
                                "  if (item >= $lines * $n) return;\n"
                                "  const ix line = item / $n, j = item - line * $n;\n"
                                "  ix oy = 0, ox = 0, rank = 0;\n"
                                "$offsets"
                                "  const $X *x = (const $X *)p.at[$x] + ox;\n"
                                "  const ix at = j * $xs;\n"
                                "  const $V b = ($V)$get(x[at]);\n"
                                "  for (ix i = 0; i < $n; i++) {\n"
                                "    const $V a = ($V)$get(x[i * $xs]);\n"
                                "    const int less = $less, more = $more;\n"
                                "    rank += less || (!more && i < j);\n"
                                "  }\n"
                                "  if (rank < $first || rank >= $end) return;\n"
                                "  (($Y *)p.at[$y])[oy + (rank - $first) * $ys] = $value;\n";

/* One thread per element of the result. */
static const char hot_body[] = "  const ix item = (ix)blockIdx.x * $T + (ix)threadIdx.x;\n"
                               "  if (item >= $lines * $n) return;\n"
                               "  const ix line = item / $n, j = item - line * $n;\n"
                               "  ix oy = 0, ox = 0;\n"
                               "$offsets"
                               "  const long long i = $get(((const $X *)p.at[$x])[ox]);\n"
                               "  const int hot = weir_inside(i, n.at[$whole], p.at[$error]) &&\n"
                               "                  i == (long long)$first + j;\n"
                               "  (($Y *)p.at[$y])[oy + j * $ys] = $of(hot);\n";

/* One thread per element of the result. Each looks at all lengths, so that a bad one is found
 * wherever it is. */
static const char group_body[] =
    "  const ix item = (ix)blockIdx.x * $T + (ix)threadIdx.x;\n"
    "  if (item >= $lines * $count) return;\n"
    "  const ix line = item / $count, j = item - line * $count;\n"
    "  ix oy = 0, ox = 0;\n"
    "$offsets"
    "  const $X *x = (const $X *)p.at[$x] + ox;\n"
    "  const long long rows = n.at[$whole], row = (long long)$first + j;\n"
    "  long long end = 0, group = 0;\n"
    "  for (ix i = 0; i < $n; i++) {\n"
    "    const long long length = $get(x[i * $xs]);\n"
    "    const long long next = length < 0 || length > 0x7fffffffffffffffLL - end ?\n"
    "      (length < 0 ? length : 0x7fffffffffffffffLL) : end + length;\n"
    "    if (!weir_inside(next, rows + 1, p.at[$error])) break;\n"
    "    end = next;\n"
    "    group += end <= row;\n"
    "  }\n"
    "  (($Y *)p.at[$y])[oy + j * $ys] = ($Y)group;\n";

/* ---- writing ---- */
static bool is_ordered(ir_opcode code) {
  return code == IR_OP_ARGSORT || code == IR_OP_TOPK || code == IR_OP_TOPK_INDEX;
}

static void set_common(cg_writer *w, const cg_lines *l, int64_t lines) {
  cg_set_int(w, "T", BLOCK);
  cg_set_number(w, "lines", lines);
  cg_set_address(w, "x", &l->x);
  cg_set_address(w, "y", &l->result);
  cg_set_number(w, "xs", l->x_step);
  cg_set_number(w, "ys", l->result_step);
  cg_set_number(w, "n", l->n);
  cg_set_number(w, "first", l->first);
  cg_set_number(w, "end", l->first + l->count);
  cg_set(w, "X", cg_storage(l->x.dtype));
  cg_set(w, "Y", cg_storage(l->result.dtype));
  cg_set(w, "get", cg_get(w, l->x.dtype));
}

static void put_sort(cg_writer *w, const cg_lines *l) {
  bool values = l->code == IR_OP_TOPK;
  cg_set(w, "V", ir_dtype_is_float(l->x.dtype) ? "double" : "long long");
  const char *below = "(a < b || (b != b && a == a))", *above = "(b < a || (a != a && b == b))";
  cg_set(w, "less", l->descending ? above : below);
  cg_set(w, "more", l->descending ? below : above);
  cg_set(w, "value", values ? "x[at]" : "(long long)j");
  cg_put(w, sort_body);
}

static void put_hot(cg_writer *w, const cg_lines *l) {
  cg_set_place(w, "whole", l->whole);
  cg_set_int(w, "error", cg_error_address(w));
  cg_set(w, "of", cg_of(w, l->result.dtype, IR_I32));
  cg_put(w, hot_body);
}

static void put_groups(cg_writer *w, const cg_lines *l) {
  cg_set_number(w, "count", l->count);
  cg_set_place(w, "whole", l->whole);
  cg_set_int(w, "error", cg_error_address(w));
  cg_put(w, group_body);
}

void cg_write_lines(cg_kernel *k, const cg_lines *l) {
  cg_writer w;
  cg_space space;
  const cg_view *views[] = {&l->result, &l->x};
  const char *names[] = {"oy", "ox"};
  if (l->code == IR_OP_CUMSUM) {
    cg_write_scan(k, l);
    return;
  }
  if (is_ordered(l->code) && cg_write_sorted(k, l)) return;
  cg_space_make(&space, l->extents, 0, l->rank, views, 2, true);
  bool groups = l->code == IR_OP_GROUP_INDEX;
  int64_t lines = cg_space_count(&space), items = lines * (groups ? l->count : l->n);
  int64_t reach = cg_space_reach(&space) + items + (l->n + l->count) * llabs(l->x_step) +
                  (l->n + l->count) * llabs(l->result_step) + l->first;
  cg_begin(&w, k->memory, reach > CG_NARROW_REACH, BLOCK);
  cg_set_offsets(&w, &space, "line", names);
  set_common(&w, l, lines);
  if (is_ordered(l->code)) put_sort(&w, l);
  else if (groups) put_groups(&w, l);
  else put_hot(&w, l);
  cg_end(&w, k, ir_op_info_of(l->code)->name, cg_ceildiv(items, BLOCK), 1);
}
