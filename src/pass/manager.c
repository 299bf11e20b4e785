#include <string.h>
#include <time.h>

#include "ir/build.h"
#include "ir/host.h"
#include "ir/verify.h"
#include "pass/pass.h"
#include "pass/passes.h"
#include "schedule/schedule.h"
#include "text/text.h"

typedef struct run {
  ir_module *m;
  VEC(ir_func *) funcs; /* what the passes run on: those of the module, or a copy of one */
  const pass_request *request;
  strbuf *log, *reproducer;
  arena scratch;
  bool decomposed; /* pass `decompose` has run */
} run;

static int64_t now_ns(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- printing ---- */
static bool wants_print(const run *r, const pass_info *p, bool changed) {
  const char *after = r->request->print_after;
  if (!after) return false;
  if (strcmp(after, "all") == 0) return true;
  return strcmp(after, "changed") == 0 ? changed : strcmp(after, p->name) == 0;
}

static void print(const run *r, strbuf *out) {
  for (uint32_t i = 0; i < r->funcs.len; i++) {
    if (i) strbuf_putc(out, '\n');
    text_print_func(r->funcs.data[i], out);
  }
}

static void write_reproducer(run *r, const pass_list *list, uint32_t first, const strbuf *before) {
  if (!r->reproducer || !r->request->verify) return;
  strbuf_puts(r->reproducer, "# weir opt FILE --passes ");
  for (uint32_t i = first; i < list->len; i++)
    strbuf_printf(r->reproducer, "%s%s", i > first ? "," : "", list->data[i]->name);
  const char *pipeline = host_pipeline_text(r->request->options.pipeline);
  if (r->request->options.pipeline != HOST_AUTO)
    strbuf_printf(r->reproducer, " --pipeline %s", pipeline);
  strbuf_printf(r->reproducer, "\n%s", before->data);
}

/* ---- one pass ---- */
static bool is_lowered(const run *r, const ir_func *fusion) {
  for (uint32_t i = 0; i < r->funcs.len; i++) {
    const ir_func *h = r->funcs.data[i];
    if (h->host && h->host->fusion == fusion) return true;
  }
  return false;
}

static bool takes(const run *r, const pass_info *p, const ir_func *f) {
  if (p->run == pass_lower) return !f->host && !is_lowered(r, f);
  return (f->host != NULL) == (p->level >= PASS_HOST);
}

static void list_after(run *r, uint32_t i, ir_func *made) {
  vec_push(&r->m->memory, &r->funcs, made);
  for (uint32_t k = r->funcs.len - 1; k > i + 1; k--) r->funcs.data[k] = r->funcs.data[k - 1];
  r->funcs.data[i + 1] = made;
}

/* What a definition pass changed has no scheduled view until it is derived again. */
static bool is_scheduled(ir_func *f) { return f->host || f->applied || schedule_apply(f); }

static status run_on_funcs(run *r, const pass_info *p, bool *changed) {
  for (uint32_t i = 0; i < r->funcs.len; i++) {
    ir_func *f = r->funcs.data[i];
    pass_ctx ctx = {.scratch = &r->scratch, .options = &r->request->options};
    ctx.decomposed = r->decomposed;
    if (!takes(r, p, f)) continue;
    TRY(p->run(f, &ctx));
    *changed = *changed || ctx.changed;
    if (ctx.made) list_after(r, i++, ctx.made);
    if (!is_scheduled(f))
      return fail(STATUS_BAD_PROGRAM, "the schedule does not apply after pass '%s'", p->name);
  }
  r->decomposed = r->decomposed || p->run == pass_decompose;
  return STATUS_OK;
}

static status verify(run *r, const pass_info *p) {
  bool ok = true;
  for (uint32_t i = 0; i < r->funcs.len; i++) {
    ir_func *f = r->funcs.data[i];
    ok = ok && (f->host ? ir_host_verify(f) : ir_verify(f));
  }
  return ok ? STATUS_OK
            : fail(STATUS_BAD_PROGRAM, "the program is broken after pass '%s'", p->name);
}

static status run_pass(run *r, const pass_list *list, uint32_t i) {
  const pass_info *p = list->data[i];
  strbuf before;
  strbuf_init(&before, &r->scratch);
  if (r->request->verify && r->reproducer) print(r, &before);
  int64_t start_ns = now_ns();
  bool changed = false;
  status st = run_on_funcs(r, p, &changed);
  int64_t time_ns = now_ns() - start_ns;
  bool refused =
      st == STATUS_BAD_PROGRAM; /* with a diagnostic: the program's mistake, not the pass's */
  if (st == STATUS_OK && r->request->verify) st = verify(r, p);
  if (st != STATUS_OK && !refused) write_reproducer(r, list, i, &before);
  if (st == STATUS_OK && wants_print(r, p, changed)) {
    strbuf_printf(r->log, "# after %s\n", p->name);
    print(r, r->log);
  }
  if (r->request->time) strbuf_printf(r->log, "%12.3f ms  %s\n", (double)time_ns / 1e6, p->name);
  return st;
}

/* ---- all passes ---- */
/* The scratch arena must be freed even when memory runs out inside, hence the guard. */
static status run_guarded(void *context) {
  run *r = context;
  pass_list list;
  TRY(pass_select(r->request, &r->scratch, &list));
  for (uint32_t i = 0; i < list.len; i++) TRY(run_pass(r, &list, i));
  return STATUS_OK;
}

static status run_all(run *r) {
  arena_init(&r->scratch, r->m->memory.memory);
  status st = memory_guard(run_guarded, r);
  arena_destroy(&r->scratch);
  return st;
}

status pass_run(ir_module *m, const pass_request *request, strbuf *log, strbuf *reproducer) {
  run r = {.m = m, .request = request, .log = log, .reproducer = reproducer};
  for (uint32_t i = 0; i < m->funcs.len; i++) vec_push(&m->memory, &r.funcs, m->funcs.data[i]);
  status st = run_all(&r);
  m->funcs.len = 0;
  for (uint32_t i = 0; i < r.funcs.len; i++) vec_push(&m->memory, &m->funcs, r.funcs.data[i]);
  return st;
}

status pass_run_fusion(ir_func *f, const pass_request *request, strbuf *log, strbuf *reproducer,
                       ir_func **result) {
  run r = {.m = f->module, .request = request, .log = log, .reproducer = reproducer};
  check(!f->host && f->applied);
  vec_push(&f->module->memory, &r.funcs, ir_func_copy(f));
  TRY(run_all(&r));
  ir_func *h = r.funcs.len > 1 ? r.funcs.data[1] : NULL;
  if (!h)
    return fail(STATUS_BAD_USAGE, "pass 'lower' did not run: there is no host program without it");
  h->host->fusion = h->host->named_by = f;
  *result = h;
  return STATUS_OK;
}
