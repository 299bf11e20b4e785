/* The scheduled view against the definition: what rfactor makes of a reduction gives the same values.
 * Inputs are small integers, so that no order of summation changes a result. */
#include "base/random.h"
#include "ir/array.h"
#include "ir/bind.h"
#include "ref/ref.h"
#include "schedule/schedule.h"
#include "test.h"
#include "text/text.h"

static const char *const programs[] = {
    "x : f32[2, 12]; y = sum(x, dims=[1]); return y\n"
    "schedule { y.split(1, 4); u = y.rfactor([2]) }",
    "x : f32[2, 12]; y = sum(x, dims=[1]); return y\n"
    "schedule { y.split(1, 4); u = y.rfactor([1]) }",
    /* uneven: the last chunk is shorter, then missing */
    "x : f32[2, 7]; y = sum(x, dims=[1]); return y\n"
    "schedule { y.outer_split(1, 3); u = y.rfactor([2]) }",
    "x : f32[2, 4]; y = amax(x - 10, dims=[1]); return y\n"
    "schedule { y.outer_split(1, 3); u = y.rfactor([2]) }",
    "x : i8[4, 3]; y = amin(x, dims=[0]); z = amax(x, dims=[0]); return y, z\n"
    "schedule { y.outer_split(0, 3); u = y.rfactor([1]); z.outer_split(0, 3); v = z.rfactor([1]) }",
    "x : i32[7]; y = prod(x); return y\n"
    "schedule { y.split(0, 2); u = y.rfactor([1]) }",
    /* unequal chunks */
    "x : f64[9, 2]; y = sum(x, dims=[0]); return y\n"
    "schedule { y.outer_split(0, [2, 4, 3]); u = y.rfactor([1]) }",
    /* an axis left to the second step as it is */
    "x : f32[3, 4, 5]; y = sum(x, dims=[0, 2]); return y\n"
    "schedule { u = y.rfactor([2]) }",
    "x : f32[3, 4, 5]; y = sum(x); return y\n"
    "schedule { y.merge(0); y.split(0, 5); u = y.rfactor([1, 2]) }",
    "a : f32[3, 8]; b : f32[8, 2]; y = matmul(a, b); return y\n"
    "schedule { y.split(2, 3); u = y.rfactor([3]) }",
    "a : i64[2, 3, 8]; b : i64[8]; y = matmul(a, b); return y\n"
    "schedule { y.outer_split(2, 3); u = y.rfactor([3]) }",
    "x : bf16[2, 3, 8]; w : bf16[4, 8]; y = linear(x, w); return y\n"
    "schedule { y.outer_split(3, 2); u = y.rfactor([4]) }",
    /* twice */
    "x : f32[24]; y = sum(x); return y\n"
    "schedule { y.split(0, 6); u = y.rfactor([1]); u.split(1, 2); v = u.rfactor([2]) }",
    "x : f32[2, 0]; y = sum(x, dims=[1]); return y\n"
    "schedule { y.split(1, 4); u = y.rfactor([2]) }",
    "x : f32[4, 6]; y = sum(x, dims=[1], keepdim=true) * x; z = transpose(y); return y, z\n"
    "schedule { y.split(0, 2) }",
};

enum { MAX_ARRAYS = 4 };

static void fill(const ir_array *a, uint64_t key) {
  int64_t index[IR_MAX_RANK] = {0}, n, i = 0;
  check(ir_array_count(a, &n));
  if (n > 0) do
      ir_element_set_i64(a->dtype, ir_array_at(a, index),
                         (int64_t)(random_bits(key, (uint64_t)i++) % 5) - 2);
    while (ir_array_next(a, index));
}

static ir_array array_of(const ir_env *env, ir_tensor t, arena *memory) {
  ir_array a = {.dtype = ir_tensor_at(env->func, t)->dtype};
  int64_t bytes;
  check(ir_env_shape(env, t, a.extents, &a.rank) && ir_array_size_bytes(&a, &bytes));
  ir_array_dense(&a);
  a.data = arena_alloc(memory, (size_t)bytes);
  return a;
}

static bool same(const ir_array *a, const ir_array *b) {
  int64_t index[IR_MAX_RANK] = {0}, n;
  check(ir_array_count(a, &n));
  if (n > 0) do {
      double x = ir_element_as_f64(a->dtype, ir_array_at(a, index));
      if (x != ir_element_as_f64(b->dtype, ir_array_at(b, index))) return false;
    } while (ir_array_next(a, index));
  return true;
}

static void compare_views(ir_func *f, arena *memory) {
  ir_env env;
  ir_array inputs[MAX_ARRAYS], defined[MAX_ARRAYS], scheduled[MAX_ARRAYS];
  ir_env_init(&env, f, memory);
  for (uint32_t i = 0; i < f->inputs.len; i++) {
    inputs[i] = array_of(&env, f->inputs.data[i], memory);
    fill(&inputs[i], i);
  }
  for (uint32_t i = 0; i < f->outputs.len; i++) {
    defined[i] = array_of(&env, f->outputs.data[i], memory);
    scheduled[i] = array_of(&env, f->outputs.data[i], memory);
  }
  (void)EXPECT(ref_eval(&env, inputs, defined, &(ref_options){0}) == STATUS_OK);
  (void)EXPECT(ref_eval(&env, inputs, scheduled, &(ref_options){.scheduled = true}) == STATUS_OK);
  for (uint32_t i = 0; i < f->outputs.len; i++) (void)EXPECT(same(&defined[i], &scheduled[i]));
}

static status run(void *program) {
  ir_module m;
  strbuf text, errors;
  ir_module_init(&m, &memory_default);
  strbuf_init(&text, &m.memory);
  strbuf_init(&errors, &m.memory);
  strbuf_printf(&text, "fusion f {\n%s\n}\n", (const char *)program);
  bool ok = text_parse(&m, "program", text.data, text.len) == STATUS_OK &&
            schedule_apply(m.funcs.data[0]);
  diags_render(&m.errors, &errors);
  if (EXPECT(ok)) compare_views(m.funcs.data[0], &m.memory);
  else (void)fprintf(stderr, "%s\n%s", text.data, errors.data);
  ir_module_destroy(&m);
  return STATUS_OK;
}

int main(void) {
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
    unsigned before = test_failed;
    char program[1024];
    (void)snprintf(program, sizeof program, "%s", programs[i]);
    (void)EXPECT(memory_guard(run, program) == STATUS_OK);
    if (test_failed != before) (void)fprintf(stderr, "in program %zu:\n%s\n", i, program);
  }
  return test_finish();
}
