/* Compiling. */
#include <string.h>

#include "api/program.h"
#include "host/host.h"
#include "text/text.h"

typedef struct compile_call {
  const ir_func *from;
  weir_program *to;
  api_executor_options options;
} compile_call;

/* Through its text form, a fusion becomes independent of the module it was built in. Places in later
 * messages are then places in that text, so it gets a name of its own. */
static status clone(arena *scratch, compile_call *c) {
  ir_module *m = &c->to->ir;
  const ir_func *fusion = c->from->host ? c->from->host->fusion : NULL;
  strbuf text;
  strbuf_init(&text, scratch);
  if (fusion) text_print_func(fusion, &text);
  text_print_func(c->from, &text);
  ir_module_init(m, &c->to->memory);
  const char *name = arena_printf(scratch, "<%s>", ir_name_text(c->from, c->from->name));
  TRY(api_parse(m, name, text.data, text.len));
  c->to->func = m->funcs.data[m->funcs.len - 1];
  c->to->definition = fusion || !c->from->host ? m->funcs.data[0] : NULL;
  return STATUS_OK;
}

/* Programs on several devices have no host program yet. */
static bool is_local(const ir_func *f) {
  for (uint32_t i = 1; i < f->meshes.len; i++) {
    if (f->meshes.data[i].n_devices > 1) return false;
  }
  return true;
}

static status compile_host(compile_call *c) {
  weir_program *p = c->to;
  ir_func *host = p->func;
  if (strcmp(c->options.device, "ref") == 0 || !is_local(p->func)) {
    return p->definition ? STATUS_OK
                         : fail(STATUS_BAD_USAGE, "a host program needs a device: ref evaluates "
                                                  "the fusion, and there is none");
  }
  c->options.keep_waits = host->host != NULL;
  if (!host->host) TRY(host_lower(p->func, &(host_options){0}, &host));
  return api_executor_open(&p->executor, host, &c->options, &p->memory);
}

static status compile_body(arena *scratch, void *context) {
  compile_call *c = context;
  status st = clone(scratch, c);
  if (st == STATUS_OK) st = compile_host(c);
  return api_take_diags(&c->to->ir, st, scratch);
}

weir_status api_read_options(const weir_options *o, api_executor_options *result) {
  weir_options *defaults = NULL;
  int64_t streams = 0, threads = 0;
  weir_status st = o ? WEIR_OK : weir_options_create(&defaults);
  const weir_options *from = o ? o : defaults;
  if (st == WEIR_OK) st = weir_options_get(from, "device", 0, &result->device);
  if (st == WEIR_OK) st = weir_options_get_int(from, "streams", &streams);
  if (st == WEIR_OK) st = weir_options_get_int(from, "threads", &threads);
  if (st == WEIR_OK) st = weir_options_get_int(from, "adversary", &result->adversary);
  if (st == WEIR_OK && defaults) result->device = "cpu"; /* its text goes with the defaults */
  result->streams = (uint32_t)streams;
  result->threads = (uint32_t)threads;
  weir_options_destroy(defaults);
  return st;
}

weir_status weir_compile(const weir_fusion *f, const weir_options *o, const weir_allocator *memory,
                         weir_program **result) {
  if (!f || !result) return api_refuse("weir_compile: an argument is NULL");
  compile_call c = {.from = api_func(f)};
  weir_status st = api_read_options(o, &c.options);
  if (st != WEIR_OK) return st;
  allocator a = api_allocator(memory);
  api_begin();
  weir_program *p = memory_alloc(&a, sizeof *p);
  if (!p) return api_end(STATUS_OUT_OF_MEMORY);
  *p = (weir_program){.memory = a};
  if (pthread_mutex_init(&p->lock, NULL) != 0) {
    memory_free(&a, p);
    return api_end(fail(STATUS_SYSTEM, "cannot make a lock"));
  }
  c.to = p;
  st = api_call(&p->memory, compile_body, &c);
  if (st == WEIR_OK) *result = p;
  else weir_program_destroy(p);
  return st;
}

const char *weir_program_device(const weir_program *p) {
  return p && p->executor.device ? p->executor.device->ops->name : "ref";
}

void weir_program_destroy(weir_program *p) {
  if (!p) return;
  allocator a = p->memory;
  api_executor_close(&p->executor);
  ir_module_destroy(&p->ir);
  (void)pthread_mutex_destroy(&p->lock);
  memory_free(&a, p);
}
