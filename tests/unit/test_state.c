/* What changes from run to run without anything being bound anew. As a program of its own it runs on the
 * device cpu; with arguments on another: test_state DEVICE [graph]. */
#include <math.h>

#include "test.h"
#include "weir/weir.h"

static const char *device = "cpu";
static bool graph;

/* ---- programs ---- */
static weir_program *compile(const char *text, const char *devices) {
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_program *p = NULL;
  weir_options *o = NULL;
  EXPECT_INT(weir_module_parse("test", text, strlen(text), NULL, &m), WEIR_OK);
  EXPECT_INT(weir_module_find(m, NULL, &f), WEIR_OK);
  EXPECT_INT(weir_options_create(&o), WEIR_OK);
  EXPECT_INT(weir_options_set(o, "device", device), WEIR_OK);
  if (devices) EXPECT_INT(weir_options_set(o, "devices", devices), WEIR_OK);
  if (graph) EXPECT_INT(weir_options_set(o, "graph", "true"), WEIR_OK);
  if (!EXPECT_INT(weir_compile(f, o, NULL, &p), WEIR_OK)) fprintf(stderr, "%s\n", weir_error());
  weir_options_destroy(o);
  weir_module_destroy(m);
  return p;
}

static weir_counts counts_of(const weir_program *p) {
  weir_counts n = {.struct_size = sizeof n};
  EXPECT_INT(weir_program_counts(p, &n), WEIR_OK);
  return n;
}

static weir_dl_tensor tensor(void *data, weir_dtype dtype, int64_t *shape, int rank) {
  return (weir_dl_tensor){.data = data,
                          .device = {1, 0},
                          .ndim = rank,
                          .dtype = weir_dtype_to_dl(dtype),
                          .shape = shape};
}

enum { MOST = 8 };
typedef struct call {
  const weir_dl_tensor *inputs[MOST], *outputs[MOST];
  size_t n_inputs, n_outputs;
  uint64_t seed;
} call;

static weir_status run(const weir_program *p, const call *c, bool as_definition) {
  weir_run_args args = {.struct_size = sizeof args,
                        .inputs = c->inputs,
                        .n_inputs = c->n_inputs,
                        .outputs = c->outputs,
                        .n_outputs = c->n_outputs,
                        .seed = c->seed,
                        .as_definition = as_definition};
  weir_status st = weir_run(p, &args);
  if (st != WEIR_OK) fprintf(stderr, "%s\n", weir_error());
  return st;
}

/* ---- seeds ---- */
enum { N = 96 };

static int differ(const float *a, const float *b) {
  int n = 0;
  for (int i = 0; i < N; i++) n += !(fabsf(a[i] - b[i]) < 1e-4F);
  return n;
}

/* A draw of its own, one in a body with others, one that streams cut into slices. */
static const char *const drawing = "fusion f {\n"
                                   "  x : f32[n, 8]\n"
                                   "  a = uniform([n, 8])\n"
                                   "  b = x + uniform([n, 8], lo=-1, hi=3)\n"
                                   "  c = exp(x) * uniform([8])\n"
                                   "  return a, b, c\n"
                                   "  schedule { c.outer_split(0, 3); c[0] = stream }\n"
                                   "}\n";

static void test_seeds(const char *text, const char *devices) {
  weir_program *p = compile(text, devices);
  float x[N], got[3][N], want[3][N], last[N] = {0};
  int64_t shape[] = {N / 8, 8};
  for (int i = 0; i < N; i++) x[i] = (float)(i % 7) / 4;
  weir_dl_tensor in = tensor(x, WEIR_F32, shape, 2), out[3], ref[3];
  call c = {.inputs = {&in}, .n_inputs = 1, .n_outputs = 3}, d = c;
  for (int k = 0; k < 3; k++) {
    out[k] = tensor(got[k], WEIR_F32, shape, 2);
    ref[k] = tensor(want[k], WEIR_F32, shape, 2);
    c.outputs[k] = &out[k];
    d.outputs[k] = &ref[k];
  }
  static const uint64_t seeds[] = {0, 1, 1, UINT64_C(0x123456789abcdef0), 0};
  for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
    c.seed = d.seed = seeds[i];
    EXPECT_INT(run(p, &c, false), WEIR_OK);
    EXPECT_INT(run(p, &d, true), WEIR_OK);
    EXPECT(memcmp(got[0], want[0], sizeof *got) == 0);
    for (int k = 1; k < 3; k++) EXPECT(differ(got[k], want[k]) == 0);
    if (i > 0) EXPECT_INT(memcmp(last, got[0], sizeof last) == 0, seeds[i] == seeds[i - 1]);
    memcpy(last, got[0], sizeof last);
  }
  weir_counts n = counts_of(p);
  EXPECT_INT(n.runs, sizeof seeds / sizeof *seeds);
  EXPECT_INT(n.bindings, 1);
  EXPECT_INT(n.loads, 1);
  weir_program_destroy(p);
}

/* ---- numbers ---- */
/* A learning rate and a step are inputs without dimensions. */
static void test_numbers(void) {
  weir_program *p = compile("fusion f { w : f32[n]; g : f32[n]; lr : f32; step : i64\n"
                            "  y = w - lr * g / (step + 1)\n  return y }",
                            NULL);
  float w[N], g[N], y[N], want[N], lr;
  int64_t shape[] = {N}, step;
  for (int i = 0; i < N; i++) w[i] = (float)i, g[i] = (float)(i % 5);
  weir_dl_tensor tw = tensor(w, WEIR_F32, shape, 1), tg = tensor(g, WEIR_F32, shape, 1);
  weir_dl_tensor tl = tensor(&lr, WEIR_F32, shape, 0), ts = tensor(&step, WEIR_I64, shape, 0);
  weir_dl_tensor ty = tensor(y, WEIR_F32, shape, 1);
  call c = {.inputs = {&tw, &tg, &tl, &ts}, .n_inputs = 4, .outputs = {&ty}, .n_outputs = 1};
  for (step = 0; step < 4; step++) {
    lr = 0.5F / (float)(step + 1);
    EXPECT_INT(run(p, &c, false), WEIR_OK);
    for (int i = 0; i < N; i++) want[i] = w[i] - lr * g[i] / (float)(step + 1);
    EXPECT_INT(differ(y, want), 0);
  }
  EXPECT_INT(counts_of(p).bindings, 1);
  EXPECT_INT(counts_of(p).loads, 1);
  weir_program_destroy(p);
}

int main(int argc, char **argv) {
  if (argc > 1) device = argv[1];
  graph = argc > 2;
  test_seeds(drawing, NULL);
  test_numbers();
  return test_finish();
}
