/* A program outside the tree, as C and as C++: AG+matmul on memory of a GPU and on a stream of its
 * own, as calls and as part of a CUDA graph that it captures. Two devices, each with its part of
 * `a`, both on GPU 0. */
#include <cuda.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

static const char text[] = "fusion ag_matmul {\n"
                           "  mesh d = [2]\n"
                           "  a : f32[2, 2, 4, 8]\n"
                           "  b : f32[8, 6]\n"
                           "  c = matmul(a, b)\n"
                           "  return c\n"
                           "  schedule { a, b, c on d; a[1] = mesh.x; c[0] = stream }\n"
                           "}\n";

enum { DEVICES = 2, A = 2 * 1 * 4 * 8, B = 8 * 6, C = 2 * 2 * 4 * 6, ROUNDS = 3 };

/* What a device has: its part of a, all of b and of c. */
typedef struct part {
  CUdeviceptr a, b, c;
  float host_a[A], host_c[C];
} part;

static part *parts; /* pinned, as a capture wants it */
static float *host_b;

static int failed(const char *what, const char *why) {
  fprintf(stderr, "%s: %s\n", what, why);
  return 1;
}

static int must(CUresult r, const char *what) {
  const char *why = "";
  if (r == CUDA_SUCCESS) return 0;
  (void)cuGetErrorString(r, &why);
  return failed(what, why);
}

static weir_dl_tensor tensor(CUdeviceptr data, int64_t *shape, int rank) {
  weir_dl_tensor t;
  memset(&t, 0, sizeof t);
  t.data = (void *)(size_t)data;
  t.device.device_type = 2;
  t.ndim = rank;
  t.dtype = weir_dtype_to_dl(WEIR_F32);
  t.shape = shape;
  return t;
}

/* Issued on the stream, and not waited for. */
static int run(const weir_program *p, const weir_shapes *shapes, CUstream s) {
  int64_t a_shape[] = {2, 1, 4, 8}, b_shape[] = {8, 6}, c_shape[] = {2, 2, 4, 6};
  weir_dl_tensor a[DEVICES], b[DEVICES], c[DEVICES];
  const weir_dl_tensor *as[DEVICES], *bs[DEVICES], *cs[DEVICES], *none[2] = {NULL, NULL};
  for (int d = 0; d < DEVICES; d++) {
    a[d] = tensor(parts[d].a, a_shape, 4);
    b[d] = tensor(parts[d].b, b_shape, 2);
    c[d] = tensor(parts[d].c, c_shape, 4);
    as[d] = &a[d], bs[d] = &b[d], cs[d] = &c[d];
  }
  const weir_dl_tensor *const *inputs[] = {as, bs}, *const * outputs[] = {cs};
  weir_stream stream;
  memset(&stream, 0, sizeof stream);
  stream.device.device_type = 2;
  stream.handle = s;
  weir_run_args args;
  memset(&args, 0, sizeof args);
  args.struct_size = sizeof args;
  args.inputs = none;
  args.n_inputs = 2;
  args.outputs = none;
  args.n_outputs = 1;
  args.input_shards = inputs;
  args.output_shards = outputs;
  args.shapes = shapes;
  args.streams = &stream;
  args.n_streams = 1;
  return weir_run(p, &args) == WEIR_OK ? 0 : failed("weir_run", weir_error());
}

/* Values to the GPU, the program, results back: all on the stream. */
static int step(const weir_program *p, const weir_shapes *shapes, CUstream s) {
  for (int d = 0; d < DEVICES; d++) {
    if (must(cuMemcpyHtoDAsync(parts[d].a, parts[d].host_a, sizeof parts[d].host_a, s), "copy"))
      return 1;
    if (must(cuMemcpyHtoDAsync(parts[d].b, host_b, B * sizeof *host_b, s), "copy")) return 1;
  }
  if (run(p, shapes, s)) return 1;
  for (int d = 0; d < DEVICES; d++)
    if (must(cuMemcpyDtoHAsync(parts[d].host_c, parts[d].c, sizeof parts[d].host_c, s), "copy"))
      return 1;
  return 0;
}

static void set_values(int round) {
  for (int d = 0; d < DEVICES; d++)
    for (int i = 0; i < A; i++) parts[d].host_a[i] = (float)((i + 3 * d + round) % 7) - 3;
  for (int i = 0; i < B; i++) host_b[i] = (float)((i + round) % 5) - 2;
}

/* c[i, j, k, n] is the sum of a[i, j, k, :] b[:, n], and device j has a[:, j]. */
static int count_wrong(void) {
  int wrong = 0;
  for (int i = 0; i < C; i++) {
    int n = i % 6, k = i / 6 % 4, j = i / 24 % 2, first = i / 48;
    float sum = 0;
    for (int l = 0; l < 8; l++) sum += parts[j].host_a[(first * 4 + k) * 8 + l] * host_b[l * 6 + n];
    for (int d = 0; d < DEVICES; d++) wrong += parts[d].host_c[i] != sum;
  }
  return wrong;
}

static int look(const char *how, int round, CUstream s) {
  if (must(cuStreamSynchronize(s), "cuStreamSynchronize")) return 1;
  int wrong = count_wrong();
  if (wrong || round == ROUNDS - 1) printf("%s: %d of %d values are wrong\n", how, wrong, 2 * C);
  for (int d = 0; d < DEVICES; d++) memset(parts[d].host_c, 0, sizeof parts[d].host_c);
  return wrong != 0;
}

static int run_captured(const weir_program *p, const weir_shapes *shapes, CUstream s) {
  CUgraph graph = NULL;
  CUgraphExec exec = NULL;
  if (must(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture"))
    return 1;
  if (step(p, shapes, s)) return 1;
  if (must(cuStreamEndCapture(s, &graph), "cuStreamEndCapture")) return 1;
  if (must(cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiate")) return 1;
  for (int round = 0; round < ROUNDS; round++) {
    set_values(round + 10);
    if (must(cuGraphLaunch(exec, s), "cuGraphLaunch") || look("captured", round, s)) return 1;
  }
  (void)cuGraphExecDestroy(exec);
  (void)cuGraphDestroy(graph);
  return 0;
}

static int run_all(const weir_program *p, const weir_shapes *shapes, CUstream s) {
  for (int round = 0; round < ROUNDS; round++) {
    set_values(round);
    if (step(p, shapes, s) || look("called", round, s)) return 1;
  }
  return run_captured(p, shapes, s);
}

/* ---- the program, and the GPU ---- */
static int compile(weir_program **p, weir_shapes **shapes, weir_module **m) {
  weir_fusion *f = NULL;
  weir_options *o = NULL;
  bool ok = weir_module_parse("ag_matmul", text, strlen(text), NULL, m) == WEIR_OK &&
            weir_module_find(*m, NULL, &f) == WEIR_OK && weir_options_create(&o) == WEIR_OK &&
            weir_options_set(o, "device", "cuda") == WEIR_OK &&
            weir_compile(f, o, NULL, p) == WEIR_OK && weir_shapes_create(f, shapes) == WEIR_OK &&
            weir_shapes_complete(*shapes) == WEIR_OK;
  weir_options_destroy(o);
  return ok ? 0 : failed("compiling", weir_error());
}

static int open_gpu(CUcontext *context, CUstream *s) {
  void *pinned = NULL, *more = NULL;
  CUdevice gpu;
  if (must(cuInit(0), "cuInit") || must(cuDeviceGet(&gpu, 0), "cuDeviceGet")) return 1;
  if (must(cuDevicePrimaryCtxRetain(context, gpu), "cuDevicePrimaryCtxRetain")) return 1;
  if (must(cuCtxSetCurrent(*context), "cuCtxSetCurrent")) return 1;
  if (must(cuMemHostAlloc(&pinned, DEVICES * sizeof *parts, 0), "cuMemHostAlloc")) return 1;
  if (must(cuMemHostAlloc(&more, B * sizeof *host_b, 0), "cuMemHostAlloc")) return 1;
  parts = (part *)pinned;
  host_b = (float *)more;
  for (int d = 0; d < DEVICES; d++)
    if (must(cuMemAlloc(&parts[d].a, sizeof parts[d].host_a), "cuMemAlloc") ||
        must(cuMemAlloc(&parts[d].b, B * sizeof *host_b), "cuMemAlloc") ||
        must(cuMemAlloc(&parts[d].c, sizeof parts[d].host_c), "cuMemAlloc"))
      return 1;
  return must(cuStreamCreateWithPriority(s, CU_STREAM_NON_BLOCKING, 0), "cuStreamCreate");
}

int main(void) {
  weir_module *m = NULL;
  weir_program *p = NULL;
  weir_shapes *shapes = NULL;
  CUcontext context = NULL;
  CUstream s = NULL;
  int wrong = open_gpu(&context, &s) || compile(&p, &shapes, &m) || run_all(p, shapes, s);
  weir_shapes_destroy(shapes);
  weir_program_destroy(p);
  weir_module_destroy(m);
  return wrong;
}
