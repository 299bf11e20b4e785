/* Asking whether an output can be computed in the memory of a donated input. */
#include "api/program.h"

typedef struct donation_call {
  weir_program *p;
  const weir_shapes *shapes;
  size_t input, output;
  char **why;
} donation_call;

static status ask(arena *scratch, void *context) {
  const donation_call *c = context;
  const ir_func *f = c->p->func;
  check_alias_result answer = {0};
  ir_env env;
  if (c->input >= f->inputs.len || c->output >= f->outputs.len)
    return fail(STATUS_BAD_USAGE, "the program has %u inputs and %u outputs", f->inputs.len,
                f->outputs.len);
  TRY(api_bind_like(c->p, c->shapes, scratch, &env));
  TRY(session_donation(&c->p->session, &env, (uint32_t)c->input, (uint32_t)c->output, &answer));
  strbuf text;
  strbuf_init(&text, scratch);
  strbuf_puts(&text, answer.why);
  return answer.safe ? STATUS_OK : api_string(&text, c->why);
}

weir_status weir_program_donation(const weir_program *p, const weir_shapes *s, size_t input,
                                  size_t output, char **why) {
  if (!p || !s || !why) return api_refuse("weir_program_donation: an argument is NULL");
  *why = NULL;
  if (!p->session.device)
    return api_refuse("the reference evaluator overwrites nothing: it has no plan");
  donation_call c = {(weir_program *)p, s, input, output, why};
  return api_ask(p, ask, &c);
}
