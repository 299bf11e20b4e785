/* weir_run() on streams of the caller: after what they hold, before what they get, issued and not waited for;
 * many runs in flight; and as part of a CUDA graph that the caller captures.
 *
 * Needs a GPU, or a stand-in for one; skips where there is neither. */
#include <stdlib.h>

#include "device/cuda/vendor.h"
#include "test.h"
#include "weir/weir.h"

enum { N = 48, BYTES = N * sizeof(float), FLIGHTS = 12, DL_CPU = 1, DL_CUDA };

static const cuda_vendor *cu;
static CUcontext context;

static void must(CUresult r) { check(r == CUDA_SUCCESS); }

/* ---- programs: y = 3 x - 1, over one device and over two ---- */
static const char *const one = "fusion f { x : f32[8, 6]; t = x * 3; y = t - 1; return y }";
static const char *const streamed =
    "fusion f { x : f32[8, 6]; t = x * 3; y = t - 1; return y\n"
    "schedule { t.outer_split(0, 4); t[0] = stream; y.outer_split(0, 4); y[0] = stream } }";
static const char *const two =
    "fusion f { mesh d = [2]; x : f32[8, 6]; t = x * 3; y = t - 1; return y\n"
    "schedule { x, t, y on d; x.outer_split(0, 2); x[0] = mesh.x } }";
static const char *const rows =
    "fusion f { x : f32[8, 6]; i : i64[8]; y = index_select(x, i, dim=0); "
    "return y }";

static bool prepares; /* what is compiled */

static weir_program *compile(const char *text, const char *device, bool graph) {
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_program *p = NULL;
  weir_options *o = NULL;
  weir_shapes *s = NULL;
  EXPECT_INT(weir_options_create(&o), WEIR_OK);
  EXPECT_INT(weir_options_set(o, "device", device), WEIR_OK);
  EXPECT_INT(weir_options_set(o, "graph", graph ? "true" : "false"), WEIR_OK);
  if (weir_module_parse("t", text, strlen(text), NULL, &m) != WEIR_OK ||
      weir_module_find(m, NULL, &f) != WEIR_OK || weir_compile(f, o, NULL, &p) != WEIR_OK) {
    EXPECT(false);
    fprintf(stderr, "%s\n", weir_error());
    exit(1);
  }
  EXPECT_INT(weir_shapes_create(f, &s), WEIR_OK);
  EXPECT_INT(weir_shapes_complete(s), WEIR_OK);
  if (prepares) EXPECT_INT(weir_program_prepare(p, s), WEIR_OK);
  weir_shapes_destroy(s);
  weir_options_destroy(o);
  weir_module_destroy(m);
  return p;
}

/* ---- memory and streams ---- */
static int64_t shape[2] = {8, 6};

static weir_dl_tensor tensor(void *data, int type) {
  return (weir_dl_tensor){.data = data,
                          .device = {type, 0},
                          .ndim = 2,
                          .dtype = weir_dtype_to_dl(WEIR_F32),
                          .shape = shape};
}

static void *on_gpu(size_t bytes) {
  CUdeviceptr p = 0;
  must(cu->cuMemAlloc(&p, bytes));
  return (void *)(uintptr_t)p;
}

static void *pinned(size_t bytes) {
  void *p = NULL;
  must(cu->cuMemHostAlloc(&p, bytes, CU_MEMHOSTALLOC_PORTABLE));
  memset(p, 0, bytes);
  return p;
}

static CUdeviceptr address(const void *p) { return (CUdeviceptr)(uintptr_t)p; }
static void give(void *p) { must(cu->cuMemFree(address(p))); }

static CUstream stream_new(void) {
  CUstream s = NULL;
  must(cu->cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, 0));
  return s;
}

static uint64_t seed; /* of the next run */

static weir_status run_on(const weir_program *p, const weir_dl_tensor *x, const weir_dl_tensor *y,
                          int gpu, CUstream s) {
  weir_stream stream = {{DL_CUDA, gpu}, s};
  weir_run_args args = {
      .struct_size = sizeof args, .inputs = &x, .n_inputs = 1, .outputs = &y, .n_outputs = 1};
  args.seed = seed;
  args.streams = &stream;
  args.n_streams = 1;
  weir_status st = weir_run(p, &args);
  if (st != WEIR_OK) fprintf(stderr, "%s\n", weir_error());
  return st;
}

static int wrong(const float *x, const float *y) {
  int n = 0;
  for (int i = 0; i < N; i++) n += y[i] != 3 * x[i] - 1;
  return n;
}

/* ---- in order ---- */
/* Values go to the GPU, through the program and back on one stream; nobody waits before the end. The program
 * works on the same two arrays in every flight. */
static void test_flights(const char *text, const char *device, bool graph, bool on_host) {
  weir_program *p = compile(text, device, graph);
  float *in = pinned(FLIGHTS * BYTES), *out = pinned(FLIGHTS * BYTES);
  void *a = on_gpu(BYTES), *b = on_gpu(BYTES);
  float host[N];
  CUstream s = stream_new();
  weir_dl_tensor x = tensor(a, DL_CUDA), y = on_host ? tensor(host, DL_CPU) : tensor(b, DL_CUDA);
  for (int k = 0; k < FLIGHTS; k++) {
    for (int i = 0; i < N; i++) in[k * N + i] = (float)(k * 100 + i);
    must(cu->cuMemcpyHtoDAsync(address(a), in + k * N, BYTES, s));
    EXPECT_INT(run_on(p, &x, &y, 0, s), WEIR_OK);
    if (on_host) memcpy(out + k * N, host, BYTES); /* then it is complete when the call returns */
    else must(cu->cuMemcpyDtoHAsync(out + k * N, address(b), BYTES, s));
  }
  must(cu->cuStreamSynchronize(s));
  for (int k = 0; k < FLIGHTS; k++)
    if (!EXPECT_INT(wrong(in + k * N, out + k * N), 0))
      fprintf(stderr, "%s on %s, flight %d\n", text, device, k);
  must(cu->cuStreamDestroy(s));
  weir_program_destroy(p);
  give(a), give(b);
  must(cu->cuMemFreeHost(in));
  must(cu->cuMemFreeHost(out));
}

/* The stream is held up until the host says so, which it does after the call. */
static void test_returns(const char *text) {
  weir_program *p = compile(text, "cuda", false);
  float *in = pinned(BYTES), *out = pinned(BYTES);
  uint64_t *gate = pinned(sizeof *gate);
  void *a = on_gpu(BYTES), *b = on_gpu(BYTES);
  CUstream s = stream_new();
  weir_dl_tensor x = tensor(a, DL_CUDA), y = tensor(b, DL_CUDA);
  EXPECT_INT(run_on(p, &x, &y, 0, s), WEIR_OK); /* loads it */
  must(cu->cuStreamSynchronize(s));
  for (int i = 0; i < N; i++) in[i] = (float)i;
  must(cu->cuStreamWaitValue64(s, address(gate), 1, CU_STREAM_WAIT_VALUE_GEQ));
  must(cu->cuMemcpyHtoDAsync(address(a), in, BYTES, s));
  for (int k = 0; k < 3; k++) EXPECT_INT(run_on(p, &x, &y, 0, s), WEIR_OK);
  must(cu->cuMemcpyDtoHAsync(out, address(b), BYTES, s));
  EXPECT_INT(cu->cuStreamQuery(s), CUDA_ERROR_NOT_READY);
  __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
  must(cu->cuStreamSynchronize(s));
  EXPECT_INT(wrong(in, out), 0);
  must(cu->cuStreamDestroy(s));
  weir_program_destroy(p);
  give(a), give(b);
  must(cu->cuMemFreeHost(in));
  must(cu->cuMemFreeHost(out));
  must(cu->cuMemFreeHost(gate));
}

/* A run without a stream, and one on another, come after those that are under way. */
static void test_mixed(void) {
  weir_program *p = compile(streamed, "cuda", false);
  float *in = pinned(BYTES), host[2][N];
  void *a = on_gpu(BYTES), *b = on_gpu(BYTES);
  CUstream s = stream_new(), t = stream_new();
  weir_dl_tensor x = tensor(a, DL_CUDA), y = tensor(b, DL_CUDA);
  weir_dl_tensor hx = tensor(host[0], DL_CPU), hy = tensor(host[1], DL_CPU);
  for (int i = 0; i < N; i++) in[i] = (float)i, host[0][i] = (float)-i;
  must(cu->cuMemcpyHtoDAsync(address(a), in, BYTES, s));
  for (int k = 0; k < 4; k++) {
    EXPECT_INT(run_on(p, &x, &y, 0, s), WEIR_OK);
    EXPECT_INT(run_on(p, &hx, &hy, 0, t), WEIR_OK);
    EXPECT_INT(wrong(host[0], host[1]), 0);
    memset(host[1], 0, sizeof host[1]);
    const weir_dl_tensor *inputs[] = {&hx}, *outputs[] = {&hy};
    weir_run_args args = {.struct_size = sizeof args,
                          .inputs = inputs,
                          .n_inputs = 1,
                          .outputs = outputs,
                          .n_outputs = 1};
    EXPECT_INT(weir_run(p, &args), WEIR_OK);
    EXPECT_INT(wrong(host[0], host[1]), 0);
  }
  must(cu->cuMemcpyDtoHAsync(host[1], address(b), BYTES, s));
  must(cu->cuStreamSynchronize(s));
  EXPECT_INT(wrong(in, host[1]), 0);
  EXPECT_INT(run_on(p, &x, &y, 0, s), WEIR_OK);
  weir_program_destroy(p); /* with a run under way */
  must(cu->cuStreamSynchronize(s));
  must(cu->cuStreamDestroy(s));
  must(cu->cuStreamDestroy(t));
  give(a), give(b);
  must(cu->cuMemFreeHost(in));
}

/* ---- graphs of the caller ---- */
static void test_capture(const char *text, bool warm, bool graph) {
  weir_program *p = compile(text, "cuda", graph);
  float *in = pinned(BYTES), *out = pinned(BYTES);
  void *a = on_gpu(BYTES), *b = on_gpu(BYTES), *c = on_gpu(BYTES);
  CUstream s = stream_new();
  CUgraph captured = NULL;
  CUgraphExec exec = NULL;
  weir_dl_tensor x = tensor(a, DL_CUDA), y = tensor(b, DL_CUDA), z = tensor(c, DL_CUDA);
  if (warm) EXPECT_INT(run_on(p, &x, &y, 0, s), WEIR_OK);
  must(cu->cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  must(cu->cuMemcpyHtoDAsync(address(a), in, BYTES, s));
  EXPECT_INT(run_on(p, &x, &y, 0, s), WEIR_OK);
  EXPECT_INT(run_on(p, &y, &z, 0, s), WEIR_OK); /* twice, one after the other */
  must(cu->cuMemcpyDtoHAsync(out, address(c), BYTES, s));
  must(cu->cuStreamEndCapture(s, &captured));
  must(cu->cuGraphInstantiateWithFlags(&exec, captured, 0));
  for (int k = 0; k < 3; k++) {
    for (int i = 0; i < N; i++) in[i] = (float)(i - 7 * k);
    must(cu->cuGraphLaunch(exec, s));
    must(cu->cuStreamSynchronize(s));
    int bad = 0;
    for (int i = 0; i < N; i++) bad += out[i] != 3 * (3 * in[i] - 1) - 1;
    EXPECT_INT(bad, 0);
    EXPECT_INT(run_on(p, &x, &y, 0, s), WEIR_OK); /* and not captured */
    must(cu->cuStreamSynchronize(s));
  }
  must(cu->cuGraphExecDestroy(exec));
  must(cu->cuGraphDestroy(captured));
  must(cu->cuStreamDestroy(s));
  weir_program_destroy(p);
  give(a), give(b), give(c);
  must(cu->cuMemFreeHost(in));
  must(cu->cuMemFreeHost(out));
}

/* A graph keeps the seeds it was captured with; runs outside of it have their own. */
static void test_seeds(bool graph) {
  static const char *const text = "fusion f { x : f32[8, 6]; y = x + uniform([8, 6]); return y }";
  enum { SEEDS = 3 };
  weir_program *p = compile(text, "cuda", graph), *cpu = compile(text, "cpu", false);
  float *in = pinned(BYTES), *out = pinned(BYTES), want[SEEDS][N];
  void *a = on_gpu(BYTES), *b[SEEDS] = {on_gpu(BYTES), on_gpu(BYTES), on_gpu(BYTES)};
  CUstream s = stream_new();
  CUgraph captured = NULL;
  CUgraphExec exec = NULL;
  for (int i = 0; i < N; i++) in[i] = (float)i;
  must(cu->cuMemcpyHtoDAsync(address(a), in, BYTES, s));
  weir_dl_tensor x = tensor(a, DL_CUDA), host = tensor(in, 1), y;
  for (seed = 0; seed < SEEDS; seed++) {
    y = tensor(want[seed], 1);
    const weir_dl_tensor *inputs = &host, *outputs = &y;
    weir_run_args args = {.struct_size = sizeof args, .inputs = &inputs, .n_inputs = 1};
    args.outputs = &outputs;
    args.n_outputs = 1;
    args.seed = seed;
    EXPECT_INT(weir_run(cpu, &args), WEIR_OK);
  }
  must(cu->cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  for (seed = 0; seed < 2; seed++) {
    y = tensor(b[seed], DL_CUDA);
    EXPECT_INT(run_on(p, &x, &y, 0, s), WEIR_OK);
  }
  must(cu->cuStreamEndCapture(s, &captured));
  must(cu->cuGraphInstantiateWithFlags(&exec, captured, 0));
  y = tensor(b[2], DL_CUDA);
  for (int k = 0; k < 4; k++) {
    if (k % 2) EXPECT_INT(run_on(p, &x, &y, 0, s), WEIR_OK);
    must(cu->cuGraphLaunch(exec, s));
    if (k % 2 == 0) EXPECT_INT(run_on(p, &x, &y, 0, s), WEIR_OK);
    for (int i = 0; i < SEEDS; i++) {
      must(cu->cuMemcpyDtoHAsync(out, address(b[i]), BYTES, s));
      must(cu->cuStreamSynchronize(s));
      EXPECT(memcmp(out, want[i], BYTES) == 0);
    }
  }
  seed = 0;
  must(cu->cuGraphExecDestroy(exec));
  must(cu->cuGraphDestroy(captured));
  must(cu->cuStreamDestroy(s));
  weir_program_destroy(p);
  weir_program_destroy(cpu);
  give(a), give(b[0]), give(b[1]), give(b[2]);
  must(cu->cuMemFreeHost(in));
  must(cu->cuMemFreeHost(out));
}

static void expect_refused(const weir_program *p, const weir_dl_tensor *x, const weir_dl_tensor *y,
                           int gpu, CUstream s, const char *message) {
  weir_stream stream = {{DL_CUDA, gpu}, s};
  weir_run_args args = {
      .struct_size = sizeof args, .inputs = &x, .n_inputs = 1, .outputs = &y, .n_outputs = 1};
  args.streams = &stream;
  args.n_streams = 1;
  EXPECT_INT(weir_run(p, &args), WEIR_BAD_USAGE);
  EXPECT_CONTAINS(weir_error(), message);
}

/* What is refused leaves the capture, and the program, as they were. */
static void test_refused(void) {
  weir_program *p = compile(one, "cuda", false), *cpu = compile(one, "cpu", false);
  void *a = on_gpu(2 * BYTES), *b = on_gpu(BYTES);
  float host[N];
  int n_gpus = 0;
  must(cu->cuDeviceGetCount(&n_gpus));
  int64_t strides[2] = {1, 8};
  CUstream s = stream_new();
  CUgraph captured = NULL;
  weir_dl_tensor x = tensor(a, DL_CUDA), y = tensor(b, DL_CUDA), h = tensor(host, DL_CPU), w = x;
  w.strides = strides;
  expect_refused(p, &x, &y, 63, s, "a stream of GPU 63 is given");
  if (n_gpus > 1) expect_refused(p, &x, &y, 1, s, "belongs to another context");
  must(cu->cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  expect_refused(p, &h, &y, 0, s, "all tensors must be on a GPU or in pinned");
  expect_refused(p, &w, &y, 0, s, "is being captured");
  expect_refused(cpu, &x, &y, 0, s, "is being captured");
  EXPECT_INT(run_on(p, &x, &y, 0, s), WEIR_OK);
  must(cu->cuStreamEndCapture(s, &captured));
  must(cu->cuGraphDestroy(captured));
  EXPECT_INT(run_on(p, &w, &y, 0, s), WEIR_OK);
  EXPECT_INT(run_on(cpu, &x, &y, 0, s), WEIR_OK);
  must(cu->cuStreamSynchronize(s));
  must(cu->cuStreamDestroy(s));
  weir_program_destroy(p);
  weir_program_destroy(cpu);
  give(a), give(b);
}

/* ---- wrong indexes ---- */
typedef struct indexed {
  weir_program *p;
  void *rows[2], *index; /* on the GPU */
  int64_t (*values)[8];  /* of each run, pinned */
  int n_runs;
  CUstream s;
} indexed;

enum { INDEXED_RUNS = 16 };

static indexed indexed_new(bool graph) {
  indexed x = {.p = compile(rows, "cuda", graph), .rows = {on_gpu(BYTES), on_gpu(BYTES)}};
  x.index = on_gpu(sizeof *x.values);
  x.values = pinned(INDEXED_RUNS * sizeof *x.values);
  must(cu->cuMemsetD8Async(address(x.rows[0]), 0, BYTES, NULL));
  must(cu->cuStreamSynchronize(NULL));
  x.s = stream_new();
  return x;
}

static void indexed_end(indexed *x) {
  must(cu->cuStreamDestroy(x->s));
  must(cu->cuMemFreeHost(x->values));
  give(x->rows[0]), give(x->rows[1]), give(x->index);
}

/* Its last index is `last`, from 0 to 7 if it is right; `at`: where the run finds the indexes. */
static weir_status run_index(indexed *x, int64_t last, void *at, int device) {
  int64_t *index = x->values[x->n_runs++ % INDEXED_RUNS], extent = 8;
  for (int i = 0; i < 8; i++) index[i] = i < 7 ? i : last;
  weir_dl_tensor a = tensor(x->rows[0], DL_CUDA), y = tensor(x->rows[1], DL_CUDA);
  weir_dl_tensor i = tensor(at, device);
  i.ndim = 1;
  i.shape = &extent;
  i.dtype = weir_dtype_to_dl(WEIR_I64);
  if (device == DL_CPU) memcpy(at, index, sizeof *x->values);
  else must(cu->cuMemcpyHtoDAsync(address(at), index, sizeof *x->values, x->s));
  const weir_dl_tensor *inputs[] = {&a, &i}, *outputs[] = {&y};
  weir_stream stream = {{DL_CUDA, 0}, x->s};
  weir_run_args args = {.struct_size = sizeof args,
                        .inputs = inputs,
                        .n_inputs = 2,
                        .outputs = outputs,
                        .n_outputs = 1,
                        .streams = &stream,
                        .n_streams = 1};
  return weir_run(x->p, &args);
}

/* Where the call waits for the end of the run anyhow, it tells. */
static void test_indexes(void) {
  indexed x = indexed_new(false);
  int64_t host[8];
  EXPECT(run_index(&x, 8, host, DL_CPU) != WEIR_OK);
  EXPECT_CONTAINS(weir_error(), "index 8 is outside axis 0");
  EXPECT(strstr(weir_error(), "earlier") == NULL);
  EXPECT_INT(run_index(&x, 7, host, DL_CPU), WEIR_OK);
  must(cu->cuStreamSynchronize(x.s));
  weir_program_destroy(x.p);
  indexed_end(&x);
}

static char logged[512];
static void take_log(void *unused, const char *text) {
  (void)unused;
  (void)snprintf(logged, sizeof logged, "%s", text);
}

/* Otherwise it does not wait, although the stream is held until the call has returned; the next one
 * tells, once. What no call has told is in the log. */
static void test_late_indexes(bool graph) {
  indexed x = indexed_new(graph);
  uint64_t *go = pinned(sizeof *go);
  EXPECT_INT(run_index(&x, 7, x.index, DL_CUDA), WEIR_OK);
  must(cu->cuStreamSynchronize(x.s));
  must(cu->cuStreamWaitValue64(x.s, address(go), 1, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_INT(run_index(&x, 9, x.index, DL_CUDA), WEIR_OK);
  EXPECT_INT(run_index(&x, 7, x.index, DL_CUDA), WEIR_OK); /* nothing is known yet */
  __atomic_store_n(go, 1, __ATOMIC_RELEASE);
  must(cu->cuStreamSynchronize(x.s));
  EXPECT(run_index(&x, 7, x.index, DL_CUDA) != WEIR_OK);
  EXPECT_CONTAINS(weir_error(),
                  "index 9 is outside axis 0, which has 8 elements (found by an earlier run)");
  for (int i = 0; i < 2; i++) {
    EXPECT_INT(run_index(&x, 7, x.index, DL_CUDA), WEIR_OK);
    must(cu->cuStreamSynchronize(x.s));
  }
  EXPECT_INT(run_index(&x, 11, x.index, DL_CUDA), WEIR_OK);
  EXPECT(weir_program_settle(x.p) != WEIR_OK);
  EXPECT_CONTAINS(weir_error(), "index 11 is outside axis 0");
  EXPECT_INT(weir_program_settle(x.p), WEIR_OK);
  EXPECT_INT(run_index(&x, -1, x.index, DL_CUDA), WEIR_OK);
  weir_log_to(take_log, NULL, NULL);
  weir_program_destroy(x.p);
  weir_log_to(NULL, NULL, NULL);
  EXPECT_CONTAINS(logged, "index -1 is outside axis 0");
  must(cu->cuMemFreeHost(go));
  indexed_end(&x);
}

/* A graph of the caller's finds them whenever it is launched; a call of the program tells. */
static void test_captured_indexes(void) {
  indexed x = indexed_new(false);
  CUgraph captured = NULL;
  CUgraphExec exec = NULL;
  void *in_graph = on_gpu(sizeof *x.values);
  EXPECT_INT(run_index(&x, 7, x.index, DL_CUDA), WEIR_OK);
  must(cu->cuStreamSynchronize(x.s));
  must(cu->cuStreamBeginCapture(x.s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_INT(run_index(&x, 12, in_graph, DL_CUDA), WEIR_OK);
  must(cu->cuStreamEndCapture(x.s, &captured));
  must(cu->cuGraphInstantiateWithFlags(&exec, captured, 0));
  EXPECT_INT(run_index(&x, 7, x.index, DL_CUDA), WEIR_OK);
  must(cu->cuGraphLaunch(exec, x.s));
  must(cu->cuStreamSynchronize(x.s));
  EXPECT(run_index(&x, 7, x.index, DL_CUDA) != WEIR_OK);
  EXPECT_CONTAINS(weir_error(), "index 12 is outside axis 0");
  EXPECT_INT(run_index(&x, 7, x.index, DL_CUDA), WEIR_OK);
  must(cu->cuStreamSynchronize(x.s));
  must(cu->cuGraphExecDestroy(exec));
  must(cu->cuGraphDestroy(captured));
  weir_program_destroy(x.p);
  give(in_graph);
  indexed_end(&x);
}

/* ---- runs that nobody waits for at once ---- */
static weir_pending *start_on(const weir_program *p, const weir_dl_tensor *x,
                              const weir_dl_tensor *y, CUstream s) {
  weir_stream stream = {{DL_CUDA, 0}, s};
  weir_pending *r = NULL;
  weir_run_args args = {
      .struct_size = sizeof args, .inputs = &x, .n_inputs = 1, .outputs = &y, .n_outputs = 1};
  args.streams = &stream;
  args.n_streams = s ? 1 : 0;
  if (!EXPECT_INT(weir_run_async(p, &args, NULL, NULL, &r), WEIR_OK))
    fprintf(stderr, "%s\n", weir_error());
  return r;
}

/* Each run comes after what the stream held at the call, which here waits for something that the
 * caller does after all calls; what the stream gets next does not wait for the run. */
static void test_async(const char *text, bool on_host) {
  prepares = !on_host;
  weir_program *p = compile(text, "cuda", false);
  prepares = false;
  float *in = pinned(FLIGHTS * BYTES), *out = pinned(FLIGHTS * BYTES), host[FLIGHTS * N];
  uint64_t *gate = pinned(sizeof *gate);
  char *a = on_gpu(FLIGHTS * BYTES), *b = on_gpu(FLIGHTS * BYTES);
  weir_pending *runs[FLIGHTS];
  CUstream s = stream_new();
  must(cu->cuStreamWaitValue64(s, address(gate), 1, CU_STREAM_WAIT_VALUE_GEQ));
  for (int k = 0; k < FLIGHTS; k++) {
    for (int i = 0; i < N; i++) in[k * N + i] = (float)(k * 100 + i);
    must(cu->cuMemcpyHtoDAsync(address(a + (size_t)k * BYTES), in + k * N, BYTES, s));
    weir_dl_tensor x = tensor(a + (size_t)k * BYTES, DL_CUDA);
    weir_dl_tensor y = tensor(b + (size_t)k * BYTES, DL_CUDA);
    if (on_host) y = tensor(host + (size_t)k * N, DL_CPU);
    runs[k] = start_on(p, &x, &y, s);
  }
  EXPECT(!weir_pending_poll(runs[0], 1000000));
  weir_pending_cancel(runs[FLIGHTS - 1]);
  __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
  for (int k = 0; k < FLIGHTS; k++) {
    weir_status st = weir_pending_wait(runs[k]);
    EXPECT(st == WEIR_OK || (st == WEIR_CANCELLED && k == FLIGHTS - 1));
    if (on_host) memcpy(out + k * N, host + (size_t)k * N, BYTES);
    else must(cu->cuMemcpyDtoHAsync(out + k * N, address(b + (size_t)k * BYTES), BYTES, s));
    must(cu->cuStreamSynchronize(s));
    if (st == WEIR_OK) EXPECT_INT(wrong(in + k * N, out + k * N), 0);
    weir_pending_destroy(runs[k]);
  }
  weir_dl_tensor x = tensor(a, DL_CUDA), y = tensor(b, DL_CUDA);
  weir_pending *last = start_on(p, &x, &y, NULL); /* without a stream: inputs are ready */
  EXPECT_INT(weir_pending_wait(last), WEIR_OK);
  weir_pending_destroy(last);
  must(cu->cuStreamDestroy(s));
  weir_program_destroy(p);
  give(a), give(b);
  must(cu->cuMemFreeHost(in));
  must(cu->cuMemFreeHost(out));
  must(cu->cuMemFreeHost(gate));
}

/* A run that is issued later cannot be a part of a graph that is captured now. */
static void test_async_refused(void) {
  weir_program *p = compile(one, "cuda", false);
  void *a = on_gpu(BYTES), *b = on_gpu(BYTES);
  weir_dl_tensor x = tensor(a, DL_CUDA), y = tensor(b, DL_CUDA);
  const weir_dl_tensor *in = &x, *out = &y;
  CUstream s = stream_new();
  CUgraph graph = NULL;
  weir_pending *r = NULL;
  weir_stream stream = {{DL_CUDA, 0}, s};
  weir_run_args args = {
      .struct_size = sizeof args, .inputs = &in, .n_inputs = 1, .outputs = &out, .n_outputs = 1};
  args.streams = &stream;
  args.n_streams = 1;
  must(cu->cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_INT(weir_run_async(p, &args, NULL, NULL, &r), WEIR_BAD_USAGE);
  EXPECT_CONTAINS(weir_error(), "being captured");
  must(cu->cuStreamEndCapture(s, &graph));
  if (graph) must(cu->cuGraphDestroy(graph));
  stream.device.device_id = 99;
  EXPECT_INT(weir_run_async(p, &args, NULL, NULL, &r), WEIR_BAD_USAGE);
  EXPECT_CONTAINS(weir_error(), "no GPU 99");
  EXPECT(r == NULL);
  must(cu->cuStreamDestroy(s));
  weir_program_destroy(p);
  give(a), give(b);
}

/* ---- memory from the caller ---- */
typedef struct counted {
  int made, live;
  size_t largest;
  bool fails, is_odd;
} counted;

static void *counted_alloc(void *context_, int32_t gpu, size_t bytes) {
  counted *c = context_;
  if (c->fails || gpu != 0) return NULL;
  c->made++;
  c->live++;
  if (bytes > c->largest) c->largest = bytes;
  char *p = on_gpu(bytes + 512);
  return c->is_odd ? p + 4 : p;
}

static void counted_free(void *context_, int32_t gpu, void *block) {
  counted *c = context_;
  EXPECT_INT(gpu, 0);
  c->live--;
  give(c->is_odd ? (char *)block - 4 : block);
}

/* Of two ranks on one GPU. */
static void test_allocator(void) {
  int gpus = 0;
  must(cu->cuDeviceGetCount(&gpus));
  if (gpus > 1) return;
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_options *o = NULL;
  counted c = {0};
  weir_device_allocator a = {
      .struct_size = sizeof a, .alloc = counted_alloc, .free = counted_free, .context = &c};
  void *x = on_gpu(BYTES), *y = on_gpu(BYTES);
  weir_dl_tensor in = tensor(x, DL_CUDA), out = tensor(y, DL_CUDA);
  float values[N], results[N];
  for (int i = 0; i < N; i++) values[i] = (float)i;
  must(cu->cuMemcpyHtoDAsync(address(x), values, BYTES, NULL));
  must(cu->cuCtxSynchronize());
  EXPECT_INT(weir_module_parse("t", two, strlen(two), NULL, &m), WEIR_OK);
  EXPECT_INT(weir_module_find(m, NULL, &f), WEIR_OK);
  EXPECT_INT(weir_options_create(&o), WEIR_OK);
  EXPECT_INT(weir_options_set(o, "device", "cuda"), WEIR_OK);
  EXPECT_INT(weir_options_set_device_allocator(o, &a), WEIR_OK);
  for (int how = 0; how < 3; how++) { /* as it should be; none left; not aligned */
    weir_program *p = NULL;
    c = (counted){.fails = how == 1, .is_odd = how == 2};
    EXPECT_INT(weir_compile(f, o, NULL, &p), WEIR_OK);
    weir_status st = how == 0 ? run_on(p, &in, &out, 0, NULL) : WEIR_OK;
    if (how > 0) {
      const weir_dl_tensor *inputs = &in, *outputs = &out;
      weir_run_args args = {.struct_size = sizeof args, .inputs = &inputs, .n_inputs = 1};
      args.outputs = &outputs;
      args.n_outputs = 1;
      st = weir_run(p, &args);
    }
    EXPECT_INT(st, how == 0 ? WEIR_OK : how == 1 ? WEIR_OUT_OF_MEMORY : WEIR_BAD_USAGE);
    if (how == 0) EXPECT_INT(c.live, 2); /* a block for each rank */
    if (how == 2) EXPECT_CONTAINS(weir_error(), "aligned");
    must(cu->cuCtxSynchronize());
    weir_program_destroy(p);
    EXPECT_INT(c.live, 0);
  }
  must(cu->cuMemcpyDtoHAsync(results, address(y), BYTES, NULL));
  must(cu->cuCtxSynchronize());
  EXPECT_INT(wrong(values, results), 0);
  a.free = NULL;
  EXPECT_INT(weir_options_set_device_allocator(o, &a), WEIR_BAD_USAGE);
  weir_options_destroy(o);
  weir_module_destroy(m);
  give(x), give(y);
}

/* ---- plans of one program ---- */
static const char *const any = "fusion f { x : f32[n, 6]; t = cumsum(x, dim=1); u = cumsum(t, "
                               "dim=0); y = cumsum(u, dim=1); return y }";

static void sum_up(float *x, int n, bool along_rows) {
  for (int i = 0; i < n; i++)
    for (int j = 0; j < 6; j++) {
      if (along_rows && j > 0) x[i * 6 + j] += x[i * 6 + j - 1];
      if (!along_rows && i > 0) x[i * 6 + j] += x[(i - 1) * 6 + j];
    }
}

/* Runs of several shapes, on streams that do not wait for each other: one block serves all, so a
 * run waits for the one before it, and the arrays of the caller take none of it. */
static void test_one_pool(bool graph) {
  enum { SHAPES = 4, MOST = 64, ROUNDS = 12 };
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_program *p = NULL;
  weir_options *o = NULL;
  counted c = {0};
  weir_device_allocator a = {
      .struct_size = sizeof a, .alloc = counted_alloc, .free = counted_free, .context = &c};
  CUstream streams[SHAPES];
  void *x[SHAPES], *y[SHAPES];
  static float values[SHAPES][MOST * 6], expected[SHAPES][MOST * 6];
  static float results[ROUNDS][SHAPES][MOST * 6];
  EXPECT_INT(weir_module_parse("t", any, strlen(any), NULL, &m), WEIR_OK);
  EXPECT_INT(weir_module_find(m, NULL, &f), WEIR_OK);
  EXPECT_INT(weir_options_create(&o), WEIR_OK);
  EXPECT_INT(weir_options_set(o, "device", "cuda"), WEIR_OK);
  EXPECT_INT(weir_options_set(o, "graph", graph ? "true" : "false"), WEIR_OK);
  EXPECT_INT(weir_options_set_device_allocator(o, &a), WEIR_OK);
  EXPECT_INT(weir_compile(f, o, NULL, &p), WEIR_OK);
  for (int k = 0; k < SHAPES; k++) {
    int n = 8 + 16 * k;
    streams[k] = stream_new();
    x[k] = on_gpu((size_t)n * 24), y[k] = on_gpu((size_t)n * 24);
    for (int i = 0; i < n * 6; i++) expected[k][i] = values[k][i] = (float)(i % (5 + k));
    sum_up(expected[k], n, true), sum_up(expected[k], n, false), sum_up(expected[k], n, true);
    must(cu->cuMemcpyHtoDAsync(address(x[k]), values[k], (size_t)n * 24, streams[k]));
  }
  for (int r = 0; r < ROUNDS; r++)
    for (int k = 0; k < SHAPES; k++) {
      int64_t extents[2] = {8 + 16 * k, 6};
      weir_dl_tensor in = tensor(x[k], DL_CUDA), out = tensor(y[k], DL_CUDA);
      in.shape = out.shape = extents;
      EXPECT_INT(run_on(p, &in, &out, 0, streams[k]), WEIR_OK);
      must(
          cu->cuMemcpyDtoHAsync(results[r][k], address(y[k]), (size_t)extents[0] * 24, streams[k]));
    }
  for (int k = 0; k < SHAPES; k++) {
    size_t bytes = (size_t)(8 + 16 * k) * 24;
    must(cu->cuStreamSynchronize(streams[k]));
    for (int r = 0; r < ROUNDS; r++) EXPECT(memcmp(results[r][k], expected[k], bytes) == 0);
    must(cu->cuStreamDestroy(streams[k]));
    give(x[k]), give(y[k]);
  }
  EXPECT_INT(c.live, 1);
  EXPECT(c.largest < (size_t)3 * (8 + 16 * (SHAPES - 1)) * 24); /* not the arrays as well */
  weir_program_destroy(p);
  EXPECT_INT(c.live, 0);
  weir_options_destroy(o);
  weir_module_destroy(m);
}

int main(void) {
  static const char *const texts[] = {one, streamed, two};
  if (cuda_vendor_load(&cu) != STATUS_OK) {
    printf("skipped: %s\n", status_message());
    return EXPECT(true) ? test_finish() : 1;
  }
  must(cu->cuDevicePrimaryCtxRetain(&context, 0));
  must(cu->cuCtxSetCurrent(context));
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    for (int graph = 0; graph < 2; graph++) {
      test_flights(texts[i], "cuda", graph, false);
      test_flights(texts[i], "cuda", graph, true);
      test_capture(texts[i], graph, graph);
    }
    test_flights(texts[i], "cpu", false, false);
    test_returns(texts[i]);
    test_async(texts[i], false);
    test_async(texts[i], true);
    test_capture(texts[i], true, false);
  }
  test_mixed();
  test_seeds(false);
  test_seeds(true);
  test_refused();
  test_indexes();
  test_late_indexes(false);
  test_late_indexes(true);
  test_captured_indexes();
  test_async_refused();
  test_allocator();
  for (int graph = 0; graph < 2; graph++) test_one_pool(graph);
  must(cu->cuDevicePrimaryCtxRelease(0));
  return test_finish();
}
