/* The kernels of GPUs, and the matrix products of their library, against the reference evaluator: the
 * cases of test_kernels.c, each as a plan of one launch.
 *
 *   test_cuda_windows [first seed] [seeds per op and dtype] [windows]
 *
 * Skips where there is no GPU. */
#include <stdlib.h>

#include "conform/kernel_cases.h"
#include "runtime/device.h"

static rt_device *device;
static uint64_t n_windows;

/* ---- a plan of one launch ---- */
/* Bytes of the block that holds all elements of the array. */
static int64_t reach_bytes(const ir_array *a, const char *block) {
  int64_t last = 0, size = (int64_t)ir_dtype_size_bytes(a->dtype);
  for (uint32_t d = 0; d < a->rank; d++) {
    if (a->extents[d] == 0) return size;
    if (a->strides[d] > 0) last += (a->extents[d] - 1) * a->strides[d];
  }
  return ((const char *)a->data - block) + (last + 1) * size;
}

/* The last base is the result's. */
static status run_on_device(const testcase *t, rt_plan *plan, rt_task *task, char *const *bases,
                            int64_t result_bytes) {
  uint32_t n = t->p.n_inputs;
  rt_buffer *buffers = ARENA_ARRAY(&memory, n + (size_t)1, rt_buffer);
  rt_instr launch = {.kind = RT_LAUNCH};
  rt_loaded *loaded = NULL;
  for (uint32_t i = 0; i <= n; i++) {
    buffers[i] = (rt_buffer){.kind = i < n ? RT_BUFFER_INPUT : RT_BUFFER_OUTPUT, .name = "t"};
    buffers[i].slot = i < n ? i : 0;
    buffers[i].size_bytes = i < n ? reach_bytes(&t->inputs[i], t->blocks[i]) : result_bytes;
  }
  plan->buffers = buffers;
  plan->n_buffers = n + 1;
  plan->n_inputs = n;
  plan->n_outputs = plan->n_streams = plan->n_instrs = plan->n_tasks = 1;
  plan->instrs = &launch;
  plan->tasks = task;
  status_clear();
  TRY(device->ops->load(device, plan, &loaded));
  void *inputs[MAX_INPUTS], *outputs[] = {bases[n]};
  for (uint32_t i = 0; i < n; i++) inputs[i] = bases[i];
  status st = rt_run(loaded, inputs, outputs, NULL, NULL);
  device->ops->unload(loaded);
  return st;
}

/* ---- running and comparing ---- */
static bool report(const testcase *t, const window *w, const char *what) {
  fprintf(stderr, "%s\n%swindow%s at [", what, t->text, w->windowed ? "" : " (whole)");
  for (uint32_t d = 0; d < t->expected.rank; d++)
    fprintf(stderr, " %lld+%lld", (long long)w->offset[d], (long long)w->extents[d]);
  fprintf(stderr, " ]\n");
  return false;
}

static bool run_window(const testcase *t, const window *w) {
  ir_array target = t->expected, values = t->expected;
  int64_t size_bytes, dense_bytes;
  rt_plan plan = {.n_views = 0};
  char *block = lay_out(&target, false, &size_bytes), *bases[MAX_INPUTS + 1];
  memset(block, PATTERN, (size_t)size_bytes);
  for (uint32_t i = 0; i < t->p.n_inputs; i++) bases[i] = t->blocks[i];
  bases[t->p.n_inputs] = block;
  ir_array part = window_of(&target, w);
  rt_view result = view_of(&part, t->p.n_inputs, block);
  rt_task task = task_of(t, w, &result, &plan);
  if (run_on_device(t, &plan, &task, bases, size_bytes) != STATUS_OK)
    return report(t, w, status_message());
  check(ir_array_size_bytes(&values, &dense_bytes));
  values.data = arena_copy(&memory, t->expected.data, (size_t)dense_bytes);
  ir_array taken = window_of(&values, w);
  if (!take_window(&part, &taken, block, size_bytes)) return report(t, w, "wrote outside");
  rt_comparison r = rt_compare(&values, &t->expected, t->least);
  if (r.ok && (r.max_abs == 0 || !is_exact(t->op->code))) return true;
  fprintf(stderr, "max_abs %g max_rel %g tolerance %g\n", r.max_abs, r.max_rel, r.tolerance);
  return report(t, w, "differs");
}

typedef struct job {
  ir_opcode code;
  ir_dtype dtype;
  uint32_t windows;
} job;

static status run_job(void *context) {
  const job *j = context;
  testcase t = {.p = {.dtype = j->dtype}};
  ir_module_init(&t.module, &memory_default);
  if (build(&t, j->code) && evaluate(&t)) {
    for (uint32_t i = 0; i < j->windows; i++, n_windows++) {
      window w = random_window(&t.expected, i == 0);
      (void)EXPECT(run_window(&t, &w));
    }
  }
  ir_module_destroy(&t.module);
  return STATUS_OK;
}

static void run_seed(uint64_t seed, job j) {
  rng_state = (seed << 32) + ((uint64_t)j.code << 24) + ((uint64_t)j.dtype << 16);
  unsigned before = test_failed;
  arena_init(&memory, &memory_default);
  (void)EXPECT(memory_guard(run_job, &j) == STATUS_OK);
  arena_destroy(&memory);
  if (test_failed != before)
    fprintf(stderr, "seed %llu, %s, %s\n", (unsigned long long)seed, ir_op_info_of(j.code)->name,
            ir_dtype_text(j.dtype));
}

int main(int argc, char **argv) {
  uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
  uint64_t seeds = argc > 2 ? strtoull(argv[2], NULL, 10) : 2;
  uint32_t windows = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 3;
  status st = rt_device_cuda.open(&(rt_device_options){0}, &memory_default, &device);
  if (st != STATUS_OK) {
    EXPECT_INT(st, STATUS_UNAVAILABLE);
    printf("skipped: %s\n", status_message());
    return test_finish();
  }
  for (uint64_t seed = first; seed < first + seeds; seed++)
    for (int code = 1; code < IR_OP_COUNT; code++)
      for (int t = 1; t < IR_DTYPE_COUNT; t++)
        run_seed(seed, (job){(ir_opcode)code, (ir_dtype)t, windows});
  device->ops->close(device);
  printf("%llu windows\n", (unsigned long long)n_windows);
  return test_finish();
}
