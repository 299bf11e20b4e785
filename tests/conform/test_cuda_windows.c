/* The kernels of GPUs, and the matrix products of their library, against the reference evaluator: the
 * cases of test_kernels.c, each as a plan of one launch, then a quarter of the large ones and as many
 * random ones.
 *
 *   test_cuda_windows [first seed] [seeds per op and dtype] [windows] [random large cases]
 *
 * Skips where there is no GPU. */
#include <stdlib.h>

#include "conform/kernel_large.h"
#include "runtime/device.h"

static rt_device *device;

/* ---- a plan of one launch ---- */

static int64_t reach_bytes(const rt_view *v) {
  int64_t last = 0, size = (int64_t)ir_dtype_size_bytes(v->dtype);
  for (uint32_t d = 0; d < v->rank; d++) {
    if (v->extents[d] == 0) return size;
    if (v->strides[d] > 0) last += (v->extents[d] - 1) * v->strides[d];
  }
  return v->offset_bytes + (last + 1) * size;
}

/* Which result is in the buffer; UINT32_MAX: none. */
static uint32_t result_in(const rt_plan *from, const rt_task *task, uint32_t buffer) {
  for (uint32_t k = 0; k < rt_task_n_results(task); k++)
    if (from->views[rt_task_result(task, k)].buffer == buffer) return k;
  return UINT32_MAX;
}

/* Buffers as far as views of them go; the first result's may be larger. */
static uint32_t make_buffers(const rt_plan *from, const rt_task *task, rt_buffer *buffers) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < from->n_views; i++) {
    const rt_view *v = &from->views[i];
    rt_buffer *b = &buffers[v->buffer];
    int64_t bytes = reach_bytes(v);
    uint32_t result = result_in(from, task, v->buffer);
    if (result == 0 && result_bytes > bytes) bytes = result_bytes;
    b->kind = result != UINT32_MAX ? RT_BUFFER_OUTPUT : RT_BUFFER_INPUT;
    b->slot = result != UINT32_MAX ? result : v->buffer;
    b->name = "t";
    if (bytes > b->size_bytes) b->size_bytes = bytes;
    if (v->buffer >= n) n = v->buffer + 1;
  }
  return n;
}

static status run_task(const rt_plan *from, const rt_task *task, char *const *bases) {
  rt_buffer buffers[MAX_BUFFERS] = {0};
  void *inputs[MAX_BUFFERS] = {0}, *outputs[IR_MAX_RESULTS] = {0};
  for (uint32_t k = 0; k < rt_task_n_results(task); k++)
    outputs[k] = bases[from->views[rt_task_result(task, k)].buffer];
  rt_instr launch = {.kind = RT_LAUNCH};
  rt_task copy = *task;
  rt_plan plan = *from;
  rt_loaded *loaded = NULL;
  plan.n_buffers = make_buffers(from, task, buffers);
  plan.buffers = buffers;
  plan.n_inputs = plan.n_buffers;
  plan.n_streams = plan.n_instrs = plan.n_tasks = 1;
  plan.n_outputs = rt_task_n_results(task);
  plan.instrs = &launch;
  plan.tasks = &copy;
  for (uint32_t i = 0; i < plan.n_buffers; i++) inputs[i] = bases[i];
  status_clear();
  TRY(device->ops->load(device, &plan, &loaded));
  status st = rt_run(loaded, inputs, outputs, NULL, NULL);
  device->ops->unload(loaded);
  return st;
}

/* ---- jobs ---- */

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
  uint64_t drawn = argc > 4 ? strtoull(argv[4], NULL, 10) : 40;
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
  run_seed(4, (job){IR_OP_VAR_MEAN, IR_BF16, 2}); /* the sum of squares overflows */
  run_listed(first, first % 4, 4);
  run_drawn(first, drawn);
  expect_errors();
  expect_rounding();
  device->ops->close(device);
  printf("%llu windows\n", (unsigned long long)n_windows);
  return test_finish();
}
