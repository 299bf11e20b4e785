/* Units of pairs of bf16, bit by bit against their definition: panels and few rows, with odd depths, columns that
 * fill no vector, strides of all kinds, subnormal numbers, infinities and NaN. What lies around the operands is
 * NaN, and memory ends where they do. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/kernel_gemm.h"
#include "test.h"

static uint64_t state = 1;
static const uint16_t NOTHING = 0x7fc1; /* a NaN */

static int64_t below(int64_t n) {
  state = state * 6364136223846793005U + 1442695040888963407U;
  return (int64_t)((state >> 33) % (uint64_t)n);
}
static bool chance(int64_t percent) { return below(100) < percent; }
static int64_t pick(const int64_t *from, size_t n) { return from[below((int64_t)n)]; }
#define PICK(from) pick((from), sizeof(from) / sizeof *(from))

/* ---- what a sum of products is ---- */
static float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static float without_subnormals(float x) { return fabsf(x) < FLT_MIN ? copysignf(0, x) : x; }

static float added(float sum, uint16_t x, uint16_t y) {
  float a = without_subnormals(float_of((uint32_t)x << 16));
  float b = without_subnormals(float_of((uint32_t)y << 16));
  return without_subnormals(fmaf(a, b, sum));
}

/* ---- matrices ---- */
typedef struct matrix {
  cpu_matrix shape;
  char *memory; /* `bytes` of it, all that the matrix spans */
  int64_t bytes;
} matrix;

static matrix matrix_make(int64_t rows, int64_t columns, int64_t row, int64_t column,
                          int64_t element_bytes) {
  matrix m = {.shape = {rows, columns, row, column}};
  m.bytes = ((rows - 1) * row + (columns - 1) * column + 1) * element_bytes;
  m.memory = malloc((size_t)m.bytes);
  check(m.memory != NULL);
  return m;
}

static uint16_t *element_at(const matrix *m, int64_t i, int64_t j) {
  return (uint16_t *)(void *)m->memory + i * m->shape.row_stride + j * m->shape.column_stride;
}

static float *sum_at(const matrix *m, int64_t i, int64_t j) {
  return (float *)(void *)m->memory + i * m->shape.row_stride + j * m->shape.column_stride;
}

/* 2^-12 to 2^11; `wild`: now and then anything. */
static uint16_t random_element(bool wild) {
  if (wild && below(500) == 0) return (uint16_t)(below(2) << 15 | 0x7f80); /* infinite */
  if (wild && chance(3)) return (uint16_t)below(1 << 16);
  if (wild && chance(10)) return (uint16_t)(below(2) << 15 | below(1 << 9)); /* the smallest ones */
  return (uint16_t)(below(2) << 15 | (115 + below(24)) << 7 | below(128));
}

static void fill(const matrix *m, bool wild) {
  for (int64_t i = 0; i < m->bytes / 2; i++) ((uint16_t *)(void *)m->memory)[i] = NOTHING;
  for (int64_t i = 0; i < m->shape.rows; i++)
    for (int64_t j = 0; j < m->shape.columns; j++) *element_at(m, i, j) = random_element(wild);
}

/* ---- one product ---- */
typedef struct product {
  matrix a, b, c, before;
  bool accumulate;
} product;

/* b: contiguous along columns, along k, or not at all. */
static product product_make(int64_t m, int64_t n, int64_t k, int b_form, bool wild) {
  int64_t gap = chance(50) ? 0 : below(5);
  product p = {.a = matrix_make(m, k, k + gap, 1, 2), .accumulate = chance(50)};
  if (b_form == 0) p.b = matrix_make(k, n, n + gap, 1, 2);
  else if (b_form == 1) p.b = matrix_make(k, n, 1, k + gap, 2);
  else p.b = matrix_make(k, n, 2, 2 * k + 1, 2);
  p.c = matrix_make(m, n, n + below(4), 1, 4);
  p.before = matrix_make(m, n, p.c.shape.row_stride, 1, 4);
  fill(&p.a, wild);
  fill(&p.b, wild);
  for (int64_t i = 0; i < p.c.bytes / 4; i++)
    ((float *)(void *)p.c.memory)[i] = (float)below(1000) * 0x1p-5F - 10;
  memcpy(p.before.memory, p.c.memory, (size_t)p.c.bytes);
  return p;
}

static void product_destroy(product *p) {
  matrix *all[] = {&p->a, &p->b, &p->c, &p->before};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]->memory);
}

/* Pairs in the order of k, of each the second product first; CPU_GEMM_DEPTH at a time. After an odd depth is a
 * zero. */
static float expected_at(const product *p, int64_t i, int64_t j) {
  float result = *sum_at(&p->before, i, j);
  bool begun = p->accumulate;
  for (int64_t d = 0, n = p->b.shape.rows; d < n; d += CPU_GEMM_DEPTH, begun = true) {
    int64_t end = d + CPU_GEMM_DEPTH < n ? d + CPU_GEMM_DEPTH : n;
    float sum = 0;
    for (int64_t k = d; k < end; k += 2) {
      bool second = k + 1 < end;
      sum = added(sum, second ? *element_at(&p->a, i, k + 1) : 0,
                  second ? *element_at(&p->b, k + 1, j) : 0);
      sum = added(sum, *element_at(&p->a, i, k), *element_at(&p->b, k, j));
    }
    result = begun ? result + sum : sum;
  }
  return result;
}

static uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static bool same(float x, float y) { return bits_of(x) == bits_of(y) || (isnan(x) && isnan(y)); }

/* The first `columns`; nothing else may have changed. */
static void expect_product(const product *p, int64_t columns, const char *what) {
  int64_t wrong = 0, row = p->c.shape.row_stride;
  for (int64_t at = 0; at < p->c.bytes / 4; at++) {
    int64_t i = at / row, j = at % row;
    float want = j < columns ? expected_at(p, i, j) : *sum_at(&p->before, i, j);
    wrong += !same(*sum_at(&p->c, i, j), want);
  }
  if (!EXPECT(wrong == 0))
    fprintf(stderr, "%s, %lld x %lld x %lld, strides of b %lld and %lld: %lld wrong\n", what,
            (long long)p->c.shape.rows, (long long)p->c.shape.columns, (long long)p->b.shape.rows,
            (long long)p->b.shape.row_stride, (long long)p->b.shape.column_stride,
            (long long)wrong);
}

/* ---- panels ---- */
static void test_panels(const cpu_gemm_unit *u, char *scratch) {
  static const int64_t depths[] = {1, 2, 3, 7, 31, 32, 33, 64, 65, 97, 255, 256};
  static const int64_t columns[] = {1, 5, 15, 16, 17, 48, 63, 64, 65, 130};
  for (int t = 0; t < 600; t++) {
    product p = product_make(1 + below(26), PICK(columns), PICK(depths), t % 3, chance(50));
    /* What is fetched ahead changes nothing, and need not be there. */
    const char *nowhere = (const char *)(uintptr_t)4096;
    cpu_ahead ahead = cpu_ahead_of(&p.b.shape, chance(50) ? nowhere : NULL, u->element_bytes);
    cpu_gemm_block(u, &p.a.shape, p.a.memory, &p.b.shape, p.b.memory, &p.c.shape, p.c.memory, ahead,
                   p.accumulate, scratch);
    expect_product(&p, p.c.shape.columns, "panels");
    product_destroy(&p);
  }
}

/* ---- few rows ---- */
/* Rows of a as cpu_few wants them. */
static uint16_t *staged(const product *p) {
  int64_t rows = cpu_few_rows(p->a.shape.rows), k = p->a.shape.columns;
  int64_t blocks = (k + CPU_GEMM_DEPTH - 1) / CPU_GEMM_DEPTH;
  uint16_t *to = calloc((size_t)(blocks * rows * CPU_GEMM_DEPTH), sizeof *to);
  check(to != NULL);
  for (int64_t i = 0; i < p->a.shape.rows; i++)
    for (int64_t d = 0; d < k; d++)
      to[(d / CPU_GEMM_DEPTH * rows + i) * CPU_GEMM_DEPTH + d % CPU_GEMM_DEPTH] =
          *element_at(&p->a, i, d);
  return to;
}

static void test_few(const cpu_gemm_unit *u, char *scratch) {
  static const int64_t depths[] = {1,   2,   9,    32,   63,   64,   255,  256,  257, 511,
                                   512, 530, 1023, 1290, 4095, 4096, 4099, 4400, 8711};
  static const int64_t columns[] = {16, 19, 33, 64, 95};
  for (int t = 0; t < 400; t++) {
    int64_t rows =
        chance(40) ? 1 : 1 + below(CPU_GEMM_FEW); /* one row is computed in its own way */
    product p = product_make(rows, PICK(columns), PICK(depths), t % 2, chance(50));
    cpu_few f = {.b = p.b.shape,
                 .c = p.c.shape,
                 .a_rows = cpu_few_rows(p.a.shape.rows),
                 .from = p.b.memory,
                 .bf16 = true,
                 .accumulate = p.accumulate};
    f.c.columns = f.c.columns / u->lanes * u->lanes;
    uint16_t *a = staged(&p);
    u->few(&f, a, p.c.memory, scratch);
    expect_product(&p, f.c.columns, "few rows");
    free(a);
    product_destroy(&p);
  }
}

/* ---- which unit ---- */
static void test_choice(void) {
  static const char *const levels[] = {"baseline", "avx2", "avx512"};
  for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
    if (!cpu_vectors_choose(levels[i])) continue;
    EXPECT(cpu_gemm_unit_for(IR_BF16, IR_BF16, IR_F32) == cpu_gemm_unit_of(IR_F32));
    EXPECT(!cpu_gemm_unit_of(IR_F32)->pairs);
  }
  if (!cpu_vectors_choose("avx512_bf16")) return;
  EXPECT(cpu_gemm_unit_for(IR_BF16, IR_BF16, IR_F32)->pairs);
  EXPECT(cpu_gemm_unit_for(IR_F32, IR_BF16, IR_F32) == cpu_gemm_unit_of(IR_F32));
  EXPECT(cpu_gemm_unit_for(IR_BF16, IR_F16, IR_F32) == cpu_gemm_unit_of(IR_F32));
  EXPECT(cpu_gemm_unit_for(IR_BF16, IR_BF16, IR_F64) == cpu_gemm_unit_of(IR_F64));
}

int main(void) {
  test_choice();
  if (!cpu_vectors_choose("avx512_bf16")) {
    printf("this processor has no products of pairs\n");
    return test_finish();
  }
  const cpu_gemm_unit *u = cpu_gemm_unit_for(IR_BF16, IR_BF16, IR_F32);
  char *scratch = aligned_alloc(CPU_SCRATCH_ALIGN, cpu_gemm_scratch_bytes());
  check(scratch != NULL);
  test_panels(u, scratch);
  test_few(u, scratch);
  free(scratch);
  return test_finish();
}
