/* Bodies of several operations on the CPU.
 *
 *   test_bodies [N] [--seed S]
 *
 * Random programs become one task each, with operands and results of all kinds of strides. Programs whose
 * results are exact in every order of evaluation must give the reference's elements. Of others the tile
 * programs must agree with the steps one by one: bit by bit, unless the program contains an operation that
 * adds up. Programs run at each level of the instruction set in turn, steps at the lowest one that gives the
 * same bits. Some programs write their results past the caches, which otherwise large ones do.
 *
 * Then a result takes the place of an operand, and bodies of pointwise operations compute windows. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "body_kit.h"
#include "command.h"
#include "data/compare.h"
#include "data/fill.h"
#include "device/cpu/tile/body.h"
#include "device/cpu/tile/program.h"
#include "ref/ref.h"
#include "test.h"
#include "text/text.h"

enum { MAX_VALUES = 64, PATTERN = 0xa5 };

static const char *const levels[] = {"baseline", "avx2", "avx512", "avx512_bf16"};

static arena memory;
static gen_random rng;
static uint64_t n_programs, n_tiled, n_exact, n_in_place, n_windows;

static uint32_t below(uint32_t n) { return gen_below(&rng, n); }
static bool chance(uint32_t percent) { return gen_chance(&rng, percent); }

typedef struct trial {
  const gen_program *program;
  ir_module module;
  ir_env env;
  bool exact; /* every order of evaluation gives the same */
  const rt_body *body;
  ir_array inputs[MAX_VALUES], expected[MAX_VALUES], got[MAX_VALUES];
  char *blocks[2 * MAX_VALUES];
  int64_t block_bytes[2 * MAX_VALUES];
  rt_plan plan;
  rt_task task;
} trial;

/* ---- arrays ---- */
/* Memory in a random order of dimensions, perhaps with gaps or backwards. */
static char *lay_out(ir_array *a, int64_t *size_bytes) {
  int64_t stride = chance(15) ? 2 : 1, first = 0, size = (int64_t)ir_dtype_size_bytes(a->dtype);
  bool in_order = chance(60), backwards = chance(8);
  uint32_t left = a->rank, order[IR_MAX_RANK];
  for (uint32_t i = 0; i < a->rank; i++) order[i] = a->rank - 1 - i;
  for (; left > 0; left--) {
    uint32_t k = in_order ? 0 : below(left), d = order[k];
    for (uint32_t i = k; i + 1 < left; i++) order[i] = order[i + 1];
    bool back = backwards && chance(50);
    a->strides[d] = back ? -stride : stride;
    if (a->extents[d] == 0) continue;
    if (back) first += stride * (a->extents[d] - 1);
    stride *= a->extents[d] + (chance(15) ? 1 : 0);
  }
  *size_bytes = (stride + 2) * size;
  char *block = arena_alloc(&memory, (size_t)*size_bytes);
  memset(block, PATTERN, (size_t)*size_bytes);
  a->data = block + first * size;
  return block;
}

static ir_array dense_like(const ir_array *shape) {
  ir_array a = *shape;
  int64_t size_bytes;
  ir_array_dense(&a);
  check(ir_array_size_bytes(&a, &size_bytes));
  a.data = arena_alloc(&memory, (size_t)size_bytes + 1);
  return a;
}

static double random_value(const gen_value *v) {
  switch (v->fill) {
  case GEN_FILL_INDEX: return below((uint32_t)v->index_bound);
  case GEN_FILL_INTEGER: return (double)below(7) - 3;
  case GEN_FILL_POSITIVE: return 0.25 + below(64) / 16.0;
  case GEN_FILL_NORMAL: break;
  }
  if (chance(2)) return (double)below(40) - 20;
  return ((double)below(65536) - 32768) / 9000.0;
}

static void fill(const ir_array *a, const gen_value *v) {
  int64_t index[IR_MAX_RANK] = {0}, n;
  check(ir_array_count(a, &n));
  if (n == 0) return;
  do {
    double x = random_value(v);
    if (ir_dtype_is_float(a->dtype)) ir_element_set_f64(a->dtype, ir_array_at(a, index), x);
    else
      ir_element_set_i64(a->dtype, ir_array_at(a, index), a->dtype == IR_BOOL ? x > 0 : (int64_t)x);
  } while (ir_array_next(a, index));
}

/* ---- a trial ---- */
static bool parse(trial *t) {
  const gen_program *p = t->program;
  if (text_parse(&t->module, "body", p->text, strlen(p->text)) != STATUS_OK) return false;
  ir_env_init(&t->env, t->module.funcs.data[0], &memory);
  return ir_bind_complete(&t->env) && ir_bind_check(&t->env);
}

static void shape_of(const trial *t, ir_tensor tensor, ir_array *a) {
  a->dtype = ir_tensor_at(t->env.func, tensor)->dtype;
  check(ir_env_shape(&t->env, tensor, a->extents, &a->rank));
}

static uint32_t add_view(trial *t, const ir_array *a, uint32_t buffer) {
  rt_view v = {.buffer = buffer, .dtype = a->dtype, .rank = a->rank};
  v.offset_bytes = (const char *)a->data - t->blocks[buffer];
  v.extents = arena_copy(&memory, a->extents, sizeof a->extents);
  v.strides = arena_copy(&memory, a->strides, sizeof a->strides);
  t->plan.views[t->plan.n_views] = v;
  return t->plan.n_views++;
}

static void set_inputs(trial *t, rt_operand *operands) {
  const ir_func *f = t->env.func;
  for (uint32_t i = 0; i < f->inputs.len; i++) {
    shape_of(t, f->inputs.data[i], &t->inputs[i]);
    t->blocks[i] = lay_out(&t->inputs[i], &t->block_bytes[i]);
    fill(&t->inputs[i], &t->program->inputs[i]);
    operands[i] = (rt_operand){.kind = RT_OPERAND_VIEW, .view = add_view(t, &t->inputs[i], i)};
  }
}

static void set_outputs(trial *t, uint32_t *results) {
  const ir_func *f = t->env.func;
  for (uint32_t i = 0; i < f->outputs.len; i++) {
    uint32_t buffer = f->inputs.len + i;
    shape_of(t, f->outputs.data[i], &t->got[i]);
    t->expected[i] = dense_like(&t->got[i]);
    t->blocks[buffer] = lay_out(&t->got[i], &t->block_bytes[buffer]);
    results[i] = add_view(t, &t->got[i], buffer);
  }
}

static void make_task(trial *t) {
  const ir_func *f = t->env.func;
  rt_operand *operands = ARENA_ARRAY(&memory, f->inputs.len + 1, rt_operand);
  uint32_t *results = ARENA_ARRAY(&memory, f->outputs.len + 1, uint32_t);
  t->plan = (rt_plan){.seed = ARENA_NEW(&memory, uint64_t)};
  *t->plan.seed = BODY_SEED;
  t->plan.views = ARENA_ARRAY(&memory, f->inputs.len + f->outputs.len, rt_view);
  set_inputs(t, operands);
  set_outputs(t, results);
  t->body = body_of(&t->env, &memory);
  t->task = (rt_task){.result = results[0],
                      .n_more = f->outputs.len - 1,
                      .more = results + 1,
                      .n_operands = f->inputs.len,
                      .operands = operands,
                      .body = t->body};
}

/* ---- running ---- */
static status run_kernel(const trial *t, const cpu_kernel *k) {
  size_t bytes = cpu_kernel_scratch_bytes(k);
  char *scratch =
      aligned_alloc(CPU_SCRATCH_ALIGN, (bytes / CPU_SCRATCH_ALIGN + 2) * CPU_SCRATCH_ALIGN);
  check(scratch != NULL);
  memset(scratch, 0xff, bytes); /* floats that nobody computed are NaN */
  char **starts = ARENA_ARRAY(&memory, cpu_kernel_n_starts(&t->task), char *);
  cpu_kernel_starts(&t->plan, &t->task, t->blocks, starts);
  status st = cpu_kernel_run(k, starts, scratch);
  free(scratch);
  return st;
}

static bool wrong(const trial *t, const char *what) {
  fprintf(stderr, "%s\n%s", what, t->program->text);
  return false;
}

/* What is around the results was left alone. */
static bool kept_around(trial *t) {
  const ir_func *f = t->env.func;
  for (uint32_t i = 0; i < f->outputs.len; i++) {
    int64_t index[IR_MAX_RANK] = {0}, n;
    char *block = t->blocks[f->inputs.len + i];
    check(ir_array_count(&t->got[i], &n));
    if (n > 0) do
        memset(ir_array_at(&t->got[i], index), PATTERN, ir_dtype_size_bytes(t->got[i].dtype));
      while (ir_array_next(&t->got[i], index));
    for (int64_t b = 0; b < t->block_bytes[f->inputs.len + i]; b++)
      if ((unsigned char)block[b] != PATTERN) return false;
  }
  return true;
}

/* Operations whose result depends on an order of adding up. */
static bool adds_up(const rt_body *b) {
  for (uint32_t s = 0; s < b->n_steps; s++) {
    ir_opcode code = b->steps[s].code;
    ir_family f = ir_op_info_of(code)->family;
    bool reduces = f == IR_FAMILY_REDUCE && code != IR_OP_AMAX && code != IR_OP_AMIN;
    if (reduces || f == IR_FAMILY_MOMENT || f == IR_FAMILY_SOFTMAX || f == IR_FAMILY_NORM ||
        ir_op_is_product(code) || f == IR_FAMILY_SDPA || f == IR_FAMILY_SDPA_BACKWARD ||
        f == IR_FAMILY_SCAN)
      return true;
  }
  return false;
}

static bool compare(const trial *t, uint32_t i, bool bits) {
  ir_dtype least = data_least_dtype(t->env.func, t->env.func->outputs.data[i], &memory);
  data_comparison c = data_compare(&t->got[i], &t->expected[i], least);
  if (bits ? c.max_abs == 0 : c.max_rel <= 4 * c.tolerance) return true;
  fprintf(stderr, "output %u: max_abs %g, max_rel %g\n", i, c.max_abs, c.max_rel);
  return wrong(t, "differs");
}

/* The kernel of `prepare`, its results in t->got. */
static bool run_form(trial *t,
                     status (*prepare)(const rt_plan *, const rt_task *, arena *, cpu_kernel **)) {
  cpu_kernel *k;
  status_clear();
  if (prepare(&t->plan, &t->task, &memory, &k) != STATUS_OK) return wrong(t, status_message());
  if (run_kernel(t, k) != STATUS_OK) return wrong(t, status_message());
  n_tiled += strcmp(k->name, "tiles") == 0;
  return true;
}

/* ---- in place ---- */
static bool same_type(const ir_array *a, const ir_array *b) {
  return a->dtype == b->dtype && a->rank == b->rank &&
         memcmp(a->extents, b->extents, a->rank * sizeof *a->extents) == 0;
}

/* The first result goes where an operand of its type is. */
static bool run_in_place(trial *t, bool bits) {
  const ir_func *f = t->env.func;
  for (uint32_t k = 0; k < f->inputs.len; k++) {
    int64_t n;
    check(ir_array_count(&t->inputs[k], &n));
    if (!same_type(&t->inputs[k], &t->got[0]) || n == 0) continue;
    t->task.result = t->task.operands[k].view;
    t->got[0] = t->inputs[k];
    n_in_place++;
    if (!run_form(t, cpu_prepare_body)) return false;
    for (uint32_t i = 0; i < f->outputs.len; i++)
      if (!compare(t, i, bits)) return wrong(t, "in place");
    return true;
  }
  return true;
}

/* ---- windows ---- */
/* Along dimension d counted from the last one: the extent, and what of it is computed. */
typedef struct span {
  int64_t extent, offset, length;
} span;

static bool note_extents(span *spans, const rt_shape *s) {
  for (uint32_t d = 0; d < s->rank; d++) {
    span *at = &spans[s->rank - 1 - d];
    if (s->extents[d] == 0) return false;
    if (s->extents[d] == 1) continue;
    if (at->extent > 1 && at->extent != s->extents[d]) return false;
    at->extent = s->extents[d];
  }
  return true;
}

/* False: the body has other operations than pointwise ones, or extents that do not fit together. */
static bool choose_window(const rt_body *b, span *spans) {
  for (uint32_t d = 0; d < IR_MAX_RANK; d++) spans[d].extent = 1;
  for (uint32_t i = 0; i < b->n_params; i++)
    if (!note_extents(spans, &b->params[i])) return false;
  for (uint32_t i = 0; i < b->n_steps; i++) {
    ir_family f = ir_op_info_of(b->steps[i].code)->family;
    if (f != IR_FAMILY_POINTWISE && f != IR_FAMILY_SET && f != IR_FAMILY_CAST) return false;
    if (!note_extents(spans, &b->steps[i].results[0])) return false;
  }
  for (uint32_t d = 0; d < IR_MAX_RANK; d++) {
    spans[d].length = 1 + below((uint32_t)spans[d].extent);
    spans[d].offset = below((uint32_t)(spans[d].extent - spans[d].length) + 1);
  }
  return true;
}

/* The part of a shape that is in the window. */
static rt_shape window_of(const rt_shape *s, const span *spans, int64_t *offset) {
  int64_t *extents = ARENA_ARRAY(&memory, s->rank + 1, int64_t);
  for (uint32_t d = 0; d < s->rank; d++) {
    const span *at = &spans[s->rank - 1 - d];
    bool cut = s->extents[d] != 1;
    extents[d] = cut ? at->length : 1;
    offset[d] = cut ? at->offset : 0;
  }
  return (rt_shape){.dtype = s->dtype, .rank = s->rank, .extents = extents};
}

/* Operands of the task are whole; results of steps are cut already. */
static rt_step window_step(const rt_body *b, const rt_step *s, const span *spans) {
  rt_step out = *s;
  int64_t *offset = ARENA_ARRAY(&memory, s->results[0].rank + 1, int64_t);
  rt_value *operands = arena_copy(&memory, s->operands, (s->n_operands + 1) * sizeof *operands);
  rt_shape shape = window_of(&s->results[0], spans, offset);
  out.whole = s->results[0].extents;
  out.offset = offset;
  out.results = arena_copy(&memory, &shape, sizeof shape);
  for (uint32_t k = 0; k < s->n_operands; k++)
    if (operands[k].kind == RT_VALUE_STEP) operands[k].sliced = UINT32_MAX;
  out.operands = operands;
  (void)b;
  return out;
}

static bool run_window(trial *t, const span *spans) {
  const rt_body *b = t->body;
  rt_step *steps = ARENA_ARRAY(&memory, b->n_steps + 1, rt_step);
  rt_body window = *b;
  for (uint32_t i = 0; i < b->n_steps; i++) steps[i] = window_step(b, &b->steps[i], spans);
  window.steps = steps;
  t->task.body = &window;
  for (uint32_t i = 0; i < b->n_results; i++) {
    int64_t offset[IR_MAX_RANK] = {0};
    if (b->results[i].kind != RT_VALUE_STEP) return true;
    const rt_shape *whole = rt_value_shape(b, &b->results[i]);
    rt_shape shape = window_of(whole, spans, offset);
    rt_view *v = &t->plan.views[rt_task_result(&t->task, i)];
    v->extents = shape.extents;
    memcpy(t->got[i].extents, shape.extents, shape.rank * sizeof *shape.extents);
    t->expected[i].data = ir_array_at(&t->expected[i], offset);
    memcpy(t->expected[i].extents, shape.extents, shape.rank * sizeof *shape.extents);
  }
  n_windows++;
  if (!run_form(t, cpu_prepare_body)) return false;
  for (uint32_t i = 0; i < b->n_results; i++)
    if (!compare(t, i, true)) return wrong(t, "a window");
  return kept_around(t) || wrong(t, "a window wrote outside");
}

static bool run_trial(trial *t) {
  const ir_func *f = t->env.func;
  ref_options options = {.seed = BODY_SEED};
  make_task(t);
  status_clear();
  if (t->exact && ref_eval(&t->env, t->inputs, t->expected, &options) != STATUS_OK) return true;
  const char *level = levels[below(4)];
  if (strcmp(level, "baseline") == 0 || !cpu_vectors_choose("avx2"))
    check(cpu_vectors_choose("baseline"));
  if (!t->exact) {
    if (!run_form(t, cpu_prepare_steps)) return true; /* a maximum of nothing */
    for (uint32_t i = 0; i < f->outputs.len; i++) ir_array_copy(&t->expected[i], &t->got[i]);
    if (!kept_around(t)) return wrong(t, "steps wrote outside");
  }
  (void)cpu_vectors_choose(level);
  tile_stream_from(chance(30) ? 1 : TILE_STREAM);
  if (!run_form(t, cpu_prepare_body)) return false;
  bool bits = t->exact || !adds_up(t->body);
  for (uint32_t i = 0; i < f->outputs.len; i++)
    if (!compare(t, i, bits)) return false;
  n_exact += bits;
  if (!kept_around(t)) return wrong(t, "wrote outside");
  span spans[IR_MAX_RANK] = {{0}};
  if (choose_window(t->body, spans)) return run_window(t, spans);
  return run_in_place(t, bits);
}

static gen_options options_of(uint64_t seed) {
  gen_options o = gen_options_default(seed);
  static const uint32_t families[] = {
      GEN_POINTWISE,
      GEN_POINTWISE | GEN_VIEW | GEN_CUT | GEN_MAKE,
      GEN_POINTWISE | GEN_REDUCE | GEN_MOMENT,
      GEN_POINTWISE | GEN_REDUCE | GEN_MOMENT | GEN_VIEW | GEN_MODEL,
      GEN_ALL & ~(uint32_t)GEN_ORDER,
  };
  o.families = families[seed % 5];
  o.max_ops = 1 + (uint32_t)(seed / 5 % 12);
  o.max_devices = 0;
  o.schedule = o.rfactor = o.streams = o.devices = o.symbolic = false;
  o.exact_only = seed % 3 == 0;
  o.max_elements = seed % 7 == 0 ? 20000 : 2000;
  return o;
}

static status run_seed_guarded(void *context) {
  trial *t = context;
  ir_module_init(&t->module, &memory_default);
  if (EXPECT(parse(t))) (void)EXPECT(run_trial(t));
  ir_module_destroy(&t->module);
  return STATUS_OK;
}

static void run_seed(uint64_t seed) {
  static trial t;
  gen_options o = options_of(seed);
  gen_program *p = gen_create(&o);
  unsigned before = test_failed;
  memset(&t, 0, sizeof t);
  t.program = p;
  t.exact = o.exact_only;
  rng = (gen_random){seed * 7919 + 1};
  arena_init(&memory, &memory_default);
  (void)EXPECT(memory_guard(run_seed_guarded, &t) == STATUS_OK);
  arena_destroy(&memory);
  gen_destroy(p);
  n_programs++;
  if (test_failed != before) fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
}

int main(int argc, char **argv) {
  (void)argc;
  command asked = command_read(argv, (command){.count = 2000}, NULL);
  uint64_t n = asked.count;
  for (uint64_t k = 0; command_more(&asked, k); k++) run_seed(asked.first + k);
  printf("%llu bodies, %llu in tiles, %llu bit by bit, %llu in place, %llu windows\n",
         (unsigned long long)n_programs, (unsigned long long)n_tiled, (unsigned long long)n_exact,
         (unsigned long long)n_in_place, (unsigned long long)n_windows);
  (void)EXPECT(n < 1000 || (n_tiled > n / 2 && n_in_place > 0 && n_windows > 0));
  return test_finish();
}
