#include "ir/build.h"

#include <string.h>

#include "ir/infer.h"

static arena *memory_of(ir_func *f) { return &f->module->memory; }
static diags *errors_of(ir_func *f) { return &f->module->errors; }

ir_func *ir_build_unlisted(ir_module *m, ir_func_kind kind, uint32_t name, loc at) {
  ir_func *f = ARENA_NEW(&m->memory, ir_func);
  *f = (ir_func){.module = m, .kind = kind, .name = name, .at = at};
  vec_push(&m->memory, &f->axes, ((ir_axis_data){0}));
  vec_push(&m->memory, &f->transforms, ((ir_transform_data){0}));
  vec_push(&m->memory, &f->meshes, ((ir_mesh_data){0}));
  vec_push(&m->memory, &f->tensors, ((ir_tensor_data){0}));
  vec_push(&m->memory, &f->ops, ((ir_op_data){0}));
  map_init(&f->names, &m->memory);
  map_init(&f->learned, &m->memory);
  map_init(&f->numbers, &m->memory);
  return f;
}

/* The module's table of names knows the functions, so that finding one does not get slower with their
 * number. */
ir_func *ir_build_find(const ir_module *m, ir_func_kind kind, uint32_t name) {
  uint32_t position = strings_attached(&m->names, name, (uint32_t)kind);
  return position ? m->funcs.data[position - 1] : NULL;
}

ir_func *ir_build_func(ir_module *m, ir_func_kind kind, uint32_t name, loc at) {
  const ir_func *first = ir_build_find(m, kind, name);
  if (first) {
    diag_error(&m->errors, at, "there is already a %s called '%s'",
               kind == IR_FUNC_HOST ? "host program" : "fusion", strings_text(&m->names, name));
    diag_note(&m->errors, first->at, "the first one is here");
    return NULL;
  }
  ir_func *f = ir_build_unlisted(m, kind, name, at);
  vec_push(&m->memory, &m->funcs, f);
  strings_attach(&m->names, name, (uint32_t)kind, m->funcs.len);
  return f;
}

/* ---- names ---- */

static loc place_of(const ir_func *f, ir_name_entry e) {
  if (e.kind == IR_NAME_TENSOR) return ir_tensor_at(f, (ir_tensor){e.id})->at;
  if (e.kind == IR_NAME_MESH) return ir_mesh_at(f, (ir_mesh){e.id})->at;
  return (loc){0};
}

bool ir_build_name_is_free(ir_func *f, uint32_t name, loc at) {
  ir_name_entry e = ir_func_lookup(f, name);
  if (e.kind == IR_NAME_NONE) return true;
  static const char *const kinds[] = {"", "a tensor", "an extent", "a mesh"};
  diag_error(errors_of(f), at, "'%s' is already the name of %s", ir_name_text(f, name),
             kinds[e.kind]);
  loc first = place_of(f, e);
  if (first.known) diag_note(errors_of(f), first, "it is defined here");
  return false;
}

/* ---- meshes ---- */

static bool distinct(ir_func *f, const int64_t *devices, int64_t n, loc at) {
  map seen;
  map_init(&seen, memory_of(f));
  for (int64_t i = 0; i < n; i++) {
    if (devices[i] < 0 || devices[i] >= IR_MESH_MAX_DEVICES) {
      diag_error(errors_of(f), at, "device %lld is not between 0 and %d", (long long)devices[i],
                 IR_MESH_MAX_DEVICES - 1);
      return false;
    }
    if (map_get(&seen, (uint64_t)devices[i], 0)) {
      diag_error(errors_of(f), at, "device %lld appears twice in the mesh; each may appear once",
                 (long long)devices[i]);
      return false;
    }
    map_put(&seen, (uint64_t)devices[i], 1);
  }
  return true;
}

static bool mesh_shape(ir_func *f, const int64_t *shape, uint32_t rank, loc at, int64_t *total) {
  if (rank == 0 || rank > IR_MESH_MAX_RANK) {
    diag_error(errors_of(f), at, "a mesh has 1 to %d axes, not %u", IR_MESH_MAX_RANK, rank);
    return false;
  }
  *total = 1;
  for (uint32_t i = 0; i < rank; i++) {
    bool fits = shape[i] >= 1 && !__builtin_mul_overflow(*total, shape[i], total);
    if (fits && *total <= IR_MESH_MAX_DEVICES) continue;
    diag_error(errors_of(f), at, "mesh axes must be 1 or larger, with at most %d devices in all",
               IR_MESH_MAX_DEVICES);
    return false;
  }
  return true;
}

ir_mesh ir_build_mesh(ir_func *f, uint32_t name, const int64_t *shape, uint32_t rank,
                      const int64_t *devices, int64_t n_devices, loc at) {
  ir_mesh none = {0};
  int64_t total;
  if (!ir_build_name_is_free(f, name, at) || !mesh_shape(f, shape, rank, at, &total)) return none;
  if (devices && n_devices != total) {
    diag_error(errors_of(f), at, "the mesh has %lld places but %lld devices are listed",
               (long long)total, (long long)n_devices);
    return none;
  }
  if (devices && !distinct(f, devices, total, at)) return none;
  int64_t *ids = ARENA_ARRAY(memory_of(f), (size_t)total, int64_t);
  for (int64_t i = 0; i < total; i++) ids[i] = devices ? devices[i] : i;
  ir_mesh_data data = {.name = name, .at = at, .rank = rank, .devices = ids, .n_devices = total};
  data.shape = arena_copy(memory_of(f), shape, rank * sizeof *shape);
  data.listed = devices != NULL;
  ir_mesh m = {f->meshes.len};
  vec_push(memory_of(f), &f->meshes, data);
  ir_func_declare(f, name, (ir_name_entry){IR_NAME_MESH, m.id});
  return m;
}

/* ---- axes and domains ---- */

ir_axis ir_axis_new(ir_func *f, ir_axis_kind kind, ir_scalar extent) {
  ir_axis a = {f->axes.len};
  vec_push(memory_of(f), &f->axes, ((ir_axis_data){.kind = kind, .extent = extent}));
  return a;
}

ir_axis ir_axis_copy(ir_func *f, ir_axis from) {
  ir_axis_data d = *ir_axis_at(f, from);
  ir_axis a = ir_axis_new(f, d.kind, d.extent);
  ir_axis_at(f, a)->expanded = d.expanded;
  return a;
}

ir_transform ir_transform_new(ir_func *f, const ir_transform_data *data) {
  ir_transform t = {f->transforms.len};
  vec_push(memory_of(f), &f->transforms, *data);
  for (int i = 0; i < 2; i++) {
    if (data->out[i].id) ir_axis_at(f, data->out[i])->def = t;
  }
  return t;
}

ir_axes ir_axes_new(ir_func *f, const ir_axis *axes, uint32_t n) {
  return (ir_axes){arena_copy(memory_of(f), axes, n * sizeof *axes), n};
}

const uint8_t *ir_dense_default(ir_func *f, ir_axes allocation) {
  uint8_t *dense = arena_alloc(memory_of(f), allocation.len);
  for (uint32_t i = 0; i < allocation.len; i++) {
    ir_axis_kind kind = ir_axis_at(f, allocation.data[i])->kind;
    bool memory = kind != IR_AXIS_BROADCAST && kind != IR_AXIS_REDUCTION;
    dense[i] = memory ? IR_DENSE_TRUE : IR_DENSE_NONE;
  }
  return dense;
}

void ir_require(ir_func *f, ir_constraint_kind kind, ir_scalar a, ir_scalar b, const char *what,
                loc at) {
  ir_constraint c = {.kind = kind, .a = a, .b = b, .at = at, .what = what};
  vec_push(memory_of(f), &f->constraints, c);
}

/* ---- tensors ---- */

ir_scalar ir_build_extent(ir_func *f, uint32_t name, loc at) {
  ir_name_entry e = ir_func_lookup(f, name);
  if (e.kind == IR_NAME_EXTENT) return (ir_scalar){e.id};
  if (!ir_build_name_is_free(f, name, at)) return (ir_scalar){0};
  ir_symbol_data data = {.kind = IR_SYMBOL_EXTENT, .name = name};
  ir_scalar x = ir_scalar_symbol(&f->module->scalars, data);
  ir_func_declare(f, name, (ir_name_entry){IR_NAME_EXTENT, x.id});
  return x;
}

static ir_tensor new_tensor(ir_func *f, const ir_tensor_data *data) {
  check(!f->applied); /* definitions grow only while no scheduled view is applied */
  ir_tensor t = {f->tensors.len};
  vec_push(memory_of(f), &f->tensors, *data);
  ir_tensor_data *d = ir_tensor_at(f, t);
  d->now = d->defined;
  return t;
}

static bool extents_fit(ir_func *f, uint32_t name, const ir_scalar *extents, uint32_t rank,
                        loc at) {
  if (rank > IR_MAX_RANK) {
    diag_error(errors_of(f), at, "a tensor has at most %d axes, not %u", IR_MAX_RANK, rank);
    return false;
  }
  for (uint32_t i = 0; i < rank; i++) {
    int64_t value;
    if (extents[i].id == 0 || !ir_scalar_is_const(&f->module->scalars, extents[i], &value))
      continue;
    if (value >= 0) continue;
    diag_error(errors_of(f), at, "extent %u of '%s' cannot be negative: %lld", i,
               ir_name_text(f, name), (long long)value);
    return false;
  }
  return true;
}

static bool constant_size_fits(ir_func *f, ir_tensor t) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(f, t, dims);
  int64_t bytes = (int64_t)ir_dtype_size_bytes(ir_tensor_at(f, t)->dtype);
  bool empty = false, fits = true;
  for (uint32_t i = 0; i < rank; i++) {
    int64_t n;
    ir_scalar size = ir_axis_size(f, dims[i]);
    if (ir_scalar_is_overflow(size)) return false;
    if (!ir_scalar_is_const(&f->module->scalars, size, &n)) return true;
    empty = empty || n == 0;
    fits = fits && !__builtin_mul_overflow(bytes, n, &bytes);
  }
  return empty || fits;
}

static bool report_size(ir_func *f, ir_tensor t, loc at) {
  if (constant_size_fits(f, t)) return true;
  diag_error(errors_of(f), at, "the extents of %s overflow: its size in bytes does not fit 63 bits",
             ir_type_text(f, t));
  return false;
}

ir_tensor ir_build_input(ir_func *f, uint32_t name, ir_dtype dtype, const ir_scalar *extents,
                         uint32_t rank, loc at) {
  ir_tensor none = {0};
  if (!ir_build_name_is_free(f, name, at) || !extents_fit(f, name, extents, rank, at)) return none;
  ir_scalars *s = &f->module->scalars;
  uint32_t id = f->tensors.len;
  ir_axis axes[IR_MAX_RANK];
  for (uint32_t i = 0; i < rank; i++) {
    ir_symbol_data anonymous = {.kind = IR_SYMBOL_EXTENT, .tensor = id, .dim = i};
    ir_scalar x = extents[i].id ? extents[i] : ir_scalar_symbol(s, anonymous);
    int64_t value;
    bool one = ir_scalar_is_const(s, x, &value) && value == 1;
    axes[i] = ir_axis_new(f, one ? IR_AXIS_BROADCAST : IR_AXIS_ITERATION, x);
  }
  ir_axes list = ir_axes_new(f, axes, rank);
  ir_tensor_data data = {.kind = IR_TENSOR_INPUT, .name = name, .at = at, .dtype = dtype};
  data.defined = (ir_domains){list, list, list, list, ir_dense_default(f, list)};
  ir_tensor t = new_tensor(f, &data);
  if (!report_size(f, t, at)) {
    f->tensors.len--;
    return none;
  }
  vec_push(memory_of(f), &f->inputs, t);
  ir_func_declare(f, name, (ir_name_entry){IR_NAME_TENSOR, t.id});
  return t;
}

ir_tensor ir_build_number(ir_func *f, ir_number n, loc at) {
  uint64_t bits;
  memcpy(&bits, &n.f, sizeof bits);
  uint64_t key = n.is_float ? hash_mix(1, bits) : hash_mix(2, (uint64_t)n.i);
  ir_tensor found = {map_get(&f->numbers, key, 0)};
  if (found.id) {
    bool same = ir_number_same(ir_tensor_at(f, found)->number, n);
    if (same) return found;
  }
  ir_tensor_data data = {.kind = IR_TENSOR_CONST, .at = at, .number = n};
  data.dtype = n.is_float ? IR_F32 : IR_I64;
  ir_tensor t = new_tensor(f, &data);
  map_put(&f->numbers, key, t.id);
  return t;
}

ir_tensor ir_build_extent_value(ir_func *f, ir_scalar x, loc at) {
  ir_tensor_data data = {.kind = IR_TENSOR_CONST, .at = at, .value = x, .dtype = IR_I64};
  return new_tensor(f, &data);
}

/* ---- operations ---- */

static bool operands_present(ir_func *f, const ir_op_info *info, const ir_tensor *operands,
                             uint32_t n, loc at) {
  const ir_param *p = info->params;
  for (uint32_t i = 0; i < n; i++) {
    bool wanted = p->use == IR_USE_REQUIRED;
    if (operands[i].id == 0 && wanted) {
      diag_error(errors_of(f), at, "%s needs its operand '%s'", info->name, p->name);
      return false;
    }
    if (p->kind != IR_PARAM_TENSORS) p++;
  }
  return true;
}

static bool arity_fits(ir_func *f, const ir_op_info *info, uint32_t n, loc at) {
  bool variadic = info->n_tensors > 0 && info->params[info->n_tensors - 1].kind == IR_PARAM_TENSORS;
  if (variadic ? n >= info->n_tensors : n == info->n_tensors) return true;
  diag_error(errors_of(f), at, "%s takes %s%u operands, not %u", info->name,
             variadic ? "at least " : "", info->n_tensors, n);
  return false;
}

void ir_op_redirect(ir_func *f, ir_op_data *op, const ir_tensor *instead) {
  ir_tensor *operands =
      arena_copy(&f->module->memory, op->operands, op->n_operands * sizeof *op->operands);
  for (uint32_t i = 0; i < op->n_operands; i++) {
    if (instead[operands[i].id].id) operands[i] = instead[operands[i].id];
  }
  op->operands = operands;
}

const ir_attr *ir_attrs_complete(ir_func *f, const ir_op_info *info, const ir_attr *given) {
  ir_attr *attrs = ARENA_ARRAY(memory_of(f), info->n_attrs, ir_attr);
  uint32_t i = 0;
  for (const ir_param *p = info->params; p->kind != IR_PARAM_END; p++) {
    if (p->kind == IR_PARAM_TENSOR || p->kind == IR_PARAM_TENSORS) continue;
    if (given && !ir_attr_is_default(p, &given[i])) {
      attrs[i] = given[i];
    } else if (p->use == IR_USE_DEFAULT) {
      attrs[i].i = p->kind == IR_PARAM_NUMBER ? 0 : (int64_t)p->value;
      bool whole = p->value == (double)(int64_t)p->value;
      attrs[i].number = whole ? ir_number_int((int64_t)p->value) : ir_number_float(p->value);
    }
    i++;
  }
  return attrs;
}

static ir_tensor undo(ir_func *f, ir_counts before) {
  f->axes.len = before.axes;
  f->transforms.len = before.transforms;
  f->constraints.len = before.constraints;
  f->tensors.len = before.tensors;
  f->ops.len = before.ops;
  return (ir_tensor){0};
}

static ir_counts counts_of(const ir_func *f) {
  return (ir_counts){f->axes.len, f->transforms.len, f->tensors.len, f->ops.len,
                     f->constraints.len};
}

/* Equalities become known only once the operation that asserts them exists. */
static void learn_from(ir_func *f, ir_op op, uint32_t first) {
  for (uint32_t i = first; i < f->constraints.len; i++) {
    ir_constraint *c = &f->constraints.data[i];
    c->op = op;
    if (c->kind == IR_REQUIRE_EQ) ir_func_learn(f, c->a, c->b);
    /* mutant: multiples_not_learned */
    if (c->kind == IR_REQUIRE_DIVIDES) ir_func_learn_multiple(f, c->a, c->b);
  }
}

ir_tensor ir_build_op(ir_func *f, ir_opcode code, const ir_tensor *operands, uint32_t n_operands,
                      const ir_attr *attrs, uint32_t name, loc at) {
  const ir_op_info *info = ir_op_info_of(code);
  ir_counts before = counts_of(f);
  if (name && !ir_build_name_is_free(f, name, at)) return (ir_tensor){0};
  if (!arity_fits(f, info, n_operands, at)) return (ir_tensor){0};
  if (!operands_present(f, info, operands, n_operands, at)) return (ir_tensor){0};
  ir_op_data op = {.code = code, .at = at, .n_operands = n_operands};
  op.operands = arena_copy(memory_of(f), operands, n_operands * sizeof *operands);
  op.attrs = ir_attrs_complete(f, info, attrs);
  ir_inferred inferred[IR_MAX_RESULTS];
  if (!ir_infer(f, &op, inferred)) return undo(f, before);

  ir_op o = {f->ops.len};
  ir_tensor_data data = {.kind = IR_TENSOR_RESULT, .at = at, .dtype = inferred[0].dtype, .def = o};
  data.defined = inferred[0].domains;
  data.scheduled_def = o;
  op.result = new_tensor(f, &data);
  vec_push(memory_of(f), &f->ops, op);
  if (!report_size(f, op.result, at)) return undo(f, before);
  learn_from(f, o, before.constraints);
  vec_push(memory_of(f), &f->order, o);
  if (name) (void)ir_build_name(f, op.result, name, at);
  return op.result;
}

/* The constraints were added when the first result was built, so they are dropped here. */
static bool infer_results(ir_func *f, ir_op o, uint32_t n, ir_inferred *types) {
  ir_op_data op = *ir_op_at(f, o);
  uint32_t constraints = f->constraints.len;
  op.n_more = n;
  bool ok = ir_infer(f, &op, types);
  f->constraints.len = constraints;
  return ok;
}

bool ir_build_more(ir_func *f, ir_tensor first, const uint32_t *names, uint32_t n, loc at) {
  ir_op o = ir_tensor_at(f, first)->def;
  const ir_op_info *info = ir_op_info_of(ir_op_at(f, o)->code);
  ir_counts before = counts_of(f);
  ir_inferred types[IR_MAX_RESULTS];
  if (n >= info->n_results) {
    diag_error(errors_of(f), at, "%s has %u result%s, not %u", info->name, info->n_results,
               info->n_results == 1 ? "" : "s", n + 1);
    return false;
  }
  check(infer_results(f, o, n, types));
  ir_tensor *more = ARENA_ARRAY(memory_of(f), n, ir_tensor);
  for (uint32_t k = 0; k < n; k++) {
    ir_tensor_data data = {.kind = IR_TENSOR_RESULT, .at = at, .def = o, .scheduled_def = o};
    data.dtype = types[k + 1].dtype;
    data.defined = types[k + 1].domains;
    more[k] = new_tensor(f, &data);
    if (report_size(f, more[k], at) && ir_build_name(f, more[k], names[k], at)) continue;
    while (k-- > 0) ir_func_undeclare(f, names[k]);
    (void)undo(f, before);
    return false;
  }
  ir_op_at(f, o)->more = more;
  ir_op_at(f, o)->n_more = n;
  return true;
}

bool ir_build_name(ir_func *f, ir_tensor t, uint32_t name, loc at) {
  if (!ir_build_name_is_free(f, name, at)) return false;
  ir_tensor_at(f, t)->name = name;
  ir_tensor_at(f, t)->at = at;
  ir_func_declare(f, name, (ir_name_entry){IR_NAME_TENSOR, t.id});
  return true;
}

/* ---- stated types and outputs ---- */

static bool stated_extent_fits(ir_func *f, ir_scalar stated, ir_axis dim, uint32_t i, ir_tensor t,
                               loc at) {
  ir_scalar size = ir_axis_size(f, dim);
  ir_proof same = ir_func_equal(f, stated, size);
  if (same == IR_FALSE) {
    diag_error(errors_of(f), at, "extent %u is stated as %s, but the operation gives %s", i,
               ir_scalar_text(f, stated), ir_type_text(f, t));
    return false;
  }
  if (same == IR_UNKNOWN) {
    ir_require(f, IR_REQUIRE_EQ, size, stated, "the stated type", at);
    ir_func_learn(f, size, stated);
  }
  return true;
}

bool ir_build_stated(ir_func *f, ir_tensor t, ir_dtype dtype, const ir_scalar *extents,
                     uint32_t rank, loc at) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t n = ir_tensor_dims(f, t, dims);
  if (ir_tensor_at(f, t)->dtype != dtype || n != rank) {
    diag_error(errors_of(f), at, "stated as %s of rank %u, but the operation gives %s",
               ir_dtype_text(dtype), rank, ir_type_text(f, t));
    return false;
  }
  for (uint32_t i = 0; i < rank; i++) {
    if (extents[i].id && !stated_extent_fits(f, extents[i], dims[i], i, t, at)) return false;
  }
  ir_tensor_at(f, t)->stated = true;
  ir_tensor_at(f, t)->stated_extents = arena_copy(memory_of(f), extents, rank * sizeof *extents);
  return true;
}

bool ir_build_output(ir_func *f, ir_tensor t, loc at) {
  if (ir_tensor_at(f, t)->kind == IR_TENSOR_CONST) {
    diag_error(errors_of(f), at, "a number cannot be returned; write full([], value)");
    return false;
  }
  for (uint32_t i = 0; i < f->outputs.len; i++) {
    if (!IR_SAME(f->outputs.data[i], t)) continue;
    diag_error(errors_of(f), at, "'%s' is returned twice", ir_tensor_name(f, t));
    return false;
  }
  vec_push(memory_of(f), &f->outputs, t);
  return true;
}

void ir_build_stmt(ir_func *f, const ir_stmt *stmt) {
  vec_push(memory_of(f), &f->statements, *stmt);
}

/* ---- the scheduled view ---- */

void ir_func_unschedule(ir_func *f) {
  if (!f->applied) return;
  for (uint32_t i = f->n_defined.tensors; i < f->tensors.len; i++) {
    ir_func_undeclare(f, f->tensors.data[i].name);
  }
  f->axes.len = f->n_defined.axes;
  f->transforms.len = f->n_defined.transforms;
  f->tensors.len = f->n_defined.tensors;
  f->ops.len = f->n_defined.ops;
  f->constraints.len = f->n_defined.constraints;
  f->scheduled.len = 0;
  f->whys.len = 0;
  for (uint32_t i = 1; i < f->axes.len; i++) {
    f->axes.data[i].mark = (ir_mark){0};
    f->axes.data[i].why = 0;
  }
  for (uint32_t i = 1; i < f->tensors.len; i++) {
    ir_tensor_data *t = &f->tensors.data[i];
    t->now = t->defined;
    t->scheduled_def = t->def;
    t->mesh = (ir_mesh){0};
    t->placed = false;
    t->mesh_why = 0;
    t->memory = IR_MEMORY_GLOBAL;
    t->shrinks = false;
  }
  f->applied = false;
}

uint32_t ir_why_add(ir_func *f, ir_why why) {
  if (f->whys.len == 0) vec_push(memory_of(f), &f->whys, (ir_why){0});
  vec_push(memory_of(f), &f->whys, why);
  return f->whys.len - 1;
}

static void forget_tensors(ir_func *f) {
  bool *kept = arena_alloc(memory_of(f), f->tensors.len);
  for (uint32_t i = 0; i < f->order.len; i++) {
    const ir_op_data *op = ir_op_at(f, f->order.data[i]);
    for (uint32_t k = 0; k < ir_op_n_results(op); k++) kept[ir_op_result(op, k).id] = true;
  }
  for (uint32_t i = 1; i < f->tensors.len; i++) {
    ir_tensor_data *t = &f->tensors.data[i];
    if (t->kind != IR_TENSOR_RESULT || kept[i]) continue;
    ir_func_undeclare(f, t->name);
    *t = (ir_tensor_data){.kind = IR_TENSOR_CONST, .dtype = t->dtype};
  }
}

static void assert_stated(ir_func *f, ir_tensor result) {
  const ir_tensor_data t = *ir_tensor_at(f, result);
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = t.stated ? ir_tensor_dims(f, result, dims) : 0;
  for (uint32_t i = 0; i < rank; i++) {
    if (t.stated_extents[i].id == 0) continue;
    check(stated_extent_fits(f, t.stated_extents[i], dims[i], i, result, t.at));
  }
}

/* Infers the type again too: it may depend on learned equalities. Where n = 0 is known, n * n elements are
 * n. */
static void assert_again(ir_func *f, ir_op o) {
  const ir_op_data *op = ir_op_at(f, o);
  ir_inferred types[IR_MAX_RESULTS];
  uint32_t first = f->constraints.len;
  check(ir_infer(f, op, types));
  learn_from(f, o, first);
  for (uint32_t k = 0; k < ir_op_n_results(op); k++) {
    ir_tensor_data *t = ir_tensor_at(f, ir_op_result(op, k));
    t->now = t->defined = types[k].domains;
    assert_stated(f, ir_op_result(op, k));
  }
}

void ir_func_forget_repeated(ir_func *f) {
  check(!f->applied);
  forget_tensors(f);
}

/* Keeps the multiples that the function declares. They do not come from operations. */
static void assert_multiples(ir_func *f) {
  uint32_t n = f->constraints.len;
  f->constraints.len = 0;
  for (uint32_t i = 0; i < n; i++) {
    ir_constraint c = f->constraints.data[i];
    if (c.op.id || c.kind != IR_REQUIRE_DIVIDES) continue;
    vec_push(memory_of(f), &f->constraints, c);
    ir_func_learn_multiple(f, c.a, c.b);
  }
}

/* What the dropped operations asserted no longer holds, so types are inferred and assertions collected
 * again. */
void ir_func_forget_unused(ir_func *f) {
  check(!f->applied);
  forget_tensors(f);
  map_init(&f->learned, memory_of(f));
  assert_multiples(f);
  for (uint32_t i = 0; i < f->order.len; i++) assert_again(f, f->order.data[i]);
}
