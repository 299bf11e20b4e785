/* Communications as they were posted, on lanes of their circles. */
#include "device/issue/order_internal.h"

/* ---- lanes ---- */
static uint64_t lane_key(uint32_t circle, uint32_t rank) { return (uint64_t)circle << 16 | rank; }

static uint16_t lane_of(const issue_maker *k, uint32_t circle, uint32_t rank) {
  return (uint16_t)map_get(&k->lanes, lane_key(circle, rank), 0);
}

static uint32_t rank_of(const issue_maker *k, const issue_meeting *m, uint32_t member) {
  return k->meetings.rank_of_post[m->posts[member]];
}

static bool is_here(const issue_meeting *m, uint32_t member) {
  return m->posts[member] != ISSUE_NOBODY;
}

typedef VEC(uint32_t) ranks;

static void add_lane(issue_maker *k, ranks *lanes, uint32_t circle, uint32_t rank) {
  uint64_t key = lane_key(circle, rank);
  if (map_get(&k->lanes, key, ISSUE_NOBODY) != ISSUE_NOBODY) return;
  map_put(&k->lanes, key, k->plan->n_streams + lanes->len);
  vec_push(k->memory, lanes, rank);
}

/* ---- reductions that are only collected ---- */
static int64_t piece_bytes(const rt_post *p) {
  return p->count * (int64_t)ir_dtype_size_bytes(p->dtype);
}

static const rt_post *some_post(const issue_maker *k, const issue_meeting *m) {
  uint32_t i = 0;
  while (!is_here(m, i)) i++;
  return &k->plan->posts[m->posts[i]];
}

static bool all_give(const issue_maker *k, const issue_meeting *m) {
  for (uint32_t i = 0; i < m->n; i++)
    if (is_here(m, i) && k->plan->posts[m->posts[i]].in == RT_NO_VIEW) return false;
  return true;
}

static bool is_collected(const issue_maker *k, const issue_meeting *m) {
  const rt_post *p = some_post(k, m);
  if (m->is_pair || !ir_comm_combines(p->kind)) return false;
  return !k->options->reduces || !k->options->reduces(p, all_give(k, m));
}

/* Does this member reduce? */
static bool folds(const rt_post *p) {
  return (p->kind != IR_COMM_REDUCE || p->me == p->root) && p->out != RT_NO_VIEW && p->count > 0;
}

static void need_memory(issue_maker *k, const issue_meeting *m) {
  if (!is_collected(k, m)) return;
  for (uint32_t i = 0; i < m->n; i++) {
    if (!is_here(m, i) || !folds(&k->plan->posts[m->posts[i]])) continue;
    int64_t bytes = m->n * issue_aligned(piece_bytes(&k->plan->posts[m->posts[i]]));
    int64_t *most = &k->collected[lane_of(k, m->circle, rank_of(k, m, i)) - k->plan->n_streams];
    if (bytes > *most) *most = bytes;
  }
}

/* Lanes run at the same time, so each has a part of the memory for receiving. */
static void place_memory(issue_maker *k) {
  issue_order *o = k->order;
  k->collected = ARENA_ARRAY(k->memory, o->n_lanes, int64_t);
  for (uint32_t i = 0; i < k->meetings.list.len; i++) need_memory(k, &k->meetings.list.data[i]);
  for (uint32_t i = 0; i < o->n_lanes; i++) {
    int64_t *used = &o->staging_bytes[o->rank_of_lane[i]], bytes = k->collected[i];
    /* mutant: cuda_collected_in_one_place */
    k->collected[i] = *used;
    *used += bytes;
  }
}

static issue_place place_of(const issue_maker *k, uint32_t view) {
  const rt_view *v = &k->plan->views[view];
  return (issue_place){ISSUE_IN_BUFFER, v->buffer, v->offset_bytes};
}

static void fold_collected(issue_maker *k, const issue_comm *c, uint16_t stream) {
  const rt_post *p = &k->plan->posts[c->post];
  if (!c->collects || !folds(p)) return;
  issue_place *places = ARENA_ARRAY(k->memory, p->n_team + (size_t)1, issue_place);
  issue_fold f = {.op = p->op, .dtype = p->dtype, .count = p->count, .rank = c->rank};
  for (uint32_t i = 0; i < p->n_team; i++) {
    issue_place from = {ISSUE_IN_STAGING, c->rank, c->staging_at + i * c->stride_bytes};
    if (i == p->me && p->in == RT_NO_VIEW) continue;
    if (i == p->me) from = place_of(k, p->in);
    if (i == p->me && p->kind == IR_COMM_REDUCE_SCATTER) from.offset_bytes += i * piece_bytes(p);
    places[f.n_sources++] = from;
  }
  if (f.n_sources == 0) return;
  places[f.n_sources] = place_of(k, p->out);
  f.n_results = 1;
  f.places = places;
  issue_step_add(k, ISSUE_FOLD, stream, k->order->folds.len);
  vec_push(k->memory, &k->order->folds, f);
}

status issue_comms_prepare(issue_maker *k) {
  issue_order *o = k->order;
  ranks lanes = {0};
  map_init(&k->lanes, k->memory);
  for (uint32_t i = 0; i < k->meetings.list.len; i++) {
    const issue_meeting *m = &k->meetings.list.data[i];
    for (uint32_t j = 0; j < m->n; j++)
      if (is_here(m, j)) add_lane(k, &lanes, m->circle, rank_of(k, m, j));
  }
  if (k->plan->n_streams + lanes.len > UINT16_MAX)
    return fail(STATUS_UNAVAILABLE,
                "the teams and pairs that communicate need %u streams, more than the %d that "
                "can be numbered",
                lanes.len, UINT16_MAX);
  o->n_lanes = lanes.len;
  o->rank_of_lane = lanes.data;
  place_memory(k);
  k->ended = arena_array(k->memory, k->plan->n_posts, sizeof *k->ended);
  for (uint32_t p = 0; p < k->plan->n_posts; p++) k->ended[p][0] = k->ended[p][1] = ISSUE_NOBODY;
  return STATUS_OK;
}

/* ---- one communication ---- */
static issue_comm part_of(const issue_maker *k, const issue_meeting *m, uint32_t member,
                          uint32_t first) {
  issue_comm c = {.post = m->posts[member], .circle = m->circle, .member = member};
  c.receives = m->is_pair && member == 1;
  c.rank = rank_of(k, m, member);
  c.first = first;
  c.n = m->n_here;
  c.collects = is_collected(k, m);
  c.stride_bytes = issue_aligned(piece_bytes(&k->plan->posts[c.post]));
  c.staging_at = k->collected[lane_of(k, m->circle, c.rank) - k->plan->n_streams];
  return c;
}

/* A rank that sends to itself has both ends on one lane, so all waits come before the COMMs. */
void issue_comms_add(issue_maker *k, uint32_t meeting) {
  issue_order *o = k->order;
  issue_meeting *m = &k->meetings.list.data[meeting];
  uint32_t first = o->comms.len;
  /* mutant: cuda_comm_before_post */
  for (uint32_t i = 0; i < m->n; i++)
    if (is_here(m, i))
      issue_step_add(k, ISSUE_WAIT, lane_of(k, m->circle, rank_of(k, m, i)),
                     o->posted[m->posts[i]]);
  for (uint32_t i = 0; i < m->n; i++) {
    if (!is_here(m, i)) continue;
    issue_comm c = part_of(k, m, i, first);
    issue_step_add(k, ISSUE_COMM, lane_of(k, m->circle, c.rank), o->comms.len);
    vec_push(k->memory, &o->comms, c);
  }
  for (uint32_t i = first; i < o->comms.len; i++) {
    const issue_comm *c = &o->comms.data[i];
    /* mutant: cuda_collected_not_folded */
    fold_collected(k, c, lane_of(k, m->circle, c->rank));
  }
  for (uint32_t i = 0; i < m->n; i++) {
    if (!is_here(m, i)) continue;
    uint32_t event = issue_step_record(k, lane_of(k, m->circle, rank_of(k, m, i)));
    k->ended[m->posts[i]][m->is_pair ? i : 0] = event;
    vec_push(k->memory, &o->ends, ((issue_end){.post = m->posts[i], .event = event}));
  }
  m->complete = true;
}

void issue_comms_join(issue_maker *k, uint16_t stream, uint32_t post) {
  /* mutant: cuda_comm_half_joined */
  for (int h = 0; h < 2; h++)
    if (k->ended[post][h] != ISSUE_NOBODY) issue_step_add(k, ISSUE_WAIT, stream, k->ended[post][h]);
}

void issue_comms_mark(issue_maker *k) {
  issue_order *o = k->order;
  uint32_t at = 0;
  bool *works = ARENA_ARRAY(k->memory, k->plan->n_streams + (size_t)o->n_lanes, bool);
  __typeof__(o->steps) marked = {0};
  for (uint32_t i = 0; i < k->plan->n_instrs; i++) {
    for (; at < o->upto[i]; at++) {
      issue_step s = o->steps.data[at];
      bool waits = s.kind == ISSUE_WAIT;
      if (waits && works[s.stream])
        vec_push(k->memory, &marked, ((issue_step){ISSUE_RECORD, s.stream, o->n_events++}));
      works[s.stream] = !waits && s.kind != ISSUE_RECORD;
      vec_push(k->memory, &marked, s);
    }
    o->upto[i] = marked.len;
  }
  o->steps.data = marked.data;
  o->steps.len = marked.len;
  o->steps.cap = marked.cap;
}
