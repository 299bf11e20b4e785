#include <time.h>

#include "runtime/control.h"

int64_t rt_clock_ns(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void issue_range(rt_loaded *loaded, uint32_t first, uint32_t end) {
  const rt_device_ops *ops = loaded->ops;
  const rt_instr *instrs = loaded->plan->instrs;
  for (uint32_t i = first; i < end; i++) {
    if (instrs[i].kind == RT_LAUNCH) ops->launch(loaded, i);
    else ops->wait(loaded, i);
  }
}

/* Issues what is between loops, and each repetition of a loop. */
static void issue(rt_loaded *loaded) {
  const rt_plan *plan = loaded->plan;
  uint32_t at = 0;
  for (uint32_t k = 0; k < plan->n_loops; k++) {
    const rt_loop *l = &plan->loops[k];
    issue_range(loaded, at, l->first);
    for (uint32_t turn = 0; turn < l->times; turn++) issue_range(loaded, l->first, l->first + l->n);
    at = l->first + l->n;
  }
  issue_range(loaded, at, plan->n_instrs);
}

/* ---- stopping ---- */
status rt_control_init(rt_control *c) {
  *c = (rt_control){0};
  if (pthread_mutex_init(&c->lock, NULL) == 0) return STATUS_OK;
  return fail(STATUS_SYSTEM, "cannot make a lock");
}

void rt_control_destroy(rt_control *c) { (void)pthread_mutex_destroy(&c->lock); }

static void cancel(rt_loaded *loaded) {
  if (loaded && loaded->ops->cancel) loaded->ops->cancel(loaded);
}

void rt_control_stop(rt_control *c) {
  (void)pthread_mutex_lock(&c->lock);
  if (!c->stops) cancel(c->running);
  c->stops = true;
  (void)pthread_mutex_unlock(&c->lock);
}

bool rt_control_stops(rt_control *c) {
  (void)pthread_mutex_lock(&c->lock);
  bool stops = c->stops;
  (void)pthread_mutex_unlock(&c->lock);
  return stops;
}

static void enter(rt_control *c, rt_loaded *loaded) {
  if (!c) return;
  (void)pthread_mutex_lock(&c->lock);
  c->running = loaded;
  if (c->stops) cancel(loaded);
  (void)pthread_mutex_unlock(&c->lock);
}

/* A stop that comes now is too late; one in progress holds the lock. */
static void leave(rt_control *c) {
  if (!c) return;
  (void)pthread_mutex_lock(&c->lock);
  c->running = NULL;
  (void)pthread_mutex_unlock(&c->lock);
}

/* ---- running ---- */
status rt_run_controlled(rt_loaded *loaded, void *const *inputs, void *const *outputs,
                         rt_span *spans, int64_t *host_ns, rt_control *control) {
  if (control && rt_control_stops(control)) return fail(STATUS_CANCELLED, "the run was cancelled");
  TRY(loaded->ops->begin(loaded, inputs, outputs, spans));
  enter(control, loaded);
  int64_t start_ns = host_ns ? rt_clock_ns() : 0;
  issue(loaded);
  if (host_ns) *host_ns = rt_clock_ns() - start_ns;
  status st = loaded->ops->finish(loaded);
  leave(control);
  return st;
}

status rt_run(rt_loaded *loaded, void *const *inputs, void *const *outputs, rt_span *spans,
              int64_t *host_ns) {
  return rt_run_controlled(loaded, inputs, outputs, spans, host_ns, NULL);
}
