#include "ir/map.h"

#include <string.h>

#include "ir/pairs.h"

/* ---- pairs ---- */

static pairs_fn *const families[] = {
#define IR(infer, pairs, ...) pairs_##pairs
#define FAMILY(id, group, ir, ...) [IR_FAMILY_##id] = ir,
#include "ir/families.def"
};

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
  if (producer->kind != IR_TENSOR_CONST) families[ir_op_info_of(op->code)->family](&m);
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

/* Are the sizes equal for all extents, given what the program asserts? (The function is not const only
 * because new scalars may be interned.) */
static bool are_equal(const ir_func *f, ir_axis a, ir_axis b) {
  return ir_func_equal((ir_func *)f, ir_axis_size(f, a), ir_axis_size(f, b)) == IR_TRUE;
}

/* Corresponding dimensions have the same position. All results have the same rank, except that the lse of
 * attention has only the axes of its rows. */
bool ir_map_result_dim(const ir_func *f, const ir_op_data *op, uint32_t k, uint32_t dim) {
  ir_axis first[IR_MAX_RANK], own[IR_MAX_RANK];
  uint32_t n = ir_tensor_dims(f, op->result, first);
  uint32_t rank = ir_tensor_dims(f, ir_op_result(op, k), own);
  if (dim >= n || dim >= rank) return false;
  if (op->code != IR_OP_SDPA_BACKWARD) return true;
  return dim + 2 < n && are_equal(f, first[dim], own[dim]);
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
