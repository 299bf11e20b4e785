/* How long a host program would take on all ranks: the simulator, on the machine that choices are made for. */
#ifndef WEIR_CHOOSE_SIMULATE_H
#define WEIR_CHOOSE_SIMULATE_H

#include "choose/choose.h"

typedef struct choose_simulation {
  const allocator *memory;
  rt_plan **parts, *plan; /* of all ranks, and joined; of one rank `plan` alone is there */
  uint32_t n;
  rt_device *device;
  rt_loaded *loaded;
  rt_span *spans; /* of `plan`, in virtual time */
  int64_t total_ns;
} choose_simulation;

/* A zeroed one; choose_simulation_end() comes after it, whatever it returns. */
NODISCARD status choose_simulate(const choose_world *w, const ir_env *env, ir_func *host,
                                 choose_simulation *s);
void choose_simulation_end(choose_simulation *s);
/* Only the time. */
NODISCARD status choose_simulate_ns(const choose_world *w, const ir_env *env, ir_func *host,
                                    double *ns);

#endif
