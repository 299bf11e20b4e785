/* The units of each set of instructions, by element type (gemm/tile_*.c). */
#ifndef WEIR_DEVICE_CPU_GEMM_UNITS_H
#define WEIR_DEVICE_CPU_GEMM_UNITS_H

#include <string.h>

#include "base/status.h"
#include "device/cpu/gemm/unit.h"
#include "device/cpu/loops/loops.h"

typedef struct gemm_units {
  const cpu_gemm_unit *f32, *f64, *i32, *i64;
} gemm_units;

extern const gemm_units gemm_units_base;
#if defined(__x86_64__)
extern const gemm_units gemm_units_avx2, gemm_units_avx512;
#endif
#ifdef CPU_HAS_BF16_PAIRS
extern const cpu_gemm_unit *const gemm_unit_bf16;
#endif

/* What the files that include tile.h need besides. */
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define EACH_PLAIN(p) (*(p) - (FN(vector)){0}) /* a vector of what is at p */
enum {
  FEW_DEEP = 8,             /* rows of b that few.h adds at a time */
  FEW_SUMS_BYTES = 1 << 14, /* of the sums that it keeps meanwhile */
  FEW_AHEAD = 512,          /* bytes that it fetches ahead */
};
#define MADD_PLAIN(x, y, s) ((x) * (y) + (s))

/* Which elements of two vectors, one after the other, their zip has. */
#define ZIP_LOW_2 0, 2
#define ZIP_HIGH_2 1, 3
#define ZIP_LOW_4 0, 4, 1, 5
#define ZIP_HIGH_4 2, 6, 3, 7
#define ZIP_LOW_8 0, 8, 1, 9, 2, 10, 3, 11
#define ZIP_HIGH_8 4, 12, 5, 13, 6, 14, 7, 15
#define ZIP_LOW_16 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define ZIP_HIGH_16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31

#endif
