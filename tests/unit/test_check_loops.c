/* The checker on plans with loops: random plans, with each of their waits left out in turn, are
 * judged as they are and unrolled. Both must say the same, pruning must leave what passes, and most
 * of what passes must be proven without unrolling.
 *
 *   test_check_loops [SEEDS [FIRST]]      replays seeds FIRST, FIRST + 1, ... */
#include <stdlib.h>

#include "base/random.h"
#include "check_kit.h"
#include "loop_kit.h"
#include "runtime/lives.h"

static uint64_t key, counter;
static uint32_t below(uint32_t n) { return (uint32_t)(random_bits(key, counter++) % n); }
static bool chance(uint32_t percent) { return below(100) < percent; }

static struct { uint32_t judged, passed, proven, removed, aliases, safe; } total;

/* ---- random plans ---- */
enum { WIDTH = 2, MOST_BUFFERS_DRAWN = 8 };

typedef struct drawing {
  uint32_t times, percent; /* repetitions; how likely a wait is */
  uint32_t outer[MOST_BUFFERS_DRAWN], n_outer;
  int64_t step[MOST_BUFFERS_DRAWN]; /* by outer buffer, in elements */
  uint32_t last;                    /* the buffer written last: a number in `outer`, or none */
  uint32_t local, has_local;
  rt_loop loops[2];
} drawing;

static void random_waits(uint32_t stream, uint32_t percent) {
  for (uint32_t s = 0; s < plan.n_streams; s++)
    if (s != stream && chance(percent)) (void)wait_on(stream, s);
}

static uint32_t place(const drawing *d, uint32_t k) {
  int64_t step = chance(4) ? (int64_t)below(4) : d->step[k], n = chance(90) ? WIDTH : 1 + below(3);
  int64_t first = step < 0 ? -step * (d->times - 1) : 0;
  if (chance(10)) first += below(3);
  uint32_t view = flat(d->outer[k], first, n);
  kit_views.data[view].step_bytes = 4 * step;
  return view;
}

static uint32_t whole(uint32_t buffer) {
  return flat(buffer, 0, kit_buffers.data[buffer].size_bytes / 4);
}

/* One task of a loop: from the input or what was written last, to another buffer. */
static void random_task(drawing *d, uint32_t stream) {
  uint32_t x = d->last == CHECK_NONE || chance(20) ? place(d, 0) : place(d, d->last);
  bool local = d->has_local && chance(40);
  uint32_t to = 1 + below(d->n_outer - 1);
  uint32_t y = d->has_local == 2 && chance(60) ? whole(d->local) : CHECK_NONE;
  if (d->step[to] == 0 && chance(50)) y = place(d, to);
  random_waits(stream, d->percent);
  (void)launch(stream, local ? whole(d->local) : place(d, to), x, y);
  if (local) d->has_local = 2; /* written */
  else d->last = to;
}

static void random_loop(drawing *d, uint32_t number) {
  uint32_t n = 1 + below(4), first = kit_instrs.len, stream = below(plan.n_streams);
  d->has_local = chance(50);
  d->last = CHECK_NONE;
  if (d->has_local) d->local = pool("local", plan.pool_bytes, 4 * WIDTH);
  for (uint32_t k = 0; k < n; k++) {
    if (chance(50)) stream = below(plan.n_streams);
    random_task(d, stream);
  }
  if (d->has_local) release(d->local);
  if (chance(30)) random_waits(below(plan.n_streams), 60);
  d->loops[number] = (rt_loop){first, kit_instrs.len - first, d->times};
}

static void random_between(const drawing *d) {
  for (uint32_t n = below(3); n > 0; n--) {
    uint32_t stream = below(plan.n_streams), to = d->outer[1 + below(d->n_outer - 1)];
    random_waits(stream, d->percent);
    (void)launch(stream, whole(to), chance(50) ? whole(0) : CHECK_NONE, CHECK_NONE);
  }
}

static void random_buffers(drawing *d) {
  static const int64_t steps[] = {WIDTH, WIDTH, WIDTH, -WIDTH, 2 * WIDTH, 0, 0, 1};
  d->n_outer = 2 + below(3);
  for (uint32_t k = 0; k < d->n_outer; k++) {
    d->step[k] = steps[below(8)];
    int64_t span = d->step[k] < 0 ? -d->step[k] : d->step[k];
    int64_t size = 4 * (span * (d->times - 1) + WIDTH + (chance(10) ? below(4) : 0));
    if (k == 0) d->outer[k] = input("in", 0, size);
    else if (k == 1 && chance(50)) d->outer[k] = output("out", 0, size);
    else d->outer[k] = pool("outer", (plan.pool_bytes + 63) / 64 * 64, size);
  }
}

static void random_plan(uint64_t seed) {
  static drawing d;
  key = seed, counter = 0;
  d = (drawing){.times = 1 + below(7)};
  d.percent = 10 + 20 * below(5);
  begin(1 + below(4));
  random_buffers(&d);
  for (uint32_t k = 1; k < d.n_outer; k++)
    if (chance(60)) (void)launch(0, whole(d.outer[k]), CHECK_NONE, CHECK_NONE);
  for (uint32_t s = 1; s < plan.n_streams; s++)
    if (chance(90)) (void)wait_on(s, 0);
  random_between(&d);
  plan.n_loops = 1 + chance(30);
  random_loop(&d, 0);
  if (plan.n_loops > 1) {
    random_between(&d);
    random_loop(&d, 1);
  }
  for (uint32_t s = 1; s < plan.n_streams; s++)
    if (chance(95)) (void)wait_on(0, s);
  if (chance(30)) (void)launch(0, whole(d.outer[1]), whole(d.outer[d.n_outer - 1]), CHECK_NONE);
  finish_plan();
  plan.loops = d.loops;
}

/* ---- judging ---- */
static bool judge(bool *passes) {
  rt_plan *unrolled = NULL;
  check_report a = {0}, b = {0};
  if (!EXPECT(rt_plan_unroll(&plan, &memory_default, &unrolled) == STATUS_OK)) return false;
  bool good = EXPECT(loop_same_walk(&plan, unrolled)) &&
              EXPECT(loop_same_queues(&plan, unrolled, &kit_memory)) &&
              EXPECT(check_plan(&plan, NULL, &a) == STATUS_OK) &&
              EXPECT(check_plan(unrolled, NULL, &b) == STATUS_OK);
  good = good && EXPECT_INT(a.n_found, b.n_found);
  *passes = b.n_found == 0;
  total.judged++;
  total.passed += *passes;
  total.proven += *passes && !a.unrolled;
  check_report_destroy(&a);
  check_report_destroy(&b);
  rt_plan_destroy(unrolled);
  return good;
}

/* May an output have the memory of the input? */
static bool judge_alias(void) {
  rt_plan *unrolled = NULL;
  bool good = EXPECT(rt_plan_unroll(&plan, &memory_default, &unrolled) == STATUS_OK);
  for (uint32_t b = 0; good && b < plan.n_buffers; b++) {
    check_alias_result a, c;
    if (plan.buffers[b].kind != RT_BUFFER_OUTPUT) continue;
    good =
        EXPECT(check_alias(&plan, 0, plan.buffers[b].slot, &memory_default, &a) == STATUS_OK) &&
        EXPECT(check_alias(unrolled, 0, plan.buffers[b].slot, &memory_default, &c) == STATUS_OK) &&
        EXPECT(a.safe == c.safe);
    total.aliases++;
    total.safe += good && c.safe;
  }
  rt_plan_destroy(unrolled);
  return good;
}

/* Each wait in turn waits for nothing. */
static bool judge_mutants(void) {
  bool good = true, passes;
  for (uint32_t i = 0; good && i < plan.n_instrs; i++) {
    rt_instr *w = &plan.instrs[i];
    uint16_t other = w->other;
    if (w->kind != RT_WAIT) continue;
    w->other = w->stream;
    good = judge(&passes);
    w->other = other;
  }
  return good;
}

static bool judge_pruned(bool passed) {
  uint32_t removed = 0;
  bool passes;
  bool good = EXPECT(check_prune_waits(&plan, &memory_default, &removed) == STATUS_OK) &&
              judge(&passes) && EXPECT(passes == passed);
  total.removed += removed;
  return good && EXPECT(!plan.passed || passes);
}

static status check_seed(void *context) {
  uint64_t seed = *(const uint64_t *)context;
  bool passes = false;
  random_plan(seed);
  if (!judge(&passes) || !judge_alias() || !judge_mutants() || !judge_pruned(passes))
    fprintf(stderr, "replay: test_check_loops 1 %llu\n", (unsigned long long)seed);
  return STATUS_OK;
}

/* ---- by hand ---- */
/* What a loop reads is written in a later repetition, although the loop as a whole writes it. */
static status reads_ahead(void *context) {
  static rt_loop loop;
  (void)context;
  begin(1);
  uint32_t x = pool("x", 0, 400), y = output("y", 0, 320);
  (void)launch(0, flat(x, 0, 20), CHECK_NONE, CHECK_NONE);  /* enough for the first repetitions, */
  (void)launch(0, flat(x, 70, 30), CHECK_NONE, CHECK_NONE); /* and for the last */
  uint32_t to = flat(x, 0, 1), from = flat(x, 10, 1), out = flat(y, 0, 1);
  kit_views.data[to].step_bytes = kit_views.data[from].step_bytes = 4;
  kit_views.data[out].step_bytes = 4;
  loop = (rt_loop){kit_instrs.len, 2, 80};
  (void)launch(0, to, CHECK_NONE, CHECK_NONE);
  (void)launch(0, out, from, CHECK_NONE);
  finish_plan();
  plan.loops = &loop;
  plan.n_loops = 1;
  check_report r = {0};
  EXPECT(check_plan(&plan, NULL, &r) == STATUS_OK);
  EXPECT(r.count[CHECK_UNWRITTEN] > 0 && r.unrolled != NULL);
  check_report_destroy(&r);
  fail_allocations();
  return STATUS_OK;
}

/* One view goes up and the other one down: they meet in repetitions that are far from both ends. */
static status views_cross(void *context) {
  static rt_loop loop;
  (void)context;
  begin(3);
  uint32_t x = input("x", 0, 400), y = output("y", 0, 124);
  uint32_t up = flat(x, 10, 1), down = flat(x, 30, 1), out = flat(y, 0, 1);
  kit_views.data[up].step_bytes = kit_views.data[out].step_bytes = 4;
  kit_views.data[down].step_bytes = -4;
  loop = (rt_loop){0, 3, 31};
  (void)launch(1, up, CHECK_NONE, CHECK_NONE);
  (void)wait_on(2, 1);
  (void)launch(2, out, down, CHECK_NONE); /* the next write of stream 1 does not wait for it */
  (void)wait_on(0, 2);
  finish_plan();
  plan.loops = &loop;
  plan.n_loops = 1;
  check_report r = {0};
  EXPECT(check_plan(&plan, NULL, &r) == STATUS_OK);
  EXPECT(r.count[CHECK_RACE_WAR] > 0 && r.unrolled != NULL);
  check_report_destroy(&r);
  return STATUS_OK;
}

/* Two buffers of a loop may share memory if the second one is done with before the next repetition. */
static status shares_memory(void *context) {
  static rt_loop loop;
  bool waits = *(const bool *)context;
  begin(3);
  uint32_t a = pool("a", 0, 64);
  (void)launch(1, whole(a), CHECK_NONE, CHECK_NONE);
  release(a);
  (void)wait_on(2, 1);
  uint32_t b = pool("b", 0, 64);
  (void)launch(2, whole(b), CHECK_NONE, CHECK_NONE);
  release(b);
  if (waits) (void)wait_on(1, 2);
  loop = (rt_loop){0, kit_instrs.len, 100};
  (void)wait_on(0, 2);
  finish_plan();
  plan.loops = &loop;
  plan.n_loops = 1;
  rt_lives lives;
  rt_lives_find(&plan, &kit_memory, &lives);
  EXPECT(rt_lives_before(&lives, a, b) == waits);
  EXPECT(!rt_lives_before(&lives, b, a));
  check_report r = {0};
  EXPECT(check_plan(&plan, NULL, &r) == STATUS_OK);
  EXPECT((r.count[CHECK_REUSE] == 0) == waits);
  check_report_destroy(&r);
  return STATUS_OK;
}

/* A plan of a billion instructions. */
static status is_long(void *context) {
  static rt_loop loop;
  (void)context;
  int64_t n = 100 * 1000 * 1000;
  begin(3);
  uint32_t x = input("x", 0, 8 * n), y = output("y", 0, 8 * n);
  for (uint32_t s = 1; s < 3; s++) (void)wait_on(s, 0);
  loop = (rt_loop){kit_instrs.len, 10, (uint32_t)n};
  for (uint32_t s = 1; s < 3; s++) {
    uint32_t t = pool("t", 64 * (int64_t)s, 4), from = flat(x, s - 1, 1), to = flat(y, s - 1, 1);
    kit_views.data[from].step_bytes = kit_views.data[to].step_bytes = 8;
    for (uint32_t k = 0; k < 4; k++)
      (void)launch(s, flat(t, 0, 1), k ? flat(t, 0, 1) : from, CHECK_NONE);
    (void)launch(s, to, flat(t, 0, 1), CHECK_NONE);
    release(t);
  }
  for (uint32_t s = 1; s < 3; s++) (void)wait_on(0, s);
  finish_plan();
  plan.loops = &loop;
  plan.n_loops = 1;
  check_report r = {0};
  uint32_t removed;
  EXPECT(check_plan(&plan, NULL, &r) == STATUS_OK);
  EXPECT(r.n_found == 0 && !r.unrolled);
  EXPECT_INT(r.n_redundant, 2);
  EXPECT(check_prune_waits(&plan, &memory_default, &removed) == STATUS_OK);
  EXPECT_INT(removed, 2);
  EXPECT_INT(plan.loops[0].first, 0);
  check_report_destroy(&r);
  fail_allocations();
  return STATUS_OK;
}

int main(int argc, char **argv) {
  uint64_t seeds = argc > 1 ? strtoull(argv[1], NULL, 0) : 3000;
  uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 0) : 0;
  EXPECT(memory_guard(reads_ahead, NULL) == STATUS_OK);
  EXPECT(memory_guard(views_cross, NULL) == STATUS_OK);
  EXPECT(memory_guard(is_long, NULL) == STATUS_OK);
  for (int waits = 0; waits < 2; waits++)
    EXPECT(memory_guard(shares_memory, &(bool){waits}) == STATUS_OK);
  for (uint64_t s = first; s < first + seeds; s++)
    EXPECT(memory_guard(check_seed, &s) == STATUS_OK);
  printf("%u plans with loops: %u pass, %u of them proven without unrolling; %u waits removed; %u "
         "of %u "
         "outputs may be where the input is\n",
         total.judged, total.passed, total.proven, total.removed, total.safe, total.aliases);
  if (argc < 2) EXPECT(total.passed > 2000 && 10 * total.proven > 8 * total.passed);
  arena_destroy(&kit_memory);
  return test_finish();
}
