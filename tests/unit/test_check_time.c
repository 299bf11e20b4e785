/* How long the plan checker takes for 100,000 instructions, and that it passes right ones of that size.
 * The times are printed, not judged. */
#include <time.h>

#include "check_expect.h"

static uint32_t t, out;
enum { NONE = CHECK_NONE };

static void time_plan(const char *what) {
  struct timespec from, to;
  finish_plan();
  check_report_destroy(&report);
  clock_gettime(CLOCK_MONOTONIC, &from);
  EXPECT(check_plan(&plan, NULL, &report) == STATUS_OK);
  clock_gettime(CLOCK_MONOTONIC, &to);
  double ms = (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6;
  printf("%s: %u instructions, %u streams: %.0f ms\n", what, plan.n_instrs, plan.n_streams, ms);
  EXPECT_INT(report.n_found, 0);
  EXPECT_INT(report.n_unexamined, 0);
}

/* Forks to all workers, joins them. */
static void fork_all(void) {
  for (uint32_t s = 1; s < plan.n_streams; s++) wait_on(s, 0);
}
static void join_all(void) {
  for (uint32_t s = 1; s < plan.n_streams; s++) wait_on(0, s);
}

enum { SLICES = 50000, WIDTH = 4 };
static uint32_t row(uint32_t buffer, uint32_t i) { return flat(buffer, (int64_t)i * WIDTH, WIDTH); }
static uint32_t column(uint32_t buffer, uint32_t i) {
  return matrix(buffer, i, WIDTH, 1, SLICES, 1);
}

/* Two layers of slices on streams; the second reads its own slice, or all of the first. */
static void time_slices(const char *what, uint32_t streams, uint32_t (*slice)(uint32_t, uint32_t),
                        bool whole) {
  begin(streams + 1);
  t = pool("t", 0, (int64_t)SLICES * WIDTH * 4);
  out = output("out", 0, (int64_t)SLICES * WIDTH * 4);
  fork_all();
  for (uint32_t i = 0; i < SLICES; i++) launch(1 + i % streams, slice(t, i), NONE, NONE);
  join_all();
  if (whole) fork_all();
  for (uint32_t i = 0; i < SLICES; i++)
    launch(1 + i % streams, slice(out, i), whole ? flat(t, 0, SLICES * WIDTH) : slice(t, i), NONE);
  join_all();
  time_plan(what);
}

/* Every iteration has buffers of its own in a ring; a wait in each is needed. */
static void time_ring(uint32_t streams) {
  begin(streams + 1);
  out = output("out", 0, (int64_t)SLICES * WIDTH * 4);
  uint32_t ring[256] = {0};
  for (uint32_t i = 0; i < SLICES / 2; i++) {
    uint32_t s = i % streams;
    if (i >= streams) release(ring[s]);
    ring[s] = pool("ring", (int64_t)s * 64, 32);
    launch(1 + s, flat(ring[s], 0, 8), NONE, NONE);
    wait_on(1 + (s + 1) % streams, 1 + s);
    launch(1 + (s + 1) % streams, flat(out, (int64_t)i * 8, 8), flat(ring[s], 0, 8), NONE);
    wait_on(1 + s, 1 + (s + 1) % streams);
  }
  join_all();
  time_plan("a ring of buffers with waits");
}

/* Written by rows, read by columns: every pair meets. */
static void time_crossing(uint32_t streams) {
  begin(streams + 1);
  t = pool("t", 0, (int64_t)SLICES * SLICES * 4);
  out = output("out", 0, (int64_t)SLICES * SLICES * 4);
  for (uint32_t i = 0; i < SLICES; i++)
    launch(1 + i % streams, flat(t, (int64_t)i * SLICES, SLICES), NONE, NONE);
  join_all();
  fork_all();
  for (uint32_t i = 0; i < SLICES; i++)
    launch(1 + i % streams, matrix(out, i, SLICES, 1, SLICES, 1),
           matrix(t, i, SLICES, 1, SLICES, 1), NONE);
  join_all();
  time_plan("rows, then columns");
}

/* Slices of all lengths that overlap one another, nothing ordered. */
static void time_wrong(uint32_t streams) {
  begin(streams + 1);
  t = pool("t", 0, 1 << 22);
  for (uint32_t i = 0; i < 2 * SLICES; i++)
    launch(1 + i % streams, flat(t, (int64_t)i * 7919 % 1000000, 1 + i % 1000), NONE, NONE);
  finish_plan();
  check_report_destroy(&report);
  clock_t from = clock();
  EXPECT(check_plan(&plan, NULL, &report) == STATUS_OK);
  printf("a wrong plan: %u instructions, %u streams, %" PRIu64 " errors: %.0f ms\n", plan.n_instrs,
         plan.n_streams, report.n_found, (double)(clock() - from) * 1e3 / CLOCKS_PER_SEC);
  EXPECT(report.n_found > 0);
}

/* Slices that are sent around: posted by one stream, computed with on others, in a ring of buffers. */
static void time_posts(uint32_t streams, bool same_stream) {
  begin(streams + 1);
  uint32_t in = input("in", 0, 64), ring[256] = {0}, posts[256] = {0};
  out = output("out", 0, (int64_t)SLICES / 2 * 64);
  for (uint32_t i = 0; i < SLICES / 2; i++) {
    uint32_t s = i % streams, poster = same_stream ? 1 + s : 0;
    if (i >= streams && !same_stream) wait_on(0, 1 + s);
    if (i >= streams) release(ring[s]);
    ring[s] = pool("ring", (int64_t)s * 64, 64);
    posts[s] = post_on(poster, IR_COMM_ALLREDUCE, flat(in, 0, 16), flat(ring[s], 0, 16));
    join_on(1 + s, posts[s]);
    launch(1 + s, flat(out, (int64_t)i * 16, 16), flat(ring[s], 0, 16), NONE);
  }
  join_all();
  time_plan(same_stream ? "communications" : "communications on a stream of their own");
}

static void test_time(void) {
  time_slices("rows", 4, row, false);
  time_slices("rows", 256, row, false);
  time_slices("columns", 4, column, false);
  time_slices("rows, then all of them", 8, row, true);
  time_slices("columns, then all of them", 256, column, true);
  time_ring(4);
  time_ring(256);
  time_crossing(8);
  time_posts(8, true);
  time_posts(8, false);
  time_wrong(8);
  time_wrong(256);
}

static status all(void *context) {
  (void)context;
  test_time();
  return STATUS_OK;
}

int main(void) { return check_main(all); }
