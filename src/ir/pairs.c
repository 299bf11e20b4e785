#include "ir/pairs.h"

static bool stretches(const ir_func *f, ir_axis producer, ir_axis consumer) {
  const ir_axis_data *p = ir_axis_at(f, producer), *c = ir_axis_at(f, consumer);
  if (p->kind != IR_AXIS_BROADCAST) return false;
  bool both = c->kind == IR_AXIS_BROADCAST;
  return !both || (p->expanded.id == 0 && c->expanded.id != 0);
}

/* Axis `p` of the producer corresponds to axis `r` of the consumer. An exact pair of a broadcast axis and an
 * ordinary one becomes a BROADCAST pair. */
static void add(pairing *m, uint32_t p, uint32_t r, ir_pair_kind kind) {
  ir_axis producer = m->p[p], consumer = m->r[r];
  if (kind == IR_PAIR_EXACT && stretches(m->f, producer, consumer)) kind = IR_PAIR_BROADCAST;
  m->out[m->n++] = (ir_pair){producer, consumer, kind};
}

void pairs_in_order(pairing *m) {
  for (uint32_t i = 0; i < m->np; i++) add(m, i, i, IR_PAIR_EXACT);
}

/* Pairs the producer's first `p_end` dimensions with the consumer's that end before `r_end`, aligned at the
 * last. */
static void align(pairing *m, uint32_t p_end, uint32_t r_end) {
  for (uint32_t i = 1; i <= p_end; i++) add(m, p_end - i, r_end - i, IR_PAIR_EXACT);
}

static uint32_t position(int64_t axis, uint32_t rank) {
  return (uint32_t)(axis < 0 ? axis + (int64_t)rank : axis);
}

/* The attribute `dim`, of `rank` dimensions, counted from the front. */
static uint32_t dim_of(const pairing *m, uint32_t rank) {
  return position(ir_op_attr(m->op, "dim")->i, rank);
}

static bool chosen(const pairing *m, uint32_t i) {
  const ir_attr *list = ir_op_attr(m->op, "dims");
  if (!list->given) return true;
  for (uint32_t k = 0; k < list->len; k++) {
    if (position(list->ints[k], m->np) == i) return true;
  }
  return false;
}

void pairs_reduced(pairing *m) {
  bool keeps = ir_op_attr(m->op, "keepdim")->i != 0;
  for (uint32_t i = 0; i < m->np; i++) {
    if (!keeps || !chosen(m, i)) add(m, i, i, IR_PAIR_EXACT);
  }
}

static void dropped(pairing *m, bool leaves_place) {
  uint32_t r = 0;
  for (uint32_t i = 0; i < m->np; i++) {
    bool gone = chosen(m, i);
    if (!gone) add(m, i, r, IR_PAIR_EXACT);
    r += !gone || leaves_place;
  }
}

void pairs_inserted(pairing *m) {
  const ir_attr *flags = ir_op_attr(m->op, "axes");
  uint32_t p = 0;
  for (uint32_t r = 0; r < flags->len; r++) {
    if (!flags->ints[r]) add(m, p++, r, IR_PAIR_EXACT);
  }
}

/* Pairs all axes but one; `shift`: the consumer does not have that one. */
static void all_but(pairing *m, uint32_t axis, bool shift) {
  for (uint32_t i = 0; i < m->np; i++) {
    if (i != axis) add(m, i, shift && i > axis ? i - 1 : i, IR_PAIR_EXACT);
  }
}

static bool same_size(const pairing *m, uint32_t i) {
  return IR_SAME(ir_axis_size(m->f, m->p[i]), ir_axis_size(m->f, m->r[i]));
}

/* The same, but only axes that have the consumer's extent. */
static void equal_but(pairing *m, uint32_t axis) {
  for (uint32_t i = 0; i < m->np; i++) {
    if (i != axis && same_size(m, i)) add(m, i, i, IR_PAIR_EXACT);
  }
}

void pairs_matmul(pairing *m) {
  uint32_t k = m->nr - 1; /* the reduction axis is last */
  ir_axis other[IR_MAX_RANK];
  uint32_t n_other = ir_tensor_dims(m->f, m->op->operands[1 - m->operand], other);
  if (m->operand == 0) { /* [*, M, K] */
    bool has_n = n_other > 1;
    add(m, m->np - 1, k, IR_PAIR_EXACT);
    align(m, m->np - 1, has_n ? k - 1 : k);
    return;
  }
  bool has_m = n_other > 1; /* [*, K, N] */
  if (m->np == 1) {
    add(m, 0, k, IR_PAIR_EXACT);
    return;
  }
  add(m, m->np - 2, k, IR_PAIR_EXACT);
  add(m, m->np - 1, k - 1, IR_PAIR_EXACT);
  align(m, m->np - 2, k - 1 - has_m);
}

void pairs_linear(pairing *m) {
  uint32_t k = m->nr - 1;
  ir_axis weight[IR_MAX_RANK];
  uint32_t front = ir_tensor_dims(m->f, m->op->operands[1], weight) - 2; /* the weight's own axes */
  uint32_t last = m->np - 1;
  bool is_x = m->operand == 0, is_weight = m->operand == 1;
  if (is_x || is_weight) add(m, last, k, IR_PAIR_EXACT);
  if (is_x) {
    for (uint32_t i = 0; i < last; i++) add(m, i, front + i, IR_PAIR_EXACT);
    return;
  }
  for (uint32_t i = 0; i < front; i++) add(m, i, i, IR_PAIR_EXACT);
  add(m, is_weight ? last - 1 : last, k - 1, IR_PAIR_EXACT);
}

/* x[*, M, K], weight[*, G, K, N], index[*, M] in [*, M, N, rK]: the groups have no place there. */
void pairs_grouped_matmul(pairing *m) {
  uint32_t k = m->nr - 1, n = m->nr - 2, rows = m->nr - 3, last = m->np - 1;
  static const uint32_t own[] = {2, 3, 1}; /* axes that are no batch */
  if (m->operand < 2) add(m, m->operand == 0 ? last : last - 1, k, IR_PAIR_EXACT);
  if (m->operand == 1) add(m, last, n, IR_PAIR_EXACT);
  else add(m, m->operand == 0 ? last - 1 : last, rows, IR_PAIR_EXACT);
  align(m, m->np - own[m->operand], rows);
}

/* x[*, M, K], y[*, M, N], index[*, M] in [*, G, K, N, rM]: no operand has the groups. */
void pairs_grouped_outer(pairing *m) {
  uint32_t rows = m->nr - 1, last = m->np - 1;
  if (m->operand < 2) add(m, last, m->operand == 0 ? m->nr - 3 : m->nr - 2, IR_PAIR_EXACT);
  uint32_t own = m->operand < 2 ? last - 1 : last;
  add(m, own, rows, IR_PAIR_EXACT);
  align(m, own, m->nr - 4);
}

void pairs_norm(pairing *m) {
  if (m->operand > 0) { /* weight, bias */
    add(m, 0, m->nr - 1, IR_PAIR_EXACT);
    return;
  }
  for (uint32_t i = 0; i < m->np; i++) {
    add(m, i, i, i + 1 == m->np ? IR_PAIR_WHOLE : IR_PAIR_EXACT);
  }
}

void pairs_along_dim(pairing *m) {
  uint32_t axis = dim_of(m, m->np);
  /* mutant: ordered_axis_cut */
  for (uint32_t i = 0; i < m->np; i++) add(m, i, i, i == axis ? IR_PAIR_WHOLE : IR_PAIR_EXACT);
}

/* Pairs the heads of operand k, its axis p, with axis r of the result. */
static void head_pair(pairing *m, uint32_t p, uint32_t r) {
  bool grouped = ir_axis_at(m->f, m->p[p])->kind != IR_AXIS_BROADCAST &&
                 ir_axis_at(m->f, m->r[r])->kind != IR_AXIS_BROADCAST &&
                 !IR_SAME(ir_axis_size(m->f, m->p[p]), ir_axis_size(m->f, m->r[r]));
  add(m, p, r, grouped ? IR_PAIR_GROUP : IR_PAIR_EXACT);
}

void pairs_sdpa_backward(pairing *m) {
  uint32_t n = m->nr - 2; /* batches and heads */
  for (uint32_t i = 0; i < n; i++) {
    if (i + 1 == n) head_pair(m, i, i);
    else add(m, i, i, IR_PAIR_EXACT);
  }
}

void pairs_sdpa(pairing *m) {
  bool heads = m->np > 2 && m->nr > 2;
  if (heads) head_pair(m, m->np - 3, m->nr - 3);
  align(m, m->np - 2 - heads, m->nr - 2 - heads);
  if (m->operand == 0) add(m, m->np - 2, m->nr - 2, IR_PAIR_EXACT);
  if (m->operand == 2) add(m, m->np - 1, m->nr - 1, IR_PAIR_EXACT);
}

void pairs_index_select(pairing *m) {
  uint32_t axis = dim_of(m, m->nr);
  if (m->operand == 0) all_but(m, axis, false);
  else add(m, 0, axis, IR_PAIR_EXACT);
}

void pairs_gather(pairing *m) {
  if (m->operand == 1) pairs_in_order(m);
  else equal_but(m, dim_of(m, m->np));
}

void pairs_scatter(pairing *m) {
  uint32_t axis = dim_of(m, m->np);
  if (m->operand == 0) all_but(m, axis, false);
  else equal_but(m, axis);
}

/* Each position of x is one of the result; src corresponds along the other dimensions only. */
void pairs_update(pairing *m) {
  if (m->operand == 0) pairs_in_order(m);
  if (m->operand == 1) all_but(m, dim_of(m, m->np), false);
}

/* ---- rules that several families share ---- */
void pairs_none(pairing *m) { (void)m; }

void pairs_aligned(pairing *m) { align(m, m->np, m->nr); }

void pairs_moment(pairing *m) { dropped(m, ir_op_attr(m->op, "keepdim")->i != 0); }

void pairs_squeezed(pairing *m) { dropped(m, false); }

void pairs_beside_dim(pairing *m) { all_but(m, dim_of(m, m->np), false); }

void pairs_beside_last(pairing *m) { all_but(m, m->np - 1, false); }

void pairs_dropped_dim(pairing *m) { all_but(m, dim_of(m, m->np), true); }
