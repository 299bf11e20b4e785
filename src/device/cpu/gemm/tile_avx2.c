/* AVX2 with FMA: 12 of 16 registers hold sums. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "device/cpu/gemm/units.h"

#define TARGET __attribute__((target("avx2,fma")))
#define LANES_BYTES 32
#define TILE_ROWS 6
#define TILE_VECTORS 2
#define A_ROWS 384
#define FEW_ROWS 4

#define T float
#define OF_BF16
#define NAME _f32
#define ZIP 32_4
#define MADD(x, y, s) ((FN(vector))_mm256_fmadd_ps((__m256)(x), (__m256)(y), (__m256)(s)))
#include "device/cpu/gemm/tile.h"

#define T double
#define NAME _f64
#define ZIP 32_8
#define MADD(x, y, s) ((FN(vector))_mm256_fmadd_pd((__m256d)(x), (__m256d)(y), (__m256d)(s)))
#include "device/cpu/gemm/tile.h"

#define T uint32_t
#define NAME _i32
#define ZIP 32_4
#define MADD(x, y, s) MADD_PLAIN(x, y, s)
#include "device/cpu/gemm/tile.h"

#define T uint64_t
#define NAME _i64
#define ZIP 32_8
#define MADD(x, y, s) MADD_PLAIN(x, y, s)
#include "device/cpu/gemm/tile.h"

const gemm_units gemm_units_avx2 = {&unit_f32, &unit_f64, &unit_i32, &unit_i64};

#endif
