/* f64 become f16 and bf16 in one rounding, at every level: every number of both dtypes, the middle between it and the
 * next one, and what lies closest to that middle. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "device/cpu/loops/loops.h"
#include "ir/dtype.h"
#include "test.h"

enum { N = 1 << 16, AROUND = 7 };

static double widened(ir_dtype t, uint32_t bits) {
  uint16_t h = (uint16_t)bits;
  return ir_element_as_f64(t, &h);
}

static bool same(ir_dtype t, uint16_t x, uint16_t y) {
  return x == y || (isnan(widened(t, x)) && isnan(widened(t, y)));
}

/* The number, what is next to it, and the same of the middle. */
static void list_around(ir_dtype t, uint32_t bits, double *to) {
  double x = widened(t, bits), next = widened(t, bits + 1);
  double middle = x + (next - x) / 2;
  double list[AROUND] = {x,      nextafter(x, INFINITY),      nextafter(x, -INFINITY),
                         middle, nextafter(middle, INFINITY), nextafter(middle, -INFINITY),
                         x / 3};
  memcpy(to, list, sizeof list);
}

static void test_dtype(const char *level, ir_dtype t, uint16_t (*one)(double)) {
  double *from = malloc(sizeof *from * N * AROUND);
  uint16_t *to = malloc(sizeof *to * N * AROUND);
  int64_t wrong = 0;
  check(from && to);
  for (uint32_t i = 0; i < N; i++) list_around(t, i, from + (size_t)i * AROUND);
  cpu_vectors()->convert[t][IR_F64](N * AROUND, to, from);
  for (int64_t i = 0; i < N * AROUND; i++) wrong += !same(t, to[i], one(from[i]));
  if (!EXPECT(wrong == 0)) fprintf(stderr, "%s: %lld wrong\n", level, (long long)wrong);
  free(from);
  free(to);
}

int main(void) {
  static const char *const levels[] = {"baseline", "avx2", "avx512"};
  for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
    if (!cpu_vectors_choose(levels[i])) continue;
    test_dtype(levels[i], IR_F16, ir_f16_from_f64);
    test_dtype(levels[i], IR_BF16, ir_bf16_from_f64);
  }
  return test_finish();
}
