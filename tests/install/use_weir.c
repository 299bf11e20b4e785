/* A program outside the tree, as C and as C++: parses, compiles, runs and compares with the definition. */
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

static const char text[] = "fusion ag_matmul {\n"
                           "  mesh d = [2]\n"
                           "  a : f32[2, 2, 4, 8]\n"
                           "  b : f32[8, 6]\n"
                           "  c = matmul(a, b)\n"
                           "  return c\n"
                           "  schedule { a, b, c on d; a[1] = mesh.x; c[0] = stream }\n"
                           "}\n";

enum { A = 2 * 2 * 4 * 8, B = 8 * 6, C = 2 * 2 * 4 * 6 };

static int failed(const char *what) {
  fprintf(stderr, "%s: %s\n", what, weir_error());
  return 1;
}

static weir_dl_tensor tensor(float *data, int64_t *shape, int rank) {
  weir_dl_tensor t;
  memset(&t, 0, sizeof t);
  t.data = data;
  t.device.device_type = 1;
  t.ndim = rank;
  t.dtype = weir_dtype_to_dl(WEIR_F32);
  t.shape = shape;
  return t;
}

static int run(const weir_program *p, float *a, float *b, float *c, bool as_definition) {
  int64_t a_shape[] = {2, 2, 4, 8}, b_shape[] = {8, 6}, c_shape[] = {2, 2, 4, 6};
  weir_dl_tensor x = tensor(a, a_shape, 4), w = tensor(b, b_shape, 2), y = tensor(c, c_shape, 4);
  const weir_dl_tensor *inputs[] = {&x, &w}, *outputs[] = {&y};
  weir_run_args args;
  memset(&args, 0, sizeof args);
  args.struct_size = sizeof args;
  args.inputs = inputs;
  args.n_inputs = 2;
  args.outputs = outputs;
  args.n_outputs = 1;
  args.as_definition = as_definition;
  return weir_run(p, &args) == WEIR_OK ? 0 : failed("weir_run");
}

int main(void) {
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_program *p = NULL;
  float a[A], b[B], c[C], expected[C];
  int i, wrong = 0;
  for (i = 0; i < A; i++) a[i] = (float)(i % 7) - 3;
  for (i = 0; i < B; i++) b[i] = (float)(i % 5) - 2;
  memset(c, 0, sizeof c);
  if (strcmp(weir_version(), WEIR_VERSION) != 0) return failed("another version's header");
  if (weir_module_parse("ag_matmul", text, strlen(text), NULL, &m) != WEIR_OK)
    return failed("weir_module_parse");
  if (weir_module_find(m, NULL, &f) != WEIR_OK) return failed("weir_module_find");
  if (weir_compile(f, NULL, NULL, &p) != WEIR_OK) return failed("weir_compile");
  if (run(p, a, b, c, false) || run(p, a, b, expected, true)) return 1;
  for (i = 0; i < C; i++) wrong += c[i] != expected[i];
  weir_program_destroy(p);
  weir_module_destroy(m);
  printf("weir %s: %d of %d values are wrong\n", weir_version(), wrong, C);
  return wrong != 0;
}
