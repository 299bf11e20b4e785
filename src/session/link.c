#include "session/link.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

/* A link with traffic shaping accepts a burst of bytes before it slows down. The burst does not count for the rate;
 * its size follows from how much faster the first bytes after a rest are than the rate says. */
enum { PROBE_BYTES = 4 << 20, FIRST_BYTES = 512 << 10, PROBES = 6, REST_NS = 10000000 };
static const double least_burst_ns = 100e3; /* a smaller difference is an error of measurement */

/* ---- how fast it is ---- */
typedef struct probes {
  int64_t none_ns, first_ns, all_ns; /* for 8 bytes, FIRST_BYTES, PROBE_BYTES */
} probes;

/* Measures a transfer after a rest. A few bytes are sent first, so that all ranks begin together. */
static status probe_size(const session_ranks *r, char *memory, int64_t bytes, int64_t *least_ns) {
  const struct timespec rest = {.tv_nsec = REST_NS};
  (void)nanosleep(&rest, NULL);
  TRY(session_ranks_pass_on(r, memory, memory + PROBE_BYTES, 8, 0));
  int64_t start_ns = rt_clock_ns();
  TRY(session_ranks_pass_on(r, memory, memory + PROBE_BYTES, bytes, 0));
  int64_t ns = rt_clock_ns() - start_ns;
  if (ns < *least_ns) *least_ns = ns;
  return STATUS_OK;
}

static status probe(const session_ranks *r, char *memory, session_link *result) {
  probes p = {INT64_MAX, INT64_MAX, INT64_MAX};
  for (int i = 0; i < PROBES; i++) {
    TRY(probe_size(r, memory, 8, &p.none_ns));
    TRY(probe_size(r, memory, FIRST_BYTES, &p.first_ns));
    TRY(probe_size(r, memory, PROBE_BYTES, &p.all_ns));
  }
  int64_t transfer_ns = p.all_ns > p.first_ns + 1000 ? p.all_ns - p.first_ns : 1000;
  result->idle_ns = (double)p.none_ns;
  result->bytes_per_ns = (double)(PROBE_BYTES - FIRST_BYTES) / (double)transfer_ns;
  double missing_ns = FIRST_BYTES / result->bytes_per_ns - (double)(p.first_ns - p.none_ns);
  if (missing_ns > least_burst_ns)
    result->burst_bytes = fmin(missing_ns * result->bytes_per_ns, FIRST_BYTES);
  return STATUS_OK;
}

/* ---- what it costs ---- */
enum {
  WORK_FLOATS = 64 << 10, /* as much as a product keeps in an inner cache */
  ROUNDS = 9,
  STEPS = 8,
  STEP_BYTES = 4 << 10, /* more than a post itself carries */
  ALONE_NS = 10000000,
  BULK_NS = 20000000,
  BULK_NAP_NS = 300000,
  STEP_NAP_NS = 40000,
};

/* A thread that computes. How much it computes shows what else its core does, and what that leaves of its cache. */
typedef struct worker {
  float *data;
  atomic_bool ends;
  _Atomic uint64_t done;
} worker;

static void *work(void *context) {
  enum { PART = 4 << 10 };
  worker *w = context;
  for (size_t at = 0; !atomic_load_explicit(&w->ends, memory_order_relaxed);
       at = (at + PART) % WORK_FLOATS) {
    for (size_t i = at; i < at + PART; i++) w->data[i] = w->data[i] * 0.5F + 1;
    (void)atomic_fetch_add_explicit(&w->done, 1, memory_order_relaxed);
  }
  return NULL;
}

/* What a rank sends to each of the others, and where it receives what they send. */
typedef struct hands {
  const session_ranks *ranks;
  char *in, *out;
  uint32_t others;
  uint8_t turns;        /* how often `bulk_floats` are added up per round */
  int64_t bulk_floats;  /* an allreduce of so many: adding needs a core, too */
  double step_bytes_ns; /* of a step, at the link's rate */
} hands;

/* How much communication slows down computing, and the reverse. */
typedef struct costs {
  session_link_round rounds[ROUNDS];
  double step_ns[ROUNDS * STEPS];
  uint32_t n_steps;
} costs;

/* Room for what all ranks send: twice a probe, or, with very many ranks, a step of all of them. */
static size_t out_bytes(uint32_t others) {
  size_t steps = ((size_t)others + 1) * STEP_BYTES;
  return steps > (size_t)2 * PROBE_BYTES ? steps : (size_t)2 * PROBE_BYTES;
}

static void sleep_for(int64_t ns) {
  const struct timespec t = {.tv_nsec = ns};
  (void)nanosleep(&t, NULL);
}

static double rate_since(const worker *w, int64_t start_ns, uint64_t done) {
  int64_t ns = rt_clock_ns() - start_ns;
  return ns > 0 ? (double)(atomic_load(&w->done) - done) / (double)ns : 0;
}

static double rate_alone(const worker *w) {
  int64_t start_ns = rt_clock_ns();
  uint64_t done = atomic_load(&w->done);
  sleep_for(ALONE_NS);
  return rate_since(w, start_ns, done);
}

static status rate_beside(const hands *h, const worker *w, double *rate) {
  int64_t start_ns = rt_clock_ns();
  uint64_t done = atomic_load(&w->done);
  for (uint8_t k = 0; k < h->turns; k++)
    TRY(session_ranks_add(h->ranks, (const float *)(void *)h->in, (float *)(void *)h->out,
                          h->bulk_floats, BULK_NAP_NS));
  *rate = rate_since(w, start_ns, done);
  return STATUS_OK;
}

/* One small exchange. The link rests before it, so that a burst takes all of its bytes; a few bytes are sent first, so
 * that all ranks begin together. */
static status step(const hands *h, double *ns) {
  sleep_for(200000 + (int64_t)h->step_bytes_ns);
  TRY(session_ranks_share(h->ranks, h->in, h->out, 8, STEP_NAP_NS));
  int64_t start_ns = rt_clock_ns();
  TRY(session_ranks_share(h->ranks, h->in, h->out, STEP_BYTES, STEP_NAP_NS));
  *ns = (double)(rt_clock_ns() - start_ns) / h->others;
  return STATUS_OK;
}

/* Measures the rounds: computing with and without the link in use, then steps. */
static status compare(const hands *h, const worker *w, costs *c) {
  for (int i = 0; i < ROUNDS; i++) {
    TRY(session_ranks_share(h->ranks, h->in, h->out, 8, 0));
    c->rounds[i].before = rate_alone(w);
    TRY(rate_beside(h, w, &c->rounds[i].beside));
    c->rounds[i].after = rate_alone(w);
    for (int k = 0; k < STEPS; k++) TRY(step(h, &c->step_ns[c->n_steps++]));
  }
  return STATUS_OK;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *of, uint32_t n) {
  qsort(of, n, sizeof *of, by_size);
  return of[n / 2];
}

double session_link_lost(const session_link_round *rounds, uint32_t n) {
  enum { MOST = 64 };
  const double most = 0.9;
  double lost[MOST] = {0};
  if (n > MOST) n = MOST;
  for (uint32_t i = 0; i < n; i++) {
    double alone = (rounds[i].before + rounds[i].after) / 2;
    if (alone > 0) lost[i] = 1 - rounds[i].beside / alone;
  }
  return n ? fmin(fmax(median(lost, n), 0), most) : 0;
}

/* Chooses turns that fit the buffers and together take about BULK_NS at the link's rate. */
static void plan_bulk(hands *h, double bytes_per_ns) {
  const double most = PROBE_BYTES, turn = fmin(0.5 * BULK_NS * bytes_per_ns, most);
  double n = h->others + 1, moved = 2.0 * h->others / n * sizeof(float);
  h->bulk_floats = (int64_t)fmax(turn / moved, STEP_BYTES);
  double turn_ns = (double)h->bulk_floats * moved / bytes_per_ns;
  h->turns = (uint8_t)fmax(1, fmin(BULK_NS / turn_ns, 16));
}

static status find_cost(hands *h, session_link *result) {
  costs c = {0};
  worker w = {.data = (float *)(void *)(h->out + out_bytes(h->others))};
  pthread_t thread;
  plan_bulk(h, result->bytes_per_ns);
  TRY(session_ranks_tell(h->ranks, &h->bulk_floats, sizeof h->bulk_floats));
  TRY(session_ranks_decide(h->ranks, &h->turns));
  h->step_bytes_ns = (double)STEP_BYTES * h->others / result->bytes_per_ns;
  bool works = pthread_create(&thread, NULL, work, &w) == 0;
  status st = compare(h, &w, &c);
  atomic_store(&w.ends, true);
  if (works) (void)pthread_join(thread, NULL);
  TRY(st);
  result->cores = session_link_lost(c.rounds, ROUNDS);
  result->latency_ns = median(c.step_ns, c.n_steps);
  return STATUS_OK;
}

/* Measures with a timer slack of 1 ns: naps then end on time, not up to 50 us late. */
static status find_cost_on_time(hands *h, session_link *result) {
  int slack_ns = prctl(PR_GET_TIMERSLACK);
  if (slack_ns > 0) (void)prctl(PR_SET_TIMERSLACK, 1UL);
  status st = find_cost(h, result);
  if (slack_ns > 0) (void)prctl(PR_SET_TIMERSLACK, (unsigned long)slack_ns);
  return st;
}

status session_link_measure(const session_ranks *r, const allocator *memory, session_link *result) {
  hands h = {.ranks = r, .others = r->world - 1};
  size_t bytes = PROBE_BYTES + out_bytes(h.others) + WORK_FLOATS * sizeof(float);
  h.in = memory_alloc(memory, bytes);
  if (!h.in) return STATUS_OUT_OF_MEMORY;
  memset(h.in, 0, bytes);
  h.out = h.in + PROBE_BYTES;
  *result = (session_link){0};
  status st = probe(r, h.in, result);
  if (st == STATUS_OK) st = find_cost_on_time(&h, result);
  memory_free(memory, h.in);
  return st;
}
