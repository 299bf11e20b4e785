#include "session/profile.h"

#include <string.h>

static void drop_world(session_profile *p) {
  if (!p->world) return;
  rt_plan_destroy((rt_plan *)p->plan);
  for (uint32_t r = 0; r < p->n_world; r++) rt_plan_destroy(p->world[r]);
  memory_free(&memory_default, p->world);
  p->world = NULL;
  p->n_world = 0;
  p->plan = NULL;
}

void session_profile_release(session_profile *p) {
  if (!p || !p->owner) return;
  p->owner->profile = NULL;
  p->owner = NULL;
  drop_world(p);
  p->plan = NULL;
  p->path_len = 0;
}

void session_profile_drop(session_profile *p) {
  session_profile_release(p);
  memory_free(&memory_default, p->spans);
  memory_free(&memory_default, p->path);
}

/* A profile may outlive the program, so its memory is its own. */
static status reserve_spans(session_profile *p, uint32_t n) {
  if (p->room >= n) return STATUS_OK;
  memory_free(&memory_default, p->spans);
  p->spans = memory_alloc(&memory_default, n * sizeof *p->spans);
  p->room = p->spans ? n : 0;
  return p->spans ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

typedef struct profile_call {
  session *x;
  session_profile *profile;
  rt_loaded *loaded;
  const rt_plan *plan;
  int64_t wall_ns, host_ns;
  arena scratch;
} profile_call;

static status profile_guarded(void *context) {
  profile_call *c = context;
  session_profile *p = c->profile;
  p->plan = c->plan;
  p->owner = c->x;
  c->x->profile = p;
  p->device = c->loaded->ops->name;
  p->first_rank = c->x->ranks.first;
  p->n_spans = p->plan->n_tasks + p->plan->n_posts;
  trace_stats_make(p->plan, p->spans, p->n_spans, c->wall_ns, c->host_ns, &c->scratch, &p->stats);
  return STATUS_OK;
}

/* For a device with a virtual clock: keeps the whole time, and the critical path that explains it. */
static status keep_path(session_profile *p, const rt_loaded *loaded, int64_t *wall_ns) {
  rt_outcome o = loaded->ops->outcome(loaded);
  *wall_ns = o.total_ns;
  memory_free(&memory_default, p->path);
  p->path = memory_alloc(&memory_default, ((size_t)o.path_len + 1) * sizeof *p->path);
  p->path_len = p->path ? o.path_len : 0;
  if (!p->path) return STATUS_OUT_OF_MEMORY;
  if (o.path_len) memcpy(p->path, o.path, o.path_len * sizeof *p->path);
  return STATUS_OK;
}

status session_profile_run(session *x, rt_loaded *loaded, const rt_plan *plan, void *const *in,
                           void *const *out, rt_control *control, session_profile *p) {
  session_profile_release(p);
  session_profile_release(x->profile);
  TRY(reserve_spans(p, plan->n_tasks + plan->n_posts));
  profile_call c = {.x = x, .profile = p, .loaded = loaded, .plan = plan};
  int64_t start_ns = rt_clock_ns();
  TRY(rt_run_controlled(loaded, in, out, p->spans, &c.host_ns, control));
  c.wall_ns = rt_clock_ns() - start_ns;
  p->origin_ns = x->device->ops->virtual_clock ? 0 : start_ns;
  if (loaded->ops->outcome) TRY(keep_path(p, loaded, &c.wall_ns));
  arena_init(&c.scratch, x->memory);
  status st = memory_guard(profile_guarded, &c);
  arena_destroy(&c.scratch);
  return st;
}
