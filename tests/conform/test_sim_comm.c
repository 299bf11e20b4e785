/* Communications on the virtual clock: when they begin, how long they take, who is on the critical path.
 * A task takes 100 ns, a step of a communication 1000 ns, a byte 1 ns. */
#include "conform/world_random.h"
#include "device/sim/sim.h"
#include "test.h"
#include "trace/stats.h"
#include "trace/trace.h"

static rt_speed costs = {.flops_per_ns = 1e30,
                         .bytes_per_ns = 1e30,
                         .launch_ns = 100,
                         .link_latency_ns = 1000,
                         .link_bytes_per_ns = 1};

enum { WIDTH = 10, BYTES = 80, MAX_SPANS = 64, MAX_PATH = 16 };

typedef struct outcome {
  status st;
  int64_t total_ns;
  uint32_t path[MAX_PATH], path_len;
  rt_span spans[MAX_SPANS];
} outcome;

static outcome simulate(const rt_plan *plan) {
  static outcome o;
  rt_device *d = NULL;
  rt_loaded *l = NULL;
  o = (outcome){0};
  EXPECT_INT(rt_device_find("sim")->open(&(rt_device_options){.threads = 16}, &memory_default, &d),
             STATUS_OK);
  sim_set_machine(d, &costs);
  if (!EXPECT_INT(d->ops->load(d, plan, &l), STATUS_OK)) exit(test_finish());
  for (int r = 0; r < 2; r++) o.st = rt_run(l, NULL, NULL, o.spans, NULL);
  const uint32_t *path;
  o.total_ns = sim_total_ns(l);
  o.path_len = sim_critical_path(l, &path);
  for (uint32_t i = 0; i < o.path_len && i < MAX_PATH; i++) o.path[i] = path[i];
  d->ops->unload(l);
  d->ops->close(d);
  return o;
}

static const uint32_t team[] = {0, 1, 2, 3};

typedef struct ranks {
  kit k[4];
  uint32_t n, x[4], y[4];
  rt_plan *plan;
} ranks;

static void begin(ranks *a, uint32_t n, uint32_t streams) {
  *a = (ranks){.n = n};
  for (uint32_t r = 0; r < n; r++) {
    kit_init(&a->k[r], streams);
    a->x[r] = kit_pool(&a->k[r], WIDTH * 4);
    a->y[r] = kit_pool(&a->k[r], WIDTH * 4);
  }
}

static rt_post post_of(const ranks *a, uint32_t r, ir_comm_kind kind) {
  return (rt_post){.kind = kind,
                   .dtype = IR_I64,
                   .team = team,
                   .n_team = a->n,
                   .me = r,
                   .rank = r,
                   .to = (int32_t)((r + 1) % a->n),
                   .from = (int32_t)((r + a->n - 1) % a->n),
                   .count = WIDTH,
                   .count_from = WIDTH,
                   .in = a->x[r],
                   .out = a->y[r]};
}

static const rt_plan *end(ranks *a) {
  rt_plan *plans[4];
  for (uint32_t r = 0; r < a->n; r++) {
    (void)kit_plan(&a->k[r]);
    plans[r] = &a->k[r].plan;
  }
  if (rt_plan_join(plans, a->n, &memory_default, &a->plan) != STATUS_OK) abort();
  return a->plan;
}

static void drop(ranks *a) {
  rt_plan_destroy(a->plan);
  for (uint32_t r = 0; r < a->n; r++) kit_destroy(&a->k[r]);
}

/* ---- one communication ---- */
static int64_t one_ns(ir_comm_kind kind, uint32_t n) {
  ranks a;
  begin(&a, n, 1);
  for (uint32_t r = 0; r < n; r++)
    (void)kit_join(&a.k[r], 0, kit_post(&a.k[r], 0, post_of(&a, r, kind)));
  outcome o = simulate(end(&a));
  EXPECT_INT(o.st, STATUS_OK);
  drop(&a);
  return o.total_ns;
}

static void test_kinds(void) {
  EXPECT_INT(one_ns(IR_COMM_BROADCAST, 4), 3 * 1000 + BYTES);
  EXPECT_INT(one_ns(IR_COMM_REDUCE, 4), 3 * 1000 + BYTES);
  EXPECT_INT(one_ns(IR_COMM_GATHER, 4), 3 * (1000 + BYTES));
  EXPECT_INT(one_ns(IR_COMM_SCATTER, 4), 3 * (1000 + BYTES));
  EXPECT_INT(one_ns(IR_COMM_ALLGATHER, 4), 3 * (1000 + BYTES));
  EXPECT_INT(one_ns(IR_COMM_REDUCE_SCATTER, 4), 3 * (1000 + BYTES));
  EXPECT_INT(one_ns(IR_COMM_ALL_TO_ALL, 4), 3 * (1000 + BYTES));
  EXPECT_INT(one_ns(IR_COMM_ALLREDUCE, 4), 6 * (1000 + BYTES / 4));
  EXPECT_INT(one_ns(IR_COMM_PERMUTE, 4), 1000 + BYTES); /* links send and receive at once */
  EXPECT_INT(one_ns(IR_COMM_ALLGATHER, 1), 0);
}

/* Once for each communication, however many steps it has; a team of one does nothing. */
static void test_post_time(void) {
  costs.post_ns = 70;
  EXPECT_INT(one_ns(IR_COMM_ALLGATHER, 4), 70 + 3 * (1000 + BYTES));
  EXPECT_INT(one_ns(IR_COMM_PERMUTE, 4), 70 + 1000 + BYTES);
  EXPECT_INT(one_ns(IR_COMM_ALLREDUCE, 1), 0);
  costs.post_ns = 0;
}

/* Rank 1 posts 300 ns late. Rank 0 computes meanwhile, and at the end something that needs both. */
static void test_critical_path(void) {
  ranks a;
  begin(&a, 2, 2);
  for (uint32_t r = 0; r < 2; r++) {
    kit *k = &a.k[r];
    for (uint32_t i = 0; i < 3 * r; i++) (void)kit_set(k, 0, a.x[r], a.y[r]);
    uint32_t c = kit_post(k, 0, post_of(&a, r, IR_COMM_ALLGATHER));
    for (uint32_t i = 0; i < 2; i++) (void)kit_set(k, 1, kit_pool(k, 4), a.x[r]);
    (void)kit_join(k, 1, c);
    if (r == 0) (void)kit_set(k, 1, a.x[r], a.y[r]);
  }
  const rt_plan *plan = end(&a);
  outcome o = simulate(plan);
  EXPECT_INT(o.total_ns, 300 + 1000 + BYTES + 100);
  if (EXPECT_INT(o.path_len, 5)) {
    for (uint32_t i = 0; i < 3; i++) EXPECT_INT(plan->instrs[o.path[i]].kind, RT_LAUNCH);
    EXPECT_INT(plan->instrs[o.path[3]].kind, RT_POST);
    EXPECT_INT(rt_plan_rank(plan, plan->instrs[o.path[3]].stream), 1);
    EXPECT_INT(plan->instrs[o.path[4]].kind, RT_LAUNCH);
  }
  const rt_span *posts = &o.spans[plan->n_tasks];
  EXPECT_INT(posts[0].start_ns, 0);
  EXPECT_INT(posts[1].start_ns, 300);
  EXPECT_INT(posts[0].end_ns, 1380);
  EXPECT_INT(posts[1].end_ns, 1380);
  drop(&a);
}

/* Two communications of a rank share its link; those of other ranks do not. */
static void test_links(void) {
  ranks a;
  begin(&a, 4, 2);
  static const uint32_t teams[2][2] = {{0, 1}, {2, 3}}, crossed[] = {1, 0};
  for (uint32_t r = 0; r < 4; r++) {
    rt_post p = post_of(&a, r, IR_COMM_ALLGATHER);
    p.team = teams[r / 2];
    p.n_team = 2;
    p.me = r % 2;
    uint32_t c = kit_post(&a.k[r], 0, p), second = RT_NO_POST;
    p.team = crossed;
    p.me = 1 - r % 2;
    if (r < 2) second = kit_post(&a.k[r], 1, p);
    (void)kit_join(&a.k[r], 0, c);
    if (r < 2) (void)kit_join(&a.k[r], 1, second);
  }
  const rt_plan *plan = end(&a);
  outcome o = simulate(plan);
  EXPECT_INT(o.total_ns, 2 * (1000 + BYTES));
  for (uint32_t p = 0; p < plan->n_posts; p++) {
    const rt_span *s = &o.spans[plan->n_tasks + p];
    bool second = plan->posts[p].team == crossed;
    EXPECT_INT(s->end_ns, (second ? 2 : 1) * (1000 + BYTES));
  }
  drop(&a);
}

/* Of one rank alone: the others post when it does. Of one that waits for ever: an error, no hang. */
static void test_absent(void) {
  ranks a;
  begin(&a, 2, 1);
  (void)kit_join(&a.k[0], 0, kit_post(&a.k[0], 0, post_of(&a, 0, IR_COMM_ALLREDUCE)));
  (void)kit_set(&a.k[0], 0, a.x[0], a.y[0]);
  EXPECT_INT(simulate(kit_plan(&a.k[0])).total_ns, 2 * (1000 + BYTES / 2) + 100);
  EXPECT_INT(simulate(end(&a)).st, STATUS_UNAVAILABLE);
  EXPECT_CONTAINS(status_message(), "rank 0 waits for allreduce, which");
  status_clear();
  drop(&a);
}

/* The null device and the clock take any program, and need no endpoints. */
static void test_random(void) {
  static const char *const names[] = {"sim", "null"};
  for (uint64_t seed = 0; seed < 40; seed++) {
    world w;
    world_make(&w, seed, 1 + (uint32_t)seed % WORLD_RANKS, 4, 40);
    rt_span *spans = ARENA_ARRAY(&w.memory, w.plan->n_tasks + w.plan->n_posts, rt_span);
    for (int k = 0; k < 2; k++) {
      rt_device *d = NULL;
      rt_loaded *l = NULL;
      rt_device_options o = {0};
      EXPECT_INT(rt_device_find(names[k])->open(&o, &memory_default, &d), STATUS_OK);
      EXPECT_INT(d->ops->load(d, w.plan, &l), STATUS_OK);
      EXPECT_INT(rt_run(l, NULL, NULL, spans, NULL), STATUS_OK);
      for (uint32_t p = 0; p < w.plan->n_posts; p++) {
        const rt_span *s = &spans[w.plan->n_tasks + p];
        EXPECT(w.plan->instrs[s->instr].task == p && s->end_ns >= s->start_ns);
      }
      d->ops->unload(l);
      d->ops->close(d);
    }
    world_destroy(&w);
  }
}

/* ---- statistics and traces of such a run ---- */
/* Each rank computes for 2 x 100 ns and communicates for 1080; half of the first overlaps. */
static void test_stats(void) {
  ranks a;
  begin(&a, 2, 2);
  for (uint32_t r = 0; r < 2; r++) {
    kit *k = &a.k[r];
    (void)kit_set(k, 0, a.x[r], a.y[r]);
    uint32_t c = kit_post(k, 0, post_of(&a, r, IR_COMM_ALLGATHER));
    (void)kit_set(k, 0, kit_pool(k, 4), a.x[r]);
    (void)kit_join(k, 0, c);
  }
  const rt_plan *plan = end(&a);
  outcome o = simulate(plan);
  arena memory;
  arena_init(&memory, &memory_default);
  trace_stats s;
  strbuf trace, page;
  trace_stats_make(plan, o.spans, 6, o.total_ns, 0, &memory, &s);
  EXPECT_INT(s.posts, 2);
  EXPECT_INT(s.joins, 2);
  EXPECT_INT(s.task_ns, 400);
  EXPECT_INT(s.compute_ns, 200);
  EXPECT_INT(s.comm_ns, 1080);
  EXPECT_INT(s.both_ns, 100);
  EXPECT_INT((int64_t)s.sent_bytes, 2 * BYTES);
  for (uint32_t r = 0; r < 2; r++) {
    trace_rank_stats one;
    trace_stats_of_rank(plan, o.spans, 6, r, &memory, &one);
    EXPECT_INT(one.compute_ns, 200);
    EXPECT_INT(one.comm_ns, 1080);
    EXPECT_INT(one.both_ns, 100);
    EXPECT_INT(one.posts, 1);
    EXPECT_INT((int64_t)one.sent_bytes, BYTES);
    EXPECT_INT((int64_t)one.received_bytes, BYTES);
  }
  strbuf_init(&trace, &memory);
  strbuf_init(&page, &memory);
  trace_part t = {.device = "sim", .plan = plan, .spans = o.spans, .n_spans = 6};
  trace_json(&t, 1, &trace);
  EXPECT_CONTAINS(trace.data, "\"name\":\"process_name\",\"args\":{\"name\":\"sim 1\"}");
  EXPECT_CONTAINS(trace.data, "\"pid\":1,\"tid\":2,\"name\":\"thread_name\",\"args\":{\"name\":"
                              "\"communication\"}");
  EXPECT_CONTAINS(trace.data,
                  "\"name\":\"allgather\",\"pid\":1,\"tid\":2,\"ts\":0.100,\"dur\":1.080");
  EXPECT_CONTAINS(trace.data, "\"reads\":\"t[40]\",\"writes\":\"t[40]\",\"team\":\"(0 1)\"");
  EXPECT_CONTAINS(trace.data, "\"name\":\"set\",\"pid\":1,\"tid\":0");
  trace_html(&t, 1, "two", &page);
  EXPECT_CONTAINS(page.data, "allgather");
  arena_destroy(&memory);
  drop(&a);
}

/* Rank 1 computes first, so rank 0 waits for it: that is no transfer. */
static void test_waiting(void) {
  ranks a;
  begin(&a, 2, 1);
  for (uint32_t r = 0; r < 2; r++) {
    if (r == 1) (void)kit_set(&a.k[r], 0, 0, 0);
    uint32_t c = kit_post(&a.k[r], 0, post_of(&a, r, IR_COMM_ALLGATHER));
    (void)kit_join(&a.k[r], 0, c);
    (void)kit_set(&a.k[r], 0, 0, 0);
  }
  outcome o = simulate(end(&a));
  arena memory;
  arena_init(&memory, &memory_default);
  strbuf trace;
  strbuf_init(&trace, &memory);
  trace_part t = {.device = "sim", .plan = a.plan, .spans = o.spans, .n_spans = 5};
  trace_json(&t, 1, &trace);
  EXPECT_CONTAINS(trace.data, "\"name\":\"allgather: wait for 1\",\"pid\":0,");
  EXPECT(!strstr(trace.data, "wait for 0"));
  EXPECT_CONTAINS(trace.data, "\"ph\":\"s\",\"id\":1,\"name\":\"meeting\"");
  EXPECT_CONTAINS(trace.data, "\"name\":\"wait\",\"cat\":\"wait\"");
  arena_destroy(&memory);
  drop(&a);
}

/* Communications under way at once stand in lanes of their own. */
static void test_lanes(void) {
  ranks a;
  begin(&a, 2, 1);
  for (uint32_t r = 0; r < 2; r++) {
    uint32_t c = kit_post(&a.k[r], 0, post_of(&a, r, IR_COMM_ALLGATHER));
    uint32_t b = kit_post(&a.k[r], 0, post_of(&a, r, IR_COMM_PERMUTE));
    (void)kit_join(&a.k[r], 0, c);
    (void)kit_join(&a.k[r], 0, b);
  }
  outcome o = simulate(end(&a));
  arena memory;
  arena_init(&memory, &memory_default);
  strbuf trace;
  strbuf_init(&trace, &memory);
  trace_part t = {.device = "sim", .plan = a.plan, .spans = o.spans, .n_spans = 4};
  trace_json(&t, 1, &trace);
  EXPECT_CONTAINS(trace.data, "\"name\":\"communication 2\"");
  EXPECT_CONTAINS(trace.data, "\"name\":\"permute\",\"pid\":0,\"tid\":2,");
  strbuf text;
  strbuf_init(&text, &memory);
  rt_describe(a.plan, 0, &text);
  EXPECT_STR(text.data, "allgather(t -> t) posted");
  arena_destroy(&memory);
  drop(&a);
}

static status guarded(void *context) {
  (void)context;
  test_kinds();
  test_post_time();
  test_critical_path();
  test_links();
  test_absent();
  test_random();
  test_stats();
  test_lanes();
  test_waiting();
  return STATUS_OK;
}

int main(void) {
  EXPECT_INT(memory_guard(guarded, NULL), STATUS_OK);
  return test_finish();
}
