#include "choose/choose.h"

#include "choose/simulate.h"
#include "cost/cost.h"

/* Do devices have parts of the program that others have not, as stages of a pipeline? */
static bool has_stages(const choose_world *w, const ir_func *host) {
  for (uint32_t i = 1; i < host->meshes.len; i++)
    if (host->meshes.data[i].n_devices < (int64_t)w->ranks) return true;
  return false;
}

/* Where devices do different things, the time of one says nothing: all are simulated. */
static status estimate(const choose_world *w, const ir_env *env, ir_func *host, double *ns) {
  enum { MOST_SIMULATED = 64 };
  if (has_stages(w, host) && w->ranks <= MOST_SIMULATED)
    return choose_simulate_ns(w, env, host, ns);
  rt_plan *plan;
  ir_env bound = *env;
  bound.func = host;
  TRY(w->bind(w->context, &bound, w->rank, &plan));
  status st = cost_plan_estimate(plan, &w->speed, w->memory, ns);
  rt_plan_destroy(plan);
  return st;
}

/* A pipelined program pays for its slices with smaller steps; it is taken if the model says that it is
 * faster all the same. Of equals the last variant runs. */
status choose_pick(const choose_world *w, const ir_env *env, ir_func *marked,
                   const choose_variants *v, choose_choice *result) {
  uint8_t best = (uint8_t)v->n;
  double best_ns = 0, streamed_ns = 0;
  for (uint32_t i = v->n + 1; i-- > 0;) {
    double ns;
    TRY(estimate(w, env, i ? v->list[i - 1].host : marked, &ns));
    if (i < v->n && (streamed_ns == 0 || ns < streamed_ns)) streamed_ns = ns;
    if (i < v->n && ns >= best_ns) continue;
    best = (uint8_t)i;
    best_ns = ns;
  }
  bool unused = best == v->n;
  *result = (choose_choice){best, unused ? streamed_ns : 0, unused ? best_ns : 0};
  return STATUS_OK;
}
