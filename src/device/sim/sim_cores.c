#include "device/sim/sim_cores.h"

/* How many devices share the cores of the first host. */
static uint32_t sharing(const rt_speed *m, uint32_t ranks) {
  uint32_t n = (uint32_t)m->per_host;
  return n && n < ranks ? n : ranks;
}

void sim_cores_build(sim_cores *c, const rt_speed *machine, uint32_t ranks, uint32_t one_of,
                     arena *memory) {
  *c = (sim_cores){.n = (uint32_t)machine->cores, .slower = 1, .taken = machine->comm_cores};
  if (c->n == 0) return;
  if (one_of > ranks) {
    double per_core = (double)sharing(machine, one_of) / c->n;
    c->slower = per_core > 1 ? per_core : 1;
    c->n = 0;
    return;
  }
  c->per_host = sharing(machine, ranks);
  c->n_hosts = (ranks + c->per_host - 1) / c->per_host;
  c->free = ARENA_ARRAY(memory, (size_t)c->n_hosts * c->n, sim_moment);
}

void sim_cores_begin(sim_cores *c) {
  for (uint32_t i = 0; i < c->n_hosts * c->n; i++) c->free[i] = (sim_moment){0, SIM_NOBODY};
}

sim_moment *sim_cores_find(const sim_cores *c, uint32_t rank, double at) {
  if (c->n == 0) return NULL;
  sim_moment *cores = &c->free[(size_t)(rank / c->per_host) * c->n], *best = cores;
  for (uint32_t i = 1; i < c->n; i++) {
    bool now = cores[i].ns <= at, best_now = best->ns <= at;
    if (now == best_now ? (now ? cores[i].ns > best->ns : cores[i].ns < best->ns) : now)
      best = &cores[i];
  }
  return best;
}

sim_moment sim_cores_communicate(sim_cores *c, uint32_t rank, double start_ns, sim_moment end) {
  sim_moment *core = c->taken > 0 ? sim_cores_find(c, rank, start_ns) : NULL;
  if (!core || end.ns <= start_ns) return end;
  double begin_ns = core->ns > start_ns ? core->ns : start_ns;
  *core = (sim_moment){begin_ns + c->taken * (end.ns - start_ns), end.cause};
  return c->taken < 1 ? end : sim_later(end, *core);
}
