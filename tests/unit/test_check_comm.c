/* The plan checker on communications of one rank: each class of mistake is planted in a plan built by
 * hand, and right plans pass. */
#include "check_expect.h"

enum { NONE = CHECK_NONE };

static void expect_one(check_kind kind, uint32_t a, uint32_t b, int line) {
  examine();
  const check_finding *f = report.findings.data;
  bool ok = report.n_found == 1 && f->kind == kind && f->a == a && f->b == b;
  if (!test_count(ok, __FILE__, line)) fprintf(stderr, "not the one finding:\n%s\n", text);
}
#define EXPECT_ONE(kind, a, b) expect_one(kind, a, b, __LINE__)

static uint32_t in, t, out;
static void memory(uint32_t streams) {
  begin(streams);
  in = input("in", 0, 64);
  t = pool("t", 0, 64);
  out = output("out", 0, 64);
}
static uint32_t all_of(uint32_t buffer) { return flat(buffer, 0, 16); }
static uint32_t here(void) { return kit_instrs.len; }

/* ---- between post and join ---- */
static void test_out_before_join(void) {
  for (uint32_t right = 0; right < 2; right++) {
    memory(1);
    uint32_t c = post_on(0, IR_COMM_ALLREDUCE, all_of(in), all_of(t));
    if (right) join_on(0, c);
    launch(0, all_of(out), all_of(t), NONE);
    if (!right) join_on(0, c);
    if (right) EXPECT_PASS();
    else EXPECT_ONE(CHECK_RACE_RAW, 0, 1);
  }
  memory(1);
  uint32_t c = post_on(0, IR_COMM_RECV, RT_NO_VIEW, all_of(t));
  launch(0, all_of(out), all_of(t), NONE);
  join_on(0, c);
  EXPECT_ONE(CHECK_RACE_RAW, 0, 1);
  EXPECT_CONTAINS(text,
                  "stream main reads t, and nothing orders it after the end of the recv posted "
                  "on stream main");
  EXPECT_CONTAINS(text, "rank 0, instruction 0 on stream main: recv(-> t) posted");
  EXPECT_CONTAINS(text, "to wait for the recv after instruction 0 and before instruction 1");
}

/* What is sent may be read meanwhile, not written. */
static void test_in_while_it_runs(void) {
  for (uint32_t writes = 0; writes < 2; writes++) {
    memory(1);
    launch(0, all_of(t), all_of(in), NONE);
    uint32_t c = post_on(0, IR_COMM_SEND, all_of(t), RT_NO_VIEW);
    launch(0, all_of(out), all_of(t), NONE);
    if (writes) launch(0, all_of(t), all_of(in), NONE);
    join_on(0, c);
    if (writes) EXPECT_ONE(CHECK_RACE_WAR, 1, 3);
    else EXPECT_PASS();
  }
}

static void test_two_at_once(void) {
  memory(1);
  uint32_t a = post_on(0, IR_COMM_ALLREDUCE, all_of(in), all_of(out));
  uint32_t b = post_on(0, IR_COMM_RECV, RT_NO_VIEW, flat(out, 4, 4));
  join_on(0, a);
  join_on(0, b);
  EXPECT_ONE(CHECK_RACE_WAW, 0, 1);
  EXPECT_CONTAINS(text,
                  "stream main posts recv, which writes out, and nothing orders it after the end "
                  "of the allreduce posted on stream main");
}

/* A join on one stream says nothing to another; a wait for that one does. */
static void test_join_elsewhere(void) {
  for (uint32_t right = 0; right < 2; right++) {
    memory(3);
    uint32_t c = post_on(1, IR_COMM_ALLREDUCE, all_of(in), all_of(t));
    uint32_t join = join_on(2, c);
    if (right) wait_on(0, 2);
    uint32_t use = launch(0, all_of(out), all_of(t), NONE);
    wait_on(0, 2);
    if (right) EXPECT_PASS();
    else EXPECT_ONE(CHECK_RACE_RAW, 0, use);
    EXPECT(join < use);
  }
  EXPECT_INT(report.waits.data[0].verdict, CHECK_WAIT_NEEDED);
  EXPECT_INT(report.waits.data[0].a, 0);
}

/* What stands before the post is done when somebody has joined; what stands behind it is not. */
static void test_join_brings_the_poster(void) {
  for (uint32_t behind = 0; behind < 2; behind++) {
    memory(2);
    uint32_t c = 0, u = pool("u", 64, 64), write = NONE;
    if (!behind) write = launch(1, all_of(u), all_of(in), NONE);
    c = post_on(1, IR_COMM_ALLREDUCE, all_of(in), all_of(t));
    if (behind) write = launch(1, all_of(u), all_of(in), NONE);
    join_on(0, c);
    uint32_t use = launch(0, all_of(out), all_of(u), NONE);
    wait_on(0, 1);
    if (behind) EXPECT_ONE(CHECK_RACE_RAW, write, use);
    else EXPECT_PASS();
    if (!behind) EXPECT_INT(report.waits.data[0].verdict, CHECK_WAIT_IMPLIED);
  }
}

/* A post that must come after another comes after what stands before that one. */
static void test_order_of_posts(void) {
  for (uint32_t ordered = 0; ordered < 2; ordered++) {
    memory(3);
    uint32_t write = launch(1, all_of(t), all_of(in), NONE);
    uint32_t a = post_on(1, IR_COMM_SEND, flat(in, 0, 4), RT_NO_VIEW);
    uint32_t b = post_on(2, IR_COMM_RECV, RT_NO_VIEW, all_of(out));
    if (!ordered) kit_posts.data[b].before = RT_NO_POST;
    join_on(2, b);
    uint32_t use = launch(2, flat(out, 0, 4), flat(t, 0, 4), NONE);
    join_on(0, a);
    wait_on(0, 2);
    if (ordered) EXPECT_PASS();
    else EXPECT_ONE(CHECK_RACE_RAW, write, use);
  }
}

static void test_no_order_of_posts(void) {
  memory(3);
  uint32_t a = post_on(1, IR_COMM_ALLREDUCE, all_of(in), all_of(t));
  uint32_t b = post_on(2, IR_COMM_ALLREDUCE, all_of(in), all_of(out));
  kit_posts.data[b].before = RT_NO_POST;
  join_on(0, a);
  join_on(0, b);
  EXPECT_ONE(CHECK_POST_ORDER, 0, 1);
  EXPECT_CONTAINS(text,
                  "streams 0 and 1 post to the same peers, and nothing orders which comes first");
}

/* ---- memory ---- */
static void test_memory_given_away(void) {
  memory(1);
  launch(0, all_of(t), all_of(in), NONE);
  uint32_t c = post_on(0, IR_COMM_ALLREDUCE, all_of(t), all_of(out));
  release(t);
  uint32_t u = pool("u", 32, 64);
  uint32_t write = launch(0, all_of(u), all_of(in), NONE);
  join_on(0, c);
  examine();
  EXPECT_INT(report.count[CHECK_FREED_IN_FLIGHT], 1);
  EXPECT_INT(report.count[CHECK_REUSE], 1);
  EXPECT_INT(report.n_found, 2);
  EXPECT_INT(report.findings.data[1].b, write);
  EXPECT_CONTAINS(text, "t is deallocated while a communication uses it");
  EXPECT_CONTAINS(text, "uses the memory of t for u, and nothing orders it after the end of the "
                        "allreduce posted on stream main");
}

static void test_memory_given_back(void) {
  memory(1);
  launch(0, all_of(t), all_of(in), NONE);
  uint32_t c = post_on(0, IR_COMM_ALLREDUCE, all_of(t), all_of(out));
  join_on(0, c);
  release(t);
  uint32_t u = pool("u", 32, 64);
  launch(0, all_of(u), all_of(in), NONE);
  EXPECT_PASS();
}

static void test_unwritten(void) {
  memory(1);
  uint32_t a = post_on(0, IR_COMM_RECV, RT_NO_VIEW, flat(t, 0, 12));
  join_on(0, a);
  uint32_t at = here();
  uint32_t b = post_on(0, IR_COMM_ALLREDUCE, all_of(t), all_of(out));
  join_on(0, b);
  EXPECT_ONE(CHECK_UNWRITTEN, NONE, at);
  EXPECT_INT(report.findings.data[0].begin_bytes, 48);
}

static void test_rules(void) {
  memory(1);
  uint32_t c = post_on(0, IR_COMM_ALLREDUCE, flat(in, 0, 8), flat(in, 0, 8)); /* in place */
  join_on(0, c);
  c = post_on(0, IR_COMM_ALLREDUCE, all_of(in), all_of(out));
  join_on(0, c);
  EXPECT_PASS();
  memory(1);
  uint32_t at = here();
  c = post_on(0, IR_COMM_ALLREDUCE, flat(in, 0, 8), flat(in, 4, 8));
  join_on(0, c);
  launch(0, all_of(out), NONE, NONE);
  EXPECT_ONE(CHECK_POST_RULE, NONE, at);
  EXPECT_CONTAINS(text, "allreduce: input and output overlap");
}

/* ---- the end ---- */
static void test_unjoined(void) {
  memory(2);
  post_on(0, IR_COMM_ALLREDUCE, all_of(in), all_of(out));
  EXPECT_ONE(CHECK_UNJOINED, 0, NONE);
  EXPECT_CONTAINS(text, "the program ends without waiting for the allreduce posted on stream main");
  memory(2);
  uint32_t c = post_on(0, IR_COMM_ALLREDUCE, all_of(in), all_of(out));
  uint32_t join = join_on(1, c);
  EXPECT_ONE(CHECK_UNJOINED, 0, NONE);
  EXPECT_CONTAINS(text, "stream main needs wait_stream(0) after instruction 1, before the end");
  EXPECT_INT(join, 1);
}

/* ---- joins and waits that do nothing ---- */
static void test_needed(void) {
  memory(2);
  uint32_t c = post_on(0, IR_COMM_ALLREDUCE, all_of(in), all_of(t));
  uint32_t first = join_on(1, c), wait = wait_on(0, 1), second = join_on(0, c);
  launch(0, all_of(out), all_of(t), NONE);
  EXPECT_PASS();
  bool needed = true;
  EXPECT(check_wait_is_needed(&plan, first, NULL, &needed) == STATUS_OK && !needed);
  EXPECT(check_wait_is_needed(&plan, second, NULL, &needed) == STATUS_OK && !needed);
  EXPECT(check_wait_is_needed(&plan, wait, NULL, &needed) == STATUS_OK && !needed);
  uint32_t removed = 0;
  EXPECT(check_prune_waits(&plan, &memory_default, &removed) == STATUS_OK);
  EXPECT_INT(removed, 1);
  EXPECT_INT(plan.n_instrs, 4);
  EXPECT_INT(plan.instrs[2].kind, RT_JOIN);
}

/* A stream that posts, another that waits and computes, and a wait back for the ring of two buffers:
 * that one is needed, the second of its kind is not. */
static void test_prune_ring(void) {
  memory(2);
  uint32_t ring[2] = {pool("a", 64, 64), pool("b", 128, 64)};
  for (uint32_t i = 0; i < 8; i++) {
    if (i >= 2) wait_on(0, 1);
    uint32_t c = post_on(0, IR_COMM_ALLREDUCE, all_of(in), all_of(ring[i % 2]));
    join_on(1, c);
    launch(1, flat(out, 2 * i, 2), flat(ring[i % 2], 0, 2), NONE);
    wait_on(0, 1);
  }
  EXPECT_PASS();
  uint32_t removed = 0;
  EXPECT(check_prune_waits(&plan, &memory_default, &removed) == STATUS_OK);
  EXPECT_INT(removed, 14 - 4); /* every second one brings what the next two posts need */
  check_report_destroy(&report);
  EXPECT(check_plan(&plan, NULL, &report) == STATUS_OK);
  EXPECT_INT(report.n_found, 0);
  EXPECT_INT(report.n_redundant, 0);
}

/* ---- very many at once ---- */
static void many(uint32_t n, bool join_early) {
  begin(2);
  in = input("in", 0, 64);
  out = output("out", 0, (int64_t)n * 64);
  uint32_t *posts = ARENA_ARRAY(&kit_memory, n, uint32_t);
  for (uint32_t k = 0; k < n; k++) {
    posts[k] = post_on(0, IR_COMM_ALLREDUCE, all_of(in), flat(out, 16 * (int64_t)k, 16));
    if (join_early && k >= 4) join_on(1, posts[k - 4]);
    if (join_early && k % 8 == 7) wait_on(0, 1);
  }
  for (uint32_t k = join_early ? n - 4 : 0; k < n; k++) join_on(0, posts[k]);
  wait_on(0, 1);
}

static void test_many(void) {
  many(300, false);
  EXPECT_PASS();
  many(2000, false);
  EXPECT_PASS();
  many(2000, true); /* lanes by waits */
  EXPECT_PASS();
  many(20000, true);
  EXPECT_PASS();
  many(3000, false);
  finish_plan();
  check_report_destroy(&report);
  EXPECT(check_plan(&plan, NULL, &report) == STATUS_UNAVAILABLE);
  EXPECT_CONTAINS(status_message(), "communications run at once");
  status_clear();
}

static void test_out_of_memory(void) {
  memory(2);
  uint32_t c = post_on(1, IR_COMM_ALLREDUCE, all_of(in), all_of(t));
  join_on(0, c);
  launch(0, all_of(out), all_of(t), NONE);
  finish_plan();
  fail_allocations();
}

static status all(void *context) {
  (void)context;
  test_out_before_join();
  test_in_while_it_runs();
  test_two_at_once();
  test_join_elsewhere();
  test_join_brings_the_poster();
  test_order_of_posts();
  test_no_order_of_posts();
  test_memory_given_away();
  test_memory_given_back();
  test_unwritten();
  test_rules();
  test_unjoined();
  test_needed();
  test_prune_ring();
  test_many();
  test_out_of_memory();
  return STATUS_OK;
}

int main(void) { return check_main(all); }
