#include "ir/bind.h"

#include <inttypes.h>
#include <string.h>

#include "base/suggest.h"
#include "ir/host.h"

enum { MOST_NAMES = 20 };

static diags *errors_of(const ir_env *env) { return &env->func->module->errors; }
static ir_scalars *scalars_of(const ir_env *env) { return &env->func->module->scalars; }

void ir_env_init(ir_env *env, ir_func *f, arena *memory) {
  uint32_t n = f->module->scalars.symbols.len;
  *env = (ir_env){.func = f, .len = n};
  env->symbols = ARENA_ARRAY(memory, n, int64_t);
  env->from = ARENA_ARRAY(memory, n, const char *);
  for (uint32_t i = 0; i < n; i++) env->symbols[i] = IR_UNBOUND;
}

static bool assign(ir_env *env, ir_scalar symbol, int64_t value, const char *from, loc at) {
  uint32_t index = (uint32_t)ir_scalar_node_of(scalars_of(env), symbol)->value;
  int64_t *slot = &env->symbols[index];
  if (*slot == IR_UNBOUND) {
    *slot = value;
    env->from[index] = from;
    return true;
  }
  if (*slot == value) return true;
  diag_error(errors_of(env), at, "extent %s is %" PRId64 " (from %s) and %" PRId64 " (from %s)",
             ir_scalar_text(env->func, symbol), *slot, env->from[index], value, from);
  return false;
}

static bool is_symbol(const ir_env *env, ir_scalar x) {
  return ir_scalar_node_of(scalars_of(env), x)->kind == IR_SCALAR_SYMBOL;
}

/* Reports a name that is no extent, and lists the extents. */
static void refuse_name(ir_func *f, const char *name, const char *from) {
  strbuf list;
  suggestion near;
  suggest_advice advice;
  uint32_t n = 0;
  strbuf_init(&list, &f->module->memory);
  suggest_init(&near, name, strlen(name));
  for (uint32_t i = 1; i < f->names.len; i++) {
    uint32_t other = (uint32_t)f->names.keys[i];
    if (ir_func_lookup(f, other).kind != IR_NAME_EXTENT) continue;
    suggest_offer(&near, ir_name_text(f, other));
    if (n++ < MOST_NAMES) strbuf_printf(&list, "%s%s", n > 1 ? ", " : "", ir_name_text(f, other));
  }
  if (n > MOST_NAMES) strbuf_puts(&list, ", ...");
  diag_error(&f->module->errors, (loc){0}, "%s: fusion '%s' has no extent called '%s'%s; %s%s",
             from, ir_name_text(f, f->name), name, suggest_text(&near, advice),
             n == 0   ? "it has none with a name"
             : n == 1 ? "there is "
                      : "there are ",
             n ? list.data : "");
}

bool ir_bind_name(ir_env *env, const char *name, int64_t value) {
  ir_func *f = env->func;
  ir_name_entry e = ir_func_lookup(f, strings_find(&f->module->names, name, strlen(name)));
  const char *from = arena_printf(&f->module->memory, "-D %s=%" PRId64, name, value);
  if (value < 0) {
    diag_error(errors_of(env), (loc){0}, "%s: an extent cannot be negative", from);
    return false;
  }
  if (e.kind == IR_NAME_TENSOR) {
    return ir_bind_shape(env, (ir_tensor){e.id}, &value, 1, from);
  }
  if (e.kind != IR_NAME_EXTENT) {
    refuse_name(f, name, from);
    return false;
  }
  return assign(env, (ir_scalar){e.id}, value, from, (loc){0});
}

/* What gave the shape, for messages: "-D x=2x3", "x.npy". A caller's array has the name of its input as
 * `from`. */
static const char *source_text(const ir_func *f, ir_tensor input, const char *from) {
  return strcmp(from, ir_tensor_name(f, input)) == 0 ? "the shape given" : from;
}

static bool bind_dim(ir_env *env, ir_tensor input, uint32_t i, ir_scalar extent, int64_t value,
                     const char *from) {
  ir_func *f = env->func;
  loc at = ir_tensor_at(f, input)->at;
  if (value < 0) {
    diag_error(errors_of(env), at, "extent %u of '%s' cannot be negative, but %s gives %" PRId64, i,
               ir_tensor_name(f, input), source_text(f, input, from), value);
    return false;
  }
  if (is_symbol(env, extent)) return assign(env, extent, value, from, at);
  int64_t fixed;
  if (ir_scalar_is_const(scalars_of(env), extent, &fixed) && fixed == value) return true;
  diag_error(errors_of(env), at, "extent %u of '%s' is %s, but %s gives %" PRId64, i,
             ir_tensor_name(f, input), ir_scalar_text(f, extent), source_text(f, input, from),
             value);
  return false;
}

bool ir_bind_shape(ir_env *env, ir_tensor input, const int64_t *extents, uint32_t rank,
                   const char *from) {
  ir_func *f = env->func;
  const ir_tensor_data *t = ir_tensor_at(f, input);
  if (t->kind != IR_TENSOR_INPUT) {
    diag_error(errors_of(env), t->at,
               "%s: '%s' is not an input; its extents follow from the inputs", from,
               ir_tensor_name(f, input));
    return false;
  }
  ir_axis dims[IR_MAX_RANK];
  uint32_t n = ir_tensor_dims(f, input, dims);
  if (n != rank) {
    diag_error(errors_of(env), t->at, "'%s' has rank %u, but %s has rank %u",
               ir_tensor_name(f, input), n, source_text(f, input, from), rank);
    return false;
  }
  bool ok = true;
  for (uint32_t i = 0; i < rank; i++) {
    ok = bind_dim(env, input, i, ir_axis_whole(f, dims[i]), extents[i], from) && ok;
  }
  return ok;
}

/* Extents are declared by inputs only, so looking at those finds every symbol of the function. */
bool ir_bind_complete(ir_env *env) {
  ir_func *f = env->func;
  strbuf missing;
  strbuf_init(&missing, &f->module->memory);
  map listed;
  map_init(&listed, &f->module->memory);
  for (uint32_t k = 0; k < f->inputs.len; k++) {
    ir_axis dims[IR_MAX_RANK];
    uint32_t rank = ir_tensor_dims(f, f->inputs.data[k], dims);
    for (uint32_t i = 0; i < rank; i++) {
      ir_scalar x = ir_axis_whole(f, dims[i]);
      int64_t value;
      if (ir_env_eval(env, x, &value) || map_get(&listed, x.id, 0)) continue;
      map_put(&listed, x.id, 1);
      if (missing.len) strbuf_puts(&missing, ", ");
      ir_print_scalar(f, x, &missing);
    }
  }
  if (missing.len == 0) return true;
  diag_error(errors_of(env), f->at,
             "these extents have no value: %s; give them with -D name=value, "
             "-D tensor=AxBxC or an input file",
             missing.data);
  return false;
}

/* ---- checks that need values ---- */

static bool holds(const ir_constraint *c, int64_t a, int64_t b) {
  switch (c->kind) {
  case IR_REQUIRE_EQ: return a == b;
  case IR_REQUIRE_LE: return a <= b;
  case IR_REQUIRE_DIVIDES: return a >= 1 && b % a == 0;
  }
  return false;
}

/* "a is 3", or just "3" for a constant. */
static const char *described(ir_env *env, ir_scalar x, int64_t value) {
  ir_func *f = env->func;
  if (ir_scalar_is_const(scalars_of(env), x, NULL)) return ir_scalar_text(f, x);
  return arena_printf(&f->module->memory, "%s = %" PRId64, ir_scalar_text(f, x), value);
}

static bool is_unbound(void *context, uint32_t symbol) {
  const ir_env *env = context;
  return scalars_of(env)->symbols.data[symbol].kind != IR_SYMBOL_EXTENT &&
         env->symbols[symbol] == IR_UNBOUND;
}

/* Does x depend on values that are known only while a host program runs: a loop index or the device? */
static bool varies(ir_env *env, ir_scalar x) {
  return !ir_scalar_of_extents(scalars_of(env), x) &&
         ir_scalar_any_symbol(scalars_of(env), x, is_unbound, env);
}

static bool check_constraint(ir_env *env, const ir_constraint *c) {
  static const char *const relation[] = {"equal", "be at most", "divide"};
  int64_t a, b;
  if (env->func->host && (varies(env, c->a) || varies(env, c->b))) return true;
  if (!ir_env_eval(env, c->a, &a) || !ir_env_eval(env, c->b, &b)) {
    diag_error(errors_of(env), c->at, "%s: %s or %s cannot be computed in 64 bits", c->what,
               ir_scalar_text(env->func, c->a), ir_scalar_text(env->func, c->b));
    return false;
  }
  if (holds(c, a, b)) return true;
  diag_error(errors_of(env), c->at, "%s: %s must %s %s", c->what, described(env, c->a, a),
             relation[c->kind], described(env, c->b, b));
  return false;
}

/* Every extent has a value, and none is negative. */
static bool check_extents(ir_env *env, ir_tensor t) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(env->func, t, dims);
  for (uint32_t i = 0; i < rank; i++) {
    ir_scalar size = ir_axis_whole(env->func, dims[i]);
    int64_t value;
    loc at = ir_tensor_at(env->func, t)->at;
    const char *name = ir_tensor_name(env->func, t);
    if (!ir_env_eval(env, size, &value)) {
      diag_error(
          errors_of(env), at,
          "extent %u of '%s' cannot be computed: %s overflows 64 bits or divides by a number "
          "below 1",
          i, name, ir_scalar_text(env->func, size));
      return false;
    }
    if (value >= 0) continue;
    diag_error(errors_of(env), at, "extent %u of '%s' is negative: %s", i, name,
               described(env, size, value));
    return false;
  }
  return true;
}

static bool size_fits(const ir_env *env, ir_tensor t) {
  int64_t extents[IR_MAX_RANK],
      bytes = (int64_t)ir_dtype_size_bytes(ir_tensor_at(env->func, t)->dtype);
  uint32_t rank;
  bool fits = ir_env_shape(env, t, extents, &rank), empty = false;
  for (uint32_t i = 0; fits && i < rank; i++) empty = empty || extents[i] == 0;
  for (uint32_t i = 0; fits && !empty && i < rank; i++) {
    fits = !__builtin_mul_overflow(bytes, extents[i], &bytes);
  }
  return fits;
}

static bool check_size(ir_env *env, ir_tensor t) {
  if (!check_extents(env, t)) return false;
  if (size_fits(env, t)) return true;
  diag_error(errors_of(env), ir_tensor_at(env->func, t)->at,
             "the extents of '%s' overflow: its size in bytes does not fit 63 bits",
             ir_tensor_name(env->func, t));
  return false;
}

static bool check_device_axis(ir_env *env, ir_tensor t, uint32_t position, ir_axis axis) {
  ir_func *f = env->func;
  const ir_axis_data *a = ir_axis_at(f, axis);
  const ir_tensor_data *d = ir_tensor_at(f, t);
  if (a->mark.kind != IR_MARK_MESH || d->mesh.id == 0) return true;
  int64_t value, size = ir_mesh_size(ir_mesh_at(f, d->mesh), a->mark.mesh_axis);
  if (!ir_env_eval(env, ir_axis_whole(f, axis), &value)) return true; /* reported by check_size */
  if (value == size) return true;
  diag_error(errors_of(env), d->at,
             "axis %u of '%s' is marked %s and has %" PRId64
             " positions, but mesh '%s' has %" PRId64 " devices there; split the axis first",
             position, ir_tensor_name(f, t), ir_mark_text(a->mark), value,
             ir_name_text(f, ir_mesh_at(f, d->mesh)->name), size);
  return false;
}

/* The sizes of a host program's own buffers depend on loop indexes; those of its outputs do not. */
static bool has_known_size(const ir_func *f, ir_tensor t) {
  ir_tensor_kind kind = ir_tensor_at(f, t)->kind;
  if (!f->host || kind != IR_TENSOR_RESULT) return kind != IR_TENSOR_CONST;
  for (uint32_t i = 0; i < f->outputs.len; i++) {
    if (IR_SAME(f->outputs.data[i], t)) return true;
  }
  return false;
}

static bool check_axes(ir_env *env, ir_tensor t) {
  ir_axes loop = ir_tensor_at(env->func, t)->now.loop;
  bool ok = true;
  for (uint32_t k = 0; k < loop.len; k++) ok = check_device_axis(env, t, k, loop.data[k]) && ok;
  return ok;
}

/* The first input that has the extent. */
static loc place_of_extent(const ir_func *f, uint32_t symbol) {
  for (uint32_t i = 0; i < f->inputs.len; i++) {
    ir_axis dims[IR_MAX_RANK];
    uint32_t n = ir_tensor_dims(f, f->inputs.data[i], dims);
    for (uint32_t d = 0; d < n; d++) {
      const ir_scalar_node *x = ir_scalar_node_of(&f->module->scalars, ir_axis_whole(f, dims[d]));
      if (x->kind == IR_SCALAR_SYMBOL && x->value == symbol)
        return ir_tensor_at(f, f->inputs.data[i])->at;
    }
  }
  return f->at;
}

/* Checks extents against the capacities that inputs declare. */
static bool check_capacities(ir_env *env) {
  ir_func *f = env->func;
  bool ok = true;
  for (uint32_t i = 0; i < env->len; i++) {
    const ir_symbol_data *d = &f->module->scalars.symbols.data[i];
    if (!ir_func_has_capacity(f, i) || env->symbols[i] == IR_UNBOUND) continue;
    if (env->symbols[i] <= d->capacity) continue;
    diag_error(errors_of(env), place_of_extent(f, i),
               "extent '%s' is %" PRId64 ", over its capacity of %" PRId64,
               ir_name_text(f, d->name), env->symbols[i], d->capacity);
    ok = false;
  }
  return ok;
}

/* Sizes are checked only if the constraints hold, because they make no sense otherwise. */
bool ir_bind_check(ir_env *env) {
  ir_func *f = env->func;
  bool ok = true;
  for (uint32_t i = 0; i < f->constraints.len; i++) {
    ok = check_constraint(env, &f->constraints.data[i]) && ok;
  }
  ok = check_capacities(env) && ok;
  const bool hold = ok;
  for (uint32_t i = 1; i < f->tensors.len; i++) {
    ir_tensor t = {i};
    if (!has_known_size(f, t)) continue;
    if (hold) ok = check_size(env, t) && ok;
    ok = check_axes(env, t) && ok;
  }
  return ok;
}

bool ir_env_eval(const ir_env *env, ir_scalar x, int64_t *value) {
  return ir_scalar_eval(scalars_of(env), x, env->symbols, env->len, value);
}

bool ir_env_shape(const ir_env *env, ir_tensor t, int64_t extents[IR_MAX_RANK], uint32_t *rank) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t n = ir_tensor_dims(env->func, t, dims);
  for (uint32_t i = 0; i < n; i++) {
    if (!ir_env_eval(env, ir_axis_whole(env->func, dims[i]), &extents[i])) return false;
  }
  *rank = n;
  return true;
}
