/* Modules: making, parsing, printing, verifying. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "ir/build.h"
#include "ir/host.h"
#include "ir/verify.h"
#include "schedule/schedule.h"
#include "text/text.h"

/* ---- making ---- */
static status init_module(arena *scratch, void *context) {
  (void)scratch;
  weir_module *m = context;
  ir_module_init(&m->ir, &m->memory);
  return STATUS_OK;
}

weir_status weir_module_create(const weir_allocator *memory, weir_module **result) {
  if (!result) return api_refuse("weir_module_create: result is NULL");
  if (api_check_allocator(memory, "weir_module_create") != WEIR_OK) return WEIR_BAD_USAGE;
  allocator a = api_allocator(memory);
  api_begin();
  weir_module *m = memory_alloc(&a, sizeof *m);
  if (!m) return api_end(STATUS_OUT_OF_MEMORY);
  *m = (weir_module){.memory = a};
  weir_status st = api_call(&m->memory, init_module, m);
  if (st == WEIR_OK) *result = m;
  else weir_module_destroy(m);
  return st;
}

void weir_module_destroy(weir_module *m) {
  if (!m) return;
  allocator a = m->memory;
  ir_module_destroy(&m->ir);
  memory_free(&a, m);
}

/* ---- parsing ---- */
bool api_schedule(ir_func *f) { return f->host || f->applied || schedule_apply(f); }

void api_unschedule(ir_func *f) {
  if (f->applied) ir_func_unschedule(f);
}

static void verify(ir_func *f) {
  if (f->host) (void)ir_host_verify(f);
  else (void)ir_verify(f);
}

void api_verify(ir_module *m) {
  for (uint32_t i = 0; i < m->funcs.len; i++) {
    ir_func *f = m->funcs.data[i];
    if (api_schedule(f)) verify(f);
  }
}

static bool has_errors(const ir_module *m, uint32_t begin, uint32_t end) {
  for (uint32_t i = 0; i < m->errors.entries.len; i++) {
    const diag_entry *e = &m->errors.entries.data[i];
    if (!e->at.known || (e->at.offset >= begin && e->at.offset < end)) return true;
  }
  return m->errors.errors > DIAG_LIMIT;
}

/* A schedule is applied and verified only if its fusion had no errors: further errors would follow from those. */
static void verify_understood(ir_module *m) {
  for (uint32_t i = 0; i < m->funcs.len; i++) {
    ir_func *f = m->funcs.data[i];
    uint32_t end = i + 1 < m->funcs.len ? m->funcs.data[i + 1]->at.offset : m->src.length + 1;
    if (!has_errors(m, f->at.offset, end) && api_schedule(f)) verify(f);
  }
}

/* Parses a text into an initialised module, applies schedules and verifies; reports to its diagnostics. */
static status parse(ir_module *m, const char *name, const char *text, size_t length) {
  status st = text_parse(m, name, text, length);
  verify_understood(m);
  return st;
}

typedef struct parse_call {
  weir_module *m;
  const char *name, *text;
  size_t length;
} parse_call;

static status parse_body(arena *scratch, void *context) {
  (void)scratch;
  parse_call *c = context;
  return parse(&c->m->ir, c->name, c->text, c->length);
}

weir_status weir_module_parse(const char *name, const char *text, size_t length,
                              const weir_allocator *memory, weir_module **result) {
  if (!name || (!text && length) || !result)
    return api_refuse("weir_module_parse: an argument is NULL");
  weir_module *m = NULL;
  weir_status st = weir_module_create(memory, &m);
  if (st != WEIR_OK) return st;
  parse_call c = {m, name, text ? text : "", length};
  st = api_edit(m, parse_body, &c);
  if (st == WEIR_OK) *result = m;
  else weir_module_destroy(m);
  return st;
}

weir_status weir_module_load(const char *path, const weir_allocator *memory, weir_module **result) {
  if (!path || !result) return api_refuse("weir_module_load: an argument is NULL");
  if (api_check_allocator(memory, "weir_module_load") != WEIR_OK) return WEIR_BAD_USAGE;
  allocator a = api_allocator(memory);
  char *text = NULL;
  size_t length = 0;
  api_begin();
  weir_status st = api_end(api_read_file(path, &a, &text, &length));
  if (st != WEIR_OK) return st;
  st = weir_module_parse(path, text, length, memory, result);
  memory_free(&a, text);
  return st;
}

/* ---- looking ---- */
size_t weir_module_count(const weir_module *m) { return m ? m->ir.funcs.len : 0; }

weir_status weir_module_at(weir_module *m, size_t i, weir_fusion **result) {
  if (!m || !result) return api_refuse("weir_module_at: an argument is NULL");
  if (i >= m->ir.funcs.len)
    return api_refuse("there is no fusion number %zu: the module has %u", i, m->ir.funcs.len);
  *result = (weir_fusion *)m->ir.funcs.data[i];
  return WEIR_OK;
}

/* "are f, g", for messages; as many as fit. */
static const char *known_names(const ir_module *m) {
  static _Thread_local char text[256];
  size_t n = (size_t)snprintf(text, sizeof text, "%s", m->funcs.len == 1 ? "is " : "are ");
  for (uint32_t i = 0; i < m->funcs.len && n < sizeof text; i++) {
    const ir_func *f = m->funcs.data[i];
    n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i ? ", " : "",
                          ir_name_text(f, f->name));
  }
  return text;
}

weir_status weir_module_find(weir_module *m, const char *name, weir_fusion **result) {
  if (!m || !result) return api_refuse("weir_module_find: an argument is NULL");
  if (m->ir.funcs.len == 0) return api_refuse("%s: error: there is no fusion", m->ir.src.name);
  if (!name) name = ir_name_text(m->ir.funcs.data[0], m->ir.funcs.data[0]->name);
  ir_func *f = ir_module_find(&m->ir, name);
  if (!f)
    return api_refuse("%s: error: there is no fusion '%s'; there %s", m->ir.src.name, name,
                      known_names(&m->ir));
  *result = (weir_fusion *)f;
  return WEIR_OK;
}

typedef struct print_call {
  const weir_module *m;
  char **text;
} print_call;

static status print_body(arena *scratch, void *context) {
  print_call *c = context;
  strbuf out;
  strbuf_init(&out, scratch);
  text_print_module(&c->m->ir, &out);
  return api_string(&out, c->text);
}

weir_status weir_module_print(const weir_module *m, char **text) {
  if (!m || !text) return api_refuse("weir_module_print: an argument is NULL");
  print_call c = {m, text};
  return api_call(&m->memory, print_body, &c);
}

static status verify_body(arena *scratch, void *context) {
  (void)scratch;
  weir_module *m = context;
  api_verify(&m->ir);
  return STATUS_OK;
}

weir_status weir_module_verify(weir_module *m) {
  if (!m) return api_refuse("weir_module_verify: the module is NULL");
  return api_edit(m, verify_body, m);
}
