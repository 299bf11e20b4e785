/* What compiling a whole model costs: a generated transformer of 12, 24, 48 and 96 layers, forward
 * and backward and one step of the weights, with marks on the weights alone, parsed, and then
 * propagated, decomposed and lowered for 8 devices. The cost must be linear in the number of
 * layers, and 96 layers take seconds at most. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "weir/weir.h"

enum { ROUNDS = 5, SIZES = 4 };

static const double goal_growth = 1.5, goal_seconds = 2.0;

/* Time on the processor: other programs on the machine count less than on a wall clock. */
static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void require(weir_status s, const char *what) {
  if (s == WEIR_OK) return;
  fprintf(stderr, "%s: %s\n", what, weir_error());
  exit(weir_exit_code(s));
}

/* ---- the model ---- */
typedef struct text {
  char *data;
  size_t len, cap;
} text;

/* Every # of the line becomes the number of the layer, every @ that of the layer before it. */
static void put(text *t, const char *line, int layer) {
  for (const char *c = line; *c; c++) {
    if (t->cap - t->len < 32) {
      t->cap = t->cap * 2 + 4096;
      t->data = realloc(t->data, t->cap);
      if (!t->data) exit(3);
    }
    if (*c == '#' || *c == '@')
      t->len += (size_t)snprintf(t->data + t->len, 16, "%d", *c == '#' ? layer : layer - 1);
    else t->data[t->len++] = *c;
  }
  t->data[t->len] = '\0';
}

static const char weights[] =
    "  wq# : f32[1024, 1024]; wk# : f32[1024, 1024]; wv# : f32[1024, 1024]\n"
    "  wo# : f32[1024, 1024]; bo# : f32[1024]\n"
    "  up# : f32[4096, 1024]; bu# : f32[4096]; down# : f32[1024, 4096]; bd# : f32[1024]\n";

static const char forward[] =
    "  n# = layer_norm(y@)\n"
    "  q# = permute(reshape(linear(n#, wq#), [b, s, 16, 64]), [0, 2, 1, 3])\n"
    "  k# = permute(reshape(linear(n#, wk#), [b, s, 16, 64]), [0, 2, 1, 3])\n"
    "  v# = permute(reshape(linear(n#, wv#), [b, s, 16, 64]), [0, 2, 1, 3])\n"
    "  p# = softmax(matmul(q#, transpose(k#)) * 0.125)\n"
    "  a# = reshape(permute(matmul(p#, v#), [0, 2, 1, 3]), [b, s, 1024])\n"
    "  r# = y@ + linear(a#, wo#, bo#)\n"
    "  m# = layer_norm(r#)\n"
    "  h# = linear(m#, up#, bu#)\n"
    "  e# = gelu(h#)\n"
    "  y# = r# + linear(e#, down#, bd#)\n";

static const char backward[] =
    "  de# = matmul(g#, down#)\n"
    "  ddown# = matmul(transpose(reshape(g#, [b * s, 1024])), reshape(e#, [b * s, 4096]))\n"
    "  dh# = de# * (0.5 * (1 + erf(h# * 0.7071)) + h# * exp(h# * h# * -0.5) * 0.3989)\n"
    "  dup# = matmul(transpose(reshape(dh#, [b * s, 4096])), reshape(m#, [b * s, 1024]))\n"
    "  dm# = matmul(dh#, up#)\n"
    "  dr# = g# + (dm# - mean(dm#, dims=[2], keepdim=true)\n"
    "              - m# * mean(dm# * m#, dims=[2], keepdim=true))\n"
    "  da# = permute(reshape(matmul(dr#, wo#), [b, s, 16, 64]), [0, 2, 1, 3])\n"
    "  dwo# = matmul(transpose(reshape(dr#, [b * s, 1024])), reshape(a#, [b * s, 1024]))\n"
    "  dp# = matmul(da#, transpose(v#))\n"
    "  ds# = p# * (dp# - sum(dp# * p#, dims=[3], keepdim=true)) * 0.125\n"
    "  dq# = reshape(permute(matmul(ds#, k#), [0, 2, 1, 3]), [b, s, 1024])\n"
    "  dk# = reshape(permute(matmul(transpose(ds#), q#), [0, 2, 1, 3]), [b, s, 1024])\n"
    "  dv# = reshape(permute(matmul(transpose(p#), da#), [0, 2, 1, 3]), [b, s, 1024])\n"
    "  dwq# = matmul(transpose(reshape(dq#, [b * s, 1024])), reshape(n#, [b * s, 1024]))\n"
    "  dwk# = matmul(transpose(reshape(dk#, [b * s, 1024])), reshape(n#, [b * s, 1024]))\n"
    "  dwv# = matmul(transpose(reshape(dv#, [b * s, 1024])), reshape(n#, [b * s, 1024]))\n"
    "  g@ = dr# + matmul(dq#, wq#) + matmul(dk#, wk#) + matmul(dv#, wv#)\n"
    "  nwq# = wq# - dwq# / (sqrt(dwq# * dwq#) + 0.001) * 0.01\n"
    "  nwk# = wk# - dwk# / (sqrt(dwk# * dwk#) + 0.001) * 0.01\n"
    "  nwv# = wv# - dwv# / (sqrt(dwv# * dwv#) + 0.001) * 0.01\n"
    "  nwo# = wo# - dwo# / (sqrt(dwo# * dwo#) + 0.001) * 0.01\n"
    "  nup# = up# - dup# / (sqrt(dup# * dup#) + 0.001) * 0.01\n"
    "  ndown# = down# - ddown# / (sqrt(ddown# * ddown#) + 0.001) * 0.01\n";

static const char marks[] =
    "    wq#, wk#, wv#, wo#, up#, bu#, down# on d\n"
    "    wq#.outer_split(0, d); wq#[0] = mesh.x; wk#.outer_split(0, d); wk#[0] = mesh.x\n"
    "    wv#.outer_split(0, d); wv#[0] = mesh.x; wo#.outer_split(1, d); wo#[1] = mesh.x\n"
    "    up#.outer_split(0, d); up#[0] = mesh.x; bu#.outer_split(0, d); bu#[0] = mesh.x\n"
    "    down#.outer_split(1, d); down#[1] = mesh.x\n";

static text make_model(int layers) {
  text t = {0};
  put(&t, "fusion model {\n  mesh d = [8]\n  y0 : f32[b, s, 1024]\n", 0);
  for (int i = 1; i <= layers; i++) put(&t, weights, i);
  for (int i = 1; i <= layers; i++) put(&t, forward, i);
  put(&t, "  g# = y# * 0.001\n", layers);
  for (int i = layers; i >= 1; i--) put(&t, backward, i);
  put(&t, "  return g0", 0);
  for (int i = 1; i <= layers; i++) put(&t, ", nwq#, nwk#, nwv#, nwo#, nup#, ndown#", i);
  put(&t, "\n  schedule {\n", 0);
  for (int i = 1; i <= layers; i++) put(&t, marks, i);
  put(&t, "  }\n}\n", 0);
  return t;
}

/* ---- measuring ---- */
typedef struct sample {
  text model;
  double parse[ROUNDS], lower[ROUNDS]; /* seconds */
  size_t ops, communications, lines;
} sample;

static size_t count(const char *in, const char *word) {
  size_t n = 0;
  for (const char *c = in; (c = strstr(c, word)) != NULL; c += strlen(word)) n++;
  return n;
}

static void measure(sample *s, int round) {
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  char *printed = NULL, *host = NULL;
  double t0 = now_s();
  require(weir_module_parse("model.weir", s->model.data, s->model.len, NULL, &m), "parse");
  double t1 = now_s();
  require(weir_module_find(m, NULL, &f), "find");
  require(weir_lower(f, NULL, "weir", &host), "lower");
  double t2 = now_s();
  s->parse[round] = t1 - t0;
  s->lower[round] = t2 - t1;
  require(weir_module_print(m, &printed), "print");
  s->ops = count(printed, " = ") - count(printed, "] = ");
  s->communications = count(host, "team=");
  s->lines = count(host, "\n");
  weir_string_free(printed);
  weir_string_free(host);
  weir_module_destroy(m);
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double median(double *values) {
  qsort(values, ROUNDS, sizeof *values, by_value);
  return values[ROUNDS / 2];
}

static void judge(const char *what, double value, double goal, const char *unit) {
  printf("%-34s %8.3f%s  goal <= %.2f%s  %s\n", what, value, unit, goal, unit,
         value <= goal ? "PASS" : "MISS");
}

int main(void) {
  static const int layers[SIZES] = {12, 24, 48, 96};
  static sample all[SIZES];
  double per_layer[SIZES], last = 0;
  for (int i = 0; i < SIZES; i++) all[i].model = make_model(layers[i]);
  for (int round = 0; round < ROUNDS; round++)
    for (int i = 0; i < SIZES; i++) measure(&all[i], round);
  printf("%8s %8s %16s %12s %10s %10s %14s\n", "layers", "ops", "communications", "host lines",
         "parse s", "lower s", "us per layer");
  for (int i = 0; i < SIZES; i++) {
    double parse = median(all[i].parse), lower = median(all[i].lower);
    last = parse + lower;
    per_layer[i] = last / layers[i];
    printf("%8d %8zu %16zu %12zu %10.3f %10.3f %14.0f\n", layers[i], all[i].ops,
           all[i].communications, all[i].lines, parse, lower, per_layer[i] * 1e6);
    free(all[i].model.data);
  }
  judge("time per layer, 96 over 12 layers", per_layer[SIZES - 1] / per_layer[0], goal_growth, "x");
  judge("all of 96 layers", last, goal_seconds, " s");
  return 0;
}
