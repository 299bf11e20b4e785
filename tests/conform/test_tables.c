/* Functions of bf16 that are looked up: every element has the bits that it has where it is computed.
 *
 * The 2^16 elements alone are too few for a table (kernel_table.h); several times as many use one. */
#include <string.h>

#include "test.h"
#include <weir/weir.h>

enum { ELEMENTS = 1 << 16, TIMES = 3 };

static const char *const functions[] = {
    "exp(x)",     "log(x)", "sin(x)",  "cos(x)",  "tanh(x)",
    "sigmoid(x)", "erf(x)", "silu(x)", "gelu(x)", "gelu(x, approximate=tanh)",
    "exp(-x) * x"};

static uint16_t x[TIMES * ELEMENTS], y[TIMES * ELEMENTS], once[ELEMENTS];

static void run(const char *function, int64_t n, uint16_t *to) {
  char text[200];
  weir_module *module;
  weir_fusion *f;
  weir_program *p;
  weir_array *in, *out;
  (void)snprintf(text, sizeof text, "fusion f { x : bf16[%lld]; y = %s; return y }", (long long)n,
                 function);
  if (!EXPECT_INT(weir_module_parse("f", text, strlen(text), NULL, &module), WEIR_OK)) return;
  EXPECT_INT(weir_module_find(module, NULL, &f), WEIR_OK);
  EXPECT_INT(weir_compile(f, NULL, NULL, &p), WEIR_OK);
  EXPECT_INT(weir_array_create(WEIR_BF16, &n, 1, NULL, &in), WEIR_OK);
  EXPECT_INT(weir_array_create(WEIR_BF16, &n, 1, NULL, &out), WEIR_OK);
  const weir_dl_tensor *views[] = {weir_array_tensor(in), weir_array_tensor(out)};
  memcpy(views[0]->data, x, (size_t)n * sizeof *x);
  weir_run_args args = {.struct_size = sizeof args,
                        .inputs = &views[0],
                        .n_inputs = 1,
                        .outputs = &views[1],
                        .n_outputs = 1};
  EXPECT_INT(weir_run(p, &args), WEIR_OK);
  memcpy(to, views[1]->data, (size_t)n * sizeof *to);
  weir_array_destroy(in);
  weir_array_destroy(out);
  weir_program_destroy(p);
  weir_module_destroy(module);
}

int main(void) {
  for (uint32_t i = 0; i < TIMES * ELEMENTS; i++) x[i] = (uint16_t)i;
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    unsigned before = test_failed;
    run(functions[i], ELEMENTS, once);
    run(functions[i], TIMES * ELEMENTS, y);
    for (int k = 0; k < TIMES; k++) EXPECT(memcmp(once, y + k * ELEMENTS, sizeof once) == 0);
    if (test_failed != before) fprintf(stderr, "in %s\n", functions[i]);
  }
  return test_finish();
}
