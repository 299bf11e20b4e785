/* A profile of all processes: rank 0 binds the plans of the others, joins them with its own to the
 * plan that one process would run, and receives the spans of the others. */
#include <string.h>

#include "session/profile.h"

/* ---- clocks ---- */
enum { ROUNDS = 4 };

typedef struct clocks {
  int64_t before_ns, after_ns;
} clocks;

/* By how much the clock of a rank may be ahead of rank 0's. */
typedef struct ahead {
  int64_t least_ns, most_ns;
} ahead;

/* An exchange ends on a rank only after it has begun on all: a time that was sent is earlier than its
 * receipt. */
static status compare_clocks(const session_ranks *r, int64_t *before, clocks *all, ahead *result) {
  clocks mine = {.before_ns = rt_clock_ns()};
  TRY(session_ranks_exchange(r, &mine.before_ns, before, sizeof mine.before_ns));
  mine.after_ns = rt_clock_ns();
  TRY(session_ranks_exchange(r, &mine, all, sizeof mine));
  for (uint32_t k = 0; k < r->world; k++) {
    int64_t least_ns = all[k].before_ns - all[0].after_ns;
    int64_t most_ns = all[k].after_ns - all[0].before_ns;
    if (least_ns > result[k].least_ns) result[k].least_ns = least_ns;
    if (most_ns < result[k].most_ns) result[k].most_ns = most_ns;
  }
  return STATUS_OK;
}

/* Ranks of one machine share a clock: for them 0 is always possible. */
static int64_t middle(ahead a) {
  if (a.least_ns <= 0 && a.most_ns >= 0) return 0;
  return a.least_ns + (a.most_ns - a.least_ns) / 2;
}

/* ---- spans ---- */
typedef struct gathering {
  session *x;
  session_profile *profile;
  int64_t *ahead_ns, *origin_ns; /* by rank */
  int64_t first_ns;              /* when the first rank began, by rank 0's clock */
  rt_plan **plans;               /* of all ranks */
  rt_plan *joined;
  rt_span **spans; /* by rank, as the rank kept them */
  arena scratch;
} gathering;

static int64_t began_ns(const gathering *g, uint32_t rank) {
  return g->origin_ns[rank] - g->ahead_ns[rank];
}

static status align(gathering *g) {
  const session_ranks *r = &g->x->ranks;
  int64_t *before = ARENA_ARRAY(&g->scratch, r->world, int64_t);
  clocks *all = ARENA_ARRAY(&g->scratch, r->world, clocks);
  ahead *found = ARENA_ARRAY(&g->scratch, r->world, ahead);
  g->ahead_ns = ARENA_ARRAY(&g->scratch, r->world, int64_t);
  g->origin_ns = ARENA_ARRAY(&g->scratch, r->world, int64_t);
  for (uint32_t k = 0; k < r->world; k++) found[k] = (ahead){INT64_MIN, INT64_MAX};
  for (int i = 0; i < ROUNDS; i++) TRY(compare_clocks(r, before, all, found));
  TRY(session_ranks_exchange(r, &g->profile->origin_ns, g->origin_ns, sizeof *g->origin_ns));
  g->first_ns = INT64_MAX;
  for (uint32_t k = 0; k < r->world; k++) {
    g->ahead_ns[k] = middle(found[k]);
    if (began_ns(g, k) < g->first_ns) g->first_ns = began_ns(g, k);
  }
  return STATUS_OK;
}

static int64_t span_bytes(const rt_plan *plan) {
  return ((int64_t)plan->n_tasks + plan->n_posts) * (int64_t)sizeof(rt_span);
}

/* At rank 0. If it has no memory, it stops receiving, and the others give up as after any failure. */
static status receive(gathering *g) {
  const session_ranks *r = &g->x->ranks;
  g->spans[0] = g->profile->spans;
  for (uint32_t k = 0; k < r->world; k++)
    TRY(session_bind_other(g->x, g->profile->plan, k, &g->plans[k]));
  for (uint32_t k = 1; k < r->world; k++) {
    g->spans[k] = arena_alloc(&g->scratch, (size_t)span_bytes(g->plans[k]));
    TRY(session_ranks_transfer(r, false, k, g->spans[k], span_bytes(g->plans[k])));
  }
  return rt_plan_join(g->plans, r->world, &memory_default, &g->joined);
}

/* A span of one rank as a span of the joined plan; its times count from when the first rank began. */
static rt_span moved(const gathering *g, uint32_t rank, rt_span s, uint32_t instr,
                     uint32_t stream) {
  int64_t by_ns = began_ns(g, rank) - g->first_ns;
  bool virtual_clock = g->origin_ns[rank] == 0;
  s.start_ns += virtual_clock ? 0 : by_ns;
  s.end_ns += virtual_clock ? 0 : by_ns;
  s.instr = instr;
  s.stream = (uint16_t)stream;
  return s;
}

/* Joining keeps the order of each rank's launches, and that of its posts. */
static void place_spans(const gathering *g, rt_span *to) {
  const rt_plan *plan = g->joined;
  uint32_t launch = 0, world = g->x->ranks.world;
  uint32_t *launches = ARENA_ARRAY((arena *)&g->scratch, world, uint32_t);
  uint32_t *posts = ARENA_ARRAY((arena *)&g->scratch, world, uint32_t);
  for (uint32_t i = 0; i < plan->n_instrs; i++) {
    const rt_instr *instr = &plan->instrs[i];
    uint32_t r = rt_plan_rank(plan, instr->stream);
    if (instr->kind == RT_LAUNCH)
      to[launch++] = moved(g, r, g->spans[r][launches[r]++], i, instr->stream);
    if (instr->kind == RT_POST)
      to[plan->n_tasks + instr->task] =
          moved(g, r, g->spans[r][g->plans[r]->n_tasks + posts[r]++], i, instr->stream);
  }
}

static status keep(gathering *g) {
  session_profile *p = g->profile;
  uint32_t n = g->joined->n_tasks + g->joined->n_posts;
  rt_span *spans = memory_alloc(&memory_default, n * sizeof *spans);
  if (!spans) return STATUS_OUT_OF_MEMORY;
  place_spans(g, spans);
  memory_free(&memory_default, p->spans);
  p->spans = spans;
  p->n_spans = p->room = n;
  p->plan = g->joined;
  p->world = g->plans;
  p->n_world = g->x->ranks.world;
  g->joined = NULL;
  g->plans = NULL;
  return STATUS_OK;
}

static void drop(gathering *g) {
  rt_plan_destroy(g->joined);
  for (uint32_t k = 0; g->plans && k < g->x->ranks.world; k++) rt_plan_destroy(g->plans[k]);
  memory_free(&memory_default, g->plans);
  arena_destroy(&g->scratch);
}

static status gather(void *context) {
  gathering *g = context;
  const session_ranks *r = &g->x->ranks;
  TRY(align(g));
  if (r->first > 0)
    return session_ranks_transfer(r, true, r->first, g->profile->spans,
                                  span_bytes(g->profile->plan));
  g->spans = ARENA_ARRAY(&g->scratch, r->world, rt_span *);
  size_t bytes = r->world * sizeof *g->plans;
  g->plans = memory_alloc(&memory_default, bytes);
  if (!g->plans) return STATUS_OUT_OF_MEMORY;
  memset(g->plans, 0, bytes);
  TRY(receive(g));
  return keep(g);
}

status session_profile_gather(session *x, session_profile *profile) {
  gathering g = {.x = x, .profile = profile};
  arena_init(&g.scratch, &memory_default);
  status st = memory_guard(gather, &g);
  drop(&g);
  return st;
}
