/* Questions about a program, asked under its lock. */
#include "session/questions.h"

#include "api/program.h"
#include "check/check.h"
#include "explain/explain.h"

typedef struct ask_call {
  weir_program *p;
  api_body body;
  void *context;
} ask_call;

static status ask_body(arena *scratch, void *context) {
  const ask_call *c = context;
  return api_take_diags(&c->p->ir, c->body(scratch, c->context), scratch);
}

weir_status api_ask(const weir_program *p, api_body body, void *context) {
  ask_call c = {(weir_program *)p, body, context};
  if (api_check_process(p) != WEIR_OK) return WEIR_BAD_USAGE;
  (void)pthread_mutex_lock(&c.p->lock);
  weir_status st = api_call(&p->memory, ask_body, &c);
  (void)pthread_mutex_unlock(&c.p->lock);
  return st;
}

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

/* ---- before a run ---- */
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

/* ---- after a run ---- */
static status settle(arena *scratch, void *context) {
  const weir_program *p = context;
  rt_device *d = p->session.device;
  (void)scratch;
  return d && d->ops->settle ? d->ops->settle(d) : STATUS_OK;
}

weir_status weir_program_settle(const weir_program *p) {
  if (!p) return api_refuse("weir_program_settle: the program is NULL");
  return api_ask(p, settle, (void *)p);
}

/* ---- is it safe? ---- */
typedef struct check_call {
  weir_program *p;
  const weir_shapes *shapes;
  char **report;
  check_world_report found; /* freed by the entry point: scratch memory may run out meanwhile */
} check_call;

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

/* ---- can an output be computed in the memory of an input? ---- */
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

/* ---- memory ---- */
typedef struct peak_call {
  weir_program *p;
  const weir_shapes *shapes;
  weir_memory *result;
  char **text;
} peak_call;

static status find_peak(arena *scratch, void *context) {
  const peak_call *c = context;
  session_peak peak;
  ir_env env;
  strbuf text;
  strbuf_init(&text, scratch);
  TRY(api_bind_like(c->p, c->shapes, scratch, &env));
  TRY(session_find_peak(&c->p->session, &env, scratch, &peak, c->text ? &text : NULL));
  weir_memory all = {.struct_size = c->result->struct_size,
                     .device = peak.rank,
                     .pool_bytes = peak.pool_bytes,
                     .live_bytes = peak.live_bytes};
  if (c->text) TRY(api_string(&text, c->text));
  api_copy_sized(c->result, &all, all.struct_size, sizeof all);
  return STATUS_OK;
}

weir_status weir_program_memory(const weir_program *p, const weir_shapes *s, weir_memory *result,
                                char **text) {
  if (!p || !s || !result) return api_refuse("weir_program_memory: an argument is NULL");
  if (api_check_size(result->struct_size, "weir_program_memory") != WEIR_OK) return WEIR_BAD_USAGE;
  if (text) *text = NULL;
  if (!p->session.device)
    return api_refuse("the reference evaluator has no plan whose memory could be explained");
  peak_call c = {(weir_program *)p, s, result, text};
  return api_ask(p, find_peak, &c);
}

/* ---- time ---- */
typedef struct bound_call {
  weir_program *p;
  const weir_shapes *shapes;
  weir_bound *result;
  weir_bound_tell tell;
  void *context;
} bound_call;

static weir_bound bound_of(const session_bound *b) {
  return (weir_bound){.bound_s = cost_bound_ns(&b->least) * 1e-9,
                      .compute_s = b->least.compute * 1e-9,
                      .memory_s = b->least.memory * 1e-9,
                      .receive_s = b->least.receive * 1e-9,
                      .send_s = b->least.send * 1e-9,
                      .chain_s = b->least.chain * 1e-9,
                      .predicted_s = (double)b->total_ns * 1e-9,
                      .device = b->rank,
                      .computing_s = (double)b->computing_ns * 1e-9,
                      .exposed_s = (double)b->exposed_ns * 1e-9,
                      .idle_s = (double)(b->total_ns - b->computing_ns - b->exposed_ns) * 1e-9,
                      .program = b->program};
}

static status find_bound(arena *scratch, void *context) {
  const bound_call *c = context;
  session_bound bound;
  ir_env env;
  TRY(api_bind_like(c->p, c->shapes, scratch, &env));
  TRY(session_find_bound(&c->p->session, &env, scratch, c->tell, c->context, &bound));
  weir_bound all = bound_of(&bound);
  all.struct_size = c->result->struct_size;
  api_copy_sized(c->result, &all, all.struct_size, sizeof all);
  return STATUS_OK;
}

weir_status weir_program_bound(weir_program *p, const weir_shapes *s, weir_bound *result,
                               weir_bound_tell tell, void *context) {
  if (!p || !s || !result) return api_refuse("weir_program_bound: an argument is NULL");
  if (api_check_size(result->struct_size, "weir_program_bound") != WEIR_OK) return WEIR_BAD_USAGE;
  if (!p->session.device)
    return api_refuse("weir_program_bound: the reference evaluator executes this program");
  bound_call c = {p, s, result, tell, context};
  return api_ask(p, find_bound, &c);
}

/* ---- what happened so far ---- */
typedef struct note_call {
  weir_program *p;
  char **note;
} note_call;

/* Notes which program was chosen if it is not the marked one. Only rank 0 knows the times. */
static void note_choice(const session *x, const choose_choice *c, strbuf *out) {
  const char *added = c->best ? x->variants.list[c->best - 1].added : NULL;
  if (c->ns == 0) return;
  if (c->too_large_bytes && added)
    strbuf_printf(
        out,
        "products are not sliced: their buffers would take %lld bytes of a device, more than "
        "--memory-limit %lld\n",
        (long long)c->too_large_bytes, (long long)x->memory_limit);
  else if (c->too_large_bytes) return;
  else if (added)
    strbuf_printf(out, "products are sliced: predicted %.3g s, %.3g s without (as %s)\n",
                  c->ns * 1e-9, c->plain_ns * 1e-9, added);
  else if (c->best && c->best == x->variants.plain)
    strbuf_printf(out,
                  "the program's streams are not used: predicted %.3g s with them, %.3g s without "
                  "(--pipeline marked uses them)\n",
                  c->streamed_ns * 1e-9, c->plain_ns * 1e-9);
}

static void note_streams(const session *x, strbuf *out) {
  int64_t too_large_bytes;
  uint32_t n = session_streams(x, &too_large_bytes);
  if (n < x->streams)
    strbuf_printf(out,
                  "iterations take turns on %u of %u streams: on all of them buffers would take "
                  "%lld bytes of a "
                  "device, more than --memory-limit %lld\n",
                  n, x->streams, (long long)too_large_bytes, (long long)x->memory_limit);
}

static status note_body(arena *scratch, void *context) {
  note_call *c = context;
  session *x = &c->p->session;
  explain_subject subject = {.scratch = scratch};
  choose_choice choice = x->choice;
  ir_env env;
  strbuf out;
  strbuf_init(&out, scratch);
  subject.h = session_last(x, scratch, &env);
  subject.env = &env;
  if (subject.h) TRY(session_told_choice(x, &env, &choice));
  note_choice(x, &choice, &out);
  note_streams(x, &out);
  if (subject.h && subject.h->host->lowered) explain_notes(&subject, &out);
  if (out.len == 0) return STATUS_OK;
  out.data[--out.len] = '\0'; /* the last line ends without a newline */
  return api_string(&out, c->note);
}

weir_status weir_program_note(const weir_program *p, char **note) {
  if (!p || !note) return api_refuse("weir_program_note: an argument is NULL");
  note_call c = {.p = (weir_program *)p, .note = note};
  *note = NULL;
  return api_ask(p, note_body, &c);
}

weir_status weir_program_counts(const weir_program *p, weir_counts *result) {
  if (!p || !result) return api_refuse("weir_program_counts: an argument is NULL");
  if (api_check_size(result->struct_size, "weir_program_counts") != WEIR_OK) return WEIR_BAD_USAGE;
  if (api_check_process(p) != WEIR_OK) return WEIR_BAD_USAGE;
  weir_program *locked = (weir_program *)p;
  (void)pthread_mutex_lock(&locked->lock);
  weir_counts all = {.struct_size = result->struct_size,
                     .runs = p->session.counts.runs,
                     .bindings = p->session.counts.bindings,
                     .loads = p->session.counts.loads,
                     .in_place = p->session.counts.in_place,
                     .copied = p->session.counts.copied,
                     .evicted = p->session.counts.evicted,
                     .proofs = p->session.counts.proofs};
  session_kept(&p->session, &all.plans, &all.plan_bytes);
  (void)pthread_mutex_lock(&locked->memory_lock);
  all.allocations = p->n_allocations;
  (void)pthread_mutex_unlock(&locked->memory_lock);
  (void)pthread_mutex_unlock(&locked->lock);
  api_copy_sized(result, &all, result->struct_size, sizeof all);
  return WEIR_OK;
}
