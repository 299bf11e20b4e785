/* Attention where keys and values lie on different devices, or have fewer heads than there are devices. */
#include "ir/build.h"
#include "shard/form.h"
#include "shard/internal.h"

static ir_tensor number(form *m, int64_t n) { return form_number(m, ir_number_int(n)); }

static const ir_attr *attrs_of(const form *m) { return m->op.attrs; }

/* ---- fewer heads than devices, or others than these divide ---- */
/* The head that each part of the heads of q reads: part i reads head i / (parts / heads). */
static ir_tensor head_of_part(form *m) {
  ir_attr attrs[2] = {{.given = true, .scalar = ir_scalar_const(form_scalars(m), m->parts)}};
  ir_tensor part = form_op(m, IR_OP_IOTA, NULL, 0, attrs);
  return form_cast(m, form_binary(m, IR_OP_DIV, part, number(m, m->parts / m->heads)), IR_I64);
}

/* Each device has those of its own heads of q: one, or a range of them. */
static ir_tensor heads_for_parts(form *m, ir_tensor k, ir_tensor index) {
  ir_tensor both[2] = {k, index};
  ir_attr attr = {.given = true, .i = m->dim};
  ir_tensor heads = form_op(m, IR_OP_INDEX_SELECT, both, 2, &attr);
  if (m->parts == m->pieces) m->cuts[m->n_cuts++] = heads;
  else m->evened[m->n_evened++] = heads;
  return heads;
}

/* Further results of the operation that makes `first`, named after those that they lead to. */
static const ir_tensor *more_results(form *m, ir_tensor first, uint32_t n) {
  uint32_t names[IR_MAX_RESULTS];
  for (uint32_t k = 0; k < n; k++) {
    ir_tensor for_it = k < m->op.n_more ? m->op.more[k] : m->op.result;
    names[k] = ir_func_fresh_name(m->f, ir_tensor_at(m->f, for_it)->name);
  }
  check(ir_build_more(m->f, first, names, n, m->op.at));
  return ir_op_at(m->f, ir_tensor_at(m->f, first)->def)->more;
}

/* The operation with its operands, but for keys and values of each part. */
static ir_tensor with_heads_for_parts(form *m) {
  ir_tensor all[IR_MAX_RANK], index = head_of_part(m);
  for (uint32_t k = 0; k < m->op.n_operands; k++) all[k] = m->op.operands[k];
  for (uint32_t k = 1; k < 3; k++) all[k] = heads_for_parts(m, all[k], index);
  return form_op(m, m->op.code, all, m->op.n_operands, attrs_of(m));
}

/*     y = sdpa(q[8 mesh.x, ..], k[2, ..], v)   on 4 devices
 *       =>   y = sdpa(q, index_select(k, [0, 0, 1, 1]), index_select(v, [0, 0, 1, 1]))
 *     y = sdpa(q[6 mesh.x, ..], k[3, ..], v)   on 2 devices, of which each reads two heads
 *       =>   y = sdpa(q, index_select(k, [0, 0, 1, 1, 2, 2]), ..), three for each of them */
void form_heads(form *m) {
  m->results[0] = with_heads_for_parts(m);
  if (m->op.n_more) m->results[1] = *more_results(m, m->results[0], 1);
}

/* Gradients of the heads that parts read, added up for each head: [.., parts, s, e] as [..,
 * heads, s, e]. */
static ir_tensor added_by_head(form *m, ir_tensor parts) {
  uint32_t rank = form_rank(m) + 1;
  ir_tensor all = form_keep(m, parts, 1u << (m->dim + 1), rank);
  ir_attr heads[2] = {{.given = true, .scalar = ir_scalar_const(form_scalars(m), m->heads)}};
  if (m->heads > 1) {
    ir_tensor reads = form_keep(m, head_of_part(m), ((1u << rank) - 1) & ~(1u << m->dim), rank);
    ir_tensor head = form_op(m, IR_OP_IOTA, NULL, 0, heads);
    head = form_keep(m, head, ((1u << rank) - 1) & ~(1u << (m->dim + 1)), rank);
    all = form_or_zero(m, form_binary(m, IR_OP_EQ, reads, head), all);
  }
  return form_reduce(m, IR_OP_SUM, all, 1u << m->dim);
}

/*     dq, dk, dv = sdpa_backward(q[8 mesh.x, ..], k[2, ..], v, ..)   on 4 devices: likewise, and
 *       =>   dk = sum(where(part / 2 == head, dk of the part, 0)), which is reduced across devices */
void form_heads_backward(form *m) {
  m->results[0] = with_heads_for_parts(m);
  if (m->op.n_more == 0) return;
  const ir_tensor *parts = more_results(m, m->results[0], m->op.n_more);
  for (uint32_t k = 0; k < m->op.n_more; k++) m->results[1 + k] = added_by_head(m, parts[k]);
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
  ir_tensor out = form_op(m, IR_OP_SDPA, all, 3, attrs_of(m)), lse = *more_results(m, out, 1);
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

/* ---- gradients of positions on different devices ---- */
/* [.., s, e] of every piece: [n, .., s, e]. */
static ir_tensor for_pieces(form *m, ir_tensor x) {
  ir_scalar shape[IR_MAX_RANK];
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(m->f, x, dims) + 1;
  ir_tensor one = form_keep(m, x, 1, rank);
  for (uint32_t i = 0; i < rank; i++)
    shape[i] = i ? form_sized(m, one, i) : ir_scalar_const(form_scalars(m), m->pieces);
  return form_with_shape(m, IR_OP_EXPAND, one, shape, rank);
}

/* [n, .., s / n, e] as [.., s, e]. */
static ir_tensor pieces_in_place(form *m, ir_tensor x) {
  uint32_t rank = form_rank(m);
  int64_t *order = ARENA_ARRAY(&m->f->module->memory, IR_MAX_RANK, int64_t);
  for (uint32_t i = 0; i <= rank; i++) order[i] = i < m->dim ? i + 1 : i == m->dim ? 0 : i;
  ir_attr permute = {.given = true, .len = rank + 1, .ints = order};
  return form_in_one(m, form_op(m, IR_OP_PERMUTE, &x, 1, &permute), rank);
}

/* Has the operand, or the gradient, a row for each query, and not for each key? */
static bool operand_of_queries(uint32_t k) { return k == 0 || k > 2; }
static bool gradient_of_queries(uint32_t k) { return k == 0; }

/* Each device has some of the queries, or of the keys; of the others it has part of the gradients. */
static void write_gradients(form *m, bool queries) {
  ir_tensor all[6], results[IR_MAX_RESULTS];
  for (uint32_t k = 0; k < 6; k++) {
    bool own = operand_of_queries(k) == queries;
    all[k] = own ? pieces_first(m, m->op.operands[k]) : for_pieces(m, m->op.operands[k]);
  }
  results[0] = form_op(m, m->op.code, all, 6, attrs_of(m));
  if (m->op.n_more) {
    const ir_tensor *more = more_results(m, results[0], m->op.n_more);
    for (uint32_t k = 0; k < m->op.n_more; k++) results[1 + k] = more[k];
  }
  for (uint32_t k = 0; k <= m->op.n_more; k++)
    m->results[k] = gradient_of_queries(k) == queries ? pieces_in_place(m, results[k])
                                                      : form_reduce(m, IR_OP_SUM, results[k], 1);
}

/*     dq, dk, dv = sdpa_backward(q[h, s mesh.x, e], k, v, ..)
 *       =>   dq, dk$1, dv$1 = sdpa_backward of each piece of the queries;  dk = sum(dk$1, over the pieces) */
void form_queries(form *m) { write_gradients(m, true); }
void form_keys(form *m) { write_gradients(m, false); }

/* ---- which are wanted ---- */
static bool const_dim(const form *m, ir_tensor t, uint32_t dim, int64_t *n) {
  ir_axis dims[IR_MAX_RANK];
  (void)ir_tensor_dims(m->f, t, dims);
  return ir_scalar_is_const(&m->f->module->scalars, ir_axis_size(m->f, dims[dim]), n);
}

/* Heads of q are cut into pieces, and those of k are not as many: parts of pieces read one of them each. */
static bool wants_heads(form *m, uint32_t rank, void (*write)(form *)) {
  const ir_op_data *op = &m->op;
  int64_t heads, pieces;
  m->dim = rank - 3;
  m->dims = 1u << m->dim;
  m->write = write;
  if (!form_has_pieces(m, op->operands[0]) || !form_both_cut(m->f, op, m->dim)) return false;
  if (shard_is_cut(m->f, op->operands[1], 1u << m->mesh_axis)) return false;
  if (shard_is_cut(m->f, op->operands[2], 1u << m->mesh_axis)) return false;
  if (!const_dim(m, op->operands[1], m->dim, &m->heads) || m->heads < 1) return false;
  if (!const_dim(m, op->operands[2], m->dim, &heads) || heads != m->heads) return false;
  if (!ir_scalar_is_const(&m->f->module->scalars, m->piece, &pieces) || pieces < 1) return false;
  m->parts = m->heads / ir_gcd(m->heads, m->pieces) * m->pieces;
  return m->heads % m->pieces != 0;
}

/* Keys and values are cut along their positions; of few queries, results are fewer bytes than these. */
static bool wants_positions(form *m, uint32_t rank) {
  const ir_op_data *op = &m->op;
  double wide = (double)ir_dtype_size_bytes(m->wide);
  double size = (double)ir_dtype_size_bytes(ir_tensor_at(m->f, op->operands[1])->dtype);
  form values = *m;
  m->dim = values.dim = rank - 2;
  m->dims = 1u << m->dim;
  m->write = form_attention;
  if (ir_op_attr(op, "causal")->i || !form_has_pieces(m, op->operands[1])) return false;
  if (!form_has_pieces(&values, op->operands[2]) || values.mesh_axis != m->mesh_axis) return false;
  if (shard_is_cut(m->f, op->operands[0], 1u << m->mesh_axis)) return false;
  double queries = form_usual(m, form_sized(m, op->operands[0], m->dim));
  return 2 * queries * wide < form_usual(m, m->length) * size;
}

static bool has_heads(const form *m, uint32_t rank) {
  ir_axis dims[IR_MAX_RANK];
  return rank >= 3 && rank == ir_tensor_dims(m->f, m->op.operands[1], dims) &&
         rank == ir_tensor_dims(m->f, m->op.operands[2], dims);
}

bool form_wants_attention(form *m, uint32_t rank) {
  return has_heads(m, rank) && (wants_heads(m, rank, form_heads) || wants_positions(m, rank));
}

/* On all devices along the mesh axis together, for the usual extents. */
static double usual_bytes(const form *m, ir_tensor t) {
  int64_t size = (int64_t)ir_dtype_size_bytes(ir_tensor_at(m->f, t)->dtype);
  return form_usual(m, form_bytes(m->ctx, t, m->mesh_axis, size));
}

/* Is it cut along the mesh axis of the form, by its positions? */
static bool cut_by_positions(const form *m, ir_tensor t) {
  return form_cuts_of(m->f, t, m->dim) >> m->mesh_axis & 1;
}

/* What is brought and reduced, but for (n - 1) / n of it, if each device has pieces of the queries, or of the keys. */
static double bytes_of_parts(const form *m, bool queries) {
  double sum = 0;
  for (uint32_t k = 0; k < m->op.n_operands; k++) {
    ir_tensor t = m->op.operands[k];
    bool there = operand_of_queries(k) == queries && cut_by_positions(m, t);
    if (!there && shard_is_cut(m->f, t, 1u << m->mesh_axis)) sum += usual_bytes(m, t);
  }
  for (uint32_t k = 0; k <= m->op.n_more; k++) {
    ir_tensor t = ir_op_result(&m->op, k);
    bool in_parts = gradient_of_queries(k) != queries;
    bool cut = shard_is_cut(m->f, t, 1u << m->mesh_axis);
    if (in_parts || !cut_by_positions(m, t)) sum += usual_bytes(m, t) * (in_parts && !cut ? 2 : 1);
  }
  return sum;
}

/* The same if all that is cut is exchanged for pieces along another dimension; if there is none, gathered. */
static double bytes_without(const form *m) {
  double cut = 0, whole = 0;
  uint32_t at;
  bool turns = shard_turn_of(m->f, &m->op, m->mesh, m->mesh_axis, &at);
  for (uint32_t k = 0; k < m->op.n_operands; k++)
    if (shard_is_cut(m->f, m->op.operands[k], 1u << m->mesh_axis))
      cut += usual_bytes(m, m->op.operands[k]);
  for (uint32_t k = 0; turns && k <= m->op.n_more; k++) {
    ir_tensor t = ir_op_result(&m->op, k);
    bool stays = shard_is_cut(m->f, t, 1u << m->mesh_axis);
    *(stays ? &cut : &whole) += usual_bytes(m, t);
  }
  return turns ? cut / (double)m->pieces + whole : cut;
}

/* Queries, or keys, are cut along their positions: the gradients of the others are added up. */
static bool wants_parts(form *m, uint32_t rank, bool queries) {
  m->dim = rank - 2;
  m->dims = 1u << m->dim;
  m->write = queries ? form_queries : form_keys;
  if (ir_op_attr(&m->op, "causal")->i || !form_has_pieces(m, m->op.operands[queries ? 0 : 1]))
    return false;
  double parts = bytes_of_parts(m, queries);
  if (parts >= bytes_without(m)) return false;
  form other = *m;
  return !form_has_pieces(&other, m->op.operands[queries ? 1 : 0]) ||
         other.mesh_axis != m->mesh_axis || parts <= bytes_of_parts(m, !queries);
}

bool form_wants_attention_backward(form *m, uint32_t rank) {
  if (rank >= IR_MAX_RANK || !has_heads(m, rank)) return false;
  form heads = *m, queries = *m;
  if (wants_heads(&heads, rank, form_heads_backward)) *m = heads;
  else if (wants_parts(&queries, rank, true)) *m = queries;
  else return wants_parts(m, rank, false);
  return true;
}
