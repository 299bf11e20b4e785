/* Plans with loops in the order in which they are issued: written out, it orders what the plan orders.
 *
 *   test_issue_loops [SEEDS [FIRST]]      replays seeds FIRST, FIRST + 1, ... */
#include <stdlib.h>

#include "base/random.h"
#include "conform/plan_kit.h"
#include "device/issue/order.h"
#include "test.h"

enum { STREAMS = 5, LOOPS = 3 };

typedef struct trial {
  kit k;
  uint64_t seed, draws;
  uint32_t x;
  rt_loop loops[LOOPS];
  arena memory;
  issue_order order;
} trial;

static uint32_t below(trial *t, uint32_t n) {
  return (uint32_t)(random_bits(t->seed, t->draws++) % n);
}

/* ---- plans ---- */
static void add_some(trial *t, uint32_t most) {
  uint32_t streams = t->k.plan.n_streams;
  for (uint32_t n = below(t, most + 1); n > 0; n--) {
    uint32_t s = below(t, streams);
    if (below(t, 2)) (void)kit_wait(&t->k, s, below(t, streams));
    else kit_set(&t->k, s, t->x, t->x);
  }
}

static void make_plan(trial *t, uint32_t times) {
  uint32_t n_loops = 1 + below(t, LOOPS);
  kit_init(&t->k, 1 + below(t, STREAMS));
  t->x = kit_pool(&t->k, 1);
  for (uint32_t i = 0; i < n_loops; i++) {
    add_some(t, 6);
    uint32_t first = t->k.instrs.len;
    uint32_t empty = below(t, 16); /* of launches; of everything */
    if (empty > 0) add_some(t, 8);
    if (empty > 1) (void)kit_set(&t->k, below(t, t->k.plan.n_streams), t->x, t->x);
    t->loops[i] = (rt_loop){first, t->k.instrs.len - first, times ? times : 1 + below(t, 6)};
  }
  add_some(t, 8);
  (void)kit_set(&t->k, 0, t->x, t->x);
  t->k.plan.loops = t->loops;
  t->k.plan.n_loops = n_loops;
  (void)kit_plan(&t->k);
}

static status make_order(void *context) {
  trial *t = context;
  issue_order_options options = {.large = 1, .as_posted = t->seed % 3 == 0};
  return issue_order_make(&t->k.plan, &options, &t->memory, &t->order);
}

static bool begin(trial *t, uint64_t seed, uint32_t times) {
  *t = (trial){.seed = seed};
  arena_init(&t->memory, &memory_default);
  make_plan(t, times);
  return EXPECT(memory_guard(make_order, t) == STATUS_OK);
}

static void end(trial *t) {
  kit_destroy(&t->k);
  arena_destroy(&t->memory);
}

/* ---- what is ordered ---- */
/* By stream, how many launches of every stream are over. */
typedef struct clocks {
  uint32_t of[STREAMS][STREAMS];
} clocks;

static void learn(uint32_t *to, const uint32_t *from) {
  for (uint32_t s = 0; s < STREAMS; s++)
    if (from[s] > to[s]) to[s] = from[s];
}

typedef struct launched {
  uint32_t task;
  uint32_t turn;
  uint32_t known[STREAMS]; /* before it */
} launched;

typedef VEC(launched) history;

static void launch(clocks *c, uint32_t stream, launched x, arena *memory, history *h) {
  memcpy(x.known, c->of[stream], sizeof x.known);
  vec_push(memory, h, x);
  c->of[stream][stream]++;
}

static history of_plan(trial *t) {
  const rt_plan *plan = &t->k.plan;
  clocks c = {0};
  history h = {0};
  for (rt_cursor at = {.plan = plan}; rt_cursor_next(&at);) {
    const rt_instr *i = &plan->instrs[at.instr];
    if (i->kind == RT_LAUNCH)
      launch(&c, i->stream, (launched){.task = i->task, .turn = at.turn}, &t->memory, &h);
    else learn(c.of[i->stream], c.of[i->other]);
  }
  return h;
}

typedef struct issuing {
  trial *t;
  clocks c;
  uint32_t (*told)[STREAMS]; /* by event, at its last record */
  bool *recorded;
  history h;
} issuing;

static void issue(issuing *x, uint32_t at, uint32_t turn) {
  const issue_step *s = &x->t->order.steps.data[at];
  switch ((issue_step_kind)s->kind) {
  case ISSUE_LAUNCH:
    launch(&x->c, s->stream, (launched){.task = s->index, .turn = turn}, &x->t->memory, &x->h);
    break;
  case ISSUE_RECORD:
    memcpy(x->told[s->index], x->c.of[s->stream], sizeof x->told[0]);
    x->recorded[s->index] = true;
    break;
  case ISSUE_WAIT:
    EXPECT(x->recorded[s->index] && x->t->order.is_waited_for[s->index]);
    learn(x->c.of[s->stream], x->told[s->index]);
    break;
  case ISSUE_COPY:
  case ISSUE_FOLD:
  case ISSUE_COMM: EXPECT(false);
  }
}

static history of_order(trial *t) {
  const issue_order *o = &t->order;
  issuing x = {.t = t};
  x.told = arena_alloc(&t->memory, (o->n_events + (size_t)1) * sizeof *x.told);
  x.recorded = ARENA_ARRAY(&t->memory, o->n_events + (size_t)1, bool);
  uint32_t at = 0;
  for (uint32_t k = 0; k <= o->loops.len; k++) {
    const issue_loop *l = k < o->loops.len ? &o->loops.data[k] : NULL;
    for (uint32_t stop = l ? l->first : o->steps.len; at < stop; at++) issue(&x, at, 0);
    for (uint32_t turn = 1; l && turn <= l->times; turn++)
      for (uint32_t i = 0; i < l->n; i++) issue(&x, at + i, turn);
    at += l ? l->n : 0;
  }
  return x.h;
}

/* ---- */
static bool launches(const rt_plan *plan, const rt_loop *l) {
  bool any = false;
  for (uint32_t i = l->first; i < l->first + l->n; i++)
    any = any || plan->instrs[i].kind == RT_LAUNCH;
  return any;
}

/* Where the instructions of the plan end in the order. */
static void check_upto(const trial *t) {
  const rt_plan *plan = &t->k.plan;
  const issue_order *o = &t->order;
  uint32_t next = 0;
  EXPECT_INT(o->upto[plan->n_instrs - 1], o->steps.len);
  for (uint32_t k = 0; k < plan->n_loops; k++) {
    const rt_loop *l = &plan->loops[k];
    const issue_loop *again = next < o->loops.len ? &o->loops.data[next] : NULL;
    if (l->n == 0) continue;
    uint32_t last = l->first + l->n - 1;
    if (!again || again->first + again->n != o->upto[last]) {
      EXPECT(l->times == 1 || !launches(plan, l));
      continue;
    }
    next++;
    EXPECT_INT(again->times, l->times - 1);
    EXPECT(again->n > 0);
    EXPECT_INT(o->again[last], again->first + again->n);
    for (uint32_t i = l->first; i < last; i++) {
      EXPECT(o->upto[i] <= again->first && o->again[i] >= again->first);
      EXPECT(o->again[i] <= o->again[i + 1]);
    }
  }
  EXPECT_INT(next, o->loops.len);
}

static void test_random(uint64_t seed) {
  trial t;
  if (!begin(&t, seed, 0)) return;
  history plan = of_plan(&t), order = of_order(&t);
  bool same = EXPECT_INT(order.len, plan.len);
  for (uint32_t i = 0; same && i < plan.len; i++)
    same = memcmp(&plan.data[i], &order.data[i], sizeof plan.data[i]) == 0;
  if (!EXPECT(same)) fprintf(stderr, "  seed %llu\n", (unsigned long long)seed);
  check_upto(&t);
  end(&t);
}

/* What a plan takes does not depend on how often its loops are done. */
static void test_length(uint64_t seed) {
  trial few, many;
  if (begin(&few, seed, 3) && begin(&many, seed, 1000 * 1000)) {
    EXPECT_INT(few.order.steps.len, many.order.steps.len);
    EXPECT_INT(few.order.n_events, many.order.n_events);
    EXPECT(few.memory.used_bytes == many.memory.used_bytes);
  }
  end(&few);
  end(&many);
}

int main(int argc, char **argv) {
  uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 0) : 4000;
  uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 0) : 0;
  for (uint64_t seed = first; seed < first + n; seed++) {
    test_random(seed);
    if (seed % 20 == 0) test_length(seed);
  }
  return test_finish();
}
