/* Pointwise loops of the floats; f16 and bf16 use those of f32. The math functions are those of
 * <tgmath.h>, so exp() of a float is expf(). */
#include <tgmath.h>

#include "device/cpu/kernel_map_table.h"

#include "device/cpu/kernel_fast.h"

#define MAP_EXPRESSION(fexpr, iexpr) fexpr

/* The sign of the divisor; an exact zero takes it too. */
#define FLOAT_MOD(name, type)                                                                      \
  static inline type name(type a, type b) {                                                        \
    type r = fmod(a, b);                                                                           \
    if (r == 0) return copysign((type)0, b);                                                       \
    return (r < 0) != (b < 0) ? r + b : r;                                                         \
  }
FLOAT_MOD(mod_f32, float)
FLOAT_MOD(mod_f64, double)

#define K(x) ((float)(x))
#define FMOD(a, b) mod_f32(a, b)
#define MAP_TYPE float
#define MAP_WIDE float
#define MAP_TABLE cpu_map_f32
#define MAP_NAME(id) f32_##id
#define MAP_FINISH(x) (x)
#include "device/cpu/kernel_map_loops.h"
#undef K
#undef FMOD

#define K(x) ((double)(x))
#define FMOD(a, b) mod_f64(a, b)
#define MAP_TYPE double
#define MAP_WIDE double
#define MAP_TABLE cpu_map_f64
#define MAP_NAME(id) f64_##id
#define MAP_FINISH(x) (x)
#include "device/cpu/kernel_map_loops.h"
