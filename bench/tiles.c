/* Tile programs of bodies against loops written by hand, on two threads.
 *
 *   bench/tiles [ROUNDS [ROW]]  best and median times, f32 and bf16, 4096 x 2048
 *   bench/tiles --ask           reads lines "row dtype" and "hand row dtype", runs each RUNS times, answers the time of
 *                               the last run in ms; for tiles.py, which runs JAX and PyTorch in between
 *
 * Each row is a fusion; all its operations are one body, prepared as the CPU device does it. Two threads
 * take its parts from a counter. Times are those of the processors, or with WALL=1 in the environment those
 * of the clock on the wall. The loops by hand (x86-64 with AVX-512 and glibc's libmvec only) go over
 * tiles of 1,024 elements, step by step. */
#define _DEFAULT_SOURCE /* syscall */
#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/pause.h"
#include "data/fill.h"
#include "device/cpu/kernel_internal.h"
#include "fuzz/body_kit.h"
#include "text/text.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Large pages, as NumPy asks for, whose arrays JAX and PyTorch are given. */
enum { PAGE = 1 << 21 };
enum { ROWS = 4096, WIDTH = 2048, MAX_THREADS = 2, TILE = 1024, MAX_ROUNDS = 1000 };

/* The operands that a row may use, in this order. */
#define OPERANDS(t)                                                                                \
  "  x : " t "[4096, 2048]\n  r : " t "[4096, 2048]\n  w : " t "[2048]\n  b : " t "[2048]\n"       \
  "  z : " t "[2048, 4096]\n"

static uint32_t n_threads = MAX_THREADS; /* as in the environment: THREADS=1 or 2 */

typedef struct row {
  const char *name, *text;
  void (*by_hand)(int64_t first, int64_t n, const float *const *in, float *out);
} row;

/* ---- threads ---- */
/* Waiting threads look for a while before they sleep, as those of the device do. */
enum { SPINS = 2000 };
typedef struct team {
  pthread_t threads[MAX_THREADS];
  atomic_uint begun, ended; /* runs; ends of all threads */
  void (*work)(void *context, uint32_t thread);
  void *context;
  bool quit;
} team;

typedef struct member {
  team *t;
  uint32_t i;
} member;

static void wait_until(atomic_uint *count, unsigned wanted) {
  unsigned now;
  for (uint32_t i = 0; (int)((now = atomic_load(count)) - wanted) < 0; i++)
    if (i < SPINS) thread_pause();
    else (void)syscall(SYS_futex, count, FUTEX_WAIT_PRIVATE, now, NULL, NULL, 0);
}

static void tell(atomic_uint *count) {
  (void)atomic_fetch_add(count, 1);
  (void)syscall(SYS_futex, count, FUTEX_WAKE_PRIVATE, (int)n_threads, NULL, NULL, 0);
}

static void *serve(void *m_) {
  const member *m = m_;
  for (unsigned run = 1;; run++) {
    wait_until(&m->t->begun, run);
    if (m->t->quit) return NULL;
    m->t->work(m->t->context, m->i);
    tell(&m->t->ended);
  }
}

static void team_run(team *t, void (*work)(void *, uint32_t), void *context) {
  t->work = work;
  t->context = context;
  tell(&t->begun);
  work(context, 0);
  wait_until(&t->ended, atomic_load(&t->begun) * (n_threads - 1));
}

/* ---- the machine ---- */
typedef struct bound {
  arena memory;
  ir_module module;
  ir_env env;
  rt_plan plan;
  rt_task task;
  char *bases[8], **starts, *scratch[MAX_THREADS], *shared;
  const cpu_kernel *kernel;
  atomic_uint next;
  const row *row;
} bound;

static void work_parts(void *context, uint32_t thread) {
  bound *b = context;
  uint32_t n = cpu_kernel_parts(b->kernel);
  for (uint32_t p; (p = atomic_fetch_add(&b->next, 1)) < n;)
    check(cpu_kernel_run_part(b->kernel, p, b->starts, b->scratch[thread], b->shared) == STATUS_OK);
}

static void run_machine(team *t, bound *b) {
  if (cpu_kernel_parts(b->kernel) == 0) {
    check(cpu_kernel_run(b->kernel, b->starts, b->scratch[0]) == STATUS_OK);
    return;
  }
  atomic_store(&b->next, 0);
  team_run(t, work_parts, b);
  check(cpu_kernel_finish(b->kernel, b->starts, b->scratch[0], b->shared) == STATUS_OK);
}

static rt_view dense(bound *b, const rt_shape *s, uint32_t buffer) {
  int64_t *strides = ARENA_ARRAY(&b->memory, s->rank + 1, int64_t), n = 1;
  for (uint32_t d = s->rank; d-- > 0; n *= s->extents[d]) strides[d] = n;
  ir_array a = {.dtype = s->dtype, .rank = s->rank};
  memcpy(a.extents, s->extents, s->rank * sizeof *s->extents);
  ir_array_dense(&a);
  size_t bytes = ((size_t)n * 8 + PAGE - 1) / PAGE * PAGE;
  a.data = b->bases[buffer] = aligned_alloc(PAGE, bytes);
  check(a.data != NULL);
  (void)madvise(a.data, bytes, MADV_HUGEPAGE);
  data_fill(&a, DATA_FILL_NORMAL, buffer, "x");
  return (rt_view){.buffer = buffer,
                   .dtype = s->dtype,
                   .rank = s->rank,
                   .extents = s->extents,
                   .strides = strides};
}

static status bind_row(void *context) {
  bound *b = context;
  arena_init(&b->memory, &memory_default);
  ir_module_init(&b->module, &memory_default);
  const char *text = b->row->text;
  check(text_parse(&b->module, "row", text, strlen(text)) == STATUS_OK);
  ir_env_init(&b->env, b->module.funcs.data[0], &b->memory);
  check(ir_bind_complete(&b->env) && ir_bind_check(&b->env));
  const rt_body *body = body_of(&b->env, &b->memory);
  rt_operand *operands = ARENA_ARRAY(&b->memory, body->n_params, rt_operand);
  b->plan.views = ARENA_ARRAY(&b->memory, body->n_params + 1, rt_view);
  for (uint32_t i = 0; i < body->n_params; i++) {
    operands[i] = (rt_operand){.kind = RT_OPERAND_VIEW, .view = i};
    b->plan.views[b->plan.n_views++] = dense(b, &body->params[i], i);
  }
  b->task = (rt_task){
      .result = b->plan.n_views, .n_operands = body->n_params, .operands = operands, .body = body};
  b->plan.views[b->plan.n_views++] =
      dense(b, rt_value_shape(body, &body->results[0]), body->n_params);
  TRY(cpu_kernel_prepare(&b->plan, &b->task, &b->memory, &b->kernel));
  b->starts = ARENA_ARRAY(&b->memory, cpu_kernel_n_starts(&b->task), char *);
  cpu_kernel_starts(&b->plan, &b->task, b->bases, b->starts);
  for (uint32_t i = 0; i < n_threads; i++)
    b->scratch[i] = aligned_alloc(64, cpu_kernel_scratch_bytes(b->kernel) / 64 * 64 + 128);
  b->shared = cpu_kernel_shared(b->kernel, b->scratch[0]);
  return STATUS_OK;
}

/* ---- by hand ---- */
#if defined(__x86_64__) && defined(__GNUC__)
#define AVX512 __attribute__((target("avx512f")))
typedef __m512 vector_fn(__m512);
static vector_fn *mvec_exp, *mvec_tanh, *mvec_erf;

static bool find_functions(void) {
  void *library = dlopen("libmvec.so.1", RTLD_NOW);
  if (!library || !__builtin_cpu_supports("avx512f")) return false;
  *(void **)&mvec_exp = dlsym(library, "_ZGVeN16v_expf");
  *(void **)&mvec_tanh = dlsym(library, "_ZGVeN16v_tanhf");
  *(void **)&mvec_erf = dlsym(library, "_ZGVeN16v_erff");
  return mvec_exp && mvec_tanh && mvec_erf;
}

#define EACH(i, n) for (int64_t i = 0; i < (n); i += 16)
#define LOAD(p) _mm512_loadu_ps(p)

AVX512 static void hand_gelu(int64_t first, int64_t n, const float *const *in, float *out) {
  const float *x = in[0] + first, *r = in[1] + first, *w = in[2] + first % WIDTH,
              *b = in[3] + first % WIDTH;
  float t[TILE], u[TILE];
  EACH(i, n) _mm512_storeu_ps(t + i, LOAD(x + i) * LOAD(w + i) + LOAD(b + i));
  EACH(i, n) _mm512_storeu_ps(u + i, mvec_erf(LOAD(t + i) * 0.70710678F));
  EACH(i, n)
  _mm512_stream_ps(out + first + i,
                   0.5F * LOAD(t + i) * (1.0F + LOAD(u + i)) * LOAD(r + i) + LOAD(x + i));
}

AVX512 static void hand_silu(int64_t first, int64_t n, const float *const *in, float *out) {
  const float *x = in[0] + first, *r = in[1] + first;
  float t[TILE];
  EACH(i, n) _mm512_storeu_ps(t + i, mvec_exp(-LOAD(x + i)));
  EACH(i, n)
  _mm512_stream_ps(out + first + i, LOAD(x + i) / (1.0F + LOAD(t + i)) * LOAD(r + i));
}

AVX512 static void hand_tanh(int64_t first, int64_t n, const float *const *in, float *out) {
  EACH(i, n) _mm512_stream_ps(out + first + i, mvec_tanh(LOAD(in[0] + first + i)));
}

AVX512 static void hand_exp(int64_t first, int64_t n, const float *const *in, float *out) {
  EACH(i, n) _mm512_stream_ps(out + first + i, mvec_exp(LOAD(in[0] + first + i)));
}

AVX512 static void hand_add(int64_t first, int64_t n, const float *const *in, float *out) {
  EACH(i, n)
  _mm512_stream_ps(out + first + i, LOAD(in[0] + first + i) + LOAD(in[1] + first + i));
}

/* Half a row. */
AVX512 static void hand_row_sum(int64_t first, int64_t n, const float *const *in, float *out) {
  const float *x = in[0] + first, *r = in[1] + first;
  __m512 sum = _mm512_setzero_ps();
  EACH(i, n) sum += mvec_exp(LOAD(x + i)) * LOAD(r + i);
  float *to = &out[first / WIDTH];
  *to = (first % WIDTH ? *to : 0) + _mm512_reduce_add_ps(sum);
}

/* Sums of tiles, not joined: what reading takes. */
AVX512 static void hand_sum(int64_t first, int64_t n, const float *const *in, float *out) {
  __m512 sum[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(),
                   _mm512_setzero_ps()};
  for (int64_t i = 0; i < n; i += 64)
    for (int k = 0; k < 4; k++) sum[k] += LOAD(in[0] + first + i + 16 * k);
  out[first / TILE] = _mm512_reduce_add_ps(sum[0] + sum[1] + (sum[2] + sum[3]));
}
#else
static bool find_functions(void) { return false; }
#define hand_gelu NULL
#define hand_silu NULL
#define hand_tanh NULL
#define hand_exp NULL
#define hand_add NULL
#define hand_row_sum NULL
#define hand_sum NULL
#endif

static void work_by_hand(void *context, uint32_t thread) {
  bound *b = context;
  int64_t n = (int64_t)ROWS * WIDTH / n_threads, first = thread * n;
  const float *in[5];
  for (uint32_t i = 0; i < 5; i++) in[i] = (const float *)(const void *)b->bases[i];
  for (int64_t at = first; at < first + n; at += TILE)
    b->row->by_hand(at, TILE, in, (float *)(void *)b->bases[b->task.n_operands]);
}

/* ---- rows ---- */
#define ROW(name, type, expression, hand)                                                          \
  { name " " type, "fusion f {\n" OPERANDS(type) "  y = " expression "\n  return y\n}\n", hand }
#define BOTH(name, expression, hand)                                                               \
  ROW(name, "f32", expression, hand), ROW(name, "bf16", expression, NULL)

static const row rows[] = {
    BOTH("gelu_chain", "gelu(x * w + b) * r + x", hand_gelu),
    BOTH("silu", "silu(x) * r", hand_silu),
    BOTH("tanh", "tanh(x)", hand_tanh),
    BOTH("exp", "exp(x)", hand_exp),
    BOTH("add", "x + r", hand_add),
    BOTH("softmax", "softmax(x)", NULL),
    BOTH("softmax_steps",
         "exp(x - amax(x, dims=[1], keepdim=true)) / "
         "sum(exp(x - amax(x, dims=[1], keepdim=true)), dims=[1], keepdim=true)",
         NULL),
    BOTH("rms_norm", "rms_norm(x + r, w)", NULL),
    BOTH("layer_norm", "layer_norm(x, w, b)", NULL),
    BOTH("row_sum", "sum(exp(x) * r, dims=[1])", hand_row_sum),
    BOTH("column_sum", "sum(gelu(x) * r, dims=[0])", NULL),
    BOTH("sum", "sum(x)", hand_sum),
    BOTH("transposed_add", "x + transpose(z)", NULL),
};
enum { N_ROWS = sizeof rows / sizeof *rows };

/* Time of this process on processors, per thread: on a machine that others use too, it tells more than the
 * clock on the wall does. */
static bool wall;
static double now_ms(void) {
  struct timespec t;
  (void)clock_gettime(wall ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID, &t);
  if (!wall) return (1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec) / n_threads;
  return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* The last of a few runs: threads are awake, and as much of the operands is in the shared cache as stays there. That
 * takes several runs, since what others have left there goes slowly. */
enum { RUNS = 6 };
static double time_machine(team *t, bound *b) {
  double begin = 0;
  for (int i = 0; i < RUNS; i++) {
    begin = now_ms();
    run_machine(t, b);
  }
  return now_ms() - begin;
}

static double time_by_hand(team *t, bound *b) {
  double begin = 0;
  for (int i = 0; i < RUNS; i++) {
    begin = now_ms();
    team_run(t, work_by_hand, b);
  }
  return now_ms() - begin;
}

static bound *bind(const row *r) {
  bound *b = calloc(1, sizeof *b);
  check(b != NULL);
  b->row = r;
  check(memory_guard(bind_row, b) == STATUS_OK);
  return b;
}

static void release(bound *b) {
  for (uint32_t i = 0; i < 8; i++) free(b->bases[i]);
  for (uint32_t i = 0; i < n_threads; i++) free(b->scratch[i]);
  ir_module_destroy(&b->module);
  arena_destroy(&b->memory);
  free(b);
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void measure(team *t, const row *r, int rounds, bool hand) {
  static double own[MAX_ROUNDS], theirs[MAX_ROUNDS];
  bound *b = bind(r);
  hand = hand && r->by_hand;
  for (int i = 0; i < rounds; i++) {
    own[i] = time_machine(t, b);
    theirs[i] = hand ? time_by_hand(t, b) : 0;
  }
  qsort(own, (size_t)rounds, sizeof *own, ascending);
  qsort(theirs, (size_t)rounds, sizeof *theirs, ascending);
  printf("%-20s %4u parts  best %7.2f  median %7.2f ms", r->name, cpu_kernel_parts(b->kernel),
         own[0], own[rounds / 2]);
  if (hand) printf("   by hand %7.2f %7.2f", theirs[0], theirs[rounds / 2]);
  printf("\n");
  release(b);
}

/* Answers ms; 0: there is no loop by hand. */
static void answer(team *t, bool hand) {
  bound *known[N_ROWS] = {NULL};
  char line[80];
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = 0;
    bool by_hand = strncmp(line, "hand ", 5) == 0;
    for (uint32_t i = 0; i < N_ROWS; i++) {
      if (strcmp(rows[i].name, line + (by_hand ? 5 : 0)) != 0) continue;
      if (!known[i]) known[i] = bind(&rows[i]);
      if (!by_hand) printf("%.3f\n", time_machine(t, known[i]));
      else printf("%.3f\n", hand && rows[i].by_hand ? time_by_hand(t, known[i]) : 0);
      (void)fflush(stdout);
    }
    if (strcmp(line, "release") == 0)
      for (uint32_t i = 0; i < N_ROWS; i++)
        if (known[i]) release(known[i]), known[i] = NULL;
  }
  for (uint32_t i = 0; i < N_ROWS; i++)
    if (known[i]) release(known[i]);
}

int main(int argc, char **argv) {
  static team t;
  static member members[MAX_THREADS];
  bool hand = find_functions(), ask = argc > 1 && strcmp(argv[1], "--ask") == 0;
  wall = getenv("WALL") != NULL;
  const char *threads = getenv("THREADS");
  if (threads && strcmp(threads, "1") == 0) n_threads = 1;
  int rounds = argc > 1 && !ask ? atoi(argv[1]) : 15;
  if (rounds < 1 || rounds > MAX_ROUNDS) rounds = 15;
  for (uint32_t i = 1; i < n_threads; i++) {
    members[i] = (member){&t, i};
    check(pthread_create(&t.threads[i], NULL, serve, &members[i]) == 0);
  }
  if (ask) answer(&t, hand);
  for (uint32_t i = 0; i < N_ROWS && !ask; i++)
    if (argc < 3 || strncmp(rows[i].name, argv[2], strlen(argv[2])) == 0)
      measure(&t, &rows[i], rounds, hand);
  t.quit = true;
  tell(&t.begun);
  for (uint32_t i = 1; i < n_threads; i++) (void)pthread_join(t.threads[i], NULL);
  return 0;
}
