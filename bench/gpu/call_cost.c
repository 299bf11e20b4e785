/* What a call of weir_run() costs the host above the issue of its plan: a ready program of one kernel on tensors of a
 * GPU, on a stream of the caller's.
 *
 *   call_cost [REPEATS]
 *
 * us, medians of series of calls: the whole call, which issues and does not wait; of that, asking the driver where the
 * tensors are (look); issuing the same plan on the same stream without the API (issue); and what is left (above). The
 * goal for 8 tensors is 3 us above the issue, looking apart. */
#include "gpu/kit.h"
#include "weir/weir.h"

enum { MOST = 8, N = 1024, SERIES = 50 };

static void must_weir(weir_status st) {
  if (st == WEIR_OK) return;
  fprintf(stderr, "%s\n", weir_error());
  exit(weir_exit_code(st));
}

typedef struct calls {
  weir_program *program;
  weir_run_args args;
  weir_dl_tensor tensors[MOST];
  const weir_dl_tensor *list[MOST];
  weir_stream stream;
  bench plan; /* the same without the API */
  int n;
} calls;

/* One operation, so that the plan is the same whatever is joined: y = cat(x0, x1, …). */
static void write_program(char *text, size_t size_bytes, int inputs) {
  size_t n = (size_t)snprintf(text, size_bytes, "fusion f {\n");
  for (int i = 0; i < inputs; i++)
    n += (size_t)snprintf(text + n, size_bytes - n, "  x%d : f32[n]\n", i);
  n += (size_t)snprintf(text + n, size_bytes - n, "  y = cat(x0");
  for (int i = 1; i < inputs; i++) n += (size_t)snprintf(text + n, size_bytes - n, ", x%d", i);
  (void)snprintf(text + n, size_bytes - n, ", dim=0)\n  return y\n}\n");
}

static weir_program *compile(const char *text) {
  weir_module *m;
  weir_fusion *f;
  weir_options *o;
  weir_program *p;
  must_weir(weir_module_parse("call", text, strlen(text), NULL, &m));
  must_weir(weir_module_find(m, NULL, &f));
  must_weir(weir_options_create(&o));
  must_weir(weir_options_set(o, "device", "cuda"));
  must_weir(weir_compile(f, o, NULL, &p));
  weir_options_destroy(o);
  weir_module_destroy(m);
  return p;
}

static void run(calls *c) { must_weir(weir_run(c->program, &c->args)); }

static void look(calls *c) {
  const rt_memory_ops *memory = rt_device_find("cuda")->memory;
  for (int i = 0; i < c->n; i++) must(memory->verify(1, c->tensors[i].data, "a tensor"));
}

static void issue(calls *c) {
  rt_stream s = {1, c->stream.handle};
  rt_loaded *l = c->plan.loaded;
  bool captured = false;
  must(l->ops->run_on(l, c->plan.inputs, c->plan.outputs, &s, 1, &captured));
}

/* Of one of a series, not counting the end of what was issued. */
static double median_of(calls *c, void (*f)(calls *c), int repeats) {
  double times[BENCH_MOST];
  for (int i = -3; i < repeats; i++) {
    int64_t start = rt_clock_ns();
    for (int k = 0; k < SERIES; k++) f(c);
    if (i >= 0) times[i] = (double)(rt_clock_ns() - start) * 1e-3 / SERIES;
    ok(cu->cuStreamSynchronize(c->stream.handle));
  }
  return median(times, repeats);
}

/* The first is the output, as long as all others. */
static void set_tensors(calls *c, int64_t *shapes) {
  shapes[0] = N * (c->n - 1);
  shapes[1] = N;
  for (int i = 0; i < c->n; i++) {
    c->tensors[i] = (weir_dl_tensor){.device = {2, 0}, .ndim = 1, .dtype = {2, 32, 1}};
    c->tensors[i].shape = i ? &shapes[1] : &shapes[0];
    c->tensors[i].data =
        (void *)(uintptr_t)device_memory((size_t)c->tensors[i].shape[0] * sizeof(float));
    c->list[i] = &c->tensors[i];
  }
  c->args = (weir_run_args){.struct_size = sizeof c->args, .inputs = c->list + 1};
  c->args.n_inputs = (size_t)c->n - 1;
  c->args.outputs = c->list;
  c->args.n_outputs = 1;
  c->args.streams = &c->stream;
  c->args.n_streams = 1;
}

static void measure(rt_device *device, int n, int repeats) {
  char text[1024];
  int64_t shapes[2];
  CUstream s = NULL;
  write_program(text, sizeof text, n - 1);
  calls c = {.program = compile(text), .n = n};
  bench_args args = {.text = text, .ranks = 1, .streams = 1};
  args.symbols = (const char *const[]){"n", "1024", NULL};
  bench_open(&c.plan, device, &args);
  ok(cu->cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, 0));
  c.stream = (weir_stream){{2, 0}, s};
  set_tensors(&c, shapes);
  double call = median_of(&c, run, repeats), looks = median_of(&c, look, repeats);
  double issued = median_of(&c, issue, repeats), above = call - looks - issued;
  printf("%-8d %8.2f %8.2f %8.2f %8.2f%s\n", n, call, looks, issued, above,
         n < MOST     ? ""
         : above <= 3 ? "  PASS: at most 3 us"
                      : "  MISS: more than 3 us");
  weir_program_destroy(c.program);
  bench_close(&c.plan);
  for (int i = 0; i < n; i++) ok(cu->cuMemFree((CUdeviceptr)(uintptr_t)c.tensors[i].data));
  ok(cu->cuStreamDestroy(s));
}

int main(int argc, char **argv) {
  int repeats = argc > 1 ? atoi(argv[1]) : BENCH_MOST;
  rt_device *device = bench_device(&(rt_device_options){0}); /* its context is current */
  if (repeats < 1 || repeats > BENCH_MOST) repeats = BENCH_MOST;
  printf("%-8s %8s %8s %8s %8s\n", "tensors", "call us", "look us", "issue us", "above us");
  for (int n = 2; n <= MOST; n *= 2) measure(device, n, repeats);
  device->ops->close(device);
  return 0;
}
