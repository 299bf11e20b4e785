/* Ranks that are alike: one is checked for all (docs/scale.md).
 *
 * Moving all such ranks along the mesh turns their plans into one another. So a message to the rank one step
 * ahead meets what that rank posts, and this is what the present rank posts for the one that is the same step
 * back. */
#include "check/internal.h"

void check_alike_begin(check_match *m) {
  const ir_mesh_data *mesh = m->alike;
  uint32_t *positions = ARENA_ARRAY(m->scratch, m->report->n_ranks, uint32_t);
  for (int64_t i = 0; i < mesh->n_devices; i++) positions[mesh->devices[i]] = (uint32_t)i;
  m->positions = positions;
}

uint32_t check_step_between(const check_match *m, uint32_t from, uint32_t to) {
  return ir_mesh_moved(m->alike, m->positions[to], m->positions[from], true);
}

uint32_t check_step_from(const check_match *m, uint32_t rank, uint32_t step, bool back) {
  return (uint32_t)m->alike->devices[ir_mesh_moved(m->alike, m->positions[rank], step, back)];
}
