/* Random programs on several threads of one process: each thread takes the next one, on devices of its own.
 *
 * For GPUs: processes have a context each, between which a GPU must switch, while threads share one. One
 * thread is the caller's own. */
#ifndef WEIR_TESTS_FUZZ_CROWD_H
#define WEIR_TESTS_FUZZ_CROWD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "command.h"
#include "runtime/device.h"

enum { CROWD_MOST = 64 };

typedef struct crowd {
  uint64_t count;
  double seconds;    /* no program begins later */
  unsigned failures; /* nor after so many */
  uint32_t threads;
  bool (*open)(void);           /* in each thread, before its first program */
  bool (*try_one)(uint64_t at); /* number `at` of `count`; whether all is well */
  void (*close)(void);          /* in each thread, at its end; also if it could not open */
  /* what became of it */
  _Atomic uint64_t next;
  _Atomic unsigned passed, failed, unopened;
  double start;
} crowd;

static inline void *crowd_member(void *context) {
  crowd *c = context;
  bool opened = c->open();
  if (!opened) atomic_fetch_add(&c->unopened, 1);
  while (opened && atomic_load(&c->failed) < c->failures &&
         command_now() - c->start <= c->seconds) {
    uint64_t at = atomic_fetch_add(&c->next, 1);
    if (at >= c->count) break;
    atomic_fetch_add(c->try_one(at) ? &c->passed : &c->failed, 1);
  }
  c->close();
  return NULL;
}

/* False: a thread could not open its devices, or could not be started. */
static inline bool crowd_run(crowd *c) {
  pthread_t threads[CROWD_MOST];
  uint32_t n = 0, wanted = c->threads < CROWD_MOST ? c->threads : CROWD_MOST;
  c->start = command_now();
  if (wanted <= 1) (void)crowd_member(c);
  for (; wanted > 1 && n < wanted; n++)
    if (pthread_create(&threads[n], NULL, crowd_member, c) != 0) break;
  for (uint32_t i = 0; i < n; i++) (void)pthread_join(threads[i], NULL);
  return c->unopened == 0 && (wanted <= 1 || n == wanted);
}

/* What GPUs were busy with, or their driver. */
typedef struct gpu_times {
  _Atomic int64_t load_ns, run_ns, unload_ns;
} gpu_times;

/* Of a program that has just been unloaded. */
static inline void gpu_times_add(gpu_times *t, int64_t began_ns, int64_t loaded_ns,
                                 int64_t ran_ns) {
  atomic_fetch_add(&t->load_ns, loaded_ns - began_ns);
  atomic_fetch_add(&t->run_ns, ran_ns - loaded_ns);
  atomic_fetch_add(&t->unload_ns, rt_clock_ns() - ran_ns);
}

static inline void gpu_times_print(const gpu_times *t) {
  printf("GPUs: %.1f s to load, %.1f s to run and compare, %.1f s to unload, of all threads\n",
         (double)t->load_ns * 1e-9, (double)t->run_ns * 1e-9, (double)t->unload_ns * 1e-9);
}

#endif
