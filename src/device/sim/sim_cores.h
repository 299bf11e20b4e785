/* Cores that devices share on the virtual clock.
 *
 * A task needs a compute unit of its device and, where the machine says how many cores a host has,
 * one of those. A communication of a device takes `comm_cores` of one: all of it, as a copy by a
 * thread does, and then it begins when one is free; or less, which makes the next task on that core
 * later. */
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
  double taken; /* by a communication of a device */
  /* A device that represents all others of its host gets so much of its cores; its tasks take as
   * much longer. */
  double slower;
  sim_moment *free; /* host by host */
} sim_cores;

/* For so many ranks; `one_of`: the only one represents that many. */
void sim_cores_build(sim_cores *c, const rt_speed *machine, uint32_t ranks, uint32_t one_of,
                     arena *memory);
void sim_cores_begin(sim_cores *c);
/* The core that a rank gets from `at` on: the one that was busy last of those that are free then,
 * else the one that is free first. NULL: it has its own. */
sim_moment *sim_cores_find(const sim_cores *c, uint32_t rank, double at);
/* A communication of the rank takes its part of a core; when it has ended. */
sim_moment sim_cores_communicate(sim_cores *c, uint32_t rank, double start_ns, sim_moment end);

#endif
