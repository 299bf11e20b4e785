/* Ranks that are alike (docs/scale.md) on the virtual clock: some are simulated and represent all.
 *
 * If all of them have the same links, one is enough: it communicates with itself. What it sends one
 * step ahead in the mesh is what it receives from one step back. With islands, a step may lead out of
 * an island on one rank and not on the next. Then the ranks are simulated up to the distance at which
 * islands repeat: rank r represents r + n, r + 2n and so on. If that distance is too long, one rank is
 * simulated, and a step that leads to another island on any rank does so on all: the slowest link
 * determines the speed of a ring. */
#ifndef WEIR_DEVICE_SIM_SIM_ALIKE_H
#define WEIR_DEVICE_SIM_SIM_ALIKE_H

#include "device/sim/sim.h"

typedef struct sim_alike {
  const ir_mesh_data *mesh; /* NULL: each rank represents itself */
  const rt_speed *machine;
  uint32_t n;          /* ranks that are simulated; if several, they are 0 … n - 1 */
  uint32_t rank;       /* if one: which */
  uint32_t *positions; /* in the mesh, by rank */
} sim_alike;

/* How many ranks are enough. 1: that of `plan`; n: ranks 0 … n - 1. */
uint32_t sim_alike_enough(const rt_plan *plan, const rt_speed *machine);
/* Needs a memory_guard(). */
void sim_alike_begin(sim_alike *a, const rt_plan *plan, const rt_speed *machine, arena *memory);
/* The rank that is simulated for this one. */
uint32_t sim_alike_of(const sim_alike *a, uint32_t rank);
/* The same message, as the rank that represents its sender sends it. */
void sim_alike_pair(const sim_alike *a, uint32_t sender, uint32_t receiver, uint32_t pair[2]);
/* Does a message go to another island? If one rank represents all: does it on any of them? */
bool sim_alike_is_far(const sim_alike *a, uint32_t from, uint32_t to);

#endif
