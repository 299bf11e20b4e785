#include "choose/choose.h"

#include <math.h>

#include "choose/simulate.h"
#include "cost/cost.h"

/* Do devices have parts of the program that others have not, as stages of a pipeline? */
static bool has_stages(const choose_world *w, const ir_func *host) {
  for (uint32_t i = 1; i < host->meshes.len; i++)
    if (host->meshes.data[i].n_devices < (int64_t)w->ranks) return true;
  return false;
}

/* Is there a variant that the user did not mark? */
static bool adds_streams(const choose_variants *v) {
  for (uint32_t i = 0; i < v->n; i++)
    if (v->list[i].added) return true;
  return false;
}

enum { MOST_INSTRS = 100 * 1000, LEAST_GAIN_NS = 20000 };

static status model_rank(const choose_world *w, const ir_env *env, double *ns) {
  rt_plan *plan;
  TRY(w->bind(w->context, env, w->rank, NULL, &plan));
  status st = cost_plan_estimate(plan, &w->speed, w->memory, ns);
  rt_plan_destroy(plan);
  return st;
}

static bool are_few(const choose_world *w, uint32_t n_instrs) {
  return (uint64_t)n_instrs * w->ranks <= MOST_INSTRS;
}

/* Can all ranks be simulated in a short time? To find out which waits go takes longer than to bind, so they are
 * looked at only if they decide. */
static status find_small(const choose_world *w, const ir_env *env, bool *is_small) {
  rt_plan *plan;
  uint32_t n_waits = 0;
  if (w->ranks > CHOOSE_MOST_RANKS) {
    *is_small = false;
    return STATUS_OK;
  }
  TRY(w->bind_waits(w->context, env, w->rank, &plan));
  for (uint32_t i = 0; i < plan->n_instrs; i++) n_waits += plan->instrs[i].kind == RT_WAIT;
  bool surely = are_few(w, plan->n_instrs), perhaps = are_few(w, plan->n_instrs - n_waits);
  rt_plan_destroy(plan);
  *is_small = surely;
  if (surely == perhaps) return STATUS_OK;
  TRY(w->bind(w->context, env, w->rank, NULL, &plan));
  *is_small = are_few(w, plan->n_instrs);
  rt_plan_destroy(plan);
  return STATUS_OK;
}

/* Where devices do different things, the time of one says nothing: all are simulated. So they are where streams are
 * added, since the model of one rank knows no steps of collectives, and no devices that are asked by several; if
 * that would take long, none are added. */
static status estimate(const choose_world *w, const ir_env *env, const choose_variants *v,
                       uint32_t i, ir_func *marked, double *ns) {
  ir_env bound = *env;
  bound.func = i ? v->list[i - 1].host : marked;
  bool simulated = w->ranks <= CHOOSE_MOST_RANKS && has_stages(w, bound.func);
  bool added = !simulated && adds_streams(v);
  if (added) TRY(find_small(w, &bound, &simulated));
  if (simulated) return choose_simulate_ns(w, env, bound.func, ns);
  if (!added || i == 0) return model_rank(w, &bound, ns);
  *ns = INFINITY;
  return STATUS_OK;
}

/* Is it worth looking at? Of the choice so far something must be left to gain. */
static bool may_gain(const choose_world *w, const choose_variants *v, uint32_t i,
                     double so_far_ns) {
  if (i == 0 || !v->list[i - 1].added) return true;
  return w->ranks <= CHOOSE_MOST_RANKS && so_far_ns > LEAST_GAIN_NS;
}

/* Is the variant faster than the one before? What the user did not mark must promise more than the model may be
 * wrong by. */
static bool is_faster(const choose_variants *v, uint32_t i, double ns, double before_ns) {
  if (i == 0 || !v->list[i - 1].added) return ns < before_ns;
  return ns * 1.03 < before_ns && ns + LEAST_GAIN_NS < before_ns;
}

/* A pipelined program pays for its slices with smaller steps; it is taken if the model says that it is
 * faster all the same. Of equals the one without streams runs. */
status choose_pick(const choose_world *w, const ir_env *env, ir_func *marked,
                   const choose_variants *v, choose_choice *result) {
  choose_choice c = {.best = v->plain};
  TRY(estimate(w, env, v, v->plain, marked, &c.plain_ns));
  c.ns = c.plain_ns;
  for (uint32_t i = v->n + 1; i-- > 0;) {
    double ns;
    if (i == v->plain || !may_gain(w, v, i, c.ns)) continue;
    TRY(estimate(w, env, v, i, marked, &ns));
    if (c.streamed_ns == 0 || ns < c.streamed_ns) {
      c.streamed_ns = ns;
      c.streamed = (uint8_t)i;
    }
    if (!is_faster(v, i, ns, c.ns)) continue;
    c.best = (uint8_t)i;
    c.ns = ns;
  }
  *result = c;
  return STATUS_OK;
}

static ir_func *host_of(const choose_variants *v, uint8_t i, ir_func *marked) {
  return i ? v->list[i - 1].host : marked;
}

status choose_simulate_times(const choose_world *w, const ir_env *env, ir_func *marked,
                             const choose_variants *v, choose_choice *choice) {
  ir_env bound = *env;
  bool is_small;
  double plain_ns = 0, streamed_ns = 0;
  bound.func = host_of(v, choice->streamed, marked);
  TRY(find_small(w, &bound, &is_small));
  if (!is_small) return STATUS_OK;
  TRY(choose_simulate_ns(w, env, host_of(v, v->plain, marked), &plain_ns));
  TRY(choose_simulate_ns(w, env, bound.func, &streamed_ns));
  if (plain_ns >= streamed_ns) return STATUS_OK;
  choice->ns = choice->plain_ns = plain_ns;
  choice->streamed_ns = streamed_ns;
  return STATUS_OK;
}
