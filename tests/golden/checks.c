#include "checks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "data/compare.h"
#include "ir/bind.h"
#include "ir/host.h"
#include "ir/verify.h"
#include "pass/pass.h"
#include "ref/ref.h"
#include "schedule/schedule.h"
#include "text/text.h"

enum { MAX_ARRAYS = 64, MAX_ELEMENTS = 200000 };

/* ---- forms of the program: as written, printed, after the passes ---- */
static bool load(ir_module *m, const char *name, const char *text) {
  if (text_parse(m, name, text, strlen(text)) != STATUS_OK) return false;
  for (uint32_t i = 0; i < m->funcs.len; i++) {
    ir_func *f = m->funcs.data[i];
    if (f->host ? !ir_host_verify(f) : !schedule_apply(f) || !ir_verify(f)) return false;
  }
  return m->errors.errors == 0;
}

static char *print(ir_module *m) {
  strbuf out;
  strbuf_init(&out, &m->memory);
  text_print_module(m, &out);
  return out.data;
}

static bool run_passes(ir_module *m, const char *passes) {
  strbuf log;
  strbuf_init(&log, &m->memory);
  pass_request request = {.passes = passes};
  return pass_run(m, &request, &log, NULL) == STATUS_OK;
}

static void explain(ir_module *m, const char *what, char *message, size_t size) {
  strbuf out;
  strbuf_init(&out, &m->memory);
  diags_render(&m->errors, &out);
  snprintf(message, size, "%s:\n%s%s", what, out.data ? out.data : "", status_message());
  status_clear();
}

/* ---- extents ---- */
static bool fits(ir_env *env) {
  uint32_t before = env->func->module->errors.errors;
  bool good = ir_bind_complete(env) && ir_bind_check(env);
  env->func->module->errors.errors = before; /* a try that does not fit is no error */
  return good;
}

static bool bind_one(ir_env *env, const char *word) {
  ir_func *f = env->func;
  const char *equals = strchr(word, '=');
  if (!equals) return false;
  char name[128];
  snprintf(name, sizeof name, "%.*s", (int)(equals - word), word);
  uint32_t id = strings_find(&f->module->names, name, strlen(name));
  ir_name_entry entry = ir_func_lookup(f, id);
  int64_t extents[IR_MAX_RANK];
  uint32_t rank = 0;
  for (const char *at = equals; *at && rank < IR_MAX_RANK; at = strpbrk(at + 1, "x"))
    if ((extents[rank++] = strtoll(at + 1, NULL, 10)), !strchr(at + 1, 'x')) break;
  if (entry.kind == IR_NAME_TENSOR)
    return ir_bind_shape(env, (ir_tensor){entry.id}, extents, rank, word);
  return ir_bind_name(env, name, extents[0]);
}

static bool bind_given(ir_env *env, const char *bind) {
  char words[256];
  snprintf(words, sizeof words, "%s", bind);
  for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
    if (!bind_one(env, word)) return false;
  return fits(env);
}

static void set_all(ir_env *env, uint64_t try) {
  static const int64_t sizes[] = {8, 4, 2, 6, 3, 12, 5, 1, 16};
  for (uint32_t i = 0; i < env->len; i++)
    env->symbols[i] = sizes[try < 9 ? try : random_bits(try, i) % 9];
}

/* Every symbol the same size, then random ones. */
static bool find_extents(ir_env *env) {
  for (uint64_t try = 0; try < 3000; try++) {
    set_all(env, try);
    if (fits(env)) return true;
  }
  return false;
}

/* ---- arrays ---- */
typedef struct values {
  ir_array inputs[MAX_ARRAYS], outputs[MAX_ARRAYS];
  uint32_t n_inputs, n_outputs;
} values;

static bool allocate(ir_env *env, ir_tensor t, ir_array *a, int64_t *total) {
  int64_t n;
  a->dtype = ir_tensor_at(env->func, t)->dtype;
  if (!ir_env_shape(env, t, a->extents, &a->rank) || !ir_array_count(a, &n)) return false;
  *total += n;
  ir_array_dense(a);
  return *total <= MAX_ELEMENTS && ir_array_alloc(a, &memory_default) == STATUS_OK;
}

static void release(values *v) {
  for (uint32_t i = 0; i < v->n_inputs; i++) free(v->inputs[i].data);
  for (uint32_t i = 0; i < v->n_outputs; i++) free(v->outputs[i].data);
}

/* Size of the axis that input `t` indexes; 0: it is no index. */
static int64_t index_bound(ir_env *env, ir_tensor t) {
  for (uint32_t i = 0; i < env->func->order.len; i++) {
    const ir_op_data *op = ir_op_at(env->func, env->func->order.data[i]);
    ir_family family = ir_op_info_of(op->code)->family;
    bool indexed = family == IR_FAMILY_GATHER || family == IR_FAMILY_SCATTER ||
                   family == IR_FAMILY_INDEX_SELECT;
    if (!indexed || !IR_SAME(op->operands[1], t)) continue;
    int64_t extents[IR_MAX_RANK], dim = ir_op_attr(op, "dim")->i;
    uint32_t rank;
    if (!ir_env_shape(env, op->operands[0], extents, &rank)) return 0;
    return extents[dim < 0 ? dim + rank : dim];
  }
  return 0;
}

static void fill(ir_array *a, uint64_t key, int64_t bound) {
  int64_t n;
  size_t size = ir_dtype_size_bytes(a->dtype);
  if (!ir_array_count(a, &n)) return;
  for (int64_t i = 0; i < n; i++) {
    uint64_t bits = random_bits(key, (uint64_t)i);
    char *p = (char *)a->data + (size_t)i * size;
    if (bound > 0) ir_element_set_i64(a->dtype, p, (int64_t)(bits % (uint64_t)bound));
    else if (ir_dtype_is_float(a->dtype))
      ir_element_set_f64(a->dtype, p, (double)(int64_t)(bits % 4096) / 1024 - 2);
    else ir_element_set_i64(a->dtype, p, (int64_t)(bits % 4));
  }
}

/* `given`: the inputs of another form of the program; NULL: made up. */
static bool make_values(ir_env *env, const values *given, values *v) {
  ir_func *f = env->func;
  int64_t total = 0;
  if (f->inputs.len > MAX_ARRAYS || f->outputs.len > MAX_ARRAYS) return false;
  for (; v->n_inputs < f->inputs.len; v->n_inputs++) {
    ir_tensor t = f->inputs.data[v->n_inputs];
    ir_array *a = &v->inputs[v->n_inputs];
    if (!allocate(env, t, a, &total)) return false;
    int64_t bytes = 0;
    if (given && ir_array_size_bytes(a, &bytes))
      memcpy(a->data, given->inputs[v->n_inputs].data, (size_t)bytes);
    else fill(a, v->n_inputs + 1, index_bound(env, t));
  }
  for (; v->n_outputs < f->outputs.len; v->n_outputs++)
    if (!allocate(env, f->outputs.data[v->n_outputs], &v->outputs[v->n_outputs], &total))
      return false;
  return true;
}

/* `rounds`: one operation may have become several, each of which rounds. */
static bool same_values(ir_func *f, const values *a, const values *b, bool rounds) {
  for (uint32_t i = 0; i < a->n_outputs; i++) {
    int64_t bytes = 0;
    if (!ir_array_size_bytes(&a->outputs[i], &bytes)) return false;
    if (!bytes || memcmp(a->outputs[i].data, b->outputs[i].data, (size_t)bytes) == 0) continue;
    ir_dtype least = data_least_dtype(f, f->outputs.data[i], &f->module->memory);
    if (!rounds || !data_compare(&b->outputs[i], &a->outputs[i], least).ok) return false;
  }
  return true;
}

/* A program with the same inputs and extents, which may count its symbols differently. */
static bool bind_like(ir_env *env, const ir_env *like) {
  const ir_func *f = like->func;
  const ir_scalars *s = &f->module->scalars;
  uint32_t before = env->func->module->errors.errors;
  for (uint32_t i = 0; i < like->len; i++) {
    const ir_symbol_data *symbol = &s->symbols.data[i];
    if (symbol->kind == IR_SYMBOL_EXTENT && symbol->name && like->symbols[i] >= 0)
      (void)ir_bind_name(env, strings_text(&f->module->names, symbol->name), like->symbols[i]);
  }
  env->func->module->errors.errors = before; /* another fusion's are not known */
  for (uint32_t i = 0; i < f->inputs.len; i++) {
    int64_t extents[IR_MAX_RANK];
    uint32_t rank;
    if (!ir_env_shape(like, f->inputs.data[i], extents, &rank)) return false;
    if (!ir_bind_shape(env, env->func->inputs.data[i], extents, rank, "the other")) return false;
  }
  return true;
}

/* Evaluates with the extents of `like` on `given`, or finds some if they are NULL. False: could not
 * be done. */
static bool evaluate(ir_func *f, const char *bind, const ir_env *like, const values *given,
                     ir_env *env, values *v) {
  ref_options options = {.seed = 1, .memory = &memory_default};
  ir_env_init(env, f, &f->module->memory);
  bool bound = like      ? bind_like(env, like) && fits(env)
               : bind[0] ? bind_given(env, bind)
                         : find_extents(env);
  if (!bound || !make_values(env, given, v)) return false;
  bool good = ref_eval(env, v->inputs, v->outputs, &options) == STATUS_OK;
  status_clear();
  return good;
}

static ir_func *fusion_called(const ir_module *m, const char *name) {
  for (uint32_t i = 0; i < m->funcs.len; i++) {
    ir_func *f = m->funcs.data[i];
    if (!f->host && strcmp(ir_name_text(f, f->name), name) == 0) return f;
  }
  return NULL;
}

/* Of the fusions: what they are lowered to is listed beside them. */
static bool same_results(ir_module *a, ir_module *b, const char *bind, bool rounds,
                         const char **name) {
  bool good = true;
  for (uint32_t i = 0; good && i < a->funcs.len; i++) {
    values x = {0}, y = {0};
    ir_env env_a, env_b;
    ir_func *f = a->funcs.data[i];
    *name = ir_name_text(f, f->name);
    if (f->host) continue;
    ir_func *other = fusion_called(b, *name);
    if (other && evaluate(f, bind, NULL, NULL, &env_a, &x))
      good = evaluate(other, "", &env_a, &x, &env_b, &y) && same_values(f, &x, &y, rounds);
    good = good && other;
    release(&x);
    release(&y);
  }
  return good;
}

/* ---- the checks ---- */
typedef struct checking {
  const golden_program *p;
  const char *passes;
  ir_module first, second, third;
  char *message;
  size_t size;
  bool good;
} checking;

static bool check_forms(checking *c) {
  const char *name = "";
  ir_module_init(&c->first, &memory_default);
  ir_module_init(&c->second, &memory_default);
  ir_module_init(&c->third, &memory_default);
  if (!load(&c->first, c->p->path, c->p->text)) {
    explain(&c->first, "does not load", c->message, c->size);
    return false;
  }
  if (!load(&c->second, c->p->path, c->p->text) || !run_passes(&c->second, c->passes)) {
    explain(&c->second, c->passes, c->message, c->size);
    return false;
  }
  char *once = print(&c->second);
  if (!load(&c->third, "printed", once)) {
    explain(&c->third, "what was printed does not load", c->message, c->size);
    return false;
  }
  char *twice = print(&c->third);
  if (strcmp(once, twice) != 0) {
    snprintf(c->message, c->size, "printing again differs:\n%s----\n%s", once, twice);
    return false;
  }
  bool rounds = strstr(c->passes, "sharded-forms") || strstr(c->passes, "default");
  if (same_results(&c->first, &c->third, c->p->bind, rounds, &name)) return true;
  snprintf(c->message, c->size, "fusion %s evaluates differently after print%s%s", name,
           c->passes[0] ? " and " : "", c->passes);
  return false;
}

static status check_guarded(void *context) {
  checking *c = context;
  c->good = check_forms(c);
  return STATUS_OK;
}

static status load_guarded(void *context) {
  checking *c = context;
  ir_module_init(&c->first, &memory_default);
  c->good = load(&c->first, c->p->path, c->p->text);
  return STATUS_OK;
}

static bool guarded(checking *c, status (*step)(void *)) {
  if (memory_guard(step, c) != STATUS_OK) snprintf(c->message, c->size, "%s", status_message());
  status_clear();
  ir_module_destroy(&c->first);
  ir_module_destroy(&c->second);
  ir_module_destroy(&c->third);
  return c->good;
}

bool golden_is_valid(const golden_program *p) {
  char message[64];
  checking c = {.p = p, .passes = "", .message = message, .size = sizeof message};
  return guarded(&c, load_guarded);
}

bool golden_check(const golden_program *p, const char *passes, char *message, size_t size) {
  checking c = {.p = p, .passes = passes, .message = message, .size = size};
  return guarded(&c, check_guarded);
}
