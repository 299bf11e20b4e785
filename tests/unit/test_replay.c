/* Replay: one tensor's transforms and marks repeated on another. */
#include "unit/schedule_kit.h"

/* ---- replay ---- */
static const schedule_marks all = {true, UINT32_MAX};

static uint32_t replay(const char *from, const char *to, schedule_marks which) {
  ir_pair pairs[IR_MAX_RANK];
  ir_axes a = now(from)->logical, b = now(to)->root;
  uint32_t n = a.len < b.len ? a.len : b.len;
  for (uint32_t i = 0; i < n; i++) pairs[i] = (ir_pair){a.data[i], b.data[i], IR_PAIR_EXACT};
  return schedule_replay_marked(f, tensor(from), tensor(to), pairs, n, which, NULL);
}

static void replays(void) {
  begin();
  ir_tensor x = INPUT("x", sym("t"), num(8), num(6));
  set_of("y", x);
  set_of("z", x);
  REDUCE("s", IR_OP_SUM, x, 1);
  EXPECT(outer_split("x", 0, 3));
  EXPECT(stream("x", 0));
  EXPECT(outer_split("x", 2, 4));
  EXPECT(swizzle("x", 2, 0));
  EXPECT(device("x", 2, 0));
  EXPECT(serial("x", 3));
  EXPECT(CHUNKS("x", 4, 1, 2, 3));
  EXPECT(stream("x", 4));
  EXPECT_STR(loop("x"), "[3 stream, ceildiv(t, 3), 4 mesh.x, 2 serial, 3 stream, 3]");
  EXPECT_INT(replay("x", "y", all), 7);
  EXPECT_STR(loop("y"), "[3 stream, ceildiv(t, 3), 4 mesh.x, 2, 3 stream, 3]");
  EXPECT_INT(replay("x", "y", all), 0); /* already transformed */
  EXPECT_INT(replay("x", "z", (schedule_marks){.streams = true}), 4);
  EXPECT_STR(loop("z"),
             "[3 stream, ceildiv(t, 3), 8, 3 stream, 3]"); /* no split without its mark */
  EXPECT_INT(replay("x", "s", all), 7);                    /* onto a reduction too */
  EXPECT_STR(loop("s"), "[3 stream, ceildiv(t, 3), r 4 mesh.x, r 2, 3 stream, 3]");
  EXPECT_INT(module.errors.errors, 0);
  expect_derivable();
}

static void replay_merges(void) {
  begin();
  ir_tensor x = INPUT("x", num(2), num(3), num(4));
  set_of("y", x);
  set_of("z", x);
  REDUCE("s", IR_OP_SUM, x, 0);
  EXPECT(REORDER("x", 2, 0));
  EXPECT(merge("x", 0)); /* 4 * 2 */
  EXPECT(split("x", 0, 2));
  EXPECT(device("x", 0, 0));
  EXPECT_STR(loop("x"), "[4 mesh.x, 2, 3]");
  EXPECT_INT(replay("x", "y", all), 4); /* a reorder brings them together */
  EXPECT_STR(loop("y"), "[3, 4 mesh.x, 2]");
  EXPECT(serial("z", 0));
  EXPECT_INT(replay("x", "z", all), 0); /* one of the two is marked: left alone */
  EXPECT_INT(replay("x", "s", all), 0); /* a reduction with another axis */
  EXPECT_STR(loop("z"), "[2 serial, 3, 4]");
  EXPECT_STR(loop("s"), "[r 2, 3, 4]");
  EXPECT_INT(module.errors.errors, 0);
  expect_derivable();
}

static void replay_leaves_alone(void) {
  begin();
  ir_tensor x = INPUT("x", num(4), num(4));
  set_of("y", x);
  set_of("z", x);
  EXPECT(device("x", 0, 0));
  EXPECT(device("y", 1, 0));
  EXPECT_INT(replay("x", "y", all), 0); /* mesh.x is taken: no error, no mark */
  EXPECT_STR(loop("y"), "[4, 4 mesh.x]");
  ir_pair whole = {now("x")->logical.data[0], now("z")->root.data[0], IR_PAIR_WHOLE};
  EXPECT_INT(schedule_replay_marked(f, tensor("x"), tensor("z"), &whole, 1, all, NULL), 0);
  EXPECT_INT(module.errors.errors, 0);
}

int main(void) {
  static void (*const tests[])(void) = {replays, replay_merges, replay_leaves_alone};
  return run_all(tests, sizeof tests / sizeof *tests);
}
