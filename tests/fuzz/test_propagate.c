/* Random programs with random marks on some of their tensors: what propagation adds.
 *
 *   test_propagate [N] [--seed S]
 *
 * Runs seeds 0 … N-1 (20000); --seed S runs one and prints what came out. For each of them propagation is
 * deterministic (the same text twice), idempotent (of its own printed output nothing is left to do), and
 * polite: what the user wrote stands unchanged before what is added, placed tensors get no marks, inputs
 * none of devices, and no tensor two axes on one mesh axis. */
#include <stdlib.h>

#include "command.h"
#include "gen.h"
#include "ir/verify.h"
#include "schedule/internal.h"
#include "shard/shard.h"
#include "test.h"
#include "text/text.h"

typedef struct trial {
  uint64_t seed;
  const gen_program *program;
  ir_module module, again;
  const char *reason;
  bool print;
} trial;

static uint64_t n_added, n_marked;

static bool broken(trial *t, const char *reason) {
  if (!t->reason) t->reason = reason;
  return false;
}

static const char *printed(ir_module *m) {
  strbuf out;
  strbuf_init(&out, &m->memory);
  text_print_module(m, &out);
  return out.data;
}

/* ---- marks on some tensors only ---- */
/* Statements about some of the tensors are forgotten. What is said of the others stays valid, since all
 * positions are those of one tensor. */
static void forget_some(ir_func *f, uint64_t seed) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < f->statements.len; i++) /* what an rfactor made is not to be missed */
    if (f->statements.data[i].kind == IR_STMT_RFACTOR) return;
  for (uint32_t i = 0; i < f->statements.len; i++) {
    ir_stmt s = f->statements.data[i];
    bool one = s.n_targets == 1;
    gen_random r = {.state = seed ^ ((uint64_t)s.targets[0].name << 20)};
    (void)gen_below(&r, 2);
    if (one && gen_below(&r, 3)) continue;
    f->statements.data[kept++] = s;
  }
  f->statements.len = kept;
}

static bool parse(trial *t, ir_module *m, const char *text) {
  ir_module_init(m, &memory_default);
  if (text_parse(m, "random.weir", text, strlen(text)) != STATUS_OK)
    return broken(t, "it does not parse");
  return true;
}

static bool prepare(trial *t, ir_module *m) {
  if (!parse(t, m, t->program->text)) return false;
  ir_func *f = m->funcs.data[0];
  if (t->seed % 4) forget_some(f, t->seed);
  return schedule_apply(f) || broken(t, "the schedule is refused");
}

/* ---- what must hold ---- */
typedef struct before {
  const char *loop;
  bool placed;
  uint32_t mesh_marks;
} before;

static uint32_t mesh_marks(trial *t, const ir_func *f, ir_axes loop) {
  uint32_t mask = 0;
  for (uint32_t i = 0; i < loop.len; i++) {
    const ir_axis_data *a = ir_axis_at(f, loop.data[i]);
    if (a->mark.kind != IR_MARK_MESH || a->kind == IR_AXIS_REDUCTION) continue;
    if (mask >> a->mark.mesh_axis & 1) (void)broken(t, "two axes are on one mesh axis");
    mask |= 1u << a->mark.mesh_axis;
  }
  return mask;
}

static before *note(trial *t, ir_func *f) {
  before *list = ARENA_ARRAY(&f->module->memory, f->tensors.len, before);
  for (uint32_t i = 1; i < f->tensors.len; i++) {
    const ir_tensor_data *x = &f->tensors.data[i];
    list[i] =
        (before){schedule_axes_text(f, x->now.loop), x->placed, mesh_marks(t, f, x->now.loop)};
  }
  return list;
}

static bool left_alone(trial *t, ir_func *f, const before *list) {
  for (uint32_t i = 1; i < f->tensors.len; i++) {
    const ir_tensor_data *x = ir_tensor_at(f, (ir_tensor){i});
    bool input = x->kind == IR_TENSOR_INPUT;
    const char *now = schedule_axes_text(f, x->now.loop);
    uint32_t marks = mesh_marks(t, f, x->now.loop);
    n_marked += marks != list[i].mesh_marks;
    if (list[i].placed && !input && strcmp(now, list[i].loop) != 0)
      return broken(t, "a tensor that the user has placed is changed");
    if (input && marks != list[i].mesh_marks) return broken(t, "an input gets device marks");
  }
  return !t->reason;
}

/* Up to the end of the schedule, `text` is how `all` begins. */
static bool begins_with(const char *all, const char *text) {
  const char *end = strrchr(text, '}');
  for (int i = 0; i < 2 && end > text; i++) {
    while (end > text && (end[-1] == ' ' || end[-1] == '\n')) end--;
    if (i == 0 && end[-1] == '}') end--;
  }
  return strncmp(all, text, (size_t)(end - text)) == 0;
}

static bool check_again(trial *t, const char *text) {
  ir_module_destroy(&t->again);
  if (!parse(t, &t->again, text)) return false;
  ir_func *f = t->again.funcs.data[0];
  if (!schedule_apply(f)) return broken(t, "what was added is refused when it is read back");
  if (shard_propagate(f) > 0) return broken(t, "it is not idempotent");
  return strcmp(printed(&t->again), text) == 0 || broken(t, "its text changes");
}

static status run_guarded(void *context) {
  trial *t = context;
  if (!prepare(t, &t->module) || !prepare(t, &t->again)) return STATUS_OK;
  ir_func *f = t->module.funcs.data[0];
  const char *text = printed(&t->module);
  before *list = note(t, f);
  n_added += shard_propagate(f);
  (void)shard_propagate(t->again.funcs.data[0]);
  const char *after = printed(&t->module);
  if (t->print) printf("%s", after);
  if (t->module.errors.errors) (void)broken(t, "it reports errors");
  else if (!ir_verify(f)) (void)broken(t, "it leaves something that does not verify");
  else if (strcmp(after, printed(&t->again)) != 0) (void)broken(t, "it is not deterministic");
  else if (!begins_with(after, text)) (void)broken(t, "it changes what the user wrote");
  else if (left_alone(t, f, list)) (void)check_again(t, after);
  return STATUS_OK;
}

/* ---- one seed ---- */
static gen_options options_of(uint64_t seed) {
  gen_options o = gen_options_default(seed);
  o.devices = seed % 3 != 0;
  o.streams = !o.devices;
  o.symbolic = seed % 5 != 0;
  o.edges = seed % 7 == 0;
  o.rfactor = false;
  o.max_ops = 1 + (uint32_t)(seed % 9);
  if (seed % 29 == 0) o.max_ops = 20;
  return o;
}

static void try_seed(uint64_t seed, bool print) {
  gen_options options = options_of(seed);
  gen_program *p = gen_create(&options);
  trial t = {.seed = seed, .program = p, .print = print};
  if (!p->bad_stream && memory_guard(run_guarded, &t) != STATUS_OK) t.reason = status_message();
  test_passed += !t.reason;
  test_failed += t.reason != NULL;
  if (t.reason)
    fprintf(stderr, "seed %llu: %s\n%s\nreplay: test_propagate --seed %llu\n\n",
            (unsigned long long)seed, t.reason, p->text, (unsigned long long)seed);
  ir_module_destroy(&t.module);
  ir_module_destroy(&t.again);
  gen_destroy(p);
}

int main(int argc, char **argv) {
  (void)argc;
  command asked = command_read(argv, (command){.count = 20000, .failures = 10}, NULL);
  uint64_t count = asked.count;
  for (uint64_t i = 0; command_more(&asked, i); i++) try_seed(asked.first + i, asked.one);
  printf("%llu statements added, %llu tensors marked\n", (unsigned long long)n_added,
         (unsigned long long)n_marked);
  if (count >= 500) EXPECT(n_marked > count / 4);
  return test_finish();
}
