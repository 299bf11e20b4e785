/* Random statements on a small fusion: the view stays valid and derivable, and evaluating it (after
 * rfactor, uneven cuts included) gives what the definition gives. */
#include "ir/bind.h"
#include "ir/verify.h"
#include "ref/ref.h"
#include "unit/schedule_kit.h"

enum { N_INPUTS = 3, N_OUTPUTS = 3, ROOM = 256, MAX_NAMES = 32, N_RUNS = 3000 };

static uint64_t state;
static uint32_t draw(uint32_t n) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)((state >> 33) % n);
}

static const char *names[MAX_NAMES];
static uint32_t n_names, n_rfactors, n_evaluated;

static void build(void) {
  static const ir_opcode codes[] = {IR_OP_SUM, IR_OP_PROD, IR_OP_AMAX, IR_OP_AMIN};
  ir_scalar a = sym("a"), k = sym("k"), n = sym("n"), three = num(3);
  ir_tensor x = ir_build_input(f, name("x"), IR_F64, (ir_scalar[]){a, k, three}, 3, (loc){0});
  ir_tensor w = ir_build_input(f, name("w"), IR_F64, (ir_scalar[]){three, n}, 2, (loc){0});
  ir_tensor v = ir_build_input(f, name("v"), IR_F64, (ir_scalar[]){n, three}, 2, (loc){0});
  ir_opcode code = codes[draw(4)];
  ir_tensor y = draw(2) ? REDUCE("y", code, x, 1) : REDUCE("y", code, x, 0, 1);
  ir_tensor c = op2("c", IR_OP_MATMUL, x, w), l = linear_of("l", x, v, (ir_tensor){0});
  (void)ir_build_output(f, y, (loc){0});
  (void)ir_build_output(f, set_of("z", c), (loc){0});
  (void)ir_build_output(f, l, (loc){0});
  (void)mesh_of("d", 2, 2);
  n_names = 0;
  names[n_names++] = "x", names[n_names++] = "y", names[n_names++] = "c";
  names[n_names++] = "l", names[n_names++] = "z";
}

/* Names reductions more often than not. */
static void random_rfactor(const char *t) {
  int64_t axes[IR_MAX_RANK];
  uint32_t n = 0;
  ir_axes list = now(t)->loop;
  for (uint32_t i = 0; i < list.len; i++) {
    if (ir_axis_at(f, list.data[i])->kind == IR_AXIS_REDUCTION && draw(2)) axes[n++] = i;
  }
  if (n == 0) axes[n++] = draw(4);
  const char *u = arena_printf(&module.memory, "u%u", n_rfactors);
  if (!rfactor_list(u, t, axes, n)) return;
  n_rfactors++;
  if (n_names < MAX_NAMES) names[n_names++] = u;
}

static void random_lists(const char *t, int64_t at) {
  int64_t list[3] = {draw(3) + 1, draw(3) + 1, draw(3) + 1}, order[3] = {draw(3), draw(3), draw(3)};
  switch (draw(3)) {
  case 0: (void)with_list(IR_STMT_CHUNK_SPLIT, t, at, list, draw(3) + 1); return;
  case 1: (void)with_list(IR_STMT_ALLOCATE, t, 0, order, draw(3) + 1); return;
  default: (void)with_list(IR_STMT_CONTIGUITY, t, 0, order, draw(3) + 1); return;
  }
}

static void random_statement(void) {
  const char *t = names[draw(n_names)];
  int64_t at = (int64_t)draw(8) - 2;
  switch (draw(16)) {
  case 0:
  case 1: (void)split(t, at, draw(4) + 1); return;
  case 2:
  case 3: (void)outer_split(t, at, draw(4) + 1); return;
  case 4: (void)merge(t, at); return;
  case 5: (void)REORDER(t, draw(5), draw(5)); return;
  case 6: (void)swizzle(t, at, draw(2)); return;
  case 7: (void)device(t, at, draw(2)); return;
  case 8:
  case 9: (void)stream(t, at); return;
  case 10: (void)on(t, (ir_mesh){1}); return;
  case 11: (void)as_loop(t); return;
  case 12: random_lists(t, at); return;
  default: random_rfactor(t); return;
  }
}

/* ---- evaluation ---- */
static double values[N_INPUTS][ROOM], results[2][N_OUTPUTS][ROOM];

static ir_array array_of(const ir_env *env, ir_tensor t, double *data) {
  ir_array a = {.dtype = IR_F64, .data = data};
  EXPECT(ir_env_shape(env, t, a.extents, &a.rank));
  ir_array_dense(&a);
  return a;
}

static bool bind_all(ir_env *env) {
  ir_env_init(env, f, &module.memory);
  EXPECT(ir_bind_name(env, "a", draw(3) + 1));
  EXPECT(ir_bind_name(env, "k", draw(7) + 1));
  EXPECT(ir_bind_name(env, "n", draw(3) + 1));
  return ir_bind_complete(env) && ir_bind_check(env); /* device axes may not fit these extents */
}

static void evaluate(const ir_env *env, bool scheduled) {
  ir_array in[N_INPUTS], out[N_OUTPUTS];
  for (int i = 0; i < N_INPUTS; i++) in[i] = array_of(env, f->inputs.data[i], values[i]);
  for (int i = 0; i < N_OUTPUTS; i++) {
    out[i] = array_of(env, f->outputs.data[i], results[scheduled][i]);
  }
  ref_options options = {.scheduled = scheduled, .memory = &memory_default};
  EXPECT(ref_eval(env, in, out, &options) == STATUS_OK);
}

static void expect_same_results(void) {
  ir_env env;
  if (!bind_all(&env)) return;
  n_evaluated++;
  for (int i = 0; i < N_INPUTS * ROOM; i++) values[i / ROOM][i % ROOM] = (double)draw(7) - 3;
  memset(results, 0, sizeof results);
  evaluate(&env, false);
  evaluate(&env, true);
  EXPECT(memcmp(results[0], results[1], sizeof results[0]) == 0);
}

static void random_schedules(void) {
  for (uint32_t seed = 0; seed < N_RUNS; seed++) {
    unsigned failures = test_failed;
    state = seed * UINT64_C(7919) + 1;
    begin();
    build();
    for (uint32_t i = draw(40); i > 0; i--) random_statement();
    if (!f->applied) (void)schedule_apply(f);
    EXPECT(ir_verify(f));
    expect_derivable();
    expect_same_results();
    if (test_failed > failures) fprintf(stderr, "seed %u:\n%s", seed, view());
  }
  EXPECT(n_rfactors > N_RUNS / 10);
  EXPECT(n_evaluated > N_RUNS / 4);
}

int main(void) {
  static void (*const tests[])(void) = {random_schedules};
  return run_all(tests, 1);
}
