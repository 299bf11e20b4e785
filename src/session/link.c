#include "session/link.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

/* A link that a network shapes takes some bytes at once before it slows down: they do not count for its rate, and are
 * found by what is missing from the time of the first bytes after a rest. */
enum { PROBE_BYTES = 4 << 20, FIRST_BYTES = 512 << 10, PROBES = 6, REST_NS = 10000000 };
static const double least_burst_ns = 100e3; /* below, it is the measurement's error */

/* ---- how fast it is ---- */
typedef struct probes {
  int64_t none_ns, first_ns, all_ns; /* for 8 bytes, FIRST_BYTES, PROBE_BYTES */
} probes;

/* After a rest; a few bytes make all begin together. */
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
/* A thread that computes: how much it gets done tells what else its core does. */
typedef struct worker {
  atomic_bool ends;
  _Atomic uint64_t done;
} worker;

static void *work(void *context) {
  enum { STEP = 2000 };
  worker *w = context;
  while (!atomic_load_explicit(&w->ends, memory_order_relaxed)) {
    for (volatile int i = 0; i < STEP;) i = i + 1;
    (void)atomic_fetch_add_explicit(&w->done, 1, memory_order_relaxed);
  }
  return NULL;
}

typedef struct mark {
  int64_t ns;
  uint64_t done;
} mark;

static mark mark_of(worker *w) { return (mark){rt_clock_ns(), atomic_load(&w->done)}; }

static double rate(mark from, mark to) {
  return to.ns > from.ns ? (double)(to.done - from.done) / (double)(to.ns - from.ns) : 0;
}

enum {
  ROUNDS = 5,
  MOST_TURNS = 16,
  TURN_BYTES = 1 << 20,
  BULK_NAP_NS = 300000,
  STEPS = 16,
  STEP_NAP_NS = 40000,
};

/* How much communication slows down computing, and the reverse. */
typedef struct costs {
  double usual, beside;   /* rates of the worker: alone, and while bytes move */
  double step_ns[ROUNDS]; /* of a few bytes, while the worker computes */
} costs;

/* The mean of some: each needs the thread that communicates to wake up on all ranks. */
static status step(const session_ranks *r, char *memory, double *ns) {
  int64_t start_ns = rt_clock_ns();
  for (int i = 0; i < STEPS; i++)
    TRY(session_ranks_pass_on(r, memory, memory + PROBE_BYTES, 8, STEP_NAP_NS));
  *ns = (double)(rt_clock_ns() - start_ns) / STEPS;
  return STATUS_OK;
}

/* In turns with and without the link in use, for some 20 ms each. The best of both rates counts: whatever
 * else the machine does makes it slower. */
static status compare(const session_ranks *r, char *memory, worker *w, uint8_t turns, costs *c) {
  const struct timespec alone = {.tv_nsec = 20000000};
  for (int i = 0; i < ROUNDS; i++) {
    TRY(session_ranks_pass_on(r, memory, memory + PROBE_BYTES, 8, 0));
    mark first = mark_of(w);
    (void)nanosleep(&alone, NULL);
    mark second = mark_of(w);
    for (uint8_t k = 0; k < turns; k++)
      TRY(session_ranks_pass_on(r, memory, memory + PROBE_BYTES, TURN_BYTES, BULK_NAP_NS));
    c->usual = fmax(c->usual, rate(first, second));
    c->beside = fmax(c->beside, rate(second, mark_of(w)));
    TRY(step(r, memory, &c->step_ns[i]));
  }
  return STATUS_OK;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static status find_cost(const session_ranks *r, char *memory, session_link *result) {
  const double most = 0.9, turn_ns = TURN_BYTES / result->bytes_per_ns;
  uint8_t turns = (uint8_t)fmax(1, fmin(20e6 / turn_ns, MOST_TURNS));
  costs c = {0};
  worker w = {0};
  pthread_t thread;
  TRY(session_ranks_decide(r, &turns));
  bool works = pthread_create(&thread, NULL, work, &w) == 0;
  status st = compare(r, memory, &w, turns, &c);
  atomic_store(&w.ends, true);
  if (works) (void)pthread_join(thread, NULL);
  double lost = c.usual > 0 ? 1 - c.beside / c.usual : 0;
  result->cores = fmin(fmax(lost, 0), most);
  qsort(c.step_ns, ROUNDS, sizeof *c.step_ns, by_size);
  result->latency_ns = c.step_ns[1]; /* but for one the best: others make the rest slower */
  return st;
}

/* Naps end when they should, and not up to 50 us later. */
static status find_cost_on_time(const session_ranks *r, char *memory, session_link *result) {
  int slack_ns = prctl(PR_GET_TIMERSLACK);
  if (slack_ns > 0) (void)prctl(PR_SET_TIMERSLACK, 1UL);
  status st = find_cost(r, memory, result);
  if (slack_ns > 0) (void)prctl(PR_SET_TIMERSLACK, (unsigned long)slack_ns);
  return st;
}

status session_link_measure(const session_ranks *r, const allocator *memory, session_link *result) {
  char *buffer = memory_alloc(memory, 2 * (size_t)PROBE_BYTES);
  if (!buffer) return STATUS_OUT_OF_MEMORY;
  memset(buffer, 0, 2 * (size_t)PROBE_BYTES);
  *result = (session_link){0};
  status st = probe(r, buffer, result);
  if (st == STATUS_OK) st = find_cost_on_time(r, buffer, result);
  memory_free(memory, buffer);
  return st;
}
