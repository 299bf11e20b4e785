/* Rows of grouped products that stay with their groups. A product whose weights are on different devices leaves
 * each device with the rows of its own groups, and their sum over the devices is the result. Elementwise operations
 * and another product with the same index need only these rows, so that nothing is sent between the two:
 *
 *     h = relu(grouped_matmul(x, w, index))     =>   h$1 = relu(x by the device's part of w)   other rows: of 0
 *     y = grouped_matmul(h, v, index)                y = sum(h$1 by the device's part of v, over the devices) */
#include "shard/form.h"
#include "shard/internal.h"

enum { DEEPEST = 24 };

typedef struct search {
  const shard_ctx *c;
  form *const *forms;
  const form *m;         /* the product that reads */
  const int64_t *values; /* by symbol: what is expected of it */
} search;

static bool is_like(const form *a, const form *b) {
  return a->write == form_groups && a->mesh_axis == b->mesh_axis && a->pieces == b->pieces &&
         IR_SAME(a->mesh, b->mesh) && IR_SAME(a->op.operands[2], b->op.operands[2]);
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
  if (made) return is_like(made, s->m);
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
  return comes_of_rows(&s, m->op.operands[0], DEEPEST);
}

/* ---- writing ---- */
static ir_tensor rows_of(const form *m, ir_tensor t) {
  for (uint32_t i = 0; i < m->owned->len; i++) {
    const form *made = m->owned->data[i];
    if (IR_SAME(made->results[0], t) && is_like(made, m)) return made->rows;
  }
  return (ir_tensor){0};
}

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
  return found ? form_op(m, copy.code, operands, copy.n_operands, copy.attrs) : rows;
}

ir_tensor form_own_rows(form *m, ir_tensor x) {
  ir_tensor rows = m->reads_own_rows ? rebuild(m, x, DEEPEST) : (ir_tensor){0};
  return rows.id ? rows : x;
}
