/* Messages whose peers move with a loop: shows that they meet, and that no rank waits for ever, without going
 * through all of them (docs/loops.md).
 *
 * A stretch of a rank is a part of its plan in which it sends to peers in ascending order, at most once to each, and
 * receives likewise, as in an exchange with all peers in turn. What it sends is a few runs of neighbouring peers. The
 * k-th stretches of all members of a team must meet each other completely. */
#include <stdlib.h>

#include "check/internal.h"

/* Messages of a rank to, or from, peers [first, end) of its team, one each. */
typedef struct run {
  uint32_t stretch, team, n_team, me, first, end;
  bool sends;
  ir_dtype dtype;
  int64_t count;
} run;

typedef struct walking {
  check_match *m;
  check_stretches *s;
  const rt_plan *plan;
  uint32_t number;   /* of the plan */
  uint32_t *post_at; /* by post, or CHECK_NONE */
  check_teams teams;
  VEC(run) runs; /* of all ranks */
  bool fits;
  bool open;  /* a stretch is under way: */
  uint32_t n; /* the number of stretches so far, this one included */
  uint32_t team;
  int64_t last, last_sent, last_received; /* peers */
  bool joined; /* something, after the first message with the last peer was posted */
} walking;

static const rt_post *post_of(const walking *w, uint32_t instr) {
  return &w->plan->posts[w->plan->instrs[instr].task];
}

static bool is_post(const rt_plan *plan, uint32_t instr) {
  return plan->instrs[instr].kind == RT_POST;
}

bool check_is_in_stretch(const check_match *m, const rt_plan *plan, uint32_t instr) {
  return m->stretches && is_post(plan, instr) && m->stretches->moves[plan->instrs[instr].origin] &&
         ir_comm_is_message(plan->posts[plan->instrs[instr].task].kind);
}

/* ---- runs ---- */
static int64_t peer_of(const rt_post *p) { return p->kind == IR_COMM_SEND ? p->to : p->from; }

static int64_t step_of(const rt_post *p) {
  return p->kind == IR_COMM_SEND ? p->to_step : p->from_step;
}

static void begin_stretch(walking *w) {
  w->open = true;
  w->n++;
  w->team = CHECK_NONE;
  w->last = w->last_sent = w->last_received = -1;
  w->joined = false;
}

/* The messages of a stretch ascend; with one peer all are posted before any is joined. */
static void enter(walking *w, const rt_post *p, bool may_begin) {
  int64_t peer = peer_of(p), *same = p->kind == IR_COMM_SEND ? &w->last_sent : &w->last_received;
  bool goes_on = w->open && peer >= w->last && peer > *same;
  if (!goes_on && may_begin) begin_stretch(w);
  else if (!goes_on || (peer == w->last && w->joined)) w->fits = false;
  if (peer > w->last) w->joined = false;
  w->last = *same = peer;
  uint32_t team = check_team_of(&w->teams, p);
  if (w->team != CHECK_NONE && w->team != team) w->fits = false;
  w->team = team;
  if (p->kind == IR_COMM_PERMUTE || peer < 0) w->fits = false;
}

static void add_run(walking *w, const rt_post *p, int64_t n) {
  run r = {.stretch = w->n, .team = w->team, .n_team = p->n_team, .me = p->me};
  int64_t first = peer_of(p);
  r.sends = p->kind == IR_COMM_SEND;
  r.dtype = p->dtype;
  r.count = p->count;
  r.first = (uint32_t)first;
  r.end = (uint32_t)(first + n);
  if (first < 0 || first + n > p->n_team) w->fits = false;
  else vec_push(w->m->scratch, &w->runs, r);
}

/* ---- loops ---- */
/* The messages of one direction in a repetition: neighbours, and the next repetition has the next ones. */
typedef struct half {
  const rt_post *first, *last;
  uint32_t n;
} half;

static void add_to_half(walking *w, half *h, const rt_post *p) {
  const rt_post *last = h->last;
  bool next = !last || (peer_of(p) == peer_of(last) + 1 && step_of(p) == step_of(last) &&
                        p->dtype == last->dtype && p->count == last->count);
  if (!next) w->fits = false;
  if (!last) h->first = p;
  h->last = p;
  h->n++;
}

static void end_half(walking *w, const half *h, uint32_t times, int64_t *last_peer) {
  if (h->n == 0) return;
  if (step_of(h->first) != h->n) w->fits = false;
  *last_peer = peer_of(h->last) + step_of(h->last) * (times - 1);
  add_run(w, h->first, (int64_t)h->n * times);
}

static void walk_instr(walking *w, uint32_t i, bool may_begin);

static void walk_loop(walking *w, const rt_loop *l) {
  half sent = {0}, received = {0};
  const rt_post *first = NULL;
  for (uint32_t i = l->first; w->fits && i < l->first + l->n; i++) {
    const rt_post *p = is_post(w->plan, i) ? post_of(w, i) : NULL;
    if (p && !check_is_in_stretch(w->m, w->plan, i)) w->fits = false;
    if (p) add_to_half(w, p->kind == IR_COMM_SEND ? &sent : &received, p);
    walk_instr(w, i, p && !first);
    if (p && !first) first = p;
  }
  if (!w->fits || !first) return;
  if (peer_of(first) + step_of(first) <= w->last) w->fits = false;
  end_half(w, &sent, l->times, &w->last_sent);
  end_half(w, &received, l->times, &w->last_received);
  w->last = w->last_sent > w->last_received ? w->last_sent : w->last_received;
}

/* ---- ranks ---- */
/* All that an instruction waits for on its own rank is before it in the plan. */
static bool is_in_order(const walking *w, uint32_t i) {
  const rt_instr *instr = &w->plan->instrs[i];
  check(w->post_at && w->plan->posts);
  if (instr->kind == RT_JOIN) return w->post_at[instr->task] < i;
  if (instr->kind != RT_POST) return true;
  uint32_t before = w->plan->posts[instr->task].before;
  return before == RT_NO_POST || w->post_at[before] < i;
}

static void walk_instr(walking *w, uint32_t i, bool may_begin) {
  const rt_instr *instr = &w->plan->instrs[i];
  if (!is_in_order(w, i)) w->fits = false;
  if (instr->kind == RT_JOIN) w->joined = true;
  if (instr->kind != RT_POST) return;
  if (check_is_in_stretch(w->m, w->plan, i)) enter(w, post_of(w, i), may_begin);
  else w->open = false;
  w->s->begun[w->number][instr->task] = w->n;
}

static const rt_loop *loop_at(const walking *w, uint32_t i) {
  for (uint32_t k = 0; k < w->plan->n_loops; k++) {
    const rt_loop *l = &w->plan->loops[k];
    for (uint32_t j = l->first; i == l->first && j < l->first + l->n; j++)
      if (check_is_in_stretch(w->m, w->plan, j)) return l;
  }
  return NULL;
}

static void walk_rank(walking *w, uint32_t number) {
  const rt_plan *plan = w->plan = w->m->report->plans[number];
  w->number = number;
  w->n = 0;
  w->open = w->joined = false;
  w->post_at = ARENA_ARRAY(w->m->scratch, plan->n_posts, uint32_t);
  w->s->begun[number] = ARENA_ARRAY(w->m->scratch, plan->n_posts, uint32_t);
  for (uint32_t p = 0; p < plan->n_posts; p++) w->post_at[p] = CHECK_NONE;
  for (uint32_t i = 0; i < plan->n_instrs; i++)
    if (is_post(plan, i)) w->post_at[plan->instrs[i].task] = i;
  for (uint32_t i = 0; w->fits && i < plan->n_instrs; i++) {
    const rt_loop *l = loop_at(w, i);
    if (l) {
      walk_loop(w, l);
      i += l->n - 1;
      continue;
    }
    walk_instr(w, i, true);
    if (w->fits && check_is_in_stretch(w->m, plan, i)) add_run(w, post_of(w, i), 1);
  }
}

/* ---- meeting ---- */
static int compare_runs(const void *x, const void *y) {
  const run *a = x, *b = y;
  if (a->stretch != b->stretch) return a->stretch < b->stretch ? -1 : 1;
  if (a->team != b->team) return a->team < b->team ? -1 : 1;
  if (a->dtype != b->dtype) return a->dtype < b->dtype ? -1 : 1;
  return (a->count > b->count) - (a->count < b->count);
}

/* How many of the senders [0, end) send to the receiver that the sweep is at: sums of powers of two (a
 * Fenwick tree). */
static uint32_t count_below(const uint32_t *tree, uint32_t end) {
  uint32_t n = 0;
  for (uint32_t k = end; k > 0; k &= k - 1) n += tree[k];
  return n;
}

static void count_sender(uint32_t *tree, uint32_t n, uint32_t sender, bool ends) {
  for (uint32_t k = sender + 1; k <= n; k += k & (~k + 1)) tree[k] += ends ? UINT32_MAX : 1;
}

typedef struct sweep {
  const run *runs;
  uint32_t n;
  uint32_t *begin,
      *end; /* by member of the team: a run + 1 of senders that begins or ends there; 0: none */
  uint32_t *next_begin, *next_end; /* by run: another one */
  uint32_t *tree;
  uint32_t sending; /* to the member that the sweep is at */
  uint64_t met;
} sweep;

/* Runs of senders by the receivers at which they begin and end, and those of receivers by the receiver. */
static void sort_run(sweep *x, uint32_t k) {
  const run *r = &x->runs[k];
  uint32_t at = r->sends ? r->first : r->me;
  x->next_begin[k] = x->begin[at];
  x->begin[at] = k + 1;
  if (!r->sends) return;
  x->next_end[k] = x->end[r->end];
  x->end[r->end] = k + 1;
}

/* Do exactly those send to member `at` from which it receives? */
static bool meets_at(sweep *x, uint32_t n_team, uint32_t at) {
  uint32_t received = 0;
  for (uint32_t k = x->end[at]; k; k = x->next_end[k - 1], x->sending--)
    count_sender(x->tree, n_team, x->runs[k - 1].me, true);
  for (uint32_t k = x->begin[at]; k; k = x->next_begin[k - 1]) {
    if (!x->runs[k - 1].sends) continue;
    count_sender(x->tree, n_team, x->runs[k - 1].me, false);
    x->sending++;
  }
  for (uint32_t k = x->begin[at]; k; k = x->next_begin[k - 1]) {
    const run *r = &x->runs[k - 1];
    if (r->sends) continue;
    if (count_below(x->tree, r->end) - count_below(x->tree, r->first) != r->end - r->first)
      return false;
    received += r->end - r->first;
  }
  x->met += received;
  return received == x->sending;
}

/* The runs of one stretch and team, of messages that are alike. */
static bool all_meet(check_match *m, const run *runs, uint32_t n, uint64_t *met) {
  uint32_t n_team = runs->n_team;
  size_t room = (size_t)n_team + 2;
  sweep x = {.runs = runs, .n = n};
  x.begin = ARENA_ARRAY(m->scratch, room, uint32_t);
  x.end = ARENA_ARRAY(m->scratch, room, uint32_t);
  x.tree = ARENA_ARRAY(m->scratch, room, uint32_t);
  x.next_begin = ARENA_ARRAY(m->scratch, n, uint32_t);
  x.next_end = ARENA_ARRAY(m->scratch, n, uint32_t);
  for (uint32_t k = 0; k < n; k++) sort_run(&x, k);
  for (uint32_t at = 0; at < n_team; at++)
    if (!meets_at(&x, n_team, at)) return false;
  *met += x.met;
  return true;
}

static bool runs_meet(walking *w, uint64_t *met) {
  uint32_t first = 0;
  if (w->runs.len) qsort(w->runs.data, w->runs.len, sizeof *w->runs.data, compare_runs);
  for (uint32_t k = 1; k <= w->runs.len; k++) {
    if (k < w->runs.len && compare_runs(&w->runs.data[first], &w->runs.data[k]) == 0) continue;
    if (!all_meet(w->m, &w->runs.data[first], k - first, met)) return false;
    first = k;
  }
  return true;
}

/* ---- the whole ---- */
static bool is_moving(const rt_plan *plan, uint32_t instr) {
  return is_post(plan, instr) && rt_post_moves(&plan->posts[plan->instrs[instr].task]);
}

/* Instructions of the host program that post messages with a step, on whichever rank. NULL: there are none. */
static bool *find_moving(const check_match *m) {
  const check_world_report *r = m->report;
  uint32_t most = 0;
  bool any = false;
  for (uint32_t k = 0; k < r->n_plans; k++)
    for (uint32_t i = 0; i < r->plans[k]->n_instrs; i++) {
      if (r->plans[k]->instrs[i].origin > most) most = r->plans[k]->instrs[i].origin;
      any = any || is_moving(r->plans[k], i);
    }
  bool *moves = any ? ARENA_ARRAY(m->scratch, (size_t)most + 1, bool) : NULL;
  for (uint32_t k = 0; any && k < r->n_plans; k++)
    for (uint32_t i = 0; i < r->plans[k]->n_instrs; i++)
      if (is_moving(r->plans[k], i)) moves[r->plans[k]->instrs[i].origin] = true;
  return moves;
}

void check_find_stretches(check_match *m) {
  bool *moves = find_moving(m);
  if (!moves) return;
  check_stretches *s = ARENA_ARRAY(m->scratch, 1, check_stretches);
  m->stretches = s;
  s->moves = moves;
  s->begun = ARENA_ARRAY(m->scratch, m->report->n_plans, uint32_t *);
  walking w = {.m = m, .s = s, .fits = !m->alike};
  check_teams_init(&w.teams, m->scratch);
  for (uint32_t r = 0; w.fits && r < m->report->n_plans; r++) walk_rank(&w, r);
  uint64_t met = 0;
  if (!w.fits || !runs_meet(&w, &met)) m->uneven = true;
  else m->report->n_met += met;
}
