/* Bodies as CUDA kernels against the reference evaluator, without a GPU.
 *
 * Listed fusions that reach every form, and random ones: each is computed as one task with a body, and
 * step by step. Both must agree with the reference; where the body is elementwise, with each other bit by
 * bit. As in test_cuda_kernels, the texts are collected first, compiled by the C compiler, then run; where
 * NVRTC is installed, every text must compile for a GPU too.
 *
 *   test_cuda_bodies [first seed] [random bodies]
 *   test_cuda_bodies --device [first seed] [random bodies] [elements]
 *       on a GPU, or a stand-in for one, as plans of one launch; skips where there is neither
 *   test_cuda_bodies --text 'fusion f { … }'     the kernels of a body, as text */
#include "conform/body_kit.h"
#include "conform/cuda_emulator.h"
#include "conform/cuda_nvrtc.h"
#include "conform/cuda_texts.h"
#include "device/cuda/kernel_body.h"
#include "fuzz/gen.h"
#include "runtime/device.h"
#include "session/judge.h"
#include "test.h"

static bool dry_run;           /* collects texts */
static rt_device *device;      /* NULL: the texts are run on the CPU */
static int64_t elements = 600; /* of tensors of random bodies, at most */
static uint64_t n_bodies, n_whole, n_launches;

/* ---- listed bodies ---- */
static const char *const listed[] = {
#include "fuzz/bodies.inc"
};
static const char *const apart[] = {
#include "fuzz/bodies_apart.inc"
};
enum { ANY, WHOLE, APART }; /* what is expected of a body */

/* ---- running ---- */
static void fill(body_case *c, const gen_program *p, uint64_t seed) {
  for (uint32_t i = 0; i < c->f->inputs.len; i++) {
    const char *name = ir_tensor_name(c->f, c->f->inputs.data[i]);
    const gen_value *v = p ? &p->inputs[i] : NULL;
    bool is_index = v ? v->fill == GEN_FILL_INDEX : name[0] == 'i';
    int64_t bound = v ? v->index_bound : 3;
    if (is_index) check(data_fill_index(&c->inputs[i], bound, seed, name) == STATUS_OK);
    else
      data_fill(&c->inputs[i], v && v->fill == GEN_FILL_INTEGER ? DATA_FILL_INT : DATA_FILL_NORMAL,
                seed, name);
    int64_t n;
    check(ir_array_count(&c->inputs[i], &n));
    for (int64_t k = 0; v && v->fill == GEN_FILL_POSITIVE && k < n; k++) {
      char *at = (char *)c->inputs[i].data + (size_t)k * ir_dtype_size_bytes(c->inputs[i].dtype);
      ir_element_set_f64(c->inputs[i].dtype, at,
                         0.25 + (double)((k * 37 + (int64_t)seed) % 64) / 16);
    }
  }
}

/* The outputs of a kernel, in arrays of their own. */
static status run_kernel(const body_case *c, const cuda_kernel *k, ir_array *outputs) {
  uint32_t n = c->f->inputs.len, m = c->f->outputs.len;
  char *starts[BODY_MAX + 2];
  cg_error *errors = ARENA_ARRAY(c->memory, k->n_indexed + (size_t)1, cg_error);
  for (uint32_t i = 0; i < n; i++) starts[i + 1] = c->inputs[i].data;
  for (uint32_t r = 0; r < m; r++) {
    int64_t size_bytes;
    outputs[r] = c->expected[r];
    check(ir_array_size_bytes(&outputs[r], &size_bytes));
    outputs[r].data = arena_alloc(c->memory, (size_t)size_bytes + 16);
    memset(outputs[r].data, 0xa5, (size_t)size_bytes);
    starts[cuda_start_of_result(&c->task, r)] = outputs[r].data;
  }
  void *scratch = arena_alloc(c->memory, k->code.scratch_bytes + 16);
  memset(scratch, 0x5a, k->code.scratch_bytes);
  emulator_seed = *c->plan.seed;
  if (!emulator_run(&k->code, starts, scratch, errors))
    return fail(STATUS_SYSTEM, "a text that was not collected");
  for (uint32_t i = 0; i < k->n_indexed; i++)
    if (errors[i].raised) return cuda_kernel_fail(k, i, &errors[i]);
  return STATUS_OK;
}

/* Is output r as near to the reference as its own spread allows? A tolerance is too strict where rounding is
 * amplified: log(erf(x)) of f32 differs by more between two libraries where erf(x) is nearly 1. */
static bool is_within_spread(const body_case *c, const ir_array *outputs, uint32_t r) {
  ref_options options = {.seed = BODY_SEED, .threads = 1, .memory = &memory_default};
  data_verdict verdicts[BODY_MAX];
  session_judgement by = {.verdicts = verdicts};
  return session_judge(&c->env, c->inputs, outputs, &options, &by) == STATUS_OK &&
         verdicts[r].n_wrong == 0;
}

static bool agrees(const body_case *c, const ir_array *outputs, const char *text, const char *how) {
  for (uint32_t r = 0; r < c->f->outputs.len; r++) {
    data_comparison x = data_compare(&outputs[r], &c->expected[r], c->least[r]);
    if (x.ok || is_within_spread(c, outputs, r)) continue;
    fprintf(stderr, "%s, output %u: max_rel %g, tolerance %g\n%s\n", how, r, x.max_rel, x.tolerance,
            text);
    return false;
  }
  return true;
}

static bool same_bits(const body_case *c, const ir_array *a, const ir_array *b, const char *text) {
  for (uint32_t r = 0; r < c->f->outputs.len; r++) {
    int64_t size_bytes;
    check(ir_array_size_bytes(&a[r], &size_bytes));
    if (memcmp(a[r].data, b[r].data, (size_t)size_bytes) == 0) continue;
    fprintf(stderr, "output %u is not what its steps give\n%s\n", r, text);
    return false;
  }
  return true;
}

static bool is_elementwise(const rt_body *b) {
  for (uint32_t i = 0; i < b->n_steps; i++) {
    ir_family family = ir_op_info_of(b->steps[i].code)->family;
    if (family == IR_FAMILY_REDUCE || family == IR_FAMILY_MOMENT || family == IR_FAMILY_SOFTMAX ||
        family == IR_FAMILY_NORM)
      return false;
  }
  return true;
}

static status run_body(body_case *c, const char *text, int expected) {
  const cuda_kernel *whole;
  cuda_kernel steps = {.name = "steps"};
  ir_array outputs[BODY_MAX], by_steps[BODY_MAX];
  body_make_task(c);
  cg_gpu gpu = *CG_H100;
  if (n_bodies % 4 == 3) gpu.shared_bytes = 48 << 10; /* of small GPUs */
  TRY(cuda_kernel_prepare(&c->plan, &c->task, &gpu, c->memory, &whole));
  cg_kernel_init(&steps.code, c->memory, &gpu);
  TRY(cuda_prepare_steps(&c->plan, &c->task, false, c->memory, &steps));
  n_bodies++;
  if (expected != ANY) (void)EXPECT_INT(whole->n_parts == 0 ? WHOLE : APART, expected);
  n_whole += whole->n_parts == 0;
  n_launches += whole->code.n_launches;
  for (uint32_t i = 0; i < whole->code.n_launches; i++) emulator_add(&whole->code.launches[i]);
  for (uint32_t i = 0; i < steps.code.n_launches; i++) emulator_add(&steps.code.launches[i]);
  if (dry_run) return STATUS_OK;
  TRY(run_kernel(c, whole, outputs));
  TRY(run_kernel(c, &steps, by_steps));
  (void)EXPECT(agrees(c, by_steps, text, "step by step"));
  (void)EXPECT(agrees(c, outputs, text, "as one"));
  if (is_elementwise(c->task.body)) (void)EXPECT(same_bits(c, outputs, by_steps, text));
  return STATUS_OK;
}

/* ---- on a device ---- */
static void make_buffer(rt_buffer *b, const ir_array *a, rt_buffer_kind kind, uint32_t slot) {
  int64_t size_bytes;
  check(ir_array_size_bytes(a, &size_bytes));
  *b = (rt_buffer){.kind = kind, .slot = slot, .size_bytes = size_bytes, .name = "t"};
}

/* A plan of one launch. */
static status run_device(body_case *c, const char *text) {
  uint32_t n = c->f->inputs.len, m = c->f->outputs.len;
  rt_instr launch = {.kind = RT_LAUNCH};
  rt_loaded *loaded = NULL;
  void *inputs[BODY_MAX], *outputs[BODY_MAX];
  ir_array results[BODY_MAX];
  body_make_task(c);
  rt_plan plan = c->plan;
  plan.buffers = ARENA_ARRAY(c->memory, n + (size_t)m, rt_buffer);
  for (uint32_t i = 0; i < n; i++) {
    make_buffer(&plan.buffers[i], &c->inputs[i], RT_BUFFER_INPUT, i);
    inputs[i] = c->inputs[i].data;
  }
  for (uint32_t r = 0; r < m; r++) {
    make_buffer(&plan.buffers[n + r], &c->expected[r], RT_BUFFER_OUTPUT, r);
    results[r] = body_array(c, c->f->outputs.data[r]);
    outputs[r] = results[r].data;
  }
  plan.n_buffers = n + m;
  plan.n_inputs = n;
  plan.n_outputs = m;
  plan.n_streams = plan.n_instrs = plan.n_tasks = 1;
  plan.instrs = &launch;
  plan.tasks = &c->task;
  n_bodies++;
  TRY(device->ops->load(device, &plan, &loaded));
  status st = rt_run(loaded, inputs, outputs, NULL, NULL);
  device->ops->unload(loaded);
  if (st == STATUS_OK) (void)EXPECT(agrees(c, results, text, "on the device"));
  return st;
}

/* ---- cases ---- */
typedef struct job {
  const char *text;
  const gen_program *p;
  uint64_t seed;
  int expected;
  arena memory;
} job;

static status run_job(void *context) {
  job *j = context;
  body_case c = {.memory = &j->memory};
  status st = STATUS_OK;
  bool opened = body_open(&c, j->text);
  if (!EXPECT(opened || j->p)) fprintf(stderr, "%s\n", j->text);
  if (opened) {
    fill(&c, j->p, j->seed);
    bool evaluated = body_evaluate(&c);
    if (evaluated && device) st = run_device(&c, j->text);
    else if (evaluated) st = run_body(&c, j->text, j->expected);
    else (void)EXPECT(j->p != NULL);
  }
  ir_module_destroy(&c.module);
  return st;
}

static void run(const char *text, const gen_program *p, uint64_t seed, int expected) {
  job j = {.text = text, .p = p, .seed = seed, .expected = expected};
  unsigned before = test_failed;
  arena_init(&j.memory, &memory_default);
  status_clear();
  if (!EXPECT(memory_guard(run_job, &j) == STATUS_OK)) fprintf(stderr, "%s\n", status_message());
  if (test_failed != before) fprintf(stderr, "seed %llu\n%s\n", (unsigned long long)seed, text);
  arena_destroy(&j.memory);
}

/* Large ones are only written. A thread must have something to do: rows of two elements once had a
 * warp each. */
static const struct large_body {
  const char *text;
  int expected;
  double most_threads; /* per element of the first input */
} large_bodies[] = {
    {"fusion f { x : f32[8192, 16384, 2]; y, m = var_mean(x, dims=[2]); z = pow(y, y); return z }",
     WHOLE, 0.5},
    {"fusion f { x : f32[8192, 16384, 2]; w : f32[2]; y = rms_norm(x * 3.0, weight=w); return y }",
     WHOLE, 0.5},
    {"fusion f { x : f32[8192, 8192, 3]; y = softmax(exp(x)); return y }", WHOLE, 1.5},
    {"fusion f { x : bf16[2, 16384, 4096, 2]; m = mean(x, dims=[0, 1, 2]); y = layer_norm(x * "
     "2.0); return m, y }",
     APART, 0.5},
    {"fusion f { x : i32[16384, 2, 4096, 2]; m : i32[16384, 1, 4096, 1]; y = permute(or(x, m), [1, "
     "2, 3, 0]); return y }",
     APART, 1},
    {"fusion f { x : bf16[16384, 8192]; r : bf16[8192, 16384]; y = x + transpose(r); return y }",
     WHOLE, 1},
};

static status write_large(void *context) {
  job *j = context;
  const struct large_body *x = &large_bodies[j->seed];
  body_case c = {.memory = &j->memory, .shapes_only = true};
  const cuda_kernel *k;
  double elements_of_x = 1;
  check(body_open(&c, x->text));
  body_make_task(&c);
  const rt_view *v = &c.plan.views[c.task.operands[0].view];
  for (uint32_t d = 0; d < v->rank; d++) elements_of_x *= (double)v->extents[d];
  TRY(cuda_kernel_prepare(&c.plan, &c.task, CG_H100, c.memory, &k));
  (void)EXPECT_INT(k->n_parts == 0 ? WHOLE : APART, x->expected);
  for (uint32_t i = 0; i < k->code.n_launches; i++) {
    const cg_launch *l = &k->code.launches[i];
    (void)EXPECT((double)l->grid[0] * l->grid[1] * l->block <= x->most_threads * elements_of_x);
  }
  ir_module_destroy(&c.module);
  return STATUS_OK;
}

static void write_large_bodies(void) {
  for (size_t i = 0; i < sizeof large_bodies / sizeof *large_bodies; i++) {
    job j = {.seed = i};
    unsigned before = test_failed;
    arena_init(&j.memory, &memory_default);
    (void)EXPECT(memory_guard(write_large, &j) == STATUS_OK);
    if (test_failed != before) fprintf(stderr, "%s\n", large_bodies[i].text);
    arena_destroy(&j.memory);
  }
}

static void run_random(uint64_t seed) {
  static const uint32_t families[] = {GEN_POINTWISE | GEN_VIEW,
                                      GEN_POINTWISE | GEN_VIEW | GEN_CUT | GEN_MAKE,
                                      GEN_POINTWISE | GEN_REDUCE | GEN_MOMENT,
                                      GEN_ALL & ~(uint32_t)GEN_MATMUL,
                                      GEN_POINTWISE | GEN_REDUCE | GEN_MOMENT | GEN_VIEW |
                                          GEN_MODEL | GEN_MAKE,
                                      GEN_ALL};
  gen_options o = gen_options_default(seed);
  o.families = families[seed % (sizeof families / sizeof *families)];
  o.max_ops = 3 + (uint32_t)(seed % 9);
  o.max_devices = 0;
  o.max_elements = elements;
  o.schedule = o.rfactor = o.streams = o.devices = o.symbolic = false;
  o.dtypes = seed % 3 == 0 ? UINT32_MAX : seed % 3 == 1 ? 1U << IR_BF16 : 1U << IR_F32;
  gen_program *p = gen_create(&o);
  run(p->text, p, seed, ANY);
  gen_destroy(p);
}

static void run_all(uint64_t first, uint64_t count) {
  n_bodies = n_whole = n_launches = 0;
  for (size_t i = 0; i < sizeof listed / sizeof *listed; i++) run(listed[i], NULL, i, WHOLE);
  for (size_t i = 0; i < sizeof apart / sizeof *apart; i++) run(apart[i], NULL, i, APART);
  for (uint64_t seed = first; seed < first + count; seed++) run_random(seed);
}

static void print_launch(const cg_launch *x) {
  printf("/* grid %u, block %u\n   pointers", x->grid[0], x->block);
  for (uint32_t i = 0; i < x->n_pointers; i++)
    printf(" %d%+lld", (int)x->pointers[i].start, (long long)x->pointers[i].offset_bytes);
  printf("\n   numbers");
  for (uint32_t i = 0; i < x->n_numbers; i++) printf(" %lld", (long long)x->numbers[i]);
  printf(" */\n%s\n", x->source);
}

static status print_texts(void *context) {
  job *j = context;
  body_case c = {.memory = &j->memory, .shapes_only = true};
  const cuda_kernel *k;
  check(body_open(&c, j->text));
  body_make_task(&c);
  TRY(cuda_kernel_prepare(&c.plan, &c.task, CG_H100, c.memory, &k));
  for (uint32_t i = 0; i < k->code.n_launches; i++) print_launch(&k->code.launches[i]);
  ir_module_destroy(&c.module);
  return STATUS_OK;
}

static int print_body(const char *text) {
  job j = {.text = text};
  arena_init(&j.memory, &memory_default);
  bool ok = memory_guard(print_texts, &j) == STATUS_OK;
  arena_destroy(&j.memory);
  return ok ? 0 : 1;
}

static int run_on_device(int argc, char **argv) {
  uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
  uint64_t count = argc > 3 ? strtoull(argv[3], NULL, 10) : 10;
  rt_device_options o = {.threads = 0};
  if (argc > 4) elements = strtoll(argv[4], NULL, 10);
  if (rt_device_cuda.open(&o, &memory_default, &device) != STATUS_OK) {
    printf("skipped: %s\n", status_message());
    return 0;
  }
  run_all(first, count);
  device->ops->close(device);
  printf("%llu bodies\n", (unsigned long long)n_bodies);
  return test_finish();
}

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "--device") == 0) return run_on_device(argc, argv);
  if (argc > 2 && strcmp(argv[1], "--text") == 0) return print_body(argv[2]);
  uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
  uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 40;
  write_large_bodies();
  dry_run = true;
  run_all(first, count);
  if (!EXPECT(emulator_compile())) return test_finish();
  dry_run = false;
  run_all(first, count);
  compile_texts();
  printf("%u texts, %llu bodies, %llu as one, %llu launches\n", emulator_n,
         (unsigned long long)n_bodies, (unsigned long long)n_whole, (unsigned long long)n_launches);
  return test_finish();
}
