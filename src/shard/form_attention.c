/* Attention where keys and values lie on different devices, or have fewer heads than there are devices. */
#include "ir/build.h"
#include "shard/form.h"

static ir_tensor number(form *m, int64_t n) { return form_number(m, ir_number_int(n)); }

static const ir_attr *attrs_of(const form *m) { return m->op.attrs; }

/* ---- fewer heads than devices ---- */
/* Heads of k, one for each piece of the heads of q: piece i reads head i / (pieces / heads). */
static ir_tensor heads_for_pieces(form *m, ir_tensor k, ir_tensor index) {
  ir_tensor both[2] = {k, index};
  ir_attr attr = {.given = true, .i = m->dim};
  m->cuts[m->n_cuts++] = form_op(m, IR_OP_INDEX_SELECT, both, 2, &attr);
  return m->cuts[m->n_cuts - 1];
}

/*     y = sdpa(q[8 mesh.x, ..], k[2, ..], v)   on 4 devices
 *       =>   y = sdpa(q, index_select(k, [0, 0, 1, 1]), index_select(v, [0, 0, 1, 1])) */
void form_heads(form *m) {
  ir_attr attrs[2] = {{.given = true, .scalar = ir_scalar_const(form_scalars(m), m->pieces)}};
  ir_tensor piece = form_op(m, IR_OP_IOTA, NULL, 0, attrs);
  ir_tensor share = number(m, m->pieces / m->heads);
  ir_tensor index = form_cast(m, form_binary(m, IR_OP_DIV, piece, share), IR_I64);
  ir_tensor all[3] = {m->op.operands[0], heads_for_pieces(m, m->op.operands[1], index),
                      heads_for_pieces(m, m->op.operands[2], index)};
  m->results[0] = form_op(m, IR_OP_SDPA, all, 3, attrs_of(m));
}

/* ---- positions on different devices ---- */
/* [.., s, e] as [n, .., s / n, e]. */
static ir_tensor pieces_first(form *m, ir_tensor k) {
  ir_axis dims[IR_MAX_RANK];
  ir_scalar *shape = ARENA_ARRAY(&m->f->module->memory, IR_MAX_RANK, ir_scalar);
  int64_t *order = ARENA_ARRAY(&m->f->module->memory, IR_MAX_RANK, int64_t);
  uint32_t rank = ir_tensor_dims(m->f, k, dims), n = 0;
  order[0] = m->dim;
  for (uint32_t i = 0; i < rank; i++) {
    if (i == m->dim) shape[n++] = ir_scalar_const(form_scalars(m), m->pieces);
    shape[n++] = i == m->dim ? m->piece : ir_axis_size(m->f, dims[i]);
    order[i + 1] = i < m->dim ? i : i + 1;
  }
  ir_attr reshape = {.given = true, .len = n, .scalars = shape};
  ir_attr permute = {.given = true, .len = n, .ints = order};
  m->cuts[m->n_cuts++] = form_op(m, IR_OP_RESHAPE, &k, 1, &reshape);
  return form_op(m, IR_OP_PERMUTE, &m->cuts[m->n_cuts - 1], 1, &permute);
}

/* The same for every position of a new last dimension. */
static ir_tensor per_row(form *m, ir_tensor x, uint32_t rank) {
  return form_keep(m, x, 1u << (rank - 1), rank);
}

static ir_tensor weighted(form *m, ir_tensor out, ir_tensor weight, uint32_t rank) {
  ir_tensor w = per_row(m, weight, rank);
  ir_tensor none =
      form_binary(m, IR_OP_EQ, w, number(m, 0)); /* whatever a piece without any says */
  ir_tensor choice[3] = {none, form_number(m, ir_number_float(0)),
                         form_binary(m, IR_OP_MUL, out, w)};
  return form_op(m, IR_OP_WHERE, choice, 3, NULL);
}

/* Every device attends to its own keys; results count by what the sums of their exponentials are:
 *     out_i, lse_i = sdpa(q, k_i, v_i);  w_i = exp(lse_i - max lse);  y = sum(w_i out_i) / sum(w_i) */
void form_attention(form *m) {
  uint32_t rank = form_rank(m) + 1;
  ir_tensor all[3] = {form_keep(m, m->op.operands[0], 1, rank), pieces_first(m, m->op.operands[1]),
                      pieces_first(m, m->op.operands[2])};
  ir_tensor out = form_op(m, IR_OP_SDPA, all, 3, attrs_of(m));
  uint32_t name = ir_func_fresh_name(m->f, ir_tensor_at(m->f, m->op.result)->name);
  check(ir_build_more(m->f, out, &name, 1, m->op.at));
  ir_tensor lse = ir_op_at(m->f, ir_tensor_at(m->f, out)->def)->more[0];
  ir_tensor top = form_greatest(m, lse, 1);
  ir_tensor w = form_binary(m, IR_OP_SUB, lse, form_keep(m, top, 1, rank - 1));
  w = form_unary(m, IR_OP_EXP, w);
  ir_tensor sum = form_reduce(m, IR_OP_SUM, w, 1);
  ir_tensor y = weighted(m, form_cast(m, out, m->wide), w, rank);
  y = form_binary(m, IR_OP_DIV, form_reduce(m, IR_OP_SUM, y, 1), per_row(m, sum, rank - 1));
  m->results[0] = form_cast(m, y, ir_tensor_at(m->f, m->op.result)->dtype);
  if (m->op.n_more == 0) return;
  m->results[1] = form_binary(m, IR_OP_ADD, top, form_unary(m, IR_OP_LOG, sum));
}
