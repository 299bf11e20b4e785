/* The checker's front: options, memory, and the steps in order. */
#include "check/internal.h"

enum { DEFAULT_FINDINGS = 100, DEFAULT_BOXES = 4096, DEFAULT_WALKED = 64, ALL_BOXES = 1 << 22 };

typedef struct check_call {
  check_analysis c;
  void (*then)(check_analysis *c, void *context);
  void *context;
} check_call;

static status analyse(void *context) {
  check_call *call = context;
  TRY(check_steps(&call->c));
  check_collect(&call->c);
  check_layout(&call->c);
  check_posts(&call->c);
  check_order(&call->c);
  call->then(&call->c, call->context);
  return STATUS_OK;
}

static check_options complete(const check_options *given) {
  check_options o = given ? *given : (check_options){0};
  if (!o.memory) o.memory = &memory_default;
  if (!o.max_findings) o.max_findings = DEFAULT_FINDINGS;
  if (!o.max_boxes) o.max_boxes = DEFAULT_BOXES;
  if (!o.max_walked) o.max_walked = DEFAULT_WALKED;
  if (!o.max_wait_steps) o.max_wait_steps = UINT64_C(1) << 31;
  return o;
}

check_report check_report_new(const rt_plan *plan, const allocator *memory) {
  check_report r = {.plan = plan, .rank = CHECK_NONE};
  if (plan->n_posts && plan->n_ranks <= 1) r.rank = plan->posts[0].rank;
  arena_init(&r.memory, memory);
  return r;
}

static status run(const rt_plan *plan, const check_options *options, uint32_t skip,
                  check_call *call, check_report *report) {
  arena scratch;
  check_options all = complete(options);
  check_report r = check_report_new(plan, all.memory);
  call->c = (check_analysis){.plan = plan,
                             .options = all,
                             .skip = skip,
                             .scratch = &scratch,
                             .report = &r,
                             .boxes_left = ALL_BOXES};
  arena_init(&scratch, call->c.options.memory);
  status st = memory_guard(analyse, call);
  arena_destroy(&scratch);
  if (st == STATUS_OK) *report = r;
  else arena_destroy(&r.memory);
  return st;
}

static void judge(check_analysis *c, void *context) {
  (void)context;
  check_waits(c);
}

status check_plan(const rt_plan *plan, const check_options *options, check_report *report) {
  check_call call = {.then = judge};
  if (plan->n_loops) {
    check_options all = complete(options);
    return check_looped(plan, &all, report);
  }
  return run(plan, options, CHECK_NONE, &call, report);
}

status check_analyse(const rt_plan *plan, const check_options *options,
                     void (*then)(check_analysis *c, void *context), void *context) {
  check_call call = {.then = then, .context = context};
  check_report report;
  TRY(run(plan, options, CHECK_NONE, &call, &report));
  check_report_destroy(&report);
  return STATUS_OK;
}

void check_report_destroy(check_report *report) {
  if (report->plan) arena_destroy(&report->memory);
  rt_plan_destroy(report->unrolled);
  *report = (check_report){0};
}

status check_wait_is_needed(const rt_plan *plan, uint32_t instr, const check_options *options,
                            bool *needed) {
  check(instr < plan->n_instrs && !plan->n_loops);
  check(plan->instrs[instr].kind == RT_WAIT || plan->instrs[instr].kind == RT_JOIN);
  check_options o = complete(options);
  o.no_waits = true;
  check_call call = {.then = judge};
  check_report report;
  TRY(run(plan, &o, instr, &call, &report));
  *needed = report.n_found > 0;
  check_report_destroy(&report);
  return STATUS_OK;
}
