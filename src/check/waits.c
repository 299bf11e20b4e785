/* Which waits are needed, for all waits of a plan that passes.
 *
 * The walk (order.c) left behind what must stay ordered, the edges. A wait is judged by following what
 * its absence changes: `lost` clocks of those streams that know less than they should. A task of such a
 * stream may miss an edge: the wait is needed. Another wait may bring the stream up to date again. When
 * no stream is left behind, or the plan ends, the wait was redundant. */
#include <string.h>

#include "check/internal.h"

typedef struct judge {
  check_analysis *c;
  uint32_t n_streams;
  const uint32_t **after;   /* by wait: its stream's clock after it; the same array if unchanged */
  uint32_t *last;           /* by wait: number + 1 of the last access of the stream waited for */
  uint32_t *wait_at;        /* by instruction: the number of the wait */
  uint32_t *first_edge;     /* by instruction, the end, and the total */
  const uint32_t **current; /* by stream: its clock before the wait that is judged */
  uint64_t steps_left;

  const uint32_t **now; /* the same while following one wait */
  uint32_t *lost;       /* row per stream */
  bool *is_lost;
  uint32_t n_lost;
} judge;

static bool is_wait(const check_analysis *c, uint32_t instr) {
  return c->plan->instrs[instr].kind == RT_WAIT && !(c->dropped && c->dropped[instr]);
}

/* A stream's own entry stays 0: nothing asks for it, and equal clocks then know the same. */
static void join(const judge *j, uint32_t instr, const uint32_t *mine, const uint32_t *other,
                 uint32_t *result) {
  const rt_instr *i = &j->c->plan->instrs[instr];
  for (uint32_t s = 0; s < j->n_streams; s++) result[s] = mine[s] > other[s] ? mine[s] : other[s];
  result[i->other] = j->last[j->wait_at[instr]];
  result[i->stream] = 0;
}

static bool same_clock(const judge *j, const uint32_t *a, const uint32_t *b) {
  return memcmp(a, b, j->n_streams * sizeof *a) == 0;
}

static void number_waits(judge *j) {
  const rt_plan *plan = j->c->plan;
  uint32_t *last = ARENA_ARRAY(j->c->scratch, j->n_streams, uint32_t), k = 0;
  for (uint32_t i = 0; i < plan->n_instrs; i++) {
    const uint32_t *first = &j->c->first_access[i];
    if (is_wait(j->c, i)) {
      j->last[k] = last[plan->instrs[i].other];
      j->wait_at[i] = k++;
    } else if (first[1] > first[0]) {
      last[plan->instrs[i].stream] = first[1];
    }
  }
}

/* Clocks after every wait. */
static void run_clocks(judge *j) {
  const check_report *report = j->c->report;
  uint32_t *clock = ARENA_ARRAY(j->c->scratch, j->n_streams, uint32_t);
  const uint32_t *zero = ARENA_ARRAY(j->c->scratch, j->n_streams, uint32_t);
  for (uint32_t s = 0; s < j->n_streams; s++) j->current[s] = zero;
  for (uint32_t k = 0; k < report->waits.len; k++) {
    uint32_t instr = report->waits.data[k].instr;
    const rt_instr *i = &j->c->plan->instrs[instr];
    join(j, instr, j->current[i->stream], j->current[i->other], clock);
    if (!same_clock(j, clock, j->current[i->stream]))
      j->current[i->stream] = arena_copy(j->c->scratch, clock, j->n_streams * sizeof *clock);
    j->after[k] = j->current[i->stream];
  }
  for (uint32_t s = 0; s < j->n_streams; s++) j->current[s] = zero;
}

static void index_edges(judge *j) {
  uint32_t n = j->c->plan->n_instrs, e = 0;
  for (uint32_t i = 0; i <= n + 1; i++) {
    while (e < j->c->edges.len && j->c->edges.data[e].instr < i) e++;
    j->first_edge[i] = e;
  }
}

static uint32_t *lost_row(const judge *j, uint32_t s) { return &j->lost[(size_t)s * j->n_streams]; }

static const uint32_t *clock_of(const judge *j, uint32_t s) {
  return j->is_lost[s] ? lost_row(j, s) : j->now[s];
}

static void set_lost(judge *j, uint32_t s, bool lost) {
  if (j->is_lost[s] != lost) j->n_lost += lost ? 1 : UINT32_MAX;
  j->is_lost[s] = lost;
}

/* Whether a stream that is behind misses what `instr` must come after. */
static bool misses_edge(judge *j, uint32_t stream, uint32_t instr, check_wait *w) {
  for (uint32_t e = j->first_edge[instr]; e < j->first_edge[instr + 1]; e++) {
    check_edge edge = j->c->edges.data[e];
    if (lost_row(j, stream)[edge.stream] >= edge.bound) continue;
    w->verdict = CHECK_WAIT_NEEDED;
    w->a = j->c->accesses.data[edge.bound - 1].instr;
    w->b = instr == j->c->plan->n_instrs ? CHECK_NONE : instr;
    return true;
  }
  return false;
}

static void follow_wait(judge *j, uint32_t instr) {
  const rt_instr *i = &j->c->plan->instrs[instr];
  const uint32_t *proper = j->after[j->wait_at[instr]];
  if (j->is_lost[i->stream] || j->is_lost[i->other]) {
    uint32_t *row = lost_row(j, i->stream);
    join(j, instr, clock_of(j, i->stream), clock_of(j, i->other), row);
    set_lost(j, i->stream, !same_clock(j, row, proper));
    j->steps_left -= j->n_streams < j->steps_left ? j->n_streams : j->steps_left;
  }
  j->now[i->stream] = proper;
}

static void follow(judge *j, check_wait *w) {
  const rt_plan *plan = j->c->plan;
  w->verdict = CHECK_WAIT_UNUSED;
  for (uint32_t i = w->instr + 1; i < plan->n_instrs && j->n_lost; i++) {
    uint32_t stream = plan->instrs[i].stream;
    if (is_wait(j->c, i)) follow_wait(j, i);
    else if (j->is_lost[stream] && misses_edge(j, stream, i, w)) return;
    if (j->steps_left == 0) {
      w->verdict = CHECK_WAIT_UNEXAMINED;
      return;
    }
    j->steps_left--;
  }
  if (j->is_lost[0]) misses_edge(j, 0, plan->n_instrs, w);
}

static void judge_wait(judge *j, check_wait *w, const uint32_t *after) {
  uint32_t stream = j->c->plan->instrs[w->instr].stream;
  if (after == j->current[stream]) {
    w->verdict = CHECK_WAIT_IMPLIED;
    return;
  }
  memset(j->is_lost, 0, j->n_streams * sizeof *j->is_lost);
  j->n_lost = 0;
  memcpy(j->now, j->current, j->n_streams * sizeof *j->now);
  memcpy(lost_row(j, stream), j->current[stream], j->n_streams * sizeof *j->lost);
  set_lost(j, stream, true);
  follow(j, w);
  j->current[stream] = after;
}

static void judge_all(check_analysis *c) {
  check_report *r = c->report;
  uint32_t n = c->plan->n_instrs, n_streams = c->plan->n_streams;
  judge j = {.c = c, .n_streams = n_streams, .steps_left = c->options.max_wait_steps};
  j.after = ARENA_ARRAY(c->scratch, r->waits.len, const uint32_t *);
  j.last = ARENA_ARRAY(c->scratch, r->waits.len, uint32_t);
  j.wait_at = ARENA_ARRAY(c->scratch, n, uint32_t);
  j.first_edge = ARENA_ARRAY(c->scratch, (size_t)n + 2, uint32_t);
  j.current = ARENA_ARRAY(c->scratch, n_streams, const uint32_t *);
  j.now = ARENA_ARRAY(c->scratch, n_streams, const uint32_t *);
  j.lost = ARENA_ARRAY(c->scratch, (size_t)n_streams * n_streams, uint32_t);
  j.is_lost = ARENA_ARRAY(c->scratch, n_streams, bool);
  number_waits(&j);
  run_clocks(&j);
  index_edges(&j);
  for (uint32_t k = 0; k < r->waits.len; k++) judge_wait(&j, &r->waits.data[k], j.after[k]);
}

enum { MAX_CLOCK_WORDS = 1 << 26 }; /* kept for all waits together */

void check_waits(check_analysis *c) {
  check_report *r = c->report;
  for (uint32_t i = 0; i < c->plan->n_instrs; i++) {
    if (!is_wait(c, i)) continue;
    check_wait w = {.instr = i, .verdict = CHECK_WAIT_UNEXAMINED, .a = CHECK_NONE, .b = CHECK_NONE};
    vec_push(&r->memory, &r->waits, w);
  }
  bool affordable = (uint64_t)r->waits.len * c->plan->n_streams <= MAX_CLOCK_WORDS;
  if (!c->options.no_waits && affordable && r->n_found == 0) judge_all(c);
  for (uint32_t k = 0; k < r->waits.len; k++) {
    check_verdict v = r->waits.data[k].verdict;
    r->n_redundant += v == CHECK_WAIT_IMPLIED || v == CHECK_WAIT_UNUSED;
    r->n_unexamined += v == CHECK_WAIT_UNEXAMINED;
  }
}
