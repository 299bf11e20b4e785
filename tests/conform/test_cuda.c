/* What every device must do, on GPUs: the plans and worlds of the other devices' tests, with all ranks on
 * as many GPUs as there are, directly and through the host, as graphs, with delayed streams.
 *
 *   test_cuda [quick]       quick: a part of it, for tools that make everything slow
 *
 * Skips where there is no GPU. */
#include <stdlib.h>

#include "conform/plan_errors.h"
#include "conform/plan_random.h"
#include "conform/rig.h"
#include "conform/world_random.h"

static bool quick;

static rt_device *open_device(const rt_device_options *o, const allocator *memory) {
  rt_device *d = NULL;
  if (!EXPECT_INT(rt_device_cuda.open(o, memory, &d), STATUS_OK)) {
    fprintf(stderr, "%s\n", status_message());
    exit(test_finish());
  }
  return d;
}

/* ---- one rank ---- */
static void test_plans(const rt_device_options *o, const char *name, uint32_t plans,
                       uint32_t runs) {
  rt_device *d = open_device(o, &memory_default);
  uint32_t wrong = 0;
  for (uint32_t seed = 0; seed < plans; seed++) {
    random_plan p;
    arrays a;
    rt_loaded *l = load_plan(d, random_make(&p, seed, 1 + seed % PLAN_STREAMS, 60, seed % 2));
    make_arrays(&p, &a);
    for (uint32_t r = 0; r < runs; r++) {
      memset(a.out, 0, sizeof a.out);
      wrong += !run_ok(l, a.inputs, a.outputs, NULL) || !random_check(&p, a.out);
    }
    d->ops->unload(l);
    kit_destroy(&p.k);
  }
  d->ops->close(d);
  if (wrong) fprintf(stderr, "%s: ", name);
  EXPECT_INT(wrong, 0);
}

static void test_errors(void) {
  rt_device *d = open_device(&(rt_device_options){0}, &memory_default);
  plan_test_errors(d, 5);
  d->ops->close(d);
}

/* What a plan does not write stays as the caller had it, and what it adds to is there. */
static void test_outputs_stay(void) {
  rt_device *d = open_device(&(rt_device_options){0}, &memory_default);
  kit k;
  kit_init(&k, 1);
  uint32_t sum = kit_buffer(&k, RT_BUFFER_OUTPUT, 0, 4), x = kit_buffer(&k, RT_BUFFER_INPUT, 0, 4);
  (void)kit_buffer(&k, RT_BUFFER_OUTPUT, 1, 4);
  (void)kit_binary(&k, 0, IR_OP_ADD, sum, sum, x);
  rt_loaded *l = load_plan(d, kit_plan(&k));
  int64_t in[4] = {1, 2, 3, 4}, out[4] = {10, 20, 30, 40}, alone[4] = {5, 6, 7, 8};
  EXPECT(run_ok(l, (void *[]){in}, (void *[]){out, alone}, NULL));
  for (int i = 0; i < 4; i++) EXPECT_INT(out[i], 11 * (i + 1)), EXPECT_INT(alone[i], 5 + i);
  d->ops->unload(l);
  d->ops->close(d);
  kit_destroy(&k);
}

/* ---- several ranks ---- */
static void test_worlds(const rt_device_options *o, const char *name, int64_t width,
                        uint32_t worlds, uint32_t runs) {
  rt_device *d = open_device(o, &memory_default);
  uint32_t wrong = 0;
  for (uint32_t seed = 0; seed < worlds; seed++) {
    world w;
    world_make(&w, seed, 1 + seed % WORLD_RANKS, width, 40);
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

/* All spans lie within the run; those of posts stand behind those of tasks. */
static void test_spans(bool link_host) {
  rt_device *d = open_device(&(rt_device_options){.link_host = link_host}, &memory_default);
  world w;
  world_make(&w, 3, 4, 2000, 60);
  uint32_t n = w.plan->n_tasks + w.plan->n_posts, wrong = 0, empty = 0;
  rt_span *spans = ARENA_ARRAY(&w.memory, n, rt_span);
  rt_loaded *l = load_plan(d, w.plan);
  for (int r = 0; r < 2; r++) {
    int64_t start_ns = rt_clock_ns();
    EXPECT(run_ok(l, w.inputs, w.outputs, spans) && world_is_right(&w));
    int64_t wall_ns = rt_clock_ns() - start_ns;
    for (uint32_t i = 0; i < n; i++) {
      const rt_instr *instr = &w.plan->instrs[spans[i].instr];
      bool is_post = i >= w.plan->n_tasks;
      wrong += spans[i].start_ns < 0 || spans[i].end_ns < spans[i].start_ns;
      wrong += spans[i].end_ns > wall_ns || spans[i].stream != instr->stream;
      wrong += instr->kind != (is_post ? RT_POST : RT_LAUNCH);
      empty += !is_post && spans[i].end_ns == spans[i].start_ns;
    }
  }
  EXPECT_INT(wrong, 0);
  EXPECT_INT(empty, 0);
  d->ops->unload(l);
  d->ops->close(d);
  world_destroy(&w);
}

/* A rank that never posts: loading says who waits for whom, at once. */
static void test_deadlock(void) {
  static const uint32_t team[] = {0, 1};
  rt_device *d = open_device(&(rt_device_options){0}, &memory_default);
  kit k[2];
  rt_plan *plans[2], *plan = NULL;
  rt_loaded *l = NULL;
  for (uint32_t r = 0; r < 2; r++) {
    kit_init(&k[r], 2);
    uint32_t x = kit_buffer(&k[r], RT_BUFFER_INPUT, 0, 8), y = kit_pool(&k[r], 8);
    uint32_t z = kit_buffer(&k[r], RT_BUFFER_OUTPUT, 0, 8);
    rt_post post = {.kind = IR_COMM_ALLREDUCE, .dtype = IR_I64, .team = team, .n_team = 2};
    post.count = 8;
    post.in = x;
    post.out = y;
    if (r == 0) (void)kit_join(&k[r], 0, kit_post(&k[r], 1, post));
    (void)kit_set(&k[r], 0, z, r == 0 ? y : x);
    (void)kit_plan(&k[r]);
    plans[r] = &k[r].plan;
  }
  if (rt_plan_join(plans, 2, &memory_default, &plan) != STATUS_OK) abort();
  EXPECT_INT(d->ops->load(d, plan, &l), STATUS_UNAVAILABLE);
  EXPECT_CONTAINS(status_message(), "rank 0 waits for allreduce of 8 i64 (sum)");
  EXPECT_CONTAINS(status_message(), "rank 1 has not posted it");
  status_clear();
  rt_plan_destroy(plan);
  for (uint32_t r = 0; r < 2; r++) kit_destroy(&k[r]);
  d->ops->close(d);
}

/* ---- allocations ---- */
static void test_allocations(void) {
  world w;
  world_make(&w, 5, 3, 16, 12);
  world_test_allocations(&w, &rt_device_cuda, &(rt_device_options){.link_host = true});
  memory_faults faults = {.fail_at = UINT64_MAX};
  allocator memory = memory_faulty(&faults);
  rt_device *d = open_device(&(rt_device_options){0}, &memory);
  rt_loaded *l = load_plan(d, w.plan);
  uint64_t before = faults.calls;
  for (int r = 0; r < 5; r++) EXPECT(run_ok(l, w.inputs, w.outputs, NULL));
  EXPECT_INT(faults.calls, before);
  d->ops->unload(l);
  d->ops->close(d);
  world_destroy(&w);
}

/* Open all the time, since GPUs that nobody has open take long to open. */
static rt_device *warm;

static bool is_there(void) {
  status st = rt_device_cuda.open(&(rt_device_options){0}, &memory_default, &warm);
  if (st != STATUS_OK)
    EXPECT_INT(st, STATUS_UNAVAILABLE), printf("skipped: %s\n", status_message());
  EXPECT(st == STATUS_OK || status_message()[0] != '\0');
  status_clear();
  return st == STATUS_OK;
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    rt_device_options o;
  } modes[] = {{"direct", {.threads = 0}},
               {"through the host", {.link_host = true}},
               {"graph", {.graph = true}},
               {"graph through the host", {.graph = true, .link_host = true}},
               {"delayed", {.adversarial = true, .seed = 7}},
               {"delayed through the host", {.adversarial = true, .seed = 8, .link_host = true}}};
  quick = argc > 1 && strcmp(argv[1], "quick") == 0;
  rt_device_cuda.close(NULL);
  rt_device_cuda.unload(NULL);
  if (!is_there()) return test_finish();
  for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
    test_plans(&modes[m].o, modes[m].name, quick ? 3 : 40, 3);
    test_worlds(&modes[m].o, modes[m].name, 16, quick ? 4 : 40, 3);
    test_worlds(&modes[m].o, modes[m].name, 30000, quick ? 1 : 8, 2);
  }
  test_errors();
  test_outputs_stay();
  test_spans(false);
  test_spans(true);
  test_deadlock();
  if (!quick) test_allocations();
  rt_device_cuda.close(warm);
  return test_finish();
}
