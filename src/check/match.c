/* Which posts of the ranks meet, and whether they fit.
 *
 * Posts of a rank with the same peers have an order (posts.c proves it), and it is that of the plan. */
#include "check/internal.h"
#include "runtime/meet.h"

void check_met(check_match *m, const check_meeting *f) {
  check_world_report *r = m->report;
  uint64_t times = m->alike ? r->n_ranks : 1;
  r->count[f->kind] += times;
  r->n_found += times;
  if (r->meetings.len < m->max_findings) vec_push(&r->memory, &r->meetings, *f);
}

/* ---- channels ---- */
static uint32_t new_channel(check_match *m, uint32_t n) {
  check_channel c = {.n = n, .times = 1};
  c.ranks = ARENA_ARRAY(m->scratch, n, uint32_t);
  c.turns = ARENA_ARRAY(m->scratch, n, check_turns);
  vec_push(m->scratch, &m->channels, c);
  return m->channels.len - 1;
}

/* A circle is a channel, of the same number. Of ranks that are alike, a team has one member, and
 * all pairs that are as far from each other are one. */
static void open_channel(check_match *m, const rt_circle *circle, uint32_t me) {
  bool is_team = m->alike && !circle->is_pair;
  uint32_t number = new_channel(m, is_team ? 1 : circle->n);
  check_channel *c = &m->channels.data[number];
  c->is_pair = circle->is_pair;
  for (uint32_t i = 0; i < c->n; i++) c->ranks[i] = circle->devices[is_team ? me : i];
  if (!m->alike) return;
  c->times = m->report->n_ranks / (is_team ? circle->n : 1);
  if (c->is_pair) c->step = check_step_between(m, c->ranks[0], c->ranks[1]);
}

static void take_turn(check_match *m, const rt_meet *meet, rt_part part, uint32_t instr) {
  if (part.circle == RT_NO_CIRCLE) return;
  const rt_circle *circle = &meet->circles.data[part.circle];
  if (part.circle == m->channels.len) open_channel(m, circle, part.member);
  uint32_t member = m->alike && !circle->is_pair ? 0 : part.member;
  vec_push(m->scratch, &m->channels.data[part.circle].turns[member], instr);
}

/* For alike ranks: the part of a message, as if the bound rank sent all messages. What it
 * receives from a step back is what the rank a step ahead receives from it. */
static rt_part half_of(const check_match *m, rt_meet *meet, const rt_post *p, bool sends) {
  uint32_t step = sends ? check_step_between(m, p->rank, p->team[p->to])
                        : check_step_between(m, p->team[p->from], p->rank);
  uint32_t pair[2] = {p->rank, check_step_from(m, p->rank, step, false)};
  rt_post half = {.kind = sends ? IR_COMM_SEND : IR_COMM_RECV, .team = pair, .n_team = 2};
  half.me = sends ? 0 : 1;
  half.to = sends ? 1 : RT_COMM_NOBODY;
  half.from = sends ? RT_COMM_NOBODY : 0;
  rt_part parts[2];
  rt_meet_post(meet, &half, parts);
  return parts[sends ? 0 : 1];
}

static void meet_alike(const check_match *m, rt_meet *meet, const rt_post *p, rt_part parts[2]) {
  if (!ir_comm_is_message(p->kind)) {
    rt_meet_post(meet, p, parts);
    return;
  }
  parts[0] = parts[1] = (rt_part){.circle = RT_NO_CIRCLE};
  if (p->kind != IR_COMM_RECV && p->to >= 0) parts[0] = half_of(m, meet, p, true);
  if (p->kind != IR_COMM_SEND && p->from >= 0) parts[1] = half_of(m, meet, p, false);
}

/* A circle is new when its first part is taken: the other half comes after that. */
static void sort_post(check_match *m, rt_meet *meet, const rt_post *p, uint32_t instr) {
  rt_part parts[2];
  if (m->alike) meet_alike(m, meet, p, parts);
  else rt_meet_post(meet, p, parts);
  for (int h = 0; h < 2; h++) take_turn(m, meet, parts[h], instr);
}

static void find_channels(check_match *m) {
  rt_meet meet;
  rt_meet_init(&meet, m->scratch);
  for (uint32_t r = 0; r < m->report->n_plans; r++) {
    const rt_plan *plan = m->report->plans[r];
    for (uint32_t i = 0; i < plan->n_instrs; i++)
      if (plan->instrs[i].kind == RT_POST && !check_is_in_stretch(m, plan, i))
        sort_post(m, &meet, &plan->posts[plan->instrs[i].task], i);
  }
}

/* ---- meetings ---- */
static const rt_post *post_of(const check_match *m, uint32_t rank, uint32_t instr) {
  const rt_plan *plan = check_plan_of(m->report, rank);
  return &plan->posts[plan->instrs[instr].task];
}

static bool fit(const check_match *m, const check_channel *c, uint32_t member, uint32_t turn) {
  const rt_post *a = post_of(m, c->ranks[0], c->turns[0].data[turn]);
  const rt_post *b = post_of(m, c->ranks[member], c->turns[member].data[turn]);
  if (c->is_pair)
    return a->dtype == b->dtype &&
           a->count == (b->kind == IR_COMM_PERMUTE ? b->count_from : b->count);
  rt_comm_request x = check_request(check_plan_of(m->report, c->ranks[0]), a);
  rt_comm_request y = check_request(check_plan_of(m->report, c->ranks[member]), b);
  return rt_comm_requests_agree(&x, &y);
}

/* ---- loops ---- */
/* Loops of a stretch are looked at by themselves (peers.c). */
static bool is_of_stretch(const rt_plan *plan, const rt_loop *l) {
  for (uint32_t i = l->first; i < l->first + l->n; i++)
    if (plan->instrs[i].kind == RT_POST) return rt_post_moves(&plan->posts[plan->instrs[i].task]);
  return false;
}

uint32_t check_part_of(const rt_plan *plan, uint32_t instr) {
  uint32_t part = 0;
  for (uint32_t k = 0; k < plan->n_loops; k++) {
    const rt_loop *l = &plan->loops[k];
    if (is_of_stretch(plan, l)) continue;
    if (instr < l->first + l->n) return part + (instr >= l->first);
    part += 2;
  }
  return part;
}

static uint32_t times_of(const rt_plan *plan, uint32_t instr) {
  for (uint32_t k = 0; k < plan->n_loops; k++) {
    const rt_loop *l = &plan->loops[k];
    if (instr >= l->first && instr < l->first + l->n) return l->times;
  }
  return 1;
}

static uint32_t stretches_before(const check_match *m, uint32_t rank, uint32_t instr) {
  uint32_t k = check_plan_number(m->report, rank);
  return m->stretches ? m->stretches->begun[k][m->report->plans[k]->instrs[instr].task] : 0;
}

/* Do the members meet in the same loop, done as often, or between the same loops and stretches? */
static bool is_even(const check_match *m, const check_channel *c, uint32_t member, uint32_t turn) {
  const rt_plan *a = check_plan_of(m->report, c->ranks[0]);
  const rt_plan *b = check_plan_of(m->report, c->ranks[member]);
  uint32_t i = c->turns[0].data[turn], k = c->turns[member].data[turn];
  return check_part_of(a, i) == check_part_of(b, k) && times_of(a, i) == times_of(b, k) &&
         stretches_before(m, c->ranks[0], i) == stretches_before(m, c->ranks[member], k);
}

/* Does a member have no post in this turn? If no member has one, the channel has ended. */
static bool some_member_absent(check_match *m, const check_channel *c, uint32_t turn) {
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
  for (uint32_t turn = 0; !some_member_absent(m, c, turn); turn++, m->n_meetings++) {
    for (uint32_t k = 1; k < c->n; k++) {
      if (!is_even(m, c, k, turn)) m->uneven = true;
      if (fit(m, c, k, turn)) continue;
      check_meeting f = {.kind = CHECK_MISMATCH, .turn = turn};
      f.rank_a = c->ranks[0];
      f.a = c->turns[0].data[turn];
      f.rank_b = c->ranks[k];
      f.b = c->turns[k].data[turn];
      check_met(m, &f);
      return false;
    }
    uint32_t times = times_of(check_plan_of(m->report, c->ranks[0]), c->turns[0].data[turn]);
    m->report->n_met += (uint64_t)times * c->times;
  }
  return m->report->n_found == found;
}

static void add_part(check_match *m, uint32_t rank, uint32_t instr, uint32_t meeting) {
  uint32_t k = check_plan_number(m->report, rank);
  uint32_t *first = &m->first_part[k][m->report->plans[k]->instrs[instr].task];
  vec_push(m->scratch, &m->parts, ((check_part){meeting, *first}));
  *first = m->parts.len;
}

static void index_parts(check_match *m) {
  m->first_part = ARENA_ARRAY(m->scratch, m->report->n_plans, uint32_t *);
  m->channel_of = ARENA_ARRAY(m->scratch, m->n_meetings, uint32_t);
  for (uint32_t r = 0; r < m->report->n_plans; r++)
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
  check_find_stretches(m);
  if (m->uneven) return false;
  find_channels(m);
  for (uint32_t k = 0; k < m->channels.len; k++) {
    check_channel *c = &m->channels.data[k];
    if (!compare_channel(m, c)) good = false;
  }
  if (good) index_parts(m);
  return good;
}
