/* Operations with several operands whose shapes belong together: indexed ones, matmuls, models. */
#include <math.h>
#include <string.h>

#include "gen_model.h"

static void add_dim(model_tensor *t, model_dim d) { t->dims[t->rank++] = d; }

static model_dim plain(model_dim d) {
  d.one = false;
  return d;
}

static void write_axis(model *m, model_tensor *t, const char *name, uint32_t axis, uint32_t rank) {
  char text[8];
  expr_printf(t, ", %s=%s)", name, axis_text(m, axis, rank, text));
}

/* ---- indexed ---- */
static uint32_t index_input(model *m, const model_dim *dims, uint32_t rank, int64_t bound) {
  uint32_t who = model_input(m, chance(m, 50) ? IR_I64 : IR_I32, dims, rank);
  m->tensors[who].fill = GEN_FILL_INDEX;
  m->tensors[who].index_bound = bound;
  m->tensors[who].bound = (double)bound;
  return who;
}

/* A dim no longer than `d`. */
static model_dim shorter(model *m, const model_dim *d) {
  return d->size > 2 && chance(m, 30) ? dim_const(2 + below(m, (uint32_t)d->size - 1)) : *d;
}

/* The index of gather and scatter: as long as wanted along `dim`, no longer than x elsewhere. */
static uint32_t index_like(model *m, const model_tensor *x, uint32_t dim) {
  model_dim dims[GEN_MAX_RANK];
  for (uint32_t i = 0; i < x->rank; i++)
    dims[i] = i == dim ? plain(dim_random(m)) : shorter(m, &x->dims[i]);
  if (dims[dim].size == 1) dims[dim] = dim_const(3);
  return index_input(m, dims, x->rank, x->dims[dim].size);
}

static bool make_gather(model *m, model_tensor *t, uint32_t who, uint32_t dim) {
  uint32_t index = index_like(m, &m->tensors[who], dim);
  model_use(m, t, who);
  expr_printf(t, ", ");
  model_use(m, t, index);
  for (uint32_t i = 0; i < m->tensors[index].rank; i++)
    add_dim(t, plain(m->tensors[index].dims[i]));
  return true;
}

static bool make_scatter(model *m, model_tensor *t, uint32_t who, uint32_t dim) {
  uint32_t index = index_like(m, &m->tensors[who], dim);
  const model_tensor *at = &m->tensors[index];
  uint32_t src = model_input(m, m->tensors[who].dtype, at->dims, at->rank);
  const model_tensor *x = &m->tensors[who];
  model_use(m, t, who);
  expr_printf(t, ", ");
  model_use(m, t, index);
  expr_printf(t, ", ");
  model_use(m, t, src);
  t->bound = fmax(x->bound, m->tensors[src].bound);
  if (t->adds) t->bound = x->bound + (double)at->dims[dim].size * m->tensors[src].bound;
  for (uint32_t i = 0; i < x->rank; i++) add_dim(t, plain(x->dims[i]));
  return true;
}

/* A part of x along `dim`, as long as x elsewhere, at a position that leaves room for it. */
static bool make_update(model *m, model_tensor *t, uint32_t who, uint32_t dim) {
  model_dim dims[GEN_MAX_RANK];
  const model_tensor *x = &m->tensors[who];
  uint32_t rank = x->rank;
  for (uint32_t i = 0; i < rank; i++) dims[i] = plain(x->dims[i]);
  int64_t size = x->dims[dim].size, some = 1 + below(m, (uint32_t)size);
  dims[dim] = plain(dim_const(some));
  uint32_t src = model_input(m, x->dtype, dims, rank);
  uint32_t at = index_input(m, NULL, 0, size - some + 1);
  x = &m->tensors[who];
  model_use(m, t, who);
  expr_printf(t, ", ");
  model_use(m, t, src);
  expr_printf(t, ", ");
  model_use(m, t, at);
  t->bound = fmax(x->bound, m->tensors[src].bound);
  for (uint32_t i = 0; i < rank; i++) {
    model_dim d = plain(x->dims[i]);
    d.one = d.size == 1 && dim_is_const(&d);
    add_dim(t, d);
  }
  return true;
}

static bool make_index_select(model *m, model_tensor *t, uint32_t who, uint32_t dim) {
  model_dim length = plain(dim_random(m));
  uint32_t index = index_input(m, &length, 1, m->tensors[who].dims[dim].size);
  const model_tensor *x = &m->tensors[who];
  model_use(m, t, who);
  expr_printf(t, ", ");
  model_use(m, t, index);
  for (uint32_t i = 0; i < x->rank; i++)
    add_dim(t, i == dim ? plain(m->tensors[index].dims[0]) : x->dims[i]);
  return true;
}

/* Where two positions scatter to one place, the order decides: for exact_only they add. */
bool make_indexed(model *m, model_tensor *t) {
  t->adds = t->op == IR_OP_SCATTER && (m->options.exact_only || chance(m, 50));
  uint32_t who = model_pick(m, wants_any, 1, 4);
  uint32_t rank = m->tensors[who].rank, dim = below(m, rank);
  if (m->tensors[who].dims[dim].size == 0 || m->n_inputs > 12) return false;
  t->dtype = m->tensors[who].dtype;
  t->bound = m->tensors[who].bound;
  expr_printf(t, "%s(", ir_op_info_of(t->op)->name);
  bool ok = t->op == IR_OP_GATHER    ? make_gather(m, t, who, dim)
            : t->op == IR_OP_SCATTER ? make_scatter(m, t, who, dim)
            : t->op == IR_OP_UPDATE  ? make_update(m, t, who, dim)
                                     : make_index_select(m, t, who, dim);
  if (t->adds) expr_printf(t, ", reduce=add");
  write_axis(m, t, "dim", dim, rank);
  return ok;
}

bool make_one_hot(model *m, model_tensor *t) {
  model_dim dims[3], n = plain(dim_random(m));
  uint32_t rank = below(m, 4);
  if (m->n_inputs > 12 || n.size == 0) return false;
  for (uint32_t i = 0; i < rank; i++) dims[i] = dim_random(m);
  uint32_t index = index_input(m, dims, rank, n.size);
  for (uint32_t i = 0; i < rank; i++) add_dim(t, m->tensors[index].dims[i]);
  n.one = n.size == 1 && dim_is_const(&n);
  add_dim(t, n);
  t->dtype = chance(m, 40) ? IR_I64 : dtype_random(m);
  t->bound = 1;
  expr_printf(t, "one_hot(");
  model_use(m, t, index);
  expr_printf(t, ", %s", n.text);
  if (t->dtype != IR_I64 || chance(m, 30)) expr_printf(t, ", dtype=%s", ir_dtype_text(t->dtype));
  expr_printf(t, ")");
  return true;
}

/* Lengths that leave room in n, whatever they are. */
bool make_group_index(model *m, model_tensor *t) {
  model_dim dims[3], n = plain(dim_random(m));
  uint32_t rank = 1 + below(m, 3);
  if (m->n_inputs > 12) return false;
  for (uint32_t i = 0; i < rank; i++) dims[i] = plain(dim_random(m));
  int64_t groups = dims[rank - 1].size;
  uint32_t lengths = index_input(m, dims, rank, groups > 0 ? n.size / groups + 1 : 1);
  for (uint32_t i = 0; i + 1 < rank; i++) add_dim(t, m->tensors[lengths].dims[i]);
  n.one = n.size == 1 && dim_is_const(&n);
  add_dim(t, n);
  t->dtype = IR_I64;
  t->bound = (double)groups;
  expr_printf(t, "group_index(");
  model_use(m, t, lengths);
  expr_printf(t, ", %s)", n.text);
  return true;
}

/* ---- along one axis, in order ---- */
/* At most as many as there are: a number, or the extent itself. */
static model_dim some_of(model *m, const model_dim *d) {
  model_dim n = d->text[0] && chance(m, 30) ? *d : dim_const(below(m, (uint32_t)d->size + 1));
  n.one = n.size == 1 && dim_is_const(&n);
  return n;
}

static ir_dtype ordered_dtype(ir_opcode op, const model_tensor *x) {
  if (op == IR_OP_TOPK) return x->dtype;
  return op == IR_OP_CUMSUM && wants_float(x) ? x->dtype : IR_I64;
}

bool make_ordered(model *m, model_tensor *t) {
  uint32_t who = model_pick(m, wants_any, 1, GEN_MAX_RANK);
  const model_tensor *x = &m->tensors[who];
  uint32_t dim = below(m, x->rank);
  bool top = t->op == IR_OP_TOPK || t->op == IR_OP_TOPK_INDEX;
  model_dim k = some_of(m, &x->dims[dim]);
  if (top && k.text[0] == 0) return false;
  model_meet(t, x);
  if (top) t->dims[dim] = k;
  t->dtype = ordered_dtype(t->op, x);
  t->bound = t->op == IR_OP_TOPK     ? x->bound
             : t->op == IR_OP_CUMSUM ? x->bound * (double)x->dims[dim].size
                                     : (double)x->dims[dim].size;
  expr_printf(t, "%s(", ir_op_info_of(t->op)->name);
  model_use(m, t, who);
  if (top) expr_printf(t, ", k=%s", k.text);
  if (t->op == IR_OP_ARGSORT && chance(m, 50)) expr_printf(t, ", descending=true");
  write_axis(m, t, "dim", dim, x->rank);
  if (t->op == IR_OP_TOPK) (void)model_more(m, IR_I64, (double)x->dims[dim].size);
  return true;
}

/* ---- matmul and linear ---- */
static ir_dtype partner_dtype(model *m, ir_dtype t) {
  if (chance(m, 75)) return t;
  model_tensor x = {.dtype = dtype_random(m)};
  return wants_number(&x) ? x.dtype : t;
}

/* Closes the call: the dtype of the result is now and then another one, of floats a float. */
static void end_product(model *m, model_tensor *t) {
  model_tensor other = {.dtype = dtype_random(m)};
  bool fits = wants_float(&other) || (wants_number(&other) && !wants_float(t));
  if (!fits || !chance(m, 30)) {
    expr_printf(t, ")");
    return;
  }
  t->dtype = other.dtype;
  expr_printf(t, ", dtype=%s)", ir_dtype_text(t->dtype));
}

static bool multiplies(const model_tensor *a, const model_tensor *b) {
  uint32_t inner = b->rank > 1 ? b->rank - 2 : 0;
  if (b->rank == 0 || !wants_number(b) || b->nested) return false;
  return a->dims[a->rank - 1].size == b->dims[inner].size && !b->dims[inner].one &&
         !a->dims[a->rank - 1].one;
}

/* The right operand: batch dims that meet those of `a`, then [K, N] or, alone, [K]. */
static uint32_t matmul_right(model *m, const model_tensor *a) {
  model_dim dims[GEN_MAX_RANK];
  uint32_t rank = 0, batch = a->rank > 2 ? below(m, a->rank - 1) : 0;
  for (uint32_t i = a->rank < 2 ? 0 : a->rank - 2 - batch; i + 2 < a->rank; i++) {
    const model_dim *d = &a->dims[i];
    dims[rank++] = chance(m, 25) ? dim_one() : d->one ? dim_random(m) : *d;
  }
  dims[rank++] = a->dims[a->rank - 1];
  if (rank > 1 || chance(m, 80)) dims[rank++] = dim_random(m);
  return model_input(m, partner_dtype(m, a->dtype), dims, rank);
}

/* Batch dims met; then the rows of a and the columns of b, where they have them. */
static bool matmul_dims(const model_tensor *a, const model_tensor *b, model_tensor *t) {
  model_tensor left = *a, right = *b;
  left.rank = a->rank > 2 ? a->rank - 2 : 0;
  right.rank = b->rank > 2 ? b->rank - 2 : 0;
  if (!model_meet(&left, &right)) return false;
  memcpy(t->dims, left.dims, sizeof t->dims);
  t->rank = left.rank;
  if (a->rank > 1) add_dim(t, plain(a->dims[a->rank - 2]));
  if (b->rank > 1) add_dim(t, plain(b->dims[b->rank - 1]));
  return true;
}

bool make_matmul(model *m, model_tensor *t) {
  uint32_t left = model_pick(m, wants_number, 1, 4);
  uint32_t right = below(m, m->n_tensors);
  bool named = m->tensors[right].name[0] && !strchr(m->tensors[right].name, '$');
  if (!named || !multiplies(&m->tensors[left], &m->tensors[right]))
    right = matmul_right(m, &m->tensors[left]);
  const model_tensor *a = &m->tensors[left], *b = &m->tensors[right];
  if (!matmul_dims(a, b, t)) return false;
  t->dtype = dtype_meet(a->dtype, b->dtype);
  int64_t inner = a->dims[a->rank - 1].size;
  t->bound = a->bound * b->bound * (double)inner;
  axes_from_dims(t);
  axes_add(t, AXIS_REDUCTION, inner);
  expr_printf(t, "matmul(");
  model_use(m, t, left);
  expr_printf(t, ", ");
  model_use(m, t, right);
  end_product(m, t);
  return true;
}

/* Rows of x by the weights of their groups; the index has a number per row, alike for all batches or not. */
bool make_grouped_matmul(model *m, model_tensor *t) {
  uint32_t left = model_pick(m, wants_number, 2, 4), rank = m->tensors[left].rank;
  model_dim rows[GEN_MAX_RANK], inner = m->tensors[left].dims[rank - 1];
  model_dim groups = plain(dim_random(m)), dims[3] = {groups, inner, dim_random(m)};
  if (m->n_inputs > 11) return false;
  bool batched = chance(m, 40);
  for (uint32_t i = 0; i + 1 < rank; i++) {
    rows[i] = plain(m->tensors[left].dims[i]);
    batched = batched && rows[i].size != 1;
  }
  uint32_t weight = model_input(m, m->tensors[left].dtype, dims, 3);
  uint32_t index = index_input(m, batched ? rows : &rows[rank - 2], batched ? rank - 1 : 1,
                               m->tensors[weight].dims[0].size + 1);
  const model_tensor *x = &m->tensors[left], *w = &m->tensors[weight];
  for (uint32_t i = 0; i + 1 < rank; i++) add_dim(t, plain(x->dims[i]));
  add_dim(t, plain(w->dims[2]));
  t->dtype = x->dtype;
  t->bound = x->bound * w->bound * (double)inner.size;
  axes_from_dims(t);
  axes_add(t, AXIS_REDUCTION, inner.size);
  expr_printf(t, "grouped_matmul(");
  model_use(m, t, left);
  expr_printf(t, ", ");
  model_use(m, t, weight);
  expr_printf(t, ", ");
  model_use(m, t, index);
  end_product(m, t);
  return true;
}

/* Rows of x by rows of another tensor, group by group; some rows are of no group. */
bool make_grouped_outer(model *m, model_tensor *t) {
  uint32_t left = model_pick(m, wants_number, 2, 4), rank = m->tensors[left].rank;
  model_dim n = plain(dim_random(m)), rows = plain(m->tensors[left].dims[rank - 2]);
  model_dim dims[2] = {rows, dim_random(m)};
  if (m->n_inputs > 11) return false;
  uint32_t right = model_input(m, m->tensors[left].dtype, dims, 2);
  uint32_t index = index_input(m, &rows, 1, n.size + 1);
  const model_tensor *x = &m->tensors[left], *y = &m->tensors[right];
  for (uint32_t i = 0; i + 2 < rank; i++) add_dim(t, plain(x->dims[i]));
  n.one = n.size == 1 && dim_is_const(&n);
  add_dim(t, n);
  add_dim(t, plain(x->dims[rank - 1]));
  add_dim(t, plain(y->dims[1]));
  t->dtype = x->dtype;
  t->bound = x->bound * y->bound * (double)rows.size;
  axes_from_dims(t);
  axes_add(t, AXIS_REDUCTION, rows.size);
  expr_printf(t, "grouped_outer(");
  model_use(m, t, left);
  expr_printf(t, ", ");
  model_use(m, t, right);
  expr_printf(t, ", ");
  model_use(m, t, index);
  expr_printf(t, ", %s", n.text);
  end_product(m, t);
  return true;
}

bool make_linear(model *m, model_tensor *t) {
  uint32_t left = model_pick(m, wants_number, 1, 4);
  bool bias = chance(m, 50);
  model_dim inner = m->tensors[left].dims[m->tensors[left].rank - 1];
  model_dim dims[2] = {dim_random(m), inner};
  uint32_t weight = model_input(m, m->tensors[left].dtype, dims, 2);
  model_dim columns = m->tensors[weight].dims[0];
  uint32_t add = bias ? model_input(m, m->tensors[left].dtype, &columns, 1) : 0;
  const model_tensor *x = &m->tensors[left], *w = &m->tensors[weight];
  for (uint32_t i = 0; i + 1 < x->rank; i++) add_dim(t, plain(x->dims[i]));
  add_dim(t, plain(columns));
  t->dtype = x->dtype;
  t->biased = bias;
  t->bound = x->bound * w->bound * (double)inner.size + (bias ? m->tensors[add].bound : 0);
  axes_from_dims(t);
  axes_add(t, AXIS_REDUCTION, inner.size);
  expr_printf(t, "linear(");
  model_use(m, t, left);
  expr_printf(t, ", ");
  model_use(m, t, weight);
  if (bias) expr_printf(t, ", %s", m->tensors[add].name);
  end_product(m, t);
  return true;
}

/* ---- models ---- */
bool make_softmax(model *m, model_tensor *t) {
  uint32_t who = model_pick(m, wants_float, 1, GEN_MAX_RANK);
  const model_tensor *x = &m->tensors[who];
  model_meet(t, x);
  t->dtype = x->dtype;
  expr_printf(t, "softmax(");
  model_use(m, t, who);
  if (chance(m, 40)) expr_printf(t, ")");
  else write_axis(m, t, "dim", below(m, x->rank), x->rank);
  return true;
}

bool make_norm(model *m, model_tensor *t) {
  uint32_t who = model_pick(m, wants_float, 1, GEN_MAX_RANK);
  model_dim last = m->tensors[who].dims[m->tensors[who].rank - 1];
  ir_dtype dtype = m->tensors[who].dtype;
  bool weight = chance(m, 60), bias = weight && t->op == IR_OP_LAYER_NORM && chance(m, 60);
  uint32_t w = weight ? model_input(m, dtype, &last, 1) : 0;
  uint32_t b = bias ? model_input(m, dtype, &last, 1) : 0;
  model_meet(t, &m->tensors[who]);
  t->dtype = dtype;
  expr_printf(t, "%s(", ir_op_info_of(t->op)->name);
  model_use(m, t, who);
  if (weight) expr_printf(t, ", %s%s", chance(m, 50) ? "weight=" : "", m->tensors[w].name);
  if (bias) expr_printf(t, ", bias=%s", m->tensors[b].name);
  if (chance(m, 30)) expr_printf(t, ", eps=1e-3");
  expr_printf(t, ")");
  return true;
}

/* Fewer heads, which divide those of q: their axis is the one before the positions. */
static void fewer_heads(model *m, model_dim *dims, uint32_t rank) {
  if (rank < 3 || dims[rank - 3].one || !dim_is_const(&dims[rank - 3])) return;
  int64_t heads = dims[rank - 3].size;
  if (heads < 4 || heads % 2 || !chance(m, 40)) return;
  dims[rank - 3] = dim_const(heads / 2);
}

static void write_attention(model *m, model_tensor *t) {
  if (chance(m, 40)) expr_printf(t, ", causal=true");
  if (chance(m, 40)) expr_printf(t, ", scale=0.5");
  expr_printf(t, ")");
}

/* Inputs for all that the forward pass took and gave; their values need not fit one another. */
bool make_sdpa_backward(model *m, model_tensor *t) {
  uint32_t q = model_pick(m, wants_float, 2, 4), others[5];
  model_dim dims[GEN_MAX_RANK], out[GEN_MAX_RANK];
  uint32_t rank = m->tensors[q].rank;
  ir_dtype dtype = m->tensors[q].dtype;
  for (uint32_t i = 0; i < rank; i++) dims[i] = out[i] = plain(m->tensors[q].dims[i]);
  for (uint32_t i = 0; i < rank; i++)
    if (!dims[i].text[0]) return false; /* it must have the same one everywhere */
  dims[rank - 2] = dim_random(m);
  fewer_heads(m, dims, rank);
  others[0] = model_input(m, dtype, dims, rank);
  dims[rank - 2] = m->tensors[others[0]].dims[rank - 2];
  dims[rank - 1] = out[rank - 1] = dim_random(m);
  others[1] = model_input(m, dtype, dims, rank);
  others[2] = model_input(m, dtype, out, rank);
  others[3] = model_input(m, dtype, out, rank - 1);
  others[4] = model_input(m, dtype, out, rank);
  for (uint32_t i = 0; i < rank; i++) add_dim(t, plain(m->tensors[q].dims[i]));
  t->dtype = dtype;
  expr_printf(t, "sdpa_backward(");
  model_use(m, t, q);
  for (uint32_t i = 0; i < 5; i++) expr_printf(t, ", %s", m->tensors[others[i]].name);
  write_attention(m, t);
  for (uint32_t k = 0; k < 2; k++) {
    model_tensor *more = model_more(m, dtype, INFINITY);
    for (uint32_t i = 0; i < rank; i++) more->dims[i] = plain(m->tensors[others[k]].dims[i]);
  }
  return true;
}

bool make_sdpa(model *m, model_tensor *t) {
  uint32_t q = model_pick(m, wants_float, 2, 4);
  model_dim dims[GEN_MAX_RANK];
  uint32_t rank = m->tensors[q].rank;
  ir_dtype dtype = m->tensors[q].dtype;
  memcpy(dims, m->tensors[q].dims, sizeof dims);
  dims[rank - 2] = dim_random(m);
  fewer_heads(m, dims, rank);
  uint32_t k = model_input(m, dtype, dims, rank);
  memcpy(dims, m->tensors[k].dims, sizeof dims);
  dims[rank - 1] = dim_random(m);
  uint32_t v = model_input(m, dtype, dims, rank);
  for (uint32_t i = 0; i < rank; i++) add_dim(t, plain(m->tensors[q].dims[i]));
  t->dims[rank - 1] = plain(m->tensors[v].dims[rank - 1]);
  t->dtype = dtype;
  expr_printf(t, "sdpa(");
  model_use(m, t, q);
  expr_printf(t, ", %s, %s", m->tensors[k].name, m->tensors[v].name);
  write_attention(m, t);
  model_more(m, dtype == IR_F64 ? IR_F64 : IR_F32, INFINITY)->rank--;
  return true;
}
