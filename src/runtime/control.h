/* Runs that another thread can stop. */
#ifndef WEIR_RUNTIME_CONTROL_H
#define WEIR_RUNTIME_CONTROL_H

#include <pthread.h>

#include "runtime/device.h"

/* A handle by which another thread stops a run. A run that begins afterwards is CANCELLED at once. */
typedef struct rt_control {
  pthread_mutex_t lock;
  rt_loaded *running; /* under the lock: NULL unless a device runs it */
  bool stops;
} rt_control;
NODISCARD status rt_control_init(rt_control *c);
void rt_control_destroy(rt_control *c);
void rt_control_stop(rt_control *c); /* from any thread; clears that thread's error record */
bool rt_control_stops(rt_control *c);
/* rt_run(), which `control` (may be NULL) can stop. */
NODISCARD status rt_run_controlled(rt_loaded *loaded, void *const *inputs, void *const *outputs,
                                   rt_span *spans, int64_t *host_ns, rt_control *control);

#endif
