#include <string.h>
#include <time.h>

#include "ir/build.h"
#include "ir/host.h"
#include "ir/verify.h"
#include "pass/pass.h"
#include "pass/passes.h"
#include "schedule/schedule.h"
#include "text/text.h"

static const pass_info passes[] = {
#define PASS(name, run, level, summary) {name, level, run, summary},
#include "pass/passes.def"
#undef PASS
};

uint32_t pass_count(void) { return sizeof passes / sizeof *passes; }
const pass_info *pass_at(uint32_t i) { return &passes[i]; }

const pass_info *pass_find(const char *name, size_t length) {
  for (uint32_t i = 0; i < pass_count(); i++) {
    if (strlen(passes[i].name) == length && memcmp(passes[i].name, name, length) == 0) {
      return &passes[i];
    }
  }
  return NULL;
}

typedef struct run {
  ir_module *m;
  const pass_request *request;
  strbuf *log, *reproducer;
  arena scratch;
} run;

static int64_t now_ns(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Calls visit() for each name of the comma separated list; `rest` starts at that name. */
static status each_pass(run *r, status (*visit)(run *r, const pass_info *p, const char *rest)) {
  const char *at = r->request->passes;
  while (*at) {
    size_t n = strcspn(at, ",");
    const pass_info *p = pass_find(at, n);
    if (!p) {
      return fail(STATUS_BAD_USAGE, "there is no pass called '%.*s'; 'weir list passes' names them",
                  (int)n, at);
    }
    TRY(visit(r, p, at));
    at += n;
    if (*at == ',' && *++at == '\0')
      return fail(STATUS_BAD_USAGE, "the list of passes ends in ','");
  }
  return STATUS_OK;
}

static status just_look(run *r, const pass_info *p, const char *rest) {
  (void)r;
  (void)p;
  (void)rest;
  return STATUS_OK;
}

static bool wants_print(const run *r, const pass_info *p, bool changed) {
  const char *after = r->request->print_after;
  if (!after) return false;
  if (strcmp(after, "all") == 0) return true;
  return strcmp(after, "changed") == 0 ? changed : strcmp(after, p->name) == 0;
}

static bool apply_and_verify(ir_module *m) {
  bool ok = true;
  for (uint32_t i = 0; i < m->funcs.len; i++) {
    ir_func *f = m->funcs.data[i];
    if (!f->host && !f->applied) ok = schedule_apply(f) && ok;
    ok = ok && (f->host ? ir_host_verify(f) : ir_verify(f));
  }
  return ok;
}

static status run_on_funcs(run *r, const pass_info *p, bool *changed) {
  for (uint32_t i = 0; i < r->m->funcs.len; i++) {
    ir_func *f = r->m->funcs.data[i];
    pass_ctx ctx = {.scratch = &r->scratch};
    if (f->host) continue; /* passes so far are about fusions */
    if (p->level == PASS_DEFINITION) ir_func_unschedule(f);
    TRY(p->run(f, &ctx));
    *changed = *changed || ctx.changed;
  }
  return STATUS_OK;
}

static void write_reproducer(run *r, const char *rest, const char *before) {
  if (!r->reproducer) return;
  strbuf_printf(r->reproducer, "# weir opt FILE --passes %s\n%s", rest, before);
}

static status run_pass(run *r, const pass_info *p, const char *rest) {
  strbuf before;
  strbuf_init(&before, &r->scratch);
  text_print_module(r->m, &before);
  int64_t start_ns = now_ns();
  bool changed = false;
  status st = run_on_funcs(r, p, &changed);
  int64_t time_ns = now_ns() - start_ns;
  if (st == STATUS_OK && !apply_and_verify(r->m)) {
    st = fail(STATUS_BAD_PROGRAM, "the program is broken after pass '%s'", p->name);
  }
  if (st != STATUS_OK) write_reproducer(r, rest, before.data);
  if (st == STATUS_OK && wants_print(r, p, changed)) {
    strbuf_printf(r->log, "# after %s\n", p->name);
    text_print_module(r->m, r->log);
  }
  if (r->request->time) {
    strbuf_printf(r->log, "%12.3f ms  %s\n", (double)time_ns / 1e6, p->name);
  }
  return st;
}

/* The scratch arena must be freed even when memory runs out inside, hence the guard. */
static status run_guarded(void *context) {
  run *r = context;
  TRY(each_pass(r, just_look));
  return each_pass(r, run_pass);
}

status pass_run(ir_module *m, const pass_request *request, strbuf *log, strbuf *reproducer) {
  run r = {.m = m, .request = request, .log = log, .reproducer = reproducer};
  const char *after = request->print_after;
  bool special = !after || strcmp(after, "all") == 0 || strcmp(after, "changed") == 0;
  if (!special && !pass_find(after, strlen(after))) {
    return fail(STATUS_BAD_USAGE, "--print-after takes all, changed or a pass, not '%s'", after);
  }
  arena_init(&r.scratch, m->memory.memory);
  status st = memory_guard(run_guarded, &r);
  arena_destroy(&r.scratch);
  return st;
}
