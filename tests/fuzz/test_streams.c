/* Random programs with random stream schedules: lowered, bound, checked and run, also in hostile
 * orders, and compared with the definition.
 *
 *   test_streams [N] [--seed S] [--first S] [--seconds T] [--failures F] [--cuda]
 *                [--compile-only] [--threads T]
 *
 * Runs seeds 0 … N-1 (2000) for at most T seconds (60) or up to F failures (10). A failure prints its
 * seed and the program; --seed S runs that one again and prints the host program too. --compile-only: as in
 * test_devices. */
#include <stdlib.h>

#include "crowd.h"
#include "gen.h"
#include "judge.h"
#include "loop_kit.h"
#include "machines.h"
#include "stream_kit.h"
#include "test.h"
#include "why_kit.h"

typedef struct trial {
  uint64_t seed;
  gen_options options;
  const gen_program *program;
  subject s;
  subject again; /* the same, from the printed text */
  bool comparable[KIT_VALUES];
  uint32_t streams;
  bool keep_waits, print;
} trial;

static bool compile_only;
static _Atomic uint64_t n_refused, n_lowered, n_launches, n_waits, n_loops, n_kept;
static _Atomic bool seen[IR_OP_COUNT];
static gpu_times spent;
static _Thread_local rt_device *late_gpu; /* with --cuda: its streams are delayed */

/* ---- values and results ---- */
static judge judge_of(trial *t) {
  return (judge){t->seed, t->options.exact_only, t->program, &t->s, t->comparable};
}

static bool find_comparable(trial *t) {
  judge j = judge_of(t);
  return judge_find_comparable(&j);
}

static bool compare(trial *t, const subject *s, const char *how) {
  judge j = judge_of(t);
  return judge_compare(&j, s, how);
}

/* ---- running ---- */
static bool run_on(trial *t, subject *s, rt_device *device, const rt_plan *plan, const char *how) {
  rt_loaded *loaded = NULL;
  int64_t began_ns = rt_clock_ns();
  if (!kit_ok(device->ops->load(device, plan, &loaded), "load")) return false;
  int64_t loaded_ns = rt_clock_ns();
  bool good = true;
  for (uint64_t k = 0; good && !compile_only && k < (device == hostile ? 3 : 1); k++) {
    if (device == hostile) cpu_adversary_reseed(loaded, t->seed * 3 + k);
    good = subject_run(s, loaded, NULL) && compare(t, s, how);
  }
  int64_t ran_ns = rt_clock_ns();
  device->ops->unload(loaded);
  if (device == gpu[0] || device == gpu[1]) gpu_times_add(&spent, began_ns, loaded_ns, ran_ns);
  return good;
}

static void count_plan(const rt_plan *plan) {
  for (uint32_t i = 0; i < plan->n_instrs; i++)
    atomic_fetch_add(plan->instrs[i].kind == RT_LAUNCH ? &n_launches : &n_waits, 1);
}

static bool run_on_gpus(trial *t, subject *s, const rt_plan *plan, const char *how) {
  char name[64];
  bool good = true;
  for (int i = 0; i < 2 && good && gpu[i]; i++) {
    snprintf(name, sizeof name, "cuda%s, %s", i ? ", as a graph" : "", how);
    good = run_on(t, s, gpu[i], plan, name);
  }
  return good;
}

/* The same program with its loops kept: it does the same, passes, and gives the same on all devices. */
static bool run_looped(trial *t, subject *s, const rt_plan *plan, const rt_plan *looped,
                       const rt_plan *unrolled) {
  uint32_t at;
  n_kept += looped->n_loops;
  if (!loop_same_plan(unrolled, plan, &at))
    return kit_wrong("a loop differs from its iterations", "");
  return subject_passes(s, looped, NULL) && subject_passes(s, unrolled, NULL) &&
         run_on_gpus(t, s, looped, "with loops") &&
         (!late_gpu || run_on(t, s, late_gpu, looped, "with loops, cuda with delays")) &&
         run_on(t, s, two_threads, looped, "with loops, two threads") &&
         run_on(t, s, hostile, looped, "with loops, hostile") &&
         run_on(t, s, one_thread, unrolled, "unrolled");
}

/* Also with values in outputs, and without redundant waits. */
static bool run_lent(trial *t, subject *s, rt_plan *looped) {
  uint32_t removed;
  return subject_passes(s, looped, NULL) &&
         kit_ok(check_prune_waits(looped, &memory_default, &removed), "prune") &&
         subject_passes(s, looped, NULL) &&
         run_on(t, s, hostile, looped, "with loops, without redundant waits");
}

static bool check_loops(trial *t, subject *s, ir_func *h) {
  rt_plan *plan = subject_plan_loops(s, h, t->streams, t->keep_waits, 0, false);
  rt_plan *looped = subject_plan_loops(s, h, t->streams, t->keep_waits, 2, false);
  rt_plan *lent = subject_plan_loops(s, h, t->streams, t->keep_waits, 2, true), *unrolled = NULL;
  bool good = looped && plan && lent;
  if (good && looped->n_loops && compile_only) good = run_on_gpus(t, s, looped, "with loops");
  else if (good && looped->n_loops)
    good = kit_ok(rt_plan_unroll(looped, &memory_default, &unrolled), "unroll") &&
           run_looped(t, s, plan, looped, unrolled) && run_lent(t, s, lent);
  rt_plan_destroy(unrolled);
  rt_plan_destroy(lent);
  rt_plan_destroy(looped);
  rt_plan_destroy(plan);
  return good;
}

static bool check_plans(trial *t, subject *s, ir_func *h, bool threads, const char *how) {
  rt_plan *plan = subject_plan(s, h, t->streams, t->keep_waits);
  if (!plan) return false;
  count_plan(plan);
  if (threads && !check_loops(t, s, h)) {
    rt_plan_destroy(plan);
    return false;
  }
  bool good = compile_only || subject_passes(s, plan, NULL);
  good = good && (!threads || run_on_gpus(t, s, plan, "unrolled"));
  threads = threads && !compile_only;
  good = good && (!threads || run_on(t, s, one_thread, plan, "one thread"));
  good = good && (!threads || run_on(t, s, two_threads, plan, "two threads"));
  good = good && (threads || compile_only || run_on(t, s, hostile, plan, how));
  rt_plan_destroy(plan);
  return good;
}

/* ---- one program ---- */
/* What is printed parses back to a program that prints the same and gives the same. */
static bool check_text(trial *t, ir_func *h) {
  strbuf once;
  strbuf_init(&once, &t->s.memory);
  text_print_func(t->s.func, &once);
  strbuf_putc(&once, '\n');
  text_print_host(h, &once);
  if (!subject_parse(&t->again, once.data)) return false;
  const char *first = subject_print(&t->s, h), *second = subject_print(&t->again, t->again.func);
  if (strcmp(first, second) != 0) return kit_wrong("printing again differs", second);
  if (!ir_host_verify(t->again.func)) return kit_refused(&t->again, "verify what was printed");
  if (!bind_program(&t->again, t->program)) return false;
  for (uint32_t i = 0; i < t->s.n_in; i++) t->again.in[i] = t->s.in[i];
  return check_plans(t, &t->again, t->again.func, false, "the printed program, hostile");
}

static bool is_stream_loop(const trial *t) {
  return strstr(t->program->text, "] = stream") != NULL;
}

static bool check_lowered(trial *t, ir_func *h, ir_func *plain) {
  n_lowered++;
  n_loops += is_stream_loop(t);
  if (t->print) printf("\n%s", subject_print(&t->s, h));
  if (!kit_reasons(h) || !kit_explained(&t->s, h, HOST_AUTO)) return false;
  if (compile_only) return check_plans(t, &t->s, h, true, "");
  judge j = judge_of(t);
  judge_fill_inputs(&j);
  return subject_reference(&t->s, t->s.in, t->s.expected, false) && find_comparable(t) &&
         check_plans(t, &t->s, h, true, "") && check_text(t, h) &&
         check_plans(t, &t->s, plain, false, "plain, hostile");
}

/* A refusal names its reason in a diagnostic. */
static bool check_refusal(const trial *t) {
  static const char *const reasons[] = {
      "stream axes must be logical axes or the outer part of a split",
      "is a part of a reduction made by rfactor",
      "mixes chunks of different lengths with other splits",
  };
  n_refused++;
  for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
    if (strstr(kit_reason, reasons[i])) return i > 0 || t->program->bad_stream;
  return false;
}

static status check_all(void *context) {
  trial *t = context;
  bool good = false;
  ir_func *h = NULL, *plain = NULL;
  if (!subject_open(&t->s, t->program->text)) {
    good = check_refusal(t);
  } else if (t->program->bad_stream) {
    kit_wrong("a stream on a merged axis or an inner part is accepted", "");
  } else if (bind_program(&t->s, t->program)) {
    h = subject_lower(&t->s, false);
    if (h && t->seed % 4 != 3) subject_join(&t->s, h);
    plain = h ? subject_lower(&t->s, true) : NULL;
    good = h && plain ? check_lowered(t, h, plain) : check_refusal(t);
  }
  return good ? STATUS_OK : STATUS_CHECK_FAILED;
}

static gen_options options_of(uint64_t seed) {
  gen_options o = gen_options_default(seed);
  o.streams = true;
  o.max_devices = 0;
  o.exact_only = seed % 4 != 0;
  o.symbolic = seed % 5 != 0;
  o.rfactor = seed % 6 == 0;
  o.max_elements = 512;
  if (seed % 3 == 0) o.max_ops = 4; /* short ones are easy to read when they fail */
  if (seed % 13 == 0) o.max_ops = 24;
  return o;
}

static void report(const trial *t) {
  flockfile(stderr);
  unsigned long long seed = t->seed;
  fprintf(stderr, "seed %llu, %u streams: %s\n%s", seed, t->streams, kit_reason, t->program->text);
  for (uint32_t i = 0; i < t->program->n_bindings; i++)
    fprintf(stderr, "-D %s ", t->program->bindings[i]);
  fprintf(stderr, "\nreplay: test_streams --seed %llu\n\n", seed);
  funlockfile(stderr);
}

static bool try_seed(uint64_t seed, bool print) {
  trial t = {.seed = seed, .options = options_of(seed), .print = print};
  gen_program *p = gen_create(&t.options);
  t.program = p;
  t.streams = 1 + (uint32_t)(seed / 2 % 8);
  t.keep_waits = seed % 7 == 0;
  for (uint32_t op = 1; op < IR_OP_COUNT; op++) {
    char call[32];
    snprintf(call, sizeof call, "%.29s(", ir_op_info_of((ir_opcode)op)->name);
    if (strstr(p->text, call)) seen[op] = true;
  }
  if (print) fputs(p->text, stdout);
  kit_reason[0] = '\0';
  bool good = memory_guard(check_all, &t) == STATUS_OK;
  status_clear();
  if (!good) report(&t);
  subject_close(&t.again);
  subject_close(&t.s);
  gen_destroy(p);
  return good;
}

/* ---- the command ---- */
static command asked;
static uint32_t n_threads;
static bool on_cuda;

static int own_option(command *c, char **argv) {
  (void)c;
  if (strcmp(argv[0], "--threads") == 0 && argv[1])
    return n_threads = (uint32_t)strtoul(argv[1], NULL, 0), 2;
  if (strcmp(argv[0], "--cuda") == 0) return on_cuda = true, 1;
  if (strcmp(argv[0], "--compile-only") == 0) return on_cuda = compile_only = true, 1;
  return 0;
}

/* That the programs are worth running: all operations, few refusals, most outputs compared. */
static void check_coverage(uint64_t done) {
  for (uint32_t op = 1; op < IR_OP_COUNT; op++)
    if (!EXPECT(seen[op]))
      fprintf(stderr, "  no program uses %s\n", ir_op_info_of((ir_opcode)op)->name);
  EXPECT(n_refused * 10 < done);
  EXPECT(n_loops * 10 > done * 6);
  EXPECT(judge_compared * 10 > judge_outputs * 9);
  EXPECT(n_kept * 50 > done);
}

/* --cuda: directly, and as a graph. */
static bool open_devices(void) {
  static const rt_device_options ways[] = {{.graph = false}, {.graph = true}};
  if (!machines_open(on_cuda ? ways : NULL)) return false;
  late_gpu = on_cuda ? kit_gpu((rt_device_options){.adversarial = true, .seed = 1}) : NULL;
  return !on_cuda || late_gpu;
}

static void close_devices(void) {
  rt_device_cuda.close(late_gpu);
  machines_close();
}

static const uint64_t once_wrong[] = {3944, 905716, 918644, 919160, 21208667};
enum { KNOWN = sizeof once_wrong / sizeof *once_wrong };

static bool try_numbered(uint64_t at) {
  return try_seed(command_seed(&asked, at, once_wrong, KNOWN), asked.one);
}

int main(int argc, char **argv) {
  (void)argc;
  asked = command_read(argv, (command){.count = 2000, .seconds = 60, .failures = 10}, own_option);
  crowd c = {.count = asked.count + (asked.one ? 0 : KNOWN),
             .seconds = asked.seconds,
             .failures = asked.failures};
  c.threads = n_threads;
  c.open = open_devices;
  c.try_one = try_numbered;
  c.close = close_devices;
  if (!crowd_run(&c)) return 3;
  test_passed = c.passed;
  test_failed = c.failed;
  uint64_t done = (uint64_t)c.passed + c.failed;
  if (on_cuda) gpu_times_print(&spent);
  printf(
      "%llu programs in %.1f s: %llu refused, %llu with stream loops, %llu launches, %llu waits, "
      "%llu of %llu outputs compared, %llu loops kept\n",
      (unsigned long long)done, command_now() - c.start, (unsigned long long)n_refused,
      (unsigned long long)n_loops, (unsigned long long)n_launches, (unsigned long long)n_waits,
      (unsigned long long)judge_compared, (unsigned long long)judge_outputs,
      (unsigned long long)n_kept);
  if (done >= 1000 && !compile_only) check_coverage(done);
  return test_finish();
}
