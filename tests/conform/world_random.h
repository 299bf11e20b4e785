/* Random programs of several ranks, and what they compute when run one step after the other.
 *
 * Each rank has a few places that hold i64 vectors. A step is a task of one rank on two of its places, or
 * a communication of a random team: from one place of each member into another, or in place. Some move
 * nothing, and the root of a broadcast may keep nothing for itself. It is posted on one stream of a rank,
 * joined on another, often much later. Per rank, every access is ordered behind the earlier ones on the
 * same place by waits and joins; nothing else is, but posts by rt_post.before. Of half of the worlds the
 * checker takes out all waits that something else implies. */
#ifndef WEIR_TESTS_CONFORM_WORLD_RANDOM_H
#define WEIR_TESTS_CONFORM_WORLD_RANDOM_H

#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "check/check.h"
#include "conform/plan_kit.h"
#include "runtime/device.h"
#include "test.h"

enum { WORLD_RANKS = 8, WORLD_PLACES = 4, WORLD_STREAMS = 3, NO_POST = UINT32_MAX };
enum { WORLD_NOWHERE = UINT32_MAX }; /* instead of a place */

typedef struct world_rank {
  kit k;
  uint32_t buffer[WORLD_PLACES];
  int64_t *value[WORLD_PLACES]; /* what it must hold at the end */
  bool touched[WORLD_PLACES][WORLD_STREAMS];
  uint32_t pending[WORLD_PLACES]; /* the post that uses the place, until joined */
} world_rank;

typedef struct world {
  arena memory;
  uint64_t seed, draws;
  uint32_t n;
  int64_t width; /* elements of a place */
  world_rank ranks[WORLD_RANKS];
  rt_plan *plan;
  void *inputs[WORLD_RANKS * WORLD_PLACES], *outputs[WORLD_RANKS * WORLD_PLACES];
} world;

static inline uint32_t world_below(world *w, uint32_t n) {
  return (uint32_t)(random_bits(w->seed, w->draws++) % n);
}

static inline int64_t *world_array(world *w) {
  return ARENA_ARRAY(&w->memory, (size_t)w->width, int64_t);
}

/* ---- order ---- */
/* Stream s of the rank comes behind all that was done to the place. */
static inline void world_order(world *w, uint32_t r, uint32_t s, uint32_t place) {
  world_rank *x = &w->ranks[r];
  uint32_t post = x->pending[place];
  if (post != NO_POST) {
    (void)kit_join(&x->k, s, post);
    for (uint32_t j = 0; j < WORLD_PLACES; j++)
      if (x->pending[j] == post) {
        x->pending[j] = NO_POST;
        x->touched[j][s] = true;
      }
  }
  for (uint32_t t = 0; t < WORLD_STREAMS; t++)
    if (t != s && x->touched[place][t]) (void)kit_wait(&x->k, s, t);
  memset(x->touched[place], 0, sizeof x->touched[place]);
  x->touched[place][s] = true;
}

/* ---- steps ---- */
static inline void world_task(world *w) {
  uint32_t r = world_below(w, w->n), s = world_below(w, WORLD_STREAMS);
  uint32_t to = world_below(w, WORLD_PLACES);
  uint32_t from = (to + 1 + world_below(w, WORLD_PLACES - 1)) % WORLD_PLACES;
  world_rank *x = &w->ranks[r];
  world_order(w, r, s, from);
  world_order(w, r, s, to);
  (void)kit_binary(&x->k, s, IR_OP_SUB, x->buffer[to], x->buffer[from], x->buffer[to]);
  for (int64_t i = 0; i < w->width; i++)
    x->value[to][i] = (int64_t)((uint64_t)x->value[from][i] - (uint64_t)x->value[to][i]);
}

typedef struct world_comm {
  rt_post post;                               /* of member `me`, but for the places */
  uint32_t in[WORLD_RANKS], out[WORLD_RANKS]; /* places, by team rank */
  int64_t *sent[WORLD_RANKS];                 /* what `in` held */
} world_comm;

static inline void world_draw_team(world *w, world_comm *c) {
  uint32_t ids[WORLD_RANKS], n = 1 + world_below(w, w->n);
  for (uint32_t i = 0; i < w->n; i++) ids[i] = i;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t j = i + world_below(w, w->n - i), t = ids[i];
    ids[i] = ids[j];
    ids[j] = t;
  }
  c->post.team = arena_copy(&w->memory, ids, n * sizeof *ids);
  c->post.n_team = n;
  c->post.root = world_below(w, n);
  for (uint32_t m = 0; m < n; m++) {
    c->in[m] = world_below(w, WORLD_PLACES);
    c->out[m] = (c->in[m] + 1 + world_below(w, WORLD_PLACES - 1)) % WORLD_PLACES;
  }
}

/* Whether the whole of a place may be both input and output. */
static inline bool world_may_be_in_place(ir_comm_kind kind) {
  return kind == IR_COMM_BROADCAST || kind == IR_COMM_REDUCE || kind == IR_COMM_ALLREDUCE;
}

static inline uint64_t world_combine(ir_combine op, uint64_t a, uint64_t b) {
  switch (op) {
  case IR_COMBINE_SUM: return a + b;
  case IR_COMBINE_PROD: return a * b;
  case IR_COMBINE_MIN: return (int64_t)a < (int64_t)b ? a : b;
  case IR_COMBINE_MAX: return (int64_t)a > (int64_t)b ? a : b;
  case IR_COMBINE_AND: return a & b;
  case IR_COMBINE_OR: return a | b;
  case IR_COMBINE_XOR: return a ^ b;
  case IR_COMBINE_COUNT: break;
  }
  return 0;
}

static inline uint64_t world_reduced(const world_comm *c, int64_t i) {
  uint64_t x = (uint64_t)c->sent[0][i];
  for (uint32_t m = 1; m < c->post.n_team; m++)
    x = world_combine(c->post.op, x, (uint64_t)c->sent[m][i]);
  return x;
}

/* What member `me` receives at element i of its `out`, of those it receives. */
static inline int64_t world_received(const world_comm *c, uint32_t me, int64_t i) {
  int64_t count = c->post.count, n = c->post.n_team, piece = i / count, at = i % count;
  switch (c->post.kind) {
  case IR_COMM_BROADCAST: return c->sent[c->post.root][i];
  case IR_COMM_GATHER:
  case IR_COMM_ALLGATHER: return c->sent[piece][at];
  case IR_COMM_SCATTER: return c->sent[c->post.root][me * count + i];
  case IR_COMM_REDUCE:
  case IR_COMM_ALLREDUCE: return (int64_t)world_reduced(c, i);
  case IR_COMM_REDUCE_SCATTER: return (int64_t)world_reduced(c, me * count + i);
  case IR_COMM_ALL_TO_ALL: return c->sent[piece][me * count + at];
  case IR_COMM_SEND:
  case IR_COMM_RECV:
  case IR_COMM_PERMUTE: return c->sent[(me + n - 1) % n][i];
  case IR_COMM_SEND_RECV:
  case IR_COMM_COUNT: break;
  }
  return 0;
}

static inline bool world_receives(const world_comm *c, uint32_t me, int64_t *n) {
  bool pieces = ir_comm_out_pieces(c->post.kind);
  bool root_only = ir_comm_info_of(c->post.kind)->root == IR_ROOT_RECEIVES;
  *n = pieces ? c->post.count * c->post.n_team : c->post.count;
  return c->out[me] != WORLD_NOWHERE && (!root_only || c->post.root == me);
}

static inline uint32_t world_post(world *w, uint32_t r, uint32_t s, rt_post p) {
  p.rank = r;
  return kit_post(&w->ranks[r].k, s, p);
}

/* A place of the member is used by a communication that stream s posts. */
static inline uint32_t world_lend(world *w, uint32_t r, uint32_t s, uint32_t place) {
  if (place == WORLD_NOWHERE) return RT_NO_VIEW;
  world_order(w, r, s, place);
  return w->ranks[r].buffer[place];
}

/* A message around the team is one permute, or a send and a recv, each on a stream of its own. */
static inline void world_post_member(world *w, world_comm *c, uint32_t me, bool apart) {
  uint32_t r = c->post.team[me], s = world_below(w, WORLD_STREAMS), n = c->post.n_team;
  uint32_t receiver = apart ? world_below(w, WORLD_STREAMS) : s;
  world_rank *x = &w->ranks[r];
  rt_post p = c->post;
  p.me = me;
  p.in = world_lend(w, r, s, c->in[me]);
  p.out = world_lend(w, r, receiver, c->out[me]);
  p.to = (int32_t)((me + 1) % n);
  p.from = (int32_t)((me + n - 1) % n);
  p.count_from = p.count;
  if (p.kind == IR_COMM_PERMUTE && apart) {
    rt_post send = p, recv = p;
    send.kind = IR_COMM_SEND;
    send.out = RT_NO_VIEW;
    recv.kind = IR_COMM_RECV;
    recv.in = RT_NO_VIEW;
    bool sends_first = world_below(w, 2);
    if (sends_first) x->pending[c->in[me]] = world_post(w, r, s, send);
    x->pending[c->out[me]] = world_post(w, r, receiver, recv);
    if (!sends_first) x->pending[c->in[me]] = world_post(w, r, s, send);
    return;
  }
  uint32_t post = x->pending[c->in[me]] = world_post(w, r, s, p);
  if (c->out[me] != WORLD_NOWHERE) x->pending[c->out[me]] = post;
}

static inline void world_communicate(world *w) {
  world_comm c = {.post = {.dtype = IR_I64, .op = (ir_combine)world_below(w, IR_COMBINE_COUNT)}};
  uint32_t kind = world_below(w, IR_COMM_ALL_TO_ALL + 2);
  c.post.kind = kind <= IR_COMM_ALL_TO_ALL ? (ir_comm_kind)kind : IR_COMM_PERMUTE;
  bool apart = c.post.kind == IR_COMM_PERMUTE && world_below(w, 2);
  world_draw_team(w, &c);
  c.post.count = world_below(w, 8) ? w->width / c.post.n_team : 0;
  for (uint32_t m = 0; m < c.post.n_team; m++)
    if (world_may_be_in_place(c.post.kind) && world_below(w, 3) == 0) c.out[m] = c.in[m];
  if (c.post.kind == IR_COMM_BROADCAST && c.post.n_team > 1 && world_below(w, 3) == 0)
    c.out[c.post.root] = WORLD_NOWHERE;
  for (uint32_t m = 0; m < c.post.n_team; m++) {
    const world_rank *x = &w->ranks[c.post.team[m]];
    c.sent[m] = arena_copy(&w->memory, x->value[c.in[m]], (size_t)w->width * 8);
  }
  for (uint32_t m = 0; m < c.post.n_team; m++) {
    int64_t n;
    world_post_member(w, &c, m, apart);
    if (!world_receives(&c, m, &n)) continue;
    int64_t *out = w->ranks[c.post.team[m]].value[c.out[m]];
    for (int64_t i = 0; i < n; i++) out[i] = world_received(&c, m, i);
  }
}

/* ---- making ---- */
static inline void world_begin_rank(world *w, uint32_t r) {
  world_rank *x = &w->ranks[r];
  kit_init(&x->k, WORLD_STREAMS);
  for (uint32_t j = 0; j < WORLD_PLACES; j++) {
    int64_t *in = world_array(w);
    for (int64_t i = 0; i < w->width; i++)
      in[i] = (int64_t)random_bits(w->seed ^ (r * 16 + j), (uint64_t)i);
    w->inputs[r * WORLD_PLACES + j] = in;
    w->outputs[r * WORLD_PLACES + j] = world_array(w);
    x->value[j] = arena_copy(&w->memory, in, (size_t)w->width * 8);
    x->buffer[j] = kit_pool(&x->k, w->width);
    x->pending[j] = NO_POST;
    uint32_t buffer = kit_buffer(&x->k, RT_BUFFER_INPUT, j, w->width);
    (void)kit_set(&x->k, 0, x->buffer[j], buffer);
    x->touched[j][0] = true;
  }
}

static inline void world_end_rank(world *w, uint32_t r) {
  world_rank *x = &w->ranks[r];
  for (uint32_t j = 0; j < WORLD_PLACES; j++) {
    world_order(w, r, 0, j);
    (void)kit_set(&x->k, 0, kit_buffer(&x->k, RT_BUFFER_OUTPUT, j, w->width), x->buffer[j]);
  }
}

/* What is proved without a wait is ordered without it, on every device. */
static inline void world_prune(world *w, uint32_t r) {
  rt_plan *plan = &w->ranks[r].k.plan;
  uint32_t removed;
  check_report report = {0};
  EXPECT_INT(check_plan(plan, NULL, &report), STATUS_OK);
  EXPECT_INT(report.n_found, 0);
  check_report_destroy(&report);
  if (w->seed % 2) EXPECT_INT(check_prune_waits(plan, &memory_default, &removed), STATUS_OK);
}

static inline void world_make(world *w, uint64_t seed, uint32_t n, int64_t width, uint32_t steps) {
  *w = (world){.seed = seed, .n = n, .width = width};
  arena_init(&w->memory, &memory_default);
  for (uint32_t r = 0; r < n; r++) world_begin_rank(w, r);
  for (uint32_t i = 0; i < steps; i++) {
    if (world_below(w, 2)) world_communicate(w);
    else world_task(w);
  }
  rt_plan *plans[WORLD_RANKS];
  for (uint32_t r = 0; r < n; r++) {
    world_end_rank(w, r);
    (void)kit_plan(&w->ranks[r].k);
    world_prune(w, r);
    plans[r] = &w->ranks[r].k.plan;
  }
  if (rt_plan_join(plans, n, &memory_default, &w->plan) != STATUS_OK) abort();
}

static inline void world_destroy(world *w) {
  rt_plan_destroy(w->plan);
  for (uint32_t r = 0; r < w->n; r++) kit_destroy(&w->ranks[r].k);
  arena_destroy(&w->memory);
}

static inline void world_clear(const world *w) {
  for (uint32_t i = 0; i < w->n * WORLD_PLACES; i++) memset(w->outputs[i], 0, (size_t)w->width * 8);
}

static inline bool world_is_right(const world *w) {
  for (uint32_t i = 0; i < w->n * WORLD_PLACES; i++) {
    const world_rank *x = &w->ranks[i / WORLD_PLACES];
    if (memcmp(w->outputs[i], x->value[i % WORLD_PLACES], (size_t)w->width * 8) != 0) return false;
  }
  return true;
}

/* ---- allocations that fail ---- */
static inline status world_try(const world *w, const rt_device_ops *ops, const rt_device_options *o,
                               const allocator *memory) {
  rt_device *d = NULL;
  rt_loaded *l = NULL;
  status st;
  TRY_OUT(ops->open(o, memory, &d));
  TRY_OUT(d->ops->load(d, w->plan, &l));
  TRY_OUT(rt_run(l, w->inputs, w->outputs, NULL, NULL));
out:
  if (l) d->ops->unload(l);
  if (d) d->ops->close(d);
  return st;
}

/* The device is opened, and the world loaded and run, while the first, the second, … allocation fails. */
static inline void world_test_allocations(const world *w, const rt_device_ops *ops,
                                          const rt_device_options *o) {
  status st = STATUS_OUT_OF_MEMORY;
  for (uint64_t n = 0; st != STATUS_OK && n < 10000; n++) {
    memory_faults faults = {.fail_at = n};
    allocator memory = memory_faulty(&faults);
    status_clear();
    st = world_try(w, ops, o, &memory);
    EXPECT(st == STATUS_OK || st == STATUS_OUT_OF_MEMORY);
    EXPECT_INT(faults.live, 0);
  }
  EXPECT_INT(st, STATUS_OK);
}

#endif
