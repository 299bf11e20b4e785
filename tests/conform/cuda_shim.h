/* Enough of CUDA for generated kernels to run on the CPU, compiled as C: test_cuda_kernels.c includes
 * this before their text and calls shim_launch().
 *
 * Blocks run one after the other, so what they share is static. The threads of a block are fibers that
 * take turns; they give up their turn only at barriers, and a shuffle is two barriers of the warp with
 * an exchange between. Kernels without barriers run as plain loops. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tgmath.h>
#include <ucontext.h>

#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(n)
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
static shim_index threadIdx, blockIdx;

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
#define __ldcs(p) (*(p))

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
static void (*shim_call)(const void *, const void *);
static const void *shim_pointers, *shim_numbers;

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

static void shim_exchange(void *value, size_t size, unsigned distance) {
  shim_barrier *b = &shim_warp_barrier[threadIdx.x / 32];
  memcpy(shim_slot[threadIdx.x], value, size);
  shim_wait(b);
  memcpy(value, shim_slot[threadIdx.x ^ distance], size);
  shim_wait(b);
}

#define __shfl_xor_sync(mask, value, distance)                                                     \
  ({                                                                                               \
    __typeof__((value) + 0) shim_value = (value);                                                  \
    shim_exchange(&shim_value, sizeof shim_value, (unsigned)(distance));                           \
    shim_value;                                                                                    \
  })

static void shim_main(void) {
  shim_call(shim_pointers, shim_numbers);
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

void shim_launch(void (*call)(const void *, const void *), const void *pointers,
                 const void *numbers, const unsigned grid[2], unsigned threads, int barriers);
void shim_launch(void (*call)(const void *, const void *), const void *pointers,
                 const void *numbers, const unsigned grid[2], unsigned threads, int barriers) {
  shim_call = call;
  shim_pointers = pointers;
  shim_numbers = numbers;
  for (blockIdx.y = 0; blockIdx.y < grid[1]; blockIdx.y++)
    for (blockIdx.x = 0; blockIdx.x < grid[0]; blockIdx.x++) {
      if (barriers) shim_block(threads);
      else
        for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++) call(pointers, numbers);
    }
}

/* ---- the kernels follow ---- */
