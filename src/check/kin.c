/* Ranks of a few kinds: as many plans, and one pattern of communications (docs/scale.md).
 *
 * Plans of different kinds may differ in what they launch and in how long it is. If everything else
 * is the same, step for step, then ranks meet and stop as if all were of one kind. */
#include "check/internal.h"

/* Is a peer as far from one rank as the other's is from it? */
static bool same_step(const check_match *m, const rt_post *a, int32_t i, const rt_post *b,
                      int32_t k) {
  if (i < 0 || k < 0) return i < 0 && k < 0;
  return check_step_between(m, a->rank, a->team[i]) == check_step_between(m, b->rank, b->team[k]);
}

static bool same_team(const check_match *m, const rt_post *a, const rt_post *b) {
  if (a->n_team != b->n_team || a->n_team < 2) return a->n_team == b->n_team;
  return check_step_between(m, a->team[0], a->team[1]) ==
         check_step_between(m, b->team[0], b->team[1]);
}

static bool same_post(const check_match *m, const rt_post *a, const rt_post *b) {
  bool message = ir_comm_is_message(a->kind);
  return a->kind == b->kind && a->op == b->op && a->dtype == b->dtype && a->root == b->root &&
         a->count == b->count && a->count_from == b->count_from && a->before == b->before &&
         same_team(m, a, b) &&
         (!message || (same_step(m, a, a->to, b, b->to) && same_step(m, a, a->from, b, b->from)));
}

/* The next instruction that is not a launch: no other rank waits for launches. */
static uint32_t skip(const rt_plan *p, uint32_t i) {
  while (i < p->n_instrs && p->instrs[i].kind == RT_LAUNCH) i++;
  return i;
}

static bool same_loops(const rt_plan *a, const rt_plan *b) {
  if (a->n_loops != b->n_loops) return false;
  for (uint32_t k = 0; k < a->n_loops; k++)
    if (a->loops[k].times != b->loops[k].times) return false;
  return true;
}

bool check_same_posts(const check_match *m, const rt_plan *a, const rt_plan *b) {
  uint32_t i = skip(a, 0), k = skip(b, 0);
  if (!same_loops(a, b)) return false;
  for (; i < a->n_instrs && k < b->n_instrs; i = skip(a, i + 1), k = skip(b, k + 1)) {
    const rt_instr *x = &a->instrs[i], *y = &b->instrs[k];
    if (x->kind != y->kind || x->stream != y->stream) return false;
    if (check_part_of(a, i) != check_part_of(b, k)) return false;
    if (x->kind == RT_WAIT ? x->other != y->other : x->task != y->task) return false;
    if (x->kind == RT_POST && !same_post(m, &a->posts[x->task], &b->posts[y->task])) return false;
  }
  return i == a->n_instrs && k == b->n_instrs;
}
