/* What compiling costs: parse (schedule and verification included), verify, print, and lower (the
 * whole pipeline of passes, of the same fusion without rfactors) of a generated fusion of 1,000,
 * 10,000 and 100,000 operations, in nanoseconds per operation. The cost must be linear: per
 * operation it may grow by at most 1.5x from the smallest to the largest. So must that of a host
 * program with one kernel of 3,000 and of 30,000 operations, which is parsed, verified and
 * bound. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "weir/weir.h"

enum { ROUNDS = 7, LOWERED = 3, SIZES = 3 }; /* lowering takes longest */

static const double goal_growth = 1.5, goal_seconds = 0.5;

/* Time on the processor: other programs on the machine count less than on a wall clock. */
static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void require(weir_status s, const char *what) {
  if (s == WEIR_OK) return;
  fprintf(stderr, "%s: %s\n", what, weir_error());
  exit(weir_exit_code(s));
}

/* ---- the fusion ---- */
typedef struct source {
  char *text;
  size_t len, cap;
  int ops;
} source;

static void put(source *s, const char *fmt, int a, int b) {
  if (s->cap - s->len < 256) {
    s->cap = s->cap * 2 + 4096;
    s->text = realloc(s->text, s->cap);
    if (!s->text) exit(3);
  }
  s->len += (size_t)snprintf(s->text + s->len, s->cap - s->len, fmt, a, b);
}

/* Eight layers of a model in turn; each reads `y<a>` and a tensor further back, and makes `y<b>`. */
static void add_ops(source *s, int i) {
  switch (i % 8) {
  case 0: put(s, "  y%d = linear(y%d, w)\n", i + 1, i); break;
  case 1: put(s, "  y%d = gelu(y%d, approximate=tanh)\n", i + 1, i); break;
  case 2: put(s, "  y%d = layer_norm(y%d, v, v)\n", i + 1, i); break;
  case 3: put(s, "  y%d : f32[n, 64] = y%d * 0.5 + x\n", i + 1, i), s->ops++; break;
  case 4: put(s, "  y%d = y%d - sum(x, dims=[1], keepdim=true)\n", i + 1, i), s->ops++; break;
  case 5: put(s, "  y%d = matmul(y%d, w)\n", i + 1, i); break;
  case 6: put(s, "  y%d = transpose(reshape(y%d, [64, n]))\n", i + 1, i), s->ops++; break;
  default: put(s, "  y%d = where(x < 0, y%d, x)\n", i + 1, i), s->ops++; break;
  }
  s->ops++;
}

static void add_schedule(source *s, int tensors, bool rfactors) {
  put(s, "  return y%d\n  schedule {\n    x, w on d\n", tensors, 0);
  for (int i = 1; i < tensors; i += 3) {
    put(s, "    y%d.outer_split(0, d); y%d[0] = stream\n", i, i);
    if (rfactors && (i - 1) % 8 == 5)
      put(s, "    y%d.split(-1, 8); u%d", i, i), put(s, " = y%d.rfactor([-1])\n", i, 0);
  }
  put(s, "  }\n}\n", 0, 0);
}

static source make_fusion(int ops, bool rfactors) {
  source s = {0};
  int i = 0;
  put(&s, "fusion bench {\n  mesh d = [2]\n  x : f32[n, 64]\n  w : f32[64, 64]\n  v : f32[64]\n", 0,
      0);
  put(&s, "  y%d = relu(x)\n", 0, 0);
  for (s.ops = 1; s.ops < ops; i++) add_ops(&s, i);
  add_schedule(&s, i, rfactors);
  return s;
}

static source make_kernel(int ops) {
  source s = {.ops = ops};
  put(&s, "host bench(x : f32[n]) -> (y) {\n  y : f32[n] = allocate()\n  y <- kernel(x) {\n", 0, 0);
  put(&s, "    y0 = relu(x)\n", 0, 0);
  for (int i = 2; i < ops; i++) put(&s, "    y%d = y%d + x\n", i - 1, i - 2);
  put(&s, "    return y%d + x\n  }\n}\n", ops - 2, 0);
  return s;
}

/* ---- measuring ---- */
typedef struct cost {
  double parse, verify, print, lower; /* ns */
} cost;

static cost measure_once(const source *s) {
  weir_module *m = NULL;
  char *text = NULL;
  double t0 = now_ns();
  require(weir_module_parse("bench.weir", s->text, s->len, NULL, &m), "parse");
  double t1 = now_ns();
  require(weir_module_verify(m), "verify");
  double t2 = now_ns();
  require(weir_module_print(m, &text), "print");
  double t3 = now_ns();
  weir_string_free(text);
  weir_module_destroy(m);
  return (cost){.parse = t1 - t0, .verify = t2 - t1, .print = t3 - t2};
}

static double lower_once(const source *s) {
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  char *host = NULL;
  require(weir_module_parse("bench.weir", s->text, s->len, NULL, &m), "parse");
  require(weir_module_find(m, NULL, &f), "find");
  double start = now_ns();
  require(weir_lower(f, NULL, "weir", &host), "lower");
  double time = now_ns() - start;
  weir_string_free(host);
  weir_module_destroy(m);
  return time;
}

static double bind_once(const source *s) {
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_options *o = NULL;
  weir_program *p = NULL;
  weir_shapes *shapes = NULL;
  weir_memory memory = {.struct_size = sizeof memory};
  double start = now_ns();
  require(weir_module_parse("bench.weir", s->text, s->len, NULL, &m), "parse");
  require(weir_module_find(m, NULL, &f), "find");
  require(weir_options_create(&o), "options");
  require(weir_options_set(o, "device", "null"), "device");
  require(weir_compile(f, o, NULL, &p), "compile");
  require(weir_shapes_create(f, &shapes), "shapes");
  require(weir_shapes_define(shapes, "n=16"), "n");
  require(weir_shapes_complete(shapes), "complete");
  require(weir_program_memory(p, shapes, &memory, NULL), "bind");
  double time = now_ns() - start;
  weir_shapes_destroy(shapes);
  weir_program_destroy(p);
  weir_options_destroy(o);
  weir_module_destroy(m);
  return time;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double median(double *values, size_t n) {
  qsort(values, n, sizeof *values, by_value);
  return values[n / 2];
}

typedef struct samples {
  source source, lowered;
  double parse[ROUNDS], verify[ROUNDS], print[ROUNDS], lower[LOWERED]; /* ns per operation */
} samples;

/* The sizes take turns, so that a slow spell of the machine meets all of them. */
static void measure(samples *all) {
  for (int round = 0; round < ROUNDS; round++) {
    for (int i = 0; i < SIZES; i++) {
      samples *s = &all[i];
      cost c = measure_once(&s->source);
      s->parse[round] = c.parse / s->source.ops;
      s->verify[round] = c.verify / s->source.ops;
      s->print[round] = c.print / s->source.ops;
      if (round < LOWERED) s->lower[round] = lower_once(&s->lowered) / s->lowered.ops;
    }
  }
}

/* Of lowering only growth is judged. */
static double total(const cost *c) { return c->parse + c->verify + c->print; }

static double bind_growth(void) {
  source few = make_kernel(3000), many = make_kernel(30000);
  double a[ROUNDS], b[ROUNDS];
  for (int i = 0; i < ROUNDS; i++)
    a[i] = bind_once(&few) / few.ops, b[i] = bind_once(&many) / many.ops;
  double growth = median(b, ROUNDS) / median(a, ROUNDS);
  printf("%10d %70.0f ns/op of a kernel, bound\n%10d %70.0f\n", few.ops, a[ROUNDS / 2], many.ops,
         b[ROUNDS / 2]);
  free(few.text);
  free(many.text);
  return growth;
}

static void judge(const char *what, double value, double goal, const char *unit) {
  printf("%-34s %8.3f%s  goal <= %.2f%s  %s\n", what, value, unit, goal, unit,
         value <= goal ? "PASS" : "MISS");
}

int main(void) {
  static const int sizes[SIZES] = {1000, 10000, 100000};
  static samples all[SIZES];
  cost costs[SIZES];
  for (int i = 0; i < SIZES; i++) {
    all[i].source = make_fusion(sizes[i], true);
    all[i].lowered = make_fusion(sizes[i], false);
  }
  measure(all);
  printf("%10s %12s %12s %12s %12s %12s %12s\n", "ops", "parse ns/op", "verify ns/op",
         "print ns/op", "sum ns/op", "total ms", "lower ns/op");
  for (int i = 0; i < SIZES; i++) {
    costs[i] = (cost){median(all[i].parse, ROUNDS), median(all[i].verify, ROUNDS),
                      median(all[i].print, ROUNDS), median(all[i].lower, LOWERED)};
    printf("%10d %12.0f %12.0f %12.0f %12.0f %12.2f %12.0f\n", sizes[i], costs[i].parse,
           costs[i].verify, costs[i].print, total(&costs[i]), total(&costs[i]) * sizes[i] * 1e-6,
           costs[i].lower);
    free(all[i].source.text);
    free(all[i].lowered.text);
  }
  double growth = bind_growth();
  judge("ns/op at 100,000 over 1,000 ops", total(&costs[2]) / total(&costs[0]), goal_growth, "x");
  judge("lower: 100,000 over 1,000 ops", costs[2].lower / costs[0].lower, goal_growth, "x");
  judge("bind: 30,000 over 3,000 ops", growth, goal_growth, "x");
  judge("all of 10,000 ops", total(&costs[1]) * 1e-9 * sizes[1], goal_seconds, " s");
  return 0;
}
