#include "device/issue/order_knows.h"

#include <string.h>

#include "device/issue/split.h"

bool issue_knows_init(issue_knows *x, const issue_maker *k) {
  enum { MOST_NUMBERS = 4 << 20 };
  const issue_order *o = k->order;
  uint32_t n_streams = k->plan->n_streams + o->n_lanes;
  *x = (issue_knows){.n = n_streams + o->n_ranks};
  if ((uint64_t)x->n * ((uint64_t)o->n_events + n_streams) > MOST_NUMBERS) return false;
  x->known = ARENA_ARRAY(k->memory, (size_t)x->n * n_streams, uint32_t);
  x->told = ARENA_ARRAY(k->memory, (size_t)x->n * o->n_events, uint32_t);
  for (uint32_t s = 0; s < n_streams; s++)
    for (uint32_t r = 0; r < o->n_ranks; r++)
      issue_knows_of(x, s)[n_streams + r] =
          !k->options->apart || issue_rank_of_stream(k->plan, o, s) == r;
  return true;
}

static bool learn(issue_knows *x, uint32_t stream, uint32_t event) {
  uint32_t *known = issue_knows_of(x, stream);
  const uint32_t *told = x->told + (size_t)event * x->n;
  bool news = false;
  for (uint32_t s = 0; s < x->n; s++) {
    if (told[s] <= known[s]) continue;
    known[s] = told[s];
    news = true;
  }
  return news;
}

bool issue_knows_step(issue_knows *x, const issue_step *s) {
  uint32_t *known = issue_knows_of(x, s->stream);
  switch ((issue_step_kind)s->kind) {
  case ISSUE_LAUNCH:
  case ISSUE_COPY:
  case ISSUE_FOLD:
  case ISSUE_COMM: known[s->stream]++; return true;
  case ISSUE_RECORD:
    memcpy(x->told + (size_t)s->index * x->n, known, x->n * sizeof *known);
    return true;
  case ISSUE_WAIT: return learn(x, s->stream, s->index);
  }
  return true;
}
