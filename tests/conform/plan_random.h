/* Random plans with the waits they need (and few more), and what they compute when run one by one.
 *
 * A few places in the pool hold i64 vectors. Each task replaces one place by a function of itself and
 * another (y <- x - y does not commute, so every order shows), or a fresh buffer takes the place over.
 * Vector clocks tell what is ordered already; a wait is put in only where it is not. */
#ifndef WEIR_TESTS_CONFORM_PLAN_RANDOM_H
#define WEIR_TESTS_CONFORM_PLAN_RANDOM_H

#include "base/random.h"
#include "conform/plan_kit.h"

enum { PLAN_WIDTH = 4, PLAN_PLACES = 6, PLAN_STREAMS = 8 };

typedef struct random_access {
  uint32_t count[PLAN_STREAMS]; /* by stream: the last access is its count-th entry; 0: none */
} random_access;

typedef struct random_plan {
  kit k;
  uint64_t seed, draws;
  bool reuse; /* buffers are freed and their places taken over */
  uint32_t buffer[PLAN_PLACES], source[PLAN_PLACES]; /* source: of the last task on it */
  int64_t value[PLAN_PLACES];                        /* element i of a place is this + i */
  int64_t factor[PLAN_PLACES];
  random_access reads[PLAN_PLACES], writes[PLAN_PLACES];
  uint32_t entries[PLAN_STREAMS];             /* put on each stream */
  uint32_t clock[PLAN_STREAMS][PLAN_STREAMS]; /* [s][t]: entries of t before the next one of s */
} random_plan;

static inline uint32_t random_below(random_plan *p, uint32_t n) {
  return (uint32_t)(random_bits(p->seed, p->draws++) % n);
}

static inline void random_clocks(random_plan *p, uint32_t s, uint32_t t) {
  p->entries[s]++;
  for (uint32_t u = 0; u < p->k.plan.n_streams; u++)
    if (p->clock[t][u] > p->clock[s][u]) p->clock[s][u] = p->clock[t][u];
  p->clock[s][t] = p->entries[t];
  p->clock[s][s] = p->entries[s];
}

static inline void random_wait(random_plan *p, uint32_t s, uint32_t t) {
  (void)kit_wait(&p->k, s, t);
  random_clocks(p, s, t);
}

/* Puts stream s behind all of these accesses. */
static inline void random_order(random_plan *p, uint32_t s, const random_access *a) {
  for (uint32_t t = 0; t < p->k.plan.n_streams; t++)
    if (t != s && a->count[t] > p->clock[s][t]) random_wait(p, s, t);
}

static inline void random_note(random_plan *p, uint32_t s, random_access *a) {
  a->count[s] = p->entries[s];
}

static inline void random_done(random_plan *p, uint32_t s) { p->clock[s][s] = ++p->entries[s]; }

/* place `to` is overwritten by a copy of `from`, in a fresh buffer that takes the place over. */
static inline void random_takeover(random_plan *p, uint32_t s, uint32_t to, uint32_t from) {
  kit_free(&p->k, p->buffer[to]);
  p->buffer[to] = kit_pool_at(&p->k, (int64_t)to * PLAN_WIDTH * 8, PLAN_WIDTH);
  (void)kit_set(&p->k, s, p->buffer[to], p->buffer[from]);
  p->value[to] = p->value[from];
  p->factor[to] = p->factor[from];
}

static inline void random_combine(random_plan *p, uint32_t s, uint32_t to, uint32_t from) {
  (void)kit_binary(&p->k, s, IR_OP_SUB, p->buffer[to], p->buffer[from], p->buffer[to]);
  p->value[to] = (int64_t)((uint64_t)p->value[from] - (uint64_t)p->value[to]);
  p->factor[to] = (int64_t)((uint64_t)p->factor[from] - (uint64_t)p->factor[to]);
}

static inline void random_task(random_plan *p) {
  uint32_t s = random_below(p, p->k.plan.n_streams), to = random_below(p, PLAN_PLACES);
  uint32_t from = (to + 1 + random_below(p, PLAN_PLACES - 1)) % PLAN_PLACES;
  if (from == p->source[to]) return; /* twice the same would commute */
  p->source[to] = from;
  random_order(p, s, &p->writes[from]);
  random_order(p, s, &p->writes[to]);
  random_order(p, s, &p->reads[to]);
  if (p->reuse && random_below(p, 4) == 0) random_takeover(p, s, to, from);
  else random_combine(p, s, to, from);
  random_done(p, s);
  random_note(p, s, &p->reads[from]);
  random_note(p, s, &p->writes[to]);
}

/* ---- is every conflict ordered? ---- */
static inline bool ordered_after(const random_plan *p, uint32_t s, const random_access *a) {
  for (uint32_t t = 0; t < p->k.plan.n_streams; t++)
    if (t != s && a->count[t] > p->clock[s][t]) return false;
  return true;
}

/* The place of a buffer; PLAN_PLACES for the caller's memory. */
static inline uint32_t random_place(const rt_plan *plan, uint32_t view) {
  const rt_buffer *b = &plan->buffers[plan->views[view].buffer];
  return b->kind == RT_BUFFER_POOL ? (uint32_t)(b->offset_bytes / (PLAN_WIDTH * 8)) : PLAN_PLACES;
}

static inline bool random_replay_task(random_plan *p, const rt_plan *plan, uint32_t s,
                                      const rt_task *t) {
  uint32_t to = random_place(plan, t->result), from = random_place(plan, t->operands[0].view);
  bool ok = true;
  if (from < PLAN_PLACES) ok = ordered_after(p, s, &p->writes[from]);
  if (to < PLAN_PLACES)
    ok = ok && ordered_after(p, s, &p->writes[to]) && ordered_after(p, s, &p->reads[to]);
  random_done(p, s);
  if (from < PLAN_PLACES) random_note(p, s, &p->reads[from]);
  if (to < PLAN_PLACES) random_note(p, s, &p->writes[to]);
  return ok;
}

/* Goes through the plan as it stands now. A wait of a stream for itself orders nothing. */
static inline bool random_is_ordered(const rt_plan *plan) {
  random_plan p = {.k.plan.n_streams = plan->n_streams};
  bool ok = true;
  for (uint32_t i = 0; i < plan->n_instrs && ok; i++) {
    const rt_instr *in = &plan->instrs[i];
    if (in->kind == RT_LAUNCH)
      ok = random_replay_task(&p, plan, in->stream, &plan->tasks[in->task]);
    else if (in->other == in->stream) random_done(&p, in->stream);
    else random_clocks(&p, in->stream, in->other);
  }
  return ok;
}

/* ---- making ---- */
/* The first values: element i of place j is value + factor * i, from input j. */
static inline void random_start(random_plan *p) {
  for (uint32_t j = 0; j < PLAN_PLACES; j++) {
    uint32_t in = kit_buffer(&p->k, RT_BUFFER_INPUT, j, PLAN_WIDTH);
    uint32_t s = random_below(p, p->k.plan.n_streams);
    p->buffer[j] = kit_pool_at(&p->k, (int64_t)j * PLAN_WIDTH * 8, PLAN_WIDTH);
    p->value[j] = (int64_t)(random_bits(p->seed, 1000000 + j) >> 8);
    p->factor[j] = (int64_t)(j + 1);
    (void)kit_set(&p->k, s, p->buffer[j], in);
    random_done(p, s);
    random_note(p, s, &p->writes[j]);
  }
}

static inline void random_inputs(const random_plan *p, int64_t in[PLAN_PLACES][PLAN_WIDTH]) {
  for (int j = 0; j < PLAN_PLACES; j++)
    for (int i = 0; i < PLAN_WIDTH; i++)
      in[j][i] = (int64_t)(random_bits(p->seed, 1000000 + (uint64_t)j) >> 8) + (j + 1) * i;
}

/* A plan of `tasks` tasks; place j ends in output j. */
static inline const rt_plan *random_make(random_plan *p, uint64_t seed, uint32_t streams,
                                         uint32_t tasks, bool reuse) {
  *p = (random_plan){.seed = seed, .reuse = reuse};
  kit_init(&p->k, streams);
  random_start(p);
  for (uint32_t i = 0; i < tasks; i++) random_task(p);
  for (uint32_t j = 0; j < PLAN_PLACES; j++) {
    uint32_t out = kit_buffer(&p->k, RT_BUFFER_OUTPUT, j, PLAN_WIDTH);
    random_order(p, 0, &p->writes[j]);
    (void)kit_set(&p->k, 0, out, p->buffer[j]);
    random_done(p, 0);
  }
  return kit_plan(&p->k);
}

/* Whether the outputs are what running one by one gives. */
static inline bool random_check(const random_plan *p, int64_t out[PLAN_PLACES][PLAN_WIDTH]) {
  for (int j = 0; j < PLAN_PLACES; j++)
    for (int i = 0; i < PLAN_WIDTH; i++) {
      uint64_t want = (uint64_t)p->value[j] + (uint64_t)p->factor[j] * (uint64_t)i;
      if ((uint64_t)out[j][i] != want) return false;
    }
  return true;
}

/* Memory of its inputs and outputs. */
typedef struct arrays {
  int64_t in[PLAN_PLACES][PLAN_WIDTH], out[PLAN_PLACES][PLAN_WIDTH];
  void *inputs[PLAN_PLACES], *outputs[PLAN_PLACES];
} arrays;

static inline void make_arrays(const random_plan *p, arrays *a) {
  random_inputs(p, a->in);
  for (int j = 0; j < PLAN_PLACES; j++) a->inputs[j] = a->in[j], a->outputs[j] = a->out[j];
}

#endif
