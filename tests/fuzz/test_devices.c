/* Random programs on random meshes: lowered, printed and parsed back, bound for every rank, checked and
 * run on all devices of one process, and compared with the definition.
 *
 *   test_devices [N] [--seed S] [--first S] [--seconds T] [--failures F] [--devices N] [--cuda] [--nccl]
 *                [--compile-only] [--threads T]
 *   mpirun -n P test_devices [N] … --ranks [--nccl]      on GPUs, each rank a process; P up to 8
 *
 * Runs seeds 0 … N-1 (1000) for at most T seconds (60) or up to F failures (10). A failure prints its
 * seed and the program; --seed S runs that one again and prints the host program too. Programs that are
 * refused are counted by what the diagnostic says. --nccl: on GPUs that communicate by NCCL. --devices:
 * meshes of up to N devices, and one of all of them, in a world of N; otherwise meshes of up to 8 in a
 * world of 8. --compile-only: on GPUs, or none with a driver that pretends (tests/gpu/kernels.sh), programs
 * are loaded and not run, which leaves their kernels in the cache on disk. */
#include <stdlib.h>

#include "alike_kit.h"
#include "crowd.h"
#include "device_kit.h"
#include "gen.h"
#include "judge.h"
#include "loop_kit.h"
#include "machines.h"
#include "mpi/launched.h"
#include "order_machine.h"
#include "refusals.h"
#include "test.h"
#include "why_kit.h"

enum { DEVICES = 8 };

typedef struct trial {
  uint64_t seed;
  gen_options options;
  const gen_program *program;
  subject s;
  subject again; /* the same, from the printed text */
  bool comparable[KIT_VALUES];
  uint32_t streams, devices;
  host_pipeline pipeline;
  bool print;
} trial;

static command asked;
static uint32_t n_threads;
static bool on_cuda, by_nccl, as_ranks;

static const char *const pipelines[] = {"auto",       "collective", "p2p",
                                        "p2p-offset", "ring",       "broadcast"};
static uint32_t n_devices = DEVICES;
static bool all_devices; /* --devices: one mesh has all of them */
static bool compile_only;
/* --ranks: the same, of this process. */
static struct {
  mpi_launch launch;
  const rt_comm_ops *backend;
  rt_device *devices[2];
  rt_comm *endpoints[2];
} spread;
static _Atomic uint64_t n_launches, n_posts, n_streamed, n_own;
static _Atomic uint64_t n_worlds, n_alike, n_changed, n_kept;
static gpu_times spent;

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
static bool run_on(trial *t, team *x, rt_device *device, const rt_plan *plan, const char *how) {
  session_ranks world = {0};
  rt_loaded *loaded = NULL;
  bool good =
      kit_ok(kit_ranks_open(&world, x->h, x->n, INT64_C(60000000000), device), "open the world");
  int64_t began_ns = rt_clock_ns();
  good = good && kit_ok(device->ops->load(device, plan, &loaded), "load");
  int64_t loaded_ns = rt_clock_ns();
  for (uint64_t k = 0; good && !compile_only && k < (device == hostile ? 3 : 1); k++) {
    if (device == hostile) cpu_adversary_reseed(loaded, t->seed * 3 + k);
    team_cut(x);
    good = kit_ok(rt_run(loaded, x->in, x->out, NULL, NULL), how) && team_assemble(x) &&
           compare(t, x->s, how);
  }
  int64_t ran_ns = rt_clock_ns();
  if (loaded) device->ops->unload(loaded);
  if (device == gpu[0] || device == gpu[1]) gpu_times_add(&spent, began_ns, loaded_ns, ran_ns);
  session_ranks_close(&world, &memory_default);
  return good;
}

static bool reduces(const rt_post *post, bool all_give) {
  (void)post, (void)all_give;
  return true;
}

/* As GPUs would run it, but by the host: directly, through its memory, and with communications left to
 * a library, which reduces or does not. */
static bool run_as_gpus(trial *t, team *x, const rt_plan *plan) {
  bool good = true;
  for (uint64_t k = 0; k < 6 && good; k++) {
    issue_order_options o = {.staged = k % 2, .through_host = k % 2, .one_gpu = k == 2};
    o.as_posted = k >= 4;
    o.large = k % 4 < 2; /* every task is: streams take turns where they can */
    if (k == 4) o.reduces = reduces;
    const char *how = k >= 4 ? "steps, as posted" : k % 2 ? "steps, through the host" : "steps";
    team_cut(x);
    good = kit_ok(machine_run(plan, &o, x->in, x->out, t->seed * 6 + k), how) && team_assemble(x) &&
           compare(t, x->s, how);
  }
  return good;
}

/* Everybody gets the outputs of all. */
static status tell_outputs(const team *x, rt_comm *e) {
  static const uint32_t all[DEVICES] = {0, 1, 2, 3, 4, 5, 6, 7};
  for (uint32_t r = 0; r < x->n; r++) {
    const rt_plan *p = x->plans[r];
    for (uint32_t b = 0; b < p->n_buffers; b++) {
      if (p->buffers[b].kind != RT_BUFFER_OUTPUT) continue;
      rt_comm_ticket ticket;
      rt_comm_request q = {.kind = IR_COMM_BROADCAST, .dtype = IR_U8, .team = all, .n_team = x->n};
      q.me = e->rank;
      q.root = r;
      q.count = p->buffers[b].size_bytes;
      q.in = q.out = x->out[(size_t)r * p->n_outputs + p->buffers[b].slot];
      TRY(e->ops->post(e, &q, &ticket));
      TRY(e->ops->wait(e, &ticket, INT64_C(60000000000)));
    }
  }
  return STATUS_OK;
}

static bool run_spread(trial *t, team *x, uint32_t way) {
  const rt_plan *const *plans = (const rt_plan *const *)x->plans;
  uint32_t me = spread.launch.rank;
  rt_device *d = spread.devices[way];
  rt_loaded *l = NULL;
  team_cut(x);
  void **in = x->in + (size_t)me * plans[0]->n_inputs;
  void **out = x->out + (size_t)me * plans[0]->n_outputs;
  const char *how = way ? "processes, otherwise" : "processes";
  bool good = kit_ok(d->ops->load_spread(d, plans[me], plans, x->n, &l), how) &&
              kit_ok(rt_run(l, in, out, NULL, NULL), how) &&
              kit_ok(tell_outputs(x, spread.endpoints[way]), how) && team_assemble(x) &&
              compare(t, x->s, how);
  if (l) d->ops->unload(l);
  return good;
}

static bool run_all(trial *t, team *x) {
  rt_plan *plan = NULL;
  if (!kit_ok(rt_plan_join(x->plans, x->n, &memory_default, &plan), "join")) return false;
  bool good = compile_only || (subject_passes(x->s, plan, NULL) && run_as_gpus(t, x, plan));
  if (good && spread.devices[0]) {
    good = run_spread(t, x, 0) && run_spread(t, x, 1);
  } else if (good && gpu[0]) {
    good = run_on(t, x, gpu[0], plan, "cuda") && run_on(t, x, gpu[1], plan, "cuda, otherwise");
  } else if (good && one_thread->ops->attach && x->n > 1) {
    good = run_on(t, x, one_thread, plan, "one thread") &&
           run_on(t, x, two_threads, plan, "two threads") && run_on(t, x, hostile, plan, "hostile");
  }
  rt_plan_destroy(plan);
  return good;
}

/* All ranks together: their communications meet, and everybody gets to the end. */
static bool check_together(team *x) {
  check_world_report report;
  status st = check_world((const rt_plan *const *)x->plans, x->n, NULL, &report);
  if (!kit_ok(st, "check the ranks")) return false;
  bool passes = report.n_found == 0;
  if (!passes) {
    strbuf text;
    strbuf_init(&text, &x->s->memory);
    check_world_text(&report, &text);
    kit_wrong("the checker finds", text.data);
  }
  check_world_report_destroy(&report);
  return passes;
}

/* What one of ranks that are alike tells of all. */
static bool check_alike_ranks(team *x) {
  enum { CHANGED = 6 };
  alike_counts c = {0};
  if (!alike_judge(x->plans, x->n, 1 + x->plans[0]->n_instrs / CHANGED, &c))
    return kit_wrong("one of ranks that are alike tells something else", "");
  n_worlds += c.worlds;
  n_alike += c.alike;
  n_changed += c.mutants;
  return true;
}

static bool check_ranks(team *x) {
  for (uint32_t r = 0; r < x->n; r++) {
    if (!subject_passes(x->s, x->plans[r], NULL)) return false;
    for (uint32_t i = 0; i < x->plans[r]->n_instrs; i++)
      n_launches += x->plans[r]->instrs[i].kind == RT_LAUNCH;
    n_posts += x->plans[r]->n_posts;
  }
  return check_together(x) && check_alike_ranks(x);
}

/* As a program runs them: without the waits they can do without. */
static bool prune(team *x) {
  for (uint32_t r = 0; r < x->n; r++) {
    uint32_t removed;
    if (!kit_ok(check_prune_waits(x->plans[r], &memory_default, &removed), "prune")) return false;
  }
  return true;
}

/* ---- loops ---- */
/* The same world with its loops kept: it does the same, passes, and gives the same. */
static bool run_looped(trial *t, team *x, const team *plain) {
  rt_plan *joined = NULL, *unrolled = NULL;
  bool good = true;
  for (uint32_t r = 0; r < x->n && good; r++) {
    uint32_t at;
    good = kit_ok(rt_plan_unroll(x->plans[r], &memory_default, &unrolled), "unroll");
    if (good && !loop_same_plan(unrolled, plain->plans[r], &at))
      good = kit_wrong("a loop differs from its iterations", "");
    rt_plan_destroy(unrolled);
    unrolled = NULL;
  }
  good = good && check_together(x) && (t->seed % 2 == 0 || (prune(x) && check_together(x)));
  good = good && kit_ok(rt_plan_join(x->plans, x->n, &memory_default, &joined), "join") &&
         kit_ok(rt_plan_unroll(joined, &memory_default, &unrolled), "unroll") &&
         run_on(t, x, two_threads, joined, "with loops, two threads") &&
         run_on(t, x, hostile, unrolled, "unrolled, hostile");
  rt_plan_destroy(unrolled);
  rt_plan_destroy(joined);
  return good;
}

static bool check_loops(trial *t, subject *s, ir_func *h) {
  team x, plain;
  bool good = team_open_loops(&x, s, h, t->streams, t->devices, 2, false), any = false;
  for (uint32_t r = 0; good && r < x.n; r++) {
    any = any || x.plans[r]->n_loops;
    n_kept += x.plans[r]->n_loops;
  }
  if (good && any) {
    good = team_open_loops(&plain, s, h, t->streams, t->devices, 0, false) &&
           run_looped(t, &x, &plain);
    team_close(&plain);
  }
  team_close(&x);
  return good;
}

static bool check_plans(trial *t, subject *s, ir_func *h, bool threads, const char *how) {
  team x;
  bool good = team_open(&x, s, h, t->streams, t->devices);
  bool on_cpu = !compile_only && !spread.devices[0] && !gpu[0] && one_thread->ops->attach;
  good = good && check_ranks(&x) && (!threads || !on_cpu || x.n < 2 || check_loops(t, s, h));
  good = good && (t->seed % 2 == 0 || prune(&x));
  good = good && (compile_only || (team_step(&x) && compare(t, s, how)));
  good = good && (!threads || run_all(t, &x));
  team_close(&x);
  return good;
}

/* ---- one program ---- */
static ir_func *lower(trial *t, bool plain) {
  static const char *const variants[] = {
      NULL, "unstream", "stream-slices", "stream-pieces", "slice-products", "halve-products"};
  host_options options = {.pipeline = t->pipeline};
  bool varies = t->pipeline == HOST_AUTO && !plain;
  const char *variant = varies ? variants[t->seed / 18 % 6] : NULL;
  if (varies && t->seed / 18 % 24 == 23) variant = "slice-last";
  ir_func *h = NULL;
  status st = plain ? kit_lower_plain(t->s.func, &options, &h)
                    : kit_lower_variant(t->s.func, &options, variant, &h);
  if (st != STATUS_OK) {
    kit_refused(&t->s, "lower");
    return NULL;
  }
  if (!plain && t->seed % 4 != 3) subject_join(&t->s, h);
  return h;
}

/* What is printed parses back to a program that prints the same and gives the same. */
static bool check_text(trial *t, ir_func *h) {
  strbuf once;
  strbuf_init(&once, &t->s.memory);
  text_print_func(t->s.func, &once);
  strbuf_putc(&once, '\n');
  text_print_host(h, &once);
  if (!subject_parse(&t->again, once.data)) return false;
  ir_func *copy = t->again.func;
  const char *first = subject_print(&t->s, h), *second = subject_print(&t->again, copy);
  if (strcmp(first, second) != 0) return kit_wrong("printing again differs", second);
  if (!ir_host_verify(copy)) return kit_refused(&t->again, "verify what was printed");
  t->again.func = t->again.module.funcs.data[0];
  if (!bind_program(&t->again, t->program)) return false;
  for (uint32_t i = 0; i < t->s.n_in; i++) t->again.in[i] = t->s.in[i];
  return check_plans(t, &t->again, copy, false, "the printed program");
}

static void look_for_own(void *context, ir_func *h, ir_instr i, uint32_t depth) {
  (void)depth;
  const ir_instr_data *d = ir_instr_at(h, i);
  if (d->kind == IR_COMPUTE && d->why == IR_RULE_OWN && ir_op_at(h, d->op)->code != IR_OP_SET)
    *(bool *)context = true;
}

/* Does it compute with the device's own piece before it gets others? */
static bool begins_with_own(ir_func *h) {
  bool found = false;
  ir_host_walk(h, look_for_own, &found);
  return found;
}

static bool check_lowered(trial *t, ir_func *h, ir_func *plain) {
  if (t->print) printf("\n%s", subject_print(&t->s, h));
  if (!ir_host_verify(h)) return kit_refused(&t->s, "the lowered program does not verify");
  if (!ir_host_verify(plain)) return kit_refused(&t->s, "the plain program does not verify");
  if (!kit_reasons(h) || !kit_reasons(plain) || !kit_explained(&t->s, h, t->pipeline)) return false;
  strbuf other;
  strbuf_init(&other, &t->s.memory);
  text_print_nvfuser(plain, (int64_t)(t->seed % t->devices), &other);
  judge j = judge_of(t);
  judge_fill_inputs(&j);
  n_streamed += strstr(t->program->text, "] = stream") != NULL;
  n_own += begins_with_own(h);
  if (compile_only) return check_plans(t, &t->s, h, true, "");
  return subject_reference(&t->s, t->s.in, t->s.expected, false) && find_comparable(t) &&
         check_plans(t, &t->s, h, true, "in program order") && check_text(t, h) &&
         check_plans(t, &t->s, plain, false, "plain");
}

static status check_all(void *context) {
  trial *t = context;
  bool good = false;
  ir_func *h = NULL, *plain = NULL;
  if (subject_open(&t->s, t->program->text) && bind_program(&t->s, t->program)) {
    h = lower(t, false);
    plain = h ? lower(t, true) : NULL;
    good = h && plain ? check_lowered(t, h, plain) : refusal_is_expected();
    bool unfit = plain && !good && refusal_is_unfit();
    good = good || unfit;
    if (unfit || (!plain && good)) refusal_count(t->seed);
  }
  return good ? STATUS_OK : STATUS_CHECK_FAILED;
}

static gen_options options_of(uint64_t seed) {
  gen_options o = gen_options_default(seed);
  o.devices = true;
  o.max_devices = seed % 4 == 0 && n_devices > 4 && !all_devices ? 4 : n_devices;
  o.all_devices = all_devices;
  o.exact_only = seed % 4 != 1;
  o.symbolic = seed % 5 != 0;
  o.edges = seed % 3 == 0;
  o.rfactor = false;
  o.max_elements = 512;
  /* Partial results in bf16 are rounded per device, and what is left when they cancel is anybody's
   * guess: bf16 only where everything is exact. */
  if (!o.exact_only) o.dtypes &= ~(1u << IR_BF16);
  o.max_ops = 1 + (uint32_t)(seed % 7);
  if (seed % 29 == 0) o.max_ops = 16;
  return o;
}

static void report(const trial *t) {
  flockfile(stderr);
  unsigned long long seed = t->seed;
  fprintf(stderr, "seed %llu, %u streams, --pipeline %s: %s\n%s", seed, t->streams,
          pipelines[t->pipeline], kit_reason, t->program->text);
  for (uint32_t i = 0; i < t->program->n_bindings; i++)
    fprintf(stderr, "-D %s ", t->program->bindings[i]);
  fprintf(stderr, "\nreplay: test_devices --seed %llu", seed);
  if (all_devices) fprintf(stderr, " --devices %u", n_devices);
  fprintf(stderr, "\n\n");
  funlockfile(stderr);
}

/* Forgets what the schedule says about results, which the generator calls y0, y1, … and r0, r1, … (of
 * rfactor): the marks of inputs alone never change what comes out. */
static void keep_inputs(char *text) {
  char *at = strstr(text, "  schedule {");
  while (at && *at) {
    char *end = strchr(at, '\n');
    size_t n = end ? (size_t)(end - at) + 1 : strlen(at);
    bool result = strncmp(at, "    y", 5) == 0 || strncmp(at, "    r", 5) == 0;
    if (result) memmove(at, at + n, strlen(at + n) + 1);
    else at += n;
  }
}

static bool try_one(uint64_t seed, bool print) {
  trial t = {.seed = seed, .options = options_of(seed), .print = print, .devices = n_devices};
  bool gathers = n_devices == DEVICES && !all_devices && (seed % 16 == 3 || seed % 16 == 9);
  bool along = n_devices == DEVICES && !all_devices && seed % 16 == 5;
  gen_program *p = gathers ? gen_create_gathers(seed, t.options.exact_only)
                   : along ? gen_create_along(seed, t.options.exact_only)
                           : gen_create(&t.options);
  if (seed % 5 == 2 && !gathers && !along) keep_inputs(p->text);
  t.program = p;
  t.streams = 1 + (uint32_t)(seed / 2 % 8);
  t.pipeline = (host_pipeline)(seed / 3 % 6);
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

static bool try_seed(uint64_t seed) { return try_one(seed, asked.one); }

/* ---- the command ---- */
static int own_option(command *c, char **argv) {
  const char *name = argv[0], *value = argv[1];
  if (strcmp(name, "--devices") == 0 && value) {
    n_devices = (uint32_t)strtoul(value, NULL, 0);
    if (n_devices < 1 || n_devices > DEVICES) exit(2);
    all_devices = true;
    return 2;
  }
  if (strcmp(name, "--threads") == 0 && value)
    return n_threads = (uint32_t)strtoul(value, NULL, 0), 2;
  if (strcmp(name, "--cuda") == 0) return on_cuda = true, 1;
  if (strcmp(name, "--nccl") == 0) return on_cuda = by_nccl = true, 1;
  if (strcmp(name, "--compile-only") == 0) return on_cuda = compile_only = true, 1;
  if (strcmp(name, "--ranks") == 0) {
    as_ranks = true;
    c->seconds = 1e9; /* all processes stop at the same program */
    return 1;
  }
  return 0;
}

static void print_summary(uint64_t done, double seconds) {
  refusals_print();
  printf("%llu programs in %.1f s: %llu refused, %llu with stream loops, %llu begin with the own "
         "piece, %llu launches, %llu communications, %llu of %llu outputs compared; ranks are "
         "alike in "
         "%llu of %llu worlds, %llu changes; %llu loops kept\n",
         (unsigned long long)done, seconds, (unsigned long long)n_refused,
         (unsigned long long)n_streamed, (unsigned long long)n_own, (unsigned long long)n_launches,
         (unsigned long long)n_posts, (unsigned long long)judge_compared,
         (unsigned long long)judge_outputs, (unsigned long long)n_alike,
         (unsigned long long)n_worlds, (unsigned long long)n_changed, (unsigned long long)n_kept);
}

/* Found by longer runs. */
static const uint64_t once_wrong[] = {
    2196,    /* results of one operation with different streams: refused */
    3277,    /* key heads that are as many as the program asserts */
    712002,  /* a transposition that was tried at another place stays in the function */
    801452,  /* pieces between two grids */
    500743,  /* a stream that a variant adds, without a reason */
    1000935, /* a slice with fewer positions than devices */
    1001894, /* a refused operand of what is gathered in slices */
    1004381, /* axes that turn in a circle */
    2001516, /* GPUs: two streams write between each other's bytes over what others still read */
    2017907, /* a cut that names a `?` of another dimension */
    5044976, /* a swizzled stream where the mesh has one device along it */
    5063843, /* chunks of a part that is shorter than they are */
    5110248, /* an exchange between dimensions that are not neighbours */
    7012773, /* uneven pieces between grids in which devices have other places */
    7038786, /* computed as the index lies, which does not tell positions */
    7059261, /* wide partial results of an output with an order in memory */
    9401178, /* a reduction scattered around a cut that is there already */
    5001335, /* an order in memory that the caller does not keep */
    70769,   /* gradients of fewer key heads, cut in pieces of a length */
    2007943, /* islands of a mesh whose devices are in another order: not one device for all */
    2018238, /* both operands the same tensor, of which one device has all */
};

static void pulse(void *context, rt_pulse *p) {
  rt_device *d = context;
  d->ops->pulse(d, p);
}

static bool open_spread(void) {
  if (!launched_find(&spread.launch, &spread.backend) || spread.launch.size > DEVICES)
    return kit_wrong("start it with mpirun, with up to 8 ranks", "");
  for (uint32_t i = 0; i < 2; i++) {
    uint32_t n;
    rt_device_options way = {.first_gpu = spread.launch.local};
    way.carrier = by_nccl ? RT_CARRIER_NCCL : RT_CARRIER_NONE;
    way.link_host = i == 1 && !by_nccl;
    way.adversarial = i == 1 && by_nccl;
    rt_device *d = kit_gpu(way);
    if (!d) return false;
    rt_comm_options o = {.ranks = spread.launch.size, .pulse = pulse, .pulse_context = d};
    status st = spread.backend->open(&o, &memory_default, 1, &spread.endpoints[i], &n);
    if (!kit_ok(st, "open the world")) return false;
    d->ops->attach(d, &spread.endpoints[i], 1, INT64_C(60000000000));
    spread.devices[i] = d;
  }
  return true;
}

static void close_spread(void) {
  for (uint32_t i = 0; i < 2 && spread.devices[i]; i++) {
    spread.endpoints[i]->ops->close(spread.endpoints[i]);
    rt_device_cuda.close(spread.devices[i]);
  }
}

/* --cuda: directly, and over the host; --nccl: directly, and as a graph. */
static bool open_devices(void) {
  rt_carrier carrier = by_nccl ? RT_CARRIER_NCCL : RT_CARRIER_NONE;
  rt_device_options ways[] = {
      {.carrier = carrier},
      {.carrier = carrier, .graph = by_nccl, .link_host = !by_nccl},
  };
  if (!machines_open(on_cuda && !as_ranks ? ways : NULL)) return false;
  if (!as_ranks || open_spread()) return true;
  fprintf(stderr, "%s\n", kit_reason);
  return false;
}

static void close_devices(void) {
  machines_close();
  close_spread();
}

enum { KNOWN = sizeof once_wrong / sizeof *once_wrong };

/* They come first, where the world is the one they were found in. */
static uint64_t known_first(void) {
  return !asked.one && !all_devices && n_devices == DEVICES ? KNOWN : 0;
}

static bool try_numbered(uint64_t at) {
  return try_seed(command_seed(&asked, at, once_wrong, known_first()));
}

int main(int argc, char **argv) {
  (void)argc;
  asked = command_read(argv, (command){.count = 1000, .seconds = 60, .failures = 10}, own_option);
  if (as_ranks && launched_find(&spread.launch, &spread.backend)) n_devices = spread.launch.size;
  crowd c = {.count = asked.count + known_first(), .seconds = asked.seconds};
  c.failures = asked.failures;
  c.threads = as_ranks ? 1 : n_threads;
  c.open = open_devices;
  c.try_one = try_numbered;
  c.close = close_devices;
  if (!crowd_run(&c)) return 3;
  test_passed = c.passed;
  test_failed = c.failed;
  uint64_t done = (uint64_t)c.passed + c.failed;
  if (on_cuda) gpu_times_print(&spent);
  print_summary(done, command_now() - c.start);
  if (done >= 500 && !compile_only) {
    EXPECT(n_refused * 100 < done * 15);
    EXPECT(judge_compared * 10 > judge_outputs * 9);
  }
  return test_finish();
}
