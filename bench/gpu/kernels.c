/* Generated kernels as a fraction of what copying reaches: bf16[16384, 8192].
 *
 *   kernels [repeats]              GB/s, bytes read and written; medians
 *   kernels --text NAME            the text of one of them; needs no GPU */
#include "conform/kernel_samples.h"
#include "gpu/kit.h"

enum { ROWS = 16384, COLUMNS = 8192, LAUNCHES = 10 };

/* What the first of them reach with torch.compile, GB/s, measured on such a machine. */
static const double compiled_by_torch[N_SAMPLES] = {2384, 1518, 2789, 3112, 2637, 2495};

typedef struct prepared {
  const char *name;
  arena memory;
  cg_kernel kernel;
} prepared;

static status prepare(void *context) {
  prepared *p = context;
  cg_kernel_init(&p->kernel, &p->memory, CG_H100);
  sample_write(&p->kernel, p->name, ROWS, COLUMNS);
  return STATUS_OK;
}

/* ---- on the GPU ---- */
typedef struct timing {
  CUstream stream;
  CUevent begin, end;
  CUdeviceptr starts[4], scratch;
} timing;

static void launch(const timing *t, const cg_launch *l, void *function) {
  CUdeviceptr at[8];
  for (uint32_t i = 0; i < l->n_pointers; i++) {
    uint32_t start = l->pointers[i].start;
    at[i] = (start == CG_START_SCRATCH ? t->scratch : t->starts[start]) +
            (CUdeviceptr)l->pointers[i].offset_bytes;
  }
  void *params[] = {at, (void *)(uintptr_t)l->numbers};
  ok(cu->cuLaunchKernel(function, l->grid[0], l->grid[1], l->grid[2], l->block, 1, 1,
                        l->shared_bytes, t->stream, params, NULL));
}

static void issue(const timing *t, const prepared *p, void *const *functions) {
  if (!p) {
    ok(cu->cuMemcpyDtoDAsync(t->starts[0], t->starts[1], (size_t)ROWS * COLUMNS * 2, t->stream));
    return;
  }
  for (uint32_t i = 0; i < p->kernel.n_launches; i++)
    launch(t, &p->kernel.launches[i], functions[i]);
}

/* us of one of LAUNCHES that follow one another; p NULL: a copy. */
static double measure(const timing *t, const prepared *p, void *const *functions, int repeats) {
  double times[BENCH_MOST];
  for (int r = -2; r < repeats; r++) {
    float ms;
    ok(cu->cuEventRecord(t->begin, t->stream));
    for (int i = 0; i < LAUNCHES; i++) issue(t, p, functions);
    ok(cu->cuEventRecord(t->end, t->stream));
    ok(cu->cuEventSynchronize(t->end));
    ok(cu->cuEventElapsedTime(&ms, t->begin, t->end));
    if (r >= 0) times[r] = (double)ms * 1e3 / LAUNCHES;
  }
  return median(times, repeats);
}

static void open_timing(timing *t) {
  size_t bytes = (size_t)ROWS * COLUMNS * 2;
  ok(cu->cuStreamCreateWithPriority(&t->stream, CU_STREAM_NON_BLOCKING, 0));
  ok(cu->cuEventCreate(&t->begin, CU_EVENT_DEFAULT));
  ok(cu->cuEventCreate(&t->end, CU_EVENT_DEFAULT));
  for (int i = 0; i < 4; i++) {
    /* results may be i64 */
    t->starts[i] = device_memory(i == 0 ? 4 * bytes : i == 1 ? bytes : ROWS * 2);
    fill_bf16(t->starts[i], i < 2 ? bytes : ROWS * 2);
  }
}

static void report(timing *t, cuda_programs *programs, int s, double ceiling, int repeats) {
  prepared p = {.name = samples[s].name};
  void *functions[4];
  arena_init(&p.memory, &memory_default);
  must(memory_guard(prepare, &p));
  for (uint32_t i = 0; i < p.kernel.n_launches; i++)
    must(cuda_programs_get(programs, &p.kernel.launches[i], &functions[i]));
  t->scratch = device_memory(p.kernel.scratch_bytes);
  double us = measure(t, &p, functions, repeats);
  double rate = samples[s].moved * ROWS * COLUMNS * 2 / us * 1e-3, part = rate / ceiling;
  double goal = samples[s].goal;
  printf("%-17s %9.1f us %7.0f GB/s %5.1f%% of copying", p.name, us, rate, part * 100);
  if (goal > 0) printf("   goal %2.0f%% %s", goal * 100, part >= goal ? "PASS" : "MISS");
  if (compiled_by_torch[s] > 0) printf("   torch.compile %5.0f", compiled_by_torch[s]);
  printf("\n");
  (void)cu->cuMemFree(t->scratch);
  arena_destroy(&p.memory);
}

static void run(int repeats) {
  rt_device_options device_options = {.threads = 0};
  rt_device *d = bench_device(&device_options);
  timing t = {.stream = NULL};
  CUdevice gpu;
  cuda_programs *programs;
  cuda_programs_options o = {.compiler = cuda_vendor_compiler()};
  ok(cu->cuDeviceGet(&gpu, 0));
  ok(cu->cuDeviceGetAttribute(&o.major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, gpu));
  ok(cu->cuDeviceGetAttribute(&o.minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, gpu));
  must(cuda_programs_open(&o, &memory_default, &programs));
  open_timing(&t);
  double us = measure(&t, NULL, NULL, repeats);
  double ceiling = (double)ROWS * COLUMNS * 4 / us * 1e-3;
  printf("%-17s %9.1f us %7.0f GB/s\n", "copy", us, ceiling);
  for (int s = 0; s < N_SAMPLES; s++) report(&t, programs, s, ceiling, repeats);
  cuda_programs_close(programs);
  d->ops->close(d);
}

static int print_text(const char *name) {
  prepared p = {.name = name};
  arena_init(&p.memory, &memory_default);
  must(memory_guard(prepare, &p));
  for (uint32_t i = 0; i < p.kernel.n_launches; i++) {
    const cg_launch *l = &p.kernel.launches[i];
    printf("%s// grid %u x %u, block %u\n", l->source, l->grid[0], l->grid[1], l->block);
  }
  arena_destroy(&p.memory);
  return 0;
}

int main(int argc, char **argv) {
  if (argc > 2 && strcmp(argv[1], "--text") == 0) return print_text(argv[2]);
  int repeats = argc > 1 ? atoi(argv[1]) : 21;
  if (repeats < 1 || repeats > BENCH_MOST) repeats = 21;
  run(repeats);
  return 0;
}
