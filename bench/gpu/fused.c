/* Chains of operations in one kernel, beside copying the same bytes and beside torch.compile.
 *
 *   fused [--kernels] [--small] [--only CHAIN] [SCRIPT]
 *
 * SCRIPT: bench/gpu/fused.py, which measures torch.compile in the same run. --small: sizes for
 * stand-ins. --only: one chain, at the large size.
 *
 * Through the public interface, with tensors in device memory and on a stream of the caller; with
 * --kernels the kernels alone, each chain as one body. Times are medians of runs that follow one
 * another, in us. */
#include <math.h>

#include "conform/body_kit.h"
#include "gpu/kit.h"
#include "weir/weir.h"

enum { RUNS = 10, REPEATS = 15, MOST_TENSORS = 8, MOST_LINES = 64, DL_CUDA = 2 };

/* In shapes R and C are the sizes, 1 is itself; names that begin with i are indexes (i64), with l losses
 * (f32). */
typedef struct chain {
  const char *name, *inputs, *outputs, *body;
  double goal; /* part of what copying the same bytes takes; 0: none */
  bool only_large;
} chain;

#define NORM_BACKWARD                                                                              \
  "xf = cast(x, f32); gf = cast(g, f32); m = mean(xf, dims=[1], keepdim=true); d = xf - m; "       \
  "v = mean(d * d, dims=[1], keepdim=true); s = rsqrt(v + 0.00001); h = d * s; gw = gf * w; "      \
  "a = mean(gw, dims=[1], keepdim=true); b = mean(gw * h, dims=[1], keepdim=true); "               \
  "dx = cast((gw - a - h * b) * s, bf16); dw = cast(sum(gf * h, dims=[0]), bf16); "                \
  "db = cast(sum(gf, dims=[0]), bf16)"
#define RMS_BACKWARD                                                                               \
  "xf = cast(x, f32); gf = cast(g, f32); v = mean(xf * xf, dims=[1], keepdim=true); "              \
  "s = rsqrt(v + 0.000001); h = xf * s; gw = gf * w; b = mean(gw * h, dims=[1], keepdim=true); "   \
  "dx = cast((gw - h * b) * s, bf16); dw = cast(sum(gf * h, dims=[0]), bf16)"
#define CROSS_ENTROPY                                                                              \
  "xf = cast(x, f32); m = amax(xf, dims=[1], keepdim=true); "                                      \
  "s = sum(exp(xf - m), dims=[1], keepdim=true); loss = log(s) + m - gather(xf, i, dim=1)"

static const chain chains[] = {
    {"gelu", "x:RC w:C b:C r:RC", "y:RC", "y = gelu(x * w + b) * r + x", 0.9, false},
    {"rows", "x:RC r:RC", "y:R", "y = sum(exp(x) * r, dims=[1])", 0.9, false},
    {"columns", "x:RC r:RC", "y:C", "y = sum(gelu(x) * r, dims=[0])", 0.9, false},
    {"swiglu", "x:RC g:RC", "y:RC", "y = silu(x) * g", 0.9, false},
    {"add_rms_norm", "x:RC r:RC w:C", "y:RC s:RC", "s = x + r; y = rms_norm(s, w)", 0.9, false},
    {"softmax", "x:RC m:RC", "y:RC", "y = softmax(x * 0.125 + m)", 0.9, false},
    {"cross_entropy", "x:RC i:R1", "loss:R1", CROSS_ENTROPY, 0.85, true},
    {"layer_norm_back", "x:RC g:RC w:C", "dx:RC dw:C db:C", NORM_BACKWARD, 0.85, false},
    {"rms_norm_back", "x:RC g:RC w:C", "dx:RC dw:C", RMS_BACKWARD, 0.85, false},
    {"dropout", "x:RC", "y:RC",
     "u = uniform([R, C], dtype=bf16); y = where(u < 0.1, 0.0, x * 1.1111)", 0.9, false},
    {"transposed_add", "x:RC r:CR", "y:RC", "y = x + transpose(r)", 0.9, false},
    {"cat", "x:RC r:RC", "y:RD", "y = cat(x * 2.0, r, dim=1)", 0.9, false},
    {"pad", "x:RC", "y:RP", "y = pad(x * 2.0, [0, 0, 8, 8])", 0.9, false},
};
enum { N_CHAINS = sizeof chains / sizeof *chains };

typedef struct tensor {
  char name[16];
  bool is_index, is_loss;
  int rank;
  int64_t shape[2];
  size_t bytes;
  CUdeviceptr at;
} tensor;

typedef struct job {
  const chain *c;
  int64_t rows, columns;
  tensor inputs[MOST_TENSORS], outputs[MOST_TENSORS];
  int n_inputs, n_outputs;
  char text[2048];
  double bytes;
} job;

/* ---- from a row of the table to a program ---- */
static int64_t extent_of(const job *j, char letter) {
  switch (letter) {
  case 'R': return j->rows;
  case 'C': return j->columns;
  case 'D': return 2 * j->columns;
  case 'P': return j->columns + 16;
  default: return 1;
  }
}

static int read_tensors(job *j, const char *list, tensor *to) {
  char copy[128], *rest = NULL;
  int n = 0;
  (void)snprintf(copy, sizeof copy, "%s", list);
  for (char *one = strtok_r(copy, " ", &rest); one; one = strtok_r(NULL, " ", &rest), n++) {
    char *colon = strchr(one, ':');
    to[n] = (tensor){.is_index = one[0] == 'i', .is_loss = one[0] == 'l'};
    (void)snprintf(to[n].name, sizeof to[n].name, "%.*s", (int)(colon - one), one);
    to[n].bytes = to[n].is_index ? 8 : to[n].is_loss ? 4 : 2;
    for (const char *at = colon + 1; *at; at++) {
      to[n].shape[to[n].rank++] = extent_of(j, *at);
      to[n].bytes *= (size_t)extent_of(j, *at);
    }
    j->bytes += (double)to[n].bytes;
  }
  return n;
}

/* The body, with R and C as numbers where they stand alone. */
static void put_body(const job *j, strbuf *out) {
  for (const char *at = j->c->body; *at; at++) {
    bool alone = (*at == 'R' || *at == 'C') && (at[1] == ',' || at[1] == ']');
    if (alone) strbuf_printf(out, "%lld", (long long)extent_of(j, *at));
    else strbuf_putc(out, *at);
  }
}

static void make_text(job *j) {
  arena memory;
  strbuf out;
  arena_init(&memory, &memory_default);
  strbuf_init(&out, &memory);
  strbuf_printf(&out, "fusion f {\n");
  for (int i = 0; i < j->n_inputs; i++) {
    const tensor *t = &j->inputs[i];
    strbuf_printf(&out, "  %s : %s[%lld", t->name, t->is_index ? "i64" : "bf16",
                  (long long)t->shape[0]);
    for (int d = 1; d < t->rank; d++) strbuf_printf(&out, ", %lld", (long long)t->shape[d]);
    strbuf_printf(&out, "]\n");
  }
  put_body(j, &out);
  strbuf_printf(&out, "\n  return %s", j->outputs[0].name);
  for (int i = 1; i < j->n_outputs; i++) strbuf_printf(&out, ", %s", j->outputs[i].name);
  strbuf_printf(&out, "\n}\n");
  (void)snprintf(j->text, sizeof j->text, "%s", out.data);
  arena_destroy(&memory);
}

static void open_job(job *j, const chain *c, int64_t rows, int64_t columns) {
  *j = (job){.c = c, .rows = rows, .columns = columns};
  j->n_inputs = read_tensors(j, c->inputs, j->inputs);
  j->n_outputs = read_tensors(j, c->outputs, j->outputs);
  make_text(j);
  for (int i = 0; i < j->n_inputs; i++) {
    j->inputs[i].at = device_memory(j->inputs[i].bytes);
    if (j->inputs[i].is_index)
      ok(cu->cuMemsetD8Async(j->inputs[i].at, 0, j->inputs[i].bytes, NULL));
    else fill_bf16(j->inputs[i].at, j->inputs[i].bytes);
  }
  for (int i = 0; i < j->n_outputs; i++) j->outputs[i].at = device_memory(j->outputs[i].bytes);
}

static void close_job(const job *j) {
  for (int i = 0; i < j->n_inputs; i++) (void)cu->cuMemFree(j->inputs[i].at);
  for (int i = 0; i < j->n_outputs; i++) (void)cu->cuMemFree(j->outputs[i].at);
}

/* ---- times ---- */
typedef struct clock {
  CUstream stream;
  CUevent begin, end;
} clock;

static double measure(const clock *k, void (*issue)(const clock *, void *), void *context) {
  double times[BENCH_MOST];
  for (int r = -2; r < REPEATS; r++) {
    float ms;
    ok(cu->cuEventRecord(k->begin, k->stream));
    for (int i = 0; i < RUNS; i++) issue(k, context);
    ok(cu->cuEventRecord(k->end, k->stream));
    ok(cu->cuEventSynchronize(k->end));
    ok(cu->cuEventElapsedTime(&ms, k->begin, k->end));
    if (r >= 0) times[r] = (double)ms * 1e3 / RUNS;
  }
  return median(times, REPEATS);
}

/* ---- copying the same bytes ---- */
typedef struct copied {
  CUdeviceptr to, from;
  size_t bytes;
} copied;

static void issue_copy(const clock *k, void *context) {
  const copied *c = context;
  ok(cu->cuMemcpyDtoDAsync(c->to, c->from, c->bytes, k->stream));
}

static double measure_copy(const clock *k, double bytes) {
  copied c = {.bytes = (size_t)(bytes / 2)};
  c.to = device_memory(c.bytes);
  c.from = device_memory(c.bytes);
  double us = measure(k, issue_copy, &c);
  (void)cu->cuMemFree(c.to);
  (void)cu->cuMemFree(c.from);
  return us;
}

/* ---- through the public interface ---- */
static void must_weir(weir_status st) {
  if (st == WEIR_OK) return;
  fprintf(stderr, "%s\n", weir_error());
  exit(1);
}

typedef struct called {
  const weir_program *program;
  weir_run_args args;
} called;

static void issue_run(const clock *k, void *context) {
  called *c = context;
  weir_stream s = {.device = {DL_CUDA, 0}, .handle = k->stream};
  c->args.streams = &s;
  c->args.n_streams = 1;
  must_weir(weir_run(c->program, &c->args));
}

static weir_program *compile(const char *text) {
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_program *p = NULL;
  weir_options *o = NULL;
  must_weir(weir_options_create(&o));
  must_weir(weir_options_set(o, "device", "cuda"));
  must_weir(weir_module_parse("fused", text, strlen(text), NULL, &m));
  must_weir(weir_module_find(m, NULL, &f));
  must_weir(weir_compile(f, o, NULL, &p));
  weir_options_destroy(o);
  weir_module_destroy(m);
  return p;
}

static weir_dtype dtype_of(const tensor *t) {
  return t->is_index ? WEIR_I64 : t->is_loss ? WEIR_F32 : WEIR_BF16;
}

static double measure_program(const clock *k, const job *j) {
  weir_dl_tensor tensors[2 * MOST_TENSORS];
  const weir_dl_tensor *inputs[MOST_TENSORS], *outputs[MOST_TENSORS];
  for (int i = 0; i < j->n_inputs + j->n_outputs; i++) {
    const tensor *t = i < j->n_inputs ? &j->inputs[i] : &j->outputs[i - j->n_inputs];
    tensors[i] = (weir_dl_tensor){.data = (void *)(uintptr_t)t->at,
                                  .device = {DL_CUDA, 0},
                                  .ndim = t->rank,
                                  .dtype = weir_dtype_to_dl(dtype_of(t)),
                                  .shape = (int64_t *)(uintptr_t)t->shape};
    if (i < j->n_inputs) inputs[i] = &tensors[i];
    else outputs[i - j->n_inputs] = &tensors[i];
  }
  called c = {.program = compile(j->text),
              .args = {.struct_size = sizeof c.args,
                       .inputs = inputs,
                       .n_inputs = (size_t)j->n_inputs,
                       .outputs = outputs,
                       .n_outputs = (size_t)j->n_outputs}};
  double us = measure(k, issue_run, &c);
  weir_program_destroy((weir_program *)(uintptr_t)c.program);
  return us;
}

/* ---- the kernels alone ---- */
typedef struct launched {
  const job *j;
  cuda_programs *programs;
  const clock *k;
  const cuda_kernel *kernel;
  void **functions;
  CUdeviceptr scratch, errors;
  arena memory;
  double us;
} launched;

static void issue_kernels(const clock *k, void *context) {
  const launched *l = context;
  for (uint32_t i = 0; i < l->kernel->code.n_launches; i++) {
    const cg_launch *x = &l->kernel->code.launches[i];
    CUdeviceptr at[64];
    uint32_t n = (uint32_t)l->j->n_inputs;
    for (uint32_t p = 0; p < x->n_pointers; p++) {
      uint32_t start = x->pointers[p].start;
      CUdeviceptr base = start == CG_START_SCRATCH ? l->scratch
                         : start == CG_START_ERROR ? l->errors
                         : start == CG_START_SEED  ? l->errors /* any number will do */
                         : start == 0              ? l->j->outputs[0].at
                         : start <= n              ? l->j->inputs[start - 1].at
                                                   : l->j->outputs[start - n].at;
      at[p] = base + (CUdeviceptr)x->pointers[p].offset_bytes;
    }
    void *params[] = {at, (void *)(uintptr_t)x->numbers};
    ok(cu->cuLaunchKernel(l->functions[i], x->grid[0], x->grid[1], x->grid[2], x->block, 1, 1,
                          x->shared_bytes, k->stream, params, NULL));
  }
}

static status run_kernels(void *context) {
  launched *l = context;
  body_case c = {.memory = &l->memory, .shapes_only = true};
  if (!body_open(&c, l->j->text)) return STATUS_BAD_PROGRAM;
  body_make_task(&c);
  TRY(cuda_kernel_prepare(&c.plan, &c.task, CG_H100, c.memory, &l->kernel));
  const cg_kernel *code = &l->kernel->code;
  l->functions = ARENA_ARRAY(&l->memory, code->n_launches + (size_t)1, void *);
  for (uint32_t i = 0; i < code->n_launches; i++)
    TRY(cuda_programs_get(l->programs, &code->launches[i], &l->functions[i]));
  l->scratch = device_memory(code->scratch_bytes);
  l->errors = device_memory((l->kernel->n_indexed + 1) * sizeof(cg_error));
  ok(cu->cuMemsetD8Async(l->errors, 0, (l->kernel->n_indexed + 1) * sizeof(cg_error), NULL));
  l->us = measure(l->k, issue_kernels, l);
  (void)cu->cuMemFree(l->scratch);
  (void)cu->cuMemFree(l->errors);
  ir_module_destroy(&c.module);
  return STATUS_OK;
}

static double measure_kernels(const clock *k, const job *j, cuda_programs *programs) {
  launched l = {.j = j, .programs = programs, .k = k};
  arena_init(&l.memory, &memory_default);
  must(memory_guard(run_kernels, &l));
  arena_destroy(&l.memory);
  return l.us;
}

/* ---- torch.compile ---- */
typedef struct peer {
  char name[32];
  long long rows, columns;
  double us;
} peer;

static int n_peers;
static peer peers[MOST_LINES];

static void read_peers(const char *script) {
  char command[512], line[256];
  (void)snprintf(command, sizeof command, "python3 '%s'", script);
  FILE *f = popen(command, "r");
  if (!f) return;
  while (n_peers < MOST_LINES && fgets(line, sizeof line, f)) {
    peer *p = &peers[n_peers];
    if (sscanf(line, "%31s %lld %lld %lf", p->name, &p->rows, &p->columns, &p->us) == 4) n_peers++;
  }
  (void)pclose(f);
}

static double peer_of(const job *j) {
  for (int i = 0; i < n_peers; i++)
    if (strcmp(peers[i].name, j->c->name) == 0 && peers[i].rows == j->rows &&
        peers[i].columns == j->columns)
      return peers[i].us;
  return 0;
}

/* ---- all of it ---- */
typedef struct totals {
  double logs;
  int n;
} totals;

static void report(const clock *k, const chain *c, int64_t rows, int64_t columns,
                   cuda_programs *programs, totals *all) {
  job j;
  open_job(&j, c, rows, columns);
  double copy = measure_copy(k, j.bytes);
  double us = programs ? measure_kernels(k, &j, programs) : measure_program(k, &j);
  double torch = peer_of(&j), part = copy / us;
  bool large = rows > 4096 || c->only_large;
  printf("%-16s %6lld x %-6lld %9.1f us %6.0f GB/s %5.1f%% of copying", c->name, (long long)rows,
         (long long)columns, us, j.bytes / us * 1e-3, part * 100);
  if (large) printf("  goal %2.0f%% %s", c->goal * 100, part >= c->goal ? "PASS" : "MISS");
  if (torch > 0) {
    printf("  torch.compile %9.1f us, %.2f of it", torch, us / torch);
    all->logs += log(us / torch);
    all->n++;
  }
  printf("\n");
  (void)fflush(stdout);
  close_job(&j);
}

static cuda_programs *open_programs(void) {
  cuda_programs *programs = NULL;
  cuda_programs_options o = {.compiler = cuda_vendor_compiler()};
  CUdevice gpu;
  ok(cu->cuDeviceGet(&gpu, 0));
  ok(cu->cuDeviceGetAttribute(&o.major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, gpu));
  ok(cu->cuDeviceGetAttribute(&o.minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, gpu));
  must(cuda_programs_open(&o, &memory_default, &programs));
  return programs;
}

static void run(const clock *k, cuda_programs *programs, bool small, const char *only) {
  totals all = {.n = 0};
  for (int i = 0; i < N_CHAINS; i++) {
    if (only && strcmp(chains[i].name, only) != 0) continue;
    bool wide = chains[i].only_large;
    if (small) report(k, &chains[i], 64, wide ? 40000 : 96, programs, &all);
    else if (wide) report(k, &chains[i], 8192, 128000, programs, &all);
    else report(k, &chains[i], 16384, 8192, programs, &all);
  }
  for (int i = 0; i < N_CHAINS && !small && !only; i++)
    if (!chains[i].only_large) report(k, &chains[i], 4096, 1024, programs, &all);
  if (all.n > 0) printf("geometric mean %.3f of torch.compile\n", exp(all.logs / all.n));
}

int main(int argc, char **argv) {
  bool kernels = false, small = false;
  const char *only = NULL;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--kernels") == 0) kernels = true;
    else if (strcmp(argv[i], "--small") == 0) small = true;
    else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) only = argv[++i];
    else read_peers(argv[i]);
  }
  rt_device_options options = {.threads = 0};
  rt_device *d = bench_device(&options);
  clock k = {.stream = NULL};
  ok(cu->cuStreamCreateWithPriority(&k.stream, CU_STREAM_NON_BLOCKING, 0));
  ok(cu->cuEventCreate(&k.begin, CU_EVENT_DEFAULT));
  ok(cu->cuEventCreate(&k.end, CU_EVENT_DEFAULT));
  cuda_programs *programs = kernels ? open_programs() : NULL;
  run(&k, programs, small, only);
  cuda_programs_close(programs);
  d->ops->close(d);
  return 0;
}
