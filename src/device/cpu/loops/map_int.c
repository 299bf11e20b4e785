/* Pointwise loops of the integers and bools.
 *
 * 8-bit types are computed in 32 bits and cut, which the compiler undoes where it does not matter;
 * 32 and 64 bits are computed in themselves. Unsigned arithmetic makes everything wrap around. */
#include "device/cpu/loops/loops.h"

#include "device/cpu/kernel_fast.h"

#define MAP_EXPRESSION(fexpr, iexpr) iexpr
#define IMOD(a, b) int_mod(a, b)
#define IPOW(a, b) int_pow(a, b)
#define WNEG(a) UNSIGNED_MATH(0, -, a)
#define WADD(a, b) UNSIGNED_MATH(a, +, b)
#define WSUB(a, b) UNSIGNED_MATH(a, -, b)
#define WMUL(a, b) UNSIGNED_MATH(a, *, b)
/* A conditional expression may mix this with the signed operand, so it goes back to that type. */
#define UNSIGNED_MATH(a, op, b)                                                                    \
  _Generic((b), int64_t                                                                            \
           : (int64_t)((uint64_t)(a)op(uint64_t)(b)), int32_t                                      \
           : (int32_t)((uint32_t)(a)op(uint32_t)(b)))

/* The sign of the divisor; 0 for a divisor of 0. */
static inline int64_t int_mod(int64_t a, int64_t b) {
  if (b == 0 || b == -1) return 0; /* -1: the smallest number % -1 would overflow */
  int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static int64_t negative_power(int64_t base, int64_t exponent) {
  if (base == 1) return 1;
  if (base == -1) return exponent & 1 ? -1 : 1;
  return 0;
}

static int64_t int_pow(int64_t base, int64_t exponent) {
  uint64_t power = 1, square = (uint64_t)base;
  if (exponent < 0) return negative_power(base, exponent);
  for (; exponent > 0; exponent >>= 1, square *= square)
    if (exponent & 1) power *= square;
  return (int64_t)power;
}

#define INVERT(a) (~(a))

#define MAP_TYPE int64_t
#define MAP_WIDE int64_t
#define MAP_TABLE cpu_map_i64
#define MAP_NAME(id) i64_##id
#define MAP_ENTRY(id) i64_##id
#define MAP_FINISH(x) (x)
#include "device/cpu/loops/map_loops.h"

#define MAP_TYPE int32_t
#define MAP_WIDE int32_t
#define MAP_TABLE cpu_map_i32
#define MAP_NAME(id) i32_##id
#define MAP_ENTRY(id) i32_##id
#define MAP_FINISH(x) (int32_t)(x)
#include "device/cpu/loops/map_loops.h"

#define MAP_TYPE int8_t
#define MAP_WIDE int32_t
#define MAP_TABLE cpu_map_i8
#define MAP_NAME(id) i8_##id
#define MAP_ENTRY(id) i8_##id
#define MAP_FINISH(x) (uint8_t)(x)
#include "device/cpu/loops/map_loops.h"

#define MAP_TYPE uint8_t
#define MAP_WIDE int32_t
#define MAP_TABLE cpu_map_u8
#define MAP_NAME(id) u8_##id
#define MAP_ENTRY(id) u8_##id
#define MAP_FINISH(x) (uint8_t)(x)
#include "device/cpu/loops/map_loops.h"

#undef INVERT
#define INVERT(a) (!(a))

#define MAP_TYPE uint8_t
#define MAP_WIDE int32_t
#define MAP_TABLE cpu_map_bool
#define MAP_NAME(id) bool_##id
#define MAP_ENTRY(id) bool_##id
#define MAP_FINISH(x) ((x) != 0)
#include "device/cpu/loops/map_loops.h"
