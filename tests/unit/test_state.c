/* What changes from run to run without anything being bound anew. As a program of its own it runs on the
 * device cpu; with arguments on another: test_state DEVICE [graph]. */
#include <math.h>
#include <stdlib.h>

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
  const int64_t *donated;
} call;

static weir_status run(const weir_program *p, const call *c, bool as_definition) {
  weir_run_args args = {.struct_size = sizeof args,
                        .inputs = c->inputs,
                        .n_inputs = c->n_inputs,
                        .outputs = c->outputs,
                        .n_outputs = c->n_outputs,
                        .seed = c->seed,
                        .as_definition = as_definition,
                        .donated = c->donated};
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

/* ---- donated inputs ---- */
/* A cache that grows by a row, and what is computed from all of it. */
static void test_cache(void) {
  enum { S = 12, W = 8 };
  weir_program *p = compile("fusion f { cache : f32[12, 8]; new : f32[1, 8]; at : i64\n"
                            "  y = update(cache, new, at, dim=0)\n"
                            "  z = sum(y, dims=[0])\n  return y, z }",
                            NULL);
  float cache[S * W], want[S * W], row[W], z[W];
  int64_t shape[] = {S, W}, one[] = {1, W}, at, gifts[] = {0, -1};
  for (int i = 0; i < S * W; i++) cache[i] = want[i] = (float)(i % 5);
  weir_dl_tensor tc = tensor(cache, WEIR_F32, shape, 2), tn = tensor(row, WEIR_F32, one, 2);
  weir_dl_tensor ta = tensor(&at, WEIR_I64, shape, 0), tz = tensor(z, WEIR_F32, one + 1, 1);
  call c = {.inputs = {&tc, &tn, &ta}, .n_inputs = 3, .outputs = {&tc, &tz}, .n_outputs = 2};
  c.donated = gifts;
  for (at = 0; at < S; at++) {
    float sums[W] = {0};
    for (int i = 0; i < W; i++) want[at * W + i] = row[i] = (float)(100 * at + i);
    for (int i = 0; i < S * W; i++) sums[i % W] += want[i];
    EXPECT_INT(run(p, &c, at % 4 == 3), WEIR_OK); /* the definition too */
    EXPECT(memcmp(cache, want, sizeof cache) == 0);
    EXPECT(memcmp(z, sums, sizeof z) == 0);
  }
  for (at = -1; at <= S; at += S + 1) { /* nothing is lost */
    EXPECT_INT(run(p, &c, false), WEIR_BAD_PROGRAM);
    EXPECT_CONTAINS(weir_error(), "is not in 0 to 11");
    EXPECT(memcmp(cache, want, sizeof cache) == 0);
  }
  weir_counts n = counts_of(p);
  EXPECT_INT(n.bindings, 1);
  EXPECT_INT(n.in_place, 9 + 2);
  EXPECT_INT(n.copied, 0);
  weir_program_destroy(p);
}

/* Momentum and weights are updated where they are, if each is read before it is written. */
static void test_optimizer(const char *text, int in_place, int copied) {
  weir_program *p = compile(text, NULL);
  float w[N], m[N], g[N], want_w[N], want_m[N], lr = 0.25F;
  int64_t shape[] = {N}, gifts[] = {0, 1};
  for (int i = 0; i < N; i++)
    w[i] = want_w[i] = (float)i, m[i] = want_m[i] = 1, g[i] = (float)(i % 5);
  weir_dl_tensor tw = tensor(w, WEIR_F32, shape, 1), tm = tensor(m, WEIR_F32, shape, 1);
  weir_dl_tensor tg = tensor(g, WEIR_F32, shape, 1), tl = tensor(&lr, WEIR_F32, shape, 0);
  call c = {.inputs = {&tw, &tm, &tg, &tl}, .n_inputs = 4, .outputs = {&tw, &tm}, .n_outputs = 2};
  c.donated = gifts;
  for (int k = 0; k < 3; k++) {
    for (int i = 0; i < N; i++) {
      float before = want_m[i];
      want_m[i] = before * 0.5F + g[i];
      want_w[i] -= lr * before;
    }
    EXPECT_INT(run(p, &c, false), WEIR_OK);
    EXPECT_INT(differ(w, want_w), 0);
    EXPECT_INT(differ(m, want_m), 0);
  }
  EXPECT_INT(counts_of(p).in_place, 3 * in_place);
  EXPECT_INT(counts_of(p).copied, 3 * copied);
  EXPECT_INT(counts_of(p).bindings, 1);
  weir_program_destroy(p);
}

static void test_descent(void) {
  weir_program *p = compile("fusion f { w : f32[n]; g : f32[n]; lr : f32\n"
                            "  loss = sum(w * w); w2 = w - lr * g; return loss, w2 }",
                            NULL);
  float w[N], g[N], want[N], lr, loss;
  int64_t shape[] = {N}, gifts[] = {-1, 0};
  for (int i = 0; i < N; i++) w[i] = want[i] = (float)i, g[i] = (float)(i % 5);
  weir_dl_tensor tw = tensor(w, WEIR_F32, shape, 1), tg = tensor(g, WEIR_F32, shape, 1);
  weir_dl_tensor tl = tensor(&lr, WEIR_F32, shape, 0), ts = tensor(&loss, WEIR_F32, shape, 0);
  call c = {.inputs = {&tw, &tg, &tl}, .n_inputs = 3, .outputs = {&ts, &tw}, .n_outputs = 2};
  c.donated = gifts;
  for (int k = 1; k <= 3; k++) {
    float sum = 0;
    lr = 1.0F / (float)k;
    for (int i = 0; i < N; i++) sum += want[i] * want[i], want[i] -= lr * g[i];
    EXPECT_INT(run(p, &c, false), WEIR_OK);
    EXPECT(fabsf(loss - sum) < 1e-3F * sum);
    EXPECT_INT(differ(w, want), 0);
  }
  EXPECT_INT(counts_of(p).in_place + counts_of(p).copied, 3);
  EXPECT_INT(counts_of(p).bindings, 1);
  weir_program_destroy(p);
}

/* Each device overwrites its own shard. With the second one elsewhere the shards are no longer one tensor. */
static void test_shards(void) {
  enum { HALF = N / 2 };
  weir_program *p = compile("fusion f { mesh d = [2]; w : f32[2, 48]; g : f32[2, 48]\n"
                            "  y = w - 0.5 * g; return y\n"
                            "  schedule { w, g on d; w[0] = mesh.x; g[0] = mesh.x } }",
                            "2");
  float w[2][HALF], g[2][HALF], want[2][HALF], other[HALF];
  int64_t shape[] = {1, HALF}, gifts[] = {0};
  weir_dl_tensor tw[2], tg[2], away = tensor(other, WEIR_F32, shape, 2);
  for (int r = 0; r < 2; r++) {
    for (int i = 0; i < HALF; i++) want[r][i] = w[r][i] = (float)(r * 100 + i), g[r][i] = (float)i;
    tw[r] = tensor(w[r], WEIR_F32, shape, 2);
    tg[r] = tensor(g[r], WEIR_F32, shape, 2);
  }
  const weir_dl_tensor *ws[] = {&tw[0], &tw[1]}, *gs[] = {&tg[0], &tg[1]}, *ys[] = {&tw[0], &tw[1]};
  const weir_dl_tensor *const *inputs[] = {ws, gs}, *const * outputs[] = {ys};
  const weir_dl_tensor *none[] = {NULL, NULL};
  weir_run_args args = {.struct_size = sizeof args, .inputs = none, .n_inputs = 2};
  args.outputs = none;
  args.n_outputs = 1;
  args.input_shards = inputs;
  args.output_shards = outputs;
  args.donated = gifts;
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_shapes *shapes = NULL;
  static const char text[] =
      "fusion f { w : f32[2, 48]; g : f32[2, 48]; y = w - 0.5 * g; return y }";
  EXPECT_INT(weir_module_parse("shapes", text, sizeof text - 1, NULL, &m), WEIR_OK);
  EXPECT_INT(weir_module_find(m, NULL, &f), WEIR_OK);
  EXPECT_INT(weir_shapes_create(f, &shapes), WEIR_OK);
  EXPECT_INT(weir_shapes_complete(shapes), WEIR_OK);
  args.shapes = shapes;
  for (int k = 0; k < 3; k++) {
    for (int r = 0; r < 2; r++)
      for (int i = 0; i < HALF; i++) want[r][i] -= 0.5F * g[r][i];
    if (!EXPECT_INT(weir_run(p, &args), WEIR_OK)) fprintf(stderr, "%s\n", weir_error());
    EXPECT(memcmp(w, want, sizeof w) == 0);
  }
  EXPECT_INT(counts_of(p).in_place, 3);
  EXPECT_INT(counts_of(p).copied, 0);
  EXPECT_INT(counts_of(p).bindings, 1);
  ys[1] = &away;
  EXPECT_INT(weir_run(p, &args), WEIR_BAD_USAGE);
  EXPECT_CONTAINS(weir_error(), "both must be one tensor");
  ys[1] = &tw[1];
  gs[1] = &tw[0]; /* donated memory is used again */
  EXPECT_INT(weir_run(p, &args), WEIR_BAD_USAGE);
  EXPECT_CONTAINS(weir_error(), "donated input w overlaps input g");
  char *why = NULL;
  EXPECT_INT(weir_program_donation(p, shapes, 0, 0, &why), WEIR_OK);
  EXPECT(why == NULL);
  EXPECT_INT(weir_program_donation(p, shapes, 2, 0, &why), WEIR_BAD_USAGE);
  weir_shapes_destroy(shapes);
  weir_module_destroy(m);
  weir_program_destroy(p);
}

/* A device that computes nothing leaves donated memory as it was. */
static void test_null(void) {
  const char *before = device;
  float a[N] = {1}, b[N];
  int64_t shape[] = {N}, gifts[] = {0};
  device = "null";
  weir_program *p =
      compile("fusion f { a : f32[96]; b : f32[96]; y = cumsum(a, dim=0) + b; return y }", NULL);
  weir_dl_tensor ta = tensor(a, WEIR_F32, shape, 1), tb = tensor(b, WEIR_F32, shape, 1);
  call c = {.inputs = {&ta, &tb}, .n_inputs = 2, .outputs = {&ta}, .n_outputs = 1};
  c.donated = gifts;
  EXPECT_INT(run(p, &c, false), WEIR_OK);
  EXPECT(a[0] == 1 && a[1] == 0);
  weir_program_destroy(p);
  device = before;
}

static void refused(weir_program *p, const call *c, const char *message) {
  EXPECT_INT(run(p, c, false), WEIR_BAD_USAGE);
  EXPECT_CONTAINS(weir_error(), message);
}

static void test_wrong_gifts(void) {
  weir_program *p =
      compile("fusion f { a : f32[96]; b : f32[96]; y = a + b; z = a * b; return y, z }", NULL);
  float a[N + 8] = {0}, b[N], z[N];
  int64_t shape[] = {N}, first[] = {0, -1}, twice[] = {0, 0}, none[] = {2, -1};
  weir_dl_tensor ta = tensor(a, WEIR_F32, shape, 1), tb = tensor(b, WEIR_F32, shape, 1);
  weir_dl_tensor near = tensor(a + 4, WEIR_F32, shape, 1), tz = tensor(z, WEIR_F32, shape, 1);
  call c = {.inputs = {&ta, &tb}, .n_inputs = 2, .outputs = {&ta, &tz}, .n_outputs = 2};
  refused(p, &c, "output y overlaps input a");
  c.donated = none;
  refused(p, &c, "output y is given input 2: there are 2");
  none[0] = -2;
  refused(p, &c, "output y is given input -2: there are 2");
  c.donated = twice;
  refused(p, &c, "input a is given to output y already");
  c.donated = first;
  c.outputs[0] = &near;
  refused(p, &c, "both must be one tensor");
  c.outputs[0] = &ta;
  c.inputs[1] = &ta; /* used again */
  refused(p, &c, "donated input a overlaps input b");
  c.inputs[1] = &tb;
  c.outputs[1] = &near;
  refused(p, &c, "donated input a overlaps output z");
  weir_program_destroy(p);
}

/* ---- many shapes ---- */
/* An allocator that measures. */
typedef struct meter {
  int64_t live_bytes, most_bytes;
} meter;

static void *meter_alloc(void *context, size_t bytes) {
  meter *m = context;
  int64_t *block = malloc(bytes + 16);
  if (!block) return NULL;
  *block = (int64_t)bytes;
  m->live_bytes += (int64_t)bytes;
  if (m->live_bytes > m->most_bytes) m->most_bytes = m->live_bytes;
  return block + 2;
}

static void meter_free(void *context, void *block) {
  meter *m = context;
  if (!block) return;
  m->live_bytes -= ((int64_t *)block)[-2];
  free((int64_t *)block - 2);
}

enum { SHAPES = 40, LONGEST = 3000 };

/* Two buffers of 4096 n bytes in the pool. */
static weir_program *compile_shapes(const char *cache, meter *m) {
  static const char text[] =
      "fusion f { x : f32[n]; w : f32[1, 1024]\n"
      "  y = sum(cumsum(reshape(x, [n, 1]) * w, dim=0), dims=[1]); return y }";
  weir_module *module = NULL;
  weir_fusion *f = NULL;
  weir_program *p = NULL;
  weir_options *o = NULL;
  weir_allocator memory = {meter_alloc, meter_free, m};
  EXPECT_INT(weir_module_parse("test", text, sizeof text - 1, NULL, &module), WEIR_OK);
  EXPECT_INT(weir_module_find(module, NULL, &f), WEIR_OK);
  EXPECT_INT(weir_options_create(&o), WEIR_OK);
  EXPECT_INT(weir_options_set(o, "device", device), WEIR_OK);
  EXPECT_INT(weir_options_set(o, "plan-cache", cache), WEIR_OK);
  if (!EXPECT_INT(weir_compile(f, o, &memory, &p), WEIR_OK)) fprintf(stderr, "%s\n", weir_error());
  weir_options_destroy(o);
  weir_module_destroy(module);
  return p;
}

static void run_shape(const weir_program *p, int64_t n) {
  static float x[LONGEST], y[LONGEST], w[1024];
  int64_t shape[] = {n}, one[] = {1, 1024};
  double sum = 0;
  for (int64_t i = 0; i < n; i++) x[i] = (float)(i % 3);
  for (int i = 0; i < 1024; i++) w[i] = 1.0F / 1024;
  weir_dl_tensor tx = tensor(x, WEIR_F32, shape, 1), tw = tensor(w, WEIR_F32, one, 2);
  weir_dl_tensor ty = tensor(y, WEIR_F32, shape, 1);
  call c = {.inputs = {&tx, &tw}, .n_inputs = 2, .outputs = {&ty}, .n_outputs = 1};
  EXPECT_INT(run(p, &c, false), WEIR_OK);
  for (int64_t i = 0; i < n; i++) sum += (double)x[i];
  EXPECT(fabs((double)y[n - 1] - sum) <= 1e-3 * sum);
}

/* Plans share their memory, so many shapes need little more than the largest, and once all were
 * seen nothing is bound, loaded or allocated any more. */
static void test_shapes(void) {
  meter m = {0};
  weir_program *p = compile_shapes("1000000000", &m);
  for (int64_t k = 1; k <= SHAPES; k++) run_shape(p, k * LONGEST / SHAPES);
  weir_counts first = counts_of(p), n;
  EXPECT_INT(first.bindings, SHAPES);
  EXPECT_INT(first.plans, SHAPES);
  for (int64_t k = SHAPES; k >= 1; k--) run_shape(p, k * LONGEST / SHAPES);
  n = counts_of(p);
  EXPECT_INT(n.bindings, SHAPES);
  EXPECT_INT(n.loads, SHAPES);
  EXPECT_INT(n.evicted, 0);
  EXPECT(n.plan_bytes > 0);
  if (strcmp(device, "cpu") == 0) {
    EXPECT_INT(n.allocations, first.allocations);
    EXPECT(m.live_bytes < 9 * 1024 * (int64_t)LONGEST); /* the largest has 8 of them */
  }
  weir_program_destroy(p);
  EXPECT_INT(m.live_bytes, 0);
}

/* With room for few, the least recently used ones go. */
static void test_cache_bytes(void) {
  meter m = {0};
  weir_program *p = compile_shapes("1", &m);
  for (int i = 0; i < 3; i++) {
    run_shape(p, 10);
    run_shape(p, 10);
    run_shape(p, 20);
  }
  weir_counts n = counts_of(p);
  EXPECT_INT(n.bindings, 6);
  EXPECT_INT(n.plans, 1);
  EXPECT_INT(n.evicted, 5);
  weir_program_destroy(p);
}

int main(int argc, char **argv) {
  if (argc > 1) device = argv[1];
  graph = argc > 2;
  test_seeds(drawing, NULL);
  test_numbers();
  test_cache();
  static const char *const head = "fusion f { w : f32[n]; m : f32[n]; g : f32[n]; lr : f32\n";
  char text[400];
  (void)snprintf(text, sizeof text, "%s w2 = w - lr * m; m2 = m * 0.5 + g; return w2, m2 }", head);
  test_optimizer(text, 2, 0);
  test_descent();
  test_shards();
  test_wrong_gifts();
  test_shapes();
  test_cache_bytes();
  if (!graph) test_null();
  return test_finish();
}
