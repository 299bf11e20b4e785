#include <time.h>

#include "runtime/device.h"

int64_t rt_clock_ns(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void issue(rt_loaded *loaded) {
  const rt_device_ops *ops = loaded->ops;
  const rt_instr *instrs = loaded->plan->instrs;
  uint32_t n = loaded->plan->n_instrs;
  for (uint32_t i = 0; i < n; i++) {
    if (instrs[i].kind == RT_LAUNCH) ops->launch(loaded, i);
    else ops->wait(loaded, i);
  }
}

status rt_run(rt_loaded *loaded, void *const *inputs, void *const *outputs, rt_span *spans,
              int64_t *host_ns) {
  TRY(loaded->ops->begin(loaded, inputs, outputs, spans));
  int64_t start_ns = host_ns ? rt_clock_ns() : 0;
  issue(loaded);
  if (host_ns) *host_ns = rt_clock_ns() - start_ns;
  return loaded->ops->finish(loaded);
}
