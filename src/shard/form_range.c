/* A position, or a few, of a sharded axis: each device gives those that it has, 0 elsewhere, and these are added up.
 *
 *     y = select(x, dim, i)   =>   y$2 = select(x$1, i % c), where the piece is i / c;  y = sum(y$2, over the pieces)
 *     y = slice(x, a, b)      =>   the same as index_select(x, [a, a + 1, … b - 1]) */
#include "ir/build.h"
#include "shard/form.h"
#include "shard/internal.h"

static ir_tensor at_position(form *m, ir_tensor x, uint32_t dim, ir_scalar at) {
  ir_attr attrs[2] = {{.given = true, .i = dim}, {.given = true, .scalar = at}};
  return form_op(m, IR_OP_SELECT, &x, 1, attrs);
}

static void write_select(form *m) {
  ir_scalars *s = form_scalars(m);
  ir_tensor x = form_in_pieces(m, m->op.operands[0]);
  ir_tensor own = at_position(m, x, m->dim + 1, ir_scalar_mod(s, m->start, m->piece));
  ir_tensor piece = form_extent(m, ir_scalar_floordiv(s, m->start, m->piece));
  ir_tensor numbers = form_piece_numbers(m, form_rank(m));
  ir_tensor y = form_or_zero(m, form_binary(m, IR_OP_EQ, numbers, piece), own);
  y = form_reduce(m, IR_OP_SUM, y, 1u << m->dim);
  m->results[0] = form_cast(m, y, ir_tensor_at(m->f, m->op.result)->dtype);
}

/* start, start + step, … */
static ir_tensor positions(form *m) {
  ir_axis dims[IR_MAX_RANK];
  (void)ir_tensor_dims(m->f, m->op.result, dims);
  ir_attr attrs[2] = {{.given = true, .scalar = ir_axis_size(m->f, dims[m->dim])}};
  ir_tensor i = form_op(m, IR_OP_IOTA, NULL, 0, attrs);
  if (m->step != 1) i = form_binary(m, IR_OP_MUL, i, form_number(m, ir_number_int(m->step)));
  return form_binary(m, IR_OP_ADD, i, form_extent(m, m->start));
}

void form_range(form *m) {
  if (m->op.code == IR_OP_SELECT) write_select(m);
  else form_pick(m, positions(m), true);
}

/* ---- which are wanted ---- */
/* Of what a slice takes along its only dimension that is cut: true if that is less than all. */
static bool begin_slice(form *m, uint32_t rank) {
  ir_axis dims[IR_MAX_RANK];
  ir_axes logical = ir_tensor_at(m->f, m->op.result)->now.logical;
  const ir_transform_data *resize = NULL;
  (void)ir_axes_dims(m->f, logical, dims);
  for (uint32_t i = 0; i < rank; i++) {
    ir_transform def = ir_axis_at(m->f, dims[i])->def;
    const ir_transform_data *t = def.id ? ir_transform_at(m->f, def) : NULL;
    if (!t || t->kind != IR_RESIZE) continue;
    if (resize) return false; /* along one dimension only */
    resize = t;
    m->dim = i;
  }
  if (!resize || !ir_scalar_is_const(&m->f->module->scalars, resize->step, &m->step)) return false;
  m->start = resize->start;
  return true;
}

static bool begin_select(form *m, uint32_t rank) {
  ir_axis dims[IR_MAX_RANK];
  ir_scalars *s = &m->f->module->scalars;
  int64_t at;
  m->dim = form_position(ir_op_attr(&m->op, "dim")->i, rank);
  m->start = ir_op_attr(&m->op, "index")->scalar;
  (void)ir_tensor_dims(m->f, m->op.operands[0], dims);
  if (ir_scalar_is_const(s, m->start, &at) && at < 0)
    m->start = ir_scalar_add(s, ir_axis_size(m->f, dims[m->dim]), m->start);
  return true;
}

/* Elements of all that slices and selects take of the tensor that this one reads. */
static ir_scalar all_taken(const form *m) {
  ir_scalars *s = &m->f->module->scalars;
  ir_scalar n = ir_scalar_const(s, 0);
  for (uint32_t i = 0; i < m->f->order.len; i++) {
    const ir_op_data *op = ir_op_at(m->f, m->f->order.data[i]);
    ir_family family = ir_op_info_of(op->code)->family;
    if (family != IR_FAMILY_SLICE && family != IR_FAMILY_SELECT) continue;
    if (IR_SAME(op->operands[0], m->op.operands[0]))
      n = ir_scalar_add(s, n, form_bytes(m->ctx, op->result, m->mesh_axis, 1));
  }
  return n;
}

/* All devices need a few positions of an axis that is cut. What is taken is reduced, twice its bytes: all that is
 * taken of the tensor together must be less than the tensor. */
bool form_wants_range(form *m, uint32_t rank) {
  ir_scalars *s = &m->f->module->scalars;
  ir_dtype dtype = ir_tensor_at(m->f, m->op.result)->dtype;
  int64_t a, b;
  m->write = form_range;
  if (!(m->op.code == IR_OP_SELECT ? begin_select(m, rank) : begin_slice(m, rank))) return false;
  m->dims = 1u << m->dim;
  if (!form_has_ranges(m, m->op.operands[0])) return false;
  if (shard_is_cut(m->f, m->op.result, 1u << m->mesh_axis)) return false;
  ir_scalar taken = ir_scalar_mul(s, all_taken(m), ir_scalar_const(s, 2 * form_summed_size(dtype)));
  ir_scalar whole =
      form_bytes(m->ctx, m->op.operands[0], m->mesh_axis, (int64_t)ir_dtype_size_bytes(dtype));
  const int64_t *usual = ir_module_usual(m->f->module, m->ctx->scratch);
  return ir_scalar_eval(s, taken, usual, s->symbols.len, &a) &&
         ir_scalar_eval(s, whole, usual, s->symbols.len, &b) && a < b;
}
