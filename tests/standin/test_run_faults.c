/* Asynchronous runs on GPUs, and runs on the caller's stream and memory, where something fails:
 * each function of the driver, of cublasLt and of NCCL, at its first call, its fourth, its
 * sixteenth, …; a kernel that fails, after which the driver refuses everything; NCCL that reports
 * an error late or never ends. Each in a process of its own, which must end before its timeout with
 * a status and a message at the wait, must go on to run programs on the CPU, and, unless the driver
 * has given up, new ones on the GPU. Results of runs that succeed are right.
 *
 *   test_run_faults [FUNCTION]      on the stand-ins of tests/standin */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <weir/weir.h>

#include "device/cuda/vendor.h"
#include "test.h"

enum { ROWS = 8, COLUMNS = 6, RUNS = 4, LONGEST_S = 50, LAST_CALL = 4096 };

static const char text[] =
    "fusion f {\n  mesh d = [2]\n  x : f32[8, 6]\n  w : f32[6, 6]\n  t = matmul(x, w)\n"
    "  y = t - 1\n  return y\n"
    "  schedule { x, w, t, y on d; x.outer_split(1, 2); x[1] = mesh.x; "
    "w.outer_split(0, 2); w[0] = mesh.x }\n}\n";

/* ---- one process ---- */
typedef struct job {
  float x[ROWS][COLUMNS], w[COLUMNS][COLUMNS], y[RUNS][ROWS][COLUMNS];
  bool failed;
  char message[512];
} job;

static void note(job *j) {
  if (!j->failed) (void)snprintf(j->message, sizeof j->message, "%s", weir_error());
  j->failed = true;
}

static const char *timeout_s = "60"; /* of runs */

static weir_program *compile(job *j, const char *program, const char *device, const char *comm) {
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_options *o = NULL;
  weir_program *p = NULL;
  bool ok = weir_options_create(&o) == WEIR_OK &&
            weir_options_set(o, "device", device) == WEIR_OK &&
            weir_options_set(o, "comm", comm) == WEIR_OK &&
            weir_options_set(o, "timeout", timeout_s) == WEIR_OK &&
            weir_module_parse("f.weir", program, strlen(program), NULL, &m) == WEIR_OK &&
            weir_module_find(m, NULL, &f) == WEIR_OK && weir_compile(f, o, NULL, &p) == WEIR_OK;
  if (!ok) note(j);
  weir_options_destroy(o);
  weir_module_destroy(m);
  return p;
}

static weir_dl_tensor tensor(void *data, int64_t *shape) {
  return (weir_dl_tensor){.data = data,
                          .device = {1, 0},
                          .ndim = 2,
                          .dtype = weir_dtype_to_dl(WEIR_F32),
                          .shape = shape};
}

static weir_pending *begin(job *j, const weir_program *p, int i) {
  int64_t tall[] = {ROWS, COLUMNS}, square[] = {COLUMNS, COLUMNS};
  weir_dl_tensor x = tensor(j->x, tall), w = tensor(j->w, square), y = tensor(j->y[i], tall);
  const weir_dl_tensor *in[] = {&x, &w}, *out[] = {&y};
  weir_run_args args = {.struct_size = sizeof args, .inputs = in, .n_inputs = 2, .outputs = out};
  weir_pending *r = NULL;
  args.n_outputs = 1;
  if (weir_run_async(p, &args, NULL, NULL, &r) != WEIR_OK) note(j);
  return r;
}

/* The identity, less 1. */
static bool is_right(const job *j, int i) {
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < COLUMNS; c++)
      if (j->y[i][r][c] != j->x[r][c] - 1) return false;
  return true;
}

static void finish(job *j, weir_pending *r, int i, bool *wrong) {
  if (!r) return;
  weir_status st = weir_pending_wait(r);
  if (st != WEIR_OK && weir_error()[0] == 0) *wrong = true;
  if (st == WEIR_OK && !is_right(j, i)) *wrong = true;
  if (st != WEIR_OK && st != WEIR_CANCELLED) note(j);
  weir_pending_destroy(r);
}

/* True: no result is wrong and every failure has a message. j->failed: something failed. */
static bool attempt(job *j, const char *device, const char *comm, bool cancels) {
  weir_pending *runs[RUNS];
  bool wrong = false;
  j->failed = false;
  weir_program *p = compile(j, text, device, comm);
  if (!p) return j->message[0] != 0;
  for (int i = 0; i < RUNS; i++) runs[i] = begin(j, p, i);
  if (cancels) weir_pending_cancel(runs[RUNS - 1]);
  for (int i = 0; i < RUNS; i++) finish(j, runs[i], i, &wrong);
  weir_program_destroy(p);
  return !wrong;
}

/* ---- the caller's memory and stream ---- */
static const char alone[] =
    "fusion f { x : f32[8, 6]; w : f32[6, 6]; y = matmul(x, w) - 1; return y }";
static const char *fault_variable, *fault_value;

/* What the test itself asks of the driver does not fail. */
static void allow_faults(bool on) {
  if (on) (void)setenv(fault_variable, fault_value, 1);
  else (void)unsetenv(fault_variable);
}

typedef struct callers {
  const cuda_vendor *cu;
  CUcontext context;
  CUstream stream;
  CUdeviceptr x, w, y;
} callers;

static bool callers_open(callers *c, const job *j) {
  return cuda_vendor_load(&c->cu) == STATUS_OK &&
         c->cu->cuDevicePrimaryCtxRetain(&c->context, 0) == CUDA_SUCCESS &&
         c->cu->cuCtxSetCurrent(c->context) == CUDA_SUCCESS &&
         c->cu->cuStreamCreateWithPriority(&c->stream, CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS &&
         c->cu->cuMemAlloc(&c->x, sizeof j->x) == CUDA_SUCCESS &&
         c->cu->cuMemAlloc(&c->w, sizeof j->w) == CUDA_SUCCESS &&
         c->cu->cuMemAlloc(&c->y, sizeof j->y[0]) == CUDA_SUCCESS;
}

/* Values to the GPU, a run after them on the stream, results back after it. */
static bool run_there(callers *c, job *j, const weir_program *p, int i) {
  int64_t tall[] = {ROWS, COLUMNS}, square[] = {COLUMNS, COLUMNS};
  weir_dl_tensor x = tensor((void *)(uintptr_t)c->x, tall),
                 y = tensor((void *)(uintptr_t)c->y, tall);
  weir_dl_tensor w = tensor((void *)(uintptr_t)c->w, square);
  x.device.device_type = w.device.device_type = y.device.device_type = 2;
  weir_stream s = {{2, 0}, c->stream};
  const weir_dl_tensor *in[] = {&x, &w}, *out[] = {&y};
  weir_run_args args = {.struct_size = sizeof args, .inputs = in, .n_inputs = 2, .outputs = out};
  weir_pending *r = NULL;
  args.n_outputs = 1;
  args.streams = &s;
  args.n_streams = 1;
  allow_faults(false);
  (void)c->cu->cuMemcpyHtoDAsync(c->x, j->x, sizeof j->x, c->stream);
  (void)c->cu->cuMemcpyHtoDAsync(c->w, j->w, sizeof j->w, c->stream);
  allow_faults(true);
  weir_status st = i % 2 ? weir_run_async(p, &args, NULL, NULL, &r) : weir_run(p, &args);
  if (r) st = weir_pending_wait(r);
  if (st != WEIR_OK) note(j);
  bool told = st == WEIR_OK || weir_error()[0] != 0;
  weir_pending_destroy(r);
  allow_faults(false);
  (void)c->cu->cuMemcpyDtoHAsync(j->y[i], c->y, sizeof j->y[i], c->stream);
  (void)c->cu->cuStreamSynchronize(c->stream);
  allow_faults(true);
  return told && (st != WEIR_OK || is_right(j, i));
}

static bool attempt_streams(callers *c, job *j) {
  bool good = true;
  j->failed = false;
  weir_program *p = compile(j, alone, "cuda", "auto");
  if (!p) return j->message[0] != 0;
  for (int i = 0; i < RUNS; i++) good = run_there(c, j, p, i) && good;
  weir_program_destroy(p);
  return good;
}

enum { NOTHING_FAILED = 0, GPU_GOES_ON = 10, GPU_IS_LOST = 11, WRONG = 20, CPU_IS_LOST = 21 };

static void set_values(job *j) {
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < COLUMNS; c++) j->x[r][c] = (float)(r * COLUMNS + c);
  for (int c = 0; c < COLUMNS; c++) j->w[c][c] = 1;
}

/* Twice on the caller's stream: what fails once works the second time. */
static int scenario_streams(void) {
  static job j;
  callers c = {0};
  set_values(&j);
  allow_faults(false);
  if (!callers_open(&c, &j)) return WRONG;
  allow_faults(true);
  if (!attempt_streams(&c, &j)) return WRONG;
  if (!j.failed) return NOTHING_FAILED;
  fprintf(stderr, "%s\n", j.message);
  if (!attempt_streams(&c, &j)) return WRONG;
  return j.failed ? GPU_IS_LOST : GPU_GOES_ON;
}

static int scenario(const char *comm) {
  static job j;
  if (strcmp(comm, "streams") == 0) return scenario_streams();
  set_values(&j);
  if (strncmp(fault_value, "hang:", 5) == 0) timeout_s = "2";
  if (!attempt(&j, "cuda", comm, true)) return WRONG;
  timeout_s = "60";
  bool first = j.failed;
  if (first) fprintf(stderr, "%s\n", j.message);
  if (!attempt(&j, "cpu", "auto", false)) return WRONG;
  if (j.failed) return CPU_IS_LOST;
  if (!first) return NOTHING_FAILED;
  if (!attempt(&j, "cuda", comm, false)) return WRONG;
  return j.failed ? GPU_IS_LOST : GPU_GOES_ON;
}

/* ---- many ---- */
/* How a process with these variables ends; negative: by a signal, which is SIGALRM if it takes too long. */
static int in_process(const char *variable, const char *value, const char *comm, char *said,
                      size_t size_bytes) {
  int ends[2], state;
  if (pipe(ends) != 0) abort();
  pid_t child = fork();
  if (child == 0) {
    (void)alarm(LONGEST_S);
    (void)dup2(ends[1], 2);
    (void)close(ends[0]);
    fault_variable = variable;
    fault_value = value;
    allow_faults(true);
    _exit(scenario(comm));
  }
  (void)close(ends[1]);
  size_t used = 0;
  for (ssize_t n; (n = read(ends[0], said + used, size_bytes - 1 - used)) > 0;) used += (size_t)n;
  said[used] = 0;
  (void)close(ends[0]);
  (void)waitpid(child, &state, 0);
  return WIFEXITED(state) ? WEXITSTATUS(state) : -WTERMSIG(state);
}

static unsigned processes;

static int look(const char *variable, const char *value, const char *comm) {
  char said[4096];
  int ended = in_process(variable, value, comm, said, sizeof said);
  processes++;
  bool good = ended == NOTHING_FAILED || ended == GPU_GOES_ON || ended == GPU_IS_LOST;
  if (!EXPECT(good))
    fprintf(stderr, "  %s=%s, --comm %s: %d: %s\n", variable, value, comm, ended, said);
  return ended;
}

/* Call 1, 4, 16, ... of a function fails, alone: what comes afterwards must work. */
static void fail_calls(const char *function, const char *comm) {
  for (int n = 1; n <= LAST_CALL; n *= 4) {
    char value[96];
    (void)snprintf(value, sizeof value, "%s:%d", function, n);
    int ended = look("WEIR_STANDIN_FAIL", value, comm);
    if (ended == NOTHING_FAILED) return;
    bool goes_on = ended == GPU_GOES_ON || strcmp(function, "cuInit") == 0; /* it is asked once */
    if (!EXPECT(goes_on)) fprintf(stderr, "  %s, --comm %s: the GPU is lost\n", value, comm);
  }
}

static const char *const functions[] = {
#define SYMBOL(name) #name,
#include "device/cuda/cublaslt.def"
#include "device/cuda/driver.def"
#undef SYMBOL
};

static bool gives_back(const char *function) {
  static const char *const words[] = {"Destroy", "Free", "Release", "Unload", "String"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strstr(function, words[i])) return true;
  return false;
}

int main(int argc, char **argv) {
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    if (argc > 1 && strcmp(argv[1], functions[i]) != 0) continue;
    if (gives_back(functions[i])) continue;
    fail_calls(functions[i], "auto");
    /* without an answer to this the caller's context cannot be given back */
    if (strcmp(functions[i], "cuCtxGetCurrent") != 0) fail_calls(functions[i], "streams");
  }
  if (argc == 1) {
    /* The driver has given up: the message comes, and the process lives on. */
    EXPECT_INT(look("WEIR_STANDIN_FAIL", "kernel:1", "auto"), GPU_IS_LOST);
    EXPECT_INT(look("WEIR_STANDIN_FAIL", "kernel:5", "auto"), GPU_IS_LOST);
    EXPECT_INT(look("WEIR_STANDIN_NCCL", "", "nccl"), NOTHING_FAILED);
    EXPECT_INT(look("WEIR_STANDIN_NCCL", "async:1", "nccl"), GPU_GOES_ON);
    EXPECT_INT(look("WEIR_STANDIN_NCCL", "hang:1", "nccl"), GPU_GOES_ON);
  }
  printf("%u processes\n", processes);
  return test_finish();
}
