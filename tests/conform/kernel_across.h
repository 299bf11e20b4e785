/* Rows side by side in memory, dense: softmax, norms and running sums against their definition, in
 * doubles. */
#ifndef WEIR_TESTS_CONFORM_KERNEL_ACROSS_H
#define WEIR_TESTS_CONFORM_KERNEL_ACROSS_H

#include "conform/cuda_emulator.h"
#include "conform/kernel_cases.h"

typedef struct across_case {
  ir_opcode code;
  ir_dtype dtype;
  int64_t n, rows, pitch; /* element j of row r is j * pitch + r */
} across_case;

static double across_value(int64_t j, int64_t r, uint64_t salt) {
  uint64_t bits = ((uint64_t)j * 0x9e3779b97f4a7c15u + (uint64_t)r * 0xbf58476d1ce4e5b9u) ^ salt;
  bits = (bits ^ bits >> 31) * 0x94d049bb133111ebu;
  return (double)(bits >> 50) * 0x1p-11 - 4; /* -4 … 4, exact in f16's bits or nearly */
}

static void *across_fill(ir_dtype t, int64_t n, int64_t rows, int64_t pitch, uint64_t salt) {
  size_t size = ir_dtype_size_bytes(t);
  char *x = ARENA_ARRAY(&memory, (size_t)(n * pitch) * 8, char);
  for (int64_t j = 0; j < n; j++)
    for (int64_t r = 0; r < rows; r++)
      ir_element_set_f64(t, x + (size_t)(j * pitch + r) * size, across_value(j, r, salt));
  return x;
}

static double across_at(ir_dtype t, const char *x, int64_t at) {
  return ir_element_as_f64(t, x + (size_t)at * ir_dtype_size_bytes(t));
}

/* What is taken from an element of row r, and what it is multiplied by then. */
static void across_stats(const across_case *c, const char *x, int64_t r, double *from, double *by) {
  double most = -INFINITY, sum = 0, squares = 0, exponentials = 0;
  for (int64_t j = 0; j < c->n; j++) {
    double g = across_at(c->dtype, x, j * c->pitch + r);
    most = fmax(most, g);
    sum += g;
  }
  double mean = c->code == IR_OP_LAYER_NORM ? sum / (double)c->n : 0;
  for (int64_t j = 0; j < c->n; j++) {
    double g = across_at(c->dtype, x, j * c->pitch + r);
    squares += (g - mean) * (g - mean);
    exponentials += exp(g - most);
  }
  *from = c->code == IR_OP_SOFTMAX ? most : mean;
  *by = c->code == IR_OP_SOFTMAX ? 1 / exponentials : 1 / sqrt(squares / (double)c->n + 1e-5);
}

static double across_worst(const across_case *c, const char *x, const char *y, const char *weight,
                           const char *bias) {
  double worst = 0;
  for (int64_t r = 0; r < c->rows; r++) {
    double from, by;
    across_stats(c, x, r, &from, &by);
    for (int64_t j = 0; j < c->n; j++) {
      double d = across_at(c->dtype, x, j * c->pitch + r) - from;
      double want = c->code == IR_OP_SOFTMAX ? exp(d) * by : d * by, size = fabs(want);
      if (c->code != IR_OP_SOFTMAX) want *= across_at(c->dtype, weight, j), size += fabs(want);
      if (c->code == IR_OP_LAYER_NORM) want += across_at(c->dtype, bias, j), size += 4;
      double error = fabs(across_at(c->dtype, y, j * c->pitch + r) - want) / size;
      if (!(error <= worst)) worst = error;
    }
  }
  return worst;
}

static void run_across_case(const across_case *c) {
  char *x = across_fill(c->dtype, c->n, c->rows, c->pitch, 1);
  char *weight = across_fill(c->dtype, c->n, 1, 1, 2), *bias = across_fill(c->dtype, c->n, 1, 1, 3);
  char *y = ARENA_ARRAY(&memory, (size_t)(c->n * c->pitch) * 8, char);
  char *starts[] = {y, x, weight, bias};
  cg_rows r = {.code = c->code, .rank = 2, .extents = {c->rows, c->n}, .count = c->n, .eps = 1e-5};
  cg_view *views[] = {&r.result, &r.x, &r.weight, &r.bias};
  for (uint32_t i = 0; i < 4; i++) {
    bool is_vector = i > 1;
    *views[i] = (cg_view){.start = i, .dtype = c->dtype, .align = CG_ALIGN};
    views[i]->strides[0] = !is_vector;
    views[i]->strides[1] = is_vector ? 1 : c->pitch;
  }
  r.has_weight = c->code != IR_OP_SOFTMAX;
  r.has_bias = c->code == IR_OP_LAYER_NORM;
  cg_kernel k;
  cg_kernel_init(&k, &memory, CG_H100);
  cg_write_rows(&k, &r);
  for (uint32_t i = 0; i < k.n_launches; i++) emulator_add(&k.launches[i]);
  if (dry_run) return;
  check(emulator_run(&k, starts, NULL, NULL));
  double most = c->dtype == IR_F64 ? 1e-13 : c->dtype == IR_F32 ? 0x1p-20 : 0x1p-8;
  double worst = across_worst(c, x, y, weight, bias);
  if (!EXPECT(worst <= most))
    fprintf(stderr, "%s of %lld rows of %lld %s, side by side, is wrong by %g\n",
            ir_op_info_of(c->code)->name, (long long)c->rows, (long long)c->n,
            ir_dtype_text(c->dtype), worst);
}

/* Lanes of one warp and of several, large blocks, all threads side by side; with a rest. */
static status run_across(void *context) {
  static const ir_opcode codes[] = {IR_OP_SOFTMAX, IR_OP_LAYER_NORM, IR_OP_RMS_NORM};
  static const ir_dtype dtypes[] = {IR_BF16, IR_F32, IR_F64};
  static const int64_t shapes[][3] = {{300, 72, 72}, {4100, 40, 40}, {9, 600, 600},
                                      {33, 75, 80},  {2, 40, 40},    {1, 33, 40}};
  (void)context;
  for (int i = 0; i < 9; i++)
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
      run_across_case(
          &(across_case){codes[i % 3], dtypes[i / 3], shapes[s][0], shapes[s][1], shapes[s][2]});
  return STATUS_OK;
}

/* ---- running sums ---- */
/* Elements `first` and on, into a result of the accumulator's dtype if they are integers. */
static void run_scan_case(const across_case *c, int64_t first) {
  bool is_float = ir_dtype_is_float(c->dtype);
  ir_dtype to = is_float ? c->dtype : IR_I64;
  char *x = across_fill(c->dtype, c->n, c->rows, c->pitch, 1);
  char *y = ARENA_ARRAY(&memory, (size_t)(c->n * c->pitch) * 8, char);
  char *starts[] = {y, x};
  cg_lines l = {.code = IR_OP_CUMSUM, .rank = 1, .extents = {c->rows}, .n = c->n, .first = first};
  l.count = c->n - first;
  l.result = (cg_view){.dtype = to, .align = CG_ALIGN, .strides = {1}};
  l.x = (cg_view){.start = 1, .dtype = c->dtype, .align = CG_ALIGN, .strides = {1}};
  l.result_step = l.x_step = c->pitch;
  cg_kernel k;
  cg_kernel_init(&k, &memory, CG_H100);
  cg_write_lines(&k, &l);
  for (uint32_t i = 0; i < k.n_launches; i++) emulator_add(&k.launches[i]);
  if (dry_run) return;
  (void)EXPECT(strstr(k.launches[0].source, "carry[t] = run;") != NULL);
  check(emulator_run(&k, starts, NULL, NULL));
  double most = c->dtype == IR_F64 ? 0x1p-48 : c->dtype == IR_F32 ? 0x1p-22 : 0x1p-8, worst = 0;
  for (int64_t r = 0; r < c->rows; r++) {
    double want = 0, size = 1;
    for (int64_t j = 0; j < c->n; j++) {
      double g = across_at(c->dtype, x, j * c->pitch + r);
      want += g;
      size += fabs(g) * 0x1p-8;
      if (j < first) continue;
      double error = fabs(across_at(to, y, (j - first) * c->pitch + r) - want);
      error /= is_float ? fabs(want) + size : 1;
      if (!(error <= worst)) worst = error;
    }
  }
  if (!EXPECT(worst <= (is_float ? most : 0)))
    fprintf(stderr, "the running sums of %lld rows of %lld %s, side by side, are wrong by %g\n",
            (long long)c->rows, (long long)c->n, ir_dtype_text(c->dtype), worst);
}

static status run_scans(void *context) {
  (void)context;
  run_scan_case(&(across_case){IR_OP_CUMSUM, IR_BF16, 300, 3240, 3240}, 0);
  run_scan_case(&(across_case){IR_OP_CUMSUM, IR_BF16, 270, 3997, 4000}, 13);
  run_scan_case(&(across_case){IR_OP_CUMSUM, IR_F32, 257, 1700, 1700}, 0);
  run_scan_case(&(across_case){IR_OP_CUMSUM, IR_F64, 4100, 801, 802}, 1);
  run_scan_case(&(across_case){IR_OP_CUMSUM, IR_F16, 40, 6401, 6401}, 0); /* one by one */
  run_scan_case(&(across_case){IR_OP_CUMSUM, IR_I8, 130, 9001, 9008}, 20);
  run_scan_case(&(across_case){IR_OP_CUMSUM, IR_I32, 3, 103000, 103000}, 0);
  return STATUS_OK;
}

#endif
