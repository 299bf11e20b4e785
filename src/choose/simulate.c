#include "choose/simulate.h"

#include <string.h>

static status bind_all(const choose_world *w, const ir_env *env, choose_simulation *s) {
  uint32_t n = w->ranks;
  if (n <= 1) return w->bind(w->context, env, 0, NULL, &s->plan);
  s->parts = memory_alloc(w->memory, n * sizeof *s->parts);
  if (!s->parts) return STATUS_OUT_OF_MEMORY;
  memset(s->parts, 0, n * sizeof *s->parts);
  for (; s->n < n; s->n++)
    TRY(w->bind(w->context, env, s->n, s->n ? s->parts[0] : NULL, &s->parts[s->n]));
  return rt_plan_join(s->parts, n, w->memory, &s->plan);
}

status choose_simulate(const choose_world *w, const ir_env *env, ir_func *host,
                       choose_simulation *s) {
  rt_device_options options = {.threads = w->speed.threads, .machine = &w->speed};
  ir_env bound = *env;
  bound.func = host;
  s->memory = w->memory;
  TRY(bind_all(w, &bound, s));
  size_t n = (size_t)s->plan->n_tasks + s->plan->n_posts + 1;
  s->spans = memory_alloc(w->memory, n * sizeof *s->spans);
  if (!s->spans) return STATUS_OUT_OF_MEMORY;
  memset(s->spans, 0, n * sizeof *s->spans);
  TRY(rt_device_find("sim")->open(&options, w->memory, &s->device));
  TRY(s->device->ops->load(s->device, s->plan, &s->loaded));
  TRY(rt_run(s->loaded, NULL, NULL, s->spans, NULL));
  s->total_ns = s->loaded->ops->outcome(s->loaded).total_ns;
  return STATUS_OK;
}

void choose_simulation_end(choose_simulation *s) {
  if (s->loaded) s->loaded->ops->unload(s->loaded);
  if (s->device) s->device->ops->close(s->device);
  rt_plan_destroy(s->plan);
  for (uint32_t i = 0; i < s->n; i++) rt_plan_destroy(s->parts[i]);
  memory_free(s->memory, s->parts);
  memory_free(s->memory, s->spans);
}

status choose_simulate_ns(const choose_world *w, const ir_env *env, ir_func *host, double *ns) {
  choose_simulation s = {.memory = w->memory};
  status st = choose_simulate(w, env, host, &s);
  *ns = (double)s.total_ns;
  choose_simulation_end(&s);
  return st;
}
