/* AVX-512 with products of pairs of bf16. Of a pair the second product is added first; each is exact, and each
 * sum is rounded to f32. Subnormal operands and sums are 0. */
#include "device/cpu/gemm/units.h"

#ifdef CPU_HAS_BF16_PAIRS
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512bf16,fma")))
#define LANES_BYTES 64
#define TILE_ROWS 6
#define TILE_VECTORS 4
#define A_ROWS 1024
#define FEW_ROWS 8

#define T float
#define OF_PAIRS
#define NAME _bf16
#define ZIP 64_4
#define MADD(x, y, s) ((FN(vector))_mm512_dpbf16_ps((__m512)(s), (__m512bh)(x), (__m512bh)(y)))
#include "device/cpu/gemm/tile.h"

const cpu_gemm_unit *const gemm_unit_bf16 = &unit_bf16;

#endif
