/* Taking out waits: what is left, and how long it takes. That the plan still passes, and that each wait
 * left is needed, test_check_random compares with an oracle. */
#include <time.h>

#include "check_kit.h"

#define NONE CHECK_NONE

static uint32_t pruned(void) {
  uint32_t removed = 0;
  finish_plan();
  EXPECT(check_prune_waits(&plan, &memory_default, &removed) == STATUS_OK);
  EXPECT_INT(plan.n_instrs + removed, kit_instrs.len);
  return removed;
}

static bool passes(void) {
  check_report report;
  check_options options = {.no_waits = true};
  if (!EXPECT(check_plan(&plan, &options, &report) == STATUS_OK)) return false;
  bool ok = report.n_found == 0;
  check_report_destroy(&report);
  return ok;
}

/* Stream 1 writes, 2 reads it and writes, 3 reads both: it need not wait for 1 itself. */
static void test_diamond(void) {
  begin(4);
  uint32_t a = pool("a", 0, 64), b = pool("b", 64, 64), c = output("c", 0, 64);
  launch(1, flat(a, 0, 16), NONE, NONE);
  wait_on(2, 1);
  launch(2, flat(b, 0, 16), flat(a, 0, 16), NONE);
  wait_on(3, 1);
  wait_on(3, 2);
  launch(3, flat(c, 0, 16), flat(a, 0, 16), flat(b, 0, 16));
  wait_on(0, 1);
  wait_on(0, 2);
  wait_on(0, 3);
  EXPECT_INT(pruned(), 3);
  EXPECT(passes());
  EXPECT(plan.instrs[3].kind == RT_WAIT && plan.instrs[3].other == 2);
}

/* A plan that does not pass keeps what it has. */
static void test_failing(void) {
  begin(3);
  uint32_t a = pool("a", 0, 64);
  launch(1, flat(a, 0, 16), NONE, NONE);
  wait_on(1, 2);
  launch(2, flat(a, 0, 16), NONE, NONE);
  wait_on(0, 1);
  wait_on(0, 2);
  EXPECT_INT(pruned(), 0);
}

/* Buffers keep their place among the instructions. */
static void test_renumbered(void) {
  begin(2);
  uint32_t a = pool("a", 0, 64);
  wait_on(1, 0);
  wait_on(1, 0);
  launch(1, flat(a, 0, 16), NONE, NONE);
  release(a);
  wait_on(1, 0);
  uint32_t b = pool("b", 0, 64);
  launch(1, flat(b, 0, 16), NONE, NONE);
  wait_on(0, 1);
  EXPECT_INT(pruned(), 3);
  EXPECT_INT(plan.buffers[a].freed_at, 1);
  EXPECT_INT(plan.buffers[b].allocated_at, 1);
  EXPECT(passes());
}

static void test_out_of_memory(void) {
  status st = STATUS_OUT_OF_MEMORY;
  for (uint64_t n = 0; st != STATUS_OK && n < 1000; n++) {
    begin(2);
    uint32_t a = pool("a", 0, 64), removed = 0;
    wait_on(1, 0);
    launch(1, flat(a, 0, 16), NONE, NONE);
    wait_on(0, 1);
    finish_plan();
    memory_faults faults = {.fail_at = n};
    allocator faulty = memory_faulty(&faults);
    st = check_prune_waits(&plan, &faulty, &removed);
    EXPECT_INT(removed, st == STATUS_OK);
    EXPECT_INT(plan.n_instrs, 3 - removed);
    EXPECT_INT(faults.live, 0);
    status_clear();
  }
  EXPECT(st == STATUS_OK);
}

/* ---- time ---- */
static void time_pruning(const char *what, uint32_t expected) {
  struct timespec from, to;
  uint32_t n = kit_instrs.len;
  clock_gettime(CLOCK_MONOTONIC, &from);
  EXPECT_INT(pruned(), expected);
  clock_gettime(CLOCK_MONOTONIC, &to);
  double ms = (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6;
  printf("%s: %u instructions, %u waits taken out: %.0f ms\n", what, n, expected, ms);
}

/* Every launch waits twice for nothing. */
static void time_idle(uint32_t n) {
  begin(9);
  uint32_t out = output("out", 0, (int64_t)n * 16);
  for (uint32_t i = 0; i < n; i++) {
    wait_on(1 + i % 8, 1 + (i + 1) % 8);
    wait_on(1 + i % 8, 1 + (i + 3) % 8);
    launch(1 + i % 8, flat(out, (int64_t)i * 4, 4), NONE, NONE);
  }
  for (uint32_t s = 1; s < 9; s++) wait_on(0, s);
  time_pruning("waits for nothing", 2 * n);
}

/* Each wait that is needed stands there twice, so that each of the two could go. */
static void time_doubled(uint32_t n) {
  begin(3);
  uint32_t t = pool("t", 0, (int64_t)n * 16), out = output("out", 0, (int64_t)n * 16);
  for (uint32_t i = 0; i < n; i++) {
    launch(1, flat(t, (int64_t)i * 4, 4), NONE, NONE);
    wait_on(2, 1);
    wait_on(2, 1);
    launch(2, flat(out, (int64_t)i * 4, 4), flat(t, (int64_t)i * 4, 4), NONE);
  }
  wait_on(0, 2);
  time_pruning("waits twice", n);
}

static status all(void *context) {
  (void)context;
  test_diamond();
  test_failing();
  test_renumbered();
  test_out_of_memory();
  time_idle(7000);
  time_idle(33000);
  time_doubled(5000);
  time_doubled(25000);
  return STATUS_OK;
}

int main(void) {
  EXPECT(memory_guard(all, NULL) == STATUS_OK);
  arena_destroy(&kit_memory);
  return test_finish();
}
