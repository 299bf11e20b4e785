/* Running sums: cumsum.
 *
 * Two forms, by what is dense in memory:
 *   along    the line itself: a block goes along it, E neighbouring elements per thread; the threads of a
 *            warp add up by a butterfly in which each keeps the sum before it, the warps by way of
 *            shared memory
 *   across   neighbouring threads have neighbouring lines; if these are many, scan_across.c is used
 * If lines are few and long, they are cut into segments (blockIdx.y). An earlier launch writes the sum of
 * each segment but the last to scratch memory, and a segment begins with the sum of those before it. */
#include <stdlib.h>

#include "codegen/internal.h"

enum { BLOCK = 128, SHORT_LINE = 64, MAX_SEGMENTS = 64 };

typedef struct scan_writer {
  cg_writer *w;
  const cg_lines *l;
  cg_space space; /* of the lines; views: the result, x */
  bool along;
  uint32_t width, out_width; /* elements loaded, and stored, at once */
  uint32_t each;             /* E: elements of a thread, in the form `along` */
  int64_t lines, end;        /* how many lines; the end of the results that are wanted */
  int64_t segments, segment; /* how many segments of a line; elements of one */
  ir_dtype acc;
} scan_writer;

/* ---- planning ---- */
/* The distance to the next line. */
static int64_t lines_apart(const scan_writer *x) {
  int64_t step = llabs(cg_space_step(&x->space, 1));
  return x->lines > 1 && step > 0 ? step : INT64_MAX;
}

static uint32_t width_of(const scan_writer *x, const cg_view *v, uint32_t view, int64_t step) {
  uint32_t width = x->each;
  bool whole = view == 1 || x->l->first % x->each == 0;
  if (step != 1 || !whole) return 1;
  while (width > 1 && !cg_rows_aligned(v, &x->space, view, width)) width /= 2;
  return width == x->each ? width : 1;
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Chooses segments: enough of them for a large GPU, each long enough to be worth it, and a multiple of what a
 * block takes at once. */
static void find_segments(scan_writer *x) {
  int64_t at_once = x->along ? (int64_t)BLOCK * x->each : 1;
  int64_t wanted = x->along ? 2048 / x->lines : (1 << 18) / x->lines;
  int64_t most = x->end / (x->along ? 4 * at_once : 128);
  x->segments = smaller(smaller(wanted, most), MAX_SEGMENTS);
  if (x->segments < 2 || x->space.rank + 2 > IR_MAX_RANK) x->segments = 1;
  x->segment = cg_ceildiv(cg_ceildiv(x->end, x->segments), at_once) * at_once;
  x->segments = cg_ceildiv(x->end, x->segment);
}

static void plan(scan_writer *x) {
  const cg_lines *l = x->l;
  const cg_view *views[] = {&l->result, &l->x};
  cg_space_make(&x->space, l->extents, 0, l->rank, views, 2, true);
  x->lines = cg_space_count(&x->space);
  x->end = l->first + l->count;
  x->acc = cg_accumulator(l->x.dtype);
  x->each = (uint32_t)(16 / ir_dtype_size_bytes(l->x.dtype));
  x->along = x->end >= SHORT_LINE && llabs(l->x_step) < lines_apart(x);
  x->width = width_of(x, &l->x, 1, l->x_step);
  x->out_width = width_of(x, &l->result, 0, l->result_step);
  if (ir_dtype_size_bytes(l->result.dtype) * x->each > 64) x->out_width = 1;
  find_segments(x);
}

static bool is_wide(const scan_writer *x) {
  int64_t reach = cg_space_reach(&x->space) + (x->end + BLOCK * x->each) * llabs(x->l->x_step) +
                  (x->end + BLOCK * x->each) * llabs(x->l->result_step) +
                  x->lines * (x->segments + 1);
  return reach > CG_NARROW_REACH;
}

/* ---- text ---- */
/* Integers wrap around. */
static const char start_body[] = "  $A carry = 0;\n"
                                 "  for (int s = 0; s < (int)blockIdx.y; s++)\n"
                                 "    carry += (($A *)p.at[$parts])[s * $lines + line];\n";

static const char segment_body[] =
    "  const ix begin = (ix)blockIdx.y * $segment;\n"
    "  const ix end = begin + $segment < $end ? begin + $segment : $end;\n"
    "  const $X *x = (const $X *)p.at[$x] + ox;\n"
    "  $Y *y = ($Y *)p.at[$y] + oy;\n";

static const char across_body[] = "#pragma unroll 8\n"
                                  "  for (ix j = begin; j < end; j++) {\n"
                                  "    carry += ($A)$get(x[j * $xs]);\n"
                                  "    if (j >= $first) y[(j - $first) * $ys] = $of(($V)carry);\n"
                                  "  }\n";

/* before: the sum of earlier threads of the warp, then of earlier warps too. */
static const char along_body[] =
    "  __shared__ $A part[$warps];\n"
    "  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;\n"
    "  for (ix base = begin; base < end; base += $T * $E) {\n"
    "    const ix at = base + (ix)threadIdx.x * $E;\n"
    "    vx in;\n"
    "    $A sums[$E], total = 0, before = 0, all = 0;\n"
    "$load"
    "#pragma unroll\n"
    "    for (int e = 0; e < $E; e++) {\n"
    "      if (at + e < end) total += ($A)$get(in.e[e]);\n"
    "      sums[e] = total;\n"
    "    }\n"
    "#pragma unroll\n"
    "    for (int d = 1; d < 32; d *= 2) {\n"
    "      const $A other = __shfl_xor_sync(WEIR_ALL, total, d);\n"
    "      if (lane & d) before += other;\n"
    "      total += other;\n"
    "    }\n"
    "    __syncthreads();\n"
    "    if (lane == 0) part[warp] = total;\n"
    "    __syncthreads();\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < $warps; i++) {\n"
    "      if (i == warp) before += all;\n"
    "      all += part[i];\n"
    "    }\n"
    "    before += carry;\n"
    "    carry += all;\n"
    "$store"
    "  }\n";

static const char load_words[] =
    "    if (at + $E <= end) {\n"
    "$words"
    "    } else {\n"
    "#pragma unroll\n"
    "      for (int e = 0; e < $E; e++) in.e[e] = at + e < end ? x[at + e] : 0;\n"
    "    }\n";

static const char load_each[] =
    "#pragma unroll\n"
    "    for (int e = 0; e < $E; e++) in.e[e] = at + e < end ? x[(at + e) * $xs] : 0;\n";

static const char store_words[] =
    "    vy out;\n"
    "#pragma unroll\n"
    "    for (int e = 0; e < $E; e++) out.e[e] = $of(($V)(before + sums[e]));\n"
    "    if (at >= $first && at + $E <= end) {\n"
    "$words"
    "    } else {\n"
    "#pragma unroll\n"
    "      for (int e = 0; e < $E; e++)\n"
    "        if (at + e >= $first && at + e < end) y[at + e - $first] = out.e[e];\n"
    "    }\n";

static const char store_each[] =
    "#pragma unroll\n"
    "    for (int e = 0; e < $E; e++)\n"
    "      if (at + e >= $first && at + e < end)\n"
    "        y[(at + e - $first) * $ys] = $of(($V)(before + sums[e]));\n";

static const char *words_text(cg_writer *w, ir_dtype t, uint32_t n, bool store, const char *at) {
  strbuf body = cg_apart_begin(w);
  if (store) cg_put_vector_store(w, t, n, at, "out");
  else cg_put_vector_load(w, t, n, "in", at);
  return cg_apart_end(w, body);
}

static void put_along(const scan_writer *x) {
  cg_writer *w = x->w;
  const cg_lines *l = x->l;
  cg_put_vector(w, "vx", l->x.dtype, x->each);
  if (x->out_width > 1) cg_put_vector(w, "vy", l->result.dtype, x->each);
  cg_set_int(w, "E", x->each);
  cg_set_int(w, "warps", BLOCK / 32);
  cg_set(w, "words", words_text(w, l->x.dtype, x->each, false, "x + at"));
  cg_set(w, "load", cg_filled(w, x->width > 1 ? load_words : load_each));
  const char *to = cg_text(w, "y + (at - %s)", cg_number_text(w, l->first));
  cg_set(w, "words", words_text(w, l->result.dtype, x->each, true, to));
  cg_set(w, "store", cg_filled(w, x->out_width > 1 ? store_words : store_each));
  cg_put(w, along_body);
}

static void put_kernel(const scan_writer *x, const cg_view *parts) {
  cg_writer *w = x->w;
  const cg_lines *l = x->l;
  const char *names[] = {"oy", "ox"};
  bool is_float = ir_dtype_is_float(l->x.dtype);
  ir_dtype wide = is_float ? x->acc : IR_I64;
  cg_set_int(w, "T", BLOCK);
  cg_set_number(w, "lines", x->lines);
  cg_set(w, "A", is_float ? cg_native(x->acc) : "unsigned long long");
  cg_set(w, "V", cg_native(wide));
  cg_set(w, "of", cg_of(w, l->result.dtype, wide));
  cg_set(w, "get", cg_get(w, l->x.dtype));
  cg_set(w, "X", cg_storage(l->x.dtype));
  cg_set(w, "Y", cg_storage(l->result.dtype));
  cg_set_address(w, "x", &l->x);
  cg_set_address(w, "y", &l->result);
  cg_set_address(w, "parts", parts);
  cg_set_number(w, "xs", l->x_step);
  cg_set_number(w, "ys", l->result_step);
  cg_set_number(w, "first", l->first);
  cg_set_number(w, "end", x->end);
  cg_set_number(w, "segment", x->segment);
  if (x->along) cg_put(w, "  const ix line = (ix)blockIdx.x;\n");
  else
    cg_put(w, "  const ix line = (ix)blockIdx.x * $T + (ix)threadIdx.x;\n"
              "  if (line >= $lines) return;\n");
  cg_put(w, "  ix oy = 0, ox = 0;\n");
  cg_put_offsets(w, &x->space, "line", names, NULL, 0);
  cg_put(w, start_body);
  cg_put(w, segment_body);
  if (x->along) put_along(x);
  else cg_put(w, across_body);
}

/* ---- launches ---- */
/* Writes the launch for the sums of all segments but the last: [segment][line, as the scan numbers them]. */
static void write_parts(cg_kernel *k, const scan_writer *x, const cg_view *parts) {
  uint32_t rank = x->space.rank;
  cg_reduce r = {.code = IR_OP_SUM, .n_kept = rank + 1, .n_reduced = 1, .result = *parts};
  int64_t stride = 1;
  r.x = x->l->x;
  for (uint32_t d = rank; d-- > 0; stride *= x->space.extents[d]) {
    r.extents[d + 1] = x->space.extents[d];
    r.x.strides[d + 1] = x->space.strides[1][d];
    r.result.strides[d + 1] = stride;
  }
  r.extents[0] = x->segments - 1;
  r.x.strides[0] = x->segment * x->l->x_step;
  r.result.strides[0] = stride;
  r.extents[rank + 1] = x->segment;
  r.x.strides[rank + 1] = x->l->x_step;
  int64_t bytes = stride * (x->segments - 1) * (int64_t)ir_dtype_size_bytes(x->acc);
  k->scratch_bytes = (size_t)(cg_ceildiv(bytes, CG_ALIGN) * CG_ALIGN);
  cg_write_reduce_after(k, &r, (int64_t)k->scratch_bytes);
}

void cg_write_scan(cg_kernel *k, const cg_lines *l) {
  cg_writer w;
  scan_writer x = {.w = &w, .l = l};
  cg_view parts = {.start = CG_START_SCRATCH, .align = CG_ALIGN};
  if (cg_write_scan_across(k, l)) return;
  plan(&x);
  parts.dtype = x.acc;
  if (x.segments > 1) write_parts(k, &x, &parts);
  cg_begin(&w, k->memory, is_wide(&x), BLOCK);
  put_kernel(&x, &parts);
  cg_end(&w, k, "cumsum", x.along ? x.lines : cg_ceildiv(x.lines, BLOCK), x.segments);
}
