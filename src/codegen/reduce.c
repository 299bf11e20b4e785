/* Reductions: sum prod amax amin mean var.
 *
 * Two forms, by which dimension of the operand is densest in memory:
 *   rows      a reduced one: some threads of a warp, or a block, fold one result
 *   columns   a kept one: neighbouring threads fold neighbouring results, and the threads of a block
 *             that have the same column share its work
 * Either way a thread folds `items`, up to V elements loaded at once. Then the values of the threads of a
 * result are folded: first within warps, then across warps through shared memory, with a thread per result.
 * If there are few results and much to fold, the work is cut into segments (blockIdx.y), whose parts go to
 * scratch memory and are folded by a second launch: always in the same order, so results do not change from
 * run to run.
 *
 * var goes over the operand once (variance.c): a thread sums distances from its first element, and their
 * squares. Then counts, means and sums of squared distances from the means are folded. */
#include "codegen/reduce.h"

#include <stdlib.h>

enum { BLOCK = CG_REDUCE_BLOCK, MAX_SEGMENTS = 1024 };

/* ---- planning ---- */
static bool is_moment(ir_opcode code) { return code == IR_OP_MEAN || code == IR_OP_VAR; }

static ir_dtype acc_of(const cg_reduce *r) {
  ir_dtype t = r->x.dtype;
  if (is_moment(r->code)) return ir_dtype_is_float(t) ? cg_accumulator(t) : IR_F64;
  return cg_fold_dtype(ir_op_fold(r->code), t);
}

/* Moments are computed from sums. */
static ir_fold fold_of(ir_opcode code) { return is_moment(code) ? IR_FOLD_SUM : ir_op_fold(code); }

static int64_t densest(const cg_space *s) {
  int64_t step = llabs(cg_space_step(s, 0));
  return cg_space_run(s) > 1 && step > 0 ? step : INT64_MAX;
}

static uint32_t width_of(const reduce_writer *x) {
  const cg_view *v = &x->r->x;
  const cg_space *along = x->columns ? &x->kept : &x->reduced;
  const cg_space *across = x->columns ? &x->reduced : &x->kept;
  uint32_t width = cg_widest(ir_dtype_size_bytes(v->dtype), 8);
  if (cg_space_step(along, 0) != 1) return 1;
  width = cg_vector_width(v, along, 0, width);
  while (width > 1 && !cg_rows_aligned(v, across, 0, width)) width /= 2;
  return width;
}

static int64_t items_of(const cg_space *s, uint32_t width) {
  return cg_space_count(s) / cg_space_run(s) * cg_ceildiv(cg_space_run(s), width);
}

static uint32_t threads_of_row(int64_t items) {
  return items <= 4 ? 1 : items <= 32 ? 8 : items <= 256 ? 32 : BLOCK;
}

static uint32_t threads_side_by_side(int64_t items) {
  uint32_t threads = 1;
  while (threads < 32 && threads < items) threads *= 2;
  return threads;
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* So many segments that the blocks fill a large GPU several times, while each still has enough work. */
static int64_t segments_of(const reduce_writer *x) {
  int64_t wanted, most;
  if (x->columns) {
    wanted = 2048 / cg_ceildiv(x->results, x->threads);
    most = x->items / (BLOCK / x->threads * 8);
  } else {
    wanted = 1024 / x->results;
    most = x->threads == BLOCK ? x->items / (BLOCK * 4) : 1;
  }
  int64_t segments = smaller(smaller(wanted, most), MAX_SEGMENTS);
  return segments > 1 ? segments : 1;
}

/* Plans the threads. With columns, a result is an item of V columns. */
static void plan(reduce_writer *x) {
  const cg_reduce *r = x->r;
  const cg_view *views[] = {&r->x, &r->result};
  uint32_t rank = r->n_kept + r->n_reduced;
  cg_space_make(&x->kept, r->extents, 0, r->n_kept, views, 2, true);
  cg_space_make(&x->reduced, r->extents, r->n_kept, rank, views, 1, true);
  x->columns = densest(&x->kept) < densest(&x->reduced);
  x->acc = acc_of(r);
  x->width = cg_space_count(&x->reduced) > 0 ? width_of(x) : 1;
  const cg_space *along = x->columns ? &x->kept : &x->reduced;
  x->tail = cg_space_run(along) % x->width != 0;
  x->results = x->columns ? items_of(&x->kept, x->width) : cg_space_count(&x->kept);
  x->items = cg_space_count(&x->reduced);
  if (!x->columns && x->items > 0) x->items = items_of(&x->reduced, x->width);
  x->threads = x->columns ? threads_side_by_side(x->results) : threads_of_row(x->items);
  x->segments = segments_of(x);
}

int64_t cg_reduce_plane_bytes(const reduce_writer *x) {
  int64_t bytes = cg_space_count(&x->kept) * x->segments * (int64_t)ir_dtype_size_bytes(x->acc);
  return cg_ceildiv(bytes, CG_ALIGN) * CG_ALIGN;
}

static bool is_wide(const reduce_writer *x) {
  return cg_space_reach(&x->kept) + cg_space_reach(&x->reduced) + BLOCK > CG_NARROW_REACH;
}

/* ---- one pass over what is folded ---- */
static const char pass_tail[] =
    "    if (left >= $V) {\n"
    "$load"
    "    } else {\n"
    "#pragma unroll\n"
    "      for (int e = 0; e < $V; e++) $x.e[e] = e < left ? ((const $S *)p.at[$p] + at)[e] : 0;\n"
    "    }\n";

void cg_reduce_put_load(const reduce_writer *x, uint32_t address, const char *to) {
  cg_writer *w = x->w, piece;
  const char *storage = cg_storage(x->r->x.dtype);
  cg_begin(&piece, w->memory, w->wide, BLOCK);
  cg_put_vector_load(&piece, x->r->x.dtype, x->width, to,
                     cg_text(w, "(const %s *)p.at[%u] + at", storage, address));
  const char *load = piece.body.data;
  cg_line(w, "    v %s;\n", to);
  cg_set_int(w, "V", x->width);
  cg_set(w, "load", load);
  cg_set(w, "S", storage);
  cg_set(w, "x", to);
  cg_set_int(w, "p", address);
  cg_put(w, x->tail ? pass_tail : load);
}

void cg_reduce_put_at(const reduce_writer *x) {
  cg_writer *w = x->w;
  const char *names[] = {"at"}, *width = cg_text(w, "%u", x->width);
  cg_space walked = x->reduced;
  walked.n_views = 1;
  cg_put(w, "    ix at = ox, c = 0;\n");
  if (x->columns) cg_put_offsets(w, &walked, "item", names, NULL, 0);
  else {
    cg_put_offsets(w, &walked, "item", names, "c", cg_ceildiv(cg_space_run(&x->reduced), x->width));
    cg_line(w, "    at += c * %s;\n",
            x->width > 1 ? width : cg_number_text(w, cg_space_step(&x->reduced, 0)));
  }
  if (cg_reduce_is_guarded(x))
    cg_line(w, "    const ix left = %s - c * %s;\n", cg_number_text(w, cg_space_run(&x->reduced)),
            width);
}

void cg_reduce_set_names(const reduce_writer *x) {
  cg_writer *w = x->w;
  cg_set(w, "acc", cg_native(x->acc));
  cg_set_int(w, "V", x->width);
  cg_set_int(w, "T", x->threads);
  cg_set_int(w, "warps", BLOCK / 32);
  cg_set_int(w, "half", (x->threads < 32 ? x->threads : 32) / 2);
  cg_set(w, "get", cg_get(w, x->r->x.dtype));
  cg_set(w, "guard", cg_reduce_is_guarded(x) ? "if (e >= left) continue;" : "");
}

static void put_pass(const reduce_writer *x, uint32_t address) {
  cg_writer *w = x->w;
  cg_reduce_set_names(x);
  cg_set(w, "start", cg_fold_start(fold_of(x->r->code), x->acc));
  cg_set(w, "fold", x->fold);
  cg_put(w, "  $acc a[$V];\n"
            "#pragma unroll\n"
            "  for (int e = 0; e < $V; e++) a[e] = $start;\n"
            "  if (result < results) {\n"
            "#pragma unroll 4\n"
            "  for (ix item = begin + lane; item < end; item += lanes) {\n");
  cg_reduce_put_at(x);
  cg_reduce_put_load(x, address, "x");
  cg_put(w, "#pragma unroll\n"
            "    for (int e = 0; e < $V; e++) {\n"
            "      $guard\n"
            "      a[e] = $fold(a[e], ($acc)$get(x.e[e]));\n"
            "    }\n"
            "  }\n"
            "  }\n");
}

/* ---- the threads of a result ---- */
static const char rows_fold[] = "#pragma unroll\n"
                                "  for (int e = 1; e < $V; e++) a[0] = $fold(a[0], a[e]);\n"
                                "#pragma unroll\n"
                                "  for (int d = $half; d > 0; d /= 2) a[0] = $fold(a[0], "
                                "__shfl_xor_sync(WEIR_ALL, a[0], d));\n";

static const char block_fold[] =
    "  __syncthreads();\n"
    "  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = a[0];\n"
    "  __syncthreads();\n"
    "  a[0] = part[0];\n"
    "#pragma unroll\n"
    "  for (int i = 1; i < $warps; i++) a[0] = $fold(a[0], part[i]);\n";

/* Neighbouring threads always access neighbouring words of shared memory. */
static const char columns_fold[] =
    "#pragma unroll\n"
    "  for (int d = $T; d < 32; d *= 2)\n"
    "#pragma unroll\n"
    "    for (int e = 0; e < $V; e++) a[e] = $fold(a[e], __shfl_xor_sync(WEIR_ALL, a[e], d));\n"
    "  __syncthreads();\n"
    "  if (threadIdx.x % 32 < $T) {\n"
    "#pragma unroll\n"
    "    for (int e = 0; e < $V; e++) part[threadIdx.x / 32][e * $T + side] = a[e];\n"
    "  }\n"
    "  __syncthreads();\n"
    "  if (threadIdx.x < $T * $V) {\n"
    "    $acc t = part[0][threadIdx.x];\n"
    "#pragma unroll\n"
    "    for (int i = 1; i < $warps; i++) t = $fold(t, part[i][threadIdx.x]);\n"
    "    part[0][threadIdx.x] = t;\n"
    "  }\n"
    "  __syncthreads();\n"
    "#pragma unroll\n"
    "  for (int e = 0; e < $V; e++) a[e] = part[0][e * $T + side];\n";

static void put_fold(const reduce_writer *x) {
  cg_writer *w = x->w;
  cg_put(w, x->columns ? columns_fold : rows_fold);
  if (!x->columns && x->threads > 32) cg_put(w, block_fold);
}

/* ---- the kernel ---- */
static const char rows_place[] =
    "  const int lane = (int)threadIdx.x % $T, side = 0;\n"
    "  const ix lanes = $T;\n"
    "  const ix result = (ix)blockIdx.x * $R + (ix)threadIdx.x / $T;\n";
static const char columns_place[] =
    "  const int side = (int)threadIdx.x % $T, lane = (int)threadIdx.x / $T;\n"
    "  const ix lanes = $R;\n"
    "  const ix result = (ix)blockIdx.x * $T + side;\n";

static const char place[] = "  const ix results = $results, each = $each, all = $all;\n"
                            "  const ix begin = (ix)blockIdx.y * each;\n"
                            "  const ix end = begin + each < all ? begin + each : all;\n"
                            "  ix ox = 0, oy = 0, column = 0;\n"
                            "  (void)side, (void)column;\n";

static void put_place(const reduce_writer *x) {
  cg_writer *w = x->w;
  const char *names[] = {"ox", "oy"};
  const char *threads = cg_text(w, "%u", x->threads), *rest = cg_text(w, "%u", BLOCK / x->threads);
  cg_set(w, "T", threads);
  cg_set(w, "R", rest);
  cg_put(w, x->columns ? columns_place : rows_place);
  cg_set_number(w, "results", x->results);
  cg_set_number(w, "each", cg_ceildiv(x->items, x->segments));
  cg_set_number(w, "all", x->items);
  cg_put(w, place);
  int64_t run = cg_space_run(&x->kept);
  if (x->columns) {
    cg_put_offsets(w, &x->kept, "result", names, "column", cg_ceildiv(run, x->width));
    cg_line(w, "  column *= %u;\n", x->width);
    cg_line(w, "  ox += column * %s;\n", cg_number_text(w, cg_space_step(&x->kept, 0)));
    cg_line(w, "  oy += column * %s;\n", cg_number_text(w, cg_space_step(&x->kept, 1)));
    if (x->tail) cg_line(w, "  const ix left = %s - column;\n", cg_number_text(w, run));
  } else cg_put_offsets(w, &x->kept, "result", names, NULL, 0);
  cg_put_vector(w, "v", x->r->x.dtype, x->width);
}

static void put_shared(const reduce_writer *x) {
  cg_writer *w = x->w;
  const char *acc = cg_native(x->acc);
  if (x->columns)
    cg_line(w, "  __shared__ %s part[%d][%u];\n", acc, BLOCK / 32, x->threads * x->width);
  else if (x->threads > 32) cg_line(w, "  __shared__ %s part[%u];\n", acc, x->threads / 32);
}

/* Writes results, or parts of them to scratch memory: [segment][result]. */
void cg_reduce_put_results(const reduce_writer *x, int64_t parts_at, const char *value) {
  cg_writer *w = x->w;
  bool parts = x->segments > 1;
  cg_view scratch = {.start = CG_START_SCRATCH, .offset_bytes = parts_at, .dtype = x->acc};
  cg_view to = parts ? scratch : x->r->result;
  const char *step = parts ? "1" : cg_number_text(w, cg_space_step(&x->kept, 1));
  if (!x->columns) step = "0";
  if (parts && x->columns) {
    const char *run = cg_number_text(w, cg_space_run(&x->kept));
    const char *items = cg_number_text(w, cg_ceildiv(cg_space_run(&x->kept), x->width));
    cg_line(w, "  const ix first = (result - column / %u) / %s * %s + column;\n", x->width, items,
            run);
  }
  if (parts)
    cg_line(w, "  oy = (ix)blockIdx.y * %s + %s;\n", cg_number_text(w, cg_space_count(&x->kept)),
            x->columns ? "first" : "result");
  cg_set(w, "W", x->columns ? cg_text(w, "%u", x->width) : "1");
  cg_set(w, "guard", x->columns && x->tail ? "if (e >= left) continue;" : "");
  cg_set(w, "S", cg_storage(to.dtype));
  cg_set_address(w, "p", &to);
  cg_set(w, "step", step);
  cg_set(w, "of", cg_of(w, to.dtype, x->acc));
  cg_set(w, "value", value);
  cg_put(w, "  if (result < results && lane == 0) {\n"
            "#pragma unroll\n"
            "    for (int e = 0; e < $W; e++) {\n"
            "      $guard\n"
            "      (($S *)p.at[$p] + oy)[e * $step] = $of($value);\n"
            "    }\n"
            "  }\n");
}

static void put_kernel(const reduce_writer *x) {
  cg_writer *w = x->w;
  put_place(x);
  if (x->r->code == IR_OP_VAR) {
    cg_put_variance(x);
    return;
  }
  put_shared(x);
  put_pass(x, cg_address(w, &x->r->x));
  put_fold(x);
  if (x->r->code == IR_OP_MEAN && x->segments == 1)
    cg_reduce_put_results(x, 0, cg_text(w, "(a[e] / %s)", cg_f64_text(w, x->r->divisor)));
  else cg_reduce_put_results(x, x->parts_at, "a[e]");
}

/* The reduction that folds the parts: [segment][result, as the first launch numbers them] in scratch memory. */
static cg_reduce second_of(cg_kernel *k, const reduce_writer *x) {
  cg_reduce second = {.code = x->r->code,
                      .n_kept = x->kept.rank,
                      .n_reduced = 1,
                      .result = x->r->result,
                      .divisor = x->r->divisor,
                      .x = {.start = CG_START_SCRATCH,
                            .offset_bytes = x->parts_at,
                            .dtype = x->acc,
                            .align = CG_ALIGN}};
  int64_t stride = 1;
  for (uint32_t d = x->kept.rank; d-- > 0;) {
    second.extents[d] = x->kept.extents[d];
    second.result.strides[d] = x->kept.strides[1][d];
    second.x.strides[d] = stride;
    stride *= x->kept.extents[d];
  }
  second.extents[x->kept.rank] = x->segments;
  second.x.strides[x->kept.rank] = stride;
  size_t bytes = (size_t)(x->parts_at + cg_reduce_planes(x->r->code) * cg_reduce_plane_bytes(x));
  if (bytes > k->scratch_bytes) k->scratch_bytes = bytes;
  return second;
}

static void write_launch(cg_kernel *k, const reduce_writer *planned) {
  cg_writer w;
  reduce_writer x = *planned;
  const cg_reduce *r = x.r;
  x.w = &w;
  cg_begin(&w, k->memory, is_wide(&x), BLOCK);
  x.fold = cg_fold_name(&w, fold_of(r->code), x.acc);
  put_kernel(&x);
  const char *name = cg_text(&w, "%s_%s", ir_op_info_of(r->code)->name, ir_dtype_text(r->x.dtype));
  cg_end(&w, k, name, cg_ceildiv(x.results, x.columns ? x.threads : BLOCK / x.threads), x.segments);
}

/* Writes the launch, and the one that folds its parts. */
static void write_folds(cg_kernel *k, const reduce_writer *x) {
  write_launch(k, x);
  if (x->segments == 1) return;
  cg_reduce second = second_of(k, x);
  reduce_writer y = {.r = &second, .of_parts = true, .plane_bytes = cg_reduce_plane_bytes(x)};
  plan(&y);
  y.segments = 1;
  write_launch(k, &y);
}

void cg_write_reduce_after(cg_kernel *k, const cg_reduce *r, int64_t taken) {
  reduce_writer x = {.r = r, .parts_at = taken};
  plan(&x);
  write_folds(k, &x);
}

void cg_write_reduce(cg_kernel *k, const cg_reduce *r) { cg_write_reduce_after(k, r, 0); }
