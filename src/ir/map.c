#include "ir/map.h"

#include <string.h>

/* ---- pairs ---- */

typedef struct pairing {
  const ir_func *f;
  const ir_op_data *op;
  uint32_t operand;
  ir_axis p[IR_MAX_RANK]; /* the producer's dimensions */
  uint32_t np;
  const ir_axis *r; /* the consumer's root */
  uint32_t nr;
  ir_pair *out;
  uint32_t n;
} pairing;

static bool stretches(const ir_func *f, ir_axis producer, ir_axis consumer) {
  const ir_axis_data *p = ir_axis_at(f, producer), *c = ir_axis_at(f, consumer);
  if (p->kind != IR_AXIS_BROADCAST) return false;
  bool both = c->kind == IR_AXIS_BROADCAST;
  return !both || (p->expanded.id == 0 && c->expanded.id != 0);
}

static void add(pairing *m, uint32_t p, uint32_t r, ir_pair_kind kind) {
  ir_axis producer = m->p[p], consumer = m->r[r];
  if (kind == IR_PAIR_EXACT && stretches(m->f, producer, consumer)) kind = IR_PAIR_BROADCAST;
  m->out[m->n++] = (ir_pair){producer, consumer, kind};
}

static void in_order(pairing *m) {
  for (uint32_t i = 0; i < m->np; i++) add(m, i, i, IR_PAIR_EXACT);
}

/* The last n producer dimensions before `p_end` against the consumer's before `r_end`. */
static void right_aligned(pairing *m, uint32_t p_end, uint32_t r_end) {
  for (uint32_t i = 1; i <= p_end; i++) add(m, p_end - i, r_end - i, IR_PAIR_EXACT);
}

static uint32_t position(int64_t axis, uint32_t rank) {
  return (uint32_t)(axis < 0 ? axis + (int64_t)rank : axis);
}

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

static void reduced(pairing *m) {
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

static void inserted(pairing *m) {
  const ir_attr *flags = ir_op_attr(m->op, "axes");
  uint32_t p = 0;
  for (uint32_t r = 0; r < flags->len; r++) {
    if (!flags->ints[r]) add(m, p++, r, IR_PAIR_EXACT);
  }
}

/* All but one axis; `shift` when the consumer has no place for it. */
static void all_but(pairing *m, uint32_t axis, bool shift) {
  for (uint32_t i = 0; i < m->np; i++) {
    if (i != axis) add(m, i, shift && i > axis ? i - 1 : i, IR_PAIR_EXACT);
  }
}

static bool same_size(const pairing *m, uint32_t i) {
  return IR_SAME(ir_axis_size(m->f, m->p[i]), ir_axis_size(m->f, m->r[i]));
}

static void equal_but(pairing *m, uint32_t axis) {
  for (uint32_t i = 0; i < m->np; i++) {
    if (i != axis && same_size(m, i)) add(m, i, i, IR_PAIR_EXACT);
  }
}

static void matmul_pairs(pairing *m) {
  uint32_t k = m->nr - 1; /* the reduction axis is last */
  ir_axis other[IR_MAX_RANK];
  uint32_t n_other = ir_tensor_dims(m->f, m->op->operands[1 - m->operand], other);
  if (m->operand == 0) { /* [*, M, K] */
    bool has_n = n_other > 1;
    add(m, m->np - 1, k, IR_PAIR_EXACT);
    right_aligned(m, m->np - 1, has_n ? k - 1 : k);
    return;
  }
  bool has_m = n_other > 1; /* [*, K, N] */
  if (m->np == 1) {
    add(m, 0, k, IR_PAIR_EXACT);
    return;
  }
  add(m, m->np - 2, k, IR_PAIR_EXACT);
  add(m, m->np - 1, k - 1, IR_PAIR_EXACT);
  right_aligned(m, m->np - 2, k - 1 - has_m);
}

static void linear_pairs(pairing *m) {
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

static void norm_pairs(pairing *m) {
  if (m->operand > 0) { /* weight, bias */
    add(m, 0, m->nr - 1, IR_PAIR_EXACT);
    return;
  }
  for (uint32_t i = 0; i < m->np; i++) {
    add(m, i, i, i + 1 == m->np ? IR_PAIR_WHOLE : IR_PAIR_EXACT);
  }
}

static void softmax_pairs(pairing *m) {
  uint32_t axis = dim_of(m, m->np);
  /* mutant: ordered_axis_cut */
  for (uint32_t i = 0; i < m->np; i++) add(m, i, i, i == axis ? IR_PAIR_WHOLE : IR_PAIR_EXACT);
}

/* The heads of operand k, its axis p, against axis r of the result. */
static void head_pair(pairing *m, uint32_t p, uint32_t r) {
  bool grouped = ir_axis_at(m->f, m->p[p])->kind != IR_AXIS_BROADCAST &&
                 ir_axis_at(m->f, m->r[r])->kind != IR_AXIS_BROADCAST &&
                 !IR_SAME(ir_axis_size(m->f, m->p[p]), ir_axis_size(m->f, m->r[r]));
  add(m, p, r, grouped ? IR_PAIR_GROUP : IR_PAIR_EXACT);
}

static void sdpa_backward_pairs(pairing *m) {
  uint32_t n = m->nr - 2; /* batches and heads */
  for (uint32_t i = 0; i < n; i++) {
    if (i + 1 == n) head_pair(m, i, i);
    else add(m, i, i, IR_PAIR_EXACT);
  }
}

static void sdpa_pairs(pairing *m) {
  bool heads = m->np > 2 && m->nr > 2;
  if (heads) head_pair(m, m->np - 3, m->nr - 3);
  right_aligned(m, m->np - 2 - heads, m->nr - 2 - heads);
  if (m->operand == 0) add(m, m->np - 2, m->nr - 2, IR_PAIR_EXACT);
  if (m->operand == 2) add(m, m->np - 1, m->nr - 1, IR_PAIR_EXACT);
}

static void index_select_pairs(pairing *m) {
  uint32_t axis = dim_of(m, m->nr);
  if (m->operand == 0) all_but(m, axis, false);
  else add(m, 0, axis, IR_PAIR_EXACT);
}

static void gather_pairs(pairing *m) {
  if (m->operand == 1) in_order(m);
  else equal_but(m, dim_of(m, m->np));
}

static void scatter_pairs(pairing *m) {
  uint32_t axis = dim_of(m, m->np);
  if (m->operand == 0) all_but(m, axis, false);
  else equal_but(m, axis);
}

/* Each position of x is one of the result; src has a place along the others only. */
static void update_pairs(pairing *m) {
  if (m->operand == 0) in_order(m);
  if (m->operand == 1) all_but(m, dim_of(m, m->np), false);
}

static void pair_up(pairing *m) {
  switch (ir_op_info_of(m->op->code)->family) {
  case IR_FAMILY_POINTWISE:
  case IR_FAMILY_EXPAND: right_aligned(m, m->np, m->nr); return;
  case IR_FAMILY_SET:
  case IR_FAMILY_CAST:
  case IR_FAMILY_PERMUTE:
  case IR_FAMILY_RESHAPE:
  case IR_FAMILY_SLICE:
  case IR_FAMILY_PAD:
  case IR_FAMILY_ONE_HOT: in_order(m); return;
  case IR_FAMILY_REDUCE: reduced(m); return;
  case IR_FAMILY_MOMENT: dropped(m, ir_op_attr(m->op, "keepdim")->i != 0); return;
  case IR_FAMILY_SQUEEZE: dropped(m, false); return;
  case IR_FAMILY_BROADCAST: inserted(m); return;
  case IR_FAMILY_TOPK:
  case IR_FAMILY_CAT: all_but(m, dim_of(m, m->np), false); return;
  case IR_FAMILY_SELECT: all_but(m, dim_of(m, m->np), true); return;
  case IR_FAMILY_MAKER: return;
  case IR_FAMILY_GATHER: gather_pairs(m); return;
  case IR_FAMILY_SCATTER: scatter_pairs(m); return;
  case IR_FAMILY_UPDATE: update_pairs(m); return;
  case IR_FAMILY_INDEX_SELECT: index_select_pairs(m); return;
  case IR_FAMILY_MATMUL: matmul_pairs(m); return;
  case IR_FAMILY_LINEAR: linear_pairs(m); return;
  case IR_FAMILY_SCAN:
  case IR_FAMILY_SORT:
  case IR_FAMILY_SOFTMAX: softmax_pairs(m); return;
  case IR_FAMILY_NORM: norm_pairs(m); return;
  case IR_FAMILY_SDPA: sdpa_pairs(m); return;
  case IR_FAMILY_SDPA_BACKWARD: sdpa_backward_pairs(m); return;
  }
}

static uint32_t pairs_of(const ir_func *f, const ir_op_data *op, uint32_t operand, bool scheduled,
                         ir_pair pairs[IR_MAX_RANK]) {
  ir_tensor from = op->operands[operand];
  if (from.id == 0) return 0;
  const ir_tensor_data *producer = ir_tensor_at(f, from);
  const ir_tensor_data *consumer = ir_tensor_at(f, op->result);
  const ir_domains *pd = scheduled ? &producer->now : &producer->defined;
  const ir_domains *cd = scheduled ? &consumer->now : &consumer->defined;
  pairing m = {.f = f, .op = op, .operand = operand, .out = pairs};
  m.np = ir_axes_dims(f, pd->logical, m.p);
  m.r = cd->root.data;
  m.nr = cd->root.len;
  if (producer->kind != IR_TENSOR_CONST) pair_up(&m);
  return m.n;
}

uint32_t ir_map_pairs(const ir_func *f, const ir_op_data *op, uint32_t operand,
                      ir_pair pairs[IR_MAX_RANK]) {
  return pairs_of(f, op, operand, f->applied, pairs);
}

uint32_t ir_map_pairs_defined(const ir_func *f, const ir_op_data *op, uint32_t operand,
                              ir_pair pairs[IR_MAX_RANK]) {
  return pairs_of(f, op, operand, false, pairs);
}

/* Those that correspond have the same place. Results have the same rank, but for the lse of attention,
 * which has all axes of its rows. */
bool ir_map_result_dim(const ir_func *f, const ir_op_data *op, uint32_t k, uint32_t dim) {
  ir_axis first[IR_MAX_RANK], own[IR_MAX_RANK];
  uint32_t n = ir_tensor_dims(f, op->result, first);
  uint32_t rank = ir_tensor_dims(f, ir_op_result(op, k), own);
  if (dim >= n || dim >= rank) return false;
  if (op->code != IR_OP_SDPA_BACKWARD) return true;
  return dim + 2 < n && IR_SAME(ir_axis_size(f, first[dim]), ir_axis_size(f, own[dim]));
}

uint32_t ir_map_result_pairs(const ir_func *f, const ir_op_data *op, uint32_t k,
                             ir_pair pairs[IR_MAX_RANK]) {
  ir_axis first[IR_MAX_RANK], own[IR_MAX_RANK];
  uint32_t n = ir_tensor_dims(f, op->result, first), found = 0;
  (void)ir_tensor_dims(f, ir_op_result(op, k), own);
  for (uint32_t i = 0; i < n; i++) {
    bool heads = op->code == IR_OP_SDPA_BACKWARD && i + 3 == n;
    bool alike = ir_map_result_dim(f, op, k, i);
    if (alike) pairs[found++] = (ir_pair){own[i], first[i], IR_PAIR_EXACT};
    else if (heads) pairs[found++] = (ir_pair){own[i], first[i], IR_PAIR_GROUP};
  }
  return found;
}

ir_axis ir_map_root(const ir_func *f, ir_axes root, ir_axis a) {
  for (;;) {
    for (uint32_t i = 0; i < root.len; i++) {
      if (IR_SAME(root.data[i], a)) return a;
    }
    ir_transform def = ir_axis_at(f, a)->def;
    if (def.id == 0) return (ir_axis){0};
    const ir_transform_data *t = ir_transform_at(f, def);
    if (t->kind == IR_RESIZE || !IR_SAME(t->out[0], a)) return (ir_axis){0};
    a = t->in[0];
  }
}

/* ---- classes ---- */

static uint32_t find(uint32_t *parent, uint32_t i) {
  while (parent[i] != i) {
    parent[i] = parent[parent[i]];
    i = parent[i];
  }
  return i;
}

/* The smaller id leads, so the class of an axis never depends on the order of joining. */
static bool join(uint32_t *parent, uint32_t a, uint32_t b) {
  a = find(parent, a);
  b = find(parent, b);
  if (a == b) return false;
  if (a < b) parent[b] = a;
  else parent[a] = b;
  return true;
}

ir_axis ir_class_of(const ir_classes *c, ir_axis a) { return (ir_axis){find(c->parent, a.id)}; }

static void join_list(const ir_pair *pairs, uint32_t n, ir_class_kind kind, uint32_t *parent) {
  for (uint32_t k = 0; k < n; k++) {
    if (kind == IR_CLASS_EXACT && pairs[k].kind == IR_PAIR_BROADCAST) continue;
    if (pairs[k].kind == IR_PAIR_GROUP) continue;
    (void)join(parent, pairs[k].producer.id, pairs[k].consumer.id);
  }
}

static void join_pairs(ir_func *f, const ir_op_data *op, ir_class_kind kind, uint32_t *parent) {
  ir_pair pairs[IR_MAX_RANK];
  for (uint32_t i = 0; i < op->n_operands; i++) {
    join_list(pairs, ir_map_pairs(f, op, i, pairs), kind, parent);
  }
  for (uint32_t k = 1; k < ir_op_n_results(op); k++) {
    join_list(pairs, ir_map_result_pairs(f, op, k, pairs), kind, parent);
  }
}

typedef struct transform_key {
  const ir_func *f;
  uint32_t *parent;
  const ir_transform_data *t;
} transform_key;

static bool same_transform(const void *context, uint32_t id) {
  const transform_key *k = context;
  const ir_transform_data *a = k->t, *b = &k->f->transforms.data[id];
  if (a->kind != b->kind || a->n_chunks != b->n_chunks || a->mesh_axis != b->mesh_axis)
    return false;
  if (!IR_SAME(a->factor, b->factor) || !IR_SAME(a->start, b->start)) return false;
  if (!IR_SAME(a->step, b->step)) return false;
  if (a->n_chunks && memcmp(a->chunks, b->chunks, a->n_chunks * sizeof *a->chunks) != 0)
    return false;
  for (int i = 0; i < 2; i++) {
    if (find(k->parent, a->in[i].id) != find(k->parent, b->in[i].id)) return false;
  }
  return true;
}

static uint64_t transform_hash(const ir_transform_data *t, uint32_t *parent) {
  uint64_t h = hash_mix((uint64_t)t->kind, t->factor.id);
  h = hash_mix(h, find(parent, t->in[0].id));
  return hash_mix(h, find(parent, t->in[1].id));
}

/* One sweep of congruence: equal transforms of equivalent axes give equivalent axes. */
static bool join_transforms(ir_func *f, uint32_t *parent, arena *scratch) {
  table seen;
  table_init(&seen, scratch);
  bool changed = false;
  for (uint32_t i = 1; i < f->transforms.len; i++) {
    const ir_transform_data *t = &f->transforms.data[i];
    transform_key key = {f, parent, t};
    uint64_t hash = transform_hash(t, parent);
    uint32_t first = table_find(&seen, hash, same_transform, &key);
    if (!first) {
      table_add(&seen, hash, i);
      continue;
    }
    for (int k = 0; k < 2; k++) {
      if (t->out[k].id == 0) continue;
      changed = join(parent, f->transforms.data[first].out[k].id, t->out[k].id) || changed;
    }
  }
  return changed;
}

ir_classes ir_classes_build(ir_func *f, ir_class_kind kind, arena *scratch) {
  ir_classes c = {ARENA_ARRAY(scratch, f->axes.len, uint32_t), f->axes.len};
  for (uint32_t i = 0; i < c.len; i++) c.parent[i] = i;
  uint32_t n = f->applied ? f->scheduled.len : f->order.len;
  const ir_op *ops = f->applied ? f->scheduled.data : f->order.data;
  for (uint32_t i = 0; i < n; i++) join_pairs(f, ir_op_at(f, ops[i]), kind, c.parent);
  while (join_transforms(f, c.parent, scratch)) {
  }
  return c;
}
