#include "api/simulate.h"

#include <string.h>

static status bind_all(api_executor *x, const ir_env *env, api_simulation *s) {
  uint32_t n = x->ranks.world;
  if (n <= 1) return api_executor_bind_rank(x, env, 0, &s->plan);
  s->parts = memory_alloc(x->memory, n * sizeof *s->parts);
  if (!s->parts) return STATUS_OUT_OF_MEMORY;
  memset(s->parts, 0, n * sizeof *s->parts);
  for (; s->n < n; s->n++) TRY(api_executor_bind_rank(x, env, s->n, &s->parts[s->n]));
  return rt_plan_join(s->parts, n, x->memory, &s->plan);
}

status api_simulate(api_executor *x, const ir_env *env, ir_func *host, api_simulation *s) {
  rt_speed machine = api_executor_speed(x);
  rt_device_options options = {.threads = machine.threads, .machine = &machine};
  ir_env bound = *env;
  bound.func = host;
  s->memory = x->memory;
  TRY(bind_all(x, &bound, s));
  size_t n = (size_t)s->plan->n_tasks + s->plan->n_posts + 1;
  s->spans = memory_alloc(x->memory, n * sizeof *s->spans);
  if (!s->spans) return STATUS_OUT_OF_MEMORY;
  memset(s->spans, 0, n * sizeof *s->spans);
  TRY(rt_device_find("sim")->open(&options, x->memory, &s->device));
  TRY(s->device->ops->load(s->device, s->plan, &s->loaded));
  TRY(rt_run(s->loaded, NULL, NULL, s->spans, NULL));
  s->total_ns = s->loaded->ops->outcome(s->loaded).total_ns;
  return STATUS_OK;
}

void api_simulation_end(api_simulation *s) {
  if (s->loaded) s->loaded->ops->unload(s->loaded);
  if (s->device) s->device->ops->close(s->device);
  rt_plan_destroy(s->plan);
  for (uint32_t i = 0; i < s->n; i++) rt_plan_destroy(s->parts[i]);
  memory_free(s->memory, s->parts);
  memory_free(s->memory, s->spans);
}

status api_simulate_ns(api_executor *x, const ir_env *env, ir_func *host, double *ns) {
  api_simulation s = {.memory = x->memory};
  status st = api_simulate(x, env, host, &s);
  *ns = (double)s.total_ns;
  api_simulation_end(&s);
  return st;
}
