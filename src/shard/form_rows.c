/* Grouped products whose groups are on different devices. Each multiplies the rows of its own groups, the others are 0:
 *
 *     y = grouped_matmul(x, w, index)   =>   y$1 = grouped_matmul(x, w$1, index in the piece, or no group)
 *                                            y = sum(y$1, over the pieces)
 *
 * Elementwise operations and other grouped products with the same index need only these rows, so that nothing is sent
 * between two products, nor for the gradients of their weights:
 *
 *     h = relu(grouped_matmul(x, w, index))     =>   h$1 = relu(x by the device's part of w)   other rows: of 0
 *     y = grouped_matmul(h, v, index)                y = sum(h$1 by the device's part of v, over the devices)
 *     g = grouped_outer(h, dy, index, n)             g = grouped_outer(h$1, dy, index in the piece, n / devices) */
#include "shard/form.h"
#include "shard/internal.h"

enum { DEEPEST = 24 };

typedef struct search {
  const shard_ctx *c;
  form *const *forms;
  const form *m;         /* the product that reads: a grouped_matmul, or a grouped_outer */
  const int64_t *values; /* by symbol: what is expected of it */
} search;

static bool same_groups(const form *a, const form *b) {
  return a->mesh_axis == b->mesh_axis && a->pieces == b->pieces && IR_SAME(a->mesh, b->mesh) &&
         IR_SAME(a->op.operands[2], b->op.operands[2]);
}

/* What else the operation reads is on every device, or less than the rows are. */
static bool is_at_hand(const search *s, ir_tensor x, ir_tensor rows) {
  const ir_func *f = s->c->f;
  return ir_tensor_at(f, x)->kind == IR_TENSOR_CONST ||
         !shard_is_cut(f, x, 1u << s->m->mesh_axis) ||
         2 * ir_tensor_elements(f, x, s->values) <= ir_tensor_elements(f, rows, s->values);
}

/* Is `t` made of such rows, by elementwise operations? */
static bool comes_of_rows(const search *s, ir_tensor t, uint32_t depth) {
  const ir_func *f = s->c->f;
  const ir_op_data *op = form_maker(f, t);
  bool found = false;
  if (!op || depth == 0) return false;
  const form *made = s->forms[ir_tensor_at(f, t)->def.id];
  if (made) return made->write == form_groups && same_groups(made, s->m);
  if (!ir_op_is_elementwise(op->code)) return false;
  for (uint32_t k = 0; k < op->n_operands; k++) {
    ir_tensor x = op->operands[k];
    if (!x.id) continue;
    if (comes_of_rows(s, x, depth - 1)) found = true;
    else if (!is_at_hand(s, x, t)) return false;
  }
  return found;
}

bool form_reads_own_rows(shard_ctx *c, form *const *forms, const form *m) {
  search s = {.c = c, .forms = forms, .m = m};
  s.values = ir_module_usual(c->f->module, c->scratch);
  bool second = m->write == form_outer && comes_of_rows(&s, m->op.operands[1], DEEPEST);
  return second || comes_of_rows(&s, m->op.operands[0], DEEPEST);
}

/* ---- writing ---- */
static ir_tensor rows_of(const form *m, ir_tensor t) {
  for (uint32_t i = 0; i < m->owned->len; i++) {
    const form_rows *o = &m->owned->data[i];
    if (IR_SAME(o->of, t) && same_groups(o->product, m)) return o->rows;
  }
  return (ir_tensor){0};
}

static void keep_rows(form *m, ir_tensor of, ir_tensor rows) {
  vec_push(&m->f->module->memory, m->owned, ((form_rows){of, rows, m}));
}

/* The rows of the device's own groups, of what is made of rows; none: it is not. */
static ir_tensor rebuild(form *m, ir_tensor t, uint32_t depth) {
  ir_tensor rows = rows_of(m, t), operands[IR_MAX_PARAMS];
  const ir_op_data *op = form_maker(m->f, t);
  bool found = false;
  if (rows.id || depth == 0 || !op || !ir_op_is_elementwise(op->code)) return rows;
  ir_op_data copy = *op;
  for (uint32_t k = 0; k < copy.n_operands; k++) {
    ir_tensor x = copy.operands[k], other = {0};
    if (x.id) other = rebuild(m, x, depth - 1);
    found = found || other.id;
    operands[k] = other.id ? other : x;
  }
  if (!found) return rows;
  rows = form_op(m, copy.code, operands, copy.n_operands, copy.attrs);
  keep_rows(m, t, rows);
  return rows;
}

/* These rows where the product needs no others, as [pieces, rows, columns]; otherwise `x`. */
static ir_tensor own_rows(form *m, ir_tensor x) {
  ir_tensor rows = m->reads_own_rows ? rebuild(m, x, DEEPEST) : (ir_tensor){0};
  return rows.id ? rows : x;
}

/* The group of each row within the device's own; the number of these where it is another's. */
static ir_tensor own_index(form *m) {
  form_places p = form_places_of(m, m->op.operands[2], 2, 2);
  ir_tensor choice[3] = {p.inside, p.index, form_extent(m, m->piece)};
  return form_op(m, IR_OP_WHERE, choice, 3, NULL);
}

void form_groups(form *m) {
  ir_tensor x = m->op.operands[0], w = m->op.operands[1];
  ir_scalar shape[4] = {ir_scalar_const(form_scalars(m), m->pieces), m->piece, form_sized(m, w, 1),
                        form_sized(m, w, 2)};
  ir_tensor own = form_with_shape(m, IR_OP_RESHAPE, w, shape, 4);
  m->cuts[m->n_cuts++] = own;
  ir_tensor parts[3] = {own_rows(m, x), own, own_index(m)};
  ir_tensor rows = form_op(m, IR_OP_GROUPED_MATMUL, parts, 3, m->op.attrs);
  m->results[0] =
      form_cast(m, form_reduce(m, IR_OP_SUM, rows, 1), ir_tensor_at(m->f, m->op.result)->dtype);
  keep_rows(m, m->results[0], rows);
}

void form_outer(form *m) {
  const ir_attr *n = ir_op_attr(&m->op, "n");
  uint32_t n_attrs = ir_op_info_of(m->op.code)->n_attrs;
  ir_tensor parts[3];
  for (uint32_t k = 0; k < 2; k++) parts[k] = own_rows(m, m->op.operands[k]);
  parts[2] = own_index(m);
  ir_attr *attrs = arena_copy(&m->f->module->memory, m->op.attrs, n_attrs * sizeof *attrs);
  attrs[n - m->op.attrs].scalar = m->piece;
  m->results[0] = form_in_one(m, form_op(m, IR_OP_GROUPED_OUTER, parts, 3, attrs), 3);
}

/* ---- which are wanted ---- */
/* Weights of groups are cut along the groups, without batches. */
bool form_wants_groups(form *m, uint32_t rank) {
  if (!form_reduces_plainly(m->f, m->op.result)) return false;
  ir_axis dims[IR_MAX_RANK];
  ir_tensor weight = m->op.operands[1];
  m->write = form_groups;
  m->dims = 1;
  bool plain = rank == 2 && ir_tensor_dims(m->f, weight, dims) == 3 &&
               ir_tensor_dims(m->f, m->op.operands[2], dims) == 1;
  return plain && form_has_pieces(m, weight) && form_moves_less(m, weight);
}

/* The gradient of such weights, which lies as they do. Without rows that are at hand it is computed where it is as well. */
bool form_wants_outer(form *m, uint32_t rank) {
  if (!form_reduces_plainly(m->f, m->op.result)) return false;
  ir_axis dims[IR_MAX_RANK];
  m->write = form_outer;
  m->dims = 1;
  bool plain = rank == 2 && ir_tensor_dims(m->f, m->op.operands[1], dims) == 2 &&
               ir_tensor_dims(m->f, m->op.operands[2], dims) == 1;
  return plain && form_has_pieces(m, m->op.result);
}
