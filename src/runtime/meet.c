#include "runtime/meet.h"

#include <string.h>

typedef struct wanted {
  const rt_meet *m;
  bool is_pair;
  uint32_t n;
  const uint32_t *devices;
} wanted;

void rt_meet_init(rt_meet *m, arena *memory) {
  *m = (rt_meet){.memory = memory};
  table_init(&m->known, memory);
}

static bool is_wanted(const void *context, uint32_t value) {
  const wanted *w = context;
  const rt_circle *c = &w->m->circles.data[value - 1];
  return c->is_pair == w->is_pair && c->n == w->n &&
         memcmp(c->devices, w->devices, w->n * sizeof *w->devices) == 0;
}

static uint32_t circle_of(rt_meet *m, bool is_pair, const uint32_t *devices, uint32_t n) {
  wanted w = {m, is_pair, n, devices};
  uint64_t hash = hash_mix(is_pair, hash_bytes(devices, n * sizeof *devices));
  uint32_t found = table_find(&m->known, hash, is_wanted, &w);
  if (found) return found - 1;
  rt_circle c = {.is_pair = is_pair, .n = n};
  c.devices = arena_copy(m->memory, devices, n * sizeof *devices);
  c.turns = ARENA_ARRAY(m->memory, n, uint32_t);
  vec_push(m->memory, &m->circles, c);
  table_add(&m->known, hash, m->circles.len);
  return m->circles.len - 1;
}

static rt_part part_of(rt_meet *m, uint32_t circle, uint32_t member) {
  return (rt_part){circle, member, m->circles.data[circle].turns[member]++};
}

static rt_part half_of(rt_meet *m, uint32_t sender, uint32_t receiver, uint32_t member) {
  uint32_t pair[2] = {sender, receiver};
  return part_of(m, circle_of(m, true, pair, 2), member);
}

void rt_meet_post(rt_meet *m, const rt_post *p, rt_part parts[2]) {
  parts[0] = parts[1] = (rt_part){.circle = RT_NO_CIRCLE};
  if (!ir_comm_is_message(p->kind)) {
    if (m->team != p->team || m->n_team != p->n_team)
      m->circle = circle_of(m, false, p->team, p->n_team);
    m->team = p->team;
    m->n_team = p->n_team;
    parts[0] = part_of(m, m->circle, p->me);
    return;
  }
  uint32_t me = p->team[p->me];
  if (p->kind != IR_COMM_RECV && p->to >= 0) parts[0] = half_of(m, me, p->team[p->to], 0);
  if (p->kind != IR_COMM_SEND && p->from >= 0) parts[1] = half_of(m, p->team[p->from], me, 1);
}
