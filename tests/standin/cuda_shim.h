/* Enough of CUDA for kernels to run on the CPU, compiled as C: conform/cuda_emulator.h and the stand-in
 * for NVRTC put this before their text, and call shim_launch().
 *
 * Blocks run one after the other, so what they share is static. The threads of a block are fibers that
 * take turns; they give up their turn only at barriers, and a shuffle is two barriers of the warp with
 * an exchange between. Kernels without barriers run as plain loops. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tgmath.h>
#include <time.h>
#include <ucontext.h>

#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __restrict__ restrict
#define WEIR_ENTRY void

typedef struct uint2 {
  unsigned x, y;
} uint2;
typedef struct uint4 {
  unsigned x, y, z, w;
} __attribute__((aligned(16))) uint4;
typedef struct shim_index {
  unsigned x, y, z;
} shim_index;
static shim_index threadIdx, blockIdx, blockDim, gridDim;

static inline float __int_as_float(int i) {
  float f;
  memcpy(&f, &i, sizeof f);
  return f;
}
static inline int __float_as_int(float f) {
  int i;
  memcpy(&i, &f, sizeof i);
  return i;
}
static inline float __uint_as_float(unsigned u) { return __int_as_float((int)u); }
static inline unsigned __float_as_uint(float f) { return (unsigned)__float_as_int(f); }
static inline double __longlong_as_double(long long i) {
  double f;
  memcpy(&f, &i, sizeof f);
  return f;
}
static inline unsigned __umulhi(unsigned a, unsigned b) {
  return (unsigned)((unsigned long long)a * b >> 32);
}
static inline unsigned atomicCAS(unsigned *p, unsigned old, unsigned new) {
  unsigned was = *p;
  if (was == old) *p = new;
  return was;
}
static inline void atomicMin(int *p, int x) { *p = x < *p ? x : *p; }
static inline void atomicMax(int *p, int x) { *p = x > *p ? x : *p; }
static inline int atomicAdd(int *p, int x) {
  int was = *p;
  *p += x;
  return was;
}
static inline unsigned atomicOr(unsigned *p, unsigned x) {
  unsigned was = *p;
  *p |= x;
  return was;
}
#define __ldcs(p) (*(p))

/* ---- instructions of the GPU that texts name: asm("cvt.f32.f16 ..." : "=f"(y) : "h"(x)) ---- */
static inline void ptx_cvt_f32_f16(float *y, unsigned short h) {
  int m = (h & 0x7fff) << 13, sign = (h & 0x8000) << 16;
  if ((h & 0x7c00) == 0x7c00) *y = __int_as_float(m | 0x7f800000);
  else *y = (float)ldexp((double)__int_as_float(m), 112);
  *y = __int_as_float(__float_as_int(*y) | sign);
}
static inline void ptx_cvt_rn_f16_f32(unsigned short *h, float x) {
  unsigned u = __float_as_uint(x), sign = u >> 16 & 0x8000;
  double a = fabs((double)x);
  if (x != x) *h = 0x7fff;
  else if (a >= 65520) *h = (unsigned short)(sign | 0x7c00);
  else if (a < 0x1p-14) *h = (unsigned short)(sign | (unsigned)rint(a * 0x1p24));
  else *h = (unsigned short)(sign | ((u & 0x7fffffff) - 0x38000000 + 0xfff + (u >> 13 & 1)) >> 13);
}
static inline void ptx_mov_u64(long long *ns) { /* of %globaltimer */
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  *ns = t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* ---- fibers ---- */
enum { SHIM_THREADS = 1024, SHIM_STACK = 64 << 10 };

typedef struct shim_barrier {
  unsigned count, arrived, turn;
} shim_barrier;

typedef struct shim_fiber {
  void *place[5]; /* __builtin_setjmp */
  int started, done;
  ucontext_t context;
  char *stack;
} shim_fiber;

static shim_fiber shim_fibers[SHIM_THREADS];
static void *shim_scheduler[5];
static ucontext_t shim_caller;
static shim_barrier shim_block_barrier, shim_warp_barrier[SHIM_THREADS / 32];
static char shim_slot[SHIM_THREADS][8];
static void (*shim_call)(void *const *);
static void *const *shim_params;

static __attribute__((noinline)) void shim_back(void) { __builtin_longjmp(shim_scheduler, 1); }

static __attribute__((noinline)) void shim_yield(void) {
  unsigned me = threadIdx.x;
  if (__builtin_setjmp(shim_fibers[me].place) == 0) shim_back();
}

static void shim_wait(shim_barrier *b) {
  unsigned turn = b->turn;
  if (++b->arrived == b->count) {
    b->arrived = 0;
    b->turn++;
    return;
  }
  while (b->turn == turn) shim_yield();
}

#define __syncthreads() shim_wait(&shim_block_barrier)
#define __syncwarp() shim_wait(&shim_warp_barrier[threadIdx.x / 32])
#define __popc(x) __builtin_popcount(x)

static void shim_exchange(void *value, size_t size, unsigned distance) {
  shim_barrier *b = &shim_warp_barrier[threadIdx.x / 32];
  memcpy(shim_slot[threadIdx.x], value, size);
  shim_wait(b);
  memcpy(value, shim_slot[threadIdx.x ^ distance], size);
  shim_wait(b);
}

static inline unsigned __ballot_sync(unsigned mask, unsigned vote) {
  shim_barrier *b = &shim_warp_barrier[threadIdx.x / 32];
  unsigned votes = 0, me = threadIdx.x;
  (void)mask;
  shim_slot[me][0] = vote != 0;
  shim_wait(b);
  for (unsigned i = 0; i < b->count; i++) votes |= (unsigned)shim_slot[me / 32 * 32 + i][0] << i;
  shim_wait(b);
  return votes;
}

#define __shfl_xor_sync(mask, value, distance)                                                     \
  ({                                                                                               \
    __typeof__((value) + 0) shim_value = (value);                                                  \
    shim_exchange(&shim_value, sizeof shim_value, (unsigned)(distance));                           \
    shim_value;                                                                                    \
  })

/* ---- matrices of a warp ---- */
static const void *shim_rows[SHIM_THREADS];
static unsigned shim_words[SHIM_THREADS][6];

/* Four of 8 x 8: lane 4 g + t takes of each the elements at row g, columns 2 t and 2 t + 1; turned: of the
 * transposed one. */
static inline void shim_matrices(unsigned *r, const void *row, int turned) {
  shim_barrier *b = &shim_warp_barrier[threadIdx.x / 32];
  unsigned first = threadIdx.x / 32 * 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4 * 2;
  shim_rows[threadIdx.x] = row;
  shim_wait(b);
  for (unsigned i = 0; i < 4; i++) {
    r[i] = 0;
    for (unsigned h = 0; h < 2; h++) {
      const unsigned short *from = shim_rows[first + 8 * i + (turned ? t + h : g)];
      r[i] |= (unsigned)from[turned ? g : t + h] << 16 * h;
    }
  }
  shim_wait(b);
}

/* What all lanes have of a product's operands: x[lane] four words of the first, y[lane] two of the
 * second. They hold until the warp meets again. */
static inline void shim_fragments(const unsigned mine[6], const unsigned *x[32],
                                  const unsigned *y[32]) {
  unsigned first = threadIdx.x / 32 * 32;
  memcpy(shim_words[threadIdx.x], mine, sizeof shim_words[0]);
  shim_wait(&shim_warp_barrier[threadIdx.x / 32]);
  for (unsigned i = 0; i < 32; i++) x[i] = shim_words[first + i], y[i] = shim_words[first + i] + 4;
}

/* ---- tiles, gates and products of four warps ---- */
typedef struct shim_gate {
  int expected_bytes;
  unsigned char count, missing, turn, pad;
} shim_gate;

static inline void shim_gate_turn(shim_gate *g) {
  if (g->missing || g->expected_bytes) return;
  g->missing = g->count;
  g->turn ^= 1;
}

static inline void shim_gate_make(void *gate, int count) {
  *(shim_gate *)gate = (shim_gate){.count = (unsigned char)count, .missing = (unsigned char)count};
}

static inline void shim_gate_arrive(void *gate, int size_bytes) {
  shim_gate *g = gate;
  if (g->missing == 0) __builtin_trap(); /* more arrive than shall */
  g->expected_bytes += size_bytes;
  g->missing--;
  shim_gate_turn(g);
}

static inline void shim_gate_wait(void *gate, int turn) {
  while (((volatile shim_gate *)gate)->turn == turn) shim_yield();
}

typedef struct shim_map {
  const char *start;
  int n[3], tile;
  long long distance[2];
} shim_map;

static inline void shim_map_make(void *map, const void *start, int n0, int n1, int n2, long long d1,
                                 long long d2, int tile) {
  if (threadIdx.x % 32) return;
  if ((uintptr_t)map % 64 || (uintptr_t)start % 16 || d1 <= 0 || d2 <= 0 || (d1 | d2) % 16 ||
      n0 <= 0 || n1 <= 0 || n2 <= 0 || tile <= 0 || tile > 256)
    __builtin_trap();
  *(shim_map *)map = (shim_map){start, {n0, n1, n2}, tile, {d1, d2}};
}

static inline void shim_tile_copy(void *to, const void *map, int i0, int i1, int i2, void *gate) {
  const shim_map *m = map;
  unsigned short *lines = to;
  if ((uintptr_t)to % 1024) __builtin_trap();
  for (int y = 0; y < m->tile; y++)
    for (int x = 0; x < 64; x++) {
      int a = i0 + x, b = i1 + y;
      bool is_in = a >= 0 && a < m->n[0] && b >= 0 && b < m->n[1] && i2 >= 0 && i2 < m->n[2];
      const char *from = m->start + a * 2ll + b * m->distance[0] + i2 * m->distance[1];
      lines[y * 64 + ((x / 8) ^ (y & 7)) * 8 + x % 8] = is_in ? *(const unsigned short *)from : 0;
    }
  ((shim_gate *)gate)->expected_bytes -= m->tile * 128;
  shim_gate_turn(gate);
}

static shim_barrier shim_meetings[16];
static inline void shim_meet(int where, int threads) {
  shim_meetings[where].count = (unsigned)threads;
  shim_wait(&shim_meetings[where]);
}

/* Element (line, depth) of a matrix in tiles; turned: its lines are along the depth. */
static inline unsigned short shim_tiled(const void *matrix, int line, int depth, bool turned) {
  const unsigned short *at = matrix;
  int y = turned ? depth : line, x = turned ? line : depth;
  return at[x / 64 * 64 * 64 + y * 64 + ((x % 64 / 8) ^ (y & 7)) * 8 + x % 8];
}

static inline float shim_wide(unsigned short x, bool is_f16) {
  float y;
  if (is_f16) ptx_cvt_f32_f16(&y, x);
  else y = __uint_as_float((unsigned)x << 16);
  return y;
}

/* c += a * b of 64 x width at depths d to d + 15, this thread's part of it. */
static void shim_product(float *c, const void *a, const void *b, int d, int width, bool a_turned,
                         bool b_turned, bool is_f16) {
  int row = (int)threadIdx.x / 32 % 4 * 16 + (int)threadIdx.x % 32 / 4;
  float x[2][16], y[16];
  for (int k = 0; k < 16; k++)
    for (int h = 0; h < 2; h++)
      x[h][k] = shim_wide(shim_tiled(a, row + 8 * h, d + k, a_turned), is_f16);
  for (int i = 0; i < width / 4; i++) {
    int column = i / 2 * 8 + (int)threadIdx.x % 4 * 2 + i % 2;
    for (int k = 0; k < 16; k++) y[k] = shim_wide(shim_tiled(b, column, d + k, b_turned), is_f16);
    for (int h = 0; h < 2; h++)
      for (int k = 0; k < 16; k++) c[i / 2 * 4 + h * 2 + i % 2] += x[h][k] * y[k];
  }
}

static void shim_main(void) {
  shim_call(shim_params);
  shim_fibers[threadIdx.x].done = 1;
  shim_back();
}

static __attribute__((noinline)) void shim_resume(shim_fiber *f) {
  if (__builtin_setjmp(shim_scheduler) != 0) return;
  if (f->started) __builtin_longjmp(f->place, 1);
  f->started = 1;
  (void)swapcontext(&shim_caller, &f->context);
}

static void shim_start(unsigned threads) {
  shim_block_barrier = (shim_barrier){.count = threads};
  for (unsigned w = 0; w * 32 < threads; w++)
    shim_warp_barrier[w] = (shim_barrier){.count = threads - w * 32 < 32 ? threads - w * 32 : 32};
  for (unsigned t = 0; t < threads; t++) {
    shim_fiber *f = &shim_fibers[t];
    if (!f->stack) f->stack = malloc(SHIM_STACK);
    f->started = f->done = 0;
    (void)getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = SHIM_STACK;
    f->context.uc_link = NULL;
    makecontext(&f->context, shim_main, 0);
  }
}

static void shim_block(unsigned threads) {
  unsigned left = threads;
  shim_start(threads);
  while (left > 0)
    for (unsigned t = 0; t < threads; t++) {
      if (shim_fibers[t].done) continue;
      threadIdx.x = t;
      shim_resume(&shim_fibers[t]);
      left -= (unsigned)shim_fibers[t].done;
    }
}

static __attribute__((destructor)) void shim_end(void) {
  for (int t = 0; t < SHIM_THREADS; t++) free(shim_fibers[t].stack);
}

/* call: passes the parameters on to the kernel. barriers: whether the kernel has any. */
void shim_launch(void (*call)(void *const *), void *const *params, const unsigned grid[3],
                 unsigned threads, int barriers);
void shim_launch(void (*call)(void *const *), void *const *params, const unsigned grid[3],
                 unsigned threads, int barriers) {
  shim_call = call;
  shim_params = params;
  gridDim = (shim_index){grid[0], grid[1], grid[2]};
  blockDim = (shim_index){threads, 1, 1};
  for (blockIdx.z = 0; blockIdx.z < grid[2]; blockIdx.z++)
    for (blockIdx.y = 0; blockIdx.y < grid[1]; blockIdx.y++)
      for (blockIdx.x = 0; blockIdx.x < grid[0]; blockIdx.x++) {
        if (barriers) shim_block(threads);
        else
          for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++) call(params);
      }
}

/* ---- the kernels follow ---- */
