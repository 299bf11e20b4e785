/* Communications on the virtual clock.
 *
 * Which posts belong together is known when a plan is loaded: the k-th post of one member of a team meets
 * the k-th of every other, and messages meet per sender and receiver. An operation begins when all members
 * have posted and the links it needs are free. A member whose rank is not in the plan posts at the same
 * moment as the last of the others. Each rank has one link, which sends and receives at the same time: a
 * message needs one side of two links, a collective both sides of its members' links. */
#ifndef WEIR_DEVICE_SIM_SIM_COMM_H
#define WEIR_DEVICE_SIM_SIM_COMM_H

#include "device/sim/sim_cores.h"
#include "runtime/machine.h"

typedef struct sim_op {
  bool is_message;
  const uint32_t
      *team; /* world ranks whose links it takes; for a message the sender, then the receiver */
  uint32_t n_team;
  rt_link link;
  double fixed_ns;   /* how long it takes beside its bytes */
  double bytes_ns;   /* its bytes, at the link's rate */
  uint32_t expected; /* posts in this plan */
  /* ---- of a run ---- */
  uint32_t posted;
  uint32_t last; /* RT_POST that came last */
  bool is_done;  /* its end is known */
  sim_moment ready, end;
} sim_op;

typedef struct sim_post {
  uint32_t ops[2]; /* SIM_NOBODY: none; a permute has two */
  uint32_t instr;
  uint16_t stream;
  bool is_posted;
  sim_moment start;
} sim_post;

typedef struct sim_comms {
  const rt_plan *plan;
  sim_op *ops;
  uint32_t n_ops;
  sim_post *posts;              /* by post */
  sim_moment *sends, *receives; /* when the sides of each link are free, by world rank */
  double *recovered_ns;         /* when each link has rested from what it sent (rt_link) */
  uint32_t n_links;
  uint32_t *waiting, n_waiting; /* operations that could begin */
} sim_comms;

/* Needs a memory_guard(). */
void sim_comms_build(sim_comms *c, const rt_plan *plan, const rt_speed *machine, arena *memory);
void sim_comms_begin(sim_comms *c);
void sim_comms_post(sim_comms *c, uint32_t post, sim_moment at);
/* The operation that can begin first; SIM_NOBODY: none can. */
uint32_t sim_comms_first(const sim_comms *c);
/* If its links are busy until later, it becomes ready only then, so that it gets no core before. True: they are. */
bool sim_comms_delay(sim_comms *c, uint32_t op);
/* Lets it begin, with the part of the cores that it takes. Returns what it waited for last. */
uint32_t sim_comms_start(sim_comms *c, uint32_t op, sim_cores *cores);
/* May it be posted? If so, *at becomes at least the moment before which it may not. */
bool sim_comms_may_post(const sim_comms *c, uint32_t post, sim_moment *at);
/* An operation of the post whose end is not known; SIM_NOBODY: there is none. */
uint32_t sim_comms_open(const sim_comms *c, uint32_t post);
/* True: the end of the communication is known, and in *end. */
bool sim_comms_end(const sim_comms *c, uint32_t post, sim_moment *end);

#endif
