/* Functions of bf16: every element has the same bits whether it is looked up, computed beside usual
 * numbers, or computed beside one at the end of the range.
 *
 * In programs, the 2^16 elements alone are too few for a table (kernel_table.h); several times as
 * many may use one, if it is faster. */
#include <math.h>
#include <string.h>

#include "device/cpu/kernel_table.h"
#include "ir/narrow.h"
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

/* ---- the loops ---- */
static double sigmoid(double v) { return 1 / (1 + exp(-v)); }
static double silu(double v) { return v / (1 + exp(-v)); }

static const struct {
  const char *name;
  ir_opcode code;
  bool mode;
  double (*rounded)(double v); /* what every result below 80 is rounded from; NULL: not always */
} loops[] = {
    {"exp", IR_OP_EXP, false, exp},    {"sigmoid", IR_OP_SIGMOID, false, sigmoid},
    {"silu", IR_OP_SILU, false, silu}, {"log", IR_OP_LOG, false, NULL},
    {"sin", IR_OP_SIN, false, NULL},   {"cos", IR_OP_COS, false, NULL},
    {"tanh", IR_OP_TANH, false, NULL}, {"erf", IR_OP_ERF, false, NULL},
    {"gelu", IR_OP_GELU, false, NULL}, {"gelu, tanh", IR_OP_GELU, true, NULL},
};

static void apply(cpu_map_fn *map_loop, int64_t n, const uint16_t *from, const uint16_t *entries,
                  bool mode, uint16_t *to) {
  const void *operands[3] = {from, entries ? entries : from, from};
  map_loop(n, to, operands, mode);
}

static void compare(size_t k) {
  static uint16_t alone[ELEMENTS];
  cpu_map_fn *computed = cpu_vectors()->map[IR_BF16][loops[k].code];
  bool mode = loops[k].mode;
  uint32_t differ = 0, wrong = 0;
  for (uint32_t i = 0; i < ELEMENTS; i++) {
    uint16_t with_far[3] = {(uint16_t)i, 0x7f80, (uint16_t)i}, results[3];
    double v = (double)ir_bf16_as_f32((uint16_t)i);
    apply(computed, 1, with_far, NULL, mode, &alone[i]);
    apply(computed, 3, with_far, NULL, mode, results);
    differ += results[0] != alone[i] || results[2] != alone[i];
    if (loops[k].rounded && fabs(v) < 80)
      wrong += alone[i] != ir_f32_as_bf16((float)loops[k].rounded(v));
  }
  EXPECT_INT(differ, 0);
  EXPECT_INT(wrong, 0);
  apply(computed, ELEMENTS - 1, x + 1, NULL, mode, y);
  EXPECT(memcmp(y, alone + 1, (ELEMENTS - 1) * sizeof *y) == 0);
  const uint16_t *entries = cpu_table_results(loops[k].code, mode);
  EXPECT(memcmp(entries, alone, sizeof alone) == 0);
  apply(cpu_vectors()->lookup, ELEMENTS - 1, x + 1, entries, mode, y);
  EXPECT(memcmp(y, alone + 1, (ELEMENTS - 1) * sizeof *y) == 0);
}

static void compare_loops(void) {
  static const char *const levels[] = {"baseline", "avx2", "avx512"};
  for (size_t l = 0; l < sizeof levels / sizeof *levels; l++)
    for (size_t k = 0; k < sizeof loops / sizeof *loops && cpu_vectors_choose(levels[l]); k++) {
      unsigned before = test_failed;
      compare(k);
      if (test_failed != before) fprintf(stderr, "in %s, %s\n", loops[k].name, levels[l]);
    }
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
  compare_loops();
  return test_finish();
}
