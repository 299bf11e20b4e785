#include "device/issue/split.h"

#include "base/table.h"

uint32_t issue_rank_of_stream(const rt_plan *plan, const issue_order *order, uint32_t stream) {
  return stream < plan->n_streams ? rt_plan_rank(plan, stream)
                                  : order->rank_of_lane[stream - plan->n_streams];
}

/* Flags are numbered in the order of the waits, which is the same in all processes. */
static void find_flags(const rt_plan *plan, const issue_order *order, arena *memory,
                       issue_split *s) {
  s->flag_of = ARENA_ARRAY(memory, order->n_events, uint32_t);
  s->rank_of_event = ARENA_ARRAY(memory, order->n_events, uint32_t);
  for (uint32_t e = 0; e < order->n_events; e++) s->flag_of[e] = ISSUE_NO_FLAG;
  for (uint32_t i = 0; i < order->steps.len; i++) {
    const issue_step *x = &order->steps.data[i];
    uint32_t rank = issue_rank_of_stream(plan, order, x->stream);
    if (x->kind == ISSUE_RECORD) s->rank_of_event[x->index] = rank;
    if (x->kind != ISSUE_WAIT || s->rank_of_event[x->index] == rank) continue;
    if (s->flag_of[x->index] == ISSUE_NO_FLAG) s->flag_of[x->index] = s->n_flags++;
  }
  s->post_of_flag = ARENA_ARRAY(memory, s->n_flags, uint32_t);
  for (uint32_t f = 0; f < s->n_flags; f++) s->post_of_flag[f] = RT_NO_POST;
  for (uint32_t p = 0; p < plan->n_posts; p++) {
    uint32_t flag = s->flag_of[order->posted[p]];
    if (flag != ISSUE_NO_FLAG) s->post_of_flag[flag] = p;
  }
}

static uint64_t hash_place(uint64_t hash, const issue_place *p) {
  hash = hash_mix(hash, (uint64_t)p->kind << 32 | p->index);
  return hash_mix(hash, (uint64_t)p->offset_bytes);
}

/* Hashes a communication that a library carries out as it was posted. */
static uint64_t hash_comm(uint64_t hash, const issue_comm *c, const rt_post *p) {
  hash = hash_mix(hash, (uint64_t)c->circle << 32 | c->member);
  hash = hash_mix(hash, (uint64_t)p->kind << 32 | (uint64_t)p->op << 16 | (uint64_t)p->dtype);
  hash = hash_mix(hash_mix(hash, (uint64_t)p->count), (uint64_t)p->count_from);
  for (uint32_t i = 0; i < p->n_team; i++) hash = hash_mix(hash, p->team[i]);
  return hash_mix(hash, (uint64_t)p->root << 1 | c->collects);
}

static uint64_t hash_order(const rt_plan *plan, const issue_order *o) {
  uint64_t hash = hash_mix(o->n_ranks, o->n_events);
  for (uint32_t i = 0; i < o->steps.len; i++) {
    const issue_step *x = &o->steps.data[i];
    hash = hash_mix(hash, (uint64_t)x->kind << 48 | (uint64_t)x->stream << 32 | x->index);
  }
  for (uint32_t i = 0; i < o->copies.len; i++) {
    const issue_copy *c = &o->copies.data[i];
    hash = hash_mix(hash_place(hash_place(hash, &c->to), &c->from), (uint64_t)c->size_bytes);
  }
  for (uint32_t i = 0; i < o->folds.len; i++) {
    const issue_fold *f = &o->folds.data[i];
    hash = hash_mix(hash, (uint64_t)f->op << 32 | (uint64_t)f->dtype);
    hash = hash_mix(hash, (uint64_t)f->count);
    for (uint32_t k = 0; k < f->n_sources + f->n_results; k++)
      hash = hash_place(hash, &f->places[k]);
  }
  /* mutant: cuda_nccl_other_program */
  for (uint32_t i = 0; i < o->comms.len; i++)
    hash = hash_comm(hash, &o->comms.data[i], &plan->posts[o->comms.data[i].post]);
  return hash;
}

void issue_order_split(const rt_plan *plan, uint32_t rank, arena *memory, issue_order *order,
                       issue_split *result) {
  *result = (issue_split){.hash = hash_order(plan, order)};
  find_flags(plan, order, memory, result);
  uint32_t *upto = ARENA_ARRAY(memory, plan->n_instrs + (size_t)1, uint32_t);
  uint32_t at = 0, kept = 0, own = 0;
  for (uint32_t i = 0; i < plan->n_instrs; i++) {
    for (; at < order->upto[i]; at++) {
      issue_step x = order->steps.data[at];
      if (issue_rank_of_stream(plan, order, x.stream) == rank) order->steps.data[kept++] = x;
    }
    if (rt_plan_rank(plan, plan->instrs[i].stream) == rank) upto[own++] = kept;
  }
  order->steps.len = kept;
  /* mutant: cuda_part_without_its_end */
  if (own) upto[own - 1] = kept;
  order->upto = upto;
}
