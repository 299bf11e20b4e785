/* Waits that change nothing, and events that nobody waits for.
 *
 * Between two copies of a stream, waiting for an event that has passed long ago costs the engine that
 * copies some microseconds all the same. A wait changes nothing if the stream stands behind the event's
 * work already: because of an earlier wait, directly or by way of other streams, or because there was no
 * work. Per stream this pass knows how much of every other stream's work is over, and per event what its
 * stream knew when it was recorded. That a rank has begun the run is such knowledge too, where ranks are
 * processes: its inputs are there only then. */
#include <string.h>

#include "device/cuda/order_internal.h"
#include "device/cuda/split.h"

/* More knowledge than this is not collected: very long plans keep their waits. */
enum { MOST_NUMBERS = 4 << 20 };

typedef struct pruner {
  uint32_t n; /* streams, lanes included, and ranks */
  uint32_t
      *known; /* n for each stream: steps of the others that are over, as far as it knows, and which
                    * ranks have begun */
  uint32_t *told; /* n for each event */
} pruner;

static uint32_t *row(uint32_t *numbers, const pruner *p, uint32_t at) {
  return numbers + (size_t)at * p->n;
}

/* The stream waits for the event. False: it knew all that. */
static bool learn(pruner *p, uint32_t stream, uint32_t event) {
  uint32_t *known = row(p->known, p, stream);
  const uint32_t *told = row(p->told, p, event);
  bool news = false;
  for (uint32_t s = 0; s < p->n; s++) {
    if (told[s] <= known[s]) continue;
    known[s] = told[s];
    news = true;
  }
  return news;
}

/* Whether the step stays. */
static bool keeps(pruner *p, const cuda_step *s) {
  uint32_t *known = row(p->known, p, s->stream);
  switch ((cuda_step_kind)s->kind) {
  case CUDA_LAUNCH:
  case CUDA_COPY:
  case CUDA_FOLD:
  case CUDA_COMM: known[s->stream]++; return true;
  case CUDA_RECORD: memcpy(row(p->told, p, s->index), known, p->n * sizeof *known); return true;
  case CUDA_WAIT: return learn(p, s->stream, s->index);
  }
  return true;
}

static void drop_waits(cuda_maker *k) {
  cuda_order *o = k->order;
  uint32_t n_streams = k->plan->n_streams + o->n_lanes;
  pruner p = {.n = n_streams + o->n_ranks};
  if ((uint64_t)p.n * ((uint64_t)o->n_events + n_streams) > MOST_NUMBERS) return;
  p.known = ARENA_ARRAY(k->memory, (size_t)p.n * n_streams, uint32_t);
  p.told = ARENA_ARRAY(k->memory, (size_t)p.n * o->n_events, uint32_t);
  for (uint32_t s = 0; s < n_streams; s++)
    for (uint32_t r = 0; r < o->n_ranks; r++)
      row(p.known, &p, s)[n_streams + r] =
          !k->options->apart || cuda_rank_of_stream(k->plan, o, s) == r;
  uint32_t kept = 0, at = 0;
  for (uint32_t i = 0; i < k->plan->n_instrs; i++) {
    for (; at < o->upto[i]; at++)
      if (keeps(&p, &o->steps.data[at])) o->steps.data[kept++] = o->steps.data[at];
    o->upto[i] = kept;
  }
  o->steps.len = kept;
}

void cuda_order_prune(cuda_maker *k) {
  cuda_order *o = k->order;
  drop_waits(k);
  o->is_waited_for = ARENA_ARRAY(k->memory, o->n_events, bool);
  for (uint32_t i = 0; i < o->steps.len; i++)
    if (o->steps.data[i].kind == CUDA_WAIT) o->is_waited_for[o->steps.data[i].index] = true;
}
