/* Generated CUDA kernels against the reference evaluator, without a GPU.
 *
 * The same cases as for the CPU's kernels. They are gone through twice: first to collect the texts,
 * which the C compiler then makes a library of (cuda_emulator.h), then to run them: whole results and
 * windows, with strides of all kinds. Nothing outside a window may change. Where NVRTC is installed,
 * one text of every op and dtype, and every shape of text seen, must compile for a GPU too.
 *
 *   test_cuda_kernels [first seed] [seeds per op and dtype] */
#include "conform/cuda_emulator.h"
#include "conform/kernel_cases.h"
#include "device/cuda/kernel.h"

enum { WINDOWS = 3 };

static bool collecting, met[IR_OP_COUNT][IR_DTYPE_COUNT];
static uint64_t n_windows, n_launches;

/* ---- running ---- */
static status run_task(const rt_plan *plan, const rt_task *task, char *const *bases) {
  const cuda_kernel *k;
  cg_error error = {.raised = 0};
  status_clear();
  TRY(cuda_kernel_prepare(plan, task, &memory, &k));
  n_launches += k->code.n_launches;
  if (collecting) {
    for (uint32_t i = 0; i < k->code.n_launches; i++) emulator_add(&k->code.launches[i]);
    return STATUS_OK;
  }
  char **starts = ARENA_ARRAY(&memory, task->n_operands + 1, char *);
  for (uint32_t i = 0; i <= task->n_operands; i++) {
    const rt_operand *o = i ? &task->operands[i - 1] : NULL;
    if (o && o->kind != RT_OPERAND_VIEW) continue;
    const rt_view *v = &plan->views[o ? o->view : task->result];
    starts[i] = bases[v->buffer] + v->offset_bytes;
  }
  void *scratch = aligned_alloc(CUDA_BUFFER_ALIGN, (k->code.scratch_bytes + 31) & ~(size_t)15);
  check(scratch != NULL);
  if (!emulator_run(&k->code, starts, scratch, &error))
    return fail(STATUS_SYSTEM, "a text that was not collected");
  free(scratch);
  return error.raised ? cuda_kernel_fail(k, &error) : STATUS_OK;
}

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
  if (run_task(&plan, &task, bases) != STATUS_OK) return report(t, w, status_message());
  if (collecting) return true;
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
} job;

static status run_job(void *context) {
  const job *j = context;
  testcase t = {.p = {.dtype = j->dtype}};
  ir_module_init(&t.module, &memory_default);
  if (build(&t, j->code) && evaluate(&t)) {
    met[j->code][j->dtype] = true;
    for (int i = 0; i < WINDOWS; i++, n_windows++) {
      window w = random_window(&t.expected, i == 0);
      (void)EXPECT(run_window(&t, &w));
    }
  }
  ir_module_destroy(&t.module);
  return STATUS_OK;
}

static void run_seed(uint64_t seed, ir_opcode code, ir_dtype dtype) {
  job j = {code, dtype};
  rng_state = (seed << 32) + ((uint64_t)code << 24) + ((uint64_t)dtype << 16);
  unsigned before = test_failed;
  arena_init(&memory, &memory_default);
  (void)EXPECT(memory_guard(run_job, &j) == STATUS_OK);
  arena_destroy(&memory);
  if (test_failed != before)
    fprintf(stderr, "seed %llu, %s, %s\n", (unsigned long long)seed, ir_op_info_of(code)->name,
            ir_dtype_text(dtype));
}

static void run_seeds(uint64_t first, uint64_t seeds) {
  for (uint64_t seed = first; seed < first + seeds; seed++)
    for (int code = 1; code < IR_OP_COUNT; code++)
      for (int t = 1; t < IR_DTYPE_COUNT; t++) run_seed(seed, (ir_opcode)code, (ir_dtype)t);
}

int main(int argc, char **argv) {
  uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
  uint64_t seeds = argc > 2 ? strtoull(argv[2], NULL, 10) : 2;
  collecting = true;
  run_seeds(first, seeds);
  if (!EXPECT(emulator_compile())) return test_finish();
  collecting = false;
  n_windows = n_launches = 0;
  run_seeds(first, seeds);
  printf("%u texts, %llu windows, %llu launches\n", emulator_n, (unsigned long long)n_windows,
         (unsigned long long)n_launches);
  return test_finish();
}
