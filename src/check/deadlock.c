/* Do all ranks get to their ends? Every stream goes as far as it can. No step makes another one
 * impossible, so the order in which streams go does not matter, and a stream that is stuck in the
 * end is stuck in every execution.
 *
 * A stuck stream waits for another one, which is stuck too. Following that ends in a cycle, and the
 * cycle is what is reported. */
#include "check/internal.h"

typedef struct queue {
  const uint32_t *instrs;
  uint32_t n, at; /* the next one */
  uint32_t rank;
  uint32_t waiters; /* stream + 1 that waits for this one; 0: none */
} queue;

typedef struct world {
  check_match *m;
  queue *streams; /* of all ranks */
  uint32_t n_streams;
  uint32_t *first_stream;  /* by rank */
  uint32_t **target;       /* by rank and instruction, of waits: how far the other must be */
  uint32_t **post_at;      /* by rank and post: its RT_POST */
  bool **posted;           /* by rank and post */
  uint32_t **post_waiters; /* likewise */
  uint32_t *missing, *meeting_waiters; /* by meeting: members that have not posted */
  uint32_t *next_waiter;               /* by stream */
  uint32_t *ready, n_ready;
} world;

/* Ranks count plans here: of ranks that are alike there is one. */
static const rt_plan *plan_of(const world *w, uint32_t rank) { return w->m->report->plans[rank]; }

/* ---- setting up ---- */
static void set_up_rank(world *w, uint32_t rank) {
  arena *memory = w->m->scratch;
  const rt_plan *plan = plan_of(w, rank);
  queue *streams = &w->streams[w->first_stream[rank]];
  uint32_t **lists = ARENA_ARRAY(memory, plan->n_streams, uint32_t *);
  w->target[rank] = ARENA_ARRAY(memory, plan->n_instrs, uint32_t);
  w->post_at[rank] = ARENA_ARRAY(memory, plan->n_posts, uint32_t);
  w->posted[rank] = ARENA_ARRAY(memory, plan->n_posts, bool);
  w->post_waiters[rank] = ARENA_ARRAY(memory, plan->n_posts, uint32_t);
  for (uint32_t p = 0; p < plan->n_posts; p++) w->post_at[rank][p] = CHECK_NONE;
  for (uint32_t i = 0; i < plan->n_instrs; i++) streams[plan->instrs[i].stream].n++;
  for (uint32_t s = 0; s < plan->n_streams; s++) {
    streams[s].instrs = lists[s] = ARENA_ARRAY(memory, streams[s].n, uint32_t);
    streams[s].rank = rank;
    streams[s].n = 0;
  }
  for (uint32_t i = 0; i < plan->n_instrs; i++) {
    const rt_instr *instr = &plan->instrs[i];
    if (instr->kind == RT_WAIT && instr->other != instr->stream)
      w->target[rank][i] = streams[instr->other].n;
    if (instr->kind == RT_POST) w->post_at[rank][instr->task] = i;
    lists[instr->stream][streams[instr->stream].n++] = i;
  }
}

static void set_up(world *w) {
  arena *memory = w->m->scratch;
  uint32_t n = w->m->report->n_plans, meetings = w->m->n_meetings;
  w->first_stream = ARENA_ARRAY(memory, n, uint32_t);
  for (uint32_t r = 0; r < n; r++) {
    w->first_stream[r] = w->n_streams;
    w->n_streams += plan_of(w, r)->n_streams;
  }
  w->streams = ARENA_ARRAY(memory, w->n_streams, queue);
  w->target = ARENA_ARRAY(memory, n, uint32_t *);
  w->post_at = ARENA_ARRAY(memory, n, uint32_t *);
  w->posted = ARENA_ARRAY(memory, n, bool *);
  w->post_waiters = ARENA_ARRAY(memory, n, uint32_t *);
  w->missing = ARENA_ARRAY(memory, meetings, uint32_t);
  w->meeting_waiters = ARENA_ARRAY(memory, meetings, uint32_t);
  w->next_waiter = ARENA_ARRAY(memory, w->n_streams, uint32_t);
  w->ready = ARENA_ARRAY(memory, w->n_streams, uint32_t);
  for (uint32_t k = 0; k < meetings; k++)
    w->missing[k] = w->m->channels.data[w->m->channel_of[k]].n;
  for (uint32_t r = 0; r < n; r++) set_up_rank(w, r);
}

/* ---- going ---- */
static void wake(world *w, uint32_t *waiters) {
  check(waiters != NULL);
  for (uint32_t s = *waiters; s; s = w->next_waiter[s - 1]) w->ready[w->n_ready++] = s - 1;
  *waiters = 0;
}

/* The first meeting of a post that has not taken place, or CHECK_NONE. */
static uint32_t open_meeting(const world *w, uint32_t rank, uint32_t post) {
  for (uint32_t p = w->m->first_part[rank][post]; p; p = w->m->parts.data[p - 1].next)
    if (w->missing[w->m->parts.data[p - 1].meeting]) return w->m->parts.data[p - 1].meeting;
  return CHECK_NONE;
}

static void do_post(world *w, uint32_t rank, uint32_t post) {
  w->posted[rank][post] = true;
  for (uint32_t p = w->m->first_part[rank][post]; p; p = w->m->parts.data[p - 1].next) {
    uint32_t meeting = w->m->parts.data[p - 1].meeting;
    if (--w->missing[meeting] == 0) wake(w, &w->meeting_waiters[meeting]);
  }
  wake(w, &w->post_waiters[rank][post]);
}

/* What keeps a stream from taking its next instruction: a list of waiters. NULL: nothing. */
static uint32_t *obstacle(world *w, const queue *q) {
  uint32_t rank = q->rank, i = q->instrs[q->at];
  const rt_plan *plan = plan_of(w, rank);
  const rt_instr *instr = &plan->instrs[i];
  switch ((rt_instr_kind)instr->kind) {
  case RT_LAUNCH: return NULL;
  case RT_WAIT: {
    queue *other = &w->streams[w->first_stream[rank] + instr->other];
    return other->at >= w->target[rank][i] ? NULL : &other->waiters;
  }
  case RT_POST: {
    uint32_t before = plan->posts[instr->task].before;
    bool free = before >= plan->n_posts || w->posted[rank][before];
    return free ? NULL : &w->post_waiters[rank][before];
  }
  case RT_JOIN: {
    uint32_t meeting = open_meeting(w, rank, instr->task);
    if (meeting != CHECK_NONE) return &w->meeting_waiters[meeting];
    return w->posted[rank][instr->task] ? NULL : &w->post_waiters[rank][instr->task];
  }
  }
  impossible("kind of instruction");
}

static void go(world *w, uint32_t stream) {
  queue *q = &w->streams[stream];
  uint32_t *waiters = NULL;
  for (; q->at < q->n && !(waiters = obstacle(w, q)); q->at++) {
    const rt_instr *instr = &plan_of(w, q->rank)->instrs[q->instrs[q->at]];
    if (instr->kind == RT_POST) do_post(w, q->rank, instr->task);
  }
  if (waiters) {
    w->next_waiter[stream] = *waiters;
    *waiters = stream + 1;
  }
  wake(w, &q->waiters);
}

/* ---- stuck streams ---- */
/* The rank of a plan in the world. */
static uint32_t rank_of(const world *w, uint32_t plan) {
  return w->m->alike ? plan_of(w, 0)->posts[0].rank : plan;
}

static check_stop stop_at(const queue *q, uint32_t for_rank, uint32_t for_instr) {
  return (check_stop){q->rank, q->instrs[q->at], for_rank, for_instr};
}

/* Translates a stop, found for one of alike ranks, to `rank`. */
static void look_from(const world *w, uint32_t rank, check_stop *stop) {
  uint32_t step = check_step_between(w->m, rank_of(w, 0), stop->for_rank);
  stop->rank = rank;
  stop->for_rank = check_step_from(w->m, rank, step, false);
}

/* For alike ranks: member k of a meeting, from the point of view of the rank that makes post `post` in it. */
static uint32_t partner_of(const world *w, const check_channel *c, uint32_t meeting, uint32_t k,
                           uint32_t post) {
  const rt_plan *plan = plan_of(w, 0);
  uint32_t turn = meeting - c->first_meeting, side = 0, rank = c->ranks[0];
  while (side < c->n && plan->instrs[c->turns[side].data[turn]].task != post) side++;
  if (side == k || !c->is_pair) return rank;
  return check_step_from(w->m, rank, c->step, k == 0);
}

/* What a stuck stream waits for. */
static check_stop stop_of(const world *w, const queue *q) {
  uint32_t rank = q->rank, i = q->instrs[q->at];
  const rt_plan *plan = plan_of(w, rank);
  const rt_instr *instr = &plan->instrs[i];
  if (instr->kind == RT_WAIT) {
    const queue *other = &w->streams[w->first_stream[rank] + instr->other];
    return stop_at(q, rank_of(w, rank), other->instrs[w->target[rank][i] - 1]);
  }
  if (instr->kind == RT_POST)
    return stop_at(q, rank_of(w, rank), w->post_at[rank][plan->posts[instr->task].before]);
  uint32_t meeting = open_meeting(w, rank, instr->task);
  if (meeting == CHECK_NONE) return stop_at(q, rank_of(w, rank), w->post_at[rank][instr->task]);
  const check_channel *c = &w->m->channels.data[w->m->channel_of[meeting]];
  for (uint32_t k = 0; k < c->n; k++) {
    uint32_t at = c->turns[k].data[meeting - c->first_meeting];
    uint32_t of = check_plan_number(w->m->report, c->ranks[k]);
    if (!w->posted[of][plan_of(w, of)->instrs[at].task])
      return stop_at(q, w->m->alike ? partner_of(w, c, meeting, k, instr->task) : of, at);
  }
  impossible("a meeting that takes place");
}

/* CHECK_NONE: for something that is nowhere in the plan. */
static uint32_t stream_for(const world *w, const check_stop *stop) {
  if (stop->for_instr == CHECK_NONE) return CHECK_NONE;
  uint32_t plan = check_plan_number(w->m->report, stop->for_rank);
  return w->first_stream[plan] + plan_of(w, plan)->instrs[stop->for_instr].stream;
}

/* The cycle begins with the lowest rank that waits for another one. */
static uint32_t first_of(const check_stop *stops, uint32_t n) {
  uint32_t best = CHECK_NONE;
  for (uint32_t k = 0; k < n; k++) {
    if (stops[k].rank == stops[k].for_rank) continue;
    if (best == CHECK_NONE || stops[k].rank < stops[best].rank) best = k;
  }
  return best == CHECK_NONE ? 0 : best;
}

static void report_cycle(world *w, uint32_t start) {
  check_world_report *r = w->m->report;
  VEC(check_stop) found = {0};
  uint32_t s = start, rank = rank_of(w, 0);
  do {
    check_stop stop = stop_of(w, &w->streams[s]);
    if (w->m->alike) look_from(w, rank, &stop);
    rank = stop.for_rank;
    vec_push(w->m->scratch, &found, stop);
    s = stream_for(w, &stop);
  } while (s != start && s != CHECK_NONE);
  uint32_t first = s == CHECK_NONE ? 0 : first_of(found.data, found.len);
  check_meeting f = {.kind = CHECK_DEADLOCK, .first = r->stops.len, .n = found.len};
  for (uint32_t k = 0; k < f.n; k++) vec_push(&r->memory, &r->stops, found.data[(first + k) % f.n]);
  const check_stop *stops = &r->stops.data[f.first];
  f.rank_a = stops->rank;
  f.a = stops->instr;
  uint32_t other = 1;
  while (other < f.n && stops[other].rank == stops[other].for_rank) other++;
  if (other == f.n) other = 0;
  f.rank_b = stops[other].rank;
  f.b = stops[other].instr;
  check_met(w->m, &f);
}

static void find_cycles(world *w) {
  uint32_t *seen = ARENA_ARRAY(w->m->scratch, w->n_streams, uint32_t); /* by which walk + 1 */
  for (uint32_t first = 0; first < w->n_streams; first++) {
    uint32_t s = first;
    while (s != CHECK_NONE && !seen[s] && w->streams[s].at < w->streams[s].n) {
      seen[s] = first + 1;
      check_stop stop = stop_of(w, &w->streams[s]);
      s = stream_for(w, &stop);
      if (s == CHECK_NONE) report_cycle(w, first);
    }
    bool stuck = s != CHECK_NONE && w->streams[s].at < w->streams[s].n;
    if (stuck && seen[s] == first + 1) report_cycle(w, s);
  }
}

void check_deadlock(check_match *m) {
  world w = {.m = m};
  set_up(&w);
  for (uint32_t s = w.n_streams; s-- > 0;) w.ready[w.n_ready++] = s;
  while (w.n_ready) go(&w, w.ready[--w.n_ready]);
  find_cycles(&w);
}
