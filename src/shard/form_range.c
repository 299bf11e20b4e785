/* A position, or a few, of a sharded axis: each device gives those that it has, 0 elsewhere, and these are added up.
 *
 *     y = select(x, dim, i)   =>   y$2 = select(x$1, i % c), where the piece is i / c;  y = sum(y$2, over the pieces)
 *     y = slice(x, a, b)      =>   the same as index_select(x, [a, a + 1, … b - 1]) */
#include "ir/build.h"
#include "shard/form.h"

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
