/* What a call of weir_run() costs the host above the issue of its plan: a ready program of one
 * kernel on tensors of a GPU, on a stream of the caller's.
 *
 *   call_cost [REPEATS]
 *
 * us, medians of series of calls, taken in turns: the whole call, which issues and does not wait;
 * of that, asking the driver where the tensors are (look); issuing the plan that the program has
 * loaded, with the same tensors on the same stream, without the API (issue); and what is left
 * (above). The goal for 8 tensors is 3 us above the issue, looking apart. */
#include "api/program.h"
#include "gpu/kit.h"
#include "session/plans.h"
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
  void *data[MOST];
  weir_stream stream;
  int n;
} calls;

/* y = x0 + x1 + …, which is one kernel. */
static void write_program(char *text, size_t size_bytes, int inputs) {
  size_t n = (size_t)snprintf(text, size_bytes, "fusion f {\n");
  for (int i = 0; i < inputs; i++)
    n += (size_t)snprintf(text + n, size_bytes - n, "  x%d : f32[n]\n", i);
  n += (size_t)snprintf(text + n, size_bytes - n, "  y = x0%s", inputs > 1 ? "" : " + 1");
  for (int i = 1; i < inputs; i++) n += (size_t)snprintf(text + n, size_bytes - n, " + x%d", i);
  (void)snprintf(text + n, size_bytes - n, "\n  return y\n}\n");
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
  rt_loaded *l = c->program->session.plans->loaded; /* that of the last run */
  bool captured = false;
  must(l->ops->run_on(l, c->data + 1, c->data, &s, 1, &captured));
}

/* Of one of a series, not counting the end of what was issued. */
static double time_series(calls *c, void (*f)(calls *c)) {
  int64_t start = rt_clock_ns();
  for (int k = 0; k < SERIES; k++) f(c);
  double us = (double)(rt_clock_ns() - start) * 1e-3 / SERIES;
  ok(cu->cuStreamSynchronize(c->stream.handle));
  return us;
}

/* The first is the output. */
static void set_tensors(calls *c, int64_t *shape) {
  *shape = N;
  for (int i = 0; i < c->n; i++) {
    c->tensors[i] = (weir_dl_tensor){.device = {2, 0}, .ndim = 1, .dtype = {2, 32, 1}};
    c->tensors[i].shape = shape;
    c->tensors[i].data = c->data[i] = (void *)(uintptr_t)device_memory(N * sizeof(float));
    c->list[i] = &c->tensors[i];
  }
  c->args = (weir_run_args){.struct_size = sizeof c->args, .inputs = c->list + 1};
  c->args.n_inputs = (size_t)c->n - 1;
  c->args.outputs = c->list;
  c->args.n_outputs = 1;
  c->args.streams = &c->stream;
  c->args.n_streams = 1;
}

static void measure(int n, int repeats) {
  enum { CALL, LOOK, ISSUE, ABOVE, COLUMNS };
  static void (*const what[])(calls *) = {run, look, issue};
  double times[COLUMNS][BENCH_MOST], medians[COLUMNS];
  char text[1024];
  int64_t shape;
  CUstream s = NULL;
  write_program(text, sizeof text, n - 1);
  calls c = {.program = compile(text), .n = n};
  ok(cu->cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, 0));
  c.stream = (weir_stream){{2, 0}, s};
  set_tensors(&c, &shape);
  for (int i = -3; i < repeats; i++) {
    double us[ABOVE];
    for (int k = CALL; k < ABOVE; k++) us[k] = time_series(&c, what[k]);
    for (int k = CALL; k < ABOVE && i >= 0; k++) times[k][i] = us[k];
    if (i >= 0) times[ABOVE][i] = us[CALL] - us[LOOK] - us[ISSUE];
  }
  for (int k = CALL; k < COLUMNS; k++) medians[k] = median(times[k], repeats);
  printf("%-8d %8.2f %8.2f %8.2f %8.2f%s\n", n, medians[CALL], medians[LOOK], medians[ISSUE],
         medians[ABOVE],
         n < MOST              ? ""
         : medians[ABOVE] <= 3 ? "  PASS: at most 3 us"
                               : "  MISS: more than 3 us");
  weir_program_destroy(c.program);
  for (int i = 0; i < n; i++) ok(cu->cuMemFree((CUdeviceptr)(uintptr_t)c.data[i]));
  ok(cu->cuStreamDestroy(s));
}

int main(int argc, char **argv) {
  int repeats = argc > 1 ? atoi(argv[1]) : BENCH_MOST;
  rt_device *device = bench_device(&(rt_device_options){0}); /* its context is current */
  if (repeats < 1 || repeats > BENCH_MOST) repeats = BENCH_MOST;
  printf("%-8s %8s %8s %8s %8s\n", "tensors", "call us", "look us", "issue us", "above us");
  for (int n = 2; n <= MOST; n *= 2) measure(n, repeats);
  device->ops->close(device);
  return 0;
}
