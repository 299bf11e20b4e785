/* The plans of several ranks, one by one and together. */
#include "check/internal.h"

typedef struct ranks_call {
  const check_options *options;
  check_world_report *report;
  const ir_mesh_data *alike;
  bool differ; /* of several kinds: they do not post alike */
  bool uneven; /* check_match.uneven */
  arena scratch;
} ranks_call;

/* Has it passed, and are there no waits to judge? */
static bool is_trusted(const check_options *o, const rt_plan *plan) {
  if (!o || !o->trusted || !(o->any_root ? plan->passed_for_all : plan->passed)) return false;
  for (uint32_t i = 0; i < plan->n_instrs && !o->no_waits; i++)
    if (plan->instrs[i].kind == RT_WAIT) return false;
  return true;
}

static status check_each(const ranks_call *call) {
  check_world_report *r = call->report;
  for (uint32_t k = 0; k < r->n_plans; k++) {
    if (is_trusted(call->options, r->plans[k]))
      r->ranks[k] = check_report_new(r->plans[k], r->memory.memory);
    else TRY(check_plan(r->plans[k], call->options, &r->ranks[k]));
    r->ranks[k].rank = r->n_ranks > 1 ? k : CHECK_NONE;
    r->n_found += r->ranks[k].n_found * (r->times ? r->times[k] : call->alike ? r->n_ranks : 1);
  }
  return STATUS_OK;
}

static status expect_ranks(const check_world_report *r) {
  for (uint32_t k = 0; k < r->n_ranks; k++) {
    const rt_plan *plan = r->plans[k];
    for (uint32_t p = 0; p < plan->n_posts; p++)
      if (plan->posts[p].rank != k || plan->n_ranks > 1)
        return fail(STATUS_BAD_USAGE, "plan %u is that of rank %u", k, plan->posts[p].rank);
  }
  return STATUS_OK;
}

static status match_guarded(void *context) {
  ranks_call *call = context;
  check_world_report *r = call->report;
  uint32_t most = call->options ? call->options->max_findings : 0;
  check_match m = {.scratch = &call->scratch, .report = r, .max_findings = most ? most : 100};
  m.alike = call->alike;
  if (m.alike) check_alike_begin(&m);
  for (uint32_t k = 1; m.alike && k < r->n_plans; k++)
    if (!check_same_posts(&m, r->plans[0], r->plans[k])) call->differ = true;
  if (call->differ) return STATUS_OK;
  for (uint32_t k = 0; k < r->n_plans; k++)
    if (r->ranks[k].count[CHECK_POST_RULE] || r->ranks[k].count[CHECK_POST_ORDER]) return STATUS_OK;
  uint32_t n_plans = r->n_plans;
  if (m.alike) r->n_plans = 1; /* the others do the same */
  if (check_match_posts(&m)) check_deadlock(&m);
  r->n_plans = n_plans;
  call->uneven = m.uneven;
  return STATUS_OK;
}

static status make_room(void *context) {
  ranks_call *call = context;
  check_world_report *r = call->report;
  r->plans = arena_copy(&r->memory, r->plans, r->n_plans * sizeof(const rt_plan *));
  r->ranks = ARENA_ARRAY(&r->memory, r->n_plans, check_report);
  if (r->times) r->times = arena_copy(&r->memory, r->times, r->n_plans * sizeof *r->times);
  return STATUS_OK;
}

static status check_once(ranks_call *call, check_world_report *report) {
  const allocator *memory =
      call->options && call->options->memory ? call->options->memory : &memory_default;
  check_world_report *r = call->report;
  arena_init(&call->scratch, memory);
  arena_init(&r->memory, memory);
  status st = memory_guard(make_room, call);
  if (st == STATUS_OK) st = check_each(call);
  if (st == STATUS_OK) st = memory_guard(match_guarded, call);
  arena_destroy(&call->scratch);
  if (st == STATUS_OK) *report = *r;
  else check_world_report_destroy(r);
  return st;
}

/* ---- loops ---- */
static bool any_loops(const check_world_report *r) {
  for (uint32_t k = 0; k < r->n_plans; k++)
    if (r->plans[k]->n_loops) return true;
  return false;
}

/* Unrolls plans with loops; `made` gets those that are new. */
static status unroll_all(const check_world_report *r, const allocator *memory,
                         const rt_plan **plans, rt_plan **made) {
  for (uint32_t k = 0; k < r->n_plans; k++) {
    rt_plan *unrolled;
    plans[k] = r->plans[k];
    if (!plans[k]->n_loops) continue;
    TRY(rt_plan_unroll(plans[k], memory, &unrolled));
    unrolled->kept = *made;
    plans[k] = *made = unrolled;
  }
  return STATUS_OK;
}

static status check_unrolled(ranks_call *call, check_world_report *report) {
  const allocator *memory =
      call->options && call->options->memory ? call->options->memory : &memory_default;
  const rt_plan **plans = memory_alloc(memory, call->report->n_plans * sizeof *plans);
  rt_plan *made = NULL;
  if (!plans) return STATUS_OUT_OF_MEMORY;
  status st = unroll_all(call->report, memory, plans, &made);
  call->report->plans = plans;
  if (st == STATUS_OK) st = check_once(call, report);
  if (st == STATUS_OK) report->unrolled = made;
  else rt_plan_destroy(made);
  memory_free(memory, plans);
  return st;
}

/* With each loop done once, which is enough where all is well (docs/loops.md). What is found, if
 * anything, is of the unrolled plans. */
static status check_all(ranks_call *call, check_world_report *report) {
  check_world_report given = *call->report;
  bool looped = any_loops(call->report);
  TRY(check_once(call, report));
  if (!looped || call->differ || (report->n_found == 0 && !call->uneven)) return STATUS_OK;
  check_world_report_destroy(report);
  *call->report = given;
  return check_unrolled(call, report);
}

status check_world(const rt_plan *const *plans, uint32_t n, const check_options *options,
                   check_world_report *report) {
  check_world_report r = {.plans = plans, .n_ranks = n, .n_plans = n};
  TRY(expect_ranks(&r));
  return check_all(&(ranks_call){.options = options, .report = &r}, report);
}

status check_alike(const rt_plan *plan, uint32_t n, const check_options *options,
                   check_world_report *report) {
  check_world_report r = {.plans = &plan, .n_ranks = n, .n_plans = 1};
  check_options o = options ? *options : (check_options){0};
  check(plan->alike && plan->alike->n_devices == n);
  o.any_root = true;
  return check_all(&(ranks_call){.options = &o, .report = &r, .alike = plan->alike}, report);
}

status check_kin(const rt_plan *const *plans, const uint32_t *times, uint32_t n_plans, uint32_t n,
                 const check_options *options, bool *known, check_world_report *report) {
  check_world_report r = {.plans = plans, .n_ranks = n, .n_plans = n_plans, .times = times};
  check_options o = options ? *options : (check_options){0};
  ranks_call call = {.options = &o, .report = &r, .alike = plans[0]->kin};
  check(call.alike && call.alike->n_devices == n);
  o.any_root = true;
  TRY(check_all(&call, report));
  *known = !call.differ && report->n_found == 0;
  if (!*known) check_world_report_destroy(report);
  return STATUS_OK;
}

void check_world_report_destroy(check_world_report *r) {
  if (r->n_ranks == 0) return;
  for (uint32_t k = 0; r->ranks && k < r->n_plans; k++) check_report_destroy(&r->ranks[k]);
  arena_destroy(&r->memory);
  rt_plan_destroy(r->unrolled);
  *r = (check_world_report){0};
}
