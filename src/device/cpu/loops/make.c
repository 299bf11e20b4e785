/* Numbers of `uniform`, each from its own number alone. */
#include <math.h>

#include "device/cpu/loops/move.h"

#include "device/cpu/kernel_fast.h"
/* After it: only functions of equal options are inlined. */
#include "base/random.h"

/* Unsigned, so that numbers of any window wrap around alike. */
#define EACH(fraction, value)                                                                      \
  for (int64_t i = 0; i < n; i++) {                                                                \
    uint64_t bits = random_bits(key, number + (uint64_t)i * step);                                 \
    double v = lo + width * (fraction);                                                            \
    to[i] = value;                                                                                 \
  }
#define BITS_24 (double)(int32_t)(bits >> 40) * 0x1p-24
#define BITS_53 (double)(int64_t)(bits >> 11) * 0x1p-53

void cpu_make_uniform(const cpu_uniform *u, int64_t n, uint64_t number, uint64_t step, double *to) {
  uint64_t key = u->key;
  double lo = u->lo, width = u->hi - u->lo;
  if (u->whole) EACH(BITS_53, floor(v))
  else if (u->narrow) EACH(BITS_24, v)
  else EACH(BITS_53, v)
}
