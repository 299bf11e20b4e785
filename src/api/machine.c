/* The machine that choices are made for, as text. */
#include "api/program.h"

typedef struct tell_call {
  api_options options;
  bool renew;
  char **text;
} tell_call;

static status tell_opened(session *x, const tell_call *t, arena *scratch) {
  strbuf out;
  strbuf_init(&out, scratch);
  if (!x->device->ops->measure)
    return fail(STATUS_BAD_USAGE, "--device %s is not measured", x->device->ops->name);
  TRY(session_machine_describe(&x->machine, x->device, &x->ranks, t->renew, &memory_default, &out));
  return api_string(&out, t->text);
}

static status tell_body(arena *scratch, void *context) {
  tell_call *t = context;
  session x = {0};
  status st = session_open(&x, NULL, &t->options.session, &memory_default);
  if (st == STATUS_OK) st = tell_opened(&x, t, scratch);
  session_close(&x);
  return st;
}

weir_status weir_machine(const weir_options *o, bool measure, char **text) {
  tell_call t = {.renew = measure, .text = text};
  if (!text) return api_refuse("weir_machine: an argument is NULL");
  weir_status st = api_read_options(o, &t.options);
  return st == WEIR_OK ? api_call(&memory_default, tell_body, &t) : st;
}
