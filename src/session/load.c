/* Plans on the device. */
#include "session/plans.h"

/* Does any rank post anything? All processes get the same answer. */
static bool communicates(const session *x, const session_plan *p) {
  for (uint32_t r = 0; r < x->ranks.world; r++)
    if (p->ranks[r]->n_posts > 0) return true;
  return false;
}

/* For ranks that are alike: joins as many of them as the device needs to represent all. */
static status join_enough(session *x, const ir_env *env, session_plan *p) {
  uint32_t n = x->device->ops->enough(x->device, p->own);
  if (n == 1) {
    p->plan = p->own;
    return STATUS_OK;
  }
  TRY(session_plan_need_ranks(x, env, p, 0, n));
  TRY(rt_plan_join(p->ranks, n, x->memory, &p->plan));
  p->plan->alike = p->own->alike;
  return STATUS_OK;
}

static bool meets_all(const rt_plan *plan) {
  for (uint32_t i = 0; i < plan->n_posts; i++)
    if (ir_comm_is_message(plan->posts[i].kind) || plan->posts[i].n_team < plan->kin->n_devices)
      return false;
  return true;
}

/* For ranks of a few kinds: joins one of each kind, if all ranks take part in every communication. A
 * communication then begins when the last kind has posted it. */
static status join_kinds(session *x, const ir_env *env, session_plan *p) {
  session_kinds f;
  TRY(session_plan_kinds(x, env, p, &f));
  for (uint32_t k = 0; k < f.n; k++)
    if (!meets_all(f.plans[k])) return STATUS_OK;
  if (f.n == 0) return STATUS_OK;
  TRY(rt_plan_join(f.plans, f.n, x->memory, &p->plan));
  p->plan->kin = p->own->kin;
  return STATUS_OK;
}

/* What the device loads: the plan, unrolled if the device does not take its loops. */
static status find_plan(session *x, session_plan *p, const rt_plan **result) {
  bool apart = p->plan->n_posts == 0, alone = apart && p->plan->n_ranks <= 1;
  *result = p->plan;
  switch (x->device->ops->takes_loops) {
  case RT_LOOPS_ALL: return STATUS_OK;
  case RT_LOOPS_APART: return apart ? STATUS_OK : session_plan_need_unrolled(x, p, result);
  case RT_LOOPS_ALONE: return alone ? STATUS_OK : session_plan_need_unrolled(x, p, result);
  case RT_LOOPS_NONE: break;
  }
  return session_plan_need_unrolled(x, p, result);
}

/* A device that reads the memory of other processes has to know what they do. */
static status load_plan(session *x, const ir_env *env, session_plan *p) {
  const rt_device_ops *ops = x->device->ops;
  bool is_spread = x->ranks.n == 1 && x->ranks.world > 1;
  if (!p->plan && ops->enough && session_plan_is_typical(x, p)) TRY(join_enough(x, env, p));
  if (!p->plan && ops->enough) TRY(join_kinds(x, env, p));
  const rt_plan *plan;
  TRY(session_plan_need_joined(x, env, p));
  TRY(find_plan(x, p, &plan));
  if (!is_spread || !ops->load_spread) return ops->load(x->device, plan, &p->loaded);
  TRY(session_plan_need_ranks(x, env, p, 0, x->ranks.world));
  if (!communicates(x, p)) return ops->load(x->device, plan, &p->loaded);
  (void)atomic_fetch_add(&x->ranks.waiting, 1); /* the device tells others itself if it is busy */
  status st = ops->load_spread(x->device, plan, (const rt_plan *const *)p->ranks, x->ranks.world,
                               &p->loaded);
  (void)atomic_fetch_sub(&x->ranks.waiting, 1);
  return st;
}

/* Drops all plans but the first, which is in use. With other processes it drops none: they would have to load again
 * when this one does. */
static bool drop_others(session *x) {
  session_plan *first = x->plans;
  if (!first->next || x->ranks.n < x->ranks.world) return false;
  x->plans = first->next;
  session_plans_evict(x, 0);
  first->next = x->plans;
  x->plans = first;
  return true;
}

status session_plan_loaded(session *x, const ir_env *env, const int64_t *donated,
                           session_plan **result) {
  session_plan *p;
  TRY(session_ranks_need(&x->ranks, x->memory));
  TRY(session_plan_bound(x, env, donated, &p));
  *result = p;
  if (p->loaded) return STATUS_OK;
  status st = load_plan(x, env, p);
  if (st == STATUS_OUT_OF_MEMORY && drop_others(x)) {
    status_clear();
    st = load_plan(x, env, p);
  }
  if (st == STATUS_OK) x->counts.loads++;
  return st;
}

status session_load(session *x, const ir_env *env, rt_loaded **result) {
  session_plan *p;
  TRY(session_plan_loaded(x, env, NULL, &p));
  *result = p->loaded;
  return STATUS_OK;
}
