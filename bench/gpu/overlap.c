/* Overlap over the host link: two devices on one GPU whose data go through the host's memory.
 *
 *   overlap ag M K N | ar M K N     bf16; a of M x K, b of K x N
 *
 * AG+matmul: each device has half of the rows of `a` and half of the columns of `b`; it needs all rows.
 * matmul+AR: each device has half of the inner dimension; the products are added up.
 *
 * The limit is the longer of the best whole product (both devices' work, alone) and the best whole
 * transfer (all bytes that must cross, both ways at once). ms, medians. `by hand` is a program in C with
 * equal slices: streams that copy, one stream per device that computes. Of AG there are two programs: an
 * allgather per slice, and, with one mark more, own-first: each device multiplies its own rows at once, and
 * the others' slice by slice as they come. */
#include "gpu/kit.h"

typedef struct size {
  bool ar;
  int64_t m, k, n;
} size;

static const int repeats = 15;

/* ---- limits ---- */
typedef struct product {
  cublasLtHandle_t lt;
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t a, b, c;
  cublasLtMatmulAlgo_t algo;
  CUdeviceptr workspace;
  CUstream stream;
  CUdeviceptr in, weights, out;
} product;

enum { WORKSPACE = 32 << 20 };

/* Row-major c[m, n] = a[m, k] b[k, n], as its transpose. ldc: of c's rows. */
static void product_open(product *p, int64_t m, int64_t k, int64_t n, int64_t ldc) {
  cublasLtMatmulPreference_t pref;
  cublasLtMatmulHeuristicResult_t found;
  size_t room = WORKSPACE;
  int count = 0;
  if (!p->lt) ok_lt(cu->cublasLtCreate(&p->lt));
  if (!p->workspace) p->workspace = device_memory(WORKSPACE);
  ok_lt(cu->cublasLtMatmulDescCreate(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  ok_lt(cu->cublasLtMatrixLayoutCreate(&p->a, CUDA_R_16BF, (uint64_t)n, (uint64_t)k, n));
  ok_lt(cu->cublasLtMatrixLayoutCreate(&p->b, CUDA_R_16BF, (uint64_t)k, (uint64_t)m, k));
  ok_lt(cu->cublasLtMatrixLayoutCreate(&p->c, CUDA_R_16BF, (uint64_t)n, (uint64_t)m, ldc));
  ok_lt(cu->cublasLtMatmulPreferenceCreate(&pref));
  ok_lt(cu->cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                 &room, sizeof room));
  ok_lt(cu->cublasLtMatmulAlgoGetHeuristic(p->lt, p->desc, p->a, p->b, p->c, p->c, pref, 1, &found,
                                           &count));
  p->algo = found.algo;
}

static void product_issue(const product *p, CUdeviceptr in, CUdeviceptr weights, CUdeviceptr out,
                          CUstream stream) {
  static const float one = 1, zero = 0;
  void *c = (void *)(uintptr_t)out;
  ok_lt(cu->cublasLtMatmul(p->lt, p->desc, &one, (const void *)(uintptr_t)weights, p->a,
                           (const void *)(uintptr_t)in, p->b, &zero, c, p->c, c, p->c, &p->algo,
                           (void *)(uintptr_t)p->workspace, WORKSPACE, stream));
}

static void run_product(void *context) {
  const product *p = context;
  product_issue(p, p->in, p->weights, p->out, p->stream);
  ok(cu->cuStreamSynchronize(p->stream));
}

/* The whole product on the whole GPU: what both devices compute together. */
static double product_ms(size s) {
  product p = {0};
  product_open(&p, s.m, s.k, s.n, s.n);
  ok(cu->cuStreamCreateWithPriority(&p.stream, CU_STREAM_NON_BLOCKING, 0));
  p.in = device_memory((size_t)(s.m * s.k * 2));
  p.weights = device_memory((size_t)(s.k * s.n * 2));
  p.out = device_memory((size_t)(s.m * s.n * 2));
  fill_bf16(p.in, (size_t)(s.m * s.k * 2));
  fill_bf16(p.weights, (size_t)(s.k * s.n * 2));
  double us = time_us(run_product, &p, repeats);
  ok(cu->cuMemFree(p.in));
  ok(cu->cuMemFree(p.weights));
  ok(cu->cuMemFree(p.out));
  ok(cu->cuMemFree(p.workspace));
  return us * 1e-3;
}

typedef struct transfer {
  size_t bytes; /* each way */
  void *pinned[2];
  CUdeviceptr memory[2];
  CUstream streams[2];
} transfer;

static void run_transfer(void *context) {
  const transfer *t = context;
  ok(cu->cuMemcpyDtoHAsync(t->pinned[0], t->memory[0], t->bytes, t->streams[0]));
  ok(cu->cuMemcpyHtoDAsync(t->memory[1], t->pinned[1], t->bytes, t->streams[1]));
  ok(cu->cuStreamSynchronize(t->streams[0]));
  ok(cu->cuStreamSynchronize(t->streams[1]));
}

/* Bytes that cross the link each way: AG, the two halves of a; AR, two products (each device sends half
 * of its own and the sum of the other half). */
static size_t crossing_bytes(size s) { return (size_t)(s.ar ? 2 * s.m * s.n * 2 : s.m * s.k * 2); }

static double transfer_ms(size s) {
  transfer t = {.bytes = crossing_bytes(s)};
  for (int i = 0; i < 2; i++) {
    ok(cu->cuMemHostAlloc(&t.pinned[i], t.bytes, CU_MEMHOSTALLOC_PORTABLE));
    memset(t.pinned[i], 1, t.bytes);
    t.memory[i] = device_memory(t.bytes);
    ok(cu->cuStreamCreateWithPriority(&t.streams[i], CU_STREAM_NON_BLOCKING, 0));
  }
  double us = time_us(run_transfer, &t, repeats);
  for (int i = 0; i < 2; i++) {
    ok(cu->cuMemFreeHost(t.pinned[i]));
    ok(cu->cuMemFree(t.memory[i]));
  }
  return us * 1e-3;
}

/* ---- by hand: AG+matmul in equal slices ---- */
typedef struct hand {
  size s;
  int slices;
  product p;
  void *pinned[2];                           /* each device's half of a */
  CUdeviceptr half[2], other[2], b[2], c[2]; /* by device */
  CUstream out[2], in[2], compute[2];
  CUevent sent[2][64], arrived[2][64];
  CUdeviceptr workspaces[2];
} hand;

static void hand_open(hand *h, size s, int slices) {
  memset(h, 0, sizeof *h);
  h->s = s;
  h->slices = slices;
  size_t half = (size_t)(s.m / 2 * s.k * 2);
  product_open(&h->p, s.m / 2 / slices, s.k, s.n / 2, s.n / 2);
  for (int d = 0; d < 2; d++) {
    ok(cu->cuMemHostAlloc(&h->pinned[d], half, CU_MEMHOSTALLOC_PORTABLE));
    h->half[d] = device_memory(half);
    h->other[d] = device_memory(half);
    h->b[d] = device_memory((size_t)(s.k * s.n / 2 * 2));
    h->c[d] = device_memory((size_t)(s.m * s.n / 2 * 2));
    h->workspaces[d] = device_memory(WORKSPACE);
    fill_bf16(h->half[d], half);
    fill_bf16(h->b[d], (size_t)(s.k * s.n / 2 * 2));
    ok(cu->cuStreamCreateWithPriority(&h->out[d], CU_STREAM_NON_BLOCKING, 0));
    ok(cu->cuStreamCreateWithPriority(&h->in[d], CU_STREAM_NON_BLOCKING, 0));
    ok(cu->cuStreamCreateWithPriority(&h->compute[d], CU_STREAM_NON_BLOCKING, 0));
    for (int i = 0; i < slices; i++) {
      ok(cu->cuEventCreate(&h->sent[d][i], CU_EVENT_DISABLE_TIMING));
      ok(cu->cuEventCreate(&h->arrived[d][i], CU_EVENT_DISABLE_TIMING));
    }
  }
}

static void hand_slice(hand *h, int i) {
  size_t rows = (size_t)(h->s.m / 2 / h->slices), bytes = rows * (size_t)h->s.k * 2;
  size_t at = (size_t)i * bytes, out_bytes = rows * (size_t)h->s.n / 2 * 2;
  for (int d = 0; d < 2; d++) {
    ok(cu->cuMemcpyDtoHAsync((char *)h->pinned[d] + at, h->half[d] + at, bytes, h->out[d]));
    ok(cu->cuEventRecord(h->sent[d][i], h->out[d]));
  }
  for (int d = 0; d < 2; d++) {
    ok(cu->cuStreamWaitEvent(h->in[d], h->sent[1 - d][i], 0));
    ok(cu->cuMemcpyHtoDAsync(h->other[d] + at, (char *)h->pinned[1 - d] + at, bytes, h->in[d]));
    ok(cu->cuEventRecord(h->arrived[d][i], h->in[d]));
    h->p.workspace = h->workspaces[d];
    CUdeviceptr mine = h->c[d] + (size_t)i * out_bytes;
    CUdeviceptr theirs = mine + (size_t)h->slices * out_bytes;
    product_issue(&h->p, h->half[d] + at, h->b[d], mine, h->compute[d]);
    ok(cu->cuStreamWaitEvent(h->compute[d], h->arrived[d][i], 0));
    product_issue(&h->p, h->other[d] + at, h->b[d], theirs, h->compute[d]);
  }
}

static void hand_run(void *context) {
  hand *h = context;
  for (int i = 0; i < h->slices; i++) hand_slice(h, i);
  for (int d = 0; d < 2; d++) ok(cu->cuStreamSynchronize(h->compute[d]));
}

static void hand_close(hand *h) {
  for (int d = 0; d < 2; d++) {
    ok(cu->cuMemFreeHost(h->pinned[d]));
    ok(cu->cuMemFree(h->half[d]));
    ok(cu->cuMemFree(h->other[d]));
    ok(cu->cuMemFree(h->b[d]));
    ok(cu->cuMemFree(h->c[d]));
    ok(cu->cuMemFree(h->workspaces[d]));
  }
}

/* ---- Weir ---- */
/* Slices in 32nds of the rows: "8*4" is eight equal ones. */
typedef struct cutting {
  const char *name;
  int n, parts[40]; /* they add up to 32 */
} cutting;

static const cutting cuttings[] = {
    {"4 equal", 4, {8, 8, 8, 8}},
    {"8 equal", 8, {4, 4, 4, 4, 4, 4, 4, 4}},
    {"16 equal", 16, {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}},
    {"falling", 10, {5, 5, 4, 4, 4, 3, 3, 2, 1, 1}},
    {"rising", 10, {1, 1, 2, 3, 3, 4, 4, 4, 5, 5}},
    {"both", 11, {1, 2, 3, 4, 4, 4, 4, 4, 3, 2, 1}},
    {"long", 8, {1, 3, 6, 7, 7, 5, 2, 1}},
    {"short end", 10, {4, 4, 4, 4, 4, 4, 3, 3, 1, 1}},
};

static char *text_of(size s, const cutting *c, bool own) {
  static char text[2048];
  char list[512];
  int64_t rows = s.ar ? s.m : s.m / 2;
  int used = 0;
  for (int i = 0; i < c->n; i++)
    used += snprintf(list + used, sizeof list - (size_t)used, "%s%lld", i ? ", " : "",
                     (long long)(rows / 32 * c->parts[i]));
  if (s.ar)
    (void)snprintf(text, sizeof text,
                   "fusion ar { mesh d = [2]\n a : bf16[2, %lld, %lld]\n b : bf16[2, %lld, %lld]\n"
                   " u = matmul(a, b)\n c = sum(u, dims=[0])\n return c\n"
                   " schedule { a, b, u, c on d; a[0] = mesh.x; b[0] = mesh.x; u[0] = mesh.x;"
                   " u.outer_split(1, [%s]); u[1] = stream; c.outer_split(1, [%s]);"
                   " c[1] = stream } }",
                   (long long)s.m, (long long)(s.k / 2), (long long)(s.k / 2), (long long)s.n, list,
                   list);
  else
    (void)snprintf(text, sizeof text,
                   "fusion ag { mesh d = [2]\n a : bf16[2, %lld, %lld]\n b : bf16[%lld, %lld]\n"
                   " c = matmul(a, b)\n return c\n"
                   " schedule { a, b, c on d; a[0] = mesh.x; b.outer_split(1, d); b[1] = mesh.x;"
                   " c.outer_split(1, [%s]); %sc[1] = stream; c.outer_split(3, d);"
                   " c[3] = mesh.x } }",
                   (long long)rows, (long long)s.k, (long long)s.k, (long long)s.n, list,
                   own ? "c[0] = stream; " : "");
  return text;
}

/* When slices had arrived and when they were computed, in us from the start of the run. */
static void print_times(const bench *b) {
  const rt_plan *plan = b->plan;
  uint32_t n = plan->n_tasks + plan->n_posts;
  rt_span *spans = calloc(n, sizeof *spans);
  for (int i = 0; i < 2; i++) must(rt_run(b->loaded, b->inputs, b->outputs, spans, NULL));
  for (uint32_t i = 0; i < n; i++)
    printf("    %s rank %u stream %2u  %8.1f to %8.1f\n", i < plan->n_tasks ? "task" : "post",
           rt_plan_rank(plan, spans[i].stream), spans[i].stream, (double)spans[i].start_ns * 1e-3,
           (double)spans[i].end_ns * 1e-3);
  free(spans);
}

static void run_cutting(rt_device *d, size s, const cutting *c, bool own, bool graph,
                        double limit) {
  bench b;
  bench_args args = {.text = text_of(s, c, own), .ranks = 2, .streams = 8, .fill = true};
  bench_open(&b, d, &args);
  double ms = time_us(bench_run, &b, repeats) * 1e-3;
  printf("  weir%s%s %-9s %7.3f ms  %.3f x limit   issue %.0f us\n", own ? ", own first" : "",
         graph ? ", graph,"
         : own ? ","
               : ",       ",
         c->name, ms, ms / limit, (double)b.host_ns * 1e-3);
  const char *times = getenv("TIMES");
  if (!graph && times && strcmp(times, c->name) == 0) print_times(&b);
  bench_close(&b);
}

static void run_weir(size s, bool graph, double limit) {
  rt_device *d = bench_device(&(rt_device_options){.link_host = true, .graph = graph});
  for (int own = 0; own < (s.ar ? 1 : 2); own++)
    for (size_t i = 0; i < sizeof cuttings / sizeof *cuttings; i++)
      run_cutting(d, s, &cuttings[i], own, graph, limit);
  d->ops->close(d);
}

int main(int argc, char **argv) {
  if (argc != 5) {
    printf("usage: overlap ag|ar M K N\n");
    return 0;
  }
  size s = {strcmp(argv[1], "ar") == 0, atoll(argv[2]), atoll(argv[3]), atoll(argv[4])};
  rt_device *d = bench_device(&(rt_device_options){0});
  double compute = product_ms(s), move = transfer_ms(s), limit = compute > move ? compute : move;
  printf("%s %lld x %lld x %lld: product %.3f ms, transfer %.3f ms, limit %.3f ms\n", argv[1],
         (long long)s.m, (long long)s.k, (long long)s.n, compute, move, limit);
  for (int slices = 4; slices <= 32 && !s.ar; slices *= 2) {
    hand h;
    hand_open(&h, s, slices);
    double ms = time_us(hand_run, &h, repeats) * 1e-3;
    printf("  by hand, %2d equal      %7.3f ms  %.3f x limit\n", slices, ms, ms / limit);
    hand_close(&h);
  }
  run_weir(s, false, limit);
  run_weir(s, true, limit);
  d->ops->close(d);
  return 0;
}
