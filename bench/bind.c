/* bind [LAYERS [SHAPES [MANY]]]: what an unseen shape costs before it can run. A tensor-parallel
 * transformer of 32 layers, as traced, is bound to sequence lengths that it has not seen, and its
 * plan is proven: by its own rank alone, since the ranks are alike. The figures are of one rank of
 * 1 and of 8 devices; with MANY, of 8 alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "weir/weir.h"

enum { TEXT_BYTES = 1 << 20, MAX_SHAPES = 1000 };

static const double goal_ms = 1;

/* Time on the processor: other programs on the machine count less than on a wall clock. */
static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void require(weir_status s, const char *what) {
  if (s == WEIR_OK) return;
  fprintf(stderr, "%s: %s\n", what, weir_error());
  exit(weir_exit_code(s));
}

/* ---- the program ---- */
typedef struct source {
  char text[TEXT_BYTES];
  size_t len;
} source;

static void put(source *s, const char *fmt, int i) {
  int n = snprintf(s->text + s->len, TEXT_BYTES - s->len, fmt, i, i, i, i, i, i, i, i, i, i);
  s->len += (size_t)n;
  if (s->len >= TEXT_BYTES) exit(3);
}

static void put_inputs(source *s, int i) {
  put(s, "  wq%d : f32[64, 64]; wk%d : f32[64, 64]; wv%d : f32[64, 64]; wo%d : f32[64, 64]\n", i);
  put(s, "  up%d : f32[256, 64]; ub%d : f32[256]; dn%d : f32[64, 256]; db%d : f32[64]\n", i);
}

static void put_layer(source *s, int i) {
  static const char *const heads[] = {"q", "k", "v"};
  put(s, "  n%d = layer_norm(x%d)\n", i);
  for (int k = 0; k < 3; k++) {
    char line[160];
    snprintf(line, sizeof line,
             "  %s%%d = permute(reshape(linear(n%%d, w%s%%d), [b, s, 8, 8]), [0, 2, 1, 3])\n",
             heads[k], heads[k]);
    put(s, line, i);
  }
  put(s, "  a%d = sdpa(q%d, k%d, v%d, causal=true, scale=0.05)\n", i);
  put(s, "  m%d = reshape(permute(a%d, [0, 2, 1, 3]), [b, s, 64])\n", i);
  put(s, "  r%d = x%d + linear(m%d, wo%d)\n", i);
  put(s, "  h%d = gelu(linear(layer_norm(r%d), up%d, ub%d))\n", i);
  s->len += (size_t)snprintf(s->text + s->len, TEXT_BYTES - s->len,
                             "  x%d = r%d + linear(h%d, dn%d, db%d)\n", i + 1, i, i, i, i);
}

static void put_marks(source *s, int i) {
  put(s, "    wq%d, wk%d, wv%d, wo%d, up%d, ub%d, dn%d on d\n", i);
  put(s, "    wq%d.outer_split(0, d); wq%d[0] = mesh.x; wk%d.outer_split(0, d); wk%d[0] = mesh.x\n",
      i);
  put(s, "    wv%d.outer_split(0, d); wv%d[0] = mesh.x; up%d.outer_split(0, d); up%d[0] = mesh.x\n",
      i);
  put(s, "    ub%d.outer_split(0, d); ub%d[0] = mesh.x; wo%d.outer_split(1, d); wo%d[1] = mesh.x\n",
      i);
  put(s, "    dn%d.outer_split(1, d); dn%d[1] = mesh.x\n", i);
}

static void make_source(source *s, int devices, int layers) {
  s->len = 0;
  put(s, "fusion transformer {\n  mesh d = [%d]\n  x0 : f32[b, s, 64]\n", devices);
  for (int i = 0; i < layers; i++) put_inputs(s, i);
  for (int i = 0; i < layers; i++) put_layer(s, i);
  put(s, "  return x%d\n  schedule {\n", layers);
  for (int i = 0; i < layers && devices > 1; i++) put_marks(s, i);
  put(s, "  }\n}\n", 0);
}

/* ---- measuring ---- */
static double check_once(weir_fusion *f, const weir_program *p, int length) {
  weir_shapes *s = NULL;
  char define[32];
  snprintf(define, sizeof define, "s=%d", length);
  require(weir_shapes_create(f, &s), "shapes");
  require(weir_shapes_define(s, "b=1"), "define");
  require(weir_shapes_define(s, define), "define");
  require(weir_shapes_complete(s), "complete");
  double start = now_ms();
  require(weir_program_check(p, s, NULL), "check");
  double ms = now_ms() - start;
  weir_shapes_destroy(s);
  return ms;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void measure(int devices, int layers, int shapes) {
  static source s;
  static double ms[MAX_SHAPES];
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_program *p = NULL;
  weir_options *o = NULL;
  make_source(&s, devices, layers);
  require(weir_module_parse("bind.weir", s.text, s.len, NULL, &m), "parse");
  require(weir_module_find(m, NULL, &f), "find");
  require(weir_options_create(&o), "options");
  require(weir_options_set(o, "device", "null"), "device");
  require(weir_options_set(o, "pipeline", "marked"), "pipeline");
  require(weir_compile(f, o, NULL, &p), "compile");
  for (int i = 0; i < shapes; i++) ms[i] = check_once(f, p, 128 + i);
  qsort(ms, (size_t)shapes, sizeof *ms, by_value);
  printf("%d of %d devices, %d layers: best %.3f ms, median %.3f ms of %d shapes  goal <= %.1f ms  "
         "%s\n",
         1, devices, layers, ms[0], ms[shapes / 2], shapes, goal_ms,
         ms[0] <= goal_ms ? "PASS" : "MISS");
  weir_program_destroy(p);
  weir_options_destroy(o);
  weir_module_destroy(m);
}

int main(int argc, char **argv) {
  int layers = argc > 1 ? atoi(argv[1]) : 32, shapes = argc > 2 ? atoi(argv[2]) : 200;
  if (layers < 1 || shapes < 1 || shapes > MAX_SHAPES) return 2;
  if (argc < 4) measure(1, layers, shapes);
  measure(8, layers, shapes);
  return 0;
}
