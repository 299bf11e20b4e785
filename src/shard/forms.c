/* Which operations are written in their form for sharded axes, and how the new ones take their place. The
 * forms are in form_*.c; docs/shard.md has the rules in words. */
#include <string.h>

#include "ir/build.h"
#include "schedule/schedule.h"
#include "shard/form.h"
#include "shard/internal.h"

typedef struct rewriting {
  ir_func *f;
  arena *scratch;
  uint32_t *dims;     /* by operation: the dimensions it works along; 0: it stays as it is */
  uint32_t *because;  /* by operation: the reason of the mark that cuts one of them */
  ir_tensor *instead; /* by tensor: what took its place */
  uint32_t n;
} rewriting;

/* ---- what is rewritten ---- */
/* Mesh axes along which dimension `dim` is cut into pieces that can be reduced in parts. */
static uint32_t cuts_of(const ir_func *f, ir_tensor t, uint32_t dim) {
  shard_placement p;
  uint32_t mask = 0;
  shard_placement_of(f, t, &p);
  for (uint32_t k = 0; k < p.rank; k++) {
    const shard_axis *a = &p.axes[k];
    bool cut = a->kind == SHARD_SHARDED && a->dim == dim && !a->swizzled;
    if (cut && ir_mesh_size(ir_mesh_at(f, p.mesh), k) > 1) mask |= 1u << k;
  }
  return mask;
}

static uint32_t position(int64_t dim, uint32_t rank) {
  return (uint32_t)(dim < 0 ? dim + (int64_t)rank : dim);
}

/* The dimensions that `dims` names. */
static uint32_t listed_dims(const ir_op_data *op, uint32_t rank) {
  const ir_attr *list = ir_op_attr(op, "dims");
  uint32_t mask = 0;
  if (!list->given) return (1u << rank) - 1;
  for (uint32_t i = 0; i < list->len; i++) mask |= 1u << position(list->ints[i], rank);
  return mask;
}

static bool any_cut(const ir_func *f, const ir_op_data *op, uint32_t dims) {
  for (; dims; dims &= dims - 1) {
    if (cuts_of(f, op->operands[0], (uint32_t)__builtin_ctz(dims))) return true;
  }
  return false;
}

/* Where operand and result are cut along one mesh axis, the gather and the slice that follows it move more
 * than results per row; where the result is whole, all of it has to be gathered anyway. */
static bool both_cut(const ir_func *f, const ir_op_data *op, uint32_t dim) {
  return (cuts_of(f, op->operands[0], dim) & cuts_of(f, op->result, dim)) != 0;
}

/* Devices among which the result's rows are dealt out: rows that are cut along d devices are exchanged for
 * these, which moves a d-th of what the gather does. */
static int64_t row_devices(const form *m) {
  shard_placement from, to;
  int64_t n = 1;
  shard_placement_of(m->f, m->op.operands[0], &from);
  shard_placement_of(m->f, m->op.result, &to);
  for (uint32_t k = 0; k < from.rank && k < to.rank; k++) {
    bool along = from.axes[k].kind == SHARD_SHARDED && (m->dims >> from.axes[k].dim & 1);
    bool moves = to.axes[k].kind == SHARD_SHARDED && from.axes[k].dim != to.axes[k].dim;
    if (along && moves) n *= ir_mesh_size(ir_mesh_at(m->f, from.mesh), k);
  }
  return n;
}

/* Is what a row moves otherwise more than `steps` partial results, each sent twice, in bytes? An extent
 * without a value counts as long. */
static bool pays(const form *m, int64_t steps) {
  int64_t n, wide = (int64_t)ir_dtype_size_bytes(m->wide);
  int64_t size = (int64_t)ir_dtype_size_bytes(ir_tensor_at(m->f, m->op.operands[0])->dtype);
  if (!ir_scalar_is_const(&m->f->module->scalars, form_count(m), &n)) return true;
  return n > 2 * steps * row_devices(m) * wide / size;
}

static form begin(const ir_func *f, const ir_op_data *op, uint32_t dims) {
  bool is_f64 = ir_tensor_at(f, op->result)->dtype == IR_F64;
  return (form){.f = (ir_func *)f, .op = *op, .dims = dims, .wide = is_f64 ? IR_F64 : IR_F32};
}

/* The dimensions along which `op` is to be computed in parts; 0: none. */
static uint32_t wanted_dims(const ir_func *f, const ir_op_data *op) {
  uint32_t rank = 0, dims = 0;
  int64_t steps = 1;
  ir_axis axes[IR_MAX_RANK];
  if (op->n_operands > 0 && op->operands[0].id) rank = ir_tensor_dims(f, op->operands[0], axes);
  if (rank == 0) return 0;
  ir_family family = ir_op_info_of(op->code)->family;
  bool wanted = false;
  if (family == IR_FAMILY_REDUCE || family == IR_FAMILY_MOMENT) {
    bool kept = ir_op_attr(op, "keepdim")->i != 0;
    dims = listed_dims(op, rank);
    steps = family == IR_FAMILY_MOMENT && op->code != IR_OP_MEAN ? 2 : 1;
    wanted = (kept || family == IR_FAMILY_MOMENT) && any_cut(f, op, dims);
  } else if (family == IR_FAMILY_SOFTMAX || family == IR_FAMILY_NORM) {
    uint32_t dim = family == IR_FAMILY_NORM ? rank - 1 : position(ir_op_attr(op, "dim")->i, rank);
    dims = 1u << dim;
    steps = op->code == IR_OP_RMS_NORM ? 1 : 2;
    wanted = both_cut(f, op, dim);
  }
  form m = begin(f, op, dims);
  return wanted && pays(&m, steps) ? dims : 0;
}

/* The reason of the mark that cuts one of these dimensions of the first operand. */
static uint32_t reason_of_cut(const ir_func *f, const ir_op_data *op, uint32_t dims) {
  shard_placement p;
  shard_placement_of(f, op->operands[0], &p);
  for (uint32_t k = 0; k < p.rank; k++) {
    bool cut = p.axes[k].kind == SHARD_SHARDED && (dims >> p.axes[k].dim & 1);
    if (cut) return ir_axis_at(f, p.axes[k].loop)->why;
  }
  return 0;
}

static bool find_wanted(rewriting *r) {
  for (uint32_t i = 0; i < r->f->order.len; i++) {
    ir_op o = r->f->order.data[i];
    const ir_op_data *op = ir_op_at(r->f, o);
    r->dims[o.id] = wanted_dims(r->f, op);
    if (r->dims[o.id]) r->because[o.id] = reason_of_cut(r->f, op, r->dims[o.id]);
    r->n += r->dims[o.id] != 0;
  }
  return r->n > 0;
}

/* ---- rewriting ---- */
static void write_form(form *m) {
  ir_family family = ir_op_info_of(m->op.code)->family;
  if (family == IR_FAMILY_REDUCE) form_kept_reduction(m);
  else if (family == IR_FAMILY_MOMENT) form_moment(m);
  else if (family == IR_FAMILY_SOFTMAX) form_softmax(m);
  else form_norm(m);
}

static uint32_t fresh_name(ir_func *f, uint32_t base) {
  for (uint32_t k = 1;; k++) {
    const char *text = arena_printf(&f->module->memory, "%s$%u", ir_name_text(f, base), k);
    uint32_t name = strings_intern(&f->module->names, text, strlen(text));
    if (ir_func_lookup(f, name).kind == IR_NAME_NONE) return name;
  }
}

/* The result takes over the name of the one it stands for, and with it all statements about it. */
static void take_place(rewriting *r, ir_tensor old, ir_tensor now) {
  ir_tensor_data *from = ir_tensor_at(r->f, old), *to = ir_tensor_at(r->f, now);
  uint32_t name = from->name;
  to->stated = from->stated;
  to->stated_extents = from->stated_extents;
  ir_func_undeclare(r->f, name);
  check(ir_build_name(r->f, now, name, from->at));
  r->instead[old.id] = now;
  from->name = 0;
}

/* Names what was built since operation `first`, and says why it is there. */
static void name_steps(rewriting *r, const form *m, ir_op o, uint32_t first, uint32_t base) {
  ir_func *f = r->f;
  ir_why why = {.rule = IR_RULE_PARTS, .at = m->op.at, .from = base, .because = r->because[o.id]};
  uint32_t reason = ir_why_add(f, why);
  for (uint32_t i = first; i < f->ops.len; i++) {
    ir_tensor t = f->ops.data[i].result;
    if (ir_tensor_at(f, t)->name) continue; /* a result of what was written */
    f->ops.data[i].why = reason;
    check(ir_build_name(f, t, fresh_name(f, base), m->op.at));
  }
}

static void rewrite(rewriting *r, ir_op o) {
  ir_op_data op = *ir_op_at(r->f, o);
  form m = begin(r->f, &op, r->dims[o.id]);
  uint32_t first = r->f->ops.len, base = ir_tensor_at(r->f, op.result)->name;
  write_form(&m);
  for (uint32_t k = 0; k < ir_op_n_results(&op); k++)
    take_place(r, ir_op_result(&op, k), m.results[k]);
  name_steps(r, &m, o, first, base);
}

static void redirect(rewriting *r, ir_op_data *op) {
  size_t bytes = op->n_operands * sizeof *op->operands;
  ir_tensor *operands = arena_copy(&r->f->module->memory, op->operands, bytes);
  for (uint32_t i = 0; i < op->n_operands; i++) {
    if (r->instead[operands[i].id].id) operands[i] = r->instead[operands[i].id];
  }
  op->operands = operands;
}

static void rewrite_all(rewriting *r) {
  ir_func *f = r->f;
  uint32_t n = f->order.len;
  const ir_op *old = arena_copy(r->scratch, f->order.data, n * sizeof *old);
  f->order.len = 0;
  for (uint32_t i = 0; i < n; i++) {
    redirect(r, ir_op_at(f, old[i]));
    if (r->dims[old[i].id]) rewrite(r, old[i]);
    else vec_push(&f->module->memory, &f->order, old[i]);
  }
  for (uint32_t i = 0; i < f->outputs.len; i++) {
    ir_tensor now = r->instead[f->outputs.data[i].id];
    if (now.id) f->outputs.data[i] = now;
  }
  ir_func_forget_unused(f);
}

/* Reasons belong to the view, but statements that propagation added refer to them. */
static void drop_view(ir_func *f) {
  uint32_t reasons = f->whys.len;
  ir_func_unschedule(f);
  f->whys.len = reasons;
}

uint32_t shard_write_forms(ir_func *f, arena *scratch) {
  rewriting r = {.f = f, .scratch = scratch};
  r.dims = ARENA_ARRAY(scratch, f->ops.len, uint32_t);
  r.because = ARENA_ARRAY(scratch, f->ops.len, uint32_t);
  if (!find_wanted(&r)) return 0;
  uint32_t n_tensors = f->tensors.len;
  r.instead = ARENA_ARRAY(scratch, n_tensors, ir_tensor);
  drop_view(f);
  rewrite_all(&r);
  check(schedule_apply(f));
  (void)shard_propagate_from(f, n_tensors);
  return r.n;
}
