/* Running sums of lines that are interleaved in memory, in one pass.
 *
 * A block has a strip of lines: $T threads side by side, each with $V lines, loaded at once, and $L such
 * groups along the lines. It goes down the strip; a thread takes $U elements of each of its lines at a
 * time. The threads of a warp add up by a butterfly in which each keeps the sum before it. Then the first
 * threads find, for a line each, what each group (a warp, or $T threads if these are more) begins with, in
 * shared memory. */
#include <stdlib.h>

#include "codegen/internal.h"

enum { BLOCK = 256, LARGE_BLOCK = 512, UNROLLED = 4, STRIP_BYTES = 64, LEAST_STRIPS = 100 };

typedef struct strip_writer {
  cg_writer *w;
  const cg_lines *l;
  cg_space space, along; /* the lines, and along them; views: the result, x */
  int64_t items, end;
  uint32_t width, threads, block;
  bool tail, stores_vectors;
  ir_dtype acc;
} strip_writer;

/* ---- planning ---- */
static bool moves_vectors(const strip_writer *x, const cg_view *v, uint32_t view, uint32_t width) {
  return cg_space_step(&x->space, view) == 1 &&
         cg_vector_width(v, &x->space, view, width) == width &&
         cg_rows_aligned(v, &x->along, view, width);
}

/* True: strips are used. There must be enough of them, and lines must be long enough for all threads. */
static bool plan(strip_writer *x) {
  const cg_lines *l = x->l;
  cg_view result = l->result, operand = l->x;
  const cg_view *views[] = {&l->result, &l->x}, *steps[] = {&result, &operand};
  uint32_t size = (uint32_t)ir_dtype_size_bytes(l->x.dtype);
  x->end = l->first + l->count;
  result.strides[0] = l->result_step;
  operand.strides[0] = l->x_step;
  cg_space_make(&x->space, l->extents, 0, l->rank, views, 2, true);
  cg_space_make(&x->along, &x->end, 0, 1, steps, 2, false);
  x->acc = cg_accumulator(l->x.dtype);
  x->width = cg_widest(size, 8);
  while (x->width > 1 && !moves_vectors(x, &l->x, 1, x->width)) x->width /= 2;
  int64_t run = cg_space_run(&x->space), step = llabs(cg_space_step(&x->space, 1));
  x->tail = run % x->width != 0;
  x->items = cg_space_count(&x->space) / run * cg_ceildiv(run, x->width);
  x->stores_vectors = x->width > 1 && moves_vectors(x, &l->result, 0, x->width);
  x->threads = 1;
  while (x->threads < 32 && x->threads * x->width * size < STRIP_BYTES) x->threads *= 2;
  x->block = x->end >= 4096 ? LARGE_BLOCK : BLOCK;
  while (x->threads < x->block && x->block / x->threads * UNROLLED > x->end) x->threads *= 2;
  return step > 0 && step < llabs(l->x_step) && run >= 32 && x->items / x->threads >= LEAST_STRIPS;
}

static bool is_wide(const strip_writer *x) {
  int64_t reach = cg_space_reach(&x->space) + cg_space_reach(&x->along);
  return reach + (int64_t)UNROLLED * LARGE_BLOCK > CG_NARROW_REACH;
}

/* ---- text ---- */
static const char place[] =
    "  const int side = (int)threadIdx.x % $T, lane = (int)threadIdx.x / $T;\n"
    "  const ix item = (ix)blockIdx.x * $T + side, end = $end;\n"
    "  const ix last = item < $items ? end : 0;\n"
    "  ix oy = 0, ox = 0, column = 0;\n"
    "  (void)column;\n";

static const char loop[] =
    "  __shared__ $A part[$groups][$T * $V], carry[$T * $V];\n"
    "  for (int t = (int)threadIdx.x; t < $T * $V; t += $block) carry[t] = 0;\n"
    "  for (ix base = 0; base < end; base += $L * $U) {\n"
    "    const ix from = base + (ix)lane * $U;\n"
    "    $A total[$V], before[$V];\n"
    "    vx x[$U];\n"
    "    if (from < last) {\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < $U; i++) {\n"
    "      const $X *at = (const $X *)p.at[$x] + ox + weir_least(from + i, last - 1) * $xs;\n"
    "$load"
    "    }\n"
    "    }\n";

static const char load_tail[] =
    "    if (left >= $V) {\n"
    "$words"
    "    } else {\n"
    "#pragma unroll\n"
    "      for (int e = 0; e < $V; e++) x[i].e[e] = e < left ? at[e] : 0;\n"
    "    }\n";

static const char scan[] =
    "#pragma unroll\n"
    "    for (int e = 0; e < $V; e++) {\n"
    "      total[e] = before[e] = 0;\n"
    "#pragma unroll\n"
    "      for (int i = 0; i < $U; i++)\n"
    "        if (from + i < last) total[e] += ($A)$get(x[i].e[e]);\n"
    "#pragma unroll\n"
    "      for (int d = $T; d < 32; d *= 2) {\n"
    "        const $A other = __shfl_xor_sync(WEIR_ALL, total[e], d);\n"
    "        if (threadIdx.x & d) before[e] += other;\n"
    "        total[e] += other;\n"
    "      }\n"
    "    }\n"
    "    __syncthreads();\n"
    "    if (threadIdx.x % $group < $T) {\n"
    "#pragma unroll\n"
    "      for (int e = 0; e < $V; e++) part[threadIdx.x / $group][e * $T + side] = total[e];\n"
    "    }\n"
    "    __syncthreads();\n"
    "    for (int t = (int)threadIdx.x; t < $T * $V; t += $block) {\n"
    "      $A sums[$groups], run = carry[t];\n"
    "#pragma unroll\n"
    "      for (int g = 0; g < $groups; g++) sums[g] = part[g][t];\n"
    "#pragma unroll\n"
    "      for (int g = 0; g < $groups; g++) {\n"
    "        part[g][t] = run;\n"
    "        run += sums[g];\n"
    "      }\n"
    "      carry[t] = run;\n"
    "    }\n"
    "    __syncthreads();\n"
    "#pragma unroll\n"
    "    for (int e = 0; e < $V; e++) before[e] += part[threadIdx.x / $group][e * $T + side];\n";

static const char store[] = "#pragma unroll\n"
                            "    for (int i = 0; i < $U; i++) {\n"
                            "      const ix q = from + i;\n"
                            "      $Y *to = ($Y *)p.at[$y] + oy + (q - $first) * $ys;\n"
                            "      if (q >= last) break;\n"
                            "      $out\n"
                            "#pragma unroll\n"
                            "      for (int e = 0; e < $V; e++) {\n"
                            "        before[e] += ($A)$get(x[i].e[e]);\n"
                            "        $guard\n"
                            "        $to = $of(($N)before[e]);\n"
                            "      }\n";

static const char store_tail[] =
    "    } else {\n"
    "      for (int e = 0; e < $V; e++) if (e < left) to[e] = o.e[e];\n"
    "    }\n";

/* Before `first` nothing is written. */
static void put_store(const strip_writer *x) {
  cg_writer *w = x->w;
  bool vectors = x->stores_vectors;
  const char *each = cg_text(w, "to[e * %s]", cg_number_text(w, cg_space_step(&x->space, 0)));
  cg_set(w, "out", vectors ? "vy o;" : "");
  cg_set(w, "to", vectors ? "o.e[e]" : each);
  cg_set(w, "guard",
         vectors ? ""
         : x->tail
             ? cg_text(w, "if (q < %s || e >= left) continue;", cg_number_text(w, x->l->first))
             : cg_text(w, "if (q < %s) continue;", cg_number_text(w, x->l->first)));
  cg_put(w, store);
  if (vectors) {
    cg_put(w, "      if (q < $first) continue;\n");
    if (x->tail) cg_put(w, "    if (left >= $V) {\n");
    cg_put_vector_store(w, x->l->result.dtype, x->width, "to", "o");
    if (x->tail) cg_put(w, store_tail);
  }
  cg_put(w, "    }\n  }\n");
}

static void set_names(const strip_writer *x) {
  cg_writer *w = x->w;
  const cg_lines *l = x->l;
  bool is_float = ir_dtype_is_float(l->x.dtype);
  ir_dtype wide = is_float ? x->acc : IR_I64;
  uint32_t group = x->threads < 32 ? 32 : x->threads;
  cg_set_int(w, "T", x->threads);
  cg_set_int(w, "L", x->block / x->threads);
  cg_set_int(w, "V", x->width);
  cg_set_int(w, "U", UNROLLED);
  cg_set_int(w, "block", x->block);
  cg_set_int(w, "group", group);
  cg_set_int(w, "groups", x->block / group);
  cg_set(w, "A", is_float ? cg_native(x->acc) : "unsigned long long");
  cg_set(w, "N", cg_native(wide));
  cg_set(w, "of", cg_of(w, l->result.dtype, wide));
  cg_set(w, "get", cg_get(w, l->x.dtype));
  cg_set(w, "X", cg_storage(l->x.dtype));
  cg_set(w, "Y", cg_storage(l->result.dtype));
  cg_set_address(w, "x", &l->x);
  cg_set_address(w, "y", &l->result);
  cg_set_number(w, "items", x->items);
  cg_set_number(w, "end", x->end);
  cg_set_number(w, "first", l->first);
  cg_set_number(w, "xs", l->x_step);
  cg_set_number(w, "ys", l->result_step);
}

static void put_kernel(const strip_writer *x) {
  cg_writer *w = x->w, piece;
  const char *names[] = {"oy", "ox"};
  int64_t run = cg_space_run(&x->space);
  set_names(x);
  cg_put(w, place);
  cg_put_offsets(w, &x->space, "item", names, "column", cg_ceildiv(run, x->width));
  cg_line(w, "  column *= %u;\n", x->width);
  cg_line(w, "  oy += column * %s;\n", cg_number_text(w, cg_space_step(&x->space, 0)));
  cg_line(w, "  ox += column * %s;\n", cg_number_text(w, cg_space_step(&x->space, 1)));
  if (x->tail) cg_line(w, "  const ix left = %s - column;\n", cg_number_text(w, run));
  cg_put_vector(w, "vx", x->l->x.dtype, x->width);
  if (x->stores_vectors) cg_put_vector(w, "vy", x->l->result.dtype, x->width);
  cg_begin(&piece, w->memory, w->wide, x->block);
  cg_put_vector_load(&piece, x->l->x.dtype, x->width, "x[i]", "at");
  const char *words = piece.body.data;
  if (x->tail) {
    cg_begin(&piece, w->memory, w->wide, x->block);
    cg_set_int(&piece, "V", x->width);
    cg_set(&piece, "words", words);
    cg_put(&piece, load_tail);
  }
  cg_set(w, "load", piece.body.data);
  cg_put(w, loop);
  cg_put(w, scan);
  put_store(x);
}

bool cg_write_scan_across(cg_kernel *k, const cg_lines *l) {
  cg_writer w;
  strip_writer x = {.w = &w, .l = l};
  if (!plan(&x)) return false;
  cg_begin(&w, k->memory, is_wide(&x), x.block);
  put_kernel(&x);
  cg_end(&w, k, "cumsum", cg_ceildiv(x.items, x.threads), 1);
  return true;
}
