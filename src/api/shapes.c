/* Shapes: values of a fusion's symbolic extents. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "ir/bind.h"
#include "ir/host.h"

struct weir_shapes {
  weir_fusion *fusion;
  arena memory;
  ir_env env;
  uint32_t inputs; /* of the fusion when this was made: it must not grow afterwards */
  bool complete;
};

/* ---- making ---- */
static status create_body(arena *scratch, void *context) {
  (void)scratch;
  weir_shapes *s = context;
  if (!api_schedule(api_func(s->fusion))) return STATUS_BAD_PROGRAM;
  ir_env_init(&s->env, api_func(s->fusion), &s->memory);
  return STATUS_OK;
}

weir_status weir_shapes_create(weir_fusion *f, weir_shapes **result) {
  if (!f || !result) return api_refuse("weir_shapes_create: an argument is NULL");
  const allocator *memory = &api_module(f)->memory;
  api_begin();
  weir_shapes *s = memory_alloc(memory, sizeof *s);
  if (!s) return api_end(STATUS_OUT_OF_MEMORY);
  *s = (weir_shapes){.fusion = f, .inputs = api_func(f)->inputs.len};
  arena_init(&s->memory, memory);
  weir_status st = api_edit(api_module(f), create_body, s);
  if (st == WEIR_OK) *result = s;
  else weir_shapes_destroy(s);
  return st;
}

void weir_shapes_destroy(weir_shapes *s) {
  if (!s) return;
  const allocator *memory = s->memory.memory;
  arena_destroy(&s->memory);
  memory_free(memory, s);
}

bool api_shapes_complete(const weir_shapes *s) { return s && s->complete; }

const ir_env *api_shapes_env(const weir_shapes *s) { return s ? &s->env : NULL; }

bool api_shapes_known(const weir_shapes *s, uint32_t i, int64_t extents[IR_MAX_RANK],
                      uint32_t *rank) {
  const ir_func *f = api_func(s->fusion);
  return i < f->inputs.len && ir_env_shape(&s->env, f->inputs.data[i], extents, rank);
}

status api_shapes_input(const weir_shapes *s, uint32_t i, int64_t extents[IR_MAX_RANK],
                        uint32_t *rank) {
  if (s->complete && api_shapes_known(s, i, extents, rank)) return STATUS_OK;
  return fail(STATUS_BAD_USAGE, "the shapes are not complete");
}

static weir_status edit_shapes(weir_shapes *s, api_body body, void *context) {
  if (api_func(s->fusion)->inputs.len != s->inputs)
    return api_refuse("the fusion got more inputs after weir_shapes_create");
  return api_edit(api_module(s->fusion), body, context);
}

/* Binds extents; if it fails, bind_or_restore() restores all of them. */
typedef bool bind_fn(weir_shapes *s, const void *context);

static status bind_or_restore(weir_shapes *s, bind_fn *bind, const void *context, arena *scratch) {
  uint32_t n = s->env.len;
  int64_t *symbols = ARENA_ARRAY(scratch, n, int64_t);
  const char **from = ARENA_ARRAY(scratch, n, const char *);
  if (n) memcpy(symbols, s->env.symbols, n * sizeof *symbols);
  if (n) memcpy(from, s->env.from, n * sizeof *from);
  if (bind(s, context)) return STATUS_OK;
  if (n) memcpy(s->env.symbols, symbols, n * sizeof *symbols);
  if (n) memcpy(s->env.from, from, n * sizeof *from);
  return STATUS_BAD_PROGRAM;
}

/* ---- definitions ---- */
typedef struct define_call {
  weir_shapes *s;
  const char *text;
} define_call;

static bool bad_definition(ir_func *f, const char *text) {
  diag_error(&f->module->errors, api_nowhere,
             "-D %.100s is not a definition: write t=6, inp=6x32 for all extents, or several with "
             "commas between them; extents are integers from 0 to 2^63 - 1",
             text);
  return false;
}

/* Accepts digits only; *end is what follows them. */
static bool parse_extent(const char *text, const char **end, int64_t *value) {
  char *stop = NULL;
  errno = 0;
  long long n = strtoll(text, &stop, 10);
  *end = stop;
  *value = n;
  return text[0] >= '0' && text[0] <= '9' && errno == 0;
}

static bool parse_extents(const char *text, int64_t *extents, uint32_t *rank) {
  for (*rank = 0; *rank < IR_MAX_RANK; text++) {
    if (!parse_extent(text, &text, &extents[(*rank)++])) return false;
    if (*text == '\0') return true;
    if (*text != 'x') return false;
  }
  return false;
}

static bool define_one(weir_shapes *s, const char *text) {
  ir_func *f = api_func(s->fusion);
  int64_t extents[IR_MAX_RANK];
  uint32_t rank;
  const char *equals = strchr(text, '=');
  if (!equals || equals == text || !parse_extents(equals + 1, extents, &rank)) {
    return bad_definition(f, text);
  }
  const char *name = arena_string(&s->memory, text, (size_t)(equals - text));
  uint32_t id = strings_find(&f->module->names, name, strlen(name));
  ir_name_entry e = id ? ir_func_lookup(f, id) : (ir_name_entry){0};
  const char *from = arena_printf(&s->memory, "-D %s", text);
  if (e.kind == IR_NAME_TENSOR)
    return ir_bind_shape(&s->env, (ir_tensor){e.id}, extents, rank, from);
  if (rank != 1) return bad_definition(f, text);
  return ir_bind_name(&s->env, name, extents[0]);
}

/* "t=6,n=4": names of the language have no commas. */
static bool define_all(weir_shapes *s, const void *context) {
  for (const char *text = context;; text++) {
    size_t length = strcspn(text, ",");
    if (!define_one(s, arena_string(&s->memory, text, length))) return false;
    text += length;
    if (*text == '\0') return true;
  }
}

static status define_body(arena *scratch, void *context) {
  define_call *c = context;
  return bind_or_restore(c->s, define_all, c->text, scratch);
}

weir_status weir_shapes_define(weir_shapes *s, const char *definition) {
  if (!s || !definition) return api_refuse("weir_shapes_define: an argument is NULL");
  define_call c = {s, definition};
  return edit_shapes(s, define_body, &c);
}

/* ---- inputs ---- */
typedef struct input_call {
  weir_shapes *s;
  weir_tensor input;
  const int64_t *extents;
  size_t rank;
  const char *from;
} input_call;

static bool bind_input(weir_shapes *s, const void *context) {
  const input_call *c = context;
  ir_tensor t = api_tensor(api_func(s->fusion), c->input);
  if (!t.id) return false;
  const char *from = arena_printf(&s->memory, "%s", c->from);
  return ir_bind_shape(&s->env, t, c->extents, (uint32_t)c->rank, from);
}

static status input_body(arena *scratch, void *context) {
  input_call *c = context;
  return bind_or_restore(c->s, bind_input, c, scratch);
}

weir_status weir_shapes_input(weir_shapes *s, weir_tensor input, const int64_t *extents,
                              size_t rank, const char *from) {
  if (!s || (rank && !extents)) return api_refuse("weir_shapes_input: an argument is NULL");
  if (rank > WEIR_MAX_RANK) return api_refuse("weir_shapes_input: rank %zu is too large", rank);
  input_call c = {s, input, extents, rank, from ? from : "the caller"};
  return edit_shapes(s, input_body, &c);
}

/* ---- asking ---- */
size_t weir_shapes_unbound(const weir_shapes *s) {
  size_t unbound = 0;
  if (!s) return 0;
  const ir_func *f = api_func(s->fusion);
  for (uint32_t i = 0; i < f->inputs.len; i++) {
    ir_axis dims[IR_MAX_RANK];
    uint32_t rank = ir_tensor_dims(f, f->inputs.data[i], dims);
    int64_t value;
    for (uint32_t k = 0; k < rank; k++)
      unbound += !ir_env_eval(&s->env, ir_axis_whole(f, dims[k]), &value);
  }
  return unbound;
}

static status complete_body(arena *scratch, void *context) {
  (void)scratch;
  weir_shapes *s = context;
  s->complete = ir_bind_complete(&s->env) && ir_bind_check(&s->env);
  return s->complete ? STATUS_OK : STATUS_BAD_PROGRAM;
}

weir_status weir_shapes_complete(weir_shapes *s) {
  if (!s) return api_refuse("weir_shapes_complete: the argument is NULL");
  return edit_shapes(s, complete_body, s);
}

ir_tensor api_shapes_tensor(const weir_shapes *s, weir_tensor t, const ir_env **env) {
  const ir_func *f = api_func(s->fusion);
  ir_name_entry e = {0};
  if (t.id && t.id < f->module->names.len) e = ir_func_lookup(f, t.id);
  if (!s->complete) (void)api_refuse("the shapes are not complete: call weir_shapes_complete");
  else if (e.kind != IR_NAME_TENSOR) (void)api_refuse("the fusion has no such tensor");
  *env = &s->env;
  return (ir_tensor){s->complete && e.kind == IR_NAME_TENSOR ? e.id : 0};
}

weir_status weir_shapes_of(const weir_shapes *s, weir_tensor t, int64_t *extents, size_t *rank) {
  if (!s || !extents || !rank) return api_refuse("weir_shapes_of: an argument is NULL");
  const ir_env *env;
  ir_tensor tensor = api_shapes_tensor(s, t, &env);
  uint32_t n;
  if (!tensor.id) return WEIR_BAD_USAGE;
  if (!ir_env_shape(env, tensor, extents, &n))
    return api_refuse("the shape of the tensor cannot be computed");
  *rank = n;
  return WEIR_OK;
}
