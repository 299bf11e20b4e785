/* Communications as they were posted, on lanes of their circles. */
#include "device/cuda/order_internal.h"

/* ---- lanes ---- */
static uint64_t lane_key(uint32_t circle, uint32_t rank) { return (uint64_t)circle << 16 | rank; }

static uint16_t lane_of(const cuda_maker *k, uint32_t circle, uint32_t rank) {
  return (uint16_t)map_get(&k->lanes, lane_key(circle, rank), 0);
}

static uint32_t rank_of(const cuda_maker *k, const cuda_meeting *m, uint32_t member) {
  return k->meetings.rank_of_post[m->posts[member]];
}

static bool is_here(const cuda_meeting *m, uint32_t member) {
  return m->posts[member] != CUDA_NOBODY;
}

typedef VEC(uint32_t) ranks;

static void add_lane(cuda_maker *k, ranks *lanes, uint32_t circle, uint32_t rank) {
  uint64_t key = lane_key(circle, rank);
  if (map_get(&k->lanes, key, CUDA_NOBODY) != CUDA_NOBODY) return;
  map_put(&k->lanes, key, k->plan->n_streams + lanes->len);
  vec_push(k->memory, lanes, rank);
}

status cuda_comms_prepare(cuda_maker *k) {
  cuda_order *o = k->order;
  ranks lanes = {0};
  map_init(&k->lanes, k->memory);
  for (uint32_t i = 0; i < k->meetings.list.len; i++) {
    const cuda_meeting *m = &k->meetings.list.data[i];
    for (uint32_t j = 0; j < m->n; j++)
      if (is_here(m, j)) add_lane(k, &lanes, m->circle, rank_of(k, m, j));
  }
  if (k->plan->n_streams + lanes.len > UINT16_MAX)
    return fail(STATUS_UNAVAILABLE,
                "cuda: the teams and pairs that communicate need %u streams, more than the %d that "
                "can be numbered",
                lanes.len, UINT16_MAX);
  o->n_lanes = lanes.len;
  o->rank_of_lane = lanes.data;
  k->ended = arena_array(k->memory, k->plan->n_posts, sizeof *k->ended);
  for (uint32_t p = 0; p < k->plan->n_posts; p++) k->ended[p][0] = k->ended[p][1] = CUDA_NOBODY;
  return STATUS_OK;
}

/* ---- one communication ---- */
static cuda_comm part_of(const cuda_maker *k, const cuda_meeting *m, uint32_t member,
                         uint32_t first) {
  cuda_comm c = {.post = m->posts[member], .circle = m->circle, .member = member};
  c.receives = m->is_pair && member == 1;
  c.rank = rank_of(k, m, member);
  c.first = first;
  c.n = m->n_here;
  return c;
}

/* A rank that sends to itself has both ends on one lane, so all waits come first. */
void cuda_comms_add(cuda_maker *k, uint32_t meeting) {
  cuda_order *o = k->order;
  cuda_meeting *m = &k->meetings.list.data[meeting];
  uint32_t first = o->comms.len;
  for (uint32_t i = 0; i < m->n; i++)
    if (is_here(m, i))
      cuda_step_add(k, CUDA_WAIT, lane_of(k, m->circle, rank_of(k, m, i)), o->posted[m->posts[i]]);
  for (uint32_t i = 0; i < m->n; i++) {
    if (!is_here(m, i)) continue;
    cuda_comm c = part_of(k, m, i, first);
    cuda_step_add(k, CUDA_COMM, lane_of(k, m->circle, c.rank), o->comms.len);
    vec_push(k->memory, &o->comms, c);
  }
  for (uint32_t i = 0; i < m->n; i++) {
    if (!is_here(m, i)) continue;
    uint32_t event = cuda_step_record(k, lane_of(k, m->circle, rank_of(k, m, i)));
    k->ended[m->posts[i]][m->is_pair ? i : 0] = event;
    vec_push(k->memory, &o->ends, ((cuda_end){.post = m->posts[i], .event = event}));
  }
  m->complete = true;
}

void cuda_comms_join(cuda_maker *k, uint16_t stream, uint32_t post) {
  for (int h = 0; h < 2; h++)
    if (k->ended[post][h] != CUDA_NOBODY) cuda_step_add(k, CUDA_WAIT, stream, k->ended[post][h]);
}
