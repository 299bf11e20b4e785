/* Proving a program's plans safe, one by one and together. */
#include "check/check.h"
#include "api/program.h"

typedef struct check_call {
  weir_program *p;
  const weir_shapes *shapes;
  char **report;
  check_world_report
      found; /* freed by the entry point: scratch memory may run out while it is held */
} check_call;

status api_bind_like(weir_program *p, const weir_shapes *shapes, arena *scratch, ir_env *env) {
  const ir_func *f = p->func;
  ir_env_init(env, (ir_func *)f, scratch);
  for (uint32_t i = 0; i < f->inputs.len; i++) {
    int64_t extents[IR_MAX_RANK];
    uint32_t rank;
    TRY(api_shapes_input(shapes, i, extents, &rank));
    if (!ir_bind_shape(env, f->inputs.data[i], extents, rank, "the given shapes")) {
      return STATUS_BAD_PROGRAM;
    }
  }
  return ir_bind_check(env) ? STATUS_OK : STATUS_BAD_PROGRAM;
}

status api_unsafe(const check_world_report *found, arena *scratch) {
  strbuf text;
  strbuf_init(&text, scratch);
  check_world_text(found, &text);
  api_set_error(text.data);
  return fail(STATUS_CHECK_FAILED, "the plan is not safe");
}

static status check_bound(check_call *c, const ir_env *env, arena *scratch) {
  check_options options = {.memory = &c->p->memory, .trusted = true};
  TRY(session_check(&c->p->session, env, &options, &c->found));
  if (c->found.n_found > 0) return api_unsafe(&c->found, scratch);
  strbuf text;
  strbuf_init(&text, scratch);
  check_world_text(&c->found, &text);
  return c->report ? api_string(&text, c->report) : STATUS_OK;
}

static status check_body(arena *scratch, void *context) {
  check_call *c = context;
  ir_env env;
  TRY(api_bind_like(c->p, c->shapes, scratch, &env));
  return check_bound(c, &env, scratch);
}

weir_status weir_program_check(const weir_program *p, const weir_shapes *s, char **report) {
  if (!p || !s) return api_refuse("weir_program_check: an argument is NULL");
  if (report) *report = NULL;
  if (!p->session.device) return WEIR_OK; /* no plan, no order to prove */
  check_call c = {.p = (weir_program *)p, .shapes = s, .report = report};
  weir_status st = api_ask(p, check_body, &c);
  check_world_report_destroy(&c.found);
  return st;
}
