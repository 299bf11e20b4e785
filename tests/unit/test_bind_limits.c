/* Binding ends: programs that would take too many steps or too much memory are refused, at the outermost
 * loop, and as soon as that is known. */
#include "bind_kit.h"

#define PROGRAM(body)                                                                              \
  "host p(x : f32[8]) -> (y) {\n  y : f32[8] = allocate()\n" body "  y <- set(x)\n}\n"

typedef struct attempt {
  const char *text;
  bind_options options;
  const char *refused; /* NULL: it binds */
} attempt;

static status try_one(void *context) {
  attempt *a = context;
  bound b;
  meter m;
  a->options.streams = 2;
  bool ok = bind_with(&b, a->text, &a->options, meter_start(&m));
  if (!EXPECT_INT(ok, a->refused == NULL)) fprintf(stderr, "%s%s\n", a->text, kit_reason);
  if (!ok && a->refused) EXPECT_CONTAINS(kit_reason, a->refused);
  if (a->options.max_bytes) EXPECT(m.peak_bytes < 4 * a->options.max_bytes);
  bind_close(&b);
  EXPECT_INT(m.live_bytes, 0);
  return STATUS_OK;
}

static void expect(const char *text, int64_t max_steps, int64_t max_bytes, const char *refused) {
  attempt a = {text, {.max_steps = max_steps, .max_bytes = max_bytes}, refused};
  EXPECT(memory_guard(try_one, &a) == STATUS_OK);
}

/* A step is an instruction of the program or an iteration. */
static void test_steps(void) {
  const char *loop = PROGRAM("  for i in 10 { y <- set(x) }\n");
  expect(loop, 23, 0, NULL);
  expect(loop, 22, 0, "the program takes more than 22 steps");
  expect(loop, 21, 0, "3:3: error: the loop takes 20 steps; a program may take 21 in all");
  const char *empty = PROGRAM("  for i in 10 { for j in 10 {} }\n");
  expect(empty, 123, 0, NULL);
  expect(empty, 100, 0, "3:3: error: the loop takes 120 steps; a program may take 100 in all");
}

static void test_early(void) {
  expect(PROGRAM("  for i in 1000000000 { y <- set(x) }\n"), 0, 0,
         "the loop takes 2000000000 steps; a program may take 50000000 in all");
  expect(PROGRAM("  for i in 3037000500 { for j in 3037000500 {} }\n"), 0, 0,
         "the loop takes more than 9223372036854775807 steps");
  expect(PROGRAM("  for i in 1000000000000 {}\n"), 0, 0, "the loop takes 1000000000000 steps");
  /* the branch that is not taken, and an inner loop that is empty, do not count */
  expect(PROGRAM("  for i in 4 { if i < 10 { y <- set(x) } else { for j in 1000000000 {} } }\n"), 0,
         0, NULL);
  expect(PROGRAM("  for i in 0 { for j in 1000000000000 {} }\n"), 0, 0, NULL);
}

static void test_late(void) {
  expect(PROGRAM("  for i in 1000 {\n    for j in i {}\n  }\n"), 10000, 0,
         "3:3: error: the program takes more than 10000 steps");
  expect(PROGRAM("  for i in 1000 { y <- set(x) }\n"), 0, 1 << 20, NULL);
  expect(PROGRAM("  for i in 1000000 { y <- set(x) }\n"), 0, 1 << 20,
         "3:3: error: the plan takes more than 1 MiB");
}

int main(void) {
  test_steps();
  test_early();
  test_late();
  return test_finish();
}
