/* Blocks of models through the public interface, with tensors in device memory and on a stream of
 * the caller, beside the same blocks under torch.compile.
 *
 *   block FILE [SCRIPT [BLOCK]]
 *
 * FILE: bench/gpu/block.weir; SCRIPT: bench/gpu/block.py; BLOCK: only that one. Times are medians
 * of runs that follow one another, in us. Memory is what the program takes, with inputs and
 * results, beside the most that PyTorch's allocator gave out for the same. In the end one program
 * runs with several lengths: its plans share what the longest takes. */
#include "gpu/kit.h"
#include "weir/weir.h"

enum { RUNS = 10, REPEATS = 15, MOST_TENSORS = 48, DL_CUDA = 2 };

typedef struct size {
  const char *block;
  int64_t tokens, width, keys, inner;
  double peer_us, quick_us; /* torch.compile, and with reduced overhead; 0: not measured */
  double peer_bytes;
} size;

static size sizes[] = {
    {"llama", 8192, 4096, 1024, 14336, 0, 0, 0},   {"llama", 512, 2048, 512, 5632, 0, 0, 0},
    {"llama", 16, 1024, 256, 2816, 0, 0, 0},       {"gpt", 8192, 4096, 0, 16384, 0, 0, 0},
    {"gpt", 1024, 1024, 0, 4096, 0, 0, 0},         {"gpt_training", 8192, 4096, 0, 16384, 0, 0, 0},
    {"gpt_training", 1024, 1024, 0, 4096, 0, 0, 0}};
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
  const weir_dl_tensor *inputs[MOST_TENSORS], *outputs[MOST_TENSORS];
  int64_t shapes[MOST_TENSORS][4];
  weir_run_args args;
  size_t outside_bytes;          /* of inputs and outputs */
  size_t plan_bytes, most_bytes; /* what the program has taken, now and at most */
} subject;

/* ---- the program's memory ---- */
enum { MOST_BLOCKS = 64 };
static struct {
  void *at;
  size_t bytes;
} blocks[MOST_BLOCKS];

static void *take_block(void *context, int32_t gpu, size_t bytes) {
  subject *s = context;
  CUdeviceptr at = 0;
  int i = 0;
  (void)gpu;
  while (i < MOST_BLOCKS && blocks[i].at) i++;
  if (i == MOST_BLOCKS || cu->cuMemAlloc(&at, bytes) != CUDA_SUCCESS) return NULL;
  blocks[i].at = (void *)(uintptr_t)at;
  blocks[i].bytes = bytes;
  s->plan_bytes += bytes;
  if (s->plan_bytes > s->most_bytes) s->most_bytes = s->plan_bytes;
  return blocks[i].at;
}

static void give_block(void *context, int32_t gpu, void *block) {
  subject *s = context;
  (void)gpu;
  for (int i = 0; i < MOST_BLOCKS; i++) {
    if (blocks[i].at != block) continue;
    s->plan_bytes -= blocks[i].bytes;
    blocks[i].at = NULL;
  }
  (void)cu->cuMemFree((CUdeviceptr)(uintptr_t)block);
}

static void add_tensor(subject *s, size_t i, const weir_shapes *shapes, weir_tensor t) {
  size_t rank = 4, bytes = 2;
  must_weir(weir_shapes_of(shapes, t, s->shapes[i], &rank));
  for (size_t d = 0; d < rank; d++) bytes *= (size_t)s->shapes[i][d];
  CUdeviceptr at = device_memory(bytes);
  fill_bf16(at, bytes);
  s->outside_bytes += bytes;
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

static void open_shapes(const subject *s, const size *z, weir_shapes **shapes) {
  must_weir(weir_shapes_create(s->fusion, shapes));
  set_extent(*shapes, "s", z->tokens);
  set_extent(*shapes, "e", z->width);
  if (z->keys) set_extent(*shapes, "k", z->keys);
  set_extent(*shapes, "f", z->inner);
  must_weir(weir_shapes_complete(*shapes));
}

static void open_tensors(subject *s, const weir_shapes *shapes) {
  weir_tensor t;
  size_t n = weir_fusion_input_count(s->fusion), n_outputs = weir_fusion_output_count(s->fusion);
  for (size_t i = 0; i < n; i++) {
    must_weir(weir_fusion_input_at(s->fusion, i, &t));
    add_tensor(s, i, shapes, t);
    s->inputs[i] = &s->tensors[i];
  }
  for (size_t i = 0; i < n_outputs; i++) {
    must_weir(weir_fusion_output_at(s->fusion, i, &t));
    add_tensor(s, n + i, shapes, t);
    s->outputs[i] = &s->tensors[n + i];
  }
  s->args = (weir_run_args){.struct_size = sizeof s->args,
                            .inputs = s->inputs,
                            .n_inputs = n,
                            .outputs = s->outputs,
                            .n_outputs = n_outputs};
}

static void open_subject(subject *s, const char *file, const size *z, bool graph) {
  weir_options *o = NULL;
  weir_shapes *shapes = NULL;
  *s = (subject){0};
  weir_device_allocator memory = {
      .struct_size = sizeof memory, .alloc = take_block, .free = give_block, .context = s};
  must_weir(weir_module_load(file, NULL, &s->module));
  must_weir(weir_module_find(s->module, z->block, &s->fusion));
  must_weir(weir_options_create(&o));
  must_weir(weir_options_set(o, "device", "cuda"));
  must_weir(weir_options_set_device_allocator(o, &memory));
  if (graph) must_weir(weir_options_set(o, "graph", "true"));
  must_weir(weir_compile(s->fusion, o, NULL, &s->program));
  open_shapes(s, z, &shapes);
  open_tensors(s, shapes);
  weir_shapes_destroy(shapes);
  weir_options_destroy(o);
}

static void drop_tensors(subject *s) {
  for (size_t i = 0; i < s->args.n_inputs + s->args.n_outputs; i++)
    (void)cu->cuMemFree((CUdeviceptr)(uintptr_t)s->tensors[i].data);
}

static void close_subject(subject *s) {
  drop_tensors(s);
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
static bool is_wanted(const size *z, const char *only) {
  return !only || strcmp(z->block, only) == 0;
}

static void read_peer(const char *script, const char *only) {
  char command[1024], line[256];
  int n = snprintf(command, sizeof command, "python3 '%s'", script);
  for (int i = 0; i < N_SIZES; i++) {
    const size *z = &sizes[i];
    if (!is_wanted(z, only)) continue;
    n += snprintf(command + n, sizeof command - (size_t)n, " %s:%lldx%lldx%lldx%lld", z->block,
                  (long long)z->tokens, (long long)z->width, (long long)z->keys,
                  (long long)z->inner);
  }
  FILE *f = popen(command, "r");
  while (f && fgets(line, sizeof line, f)) {
    char block[32];
    long long tokens, width;
    double us, quick, bytes;
    if (sscanf(line, "%31s %lld %lld %lf %lf %lf", block, &tokens, &width, &us, &quick, &bytes) !=
        6)
      continue;
    for (int i = 0; i < N_SIZES; i++) {
      size *z = &sizes[i];
      if (strcmp(z->block, block) != 0 || z->tokens != tokens || z->width != width) continue;
      z->peer_us = us, z->quick_us = quick, z->peer_bytes = bytes;
    }
  }
  if (f) (void)pclose(f);
}

/* ---- the table ---- */
static void run_size(const char *file, const size *z) {
  double us[2], mib = 1 << 20, bytes = 0;
  for (int graph = 0; graph < 2; graph++) {
    subject s;
    open_subject(&s, file, z, graph);
    us[graph] = measure(&s);
    if (!graph) bytes = (double)(s.outside_bytes + s.most_bytes);
    close_subject(&s);
  }
  printf("%-12s %5lld x %4lld  %9.1f us, as a graph %9.1f us, %6.0f MiB", z->block,
         (long long)z->tokens, (long long)z->width, us[0], us[1], bytes / mib);
  if (z->peer_us > 0)
    printf("  torch.compile %9.1f us, %.2f of it; reduced overhead %9.1f us, graph %.2f of it; "
           "%6.0f MiB, %.2f of it",
           z->peer_us, us[0] / z->peer_us, z->quick_us, us[1] / z->quick_us, z->peer_bytes / mib,
           bytes / z->peer_bytes);
  printf("\n");
  (void)fflush(stdout);
}

/* ---- several lengths ---- */
static void run_lengths(const char *file, const size *most) {
  enum { LENGTHS = 5 };
  subject s;
  size z = *most;
  size_t apart = 0, largest = 0;
  for (int i = 0; i < LENGTHS; i++) { /* what each takes in a program of its own */
    z.tokens = most->tokens >> i;
    open_subject(&s, file, &z, false);
    must_weir(weir_run(s.program, &s.args));
    apart += s.most_bytes;
    if (s.most_bytes > largest) largest = s.most_bytes;
    close_subject(&s);
  }
  z.tokens = most->tokens >> (LENGTHS - 1);
  open_subject(&s, file, &z, false);
  for (int i = LENGTHS; i-- > 0;) {
    weir_shapes *shapes = NULL;
    drop_tensors(&s);
    z.tokens = most->tokens >> i;
    open_shapes(&s, &z, &shapes);
    open_tensors(&s, shapes);
    weir_shapes_destroy(shapes);
    must_weir(weir_run(s.program, &s.args));
  }
  printf("%s of %d lengths up to %lld in one program: %zu bytes, the longest alone %zu, all of "
         "them %zu\n",
         most->block, LENGTHS, (long long)most->tokens, s.plan_bytes, largest, apart);
  close_subject(&s);
}

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  const char *only = argc > 3 ? argv[3] : NULL;
  rt_device *device = bench_device(&(rt_device_options){0});
  if (argc > 2 && argv[2][0]) read_peer(argv[2], only);
  for (int i = 0; i < N_SIZES; i++)
    if (is_wanted(&sizes[i], only)) run_size(argv[1], &sizes[i]);
  if (is_wanted(&sizes[0], only)) run_lengths(argv[1], &sizes[0]);
  device->ops->close(device);
  return 0;
}
