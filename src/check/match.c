/* Which posts of the ranks meet, and whether they fit.
 *
 * Posts of a rank with the same peers have an order (posts.c proves it), and it is that of the plan. */
#include "check/internal.h"
#include "runtime/meet.h"

void check_met(check_match *m, const check_meeting *f) {
  check_world_report *r = m->report;
  r->count[f->kind]++;
  r->n_found++;
  if (r->meetings.len < m->max_findings) vec_push(&r->memory, &r->meetings, *f);
}

/* ---- channels ---- */
static uint32_t new_channel(check_match *m, uint32_t n) {
  check_channel c = {.n = n};
  c.ranks = ARENA_ARRAY(m->scratch, n, uint32_t);
  c.turns = ARENA_ARRAY(m->scratch, n, check_turns);
  vec_push(m->scratch, &m->channels, c);
  return m->channels.len - 1;
}

/* A circle is a channel, of the same number. */
static void take_turn(check_match *m, const rt_meet *meet, rt_part part, uint32_t instr) {
  if (part.circle == RT_NO_CIRCLE) return;
  const rt_circle *circle = &meet->circles.data[part.circle];
  if (part.circle == m->channels.len) {
    uint32_t k = new_channel(m, circle->n);
    check_channel *c = &m->channels.data[k];
    c->is_pair = circle->is_pair;
    for (uint32_t i = 0; i < circle->n; i++) c->ranks[i] = circle->devices[i];
  }
  vec_push(m->scratch, &m->channels.data[part.circle].turns[part.member], instr);
}

static void find_channels(check_match *m) {
  rt_meet meet;
  rt_part parts[2];
  rt_meet_init(&meet, m->scratch);
  for (uint32_t r = 0; r < m->report->n_ranks; r++) {
    const rt_plan *plan = m->report->plans[r];
    for (uint32_t i = 0; i < plan->n_instrs; i++) {
      if (plan->instrs[i].kind != RT_POST) continue;
      rt_meet_post(&meet, &plan->posts[plan->instrs[i].task], parts);
      for (int h = 0; h < 2; h++) take_turn(m, &meet, parts[h], i);
    }
  }
}

/* ---- meetings ---- */
static const rt_post *post_of(const check_match *m, uint32_t rank, uint32_t instr) {
  const rt_plan *plan = m->report->plans[rank];
  return &plan->posts[plan->instrs[instr].task];
}

static bool fit(const check_match *m, const check_channel *c, uint32_t member, uint32_t turn) {
  const rt_post *a = post_of(m, c->ranks[0], c->turns[0].data[turn]);
  const rt_post *b = post_of(m, c->ranks[member], c->turns[member].data[turn]);
  if (c->is_pair)
    return a->dtype == b->dtype &&
           a->count == (b->kind == IR_COMM_PERMUTE ? b->count_from : b->count);
  rt_comm_request x = check_request(m->report->plans[c->ranks[0]], a);
  rt_comm_request y = check_request(m->report->plans[c->ranks[member]], b);
  return rt_comm_requests_agree(&x, &y);
}

/* A member that does not come; with nobody there, the channel has ended. */
static bool somebody_absent(check_match *m, const check_channel *c, uint32_t turn) {
  check_meeting f = {
      .kind = CHECK_ABSENT, .turn = turn, .rank_a = CHECK_NONE, .rank_b = CHECK_NONE};
  for (uint32_t k = 0; k < c->n; k++) {
    const check_turns *t = &c->turns[k];
    if (t->len > turn && f.rank_a == CHECK_NONE) {
      f.rank_a = c->ranks[k];
      f.a = t->data[turn];
    } else if (t->len <= turn && f.rank_b == CHECK_NONE) {
      f.rank_b = c->ranks[k];
      f.b = t->len ? t->data[t->len - 1] : CHECK_NONE;
    }
  }
  if (f.rank_a != CHECK_NONE && f.rank_b != CHECK_NONE) check_met(m, &f);
  return f.rank_b != CHECK_NONE;
}

/* Later turns are not looked at: they would differ because of the first that does. */
static bool compare_channel(check_match *m, check_channel *c) {
  uint64_t found = m->report->n_found;
  c->first_meeting = m->n_meetings;
  for (uint32_t turn = 0; !somebody_absent(m, c, turn); turn++, m->n_meetings++) {
    for (uint32_t k = 1; k < c->n; k++) {
      if (fit(m, c, k, turn)) continue;
      check_meeting f = {.kind = CHECK_MISMATCH, .turn = turn};
      f.rank_a = c->ranks[0];
      f.a = c->turns[0].data[turn];
      f.rank_b = c->ranks[k];
      f.b = c->turns[k].data[turn];
      check_met(m, &f);
      return false;
    }
  }
  return m->report->n_found == found;
}

static void add_part(check_match *m, uint32_t rank, uint32_t instr, uint32_t meeting) {
  uint32_t *first = &m->first_part[rank][m->report->plans[rank]->instrs[instr].task];
  vec_push(m->scratch, &m->parts, ((check_part){meeting, *first}));
  *first = m->parts.len;
}

static void index_parts(check_match *m) {
  m->first_part = ARENA_ARRAY(m->scratch, m->report->n_ranks, uint32_t *);
  m->channel_of = ARENA_ARRAY(m->scratch, m->n_meetings, uint32_t);
  for (uint32_t r = 0; r < m->report->n_ranks; r++)
    m->first_part[r] = ARENA_ARRAY(m->scratch, m->report->plans[r]->n_posts, uint32_t);
  for (uint32_t k = 0; k < m->channels.len; k++) {
    const check_channel *c = &m->channels.data[k];
    for (uint32_t turn = 0; turn < c->turns[0].len; turn++) {
      m->channel_of[c->first_meeting + turn] = k;
      for (uint32_t i = 0; i < c->n; i++)
        add_part(m, c->ranks[i], c->turns[i].data[turn], c->first_meeting + turn);
    }
  }
}

bool check_match_posts(check_match *m) {
  bool good = true;
  find_channels(m);
  for (uint32_t k = 0; k < m->channels.len; k++) {
    if (!compare_channel(m, &m->channels.data[k])) good = false;
  }
  m->report->n_met = m->n_meetings;
  if (good) index_parts(m);
  return good;
}
