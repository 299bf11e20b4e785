/* What issuing costs the host: a stream loop of 8 tiny matrix products, by Weir and by a program written
 * by hand against the same library; and both as graphs.
 *
 *   host_cost [repeats]
 *
 * us, medians: until the last call has returned (issue), and until the GPU is done (whole). */
#include "gpu/kit.h"

enum { N = 8, M = 16, K = 64, COLUMNS = 32, WORKSPACE = 4 << 20 };

static const char program[] = "fusion loop { a : bf16[8, 16, 64]; b : bf16[64, 32]\n"
                              " c = matmul(a, b)\n return c\n schedule { c[0] = stream } }";

/* ---- by hand ---- */
typedef struct hand {
  cublasLtHandle_t lt;
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t a, b, c;
  cublasLtMatmulAlgo_t algo;
  CUstream main, streams[N];
  CUevent fork, joins[N];
  CUdeviceptr in, weights, out, workspaces[N];
  CUgraphExec graph;
  int64_t issue_ns;
} hand;

/* Row-major c = a b is column-major c' = b' a'. */
static void hand_open(hand *h) {
  cublasLtMatmulPreference_t pref;
  cublasLtMatmulHeuristicResult_t found;
  size_t room = WORKSPACE;
  int n = 0;
  memset(h, 0, sizeof *h);
  ok_lt(cu->cublasLtCreate(&h->lt));
  ok_lt(cu->cublasLtMatmulDescCreate(&h->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  ok_lt(cu->cublasLtMatrixLayoutCreate(&h->a, CUDA_R_16BF, COLUMNS, K, COLUMNS));
  ok_lt(cu->cublasLtMatrixLayoutCreate(&h->b, CUDA_R_16BF, K, M, K));
  ok_lt(cu->cublasLtMatrixLayoutCreate(&h->c, CUDA_R_16BF, COLUMNS, M, COLUMNS));
  ok_lt(cu->cublasLtMatmulPreferenceCreate(&pref));
  ok_lt(cu->cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                 &room, sizeof room));
  ok_lt(cu->cublasLtMatmulAlgoGetHeuristic(h->lt, h->desc, h->a, h->b, h->c, h->c, pref, 1, &found,
                                           &n));
  h->algo = found.algo;
  ok(cu->cuStreamCreateWithPriority(&h->main, CU_STREAM_NON_BLOCKING, 0));
  ok(cu->cuEventCreate(&h->fork, CU_EVENT_DISABLE_TIMING));
  for (int i = 0; i < N; i++) {
    ok(cu->cuStreamCreateWithPriority(&h->streams[i], CU_STREAM_NON_BLOCKING, 0));
    ok(cu->cuEventCreate(&h->joins[i], CU_EVENT_DISABLE_TIMING));
    h->workspaces[i] = device_memory(WORKSPACE);
  }
  h->in = device_memory((size_t)N * M * K * 2);
  h->weights = device_memory((size_t)K * COLUMNS * 2);
  h->out = device_memory((size_t)N * M * COLUMNS * 2);
  fill_bf16(h->in, (size_t)N * M * K * 2);
  fill_bf16(h->weights, (size_t)K * COLUMNS * 2);
}

static void hand_issue(hand *h) {
  static const float one = 1, zero = 0;
  ok(cu->cuEventRecord(h->fork, h->main));
  for (int i = 0; i < N; i++) {
    const void *b = (const void *)(uintptr_t)(h->in + (size_t)i * M * K * 2);
    void *c = (void *)(uintptr_t)(h->out + (size_t)i * M * COLUMNS * 2);
    ok(cu->cuStreamWaitEvent(h->streams[i], h->fork, 0));
    ok_lt(cu->cublasLtMatmul(h->lt, h->desc, &one, (const void *)(uintptr_t)h->weights, h->a, b,
                             h->b, &zero, c, h->c, c, h->c, &h->algo,
                             (void *)(uintptr_t)h->workspaces[i], WORKSPACE, h->streams[i]));
    ok(cu->cuEventRecord(h->joins[i], h->streams[i]));
    ok(cu->cuStreamWaitEvent(h->main, h->joins[i], 0));
  }
}

static void hand_run(void *context) {
  hand *h = context;
  int64_t start = rt_clock_ns();
  hand_issue(h);
  h->issue_ns = rt_clock_ns() - start;
  ok(cu->cuStreamSynchronize(h->main));
}

static void hand_capture(hand *h) {
  CUgraph graph;
  ok(cu->cuStreamBeginCapture(h->main, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  hand_issue(h);
  ok(cu->cuStreamEndCapture(h->main, &graph));
  ok(cu->cuGraphInstantiateWithFlags(&h->graph, graph, 0));
}

static void hand_replay(void *context) {
  hand *h = context;
  int64_t start = rt_clock_ns();
  ok(cu->cuGraphLaunch(h->graph, h->main));
  h->issue_ns = rt_clock_ns() - start;
  ok(cu->cuStreamSynchronize(h->main));
}

/* ---- comparing ---- */
/* Medians of what `issue_ns` holds after each run, and of whole runs. */
static void measure(const char *name, void (*fn)(void *), void *context, const int64_t *issue_ns,
                    int repeats) {
  double issues[BENCH_MOST], wholes[BENCH_MOST];
  for (int i = -20; i < repeats; i++) {
    int64_t start = rt_clock_ns();
    fn(context);
    if (i < 0) continue;
    wholes[i] = (double)(rt_clock_ns() - start) * 1e-3;
    issues[i] = (double)*issue_ns * 1e-3;
  }
  printf("%-16s issue %7.2f us   whole %7.2f us\n", name, median(issues, repeats),
         median(wholes, repeats));
}

int main(int argc, char **argv) {
  int repeats = argc > 1 ? atoi(argv[1]) : BENCH_MOST;
  rt_device *direct = bench_device(&(rt_device_options){0});
  rt_device *graph = bench_device(&(rt_device_options){.graph = true});
  bench_args args = {.text = program, .ranks = 1, .streams = N, .fill = true};
  bench plain, captured;
  hand h;
  if (repeats < 1 || repeats > BENCH_MOST) repeats = BENCH_MOST;
  bench_open(&plain, direct, &args);
  bench_open(&captured, graph, &args);
  hand_open(&h);
  for (int round = 0; round < 3; round++) {
    measure("weir", bench_run, &plain, &plain.host_ns, repeats);
    measure("by hand", hand_run, &h, &h.issue_ns, repeats);
    measure("weir, graph", bench_run, &captured, &captured.host_ns, repeats);
    if (!h.graph) hand_capture(&h);
    measure("by hand, graph", hand_replay, &h, &h.issue_ns, repeats);
  }
  bench_close(&plain);
  bench_close(&captured);
  direct->ops->close(direct);
  graph->ops->close(graph);
  return 0;
}
