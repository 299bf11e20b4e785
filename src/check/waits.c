/* Which waits are needed, for all waits of a plan that passes.
 *
 * The walk (order.c) left what must stay ordered, the edges. A wait is judged by following what its
 * absence changes: `lost` has the clocks of those lines that know less than they should. A task of such a
 * line may miss an edge: the wait is needed. Another wait may bring the line up to date again. When
 * no line is left that knows too little, or the plan ends, the wait was redundant. */
#include <string.h>

#include "check/internal.h"

typedef struct judge {
  check_analysis *c;
  uint32_t n_lines;
  const uint32_t **after; /* by step, of waits: its line's clock after it; the same if unchanged */
  uint32_t *last; /* by step, of waits: number + 1 of the last access of the line waited for */
  uint32_t *first_edge;     /* by step, the end, and the total */
  const uint32_t **current; /* by line: its clock before the wait that is judged */
  uint64_t steps_left;

  const uint32_t **now; /* the same while following one wait */
  uint32_t *lost;       /* row per line */
  bool *is_lost;
  uint32_t n_lost;
} judge;

static bool is_wait(const check_analysis *c, uint32_t step) {
  return c->steps.data[step].kind == CHECK_STEP_WAIT && !(c->dropped && c->dropped[step]);
}

/* A line's own entry stays 0: nothing asks for it, and equal clocks then know the same. */
static void join(const judge *j, uint32_t step, const uint32_t *mine, const uint32_t *other,
                 uint32_t *result) {
  const check_step *s = &j->c->steps.data[step];
  for (uint32_t k = 0; k < j->n_lines; k++) result[k] = mine[k] > other[k] ? mine[k] : other[k];
  result[s->other] = j->last[step];
  result[s->line] = 0;
}

static bool same_clock(const judge *j, const uint32_t *a, const uint32_t *b) {
  return memcmp(a, b, j->n_lines * sizeof *a) == 0;
}

static void find_last(judge *j) {
  uint32_t *last = ARENA_ARRAY(j->c->scratch, j->n_lines, uint32_t);
  for (uint32_t s = 0; s < j->c->steps.len; s++) {
    const uint32_t *first = &j->c->first_access[s], other = j->c->steps.data[s].other;
    if (is_wait(j->c, s)) j->last[s] = last[other];
    else if (first[1] > first[0]) last[other] = first[1];
  }
}

/* Clocks after every wait. */
static void run_clocks(judge *j) {
  uint32_t *clock = ARENA_ARRAY(j->c->scratch, j->n_lines, uint32_t);
  const uint32_t *zero = ARENA_ARRAY(j->c->scratch, j->n_lines, uint32_t);
  for (uint32_t k = 0; k < j->n_lines; k++) j->current[k] = zero;
  for (uint32_t s = 0; s < j->c->steps.len; s++) {
    const check_step *w = &j->c->steps.data[s];
    if (!is_wait(j->c, s)) continue;
    join(j, s, j->current[w->line], j->current[w->other], clock);
    if (!same_clock(j, clock, j->current[w->line]))
      j->current[w->line] = arena_copy(j->c->scratch, clock, j->n_lines * sizeof *clock);
    j->after[s] = j->current[w->line];
  }
  for (uint32_t k = 0; k < j->n_lines; k++) j->current[k] = zero;
}

static void index_edges(judge *j) {
  uint32_t n = j->c->steps.len, e = 0;
  for (uint32_t i = 0; i <= n + 1; i++) {
    while (e < j->c->edges.len && j->c->edges.data[e].step < i) e++;
    j->first_edge[i] = e;
  }
}

static uint32_t *lost_row(const judge *j, uint32_t s) { return &j->lost[(size_t)s * j->n_lines]; }

static const uint32_t *clock_of(const judge *j, uint32_t s) {
  return j->is_lost[s] ? lost_row(j, s) : j->now[s];
}

static void set_lost(judge *j, uint32_t s, bool lost) {
  if (j->is_lost[s] != lost) j->n_lost += lost ? 1 : UINT32_MAX;
  j->is_lost[s] = lost;
}

/* Whether a line that is behind misses what `step` must come after. */
static bool misses_edge(judge *j, uint32_t line, uint32_t step, check_wait *w) {
  for (uint32_t e = j->first_edge[step]; e < j->first_edge[step + 1]; e++) {
    check_edge edge = j->c->edges.data[e];
    if (lost_row(j, line)[edge.line] >= edge.bound) continue;
    w->verdict = CHECK_WAIT_NEEDED;
    w->a = j->c->accesses.data[edge.bound - 1].instr;
    w->b = step == j->c->steps.len ? CHECK_NONE : j->c->steps.data[step].instr;
    return true;
  }
  return false;
}

static void follow_wait(judge *j, uint32_t step) {
  const check_step *s = &j->c->steps.data[step];
  const uint32_t *proper = j->after[step];
  if (j->is_lost[s->line] || j->is_lost[s->other]) {
    uint32_t *row = lost_row(j, s->line);
    join(j, step, clock_of(j, s->line), clock_of(j, s->other), row);
    set_lost(j, s->line, !same_clock(j, row, proper));
    j->steps_left -= j->n_lines < j->steps_left ? j->n_lines : j->steps_left;
  }
  j->now[s->line] = proper;
}

static void follow(judge *j, uint32_t from, check_wait *w) {
  uint32_t n = j->c->steps.len;
  w->verdict = CHECK_WAIT_UNUSED;
  for (uint32_t s = from + 1; s < n && j->n_lost; s++) {
    uint32_t line = j->c->steps.data[s].line;
    if (is_wait(j->c, s)) follow_wait(j, s);
    else if (j->is_lost[line] && misses_edge(j, line, s, w)) return;
    if (j->steps_left == 0) {
      w->verdict = CHECK_WAIT_UNEXAMINED;
      return;
    }
    j->steps_left--;
  }
  if (j->is_lost[0]) misses_edge(j, 0, n, w);
}

static void judge_wait(judge *j, uint32_t step, check_wait *w) {
  uint32_t line = j->c->steps.data[step].line;
  if (j->after[step] == j->current[line]) {
    w->verdict = CHECK_WAIT_IMPLIED;
    return;
  }
  memset(j->is_lost, 0, j->n_lines * sizeof *j->is_lost);
  j->n_lost = 0;
  memcpy(j->now, j->current, j->n_lines * sizeof *j->now);
  memcpy(lost_row(j, line), j->current[line], j->n_lines * sizeof *j->lost);
  set_lost(j, line, true);
  follow(j, step, w);
}

static void judge_all(check_analysis *c) {
  check_report *r = c->report;
  uint32_t n = c->steps.len, lines = c->n_lines, k = 0;
  judge j = {.c = c, .n_lines = lines, .steps_left = c->options.max_wait_steps};
  j.after = ARENA_ARRAY(c->scratch, n, const uint32_t *);
  j.last = ARENA_ARRAY(c->scratch, n, uint32_t);
  j.first_edge = ARENA_ARRAY(c->scratch, (size_t)n + 2, uint32_t);
  j.current = ARENA_ARRAY(c->scratch, lines, const uint32_t *);
  j.now = ARENA_ARRAY(c->scratch, lines, const uint32_t *);
  j.lost = ARENA_ARRAY(c->scratch, (size_t)lines * lines, uint32_t);
  j.is_lost = ARENA_ARRAY(c->scratch, lines, bool);
  find_last(&j);
  run_clocks(&j);
  index_edges(&j);
  for (uint32_t s = 0; s < n; s++) {
    if (!is_wait(c, s)) continue;
    if (!c->steps.data[s].fixed) judge_wait(&j, s, &r->waits.data[k++]);
    j.current[c->steps.data[s].line] = j.after[s];
  }
}

enum { MAX_CLOCK_WORDS = 1 << 26 }; /* kept for all waits together */

void check_waits(check_analysis *c) {
  check_report *r = c->report;
  uint32_t n_waits = 0;
  for (uint32_t s = 0; s < c->steps.len; s++) {
    if (!is_wait(c, s)) continue;
    n_waits++;
    if (c->steps.data[s].fixed) continue;
    check_wait w = {.instr = c->steps.data[s].instr,
                    .verdict = CHECK_WAIT_UNEXAMINED,
                    .a = CHECK_NONE,
                    .b = CHECK_NONE};
    vec_push(&r->memory, &r->waits, w);
  }
  bool affordable = (uint64_t)n_waits * c->n_lines <= MAX_CLOCK_WORDS;
  bool one_rank = c->plan->n_ranks <= 1; /* with several, the end of stream 0 is not the only one */
  if (!c->options.no_waits && affordable && one_rank && r->n_found == 0) judge_all(c);
  for (uint32_t k = 0; k < r->waits.len; k++) {
    check_verdict v = r->waits.data[k].verdict;
    r->n_redundant += v == CHECK_WAIT_IMPLIED || v == CHECK_WAIT_UNUSED;
    r->n_unexamined += v == CHECK_WAIT_UNEXAMINED;
  }
}
