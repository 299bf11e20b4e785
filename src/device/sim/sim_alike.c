#include "device/sim/sim_alike.h"

#include "runtime/machine.h"

enum { MOST_RANKS = 64 };

/* ---- which ranks are enough ---- */
/* Does a shift by `by` positions map islands to islands? They are contiguous, so comparing neighbours is enough. */
static bool keeps_islands(const ir_mesh_data *m, uint32_t island, uint32_t by) {
  uint32_t n = (uint32_t)m->n_devices;
  for (uint32_t p = 0; p + 1 < n; p++) {
    uint32_t a = ir_mesh_moved(m, p, by, false), b = ir_mesh_moved(m, p + 1, by, false);
    if ((p / island == (p + 1) / island) != (a / island == b / island)) return false;
  }
  return true;
}

/* The least distance along grid axis k at which islands repeat; its size, if they do not. */
static uint32_t repeat_along(const ir_mesh_data *m, uint32_t island, uint32_t k, uint32_t stride) {
  uint32_t n = (uint32_t)m->shape[k];
  for (uint32_t t = 1; t < n; t++)
    if (n % t == 0 && keeps_islands(m, island, t * stride)) return t;
  return n;
}

/* How many ranks are enough. All axes inside the first one along which ranks differ are taken whole, so that the
 * ranks are contiguous. */
static uint32_t repeat_of(const ir_mesh_data *m, uint32_t island) {
  uint32_t inner = (uint32_t)m->n_devices;
  for (uint32_t k = 0; k < m->rank; k++) {
    inner /= (uint32_t)m->shape[k];
    uint32_t t = repeat_along(m, island, k, inner);
    if (t > 1) return t * inner;
  }
  return 1;
}

static bool is_in_order(const ir_mesh_data *m) {
  for (int64_t i = 0; i < m->n_devices; i++)
    if (m->devices[i] != i) return false;
  return true;
}

/* A team of all ranks has the same link everywhere. */
static bool links_may_differ(const rt_plan *plan) {
  for (uint32_t p = 0; p < plan->n_posts; p++)
    if (ir_comm_is_message(plan->posts[p].kind) || plan->posts[p].n_team < plan->alike->n_devices)
      return true;
  return false;
}

/* Are all ranks simulated because they share cores? */
static bool share_cores(const ir_mesh_data *m, const rt_speed *machine) {
  return machine->cores > 0 && m->n_devices <= MOST_RANKS;
}

uint32_t sim_alike_enough(const rt_plan *plan, const rt_speed *machine) {
  const ir_mesh_data *m = plan->alike;
  if (share_cores(m, machine)) return (uint32_t)m->n_devices;
  uint32_t island = (uint32_t)machine->island;
  bool one = island <= 1 || island >= m->n_devices || !links_may_differ(plan);
  uint32_t all = (uint32_t)m->n_devices, n = one ? 1 : is_in_order(m) ? repeat_of(m, island) : all;
  return n <= MOST_RANKS ? n : 1;
}

/* ---- which rank represents which ---- */
void sim_alike_begin(sim_alike *a, const rt_plan *plan, const rt_speed *machine, arena *memory) {
  *a = (sim_alike){.mesh = plan->alike, .machine = machine};
  if (!a->mesh) return;
  a->n = plan->n_ranks > 1 ? plan->n_ranks : 1;
  a->rank = plan->n_posts ? plan->posts[0].rank : 0;
  a->positions = ARENA_ARRAY(memory, (size_t)a->mesh->n_devices, uint32_t);
  for (int64_t i = 0; i < a->mesh->n_devices; i++) a->positions[a->mesh->devices[i]] = (uint32_t)i;
}

uint32_t sim_alike_of(const sim_alike *a, uint32_t rank) {
  if (!a->mesh) return rank;
  return a->n > 1 ? rank % a->n : a->rank;
}

static uint32_t step_between(const sim_alike *a, uint32_t from, uint32_t to) {
  return ir_mesh_moved(a->mesh, a->positions[to], a->positions[from], true);
}

static uint32_t step_from(const sim_alike *a, uint32_t position, uint32_t step) {
  return (uint32_t)a->mesh->devices[ir_mesh_moved(a->mesh, position, step, false)];
}

void sim_alike_pair(const sim_alike *a, uint32_t sender, uint32_t receiver, uint32_t pair[2]) {
  pair[0] = sender;
  pair[1] = receiver;
  if (!a->mesh) return;
  pair[0] = sim_alike_of(a, sender);
  pair[1] = step_from(a, a->positions[pair[0]], step_between(a, sender, receiver));
}

bool sim_alike_is_far(const sim_alike *a, uint32_t from, uint32_t to) {
  if (!a->mesh || a->n > 1) return rt_machine_is_far(a->machine, from, to);
  uint32_t step = step_between(a, from, to);
  if (a->machine->island <= 0) return false;
  for (uint32_t p = 0; p < a->mesh->n_devices; p++)
    if (rt_machine_is_far(a->machine, (uint32_t)a->mesh->devices[p], step_from(a, p, step)))
      return true;
  return false;
}
