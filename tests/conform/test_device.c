/* What every device must do, and what only some can: cpu with one to four threads, cpu as
 * adversary, sim, null; cuda where there is a GPU (test_cuda.c has the rest of it). Plans are made
 * by hand; the oracle runs them one instruction at a time. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/plan_errors.h"
#include "conform/plan_random.h"
#include "conform/rig.h"
#include "device/cpu/adversary.h"
#include "device/sim/sim.h"
#include "test.h"

static rt_device *open_cpu(uint32_t threads) {
  rt_device *d = NULL;
  rt_device_options o = {.threads = threads};
  EXPECT_INT(rt_device_find("cpu")->open(&o, &memory_default, &d), STATUS_OK);
  return d;
}

static rt_device *open_adversary(uint64_t seed) {
  rt_device *d = NULL;
  rt_device_options o = {.adversarial = true, .seed = seed};
  EXPECT_INT(rt_device_find("cpu")->open(&o, &memory_default, &d), STATUS_OK);
  return d;
}

/* ---- the same result in every order ---- */
static bool run_is_right(const random_plan *p, rt_loaded *l, arrays *a) {
  memset(a->out, 0, sizeof a->out);
  if (rt_run(l, a->inputs, a->outputs, NULL, NULL) != STATUS_OK) return false;
  return random_check(p, a->out);
}

static void test_random_plans(rt_device *d, const char *name, uint32_t plans, uint32_t repeats) {
  uint32_t wrong = 0;
  for (uint32_t seed = 0; seed < plans; seed++) {
    random_plan p;
    arrays a;
    const rt_plan *plan = random_make(&p, seed, 1 + seed % PLAN_STREAMS, 60, seed % 2);
    rt_loaded *l = load_plan(d, plan);
    make_arrays(&p, &a);
    for (uint32_t r = 0; r < repeats; r++)
      if (!run_is_right(&p, l, &a)) wrong++;
    d->ops->unload(l);
    kit_destroy(&p.k);
  }
  if (wrong) fprintf(stderr, "%s: ", name);
  EXPECT_INT(wrong, 0);
}

static void test_adversary_is_right(void) {
  uint32_t wrong = 0;
  rt_device *d = open_adversary(0);
  for (uint32_t seed = 0; seed < 200; seed++) {
    random_plan p;
    arrays a;
    rt_loaded *l = load_plan(d, random_make(&p, seed, 1 + seed % PLAN_STREAMS, 60, seed % 2));
    make_arrays(&p, &a);
    for (uint64_t s = 0; s < 24; s++) {
      cpu_adversary_reseed(l, s);
      if (!run_is_right(&p, l, &a)) wrong++;
    }
    d->ops->unload(l);
    kit_destroy(&p.k);
  }
  d->ops->close(d);
  EXPECT_INT(wrong, 0);
}

/* ---- a missing wait shows ---- */
/* Whether some seed of the adversary gives a wrong result. */
static bool is_caught(rt_device *d, const random_plan *p, const rt_plan *plan, arrays *a) {
  bool caught = false;
  rt_loaded *l = load_plan(d, plan);
  for (uint64_t s = 0; s < 2 * plan->n_streams && !caught; s += 2) {
    cpu_adversary_reseed(l, s);
    caught = !run_is_right(p, l, a);
  }
  d->ops->unload(l);
  return caught;
}

typedef struct kills {
  uint32_t needed, caught, redundant, survived;
} kills;

/* Deletes each wait in turn. */
static void count_kills(rt_device *d, const random_plan *p, const rt_plan *plan, kills *k) {
  arrays a;
  make_arrays(p, &a);
  for (uint32_t i = 0; i < plan->n_instrs; i++) {
    rt_instr saved = plan->instrs[i];
    if (saved.kind != RT_WAIT) continue;
    plan->instrs[i].other = saved.stream; /* waiting for itself is no wait */
    bool caught = is_caught(d, p, plan, &a);
    if (random_is_ordered(plan)) k->redundant++, k->survived += !caught;
    else k->needed++, k->caught += caught;
    plan->instrs[i] = saved;
  }
}

static void test_missing_waits(bool reuse) {
  rt_device *d = open_adversary(0);
  kills k = {0};
  for (uint32_t seed = 0; seed < 40; seed++) {
    random_plan p;
    const rt_plan *plan = random_make(&p, 7000 + seed, 2 + seed % (PLAN_STREAMS - 1), 40, reuse);
    EXPECT(random_is_ordered(plan));
    count_kills(d, &p, plan, &k);
    kit_destroy(&p.k);
  }
  d->ops->close(d);
  printf("missing waits%s: %u of %u needed ones caught, %u of %u redundant ones survive\n",
         reuse ? " (buffers reused)" : "", k.caught, k.needed, k.survived, k.redundant);
  /* A buffer may be taken over before anyone reads the wrong value in it. */
  if (reuse) EXPECT(k.caught * 10 >= k.needed * 8);
  else EXPECT_INT(k.caught, k.needed);
  EXPECT_INT(k.survived, k.redundant);
}

static void test_policies(void) {
  uint32_t victim;
  EXPECT_STR(cpu_adversary_policy(6, 5, &victim), "starve");
  EXPECT_INT(victim, 3);
  EXPECT_STR(cpu_adversary_policy(1, 5, &victim), "random");
  EXPECT_STR(cpu_adversary_policy(3, 5, &victim), "latest");
  EXPECT_STR(cpu_adversary_policy(5, 5, &victim), "burst");
}

/* What was never written is poison, and not the same under all seeds. */
static void test_poison(void) {
  kit k;
  kit_init(&k, 1);
  uint32_t never = kit_pool(&k, 4), out = kit_buffer(&k, RT_BUFFER_OUTPUT, 0, 4);
  (void)kit_set(&k, 0, out, never);
  rt_device *d = open_adversary(0);
  rt_loaded *l = load_plan(d, kit_plan(&k));
  int64_t value[4], first = 0;
  void *outputs[] = {value};
  bool differs = false;
  for (uint64_t seed = 0; seed < 16; seed++) {
    cpu_adversary_reseed(l, seed);
    EXPECT_INT(rt_run(l, NULL, outputs, NULL, NULL), STATUS_OK);
    EXPECT(value[0] != 0);
    if (seed == 0) first = value[0];
    differs = differs || value[0] != first;
  }
  EXPECT(differs);
  d->ops->unload(l);
  d->ops->close(d);
  kit_destroy(&k);
}

/* ---- overlap ---- */
static bool spans_overlap(const rt_span *spans, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t j = 0; j < i; j++) {
      const rt_span *a = &spans[i], *b = &spans[j];
      if (a->stream != b->stream && a->start_ns < b->end_ns && b->start_ns < a->end_ns) return true;
    }
  return false;
}

/* Whether a run of eight long tasks on two streams shows two at the same time. */
static bool overlaps(uint32_t threads) {
  enum { N = 1 << 20, TASKS = 8 };
  kit k;
  kit_init(&k, 3);
  uint32_t a[2];
  for (uint32_t i = 0; i < 2; i++) a[i] = kit_buffer(&k, RT_BUFFER_OUTPUT, i, N);
  for (uint32_t i = 0; i < TASKS; i++)
    (void)kit_binary(&k, 1 + i % 2, IR_OP_ADD, a[i % 2], a[i % 2], a[i % 2]);
  rt_device *d = open_cpu(threads);
  rt_loaded *l = load_plan(d, kit_plan(&k));
  void *outputs[] = {calloc(N, 8), calloc(N, 8)};
  rt_span spans[TASKS];
  bool seen = false;
  for (int tries = 0; tries < 100 && !seen; tries++) {
    EXPECT_INT(rt_run(l, NULL, outputs, spans, NULL), STATUS_OK);
    for (uint32_t i = 0; i < TASKS; i++) {
      EXPECT_INT(spans[i].instr, i);
      EXPECT(spans[i].start_ns >= 0 && spans[i].end_ns > spans[i].start_ns);
    }
    seen = spans_overlap(spans, TASKS);
  }
  free(outputs[0]), free(outputs[1]);
  d->ops->unload(l);
  d->ops->close(d);
  kit_destroy(&k);
  return seen;
}

static void test_overlap(void) {
  EXPECT(!overlaps(1));
  EXPECT(overlaps(2));
}

/* ---- every device ---- */
static status try_all(const rt_device_ops *ops, const rt_device_options *o, const rt_plan *plan,
                      const allocator *memory, arrays *a) {
  rt_device *d = NULL;
  rt_loaded *l = NULL;
  status st;
  TRY_OUT(ops->open(o, memory, &d));
  TRY_OUT(d->ops->load(d, plan, &l));
  TRY_OUT(rt_run(l, a->inputs, a->outputs, NULL, NULL));
out:
  if (l) d->ops->unload(l);
  if (d) d->ops->close(d);
  return st;
}

/* The Nth allocation fails, for every N; nothing leaks. A run itself allocates nothing. */
static void test_allocations(const rt_device_ops *ops, bool adversarial) {
  random_plan p;
  arrays a;
  const rt_plan *plan = random_make(&p, 1, 4, 20, true);
  make_arrays(&p, &a);
  rt_device_options o = {.threads = 2, .adversarial = adversarial};
  status st = STATUS_OUT_OF_MEMORY;
  for (uint64_t n = 0; st != STATUS_OK && n < 1000; n++) {
    memory_faults faults = {.fail_at = n};
    allocator memory = memory_faulty(&faults);
    status_clear();
    st = try_all(ops, &o, plan, &memory, &a);
    EXPECT(st == STATUS_OK || st == STATUS_OUT_OF_MEMORY);
    EXPECT_INT(faults.live, 0);
  }
  EXPECT_INT(st, STATUS_OK);
  kit_destroy(&p.k);
}

static void test_runs_allocate_nothing(const rt_device_ops *ops, bool adversarial) {
  random_plan p;
  arrays a;
  memory_faults faults = {.fail_at = UINT64_MAX};
  allocator memory = memory_faulty(&faults);
  rt_device_options o = {.threads = 2, .adversarial = adversarial};
  rt_device *d = NULL;
  rt_loaded *l = NULL;
  const rt_plan *plan = random_make(&p, 2, 5, 50, true);
  make_arrays(&p, &a);
  EXPECT_INT(ops->open(&o, &memory, &d), STATUS_OK);
  EXPECT_INT(d->ops->load(d, plan, &l), STATUS_OK);
  uint64_t before = faults.calls;
  for (int r = 0; r < 10; r++) EXPECT_INT(rt_run(l, a.inputs, a.outputs, NULL, NULL), STATUS_OK);
  EXPECT_INT(faults.calls, before);
  d->ops->unload(l);
  d->ops->close(d);
  EXPECT_INT(faults.live, 0);
  kit_destroy(&p.k);
}

static void test_empty_plan(const rt_device_ops *ops, bool adversarial) {
  kit k;
  kit_init(&k, 1);
  arrays a = {0};
  rt_device_options o = {.adversarial = adversarial};
  EXPECT_INT(try_all(ops, &o, kit_plan(&k), &memory_default, &a), STATUS_OK);
  kit_destroy(&k);
}

/* Whether the machine has what the device needs. */
static bool is_there(const rt_device_ops *ops) {
  rt_device *d = NULL;
  status st = ops->open(&(rt_device_options){0}, &memory_default, &d);
  if (st == STATUS_OK) d->ops->close(d);
  else printf("%s: skipped: %s\n", ops->name, status_message());
  EXPECT(st == STATUS_OK || st == STATUS_UNAVAILABLE);
  status_clear();
  return st == STATUS_OK;
}

static void test_table(void) {
  EXPECT(rt_device_find("nothing") == NULL);
  for (uint32_t i = 0; i < rt_device_count(); i++) {
    const rt_device_ops *ops = rt_device_at(i);
    EXPECT(rt_device_find(ops->name) == ops);
    EXPECT(strlen(ops->summary) > 0);
    ops->close(NULL);
    ops->unload(NULL);
    if (!is_there(ops)) continue;
    test_allocations(ops, false);
    test_runs_allocate_nothing(ops, false);
    test_empty_plan(ops, false);
  }
  test_allocations(rt_device_find("cpu"), true);
  test_runs_allocate_nothing(rt_device_find("cpu"), true);
  test_empty_plan(rt_device_find("cpu"), true);
}

/* ---- threads ---- */
/* Address space for a few stacks only: some thread cannot start. */
static void test_no_threads(void) {
  if (SANITIZED) return;
  pid_t child = fork();
  if (child == 0) {
    struct rlimit limit = {.rlim_cur = 300 << 20, .rlim_max = 300 << 20};
    rt_device *d = NULL;
    rt_device_options o = {.threads = 200};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(3);
    status st = rt_device_find("cpu")->open(&o, &memory_default, &d);
    _exit(st == STATUS_SYSTEM && !d && strstr(status_message(), "thread") ? 0 : 1);
  }
  int code = -1;
  (void)waitpid(child, &code, 0);
  EXPECT_INT(code, 0);
}

typedef struct user {
  rt_device *device;
  uint64_t seed;
  uint32_t runs, wrong;
} user;

static void *use(void *context) {
  user *u = context;
  random_plan p;
  arrays a;
  rt_loaded *l = NULL;
  const rt_plan *plan = random_make(&p, u->seed, 5, 60, true);
  make_arrays(&p, &a);
  if (u->device->ops->load(u->device, plan, &l) != STATUS_OK) u->wrong++;
  else
    for (uint32_t r = 0; r < u->runs; r++)
      if (!run_is_right(&p, l, &a)) u->wrong++;
  u->device->ops->unload(l);
  kit_destroy(&p.k);
  return NULL;
}

/* Two threads use one device, and two devices exist at once. */
static void test_users(uint32_t runs) {
  rt_device *devices[2] = {open_cpu(2), open_cpu(3)};
  user users[4];
  pthread_t threads[4];
  for (uint32_t i = 0; i < 4; i++) {
    users[i] = (user){.device = devices[i % 2], .seed = 50 + i, .runs = runs};
    EXPECT_INT(pthread_create(&threads[i], NULL, use, &users[i]), 0);
  }
  for (uint32_t i = 0; i < 4; i++) {
    EXPECT_INT(pthread_join(threads[i], NULL), 0);
    EXPECT_INT(users[i].wrong, 0);
  }
  for (uint32_t i = 0; i < 2; i++) devices[i]->ops->close(devices[i]);
}

/* Opening and closing at once: threads that never slept must end too. */
static void test_open_close(void) {
  for (int i = 0; i < 50; i++) {
    rt_device *d = open_cpu(1 + (uint32_t)i % 4);
    d->ops->close(d);
  }
}

/* One chain that changes the stream at every step, so that streams block all the time; loaded anew
 * every few runs, so that nobody may touch a plan that has finished. */
static void test_chain(rt_device *d, uint32_t streams, uint32_t loads) {
  kit k;
  kit_init(&k, streams);
  uint32_t x = kit_buffer(&k, RT_BUFFER_INPUT, 0, 1), y = kit_buffer(&k, RT_BUFFER_OUTPUT, 0, 1);
  for (uint32_t i = 0; i < 100; i++) {
    if (i) (void)kit_wait(&k, i % streams, (i - 1) % streams);
    (void)kit_binary(&k, i % streams, IR_OP_SUB, y, x, y);
  }
  uint32_t wrong = 0;
  for (uint32_t n = 0; n < loads; n++) {
    rt_loaded *l = load_plan(d, kit_plan(&k));
    for (int r = 0; r < 3; r++) {
      int64_t in = 5, out = 7;
      status st = rt_run(l, (void *[]){&in}, (void *[]){&out}, NULL, NULL);
      if (st != STATUS_OK || out != 7) wrong++;
    }
    d->ops->unload(l);
  }
  EXPECT_INT(wrong, 0);
  kit_destroy(&k);
}

static void test_cpu(uint32_t threads) {
  rt_device *d = open_cpu(threads);
  test_random_plans(d, "many plans", 300, 4);
  test_random_plans(d, "many runs", 3, SANITIZED ? 300 : 1500);
  for (uint32_t streams = 2; streams <= 8; streams *= 2) test_chain(d, streams, 300);
  plan_test_errors(d, 200);
  d->ops->close(d);
}

/* ---- sim ---- */
static int64_t sim_ns(const rt_plan *plan, uint32_t units, const uint32_t **path, uint32_t *len) {
  static const rt_speed hundred = {
      .flops_per_ns = 1e30, .bytes_per_ns = 1e30, .launch_ns = 100, .link_bytes_per_ns = 1};
  static uint32_t kept[16];
  rt_device *d = NULL;
  rt_device_options o = {.threads = units};
  rt_span spans[16];
  EXPECT_INT(rt_device_find("sim")->open(&o, &memory_default, &d), STATUS_OK);
  sim_set_machine(d, &hundred);
  rt_loaded *l = load_plan(d, plan);
  EXPECT_INT(rt_run(l, NULL, NULL, spans, NULL), STATUS_OK);
  int64_t total = sim_total_ns(l);
  const uint32_t *instrs;
  *len = sim_critical_path(l, &instrs);
  memcpy(kept, instrs, *len * sizeof *kept);
  *path = kept;
  d->ops->unload(l);
  d->ops->close(d);
  return total;
}

/* Four tasks on four streams, then one on stream 0 that waits for streams 1 and 2. */
static void test_sim(void) {
  kit k;
  kit_init(&k, 5);
  uint32_t x = kit_buffer(&k, RT_BUFFER_INPUT, 0, 4);
  for (uint32_t s = 1; s <= 4; s++) (void)kit_set(&k, s, kit_pool(&k, 4), x);
  (void)kit_wait(&k, 0, 1);
  (void)kit_wait(&k, 0, 2);
  (void)kit_set(&k, 0, kit_pool(&k, 4), x);
  const uint32_t *path;
  uint32_t len;
  const rt_plan *plan = kit_plan(&k);
  EXPECT_INT(sim_ns(plan, 8, &path, &len), 200);
  EXPECT_INT(len, 2);
  EXPECT_INT(path[0], 0);
  EXPECT_INT(path[1], 6);
  EXPECT_INT(sim_ns(plan, 2, &path, &len), 300);
  EXPECT_INT(sim_ns(plan, 0, &path, &len), 500); /* streams share one unit */
  EXPECT_INT(len, 5);
  kit_destroy(&k);
}

int main(void) {
  test_table();
  for (uint32_t threads = 1; threads <= 4; threads++) test_cpu(threads);
  test_adversary_is_right();
  test_missing_waits(false);
  test_missing_waits(true);
  test_policies();
  test_poison();
  test_overlap();
  test_no_threads();
  test_users(SANITIZED ? 100 : 1000);
  test_open_close();
  test_sim();
  return test_finish();
}
