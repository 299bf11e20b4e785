/* Indexes of marked loop axes, as expressions over the root axes of a result. */
#include "shard/internal.h"

static ir_scalar constant(shard_ctx *c, int64_t v) { return ir_scalar_const(&c->s, v); }

/* The symbol of a slot with its meaning in this question; 0 if the axis has but one position. */
static ir_scalar symbol(shard_ctx *c, uint32_t slot, shard_symbol means, ir_scalar size) {
  int64_t n;
  if (size.id && ir_scalar_is_const(&c->s, size, &n) && n == 1) return constant(c, 0);
  c->slots[slot].means = means;
  c->slots[slot].bound = size;
  return c->slots[slot].symbol;
}

static ir_scalar size_of(shard_ctx *c, ir_axis a) {
  return shard_translate(c, ir_axis_size(c->f, a));
}

static void know(shard_side *side, ir_axis axis, ir_scalar index) {
  side->known[side->n_known++] = (shard_known){axis, index};
}

/* The resize that turns a root axis into a logical one (slice, pad), or NULL. */
static const ir_transform_data *resize_of(const ir_func *f, ir_axes logical, ir_axis root) {
  for (uint32_t i = 0; i < logical.len; i++) {
    ir_transform def = ir_axis_at(f, logical.data[i])->def;
    const ir_transform_data *t = def.id ? ir_transform_at(f, def) : NULL;
    if (t && t->kind == IR_RESIZE && IR_SAME(t->in[0], root)) return t;
  }
  return NULL;
}

/* One symbol per root axis. Of a resized one the symbol counts positions after the resize, and root
 * indexes follow from it: exactly the positions that are read. */
static void open_result(shard_view *v, ir_scalar root_index[IR_MAX_RANK]) {
  shard_ctx *c = v->c;
  const ir_domains *d = &ir_tensor_at(c->f, v->to.tensor)->now;
  for (uint32_t i = 0; i < d->root.len; i++) {
    const ir_transform_data *t = resize_of(c->f, d->logical, d->root.data[i]);
    ir_axis seen = t ? t->out[0] : d->root.data[i];
    ir_scalar index = symbol(c, SHARD_SLOT_ROOT + i, SHARD_FREE, size_of(c, seen));
    know(&v->to, seen, index);
    root_index[i] = index;
    if (!t) continue;
    ir_scalar steps = ir_scalar_mul(&c->s, index, shard_translate(c, t->step));
    root_index[i] = ir_scalar_add(&c->s, shard_translate(c, t->start), steps);
  }
}

static const ir_pair *pair_of(const ir_pair *pairs, uint32_t n, ir_axis producer) {
  for (uint32_t i = 0; i < n; i++) {
    if (IR_SAME(pairs[i].producer, producer)) return &pairs[i];
  }
  return NULL;
}

static uint32_t place_of(ir_axes axes, ir_axis a) {
  uint32_t i = 0;
  while (i < axes.len && !IR_SAME(axes.data[i], a)) i++;
  check(i < axes.len);
  return i;
}

/* How many of the consumer's positions read one of the producer's; false: only the extents tell. */
static bool group_of(shard_ctx *c, const ir_pair *pair, int64_t *group) {
  int64_t many, few;
  if (!ir_scalar_is_const(&c->s, size_of(c, pair->consumer), &many)) return false;
  if (!ir_scalar_is_const(&c->s, size_of(c, pair->producer), &few) || few < 1) return false;
  *group = many / few;
  return many % few == 0;
}

static ir_scalar operand_index(shard_view *v, uint32_t dim, ir_axis a, const ir_pair *pair,
                               const ir_scalar root_index[IR_MAX_RANK]) {
  shard_ctx *c = v->c;
  const ir_axis_data *d = ir_axis_at(c->f, a);
  if (d->kind == IR_AXIS_BROADCAST) {
    if (d->expanded.id == 0) return constant(c, 0);
    return symbol(c, SHARD_SLOT_OPERAND + dim, SHARD_FREE, size_of(c, a));
  }
  int64_t group = 1;
  bool grouped = pair && pair->kind == IR_PAIR_GROUP && group_of(c, pair, &group);
  bool exact = pair && pair->kind == IR_PAIR_EXACT;
  uint32_t root = 0;
  if (exact || (pair && pair->kind == IR_PAIR_GROUP)) {
    root = place_of(ir_tensor_at(c->f, v->to.tensor)->now.root, pair->consumer);
    /* mutant: unknown_groups_free */
    c->slots[SHARD_SLOT_ROOT + root].means =
        SHARD_MAPPED; /* even if only the extents tell to what */
  }
  if (!exact && !grouped) return symbol(c, SHARD_SLOT_OPERAND + dim, SHARD_BLOCKED, size_of(c, a));
  return grouped ? shard_div(c, root_index[root], constant(c, group)) : root_index[root];
}

static void open_operand(shard_view *v, uint32_t operand, const ir_scalar root_index[IR_MAX_RANK]) {
  ir_pair pairs[IR_MAX_RANK];
  ir_axis dims[IR_MAX_RANK];
  const ir_func *f = v->c->f;
  uint32_t n_pairs = ir_map_pairs(f, v->op, operand, pairs);
  uint32_t n = ir_axes_dims(f, ir_tensor_at(f, v->from.tensor)->now.logical, dims);
  for (uint32_t i = 0; i < n; i++) {
    const ir_pair *pair = pair_of(pairs, n_pairs, dims[i]);
    know(&v->from, dims[i], operand_index(v, i, dims[i], pair, root_index));
  }
}

static void open_coordinates(shard_ctx *c, const shard_side *side) {
  for (uint32_t k = 0; k < IR_MESH_MAX_RANK; k++) {
    int64_t n = side->mesh.id ? ir_mesh_size(ir_mesh_at(c->f, side->mesh), k) : 0;
    c->slots[side->coords + k].means = SHARD_COORD;
    c->slots[side->coords + k].bound = n > 0 ? constant(c, n) : (ir_scalar){0};
  }
}

static bool same_mesh(const ir_func *f, ir_mesh a, ir_mesh b) {
  if (a.id == 0 || b.id == 0) return a.id == b.id;
  return ir_mesh_same(ir_mesh_at(f, a), ir_mesh_at(f, b));
}

void shard_view_open(shard_ctx *c, const ir_op_data *op, uint32_t operand, shard_view *v) {
  ir_scalar root_index[IR_MAX_RANK];
  *v = (shard_view){.c = c, .op = op, .operand = operand};
  v->from.tensor = op->operands[operand];
  v->to.tensor = op->result;
  v->from.mesh = ir_tensor_at(c->f, v->from.tensor)->mesh;
  v->to.mesh = ir_tensor_at(c->f, v->to.tensor)->mesh;
  bool same = same_mesh(c->f, v->from.mesh, v->to.mesh);
  v->from.coords = SHARD_SLOT_COORD;
  v->to.coords = same ? SHARD_SLOT_COORD : SHARD_SLOT_COORD + IR_MESH_MAX_RANK;
  open_coordinates(c, &v->from);
  open_coordinates(c, &v->to);
  open_result(v, root_index);
  open_operand(v, operand, root_index);
}

/* ---- pushing indexes through transforms ---- */

static ir_scalar coordinate(shard_view *v, const shard_side *side, uint32_t k) {
  if (side->mesh.id && ir_mesh_size(ir_mesh_at(v->c->f, side->mesh), k) == 1) {
    return constant(v->c, 0);
  }
  return v->c->slots[side->coords + k].symbol;
}

/* Equal chunks, the last perhaps shorter, are an ordinary split. */
static bool chunks_are_even(const ir_transform_data *t) {
  for (uint32_t i = 1; i < t->n_chunks; i++) {
    bool last = i + 1 == t->n_chunks;
    if (last ? t->chunks[i] > t->chunks[0] : t->chunks[i] != t->chunks[0]) return false;
  }
  return true;
}

/* The chunk that holds x is the number of bounds b <= x, and min(1, x / b) is 1 exactly if b <= x. */
static ir_scalar chunk_index(shard_ctx *c, const ir_transform_data *t, ir_scalar x, bool outer) {
  ir_scalar number = constant(c, 0), start = number, one = constant(c, 1);
  int64_t bound = 0;
  for (uint32_t i = 0; i + 1 < t->n_chunks; i++) {
    bound += t->chunks[i];
    ir_scalar past = ir_scalar_min(&c->s, shard_div(c, x, constant(c, bound)), one);
    number = ir_scalar_add(&c->s, number, past);
    start = ir_scalar_add(&c->s, start, ir_scalar_mul(&c->s, past, constant(c, t->chunks[i])));
  }
  return outer ? number : ir_scalar_sub(&c->s, x, start);
}

static ir_scalar split_index(shard_view *v, const ir_transform_data *t, ir_scalar x, bool outer) {
  shard_ctx *c = v->c;
  ir_scalar size; /* of the inner part */
  if (t->kind == IR_CHUNK_SPLIT) {
    if (!chunks_are_even(t)) return chunk_index(c, t, x, outer);
    size = constant(c, t->chunks[0]);
  } else {
    size = shard_translate(c, t->factor);
    if (t->kind == IR_OUTER_SPLIT) size = ir_scalar_ceildiv(&c->s, size_of(c, t->in[0]), size);
  }
  return outer ? shard_div(c, x, size) : shard_mod(c, x, size);
}

static ir_scalar opaque(shard_ctx *c) {
  return symbol(c, SHARD_SLOT_OPAQUE, SHARD_BLOCKED, (ir_scalar){0});
}

static ir_scalar derived_index(shard_view *v, const shard_side *side, ir_axis a,
                               const ir_transform_data *t) {
  shard_ctx *c = v->c;
  switch (t->kind) {
  case IR_SPLIT:
  case IR_OUTER_SPLIT:
  case IR_CHUNK_SPLIT:
    return split_index(v, t, shard_index_of(v, side, t->in[0]), IR_SAME(a, t->out[0]));
  case IR_MERGE: {
    ir_scalar outer = shard_index_of(v, side, t->in[0]), inner = shard_index_of(v, side, t->in[1]);
    return shard_join(c, outer, inner, size_of(c, t->in[1]));
  }
  case IR_SWIZZLE: { /* (p + coordinate) mod n is the position before */
    ir_scalar x = shard_index_of(v, side, t->in[0]);
    ir_scalar turned = ir_scalar_sub(&c->s, x, coordinate(v, side, t->mesh_axis));
    return shard_mod(c, turned, size_of(c, t->in[0]));
  }
  case IR_RESIZE: return opaque(c);
  }
  impossible("every transform is listed");
}

ir_scalar shard_index_of(shard_view *v, const shard_side *side, ir_axis a) {
  int64_t n;
  for (uint32_t i = 0; i < side->n_known; i++) {
    if (IR_SAME(side->known[i].axis, a)) return side->known[i].index;
  }
  ir_transform def = ir_axis_at(v->c->f, a)->def;
  if (def.id) return derived_index(v, side, a, ir_transform_at(v->c->f, def));
  bool one = ir_scalar_is_const(&v->c->s, size_of(v->c, a), &n) && n == 1;
  return one ? constant(v->c, 0) : opaque(v->c);
}

/* ---- leaves ---- */

typedef struct meanings {
  const shard_ctx *c;
  bool seen[4];
} meanings;

static bool collect(void *context, uint32_t symbol) {
  meanings *m = context;
  if (symbol < SHARD_SLOTS) m->seen[m->c->slots[symbol].means] = true;
  return false;
}

/* The root axis of the result that the axis is a part of; none: of nothing that both sides have. */
static ir_axis dimension_of(const shard_view *v, const shard_side *side, ir_axis a) {
  const ir_func *f = v->c->f;
  ir_pair pairs[IR_MAX_RANK];
  /* mutant: same_tensor_first_operand */
  uint32_t n = ir_map_pairs(f, v->op, v->operand, pairs);
  for (uint32_t i = 0; i < n; i++) {
    ir_axis mine = side == &v->from ? pairs[i].producer : pairs[i].consumer;
    if (shard_descends(f, a, mine)) return pairs[i].consumer;
  }
  return (ir_axis){0};
}

shard_leaf shard_leaf_seen(shard_ctx *c, shard_leaf leaf) {
  meanings m = {.c = c};
  const bool *seen = m.seen;
  (void)ir_scalar_any_symbol(&c->s, leaf.index, collect, &m);
  leaf.present = seen[SHARD_MAPPED] || seen[SHARD_BLOCKED] || !seen[SHARD_FREE];
  leaf.mixed = seen[SHARD_BLOCKED] || (seen[SHARD_MAPPED] && seen[SHARD_FREE]);
  leaf.fixed = !seen[SHARD_MAPPED];
  return leaf;
}

shard_leaf shard_leaf_at(shard_view *v, const shard_side *side, ir_axis a) {
  shard_leaf leaf = shard_leaf_seen(v->c, (shard_leaf){.index = shard_index_of(v, side, a)});
  if (leaf.fixed) leaf.dim = dimension_of(v, side, a);
  return leaf;
}

shard_leaf shard_leaf_of(shard_view *v, const shard_side *side, uint32_t k) {
  const ir_func *f = v->c->f;
  ir_axes loop = ir_tensor_at(f, side->tensor)->now.loop;
  if (side->mesh.id && ir_mesh_size(ir_mesh_at(f, side->mesh), k) <= 1) return (shard_leaf){0};
  for (uint32_t i = 0; i < loop.len; i++) {
    const ir_axis_data *a = ir_axis_at(f, loop.data[i]);
    if (a->mark.kind != IR_MARK_MESH || a->mark.mesh_axis != k) continue;
    if (a->kind == IR_AXIS_REDUCTION || a->kind == IR_AXIS_BROADCAST) continue;
    return shard_leaf_at(v, side, loop.data[i]);
  }
  return (shard_leaf){0};
}

shard_relation shard_leaf_compare(shard_ctx *c, const shard_leaf *from, const shard_leaf *to) {
  if (from->mixed || to->mixed || from->present != to->present) return SHARD_DIFFERENT;
  if (!from->present) return SHARD_BOTH_ABSENT;
  bool alike = !from->fixed || (from->dim.id && IR_SAME(from->dim, to->dim));
  bool equal = ir_scalar_eq(&c->s, from->index, to->index) == IR_TRUE;
  return equal && alike ? SHARD_EQUAL : SHARD_DIFFERENT;
}

/* Equal indexes on lines of different length: one side has devices without a piece, for which the
 * other has no counterpart. */
static bool same_length(const shard_view *v, uint32_t k) {
  const ir_func *f = v->c->f;
  if (v->from.mesh.id == 0 || v->to.mesh.id == 0) return true;
  return ir_mesh_size(ir_mesh_at(f, v->from.mesh), k) == ir_mesh_size(ir_mesh_at(f, v->to.mesh), k);
}

shard_relation shard_relate(shard_view *v, uint32_t k) {
  shard_leaf from = shard_leaf_of(v, &v->from, k), to = shard_leaf_of(v, &v->to, k);
  shard_relation relation = shard_leaf_compare(v->c, &from, &to);
  return relation == SHARD_EQUAL && !same_length(v, k) ? SHARD_DIFFERENT : relation;
}

static uint32_t mesh_rank(const ir_func *f, ir_mesh m) { return m.id ? ir_mesh_at(f, m)->rank : 0; }

uint32_t shard_view_rank(const shard_view *v) {
  uint32_t a = mesh_rank(v->c->f, v->from.mesh), b = mesh_rank(v->c->f, v->to.mesh);
  return a > b ? a : b;
}

shard_changes shard_view_changes(shard_view *v) {
  shard_changes r = {0};
  for (uint32_t k = 0; k < shard_view_rank(v); k++) {
    shard_relation relation = shard_relate(v, k);
    if (relation == SHARD_DIFFERENT) r.changed |= 1u << k;
    if (relation == SHARD_EQUAL) r.kept |= 1u << k;
  }
  return r;
}
