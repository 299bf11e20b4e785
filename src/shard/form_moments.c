/* Reductions that keep their dimensions, moments, softmax and norms. Sums are taken in the wide dtype and
 * results rounded once, as the operations themselves do. */
#include "shard/form.h"

static bool keeps(const form *m) { return ir_op_attr(&m->op, "keepdim")->i != 0; }

/*     y = sum(x, keepdim=true)   =>   y$1 = sum(x);  y = broadcast(y$1, [true, false]) */
void form_kept_reduction(form *m) {
  ir_tensor r = form_reduce(m, m->op.code, m->op.operands[0], m->dims);
  m->results[0] = form_keep(m, r, m->dims, form_rank(m));
}

/* The sum of x divided by n. */
static ir_tensor average(form *m, ir_tensor x, ir_scalar n) {
  return form_binary(m, IR_OP_DIV, form_reduce(m, IR_OP_SUM, x, m->dims), form_extent(m, n));
}

/* x minus what is the same along the reduced dimensions. */
static ir_tensor apart(form *m, ir_tensor x, ir_tensor center) {
  return form_binary(m, IR_OP_SUB, x, form_keep(m, center, m->dims, form_rank(m)));
}

static ir_tensor squares(form *m, ir_tensor x) { return form_binary(m, IR_OP_MUL, x, x); }

static void give(form *m, uint32_t k, ir_tensor r) {
  if (k >= ir_op_n_results(&m->op)) return;
  r = form_cast(m, r, ir_tensor_at(m->f, ir_op_result(&m->op, k))->dtype);
  m->results[k] = keeps(m) ? form_keep(m, r, m->dims, form_rank(m)) : r;
}

/*     mean:  y$1 = sum(x);  y = y$1 / n
 *     var:   the mean first, then the mean of the squared distances from it: two small reductions */
void form_moment(form *m) {
  ir_scalars *s = &m->f->module->scalars;
  ir_tensor x = form_cast(m, m->op.operands[0], m->wide);
  ir_tensor mean = average(m, x, form_count(m));
  if (m->op.code == IR_OP_MEAN) {
    give(m, 0, mean);
    return;
  }
  ir_scalar lost = ir_scalar_const(s, ir_op_attr(&m->op, "correction")->i);
  ir_scalar left = ir_scalar_max(s, ir_scalar_sub(s, form_count(m), lost), ir_scalar_const(s, 0));
  if (ir_op_attr(&m->op, "correction")->i == 0) left = form_count(m);
  give(m, 0, average(m, squares(m, apart(m, x, mean)), left));
  give(m, 1, mean);
}

/*     y = softmax(x)   =>   e = exp(x - amax(x));  y = e / sum(e) */
void form_softmax(form *m) {
  ir_tensor x = form_cast(m, m->op.operands[0], m->wide);
  ir_tensor e = form_unary(m, IR_OP_EXP, apart(m, x, form_greatest(m, x, m->dims)));
  ir_tensor sum = form_reduce(m, IR_OP_SUM, e, m->dims);
  ir_tensor y = form_binary(m, IR_OP_DIV, e, form_keep(m, sum, m->dims, form_rank(m)));
  m->results[0] = form_cast(m, y, ir_tensor_at(m->f, m->op.result)->dtype);
}

/*     layer_norm:  c = x - mean(x);  y = c * rsqrt(mean(c * c) + eps) * weight + bias
 *     rms_norm:                      y = x * rsqrt(mean(x * x) + eps) * weight */
void form_norm(form *m) {
  ir_tensor x = form_cast(m, m->op.operands[0], m->wide), y, weight, bias = {0};
  bool centered = m->op.code == IR_OP_LAYER_NORM;
  if (centered) x = apart(m, x, average(m, x, form_count(m)));
  ir_tensor eps = form_number(m, ir_op_attr(&m->op, "eps")->number);
  ir_tensor power = average(m, squares(m, x), form_count(m));
  ir_tensor scale = form_unary(m, IR_OP_RSQRT, form_binary(m, IR_OP_ADD, power, eps));
  y = form_binary(m, IR_OP_MUL, x, form_keep(m, scale, m->dims, form_rank(m)));
  weight = ir_op_operand(&m->op, "weight");
  if (centered) bias = ir_op_operand(&m->op, "bias");
  if (weight.id) y = form_binary(m, IR_OP_MUL, y, weight);
  if (bias.id) y = form_binary(m, IR_OP_ADD, y, bias);
  m->results[0] = form_cast(m, y, ir_tensor_at(m->f, m->op.result)->dtype);
}

/* ---- which are wanted ---- */
/* The dimensions that `dims` names. */
static uint32_t listed_dims(const ir_op_data *op, uint32_t rank) {
  const ir_attr *list = ir_op_attr(op, "dims");
  uint32_t mask = 0;
  if (!list->given) return (1u << rank) - 1;
  for (uint32_t i = 0; i < list->len; i++) mask |= 1u << form_position(list->ints[i], rank);
  return mask;
}

static bool any_cut(const ir_func *f, const ir_op_data *op, uint32_t dims) {
  for (; dims; dims &= dims - 1) {
    if (form_cuts_of(f, op->operands[0], (uint32_t)__builtin_ctz(dims))) return true;
  }
  return false;
}

bool form_wants_reduction(form *m, uint32_t rank) {
  bool moment = ir_op_info_of(m->op.code)->family == IR_FAMILY_MOMENT;
  bool kept = ir_op_attr(&m->op, "keepdim")->i != 0;
  m->write = moment ? form_moment : form_kept_reduction;
  m->dims = listed_dims(&m->op, rank);
  if (!moment && !kept) return false; /* has partial results as it is */
  return any_cut(m->f, &m->op, m->dims) && form_pays(m, moment && m->op.code != IR_OP_MEAN ? 2 : 1);
}

bool form_wants_rows(form *m, uint32_t rank) {
  bool norm = ir_op_info_of(m->op.code)->family == IR_FAMILY_NORM;
  uint32_t dim = norm ? rank - 1 : form_position(ir_op_attr(&m->op, "dim")->i, rank);
  m->write = norm ? form_norm : form_softmax;
  m->dims = 1u << dim;
  return form_both_cut(m->f, &m->op, dim) && form_pays(m, m->op.code == IR_OP_RMS_NORM ? 1 : 2);
}
