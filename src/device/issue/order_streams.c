/* Lets fewer streams wait, and executes slices one after the other.
 *
 * A GPU polls every stream that waits, and that takes time from streams that copy: with a stream for
 * each of 8 slices a transfer takes 2% longer than with one for all of them. There are two rewritings.
 * Neither lets work wait for a communication that arrives later than what it waited for before.
 *
 * A wait that no work follows is moved from its stream to those that wait for that stream later. The
 * calling stream makes all of its own waits at the end.
 *
 * Streams of a rank that communicates take turns: their work moves to one of them. That is done if
 * each of their tasks is large enough to keep the GPU busy, and none would then wait for data of
 * another of these streams that arrive later than its own. Side by side, slices would all end at the
 * same time, and the first one could not be sent while the next is computed. */
#include "device/issue/order_knows.h"

typedef VEC(uint32_t) events;

/* The streams of a rank that take turns. */
typedef struct turns {
  uint32_t *known; /* what the streams that had their turn knew, numbered as in issue_knows */
  uint32_t first;  /* the stream on which all of them work */
} turns;

typedef struct sparer {
  issue_maker *k;
  turns *turns; /* by rank */
  bool *alone;  /* by stream, lanes included: it takes no turns */
  VEC(issue_step) steps;
  events *put_off; /* by stream: the events that it must wait for before it works again */
  events *owed;    /* by event: what `put_off` of its stream was when it was recorded */
  uint32_t *done;  /* by stream that takes turns: the event after its work; ISSUE_NOBODY: none */
  bool *is_post;   /* by event: something was posted, and traces tell when */
} sparer;

static turns *turns_of(const sparer *x, uint32_t stream) {
  return &x->turns[rt_plan_rank(x->k->plan, stream)];
}

/* ---- which streams take turns ---- */
/* A product with a small result is large too if it has many flops: it is spread over its inner dimension. */
static bool is_large(const issue_maker *k, uint32_t task) {
  enum { INNER = 4096 };
  const rt_view *v =
      &k->plan->views[k->plan->tasks[task].result]; /* the first one tells the size */
  double n = 1, least = (double)k->options->large;
  for (uint32_t d = 0; d < v->rank; d++) n *= (double)v->extents[d];
  return n >= least || rt_task_flops(k->plan, &k->plan->tasks[task]) >= 2 * INNER * least;
}

/* Do data arrive at the rank on this stream? Not on lanes that send: their end only means that memory is free again,
 * which is the case before what the rank receives in exchange has arrived. */
static bool brings(const issue_maker *k, uint32_t stream, uint32_t rank) {
  if (stream < k->plan->n_streams) return stream == rt_plan_first_stream(k->plan, rank);
  if (k->order->rank_of_lane[stream - k->plan->n_streams] != rank) return false;
  return k->options->as_posted || (stream != issue_lane_of(k->plan, rank, ISSUE_SENDS) &&
                                   stream != issue_lane_of(k->plan, rank, ISSUE_SENDS_REDUCED));
}

/* May the launch, whose stream knows `known`, come after all launches that had their turn? Yes, if nothing that these
 * waited for arrives after what the launch waits for. */
static bool is_in_turn(const sparer *x, const issue_step *s, const uint32_t *known) {
  const turns *t = turns_of(x, s->stream);
  uint32_t rank = rt_plan_rank(x->k->plan, s->stream);
  if (!is_large(x->k, s->index)) return false;
  for (uint32_t c = 0; c < x->k->plan->n_streams + x->k->order->n_lanes; c++)
    if (t->known[c] > known[c] && brings(x->k, c, rank)) return false;
  return true;
}

static void take_turn(sparer *x, const issue_knows *all, uint32_t stream, const uint32_t *known) {
  turns *t = turns_of(x, stream);
  for (uint32_t c = 0; c < all->n; c++)
    if (known[c] > t->known[c]) t->known[c] = known[c];
}

static void find_turns(sparer *x) {
  const issue_maker *k = x->k;
  const issue_order *o = k->order;
  issue_knows all;
  bool possible = k->options->large > 0 && k->plan->n_posts > 0 && issue_knows_init(&all, k);
  for (uint32_t s = 0; s < k->plan->n_streams + o->n_lanes; s++)
    x->alone[s] = !possible || s >= k->plan->n_streams ||
                  s == rt_plan_first_stream(k->plan, rt_plan_rank(k->plan, s));
  if (!possible) return;
  bool *works = ARENA_ARRAY(k->memory, k->plan->n_streams, bool);
  for (uint32_t r = 0; r < o->n_ranks; r++)
    x->turns[r] = (turns){ARENA_ARRAY(k->memory, all.n, uint32_t), ISSUE_NOBODY};
  for (uint32_t i = 0; i < o->steps.len; i++) {
    const issue_step *s = &o->steps.data[i];
    const uint32_t *known = issue_knows_of(&all, s->stream);
    if (s->kind == ISSUE_LAUNCH && !x->alone[s->stream]) {
      works[s->stream] = true;
      x->alone[s->stream] = !is_in_turn(x, s, known);
      if (!x->alone[s->stream]) take_turn(x, &all, s->stream, known);
    }
    (void)issue_knows_step(&all, s);
  }
  for (uint32_t s = 0; s < k->plan->n_streams; s++) x->alone[s] = x->alone[s] || !works[s];
}

/* ---- steps ---- */
static void put(sparer *x, issue_step_kind kind, uint32_t stream, uint32_t index) {
  issue_step s = {.kind = (uint8_t)kind, .stream = (uint16_t)stream, .index = index};
  vec_push(x->k->memory, &x->steps, s);
}

/* Lets `on` wait for what `stream` put off: the latest event first, which may make others redundant. */
static void wait_now(sparer *x, uint32_t stream, uint32_t on) {
  events *list = &x->put_off[stream];
  while (list->len > 0) put(x, ISSUE_WAIT, on, list->data[--list->len]);
}

static void put_off(sparer *x, uint32_t stream, uint32_t event) {
  enum { MOST = 32 };
  events *list = &x->put_off[stream];
  const events *more = &x->owed[event];
  if (list->len + more->len >= MOST && x->alone[stream]) wait_now(x, stream, stream);
  vec_push(x->k->memory, list, event);
  /* mutant: cuda_waits_forgotten */
  for (uint32_t i = 0; i < more->len; i++) vec_push(x->k->memory, list, more->data[i]);
}

/* Records an event. A stream that takes turns has done its work on another stream, so waits for that are added. */
static void record(sparer *x, uint32_t stream, uint32_t event) {
  const events *list = &x->put_off[stream];
  if (x->is_post[event] && x->alone[stream]) {
    wait_now(x, stream, stream);
  } else if (x->is_post[event]) {
    /* mutant: cuda_posts_before_turns */
    if (x->done[stream] != ISSUE_NOBODY) put(x, ISSUE_WAIT, stream, x->done[stream]);
    for (uint32_t i = 0; i < list->len; i++) put(x, ISSUE_WAIT, stream, list->data[i]);
  } else {
    for (uint32_t i = 0; i < list->len; i++) vec_push(x->k->memory, &x->owed[event], list->data[i]);
    /* mutant: cuda_turns_unrecorded */
    if (x->done[stream] != ISSUE_NOBODY) vec_push(x->k->memory, &x->owed[event], x->done[stream]);
  }
  put(x, ISSUE_RECORD, stream, event);
}

/* Makes all waits of a communication before its first COMM: there must be nothing between its members. */
static void prepare_comm(sparer *x, const issue_step *s) {
  const issue_comm *c = &x->k->order->comms.data[s->index];
  for (uint32_t i = 0; i < c->n && s->index == c->first; i++) wait_now(x, s[i].stream, s[i].stream);
}

static void work(sparer *x, const issue_step *s) {
  if (s->kind == ISSUE_COMM) prepare_comm(x, s);
  if (x->alone[s->stream]) {
    wait_now(x, s->stream, s->stream);
    put(x, s->kind, s->stream, s->index);
    return;
  }
  turns *t = turns_of(x, s->stream);
  if (t->first == ISSUE_NOBODY) t->first = s->stream;
  /* mutant: cuda_turns_without_waits */
  wait_now(x, s->stream, t->first);
  put(x, s->kind, t->first, s->index);
  x->done[s->stream] = x->k->order->n_events++;
  put(x, ISSUE_RECORD, t->first, x->done[s->stream]);
}

static void rewrite(sparer *x) {
  const rt_plan *plan = x->k->plan;
  issue_order *o = x->k->order;
  uint32_t at = 0;
  for (uint32_t i = 0; i < plan->n_instrs; i++) {
    for (; at < o->upto[i]; at++) {
      const issue_step *s = &o->steps.data[at];
      if (s->kind == ISSUE_WAIT) put_off(x, s->stream, s->index);
      else if (s->kind == ISSUE_RECORD) record(x, s->stream, s->index);
      else work(x, s);
    }
    /* mutant: cuda_calling_stream_hurries */
    for (uint32_t r = 0; r < o->n_ranks && i + 1 == plan->n_instrs; r++)
      wait_now(x, rt_plan_first_stream(plan, r), rt_plan_first_stream(plan, r));
    o->upto[i] = x->steps.len;
  }
  o->steps.data = x->steps.data;
  o->steps.len = x->steps.len;
  o->steps.cap = x->steps.cap;
}

void issue_order_spare_streams(issue_maker *k) {
  const issue_order *o = k->order;
  size_t n_streams = k->plan->n_streams + (size_t)o->n_lanes;
  if (k->plan->n_loops)
    return; /* a wait that is put off in one repetition would be made in another */
  sparer x = {.k = k, .turns = ARENA_ARRAY(k->memory, o->n_ranks, turns)};
  x.alone = ARENA_ARRAY(k->memory, n_streams, bool);
  x.done = ARENA_ARRAY(k->memory, n_streams, uint32_t);
  x.put_off = arena_array(k->memory, n_streams, sizeof *x.put_off);
  x.owed = arena_array(k->memory, o->n_events, sizeof *x.owed);
  x.is_post = ARENA_ARRAY(k->memory, o->n_events, bool);
  for (size_t s = 0; s < n_streams; s++) x.done[s] = ISSUE_NOBODY;
  for (uint32_t p = 0; p < k->plan->n_posts; p++) x.is_post[o->posted[p]] = true;
  find_turns(&x);
  rewrite(&x);
}
