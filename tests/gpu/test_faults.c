/* Faults of a GPU in the middle of runs: memory that runs out, and a kernel that ends its context.
 * Runs must return before their timeout with a message, the process must live on, and what CUDA
 * permits afterwards must work.
 *
 *   test_faults             two devices in one process
 *   test_faults ranks COMM  as one of the ranks that torchrun, or tests/mpi/torchrun.sh, starts; the
 *                           last one fails
 *
 * On a real GPU the memory is really full and the kernel really writes to a wrong address; on the
 * stand-ins a call and a kernel fail. Prints what holds after a context is lost: CUDA's documents
 * leave that open. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <weir/weir.h>

#include "device/cuda/vendor.h"
#include "runtime/device.h"
#include "test.h"

enum { COLUMNS = 6, FEW = 8, MANY = 1 << 20, LONGEST_S = 50, MOST_BLOCKS = 4096 };

static const cuda_vendor *cu;
static bool on_standin;
static CUcontext context;

/* y = x w - 1, over two devices that add up parts of it. */
static const char text[] =
    "fusion f {\n  mesh d = [2]\n  x : f32[n, 6]\n  w : f32[6, 6]\n  t = matmul(x, w)\n"
    "  y = t - 1\n  return y\n"
    "  schedule { x, w, t, y on d; x.outer_split(1, 2); x[1] = mesh.x; "
    "w.outer_split(0, 2); w[0] = mesh.x }\n}\n";
static const char alone[] =
    "fusion f { x : f32[n, 6]; w : f32[6, 6]; y = matmul(x, w) - 1; return y }";

static void must(CUresult r) { check(r == CUDA_SUCCESS); }

static bool open_driver(void) {
  CUdevice gpu;
  if (cuda_vendor_load(&cu) != STATUS_OK) return false;
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  on_standin = driver && dlsym(driver, "standin_submit");
  must(cu->cuDeviceGet(&gpu, 0));
  must(cu->cuDevicePrimaryCtxRetain(&context, gpu));
  must(cu->cuCtxSetCurrent(context));
  return true;
}

/* ---- what goes wrong ---- */
/* Something that is under way when the next run begins, and takes the context with it. */
static void poison(void) {
  static const char ptx[] =
      ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry bad() {\n"
      "  .reg .b64 %rd<2>;\n  .reg .b32 %r<2>;\n  mov.u64 %rd1, 64;\n  mov.u32 %r1, 1;\n"
      "  st.global.u32 [%rd1], %r1;\n  ret;\n}\n";
  CUmodule m = NULL;
  CUfunction f = NULL;
  if (on_standin) {
    check(setenv("WEIR_STANDIN_FAIL", "kernel:1", 1) == 0);
    return;
  }
  must(cu->cuModuleLoadData(&m, ptx));
  must(cu->cuModuleGetFunction(&f, m, "bad"));
  must(cu->cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}

static CUdeviceptr blocks[MOST_BLOCKS];
static int n_blocks;

static void fill_memory(void) {
  if (on_standin) {
    check(setenv("WEIR_STANDIN_FAIL", "cuMemAlloc:1+", 1) == 0);
    return;
  }
  for (size_t bytes = (size_t)4 << 30; bytes >= (size_t)2 << 20; bytes /= 2)
    while (n_blocks < MOST_BLOCKS && cu->cuMemAlloc(&blocks[n_blocks], bytes) == CUDA_SUCCESS)
      n_blocks++;
}

static void free_memory(void) {
  if (on_standin) check(unsetenv("WEIR_STANDIN_FAIL") == 0);
  while (n_blocks > 0) must(cu->cuMemFree(blocks[--n_blocks]));
}

/* ---- programs ---- */
static const weir_world *world; /* NULL: this process alone */
static const char *comm = "auto";

static weir_program *compile(const char *program, const char *device) {
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_options *o = NULL;
  weir_program *p = NULL;
  bool ok = weir_options_create(&o) == WEIR_OK &&
            weir_options_set(o, "device", device) == WEIR_OK &&
            weir_options_set(o, "comm", strcmp(device, "cuda") == 0 ? comm : "auto") == WEIR_OK &&
            weir_options_set(o, "timeout", "60") == WEIR_OK &&
            (!world || weir_options_set_world(o, world) == WEIR_OK) &&
            weir_module_parse("f.weir", program, strlen(program), NULL, &m) == WEIR_OK &&
            weir_module_find(m, NULL, &f) == WEIR_OK && weir_compile(f, o, NULL, &p) == WEIR_OK;
  weir_options_destroy(o);
  weir_module_destroy(m);
  return ok ? p : NULL;
}

static weir_dl_tensor tensor(void *data, int64_t *shape) {
  return (weir_dl_tensor){.data = data,
                          .device = {1, 0},
                          .ndim = 2,
                          .dtype = weir_dtype_to_dl(WEIR_F32),
                          .shape = shape};
}

/* A run is right, or fails. `seconds`: how long that took. */
static weir_status run(const weir_program *p, int64_t rows, double *seconds) {
  float *x = calloc((size_t)rows * COLUMNS, sizeof *x),
        *y = calloc((size_t)rows * COLUMNS, sizeof *y);
  float w[COLUMNS][COLUMNS] = {{0}};
  int64_t tall[] = {rows, COLUMNS}, square[] = {COLUMNS, COLUMNS};
  weir_dl_tensor a = tensor(x, tall), b = tensor(w, square), c = tensor(y, tall);
  const weir_dl_tensor *in[] = {&a, &b}, *out[] = {&c};
  weir_run_args args = {.struct_size = sizeof args, .inputs = in, .n_inputs = 2, .outputs = out};
  args.n_outputs = 1;
  check(x && y);
  for (int64_t i = 0; i < rows * COLUMNS; i++) x[i] = (float)(i % 1000);
  for (int i = 0; i < COLUMNS; i++) w[i][i] = 1;
  int64_t start = rt_clock_ns(), wrong = 0;
  weir_status st = weir_run(p, &args);
  if (seconds) *seconds = (double)(rt_clock_ns() - start) * 1e-9;
  for (int64_t i = 0; st == WEIR_OK && i < rows * COLUMNS; i++) wrong += y[i] != x[i] - 1;
  EXPECT_INT(wrong, 0);
  free(x);
  free(y);
  return st;
}

/* The first line of the last message. */
static const char *first_line(void) {
  static char line[300];
  (void)snprintf(line, sizeof line, "%.*s", (int)strcspn(weir_error(), "\n"), weir_error());
  return line;
}

static void expect_right(const char *program, const char *device) {
  weir_program *p = compile(program, device);
  if (!EXPECT(p != NULL) || !EXPECT_INT(run(p, FEW, NULL), WEIR_OK))
    fprintf(stderr, "%s: %s\n", device, weir_error());
  weir_program_destroy(p);
}

/* Whether a new program runs; says so, or why not. */
static bool try_again(const char *when) {
  weir_program *p = compile(alone, "cuda");
  bool works = p && run(p, FEW, NULL) == WEIR_OK;
  if (!works) EXPECT_CONTAINS(weir_error(), "only a new process can use the GPU again");
  printf("  %s: %s\n", when, works ? "a new program runs" : first_line());
  weir_program_destroy(p);
  return works;
}

/* A run that must fail: before its timeout, and with words. */
static void expect_failure(const weir_program *p, int64_t rows, const char *what, int64_t rank) {
  double seconds = 0;
  weir_status st = run(p, rows, &seconds);
  weir_diagnostic d = {.struct_size = sizeof d};
  EXPECT(st != WEIR_OK && weir_error()[0] != 0);
  EXPECT(seconds < LONGEST_S);
  EXPECT(weir_diagnostic_at(0, &d));
  EXPECT(d.line > 0);
  if (rank >= 0) EXPECT_INT(d.rank, rank);
  printf("%s after %.2f s, rank %d, line %d: %s\n", what, seconds, (int)d.rank, (int)d.line,
         first_line());
}

/* ---- one process ---- */
static void test_memory(void) {
  weir_program *p = compile(text, "cuda");
  if (!EXPECT(p != NULL)) return;
  EXPECT_INT(run(p, FEW, NULL), WEIR_OK);
  fill_memory();
  expect_failure(p, MANY, "out of memory", -1);
  free_memory();
  EXPECT_INT(run(p, FEW, NULL), WEIR_OK);
  EXPECT_INT(run(p, MANY, NULL), WEIR_OK);
  weir_program_destroy(p);
}

/* Memory, streams and modules of the test go with the context: CUDA may give a fresh one when
 * nobody holds it. */
static void test_lost(void) {
  weir_program *p = compile(text, "cuda");
  CUresult (*reset)(CUdevice) = NULL;
  void *found = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuDevicePrimaryCtxReset_v2");
  if (!EXPECT(p != NULL)) return;
  EXPECT_INT(run(p, FEW, NULL), WEIR_OK);
  poison();
  expect_failure(p, FEW, "context lost", -1);
  EXPECT(run(p, FEW, NULL) != WEIR_OK);
  weir_program_destroy(p);
  expect_right(text, "cpu");
  if (try_again("while the caller holds the context")) return;
  (void)cu->cuCtxSetCurrent(NULL);
  (void)cu->cuDevicePrimaryCtxRelease(0);
  if (try_again("after the caller has released it") || !found) return;
  memcpy(&reset, &found, sizeof found);
  printf("  cuDevicePrimaryCtxReset: %d\n", (int)reset(0));
  (void)try_again("after a reset");
}

/* CUDA is not for processes that are forked after it was opened. */
static void in_process(void (*test)(void)) {
  int state;
  (void)fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    (void)alarm(240);
    if (!open_driver()) {
      printf("skipped: %s\n", status_message());
      _exit(0);
    }
    test();
    (void)fflush(stdout);
    _exit(test_finish());
  }
  (void)waitpid(child, &state, 0);
  EXPECT(WIFEXITED(state) && WEXITSTATUS(state) == 0);
}

/* ---- a process per rank ---- */
static int number(const char *name) {
  const char *value = getenv(name);
  return value ? atoi(value) : 0;
}

static weir_world *new_world(void) {
  weir_world *w = NULL;
  if (!EXPECT_INT(weir_world_create(NULL, &w), WEIR_OK)) fprintf(stderr, "%s\n", weir_error());
  world = w;
  return w;
}

/* The last rank takes all memory there is; ranks on its GPU may be the first to miss it. */
static void test_rank_memory(bool is_last) {
  weir_program *p = compile(text, "cuda"), *other = compile(text, "cuda");
  if (!EXPECT(p && other)) return;
  EXPECT_INT(run(p, FEW, NULL), WEIR_OK);
  EXPECT_INT(run(other, FEW, NULL), WEIR_OK);
  if (is_last) fill_memory();
  EXPECT_INT(run(other, FEW, NULL), WEIR_OK); /* nobody goes on before it is full */
  expect_failure(p, MANY, "out of memory", on_standin ? 1 : -1);
  free_memory();
  weir_program_destroy(p);
  EXPECT_INT(run(other, FEW, NULL), WEIR_OK);
  weir_program_destroy(other);
  p = compile(text, "cuda");
  EXPECT_INT(p ? run(p, MANY, NULL) : WEIR_SYSTEM, WEIR_OK);
  weir_program_destroy(p);
}

static void test_rank_lost(bool is_last) {
  weir_program *p = compile(text, "cuda");
  if (!EXPECT(p != NULL)) return;
  EXPECT_INT(run(p, FEW, NULL), WEIR_OK);
  if (is_last) poison();
  expect_failure(p, FEW, "context lost", 1);
  weir_program_destroy(p);
}

static int be_rank(void) {
  bool is_last = number("RANK") == number("WORLD_SIZE") - 1;
  if (!open_driver() || number("WORLD_SIZE") != 2) {
    printf("skipped: there is no GPU, or no launcher with two ranks\n");
    return 0;
  }
  (void)alarm(240);
  weir_world *w = new_world();
  if (!w) return test_finish();
  test_rank_memory(is_last);
  test_rank_lost(is_last);
  weir_world_destroy(w);
  w = new_world(); /* in the same processes */
  if (w) expect_right(text, "cpu");
  weir_world_destroy(w);
  world = NULL;
  for (const char *const *v = (const char *const[]){"RANK", "WORLD_SIZE", NULL}; *v; v++)
    (void)unsetenv(*v);
  if (is_last) (void)try_again("the rank whose context is lost");
  else EXPECT(try_again("the other rank"));
  return test_finish();
}

int main(int argc, char **argv) {
  if (argc > 2) {
    comm = argv[2];
    return be_rank();
  }
  in_process(test_memory);
  in_process(test_lost);
  return test_finish();
}
