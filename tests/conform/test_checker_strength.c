/* Is the checker right about waits? Every wait of every plan here is deleted, one at a time, and the
 * plan is run in hostile orders. Without a wait that the checker calls needed, some order must give a
 * wrong result; without one that it calls redundant, none may. Then bugs of kinds that happened in
 * other systems are planted in host programs, and the checker must name the instructions at fault.
 *
 *   test_checker_strength [--seed S]      one random program, printed */
#include <stdlib.h>

#include "stream_kit.h"
#include "strength_programs.h"
#include "test.h"

enum { SEEDS = 64, RANDOM_PROGRAMS = 100 };

typedef struct tally {
  uint32_t programs, needed, killed, redundant, survived;
  uint32_t alike; /* needed, but the sum came out the same */
} tally;

static tally total;
static rt_device *hostile;

/* ---- plans with a caller behind them ---- */
/* What a caller does next on its stream: it copies every output. A result that is not there in time
 * is thereby seen, and so is a stream that was not joined. */
typedef struct called {
  rt_plan plan;
  ir_array copies[KIT_VALUES];
} called;

/* Shares the array's lists. */
static rt_view dense_view(const ir_array *a, uint32_t buffer) {
  rt_view v = {.buffer = buffer, .dtype = a->dtype, .rank = a->rank};
  v.extents = a->extents;
  v.strides = a->strides;
  return v;
}

static uint32_t output_buffer(const rt_plan *plan, uint32_t slot) {
  for (uint32_t b = 0; b < plan->n_buffers; b++)
    if (plan->buffers[b].kind == RT_BUFFER_OUTPUT && plan->buffers[b].slot == slot) return b;
  return UINT32_MAX;
}

static void add_copy(subject *s, called *c, uint32_t slot) {
  rt_plan *p = &c->plan;
  const ir_array *a = &s->out[slot];
  uint32_t from = output_buffer(p, slot), v = p->n_views;
  check(from != UINT32_MAX);
  p->views[p->n_views++] = dense_view(a, from);
  p->views[p->n_views++] = dense_view(a, p->n_buffers);
  rt_buffer b = p->buffers[from];
  b.slot = p->n_outputs++;
  b.name = "copy";
  p->buffers[p->n_buffers++] = b;
  rt_operand *o = ARENA_NEW(&s->memory, rt_operand);
  *o = (rt_operand){.kind = RT_OPERAND_VIEW, .view = v};
  rt_task t = {.code = IR_OP_SET, .result = v + 1, .n_operands = 1, .operands = o};
  t.compute = a->dtype;
  rt_instr i = {.kind = RT_LAUNCH, .task = p->n_tasks};
  i.origin = p->instrs[p->n_instrs - 1].origin;
  p->tasks[p->n_tasks++] = t;
  p->instrs[p->n_instrs++] = i;
}

#define GROWN(s, list, n, more, type)                                                              \
  memcpy(ARENA_ARRAY(&(s)->memory, (n) + (more), type), (list), (n) * sizeof(type))

static void call_plan(subject *s, const rt_plan *plan, called *c) {
  uint32_t n = s->n_out;
  c->plan = *plan;
  c->plan.instrs = GROWN(s, plan->instrs, plan->n_instrs, n, rt_instr);
  c->plan.tasks = GROWN(s, plan->tasks, plan->n_tasks, n, rt_task);
  c->plan.views = GROWN(s, plan->views, plan->n_views, 2 * n, rt_view);
  c->plan.buffers = GROWN(s, plan->buffers, plan->n_buffers, n, rt_buffer);
  for (uint32_t i = 0; i < n; i++) {
    check(kit_array(s, s->func->outputs.data[i], &c->copies[i]));
    add_copy(s, c, i);
  }
}

/* The plan without instruction `gone`, a wait. */
static void drop_wait(subject *s, called *c, uint32_t gone) {
  rt_plan *p = &c->plan;
  memmove(p->instrs + gone, p->instrs + gone + 1, (p->n_instrs - gone - 1) * sizeof *p->instrs);
  p->n_instrs--;
  p->buffers = GROWN(s, p->buffers, p->n_buffers, 0, rt_buffer);
  for (uint32_t b = 0; b < p->n_buffers; b++) {
    rt_buffer *x = &p->buffers[b];
    if (x->allocated_at > gone) x->allocated_at--;
    if (x->freed_at > gone && x->freed_at != UINT32_MAX) x->freed_at--;
  }
}

/* ---- running ---- */
static bool run_called(subject *s, called *c, rt_loaded *loaded) {
  void *in[KIT_VALUES], *out[2 * KIT_VALUES];
  for (uint32_t i = 0; i < s->n_in; i++) in[i] = s->in[i].data;
  for (uint32_t i = 0; i < s->n_out; i++) {
    out[i] = s->out[i].data;
    out[s->n_out + i] = c->copies[i].data;
  }
  if (!kit_ok(rt_run(loaded, in, out, NULL, NULL), "run")) return false;
  for (uint32_t i = 0; i < s->n_out; i++)
    if (!kit_same(&s->out[i], &s->expected[i]) || !kit_same(&c->copies[i], &s->expected[i]))
      return false;
  return true;
}

/* The starving seeds come first: they reverse every unordered pair. */
static uint64_t nth_seed(uint32_t k, uint32_t n_streams) {
  return k < n_streams ? 2 * (uint64_t)k : 2 * (uint64_t)(k - n_streams) + 1;
}

/* How many of the seeds tried give the right result; all of them, or those up to the first wrong. */
static uint32_t survives(subject *s, called *c, uint32_t seeds) {
  rt_loaded *loaded = NULL;
  uint32_t k = 0;
  if (!EXPECT(kit_ok(hostile->ops->load(hostile, &c->plan, &loaded), "load"))) return 0;
  for (; k < seeds; k++) {
    cpu_adversary_reseed(loaded, nth_seed(k, c->plan.n_streams));
    if (!run_called(s, c, loaded)) break;
  }
  hostile->ops->unload(loaded);
  return k;
}

static void disagree(subject *s, const check_report *r, const check_wait *w, const char *what) {
  strbuf text;
  strbuf_init(&text, &s->memory);
  strbuf_printf(&text, "wait %u: ", w->instr);
  rt_describe(r->plan, w->instr, &text);
  if (w->verdict == CHECK_WAIT_NEEDED) {
    strbuf_puts(&text, "\n  orders ");
    rt_describe(r->plan, w->a, &text);
    strbuf_puts(&text, "\n  before ");
    if (w->b == CHECK_NONE) strbuf_puts(&text, "the end");
    else rt_describe(r->plan, w->b, &text);
  }
  fprintf(stderr, "%s\n  %s\n%s\n", what, text.data, subject_print(s, r->plan->host));
}

/* x <- x + y: two of these into one place give nearly the same in either order, and sometimes exactly. */
static bool adds_up(const rt_plan *plan, uint32_t instr) {
  if (instr == CHECK_NONE || plan->instrs[instr].kind != RT_LAUNCH) return false;
  const rt_task *t = &plan->tasks[plan->instrs[instr].task];
  if (t->code != IR_OP_ADD) return false;
  const rt_view *to = &plan->views[t->result], *x = &plan->views[t->operands[0].view];
  return t->operands[0].kind == RT_OPERAND_VIEW && x->buffer == to->buffer &&
         x->offset_bytes == to->offset_bytes;
}

static void judge_wait(subject *s, const check_report *r, const check_wait *w) {
  called c;
  call_plan(s, r->plan, &c);
  drop_wait(s, &c, w->instr);
  bool commutes = adds_up(r->plan, w->a) && adds_up(r->plan, w->b);
  /* Some races show only when one step falls between two others: those get more tries. */
  uint32_t seeds = w->verdict == CHECK_WAIT_NEEDED && !commutes ? 64 * SEEDS : SEEDS;
  bool survived = survives(s, &c, seeds) == seeds;
  bool passes = subject_passes(s, &c.plan, NULL);
  if (!EXPECT(passes == (w->verdict != CHECK_WAIT_NEEDED))) fprintf(stderr, "%s\n", kit_reason);
  if (w->verdict == CHECK_WAIT_NEEDED && commutes && survived) {
    total.alike++;
  } else if (w->verdict == CHECK_WAIT_NEEDED) {
    total.needed++;
    total.killed += !survived;
    if (!EXPECT(!survived)) disagree(s, r, w, "needed, but no order shows it:");
  } else if (EXPECT(w->verdict != CHECK_WAIT_UNEXAMINED)) {
    total.redundant++;
    total.survived += survived;
    if (!EXPECT(survived)) disagree(s, r, w, "redundant, but an order needs it:");
  }
}

/* What the whole plan gives, close to the reference, is what every order must give, bit for bit. */
static bool find_expected(subject *s, called *whole, const ir_array *reference) {
  rt_loaded *loaded = NULL;
  if (!kit_ok(hostile->ops->load(hostile, &whole->plan, &loaded), "load")) return false;
  (void)run_called(s, whole, loaded);
  hostile->ops->unload(loaded);
  for (uint32_t i = 0; i < s->n_out; i++) {
    if (!data_compare(&s->out[i], &reference[i], IR_F32).ok) return kit_wrong("wrong result", "");
    ir_array_copy(&s->expected[i], &s->out[i]);
  }
  return true;
}

static void judge_plan(subject *s, const rt_plan *plan, const ir_array *reference) {
  check_report report;
  called whole;
  if (!EXPECT(subject_passes(s, plan, NULL)) || plan->n_instrs == 0) {
    fprintf(stderr, "%s\n", kit_reason);
    return;
  }
  call_plan(s, plan, &whole);
  EXPECT(subject_passes(s, &whole.plan, NULL));
  if (!EXPECT(find_expected(s, &whole, reference))) return;
  EXPECT_INT(survives(s, &whole, SEEDS), SEEDS);
  if (!EXPECT(check_plan(plan, NULL, &report) == STATUS_OK)) return;
  for (uint32_t k = 0; k < report.waits.len; k++) judge_wait(s, &report, &report.waits.data[k]);
  check_report_destroy(&report);
}

/* ---- programs ---- */
typedef struct sized_program {
  const char *text;   /* a fusion, perhaps a host program for it */
  const char *shapes; /* of the inputs: "6x4 6x4" */
  uint32_t streams;
} sized_program;

static bool bind_sizes(subject *s, const char *shapes) {
  ir_env_init(&s->env, s->func, &s->memory);
  for (uint32_t i = 0; i < s->func->inputs.len; i++) {
    int64_t extents[IR_MAX_RANK];
    uint32_t rank = 0;
    char *end = (char *)shapes;
    for (; *shapes && *shapes != ' '; shapes = *end == 'x' ? end + 1 : end)
      extents[rank++] = strtoll(shapes, &end, 10);
    if (!ir_bind_shape(&s->env, s->func->inputs.data[i], extents, rank, "the test")) return false;
    shapes += *shapes == ' ';
  }
  return subject_values(s);
}

/* Floats with all bits in use: the order of two additions shows. */
static void fill(subject *s) {
  uint64_t draws = 0;
  for (uint32_t k = 0; k < s->n_in; k++) {
    int64_t n;
    if (!ir_array_count(&s->in[k], &n)) continue;
    for (int64_t i = 0; i < n; i++, draws++)
      ((float *)s->in[k].data)[i] = (float)(0.25 + 4 * random_unit(random_bits(1, draws)));
  }
}

static void judge_bindings(subject *s, ir_func *h, uint32_t streams) {
  ir_array reference[KIT_VALUES];
  for (uint32_t i = 0; i < s->n_out; i++) {
    check(kit_array(s, s->func->outputs.data[i], &reference[i]));
    ir_array_copy(&reference[i], &s->expected[i]);
  }
  for (int keep = 0; keep < 2; keep++) {
    rt_plan *plan = subject_plan(s, h, streams, keep);
    if (!EXPECT(plan != NULL)) fprintf(stderr, "%s\n", kit_reason);
    if (plan) judge_plan(s, plan, reference);
    rt_plan_destroy(plan);
  }
  for (uint32_t i = 0; i < s->n_out; i++) ir_array_copy(&s->expected[i], &reference[i]);
}

static status judge_program(void *context) {
  const sized_program *p = context;
  subject s;
  bool ready = subject_parse(&s, p->text);
  ir_func *written = ready && s.func->host ? s.func : NULL;
  if (ready) s.func = s.module.funcs.data[0];
  ready = ready && schedule_apply(s.func) && bind_sizes(&s, p->shapes);
  if (ready) fill(&s);
  ready = ready && subject_reference(&s, s.in, s.expected, false);
  for (int plain = 0; ready && plain < (written ? 1 : 2); plain++) {
    ir_func *h = written ? written : subject_lower(&s, plain);
    if (!EXPECT(h != NULL)) break;
    judge_bindings(&s, h, p->streams);
  }
  total.programs++;
  if (!EXPECT(ready)) fprintf(stderr, "%s\n", kit_reason);
  subject_close(&s);
  return STATUS_OK;
}

static void judge(const char *text, const char *shapes, uint32_t streams) {
  sized_program p = {text, shapes, streams};
  unsigned failed = test_failed;
  EXPECT(memory_guard(judge_program, &p) == STATUS_OK);
  status_clear();
  if (test_failed > failed) fprintf(stderr, "with %u streams:\n%s\n", streams, text);
}

static void judge_random(uint64_t seed, bool print) {
  static char text[8192];
  strength_random(seed, text, sizeof text);
  if (print) fputs(text, stdout);
  unsigned failed = test_failed;
  judge(text, strength_random_shapes, 1 + (uint32_t)(seed % 5));
  if (test_failed > failed) fprintf(stderr, "replay: test_checker_strength --seed %d\n", (int)seed);
}

/* ---- planted bugs ---- */
typedef struct planted_call {
  const planted_bug *bug;
  strbuf *out;
  subject *s;
} planted_call;

/* All that verifier and checker say about a program. */
static status examine(void *context) {
  planted_call *c = context;
  subject *s = c->s;
  if (!subject_parse(s, c->bug->text) || !ir_host_verify(s->func)) {
    diags_render(&s->module.errors, c->out);
    return STATUS_OK;
  }
  ir_env_init(&s->env, s->func, &s->memory);
  rt_plan *plan = NULL;
  bind_options options = {.streams = 4, .keep_waits = true};
  check_report report;
  if (!ir_bind_complete(&s->env) ||
      bind_plan(&s->env, &options, &memory_default, &plan) != STATUS_OK) {
    diags_render(&s->module.errors, c->out);
    return STATUS_OK;
  }
  if (check_plan(plan, NULL, &report) == STATUS_OK) {
    check_report_text(&report, c->out);
    check_waits_text(&report, c->out);
    check_report_destroy(&report);
  }
  rt_plan_destroy(plan);
  return STATUS_OK;
}

static void test_planted(const planted_bug *bug) {
  subject s = {0};
  arena memory;
  strbuf out;
  arena_init(&memory, &memory_default);
  strbuf_init(&out, &memory);
  planted_call c = {bug, &out, &s};
  EXPECT(memory_guard(examine, &c) == STATUS_OK);
  status_clear();
  for (uint32_t i = 0; i < 3 && bug->says[i]; i++)
    if (!EXPECT_CONTAINS(out.data, bug->says[i])) fprintf(stderr, "planted: %s\n", bug->what);
  subject_close(&s);
  arena_destroy(&memory);
}

int main(int argc, char **argv) {
  hostile = kit_device(1, true);
  if (!EXPECT(hostile != NULL)) return test_finish();
  bool one = argc == 3 && strcmp(argv[1], "--seed") == 0;
  if (one) judge_random(strtoull(argv[2], NULL, 0), true);
  for (uint32_t i = 0; !one && strength_programs[i].text; i++)
    for (uint32_t streams = 1; streams <= 4; streams++)
      judge(strength_programs[i].text, strength_programs[i].shapes, streams);
  for (uint64_t seed = 0; !one && seed < RANDOM_PROGRAMS; seed++) judge_random(seed, false);
  for (uint32_t i = 0; !one && planted_bugs[i].text; i++) test_planted(&planted_bugs[i]);
  printf("%u programs: %u waits needed, %u killed (%.1f%%), %u redundant, %u survived\n",
         total.programs, total.needed, total.killed,
         total.needed ? 100.0 * total.killed / total.needed : 0.0, total.redundant, total.survived);
  EXPECT_INT(total.killed, total.needed);
  EXPECT_INT(total.survived, total.redundant);
  if (!one) EXPECT(total.needed > 500 && total.redundant > 100 && total.alike < 100);
  hostile->ops->close(hostile);
  return test_finish();
}
