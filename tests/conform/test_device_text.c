/* Host programs with communications, from their text to results: bound per rank, joined, run. */
#include "bind/bind.h"
#include "conform/rig.h"
#include "ir/bind.h"
#include "ir/host.h"
#include "text/text.h"

enum { MAX_SLOTS = 4 * RIG_RANKS, WIDTH = 6 };

typedef struct subject {
  arena memory;
  ir_module module;
  ir_env env;
  uint32_t n;
  rt_plan *plans[RIG_RANKS], *plan;
} subject;

static bool refused(subject *s, const char *what) {
  strbuf text;
  strbuf_init(&text, &s->memory);
  diags_render(&s->module.errors, &text);
  fprintf(stderr, "%s: %s\n%s\n", what, status_message(), text.len ? text.data : "");
  return false;
}

static bool bind(subject *s, const char *text, uint32_t n, uint32_t streams) {
  *s = (subject){.n = n};
  arena_init(&s->memory, &memory_default);
  ir_module_init(&s->module, &memory_default);
  if (text_parse(&s->module, "p.weir", text, strlen(text)) != STATUS_OK) return refused(s, "parse");
  ir_func *h = s->module.funcs.data[s->module.funcs.len - 1];
  if (!ir_host_verify(h)) return refused(s, "verify");
  ir_env_init(&s->env, h, &s->memory);
  if (!ir_bind_complete(&s->env) || !ir_bind_check(&s->env)) return refused(s, "extents");
  for (uint32_t r = 0; r < n; r++) {
    bind_options o = {.streams = streams, .rank = r};
    if (bind_plan(&s->env, &o, &memory_default, &s->plans[r]) != STATUS_OK)
      return refused(s, "bind");
  }
  return rt_plan_join(s->plans, n, &memory_default, &s->plan) == STATUS_OK;
}

static void drop(subject *s) {
  rt_plan_destroy(s->plan);
  for (uint32_t r = 0; r < s->n; r++) rt_plan_destroy(s->plans[r]);
  ir_module_destroy(&s->module);
  arena_destroy(&s->memory);
}

typedef struct arrays {
  int64_t in[MAX_SLOTS][64], out[MAX_SLOTS][64];
  void *inputs[MAX_SLOTS], *outputs[MAX_SLOTS];
} arrays;

/* Element i of input slot k is 1000 k + i. */
static void fill(arrays *a) {
  for (int64_t k = 0; k < MAX_SLOTS; k++) {
    for (int64_t i = 0; i < 64; i++) a->in[k][i] = 1000 * k + i;
    a->inputs[k] = a->in[k];
    a->outputs[k] = a->out[k];
  }
}

/* ---- results ---- */
typedef bool right(const arrays *a, uint32_t n);

static void expect_right(const char *text, uint32_t n, uint32_t streams, right *is_right) {
  subject s;
  static arrays a;
  uint32_t wrong = 0;
  if (!EXPECT(bind(&s, text, n, streams))) exit(test_finish());
  fill(&a);
  for (uint32_t threads = 0; threads <= 3; threads++) {
    rig g;
    rig_open(&g, threads, n, 60 * SECONDS);
    rig_load(&g, s.plan);
    for (uint32_t r = 0; r < 40; r++) {
      if (threads == 0) cpu_adversary_reseed(g.loaded, r);
      memset(a.out, 0, sizeof a.out);
      status st = rt_run(g.loaded, a.inputs, a.outputs, NULL, NULL);
      if (st != STATUS_OK) fprintf(stderr, "%s\n", status_message());
      status_clear();
      wrong += st != STATUS_OK || !is_right(&a, n);
    }
    rig_close(&g);
  }
  EXPECT_INT(wrong, 0);
  drop(&s);
}

static const char collectives[] =
    "host collectives(mesh d = [4], x : i64[6] on d, p : i64[4, 6] on d) -> (y, w, v) {\n"
    "  y : i64[6] on d = allocate()\n"
    "  w : i64[4, 6] on d = allocate()\n"
    "  v : i64[4, 6] on d = allocate()\n"
    "  a = broadcast(x -> y, team=d.x, root=2)\n"
    "  wait(a)\n"
    "  b = allreduce(y -> y, team=d.x, op=sum)\n" /* in place */
    "  a = gather(x -> w, team=d.x, root=0)\n"
    "  wait(a)\n"
    "  wait(b)\n"
    "  a = allgather(y -> w, team=d.x)\n"
    "  wait(a)\n"
    "  b = scatter(p -> y, team=d.x, root=3)\n"
    "  wait(b)\n"
    "  c = reduce(y -> y, team=d.x, op=max, root=1)\n"
    "  wait(c)\n"
    "  c = all_to_all(p -> v, team=d.x)\n"
    "  wait(c)\n"
    "  c = reduce_scatter(p -> y, team=d.x, op=sum)\n"
    "  wait(c)\n"
    "}\n";

/* Inputs of rank r are slots 2r and 2r + 1, outputs 3r …  y: piece r of the sum of all p. w: x of rank 2
 * four times over, from all. v: piece r of p of each rank. */
static bool collectives_are_right(const arrays *a, uint32_t n) {
  for (int64_t r = 0; r < n; r++)
    for (int64_t i = 0; i < WIDTH; i++) {
      int64_t sum = 0;
      for (int64_t q = 0; q < n; q++) sum += a->in[2 * q + 1][r * WIDTH + i];
      if (a->out[3 * r][i] != sum) return false;
      for (int64_t q = 0; q < n; q++) {
        if (a->out[3 * r + 1][q * WIDTH + i] != 4 * a->in[4][i]) return false;
        if (a->out[3 * r + 2][q * WIDTH + i] != a->in[2 * q + 1][r * WIDTH + i]) return false;
      }
    }
  return true;
}

/* An allgather by messages, each with its neighbours at growing distance, on several streams. */
static const char ring[] = "host ring(mesh d = [4], x : i64[6] on d) -> (y) {\n"
                           "  y : i64[4, 6] on d = allocate()\n"
                           "  main = current_stream()\n"
                           "  for i in 4 {\n"
                           "    set_stream(i % streams)\n"
                           "    wait_stream(main)\n"
                           "    y$1 = select(y, dim=0, index=(me(d.x) + i) % 4)\n"
                           "    if i == 0 {\n"
                           "      y$1 <- set(x)\n"
                           "    } else {\n"
                           "      group_start()\n"
                           "      recv(y$1, from=(me(d.x) + i) % 4, team=d.x)\n"
                           "      send(x, to=(me(d.x) - i) % 4, team=d.x)\n"
                           "      c = group_end()\n"
                           "      wait(c)\n"
                           "    }\n"
                           "  }\n"
                           "  set_stream(main)\n"
                           "  for i in 4 {\n"
                           "    wait_stream(i % streams)\n"
                           "  }\n"
                           "}\n";

static bool ring_is_right(const arrays *a, uint32_t n) {
  for (int64_t r = 0; r < n; r++)
    for (int64_t q = 0; q < n; q++)
      for (int64_t i = 0; i < WIDTH; i++)
        if (a->out[r][q * WIDTH + i] != a->in[q][i]) return false;
  return true;
}

/* The data go round and come home, one step per iteration. */
static const char round_trip[] =
    "host trip(mesh d = [8], x : i64[6] on d) -> (y) {\n"
    "  y : i64[6] on d = allocate()\n"
    "  z : i64[6] on d = allocate()\n"
    "  y <- set(x)\n"
    "  for i in 4 {\n"
    "    c = permute(y -> z, team=d.x, to=(me(d.x) + 1) % 8, from=(me(d.x) + 7) % 8)\n"
    "    wait(c)\n"
    "    b = permute(z -> y, team=d.x, to=(me(d.x) + 1) % 8, from=(me(d.x) + 7) % 8)\n"
    "    wait(b)\n"
    "  }\n"
    "  deallocate(z)\n"
    "}\n";

static bool trip_is_right(const arrays *a, uint32_t n) {
  for (int64_t r = 0; r < n; r++)
    if (memcmp(a->out[r], a->in[r], WIDTH * sizeof **a->in) != 0) return false;
  return true;
}

/* ---- messages ---- */
/* Rank 1 leaves out the allreduce and waits for a message that rank 0 would send afterwards. */
static const char stuck[] = "host stuck(mesh d = [2], x : i64[6] on d) -> (y) {\n"
                            "  y : i64[6] on d = allocate()\n"
                            "  if me(d.x) == 0 {\n"
                            "    c = allreduce(x -> y, team=d.x, op=sum)\n"
                            "    wait(c)\n"
                            "    s = send(y, to=1, team=d.x)\n"
                            "    wait(s)\n"
                            "  } else {\n"
                            "    r = recv(y, from=0, team=d.x)\n"
                            "    wait(r)\n"
                            "  }\n"
                            "}\n";

static void test_stuck(void) {
  subject s;
  static arrays a;
  if (!EXPECT(bind(&s, stuck, 2, 2))) exit(test_finish());
  fill(&a);
  for (uint32_t threads = 0; threads <= 3; threads++) {
    rig g;
    rig_open(&g, threads, 2, SECONDS / 20);
    rig_load(&g, s.plan);
    EXPECT_INT(rt_run(g.loaded, a.inputs, a.outputs, NULL, NULL), STATUS_UNAVAILABLE);
    EXPECT_STR(
        status_message(),
        "no progress in 0.05 s: p.weir:5: rank 0 waits for allreduce of 6 i64 (sum) at p.weir:4 "
        "on team (0 1): rank 1 has not posted it; its last post is recv at p.weir:9, unfinished; "
        "p.weir:10: rank 1 waits for recv of 6 i64 from rank 0 at p.weir:9: rank 0 has not "
        "posted it; its last post is allreduce at p.weir:4, unfinished");
    status_clear();
    rig_close(&g);
  }
  drop(&s);
}

static void test_descriptions(void) {
  subject s;
  strbuf text;
  if (!EXPECT(bind(&s, stuck, 2, 2))) exit(test_finish());
  strbuf_init(&text, &s.memory);
  for (uint32_t i = 0; i < s.plan->n_instrs; i++) {
    rt_describe(s.plan, i, &text);
    strbuf_putc(&text, '\n');
  }
  EXPECT_CONTAINS(text.data, "c = allreduce(x -> y) posted\n");
  EXPECT_CONTAINS(text.data, "waits for c = allreduce(x -> y)\n");
  EXPECT_CONTAINS(text.data, "s = send(y ->) posted\n");
  EXPECT_CONTAINS(text.data, "waits for r = recv(-> y)\n");
  drop(&s);
}

static status guarded(void *context) {
  (void)context;
  expect_right(collectives, 4, 2, collectives_are_right);
  for (uint32_t streams = 1; streams <= 4; streams++) expect_right(ring, 4, streams, ring_is_right);
  expect_right(round_trip, 8, 1, trip_is_right);
  test_stuck();
  test_descriptions();
  return STATUS_OK;
}

int main(void) {
  EXPECT_INT(memory_guard(guarded, NULL), STATUS_OK);
  return test_finish();
}
