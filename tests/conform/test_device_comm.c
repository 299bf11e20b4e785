/* What devices do with communications: random programs of several ranks, joins in odd places, failures,
 * time-outs, late and lost posts. */
#include "conform/rig.h"
#include "conform/world_random.h"
#include "unit/bind_kit.h"

static bool run_is_right(const world *w, rig *g) {
  world_clear(w);
  status st = rt_run(g->loaded, w->inputs, w->outputs, NULL, NULL);
  if (st == STATUS_OK) return world_is_right(w);
  fprintf(stderr, "%s\n", status_message());
  status_clear();
  return false;
}

/* ---- the same result in every order ---- */
static void test_random(uint32_t threads, int64_t width, uint32_t worlds, uint32_t runs) {
  uint32_t wrong = 0;
  for (uint32_t seed = 0; seed < worlds; seed++) {
    world w;
    rig g;
    world_make(&w, seed, 1 + seed % WORLD_RANKS, width, 40);
    rig_open(&g, threads, w.n, 60 * SECONDS);
    rig_load(&g, w.plan);
    for (uint32_t r = 0; r < runs; r++) {
      if (threads == 0) cpu_adversary_reseed(g.loaded, r);
      wrong += !run_is_right(&w, &g);
    }
    rig_close(&g);
    world_destroy(&w);
  }
  if (wrong) fprintf(stderr, "%u threads, width %d: ", threads, (int)width);
  EXPECT_INT(wrong, 0);
}

/* Spans: posts have theirs behind the tasks', and all of them lie within the run. */
static void test_spans(uint32_t threads) {
  world w;
  rig g;
  world_make(&w, 3, 4, 2000, 60);
  uint32_t n = w.plan->n_tasks + w.plan->n_posts, wrong = 0;
  rt_span *spans = ARENA_ARRAY(&w.memory, n, rt_span);
  rig_open(&g, threads, w.n, 60 * SECONDS);
  rig_load(&g, w.plan);
  int64_t start_ns = rt_clock_ns();
  EXPECT_INT(rt_run(g.loaded, w.inputs, w.outputs, spans, NULL), STATUS_OK);
  int64_t wall_ns = rt_clock_ns() - start_ns;
  EXPECT(world_is_right(&w));
  for (uint32_t i = 0; i < n; i++) {
    const rt_instr *instr = &w.plan->instrs[spans[i].instr];
    bool is_post = i >= w.plan->n_tasks;
    wrong += spans[i].start_ns < 0 || spans[i].end_ns < spans[i].start_ns;
    wrong += spans[i].end_ns > wall_ns || spans[i].stream != instr->stream;
    wrong += instr->kind != (is_post ? RT_POST : RT_LAUNCH);
    wrong += is_post && instr->task != i - w.plan->n_tasks;
  }
  EXPECT_INT(wrong, 0);
  rig_close(&g);
  world_destroy(&w);
}

/* ---- plans of two ranks, by hand ---- */
enum { PAIR_WIDTH = 8 };
static const uint32_t pair_team[] = {0, 1};

typedef struct pair {
  kit k[2];
  rt_plan *plan;
  uint32_t x[2], y[2], z[2]; /* inputs, pool, outputs */
  int64_t in[2][PAIR_WIDTH], out[2][PAIR_WIDTH];
  void *inputs[2], *outputs[2];
} pair;

static void pair_begin(pair *p, uint32_t streams) {
  *p = (pair){0};
  for (uint32_t r = 0; r < 2; r++) {
    kit_init(&p->k[r], streams);
    p->x[r] = kit_buffer(&p->k[r], RT_BUFFER_INPUT, 0, PAIR_WIDTH);
    p->z[r] = kit_buffer(&p->k[r], RT_BUFFER_OUTPUT, 0, PAIR_WIDTH);
    p->y[r] = kit_pool(&p->k[r], PAIR_WIDTH);
    for (int64_t i = 0; i < PAIR_WIDTH; i++) p->in[r][i] = (r + 1) * 100 + i;
    p->inputs[r] = p->in[r];
    p->outputs[r] = p->out[r];
  }
}

static uint32_t pair_allreduce(pair *p, uint32_t r, uint32_t stream, uint32_t in, uint32_t out) {
  rt_post post = {.kind = IR_COMM_ALLREDUCE,
                  .dtype = IR_I64,
                  .team = pair_team,
                  .n_team = 2,
                  .me = r,
                  .rank = r,
                  .count = PAIR_WIDTH,
                  .in = in,
                  .out = out};
  return kit_post(&p->k[r], stream, post);
}

static const rt_plan *pair_plan(pair *p) {
  rt_plan *plans[2];
  for (uint32_t r = 0; r < 2; r++) {
    (void)kit_plan(&p->k[r]);
    plans[r] = &p->k[r].plan;
  }
  if (rt_plan_join(plans, 2, &memory_default, &p->plan) != STATUS_OK) abort();
  return p->plan;
}

static void pair_end(pair *p) {
  rt_plan_destroy(p->plan);
  for (uint32_t r = 0; r < 2; r++) kit_destroy(&p->k[r]);
}

static bool pair_is_sum(const pair *p) {
  for (int64_t i = 0; i < PAIR_WIDTH; i++)
    if (p->out[0][i] != 300 + 2 * i || p->out[1][i] != 300 + 2 * i) return false;
  return true;
}

/* Threads 1 to 3, and the adversary with many seeds. `runs`: of each. */
static void expect_sums(pair *p, uint32_t runs) {
  uint32_t wrong = 0;
  const rt_plan *plan = pair_plan(p);
  for (uint32_t threads = 0; threads <= 3; threads++) {
    rig g;
    rig_open(&g, threads, 2, 60 * SECONDS);
    rig_load(&g, plan);
    for (uint32_t r = 0; r < runs; r++) {
      if (threads == 0) cpu_adversary_reseed(g.loaded, r);
      memset(p->out, 0, sizeof p->out);
      wrong += rt_run(g.loaded, p->inputs, p->outputs, NULL, NULL) != STATUS_OK || !pair_is_sum(p);
    }
    rig_close(&g);
  }
  EXPECT_INT(wrong, 0);
  pair_end(p);
}

/* Two streams wait for one communication; a third joins it without being behind the post. */
static void test_many_joins(void) {
  pair p;
  pair_begin(&p, 4);
  for (uint32_t r = 0; r < 2; r++) {
    kit *k = &p.k[r];
    uint32_t t = kit_pool(k, PAIR_WIDTH), zero = kit_pool(k, PAIR_WIDTH);
    uint32_t c = pair_allreduce(&p, r, 1, p.x[r], p.y[r]);
    (void)kit_join(k, 2, c);
    (void)kit_join(k, 3, c);
    (void)kit_binary(k, 3, IR_OP_SUB, zero, p.y[r], p.y[r]);
    (void)kit_set(k, 2, t, p.y[r]);
    (void)kit_join(k, 0, c);
    (void)kit_join(k, 0, c);
    (void)kit_wait(k, 0, 2);
    (void)kit_wait(k, 0, 3);
    (void)kit_binary(k, 0, IR_OP_ADD, p.z[r], t, zero);
  }
  expect_sums(&p, 200);
}

/* Nobody joins it: the run ends after it all the same. */
static void test_unjoined(void) {
  pair p;
  pair_begin(&p, 1);
  for (uint32_t r = 0; r < 2; r++) {
    (void)pair_allreduce(&p, r, 0, p.x[r], p.z[r]);
    p.k[r].posts.data[0].joined = false;
  }
  expect_sums(&p, 50);
}

/* ---- missing joins ---- */
/* Whether one of the first seeds gives a wrong result. */
static bool adversary_catches(pair *p) {
  bool caught = false;
  rig g;
  rig_open(&g, 0, 2, 60 * SECONDS);
  rig_load(&g, pair_plan(p));
  for (uint64_t seed = 0; seed < 4 * p->plan->n_streams && !caught; seed += 2) {
    cpu_adversary_reseed(g.loaded, seed);
    memset(p->out, 0, sizeof p->out);
    EXPECT_INT(rt_run(g.loaded, p->inputs, p->outputs, NULL, NULL), STATUS_OK);
    caught = !pair_is_sum(p);
  }
  rig_close(&g);
  pair_end(p);
  return caught;
}

typedef enum mistake { NO_MISTAKE, READS_EARLY, OVERWRITES_INPUT, WRITES_OUTPUT } mistake;

static void test_mistake(mistake m) {
  pair p;
  pair_begin(&p, 2);
  for (uint32_t r = 0; r < 2; r++) {
    kit *k = &p.k[r];
    uint32_t a = kit_pool(k, PAIR_WIDTH);
    (void)kit_set(k, 1, a, p.x[r]);
    uint32_t c = pair_allreduce(&p, r, 1, a, p.y[r]);
    if (m != READS_EARLY) (void)kit_join(k, 1, c);
    if (m == OVERWRITES_INPUT || m == WRITES_OUTPUT) {
      uint32_t join = k->instrs.len - 1;
      (void)kit_binary(k, 1, IR_OP_ADD, m == WRITES_OUTPUT ? p.y[r] : a, a, a);
      rt_instr t = k->instrs.data[join];
      k->instrs.data[join] = k->instrs.data[join + 1];
      k->instrs.data[join + 1] = t;
    }
    (void)kit_wait(k, 0, 1);
    (void)kit_set(k, 0, p.z[r], p.y[r]);
    if (m == READS_EARLY) (void)kit_join(k, 0, c);
  }
  EXPECT_INT(adversary_catches(&p), m != NO_MISTAKE);
}

/* ---- failures ---- */
/* Rank 1 selects by an index that may be out of range before it posts; rank 0 waits for it. `both`: so
 * does rank 0, later in the plan. */
static void make_failing(pair *p, bool both) {
  pair_begin(p, 2);
  for (uint32_t r = 0; r < 2; r++) {
    kit *k = &p->k[r];
    uint32_t index = kit_buffer(k, RT_BUFFER_INPUT, 1, PAIR_WIDTH), t = kit_pool(k, PAIR_WIDTH);
    for (uint32_t i = 0; i < 5 * (1 - r); i++) (void)kit_set(k, 1, t, p->x[r]);
    if (r == 1 || both) (void)kit_index(k, 1, t, p->x[r], index);
    else (void)kit_set(k, 1, t, p->x[r]);
    uint32_t c = pair_allreduce(p, r, 1, t, p->y[r]);
    (void)kit_join(k, 0, c);
    (void)kit_set(k, 0, p->z[r], p->y[r]);
  }
}

/* Ends, says why, and goes on with a new world. */
static void test_task_fails(uint32_t threads, bool both) {
  pair p;
  rig g;
  int64_t good[PAIR_WIDTH] = {0, 1, 2, 3, 4, 5, 6, 7}, bad[2][PAIR_WIDTH] = {{70}, {71}};
  void *wrong[] = {p.in[0], bad[0], p.in[1], bad[1]};
  void *right[] = {p.in[0], good, p.in[1], good};
  const char *told = both ? "rank " : "rank 1: "; /* of two that fail, the one that is seen first */
  make_failing(&p, both);
  rig_open(&g, threads, 2, 60 * SECONDS);
  rig_load(&g, pair_plan(&p));
  for (int r = 0; r < 20; r++) {
    int64_t start_ns = rt_clock_ns();
    rig_expect_failure(&g, wrong, p.outputs, STATUS_BAD_PROGRAM, "71");
    EXPECT(rt_clock_ns() - start_ns < 50 * SECONDS); /* no timeout ended it */
    EXPECT_INT(g.endpoints[0]->ops->error(g.endpoints[0]), STATUS_BAD_PROGRAM);
    EXPECT_CONTAINS(status_message(), told);
    status_clear();
    rig_expect_failure(&g, right, p.outputs, STATUS_BAD_PROGRAM, told); /* the world is over */
    rig_disconnect(&g);
    rig_connect(&g, 2, 60 * SECONDS, &memory_default);
    EXPECT_INT(rt_run(g.loaded, right, p.outputs, NULL, NULL), STATUS_OK);
    EXPECT(pair_is_sum(&p));
  }
  rig_close(&g);
  pair_end(&p);
}

/* Rank 1 never posts. */
static void test_time_out(uint32_t threads) {
  pair p;
  rig g;
  pair_begin(&p, 2);
  uint32_t c = pair_allreduce(&p, 0, 1, p.x[0], p.y[0]);
  (void)kit_join(&p.k[0], 0, c);
  (void)kit_set(&p.k[0], 0, p.z[0], p.y[0]);
  (void)kit_set(&p.k[1], 0, p.z[1], p.x[1]);
  rig_open(&g, threads, 2, SECONDS / 10);
  rig_load(&g, pair_plan(&p));
  int64_t start_ns = rt_clock_ns();
  rig_expect_failure(&g, p.inputs, p.outputs, STATUS_UNAVAILABLE, "no progress in 0.1 s: ");
  int64_t took_ns = rt_clock_ns() - start_ns;
  EXPECT(took_ns >= SECONDS / 10);
  (void)g.endpoints[1]->ops->error(g.endpoints[1]);
  EXPECT_CONTAINS(status_message(), "rank 0 waits for allreduce of 8 i64 (sum)");
  EXPECT_CONTAINS(status_message(), "rank 1 has not posted it, nor anything else");
  status_clear();
  rig_close(&g);
  pair_end(&p);
}

/* A task that runs for longer than the time-out is no reason to give up. A machine that stops a
 * thread between two tasks is one: then once more. */
static void test_slow_task(uint32_t threads) {
  enum { LONG = 1 << 20, TIMES = 60, TRIES = 10 };
  pair p;
  bool good = false;
  pair_begin(&p, 2);
  for (uint32_t r = 0; r < 2; r++) {
    uint32_t big = kit_pool(&p.k[r], LONG);
    for (uint32_t i = 0; r == 1 && i < TIMES; i++)
      (void)kit_binary(&p.k[r], 0, IR_OP_MUL, big, big, big);
    uint32_t c = pair_allreduce(&p, r, 0, p.x[r], p.z[r]);
    (void)kit_join(&p.k[r], 0, c);
  }
  const rt_plan *plan = pair_plan(&p);
  for (int i = 0; i < TRIES && !good; i++) {
    rig g;
    rig_open(&g, threads, 2, SECONDS / 500);
    rig_load(&g, plan);
    good = rt_run(g.loaded, p.inputs, p.outputs, NULL, NULL) == STATUS_OK && pair_is_sum(&p);
    status_clear();
    rig_close(&g);
  }
  EXPECT(good);
  pair_end(&p);
}

/* The Nth post of a rank fails, or is late, with all behind it or only those that must stay there. */
static void test_faulty(uint32_t threads, uint64_t number, bool late, bool reorders) {
  world w;
  rig g;
  world_make(&w, 11, 3, 64, 30);
  rt_comm_faults f = {.fail_at = late ? UINT64_MAX : number,
                      .fail_with = STATUS_SYSTEM,
                      .delay_at = late ? number : UINT64_MAX,
                      .delay_ns = SECONDS / 200,
                      .reorders = reorders};
  rig_open(&g, threads, w.n, 60 * SECONDS);
  rt_comm *inner = g.endpoints[1];
  EXPECT_INT(rt_comm_faulty_open(inner, &f, &memory_default, &g.endpoints[1]), STATUS_OK);
  rig_attach(&g, 60 * SECONDS);
  rig_load(&g, w.plan);
  uint32_t posts = 0;
  for (uint32_t i = 0; i < w.plan->n_posts; i++) posts += w.plan->posts[i].rank == 1;
  if (late || number >= posts) EXPECT(run_is_right(&w, &g));
  else rig_expect_failure(&g, w.inputs, w.outputs, STATUS_SYSTEM, "injected: post ");
  rig_close(&g);
  world_destroy(&w);
}

/* ---- loading ---- */
static void test_endpoints(uint32_t threads) {
  pair p;
  rig g;
  rt_loaded *l = NULL;
  pair_begin(&p, 1);
  for (uint32_t r = 0; r < 2; r++)
    (void)kit_join(&p.k[r], 0, pair_allreduce(&p, r, 0, p.x[r], p.z[r]));
  const rt_plan *plan = pair_plan(&p);
  rig_open(&g, threads, 2, 0);
  g.device->ops->attach(g.device, g.endpoints, 0, 0);
  EXPECT_INT(g.device->ops->load(g.device, plan, &l), STATUS_BAD_USAGE);
  status_clear();
  rt_comm *swapped[] = {g.endpoints[1], g.endpoints[0]};
  g.device->ops->attach(g.device, swapped, 2, 0);
  EXPECT_INT(g.device->ops->load(g.device, plan, &l), STATUS_BAD_USAGE);
  EXPECT_CONTAINS(status_message(), "rank 0");
  status_clear();
  rig_attach(&g, 0);
  rig_load(&g, plan);
  EXPECT_INT(rt_run(g.loaded, p.inputs, p.outputs, NULL, NULL), STATUS_OK);
  EXPECT(pair_is_sum(&p));
  g.device->ops->attach(g.device, g.endpoints, 1, 0);
  rig_expect_failure(&g, p.inputs, p.outputs, STATUS_BAD_USAGE, "endpoints");
  rig_close(&g);
  pair_end(&p);
}

/* Posts may allocate on any thread, so this counts where memory_faulty() would not. */
static _Atomic uint64_t allocations;
static _Atomic int64_t live;

static void *count_alloc(void *context, size_t size_bytes) {
  (void)context;
  allocations++;
  live++;
  return malloc(size_bytes);
}

static void count_free(void *context, void *block) {
  (void)context;
  live -= block != NULL;
  free(block);
}

static void test_no_allocations(uint32_t threads) {
  world w;
  rig g;
  allocator memory = {count_alloc, count_free, NULL};
  world_make(&w, 5, 4, 16, 24);
  rig_open_in(&g, threads, w.n, 60 * SECONDS, &memory);
  rig_load(&g, w.plan);
  for (int r = 0; r < 3; r++) EXPECT(run_is_right(&w, &g));
  uint64_t before = allocations;
  for (int r = 0; r < 50; r++) EXPECT(run_is_right(&w, &g));
  EXPECT_INT(allocations, before);
  rig_close(&g);
  EXPECT_INT(live, 0);
  world_destroy(&w);
}

/* Loading fails cleanly at every allocation. */
static void test_allocations(uint32_t threads) {
  world w;
  world_make(&w, 5, 3, 16, 24);
  status st = STATUS_OUT_OF_MEMORY;
  for (uint64_t n = 0; st != STATUS_OK && n < 10000; n++) {
    memory_faults faults = {.fail_at = UINT64_MAX};
    allocator memory = memory_faulty(&faults);
    rig g;
    rig_open_in(&g, threads, w.n, 60 * SECONDS, &memory);
    faults.fail_at = faults.calls + n;
    st = g.device->ops->load(g.device, w.plan, &g.loaded);
    faults.fail_at = UINT64_MAX;
    EXPECT(st == STATUS_OK || st == STATUS_OUT_OF_MEMORY);
    status_clear();
    rig_close(&g);
    EXPECT_INT(faults.live, 0);
  }
  EXPECT_INT(st, STATUS_OK);
  world_destroy(&w);
}

static void test_executor(uint32_t threads) {
  test_random(threads, 16, threads ? 100 : 60, threads ? 5 : 60);
  test_random(threads, 30000, SANITIZED ? 4 : 12, threads ? 3 : 12);
  test_spans(threads);
  test_task_fails(threads, false);
  test_task_fails(threads, true);
  test_time_out(threads);
  test_slow_task(threads);
  for (uint64_t n = 0; n < 40; n++) {
    test_faulty(threads, n, false, false);
    if (n % 4 == 0) test_faulty(threads, n, true, false);
    if (n % 4 == 2) test_faulty(threads, n, true, true);
  }
  test_endpoints(threads);
  test_no_allocations(threads);
  test_allocations(threads);
}

/* ---- loops whose messages go to another rank in each repetition ---- */
enum { HALF = 8, ALL = 2 * HALF };

static const char sends_to_each[] =
    "host f(mesh d = [16], a : f32[2] on d) -> (c) {\n  c : f32[8, 2] on d = allocate()\n"
    "  for i in 8 {\n    c$1 = select(c, dim=0, index=i)\n    if me(d.x) < 8 {\n"
    "      c$1 <- set(a)\n      c0 = send(a, to=8 + i, team=d.x)\n      wait(c0)\n"
    "    } else {\n      c0 = recv(c$1, from=i, team=d.x)\n      wait(c0)\n    }\n  }\n}\n";

static uint32_t n_moving(const rt_plan *p) {
  uint32_t n = 0;
  for (uint32_t k = 0; k < p->n_posts; k++) n += rt_post_moves(&p->posts[k]);
  return n;
}

static void run_moving(const rt_plan *plan) {
  float in[ALL][2], out[ALL][HALF][2];
  void *inputs[ALL], *outputs[ALL];
  uint32_t wrong = 0;
  rig g;
  for (uint32_t r = 0; r < ALL; r++) {
    in[r][0] = (float)r;
    in[r][1] = (float)r + 0.5F;
    inputs[r] = in[r];
    outputs[r] = out[r];
  }
  memset(out, 0, sizeof out);
  rig_open(&g, 2, ALL, 60 * SECONDS);
  rig_load(&g, plan);
  EXPECT(run_ok(g.loaded, inputs, outputs, NULL));
  for (uint32_t r = 0; r < ALL; r++)
    for (uint32_t i = 0; i < HALF; i++) {
      uint32_t from = r < HALF ? r : i;
      wrong += out[r][i][0] != in[from][0] || out[r][i][1] != in[from][1];
    }
  EXPECT_INT(wrong, 0);
  rig_close(&g);
}

static status test_moving(void *context) {
  static bound ranks[ALL];
  rt_plan *plans[ALL], *plan = NULL;
  bool good = true;
  (void)context;
  for (uint32_t r = 0; r < ALL; r++) {
    bind_options o = {.streams = 1, .rank = r, .loops = 2};
    good = EXPECT(bind_with(&ranks[r], sends_to_each, &o, &memory_default)) && good;
    plans[r] = ranks[r].plan;
  }
  good = good && EXPECT(rt_plan_join(plans, ALL, &memory_default, &plan) == STATUS_OK) &&
         EXPECT_INT(plan->n_loops, 1) && EXPECT_INT(n_moving(plan), ALL);
  if (good) run_moving(plan);
  rt_plan_destroy(plan);
  for (uint32_t r = 0; r < ALL; r++) bind_close(&ranks[r]);
  return STATUS_OK;
}

int main(void) {
  EXPECT(memory_guard(test_moving, NULL) == STATUS_OK);
  for (uint32_t threads = 0; threads <= 3; threads++) test_executor(threads);
  test_many_joins();
  test_unjoined();
  test_mistake(NO_MISTAKE);
  test_mistake(READS_EARLY);
  test_mistake(OVERWRITES_INPUT);
  test_mistake(WRITES_OUTPUT);
  return test_finish();
}
