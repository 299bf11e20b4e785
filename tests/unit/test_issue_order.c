/* The order in which plans are issued to GPUs, run on the CPU: streams advance in random legal orders,
 * copies and folds are done by the host, and the result must be that of the program in its own order. */
#include "conform/rig.h"
#include "conform/world_random.h"
#include "device/issue/split.h"
#include "order_machine.h"

typedef struct job {
  const world *w;
  issue_order_options options;
  uint64_t seed;
} job;

static status run_job(void *context) {
  job *j = context;
  return machine_run(j->w->plan, &j->options, j->w->inputs, j->w->outputs, j->seed);
}

static void test_worlds(issue_order_options options, const char *name, int64_t width,
                        uint32_t worlds, uint32_t runs) {
  uint32_t wrong = 0;
  for (uint32_t seed = 0; seed < worlds; seed++) {
    world w;
    world_make(&w, seed, 1 + seed % WORLD_RANKS, width, 40);
    for (uint32_t r = 0; r < runs; r++) {
      job j = {&w, options, seed * 100 + r};
      world_clear(&w);
      status st = memory_guard(run_job, &j);
      bool right = st == STATUS_OK && world_is_right(&w);
      if (!right && !wrong)
        fprintf(stderr, "%s: seed %u run %u: %s\n", name, seed, r, status_message());
      wrong += !right;
    }
    world_destroy(&w);
  }
  EXPECT_INT(wrong, 0);
}

/* ---- by hand ---- */
/* Posts of one team take effect in their order, joined or not: the second reads what the first writes,
 * the third writes what the second reads. */
static void make_chain(world *w, int64_t width) {
  static const uint32_t team[] = {0, 1};
  rt_plan *plans[2];
  *w = (world){.n = 2, .width = width};
  arena_init(&w->memory, &memory_default);
  for (uint32_t r = 0; r < 2; r++) {
    kit *k = &w->ranks[r].k;
    kit_init(k, 1);
    uint32_t x = kit_buffer(k, RT_BUFFER_INPUT, 0, width), y = kit_pool(k, width);
    uint32_t z = kit_buffer(k, RT_BUFFER_OUTPUT, 0, width);
    rt_post p = {.kind = IR_COMM_ALLREDUCE, .dtype = IR_I64, .team = team, .n_team = 2};
    p.me = p.rank = r;
    p.count = width;
    p.in = x, p.out = y;
    (void)kit_post(k, 0, p);
    p.in = y, p.out = z;
    (void)kit_post(k, 0, p);
    p.in = x, p.out = y;
    (void)kit_post(k, 0, p);
    (void)kit_plan(k);
    plans[r] = &k->plan;
    w->inputs[r] = world_array(w);
    w->outputs[r] = world_array(w);
    for (int64_t i = 0; i < width; i++) ((int64_t *)w->inputs[r])[i] = i + r;
  }
  if (rt_plan_join(plans, 2, &memory_default, &w->plan) != STATUS_OK) abort();
}

static void test_chain(issue_order_options options, int64_t width) {
  world w;
  uint32_t wrong = 0;
  make_chain(&w, width);
  for (uint32_t seed = 0; seed < 60; seed++) {
    job j = {&w, options, seed};
    bool right = memory_guard(run_job, &j) == STATUS_OK;
    for (int64_t i = 0; i < 2 * width && right; i++)
      right = ((int64_t *)w.outputs[i / width])[i % width] == 2 * (2 * (i % width) + 1);
    wrong += !right;
  }
  EXPECT_INT(wrong, 0);
  world_destroy(&w);
}

/* ---- waits ---- */
typedef struct made {
  const rt_plan *plan;
  issue_order_options options;
  arena memory;
  issue_order order;
} made;

static status make_order(void *context) {
  made *m = context;
  return issue_order_make(m->plan, &m->options, &m->memory, &m->order);
}

/* Who sends what was there from the beginning waits for nothing, and no stream waits twice for the same;
 * events at which nobody waits are marked. */
static void test_waits(void) {
  world w;
  make_chain(&w, 64);
  made m = {.plan = w.plan, .options = {.staged = true, .through_host = true}};
  arena_init(&m.memory, &memory_default);
  EXPECT_INT(memory_guard(make_order, &m), STATUS_OK);
  bool begun[256] = {false}, *waited = ARENA_ARRAY(&m.memory, m.order.n_events, bool);
  uint32_t senders = 0, idle = 0;
  for (uint32_t i = 0; i < m.order.steps.len; i++) {
    const issue_step *s = &m.order.steps.data[i];
    bool sends = s->stream == issue_lane_of(w.plan, 0, ISSUE_SENDS) ||
                 s->stream == issue_lane_of(w.plan, 1, ISSUE_SENDS);
    if (sends && !begun[s->stream]) EXPECT_INT(s->kind, ISSUE_COPY);
    senders += sends && !begun[s->stream];
    begun[s->stream] = true;
    if (s->kind == ISSUE_WAIT) waited[s->index] = true;
  }
  for (uint32_t e = 0; e < m.order.n_events; e++) {
    EXPECT_INT(m.order.is_waited_for[e], waited[e]);
    idle += !waited[e];
  }
  EXPECT_INT(senders, 2);
  EXPECT(idle > 0);
  arena_destroy(&m.memory);
  world_destroy(&w);
}

typedef struct two {
  world w;
  uint32_t x[2], z[2]; /* inputs and outputs, by rank */
} two;

enum { TWO_WIDTH = 16 };

static void two_begin(two *t, uint32_t streams) {
  *t = (two){.w = {.n = 2, .width = TWO_WIDTH}};
  arena_init(&t->w.memory, &memory_default);
  for (uint32_t r = 0; r < 2; r++) {
    kit_init(&t->w.ranks[r].k, streams);
    t->x[r] = kit_buffer(&t->w.ranks[r].k, RT_BUFFER_INPUT, 0, TWO_WIDTH);
    t->z[r] = kit_buffer(&t->w.ranks[r].k, RT_BUFFER_OUTPUT, 0, TWO_WIDTH);
    t->w.inputs[r] = world_array(&t->w);
    t->w.outputs[r] = world_array(&t->w);
    for (int64_t i = 0; i < TWO_WIDTH; i++)
      ((int64_t *)t->w.inputs[r])[i] = (i + 1) * (1 + r * 100);
  }
}

static uint32_t two_broadcast(two *t, uint32_t r, uint32_t stream, uint32_t root, uint32_t in,
                              uint32_t out) {
  static const uint32_t team[] = {0, 1};
  rt_post p = {.kind = IR_COMM_BROADCAST, .dtype = IR_I64, .team = team, .n_team = 2};
  p.me = p.rank = r;
  p.root = root;
  p.count = TWO_WIDTH;
  p.in = r == root ? in : RT_NO_VIEW;
  p.out = out;
  return kit_post(&t->w.ranks[r].k, stream, p);
}

static void two_join(two *t) {
  rt_plan *plans[2];
  for (uint32_t r = 0; r < 2; r++) {
    (void)kit_plan(&t->w.ranks[r].k);
    plans[r] = &t->w.ranks[r].k.plan;
  }
  if (rt_plan_join(plans, 2, &memory_default, &t->w.plan) != STATUS_OK) abort();
}

/* Rank r must end with `factor[r]` times 1, 2, 3, … */
static void two_expect(two *t, issue_order_options options, const int64_t factor[2]) {
  uint32_t wrong = 0;
  if (!t->w.plan) two_join(t);
  for (uint32_t seed = 0; seed < 100; seed++) {
    job j = {&t->w, options, seed};
    bool right = memory_guard(run_job, &j) == STATUS_OK;
    for (int64_t i = 0; i < 2 * TWO_WIDTH && right; i++) {
      int64_t r = i / TWO_WIDTH, at = i % TWO_WIDTH;
      right = ((int64_t *)t->w.outputs[r])[at] == factor[r] * (at + 1);
    }
    wrong += !right;
  }
  EXPECT_INT(wrong, 0);
  world_destroy(&t->w);
}

/* The second post may begin only behind what stands before the first, though it is on another stream
 * that waits for nothing. */
static void test_before(issue_order_options options) {
  two t;
  two_begin(&t, 3);
  for (uint32_t r = 0; r < 2; r++) {
    kit *k = &t.w.ranks[r].k;
    uint32_t sum = kit_pool(k, TWO_WIDTH), u = kit_pool(k, TWO_WIDTH);
    (void)kit_binary(k, 1, IR_OP_ADD, sum, t.x[r], t.x[r]);
    uint32_t first = two_broadcast(&t, r, 1, 0, t.x[r], u);
    uint32_t second = two_broadcast(&t, r, 2, 1, sum, t.z[r]);
    (void)kit_join(k, 0, first);
    (void)kit_join(k, 0, second);
  }
  two_expect(&t, options, (int64_t[]){202, 202});
}

/* Rank 0 receives where its input was, in memory that another buffer has now: only when rank 1 has taken
 * it. */
static void test_reuse(issue_order_options options) {
  two t;
  two_begin(&t, 1);
  for (uint32_t r = 0; r < 2; r++) {
    kit *k = &t.w.ranks[r].k;
    uint32_t u = kit_pool_at(k, 0, TWO_WIDTH), v = kit_pool_at(k, 0, TWO_WIDTH);
    uint32_t w = kit_pool(k, TWO_WIDTH);
    (void)kit_set(k, 0, u, t.x[r]);
    uint32_t first = two_broadcast(&t, r, 0, 0, u, w);
    if (r == 0) (void)kit_join(k, 0, first); /* rank 1 joins it later */
    (void)kit_join(k, 0, two_broadcast(&t, r, 0, 1, t.x[r], r == 0 ? v : u));
    if (r == 1) (void)kit_join(k, 0, first);
    (void)kit_set(k, 0, t.z[r], r == 0 ? v : w);
  }
  two_expect(&t, options, (int64_t[]){101, 1});
}

static uint32_t two_message(two *t, uint32_t r, uint32_t stream, ir_comm_kind kind, uint32_t view) {
  static const uint32_t team[] = {0, 1};
  bool sends = kind == IR_COMM_SEND;
  rt_post p = {.kind = kind, .dtype = IR_I64, .team = team, .n_team = 2, .count = TWO_WIDTH};
  p.me = p.rank = r;
  p.to = sends ? (int32_t)r : RT_COMM_NOBODY;
  p.from = sends ? RT_COMM_NOBODY : (int32_t)r;
  p.in = sends ? view : RT_NO_VIEW;
  p.out = sends ? RT_NO_VIEW : view;
  return kit_post(&t->w.ranks[r].k, stream, p);
}

/* A message to oneself is sent when its sender has posted it, though the receiver did long before. */
static void test_to_oneself(issue_order_options options) {
  two t;
  two_begin(&t, 3);
  for (uint32_t r = 0; r < 2; r++) {
    kit *k = &t.w.ranks[r].k;
    uint32_t sum = kit_pool(k, TWO_WIDTH);
    uint32_t received = two_message(&t, r, 2, IR_COMM_RECV, t.z[r]);
    (void)kit_binary(k, 1, IR_OP_ADD, sum, t.x[r], t.x[r]);
    (void)kit_join(k, 0, two_message(&t, r, 1, IR_COMM_SEND, sum));
    (void)kit_join(k, 0, received);
  }
  two_expect(&t, options, (int64_t[]){2, 202});
}

/* Who joins a communication that gives it nothing still stands behind all that came before the post. */
static void test_joined_for_nothing(issue_order_options options, int64_t count) {
  two t;
  two_begin(&t, 2);
  for (uint32_t r = 0; r < 2; r++) {
    kit *k = &t.w.ranks[r].k;
    uint32_t sum = kit_pool(k, TWO_WIDTH), u = kit_pool(k, TWO_WIDTH);
    (void)kit_binary(k, 1, IR_OP_ADD, sum, t.x[r], t.x[r]);
    uint32_t post = two_broadcast(&t, r, 1, 0, t.x[r], r == 0 ? RT_NO_VIEW : u);
    k->posts.data[post].count = count;
    (void)kit_join(k, 0, post);
    (void)kit_set(k, 0, t.z[r], sum);
  }
  two_expect(&t, options, (int64_t[]){2, 202});
}

/* What a broadcast leaves where it is, an allreduce of the same team before it has to bring first. */
static void test_left_in_place(issue_order_options options) {
  static const uint32_t team[] = {0, 1};
  two t;
  two_begin(&t, 1);
  for (uint32_t r = 0; r < 2; r++) {
    kit *k = &t.w.ranks[r].k;
    uint32_t sum = kit_pool(k, TWO_WIDTH);
    rt_post p = {.kind = IR_COMM_ALLREDUCE, .dtype = IR_I64, .team = team, .n_team = 2};
    p.me = p.rank = r;
    p.count = TWO_WIDTH;
    p.in = t.x[r], p.out = sum;
    uint32_t first = kit_post(k, 0, p);
    (void)kit_join(k, 0, two_broadcast(&t, r, 0, 0, sum, sum));
    (void)kit_set(k, 0, t.z[r], sum);
    (void)kit_join(k, 0, first);
  }
  two_expect(&t, options, (int64_t[]){102, 102});
}

/* Whoever reads memory of another rank first waits until it has begun, if it is another process. */
static void test_apart(bool apart) {
  world w;
  make_chain(&w, 64);
  made m = {.plan = w.plan, .options = {.apart = apart}};
  arena_init(&m.memory, &memory_default);
  EXPECT_INT(memory_guard(make_order, &m), STATUS_OK);
  for (uint32_t r = 0; r < 2; r++) {
    uint32_t i = 0;
    while (i < m.order.steps.len &&
           m.order.steps.data[i].stream != issue_lane_of(w.plan, r, ISSUE_RECEIVES))
      i++;
    EXPECT(i < m.order.steps.len);
    EXPECT_INT(m.order.steps.data[i].kind, apart ? ISSUE_WAIT : ISSUE_FOLD);
  }
  arena_destroy(&m.memory);
  world_destroy(&w);
}

/* A stream that begins with a post is issued before the product of another, which takes the host a while. */
static void test_links_begin(void) {
  two t;
  two_begin(&t, 2);
  for (uint32_t r = 0; r < 2; r++) {
    kit *k = &t.w.ranks[r].k;
    uint32_t sum = kit_pool(k, TWO_WIDTH), got = kit_pool(k, TWO_WIDTH);
    (void)kit_binary(k, 0, IR_OP_ADD, sum, t.x[r], t.x[r]);
    (void)kit_join(k, 1, two_broadcast(&t, r, 1, 0, t.x[r], got));
  }
  two_join(&t);
  made m = {.plan = t.w.plan, .options = {.staged = true, .through_host = true}};
  arena_init(&m.memory, &memory_default);
  EXPECT_INT(memory_guard(make_order, &m), STATUS_OK);
  uint32_t launches = 0, before = 0;
  for (uint32_t i = 0; i < m.order.steps.len; i++) {
    const issue_step *s = &m.order.steps.data[i];
    launches += s->kind == ISSUE_LAUNCH;
    before += s->kind == ISSUE_COPY && launches == 0;
  }
  EXPECT_INT(launches, 2);
  EXPECT_INT(before, 2);
  arena_destroy(&m.memory);
  world_destroy(&t.w);
}

/* ---- fewer streams ---- */
/* Three slices go from rank 0 to rank 1 on three streams, each of which adds its own to it. */
static void make_slices(two *t) {
  two_begin(t, 4);
  for (uint32_t r = 0; r < 2; r++) {
    kit *k = &t->w.ranks[r].k;
    for (uint32_t i = 1; i <= 3; i++) {
      uint32_t got = kit_pool(k, TWO_WIDTH), sum = i == 3 ? t->z[r] : kit_pool(k, TWO_WIDTH);
      (void)kit_join(k, i, two_broadcast(t, r, i, 0, t->x[r], got));
      (void)kit_binary(k, i, IR_OP_ADD, sum, got, t->x[r]);
    }
    for (uint32_t i = 1; i <= 3; i++) (void)kit_wait(k, 0, i);
  }
  two_join(t);
}

/* Two layers of three slices, each reduced when it is computed. The first slice's second task overwrites what was
 * sent, so it waits for that, too. */
static void make_layers(two *t) {
  static const uint32_t team[] = {0, 1};
  two_begin(t, 4);
  for (uint32_t r = 0; r < 2; r++) {
    kit *k = &t->w.ranks[r].k;
    uint32_t sums[4], got[4];
    for (uint32_t i = 1; i <= 3; i++) sums[i] = kit_pool(k, TWO_WIDTH), got[i] = t->x[r];
    for (uint32_t layer = 0; layer < 2; layer++) {
      for (uint32_t i = 1; i <= 3; i++) {
        bool last = layer == 1 && i == 3;
        uint32_t sum = i == 1 || layer == 0 ? sums[i] : kit_pool(k, TWO_WIDTH);
        (void)kit_binary(k, i, IR_OP_ADD, sum, got[i], got[i]);
        got[i] = last ? t->z[r] : kit_pool(k, TWO_WIDTH);
        rt_post p = {.kind = IR_COMM_ALLREDUCE, .dtype = IR_I64, .team = team, .n_team = 2};
        p.me = p.rank = r;
        p.count = TWO_WIDTH;
        p.in = sum, p.out = got[i];
        (void)kit_join(k, i, kit_post(k, i, p));
      }
    }
    for (uint32_t i = 1; i <= 3; i++) (void)kit_wait(k, 0, i);
  }
  two_join(t);
}

/* Streams on which tasks of rank 1 are launched: one for all slices, if they are large enough. */
static void test_turns(void (*make)(two *t), int64_t large, uint32_t expected,
                       const int64_t *values) {
  two t;
  make(&t);
  made m = {.plan = t.w.plan, .options = {.staged = true, .through_host = true, .large = large}};
  arena_init(&m.memory, &memory_default);
  EXPECT_INT(memory_guard(make_order, &m), STATUS_OK);
  bool works[64] = {false};
  uint32_t n = 0;
  for (uint32_t i = 0; i < m.order.steps.len; i++) {
    const issue_step *s = &m.order.steps.data[i];
    if (s->kind != ISSUE_LAUNCH || rt_plan_rank(t.w.plan, s->stream) != 1) continue;
    n += !works[s->stream];
    works[s->stream] = true;
  }
  EXPECT_INT(n, expected);
  arena_destroy(&m.memory);
  two_expect(&t, m.options, values);
}

/* Streams that only join communications wait for nothing: who waits for them does, once. */
static void test_passed_on(void) {
  two t;
  two_begin(&t, 3);
  for (uint32_t r = 0; r < 2; r++) {
    kit *k = &t.w.ranks[r].k;
    for (uint32_t i = 1; i <= 2; i++)
      (void)kit_join(k, i,
                     two_broadcast(&t, r, i, 0, t.x[r], i == 2 ? t.z[r] : kit_pool(k, TWO_WIDTH)));
    for (uint32_t i = 1; i <= 2; i++) (void)kit_wait(k, 0, i);
  }
  two_join(&t);
  made m = {.plan = t.w.plan, .options = {.staged = true, .through_host = true}};
  arena_init(&m.memory, &memory_default);
  EXPECT_INT(memory_guard(make_order, &m), STATUS_OK);
  uint32_t waits[64] = {0}, first = t.w.plan->first_stream[1];
  for (uint32_t i = 0; i < m.order.steps.len; i++)
    if (m.order.steps.data[i].kind == ISSUE_WAIT) waits[m.order.steps.data[i].stream]++;
  for (uint32_t s = 1; s < 3; s++) EXPECT_INT(waits[s] + waits[first + s], 0);
  EXPECT_INT(waits[first], 1); /* rank 1 receives both on one lane */
  arena_destroy(&m.memory);
  two_expect(&t, m.options, (int64_t[]){1, 1});
}

/* ---- as posted ---- */
/* Rank 0's plan alone, its peer in another process: a message each way and an allreduce, on one stream. */
static const rt_plan *alone_plan(kit *k) {
  static const uint32_t team[] = {0, 1};
  kit_init(k, 1);
  uint32_t x = kit_buffer(k, RT_BUFFER_INPUT, 0, 8), z = kit_buffer(k, RT_BUFFER_OUTPUT, 0, 8);
  uint32_t u = kit_pool(k, 8);
  rt_post p = {.kind = IR_COMM_PERMUTE, .dtype = IR_I64, .team = team, .n_team = 2, .count = 8};
  p.to = p.from = 1;
  p.count_from = 8;
  p.in = x, p.out = u;
  (void)kit_join(k, 0, kit_post(k, 0, p));
  p.kind = IR_COMM_ALLREDUCE;
  p.in = u, p.out = z;
  (void)kit_join(k, 0, kit_post(k, 0, p));
  return kit_plan(k);
}

static bool reduces_all(const rt_post *post, bool all_give) {
  (void)post, (void)all_give;
  return true;
}

static bool reduces_some(const rt_post *post, bool all_give) {
  return all_give && post->op < IR_COMBINE_AND;
}

/* Nothing is matched with what other processes post; teams and directions have lanes of their own, and
 * who joins waits for both ends of a permute. */
static void test_alone(void) {
  kit k;
  made a = {.plan = alone_plan(&k)};
  arena_init(&a.memory, &memory_default);
  EXPECT_INT(memory_guard(make_order, &a), STATUS_UNAVAILABLE);
  EXPECT_CONTAINS(status_message(), "which another process runs");
  status_clear();
  a.options.as_posted = true;
  EXPECT_INT(memory_guard(make_order, &a), STATUS_OK);
  EXPECT_INT(a.order.comms.len, 3);
  EXPECT_INT(a.order.n_circles, 3);
  EXPECT_INT(a.order.n_lanes, 3);
  uint32_t waits = 0, comms = 0;
  for (uint32_t i = 0; i < a.order.steps.len; i++) {
    const issue_step *s = &a.order.steps.data[i];
    waits += s->kind == ISSUE_WAIT && s->stream == 0;
    comms += s->kind == ISSUE_COMM;
    if (s->kind != ISSUE_COMM) continue;
    const issue_comm *c = &a.order.comms.data[s->index];
    EXPECT_INT(c->n, 1);
    EXPECT_INT(c->first, s->index);
    EXPECT_INT(c->receives, s->index == 1);
  }
  EXPECT_INT(comms, 3);
  EXPECT_INT(waits, 3);
  arena_destroy(&a.memory);
  kit_destroy(&k);
}

/* ---- a process per rank ---- */
typedef struct processes {
  const world *w;
  issue_order_options options;
  arena memory;
  issue_order orders[WORLD_RANKS];
  issue_split splits[WORLD_RANKS];
  uint32_t whole; /* steps of the order of all */
} processes;

static status make_parts(void *context) {
  processes *x = context;
  for (uint32_t r = 0; r < x->w->n; r++) {
    TRY(issue_order_make(x->w->plan, &x->options, &x->memory, &x->orders[r]));
    x->whole = x->orders[r].steps.len;
    issue_order_split(x->w->plan, r, &x->memory, &x->orders[r], &x->splits[r]);
  }
  return STATUS_OK;
}

/* Each process works off its steps one by one, whatever stream they are on, and stops at a wait for what is
 * not recorded yet. True: all come to their end. */
static bool come_to_the_end(const processes *x) {
  bool *recorded = calloc(x->orders[0].n_events + 1, sizeof *recorded), moved = true;
  uint32_t at[WORLD_RANKS] = {0}, done = 0;
  while (moved) {
    moved = false;
    for (uint32_t r = 0; r < x->w->n; r++) {
      for (; at[r] < x->orders[r].steps.len; at[r]++, done++) {
        const issue_step *s = &x->orders[r].steps.data[at[r]];
        bool elsewhere = s->kind == ISSUE_WAIT && x->splits[r].rank_of_event[s->index] != r;
        if (elsewhere) check(x->splits[r].flag_of[s->index] != ISSUE_NO_FLAG);
        if (s->kind == ISSUE_WAIT && !recorded[s->index]) break;
        if (s->kind == ISSUE_RECORD) recorded[s->index] = true;
        moved = true;
      }
    }
  }
  free(recorded);
  return done == x->whole;
}

static bool is_divided(const processes *x) {
  uint32_t steps = 0;
  for (uint32_t r = 0; r < x->w->n; r++) {
    const issue_order *o = &x->orders[r];
    uint32_t n = x->w->ranks[r].k.plan.n_instrs;
    for (uint32_t i = 1; i < n; i++)
      if (o->upto[i] < o->upto[i - 1]) return false;
    if (n && o->upto[n - 1] != o->steps.len) return false;
    bool same = x->splits[r].hash == x->splits[0].hash;
    if (!same || x->splits[r].n_flags != x->splits[0].n_flags) return false;
    steps += o->steps.len;
  }
  return steps == x->whole;
}

static void test_parts(issue_order_options options) {
  uint32_t wrong = 0;
  uint64_t before = 0;
  for (uint32_t seed = 0; seed < 60; seed++) {
    world w;
    world_make(&w, seed, 2 + seed % (WORLD_RANKS - 1), 300, 40);
    processes x = {.w = &w, .options = options};
    arena_init(&x.memory, &memory_default);
    wrong += memory_guard(make_parts, &x) != STATUS_OK || !is_divided(&x) || !come_to_the_end(&x);
    wrong += x.splits[0].hash == before; /* another world */
    before = x.splits[0].hash;
    arena_destroy(&x.memory);
    world_destroy(&w);
  }
  EXPECT_INT(wrong, 0);
}

int main(void) {
  issue_order_options direct = {0}, one = {.one_gpu = true}, peers = {.staged = true};
  issue_order_options host = {.staged = true, .through_host = true};
  issue_order_options turns = {.staged = true, .through_host = true, .large = 1};
  issue_order_options direct_turns = {.large = 1};
  test_worlds(direct, "direct", 24, 60, 8);
  test_worlds(direct_turns, "direct, in turns", 24, 60, 8);
  test_worlds(turns, "through the host, in turns", 24, 60, 8);
  test_worlds(one, "one GPU", 24, 60, 8);
  test_worlds(peers, "peer copies", 24, 60, 8);
  test_worlds(host, "through the host", 24, 60, 8);
  issue_order_options parts = {.staged = true, .whole_bytes = 64, .segment_bytes = 32};
  test_worlds(parts, "peer copies in segments", 240, 60, 8);
  parts.through_host = true;
  test_worlds(parts, "through the host in segments", 240, 60, 8);
  parts.whole_bytes = 4096; /* of a longer input, a share that is sent as it is */
  test_worlds(parts, "through the host, shares in one segment", 2400, 60, 2);
  test_waits();
  test_apart(false);
  test_apart(true);
  test_links_begin();
  test_turns(make_slices, 1, 1, (int64_t[]){2, 102});
  test_turns(make_slices, TWO_WIDTH, 1, (int64_t[]){2, 102});
  test_turns(make_slices, TWO_WIDTH + 1, 3, (int64_t[]){2, 102}); /* too small */
  test_turns(make_slices, 0, 3, (int64_t[]){2, 102});
  test_turns(make_layers, 1, 1, (int64_t[]){816, 816});
  test_turns(make_layers, 0, 3, (int64_t[]){816, 816});
  test_passed_on();
  issue_order_options posted = {.as_posted = true, .reduces = reduces_all};
  issue_order_options collected = {.as_posted = true}, some = {.as_posted = true};
  some.reduces = reduces_some;
  test_worlds(posted, "as posted", 24, 60, 8);
  test_worlds(collected, "as posted, reductions collected", 24, 60, 8);
  test_worlds(some, "as posted, some reductions collected", 24, 60, 8);
  test_chain(collected, 64);
  test_chain(posted, 64);
  test_before(posted);
  test_reuse(posted);
  test_alone();
  test_chain(direct, 64);
  test_chain(one, 64);
  test_chain(peers, 64);
  test_chain(host, 64);
  test_chain(parts, 64);
  test_before(direct);
  test_before(host);
  test_reuse(direct);
  test_reuse(host);
  test_left_in_place(direct);
  test_left_in_place(host);
  test_left_in_place(posted);
  test_to_oneself(direct);
  test_to_oneself(host);
  test_to_oneself(posted);
  test_joined_for_nothing(direct, TWO_WIDTH);
  test_joined_for_nothing(host, TWO_WIDTH);
  test_joined_for_nothing(posted, TWO_WIDTH);
  test_joined_for_nothing(direct, 0);
  test_joined_for_nothing(posted, 0);
  test_parts((issue_order_options){0});
  test_parts((issue_order_options){.one_gpu = true});
  test_parts((issue_order_options){.staged = true, .through_host = true});
  test_parts(turns);
  return test_finish();
}
