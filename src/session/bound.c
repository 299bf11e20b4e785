/* The bound of a program on a machine, and what the simulator predicts for it. */
#include "choose/simulate.h"
#include "session/plans.h"
#include "session/questions.h"

typedef struct bound_call {
  session *x;
  session_exposed tell;
  void *context;
} bound_call;

static status bound_world(session *x, const ir_env *env, arena *scratch, cost_bound *b) {
  rt_speed machine = session_speed(x);
  for (uint32_t r = 0; r < x->ranks.world; r++) {
    rt_plan *plan;
    TRY(session_bind_plain(x, env, r, &plan));
    cost_bound_add(b, plan, &machine, scratch);
    /* If so, the other ranks have the same bound. */
    bool all = plan->alike && machine.island <= 0 && !rt_plan_has_roots(plan);
    rt_plan_destroy(plan);
    if (all) break;
  }
  cost_bound_share_cores(b, &machine, x->ranks.world ? x->ranks.world : 1);
  return STATUS_OK;
}

/* Reports exposed communications, one for each line: all iterations of a loop together. */
static void tell_lines(const bound_call *c, const rt_plan *plan, const cost_spent *spent,
                       arena *scratch) {
  uint32_t most = 0;
  for (uint32_t i = 0; i < plan->n_instrs; i++)
    if (plan->instrs[i].origin > most) most = plan->instrs[i].origin;
  int64_t *by_origin = ARENA_ARRAY(scratch, (size_t)most + 1, int64_t);
  uint32_t *instr_of = ARENA_ARRAY(scratch, (size_t)most + 1, uint32_t);
  for (uint32_t i = 0; i < plan->n_instrs; i++) {
    const rt_instr *instr = &plan->instrs[i];
    if (instr->kind != RT_POST) continue;
    by_origin[instr->origin] += spent->by_post[instr->task];
    instr_of[instr->origin] = i;
  }
  for (uint32_t o = 0; o <= most; o++) {
    if (by_origin[o] == 0) continue;
    strbuf place, text;
    strbuf_init(&place, scratch);
    strbuf_init(&text, scratch);
    rt_place(plan, instr_of[o], &place);
    rt_describe_post(plan, instr_of[o], &text);
    c->tell(c->context, place.data, text.data, (double)by_origin[o] * 1e-9);
  }
}

typedef struct spend_call {
  const bound_call *c;
  const rt_plan *plan;
  const rt_span *spans;
  int64_t total_ns, first_rank;
  arena *scratch;
  session_bound *b;
} spend_call;

static status spend(void *context) {
  const spend_call *s = context;
  cost_spent spent;
  cost_spend(s->plan, s->spans, s->total_ns, s->scratch, &spent);
  s->b->rank = s->first_rank + spent.rank;
  s->b->total_ns = spent.total_ns;
  s->b->computing_ns = spent.computing_ns;
  s->b->exposed_ns = spent.exposed_ns;
  if (s->c->tell) tell_lines(s->c, s->plan, &spent, s->scratch);
  return STATUS_OK;
}

/* The same if the device is the simulator itself. */
static status predict_here(const bound_call *c, const ir_env *env, arena *scratch,
                           session_bound *b) {
  session *x = c->x;
  session_plan *p;
  const rt_plan *plan;
  TRY(session_plan_loaded(x, env, NULL, &p));
  TRY(session_plan_need_unrolled(x, p, &plan));
  rt_loaded *loaded = p->loaded;
  rt_span *spans = ARENA_ARRAY(scratch, (size_t)plan->n_tasks + plan->n_posts + 1, rt_span);
  TRY(rt_run(loaded, NULL, NULL, spans, NULL));
  spend_call call = {c,       plan, spans, loaded->ops->outcome(loaded).total_ns, x->ranks.first,
                     scratch, b};
  return spend(&call);
}

/* Predicts the program that runs, on all devices, in whichever process they are. */
static status predict(const bound_call *c, const ir_env *env, arena *scratch, session_bound *b) {
  session *x = c->x;
  choose_simulation sim = {.memory = x->memory};
  ir_func *host;
  if (x->device->ops->virtual_clock) return predict_here(c, env, scratch, b);
  TRY(session_host(x, env, &host));
  choose_world world = session_world(x);
  status st = choose_simulate(&world, env, host, &sim);
  spend_call call = {c, sim.plan, sim.spans, sim.total_ns, 0, scratch, b};
  if (st == STATUS_OK) st = memory_guard(spend, &call);
  choose_simulation_end(&sim);
  return st;
}

static const char *name_variant(const session *x, const ir_func *host) {
  for (uint32_t i = 0; i < x->variants.n; i++)
    if (x->variants.list[i].host == host) return x->variants.list[i].pass;
  return "marked";
}

status session_find_bound(session *x, const ir_env *env, arena *scratch, session_exposed tell,
                          void *context, session_bound *result) {
  bound_call c = {x, tell, context};
  *result = (session_bound){0};
  TRY(session_machine_need(&x->machine, x->device, &x->ranks, x->memory));
  TRY(bound_world(x, env, scratch, &result->least));
  TRY(predict(&c, env, scratch, result));
  ir_func *host;
  TRY(session_host(x, env, &host));
  result->program = name_variant(x, host);
  return STATUS_OK;
}
