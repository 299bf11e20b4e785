/* Every k-th position of a sharded axis: pieces whose length is a multiple of k have theirs whole.
 *
 *     y = slice(x, starts=[i], stops=[v], steps=[k])   =>   y$1 = reshape(x, [v / k, k]);  y = select(y$1, 1, i) */
#include "ir/build.h"
#include "shard/form.h"

bool form_is_step(ir_func *f, const ir_op_data *op, uint32_t dim, int64_t *start, int64_t *step) {
  ir_scalars *s = &f->module->scalars;
  ir_axis from[IR_MAX_RANK], to[IR_MAX_RANK];
  if (op->code != IR_OP_SLICE || !ir_op_attr(op, "steps")->given) return false;
  (void)ir_tensor_dims(f, op->operands[0], from);
  (void)ir_tensor_dims(f, op->result, to);
  *step = ir_op_attr(op, "steps")->ints[dim];
  if (*step < 2 || !ir_scalar_is_const(s, ir_op_attr(op, "starts")->scalars[dim], start))
    return false;
  ir_scalar all = ir_scalar_mul(s, ir_axis_size(f, to[dim]), ir_scalar_const(s, *step));
  return *start >= 0 && *start < *step &&
         ir_func_equal(f, all, ir_axis_size(f, from[dim])) == IR_TRUE;
}

/* The slice without what it takes along the dimensions of the form; x itself if that is all. */
static ir_tensor of_the_rest(form *m, ir_tensor x, uint32_t rank) {
  ir_scalar *list = ARENA_ARRAY(&m->f->module->memory, 2 * IR_MAX_RANK, ir_scalar);
  int64_t *steps = ARENA_ARRAY(&m->f->module->memory, IR_MAX_RANK, int64_t);
  bool all = true;
  for (uint32_t i = 0; i < rank; i++) {
    bool stays = m->dims >> i & 1;
    ir_scalar start = ir_op_attr(&m->op, "starts")->scalars[i];
    list[i] = stays ? ir_scalar_const(form_scalars(m), 0) : start;
    list[rank + i] = stays ? form_sized(m, x, i) : ir_op_attr(&m->op, "stops")->scalars[i];
    steps[i] = stays ? 1 : ir_op_attr(&m->op, "steps")->ints[i];
    bool same = ir_func_equal(m->f, form_sized(m, x, i), form_sized(m, m->op.result, i)) == IR_TRUE;
    all = all && (stays || same);
  }
  ir_attr attrs[3] = {{.given = true, .len = rank, .scalars = list},
                      {.given = true, .len = rank, .scalars = list + rank},
                      {.given = true, .len = rank, .ints = steps}};
  return all ? x : form_op(m, IR_OP_SLICE, &x, 1, attrs);
}

void form_step(form *m) {
  ir_scalar shape[IR_MAX_RANK];
  uint32_t rank = form_rank(m), n = 0, n_taken = 0, at[IR_MAX_RANK];
  int64_t start[IR_MAX_RANK], step;
  ir_tensor x = of_the_rest(m, m->op.operands[0], rank);
  for (uint32_t i = 0; i < rank; i++) {
    bool taken = m->dims >> i & 1;
    shape[n++] = form_sized(m, taken ? m->op.result : x, i);
    if (!taken) continue;
    check(form_is_step(m->f, &m->op, i, &start[n_taken], &step));
    at[n_taken++] = n;
    shape[n++] = ir_scalar_const(form_scalars(m), step);
  }
  x = form_with_shape(m, IR_OP_RESHAPE, x, shape, n);
  for (uint32_t k = n_taken; k-- > 0;) {
    ir_attr attrs[2] = {{.given = true, .i = at[k]}, {.given = true}};
    attrs[1].scalar = ir_scalar_const(form_scalars(m), start[k]);
    x = form_op(m, IR_OP_SELECT, &x, 1, attrs);
  }
  m->results[0] = x;
}

/* ---- which are wanted ---- */
/* Every k-th position of pieces whose length is a multiple of k, along all dimensions of which that is so. */
bool form_wants_step(form *m, uint32_t rank) {
  ir_scalars *s = &m->f->module->scalars;
  int64_t start, step;
  uint32_t dims = 0, n = rank;
  for (uint32_t i = 0; i < rank; i++) {
    m->dim = i;
    if (!form_is_step(m->f, &m->op, i, &start, &step) || !form_both_cut(m->f, &m->op, i)) continue;
    if (!form_has_pieces(m, m->op.operands[0])) continue;
    if (ir_func_divides(m->f, ir_scalar_const(s, step), m->piece) != IR_TRUE) continue;
    dims |= 1u << i;
    n++;
  }
  m->write = form_step;
  m->dims = dims;
  return dims != 0 && n <= IR_MAX_RANK;
}
