/* Large cases for tests of kernels: those that reach every form a kernel of a GPU takes, and random ones
 * around the sizes at which forms change. */
#ifndef WEIR_TESTS_CONFORM_KERNEL_LARGE_H
#define WEIR_TESTS_CONFORM_KERNEL_LARGE_H

#include "conform/kernel_cases.h"

/* What the test that includes this does with a window. */
static bool run_window(const testcase *t, const window *w);
static uint64_t n_windows;

static const char *const large[] = {
    /* vectors, with and without a rest; several items of a thread; elements of different sizes */
    "a : bf16[300, 264]; b : bf16[264]; y = add(a, b)",
    "a : bf16[37, 267]; b : bf16[37, 1]; y = mul(a, b)",
    "a : bf16[2200000]; y = relu(a)",
    "a : f32[700, 2048]; y = neg(a)",
    "a : i8[5000001]; y = set(a)",
    "a : bool[70, 64]; b : f64[70, 64]; y = where(a, b, 0.5)",
    "a : f16[90, 100]; y = cast(a, f64)",
    "a : f32[300, 500]; y = transpose(a)",
    /* tiles: words of several elements, of one, and where rows are not aligned; batches */
    "a : bf16[200, 130]; y = transpose(a)",
    "a : bf16[131, 77]; y = transpose(a)",
    "a : i8[256, 132]; y = transpose(a)",
    "a : i8[70, 257]; y = transpose(a)",
    "a : f64[65, 40]; y = transpose(a)",
    "a : f16[3, 70, 4, 64]; y = permute(a, [0, 3, 2, 1])",
    "a : bool[20, 5, 48]; y = permute(a, [2, 1, 0])",
    "a : f16[2000]; y = gelu(a)",
    "a : bf16[2000]; y = gelu(a, approximate=tanh)",
    "a : f32[2000]; y = gelu(a)",
    "a : bf16[2000]; y = silu(a)",
    "y = uniform([3000], lo=-2, hi=5, dtype=bf16)",
    /* rows: one thread, part of a warp, a warp, a block, segments */
    "a : f32[90, 3]; y = sum(a, dims=[1])",
    "a : f32[90, 20]; y = prod(a, dims=[1])",
    "a : bf16[90, 1000]; y = amax(a, dims=[1])",
    "a : bf16[9, 9000]; y = sum(a, dims=[1])",
    "a : bf16[3, 70000]; y = sum(a, dims=[1])",
    "a : f32[2, 90001]; y = mean(a, dims=[1])",
    "a : i32[90001]; y = amin(a, dims=[0])",
    "a : f16[4, 5000]; y = var(a, dims=[1], correction=1)",
    "a : bf16[40, 30, 50]; y = sum(a, dims=[0, 2])",
    /* columns, likewise */
    "a : f32[3000, 24]; y = sum(a, dims=[0])",
    "a : bf16[4096, 40]; y = sum(a, dims=[0])",
    "a : i8[2000, 33]; y = amax(a, dims=[0])",
    "a : f32[700, 24]; y = var(a, dims=[0])",
    "a : i64[2000, 8]; y = mean(a, dims=[0])",
    "a : f64[5, 300, 64]; y = sum(a, dims=[1])",
    "a : bf16[6, 5000, 3]; y = sum(a, dims=[1], keepdim=true)",
    "a : bf16[2100, 304]; y = amin(a, dims=[0])",
    "a : bf16[1500, 267]; y = sum(a, dims=[0])",
    "a : f32[2000, 300]; y = mean(a, dims=[0])",
    /* variances in segments: columns, rows, both with a rest */
    "a : bf16[2100, 304]; y = var(a, dims=[0])",
    "a : f16[5000, 13]; y = var(a, dims=[0], correction=1)",
    "a : f32[4, 2000, 18]; y = var(a, dims=[1], keepdim=true)",
    "a : f32[2, 30001]; y = var(a, dims=[1])",
    "a : i32[60, 700]; y = var(a, dims=[0, 1])",
    /* whole rows: in registers of a warp, of blocks of all sizes, read again; side by side */
    "a : f16[9, 1000]; y = softmax(a)",
    "a : bf16[3, 8192]; y = softmax(a)",
    "a : f32[3, 8191]; y = softmax(a)",
    "a : bf16[2, 16384]; y = softmax(a)",
    "a : bf16[2, 40000]; y = softmax(a)",
    "a : f64[2, 3000]; y = softmax(a)",
    /* side by side: vectors, with a rest, one by one; lanes in a warp, of several, in large blocks */
    "a : f32[300, 64]; y = softmax(a, dim=0)",
    "a : bf16[5000, 272]; y = softmax(a, dim=0)",
    "a : bf16[700, 267]; y = softmax(a, dim=0)",
    "a : f16[6, 1000]; y = softmax(a, dim=0)",
    "a : f64[3, 40, 70]; y = softmax(a, dim=1)",
    "a : i8[50, 4000]; y = softmax(a, dim=0)",
    "a : bf16[2, 4200, 36]; y = softmax(a, dim=1)",
    "a : i32[5, 70]; y = softmax(a)",
    "a : bf16[3, 8192]; b : bf16[8192]; c : bf16[8192]; y = layer_norm(a, b, c)",
    "a : f32[2, 1111]; b : f32[1111]; y = layer_norm(a, weight=b)",
    "a : f16[3, 4096]; b : f16[4096]; y = rms_norm(a, b)",
    "a : bf16[2, 50000]; b : bf16[50000]; y = rms_norm(a, b)",
    "a : f64[9, 64]; y = rms_norm(a)",
    /* running sums: along lines and across them, whole and in segments, with rests */
    "a : bf16[5, 8200]; y = cumsum(a, dim=1)",
    "a : f32[3, 30001]; y = cumsum(a, dim=1)",
    "a : bf16[40000]; y = cumsum(a, dim=0)",
    "a : i8[3, 20011]; y = cumsum(a, dim=1)",
    "a : f16[70, 90]; y = cumsum(a, dim=1)",
    "a : f64[3000, 20]; y = cumsum(a, dim=0)",
    "a : bf16[1300, 70]; y = cumsum(a, dim=0)",
    "a : i32[3, 700, 9]; y = cumsum(a, dim=1)",
    /* orders: short lines in one block, a line in one, pieces of lines; beginnings of them. Up to 1,024
     * elements by a network, longer ones by digits */
    "a : f32[300, 5]; y = argsort(a, dim=1)",
    "a : bf16[7, 300]; y = argsort(a, dim=1, descending=true)",
    "a : i8[2, 3000]; y = argsort(a, dim=1)",
    "a : f16[9001]; y = argsort(a, dim=0)",
    "a : bf16[2, 8192]; y = argsort(a, dim=1)",
    "a : f32[2, 4096]; y = argsort(a, dim=1, descending=true)",
    "a : i32[1025, 2]; y = topk_index(a, k=1000, dim=0)",
    "a : u8[2000]; y = topk(a, k=100, dim=0)",
    "a : bool[1500]; y = argsort(a, dim=0, descending=true)",
    "a : i32[2, 5000]; y = topk(a, k=5, dim=1)",
    "a : bf16[4100, 2]; y = topk_index(a, k=4099, dim=0)",
    "a : f32[13000]; y = topk(a, k=700, dim=0)",
    "a : f64[600]; y = topk(a, k=20, dim=0)",
    /* rows found by an index */
    "a : bf16[100, 64]; b : i64[50]; y = index_select(a, b, dim=0)",
    "a : f32[30, 70]; b : i32[40, 70]; y = gather(a, b, dim=0)",
    "a : f32[30, 70]; b : i32[40, 60]; c : f32[40, 60]; y = scatter(a, b, c, dim=0)",
    /* products by groups: several bands of tiles, few rows per group, sums per group */
    "a : bf16[2200, 8]; b : i64[2200]; c : bf16[1, 8, 264]; y = grouped_matmul(a, c, b)",
    "a : f16[90, 72]; b : i32[90]; c : f16[40, 72, 136]; y = grouped_matmul(a, c, b, dtype=f32)",
    "a : bf16[200, 136]; b : i64[200]; c : bf16[200, 264]; y = grouped_outer(a, c, b, 2)",
    /* products */
    "a : i32[100, 70]; b : i32[70, 90]; y = matmul(a, b)",
    "a : f64[3, 40, 17]; b : f64[17, 50]; y = matmul(a, b)",
    "a : bf16[3, 33, 20]; b : bf16[40, 20]; c : bf16[40]; y = linear(a, b, c)",
    "a : i8[65, 40]; b : i8[40]; y = matmul(a, b)",
    "a : f32[2, 70, 40]; b : f32[2, 130, 40]; c : f32[2, 130, 600]; y = sdpa(a, b, c)",
    "a : bf16[2, 3, 70, 40]; b : bf16[3, 130, 40]; c : bf16[3, 130, 16]; y = sdpa(a, b, c, "
    "causal=true)",
    "a : f16[2, 65, 128]; b : f16[2, 63, 128]; c : f16[2, 63, 64]; y = sdpa(a, b, c, scale=-0.2)",
    "a : bf16[3, 200, 32]; b : bf16[3, 70, 32]; c : bf16[3, 70, 128]; y = sdpa(a, b, c, "
    "causal=true)",
    "a : f32[2, 3, 70, 40]; b : f32[3, 130, 40]; c : f32[3, 130, 100]; y = sdpa(a, b, c, "
    "causal=true)",
    "a : f32[2, 33, 128]; b : f32[2, 40, 128]; c : f32[2, 40, 5]; y = sdpa(a, b, c, scale=-0.2)",
    "a : bf16[6, 70, 9]; b : bf16[90, 9]; c : bf16[6, 90, 24]; y = sdpa(a, b, c, causal=true)",
};

/* The case, whole and in a window; false: no such program. */
static bool run_text(const char *body, bool special) {
  testcase t = {.p = {.n_inputs = 0, .special = special}};
  ir_module_init(&t.module, &memory_default);
  t.text = arena_printf(&memory, "fusion c { %s; return y }\n", body);
  bool good = text_parse(&t.module, "case", t.text, strlen(t.text)) == STATUS_OK;
  if (good) {
    const ir_func *f = t.module.funcs.data[0];
    ir_env_init(&t.env, t.module.funcs.data[0], &memory);
    t.op = ir_op_at(f, f->order.data[0]);
    int64_t bound = strstr(body, "i64[50]") || strstr(body, "i32[40,") ? 30 : -1;
    if (strstr(body, "grouped")) bound = 2;
    for (; t.p.n_inputs < f->inputs.len; t.p.n_inputs++)
      t.p.index_bound[t.p.n_inputs] = t.p.n_inputs == 1 ? bound : -1;
    good = evaluate(&t);
  }
  for (int i = 0; good && i < 2; i++, n_windows++) {
    window w = random_window(&t.expected, i == 0);
    (void)EXPECT(run_window(&t, &w));
  }
  ir_module_destroy(&t.module);
  return good;
}

static status run_large(void *context) {
  (void)EXPECT(run_text(context, false));
  return STATUS_OK;
}

/* Every `step`-th of the list, whatever strides come out: some of them dense. */
static void run_listed(uint64_t seed, size_t from, size_t step) {
  for (size_t i = from; i < sizeof large / sizeof *large; i += step) {
    rng_state = (i << 8 | seed) << 32;
    arena_init(&memory, &memory_default);
    (void)EXPECT(memory_guard(run_large, (void *)(uintptr_t)large[i]) == STATUS_OK);
    arena_destroy(&memory);
  }
}

/* ---- random ones ---- */
enum { MOST_ELEMENTS = 60000 };

/* Up to three extents: around powers of two, lengths of rows and blocks, now and then 0 or 1. */
static shape large_shape(void) {
  static const int64_t around[] = {2, 8, 31, 64, 128, 256, 511, 1024, 2048, 4096, 8192, 30000};
  shape s = {.rank = (uint32_t)between(1, 3)};
  int64_t left = MOST_ELEMENTS;
  for (uint32_t i = 0; i < s.rank; i++) {
    int64_t n = around[below(12)] + (chance(50) ? 0 : between(-1, 3));
    s.d[i] = chance(2) ? 0 : chance(6) ? 1 : n < left ? n : left;
    if (s.d[i] > 1) left /= s.d[i];
    if (left < 1) left = 1;
  }
  return s;
}

static void put_dims(strbuf *b, const shape *s) {
  int64_t dims[8];
  uint32_t n = some_dims(s->rank, dims);
  strbuf_puts(b, ", dims=");
  put_list(b, dims, n);
  if (chance(40)) strbuf_puts(b, ", keepdim=true");
}

/* One operation in which a whole axis counts, or which turns axes. */
static const char *drawn_text(void) {
  static const char *const ops[] = {"sum",      "mean",       "var",  "amax", "amin", "softmax",
                                    "cumsum",   "argsort",    "topk", "mean", "var",  "permute",
                                    "rms_norm", "topk_index", "set",  "cast"};
  const char *op = ops[below(16)];
  shape s = large_shape();
  ir_dtype t = strcmp(op, "rms_norm") == 0 ? any_float() : any_dtype();
  int64_t dim = below(s.rank);
  strbuf b;
  strbuf_init(&b, &memory);
  strbuf_printf(&b, "a : %s", ir_dtype_text(t));
  put_list(&b, s.d, s.rank);
  strbuf_printf(&b, "; y = %s(a", op);
  if (op[0] == 'm' || op[0] == 'v' || op[1] == 'm' || strcmp(op, "sum") == 0) put_dims(&b, &s);
  if (op[0] == 'v' && chance(50)) strbuf_printf(&b, ", correction=%d", (int)below(2));
  if (strncmp(op, "topk", 4) == 0)
    strbuf_printf(&b, ", k=%lld", (long long)(chance(50) ? s.d[dim] / 9 : s.d[dim]));
  if (strstr("softmax cumsum argsort topk topk_index", op)) strbuf_printf(&b, ", dim=%d", (int)dim);
  if (strcmp(op, "permute") == 0)
    strbuf_puts(&b, s.rank == 3 ? ", [2, 0, 1]" : s.rank == 2 ? ", [1, 0]" : ", [0]");
  if (strcmp(op, "cast") == 0) strbuf_printf(&b, ", %s", ir_dtype_text(any_dtype()));
  strbuf_putc(&b, ')');
  return b.data;
}

/* Some are no programs: a mean of truths, the maximum of nothing. */
static status run_one_drawn(void *context) {
  uint64_t *n = context;
  *n += run_text(drawn_text(), chance(20));
  return STATUS_OK;
}

static void run_drawn(uint64_t seed, uint64_t count) {
  uint64_t ran = 0;
  for (uint64_t i = 0; i < count; i++) {
    rng_state = (seed << 32 | i << 8) + 5;
    unsigned before = test_failed;
    arena_init(&memory, &memory_default);
    (void)EXPECT(memory_guard(run_one_drawn, &ran) == STATUS_OK);
    arena_destroy(&memory);
    if (test_failed != before)
      fprintf(stderr, "drawn, seed %llu number %llu\n", (unsigned long long)seed,
              (unsigned long long)i);
  }
  (void)EXPECT(ran * 2 > count);
}

#endif
