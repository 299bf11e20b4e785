#include "device/cpu/speed.h"

#include <stdlib.h>
#include <string.h>

#include "device/cpu/kernel_gemm.h"
#include "runtime/device.h"

enum { SIDE = CPU_GEMM_DEPTH, COPY_BYTES = 4 << 20, TRIES = 25 };

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

cpu_speed cpu_speed_measure(void) {
  size_t matrix_bytes = sizeof(float) * SIDE * SIDE;
  float *matrices = calloc(3, matrix_bytes);
  char *bytes = calloc(2, COPY_BYTES), *scratch = malloc(cpu_gemm_scratch_bytes() + 64);
  cpu_speed found = {0};
  int64_t product_ns = INT64_MAX, copy_ns = INT64_MAX;
  for (int i = 0; matrices && bytes && scratch && i < TRIES; i++) {
    float *a = matrices, *b = a + SIDE * SIDE, *c = b + SIDE * SIDE;
    keep_least(&product_ns, time_product(a, b, c, scratch));
    keep_least(&copy_ns, time_copy(bytes, bytes + COPY_BYTES));
  }
  if (product_ns != INT64_MAX) found.flops_per_ns = 2.0 * SIDE * SIDE * SIDE / (double)product_ns;
  if (copy_ns != INT64_MAX) found.bytes_per_ns = 2.0 * COPY_BYTES / (double)copy_ns;
  free(matrices);
  free(bytes);
  free(scratch);
  return found;
}
