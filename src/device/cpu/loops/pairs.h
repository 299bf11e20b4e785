/* Elements of bf16 by twos: both are computed from a word of 32 bits. The upper one is its upper
 * half, the lower one is shifted there. So loops have no shuffles, which cost more than what most
 * operations compute. */
#ifndef WEIR_DEVICE_CPU_LOOPS_PAIRS_H
#define WEIR_DEVICE_CPU_LOOPS_PAIRS_H

#include <stdint.h>

#include "ir/narrow.h"

typedef uint32_t __attribute__((may_alias, aligned(2))) pair;

static inline float lower(pair x) { return ir_f32_of_bits(x << 16); }
static inline float upper(pair x) { return ir_f32_of_bits(x & 0xffff0000U); }

/* Rounded to bf16, and the lower half not yet cut off. A NaN passes too: made from operands of bf16
 * it has zeros below, so that nothing is carried up. */
static inline uint32_t rounded(float y) {
  uint32_t bits = ir_f32_bits(y);
  return bits + 0x7fff + (bits >> 16 & 1);
}
static inline pair paired(float low, float high) {
  return (rounded(high) & 0xffff0000U) | rounded(low) >> 16;
}

#endif
