/* May memory be handed to a collective as it is?
 *
 * A collective puts pieces one behind the other. So on the side that holds all pieces the dimension
 * they are cut from must be outermost, and its pieces ranges in order; on the side that holds one piece
 * it must be outermost too, since what lies outside of it would separate the pieces. Axes with one
 * local position (device axes, streams, broadcasts, reductions) do not count. */
#include "shard/internal.h"

typedef struct memory {
  ir_axis axes[IR_MAX_RANK]; /* allocation axes with more than one local position */
  uint32_t len;
  bool dense;
} memory;

static bool counts(const ir_func *f, ir_axis a) {
  const ir_axis_data *d = ir_axis_at(f, a);
  int64_t n;
  if (d->kind == IR_AXIS_REDUCTION || d->kind == IR_AXIS_BROADCAST) return false;
  if (d->mark.kind == IR_MARK_MESH || d->mark.kind == IR_MARK_STREAM) return false;
  return !ir_scalar_is_const(&f->module->scalars, d->extent, &n) || n != 1;
}

static memory memory_of(const ir_func *f, ir_tensor t) {
  const ir_domains *d = &ir_tensor_at(f, t)->now;
  memory m = {.dense = true};
  for (uint32_t i = 0; i < d->allocation.len; i++) {
    if (d->dense[i] == IR_DENSE_FALSE) m.dense = false;
    if (counts(f, d->allocation.data[i])) m.axes[m.len++] = d->allocation.data[i];
  }
  return m;
}

/* Does `a` come from `from` (or is it), through splits and swizzles? */
static bool comes_from(const ir_func *f, ir_axis a, ir_axis from) {
  while (!IR_SAME(a, from)) {
    ir_transform def = ir_axis_at(f, a)->def;
    if (def.id == 0) return false;
    const ir_transform_data *t = ir_transform_at(f, def);
    if (t->in[1].id && comes_from(f, t->in[1], from)) return true;
    a = t->in[0];
  }
  return true;
}

/* Is `a` an outer part where `b` is an inner one? */
static bool lies_outside(const ir_func *f, ir_axis a, ir_axis b) {
  for (ir_transform def = ir_axis_at(f, a)->def; def.id; def = ir_axis_at(f, a)->def) {
    const ir_transform_data *t = ir_transform_at(f, def);
    if (t->out[1].id && IR_SAME(a, t->out[0]) && comes_from(f, b, t->out[1])) return true;
    a = t->in[0];
  }
  return false;
}

/* How many of the outermost axes are parts of `dim`; all parts must be among them and, from `start`
 * on, in their natural order. -1 otherwise. */
static int32_t parts_in_front(const ir_func *f, const memory *m, ir_axis dim, uint32_t start) {
  uint32_t n = 0;
  while (n < m->len && comes_from(f, m->axes[n], dim)) n++;
  for (uint32_t i = n; i < m->len; i++) {
    if (comes_from(f, m->axes[i], dim)) return -1;
  }
  for (uint32_t i = start; i + 1 < n; i++) {
    if (!lies_outside(f, m->axes[i], m->axes[i + 1])) return -1;
  }
  return (int32_t)n;
}

static ir_axis dim_axis(const ir_func *f, ir_tensor t, int32_t dim) {
  ir_axis dims[IR_MAX_RANK];
  (void)ir_axes_dims(f, ir_tensor_at(f, t)->now.logical, dims);
  return dims[dim];
}

/* The side with one piece. */
static bool piece_fits(const ir_func *f, const memory *m, ir_axis dim) {
  return parts_in_front(f, m, dim, 0) >= 0 && (parts_in_front(f, m, dim, 0) > 0 || !counts(f, dim));
}

/* The side with all pieces, which `cut` says how to find on the other side. */
static bool pieces_fit(shard_view *v, const shard_side *side, const memory *m, ir_axis dim,
                       const shard_side *other, const shard_axis *cut) {
  const ir_func *f = v->c->f;
  if (cut->contiguous && !cut->swizzled && parts_in_front(f, m, dim, 0) > 0) return true;
  if (m->len == 0 || parts_in_front(f, m, dim, 1) < 1) return false;
  ir_scalar first = shard_index_of(v, side, m->axes[0]);
  return IR_SAME(first, shard_index_of(v, other, cut->loop));
}

/* A number for what an allocation axis is a part of: the root axis of the result, or its own. */
static uint32_t origin(shard_view *v, const shard_side *side, ir_axis a) {
  const ir_func *f = v->c->f;
  for (uint32_t i = 0; i < side->n_known; i++) {
    if (!comes_from(f, a, side->known[i].axis)) continue;
    const ir_scalar_node *n = ir_scalar_node_of(&v->c->s, side->known[i].index);
    bool mapped = n->kind == IR_SCALAR_SYMBOL && n->value < IR_MAX_RANK;
    return mapped ? (uint32_t)n->value : IR_MAX_RANK + a.id;
  }
  return IR_MAX_RANK + a.id;
}

/* The order in which the other dimensions lie. */
static uint32_t order_of(shard_view *v, const shard_side *side, const memory *m, int32_t skip,
                         uint32_t list[IR_MAX_RANK]) {
  uint32_t n = 0;
  const ir_func *f = v->c->f;
  for (uint32_t i = 0; i < m->len; i++) {
    bool skipped =
        skip != SHARD_NO_DIM && comes_from(f, m->axes[i], dim_axis(f, side->tensor, skip));
    uint32_t from = origin(v, side, m->axes[i]);
    bool goes_on = n > 0 && list[n - 1] == from && lies_outside(f, m->axes[i - 1], m->axes[i]);
    if (!skipped && !goes_on) list[n++] = from;
  }
  return n;
}

/* Does the dimension with the pieces come first anyway? */
static bool wants_front(shard_comm_kind kind) {
  return kind == SHARD_GATHER || kind == SHARD_ALLGATHER || kind == SHARD_SCATTER ||
         kind == SHARD_REDUCE_SCATTER;
}

static bool same_order(shard_view *v, const shard_comm *m, const memory *from, const memory *to) {
  uint32_t a[IR_MAX_RANK], b[IR_MAX_RANK];
  bool front = wants_front(m->kind) && !m->sliced;
  uint32_t n = order_of(v, &v->from, from, front ? m->from_dim : SHARD_NO_DIM, a);
  if (order_of(v, &v->to, to, front ? m->to_dim : SHARD_NO_DIM, b) != n) return false;
  for (uint32_t i = 0; i < n; i++) {
    if (a[i] != b[i]) return false;
  }
  return true;
}

static void fit_sides(shard_view *v, shard_comm *m, const memory *from, const memory *to) {
  const ir_func *f = v->c->f;
  const shard_axis *before = &m->before.axes[m->mesh_axis], *after = &m->after.axes[m->mesh_axis];
  if (m->from_dim == SHARD_NO_DIM || m->to_dim == SHARD_NO_DIM) {
    m->from_dense = m->to_dense = false;
    return;
  }
  ir_axis p = dim_axis(f, v->from.tensor, m->from_dim), q = dim_axis(f, v->to.tensor, m->to_dim);
  if (m->kind == SHARD_GATHER || m->kind == SHARD_ALLGATHER) {
    m->from_dense &= piece_fits(f, from, p);
    m->to_dense &= pieces_fit(v, &v->to, to, q, &v->from, before);
  } else {
    m->from_dense &= pieces_fit(v, &v->from, from, p, &v->to, after);
    m->to_dense &= piece_fits(f, to, q);
  }
}

void shard_comm_layout(shard_view *v, shard_comm *m) {
  memory from = memory_of(v->c->f, v->from.tensor), to = memory_of(v->c->f, v->to.tensor);
  bool local = m->kind == SHARD_NONE || m->kind == SHARD_LOCAL_SLICE;
  m->from_dense = local || from.dense;
  m->to_dense = local || to.dense;
  m->same_order = local || same_order(v, m, &from, &to);
  if (wants_front(m->kind) && !m->sliced) fit_sides(v, m, &from, &to);
}
