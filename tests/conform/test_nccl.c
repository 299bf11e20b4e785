/* Communications through NCCL: every kind, dtype and reduction on 1 to 8 ranks against the
 * in-process backend, random worlds directly, as graphs and with delayed streams, and all ways to
 * fail that the stand-in knows (tests/standin/nccl.c).
 *
 *   test_nccl [quick]
 *
 * Skips where there is no GPU or no NCCL. With NCCL itself nothing is made to fail, and there are
 * no more ranks than GPUs, unless it admits several on one (NCCL_MULTI_RANK_GPU_ENABLE=1, from 2.30
 * on): then there are fewer and shorter worlds, of 2, 4 and 8 ranks, because NCCL takes more than
 * half a second for a communicator, and a world has dozens. All dtypes use the same
 * communicators. */
#include <stdlib.h>

#include "conform/matrix.h"

static bool quick;
static uint32_t most_ranks; /* 8 with the stand-in, else as many as there are GPUs */
static bool is_standin;
static bool is_shared; /* ranks of NCCL itself on one GPU */

static rt_device *open_device(rt_device_options o, const allocator *memory) {
  rt_device *d = NULL;
  o.carrier = RT_CARRIER_NCCL;
  if (!EXPECT_INT(rt_device_cuda.open(&o, memory, &d), STATUS_OK)) {
    fprintf(stderr, "%s\n", status_message());
    exit(test_finish());
  }
  return d;
}

/* A line for each part: NCCL itself may take minutes. */
static void begins(const char *name) {
  static int64_t start_ns;
  if (!start_ns) start_ns = rt_clock_ns();
  printf("%.1f s: %s\n", (double)(rt_clock_ns() - start_ns) / (double)SECONDS, name);
  (void)fflush(stdout);
}

/* ---- every kind ---- */
static void test_matrix(rt_device *d, ir_dtype dtype, uint32_t n) {
  matrix *m = calloc(1, sizeof *m);
  if (!m) abort();
  matrix_make(m, dtype, n);
  EXPECT(matrix_expect(m));
  rt_loaded *l = load_plan(d, m->plan);
  for (int run = 0; run < 2; run++) {
    matrix_clear(m, m->outputs);
    EXPECT(run_ok(l, m->inputs, m->outputs, NULL));
    for (uint32_t r = 0; r < n; r++) EXPECT_INT(matrix_wrong(m, r), 0);
  }
  d->ops->unload(l);
  matrix_destroy(m);
  free(m);
}

static void test_all_kinds(void) {
  static const uint32_t sizes[] = {1, 2, 3, 4, 8};
  char name[64];
  for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    uint32_t n = sizes[i];
    if (n > most_ranks || (quick && n > 3) || (n == 3 && is_shared)) continue;
    rt_device *d = open_device((rt_device_options){0}, &memory_default);
    for (unsigned dtype = 1; dtype < IR_DTYPE_COUNT; dtype++) {
      (void)snprintf(name, sizeof name, "%s on %u ranks", ir_dtype_text((ir_dtype)dtype), n);
      begins(name);
      test_matrix(d, (ir_dtype)dtype, n);
    }
    d->ops->close(d);
  }
}

/* ---- random worlds ---- */
static bool is_tried(uint32_t ranks) { return !is_shared || (ranks > 1 && 8 % ranks == 0); }

static void test_worlds(rt_device_options o, const char *name, int64_t width, uint32_t worlds,
                        uint32_t runs) {
  rt_device *d = open_device(o, &memory_default);
  uint32_t wrong = 0, steps = is_shared ? 16 : 40;
  begins(name);
  d->ops->attach(d, NULL, 0, 60 * SECONDS);
  for (uint32_t seed = 0; seed < worlds; seed++) {
    world w;
    if (!is_tried(1 + seed % most_ranks)) continue;
    world_make(&w, seed, 1 + seed % most_ranks, width, steps);
    rt_loaded *l = load_plan(d, w.plan);
    for (uint32_t r = 0; r < runs; r++) {
      world_clear(&w);
      wrong += !run_ok(l, w.inputs, w.outputs, NULL) || !world_is_right(&w);
    }
    d->ops->unload(l);
    world_destroy(&w);
  }
  d->ops->close(d);
  if (wrong) fprintf(stderr, "%s: ", name);
  EXPECT_INT(wrong, 0);
}

/* Spans lie within the run, and communications take time. */
static void test_spans(void) {
  rt_device *d = open_device((rt_device_options){0}, &memory_default);
  world w;
  begins("spans");
  world_make(&w, 3, most_ranks < 4 ? most_ranks : 4, 2000, is_shared ? 20 : 60);
  uint32_t wrong = 0;
  rt_span *spans = ARENA_ARRAY(&w.memory, w.plan->n_tasks + (size_t)w.plan->n_posts, rt_span);
  rt_loaded *l = load_plan(d, w.plan);
  int64_t start_ns = rt_clock_ns();
  EXPECT(run_ok(l, w.inputs, w.outputs, spans) && world_is_right(&w));
  int64_t wall_ns = rt_clock_ns() - start_ns;
  uint32_t tasks = w.plan->n_tasks, empty = 0;
  for (uint32_t i = 0; i < tasks + w.plan->n_posts; i++) {
    bool meets = i >= tasks && w.plan->posts[i - tasks].n_team > 1;
    wrong += spans[i].start_ns < 0 || spans[i].end_ns < spans[i].start_ns;
    wrong += spans[i].end_ns > wall_ns;
    empty += meets && spans[i].end_ns == spans[i].start_ns;
  }
  EXPECT(empty * 4 <= w.plan->n_posts); /* some are shorter than what can be told */
  EXPECT_INT(wrong, 0);
  d->ops->unload(l);
  d->ops->close(d);
  world_destroy(&w);
}

/* ---- failures ---- */
static void tell(const char *what) { (void)setenv("WEIR_STANDIN_NCCL", what, 1); }

/* Whatever fails, the run ends with a message, and the next one is as if nothing had been. */
static bool fails_once(rt_device_options o, int64_t timeout_ns, const char *what,
                       const char *text) {
  rt_device *d = open_device(o, &memory_default);
  rt_loaded *l = NULL;
  world w;
  d->ops->attach(d, NULL, 0, timeout_ns);
  world_make(&w, 11, 4, 16, 30);
  tell(what);
  status st = d->ops->load(d, w.plan, &l);
  if (st == STATUS_OK) st = rt_run(l, w.inputs, w.outputs, NULL, NULL);
  bool failed = st != STATUS_OK;
  if (failed) {
    EXPECT_INT(st, STATUS_UNAVAILABLE);
    EXPECT_CONTAINS(status_message(), text);
  }
  tell("");
  status_clear();
  d->ops->attach(d, NULL, 0, 60 * SECONDS);
  if (!l) l = load_plan(d, w.plan);
  for (int r = 0; r < 2; r++) {
    world_clear(&w);
    EXPECT(run_ok(l, w.inputs, w.outputs, NULL) && world_is_right(&w));
  }
  d->ops->unload(l);
  d->ops->close(d);
  world_destroy(&w);
  return failed;
}

static void test_failing_calls(void) {
  static const char *const functions[] = {
      "ncclGetUniqueId",   "ncclCommInitRankConfig", "ncclGroupStart",
      "ncclGroupEnd",      "ncclBroadcast",          "ncclReduce",
      "ncclReduceScatter", "ncclAllReduce",          "ncclSend",
      "ncclRecv",          "ncclAllGather"};
  for (size_t f = 0; f < sizeof functions / sizeof *functions; f++) {
    for (int n = 1; n < (quick ? 2 : 40); n += n < 4 ? 1 : 7) {
      char what[64], text[64];
      (void)snprintf(what, sizeof what, "fail:%s:%d", functions[f], n);
      (void)snprintf(text, sizeof text, "%s was told to fail", functions[f]);
      rt_device_options o = {.graph = n % 2 == 0};
      if (!fails_once(o, 60 * SECONDS, what, text)) break;
    }
  }
}

static void test_late_failures(void) {
  for (int n = 1; n < (quick ? 2 : 6); n++) {
    char what[64];
    for (int graph = 0; graph < 2; graph++) {
      rt_device_options o = {.graph = graph};
      (void)snprintf(what, sizeof what, "async:%d", n);
      EXPECT(fails_once(o, 60 * SECONDS, what, "was told to fail"));
      (void)snprintf(what, sizeof what, "hang:%d", n);
      EXPECT(fails_once(o, SECONDS / 4, what, "no progress in 0.25 s"));
    }
  }
}

/* The message of a timeout tells who waits for what. It is long enough for a machine that stops a
 * thread for a while before the communication that hangs. */
static void test_timeout_message(void) {
  matrix *m = calloc(1, sizeof *m);
  if (!m) abort();
  matrix_make(m, IR_F32, 2);
  rt_device *d = open_device((rt_device_options){0}, &memory_default);
  d->ops->attach(d, NULL, 0, 3 * SECONDS);
  rt_loaded *l = load_plan(d, m->plan);
  tell("hang:2");
  matrix_clear(m, m->outputs);
  EXPECT_INT(rt_run(l, m->inputs, m->outputs, NULL, NULL), STATUS_UNAVAILABLE);
  EXPECT_CONTAINS(status_message(), "no progress in 3 s: rank ");
  EXPECT_CONTAINS(status_message(), " waits for broadcast of 37 f32 with root 1 on team (");
  status_clear();
  tell("");
  d->ops->unload(l);
  d->ops->close(d);
  matrix_destroy(m);
  free(m);
}

/* Streams that have computed and then wait for others do not compute any more. */
static void test_stuck_worlds(void) {
  for (uint32_t seed = 4; seed < (quick ? 7 : 16); seed++) {
    world w;
    rt_device *d = open_device((rt_device_options){0}, &memory_default);
    d->ops->attach(d, NULL, 0, SECONDS / 4);
    world_make(&w, seed, 4, 16, 40);
    rt_loaded *l = load_plan(d, w.plan);
    tell("hang:1");
    EXPECT_INT(rt_run(l, w.inputs, w.outputs, NULL, NULL), STATUS_UNAVAILABLE);
    EXPECT_CONTAINS(status_message(), "no progress in 0.25 s: rank ");
    status_clear();
    tell("");
    d->ops->unload(l);
    d->ops->close(d);
    world_destroy(&w);
  }
}

/* One rank computes for longer than the timeout while the other waits for it: that is no stillness. */
static void make_long(kit kits[2], int64_t width, rt_plan **plan) {
  static const uint32_t team[] = {0, 1};
  rt_plan *plans[2];
  for (uint32_t r = 0; r < 2; r++) {
    kit *k = &kits[r];
    kit_init(k, 1);
    uint32_t x = kit_buffer(k, RT_BUFFER_INPUT, 0, 16), z = kit_buffer(k, RT_BUFFER_OUTPUT, 0, 16);
    uint32_t u = kit_pool(k, width);
    for (int i = 0; i < 12 && r == 0; i++) (void)kit_binary(k, 0, IR_OP_MUL, u, u, u);
    rt_post p = {.kind = IR_COMM_ALLREDUCE, .dtype = IR_I64, .team = team, .n_team = 2};
    p.me = p.rank = r;
    p.count = 16;
    p.in = x, p.out = z;
    (void)kit_join(k, 0, kit_post(k, 0, p));
    (void)kit_plan(k);
    plans[r] = &k->plan;
  }
  if (rt_plan_join(plans, 2, &memory_default, plan) != STATUS_OK) abort();
}

/* Calls of all circles of a GPU fit on it, also of those whose communicators were made for a plan with fewer
 * circles: 4 share 132 multiprocessors, or the 8 of two ranks that are on one GPU. */
static void tell_blocks(int n) {
  char what[32];
  (void)snprintf(what, sizeof what, "ctas:%d", n);
  tell(what);
}

static void test_shares(void) {
  const char *gpus = getenv("WEIR_STANDIN_GPUS");
  int share = gpus && strcmp(gpus, "1") != 0 ? 33 : 16;
  int64_t x[16] = {1}, z[2][16];
  void *inputs[] = {x, x}, *outputs[] = {z[0], z[1]};
  kit kits[2];
  rt_plan *few;
  matrix *m = calloc(1, sizeof *m);
  if (!m) abort();
  matrix_make(m, IR_F32, 2);
  EXPECT(matrix_expect(m));
  rt_device *d = open_device((rt_device_options){0}, &memory_default);
  d->ops->attach(d, NULL, 0, 60 * SECONDS);
  make_long(kits, 16, &few); /* one circle, which the other plan has as well */
  rt_loaded *first = load_plan(d, few);
  EXPECT(run_ok(first, inputs, outputs, NULL));
  rt_loaded *l = load_plan(d, m->plan);
  tell_blocks(share);
  matrix_clear(m, m->outputs);
  EXPECT(run_ok(l, m->inputs, m->outputs, NULL));
  EXPECT_INT(matrix_wrong(m, 0) + matrix_wrong(m, 1), 0);
  tell("");
  EXPECT(run_ok(first, inputs, outputs, NULL));
  tell_blocks(share - 1);
  EXPECT_INT(rt_run(l, m->inputs, m->outputs, NULL, NULL), STATUS_UNAVAILABLE);
  status_clear();
  tell("");
  d->ops->unload(first);
  d->ops->unload(l);
  d->ops->close(d);
  rt_plan_destroy(few);
  for (int r = 0; r < 2; r++) kit_destroy(&kits[r]);
  matrix_destroy(m);
  free(m);
}

/* A machine that stops a thread within a communication is a reason to give up: then once more. */
static bool runs_in_time(rt_device *d, rt_loaded *l, void **inputs, void **outputs,
                         int64_t timeout_ns) {
  enum { TRIES = 5 };
  bool good = false;
  d->ops->attach(d, NULL, 0, timeout_ns);
  for (int i = 0; i < TRIES && !good; i++) good = run_ok(l, inputs, outputs, NULL);
  return good;
}

static void test_long_kernels(void) {
  int64_t x[16] = {1}, z[2][16];
  void *inputs[] = {x, x}, *outputs[] = {z[0], z[1]};
  int64_t taken_ns = 0;
  rt_device *d = open_device((rt_device_options){0}, &memory_default);
  for (int64_t width = 1 << 17; taken_ns < SECONDS / 2 && width <= 1 << 23; width *= 4) {
    kit kits[2];
    rt_plan *plan;
    make_long(kits, width, &plan);
    rt_loaded *l = load_plan(d, plan);
    d->ops->attach(d, NULL, 0, 0);
    int64_t start_ns = rt_clock_ns();
    EXPECT(run_ok(l, inputs, outputs, NULL));
    taken_ns = rt_clock_ns() - start_ns;
    if (taken_ns >= SECONDS / 2) EXPECT(runs_in_time(d, l, inputs, outputs, taken_ns / 3));
    EXPECT_INT(z[1][0], 2);
    d->ops->unload(l);
    rt_plan_destroy(plan);
    for (int r = 0; r < 2; r++) kit_destroy(&kits[r]);
  }
  d->ops->close(d);
}

static void test_allocations(void) {
  world w;
  world_make(&w, 5, most_ranks < 3 ? most_ranks : 3, 16, 12);
  world_test_allocations(&w, &rt_device_cuda, &(rt_device_options){.carrier = RT_CARRIER_NCCL});
  world_destroy(&w);
}

/* ---- what there is ---- */
static bool is_there(void) {
  rt_device *d = NULL;
  rt_device_options o = {.carrier = RT_CARRIER_NCCL};
  status st = rt_device_cuda.open(&o, &memory_default, &d);
  if (st != STATUS_OK) {
    EXPECT_INT(st, STATUS_UNAVAILABLE);
    printf("skipped: %s\n", status_message());
    status_clear();
    return false;
  }
  bool may_share = !is_standin && getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  for (most_ranks = WORLD_RANKS; most_ranks > 1; most_ranks--) {
    world w;
    rt_loaded *l = NULL;
    world_make(&w, 0, most_ranks, 16, may_share ? 6 : 20);
    st = d->ops->load(d, w.plan, &l);
    if (l) d->ops->unload(l);
    world_destroy(&w);
    if (st == STATUS_OK) break;
    EXPECT_CONTAINS(status_message(), "NCCL wants a GPU for every device");
    status_clear();
  }
  d->ops->close(d);
  return true;
}

int main(int argc, char **argv) {
  quick = argc > 1 && strcmp(argv[1], "quick") == 0;
  is_standin = getenv("WEIR_STANDIN_NCCL") != NULL;
  if (!is_there()) return test_finish();
  rt_device *warm = NULL; /* GPUs that nobody has open take long to open */
  EXPECT_INT(rt_device_cuda.open(&(rt_device_options){0}, &memory_default, &warm), STATUS_OK);
  is_shared = !is_standin && getenv("NCCL_MULTI_RANK_GPU_ENABLE") && most_ranks > 1;
  printf("up to %u ranks%s\n", most_ranks, is_standin ? ", with the stand-in" : "");
  test_all_kinds();
  static const struct {
    const char *name;
    rt_device_options o;
  } modes[] = {{"direct", {.threads = 0}},
               {"graph", {.graph = true}},
               {"delayed", {.adversarial = true, .seed = 7}}};
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
    test_worlds(modes[i].o, modes[i].name, 16, quick ? 4 : is_shared ? 8 : 40, 3);
    test_worlds(modes[i].o, modes[i].name, 50000, quick || is_shared ? 2 : 8, 2);
  }
  test_spans();
  if (is_standin) {
    test_failing_calls();
    test_late_failures();
    test_timeout_message();
    test_stuck_worlds();
    test_shares();
    test_long_kernels();
  }
  if (!quick && !is_shared) test_allocations();
  rt_device_cuda.close(warm);
  return test_finish();
}
