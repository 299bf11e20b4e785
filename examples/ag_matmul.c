/* Allgather + matmul, built and run through the public API.
 *
 * Eight devices each hold a slice of `a`; `b` is on all of them. The product needs all of `a`, so its
 * slices have to travel. The first axis of the result is marked as a stream axis, so the product is
 * computed one slice at a time: while one slice is multiplied, the next one can be on its way.
 *
 * The definition says what is computed, the schedule where and when. Removing the schedule changes
 * nothing in the result, which is what the end of this example checks. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <weir/weir.h>

enum { S = 3, D = 8, M = 2, K = 5, N = 4 }; /* slices, devices, rows per device and slice, … */

/* Every call returns a status, and weir_error() has the message of the last one that failed. */
static void must(weir_status status) {
  if (status == WEIR_OK) return;
  fprintf(stderr, "%s\n", weir_error());
  exit(weir_exit_code(status));
}

/* c = a @ b, with extents that stay symbolic until it runs. */
static weir_fusion *build(weir_module *module) {
  weir_fusion *f;
  must(weir_fusion_create(module, "ag_matmul", &f));

  weir_mesh d;
  must(weir_fusion_mesh(f, "d", (const int64_t[]){D}, 1, NULL, &d));

  weir_tensor a, b, c;
  must(weir_fusion_input(f, "a", WEIR_F32, (const char *[]){"s", "dev", "m", "k"}, 4, &a));
  must(weir_fusion_input(f, "b", WEIR_F32, (const char *[]){"k", "n"}, 2, &b));
  weir_arg operands[] = {weir_arg_tensor(NULL, a), weir_arg_tensor(NULL, b)};
  must(weir_fusion_op(f, "c", "matmul", operands, 2, &c));
  must(weir_fusion_return(f, c));

  /* All three live on the mesh. a[1] has one position per device; nothing else is marked, so b and
   * c are replicated. */
  must(weir_schedule_on(f, a, d));
  must(weir_schedule_on(f, b, d));
  must(weir_schedule_on(f, c, d));
  must(weir_schedule_mark(f, a, 1, "mesh.x"));
  must(weir_schedule_mark(f, c, 0, "stream"));
  must(weir_module_verify(module));
  return f;
}

static void print(const weir_module *module) {
  char *text;
  must(weir_module_print(module, &text));
  printf("%s", text);
  weir_string_free(text);
}

/* Our own memory, described to Weir as DLPack does it; nothing is copied. A DLTensor * from another
 * library can be cast to a weir_dl_tensor *. */
static weir_dl_tensor describe(float *data, int64_t *shape, int rank) {
  return (weir_dl_tensor){.data = data,
                          .device = {.device_type = 1}, /* the CPU */
                          .ndim = rank,
                          .dtype = weir_dtype_to_dl(WEIR_F32),
                          .shape = shape};
}

static void run(const weir_fusion *f, float *a, float *b, float *c) {
  weir_program *program;
  must(weir_compile(f, NULL, NULL, &program));
  weir_dl_tensor ta = describe(a, (int64_t[]){S, D, M, K}, 4);
  weir_dl_tensor tb = describe(b, (int64_t[]){K, N}, 2);
  weir_dl_tensor tc = describe(c, (int64_t[]){S, D, M, N}, 4);
  weir_run_args args = {.struct_size = sizeof args,
                        .inputs = (const weir_dl_tensor *[]){&ta, &tb},
                        .n_inputs = 2,
                        .outputs = (const weir_dl_tensor *[]){&tc},
                        .n_outputs = 1};
  must(weir_run(program, &args));
  weir_program_destroy(program);
}

/* The same element, computed by hand. */
static float expected(const float *a, const float *b, int row, int column) {
  float sum = 0;
  for (int k = 0; k < K; k++) sum += a[row * K + k] * b[k * N + column];
  return sum;
}

int main(void) {
  static float a[S * D * M * K], b[K * N], c[S * D * M * N];
  for (int i = 0; i < S * D * M * K; i++) a[i] = (float)(i % 7) - 3.0F;
  for (int i = 0; i < K * N; i++) b[i] = (float)(i % 5) * 0.25F;

  weir_module *module;
  must(weir_module_create(NULL, &module));
  weir_fusion *f = build(module);
  print(module);
  run(f, a, b, c);
  weir_module_destroy(module);

  for (int i = 0; i < S * D * M * N; i++) {
    float want = expected(a, b, i / N, i % N);
    if (fabsf(c[i] - want) <= 1e-5F) continue;
    printf("c[%d] is %g, but should be %g\n", i, (double)c[i], (double)want);
    return 1;
  }
  printf("ok\n");
  return 0;
}
