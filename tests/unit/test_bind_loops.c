/* Loops that binding keeps: what they do, unrolled, is what the same program does when all loops
 * are unrolled.
 *
 *   test_bind_loops [SEEDS [FIRST]]      replays seeds FIRST, FIRST + 1, ... */
#include <stdlib.h>

#include "base/random.h"
#include "bind_kit.h"
#include "loop_kit.h"
#include "runtime/device.h"
#include "test.h"

static struct {
  uint32_t programs, refused, kept;
  uint64_t done, bound;
} total;

/* ---- both ways ---- */
typedef struct pair {
  bound with, without;
  rt_plan *unrolled;
  arena memory;
} pair;

static void close_pair(pair *p) {
  rt_plan_destroy(p->unrolled);
  bind_close(&p->with);
  bind_close(&p->without);
  arena_destroy(&p->memory);
}

static bool compare(pair *p) {
  uint32_t at = 0;
  const rt_plan *looped = p->with.plan;
  if (!EXPECT(rt_plan_unroll(looped, &memory_default, &p->unrolled) == STATUS_OK)) return false;
  total.kept += looped->n_loops;
  total.done += p->unrolled->n_instrs;
  total.bound += looped->n_instrs;
  return EXPECT(loop_same_walk(looped, p->unrolled)) &&
         EXPECT(loop_same_queues(looped, p->unrolled, &p->memory)) &&
         EXPECT(loop_same_plan(p->unrolled, p->without.plan, &at));
}

/* What the checker says of it must not depend on its form; places of buffers in the pool may. */
static bool same_verdict(const pair *p) {
  check_report a = {0}, b = {0};
  bool good = EXPECT(check_plan(p->with.plan, NULL, &a) == STATUS_OK) &&
              EXPECT(check_plan(p->unrolled, NULL, &b) == STATUS_OK) &&
              EXPECT((a.n_found == 0) == (b.n_found == 0));
  check_report_destroy(&a);
  check_report_destroy(&b);
  return good;
}

/* What a run on a virtual clock tells; both devices fill all spans. */
typedef struct told {
  rt_span *spans;
  rt_outcome outcome;
  rt_loaded *loaded;
} told;

static bool tell(rt_device *device, const rt_plan *plan, uint32_t n, arena *memory, told *t) {
  t->spans = ARENA_ARRAY(memory, (size_t)n + 1, rt_span);
  if (!EXPECT(device->ops->load(device, plan, &t->loaded) == STATUS_OK)) return false;
  if (!EXPECT(rt_run(t->loaded, NULL, NULL, t->spans, NULL) == STATUS_OK)) return false;
  if (device->ops->outcome) t->outcome = device->ops->outcome(t->loaded);
  return true;
}

static bool same_span(const rt_span *a, const rt_span *b) {
  return a->start_ns == b->start_ns && a->end_ns == b->end_ns && a->instr == b->instr &&
         a->stream == b->stream && a->worker == b->worker;
}

static void same_times(const rt_device_ops *ops, pair *p) {
  rt_device *device = NULL;
  told a = {0}, b = {0};
  uint32_t n = p->unrolled->n_tasks;
  if (!EXPECT(ops->open(&(rt_device_options){0}, &memory_default, &device) == STATUS_OK)) return;
  if (tell(device, p->with.plan, n, &p->memory, &a) &&
      tell(device, p->unrolled, n, &p->memory, &b)) {
    bool same =
        a.outcome.total_ns == b.outcome.total_ns && a.outcome.path_len == b.outcome.path_len;
    for (uint32_t k = 0; same && k < a.outcome.path_len; k++)
      same = a.outcome.path[k] == b.outcome.path[k];
    for (uint32_t k = 0; same && k < n; k++) same = same_span(&a.spans[k], &b.spans[k]);
    EXPECT(same);
  }
  ops->unload(a.loaded);
  ops->unload(b.loaded);
  ops->close(device);
}

typedef struct pair_call {
  const char *text;
  uint32_t streams, loops;
  bool keep_waits;
  pair p;
} pair_call;

static status bind_pair(void *context) {
  pair_call *c = context;
  bind_options o = {.streams = c->streams, .seed = KIT_SEED, .keep_waits = c->keep_waits};
  arena_init(&c->p.memory, &memory_default);
  bool without = bind_with(&c->p.without, c->text, &o, &memory_default);
  status_clear();
  o.loops = c->loops;
  bool with = bind_with(&c->p.with, c->text, &o, &memory_default);
  status_clear();
  total.programs++;
  total.refused += !with;
  if (!EXPECT(with == without)) fprintf(stderr, "%s\n", kit_reason);
  if (with && without && compare(&c->p) && same_verdict(&c->p)) {
    same_times(&rt_device_sim, &c->p);
    same_times(&rt_device_null, &c->p);
  }
  return STATUS_OK;
}

/* ---- by hand ---- */
typedef struct example {
  const char *text;
  uint32_t streams;
  uint32_t n_loops, times; /* loops that are kept, and how often the first one is repeated */
  const char *why;         /* a loop is unrolled; NULL: none that is long enough */
} example;

#define PROGRAM(body)                                                                              \
  "host f(x : f32[200, 4]) -> (y) {\n  y : f32[200, 4] = allocate()\n  y <- set(x)\n" body "}\n"
#define ROW(index_x, index_y)                                                                      \
  "    x$1 = select(x, dim=0, index=" index_x ")\n    y$1 = select(y, dim=0, index=" index_y       \
  ")\n    y$1 <- x$1 + x$1\n"

#define AGAIN "    y$2 = select(y, dim=0, index=i)\n    y$2 <- y$2 + y$2\n"

static const example examples[] = {
    /* iterations 0, 1, and 2 are bound; the others repeat the third */
    {PROGRAM("  for i in 200 {\n" ROW("i", "i") "  }\n"), 1, 1, 197, NULL},
    {PROGRAM("  for i in 200 {\n" ROW("199 - i", "i") "  }\n"), 1, 1, 197, NULL},
    /* streams take turns: windows of as many iterations as there are streams */
    {PROGRAM("  for i in 200 {\n    set_stream(i % streams)\n" ROW("i", "i") "  }\n"), 4, 1, 48,
     NULL},
    {PROGRAM("  for i in 200 {\n    set_stream(i % 3)\n" ROW("i", "i / 2") "  }\n"), 2, 1, 32,
     NULL},
    /* cut where the position begins anew, and where the branch changes */
    {PROGRAM("  for i in 200 {\n" ROW("(i + 100) % 200", "i") "  }\n"), 1, 2, 97, NULL},
    {PROGRAM("  for i in 200 {\n    if i < 120 {\n" ROW("i", "i") "    }\n" AGAIN "  }\n"), 1, 2,
     117, NULL},
    {PROGRAM("  for i in 200 {\n    if i == 60 {\n" ROW("i", "i") "    }\n" AGAIN "  }\n"), 1, 2,
     57, NULL},
    {PROGRAM("  for i in 200 {\n" ROW("min(i, 90)", "i") "  }\n"), 1, 2, 88, NULL},
    /* the inner loop is kept, or the outer one */
    {PROGRAM("  for k in 2 {\n    for i in 200 {\n" ROW("i", "i") "    }\n  }\n"), 1, 2, 197, NULL},
    {PROGRAM("  for i in 200 {\n    for k in 3 {\n" ROW("i", "i") "    }\n  }\n"), 1, 1, 197, NULL},
    /* buffers of an iteration, and one that is kept for all of them */
    {PROGRAM("  for i in 200 {\n    x$1 = select(x, dim=0, index=i)\n"
             "    y$1 = select(y, dim=0, index=i)\n    t : f32[4] = allocate()\n"
             "    t <- x$1 + x$1\n    y$1 <- t + x$1\n    deallocate(t)\n  }\n"),
     1, 1, 197, NULL},
    /* all rows of another length, the last but one of which is short */
    {PROGRAM("  for i in 67 {\n    x$1 = shard(x, dim=0, index=i, chunk=3)\n"
             "    y$1 = shard(y, dim=0, index=i, chunk=3)\n    y$1 <- x$1 + x$1\n  }\n"),
     1, 1, 63, NULL},
    /* what is not kept */
    {PROGRAM("  for i in 200 {\n" ROW("(i * i) % 200", "i") "  }\n"), 1, 0, 0,
     "it goes another way after a few iterations"},
    {PROGRAM("  for i in 100 {\n    x$1 = shard(x, dim=0, index=i, chunk=2)\n"
             "    y$1 = shard(y, dim=0, index=0, chunk=i + 1)\n    y$1 <- y$1 + y$1\n  }\n"),
     1, 0, 0, "an extent, an attribute or a stream differs from iteration to iteration"},
    {PROGRAM("  for i in 100 {\n" ROW(
         "i", "i") "    y$2 = select(y, dim=0, index=2 * i)\n    y$2 <- x$1 + x$1\n  }\n"),
     1, 0, 0, "it writes a buffer by slices that move at different speeds"},
};

static void test_example(const example *e) {
  pair_call c = {.text = e->text, .streams = e->streams, .loops = 8};
  unsigned failed = test_failed;
  EXPECT(memory_guard(bind_pair, &c) == STATUS_OK);
  const rt_plan *p = c.p.with.plan;
  if (EXPECT(p != NULL)) {
    EXPECT_INT(p->n_loops, e->n_loops);
    if (p->n_loops) EXPECT_INT(p->loops[0].times, e->times);
    EXPECT_INT(p->n_unrolled, e->why != NULL);
    if (p->n_unrolled && e->why) EXPECT_STR(p->unrolled[0].why, e->why);
  }
  if (test_failed > failed) fprintf(stderr, "%s\n%s", e->text, kit_reason);
  close_pair(&c.p);
}

/* ---- random ---- */
static uint64_t key, counter;
static uint32_t below(uint32_t n) { return (uint32_t)(random_bits(key, counter++) % n); }

/* An expression of the index with values from 0 to 59, more or less, for indexes below 60. */
static void put_index(strbuf *out) {
  static const char *const forms[] = {"i",
                                      "i",
                                      "i",
                                      "59 - i",
                                      "(i + %u) % 60",
                                      "i / %u",
                                      "i % %u",
                                      "min(i, %u)",
                                      "max(i, %u)",
                                      "(2 * i) % 60",
                                      "(i * %u) % 60",
                                      "%u",
                                      "(i / %u) % 7",
                                      "(i * i) % 60",
                                      "(i + %u) / 2",
                                      "min(i + %u, 59)",
                                      "max(i - %u, 0)",
                                      "(59 - i) % %u",
                                      "(i % %u) * 3",
                                      "(i / 4) * 4 + i % %u",
                                      "ceildiv(i, %u)"};
  const char *form = forms[below(sizeof forms / sizeof *forms)];
  for (const char *at = form; *at; at++) {
    if (at[0] == '%' && at[1] == 'u') strbuf_printf(out, "%u", 1 + below(below(2) ? 4 : 20)), at++;
    else strbuf_putc(out, *at);
  }
}

static void put_select(strbuf *out, const char *to, const char *from) {
  strbuf_printf(out, "    %s = select(%s, dim=0, index=", to, from);
  put_index(out);
  strbuf_puts(out, ")\n");
}

static void put_body(strbuf *out) {
  if (below(2)) strbuf_printf(out, "    set_stream(i %% %u)\n", 1 + below(4));
  if (below(4) == 0) strbuf_puts(out, "    wait_stream(main)\n");
  if (below(4) == 0) strbuf_printf(out, "    wait_stream((i + 1) %% %u)\n", 1 + below(4));
  bool branch = below(4) == 0, local = below(3) == 0;
  static const char *const relations[] = {"<", "<=", "==", "!="};
  put_select(out, "x$1", "x");
  put_select(out, "y$1", "y");
  if (local) strbuf_puts(out, "    t : f32[4] = allocate()\n    t <- x$1 + x$1\n");
  if (branch) {
    strbuf_puts(out, "    if ");
    put_index(out);
    strbuf_printf(out, " %s ", relations[below(4)]);
    put_index(out);
    strbuf_puts(out, " {\n");
    if (below(2)) put_select(out, "x$2", "x");
    strbuf_puts(out, "      y$1 <- x$1 * x$1\n    }\n");
  }
  strbuf_printf(out, "    y$1 <- x$1 + %s\n", local ? "t" : "x$1");
  if (local) strbuf_puts(out, "    deallocate(t)\n");
}

static status try_seed(void *context) {
  uint64_t seed = *(const uint64_t *)context;
  arena memory;
  strbuf text;
  key = seed, counter = 0;
  arena_init(&memory, &memory_default);
  strbuf_init(&text, &memory);
  strbuf_puts(&text, "host f(x : f32[60, 4]) -> (y) {\n  y : f32[60, 4] = allocate()\n"
                     "  y <- set(x)\n  main = current_stream()\n");
  for (uint32_t n = 1 + below(2); n > 0; n--) {
    strbuf_printf(&text, "  for i in %u {\n", 20 + below(41));
    put_body(&text);
    strbuf_puts(&text, "  }\n");
  }
  strbuf_puts(&text, "}\n");
  pair_call c = {.text = text.data, .streams = 1 + below(4), .loops = 2 + below(4)};
  c.keep_waits = below(3) == 0;
  unsigned failed = test_failed;
  EXPECT(memory_guard(bind_pair, &c) == STATUS_OK);
  if (test_failed > failed)
    fprintf(stderr, "%s\nreplay: test_bind_loops 1 %llu\n", text.data, (unsigned long long)seed);
  close_pair(&c.p);
  arena_destroy(&memory);
  return STATUS_OK;
}

/* ---- places ---- */
#define BEGIN                                                                                      \
  "host f(x : f32[200, 4]) -> (y, z) {\n  y : f32[200, 4] = allocate()\n"                          \
  "  z : f32[200, 4] = allocate()\n  main = current_stream()\n  for i in 200 {\n"                  \
  "    x$1 = select(x, dim=0, index=i)\n    y$1 = select(y, dim=0, index=i)\n"                     \
  "    z$1 = select(z, dim=0, index=i)\n"
#define END "  set_stream(main)\n  wait_stream(0)\n  wait_stream(1)\n}\n"
#define USE(name, to)                                                                              \
  "    " name " : f32[4] = allocate()\n    " name " <- x$1 + x$1\n    " to " <- " name " + x$1\n"  \
  "    deallocate(" name ")\n"

/* Memory that is free in one repetition is not in the next one; what is after a loop may run beside
 * its end. */
static const char *const apart[] = {
    BEGIN "    set_stream(0)\n" USE("a", "y$1") "    set_stream(1)\n    wait_stream(0)\n" USE(
        "b", "z$1") "  }\n" END,
    BEGIN "    set_stream(1)\n    wait_stream(0)\n    z$1 <- x$1 + x$1\n    set_stream(0)\n" USE(
        "a",
        "y$1") "  }\n  set_stream(1)\n  x$2 = select(x, dim=0, index=0)\n"
               "  z$2 = select(z, dim=0, index=0)\n  c : f32[4] = allocate()\n  c <- x$2 + x$2\n"
               "  z$2 <- c + x$2\n  deallocate(c)\n" END,
};

static status test_apart(void *context) {
  bound b = {0};
  check_report r = {0};
  bind_options o = {.streams = 2, .loops = 8, .lends = true};
  if (EXPECT(bind_with(&b, context, &o, &memory_default)) &&
      EXPECT(check_plan(b.plan, NULL, &r) == STATUS_OK)) {
    EXPECT_INT(b.plan->n_loops, 1);
    EXPECT_INT(r.n_found, 0);
  } else fprintf(stderr, "%s\n", kit_reason);
  check_report_destroy(&r);
  bind_close(&b);
  return STATUS_OK;
}

/* ---- loops without instructions ---- */
/* Such are left where waits are taken out. */
static void test_empty_loops(void) {
  static const uint32_t expected[] = {0, 0, 1, 2, 2, 2, 3};
  rt_instr instrs[4] = {{0}};
  rt_loop loops[] = {{0, 0, 3}, {0, 1, 2}, {1, 0, 2}, {1, 0, 4}, {2, 1, 3}, {4, 0, 2}};
  rt_plan plan = {.instrs = instrs, .n_instrs = 4, .loops = loops, .n_loops = 6};
  uint32_t n = 0;
  for (rt_cursor c = {.plan = &plan}; n <= 7 && rt_cursor_next(&c); n++)
    EXPECT_INT(c.instr, n < 7 ? expected[n] : UINT32_MAX);
  EXPECT_INT(n, 7);
}

/* ---- cost ---- */
/* A loop of a hundred times the iterations takes the same memory. */
static status test_bytes(void *context) {
  size_t bytes[2] = {0};
  (void)context;
  for (uint32_t k = 0; k < 2; k++) {
    char text[512];
    snprintf(text, sizeof text,
             "host f(x : f32[%u, 4]) -> (y) {\n  y : f32[%u, 4] = allocate()\n  for i in %u {\n"
             "    set_stream(i %% streams)\n" ROW("i", "i") "  }\n}\n",
             k ? 100000 : 1000, k ? 100000 : 1000, k ? 100000 : 1000);
    bound b = {0};
    bind_options o = {.streams = 4, .loops = 32};
    if (EXPECT(bind_with(&b, text, &o, &memory_default))) bytes[k] = b.plan->memory.used_bytes;
    bind_close(&b);
  }
  EXPECT_INT(bytes[0], bytes[1]);
  return STATUS_OK;
}

int main(int argc, char **argv) {
  uint64_t seeds = argc > 1 ? strtoull(argv[1], NULL, 0) : 3000;
  uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 0) : 0;
  for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) test_example(&examples[i]);
  for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
    EXPECT(memory_guard(test_apart, (void *)apart[i]) == STATUS_OK);
  test_empty_loops();
  EXPECT(memory_guard(test_bytes, NULL) == STATUS_OK);
  for (uint64_t s = first; s < first + seeds; s++) EXPECT(memory_guard(try_seed, &s) == STATUS_OK);
  printf("%u programs, %u of them refused: %u loops kept, %llu instructions bound as %llu\n",
         total.programs, total.refused, total.kept, (unsigned long long)total.done,
         (unsigned long long)total.bound);
  if (argc < 2) EXPECT(total.kept > 1000 && 2 * total.refused < total.programs);
  return test_finish();
}
