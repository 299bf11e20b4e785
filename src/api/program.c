/* Compiling and running. */
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "api/api.h"
#include "ir/bind.h"
#include "ref/ref.h"
#include "text/text.h"

struct weir_program {
  allocator memory;
  ir_module ir;
  ir_func *func;
  /* Binding interns scalars and reports to the module: one thread at a time. Evaluation only reads. */
  pthread_mutex_t bind_lock;
};

/* ---- compiling ---- */
typedef struct compile_call {
  const ir_func *from;
  weir_program *to;
} compile_call;

/* Through its text form, a fusion becomes independent of the module it was built in. Places in later
 * messages are then places in that text, so it gets a name of its own. */
static status compile_body(arena *scratch, void *context) {
  compile_call *c = context;
  ir_module *m = &c->to->ir;
  strbuf text;
  strbuf_init(&text, scratch);
  text_print_func(c->from, &text);
  ir_module_init(m, &c->to->memory);
  const char *name = arena_printf(scratch, "<%s>", ir_name_text(c->from, c->from->name));
  status st = api_parse(m, name, text.data, text.len);
  st = api_take_diags(m, st, scratch);
  if (st == STATUS_OK) c->to->func = m->funcs.data[0];
  return st;
}

weir_status weir_compile(const weir_fusion *f, const weir_options *o, const weir_allocator *memory,
                         weir_program **result) {
  (void)o; /* options shape host programs; the reference evaluator has none */
  if (!f || !result) return api_refuse("weir_compile: an argument is NULL");
  allocator a = api_allocator(memory);
  api_begin();
  weir_program *p = memory_alloc(&a, sizeof *p);
  if (!p) return api_end(STATUS_OUT_OF_MEMORY);
  *p = (weir_program){.memory = a};
  if (pthread_mutex_init(&p->bind_lock, NULL) != 0) {
    memory_free(&a, p);
    return api_end(fail(STATUS_SYSTEM, "cannot make a lock"));
  }
  compile_call c = {api_func(f), p};
  weir_status st = api_call(&p->memory, compile_body, &c);
  if (st == WEIR_OK) *result = p;
  else weir_program_destroy(p);
  return st;
}

void weir_program_destroy(weir_program *p) {
  if (!p) return;
  allocator a = p->memory;
  ir_module_destroy(&p->ir);
  (void)pthread_mutex_destroy(&p->bind_lock);
  memory_free(&a, p);
}

/* ---- running ---- */
typedef struct run_call {
  weir_program *p;
  weir_run_args args;
  arena memory; /* of this call */
  ir_env env;
  ir_array *inputs, *outputs;
} run_call;

static const char *label(run_call *c, const char *kind, ir_tensor t) {
  return arena_printf(&c->memory, "%s %s", kind, ir_tensor_name(c->p->func, t));
}

static status check_count(const char *what, size_t given, uint32_t wanted) {
  if (given == wanted) return STATUS_OK;
  return fail(STATUS_BAD_USAGE, "the fusion has %u %s, but %zu are given", wanted, what, given);
}

static status check_dtype(const ir_array *a, ir_dtype wanted, const char *what) {
  if (a->dtype == wanted) return STATUS_OK;
  return fail(STATUS_BAD_USAGE, "%s holds %s, but the fusion has %s", what, ir_dtype_text(a->dtype),
              ir_dtype_text(wanted));
}

static status take_inputs(run_call *c) {
  const ir_func *f = c->p->func;
  TRY(check_count("inputs", c->args.n_inputs, f->inputs.len));
  c->inputs = ARENA_ARRAY(&c->memory, f->inputs.len, ir_array);
  for (uint32_t i = 0; i < f->inputs.len; i++) {
    ir_tensor t = f->inputs.data[i];
    const char *what = label(c, "input", t);
    TRY(api_view(c->args.inputs[i], what, &c->inputs[i]));
    TRY(check_dtype(&c->inputs[i], ir_tensor_at(f, t)->dtype, what));
    if (!ir_bind_shape(&c->env, t, c->inputs[i].extents, c->inputs[i].rank, what))
      return STATUS_BAD_PROGRAM;
  }
  /* Only inputs declare extents: with all of them bound, every extent has a value. */
  return ir_bind_check(&c->env) ? STATUS_OK : STATUS_BAD_PROGRAM;
}

/* Two positions of an output must not share memory. A zero stride is the way that happens. */
static status check_output(run_call *c, ir_tensor t, const ir_array *a, const char *what) {
  int64_t extents[IR_MAX_RANK], n = 0;
  uint32_t rank;
  check(ir_env_shape(&c->env, t, extents, &rank) && ir_array_count(a, &n));
  if (a->rank != rank)
    return fail(STATUS_BAD_USAGE, "%s has rank %u, but needs %u", what, a->rank, rank);
  for (uint32_t i = 0; i < rank; i++) {
    if (a->extents[i] != extents[i])
      return fail(STATUS_BAD_USAGE, "%s: extent %u is %" PRId64 ", but needs to be %" PRId64, what,
                  i, a->extents[i], extents[i]);
    if (a->strides[i] == 0 && extents[i] > 1 && n > 0)
      return fail(STATUS_BAD_USAGE, "%s: elements along dimension %u share memory", what, i);
  }
  return STATUS_OK;
}

static status take_outputs(run_call *c) {
  const ir_func *f = c->p->func;
  TRY(check_count("outputs", c->args.n_outputs, f->outputs.len));
  c->outputs = ARENA_ARRAY(&c->memory, f->outputs.len, ir_array);
  for (uint32_t i = 0; i < f->outputs.len; i++) {
    ir_tensor t = f->outputs.data[i];
    const char *what = label(c, "output", t);
    TRY(api_view(c->args.outputs[i], what, &c->outputs[i]));
    TRY(check_dtype(&c->outputs[i], ir_tensor_at(f, t)->dtype, what));
    TRY(check_output(c, t, &c->outputs[i], what));
  }
  return STATUS_OK;
}

static status bind_body(void *context) {
  run_call *c = context;
  ir_env_init(&c->env, c->p->func, &c->memory);
  status st = take_inputs(c);
  if (st == STATUS_OK) st = take_outputs(c);
  return api_take_diags(&c->p->ir, st, &c->memory);
}

static status eval_body(void *context) {
  run_call *c = context;
  ref_options options = {
      .native_accumulate = !c->args.as_definition, .seed = c->args.seed, .memory = &c->p->memory};
  return ref_eval(&c->env, c->inputs, c->outputs, &options);
}

/* The lock is taken outside the guard: running out of memory must not leave it locked. */
static status bind_and_eval(run_call *c) {
  (void)pthread_mutex_lock(&c->p->bind_lock);
  status st = memory_guard(bind_body, c);
  (void)pthread_mutex_unlock(&c->p->bind_lock);
  return st == STATUS_OK ? memory_guard(eval_body, c) : st;
}

weir_status weir_run(const weir_program *p, const weir_run_args *args) {
  if (!p || !args) return api_refuse("weir_run: an argument is NULL");
  run_call c = {.p = (weir_program *)p};
  size_t n = args->struct_size < sizeof c.args ? args->struct_size : sizeof c.args;
  memcpy(&c.args, args, n);
  if ((c.args.n_inputs && !c.args.inputs) || (c.args.n_outputs && !c.args.outputs))
    return api_refuse("weir_run: a list of tensors is NULL");
  api_begin();
  arena_init(&c.memory, &p->memory);
  status st = bind_and_eval(&c);
  arena_destroy(&c.memory);
  return api_end(st);
}
