/* How long a host program would take on all devices: the simulator, on the machine that choices are made for. */
#ifndef WEIR_API_SIMULATE_H
#define WEIR_API_SIMULATE_H

#include "api/execute.h"

typedef struct api_simulation {
  const allocator *memory;
  rt_plan **parts, *plan; /* of all ranks, and joined; of one rank `plan` alone is there */
  uint32_t n;
  rt_device *device;
  rt_loaded *loaded;
  rt_span *spans; /* of `plan`, in virtual time */
  int64_t total_ns;
} api_simulation;

/* A zeroed one; api_simulation_end() comes after it, whatever it returns. */
NODISCARD status api_simulate(api_executor *x, const ir_env *env, ir_func *host, api_simulation *s);
void api_simulation_end(api_simulation *s);
/* Only the time. */
NODISCARD status api_simulate_ns(api_executor *x, const ir_env *env, ir_func *host, double *ns);

#endif
