/* Generated CUDA kernels against the reference evaluator, without a GPU.
 *
 * The same cases as for the CPU's kernels, and some large enough for every form that a kernel takes.
 * They are gone through twice: first to collect the texts, which the C compiler then makes libraries of
 * (cuda_emulator.h), then to run them: whole results and windows, with strides of all kinds. Nothing
 * outside a window may change. Where NVRTC is installed, every text must compile for a GPU too.
 *
 *   test_cuda_kernels [first seed] [seeds per op and dtype] [random large cases] */
#include <sys/mman.h>

#include "conform/cuda_emulator.h"
#include "conform/cuda_nvrtc.h"
#include "conform/cuda_texts.h"
#include "conform/kernel_across.h"
#include "conform/kernel_large.h"
#include "conform/kernel_samples.h"
#include "conform/kernel_seeds.h"

enum { WINDOWS = 2 };

static bool met[IR_OP_COUNT][IR_DTYPE_COUNT];
static uint64_t n_launches;

/* ---- running ---- */
static status run_task(const rt_plan *plan, const rt_task *task, char *const *bases) {
  const cuda_kernel *k;
  cg_error error = {.raised = 0};
  status_clear();
  const rt_view *y = &plan->views[task->result];
  bool is_small = y->rank > 0 && y->extents[0] % 2;
  TRY(cuda_kernel_prepare(plan, task, is_small ? CG_A10 : CG_H100, &memory, &k));
  n_launches += k->code.n_launches;
  if (dry_run) {
    for (uint32_t i = 0; i < k->code.n_launches; i++) emulator_add(&k->code.launches[i]);
    return STATUS_OK;
  }
  char **starts = ARENA_ARRAY(&memory, task->n_operands + rt_task_n_results(task), char *);
  for (uint32_t i = 0; i < task->n_operands; i++) {
    if (task->operands[i].kind != RT_OPERAND_VIEW) continue;
    const rt_view *v = &plan->views[task->operands[i].view];
    starts[i + 1] = bases[v->buffer] + v->offset_bytes;
  }
  for (uint32_t i = 0; i < rt_task_n_results(task); i++) {
    const rt_view *v = &plan->views[rt_task_result(task, i)];
    starts[i ? task->n_operands + i : 0] = bases[v->buffer] + v->offset_bytes;
  }
  void *scratch = aligned_alloc(CUDA_BUFFER_ALIGN, (k->code.scratch_bytes + 31) & ~(size_t)15);
  check(scratch != NULL);
  emulator_seed = plan->seed ? *plan->seed : 0;
  if (!emulator_run(&k->code, starts, scratch, &error))
    return fail(STATUS_SYSTEM, "a text that was not collected");
  free(scratch);
  return error.raised ? cuda_kernel_fail(k, 0, &error) : STATUS_OK;
}

static void run_case(testcase *t, ir_opcode code) {
  if (!build(t, code) || !evaluate(t)) return;
  met[code][t->p.dtype] = true;
  for (int i = 0; i < WINDOWS; i++, n_windows++) {
    window w = random_window(&t->expected, i == 0);
    (void)EXPECT(run_window(t, &w));
  }
}

/* ---- positions of 64 bits ---- */
/* Three bytes that lie 3 GiB apart, as a copy and as a sum. */
static status run_far(void *context) {
  const int64_t gap = INT64_C(3) << 30, size = 3 * gap, three = 3, one = 1;
  int64_t sum = 0;
  FILE *holes = tmpfile();
  (void)context;
  if (!holes || ftruncate(fileno(holes), size) != 0) return STATUS_OK; /* not on this machine */
  char *far = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(holes), 0);
  if (far == MAP_FAILED) return STATUS_OK;
  _Alignas(16) char near[16] = {0}, total[16] = {0};
  char *bases[] = {far, near, total};
  rt_view views[] = {
      {.buffer = 0, .dtype = IR_I8, .rank = 1, .extents = &three, .strides = &gap},
      {.buffer = 1, .dtype = IR_I8, .rank = 1, .extents = &three, .strides = &one},
      {.buffer = 2, .dtype = IR_I64, .rank = 0, .extents = &one, .strides = &one},
  };
  rt_operand from = {.kind = RT_OPERAND_VIEW, .view = 0};
  rt_attr attrs[2] = {{.given = false}, {.given = false}};
  rt_plan plan = {.views = views, .n_views = 3};
  rt_task copy = {.code = IR_OP_SET, .result = 1, .n_operands = 1, .operands = &from};
  rt_task fold = {
      .code = IR_OP_SUM, .result = 2, .n_operands = 1, .operands = &from, .attrs = attrs};
  for (int i = 0; i < 3; i++) far[i * gap] = (char)(i + 5);
  TRY(run_task(&plan, &copy, bases));
  TRY(run_task(&plan, &fold, bases));
  memcpy(&sum, total, sizeof sum);
  if (!dry_run) (void)EXPECT(near[0] == 5 && near[1] == 6 && near[2] == 7 && sum == 18);
  (void)munmap(far, (size_t)size);
  (void)fclose(holes);
  return STATUS_OK;
}

/* ---- rounding once ---- */
/* Wide numbers a little beside the middle of two narrow ones: rounded through f32 they would be in it.
 * `from` is f64 or i64. */
static void fill_beside(ir_dtype from, ir_dtype narrow, int64_t n, void *to) {
  int64_t top = narrow == IR_F16 ? 1 << 10 : 1 << 7; /* the first of the narrow type's bits */
  for (int64_t i = 0; i < n; i++) {
    double sign = i & 1 ? -1 : 1;
    int zeros = from == IR_I64 && narrow == IR_BF16 ? 52 : 30; /* more bits than f64 has, too */
    int64_t middle = ((top | i / 3 % top) << 1 | 1) << zeros, beside = middle + i % 3 - 1;
    if (from == IR_I64) ((int64_t *)to)[i] = (int64_t)sign * beside;
    else ((double *)to)[i] = sign * ldexp((double)beside, (int)(i % 7) - 40);
  }
}

static status run_once(ir_dtype from, ir_dtype narrow) {
  enum { N = 3 * 2048 };
  int64_t n = N, one = 1, wrong = 0;
  void *x = ARENA_ARRAY(&memory, N, int64_t);
  uint16_t *y = ARENA_ARRAY(&memory, N, uint16_t);
  char *bases[] = {(char *)y, x};
  rt_view views[2] = {{.buffer = 0, .dtype = narrow, .rank = 1, .extents = &n, .strides = &one}};
  views[1] = views[0];
  views[1].buffer = 1;
  views[1].dtype = from;
  rt_operand operand = {.kind = RT_OPERAND_VIEW, .view = 1};
  rt_attr attrs[1] = {{.given = true, .i = narrow}};
  rt_plan plan = {.views = views, .n_views = 2};
  rt_task task = {.code = IR_OP_CAST, .n_operands = 1, .operands = &operand, .attrs = attrs};
  fill_beside(from, narrow, n, x);
  TRY(run_task(&plan, &task, bases));
  for (int64_t i = 0; i < n && !dry_run; i++) {
    uint16_t want = 0;
    if (from == IR_I64) ir_element_set_i64(narrow, &want, ((int64_t *)x)[i]);
    else ir_element_set_f64(narrow, &want, ((double *)x)[i]);
    wrong += y[i] != want;
  }
  (void)EXPECT_INT(wrong, 0);
  return STATUS_OK;
}

static status run_roundings(void *context) {
  (void)context;
  TRY(run_once(IR_F64, IR_BF16));
  TRY(run_once(IR_F64, IR_F16));
  TRY(run_once(IR_I64, IR_BF16));
  return run_once(IR_I64, IR_F16);
}

/* ---- a chain of steps: gelu(x + bias), each rounded to bf16 ---- */
static double rounded(double x) {
  uint16_t h = ir_bf16_from_f64(x);
  return (double)ir_f32_from_bf16(h);
}

static status run_chain(void *context) {
  enum { ROWS = 5, COLUMNS = 48 };
  uint16_t *y = ARENA_ARRAY(&memory, ROWS * COLUMNS, uint16_t);
  uint16_t *x = ARENA_ARRAY(&memory, ROWS * COLUMNS, uint16_t);
  uint16_t *bias = ARENA_ARRAY(&memory, COLUMNS, uint16_t);
  char *starts[] = {(char *)y, (char *)x, (char *)bias};
  cg_kernel k;
  (void)context;
  cg_kernel_init(&k, &memory, CG_H100);
  sample_write(&k, "bias_gelu", ROWS, COLUMNS);
  for (uint32_t i = 0; i < k.n_launches; i++) emulator_add(&k.launches[i]);
  if (dry_run) return STATUS_OK;
  for (int i = 0; i < ROWS * COLUMNS; i++) x[i] = ir_bf16_from_f64((i - 120) * 0.04);
  for (int i = 0; i < COLUMNS; i++) bias[i] = ir_bf16_from_f64(i * 0.01 - 0.2);
  check(emulator_run(&k, starts, NULL, NULL));
  for (int i = 0; i < ROWS * COLUMNS; i++) {
    double b = (double)ir_f32_from_bf16(bias[i % COLUMNS]);
    double s = rounded((double)ir_f32_from_bf16(x[i]) + b), want = s / 2 * erfc(-s / sqrt(2));
    double got = (double)ir_f32_from_bf16(y[i]);
    (void)EXPECT(fabs(got - want) <= fabs(want) * 0x1p-8);
  }
  return STATUS_OK;
}

/* ---- variances far from zero ---- */
/* Elements around `center`, whose distances from each other are lost in their squares. If it is negative,
 * the first one is far from the others. */
static double beside(ir_dtype t, int64_t i, double center) {
  uint64_t bits = (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u;
  double d = ((double)(bits >> 40) * 0x1p-22 - 2) * (t == IR_BF16 ? 8 : 1);
  double x = (i == 0 ? center : fabs(center)) + d;
  if (t == IR_F64) return x;
  return t == IR_BF16 ? rounded(x) : (double)(float)x;
}

/* Of [rows, columns], along one of them. */
static void run_variance(ir_dtype t, bool down, int64_t rows, int64_t columns, double center) {
  int64_t n = down ? rows : columns, results = down ? columns : rows;
  size_t size = ir_dtype_size_bytes(t);
  char *x = ARENA_ARRAY(&memory, (size_t)(rows * columns) * 8, char);
  double *y = ARENA_ARRAY(&memory, (size_t)results, double);
  char *starts[] = {(char *)y, x};
  cg_kernel k;
  cg_reduce r = {.code = IR_OP_VAR, .n_kept = 1, .n_reduced = 1, .divisor = (double)n};
  r.result = (cg_view){.dtype = t, .align = CG_ALIGN, .strides = {1}};
  r.x = (cg_view){.start = 1, .dtype = t, .align = CG_ALIGN};
  r.extents[0] = results, r.extents[1] = n;
  r.x.strides[0] = down ? 1 : columns, r.x.strides[1] = down ? columns : 1;
  cg_kernel_init(&k, &memory, CG_H100);
  cg_write_reduce(&k, &r);
  for (uint32_t i = 0; i < k.n_launches; i++) emulator_add(&k.launches[i]);
  if (dry_run) return;
  void *scratch = arena_alloc(&memory, k.scratch_bytes + CG_ALIGN);
  for (int64_t i = 0; i < results * n; i++)
    ir_element_set_f64(t, x + (size_t)i * size,
                       beside(t, down ? i / columns : i % columns, center));
  check(emulator_run(&k, starts, scratch, NULL));
  long double mean = 0, want = 0;
  for (int64_t i = 0; i < n; i++) mean += (long double)beside(t, i, center) / (long double)n;
  for (int64_t i = 0; i < n; i++) {
    long double d = (long double)beside(t, i, center) - mean;
    want += d * d / (long double)n;
  }
  double most = t == IR_F64 ? 1e-14 : t == IR_F32 ? 0x1p-23 : 0x1p-8, worst = 0;
  for (int64_t i = 0; i < results; i++) {
    double got = ir_element_as_f64(t, (char *)y + (size_t)i * size);
    double error = fabs(got / (double)want - 1);
    if (!(error <= worst)) worst = error;
  }
  if (!EXPECT(worst <= most))
    fprintf(stderr, "a variance of %s around %g is wrong by %g\n", ir_dtype_text(t), center, worst);
}

static status run_variances(void *context) {
  static const struct {
    ir_dtype dtype;
    double center;
  } kinds[] = {{IR_F64, 1e6},  {IR_F32, 1e6},  {IR_BF16, 1e3},
               {IR_F64, -1e6}, {IR_F32, -1e4}, {IR_BF16, -1e2}};
  (void)context;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    run_variance(kinds[i].dtype, false, 3, 3000, kinds[i].center);
    run_variance(kinds[i].dtype, false, 2, 20001, kinds[i].center);
    run_variance(kinds[i].dtype, true, 3000, 12, kinds[i].center);
    run_variance(kinds[i].dtype, true, 20001, 40, kinds[i].center);
  }
  return STATUS_OK;
}

static void run_guarded(status (*fn)(void *)) {
  arena_init(&memory, &memory_default);
  (void)EXPECT(memory_guard(fn, NULL) == STATUS_OK);
  arena_destroy(&memory);
}

/* ---- all of it ---- */
static void run_all(uint64_t first, uint64_t seeds, uint64_t drawn) {
  n_windows = n_launches = 0;
  run_seeds(first, seeds);
  if (seeds > 0) run_listed(0, 0, 1);
  if (seeds > 0) run_listed(first, first % 2, 2); /* other strides */
  run_drawn(first, drawn);
  expect_errors();
  expect_rounding();
  run_guarded(run_far);
  run_guarded(run_roundings);
  run_guarded(run_chain);
  run_guarded(run_variances);
  run_guarded(run_across);
  run_guarded(run_scans);
}

static void expect_coverage(void) {
  for (int code = 1; code < IR_OP_COUNT; code++)
    if (!EXPECT(met[code][IR_F32] || met[code][IR_I32]))
      fprintf(stderr, "%s was not met\n", ir_op_info_of((ir_opcode)code)->name);
}

int main(int argc, char **argv) {
  uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
  uint64_t seeds = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  uint64_t drawn = argc > 3 ? strtoull(argv[3], NULL, 10) : 12;
  dry_run = true;
  run_all(first, seeds, drawn);
  if (!EXPECT(emulator_compile())) return test_finish();
  dry_run = false;
  run_all(first, seeds, drawn);
  if (seeds > 0) expect_coverage();
  compile_texts();
  printf("%u texts, %llu windows, %llu launches\n", emulator_n, (unsigned long long)n_windows,
         (unsigned long long)n_launches);
  return test_finish();
}
