/* What a run needs, before there is one. */
#include "api/program.h"

typedef struct prepare_call {
  weir_program *p;
  const weir_shapes *shapes;
} prepare_call;

static status prepare(const prepare_call *c, arena *scratch) {
  ir_env env;
  rt_loaded *loaded;
  TRY(api_bind_like(c->p, c->shapes, scratch, &env));
  return c->p->session.device ? session_load(&c->p->session, &env, &loaded) : STATUS_OK;
}

static status prepare_body(arena *scratch, void *context) {
  const prepare_call *c = context;
  return api_take_diags(&c->p->ir, prepare(c, scratch), scratch);
}

weir_status weir_program_prepare(const weir_program *p, const weir_shapes *s) {
  if (!p || !s) return api_refuse("weir_program_prepare: an argument is NULL");
  prepare_call c = {(weir_program *)p, s};
  (void)pthread_mutex_lock(&c.p->lock);
  weir_status st = api_call(&p->memory, prepare_body, &c);
  (void)pthread_mutex_unlock(&c.p->lock);
  return st;
}
