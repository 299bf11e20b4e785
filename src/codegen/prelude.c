/* What kernels begin with: elements of all dtypes, the integer functions of ir/ops.def, division by
 * numbers known before the launch, random numbers, folds. A text has only the functions that it uses,
 * which saves the compiler 3 ms.
 *
 * Narrow floats are converted by hand where the GPU has no instruction. A conversion that would round
 * twice (f64 to bf16 through f32) goes through a float rounded to odd: its last bit tells that bits were
 * cut off. */
#include <string.h>

#include "codegen/internal.h"

static const char common[] = "#ifndef WEIR_PRELUDE\n"
                             "#define WEIR_PRELUDE\n"
                             "#define WEIR_DEVICE static __device__ __forceinline__\n"
                             "#define WEIR_INF __int_as_float(0x7f800000)\n"
                             "#define WEIR_ALL 0xffffffffu\n"
                             "#endif\n";

static const char narrow[] =
    "@WEIR_DEVICE float weir_odd(double x) {\n"
    "  float f = (float)x;\n"
    "  int bits = __float_as_int(f);\n"
    "  if (x != x || (double)f == x) return f;\n"
    "  if (fabs((double)f) > fabs(x)) bits--;\n"
    "  return __int_as_float(bits | 1);\n"
    "}\n"
    "@WEIR_DEVICE double weir_odd_f64(long long x) {\n"
    "  if (x > -(1ll << 53) && x < 1ll << 53) return (double)x;\n"
    "  return (double)(x >> 11 | ((x & 2047) != 0)) * 2048.0;\n"
    "}\n"
    "@#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800\n"
    /* converts two at once: a single one is converted by the unit for exponentials, a quarter as fast */
    "WEIR_DEVICE unsigned short weir_bf16_of_f(float x) {\n"
    "  unsigned h;\n"
    "  asm(\"cvt.rn.bf16x2.f32 %0, %1, %2;\" : \"=r\"(h) : \"f\"(0.0f), \"f\"(x));\n"
    "  return (unsigned short)h;\n"
    "}\n"
    "#else\n"
    "WEIR_DEVICE unsigned short weir_bf16_of_f(float x) {\n"
    "  unsigned u = (unsigned)__float_as_int(x);\n"
    "  if (x != x) return (unsigned short)(u >> 16 | 64);\n"
    "  return (unsigned short)((u + 0x7fffu + (u >> 16 & 1)) >> 16);\n"
    "}\n"
    "#endif\n"
    "@#ifdef __CUDA_ARCH__\n"
    "WEIR_DEVICE unsigned short weir_f16_of_f(float x) {\n"
    "  unsigned short h;\n"
    "  asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(x));\n"
    "  return h;\n"
    "}\n"
    "#else\n"
    "WEIR_DEVICE unsigned short weir_f16_of_f(float x) {\n"
    "  unsigned u = (unsigned)__float_as_int(x), sign = u >> 16 & 0x8000u, m = u & 0x7fffffffu;\n"
    "  unsigned h = (m + 0xc8000fffu + (m >> 13 & 1)) >> 13;\n"
    "  if (m < 0x38800000u)\n"
    "    h = (unsigned)__float_as_int(__int_as_float((int)m) + 0.5f) - 0x3f000000u;\n"
    "  if (m >= 0x47800000u) h = m > 0x7f800000u ? 0x7e00u : 0x7c00u;\n"
    "  return (unsigned short)(sign | h);\n"
    "}\n"
    "#endif\n"
    "@#ifdef __CUDA_ARCH__\n"
    "WEIR_DEVICE float weir_get_f16(unsigned short h) {\n"
    "  float x;\n"
    "  asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(x) : \"h\"(h));\n"
    "  return x;\n"
    "}\n"
    "#else\n"
    "WEIR_DEVICE float weir_get_f16(unsigned short h) {\n"
    "  int m = (h & 0x7fff) << 13;\n"
    "  unsigned sign = (unsigned)(h & 0x8000) << 16;\n"
    "  int finite = __float_as_int(__int_as_float(m) * 5192296858534827628530496329220096.0f);\n"
    "  int bits = (h & 0x7fff) >= 0x7c00 ? m | 0x7f800000 : finite;\n"
    "  return __int_as_float((int)(sign | (unsigned)bits));\n"
    "}\n"
    "#endif\n"
    "@WEIR_DEVICE float weir_get_bf16(unsigned short h) {\n"
    "  return __int_as_float((int)((unsigned)h << 16));\n"
    "}\n"
    /* extracts one of the two in a word with one instruction */
    "@WEIR_DEVICE float weir_half_bf16(unsigned word, int odd) {\n"
    "  return __int_as_float((int)(odd ? word & 0xffff0000u : word << 16));\n"
    "}\n"
    /* rounds and returns to f32: the number is converted as the upper half of a pair */
    "@#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800\n"
    "WEIR_DEVICE float weir_round_bf16(float x) {\n"
    "  unsigned h;\n"
    "  asm(\"cvt.rn.bf16x2.f32 %0, %1, %2;\" : \"=r\"(h) : \"f\"(x), \"f\"(0.0f));\n"
    "  return __int_as_float((int)h);\n"
    "}\n"
    "#else\n"
    "WEIR_DEVICE float weir_round_bf16(float x) { return weir_get_bf16(weir_bf16_of_f(x)); }\n"
    "#endif\n"
    /* for a float whose value is a bf16 already */
    "@WEIR_DEVICE unsigned short weir_cut_bf16(float x) {\n"
    "  return (unsigned short)((unsigned)__float_as_int(x) >> 16);\n"
    "}\n";

static const char narrow_from_others[] =
    "@WEIR_DEVICE unsigned short weir_$t_of_d(double x) { return weir_$t_of_f(weir_odd(x)); }\n"
    "@WEIR_DEVICE unsigned short weir_$t_of_i(int x) { return weir_$t_of_f(weir_odd(x)); }\n"
    "@WEIR_DEVICE unsigned short weir_$t_of_l(long long x) {\n"
    "  return weir_$t_of_d(weir_odd_f64(x));\n"
    "}\n";

static const char get[] = "@WEIR_DEVICE $N weir_get_$t($S x) { return $value; }\n";

static const char of_any[] = "@WEIR_DEVICE $S weir_$t_of_d(double x) { return $value; }\n"
                             "@WEIR_DEVICE $S weir_$t_of_f(float x) { return $value; }\n"
                             "@WEIR_DEVICE $S weir_$t_of_i(int x) { return $value; }\n"
                             "@WEIR_DEVICE $S weir_$t_of_l(long long x) { return $value; }\n";

/* Rounds toward zero; numbers out of range become the nearest integer of the type, NaN becomes 0. */
static const char saturate[] = "@WEIR_DEVICE $S weir_$t_of_d(double x) {\n"
                               "  if (x != x) return 0;\n"
                               "  if (x >= $limit) return $high;\n"
                               "  return x <= $low ? ($S)$low : ($S)x;\n"
                               "}\n"
                               "@WEIR_DEVICE $S weir_$t_of_f(float x) { return weir_$t_of_d(x); }\n"
                               "@WEIR_DEVICE $S weir_$t_of_i(int x) { return ($S)x; }\n"
                               "@WEIR_DEVICE $S weir_$t_of_l(long long x) { return ($S)x; }\n";

static const char integers[] =
    "@WEIR_DEVICE $T weir_imod_$l($T a, $T b) {\n"
    "  if (b == 0 || b == -1) return 0;\n"
    "  $T r = a % b;\n"
    "  return r != 0 && (r < 0) != (b < 0) ? r + b : r;\n"
    "}\n"
    "@WEIR_DEVICE $T weir_muladd_$l($T a, $T b, $T c) {\n"
    "  return ($T)((unsigned $T)a * (unsigned $T)b + (unsigned $T)c);\n"
    "}\n"
    "@WEIR_DEVICE $T weir_ipow_$l($T base, $T exponent) {\n"
    "  unsigned $T power = 1, square = (unsigned $T)base;\n"
    "  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;\n"
    "  for (; exponent > 0; exponent >>= 1, square *= square)\n"
    "    if (exponent & 1) power *= square;\n"
    "  return ($T)power;\n"
    "}\n";

/* The result has the sign of the divisor, also if it is zero. */
static const char floats[] = "@WEIR_DEVICE $T weir_fmod_$l($T a, $T b) {\n"
                             "  $T r = fmod(a, b);\n"
                             "  if (r == 0) return copysign(($T)0, b);\n"
                             "  return (r < 0) != (b < 0) ? r + b : r;\n"
                             "}\n";

/* For f16 and bf16: errors are below 2^-15 of the value. weir_tail(z) is the tail of the normal distribution
 * from z >= 0 on: exp(-z * z / 2) times a polynomial in 1 / (1 + z * 3 / 8), fitted for z <= 13. */
static const char quick[] =
    "@#ifdef __CUDA_ARCH__\n"
    "WEIR_DEVICE float weir_exp2(float x) {\n"
    "  float y;\n"
    "  asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x));\n"
    "  return y;\n"
    "}\n"
    "#else\n"
    "WEIR_DEVICE float weir_exp2(float x) { return exp2(x); }\n"
    "#endif\n"
    "@#ifdef __CUDA_ARCH__\n"
    "WEIR_DEVICE float weir_quick_exp(float x) {\n"
    "  float y;\n"
    "  asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x * 1.442695041f));\n"
    "  return y;\n"
    "}\n"
    "#else\n"
    "WEIR_DEVICE float weir_quick_exp(float x) { return exp(x); }\n"
    "#endif\n"
    "@#ifdef __CUDA_ARCH__\n"
    "WEIR_DEVICE float weir_quick_inverse(float x) {\n"
    "  float y;\n"
    "  asm(\"rcp.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x));\n"
    "  return y;\n"
    "}\n"
    "#else\n"
    "WEIR_DEVICE float weir_quick_inverse(float x) { return 1 / x; }\n"
    "#endif\n"
    "@WEIR_DEVICE float weir_tail(float z) {\n"
    "  const float t = weir_quick_inverse(fma(z, 0.375f, 1.0f));\n"
    "  float y = fma(t, -0.09136655f, 0.20188918f);\n"
    "  y = fma(t, y, 0.08231906f);\n"
    "  y = fma(t, y, 0.15812722f);\n"
    "  y = fma(t, y, 0.14901883f);\n"
    "  return y * t * weir_exp2(z * z * -0.72134752f);\n"
    "}\n"
    "@WEIR_DEVICE float weir_quick_gelu(float x) {\n"
    "  const float q = weir_tail(fabs(x));\n"
    "  return x * (x > 0 ? 1 - q : q);\n"
    "}\n";

static const char others[] =
    "@#define weir_least(a, b) ((a) < (b) ? (a) : (b))\n"
    /* n / d for n below 2^31, with the factor and the shift of cg_put_offsets() */
    "@WEIR_DEVICE int weir_div(int n, long long magic) {\n"
    "  unsigned u = (unsigned)n;\n"
    "  return (int)((__umulhi(u, (unsigned)magic) + u) >> (unsigned)(magic >> 32));\n"
    "}\n"
    /* in words, with three instructions; the compiler would use four */
    "@#ifdef __CUDA_ARCH__\n"
    "WEIR_DEVICE unsigned long long weir_times(unsigned long long x, unsigned high, unsigned low) "
    "{\n"
    "  unsigned long long y;\n"
    "  asm(\"{ .reg .u32 a, b, c, d; .reg .u64 p; mov.b64 {a, b}, %1; mul.wide.u32 p, a, %3; \"\n"
    "      \"mov.b64 {c, d}, p; mad.lo.u32 d, a, %2, d; mad.lo.u32 d, b, %3, d; mov.b64 %0, {c, "
    "d}; }\"\n"
    "      : \"=l\"(y) : \"l\"(x), \"r\"(high), \"r\"(low));\n"
    "  return y;\n"
    "}\n"
    "#else\n"
    "WEIR_DEVICE unsigned long long weir_times(unsigned long long x, unsigned high, unsigned low) "
    "{\n"
    "  return x * ((unsigned long long)high << 32 | low);\n"
    "}\n"
    "#endif\n"
    "@WEIR_DEVICE unsigned long long weir_mix(unsigned long long x) {\n"
    "  x = weir_times(x ^ x >> 30, 0xbf58476du, 0x1ce4e5b9u);\n"
    "  x = weir_times(x ^ x >> 27, 0x94d049bbu, 0x133111ebu);\n"
    "  return x ^ x >> 31;\n"
    "}\n"
    /* random numbers of a key: first what all of them share, then one number */
    "@WEIR_DEVICE unsigned long long weir_stream(long long key) {\n"
    "  return weir_mix((unsigned long long)key + 0x9e3779b97f4a7c15ull);\n"
    "}\n"
    "@WEIR_DEVICE unsigned long long weir_drawn(unsigned long long stream, long long index) {\n"
    "  return weir_mix(stream + ((unsigned long long)index + 1) * 0x9e3779b97f4a7c15ull);\n"
    "}\n"
    /* the first 24 bits are right, since the last step of mixing does not change them; the other 8 are not */
    "@WEIR_DEVICE unsigned weir_drawn_high(unsigned long long stream, long long index) {\n"
    "  unsigned long long x = stream + ((unsigned long long)index + 1) * 0x9e3779b97f4a7c15ull;\n"
    "  x = weir_times(x ^ x >> 30, 0xbf58476du, 0x1ce4e5b9u);\n"
    "  return (unsigned)(weir_times(x ^ x >> 27, 0x94d049bbu, 0x133111ebu) >> 32);\n"
    "}\n"
    /* If several indexes are out of range, one of them is reported. */
    "@typedef struct { long long index; unsigned raised, pad; } weir_error;\n"
    "@WEIR_DEVICE int weir_inside(long long index, long long n, char *error) {\n"
    "  weir_error *e = (weir_error *)error;\n"
    "  if (index >= 0 && index < n) return 1;\n"
    "  if (atomicCAS(&e->raised, 0u, 1u) == 0) e->index = index;\n"
    "  return 0;\n"
    "}\n";

/* Products of small matrices by a warp, m16n8k16, and what they need: asynchronous copies of pieces of 16
 * bytes to shared memory, 0 where there is nothing to copy; loads of four matrices of 8 x 8 from shared
 * memory, as they are or transposed, where lane i names row i % 8 of matrix i / 8; rounding two numbers
 * into one word. Older GPUs do the same with shuffles, the CPU with the functions of
 * tests/standin/cuda_shim.h. */
static const char tensor_cores[] =
    "@#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800\n"
    "WEIR_DEVICE unsigned weir_shared_at(const void *p) {\n"
    "  return (unsigned)__cvta_generic_to_shared(p);\n"
    "}\n"
    "#endif\n"
    "@#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800\n"
    "WEIR_DEVICE void weir_copy16(void *to, const void *from, bool is_in) {\n"
    "  asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16, %2;\"\n"
    "               ::\"r\"(weir_shared_at(to)), \"l\"(from), \"r\"(is_in ? 16 : 0) : "
    "\"memory\");\n"
    "}\n"
    "#else\n"
    "WEIR_DEVICE void weir_copy16(void *to, const void *from, bool is_in) {\n"
    "  uint4 x = {0, 0, 0, 0};\n"
    "  if (is_in) x = *(const uint4 *)from;\n"
    "  *(uint4 *)to = x;\n"
    "}\n"
    "#endif\n"
    "@#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800\n"
    "WEIR_DEVICE void weir_copies_end() { asm volatile(\"cp.async.commit_group;\" ::: \"memory\"); "
    "}\n"
    "#else\n"
    "WEIR_DEVICE void weir_copies_end(void) {}\n"
    "#endif\n"
    "@#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800\n"
    "WEIR_DEVICE void weir_copies_wait_but_one() {\n"
    "  asm volatile(\"cp.async.wait_group 1;\" ::: \"memory\");\n"
    "}\n"
    "#else\n"
    "WEIR_DEVICE void weir_copies_wait_but_one(void) {}\n"
    "#endif\n"
    "@#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800\n"
    "WEIR_DEVICE void weir_copies_wait_but_two() {\n"
    "  asm volatile(\"cp.async.wait_group 2;\" ::: \"memory\");\n"
    "}\n"
    "#else\n"
    "WEIR_DEVICE void weir_copies_wait_but_two(void) {}\n"
    "#endif\n"
    "@#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800\n"
    "WEIR_DEVICE void weir_copies_wait() { asm volatile(\"cp.async.wait_group 0;\" ::: "
    "\"memory\"); }\n"
    "#else\n"
    "WEIR_DEVICE void weir_copies_wait(void) {}\n"
    "#endif\n"
    "@#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800\n"
    "WEIR_DEVICE void weir_lane_matrices(unsigned *r, const unsigned short *row, int turned) {\n"
    "  const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4 * 2;\n"
    "  for (int i = 0; i < 4; i++) {\n"
    "    const unsigned short *a[2];\n"
    "    for (int h = 0; h < 2; h++)\n"
    "      a[h] = (const unsigned short *)__shfl_sync(WEIR_ALL, (unsigned long long)row,\n"
    "                                                 8 * i + (turned ? t + h : g));\n"
    "    r[i] = turned ? a[0][g] | (unsigned)a[1][g] << 16 : a[0][t] | (unsigned)a[0][t + 1] << "
    "16;\n"
    "  }\n"
    "}\n"
    "#endif\n"
    "@#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800\n"
    "WEIR_DEVICE void weir_matrices(unsigned *r, const void *row) {\n"
    "  asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\"\n"
    "               : \"=r\"(r[0]), \"=r\"(r[1]), \"=r\"(r[2]), \"=r\"(r[3]) : "
    "\"r\"(weir_shared_at(row)));\n"
    "}\n"
    "#elif defined(__CUDA_ARCH__)\n"
    "WEIR_DEVICE void weir_matrices(unsigned *r, const void *row) {\n"
    "  weir_lane_matrices(r, (const unsigned short *)row, 0);\n"
    "}\n"
    "#else\n"
    "WEIR_DEVICE void weir_matrices(unsigned *r, const void *row) { shim_matrices(r, row, 0); }\n"
    "#endif\n"
    "@#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800\n"
    "WEIR_DEVICE void weir_turned_matrices(unsigned *r, const void *row) {\n"
    "  asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\"\n"
    "               : \"=r\"(r[0]), \"=r\"(r[1]), \"=r\"(r[2]), \"=r\"(r[3]) : "
    "\"r\"(weir_shared_at(row)));\n"
    "}\n"
    "#elif defined(__CUDA_ARCH__)\n"
    "WEIR_DEVICE void weir_turned_matrices(unsigned *r, const void *row) {\n"
    "  weir_lane_matrices(r, (const unsigned short *)row, 1);\n"
    "}\n"
    "#else\n"
    "WEIR_DEVICE void weir_turned_matrices(unsigned *r, const void *row) { shim_matrices(r, row, "
    "1); }\n"
    "#endif\n";

static const char tensor_core_products[] =
    "@#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800\n"
    "WEIR_DEVICE unsigned weir_pair_$t(float low, float high) {\n"
    "  unsigned y;\n"
    "  asm(\"cvt.rn.$pair.f32 %0, %1, %2;\" : \"=r\"(y) : \"f\"(high), \"f\"(low));\n"
    "  return y;\n"
    "}\n"
    "#else\n"
    "WEIR_DEVICE unsigned weir_pair_$t(float low, float high) {\n"
    "  return weir_$t_of_f(low) | (unsigned)weir_$t_of_f(high) << 16;\n"
    "}\n"
    "#endif\n"
    "@#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800\n"
    "WEIR_DEVICE void weir_mma_$t(float *c, const unsigned *a, unsigned b, unsigned d) {\n"
    "  asm(\"mma.sync.aligned.m16n8k16.row.col.f32.$t.$t.f32 {%0, %1, %2, %3}, \"\n"
    "      \"{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\"\n"
    "      : \"+f\"(c[0]), \"+f\"(c[1]), \"+f\"(c[2]), \"+f\"(c[3])\n"
    "      : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b), \"r\"(d));\n"
    "}\n"
    "#elif defined(__CUDA_ARCH__)\n"
    "WEIR_DEVICE void weir_mma_$t(float *c, const unsigned *a, unsigned b, unsigned d) {\n"
    "  const int lane = (int)threadIdx.x % 32;\n"
    "  for (int s = 0; s < 4; s++) {\n"
    "    unsigned x[4], y[2][2];\n"
    "    for (int i = 0; i < 4; i++) x[i] = __shfl_sync(WEIR_ALL, a[i], lane / 4 * 4 + s);\n"
    "    for (int i = 0; i < 2; i++) {\n"
    "      y[i][0] = __shfl_sync(WEIR_ALL, b, (lane % 4 * 2 + i) * 4 + s);\n"
    "      y[i][1] = __shfl_sync(WEIR_ALL, d, (lane % 4 * 2 + i) * 4 + s);\n"
    "    }\n"
    "    for (int i = 0; i < 16; i++) {\n"
    "      const int row = i / 8, column = i / 4 % 2, half = i / 2 % 2, shift = i % 2 * 16;\n"
    "      c[2 * row + column] +=\n"
    "          weir_get_$t((unsigned short)(x[row + 2 * half] >> shift)) *\n"
    "          weir_get_$t((unsigned short)(y[column][half] >> shift));\n"
    "    }\n"
    "  }\n"
    "}\n"
    "#else\n"
    "WEIR_DEVICE void weir_mma_$t(float *c, const unsigned *a, unsigned b, unsigned d) {\n"
    "  const unsigned *x[32], *y[32];\n"
    "  const unsigned mine[6] = {a[0], a[1], a[2], a[3], b, d};\n"
    "  shim_fragments(mine, x, y);\n"
    "  for (int i = 0; i < 4; i++) {\n"
    "    const int g = (int)threadIdx.x % 32 / 4, n = (int)threadIdx.x % 4 * 2 + i % 2;\n"
    "    for (int k = 0; k < 16; k++) {\n"
    "      const unsigned u = x[g * 4 + k % 8 / 2][i / 2 + k / 8 * 2] >> k % 2 * 16;\n"
    "      const unsigned v = y[n * 4 + k % 8 / 2][k / 8] >> k % 2 * 16;\n"
    "      c[i] += weir_get_$t((unsigned short)u) * weir_get_$t((unsigned short)v);\n"
    "    }\n"
    "  }\n"
    "  __syncwarp();\n"
    "}\n"
    "#endif\n";

static void put_integer(cg_writer *w, const char *t, const char *storage, const char *native,
                        const char *limit, const char *high, const char *low) {
  cg_set(w, "N", native);
  cg_set(w, "t", t);
  cg_set(w, "S", storage);
  cg_set(w, "value", "x");
  cg_put(w, get);
  cg_set(w, "t", t);
  cg_set(w, "S", storage);
  cg_set(w, "limit", limit);
  cg_set(w, "high", high);
  cg_set(w, "low", low);
  cg_put(w, saturate);
}

static void put_plain(cg_writer *w, const char *t, const char *storage, const char *native,
                      const char *got, const char *value) {
  cg_set(w, "N", native);
  cg_set(w, "t", t);
  cg_set(w, "S", storage);
  cg_set(w, "value", got);
  cg_put(w, get);
  cg_set(w, "t", t);
  cg_set(w, "S", storage);
  cg_set(w, "value", value);
  cg_put(w, of_any);
}

static void put_numbers(cg_writer *w) {
  cg_set(w, "t", "bf16");
  cg_put(w, narrow_from_others);
  cg_set(w, "t", "f16");
  cg_put(w, narrow_from_others);
  put_plain(w, "f64", "double", "double", "x", "(double)x");
  put_plain(w, "f32", "float", "float", "x", "(float)x");
  put_plain(w, "bool", "unsigned char", "int", "x != 0", "(unsigned char)(x != 0)");
  put_integer(w, "i64", "long long", "long long", "9223372036854775808.0", "9223372036854775807ll",
              "(-9223372036854775807ll - 1)");
  put_integer(w, "i32", "int", "int", "2147483648.0", "2147483647", "(-2147483647 - 1)");
  put_integer(w, "i8", "signed char", "int", "128.0", "127", "(-128)");
  put_integer(w, "u8", "unsigned char", "int", "256.0", "255", "0");
}

static void put_functions(cg_writer *w, const char *template, const char *a, const char *a_letter,
                          const char *b, const char *b_letter) {
  cg_set(w, "T", a);
  cg_set(w, "l", a_letter);
  cg_put(w, template);
  cg_set(w, "T", b);
  cg_set(w, "l", b_letter);
  cg_put(w, template);
}

/* ---- the functions that a text needs ---- */
enum { MOST_PIECES = 128 };

/* A function or another definition. It begins after an @; its name is the first name in it. */
typedef struct piece {
  const char *text, *name;
  int length; /* of the name */
  bool needed;
} piece;

static uint32_t split(char *all, piece *pieces) {
  char *rest = NULL;
  uint32_t n = 0;
  for (char *at = strtok_r(all, "@", &rest); at; at = strtok_r(NULL, "@", &rest), n++) {
    check(n < MOST_PIECES);
    pieces[n] = (piece){.text = at, .name = strstr(at, "weir_")};
    pieces[n].length = (int)strspn(pieces[n].name, "abcdefghijklmnopqrstuvwxyz_0123456789");
  }
  return n;
}

/* A longer name with the same beginning counts too: the text then has a piece too many. */
static bool mentions(const char *text, const piece *x) {
  for (; (text = strstr(text, "weir_")) != NULL; text++)
    if (strncmp(text, x->name, (size_t)x->length) == 0) return true;
  return false;
}

/* A piece needs only earlier ones. */
static void find_needed(piece *pieces, uint32_t n, const char *body) {
  for (uint32_t i = n; i-- > 0;) {
    pieces[i].needed = mentions(body, &pieces[i]);
    for (uint32_t j = i + 1; j < n && !pieces[i].needed; j++)
      pieces[i].needed = pieces[j].needed && mentions(pieces[j].text, &pieces[i]);
  }
}

static char *all_pieces(cg_writer *w) {
  strbuf body = w->body;
  strbuf_init(&w->body, w->memory);
  cg_put(w, narrow);
  put_numbers(w);
  put_functions(w, integers, "long long", "l", "int", "i");
  put_functions(w, floats, "double", "d", "float", "f");
  cg_put_folds(w, "double", "double", "d", true);
  cg_put_folds(w, "float", "float", "f", true);
  cg_put_folds(w, "long long", "unsigned long long", "l", false);
  cg_put_folds(w, "int", "unsigned", "i", false);
  cg_put(w, quick);
  cg_put(w, tensor_cores);
  cg_put(w, cg_prelude_90);
  for (int i = 0; i < 2; i++) {
    cg_set(w, "t", i ? "f16" : "bf16");
    cg_set(w, "pair", i ? "f16x2" : "bf16x2");
    cg_put(w, tensor_core_products);
  }
  cg_put(w, others);
  char *text = w->body.data;
  w->body = body;
  return text;
}

void cg_put_prelude(cg_writer *w, const char *body) {
  piece pieces[MOST_PIECES];
  uint32_t n = split(all_pieces(w), pieces);
  find_needed(pieces, n, body);
  cg_put(w, common);
  for (uint32_t i = 0; i < n; i++)
    if (pieces[i].needed)
      cg_line(w, "#ifndef HAS_%.*s\n#define HAS_%.*s\n%s#endif\n", pieces[i].length, pieces[i].name,
              pieces[i].length, pieces[i].name, pieces[i].text);
}
