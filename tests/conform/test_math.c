/* The own functions of f32 (src/device/cpu/loops/math_f32.h): how far they are from the exact result, at the
 * baseline of the instruction set and at the levels above, and that those give the same bits.
 *
 *   test_math [every N-th number of f32] */
#include <math.h>
#include <stdlib.h>

#include "base/random.h"
#include "device/cpu/kernel_internal.h"
#include "test.h"

enum { BLOCK = 4099 }; /* no multiple of any vector */

typedef struct function {
  ir_opcode code;
  bool mode;
  double (*exact)(double x);
  double ulps; /* as docs/kernels.md says */
} function;

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double silu(double x) { return x / (1 + exp(-x)); }
static double gelu(double x) { return x * 0.5 * erfc(-x * 0.70710678118654752440); }
static double gelu_tanh(double x) {
  double u = 0.79788456080286535588 * (x + 0.044715 * x * x * x);
  return x / (1 + exp(-2 * u));
}
static double rsqrt(double x) { return 1 / sqrt(x); }

static const function functions[] = {
    {IR_OP_EXP, false, exp, 2},         {IR_OP_LOG, false, log, 2},
    {IR_OP_SIN, false, sin, 2},         {IR_OP_COS, false, cos, 2},
    {IR_OP_TANH, false, tanh, 3},       {IR_OP_ERF, false, erf, 3},
    {IR_OP_SIGMOID, false, sigmoid, 4}, {IR_OP_SILU, false, silu, 4},
    {IR_OP_GELU, false, gelu, 9},       {IR_OP_GELU, true, gelu_tanh, 4},
    {IR_OP_SQRT, false, sqrt, 0.51},    {IR_OP_RSQRT, false, rsqrt, 1.51},
};

/* How many last places of f32 lie between; below the smallest normal number those of that. */
static double distance(float got, double exact) {
  float rounded = (float)exact;
  if (isnan(exact) || isnan(got)) return isnan(exact) && isnan(got) ? 0 : INFINITY;
  if (isinf(rounded) || isinf(got))
    return rounded == got || (isfinite(exact) && fabs(exact) > 3.402823e38) ||
                   (isfinite(got) && fabsf(got) > 3.4e38F)
               ? 0
               : INFINITY;
  double size = fabs(exact) < 0x1p-126 ? 0x1p-126 : fabs(exact);
  return fabs((double)got - exact) / ldexp(1, ilogb(size) - 23);
}

/* sigmoid and silu become 0 where their exponential overflows, gelu where it would be subnormal. */
static bool left_out(const function *f, float x) {
  bool tail = f->code == IR_OP_SIGMOID || f->code == IR_OP_SILU || f->code == IR_OP_GELU;
  double most = f->code == IR_OP_GELU && !f->mode ? 0x1.01p-126 : 1e-36;
  return tail && x < -5 && fabs(f->exact((double)x)) < most;
}

static float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static void run(const function *f, int64_t n, const float *x, float *y) {
  const void *operands[3] = {x, x, x};
  cpu_vectors()->map[IR_F32][f->code](n, y, operands, f->mode);
}

static bool same_bits(const float *a, const float *b, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i]))) return false;
  return true;
}

/* Two levels on a block and on a part of it: the same bits. */
static bool levels_agree(const function *f, const float *x, const float *expected,
                         const char *const levels[2]) {
  static float y[BLOCK];
  for (uint32_t l = 0; l < 2; l++) {
    if (!cpu_vectors_choose(levels[l])) continue;
    run(f, BLOCK, x, y);
    if (!same_bits(y, expected, BLOCK)) return false;
    run(f, BLOCK - 13, x + 13, y);
    if (!same_bits(y, expected + 13, BLOCK - 13)) return false;
  }
  return true;
}

/* At the first of two levels. */
static void measure(const function *f, uint64_t step, const char *const levels[2]) {
  static float x[BLOCK], y[BLOCK];
  double worst = 0;
  float at = 0;
  uint64_t bits = 0;
  while (bits < UINT64_C(1) << 32) {
    for (int64_t i = 0; i < BLOCK; i++, bits += step) x[i] = float_of((uint32_t)bits);
    check(cpu_vectors_choose(levels[0]));
    run(f, BLOCK, x, y);
    for (int64_t i = 0; i < BLOCK; i++) {
      double d = left_out(f, x[i]) ? 0 : distance(y[i], f->exact((double)x[i]));
      if (d > worst) worst = d, at = x[i];
    }
    if (!EXPECT(levels_agree(f, x, y, levels))) break;
  }
  printf("%-8s %-8s%s %5.2f ulp at %.9g\n", levels[0], ir_op_info_of(f->code)->name,
         f->mode ? " tanh" : "     ", worst, (double)at);
  (void)EXPECT(worst <= f->ulps);
}

static void measure_powers(void) {
  static const float bases[] = {0,         -0.0F, 1,         -1,        2,     -2,
                                0.5F,      3.7F,  -1.5F,     1e-40F,    1e30F, INFINITY,
                                -INFINITY, NAN,   0.999999F, 1.000001F, 17,    1e-20F};
  double worst = 0;
  for (uint32_t i = 0; i < sizeof bases / sizeof *bases; i++)
    for (int e = -4000; e <= 4000; e++) {
      float base[3] = {bases[i], bases[i], bases[i]}, y[3];
      float power = e % 3 ? (float)e / 37.0F : (float)(e / 3), exponents[3] = {power, power, power};
      const void *operands[3] = {base, exponents, base};
      cpu_vectors()->map[IR_F32][IR_OP_POW](3, y, operands, false);
      double d = distance(y[1], pow((double)bases[i], (double)power));
      if (d > worst) worst = d;
    }
  printf("pow           %5.2f ulp\n", worst);
  (void)EXPECT(worst <= 1);
}

static float exact_remainder(float a, float b) {
  float r = fmodf(a, b);
  if (r == 0) return copysignf(0, b);
  return (r < 0) != (b < 0) ? r + b : r;
}

/* Remainders are exact. Divisors of any bits; numbers of any bits, near a multiple of the divisor,
 * and so large that vectors leave them to the C library. */
static void test_remainders(const char *level) {
  static float x[2][BLOCK], y[BLOCK], expected[BLOCK];
  uint64_t state = 1;
  if (!cpu_vectors_choose(level)) return;
  for (int round = 0; round < 30; round++) {
    for (int64_t i = 0; i < BLOCK; i++) {
      uint64_t bits = random_mix(state++);
      x[1][i] = float_of((uint32_t)bits);
      x[0][i] = float_of((uint32_t)(bits >> 32));
      if (i % 3 == 1) x[0][i] = x[1][i] * (float)((bits >> 32) % 1000);
      if (i % 3 == 2) x[0][i] = ldexpf(x[1][i], (int)(bits >> 32) % 40) * 1.0000001F;
      expected[i] = exact_remainder(x[0][i], x[1][i]);
    }
    cpu_vectors()->map[IR_F32][IR_OP_MOD](BLOCK, y, (const void *const[]){x[0], x[1], x[0]}, false);
    (void)EXPECT(same_bits(y, expected, BLOCK));
  }
}

/* Rows of norms, also where a scale is not a number of f32, and where the mean is large beside what
 * it is taken from. */
static void measure_norms(const char *level) {
  static const double sizes[] = {1e-42, 1e-33, 1e-20, 1, 1e10, 1e29, 1e38};
  static const double means[] = {0, 1, 1000};
  enum { N = 77 };
  double worst = 0;
  if (!cpu_vectors_choose(level)) return;
  for (uint32_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (uint32_t m = 0; m < sizeof means / sizeof *means; m++) {
      float x[N], y[N];
      double mean = means[m] * sizes[s] > 1e38 ? 0 : means[m] * sizes[s], scale = 1.7 / sizes[s];
      for (int i = 0; i < N; i++) x[i] = (float)(mean + sizes[s] * (i % 7 - 3.25) / 3);
      cpu_vectors()->normalize[IR_F32](N, x, mean, scale, NULL, NULL, y);
      for (int i = 0; i < N; i++) {
        double d = distance(y[i], ((double)x[i] - mean) * scale);
        if (d > worst) worst = d;
      }
    }
  printf("%-8s norm          %5.2f ulp\n", level, worst);
  (void)EXPECT(worst <= (strcmp(level, "baseline") == 0 ? 2.5 : 1.5));
}

/* Norms of bf16: the bits of f32, rounded once. */
static void compare_bf16_norms(const char *level) {
  static const double means[] = {0, 0.75, -300, 1e38}, scales[] = {0.9, 17, 1e-33, 1e33};
  enum { N = 77, CASES = 64 };
  if (!cpu_vectors_choose(level)) return;
  cpu_convert_fn *narrow = cpu_vectors()->convert[IR_BF16][IR_F32];
  cpu_convert_fn *widen = cpu_vectors()->convert[IR_F32][IR_BF16];
  uint16_t x[3][N], y[N], expected[N];
  float wide[3][N], results[N];
  for (uint32_t c = 0; c < CASES; c++) {
    double mean = means[c / 4 % 4], scale = scales[c / 16];
    bool weight = c % 2, bias = c / 2 % 2;
    for (int i = 0; i < N; i++) {
      wide[0][i] = (float)(mean + (i % 13 - 6.3) / scale * 0.7);
      wide[1][i] = (float)(i % 5) - 1.7F;
      wide[2][i] = (float)(i % 7) * 0.3F;
    }
    for (uint32_t k = 0; k < 3; k++) {
      narrow(N, x[k], wide[k]);
      widen(N, wide[k], x[k]);
    }
    cpu_vectors()->normalize[IR_F32](N, wide[0], mean, scale, weight ? wide[1] : NULL,
                                     bias ? wide[2] : NULL, results);
    narrow(N, expected, results);
    cpu_vectors()->normalize[IR_BF16](N, x[0], mean, scale, weight ? x[1] : NULL,
                                      bias ? x[2] : NULL, y);
    if (!EXPECT(memcmp(y, expected, sizeof y) == 0))
      fprintf(stderr, "  at %s: mean %g, scale %g\n", level, mean, scale);
  }
}

/* Sums of squares of bf16, also where a square is no number of f32. */
static void test_bf16_squares(const char *level) {
  static const double sizes[] = {1e-38, 1e-25, 1e-16, 1, 1e15, 1e25, 3e38};
  enum { N = 333 };
  if (!cpu_vectors_choose(level)) return;
  for (uint32_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    float wide[N];
    uint16_t x[N];
    double exact = 0;
    for (int i = 0; i < N; i++) wide[i] = (float)(sizes[s] * (i % 11 - 4.3) / 7);
    cpu_vectors()->convert[IR_BF16][IR_F32](N, x, wide);
    cpu_vectors()->convert[IR_F32][IR_BF16](N, wide, x);
    for (int i = 0; i < N; i++) exact += (double)wide[i] * (double)wide[i];
    cpu_element acc = {.f = 0};
    cpu_vectors()->folds[IR_BF16][CPU_FOLD_SQUARES].row(N, x, &acc, 0);
    if (!EXPECT(fabs(acc.f - exact) <= exact * 0x1p-24))
      fprintf(stderr, "  at %s: size %g: %g, not %g\n", level, sizes[s], acc.f, exact);
  }
}

static void fill_all_sizes(ir_dtype t, char *to, int64_t n);

/* A sum of products: the bits of products one by one and their sum, whatever the length; also where
 * products are infinite or no numbers. */
static void test_sums_of_products(ir_dtype t) {
  enum { N = 333 };
  static _Alignas(64) char x[N * 4], y[N * 4], product[N * 4];
  const cpu_fold *sum = &cpu_vectors()->folds[t][CPU_FOLD_SUM];
  for (int64_t n = 1; n <= N; n++)
    for (uint32_t sizes = 0; sizes < 2; sizes++) {
      fill_all_sizes(t, x, n);
      for (int64_t i = 0; i < n && sizes == 0; i++)
        ir_element_set_f64(t, x + (size_t)i * ir_dtype_size_bytes(t), 1.1 - (double)(i % 9));
      for (int64_t i = 0; i < n; i++)
        ir_element_set_f64(t, y + (size_t)i * ir_dtype_size_bytes(t), (double)(i % 7) - 2.9);
      cpu_element expected = {.f = 0.3}, got = {.f = 0.3};
      cpu_vectors()->map[t][IR_OP_MUL](n, product, (const void *const[]){x, y, x}, false);
      sum->row(n, product, &expected, 0);
      sum->products(n, x, y, &got);
      if (!EXPECT(got.f == expected.f || (isnan(got.f) && isnan(expected.f))))
        fprintf(stderr, "  %lld %s: %g, not %g\n", (long long)n, ir_dtype_text(t), got.f,
                expected.f);
    }
}

/* Numbers of all sizes: every exponent, both signs. */
static void fill_all_sizes(ir_dtype t, char *to, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    double size = ldexp(1 + (double)(i % 13) / 13, (int)(i * 7 % 280) - 150);
    double x = i % 17 == 0 ? 0 : i % 3 ? size : -size;
    ir_element_set_f64(t, to + (size_t)i * ir_dtype_size_bytes(t), x);
  }
}

/* A result may be written over an operand: the same bits as elsewhere. */
static void test_in_place(ir_opcode code, ir_dtype t) {
  static _Alignas(64) char x[3][BLOCK * 8], y[BLOCK * 8], z[BLOCK * 8];
  cpu_map_fn *const *maps = cpu_vectors()->map[t], *loop = maps ? maps[code] : NULL;
  ir_dtype stored = t == IR_F16 ? IR_F32 : t;
  size_t bytes = BLOCK * ir_dtype_size_bytes(stored);
  if (!loop || ir_op_info_of(code)->rule == IR_RESULT_TRUTH) return;
  for (uint32_t k = 0; k < 3; k++) fill_all_sizes(stored, x[k], BLOCK - (int64_t)k);
  loop(BLOCK, y, (const void *const[]){x[0], x[1], x[2]}, false);
  for (uint32_t over = 0; over < 3; over++) {
    const void *operands[3] = {x[0], x[1], x[2]};
    memcpy(z, x[over], bytes);
    operands[over] = z;
    loop(BLOCK, z, operands, false);
    if (!EXPECT(memcmp(y, z, bytes) == 0))
      fprintf(stderr, "  %s of %s over operand %u\n", ir_op_info_of(code)->name, ir_dtype_text(t),
              over);
  }
}

static void test_all_in_place(const char *level) {
  if (!cpu_vectors_choose(level)) return;
  for (uint32_t code = 1; code < IR_OP_COUNT; code++)
    for (uint32_t t = 0; t < IR_DTYPE_COUNT; t++) test_in_place((ir_opcode)code, (ir_dtype)t);
}

int main(int argc, char **argv) {
  uint64_t step = argc > 1 ? strtoull(argv[1], NULL, 10) : SANITIZED ? 40009 : 1009;
  static const char *const baseline[2] = {"baseline", "baseline"}, *const fused[2] = {"avx2",
                                                                                      "avx512"};
  for (uint32_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    measure(&functions[i], step, baseline);
    if (cpu_vectors_choose(fused[0])) measure(&functions[i], step, fused);
  }
  test_all_in_place("baseline");
  test_all_in_place("avx2");
  test_all_in_place("avx512");
  measure_powers();
  test_remainders("baseline");
  test_remainders("avx2");
  test_remainders("avx512");
  measure_norms("baseline");
  measure_norms("avx2");
  measure_norms("avx512");
  static const char *const levels[] = {"baseline", "avx2", "avx512"};
  for (uint32_t l = 0; l < 3; l++) {
    compare_bf16_norms(levels[l]);
    test_bf16_squares(levels[l]);
    if (!cpu_vectors_choose(levels[l])) continue;
    test_sums_of_products(IR_F32);
    test_sums_of_products(IR_BF16);
  }
  return test_finish();
}
