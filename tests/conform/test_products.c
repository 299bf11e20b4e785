/* Products and attention that are large enough to be cut: against the reference, and bit for bit the same on
 * one, two and four threads and in the adversary's order of parts.
 *
 *   test_products [seed of the inputs] */
#include <stdlib.h>
#include <string.h>

#include "device/cpu/loops/loops.h"
#include "test.h"
#include <weir/weir.h>

static const char *const programs[] = {
    /* rows and columns that fill no tile; a depth that fills no panel */
    "a : f32[301, 131]; b : f32[131, 523]; y = matmul(a, b)",
    "a : f64[120, 513]; b : f64[513, 200]; y = matmul(a, b)",
    "a : f32[1100, 40]; b : f32[40, 270]; y = matmul(a, b)",
    "a : f32[7, 2000]; b : f32[2000, 700]; y = matmul(a, b)",
    /* one row, one column, a dot product, an outer product */
    "a : f32[3000]; b : f32[3000, 1100]; y = matmul(a, b)",
    "a : f32[2100, 1500]; b : f32[1500]; y = matmul(a, b)",
    "a : f32[20000]; b : f32[20000]; y = matmul(a, b)",
    "a : f32[2500, 1]; b : f32[1, 1100]; y = matmul(a, b)",
    "a : f32[3000, 400]; b : f32[400, 9]; y = matmul(a, b)",
    /* few rows by a matrix that is read where it lies, along k and along columns */
    "a : f32[1, 1037]; b : f32[1107, 1037]; c : f32[1107]; y = linear(a, b, c)",
    "a : f32[3, 777]; b : f32[1500, 777]; y = linear(a, b)",
    "a : f64[16, 300]; b : f64[2051, 300]; y = linear(a, b)",
    "a : bf16[2, 1333]; b : bf16[907, 1333]; c : bf16[907]; y = linear(a, b, c)",
    "a : bf16[11, 600]; b : bf16[700, 600]; y = linear(a, b)",
    "a : bf16[5, 777]; b : bf16[777, 2500]; y = matmul(a, b)",
    "a : bf16[1, 1000]; b : bf16[1000, 3001]; y = matmul(a, b, dtype=f32)",
    "a : f32[1000, 4]; b : bf16[1000, 2100]; y = matmul(transpose(a), b)",
    "a : i32[3, 500]; b : i32[1700, 500]; y = matmul(a, transpose(b))",
    "a : f32[30, 1, 300]; b : f32[30, 210, 300]; y = matmul(a, permute(b, [0, 2, 1]))",
    /* transposed operands and results */
    "a : f32[260, 400]; b : f32[260, 130]; y = matmul(transpose(a), b)",
    "a : f32[400, 260]; b : f32[130, 260]; y = matmul(a, transpose(b))",
    ("a : f32[260, 400]; b : f32[130, 260]; t = matmul(transpose(a), transpose(b));"
     "y = transpose(t)"),
    ("a : f32[300, 2, 100]; b : f32[100, 3, 200]; s = select(a, dim=1, index=1);"
     "t = select(b, dim=1, index=2); y = matmul(s, t)"),
    /* other dtypes, in and out */
    "a : bf16[300, 300]; b : bf16[300, 400]; y = matmul(a, b)",
    "a : f16[300, 300]; b : f16[300, 400]; y = matmul(a, b)",
    "a : bf16[300, 300]; b : bf16[400, 300]; c : bf16[400]; y = linear(a, b, c)",
    "a : bf16[301, 333]; b : bf16[333, 411]; y = matmul(a, b, dtype=f32)",
    "a : bf16[333, 301]; b : bf16[411, 333]; y = matmul(transpose(a), transpose(b), dtype=f32)",
    ("a : bf16[300, 2, 101]; b : bf16[101, 3, 200]; s = select(a, dim=1, index=1);"
     "t = select(b, dim=1, index=2); y = matmul(s, t)"),
    ("a : bf16[101, 300, 2]; b : bf16[101, 200, 3]; s = select(a, dim=2, index=1);"
     "t = select(b, dim=2, index=2); y = matmul(transpose(s), t)"),
    "a : bf16[60, 33, 45]; b : bf16[60, 45, 50]; y = matmul(a, b)",
    "a : bf16[300, 131]; b : f32[131, 200]; y = matmul(a, b)",
    "a : bf16[300, 131]; b : bf16[131, 200]; y = matmul(a, b, dtype=f64)",
    "a : i32[130, 300]; b : i32[300, 270]; y = matmul(a, b)",
    "a : i64[130, 300]; b : i64[300, 270]; y = matmul(a, b)",
    "a : i8[130, 300]; b : i8[300, 270]; y = matmul(a, b)",
    /* batches: many small products, few large ones, operands that repeat */
    "a : f32[500, 30, 40]; b : f32[500, 40, 50]; y = matmul(a, b)",
    "a : f32[3, 200, 150]; b : f32[3, 150, 210]; y = matmul(a, b)",
    "a : f32[4, 100, 150]; b : f32[150, 210]; y = matmul(a, b)",
    "a : f32[100, 150]; b : f32[7, 150, 110]; y = matmul(a, b)",
    "a : f32[9, 300, 100]; b : f32[260, 100]; c : f32[260]; y = linear(a, b, c)",
    "a : f32[40, 300]; b : f32[6, 170, 300]; c : f32[6, 170]; y = linear(a, b, c)",
    /* attention: blocks of queries and keys, with rests */
    "q : f32[1, 3, 300, 40]; k : f32[1, 3, 270, 40]; v : f32[1, 3, 270, 50]; y = sdpa(q, k, v)",
    "q : f32[2, 600, 16]; k : f32[2, 600, 16]; v : f32[2, 600, 16]; y = sdpa(q, k, v, causal=true)",
    ("q : f64[2, 200, 64]; k : f64[2, 333, 64]; v : f64[2, 333, 64];"
     "y = sdpa(q, k, v, causal=true, scale=0.3)"),
    ("q : bf16[2, 300, 64]; k : bf16[2, 300, 64]; v : bf16[2, 300, 64];"
     "y = sdpa(q, k, v, causal=true)"),
    "q : f16[2, 1, 64]; k : f16[2, 3000, 64]; v : f16[2, 3000, 64]; y = sdpa(q, k, v)",
    ("x : f32[2, 300, 3, 4, 16]; q = permute(select(x, dim=2, index=0), [0, 2, 1, 3]);"
     "k = permute(select(x, dim=2, index=1), [0, 2, 1, 3]);"
     "v = permute(select(x, dim=2, index=2), [0, 2, 1, 3]); y = sdpa(q, k, v, causal=true)"),
};

enum { MAX_INPUTS = 4 };

typedef struct example {
  weir_module *module;
  weir_fusion *f;
  weir_shapes *shapes;
  weir_array *in[MAX_INPUTS];
  const weir_dl_tensor *views[MAX_INPUTS];
  size_t n_in;
  weir_tensor result;
} example;

static uint64_t seed;

static weir_array *array_of(const example *e, weir_tensor t, bool fill) {
  int64_t extents[WEIR_MAX_RANK];
  size_t rank;
  weir_tensor_info info;
  weir_array *a = NULL;
  EXPECT_INT(weir_shapes_of(e->shapes, t, extents, &rank), WEIR_OK);
  EXPECT_INT(weir_tensor_describe(e->f, t, &info), WEIR_OK);
  EXPECT_INT(weir_array_create(info.dtype, extents, rank, NULL, &a), WEIR_OK);
  if (fill) EXPECT_INT(weir_array_fill(a, "normal", seed, info.name), WEIR_OK);
  return a;
}

static bool example_make(example *e, const char *body) {
  char text[1024];
  (void)snprintf(text, sizeof text, "fusion f { %s; return y }", body);
  *e = (example){0};
  if (!EXPECT_INT(weir_module_parse(body, text, strlen(text), NULL, &e->module), WEIR_OK)) {
    fprintf(stderr, "%s\n", weir_error());
    return false;
  }
  EXPECT_INT(weir_module_find(e->module, NULL, &e->f), WEIR_OK);
  EXPECT_INT(weir_shapes_create(e->f, &e->shapes), WEIR_OK);
  EXPECT_INT(weir_shapes_complete(e->shapes), WEIR_OK);
  for (; e->n_in < weir_fusion_input_count(e->f); e->n_in++) {
    weir_tensor t;
    EXPECT_INT(weir_fusion_input_at(e->f, e->n_in, &t), WEIR_OK);
    e->in[e->n_in] = array_of(e, t, true);
    e->views[e->n_in] = weir_array_tensor(e->in[e->n_in]);
  }
  EXPECT_INT(weir_fusion_output_at(e->f, 0, &e->result), WEIR_OK);
  return true;
}

static void example_destroy(example *e) {
  for (size_t i = 0; i < e->n_in; i++) weir_array_destroy(e->in[i]);
  weir_shapes_destroy(e->shapes);
  weir_module_destroy(e->module);
}

static weir_array *run(const example *e, const char *option, const char *value, bool definition) {
  weir_options *o;
  weir_program *p = NULL;
  weir_array *out = array_of(e, e->result, false);
  const weir_dl_tensor *view = weir_array_tensor(out);
  EXPECT_INT(weir_options_create(&o), WEIR_OK);
  EXPECT_INT(weir_options_set(o, option, value), WEIR_OK);
  EXPECT_INT(weir_compile(e->f, o, NULL, &p), WEIR_OK);
  weir_run_args args = {.struct_size = sizeof args,
                        .inputs = e->views,
                        .n_inputs = e->n_in,
                        .outputs = &view,
                        .n_outputs = 1,
                        .as_definition = definition};
  EXPECT_INT(weir_run(p, &args), WEIR_OK);
  weir_program_destroy(p);
  weir_options_destroy(o);
  return out;
}

static size_t bytes_of(const weir_array *a) {
  const weir_dl_tensor *t = weir_array_tensor(a);
  size_t n = t->dtype.bits / 8U;
  for (int d = 0; d < t->ndim; d++) n *= (size_t)t->shape[d];
  return n;
}

static bool same_bits(const weir_array *a, const weir_array *b) {
  return memcmp(weir_array_tensor(a)->data, weir_array_tensor(b)->data, bytes_of(a)) == 0;
}

static void expect_near(const example *e, const weir_array *value) {
  weir_array *reference = run(e, "threads", "1", true);
  weir_dtype least;
  weir_comparison c;
  EXPECT_INT(weir_fusion_least_dtype(e->f, e->result, &least), WEIR_OK);
  EXPECT_INT(weir_array_compare(value, reference, least, &c), WEIR_OK);
  if (!EXPECT(c.ok))
    fprintf(stderr, "differs by %g, relatively %g, allowed %g\n", c.max_abs, c.max_rel,
            c.tolerance);
  weir_array_destroy(reference);
}

static void test_program(const char *body) {
  static const char *const others[][2] = {
      {"threads", "2"}, {"threads", "4"}, {"adversary", "0"}, {"adversary", "3"}};
  example e;
  unsigned before = test_failed;
  if (example_make(&e, body)) {
    weir_array *one = run(&e, "threads", "1", false);
    expect_near(&e, one);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
      weir_array *other = run(&e, others[i][0], others[i][1], false);
      EXPECT(same_bits(one, other));
      weir_array_destroy(other);
    }
    weir_array_destroy(one);
  }
  if (test_failed != before) fprintf(stderr, "in %s\n", body);
  example_destroy(&e);
}

/* Rows [row, …) of a product, computed alone, have the bits they have in the whole. */
static const struct {
  const char *whole, *rows;
  int64_t row;
} windows[] = {
    {"a : f32[301, 600]; b : f32[600, 123]; y = matmul(a, b)",
     ("a : f32[301, 600]; b : f32[600, 123];"
      "y = matmul(slice(a, starts=[100, 0], stops=[147, 600]), b)"),
     100},
    {"a : f32[301, 600]; b : f32[123, 600]; c : f32[123]; y = linear(a, b, c)",
     ("a : f32[301, 600]; b : f32[123, 600]; c : f32[123];"
      "y = linear(slice(a, starts=[17, 0], stops=[18, 600]), b, c)"),
     17},
    {"a : f32[61, 531]; b : f32[150, 531]; y = linear(a, b)",
     ("a : f32[61, 531]; b : f32[150, 531];"
      "y = linear(slice(a, starts=[20, 0], stops=[27, 531]), b)"),
     20},
    {"a : f32[61, 531]; b : f32[150, 531]; y = linear(a, b)",
     ("a : f32[61, 531]; b : f32[150, 531];"
      "y = linear(slice(a, starts=[20, 0], stops=[36, 531]), b)"),
     20},
    {"a : f32[61, 531]; b : f32[531, 150]; y = matmul(a, b)",
     ("a : f32[61, 531]; b : f32[531, 150];"
      "y = matmul(slice(a, starts=[20, 0], stops=[23, 531]), b)"),
     20},
    {"a : bf16[61, 531]; b : bf16[150, 531]; y = linear(a, b)",
     ("a : bf16[61, 531]; b : bf16[150, 531];"
      "y = linear(slice(a, starts=[20, 0], stops=[21, 531]), b)"),
     20},
    {"a : bf16[61, 531]; b : bf16[150, 531]; y = linear(a, b)",
     ("a : bf16[61, 531]; b : bf16[150, 531];"
      "y = linear(slice(a, starts=[20, 0], stops=[33, 531]), b)"),
     20},
    {"a : bf16[61, 531]; b : bf16[531, 150]; y = matmul(a, b)",
     ("a : bf16[61, 531]; b : bf16[531, 150];"
      "y = matmul(slice(a, starts=[20, 0], stops=[22, 531]), b)"),
     20},
    /* not rounded to bf16: panels of all layouts, and few rows; an `a` along k and one that is turned */
    {"a : bf16[61, 531]; b : bf16[150, 531]; y = linear(a, b, dtype=f32)",
     ("a : bf16[61, 531]; b : bf16[150, 531];"
      "y = linear(slice(a, starts=[20, 0], stops=[21, 531]), b, dtype=f32)"),
     20},
    {"a : bf16[61, 531]; b : bf16[150, 531]; y = linear(a, b, dtype=f32)",
     ("a : bf16[61, 531]; b : bf16[150, 531];"
      "y = linear(slice(a, starts=[20, 0], stops=[45, 531]), b, dtype=f32)"),
     20},
    {"a : bf16[531, 61]; b : bf16[531, 150]; y = matmul(transpose(a), b, dtype=f32)",
     ("a : bf16[531, 61]; b : bf16[531, 150];"
      "y = matmul(transpose(slice(a, starts=[0, 33], stops=[531, 38])), b, dtype=f32)"),
     33},
    {"a : bf16[531, 61]; b : bf16[531, 150]; y = matmul(transpose(a), b, dtype=f32)",
     ("a : bf16[531, 61]; b : bf16[531, 150];"
      "y = matmul(transpose(slice(a, starts=[0, 33], stops=[531, 60])), b, dtype=f32)"),
     33},
    {"a : bf16[40, 601]; b : bf16[601, 9]; y = matmul(a, b, dtype=f32)",
     ("a : bf16[40, 601]; b : bf16[601, 9];"
      "y = matmul(slice(a, starts=[38, 0], stops=[40, 601]), b, dtype=f32)"),
     38},
    {"a : f64[61, 531]; b : f64[150, 531]; y = linear(a, b)",
     ("a : f64[61, 531]; b : f64[150, 531];"
      "y = linear(slice(a, starts=[20, 0], stops=[24, 531]), b)"),
     20},
    {"a : bf16[40, 600]; b : bf16[600, 9]; y = matmul(a, b)",
     ("a : bf16[40, 600]; b : bf16[600, 9];"
      "y = matmul(slice(a, starts=[38, 0], stops=[40, 600]), b)"),
     38},
    {"q : f32[700, 32]; k : f32[600, 32]; v : f32[600, 32]; y = sdpa(q, k, v)",
     ("q : f32[700, 32]; k : f32[600, 32]; v : f32[600, 32];"
      "y = sdpa(slice(q, starts=[501, 0], stops=[700, 32]), k, v)"),
     501},
};

static void test_windows(const char *level) {
  if (!cpu_vectors_choose(level)) return;
  for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
    example whole, rows;
    if (!example_make(&whole, windows[i].whole) || !example_make(&rows, windows[i].rows)) return;
    weir_array *all = run(&whole, "threads", "2", false), *some = run(&rows, "threads", "1", false);
    const weir_dl_tensor *t = weir_array_tensor(all);
    size_t row_bytes = (size_t)t->shape[1] * (t->dtype.bits / 8U);
    const char *from = (const char *)t->data + (size_t)windows[i].row * row_bytes;
    if (!EXPECT(memcmp(from, weir_array_tensor(some)->data, bytes_of(some)) == 0))
      fprintf(stderr, "in %s, %s\n", windows[i].rows, level);
    weir_array_destroy(all);
    weir_array_destroy(some);
    example_destroy(&whole);
    example_destroy(&rows);
  }
}

int main(int argc, char **argv) {
  static const char *const levels[] = {"baseline", "avx2", "avx512", "avx512_bf16"};
  seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) test_program(programs[i]);
  for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) test_windows(levels[i]);
  return test_finish();
}
