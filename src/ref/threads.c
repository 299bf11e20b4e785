/* Independent parts of the work on several threads. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "ref/internal.h"

enum { MAX_THREADS = 64 };

typedef struct crew {
  uint32_t n;
  atomic_uint next;
  ref_task *task;
  void *context;
} crew;

static void *work(void *context) {
  crew *c = context;
  for (uint32_t i; (i = atomic_fetch_add(&c->next, 1)) < c->n;) c->task(c->context, i);
  return NULL;
}

uint32_t ref_cores(void) {
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n < 1 ? 1 : (uint32_t)(n < MAX_THREADS ? n : MAX_THREADS);
}

uint32_t ref_threads(const ref_call *c) {
  uint32_t n = c->state->options->threads;
  return n ? n : ref_cores();
}

/* With as many threads as could be started. */
void ref_parallel(uint32_t n, uint32_t threads, ref_task *task, void *context) {
  pthread_t helpers[MAX_THREADS];
  uint32_t started = 0, wanted = threads < n ? threads : n;
  crew c = {.n = n, .task = task, .context = context};
  if (wanted > MAX_THREADS) wanted = MAX_THREADS;
  while (started + 1 < wanted && pthread_create(&helpers[started], NULL, work, &c) == 0) started++;
  (void)work(&c);
  while (started > 0) (void)pthread_join(helpers[--started], NULL);
}
