/* Compiling. */
#include <stdio.h>
#include <string.h>

#include "api/passes.h"
#include "api/program.h"
#include "base/log.h"
#include "explain/explain.h"
#include "ir/host.h"
#include "runtime/machine.h"
#include "text/text.h"

typedef struct compile_call {
  const ir_func *from;
  const weir_options *given; /* NULL: none */
  weir_program *to;
  api_executor_options options;
  const char *proof; /* when to prove a plan before it runs: auto, always or never */
  /* Only for the choice between variants, quietly: */
  bool chooses;
  const weir_shapes *shapes;
  const char *pass;
} compile_call;

static void print_all(const ir_func *f, strbuf *out) {
  const ir_func *fusion = f->host ? f->host->fusion : NULL;
  if (fusion) text_print_func(fusion, out);
  text_print_func(f, out);
}

/* The function of that name and kind. */
static ir_func *same_function(const ir_module *m, const ir_func *f) {
  for (uint32_t i = 0; i < m->funcs.len; i++) {
    ir_func *g = m->funcs.data[i];
    if (g->kind == f->kind && strcmp(ir_name_text(g, g->name), ir_name_text(f, f->name)) == 0)
      return g;
  }
  return NULL;
}

/* From the source it was parsed from, so that later messages point there; false if the function has
 * been changed since, or was never text. */
static bool clone_source(arena *scratch, compile_call *c, const strbuf *text) {
  const source *src = &c->from->module->src;
  ir_module *m = &c->to->ir;
  if (!src->text || api_parse(m, src->name, src->text, src->length) != STATUS_OK) return false;
  c->to->func = same_function(m, c->from);
  if (!c->to->func) return false;
  strbuf again;
  strbuf_init(&again, scratch);
  print_all(c->to->func, &again);
  return again.len == text->len && memcmp(again.data, text->data, text->len) == 0;
}

/* Through text, a fusion becomes independent of the module it was built in. */
static status clone(arena *scratch, compile_call *c) {
  ir_module *m = &c->to->ir;
  strbuf text;
  strbuf_init(&text, scratch);
  print_all(c->from, &text);
  ir_module_init(m, &c->to->memory);
  if (!clone_source(scratch, c, &text)) {
    ir_module_destroy(m);
    ir_module_init(m, &c->to->memory);
    const char *name = arena_printf(scratch, "<%s>", ir_name_text(c->from, c->from->name));
    TRY(api_parse(m, name, text.data, text.len));
    c->to->func = same_function(m, c->from);
  }
  check(c->to->func != NULL);
  c->to->definition = c->to->func->host ? c->to->func->host->fusion : c->to->func;
  return STATUS_OK;
}

/* ---- what WEIR_DUMP asks for, to standard error ---- */
/* NULL: nothing. `pass` makes this one of the variants. */
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

/* What is chosen is shown when it is. */
static status dump(arena *scratch, compile_call *c, ir_func *host) {
  api_variants *v = &c->options.variants;
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

static bool has_stream_loops(const ir_func *host) {
  for (uint32_t i = 1; i < host->host->instrs.len; i++)
    if (host->host->instrs.data[i].kind == IR_SET_STREAM) return true;
  return false;
}

static bool has_streams(const ir_func *f) {
  for (uint32_t i = 1; i < f->axes.len; i++) {
    if (f->axes.data[i].mark.kind == IR_MARK_STREAM) return true;
  }
  return false;
}

/* Is a reduction cut by a stream? Without it the sum would be another one. */
static bool adds_up(const ir_func *f) {
  for (uint32_t i = 1; i < f->axes.len; i++) {
    const ir_axis_data *a = &f->axes.data[i];
    if (a->mark.kind == IR_MARK_STREAM && a->kind == IR_AXIS_REDUCTION) return true;
  }
  return false;
}

/* What all processes of a run must have in common, extents apart. */
static uint64_t hash_program(arena *scratch, const ir_func *host, const api_executor_options *o) {
  strbuf text;
  strbuf_init(&text, scratch);
  text_print_host(host, &text);
  uint64_t how = hash_mix(o->streams, (uint64_t)o->pipeline);
  return hash_mix(hash_bytes(text.data, text.len), hash_mix(how, o->deterministic));
}

/* The same program with one more pass, quietly. */
static status lower_with(arena *scratch, const compile_call *c, const pass_request *request,
                         const char *pass, ir_func **result) {
  pass_request varied = *request;
  api_pass_also(scratch, pass, &varied.enable);
  varied.print_after = NULL;
  varied.time = false;
  return api_lower(scratch, c->to->func, &varied, result);
}

/* What `auto` chooses from beside the program as it is marked: if that has the device's own piece first, a
 * collective per slice; if it does not and could, that; and everything in one piece. */
static status add_variants(arena *scratch, const compile_call *c, const pass_request *request,
                           const ir_func *host, api_variants *v) {
  bool own_first = host->host->own_first;
  api_variant other = {.pass = own_first ? "stream-slices" : "stream-pieces"};
  TRY(lower_with(scratch, c, request, other.pass, &other.host));
  if (other.host->host->own_first != own_first) v->list[v->n++] = other;
  else if (!has_stream_loops(host)) return STATUS_OK; /* no loop came of any mark */
  other.pass = "unstream";
  TRY(lower_with(scratch, c, request, other.pass, &other.host));
  v->list[v->n++] = other;
  return STATUS_OK;
}

/* The same program without what needs memory to overlap. */
static status add_tight(arena *scratch, compile_call *c, const pass_request *request) {
  pass_request varied = *request;
  api_pass_also(scratch, "order", &varied.disable);
  varied.print_after = NULL;
  varied.time = false;
  return api_lower(scratch, c->to->func, &varied, &c->options.tight);
}

static status lower_all(arena *scratch, compile_call *c, ir_func **host) {
  pass_request request = {0};
  TRY(api_pass_request(scratch, c->given, &request));
  if (api_expect_shapes(c->to->func, c->given) != WEIR_OK) return STATUS_BAD_USAGE;
  request.options.pipeline = c->options.pipeline;
  if (c->chooses) request.print_after = NULL;
  if (c->chooses) request.time = false;
  TRY(api_lower(scratch, c->to->func, &request, host));
  if (c->options.memory_limit) TRY(add_tight(scratch, c, &request));
  bool choice = c->options.chooses && (*host)->meshes.len > 1 && has_streams(c->to->func) &&
                !(c->options.deterministic && adds_up(c->to->func));
  return choice ? add_variants(scratch, c, &request, *host, &c->options.variants) : STATUS_OK;
}

static api_proof proof_of(const char *word, bool by_hand) {
  if (strcmp(word, "never") == 0) return API_PROOF_NEVER;
  return by_hand || strcmp(word, "always") == 0 ? API_PROOF_ALWAYS : API_PROOF_CHEAP;
}

static status compile_host(arena *scratch, compile_call *c) {
  weir_program *p = c->to;
  ir_func *host = p->func;
  if (strcmp(c->options.device, "ref") == 0) {
    return p->definition ? STATUS_OK
                         : fail(STATUS_BAD_USAGE, "a host program needs a device: ref evaluates "
                                                  "the fusion, and there is none");
  }
  c->options.keep_waits = host->host != NULL;
  p->proof = proof_of(c->proof, host->host != NULL);
  if (!host->host) TRY(lower_all(scratch, c, &host));
  if (c->chooses && !c->options.variants.n) return STATUS_OK;
  if (!c->chooses) TRY(dump(scratch, c, host));
  c->options.program = hash_program(scratch, host, &c->options);
  return api_executor_open(&p->executor, host, &c->options, &p->memory);
}

/* Runs allocate nothing, and say in every check which tensor it is. */
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

static weir_status read_dump(const char *word, api_dump *dump) {
  if (strcmp(word, "fusion") == 0) dump->fusion = true;
  else if (strcmp(word, "host") == 0) dump->host = true;
  else if (strcmp(word, "nvfuser") == 0) dump->nvfuser = true;
  else if (strcmp(word, "plan") == 0) dump->plan = true;
  else if (strcmp(word, "passes") != 0)
    return api_refuse("there is no dump '%s'; there are fusion, host, nvfuser, plan and passes",
                      word);
  return WEIR_OK;
}

/* Words that outlive the options. */
static const char *read_proof(const char *word) {
  static const char *const words[] = {"auto", "always", "never"};
  for (int i = 0; i < 3; i++) {
    if (strcmp(words[i], word) == 0) return words[i];
  }
  impossible("the option is one of these");
}

bool api_find_pipeline(const char *word, host_pipeline *result) {
  if (strcmp(word, "marked") == 0) word = "auto"; /* and nothing is chosen */
  for (host_pipeline i = HOST_AUTO; i <= HOST_BROADCAST; i++) {
    if (strcmp(host_pipeline_text(i), word) != 0) continue;
    *result = i;
    return true;
  }
  return false;
}

weir_status api_read_pipeline(const weir_options *o, host_pipeline *result) {
  const char *word = NULL;
  weir_status st = weir_options_get(o, "pipeline", 0, &word);
  if (st == WEIR_OK) (void)api_find_pipeline(word, result); /* the option is one of the words */
  return st;
}

static status load_machine(arena *scratch, void *context) {
  (void)scratch;
  api_executor_options *o = context;
  o->has_machine = true;
  return rt_machine_load(o->machine_name, &o->machine);
}

static weir_status read_machine(const weir_options *o, api_executor_options *result) {
  weir_status st = weir_options_get(o, "machine", 0, &result->machine_name);
  if (st != WEIR_OK || !result->machine_name[0]) return st;
  return api_call(&memory_default, load_machine, result);
}

weir_status api_read_options(const weir_options *o, api_executor_options *result,
                             const char **when) {
  weir_options *defaults = NULL;
  int64_t streams = 0, threads = 0, devices = 0;
  const char *comm = "auto";
  weir_status st = o ? WEIR_OK : weir_options_create(&defaults);
  const weir_options *from = o ? o : defaults;
  const char *proof = "auto", *link = "auto", *pipeline = "auto";
  if (st == WEIR_OK) st = weir_options_get(from, "device", 0, &result->device);
  if (st == WEIR_OK) st = weir_options_get_int(from, "streams", &streams);
  if (st == WEIR_OK) st = weir_options_get_int(from, "threads", &threads);
  if (st == WEIR_OK) st = weir_options_get_int(from, "adversary", &result->adversary);
  if (st == WEIR_OK) st = weir_options_get(from, "prove", 0, &proof);
  if (st == WEIR_OK) st = weir_options_get_int(from, "memory-limit", &result->memory_limit);
  if (st == WEIR_OK) st = weir_options_get_int(from, "plan-cache", &result->plan_cache);
  if (st == WEIR_OK) st = weir_options_get_bool(from, "graph", &result->graph);
  if (st == WEIR_OK) st = weir_options_get_bool(from, "tf32", &result->tf32);
  if (st == WEIR_OK) st = weir_options_get_bool(from, "deterministic", &result->deterministic);
  if (st == WEIR_OK) st = weir_options_get(from, "link", 0, &link);
  if (st == WEIR_OK) st = weir_options_get(from, "comm", 0, &comm);
  if (st == WEIR_OK) st = weir_options_get_int(from, "devices", &devices);
  if (st == WEIR_OK) st = weir_options_get_int(from, "timeout", &result->timeout_s);
  if (st == WEIR_OK) st = api_read_pipeline(from, &result->pipeline);
  if (st == WEIR_OK) st = weir_options_get(from, "pipeline", 0, &pipeline);
  for (size_t i = 0; st == WEIR_OK; i++) {
    const char *word = NULL;
    st = weir_options_get(from, "dump", i, &word);
    if (st != WEIR_OK || !word) break;
    st = read_dump(word, &result->dump);
  }
  if (st == WEIR_OK) { /* a name that outlives the options */
    const rt_device_ops *device = rt_device_find(result->device);
    result->device = device ? device->name : "ref";
  }
  if (st == WEIR_OK) st = read_machine(from, result);
  *when = read_proof(proof);
  result->link_host = strcmp(link, "host") == 0;
  result->chooses = strcmp(pipeline, "auto") == 0;
  const rt_comm_ops *backend = rt_comm_find(comm);
  result->comm = backend ? backend->name : "auto";
  result->carrier = rt_carrier_find(comm);
  result->devices = (uint32_t)devices;
  result->streams = (uint32_t)streams;
  if (o) result->device_memory = api_device_memory(o);
  if (o) result->group = api_world_group(o);
  result->threads = (uint32_t)threads;
  weir_options_destroy(defaults);
  return st;
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

static status create(const allocator *given, weir_program **result) {
  weir_program *p = memory_alloc(given, sizeof *p);
  if (!p) return STATUS_OUT_OF_MEMORY;
  *p = (weir_program){.memory = {locked_alloc, locked_free, p}, .given = *given};
  bool first = pthread_mutex_init(&p->lock, NULL) == 0;
  bool second = first && pthread_mutex_init(&p->memory_lock, NULL) == 0;
  if (second && api_queue_init(&p->queue) == STATUS_OK) {
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
  weir_status st = api_read_options(o, &c.options, &c.proof);
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
  if (!p->executor.device) return STATUS_OK;
  status st = api_bind_like(p, c->shapes, scratch, &env);
  if (st == STATUS_OK) st = api_executor_choose(&p->executor, &env, &c->pass);
  return api_take_diags(&p->ir, st, scratch);
}

weir_status api_choose_pass(const weir_fusion *f, const weir_options *o, const weir_shapes *s,
                            const char **pass) {
  compile_call c = {.from = api_func(f), .given = o, .chooses = true, .shapes = s};
  *pass = NULL;
  if (!api_shapes_complete(s) || c.from->host) return WEIR_OK;
  weir_status st = api_read_options(o, &c.options, &c.proof);
  if (st != WEIR_OK || strcmp(c.options.device, "ref") == 0) return st;
  c.options.dump = (api_dump){0};
  api_begin();
  status made = create(&memory_default, &c.to);
  if (made != STATUS_OK) return api_end(made);
  st = api_call(&c.to->memory, choose_body, &c);
  weir_program_destroy(c.to);
  *pass = c.pass; /* a word that stays */
  return st;
}

int64_t weir_launch_rank(void) { return api_launch_rank(); }

const char *weir_program_device(const weir_program *p) {
  return p && p->executor.device ? p->executor.device->ops->name : "ref";
}

typedef struct note_call {
  weir_program *p;
  char **note;
} note_call;

static void note_choice(const api_executor *x, strbuf *out) {
  if (x->streamed_ns > 0)
    strbuf_printf(out,
                  "the program's streams are not used: predicted %.3g s with them, %.3g s without "
                  "(--pipeline marked uses them)\n",
                  x->streamed_ns * 1e-9, x->unstreamed_ns * 1e-9);
}

static status note_body(arena *scratch, void *context) {
  note_call *c = context;
  const api_executor *x = &c->p->executor;
  explain_subject subject = {.scratch = scratch};
  ir_env env;
  strbuf out;
  strbuf_init(&out, scratch);
  note_choice(x, &out);
  subject.h = api_executor_last(x, scratch, &env);
  subject.env = &env;
  if (subject.h && subject.h->host->lowered) explain_notes(&subject, &out);
  if (out.len == 0) return STATUS_OK;
  out.data[--out.len] = '\0'; /* lines are separated */
  return api_string(&out, c->note);
}

weir_status weir_program_note(const weir_program *p, char **note) {
  if (!p || !note) return api_refuse("weir_program_note: an argument is NULL");
  note_call c = {.p = (weir_program *)p, .note = note};
  *note = NULL;
  (void)pthread_mutex_lock(&c.p->lock);
  weir_status st = api_call(&c.p->memory, note_body, &c);
  (void)pthread_mutex_unlock(&c.p->lock);
  return st;
}

weir_status weir_program_counts(const weir_program *p, weir_counts *result) {
  if (!p || !result) return api_refuse("weir_program_counts: an argument is NULL");
  if (api_check_size(result->struct_size, "weir_program_counts") != WEIR_OK) return WEIR_BAD_USAGE;
  weir_program *locked = (weir_program *)p;
  (void)pthread_mutex_lock(&locked->lock);
  weir_counts all = {.struct_size = result->struct_size,
                     .runs = p->executor.counts.runs,
                     .bindings = p->executor.counts.bindings,
                     .loads = p->executor.counts.loads,
                     .in_place = p->executor.counts.in_place,
                     .copied = p->executor.counts.copied,
                     .evicted = p->executor.counts.evicted,
                     .proofs = p->executor.counts.proofs};
  api_executor_kept(&p->executor, &all.plans, &all.plan_bytes);
  (void)pthread_mutex_lock(&locked->memory_lock);
  all.allocations = p->n_allocations;
  (void)pthread_mutex_unlock(&locked->memory_lock);
  (void)pthread_mutex_unlock(&locked->lock);
  memcpy(result, &all, result->struct_size < sizeof all ? result->struct_size : sizeof all);
  return WEIR_OK;
}

void weir_program_destroy(weir_program *p) {
  if (!p || !api_queue_close(p)) return;
  allocator a = p->given;
  api_executor_close(&p->executor);
  api_forget_proven(p);
  arena_destroy(&p->scratch);
  ir_module_destroy(&p->ir);
  (void)pthread_mutex_destroy(&p->lock);
  (void)pthread_mutex_destroy(&p->memory_lock);
  memory_free(&a, p);
}
