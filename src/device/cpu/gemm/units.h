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
};
#define MADD_PLAIN(x, y, s) ((x) * (y) + (s))

/* Elements of two vectors x and y, counted on from x to y: of each 16 bytes of both, the first halves zipped
 * (ZIP_LOW) or the second ones (ZIP_HIGH); 16 bytes at even places (EVEN) or odd ones (ODD) of x, then of y. By
 * bytes of a vector and of an element. */
#define ZIP_LOW_16_8 0, 2
#define ZIP_HIGH_16_8 1, 3
#define EVEN_16_8 0, 1
#define ODD_16_8 0, 1
#define ZIP_LOW_16_4 0, 4, 1, 5
#define ZIP_HIGH_16_4 2, 6, 3, 7
#define EVEN_16_4 0, 1, 2, 3
#define ODD_16_4 0, 1, 2, 3
#define ZIP_LOW_32_8 0, 4, 2, 6
#define ZIP_HIGH_32_8 1, 5, 3, 7
#define EVEN_32_8 0, 1, 4, 5
#define ODD_32_8 2, 3, 6, 7
#define ZIP_LOW_32_4 0, 8, 1, 9, 4, 12, 5, 13
#define ZIP_HIGH_32_4 2, 10, 3, 11, 6, 14, 7, 15
#define EVEN_32_4 0, 1, 2, 3, 8, 9, 10, 11
#define ODD_32_4 4, 5, 6, 7, 12, 13, 14, 15
#define ZIP_LOW_64_8 0, 8, 2, 10, 4, 12, 6, 14
#define ZIP_HIGH_64_8 1, 9, 3, 11, 5, 13, 7, 15
#define EVEN_64_8 0, 1, 4, 5, 8, 9, 12, 13
#define ODD_64_8 2, 3, 6, 7, 10, 11, 14, 15
#define ZIP_LOW_64_4 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29
#define ZIP_HIGH_64_4 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31
#define EVEN_64_4 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27
#define ODD_64_4 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31

#endif
