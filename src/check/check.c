/* The checker's front: options, memory, and the steps in order. */
#include "check/internal.h"

enum { DEFAULT_FINDINGS = 100, DEFAULT_BOXES = 4096, ALL_BOXES = 1 << 22 };

static status analyse(void *context) {
  check_analysis *c = context;
  check_collect(c);
  check_layout(c);
  check_order(c);
  check_waits(c);
  return STATUS_OK;
}

static check_options complete(const check_options *given) {
  check_options o = given ? *given : (check_options){0};
  if (!o.memory) o.memory = &memory_default;
  if (!o.max_findings) o.max_findings = DEFAULT_FINDINGS;
  if (!o.max_boxes) o.max_boxes = DEFAULT_BOXES;
  if (!o.max_wait_steps) o.max_wait_steps = UINT64_C(1) << 31;
  return o;
}

static status run(const rt_plan *plan, const check_options *options, uint32_t skip,
                  check_report *report) {
  arena scratch;
  check_report r = {.plan = plan};
  check_analysis c = {.plan = plan,
                      .options = complete(options),
                      .skip = skip,
                      .scratch = &scratch,
                      .report = &r,
                      .boxes_left = ALL_BOXES};
  arena_init(&scratch, c.options.memory);
  arena_init(&r.memory, c.options.memory);
  status st = memory_guard(analyse, &c);
  arena_destroy(&scratch);
  if (st == STATUS_OK) *report = r;
  else arena_destroy(&r.memory);
  return st;
}

status check_plan(const rt_plan *plan, const check_options *options, check_report *report) {
  return run(plan, options, CHECK_NONE, report);
}

void check_report_destroy(check_report *report) {
  if (report->plan) arena_destroy(&report->memory);
  *report = (check_report){0};
}

status check_wait_is_needed(const rt_plan *plan, uint32_t instr, const check_options *options,
                            bool *needed) {
  check(instr < plan->n_instrs && plan->instrs[instr].kind == RT_WAIT);
  check_options o = complete(options);
  o.no_waits = true;
  check_report report;
  TRY(run(plan, &o, instr, &report));
  *needed = report.n_found > 0;
  check_report_destroy(&report);
  return STATUS_OK;
}
