/* Plans with loops that communicate: bound, unrolled, joined, checked and pruned, they are what the
 * same programs are with all loops unrolled. Each instruction of a rank, or of all ranks, is left
 * out or exchanged with the next, and each message made shorter: check_world() must say the same of
 * both forms, and check_alike() what it says of the world. */
#include <stdlib.h>

#include "alike_kit.h"
#include "bind_kit.h"
#include "loop_kit.h"

enum { MOST_RANKS = 64 };

static struct { uint32_t worlds, loops, mutants, killed, once, moving; } total;

/* ---- programs ---- */
typedef struct example {
  const char *text; /* with the number of devices, twice the number of iterations, at most */
  uint32_t streams, loops;
} example;

#define FORK                                                                                       \
  "  main = current_stream()\n  for i in streams {\n    set_stream(i)\n    wait_stream(main)\n  "  \
  "}\n"
#define MEET "  set_stream(main)\n  for i in streams {\n    wait_stream(i)\n  }\n"

/* A slice is gathered per iteration, as a stream loop is lowered. */
static const char gathers[] =
    "host f(mesh d = [%1$u], a : f32[%2$u, %1$u@x/1, 2] on d) -> (c) {\n"
    "  c : f32[%2$u, %1$u, 2] on d = allocate()\n" FORK "  for i in %2$u {\n"
    "    set_stream(i %% streams)\n    a$1 = select(a, dim=0, index=i)\n"
    "    t : f32[%1$u@x/1, 2] on d = allocate()\n    t <- a$1 + a$1\n"
    "    c$1 = select(c, dim=0, index=i)\n    c0 = allgather(t -> c$1, team=d.x)\n"
    "    wait(c0)\n    deallocate(t)\n  }\n" MEET "}\n";

/* The same with a reduction before and after, and a loop of the device's own between them. */
static const char between[] =
    "host f(mesh d = [%1$u], a : f32[%2$u, 2] on d) -> (c, e) {\n"
    "  c : f32[%2$u, 2] on d = allocate()\n  e : f32[%2$u, 2] on d = allocate()\n"
    "  b : f32[%2$u, 2] on d = allocate()\n"
    "  c1 = allreduce(a -> b, team=d.x, op=sum)\n  wait(c1)\n" FORK
    "  for i in %2$u {\n    set_stream(i %% streams)\n"
    "    b$1 = select(b, dim=0, index=i)\n    c$1 = select(c, dim=0, index=i)\n"
    "    c$1 <- b$1 * b$1\n  }\n" MEET
    "  c2 = allreduce(c -> e, team=d.x, op=max)\n  wait(c2)\n  deallocate(b)\n}\n";

/* Two in an iteration, on one stream and team; the second sends on what the first brought. */
static const char twice[] =
    "host f(mesh d = [%1$u], a : f32[%2$u, 2] on d) -> (c) {\n"
    "  c : f32[%2$u, 2] on d = allocate()\n" FORK "  for i in %2$u {\n"
    "    set_stream(i %% streams)\n    a$1 = select(a, dim=0, index=i)\n"
    "    c$1 = select(c, dim=0, index=i)\n    t : f32[2] on d = allocate()\n"
    "    c0 = allreduce(a$1 -> t, team=d.x, op=sum)\n    wait(c0)\n"
    "    c1 = allreduce(t -> c$1, team=d.x, op=max)\n    wait(c1)\n"
    "    deallocate(t)\n  }\n" MEET "}\n";

/* To the next rank and from the one before. */
static const char passes_on[] =
    "host f(mesh d = [%1$u], a : f32[%2$u, 2] on d) -> (c) {\n"
    "  c : f32[%2$u, 2] on d = allocate()\n" FORK "  for i in %2$u {\n"
    "    set_stream(i %% streams)\n    a$1 = select(a, dim=0, index=i)\n"
    "    c$1 = select(c, dim=0, index=i)\n"
    "    c0 = permute(a$1 -> c$1, team=d.x, to=(me(d.x) + 1) %% %1$u, from=(me(d.x) + %1$u - 1) %% "
    "%1$u)\n"
    "    wait(c0)\n    c$1 <- c$1 * c$1\n  }\n" MEET "}\n";

/* The result of a loop is reduced in the next one. */
static const char two_loops[] =
    "host f(mesh d = [%1$u], a : f32[%2$u, 2] on d) -> (c) {\n"
    "  c : f32[%2$u, 2] on d = allocate()\n  b : f32[%2$u, 2] on d = allocate()\n" FORK
    "  for i in %2$u {\n    set_stream(i %% streams)\n    a$1 = select(a, dim=0, index=i)\n"
    "    b$1 = select(b, dim=0, index=i)\n    c0 = allreduce(a$1 -> b$1, team=d.x, op=sum)\n"
    "    wait(c0)\n  }\n" MEET
    "  for i in streams {\n    set_stream(i)\n    wait_stream(main)\n  }\n"
    "  for i in %2$u {\n    set_stream(i %% streams)\n    b$1 = select(b, dim=0, index=i)\n"
    "    c$1 = select(c, dim=0, index=i)\n    c1 = allreduce(b$1 -> c$1, team=d.x, op=max)\n"
    "    wait(c1)\n  }\n" MEET "  deallocate(b)\n}\n";

/* Each rank begins with its own slice: loops end elsewhere on each. */
static const char turned[] =
    "host f(mesh d = [%1$u], a : f32[%1$u, 2] on d) -> (c) {\n"
    "  c : f32[%1$u, 2] on d = allocate()\n"
    "  for i in %1$u {\n    a$1 = select(a, dim=0, index=(me(d.x) + i) %% %1$u)\n"
    "    c$1 = select(c, dim=0, index=(me(d.x) + i) %% %1$u)\n"
    "    c0 = permute(a$1 -> c$1, team=d.x, to=(me(d.x) + 1) %% %1$u, from=(me(d.x) + %1$u - 1) %% "
    "%1$u)\n"
    "    wait(c0)\n  }\n}\n";

/* What an iteration receives the next one sends on, perhaps from another stream, which waits for it too. */
static const char rings[] =
    "host f(mesh d = [%1$u], a : f32[2] on d) -> (c) {\n"
    "  c : f32[%2$u, 2] on d = allocate()\n  c$0 = select(c, dim=0, index=0)\n"
    "  c$1 = select(c, dim=0, index=1)\n  c$0 <- a + a\n" FORK "  set_stream(0)\n"
    "  c0 = permute(c$0 -> c$1, team=d.x, to=(me(d.x) + 1) %% %1$u, from=(me(d.x) + %1$u - 1) %% "
    "%1$u)\n  wait(c0)\n  for i in %2$u - 2 {\n    set_stream((i + 1) %% streams)\n    wait(c0)\n"
    "    c$2 = select(c, dim=0, index=i + 1)\n    c$3 = select(c, dim=0, index=i + 2)\n"
    "    c0 = permute(c$2 -> c$3, team=d.x, to=(me(d.x) + 1) %% %1$u, from=(me(d.x) + %1$u - 1) %% "
    "%1$u)\n    wait(c0)\n  }\n" MEET "}\n";

/* An exchange with each rank in turn: peers move, and the own piece is elsewhere on each rank. */
static const char exchanges[] =
    "host f(mesh d = [%1$u], a : f32[2] on d) -> (c) {\n"
    "  c : f32[%1$u, 2] on d = allocate()\n" FORK "  for i in %1$u {\n"
    "    set_stream(i %% streams)\n    c$1 = select(c, dim=0, index=i)\n"
    "    if i == me(d.x) {\n      c$1 <- set(a)\n    } else {\n      group_start()\n"
    "      recv(c$1, from=i, team=d.x)\n      send(a, to=i, team=d.x)\n      c0 = group_end()\n"
    "      wait(c0)\n    }\n  }\n" MEET "}\n";

/* The same twice, with sums before, between and after. */
static const char exchanges_twice[] =
    "host f(mesh d = [%1$u], a : f32[2] on d) -> (c, e, h) {\n"
    "  c : f32[%1$u, 2] on d = allocate()\n  e : f32[%1$u, 2] on d = allocate()\n"
    "  g : f32[2] on d = allocate()\n  h : f32[2] on d = allocate()\n"
    "  s0 = allreduce(a -> g, team=d.x, op=sum)\n  wait(s0)\n" FORK "  for i in %1$u {\n"
    "    set_stream(i %% streams)\n    c$1 = select(c, dim=0, index=i)\n"
    "    if i == me(d.x) {\n      c$1 <- set(g)\n    } else {\n      group_start()\n"
    "      send(g, to=i, team=d.x)\n      recv(c$1, from=i, team=d.x)\n      c0 = group_end()\n"
    "      wait(c0)\n    }\n  }\n" MEET "  s1 = allreduce(g -> h, team=d.x, op=max)\n  wait(s1)\n"
    "  for i in %1$u {\n    e$1 = select(e, dim=0, index=i)\n"
    "    if i == me(d.x) {\n      e$1 <- set(h)\n    } else {\n      group_start()\n"
    "      recv(e$1, from=i, team=d.x)\n      send(h, to=i, team=d.x)\n      c1 = group_end()\n"
    "      wait(c1)\n    }\n  }\n  deallocate(g)\n}\n";

/* Each rank sends to those after it, and then receives from those before it: a triangle. */
static const char triangle[] =
    "host f(mesh d = [%1$u], a : f32[2] on d) -> (c) {\n"
    "  c : f32[%1$u, 2] on d = allocate()\n  for i in %1$u {\n"
    "    c$1 = select(c, dim=0, index=i)\n    if i < me(d.x) {\n"
    "      c0 = recv(c$1, from=i, team=d.x)\n      wait(c0)\n    } else {\n      c$1 <- set(a)\n"
    "    }\n  }\n  for i in %1$u {\n    if me(d.x) < i {\n"
    "      c1 = send(a, to=i, team=d.x)\n      wait(c1)\n    }\n  }\n}\n";

/* Both sides of a pair receive before they send. */
static const char receives_first[] =
    "host f(mesh d = [%1$u], a : f32[2] on d) -> (c) {\n"
    "  c : f32[%1$u, 2] on d = allocate()\n  for i in %1$u {\n"
    "    c$1 = select(c, dim=0, index=i)\n    if i == me(d.x) {\n      c$1 <- set(a)\n"
    "    } else {\n      c0 = recv(c$1, from=i, team=d.x)\n      wait(c0)\n"
    "      c1 = send(a, to=i, team=d.x)\n      wait(c1)\n    }\n  }\n}\n";

/* Half of the ranks ask their peers from the first to the last, the others from the last to the first. */
static const char crossing[] =
    "host f(mesh d = [%1$u], a : f32[2] on d) -> (c) {\n"
    "  c : f32[%1$u, 2] on d = allocate()\n  for i in %1$u {\n"
    "    c$1 = select(c, dim=0, index=i + (%1$u - 1 - 2 * i) * (me(d.x) %% 2))\n"
    "    if i + (%1$u - 1 - 2 * i) * (me(d.x) %% 2) == me(d.x) {\n      c$1 <- set(a)\n"
    "    } else {\n      group_start()\n"
    "      recv(c$1, from=i + (%1$u - 1 - 2 * i) * (me(d.x) %% 2), team=d.x)\n"
    "      send(a, to=i + (%1$u - 1 - 2 * i) * (me(d.x) %% 2), team=d.x)\n"
    "      c0 = group_end()\n      wait(c0)\n    }\n  }\n}\n";

/* ---- worlds ---- */
typedef struct world {
  bound with[MOST_RANKS], without[MOST_RANKS];
  rt_plan *plans[MOST_RANKS], *plain[MOST_RANKS], *unrolled[MOST_RANKS];
  uint32_t n;
} world;

static bool bind_world(world *w, const char *text, uint32_t streams, uint32_t loops) {
  for (uint32_t r = 0; r < w->n; r++) {
    bind_options o = {.streams = streams, .rank = r, .world = w->n, .lends = true};
    if (!EXPECT(bind_with(&w->without[r], text, &o, &memory_default))) return false;
    o.loops = loops;
    if (!EXPECT(bind_with(&w->with[r], text, &o, &memory_default))) return false;
    w->plans[r] = w->with[r].plan;
    w->plain[r] = w->without[r].plan;
    total.loops += w->plans[r]->n_loops;
  }
  return true;
}

static void close_world(world *w) {
  for (uint32_t r = 0; r < w->n; r++) {
    bind_close(&w->with[r]);
    bind_close(&w->without[r]);
  }
}

static bool unroll(world *w) {
  bool good = true;
  for (uint32_t r = 0; r < w->n; r++)
    good =
        EXPECT(rt_plan_unroll(w->plans[r], &memory_default, &w->unrolled[r]) == STATUS_OK) && good;
  return good;
}

static void forget(world *w) {
  for (uint32_t r = 0; r < w->n; r++) {
    rt_plan_destroy(w->unrolled[r]);
    w->unrolled[r] = NULL;
  }
}

/* Bound with loops and unrolled, or bound without. */
static bool same_plans(world *w, arena *memory) {
  bool good = unroll(w);
  for (uint32_t r = 0; good && r < w->n; r++) {
    uint32_t at;
    good = EXPECT(loop_same_plan(w->unrolled[r], w->plain[r], &at)) &&
           EXPECT(loop_same_walk(w->plans[r], w->unrolled[r])) &&
           EXPECT(loop_same_queues(w->plans[r], w->unrolled[r], memory));
  }
  forget(w);
  return good;
}

/* ---- verdicts ---- */
/* A plan without loops is left as it is: written anew, it would have other numbers of posts. */
static bool same_verdict(world *w, bool *passes) {
  check_world_report a = {0}, b = {0};
  const rt_plan *plain[MOST_RANKS];
  bool good = unroll(w);
  for (uint32_t r = 0; r < w->n; r++)
    plain[r] = w->plans[r]->n_loops ? w->unrolled[r] : w->plans[r];
  good = good &&
         EXPECT(check_world((const rt_plan *const *)w->plans, w->n, NULL, &a) == STATUS_OK) &&
         EXPECT(check_world(plain, w->n, NULL, &b) == STATUS_OK);
  good = good && EXPECT_INT(a.n_found, b.n_found) && EXPECT_INT(a.n_met, b.n_met);
  *passes = b.n_found == 0;
  total.once += *passes && !a.unrolled;
  for (int k = 0; good && k < CHECK_KIND_COUNT; k++) good = EXPECT_INT(a.count[k], b.count[k]);
  check_world_report_destroy(&a);
  check_world_report_destroy(&b);
  forget(w);
  return good;
}

/* One rank speaks for all, in either form. */
static bool same_alike(world *w, bool passes) {
  check_world_report a = {0};
  const rt_plan *one = alike_one(w->plans, w->n);
  if (!one) return true;
  bool good =
      EXPECT(check_alike(one, w->n, NULL, &a) == STATUS_OK) && EXPECT((a.n_found == 0) == passes);
  check_world_report_destroy(&a);
  return good;
}

static bool is_at_boundary(const rt_plan *p, uint32_t i) {
  for (uint32_t k = 0; k < p->n_loops; k++)
    if (i + 1 == p->loops[k].first || i + 1 == p->loops[k].first + p->loops[k].n) return true;
  return false;
}

/* On rank `only`, or on all of them. */
static bool try_mutant(world *w, uint32_t i, alike_change change, uint32_t only) {
  rt_instr old[MOST_RANKS];
  uint32_t first = only < w->n ? only : 0, end = only < w->n ? only + 1 : w->n, r = first;
  bool passes, all = only >= w->n;
  while (r < end && i < w->plans[r]->n_instrs &&
         !(change == ALIKE_SWAP && is_at_boundary(w->plans[r], i)) &&
         alike_apply(w->plans[r], i, change, false, &old[r]))
    r++;
  bool good = r < end || (same_verdict(w, &passes) && (!all || same_alike(w, passes)));
  if (r == end) {
    total.mutants++;
    total.killed += !passes;
  }
  while (r-- > first) (void)alike_apply(w->plans[r], i, change, true, &old[r]);
  if (!good)
    fprintf(stderr, "change %d of instruction %u, rank %u of %u\n", (int)change, i, only, w->n);
  return good;
}

static bool try_mutants(world *w) {
  uint32_t n = w->plans[0]->n_instrs;
  bool good = true;
  for (uint32_t i = 0; good && i < n; i += 1 + w->n / 16)
    for (uint32_t c = 0; good && c < ALIKE_CHANGES; c++)
      good = try_mutant(w, i, (alike_change)c, (i + c) % w->n) &&
             try_mutant(w, i, (alike_change)c, w->n);
  return good;
}

/* A message of one rank in a loop has another peer, or other ones in later repetitions. */
static bool try_peer(world *w, rt_post *p, int32_t by, int32_t step_by) {
  rt_post old = *p;
  bool passes = false, sends = p->kind == IR_COMM_SEND;
  *(sends ? &p->to : &p->from) += by;
  *(sends ? &p->to_step : &p->from_step) += step_by;
  bool good = same_verdict(w, &passes) && EXPECT(!passes);
  total.mutants++;
  total.killed += !passes;
  *p = old;
  return good;
}

static bool try_peers(world *w) {
  bool good = true;
  for (uint32_t r = 0; good && r < w->n; r += 1 + w->n / 8)
    for (uint32_t k = 0; good && k < w->plans[r]->n_posts; k++) {
      rt_post *p = &w->plans[r]->posts[k];
      if (!rt_post_moves(p)) continue;
      good = try_peer(w, p, 1, 0) && try_peer(w, p, -1, 0) && try_peer(w, p, 0, 1) &&
             try_peer(w, p, 0, -1);
      total.moving++;
    }
  return good;
}

static bool try_pruned(world *w) {
  bool passes = false, good = true;
  for (uint32_t r = 0; good && r < w->n; r++) {
    uint32_t removed, at;
    good = EXPECT(check_prune_waits(w->plans[r], &memory_default, &removed) == STATUS_OK) &&
           EXPECT(w->plans[r]->passed) &&
           EXPECT(check_prune_waits(w->plain[r], &memory_default, &removed) == STATUS_OK);
    (void)at;
  }
  return good && same_verdict(w, &passes) && EXPECT(passes) && same_alike(w, passes);
}

/* Joined and unrolled is as long as unrolled and joined. */
static bool try_joined(world *w) {
  rt_plan *a = NULL, *b = NULL, *c = NULL;
  bool good = unroll(w) && EXPECT(rt_plan_join(w->plans, w->n, &memory_default, &a) == STATUS_OK) &&
              EXPECT(rt_plan_join(w->unrolled, w->n, &memory_default, &b) == STATUS_OK) &&
              EXPECT(rt_plan_unroll(a, &memory_default, &c) == STATUS_OK) &&
              EXPECT(loop_same_walk(a, c)) && EXPECT_INT(c->n_instrs, b->n_instrs) &&
              EXPECT_INT(c->n_posts, b->n_posts) && EXPECT_INT(c->n_tasks, b->n_tasks) &&
              EXPECT_INT(c->pool_bytes, b->pool_bytes);
  rt_plan_destroy(c);
  rt_plan_destroy(a);
  rt_plan_destroy(b);
  forget(w);
  return good;
}

typedef struct trial {
  const char *text;
  uint32_t ranks, iterations, streams, loops;
  bool keeps; /* a loop is expected on all ranks */
  bool once;  /* and that it is proven without being unrolled */
  bool fails;
} trial;

static status try_world(void *context) {
  const trial *t = context;
  static world w;
  char text[2048];
  bool passes = false;
  arena memory;
  w = (world){.n = t->ranks};
  arena_init(&memory, &memory_default);
  snprintf(text, sizeof text, t->text, t->ranks, t->iterations);
  bool good = bind_world(&w, text, t->streams, t->loops);
  for (uint32_t r = 0; good && t->keeps && r < w.n; r++) good = EXPECT(w.plans[r]->n_loops > 0);
  uint32_t once = total.once;
  good = good && same_plans(&w, &memory) && same_verdict(&w, &passes) && EXPECT(passes != t->fails);
  if (t->once) good = good && EXPECT(total.once > once);
  if (!t->fails)
    good = good && same_alike(&w, passes) && try_joined(&w) && try_mutants(&w) && try_peers(&w) &&
           try_pruned(&w);
  if (!good) fprintf(stderr, "%s%s\n", text, kit_reason);
  total.worlds++;
  close_world(&w);
  arena_destroy(&memory);
  return STATUS_OK;
}

int main(void) {
  static const char *const texts[] = {gathers, between, twice, passes_on, two_loops, rings};
  static const uint32_t sizes[] = {2, 3, 4, 8, 64};
  for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
      for (uint32_t streams = 1; streams <= (sizes[i] > 8 ? 1 : 3); streams++) {
        trial t = {texts[k], sizes[i], sizes[i] > 8 ? 12 : 20 + streams, streams, 4, .keeps = true};
        EXPECT(memory_guard(try_world, &t) == STATUS_OK);
      }
  for (uint32_t n = 8; n <= 32; n *= 2) {
    trial t = {turned, n, n, 1, .loops = 4};
    EXPECT(memory_guard(try_world, &t) == STATUS_OK);
  }
  static const char *const moving[] = {exchanges, exchanges_twice, triangle};
  for (size_t k = 0; k < sizeof moving / sizeof *moving; k++)
    for (uint32_t n = 12; n <= 36; n *= 3)
      for (uint32_t streams = 1; streams <= (n > 12 ? 1 : 2); streams++) {
        trial t = {moving[k], n, n, streams, 4, .once = true};
        EXPECT(memory_guard(try_world, &t) == STATUS_OK);
      }
  static const char *const waiting[] = {receives_first, crossing};
  for (size_t k = 0; k < sizeof waiting / sizeof *waiting; k++) {
    trial t = {waiting[k], 24, 24, 1, 4, .fails = true};
    EXPECT(memory_guard(try_world, &t) == STATUS_OK);
  }
  printf(
      "%u worlds, %u loops, %u messages that move: %u mutants, %u of them fail; %u proofs without "
      "unrolling\n",
      total.worlds, total.loops, total.moving, total.mutants, total.killed, total.once);
  EXPECT(total.moving > 90 && total.loops > 100 && total.killed > 500 && total.once > 50);
  return test_finish();
}
