/* f16 and bf16 as bits, without branches so that loops over them vectorize. */
#ifndef WEIR_DEVICE_CPU_LOOPS_NARROW_H
#define WEIR_DEVICE_CPU_LOOPS_NARROW_H

#include <stdint.h>
#include <string.h>

static inline uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline float read_bf16(uint16_t h) { return float_of((uint32_t)h << 16); }

/* Shifted into place the exponent is 112 too small; a product mends that and normalizes subnormals. */
static inline float read_f16(uint16_t h) {
  uint32_t magnitude = (uint32_t)(h & 0x7fff) << 13, sign = (uint32_t)(h & 0x8000) << 16;
  uint32_t finite = bits_of(float_of(magnitude) * 0x1p112F), special = magnitude | 0x7f800000U;
  return float_of(sign | ((h & 0x7fff) >= 0x7c00 ? special : finite));
}

static inline uint16_t bf16_from_f32(float value) {
  uint32_t x = bits_of(value), rounded = x + 0x7fff + (x >> 16 & 1);
  return (uint16_t)((value != value ? x | 0x400000U : rounded) >> 16);
}

/* A subnormal result: adding 0.5, whose last place is f16's smallest number, rounds as wanted. */
static inline uint16_t f16_from_f32(float value) {
  uint32_t x = bits_of(value), sign = x >> 16 & 0x8000, m = x & 0x7fffffff;
  uint32_t small = bits_of(float_of(m) + 0.5F) - 0x3f000000U;
  uint32_t normal = (m + 0xc8000fffU + (m >> 13 & 1)) >> 13;
  uint32_t large = m > 0x7f800000U ? 0x7e00 : 0x7c00;
  uint32_t h = m < 0x38800000U ? small : normal;
  return (uint16_t)(sign | (m >= 0x47800000U ? large : h));
}

/* The same as writing and reading, without making elements narrow in between. */
static inline float round_to_bf16(float value) {
  uint32_t x = bits_of(value), rounded = x + 0x7fff + (x >> 16 & 1);
  return float_of((value != value ? x | 0x400000U : rounded) & 0xffff0000U);
}
static inline float round_to_f16(float value) { return read_f16(f16_from_f32(value)); }

#endif
