/* A block of a model through the public interface, with tensors in device memory and on a stream of the
 * caller, beside the same block under torch.compile.
 *
 *   block FILE [SCRIPT]
 *
 * FILE: bench/gpu/block.weir; SCRIPT: bench/gpu/block.py. Times are medians of runs that follow one another,
 * in us. */
#include "gpu/kit.h"
#include "weir/weir.h"

enum { RUNS = 10, REPEATS = 15, MOST_TENSORS = 16, DL_CUDA = 2 };

typedef struct size {
  int64_t tokens, width, keys, inner;
  double peer_us, quick_us; /* torch.compile, and with reduced overhead; 0: not measured */
} size;

static size sizes[] = {
    {8192, 4096, 1024, 14336, 0, 0}, {512, 2048, 512, 5632, 0, 0}, {16, 1024, 256, 2816, 0, 0}};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static void must_weir(weir_status st) {
  if (st == WEIR_OK) return;
  fprintf(stderr, "%s\n", weir_error());
  exit(1);
}

/* ---- a program and its tensors ---- */
typedef struct subject {
  weir_module *module;
  weir_fusion *fusion;
  weir_program *program;
  weir_dl_tensor tensors[MOST_TENSORS];
  const weir_dl_tensor *inputs[MOST_TENSORS], *outputs[1];
  int64_t shapes[MOST_TENSORS][4];
  weir_run_args args;
} subject;

static void add_tensor(subject *s, size_t i, const weir_shapes *shapes, weir_tensor t) {
  size_t rank = 4, bytes = 2;
  must_weir(weir_shapes_of(shapes, t, s->shapes[i], &rank));
  for (size_t d = 0; d < rank; d++) bytes *= (size_t)s->shapes[i][d];
  CUdeviceptr at = device_memory(bytes);
  fill_bf16(at, bytes);
  s->tensors[i] = (weir_dl_tensor){.data = (void *)(uintptr_t)at,
                                   .device = {DL_CUDA, 0},
                                   .ndim = (int32_t)rank,
                                   .dtype = weir_dtype_to_dl(WEIR_BF16),
                                   .shape = s->shapes[i]};
}

static void set_extent(weir_shapes *shapes, const char *name, int64_t value) {
  char text[64];
  (void)snprintf(text, sizeof text, "%s=%lld", name, (long long)value);
  must_weir(weir_shapes_define(shapes, text));
}

static void open_subject(subject *s, const char *file, const size *z, bool graph) {
  weir_options *o = NULL;
  weir_shapes *shapes = NULL;
  weir_tensor t;
  *s = (subject){0};
  must_weir(weir_module_load(file, NULL, &s->module));
  must_weir(weir_module_find(s->module, NULL, &s->fusion));
  must_weir(weir_options_create(&o));
  must_weir(weir_options_set(o, "device", "cuda"));
  if (graph) must_weir(weir_options_set(o, "graph", "true"));
  must_weir(weir_compile(s->fusion, o, NULL, &s->program));
  must_weir(weir_shapes_create(s->fusion, &shapes));
  set_extent(shapes, "s", z->tokens);
  set_extent(shapes, "e", z->width);
  set_extent(shapes, "k", z->keys);
  set_extent(shapes, "f", z->inner);
  must_weir(weir_shapes_complete(shapes));
  size_t n = weir_fusion_input_count(s->fusion);
  for (size_t i = 0; i < n; i++) {
    must_weir(weir_fusion_input_at(s->fusion, i, &t));
    add_tensor(s, i, shapes, t);
    s->inputs[i] = &s->tensors[i];
  }
  must_weir(weir_fusion_output_at(s->fusion, 0, &t));
  add_tensor(s, n, shapes, t);
  s->outputs[0] = &s->tensors[n];
  s->args = (weir_run_args){.struct_size = sizeof s->args,
                            .inputs = s->inputs,
                            .n_inputs = n,
                            .outputs = s->outputs,
                            .n_outputs = 1};
  weir_shapes_destroy(shapes);
  weir_options_destroy(o);
}

static void close_subject(subject *s) {
  for (size_t i = 0; i <= s->args.n_inputs; i++)
    (void)cu->cuMemFree((CUdeviceptr)(uintptr_t)s->tensors[i].data);
  weir_program_destroy(s->program);
  weir_module_destroy(s->module);
}

static double measure(subject *s) {
  double times[BENCH_MOST];
  CUstream stream;
  CUevent begin, end;
  ok(cu->cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
  ok(cu->cuEventCreate(&begin, CU_EVENT_DEFAULT));
  ok(cu->cuEventCreate(&end, CU_EVENT_DEFAULT));
  weir_stream on = {.device = {DL_CUDA, 0}, .handle = stream};
  s->args.streams = &on;
  s->args.n_streams = 1;
  for (int r = -3; r < REPEATS; r++) {
    float ms;
    ok(cu->cuEventRecord(begin, stream));
    for (int i = 0; i < RUNS; i++) must_weir(weir_run(s->program, &s->args));
    ok(cu->cuEventRecord(end, stream));
    ok(cu->cuEventSynchronize(end));
    ok(cu->cuEventElapsedTime(&ms, begin, end));
    if (r >= 0) times[r] = (double)ms * 1e3 / RUNS;
  }
  (void)cu->cuStreamDestroy(stream);
  return median(times, REPEATS);
}

/* ---- the peer ---- */
static void read_peer(const char *script) {
  char command[512], line[256];
  int n = snprintf(command, sizeof command, "python3 '%s'", script);
  for (int i = 0; i < N_SIZES; i++)
    n += snprintf(command + n, sizeof command - (size_t)n, " %lldx%lldx%lldx%lld",
                  (long long)sizes[i].tokens, (long long)sizes[i].width, (long long)sizes[i].keys,
                  (long long)sizes[i].inner);
  FILE *f = popen(command, "r");
  while (f && fgets(line, sizeof line, f)) {
    long long tokens, width;
    double us, quick;
    if (sscanf(line, "%lld %lld %lf %lf", &tokens, &width, &us, &quick) != 4) continue;
    for (int i = 0; i < N_SIZES; i++)
      if (sizes[i].tokens == tokens && sizes[i].width == width)
        sizes[i].peer_us = us, sizes[i].quick_us = quick;
  }
  if (f) (void)pclose(f);
}

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  rt_device *device = bench_device(&(rt_device_options){0});
  if (argc > 2) read_peer(argv[2]);
  for (int i = 0; i < N_SIZES; i++) {
    double us[2];
    for (int graph = 0; graph < 2; graph++) {
      subject s;
      open_subject(&s, argv[1], &sizes[i], graph);
      us[graph] = measure(&s);
      close_subject(&s);
    }
    printf("llama %5lld x %4lld  %9.1f us, as a graph %9.1f us", (long long)sizes[i].tokens,
           (long long)sizes[i].width, us[0], us[1]);
    if (sizes[i].peer_us > 0)
      printf("  torch.compile %9.1f us, %.2f of it; reduced overhead %9.1f us, graph %.2f of it",
             sizes[i].peer_us, us[0] / sizes[i].peer_us, sizes[i].quick_us,
             us[1] / sizes[i].quick_us);
    printf("\n");
    (void)fflush(stdout);
  }
  device->ops->close(device);
  return 0;
}
