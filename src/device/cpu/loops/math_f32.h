/* Functions of f32 in plain C without branches, so that loops over them vectorize.
 *
 * They use additions, products and quotients only, each rounded, and products with a sum that are rounded
 * once where the processor has such an instruction. So levels that have it give the same bits, and the
 * baseline of x86-64, which has not, may give other last bits. docs/kernels.md says how accurate each
 * function is; tests/conform/test_math.c measures it. */
#ifndef WEIR_DEVICE_CPU_LOOPS_MATH_F32_H
#define WEIR_DEVICE_CPU_LOOPS_MATH_F32_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "ir/narrow.h"

static inline double f64_of_bits(uint64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
static inline uint64_t f64_bits(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

/* a * b + c */
static inline float f32_fma(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

/* 2 to the power n, from -126 to 127. */
static inline float f32_power_of_2(int32_t n) { return ir_f32_of_bits((uint32_t)(n + 127) << 23); }

/* x without whole multiples of the logarithm of 2: from -0.35 to 0.35. The lower 22 bits of *whole are how
 * many these are. The logarithm is in two parts, of which the first has few bits. */
static inline float f32_exp_reduced(float x, uint32_t *whole) {
  float shifted = f32_fma(x, 1.44269504F, 12582912.0F); /* 1.5 * 2^23: the last place is 1 */
  float n = shifted - 12582912.0F;
  *whole = ir_f32_bits(shifted);
  return f32_fma(n, 2.12194440e-4F, f32_fma(n, -0.693359375F, x));
}
static inline float f32_exp_argument(float x, int32_t *whole) {
  uint32_t bits;
  float r = f32_exp_reduced(x, &bits);
  *whole = (int32_t)(bits - 0x4b400000U);
  return r;
}

/* exp(r) - 1 of such a rest; r is as good as it where r is small. */
static inline float f32_exp_rest_less_1(float r) {
  float p = 1.9875691500e-4F;
  p = f32_fma(p, r, 1.3981999507e-3F);
  p = f32_fma(p, r, 8.3334519073e-3F);
  p = f32_fma(p, r, 4.1665795894e-2F);
  p = f32_fma(p, r, 1.6666665459e-1F);
  p = f32_fma(p, r, 5.0000001201e-1F);
  return f32_fma(p, r * r, r);
}
/* Between 0.7 and 1.42. */
static inline float f32_exp_rest(float r) { return f32_exp_rest_less_1(r) + 1.0F; }

/* x times 2 to the power n, where both and the result are normal numbers; NaN may become anything. Only
 * the lower 9 bits of n count. */
static inline float f32_scaled(float x, uint32_t n) {
  return ir_f32_of_bits(ir_f32_bits(x) + (n << 23));
}

/* exp(hi + lo), where |lo| is at most a small part of hi; for all of f32. Two factors make up the
 * power of 2, so that overflow and subnormals come out as they should. What becomes 0 does not pass
 * through subnormals, which processors are slow at. */
static inline float f32_exp_sum(float hi, float lo) {
  float x = hi < -104.0F ? 0.0F : hi;
  int32_t whole;
  x = x > 89.0F ? 89.0F : x;
  float p = f32_exp_rest(f32_exp_argument(x, &whole) + lo);
  int32_t half = whole >> 1;
  float y = p * f32_power_of_2(half) * f32_power_of_2(whole - half);
  return hi < -104.0F ? 0.0F : y;
}

/* For x from -80 to 88; NaN may become anything. */
static inline float f32_exp_near(float x) {
  uint32_t whole;
  float p = f32_exp_rest(f32_exp_reduced(x, &whole));
  return f32_scaled(p, whole);
}

static inline float f32_exp(float x) { return f32_exp_sum(x, 0); }
/* The highest bit is set for magnitudes from 80 on and NaN: not for f32_exp_near, which gives the same bits
 * as f32_exp otherwise. */
static inline uint32_t f32_exp_far(float x) {
  return (ir_f32_bits(x) & 0x7fffffffU) + (0x80000000U - 0x42a00000U);
}

/* Of a normal number times 2 to the power `adjust`: the mantissa between sqrt(1/2) and sqrt(2), and a polynomial
 * of its distance from 1. */
static inline float f32_log_scaled(float x, float adjust) {
  uint32_t shifted = ir_f32_bits(x) - 0x3f3504f3U; /* sqrt(1/2) */
  float e = (float)((int32_t)shifted >> 23) + adjust;
  float f = ir_f32_of_bits((shifted & 0x007fffffU) + 0x3f3504f3U) - 1.0F, z = f * f;
  float p = 7.0376836292e-2F;
  p = f32_fma(p, f, -1.1514610310e-1F);
  p = f32_fma(p, f, 1.1676998740e-1F);
  p = f32_fma(p, f, -1.2420140846e-1F);
  p = f32_fma(p, f, 1.4249322787e-1F);
  p = f32_fma(p, f, -1.6668057665e-1F);
  p = f32_fma(p, f, 2.0000714765e-1F);
  p = f32_fma(p, f, -2.4999993993e-1F);
  p = f32_fma(p, f, 3.3333331174e-1F);
  p = f32_fma(-0.5F, z, f32_fma(e, -2.12194440e-4F, p * f * z));
  return f32_fma(e, 0.693359375F, f + p);
}

static inline float f32_log(float x) {
  bool small = x < 0x1p-126F;
  float y = f32_log_scaled(small ? x * 0x1p23F : x, small ? -23.0F : 0.0F);
  y = x == INFINITY ? x : y;
  y = x == 0 ? -INFINITY : y;
  return x < 0 || x != x ? NAN : y;
}

/* (exp(2a) - 1) / (exp(2a) + 1) */
static inline float f32_tanh(float x) {
  float a = fabsf(x), top = a > 10.0F ? 10.0F : a;
  uint32_t whole;
  float q = f32_exp_rest_less_1(f32_exp_reduced(top + top, &whole)),
        power = f32_scaled(1.0F, whole);
  float e = f32_fma(q, power, power - 1.0F), y = e / (e + 2.0F);
  return ir_f32_of_bits(ir_f32_bits(y) | (ir_f32_bits(x) & 0x80000000U));
}

/* The part of a normal distribution above a >= 0, divided by exp(-a² / 2): half of erfcx(a / sqrt(2)). */
static inline float f32_tail(float a) {
  float t = 1.0F / f32_fma(0.35F, a, 1.0F);
  float p = -0.029157886281609535F;
  p = f32_fma(p, t, 0.14403091371059418F);
  p = f32_fma(p, t, -0.2558389902114868F);
  p = f32_fma(p, t, 0.1593196988105774F);
  p = f32_fma(p, t, -0.023212352767586708F);
  p = f32_fma(p, t, 0.10555250197649002F);
  p = f32_fma(p, t, 0.11982128769159317F);
  p = f32_fma(p, t, 0.139863520860672F);
  p = f32_fma(p, t, 0.139621302485466F);
  return p * t;
}

static inline float f32_erf(float x) {
  float a = fabsf(x), z = x * x;
  float p = -0.0005631421809084713F;
  p = f32_fma(p, z, 0.004917551297694445F);
  p = f32_fma(p, z, -0.02671131119132042F);
  p = f32_fma(p, z, 0.11280179768800735F);
  p = f32_fma(p, z, -0.37612324953079224F);
  p = f32_fma(p, z, 1.1283791065216064F);
  float top = a > 4.0F ? 4.0F : a, b = top * 1.41421356F;
  float large = 1.0F - 2.0F * f32_exp_near(-top * top) * f32_tail(b);
  large = ir_f32_of_bits(ir_f32_bits(large) | (ir_f32_bits(x) & 0x80000000U));
  return a >= 1.0F ? large : x * p; /* NaN: the product */
}

/* The highest bit is set where f32_log_scaled does not serve without adjusting: for all but positive normal
 * numbers. */
static inline uint32_t f32_log_far(float x) {
  uint32_t above = ir_f32_bits(x) - 0x00800000U;
  return above | (above + (0x80000000U - 0x7f000000U));
}

/* Of minus infinity the functions below are NaN, as the products that define them are. */
static inline bool f32_is_lowest(float x) { return x < -0x1.fffffep127F; }

/* x times the part of a normal distribution below x; the error is relative to the result also where that
 * is small. Beyond 13.146 it would be subnormal, and products of such are many times slower: it is 0.
 * exp(-a² / 2): the square in two parts, for a with its last 12 bits cut off has an exact one; and 2^64
 * times too large, so that it is normal. */
static inline float f32_gelu(float x) {
  float a = fabsf(x), top = a > 13.146F ? 0.0F : a;
  float cut = ir_f32_of_bits(ir_f32_bits(top) & 0xfffff000U);
  uint32_t whole;
  float lo = -0.5F * ((top - cut) * (top + cut));
  float p = f32_exp_rest(f32_exp_reduced(-0.5F * (cut * cut), &whole) + lo);
  float part = f32_scaled(p, whole + 64) * f32_tail(top) * 0x1p-64F * top;
  float base = x < 0 ? 0.0F : x, y = x < 0 ? -part : base - part;
  return f32_is_lowest(x) ? x - x : y;
}

/* 0.5 x (1 + tanh(u)) = x / (1 + exp(-2u)); u in f64, for errors in it count u times. */
static inline float f32_gelu_tanh(float x) {
  double d = (double)x, u = -1.5957691216057308 * (d + 0.044715 * d * d * d);
  u = u < -200 ? -200 : u;
  u = u > 200 ? 200 : u;
  float hi = (float)u, lo = (float)(u - (double)hi), top = x < -100.0F ? -100.0F : x;
  return f32_is_lowest(x) ? x - x : top / (1.0F + f32_exp_sum(hi, lo));
}

/* 1 + exp(-x) for x from -88 on; NaN may become anything. */
static inline float f32_one_and_exp(float x) {
  float u = x > 80.0F ? -80.0F : -x;
  return 1.0F + f32_exp_near(u > 88.0F ? 88.0F : u);
}
/* Below -88 both are 0. */
static inline float f32_sigmoid(float x) {
  float y = x < -88.0F ? 0.0F : 1.0F / f32_one_and_exp(x);
  return x != x ? x : y;
}
static inline float f32_silu(float x) {
  float y = x < -88.0F ? -0.0F : x / f32_one_and_exp(x);
  return f32_is_lowest(x) ? x - x : y;
}

/* exp(x) for x <= 0, and 0 below -87: weights beside one that is 1. */
static inline float f32_exp_weight(float x) {
  int32_t whole;
  float p = f32_exp_rest(f32_exp_argument(x < -87.0F ? 0.0F : x, &whole));
  return x < -87.0F ? 0.0F : p * f32_power_of_2(whole);
}

/* ---- functions that leave some arguments to the C library ---- */
/* Sine and cosine up to 2^28; beyond that the quarter turns would need more bits. */
static inline _Bool f32_turns_far(float x) { return !(fabsf(x) < 0x1p28F); }

/* The sine of x + quarter turns. */
static inline float f32_sin_turned(float x, int64_t turned) {
  double shifted = (double)x * 0.63661977236758134308 + 0x1.8p52, n = shifted - 0x1.8p52;
  double rest = ((double)x - n * 1.57079631090164184570) - n * 1.58932547735281966916e-08;
  int64_t turns = (int64_t)(f64_bits(shifted) - 0x4338000000000000U) + turned;
  float r = (float)rest, z = r * r;
  float s = ((-1.9515295891e-4F * z + 8.3321608736e-3F) * z - 1.6666654611e-1F) * z * r + r;
  float c =
      ((2.443315711809948e-5F * z - 1.388731625493765e-3F) * z + 4.166664568298827e-2F) * z * z -
      0.5F * z + 1.0F;
  float y = turns & 1 ? c : s;
  return ir_f32_of_bits(ir_f32_bits(y) ^ (uint32_t)(turns & 2) << 30);
}

/* Powers of numbers other than 0 with exponents that are not huge, in f64: exp2(b log2(|a|)). */
static inline _Bool f32_power_special(float a, float b) {
  float magnitude = fabsf(a);
  return !(magnitude > 0 && magnitude < INFINITY && fabsf(b) < 0x1p30F);
}

static inline double f64_log2(double x) {
  uint64_t shifted = f64_bits(x) - 0x3fe6a09e667f3bcdU; /* sqrt(1/2) */
  int64_t e = (int64_t)shifted >> 52;
  double m = f64_of_bits((shifted & 0x000fffffffffffffU) + 0x3fe6a09e667f3bcdU);
  double s = (m - 1) / (m + 1), z = s * s, p = 1.0 / 17;
  p = p * z + 1.0 / 15;
  p = p * z + 1.0 / 13;
  p = p * z + 1.0 / 11;
  p = p * z + 1.0 / 9;
  p = p * z + 1.0 / 7;
  p = p * z + 1.0 / 5;
  p = p * z + 1.0 / 3;
  p = p * z + 1;
  return (double)(int32_t)e + p * s * 2.8853900817779268147;
}

static inline double f64_exp2(double x) {
  double limited = x < -300 ? -300 : x;
  limited = limited > 300 ? 300 : limited;
  double shifted = limited + 0x1.8p52, n = shifted - 0x1.8p52;
  double f = (limited - n) * 0.69314718055994530942, p = 1.0 / 39916800;
  p = p * f + 1.0 / 3628800;
  p = p * f + 1.0 / 362880;
  p = p * f + 1.0 / 40320;
  p = p * f + 1.0 / 5040;
  p = p * f + 1.0 / 720;
  p = p * f + 1.0 / 120;
  p = p * f + 1.0 / 24;
  p = p * f + 1.0 / 6;
  p = p * f + 0.5;
  p = p * f + 1;
  p = p * f + 1;
  uint64_t exponent = f64_bits(shifted) - 0x4338000000000000U + 1023;
  return p * f64_of_bits(exponent << 52);
}

static inline float f32_power(float a, float b) {
  double y = f64_exp2((double)b * f64_log2((double)fabsf(a)));
  int32_t whole = (int32_t)b;
  float signless = (float)y, negative = whole & 1 ? -signless : signless;
  negative = (float)whole == b ? negative : NAN;
  return a < 0 ? negative : signless;
}

/* Quotients from 2^29 on, infinite divisors, 0 and NaN. */
static inline _Bool f32_mod_special(float a, float b) {
  float divisor = fabsf(b);
  return !(fabsf(a) < divisor * 0x1p29F) | !(divisor < INFINITY);
}

/* As FLOAT_MOD says. The whole quotient has at most 30 bits, so its product with b and the
 * remainder are exact in f64. */
static inline float f32_mod_near(float a, float b) {
  double x = (double)fabsf(a), y = (double)fabsf(b);
  double whole = (x / y + 0x1.8p52) - 0x1.8p52, rest = x - whole * y; /* to the nearest */
  float r = (float)(rest < 0 ? rest + y : rest);
  float of_a = a < 0 ? -r : r, moved = (a < 0) != (b < 0) ? of_a + b : of_a;
  return r == 0 ? (b < 0 ? -0.0F : 0.0F) : moved;
}

/* ---- choices and remainders ---- */
/* NaN wins. */
static inline float f32_max(float a, float b) { return ((a != a) | (a > b)) ? a : b; }
static inline float f32_min(float a, float b) { return ((a != a) | (a < b)) ? a : b; }

/* The sign of the divisor; an exact zero takes it too. */
#define FLOAT_MOD(name, type, remainder, with_sign)                                                \
  static inline type name(type a, type b) {                                                        \
    type r = remainder(a, b);                                                                      \
    if (r == 0) return with_sign((type)0, b);                                                      \
    return (r < 0) != (b < 0) ? r + b : r;                                                         \
  }
FLOAT_MOD(f32_mod, float, fmodf, copysignf)

#endif
