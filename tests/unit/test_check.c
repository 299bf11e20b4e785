/* The plan checker on plans built by hand: right ones pass, and every class of mistake is reported with
 * the right two instructions.
 *
 * Known incidents of other systems (one device) and where they are planted here:
 *   worker streams start before the main stream's data is ready   test_missing_first_wait
 *   a wait in every iteration serialises the loop                  test_redundant_waits
 *   streams not joined again at the end                            test_unjoined
 *   memory given to another tensor too early                       test_reuse
 * A cycle of waits cannot be written down: a wait names what stands before it in the plan, so
 * happens-before always goes with plan order. */
#include "check_expect.h"

/* Exactly one finding, of this kind, about these instructions and this buffer. */
static void expect_one(check_kind kind, uint32_t a, uint32_t b, uint32_t buffer, int line) {
  examine();
  const check_finding *f = report.findings.data;
  bool ok = report.n_found == 1 && f->kind == kind && f->a == a && f->b == b &&
            f->buffer == buffer && !f->may;
  if (!test_count(ok, __FILE__, line)) fprintf(stderr, "not the one finding:\n%s\n", text);
}
#define EXPECT_ONE(kind, a, b, buffer) expect_one(kind, a, b, buffer, __LINE__)

static void expect_wait(uint32_t instr, check_verdict expected, int line) {
  check_verdict verdict = CHECK_WAIT_UNEXAMINED;
  bool needed = false;
  EXPECT(check_wait_is_needed(&plan, instr, NULL, &needed) == STATUS_OK);
  for (uint32_t k = 0; k < report.waits.len; k++)
    if (report.waits.data[k].instr == instr) verdict = report.waits.data[k].verdict;
  test_int(verdict, expected, "verdict", __FILE__, line);
  test_int(needed, expected == CHECK_WAIT_NEEDED, "needed", __FILE__, line);
}
#define EXPECT_WAIT(instr, verdict) expect_wait(instr, verdict, __LINE__)

/* ---- order ---- */
enum { NONE = CHECK_NONE };

/* in -> t on main, t -> out on stream `worker`; the waits can be left out. */
static uint32_t t, out, first, second, fork_wait, join_wait;
static void chain(bool fork, bool join) {
  begin(2);
  uint32_t in = input("in", 0, 64);
  t = pool("t", 0, 64);
  out = output("out", 0, 64);
  first = launch(0, flat(t, 0, 16), flat(in, 0, 16), NONE);
  fork_wait = fork ? wait_on(1, 0) : NONE;
  second = launch(1, flat(out, 0, 16), flat(t, 0, 16), NONE);
  join_wait = join ? wait_on(0, 1) : NONE;
}

static void test_missing_first_wait(void) {
  chain(true, true);
  EXPECT_PASS();
  EXPECT_INT(report.n_redundant, 0);
  EXPECT_WAIT(fork_wait, CHECK_WAIT_NEEDED);
  EXPECT_INT(report.waits.data[0].a, first);
  EXPECT_INT(report.waits.data[0].b, second);
  EXPECT_WAIT(join_wait, CHECK_WAIT_NEEDED);
  EXPECT_INT(report.waits.data[1].b, NONE);

  chain(false, true);
  EXPECT_ONE(CHECK_RACE_RAW, first, second, t);
  EXPECT_CONTAINS(text, "stream 0 reads t, and nothing orders it after the write on stream main");
  EXPECT_CONTAINS(text, "instruction 0 on stream main: add");
  EXPECT_CONTAINS(text, "bytes 0..64 of buffer t (64 bytes)");
  EXPECT_CONTAINS(text, "stream 0 needs wait_stream(main) after instruction 0 and before "
                        "instruction 1");
  EXPECT_INT(report.n_unexamined, 1);
}

static void test_unjoined(void) {
  chain(true, false);
  EXPECT_ONE(CHECK_UNJOINED, second, NONE, NONE);
  EXPECT_CONTAINS(text, "main needs wait_stream(0) after instruction 2, before the end");
}

/* A wait in the wrong place does not count: neither before the write nor on the wrong stream. */
static void test_misplaced_wait(void) {
  begin(3);
  t = pool("t", 0, 64);
  wait_on(1, 0);
  first = launch(0, flat(t, 0, 16), NONE, NONE);
  wait_on(2, 0);
  second = launch(1, flat(t, 0, 16), flat(t, 0, 16), NONE);
  wait_on(0, 1);
  EXPECT_ONE(CHECK_RACE_RAW, first, second, t);
}

static void test_anti_dependence(void) {
  for (uint32_t ordered = 0; ordered < 2; ordered++) {
    begin(2);
    t = pool("t", 0, 64);
    out = output("out", 0, 64);
    launch(0, flat(t, 0, 16), NONE, NONE);
    wait_on(1, 0);
    first = launch(1, flat(out, 0, 16), flat(t, 0, 16), NONE);
    if (ordered) wait_on(0, 1);
    second = launch(0, flat(t, 0, 16), NONE, NONE);
    wait_on(0, 1);
    if (ordered) EXPECT_PASS();
    else EXPECT_ONE(CHECK_RACE_WAR, first, second, t);
  }
}

static void test_write_write(void) {
  begin(3);
  t = pool("t", 0, 64);
  first = launch(1, flat(t, 0, 9), NONE, NONE);
  second = launch(2, flat(t, 8, 8), NONE, NONE);
  wait_on(0, 1);
  wait_on(0, 2);
  EXPECT_ONE(CHECK_RACE_WAW, first, second, t);
  EXPECT_INT(report.findings.data[0].begin_bytes, 32);
  EXPECT_INT(report.findings.data[0].end_bytes, 36);
}

/* What a stream waited for, it passes on. */
static void test_transitive(void) {
  begin(4);
  t = pool("t", 0, 64);
  out = output("out", 0, 64);
  launch(1, flat(t, 0, 16), NONE, NONE);
  wait_on(2, 1);
  wait_on(3, 2);
  launch(3, flat(out, 0, 16), flat(t, 0, 16), NONE);
  wait_on(0, 3);
  EXPECT_PASS();
  EXPECT_INT(report.n_redundant, 0);
}

/* One missing wait is one finding, for the first task that needs it and the last it must follow. */
static void test_one_finding_per_wait(void) {
  begin(2);
  t = pool("t", 0, 64);
  launch(0, flat(t, 0, 4), NONE, NONE);
  first = launch(0, flat(t, 4, 4), NONE, NONE);
  second = launch(1, flat(t, 0, 8), flat(t, 0, 8), NONE);
  for (int k = 0; k < 5; k++) launch(1, flat(t, 0, 4), flat(t, 0, 4), NONE);
  wait_on(0, 1);
  EXPECT_ONE(CHECK_RACE_RAW, first, second, t);
}

static void test_redundant_waits(void) {
  begin(3);
  t = pool("t", 0, 128);
  out = output("out", 0, 128);
  uint32_t waits[4];
  launch(0, flat(t, 0, 32), NONE, NONE);
  waits[0] = wait_on(1, 0);
  launch(1, flat(out, 0, 16), flat(t, 0, 16), NONE);
  waits[1] = wait_on(1, 0); /* again: nothing new on main */
  waits[2] = wait_on(2, 1); /* also orders main before 2 */
  waits[3] = wait_on(2, 0);
  launch(2, flat(out, 16, 16), flat(t, 16, 16), NONE);
  wait_on(0, 1);
  wait_on(0, 2);
  EXPECT_PASS();
  EXPECT_WAIT(waits[0], CHECK_WAIT_NEEDED);
  EXPECT_WAIT(waits[1], CHECK_WAIT_IMPLIED);
  EXPECT_WAIT(waits[2], CHECK_WAIT_UNUSED); /* serialises the streams for nothing */
  EXPECT_WAIT(waits[3], CHECK_WAIT_IMPLIED);
  EXPECT_CONTAINS(text, "note: redundant wait, instruction 4: stream 1 waits for stream 0, and no "
                        "later access needs that");
  EXPECT_CONTAINS(text, "stream 1 waits for stream main, where nothing is left to wait for");
}

/* A stream learns nothing new from one that only knows what it did itself. */
static void test_wait_for_oneself(void) {
  begin(3);
  t = pool("t", 0, 64);
  launch(1, flat(t, 0, 16), NONE, NONE);
  wait_on(2, 1);
  launch(2, flat(t, 0, 16), NONE, NONE);
  wait_on(1, 2);
  launch(1, flat(t, 0, 16), NONE, NONE);
  first = wait_on(2, 1);
  wait_on(2, 2);
  second = wait_on(1, 2);
  wait_on(0, 1);
  EXPECT_PASS();
  EXPECT_WAIT(first, CHECK_WAIT_UNUSED);
  EXPECT_WAIT(first + 1, CHECK_WAIT_IMPLIED);
  EXPECT_WAIT(second, CHECK_WAIT_IMPLIED);
}

/* ---- memory ---- */
static void test_reuse(void) {
  for (uint32_t ordered = 0; ordered < 2; ordered++) {
    begin(3);
    uint32_t old = pool("old", 0, 64);
    launch(1, flat(old, 0, 16), NONE, NONE);
    first = launch(1, flat(old, 0, 16), flat(old, 0, 16), NONE);
    release(old);
    uint32_t young = pool("young", 32, 64); /* shares 32 bytes */
    if (ordered) wait_on(2, 1);
    second = launch(2, flat(young, 0, 16), NONE, NONE);
    wait_on(0, 1);
    wait_on(0, 2);
    if (ordered) {
      EXPECT_PASS();
      continue;
    }
    EXPECT_ONE(CHECK_REUSE, first, second, young);
    EXPECT_INT(report.findings.data[0].other, old);
    EXPECT_INT(report.findings.data[0].end_bytes, 32);
    EXPECT_CONTAINS(text, "stream 1 uses the memory of old for young");
  }
}

static void test_reuse_of_other_bytes(void) {
  begin(3);
  uint32_t old = pool("old", 0, 64);
  launch(1, flat(old, 0, 8), NONE, NONE);
  release(old);
  uint32_t young = pool("young", 32, 64); /* the half that nobody touched */
  launch(2, flat(young, 0, 16), NONE, NONE);
  wait_on(0, 1);
  wait_on(0, 2);
  EXPECT_PASS();
}

static void test_layout(void) {
  begin(1);
  pool("a", 0, 64);
  uint32_t b = pool("b", 60, 64);
  launch(0, flat(b, 0, 16), NONE, NONE);
  EXPECT_ONE(CHECK_LAYOUT, NONE, NONE, b);
  EXPECT_CONTAINS(text, "a and b live at the same time and share memory");
}

static void test_lifetime(void) {
  begin(1);
  t = pool("t", 0, 64);
  launch(0, flat(t, 0, 16), NONE, NONE);
  release(t);
  second = launch(0, flat(t, 0, 16), flat(t, 0, 16), NONE);
  EXPECT_ONE(CHECK_AFTER_FREE, NONE, second, t);

  begin(1);
  t = pool("t", 0, 64);
  first = launch(0, flat(t, 0, 16), NONE, NONE);
  kit_buffers.data[t].allocated_at = 1;
  EXPECT_ONE(CHECK_BEFORE_ALLOCATE, NONE, first, t);
  EXPECT_CONTAINS(text, "t is used before it is allocated");
}

static void test_unwritten(void) {
  begin(1);
  t = pool("t", 0, 64);
  out = output("out", 0, 64);
  launch(0, flat(t, 0, 8), NONE, NONE);
  launch(0, flat(t, 12, 4), NONE, NONE);
  second = launch(0, flat(out, 0, 16), flat(t, 0, 16), NONE);
  EXPECT_ONE(CHECK_UNWRITTEN, NONE, second, t);
  EXPECT_INT(report.findings.data[0].begin_bytes, 32);
  EXPECT_INT(report.findings.data[0].end_bytes, 48);

  begin(1); /* what the last owner of the memory wrote does not count */
  uint32_t old = pool("old", 0, 64);
  launch(0, flat(old, 0, 16), NONE, NONE);
  release(old);
  t = pool("t", 0, 64);
  second = launch(0, flat(t, 0, 16), flat(t, 0, 16), flat(t, 0, 16)); /* said once */
  EXPECT_ONE(CHECK_UNWRITTEN, NONE, second, t);
}

static void test_output(void) {
  begin(1);
  out = output("out", 0, 64);
  launch(0, matrix(out, 0, 4, 3, 4, 1), NONE, NONE);
  EXPECT_ONE(CHECK_OUTPUT_UNWRITTEN, NONE, NONE, out);
  launch(0, matrix(out, 3, 4, 1, 4, 1), NONE, NONE);
  EXPECT_PASS();
  begin(1);
  output("out", 0, 64);
  EXPECT_ONE(CHECK_OUTPUT_UNWRITTEN, NONE, NONE, 0);
}

static void test_bounds(void) {
  begin(1);
  t = pool("t", 0, 64);
  first = launch(0, flat(t, 8, 9), NONE, NONE);
  EXPECT_ONE(CHECK_BOUNDS, NONE, first, t);
  begin(1);
  t = pool("t", 0, 64);
  first = launch(0, matrix(t, 0, INT64_MAX / 2, 2, INT64_MAX / 2, 1), NONE, NONE);
  EXPECT_ONE(CHECK_BOUNDS, NONE, first, t);
}

static void test_in_task(void) {
  begin(1);
  t = pool("t", 0, 64);
  launch(0, flat(t, 0, 16), NONE, NONE);
  launch(0, flat(t, 0, 16), flat(t, 0, 16), NONE); /* in place: fine */
  EXPECT_PASS();
  second = launch(0, flat(t, 0, 15), flat(t, 1, 15), NONE);
  EXPECT_ONE(CHECK_IN_TASK, second, second, t);

  begin(1);
  t = pool("t", 0, 64);
  launch(0, flat(t, 0, 16), NONE, NONE);
  second = launch_op(IR_OP_MATMUL, 0, matrix(t, 0, 4, 4, 4, 1), matrix(t, 0, 4, 4, 4, 1), NONE);
  EXPECT_ONE(CHECK_IN_TASK, second, second, t);
}

/* ---- views ---- */
/* Streams 1 and 2 write these views of one buffer of 256 floats, unordered. */
static void both_write(uint32_t buffer_bytes, rt_view a, rt_view b) {
  begin(3);
  pool("t", 0, buffer_bytes);
  a.dtype = b.dtype = IR_F32;
  launch(1, add_view(a), NONE, NONE);
  launch(2, add_view(b), NONE, NONE);
  wait_on(0, 1);
  wait_on(0, 2);
}
#define VIEW(first, rank_, ...)                                                                    \
  { .offset_bytes = 4 * (first), .rank = rank_, __VA_ARGS__ }
#define EXTENTS(...) .extents = LIST(__VA_ARGS__)
#define STRIDES(...) .strides = LIST(__VA_ARGS__)

static void test_disjoint_views(void) {
  const rt_view pairs[][2] = {
      /* neighbouring columns, the second one transposed */
      {VIEW(0, 2, EXTENTS(16, 4), STRIDES(16, 1)), VIEW(4, 2, EXTENTS(4, 16), STRIDES(1, 16))},
      /* even and odd elements */
      {VIEW(0, 1, EXTENTS(64), STRIDES(2)), VIEW(1, 1, EXTENTS(64), STRIDES(2))},
      /* a column and a range that ends before it in its row */
      {VIEW(7, 1, EXTENTS(8), STRIDES(16)), VIEW(8, 1, EXTENTS(15), STRIDES(1))},
      /* tiles of a three-dimensional tensor */
      {VIEW(0, 3, EXTENTS(2, 4, 4), STRIDES(64, 8, 1)),
       VIEW(4, 3, EXTENTS(2, 8, 4), STRIDES(64, 8, 1))},
      /* backwards */
      {VIEW(9, 2, EXTENTS(10, 1), STRIDES(-1, 0)), VIEW(10, 1, EXTENTS(9), STRIDES(1))},
      /* strides that do not divide one another: multiples of 6 and of 4, plus 1 */
      {VIEW(0, 1, EXTENTS(20), STRIDES(6)), VIEW(1, 1, EXTENTS(20), STRIDES(4))},
      /* nothing at all */
      {VIEW(0, 2, EXTENTS(16, 0), STRIDES(16, 1)), VIEW(0, 1, EXTENTS(16), STRIDES(1))},
  };
  for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++) {
    both_write(1024, pairs[k][0], pairs[k][1]);
    EXPECT_PASS();
  }
}

static void test_overlapping_views(void) {
  const rt_view pairs[][2] = {
      /* columns 0..4 and 3..6 */
      {VIEW(0, 2, EXTENTS(16, 4), STRIDES(16, 1)), VIEW(3, 2, EXTENTS(3, 16), STRIDES(1, 16))},
      /* a row and a column */
      {VIEW(32, 1, EXTENTS(16), STRIDES(1)), VIEW(5, 1, EXTENTS(16), STRIDES(16))},
      /* a range that reaches into the column's next row */
      {VIEW(7, 1, EXTENTS(8), STRIDES(16)), VIEW(8, 1, EXTENTS(16), STRIDES(1))},
      /* multiples of 6 and of 4, plus 2 */
      {VIEW(0, 1, EXTENTS(20), STRIDES(6)), VIEW(2, 1, EXTENTS(20), STRIDES(4))},
      /* a scalar */
      {VIEW(9, 0, EXTENTS(0), STRIDES(0)), VIEW(18, 1, EXTENTS(10), STRIDES(-1))},
  };
  for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++) {
    both_write(1024, pairs[k][0], pairs[k][1]);
    EXPECT_ONE(CHECK_RACE_WAW, 0, 1, 0);
  }
}

/* A stream writes, another reads an expanded view, unordered. */
static void test_expanded_views(void) {
  for (int64_t at = 9; at < 11; at++) {
    begin(3);
    t = pool("t", 0, 1024);
    uint32_t u = pool("u", 1024, 400);
    launch(0, flat(t, 0, 256), NONE, NONE);
    wait_on(1, 0);
    wait_on(2, 0);
    launch(1, flat(t, 0, 10), NONE, NONE);
    uint32_t read = launch(2, matrix(u, 0, 10, 10, 10, 1), matrix(t, at, 10, 10, 0, 0), NONE);
    wait_on(0, 1);
    wait_on(0, 2);
    if (at == 9) EXPECT_ONE(CHECK_RACE_RAW, 3, read, t);
    else EXPECT_PASS();
  }
}

/* Results whose elements share bytes. */
static void test_shared_elements(void) {
  const rt_view wrong[] = {
      VIEW(0, 1, EXTENTS(2), STRIDES(0)),         VIEW(0, 3, EXTENTS(4, 5, 4), STRIDES(4, 0, 1)),
      VIEW(0, 2, EXTENTS(4, 5), STRIDES(4, 1)),   /* rows of 5, 4 apart */
      VIEW(40, 2, EXTENTS(4, 5), STRIDES(-4, 1)), /* the same, backwards */
      VIEW(0, 2, EXTENTS(3, 3), STRIDES(4, 2)),   /* 4 = 2 * 2 */
      VIEW(0, 2, EXTENTS(4, 3), STRIDES(2, 3)),   /* 2 * 3 = 3 * 2 */
  };
  const rt_view right[] = {
      VIEW(0, 1, EXTENTS(1), STRIDES(0)),
      VIEW(0, 2, EXTENTS(0, 5), STRIDES(0, 1)),
      VIEW(6, 2, EXTENTS(3, 3), STRIDES(1, -3)),
      VIEW(0, 2, EXTENTS(2, 2), STRIDES(2, 3)), /* 0, 2, 3, 5 */
      VIEW(0, 2, EXTENTS(3, 2), STRIDES(2, 3)),
  };
  for (size_t k = 0; k < sizeof wrong / sizeof *wrong + sizeof right / sizeof *right; k++) {
    bool good = k >= sizeof wrong / sizeof *wrong;
    rt_view v = good ? right[k - sizeof wrong / sizeof *wrong] : wrong[k];
    v.dtype = IR_F32;
    begin(1);
    t = pool("t", 0, 1024);
    uint32_t write = launch(0, add_view(v), NONE, NONE);
    if (good) EXPECT_PASS();
    else EXPECT_ONE(CHECK_SHARED, NONE, write, t);
  }
}

/* Views with too many pieces are taken for all they span, and the finding says so. */
static void test_may(void) {
  rt_view a = VIEW(0, 1, EXTENTS(10000), STRIDES(6)), b = VIEW(1, 1, EXTENTS(12000), STRIDES(4));
  both_write(1 << 20, a, b);
  examine();
  EXPECT_INT(report.n_found, 1);
  EXPECT(report.n_found == 1 && report.findings.data[0].may);
  EXPECT_CONTAINS(text, "they may be disjoint");
  check_options options = {.max_boxes = 20000};
  check_report_destroy(&report);
  EXPECT(check_plan(&plan, &options, &report) == STATUS_OK);
  EXPECT_INT(report.n_found, 0);
}

/* ---- the rest ---- */
static void test_limit(void) {
  begin(1);
  t = pool("t", 0, 64);
  for (int k = 0; k < 250; k++) launch(0, flat(t, 0, 16), flat(t, 0, 16), NONE);
  release(t);
  for (int k = 0; k < 250; k++) launch(0, flat(t, 0, 16), NONE, NONE);
  examine();
  EXPECT_INT(report.n_found, 251);
  EXPECT_INT(report.findings.len, 100);
  EXPECT_CONTAINS(text, "and 151 more errors");
  EXPECT_CONTAINS(text, "250 x access after free");
}

static void test_place(void) {
  chain(true, true);
  ir_module m;
  ir_module_init(&m, &memory_default);
  m.src = (source){.name = "p.weir", .text = "host p() {\n  x <- y\n}\n", .length = 22};
  ir_host host = {0};
  ir_func h = {.module = &m, .kind = IR_FUNC_HOST, .host = &host};
  vec_push(&kit_memory, &host.instrs, ((ir_instr_data){0}));
  vec_push(&kit_memory, &host.instrs, ((ir_instr_data){.kind = IR_FOR}));
  host.instrs.data[1].at = (loc){.offset = 13, .length = 6, .known = true};
  kit_instrs.data[fork_wait].origin = 1;
  finish_plan();
  plan.host = &h;
  const char *file;
  uint32_t line = 0, column = 0;
  EXPECT(check_instr_place(&plan, fork_wait, &kit_memory, &file, &line, &column));
  EXPECT_STR(file, "p.weir");
  EXPECT_INT(line, 2);
  EXPECT_INT(column, 3);
  EXPECT(!check_instr_place(&plan, second, &kit_memory, &file, &line, &column));
  ir_module_destroy(&m);
}

static void test_out_of_memory(void) {
  chain(true, true);
  finish_plan();
  fail_allocations();
}

static status all(void *context) {
  (void)context;
  test_missing_first_wait();
  test_unjoined();
  test_misplaced_wait();
  test_anti_dependence();
  test_write_write();
  test_transitive();
  test_one_finding_per_wait();
  test_redundant_waits();
  test_wait_for_oneself();
  test_reuse();
  test_reuse_of_other_bytes();
  test_layout();
  test_lifetime();
  test_unwritten();
  test_output();
  test_bounds();
  test_in_task();
  test_disjoint_views();
  test_overlapping_views();
  test_expanded_views();
  test_shared_elements();
  test_may();
  test_limit();
  test_place();
  test_out_of_memory();
  return STATUS_OK;
}

int main(void) { return check_main(all); }
