/* f16 and bf16 as bits, without branches so that loops over them vectorize. */
#ifndef WEIR_IR_NARROW_H
#define WEIR_IR_NARROW_H

#include <stdint.h>
#include <string.h>

static inline uint32_t ir_f32_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline float ir_f32_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline float ir_bf16_as_f32(uint16_t h) { return ir_f32_of_bits((uint32_t)h << 16); }

/* Shifted into place the exponent is 112 too small; a product mends that and normalizes subnormals. */
static inline float ir_f16_as_f32(uint16_t h) {
  uint32_t magnitude = (uint32_t)(h & 0x7fff) << 13, sign = (uint32_t)(h & 0x8000) << 16;
  uint32_t finite = ir_f32_bits(ir_f32_of_bits(magnitude) * 0x1p112F),
           special = magnitude | 0x7f800000U;
  return ir_f32_of_bits(sign | ((h & 0x7fff) >= 0x7c00 ? special : finite));
}

static inline uint16_t ir_f32_as_bf16(float value) {
  uint32_t x = ir_f32_bits(value), rounded = x + 0x7fff + (x >> 16 & 1);
  return (uint16_t)((value != value ? x | 0x400000U : rounded) >> 16);
}

/* A subnormal result: adding 0.5, whose last place is f16's smallest number, rounds as wanted. */
static inline uint16_t ir_f32_as_f16(float value) {
  uint32_t x = ir_f32_bits(value), sign = x >> 16 & 0x8000, m = x & 0x7fffffff;
  uint32_t small = ir_f32_bits(ir_f32_of_bits(m) + 0.5F) - 0x3f000000U;
  uint32_t normal = (m + 0xc8000fffU + (m >> 13 & 1)) >> 13;
  uint32_t large = m > 0x7f800000U ? 0x7e00 : 0x7c00;
  uint32_t h = m < 0x38800000U ? small : normal;
  return (uint16_t)(sign | (m >= 0x47800000U ? large : h));
}

/* The same as writing and reading, without making elements narrow in between. */
static inline float ir_f32_round_bf16(float value) {
  uint32_t x = ir_f32_bits(value), rounded = x + 0x7fff + (x >> 16 & 1);
  return ir_f32_of_bits((value != value ? x | 0x400000U : rounded) & 0xffff0000U);
}
static inline float ir_f32_round_f16(float value) { return ir_f16_as_f32(ir_f32_as_f16(value)); }

#endif
