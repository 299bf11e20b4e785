/* What a run needs, before there is one. */
#include "api/program.h"

typedef struct prepare_call {
  weir_program *p;
  const weir_shapes *shapes;
} prepare_call;

static status prepare(arena *scratch, void *context) {
  const prepare_call *c = context;
  ir_env env;
  rt_loaded *loaded;
  TRY(api_bind_like(c->p, c->shapes, scratch, &env));
  return c->p->session.device ? session_load(&c->p->session, &env, &loaded) : STATUS_OK;
}

weir_status weir_program_prepare(const weir_program *p, const weir_shapes *s) {
  if (!p || !s) return api_refuse("weir_program_prepare: an argument is NULL");
  prepare_call c = {(weir_program *)p, s};
  return api_ask(p, prepare, &c);
}
