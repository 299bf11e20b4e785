/* What every processor has: 16 bytes at a time. */
#include "device/cpu/gemm/units.h"

#define TARGET
#define LANES_BYTES 16
#define TILE_ROWS 4
#define TILE_VECTORS 2
#define A_ROWS 256
#define FEW_ROWS 4

#define T float
#define OF_BF16
#define NAME _f32
#define ZIP 16_4
#define MADD(x, y, s) MADD_PLAIN(x, y, s)
#include "device/cpu/gemm/tile.h"

#define T double
#define NAME _f64
#define ZIP 16_8
#define MADD(x, y, s) MADD_PLAIN(x, y, s)
#include "device/cpu/gemm/tile.h"

#define T uint32_t
#define NAME _i32
#define ZIP 16_4
#define MADD(x, y, s) MADD_PLAIN(x, y, s)
#include "device/cpu/gemm/tile.h"

#define T uint64_t
#define NAME _i64
#define ZIP 16_8
#define MADD(x, y, s) MADD_PLAIN(x, y, s)
#include "device/cpu/gemm/tile.h"

const gemm_units gemm_units_base = {&unit_f32, &unit_f64, &unit_i32, &unit_i64};
