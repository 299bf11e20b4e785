#include "ir/verify.h"

#include "ir/build.h"
#include "ir/infer.h"

typedef struct verifier {
  ir_func *f;
  bool ok;
} verifier;

#define BROKEN(v, at, ...)                                                                         \
  do {                                                                                             \
    diag_error(&(v)->f->module->errors, (at), __VA_ARGS__);                                        \
    (v)->ok = false;                                                                               \
  } while (0)

/* ---- domains ---- */

enum { MAX_LIVE = 256 }; /* axes on the way between two domains of one tensor */

typedef struct axis_list {
  ir_axis data[MAX_LIVE];
  uint32_t len;
} axis_list;

static bool has(const axis_list *l, ir_axis a) {
  for (uint32_t i = 0; i < l->len; i++) {
    if (IR_SAME(l->data[i], a)) return true;
  }
  return false;
}

static bool take(axis_list *l, ir_axis a) {
  for (uint32_t i = 0; i < l->len; i++) {
    if (!IR_SAME(l->data[i], a)) continue;
    l->data[i] = l->data[--l->len];
    return true;
  }
  return false;
}

/* Makes `axis` available by running the transforms that lead to it, each at most once: consuming
 * inputs and producing outputs. Fails if an input is neither available nor derivable. */
static bool derive(const ir_func *f, axis_list *live, ir_axis axis, uint32_t depth) {
  if (has(live, axis)) return true;
  ir_transform def = ir_axis_at(f, axis)->def;
  if (def.id == 0 || depth > f->transforms.len) return false; /* a cycle, or not from here */
  const ir_transform_data *t = ir_transform_at(f, def);
  for (int i = 0; i < 2; i++) {
    if (t->in[i].id && !derive(f, live, t->in[i], depth + 1)) return false;
  }
  for (int i = 0; i < 2; i++) {
    if (t->in[i].id && !take(live, t->in[i])) return false;
  }
  for (int i = 0; i < 2 && live->len < MAX_LIVE; i++) {
    if (t->out[i].id) live->data[live->len++] = t->out[i];
  }
  return has(live, axis);
}

/* Is `to` exactly what transforms make of `from`: every axis derivable, none left over or doubled? */
static bool derivable(const ir_func *f, ir_axes from, ir_axes to) {
  axis_list live = {.len = 0};
  if (from.len > MAX_LIVE / 2 || to.len > MAX_LIVE / 2) return false;
  for (uint32_t i = 0; i < from.len; i++) live.data[live.len++] = from.data[i];
  for (uint32_t i = 0; i < to.len; i++) {
    if (!derive(f, &live, to.data[i], 0)) return false;
  }
  for (uint32_t i = 0; i < to.len; i++) {
    if (!take(&live, to.data[i])) return false;
  }
  return live.len == 0;
}

static bool same_list(ir_axes a, ir_axes b) { return a.data == b.data && a.len == b.len; }

static void check_dense(verifier *v, ir_tensor t, const ir_domains *d) {
  for (uint32_t i = 0; i < d->allocation.len; i++) {
    ir_axis_kind kind = ir_axis_at(v->f, d->allocation.data[i])->kind;
    bool memory = kind != IR_AXIS_BROADCAST && kind != IR_AXIS_REDUCTION;
    if ((d->dense[i] == IR_DENSE_NONE) == memory) {
      BROKEN(v, ir_tensor_at(v->f, t)->at, "contiguity of '%s' does not fit its axis %u",
             ir_tensor_name(v->f, t), i);
    }
  }
}

static void check_domains(verifier *v, ir_tensor t, const ir_domains *d) {
  const ir_func *f = v->f;
  loc at = ir_tensor_at(f, t)->at;
  const char *name = ir_tensor_name(f, t);
  if (!same_list(d->loop, d->logical) && !derivable(f, d->logical, d->loop)) {
    BROKEN(v, at, "the loop domain of '%s' does not follow from its logical domain", name);
  }
  if (!same_list(d->allocation, d->logical) && !derivable(f, d->logical, d->allocation)) {
    BROKEN(v, at, "the allocation domain of '%s' does not follow from its logical domain", name);
  }
  check_dense(v, t, d);
}

/* ---- marks ---- */

static void check_mark(verifier *v, ir_tensor t, uint32_t position) {
  const ir_func *f = v->f;
  const ir_tensor_data *d = ir_tensor_at(f, t);
  const ir_axis_data *a = ir_axis_at(f, d->now.loop.data[position]);
  if (a->mark.kind != IR_MARK_MESH) return;
  for (uint32_t i = 0; i < position; i++) {
    const ir_axis_data *b = ir_axis_at(f, d->now.loop.data[i]);
    bool apart = (a->kind == IR_AXIS_REDUCTION) != (b->kind == IR_AXIS_REDUCTION);
    if (!ir_mark_same(a->mark, b->mark) || apart) continue;
    BROKEN(v, d->at, "axes %u and %u of '%s' are both marked %s", i, position, ir_tensor_name(f, t),
           ir_mark_text(a->mark));
  }
  if (d->mesh.id == 0) return;
  const ir_mesh_data *mesh = ir_mesh_at(f, d->mesh);
  int64_t size = ir_mesh_size(mesh, a->mark.mesh_axis), value;
  if (size == 0) {
    BROKEN(v, d->at, "axis %u of '%s' is marked %s, but mesh '%s' has rank %u", position,
           ir_tensor_name(f, t), ir_mark_text(a->mark), ir_name_text(f, mesh->name), mesh->rank);
  } else if (ir_scalar_is_const(&f->module->scalars, ir_axis_size(f, d->now.loop.data[position]),
                                &value) &&
             value != size) {
    BROKEN(v, d->at, "axis %u of '%s' is marked %s with %lld positions for %lld devices", position,
           ir_tensor_name(f, t), ir_mark_text(a->mark), (long long)value, (long long)size);
  }
}

static void check_tensor(verifier *v, ir_tensor t) {
  const ir_tensor_data *d = ir_tensor_at(v->f, t);
  if (d->kind == IR_TENSOR_CONST) return;
  ir_name_entry e = ir_func_lookup(v->f, d->name);
  if (d->name == 0 || e.kind != IR_NAME_TENSOR || e.id != t.id) {
    BROKEN(v, d->at, "tensor %u is not known by its name '%s'", t.id, ir_tensor_name(v->f, t));
  }
  if (!same_list(d->defined.root, d->defined.logical) && d->defined.root.len > IR_MAX_RANK) {
    BROKEN(v, d->at, "'%s' has too many axes", ir_tensor_name(v->f, t));
  }
  if (d->defined.dense && t.id < (v->f->applied ? v->f->n_defined.tensors : v->f->tensors.len)) {
    check_domains(v, t, &d->defined);
  }
  if (!v->f->applied) return;
  check_domains(v, t, &d->now);
  for (uint32_t i = 0; i < d->now.loop.len; i++) check_mark(v, t, i);
}

/* ---- operations ---- */

static bool has_type(ir_func *f, ir_tensor t, const ir_inferred *want) {
  ir_axis have[IR_MAX_RANK], need[IR_MAX_RANK];
  uint32_t n = ir_axes_dims(f, want->domains.logical, need);
  bool same = want->dtype == ir_tensor_at(f, t)->dtype && n == ir_tensor_dims(f, t, have);
  for (uint32_t i = 0; same && i < n; i++) {
    same = ir_func_equal(f, ir_axis_size(f, have[i]), ir_axis_size(f, need[i])) == IR_TRUE;
  }
  return same;
}

static void check_inferred(verifier *v, const ir_op_data *op) {
  ir_func *f = v->f;
  uint32_t axes = f->axes.len, transforms = f->transforms.len, constraints = f->constraints.len;
  ir_inferred want[IR_MAX_RESULTS];
  bool ok = ir_infer(f, op, want);
  for (uint32_t k = 0; ok && k < ir_op_n_results(op); k++) {
    if (has_type(f, ir_op_result(op, k), &want[k])) continue;
    BROKEN(v, op->at, "the type of '%s' is not what %s gives",
           ir_tensor_name(f, ir_op_result(op, k)), ir_op_info_of(op->code)->name);
  }
  v->ok = v->ok && ok;
  f->axes.len = axes;
  f->transforms.len = transforms;
  f->constraints.len = constraints;
}

static void check_back_links(verifier *v, const ir_op *ops, uint32_t n, bool scheduled) {
  ir_func *f = v->f;
  for (uint32_t i = 0; i < n; i++) {
    const ir_op_data *op = ir_op_at(f, ops[i]);
    for (uint32_t k = 0; k < ir_op_n_results(op); k++) {
      ir_tensor t = ir_op_result(op, k);
      ir_op def = scheduled ? ir_tensor_at(f, t)->scheduled_def : ir_tensor_at(f, t)->def;
      if (IR_SAME(def, ops[i])) continue;
      BROKEN(v, op->at, "'%s' does not point back to its operation", ir_tensor_name(f, t));
    }
  }
}

/* Every operand is an input, a number or the result of an earlier operation of the list. */
static void check_defined_before(verifier *v, const ir_op *ops, uint32_t n) {
  ir_func *f = v->f;
  bool *ready = arena_alloc(&f->module->memory, f->tensors.len);
  for (uint32_t i = 1; i < f->tensors.len; i++) {
    ready[i] = f->tensors.data[i].kind != IR_TENSOR_RESULT;
  }
  for (uint32_t i = 0; i < n; i++) {
    const ir_op_data *op = ir_op_at(f, ops[i]);
    for (uint32_t k = 0; k < op->n_operands; k++) {
      if (op->operands[k].id == 0 || ready[op->operands[k].id]) continue;
      BROKEN(v, op->at, "'%s' is used before it is defined", ir_tensor_name(f, op->operands[k]));
    }
    for (uint32_t k = 0; k < ir_op_n_results(op); k++) ready[ir_op_result(op, k).id] = true;
  }
  for (uint32_t i = 0; i < f->outputs.len; i++) {
    if (ready[f->outputs.data[i].id]) continue;
    BROKEN(v, f->at, "output '%s' is never defined", ir_tensor_name(f, f->outputs.data[i]));
  }
}

bool ir_verify(ir_func *f) {
  verifier v = {f, true};
  for (uint32_t i = 1; i < f->tensors.len; i++) check_tensor(&v, (ir_tensor){i});
  check_back_links(&v, f->order.data, f->order.len, false);
  check_defined_before(&v, f->order.data, f->order.len);
  for (uint32_t i = 0; i < f->order.len; i++) check_inferred(&v, ir_op_at(f, f->order.data[i]));
  if (f->applied) {
    check_back_links(&v, f->scheduled.data, f->scheduled.len, true);
    check_defined_before(&v, f->scheduled.data, f->scheduled.len);
  }
  if (f->outputs.len == 0)
    BROKEN(&v, f->at, "fusion '%s' returns nothing", ir_name_text(f, f->name));
  return v.ok;
}
