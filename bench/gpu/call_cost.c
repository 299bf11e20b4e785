/* What a call of weir_run() costs the host: a ready program of one kernel on tensors of a GPU, on a stream of the
 * caller's; and of that, how long the driver is asked where the tensors are.
 *
 *   call_cost [REPEATS]
 *
 * us, medians: the whole call, which issues and does not wait; looking at the tensors' addresses; a launch of an empty
 * stream operation for comparison, which is what issuing one step costs. The goal for 8 tensors is 3 us above the
 * issue of the plan, checks apart. */
#include "gpu/kit.h"
#include "weir/weir.h"

enum { MOST = 8, N = 1024 };

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
  CUevent event;
  int n;
} calls;

static weir_program *compile(int inputs) {
  char text[1024];
  size_t n = (size_t)snprintf(text, sizeof text, "fusion f {\n");
  for (int i = 0; i < inputs; i++)
    n += (size_t)snprintf(text + n, sizeof text - n, "  x%d : f32[n]\n", i);
  n += (size_t)snprintf(text + n, sizeof text - n, "  y = x0 + 1");
  for (int i = 1; i < inputs; i++) n += (size_t)snprintf(text + n, sizeof text - n, " + x%d", i);
  n += (size_t)snprintf(text + n, sizeof text - n, "\n  return y\n}\n");
  weir_module *m;
  weir_fusion *f;
  weir_options *o;
  weir_program *p;
  must_weir(weir_module_parse("call", text, n, NULL, &m));
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

static void record(calls *c) { ok(cu->cuEventRecord(c->event, c->stream.handle)); }

/* Not counting the end of what was issued. */
static double median_of(calls *c, void (*f)(calls *c), int repeats) {
  double times[BENCH_MOST];
  for (int i = -20; i < repeats; i++) {
    int64_t start = rt_clock_ns();
    f(c);
    if (i >= 0) times[i] = (double)(rt_clock_ns() - start) * 1e-3;
    ok(cu->cuStreamSynchronize(c->stream.handle));
  }
  return median(times, repeats);
}

int main(int argc, char **argv) {
  int repeats = argc > 1 ? atoi(argv[1]) : BENCH_MOST;
  int64_t shape[] = {N};
  rt_device *device = bench_device(&(rt_device_options){0}); /* its context is current */
  if (repeats < 1 || repeats > BENCH_MOST) repeats = BENCH_MOST;
  printf("%-8s %8s %8s %8s\n", "tensors", "call us", "look us", "step us");
  for (int n = 2; n <= MOST; n *= 2) {
    calls c = {.program = compile(n - 1), .n = n};
    CUstream s = NULL;
    ok(cu->cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, 0));
    ok(cu->cuEventCreate(&c.event, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < n; i++) {
      c.tensors[i] = (weir_dl_tensor){.device = {2, 0}, .ndim = 1, .dtype = {2, 32, 1}};
      c.tensors[i].data = (void *)(uintptr_t)device_memory(N * sizeof(float));
      c.tensors[i].shape = shape;
      c.list[i] = &c.tensors[i];
    }
    c.stream = (weir_stream){{2, 0}, s};
    c.args = (weir_run_args){
        .struct_size = sizeof c.args, .inputs = c.list + 1, .n_inputs = (size_t)n - 1};
    c.args.outputs = c.list;
    c.args.n_outputs = 1;
    c.args.streams = &c.stream;
    c.args.n_streams = 1;
    double call = median_of(&c, run, repeats), looks = median_of(&c, look, repeats);
    printf("%-8d %8.2f %8.2f %8.2f\n", n, call, looks, median_of(&c, record, repeats));
    weir_program_destroy(c.program);
  }
  device->ops->close(device);
  return 0;
}
