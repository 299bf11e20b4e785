#include "device/cuda/order_knows.h"

#include <string.h>

#include "device/cuda/split.h"

bool cuda_knows_init(cuda_knows *x, const cuda_maker *k) {
  enum { MOST_NUMBERS = 4 << 20 };
  const cuda_order *o = k->order;
  uint32_t n_streams = k->plan->n_streams + o->n_lanes;
  *x = (cuda_knows){.n = n_streams + o->n_ranks};
  if ((uint64_t)x->n * ((uint64_t)o->n_events + n_streams) > MOST_NUMBERS) return false;
  x->known = ARENA_ARRAY(k->memory, (size_t)x->n * n_streams, uint32_t);
  x->told = ARENA_ARRAY(k->memory, (size_t)x->n * o->n_events, uint32_t);
  for (uint32_t s = 0; s < n_streams; s++)
    for (uint32_t r = 0; r < o->n_ranks; r++)
      cuda_knows_of(x, s)[n_streams + r] =
          !k->options->apart || cuda_rank_of_stream(k->plan, o, s) == r;
  return true;
}

static bool learn(cuda_knows *x, uint32_t stream, uint32_t event) {
  uint32_t *known = cuda_knows_of(x, stream);
  const uint32_t *told = x->told + (size_t)event * x->n;
  bool news = false;
  for (uint32_t s = 0; s < x->n; s++) {
    if (told[s] <= known[s]) continue;
    known[s] = told[s];
    news = true;
  }
  return news;
}

bool cuda_knows_step(cuda_knows *x, const cuda_step *s) {
  uint32_t *known = cuda_knows_of(x, s->stream);
  switch ((cuda_step_kind)s->kind) {
  case CUDA_LAUNCH:
  case CUDA_COPY:
  case CUDA_FOLD:
  case CUDA_COMM: known[s->stream]++; return true;
  case CUDA_RECORD:
    memcpy(x->told + (size_t)s->index * x->n, known, x->n * sizeof *known);
    return true;
  case CUDA_WAIT: return learn(x, s->stream, s->index);
  }
  return true;
}
