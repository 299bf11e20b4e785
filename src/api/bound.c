/* The bound of a program on a machine, and what the simulator predicts for it. */
#include "cost/bound.h"
#include "api/program.h"
#include "choose/simulate.h"

typedef struct bound_call {
  weir_program *p;
  const weir_shapes *shapes;
  weir_bound *result;
  weir_bound_tell tell;
  void *context;
} bound_call;

static status bound_world(session *x, const ir_env *env, arena *scratch, cost_bound *b) {
  rt_speed machine = session_speed(x);
  for (uint32_t r = 0; r < x->ranks.world; r++) {
    rt_plan *plan;
    TRY(session_bind_plain(x, env, r, &plan));
    cost_bound_add(b, plan, &machine, scratch);
    /* Then the other ranks have the same. */
    bool all = plan->alike && machine.island <= 0 && !rt_plan_has_roots(plan);
    rt_plan_destroy(plan);
    if (all) break;
  }
  return STATUS_OK;
}

/* Exposed communications, by line: iterations of a loop are one. */
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
  weir_bound *b;
} spend_call;

static status spend(void *context) {
  const spend_call *s = context;
  cost_spent spent;
  cost_spend(s->plan, s->spans, s->total_ns, s->scratch, &spent);
  s->b->device = s->first_rank + spent.rank;
  s->b->predicted_s = (double)spent.total_ns * 1e-9;
  s->b->computing_s = (double)spent.computing_ns * 1e-9;
  s->b->exposed_s = (double)spent.exposed_ns * 1e-9;
  s->b->idle_s = (double)(spent.total_ns - spent.computing_ns - spent.exposed_ns) * 1e-9;
  if (s->c->tell) tell_lines(s->c, s->plan, &spent, s->scratch);
  return STATUS_OK;
}

/* The device is the simulator itself. */
static status predict_here(const bound_call *c, const ir_env *env, arena *scratch, weir_bound *b) {
  session *x = &c->p->session;
  rt_loaded *loaded;
  TRY(session_load(x, env, &loaded));
  const rt_plan *plan = loaded->plan;
  rt_span *spans = ARENA_ARRAY(scratch, (size_t)plan->n_tasks + plan->n_posts + 1, rt_span);
  TRY(rt_run(loaded, NULL, NULL, spans, NULL));
  spend_call call = {c,       plan, spans, loaded->ops->outcome(loaded).total_ns, x->ranks.first,
                     scratch, b};
  return spend(&call);
}

/* The program that runs, on all devices, wherever they are. */
static status predict(const bound_call *c, const ir_env *env, arena *scratch, weir_bound *b) {
  session *x = &c->p->session;
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

static status bound_both(arena *scratch, void *context) {
  const bound_call *c = context;
  ir_env env;
  cost_bound least = {0};
  weir_bound b = {.struct_size = c->result->struct_size};
  session *x = &c->p->session;
  TRY(api_bind_like(c->p, c->shapes, scratch, &env));
  TRY(session_machine_need(&x->machine, x->device, &x->ranks, x->memory));
  TRY(bound_world(&c->p->session, &env, scratch, &least));
  b.compute_s = least.compute * 1e-9;
  b.memory_s = least.memory * 1e-9;
  b.receive_s = least.receive * 1e-9;
  b.send_s = least.send * 1e-9;
  b.chain_s = least.chain * 1e-9;
  b.bound_s = cost_bound_ns(&least) * 1e-9;
  TRY(predict(c, &env, scratch, &b));
  api_copy_sized(c->result, &b, b.struct_size, sizeof b);
  return STATUS_OK;
}

weir_status weir_program_bound(weir_program *p, const weir_shapes *s, weir_bound *result,
                               weir_bound_tell tell, void *context) {
  if (!p || !s || !result) return api_refuse("weir_program_bound: an argument is NULL");
  if (api_check_size(result->struct_size, "weir_program_bound") != WEIR_OK) return WEIR_BAD_USAGE;
  if (!p->session.device)
    return api_refuse("weir_program_bound: the reference evaluator executes this program");
  bound_call c = {p, s, result, tell, context};
  return api_ask(p, bound_both, &c);
}
