/* A stream-parallel chain of matmuls against hand-written C with two threads.
 *
 *     y = x @ w1 @ w2 @ w3        rows of x in chunks, one stream each
 *
 * Weir compiles the fusion below and runs it on the CPU device with two compute threads. The
 * hand-written programs call OpenBLAS, one thread each: `halves` gives each of two threads half
 * of the rows; `chunks` lets two threads take chunks from a counter, as the streams do. All run
 * interleaved in one process; the medians are compared. Goal: at most 1.1 times the better one. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weir/weir.h>

enum { ROWS = 1024, WIDTH = 512, CHUNKS = 8, LAYERS = 3, ROUNDS = 15 };

static const char program_text[] = "fusion chain {\n"
                                   "  x : f32[1024, 512]\n"
                                   "  w0 : f32[512, 512]\n"
                                   "  w1 : f32[512, 512]\n"
                                   "  w2 : f32[512, 512]\n"
                                   "  a = matmul(x, w0)\n"
                                   "  b = matmul(a, w1)\n"
                                   "  y = matmul(b, w2)\n"
                                   "  return y\n"
                                   "  schedule {\n"
                                   "    a.outer_split(0, 8); a[0] = stream\n"
                                   "    b.outer_split(0, 8); b[0] = stream\n"
                                   "    y.outer_split(0, 8); y[0] = stream\n"
                                   "  }\n"
                                   "}\n";

static void require(bool ok, const char *what) {
  if (ok) return;
  fprintf(stderr, "bench/streams: %s: %s\n", what, weir_error());
  exit(1);
}

static double now_s(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- by hand ---- */
typedef void (*sgemm_fn)(int, int, int, int, int, int, float, const float *, int, const float *,
                         int, float, float *, int);

typedef struct job {
  sgemm_fn sgemm;
  const float *x, *w[LAYERS];
  float *scratch[2][2]; /* per thread */
  float *y;
  int chunk_rows;
  atomic_int next;
} job;

/* One chunk through all layers. */
static void run_chunk(job *j, int thread, int first) {
  enum { ROW_MAJOR = 101, NO_TRANS = 111 };
  const float *in = j->x + (size_t)first * WIDTH;
  for (int k = 0; k < LAYERS; k++) {
    float *out = k + 1 == LAYERS ? j->y + (size_t)first * WIDTH : j->scratch[thread][k % 2];
    j->sgemm(ROW_MAJOR, NO_TRANS, NO_TRANS, j->chunk_rows, WIDTH, WIDTH, 1, in, WIDTH, j->w[k],
             WIDTH, 0, out, WIDTH);
    in = out;
  }
}

static void work(job *j, int thread) {
  for (int first; (first = atomic_fetch_add(&j->next, j->chunk_rows)) < ROWS;) {
    run_chunk(j, thread, first);
  }
}

static void *second_thread(void *context) {
  work(context, 1);
  return NULL;
}

static double run_by_hand(job *j, int chunk_rows) {
  pthread_t other;
  j->chunk_rows = chunk_rows;
  atomic_store(&j->next, 0);
  double start = now_s();
  require(pthread_create(&other, NULL, second_thread, j) == 0, "pthread_create");
  work(j, 0);
  (void)pthread_join(other, NULL);
  return now_s() - start;
}

static bool load_blas(job *j) {
  void *lib = dlopen("libopenblas.so.0", RTLD_NOW);
  if (!lib) return false;
  void *sgemm = dlsym(lib, "cblas_sgemm"), *threads = dlsym(lib, "openblas_set_num_threads");
  if (!sgemm || !threads) return false;
  void (*set_threads)(int);
  memcpy(&set_threads, &threads, sizeof threads);
  memcpy(&j->sgemm, &sgemm, sizeof sgemm);
  set_threads(1);
  return true;
}

/* ---- by Weir ---- */
typedef struct compiled {
  weir_module *module;
  weir_fusion *fusion;
  weir_program *program;
  weir_array *inputs[1 + LAYERS], *output;
} compiled;

static void compile(compiled *c) {
  weir_options *o = NULL;
  require(weir_module_parse("chain", program_text, strlen(program_text), NULL, &c->module) ==
              WEIR_OK,
          "parse");
  require(weir_module_find(c->module, NULL, &c->fusion) == WEIR_OK, "find");
  require(weir_options_create(&o) == WEIR_OK, "options");
  require(weir_options_set(o, "threads", "2") == WEIR_OK, "threads");
  require(weir_compile(c->fusion, o, NULL, &c->program) == WEIR_OK, "compile");
  weir_options_destroy(o);
  for (int i = 0; i <= LAYERS; i++) {
    int64_t extents[2] = {i == 0 ? ROWS : WIDTH, WIDTH};
    require(weir_array_create(WEIR_F32, extents, 2, NULL, &c->inputs[i]) == WEIR_OK, "array");
    require(weir_array_fill(c->inputs[i], "normal", 1, i ? "w" : "x") == WEIR_OK, "fill");
  }
  int64_t extents[2] = {ROWS, WIDTH};
  require(weir_array_create(WEIR_F32, extents, 2, NULL, &c->output) == WEIR_OK, "array");
}

static double run_by_weir(compiled *c) {
  const weir_dl_tensor *in[1 + LAYERS], *out = weir_array_tensor(c->output);
  for (int i = 0; i <= LAYERS; i++) in[i] = weir_array_tensor(c->inputs[i]);
  weir_run_args args = {.struct_size = sizeof args, .inputs = in, .n_inputs = 1 + LAYERS};
  args.outputs = &out;
  args.n_outputs = 1;
  double start = now_s();
  require(weir_run(c->program, &args) == WEIR_OK, "run");
  return now_s() - start;
}

static void destroy(compiled *c) {
  for (int i = 0; i <= LAYERS; i++) weir_array_destroy(c->inputs[i]);
  weir_array_destroy(c->output);
  weir_program_destroy(c->program);
  weir_module_destroy(c->module);
}

/* ---- comparing ---- */
static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *t) {
  qsort(t, ROUNDS, sizeof *t, by_size);
  return t[ROUNDS / 2];
}

static void prepare(job *j, const compiled *c) {
  j->x = weir_array_tensor(c->inputs[0])->data;
  for (int k = 0; k < LAYERS; k++) j->w[k] = weir_array_tensor(c->inputs[k + 1])->data;
  j->y = malloc(sizeof(float) * ROWS * WIDTH);
  for (int i = 0; i < 4; i++) j->scratch[i / 2][i % 2] = malloc(sizeof(float) * ROWS * WIDTH);
  require(j->y && j->scratch[0][0] && j->scratch[0][1] && j->scratch[1][0] && j->scratch[1][1],
          "out of memory");
}

static void release(job *j) {
  for (int i = 0; i < 4; i++) free(j->scratch[i / 2][i % 2]);
  free(j->y);
}

int main(void) {
  job j = {.chunk_rows = ROWS};
  if (!load_blas(&j)) {
    printf("skipped: there is no OpenBLAS to compare with\n");
    return 0;
  }
  compiled c = {0};
  compile(&c);
  prepare(&j, &c);
  double weir[ROUNDS], halves[ROUNDS], chunks[ROUNDS];
  (void)run_by_weir(&c);
  for (int i = 0; i < ROUNDS; i++) {
    halves[i] = run_by_hand(&j, ROWS / 2);
    weir[i] = run_by_weir(&c);
    chunks[i] = run_by_hand(&j, ROWS / CHUNKS);
  }
  double w = median(weir), h = median(halves), k = median(chunks), best = h < k ? h : k;
  double gflop = 2e-9 * ROWS * WIDTH * WIDTH * LAYERS;
  printf("by hand, halves   %8.3f ms  %6.1f GFLOP/s\n", h * 1e3, gflop / h);
  printf("by hand, chunks   %8.3f ms  %6.1f GFLOP/s\n", k * 1e3, gflop / k);
  printf("weir, 8 chunks    %8.3f ms  %6.1f GFLOP/s\n", w * 1e3, gflop / w);
  printf("weir over the better hand-written one %.3fx  goal <= 1.10x  %s\n", w / best,
         w <= 1.1 * best ? "PASS" : "MISS");
  release(&j);
  destroy(&c);
  return 0;
}
