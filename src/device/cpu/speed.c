#include "device/cpu/speed.h"

#include <stdlib.h>
#include <string.h>

#include "device/cpu/kernel_gemm.h"
#include "device/cpu/loops/loops.h"
#include "runtime/device.h"

enum { SIDE = CPU_GEMM_DEPTH, COPY_BYTES = 4 << 20, TRIES = 25, MEMORY_TRIES = 6 };

static int64_t time_product(float *a, float *b, float *c, char *scratch) {
  cpu_matrix m = {SIDE, SIDE, SIDE, 1};
  int64_t start_ns = rt_clock_ns();
  cpu_gemm_block(cpu_gemm_unit_of(IR_F32), &m, a, &m, b, &m, c, IR_F32, false, scratch);
  return rt_clock_ns() - start_ns;
}

static int64_t time_copy(char *from, char *to) {
  int64_t start_ns = rt_clock_ns();
  memcpy(to, from, COPY_BYTES);
  return rt_clock_ns() - start_ns;
}

static void keep_least(int64_t *least, int64_t ns) {
  if (ns > 0 && ns < *least) *least = ns;
}

static void measure_products(cpu_speed *found) {
  size_t matrix_bytes = sizeof(float) * SIDE * SIDE;
  float *matrices = calloc(3, matrix_bytes);
  char *bytes = calloc(2, COPY_BYTES), *scratch = malloc(cpu_gemm_scratch_bytes() + 64);
  int64_t product_ns = INT64_MAX, copy_ns = INT64_MAX;
  for (int i = 0; matrices && bytes && scratch && i < TRIES; i++) {
    float *a = matrices, *b = a + SIDE * SIDE, *c = b + SIDE * SIDE;
    keep_least(&product_ns, time_product(a, b, c, scratch));
    keep_least(&copy_ns, time_copy(bytes, bytes + COPY_BYTES));
  }
  if (product_ns != INT64_MAX) found->flops_per_ns = 2.0 * SIDE * SIDE * SIDE / (double)product_ns;
  if (copy_ns != INT64_MAX) found->copied_per_ns = 2.0 * COPY_BYTES / (double)copy_ns;
  free(matrices);
  free(bytes);
  free(scratch);
}

/* The least time of an elementwise operation on n elements, per element; 0: not known. */
static double time_map(ir_opcode code, int64_t n, int tries, const float *from, float *to) {
  cpu_map_fn *fn = cpu_vectors()->map[IR_F32][code];
  const void *x[] = {from, NULL, NULL};
  int64_t least_ns = INT64_MAX;
  for (int i = 0; fn && i < tries; i++) {
    int64_t start_ns = rt_clock_ns();
    fn(n, to, x, false);
    keep_least(&least_ns, rt_clock_ns() - start_ns);
  }
  return least_ns == INT64_MAX ? 0 : (double)least_ns / (double)n;
}

static void measure_maps(cpu_speed *found) {
  enum { LARGE = 4 << 20, INNER = 256 << 10, SMALL = 4 << 10, TOUCHED = 2 * sizeof(float) };
  float *from = calloc(LARGE, sizeof *from), *to = calloc(LARGE, sizeof *to);
  if (from && to) {
    for (int64_t i = 0; i < LARGE; i++)
      from[i] = 0.5F; /* pages that nobody wrote are all the same one */
    double large_ns = time_map(IR_OP_RELU, LARGE, MEMORY_TRIES, from, to);
    double inner_ns = time_map(IR_OP_RELU, INNER, TRIES, from, to);
    if (large_ns > 0) found->memory_bytes_per_ns = TOUCHED / large_ns;
    if (inner_ns > 0) found->cache_bytes_per_ns = TOUCHED / inner_ns;
    found->function_ns = time_map(IR_OP_EXP, SMALL, TRIES, from, to);
  }
  free(from);
  free(to);
}

cpu_speed cpu_speed_measure(void) {
  cpu_speed found = {0};
  measure_products(&found);
  measure_maps(&found);
  return found;
}
