#include "device/cpu/speed.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/pause.h"
#include "device/cpu/kernel_gemm.h"
#include "device/cpu/loops/loops.h"
#include "runtime/device.h"

enum {
  SIDE = CPU_GEMM_DEPTH,
  BLOCKS = 4,
  COPY_BYTES = 4 << 20,
  LARGE = 16 << 20, /* elements; of many threads fewer, since they share the last cache */
  INNER = 256 << 10,
  SMALL = 4 << 10,
  MOST_THREADS = 64,
  MOST_TRIES = 63
};

/* ---- what is timed ---- */
typedef struct hands {
  float *matrices, *from, *to;
  char *scratch;
  int64_t large;
} hands;

/* Sums of several blocks, as of a product whose factors are larger than the inner caches. */
static void multiply_by(const hands *h, const cpu_gemm_unit *unit) {
  cpu_matrix m = {SIDE, SIDE, SIDE, 1};
  float *c = h->matrices + (size_t)2 * BLOCKS * SIDE * SIDE;
  for (size_t i = 0; i < BLOCKS; i++) {
    float *a = h->matrices + 2 * i * SIDE * SIDE, *b = a + SIDE * SIDE;
    cpu_gemm_block(unit, &m, a, &m, b, &m, c, (cpu_ahead){0}, i > 0, h->scratch);
  }
}

static const cpu_gemm_unit *unit_of_bf16(void) {
  return cpu_gemm_unit_for(IR_BF16, IR_BF16, IR_F32);
}

static void multiply(const hands *h) { multiply_by(h, cpu_gemm_unit_of(IR_F32)); }
/* A matrix takes half of its place. */
static void multiply_pairs(const hands *h) {
  if (unit_of_bf16()->pairs) multiply_by(h, unit_of_bf16());
}

static void copy(const hands *h) { memcpy(h->to, h->from, COPY_BYTES); }

static void apply(const hands *h, ir_opcode code, int64_t n) {
  const void *x[] = {h->from, NULL, NULL};
  cpu_vectors()->map[IR_F32][code](n, h->to, x, false);
}

static void map_large(const hands *h) { apply(h, IR_OP_RELU, h->large); }
static void map_inner(const hands *h) { apply(h, IR_OP_RELU, INNER); }
static void map_function(const hands *h) { apply(h, IR_OP_EXP, SMALL); }

/* Each is tried so often (at most MOST_TRIES), so many times in a row. */
static const struct work {
  void (*run)(const hands *h);
  uint16_t tries, repeats;
} works[] = {{multiply, 63, 1}, {multiply_pairs, 31, 1}, {copy, 15, 1},
             {map_large, 7, 1}, {map_inner, 31, 2},      {map_function, 31, 16}};
enum { MULTIPLY, PAIRS, COPY, MAP_LARGE, MAP_INNER, MAP_FUNCTION, N_WORKS };

/* ---- threads that work at once ---- */
typedef struct crowd {
  uint32_t n;       /* as many as could be made */
  atomic_bool open; /* n is known */
  atomic_uint arrived;
  atomic_bool failed;
  int64_t large;
  int64_t took_ns[MOST_THREADS];
  int64_t tries_ns[MOST_TRIES];
  int64_t usual_ns[N_WORKS];
} crowd;

typedef struct member {
  crowd *of;
  uint32_t number;
  pthread_t thread;
} member;

/* The k-th meeting: all have come k times. */
static void meet(crowd *c, uint32_t *met) {
  uint32_t wanted = ++*met * c->n, looks = 0;
  atomic_fetch_add(&c->arrived, 1);
  while (atomic_load(&c->arrived) < wanted) {
    if (++looks < 2000) thread_pause();
    else (void)sched_yield();
  }
}

static bool get_hands(hands *h, int64_t large) {
  *h = (hands){.large = large};
  h->matrices = calloc(2 * BLOCKS + 1, sizeof(float) * SIDE * SIDE);
  h->scratch = malloc(cpu_gemm_scratch_bytes() + 64);
  h->from = malloc((size_t)large * sizeof *h->from);
  h->to = calloc((size_t)large, sizeof *h->to);
  for (int64_t i = 0; h->from && i < large; i++)
    h->from[i] = 0.5F; /* pages that nobody wrote are all the same one */
  return h->matrices && h->scratch && h->from && h->to;
}

static void drop_hands(hands *h) {
  free(h->matrices);
  free(h->scratch);
  free(h->from);
  free(h->to);
}

/* Processor time: what others run on a loaded machine does not count. */
static int64_t used_ns(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A try took as long as it did for the slowest: devices wait for each other. */
static int64_t slowest(const crowd *c) {
  int64_t most = 0;
  for (uint32_t i = 0; i < c->n; i++)
    if (c->took_ns[i] > most) most = c->took_ns[i];
  return most;
}

static int compare_ns(const void *pa, const void *pb) {
  int64_t a = *(const int64_t *)pa, b = *(const int64_t *)pb;
  return (a > b) - (a < b);
}

/* The median: the best of many tries is better than what a program gets. */
static void measure(member *m, const hands *h, int k, uint32_t *met) {
  crowd *c = m->of;
  for (uint32_t i = 0; i < works[k].tries; i++) {
    meet(c, met);
    int64_t start_ns = used_ns();
    for (uint32_t j = 0; j < works[k].repeats; j++) works[k].run(h);
    c->took_ns[m->number] = used_ns() - start_ns;
    meet(c, met);
    if (m->number == 0) c->tries_ns[i] = slowest(c);
  }
  if (m->number != 0) return;
  qsort(c->tries_ns, works[k].tries, sizeof *c->tries_ns, compare_ns);
  c->usual_ns[k] = c->tries_ns[works[k].tries / 2];
}

static void take_part(member *m, const hands *h) {
  uint32_t met = 0;
  meet(m->of, &met);
  if (atomic_load(&m->of->failed)) return;
  for (int k = 0; k < N_WORKS; k++) measure(m, h, k, &met);
}

static void *work(void *context) {
  member *m = context;
  hands h;
  while (!atomic_load(&m->of->open)) (void)sched_yield();
  if (!get_hands(&h, m->of->large)) atomic_store(&m->of->failed, true);
  take_part(m, &h);
  drop_hands(&h);
  return NULL;
}

static void gather(crowd *c, uint32_t wanted) {
  member members[MOST_THREADS];
  uint32_t n = 1;
  for (uint32_t i = 0; i < wanted; i++) members[i] = (member){.of = c, .number = i};
  while (n < wanted && pthread_create(&members[n].thread, NULL, work, &members[n]) == 0) n++;
  c->n = n;
  atomic_store(&c->open, true);
  (void)work(&members[0]);
  for (uint32_t i = 1; i < n; i++) (void)pthread_join(members[i].thread, NULL);
}

static double rate(const crowd *c, int work, double amount) {
  int64_t ns = c->usual_ns[work];
  return ns <= 0 ? 0 : amount * works[work].repeats / (double)ns;
}

cpu_speed cpu_speed_measure(uint32_t threads) {
  const double touched = 2 * sizeof(float);
  crowd c = {.large = LARGE};
  if (threads > MOST_THREADS) threads = MOST_THREADS;
  while (c.large * threads > 2 * (int64_t)LARGE && c.large * (int64_t)sizeof(float) > COPY_BYTES)
    c.large /= 2;
  gather(&c, threads ? threads : 1);
  double functions_per_ns = rate(&c, MAP_FUNCTION, SMALL);
  const double flops = 2.0 * BLOCKS * SIDE * SIDE * SIDE;
  return (cpu_speed){.flops_per_ns = rate(&c, MULTIPLY, flops),
                     .pairs_per_ns = unit_of_bf16()->pairs ? rate(&c, PAIRS, flops) : 0,
                     .copied_per_ns = rate(&c, COPY, 2.0 * COPY_BYTES),
                     .memory_bytes_per_ns = rate(&c, MAP_LARGE, touched * (double)c.large),
                     .cache_bytes_per_ns = rate(&c, MAP_INNER, touched * INNER),
                     .function_ns = functions_per_ns > 0 ? 1 / functions_per_ns : 0};
}
