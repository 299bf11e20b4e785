#include "device/issue/order.h"

#include "device/issue/order_internal.h"

/* ---- steps ---- */
void issue_step_add(issue_maker *k, issue_step_kind kind, uint16_t stream, uint32_t index) {
  issue_step s = {.kind = (uint8_t)kind, .stream = stream, .index = index};
  vec_push(k->memory, &k->order->steps, s);
  if (stream >= k->plan->n_streams)
    k->recorded[stream - k->plan->n_streams] = kind == ISSUE_RECORD ? index : ISSUE_NOBODY;
}

uint32_t issue_step_record(issue_maker *k, uint16_t stream) {
  uint32_t event = k->order->n_events++;
  issue_step_add(k, ISSUE_RECORD, stream, event);
  return event;
}

/* ---- bytes ---- */
issue_range issue_range_of(const rt_plan *plan, uint32_t view, int64_t bytes) {
  const rt_view *v = &plan->views[view];
  const rt_buffer *b = &plan->buffers[v->buffer];
  bool in_pool = b->kind == RT_BUFFER_POOL;
  int64_t start = (in_pool ? b->offset_bytes : 0) + v->offset_bytes;
  int64_t size = (int64_t)ir_dtype_size_bytes(v->dtype);
  issue_range r = {in_pool ? 0 : 1 + v->buffer, start, start + (bytes < 0 ? size : bytes)};
  for (uint32_t d = 0; d < v->rank && bytes < 0; d++) {
    int64_t reach = (v->extents[d] - 1) * v->strides[d] * size;
    if (v->extents[d] == 0) r.end = r.begin;
    else if (reach < 0) r.begin += reach;
    else r.end += reach;
  }
  return r;
}

bool issue_ranges_meet(const issue_range *a, const issue_range *b) {
  return a->space == b->space && a->begin < b->end && b->begin < a->end;
}

int64_t issue_input_bytes(const rt_post *p) {
  bool pieces = ir_comm_in_pieces(p->kind);
  return p->count * (int64_t)ir_dtype_size_bytes(p->dtype) * (pieces ? p->n_team : 1);
}

/* ---- entries of streams ---- */
static bool is_over(const issue_maker *k, uint32_t post) {
  for (int h = 0; h < 2; h++) {
    uint32_t m = k->meetings.of_post[post][h];
    if (m != ISSUE_NOBODY && !k->meetings.list.data[m].complete) return false;
  }
  return k->is_posted[post];
}

/* Is everything that the entry waits for in the order? */
static bool is_ready(const issue_maker *k, const rt_entry *e) {
  switch ((rt_instr_kind)e->kind) {
  case RT_LAUNCH: return true;
  case RT_WAIT: return k->issued[e->other] >= e->target;
  case RT_JOIN: return is_over(k, e->task);
  case RT_POST: {
    uint32_t before = k->plan->posts[e->task].before;
    return before == RT_NO_POST || k->is_posted[before];
  }
  }
  return true;
}

/* A post that must follow another one (`before`) waits for the event of that post. So everything before the earlier
 * post comes before the later one, too. */
static void add_post(issue_maker *k, uint16_t stream, uint32_t post) {
  uint32_t before = k->plan->posts[post].before;
  if (before != RT_NO_POST && k->plan->instrs[k->meetings.instr_of_post[before]].stream != stream)
    issue_step_add(k, ISSUE_WAIT, stream, k->order->posted[before]);
  k->order->posted[post] = issue_step_record(k, stream);
  k->is_posted[post] = true;
  for (int h = 0; h < 2; h++) {
    uint32_t at = k->meetings.of_post[post][h];
    if (at == ISSUE_NOBODY) continue;
    issue_meeting *m = &k->meetings.list.data[at];
    if (++m->arrived < m->n_here) continue;
    if (k->options->as_posted) issue_comms_add(k, at);
    else issue_moves_add(k, at);
  }
}

/* ---- joins ----
 * A join promises that the output is written and that the input may be overwritten. Only the first is
 * waited for at once; an overwrite of the input waits for the rest. */
static bool concerns(const issue_maker *k, const issue_meeting *m, uint32_t end, uint32_t member,
                     uint8_t what) {
  if (m->n > ISSUE_MOST_MEMBERS) return what == ISSUE_WRITES;
  return k->end_flags.data[(size_t)end * ISSUE_MOST_MEMBERS + member] & what;
}

static void wait_ends(issue_maker *k, uint16_t stream, uint32_t meeting, uint32_t member,
                      uint8_t what) {
  const issue_meeting *m = &k->meetings.list.data[meeting];
  for (uint32_t e = m->first_end; e < m->first_end + m->n_ends; e++)
    if (concerns(k, m, e, member, what)) issue_step_add(k, ISSUE_WAIT, stream, k->ends.data[e]);
}

static void join_half(issue_maker *k, uint16_t stream, uint32_t post, uint32_t meeting,
                      uint32_t member) {
  issue_readings *list = &k->readings[k->meetings.rank_of_post[post]];
  const rt_post *p = &k->plan->posts[post];
  wait_ends(k, stream, meeting, member, ISSUE_WRITES);
  if (p->in == RT_NO_VIEW || k->meetings.list.data[meeting].n > ISSUE_MOST_MEMBERS) return;
  if (list->len >= ISSUE_MOST_READINGS) {
    wait_ends(k, stream, meeting, member, ISSUE_READS);
    return;
  }
  for (uint32_t i = 0; i < list->len; i++)
    if (list->data[i].meeting == meeting && list->data[i].member == member) return;
  issue_reading r = {issue_range_of(k->plan, p->in, issue_input_bytes(p)), meeting, member,
                     UINT16_MAX};
  vec_push(k->memory, list, r);
}

static void add_join(issue_maker *k, uint16_t stream, uint32_t post) {
  if (k->options->as_posted) {
    issue_comms_join(k, stream, post);
    return;
  }
  /* also where nothing is written: what came before the post is done for a stream that joins it */
  /* mutant: cuda_join_forgets_the_post */
  if (k->plan->instrs[k->meetings.instr_of_post[post]].stream != stream)
    issue_step_add(k, ISSUE_WAIT, stream, k->order->posted[post]);
  for (int h = 0; h < 2; h++) {
    uint32_t at = k->meetings.of_post[post][h];
    if (at == ISSUE_NOBODY) continue;
    const issue_meeting *m = &k->meetings.list.data[at];
    uint32_t member = m->is_pair ? (uint32_t)h : k->plan->posts[post].me;
    join_half(k, stream, post, at, member);
  }
}

/* Does a view have all bytes of its range? */
static bool fills(const rt_plan *plan, uint32_t view, const issue_range *range) {
  const rt_view *v = &plan->views[view];
  int64_t bytes = (int64_t)ir_dtype_size_bytes(v->dtype);
  for (uint32_t i = 0; i < v->rank; i++) bytes *= v->extents[i];
  return bytes == range->end - range->begin;
}

static void overwrite(issue_maker *k, uint16_t stream, uint32_t result) {
  const rt_plan *plan = k->plan;
  issue_readings *list = &k->readings[rt_plan_rank(plan, stream)];
  uint32_t kept = 0;
  issue_range to = issue_range_of(plan, result, -1);
  for (uint32_t i = 0; i < list->len; i++) {
    issue_reading r = list->data[i];
    bool meets = issue_ranges_meet(&r.range, &to);
    if (meets && r.stream != stream) wait_ends(k, stream, r.meeting, r.member, ISSUE_READS);
    if (meets) r.stream = stream;
    /* what comes later is ordered after this task, unless both write between each other's bytes */
    bool gone =
        meets && to.begin <= r.range.begin && r.range.end <= to.end && fills(plan, result, &to);
    if (!gone) list->data[kept++] = r;
  }
  list->len = kept;
}

static void add_launch(issue_maker *k, uint16_t stream, uint32_t task) {
  const rt_task *t = &k->plan->tasks[task];
  for (uint32_t i = 0; i < rt_task_n_results(t); i++) overwrite(k, stream, rt_task_result(t, i));
  issue_step_add(k, ISSUE_LAUNCH, stream, task);
}

/* The event of the last entry that is waited for. In a plan with loops, that is the last entry in the order so far. */
static uint32_t awaited(const issue_maker *k, const rt_entry *e) {
  uint32_t n = k->plan->n_loops ? k->issued[e->other] : e->target;
  return k->event_of[e->other][n - 1];
}

void issue_entry_add(issue_maker *k, uint32_t stream) {
  uint32_t at = k->issued[stream]++;
  const rt_entry *e = &k->queues.streams[stream].entries[at];
  uint16_t s = (uint16_t)stream;
  switch ((rt_instr_kind)e->kind) {
  case RT_LAUNCH: add_launch(k, s, e->task); break;
  case RT_WAIT:
    if (e->target) issue_step_add(k, ISSUE_WAIT, s, awaited(k, e));
    break;
  case RT_POST: add_post(k, s, e->task); break;
  case RT_JOIN: add_join(k, s, e->task); break;
  }
  if (e->signals) k->event_of[stream][at] = issue_step_record(k, s);
}

static bool advance(issue_maker *k, uint32_t stream) {
  bool moved = false;
  while (k->issued[stream] < k->given[stream]) {
    uint32_t at = k->issued[stream];
    if (!is_ready(k, &k->queues.streams[stream].entries[at])) break;
    issue_entry_add(k, stream);
    moved = true;
  }
  return moved;
}

/* The host has reached one more entry of the stream. Streams that waited for it may now advance. */
static void reach(issue_maker *k, uint32_t stream) {
  k->given[stream]++;
  bool moved = advance(k, stream);
  while (moved) {
    moved = false;
    for (uint32_t s = 0; s < k->plan->n_streams; s++)
      if (k->issued[s] < k->given[s]) moved = advance(k, s) || moved;
  }
}

/* ---- what comes first ---- */
static bool may_begin(const issue_maker *k, uint32_t stream, uint32_t at) {
  const rt_queue *q = &k->queues.streams[stream];
  if (at == q->n) return false;
  const rt_entry *e = &q->entries[at];
  return (e->kind == RT_WAIT || e->kind == RT_POST) && is_ready(k, e);
}

/* Issuing a product takes the host as long as a link takes for a megabyte. So if a stream begins with posts,
 * these are issued before anything else; for each rank, on the first such stream. */
static void begin_links(issue_maker *k) {
  const rt_plan *plan = k->plan;
  for (uint32_t s = 0, done = 0; s < plan->n_streams; s++) {
    uint32_t rank = rt_plan_rank(plan, s), at = 0;
    if (rank < done) continue;
    while (may_begin(k, s, at) && k->queues.streams[s].entries[at].kind == RT_WAIT) at++;
    if (!may_begin(k, s, at)) continue;
    for (at = 0; may_begin(k, s, at); at++) issue_entry_add(k, s);
    done = rank + 1;
  }
}

/* ---- what never comes ---- */
static void add_absent(const issue_maker *k, uint32_t post, rt_comm_line *l) {
  const rt_plan *plan = k->plan;
  for (int h = 0; h < 2; h++) {
    uint32_t at = k->meetings.of_post[post][h];
    if (at == ISSUE_NOBODY) continue;
    const issue_meeting *m = &k->meetings.list.data[at];
    for (uint32_t i = 0; i < m->n; i++) {
      uint32_t other = m->posts[i];
      if (other != ISSUE_NOBODY && k->is_posted[other]) continue;
      const rt_post *p = &plan->posts[post];
      uint32_t device = m->is_pair ? (uint32_t)(i == 0 ? p->from : p->to) : i;
      rt_comm_line_add(l, ": rank %u has not posted it", p->team[device]);
    }
  }
}

/* "f:5: rank 0 waits for allreduce of 6 i64 (sum) at f:4: rank 1 has not posted it" */
static void add_stuck(const issue_maker *k, uint32_t stream, rt_comm_line *l) {
  const rt_entry *e = &k->queues.streams[stream].entries[k->issued[stream]];
  char request[256];
  if (e->kind != RT_JOIN || !k->is_posted[e->task]) return;
  issue_meetings_text(&k->meetings, e->task, k->memory, request, sizeof request);
  rt_comm_line_add(l, "%srank %u waits for %s", l->used ? "; " : "", k->plan->posts[e->task].rank,
                   request);
  add_absent(k, e->task, l);
}

static status check_end(const issue_maker *k) {
  char text[1024];
  rt_comm_line l = rt_comm_line_of(text, sizeof text);
  bool stuck = false;
  for (uint32_t s = 0; s < k->plan->n_streams; s++) {
    if (k->issued[s] == k->queues.streams[s].n) continue;
    stuck = true;
    add_stuck(k, s, &l);
  }
  if (!stuck) return STATUS_OK;
  return fail(STATUS_UNAVAILABLE, "no progress is possible: %s",
              l.used ? text : "streams wait for one another");
}

/* ---- all of it ---- */
/* Memory to receive into, for the largest segment that a rank reduces. */
static void size_stagings(issue_maker *k) {
  const rt_plan *plan = k->plan;
  for (uint32_t r = 0; r < k->order->n_ranks; r++)
    for (uint32_t i = 0; i < ISSUE_STAGINGS; i++) k->stagings[r].freed[i] = ISSUE_NOBODY;
  bool needed = k->options->staged && !k->options->as_posted;
  for (uint32_t p = 0; p < plan->n_posts && needed; p++) {
    const rt_post *post = &plan->posts[p];
    uint32_t rank = k->meetings.rank_of_post[p];
    issue_staging *s = &k->stagings[rank];
    if (!ir_comm_combines(post->kind)) continue;
    int64_t bytes = post->count * (int64_t)ir_dtype_size_bytes(post->dtype);
    int64_t most = issue_aligned(issue_longest_segment_bytes(k, bytes)) * (post->n_team - 1);
    if (most > s->size_bytes) s->size_bytes = most;
    k->order->staging_bytes[rank] = ISSUE_STAGINGS * s->size_bytes;
  }
}

static void prepare(issue_maker *k) {
  const rt_plan *plan = k->plan;
  uint32_t ranks = k->order->n_ranks, n = plan->n_streams;
  rt_queues_build(plan, k->memory, &k->queues);
  k->given = ARENA_ARRAY(k->memory, n, uint32_t);
  k->issued = ARENA_ARRAY(k->memory, n, uint32_t);
  k->event_of = ARENA_ARRAY(k->memory, n, uint32_t *);
  uint32_t *entries = ARENA_ARRAY(k->memory, n, uint32_t); /* in memory */
  for (uint32_t i = 0; i < plan->n_instrs; i++) entries[plan->instrs[i].stream]++;
  for (uint32_t s = 0; s < n; s++) k->event_of[s] = ARENA_ARRAY(k->memory, entries[s], uint32_t);
  k->is_posted = ARENA_ARRAY(k->memory, plan->n_posts, bool);
  k->slots = ARENA_ARRAY(k->memory, ranks, issue_slots);
  for (uint32_t r = 0; r < ranks; r++)
    for (uint32_t i = 0; i < ISSUE_SLOTS; i++)
      k->slots[r].slots[i].readers = ARENA_ARRAY(k->memory, ranks, uint32_t);
  k->stagings = ARENA_ARRAY(k->memory, ranks, issue_staging);
  k->readings = arena_array(k->memory, ranks, sizeof *k->readings);
  k->flags = ARENA_ARRAY(k->memory, ISSUE_LANES * (size_t)ranks * ISSUE_MOST_MEMBERS, uint8_t);
  k->uses = arena_array(k->memory, plan->n_buffers, sizeof *k->uses);
  k->entered = ARENA_ARRAY(k->memory, ISSUE_LANES * (size_t)ranks, bool);
  k->needs = ARENA_ARRAY(k->memory, ISSUE_LANES * (size_t)ranks * (ranks + 1), bool);
}

/* Lanes of a rank that moves its own data, or of circles. */
static status make_lanes(issue_maker *k) {
  issue_order *o = k->order;
  if (k->options->as_posted) TRY(issue_comms_prepare(k));
  else {
    o->n_lanes = ISSUE_LANES * o->n_ranks;
    o->rank_of_lane = ARENA_ARRAY(k->memory, o->n_lanes, uint32_t);
    for (uint32_t i = 0; i < o->n_lanes; i++) o->rank_of_lane[i] = i / ISSUE_LANES;
  }
  k->recorded = ARENA_ARRAY(k->memory, o->n_lanes, uint32_t);
  for (uint32_t i = 0; i < o->n_lanes; i++) k->recorded[i] = ISSUE_NOBODY;
  return STATUS_OK;
}

static status add_all(issue_maker *k) {
  begin_links(k);
  for (uint32_t i = 0; i < k->plan->n_instrs; i++) {
    reach(k, k->plan->instrs[i].stream);
    k->order->upto[i] = k->order->steps.len;
  }
  return check_end(k);
}

/* Turns the numbers of slots into offsets, now that the size of a slot is known. */
static void place_slots(issue_maker *k) {
  issue_order *o = k->order;
  for (uint32_t i = 0; i < o->copies.len; i++) {
    issue_copy *c = &o->copies.data[i];
    issue_place *place = c->to.kind == ISSUE_IN_SLOTS ? &c->to : &c->from;
    if (place->kind == ISSUE_IN_SLOTS) place->offset_bytes *= k->slots[place->index].size_bytes;
  }
  for (uint32_t r = 0; r < o->n_ranks; r++) {
    const issue_slots *s = &k->slots[r];
    o->slots_bytes[r] = (s->next < ISSUE_SLOTS ? s->next : ISSUE_SLOTS) * s->size_bytes;
  }
}

static void list_ends(issue_maker *k) {
  for (uint32_t p = 0; p < k->plan->n_posts; p++) {
    for (int h = 0; h < 2; h++) {
      uint32_t at = k->meetings.of_post[p][h];
      if (at == ISSUE_NOBODY) continue;
      const issue_meeting *m = &k->meetings.list.data[at];
      for (uint32_t i = 0; i < m->n_ends; i++) {
        issue_end end = {.post = p, .event = k->ends.data[m->first_end + i]};
        vec_push(k->memory, &k->order->ends, end);
      }
    }
  }
}

status issue_order_make(const rt_plan *plan, const issue_order_options *options, arena *memory,
                        issue_order *result) {
  *result = (issue_order){.n_ranks = plan->n_ranks ? plan->n_ranks : 1};
  issue_maker *k = ARENA_NEW(memory, issue_maker);
  k->plan = plan;
  k->options = options;
  k->memory = memory;
  k->order = result;
  result->upto = ARENA_ARRAY(memory, plan->n_instrs, uint32_t);
  result->posted = ARENA_ARRAY(memory, plan->n_posts, uint32_t);
  result->staging_bytes = ARENA_ARRAY(memory, result->n_ranks, int64_t);
  result->slots_bytes = ARENA_ARRAY(memory, result->n_ranks, int64_t);
  prepare(k);
  TRY(issue_meetings_make(plan, options->as_posted, memory, &k->meetings));
  result->meetings = &k->meetings;
  result->circles = k->meetings.meet.circles.data;
  result->n_circles = k->meetings.meet.circles.len;
  TRY(make_lanes(k));
  issue_segments_size(k);
  size_stagings(k);
  if (plan->n_loops) issue_loops_add(k);
  else TRY(add_all(k));
  place_slots(k);
  issue_order_spare_streams(k);
  issue_order_prune(k);
  if (!options->as_posted) list_ends(k);
  return STATUS_OK;
}
