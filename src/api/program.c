/* Compiling. */
#include <stdio.h>
#include <string.h>

#include "api/passes.h"
#include "api/program.h"
#include "base/log.h"
#include "base/process.h"
#include "choose/variants.h"
#include "ir/build.h"
#include "ir/host.h"
#include "text/text.h"

typedef struct compile_call {
  const ir_func *from;
  const weir_options *given; /* NULL: none */
  weir_program *to;
  api_options options;
  /* Compiles only to choose between variants, and prints nothing: */
  bool chooses;
  const weir_shapes *shapes;
  const char *pass;
} compile_call;

static bool is_placed(const ir_func *f) {
  for (uint32_t i = 0; i < f->order.len; i++)
    if (!ir_op_at(f, f->order.data[i])->at.known) return false;
  for (uint32_t i = 0; i < f->statements.len; i++)
    if (!f->statements.data[i].at.known) return false;
  return true;
}

/* Prints a fusion that was built or changed by calls, so that later messages can show its lines. */
static void place(ir_func *f) {
  ir_module *m = f->module;
  strbuf text;
  strbuf_init(&text, &m->memory);
  text_print_placed(f, &text);
  m->src = (source){.name = arena_printf(&m->memory, "<%s>", ir_name_text(f, f->name))};
  m->src.text = text.data;
  m->src.length = (uint32_t)text.len;
}

/* A copy, independent of the module that the fusion was built in. */
static status clone(arena *scratch, compile_call *c) {
  ir_module *m = &c->to->ir;
  ir_module_init(m, &c->to->memory);
  ir_func *f = c->to->func = ir_func_copy_to(c->from, m, scratch);
  c->to->definition = f->host ? f->host->fusion : f;
  if (!f->host && !is_placed(f)) place(f);
  api_verify(m);
  return m->errors.errors ? STATUS_BAD_PROGRAM : STATUS_OK;
}

/* ---- what WEIR_DUMP asks for, to standard error ---- */
/* *shown: the text, or NULL for nothing. If `host` is a variant, `pass` makes it. */
static status show_host(arena *scratch, const compile_call *c, ir_func *host, const char *pass,
                        const char **shown) {
  const api_dump *wanted = &c->options.dump;
  strbuf out;
  strbuf_init(&out, &c->to->ir.memory);
  if (wanted->host) text_print_host(host, &out);
  if (wanted->nvfuser && c->to->definition) {
    ir_func *plain;
    pass_request request = {0};
    api_pass_also(scratch, pass, &request.enable);
    api_show_plain(scratch, &request);
    TRY(api_lower(scratch, c->to->definition, &request, &plain));
    text_print_nvfuser(plain, 0, &out);
  }
  *shown = out.len ? out.data : NULL;
  return STATUS_OK;
}

/* Prints what option `dump` asks for. A program that is chosen later is printed then. */
static status dump(arena *scratch, compile_call *c, ir_func *host) {
  choose_variants *v = &c->options.session.variants;
  strbuf out;
  strbuf_init(&out, scratch);
  if (c->options.dump.fusion && c->to->definition) text_print_func(c->to->definition, &out);
  if (out.len) log_text(out.data);
  TRY(show_host(scratch, c, host, NULL, &v->shown[0]));
  for (uint32_t i = 0; i < v->n; i++)
    TRY(show_host(scratch, c, v->list[i].host, v->list[i].pass, &v->shown[i + 1]));
  if (v->n || !v->shown[0]) return STATUS_OK;
  log_text(v->shown[0]);
  v->shown[0] = NULL;
  return STATUS_OK;
}

/* A hash of what all processes of a run must have in common, except extents. */
static uint64_t hash_program(arena *scratch, const ir_func *host, const api_options *o) {
  strbuf text;
  strbuf_init(&text, scratch);
  text_print_host(host, &text);
  uint64_t how = hash_mix(o->session.streams, (uint64_t)o->pipeline);
  return hash_mix(hash_bytes(text.data, text.len), hash_mix(how, o->session.deterministic));
}

/* ---- other programs of the same fusion, lowered quietly ---- */
static status lower_varied(arena *scratch, const compile_call *c, pass_request varied,
                           ir_func **result) {
  varied.print_after = NULL;
  varied.time = false;
  return api_lower(scratch, c->to->func, &varied, result);
}

typedef struct variant_call {
  arena *scratch;
  const compile_call *c;
  const pass_request *request;
} variant_call;

static status lower_variant(void *context, const char *pass, ir_func **result) {
  const variant_call *v = context;
  pass_request varied = *v->request;
  api_pass_also(v->scratch, pass, &varied.enable);
  return lower_varied(v->scratch, v->c, varied, result);
}

static status add_variants(arena *scratch, compile_call *c, const pass_request *request,
                           const ir_func *host) {
  variant_call call = {scratch, c, request};
  choose_varied varied = {.fusion = c->to->func, .host = host, .lower = lower_variant};
  varied.deterministic = c->options.session.deterministic;
  varied.context = &call;
  return choose_find_variants(&varied, scratch, &c->options.session.variants);
}

/* Adds the lowering that does not overlap, and so needs least memory. */
static status add_tight(arena *scratch, compile_call *c, const pass_request *request) {
  pass_request varied = *request;
  api_pass_also(scratch, "order", &varied.disable);
  varied.options.one_phase = true;
  return lower_varied(scratch, c, varied, &c->options.session.tight);
}

static status lower_all(arena *scratch, compile_call *c, ir_func **host) {
  pass_request request = {0};
  TRY(api_pass_request(scratch, c->given, &request));
  if (api_expect_shapes(c->to->func, c->given) != WEIR_OK) return STATUS_BAD_USAGE;
  request.options.pipeline = c->options.pipeline;
  if (c->chooses) request.print_after = NULL;
  if (c->chooses) request.time = false;
  TRY(api_lower(scratch, c->to->func, &request, host));
  if (c->options.session.memory_limit) TRY(add_tight(scratch, c, &request));
  return c->options.chooses ? add_variants(scratch, c, &request, *host) : STATUS_OK;
}

static session_proof proof_of(const char *word, bool by_hand) {
  if (strcmp(word, "never") == 0) return SESSION_PROOF_NEVER;
  return by_hand || strcmp(word, "always") == 0 ? SESSION_PROOF_ALWAYS : SESSION_PROOF_CHEAP;
}

static status compile_host(arena *scratch, compile_call *c) {
  weir_program *p = c->to;
  ir_func *host = p->func;
  if (strcmp(c->options.session.device, "ref") == 0) {
    return p->definition ? STATUS_OK
                         : fail(STATUS_BAD_USAGE, "a host program needs a device: ref evaluates "
                                                  "the fusion, and there is none");
  }
  c->options.session.keep_waits = host->host != NULL;
  c->options.session.proof = proof_of(c->options.proof, host->host != NULL);
  if (!host->host) TRY(lower_all(scratch, c, &host));
  if (c->chooses && !c->options.session.variants.n) return STATUS_OK;
  if (!c->chooses) TRY(dump(scratch, c, host));
  c->options.session.program = hash_program(scratch, host, &c->options);
  p->most_held = p->ir.scalars.symbols.len;
  p->held = ARENA_ARRAY(&p->ir.memory, p->most_held, int64_t);
  return session_open(&p->session, host, &c->options.session, &p->memory);
}

/* Every message of a run names its tensor, and a run allocates nothing: so labels are made beforehand. */
static void name_tensors(weir_program *p) {
  const ir_func *f = p->func;
  uint32_t n = f->inputs.len;
  p->labels = ARENA_ARRAY(&p->ir.memory, (size_t)n + f->outputs.len, const char *);
  for (uint32_t i = 0; i < n; i++)
    p->labels[i] = arena_printf(&p->ir.memory, "input %s", ir_tensor_name(f, f->inputs.data[i]));
  for (uint32_t i = 0; i < f->outputs.len; i++)
    p->labels[n + i] =
        arena_printf(&p->ir.memory, "output %s", ir_tensor_name(f, f->outputs.data[i]));
}

static status compile_body(arena *scratch, void *context) {
  compile_call *c = context;
  status st = clone(scratch, c);
  if (st == STATUS_OK) name_tensors(c->to);
  if (st == STATUS_OK) st = compile_host(scratch, c);
  return api_take_diags(&c->to->ir, st, scratch);
}

static void *locked_alloc(void *context, size_t size_bytes) {
  weir_program *p = context;
  (void)pthread_mutex_lock(&p->memory_lock);
  void *block = p->given.alloc(p->given.context, size_bytes);
  p->n_allocations++;
  (void)pthread_mutex_unlock(&p->memory_lock);
  return block;
}

static void locked_free(void *context, void *block) {
  weir_program *p = context;
  (void)pthread_mutex_lock(&p->memory_lock);
  p->given.free(p->given.context, block);
  (void)pthread_mutex_unlock(&p->memory_lock);
}

static void destroy_later(void *program) { weir_program_destroy(program); }

static status create(const allocator *given, weir_program **result) {
  weir_program *p = memory_alloc(given, sizeof *p);
  if (!p) return STATUS_OUT_OF_MEMORY;
  *p = (weir_program){.memory = {locked_alloc, locked_free, p}, .given = *given};
  p->process = process_number();
  bool first = pthread_mutex_init(&p->lock, NULL) == 0;
  bool second = first && pthread_mutex_init(&p->memory_lock, NULL) == 0;
  if (second && session_queue_init(&p->queue, destroy_later, p) == STATUS_OK) {
    arena_init(&p->scratch, &p->memory);
    *result = p;
    return STATUS_OK;
  }
  if (second) (void)pthread_mutex_destroy(&p->memory_lock);
  if (first) (void)pthread_mutex_destroy(&p->lock);
  memory_free(given, p);
  return fail(STATUS_SYSTEM, "cannot make a lock");
}

weir_status weir_compile(const weir_fusion *f, const weir_options *o, const weir_allocator *memory,
                         weir_program **result) {
  if (!f || !result) return api_refuse("weir_compile: an argument is NULL");
  compile_call c = {.from = api_func(f), .given = o};
  weir_status st = api_read_options(o, &c.options);
  if (st != WEIR_OK) return st;
  if (api_check_allocator(memory, "weir_compile") != WEIR_OK) return WEIR_BAD_USAGE;
  allocator a = api_allocator(memory);
  api_begin();
  weir_program *p = NULL;
  status made = create(&a, &p);
  if (made != STATUS_OK) return api_end(made);
  c.to = p;
  st = api_call(&p->memory, compile_body, &c);
  if (st == WEIR_OK) *result = p;
  else weir_program_destroy(p);
  return st;
}

/* ---- only the choice ---- */
static status choose_body(arena *scratch, void *context) {
  compile_call *c = context;
  weir_program *p = c->to;
  ir_env env;
  TRY(compile_body(scratch, context));
  if (!p->session.device) return STATUS_OK;
  status st = api_bind_like(p, c->shapes, scratch, &env);
  if (st == STATUS_OK) st = session_choose(&p->session, &env, &c->pass);
  return api_take_diags(&p->ir, st, scratch);
}

weir_status api_choose_pass(const weir_fusion *f, const weir_options *o, const weir_shapes *s,
                            const char **pass) {
  compile_call c = {.from = api_func(f), .given = o, .chooses = true, .shapes = s};
  *pass = NULL;
  if (!api_shapes_complete(s) || c.from->host) return WEIR_OK;
  weir_status st = api_read_options(o, &c.options);
  if (st != WEIR_OK || strcmp(c.options.session.device, "ref") == 0) return st;
  c.options.dump = (api_dump){0};
  c.options.session.dump_plan = false;
  api_begin();
  status made = create(&memory_default, &c.to);
  if (made != STATUS_OK) return api_end(made);
  st = api_call(&c.to->memory, choose_body, &c);
  weir_program_destroy(c.to);
  *pass = c.pass; /* a word of the table of passes */
  return st;
}

int64_t weir_launch_rank(void) { return session_launch_rank(); }

const char *weir_program_device(const weir_program *p) {
  return p && p->session.device ? p->session.device->ops->name : "ref";
}

weir_status api_check_process(const weir_program *p) {
  if (p->process == process_number()) return WEIR_OK;
  return api_refuse("the program was compiled before fork(), and its threads are not in this "
                    "process: compile it here");
}

/* In a child of fork() its memory is left alone: threads that are not there may hold its locks, and its
 * connections are the parent's. */
void weir_program_destroy(weir_program *p) {
  if (!p || p->process != process_number() || !session_queue_close(&p->queue)) return;
  allocator a = p->given;
  session_close(&p->session);
  arena_destroy(&p->scratch);
  ir_module_destroy(&p->ir);
  (void)pthread_mutex_destroy(&p->lock);
  (void)pthread_mutex_destroy(&p->memory_lock);
  memory_free(&a, p);
}
