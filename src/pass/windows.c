/* windows: writes every k-th position of a padded axis as that of a window as long as what was padded.
 *
 *   p = pad(x, [1, 1])                                       p = pad(x, [1, 1])
 *   y = slice(p, starts=[2], stops=[v + 2], steps=[2])  =>   y$1 = slice(p, starts=[1], stops=[v + 1])
 *                                                            y = slice(y$1, starts=[1], stops=[v], steps=[2])
 *
 * So a convolution with a stride along a sharded axis is a shift of x and the steps within it: both have a form in
 * which devices send what crosses the ends of pieces, or nothing. The window moves as little as it can. */
#include "ir/build.h"
#include "pass/passes.h"

typedef struct rewriting {
  ir_func *f;
  ir_op_data op;     /* the slice */
  ir_op_data pad;    /* the pad that it slices */
  uint32_t rank;     /* of both */
  ir_attr window[3]; /* starts, stops and steps of the window; steps are 1 */
  ir_attr within[3]; /* those of the slice within it */
  ir_axis was[IR_MAX_RANK], is[IR_MAX_RANK]; /* dimensions of what was padded, and of the slice */
} rewriting;

static ir_scalar constant(const rewriting *r, int64_t n) {
  return ir_scalar_const(&r->f->module->scalars, n);
}

static bool is_const(const rewriting *r, ir_scalar x, int64_t *n) {
  return ir_scalar_is_const(&r->f->module->scalars, x, n);
}

static bool is_slice_of_pad(rewriting *r, ir_op o) {
  r->op = *ir_op_at(r->f, o);
  if (r->op.code != IR_OP_SLICE || !ir_op_attr(&r->op, "steps")->given) return false;
  ir_op def = ir_tensor_at(r->f, r->op.operands[0])->def;
  if (!def.id || ir_op_at(r->f, def)->code != IR_OP_PAD) return false;
  r->pad = *ir_op_at(r->f, def);
  (void)ir_tensor_dims(r->f, r->pad.operands[0], r->was);
  r->rank = ir_tensor_dims(r->f, r->op.result, r->is);
  return true;
}

/* Where the window begins: where x does, or as close to it as the steps from `start` on allow. */
static int64_t window_start(int64_t before, int64_t start, int64_t step) {
  if (start < before) return start;
  return start < before + step ? before : start - step + 1;
}

static ir_scalar width(const rewriting *r, uint32_t dim, uint32_t side) {
  return ir_op_attr(&r->pad, "widths")->scalars[2 * dim + side];
}

static void set_ends(ir_attr *attrs, uint32_t dim, ir_scalar start, ir_scalar stop) {
  ((ir_scalar *)attrs[0].scalars)[dim] = start;
  ((ir_scalar *)attrs[1].scalars)[dim] = stop;
}

/* A dimension without a step: its range goes to the window if the dimension is padded, else to the slice
 * within it. */
static void set_plain(rewriting *r, uint32_t dim, ir_scalar first, ir_scalar size, ir_scalar left) {
  ir_scalar last = ir_scalar_add(&r->f->module->scalars, first, left), zero = constant(r, 0);
  int64_t before, after;
  bool plain = is_const(r, width(r, dim, 0), &before) && is_const(r, width(r, dim, 1), &after) &&
               before == 0 && after == 0;
  set_ends(r->window, dim, plain ? zero : first, plain ? size : last);
  set_ends(r->within, dim, plain ? first : zero, plain ? last : left);
}

/* Finds the window along one dimension; false: there is none. */
static bool find_window(rewriting *r, uint32_t dim, bool *stepped) {
  ir_scalars *s = &r->f->module->scalars;
  int64_t step = ir_op_attr(&r->op, "steps")->ints[dim], before, start;
  ir_scalar first = ir_op_attr(&r->op, "starts")->scalars[dim];
  if (is_const(r, first, &start) && start < 0) return false; /* counted from the end */
  ir_scalar size = ir_axis_size(r->f, r->was[dim]), left = ir_axis_size(r->f, r->is[dim]);
  if (step == 1) {
    set_plain(r, dim, first, size, left);
    return true;
  }
  ir_scalar all = ir_scalar_mul(s, left, constant(r, step));
  if (!is_const(r, width(r, dim, 0), &before) || before < 0) return false;
  if (!is_const(r, first, &start) || ir_func_equal(r->f, all, size) != IR_TRUE) return false;
  int64_t from = window_start(before, start, step);
  set_ends(r->window, dim, constant(r, from), ir_scalar_add(s, constant(r, from), size));
  set_ends(r->within, dim, constant(r, start - from), size);
  *stepped = true;
  return true;
}

static void begin_attrs(rewriting *r, ir_attr *attrs) {
  arena *memory = &r->f->module->memory;
  int64_t *steps = ARENA_ARRAY(memory, r->rank, int64_t);
  for (uint32_t i = 0; i < r->rank; i++) steps[i] = 1;
  for (uint32_t k = 0; k < 2; k++)
    attrs[k] = (ir_attr){
        .given = true, .len = r->rank, .scalars = ARENA_ARRAY(memory, r->rank, ir_scalar)};
  attrs[2] = (ir_attr){.given = true, .len = r->rank, .ints = steps};
}

static bool find_windows(rewriting *r, ir_op o) {
  bool stepped = false;
  if (!is_slice_of_pad(r, o)) return false;
  begin_attrs(r, r->window);
  begin_attrs(r, r->within);
  r->within[2] = *ir_op_attr(&r->op, "steps");
  for (uint32_t i = 0; i < r->rank; i++)
    if (!find_window(r, i, &stepped)) return false;
  return stepped;
}

/* The result takes over the name of the one it replaces, and with it all statements about it. */
static void take_place(ir_func *f, ir_tensor old, ir_tensor now) {
  ir_tensor_data *from = ir_tensor_at(f, old), *to = ir_tensor_at(f, now);
  uint32_t name = from->name;
  to->stated = from->stated;
  to->stated_extents = from->stated_extents;
  ir_func_undeclare(f, name);
  check(ir_build_name(f, now, name, from->at));
  from->name = 0;
}

static ir_tensor write_window(rewriting *r) {
  ir_func *f = r->f;
  uint32_t base = ir_tensor_at(f, r->op.result)->name;
  ir_tensor window = ir_build_op(f, IR_OP_SLICE, r->op.operands, 1, r->window, 0, r->op.at);
  check(window.id != 0);
  check(ir_build_name(f, window, ir_func_fresh_name(f, base), r->op.at));
  ir_tensor result = ir_build_op(f, IR_OP_SLICE, &window, 1, r->within, 0, r->op.at);
  check(result.id != 0);
  take_place(f, r->op.result, result);
  return result;
}

/* May devices have pieces? Without them the rewrite gains nothing. */
static bool marks_devices(const ir_func *f) {
  for (uint32_t i = 0; i < f->statements.len; i++) {
    const ir_stmt *s = &f->statements.data[i];
    if (s->kind == IR_STMT_MARK && s->mark.kind == IR_MARK_MESH) return true;
  }
  return false;
}

static bool has_windows(ir_func *f) {
  for (uint32_t i = 0; i < f->order.len; i++) {
    rewriting r = {.f = f};
    if (find_windows(&r, f->order.data[i])) return true;
  }
  return false;
}

status pass_windows(ir_func *f, pass_ctx *ctx) {
  if (!marks_devices(f) || !has_windows(f)) return STATUS_OK;
  ir_func_unschedule(f);
  uint32_t n = f->order.len;
  const ir_op *old = arena_copy(ctx->scratch, f->order.data, n * sizeof *old);
  ir_tensor *instead = ARENA_ARRAY(ctx->scratch, f->tensors.len, ir_tensor);
  f->order.len = 0;
  for (uint32_t i = 0; i < n; i++) {
    rewriting r = {.f = f};
    ir_op_redirect(f, ir_op_at(f, old[i]), instead);
    if (find_windows(&r, old[i])) instead[r.op.result.id] = write_window(&r);
    else vec_push(&f->module->memory, &f->order, old[i]);
  }
  for (uint32_t i = 0; i < f->outputs.len; i++) {
    ir_tensor now = instead[f->outputs.data[i].id];
    if (now.id) f->outputs.data[i] = now;
  }
  ctx->changed = true;
  ir_func_forget_unused(f);
  return STATUS_OK;
}
