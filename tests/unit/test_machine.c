/* Machines as data. */
#define _GNU_SOURCE
#include <sched.h>
#include <string.h>

#include "runtime/machine.h"
#include "test.h"

static void expect_error(const char *text, const char *message) {
  rt_speed m;
  EXPECT_INT(rt_machine_parse("box", text, &m), STATUS_BAD_INPUT);
  EXPECT_CONTAINS(status_message(), message);
  status_clear();
}

static const char least[] = "f32_gflops = 1\nmemory_gb_s = 2\nlink_gb_s = 3";

static void test_reading(void) {
  rt_speed m;
  EXPECT_INT(rt_machine_parse("box", least, &m), STATUS_OK);
  (void)EXPECT(m.flops_per_ns == 1 && m.bytes_per_ns == 2 && m.link_bytes_per_ns == 3);
  (void)EXPECT(m.launch_ns == 0 && m.island == 0 && m.threads == 1);
  EXPECT_INT(rt_machine_parse("box",
                              "# a box\r\n\tf32_gflops=1.5e1 # fast\nmemory_gb_s = 2\n\n"
                              "link_gb_s = 3\nlaunch_us = 4\nisland = 8",
                              &m),
             STATUS_OK);
  (void)EXPECT(m.flops_per_ns == 15 && m.launch_ns == 4000 && m.island == 8);
}

/* 100 bytes take 10 ns, of which a rested link takes 60 bytes at once. */
static void test_burst(void) {
  rt_speed m = {.link_bytes_per_ns = 10, .link_burst_bytes = 60};
  rt_link link = rt_machine_link_of(&m, false);
  double rested = 0;
  (void)EXPECT(link.burst_ns == 6);
  (void)EXPECT(rt_link_through_ns(link, 100, 10, &rested) == 104); /* rested: 40 bytes are left */
  (void)EXPECT(rested == 110);
  (void)EXPECT(rt_link_through_ns(link, 104, 10, &rested) == 114); /* at the link's rate */
  (void)EXPECT(rt_link_through_ns(link, 117, 10, &rested) == 124); /* rested for 3 ns */
  (void)EXPECT(rt_link_through_ns(link, 200, 5, &rested) == 200);  /* fewer than it takes at once */
  m.island = 8;
  (void)EXPECT(rt_machine_link_of(&m, true).burst_ns == 6);
  m.far_bytes_per_ns = 1; /* another link */
  (void)EXPECT(rt_machine_link_of(&m, true).burst_ns == 0);
}

static void test_errors(void) {
  expect_error("", "box: f32_gflops is missing");
  expect_error("f32_gflops = 1", "box: memory_gb_s is missing");
  expect_error("f32_gflops", "box:1: a line is `key = number`");
  expect_error("\nf32 = 1", "box:2: a machine has no 'f32'");
  expect_error("= 1", "box:1: a machine has no ''");
  expect_error("f32_gflops = ", "box:1: f32_gflops: '' is no number");
  expect_error("f32_gflops = fast", "'fast' is no number");
  expect_error("f32_gflops = 1 2", "'1 2' is no number");
  expect_error("f32_gflops = -", "'-' is no number");
  expect_error("f32_gflops = nan", "is no number");
  expect_error("f32_gflops = 1111111111111111111111111111111111111111111111111", "is no number");
  expect_error("f32_gflops = 0", "f32_gflops takes 0.001 to 1e+09, not 0");
  expect_error("f32_gflops = 1e300", "not 1e300");
  expect_error("f32_gflops = -1", "not -1");
  expect_error("f32_gflops = 1\nf32_gflops = 1", "box:2: f32_gflops is given twice");
  expect_error("f32_gflops = 1\nmemory_gb_s = 2\nlink_gb_s = 3\nisland = 1.5", "a whole number");
  expect_error("f32_gflops = 1\nmemory_gb_s = 2\nlink_gb_s = 3\ncores = 1.5",
               "cores takes a whole");
  expect_error("f32_gflops = 1\nmemory_gb_s = 2\nlink_gb_s = 3\nper_host = 2.5", "a whole number");
  expect_error("f32_gflops = 1\nmemory_gb_s = 2\nlink_gb_s = 3\ndirect = 0.5",
               "direct takes 0 or 1");
  expect_error("link_burst_kb = -1", "link_burst_kb takes 0 to 1e+06, not -1");
  expect_error("comm_cores = 2", "comm_cores takes 0 to 1, not 2");
  rt_speed m;
  EXPECT_INT(rt_machine_load("no such machine", &m), STATUS_BAD_INPUT);
  EXPECT_CONTAINS(status_message(), "there is no machine 'no such machine'");
  EXPECT_INT(rt_machine_load("/", &m), STATUS_BAD_INPUT);
  status_clear();
}

/* Those built in can be read, and what is printed parses back to the same. */
static void test_built_in(void) {
  for (uint32_t i = 0; i < rt_machine_count(); i++) {
    rt_speed m, again;
    arena memory;
    strbuf text;
    arena_init(&memory, &memory_default);
    strbuf_init(&text, &memory);
    EXPECT_INT(rt_machine_load(rt_machine_name(i), &m), STATUS_OK);
    rt_machine_print(&m, &text);
    EXPECT_INT(rt_machine_parse("again", text.data, &again), STATUS_OK);
    (void)EXPECT(m.flops_per_ns == again.flops_per_ns && m.far_latency_ns == again.far_latency_ns);
    (void)EXPECT(m.issue_ns == again.issue_ns && m.island == again.island);
    arena_destroy(&memory);
  }
}

static void test_links(void) {
  rt_speed m;
  static const uint32_t team[] = {0, 1, 8, 9};
  EXPECT_INT(rt_machine_load("dgx-h100", &m), STATUS_OK);
  rt_post p = {.kind = IR_COMM_ALLGATHER, .team = team, .n_team = 2, .to = -1, .from = -1};
  (void)EXPECT(rt_machine_link(&m, &p).bytes_per_ns == 450);
  p.n_team = 3;
  (void)EXPECT(rt_machine_link(&m, &p).bytes_per_ns == 50);
  (void)EXPECT(rt_machine_link(&m, &p).latency_ns == 10e3);
  p = (rt_post){.kind = IR_COMM_SEND, .team = team, .n_team = 4, .me = 2, .to = 3, .from = -1};
  (void)EXPECT(rt_machine_link(&m, &p).bytes_per_ns == 450);
  p.to = 1;
  (void)EXPECT(rt_machine_link(&m, &p).bytes_per_ns == 50);
}

/* Ranks that are bound to different cores share none. */
static void test_cores(void) {
  cpu_set_t all, one;
  uint32_t first = 0;
  EXPECT_INT(sched_getaffinity(0, sizeof all, &all), 0);
  uint64_t hash = rt_cores_hash();
  (void)EXPECT(hash == rt_cores_hash());
  while (!CPU_ISSET(first, &all)) first++;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  EXPECT_INT(sched_setaffinity(0, sizeof one, &one), 0);
  (void)EXPECT((rt_cores_hash() == hash) == (CPU_COUNT(&all) == 1));
  EXPECT_INT(sched_setaffinity(0, sizeof all, &all), 0);
  (void)EXPECT(rt_cores_hash() == hash);
}

int main(void) {
  test_cores();
  test_reading();
  test_burst();
  test_errors();
  test_built_in();
  test_links();
  return test_finish();
}
