/* A profile of all processes: rank 0 binds the plans of the others, joins them with its own to the plan that one
 * process would run, and is sent what ran when. */
#include <string.h>

#include "api/execute.h"
#include "api/program.h"

void api_profile_drop_world(weir_profile *p) {
  if (!p->world) return;
  rt_plan_destroy((rt_plan *)p->plan);
  for (uint32_t r = 0; r < p->n_world; r++) rt_plan_destroy(p->world[r]);
  memory_free(&memory_default, p->world);
  p->world = NULL;
  p->n_world = 0;
  p->plan = NULL;
}

/* ---- clocks ---- */
enum { ROUNDS = 4 };

typedef struct clocks {
  int64_t before_ns, after_ns;
} clocks;

/* By how much the clock of a rank may be ahead of rank 0's. */
typedef struct ahead {
  int64_t least_ns, most_ns;
} ahead;

/* All learn the others' time before anybody is through: what was told was earlier than when it was heard. */
static status compare_clocks(const api_ranks *r, clocks *all, ahead *result) {
  int64_t before[RT_COMM_MAX_RANKS] = {0};
  clocks mine = {.before_ns = rt_clock_ns()};
  TRY(api_ranks_exchange(r, &mine.before_ns, before, sizeof mine.before_ns));
  mine.after_ns = rt_clock_ns();
  TRY(api_ranks_exchange(r, &mine, all, sizeof mine));
  for (uint32_t k = 0; k < r->world; k++) {
    int64_t least_ns = all[k].before_ns - all[0].after_ns;
    int64_t most_ns = all[k].after_ns - all[0].before_ns;
    if (least_ns > result[k].least_ns) result[k].least_ns = least_ns;
    if (most_ns < result[k].most_ns) result[k].most_ns = most_ns;
  }
  return STATUS_OK;
}

/* One machine has one clock, for which 0 is always possible. */
static int64_t middle(ahead a) {
  if (a.least_ns <= 0 && a.most_ns >= 0) return 0;
  return a.least_ns + (a.most_ns - a.least_ns) / 2;
}

/* ---- spans ---- */
typedef struct gathering {
  api_executor *x;
  weir_profile *profile;
  int64_t ahead_ns[RT_COMM_MAX_RANKS], origin_ns[RT_COMM_MAX_RANKS];
  rt_plan **plans; /* of all ranks */
  rt_plan *joined;
  rt_span **spans; /* by rank, as it kept them */
  arena scratch;
} gathering;

static status align(gathering *g) {
  const api_ranks *r = &g->x->ranks;
  clocks all[RT_COMM_MAX_RANKS] = {0};
  ahead found[RT_COMM_MAX_RANKS] = {0};
  for (uint32_t k = 0; k < r->world; k++) found[k] = (ahead){INT64_MIN, INT64_MAX};
  for (int i = 0; i < ROUNDS; i++) TRY(compare_clocks(r, all, found));
  TRY(api_ranks_exchange(r, &g->profile->origin_ns, g->origin_ns, sizeof *g->origin_ns));
  for (uint32_t k = 0; k < r->world; k++) g->ahead_ns[k] = middle(found[k]);
  return STATUS_OK;
}

static int64_t span_bytes(const rt_plan *plan) {
  return ((int64_t)plan->n_tasks + plan->n_posts) * (int64_t)sizeof(rt_span);
}

/* At rank 0. What it has no memory for it cannot receive: the others then give up as after any failure. */
static status receive(gathering *g) {
  const api_ranks *r = &g->x->ranks;
  g->spans[0] = g->profile->spans;
  for (uint32_t k = 0; k < r->world; k++)
    TRY(api_executor_bind_other(g->x, g->profile->plan, k, &g->plans[k]));
  for (uint32_t k = 1; k < r->world; k++) {
    g->spans[k] = arena_alloc(&g->scratch, (size_t)span_bytes(g->plans[k]));
    TRY(api_ranks_transfer(r, false, k, g->spans[k], span_bytes(g->plans[k])));
  }
  return rt_plan_join(g->plans, r->world, &memory_default, &g->joined);
}

/* By the first clock that began. */
static rt_span moved(const gathering *g, uint32_t rank, rt_span s, uint32_t instr,
                     uint32_t stream) {
  int64_t first_ns = INT64_MAX;
  for (uint32_t k = 0; k < g->x->ranks.world; k++) {
    int64_t began_ns = g->origin_ns[k] - g->ahead_ns[k];
    if (began_ns < first_ns) first_ns = began_ns;
  }
  int64_t by_ns = g->origin_ns[rank] - g->ahead_ns[rank] - first_ns;
  bool virtual_clock = g->origin_ns[rank] == 0;
  s.start_ns += virtual_clock ? 0 : by_ns;
  s.end_ns += virtual_clock ? 0 : by_ns;
  s.instr = instr;
  s.stream = (uint16_t)stream;
  return s;
}

/* In a joined plan launches of a rank, and its posts, keep their order. */
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
  weir_profile *p = g->profile;
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
  const api_ranks *r = &g->x->ranks;
  TRY(align(g));
  if (r->first > 0)
    return api_ranks_transfer(r, true, r->first, g->profile->spans, span_bytes(g->profile->plan));
  g->spans = ARENA_ARRAY(&g->scratch, r->world, rt_span *);
  size_t bytes = r->world * sizeof *g->plans;
  g->plans = memory_alloc(&memory_default, bytes);
  if (!g->plans) return STATUS_OUT_OF_MEMORY;
  memset(g->plans, 0, bytes);
  TRY(receive(g));
  return keep(g);
}

weir_status weir_profile_gather(const weir_program *p, weir_profile *profile) {
  if (!p || !profile) return api_refuse("weir_profile_gather: an argument is NULL");
  if (!profile->plan) return api_refuse("the profile is empty: no run on a device filled it");
  api_executor *x = &((weir_program *)p)->executor;
  if (profile->owner != x) return api_refuse("the profile is of a run of another program");
  if (!api_ranks_are_spread(&x->ranks) || profile->world) return WEIR_OK;
  api_begin();
  gathering g = {.x = x, .profile = profile};
  arena_init(&g.scratch, &memory_default);
  (void)pthread_mutex_lock(&((weir_program *)p)->lock);
  status st = memory_guard(gather, &g);
  (void)pthread_mutex_unlock(&((weir_program *)p)->lock);
  drop(&g);
  return api_end(st);
}
