/* Cores that devices share on the virtual clock.
 *
 * A task needs a compute unit of its device and, if the machine says how many cores a host has, one of
 * those. A communication of a device takes `comm_cores` of a core. That may be all of it, as for a copy
 * by a thread: then it begins when a core is free. If it is less, the next task on that core is
 * delayed. */
#ifndef WEIR_DEVICE_SIM_SIM_CORES_H
#define WEIR_DEVICE_SIM_SIM_CORES_H

#include "runtime/device.h"

enum { SIM_NOBODY = UINT32_MAX };

/* A moment, and what ended then: an instruction, or n_instrs + operation (SIM_NOBODY: the host). */
typedef struct sim_moment {
  double ns;
  uint32_t cause;
} sim_moment;

static inline sim_moment sim_later(sim_moment a, sim_moment b) { return b.ns > a.ns ? b : a; }

typedef struct sim_cores {
  uint32_t n;        /* of a host; 0: devices share none */
  uint32_t per_host; /* devices */
  uint32_t n_hosts;
  double taken; /* the fraction of a core that a communication of a device takes */
  /* If one device represents all, its tasks take so many times longer, because devices share the
   * cores. */
  double slower;
  sim_moment *free; /* host by host */
} sim_cores;

/* `ranks`: how many are simulated; `one_of`: how many the only one represents. */
void sim_cores_build(sim_cores *c, const rt_speed *machine, uint32_t ranks, uint32_t one_of,
                     arena *memory);
void sim_cores_begin(sim_cores *c);
/* The core that a rank gets from `at` on: of the cores that are free then, the one that was busy last;
 * if none is, the one that will be free first. NULL: ranks share no cores. */
sim_moment *sim_cores_find(const sim_cores *c, uint32_t rank, double at);
/* Lets a communication of the rank take its part of a core; returns when it ends. */
sim_moment sim_cores_communicate(sim_cores *c, uint32_t rank, double start_ns, sim_moment end);

#endif
