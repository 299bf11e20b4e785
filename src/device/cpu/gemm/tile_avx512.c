/* AVX-512: 24 of 32 registers hold sums. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "device/cpu/gemm/units.h"

#define TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,fma")))
#define LANES_BYTES 64
#define TILE_ROWS 6
#define TILE_VECTORS 4
#define A_ROWS 1024
#define FEW_ROWS 8

#define T float
#define OF_BF16
#define NAME _f32
#define ZIP 64_4
#define MADD(x, y, s) ((FN(vector))_mm512_fmadd_ps((__m512)(x), (__m512)(y), (__m512)(s)))
#include "device/cpu/gemm/tile.h"

#define T double
#define NAME _f64
#define ZIP 64_8
#define MADD(x, y, s) ((FN(vector))_mm512_fmadd_pd((__m512d)(x), (__m512d)(y), (__m512d)(s)))
#include "device/cpu/gemm/tile.h"

#define T uint32_t
#define NAME _i32
#define ZIP 64_4
#define MADD(x, y, s) MADD_PLAIN(x, y, s)
#include "device/cpu/gemm/tile.h"

#define T uint64_t
#define NAME _i64
#define ZIP 64_8
#define MADD(x, y, s) MADD_PLAIN(x, y, s)
#include "device/cpu/gemm/tile.h"

const gemm_units gemm_units_avx512 = {&unit_f32, &unit_f64, &unit_i32, &unit_i64};

#endif
