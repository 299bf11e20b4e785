/* Operations that must know where a position lies in the whole dimension, on tensors whose parts do not
 * tell: those are computed whole. */
#include "ir/fold.h"
#include "shard/internal.h"

/* ---- cuts of one dimension ---- */

ir_axis shard_parent(const ir_func *f, ir_axis a) {
  ir_transform def = ir_axis_at(f, a)->def;
  int64_t n;
  if (!def.id) return (ir_axis){0};
  const ir_transform_data *t = ir_transform_at(f, def);
  bool one = ir_scalar_is_const(&f->module->scalars, ir_axis_size(f, t->in[0]), &n) && n == 1;
  return t->kind == IR_MERGE && one ? t->in[1] : t->in[0];
}

bool shard_descends(const ir_func *f, ir_axis a, ir_axis of) {
  while (a.id && !IR_SAME(a, of)) a = shard_parent(f, a);
  return a.id != 0;
}

/* Does `b` come of the inner part of a split of whose outer part `a` comes? */
static bool lies_inside(const ir_func *f, ir_axis a, ir_axis b) {
  for (; ir_axis_at(f, a)->def.id; a = shard_parent(f, a)) {
    const ir_transform_data *t = ir_transform_at(f, ir_axis_at(f, a)->def);
    bool outer = t->out[1].id && IR_SAME(a, t->out[0]);
    if (outer && shard_descends(f, b, t->out[1])) return true;
  }
  return false;
}

uint32_t shard_cuts_inside(const ir_func *f, const shard_placement *p, uint32_t k) {
  uint32_t mask = 0;
  if (k >= p->rank || p->axes[k].kind != SHARD_SHARDED) return 0;
  for (uint32_t i = 0; i < p->rank; i++) {
    bool same = p->axes[i].kind == SHARD_SHARDED && p->axes[i].dim == p->axes[k].dim;
    if (same && lies_inside(f, p->axes[k].loop, p->axes[i].loop)) mask |= 1u << i;
  }
  return mask;
}

/* ---- reductions that devices cannot share ---- */

bool shard_rounds(const ir_func *f, const ir_op_data *op) {
  return !ir_op_picks(op->code) && ir_dtype_is_float(ir_tensor_at(f, op->result)->dtype);
}

/* Does the part that a device has depend on its place along another mesh axis too? */
static bool is_turned(const ir_func *f, ir_axis a) {
  for (; a.id; a = shard_parent(f, a)) {
    ir_transform def = ir_axis_at(f, a)->def;
    if (def.id && ir_transform_at(f, def)->kind == IR_SWIZZLE) return true;
  }
  return false;
}

static ir_axis dimension_of(const ir_func *f, ir_axes root, ir_axis a) {
  for (; a.id; a = shard_parent(f, a)) {
    for (uint32_t i = 0; i < root.len; i++) {
      if (IR_SAME(root.data[i], a)) return a;
    }
  }
  return a;
}

static bool repeats(const ir_func *f, const ir_op_data *op, ir_axis reduction) {
  ir_pair pairs[IR_MAX_RANK];
  for (uint32_t k = 0; k < op->n_operands; k++) {
    uint32_t n = op->operands[k].id ? ir_map_pairs(f, op, k, pairs) : 0;
    for (uint32_t i = 0; i < n; i++) {
      bool same = IR_SAME(pairs[i].consumer, reduction);
      if (same && ir_axis_at(f, pairs[i].producer)->expanded.id) return true;
    }
  }
  return false;
}

void shard_unmark_unshared(ir_func *f, const ir_op_data *op) {
  ir_domains now = ir_tensor_at(f, op->result)->now;
  for (uint32_t i = 0; i < now.loop.len; i++) {
    ir_axis_data *a = ir_axis_at(f, now.loop.data[i]);
    if (a->kind != IR_AXIS_REDUCTION || a->mark.kind != IR_MARK_MESH) continue;
    bool turned = is_turned(f, now.loop.data[i]) && shard_rounds(f, op);
    if (turned || repeats(f, op, dimension_of(f, now.root, now.loop.data[i])))
      a->mark = (ir_mark){0};
  }
}

/* ---- positions ---- */

/* Does a device hold a range of the dimension, so that where it begins says where everything is? */
static bool is_range(const shard_axis *a) {
  return a->contiguous && !a->swizzled && a->cut != SHARD_INNER && a->cut != SHARD_MERGED;
}

static bool is_resized(const ir_func *f, ir_axis dim) {
  ir_transform def = ir_axis_at(f, dim)->def;
  return def.id && ir_transform_at(f, def)->kind == IR_RESIZE;
}

/* Has operand k position i of the dimension wherever the result has it? */
static bool maps_exactly(const ir_func *f, const ir_op_data *op, uint32_t k, ir_axis dim) {
  ir_pair pairs[IR_MAX_RANK];
  uint32_t n = op->operands[k].id ? ir_map_pairs(f, op, k, pairs) : 0;
  for (uint32_t i = 0; i < n; i++) {
    if (IR_SAME(pairs[i].consumer, dim)) return pairs[i].kind == IR_PAIR_EXACT;
  }
  return false;
}

static bool all_map_exactly(const ir_func *f, const ir_op_data *op, ir_axis dim) {
  for (uint32_t k = 0; k < op->n_operands; k++) {
    if (!maps_exactly(f, op, k, dim)) return false;
  }
  return true;
}

/* ---- is each position of dimension `d` computed alike, wherever it lies? By the names of families.def ---- */
typedef struct positions {
  const ir_func *f;
  const ir_op_data *op;
  ir_axis dims[IR_MAX_RANK]; /* of the result */
  uint32_t rank, d;
  const shard_axis *cut; /* of dimension d; no range */
} positions;

typedef bool positions_fn(const positions *p);

static bool positions_anywhere(const positions *p) {
  (void)p;
  return true;
}

static bool positions_exact(const positions *p) {
  return maps_exactly(p->f, p->op, 0, p->dims[p->d]);
}

/* Parts with the same elements have them in the same order, that of the whole, on both sides of a reshape. */
static bool positions_in_order(const positions *p) {
  return positions_exact(p) || (!p->cut->swizzled && p->cut->cut != SHARD_MERGED);
}

static bool positions_second_exact(const positions *p) {
  return maps_exactly(p->f, p->op, 1, p->dims[p->d]);
}

static bool positions_all_exact(const positions *p) {
  return all_map_exactly(p->f, p->op, p->dims[p->d]);
}

static bool positions_maker(const positions *p) {
  return p->op->code != IR_OP_IOTA && p->op->code != IR_OP_UNIFORM;
}

static bool positions_causal(const positions *p) {
  return p->d + 2 != p->rank || !ir_op_attr(p->op, "causal")->i;
}

static bool positions_beside_groups(const positions *p) { return p->d + 3 != p->rank; }

static bool positions_beside_last_two(const positions *p) { return p->d + 2 < p->rank; }

static positions_fn *const families[] = {
#define SHARD(positions, wants) positions_##positions
#define FAMILY(id, group, ir, shard, ...) [IR_FAMILY_##id] = shard,
#include "ir/families.def"
};

static bool is_free_of_positions(const ir_func *f, const ir_op_data *op, const shard_axis *cut) {
  positions p = {.f = f, .op = op, .d = cut->dim, .cut = cut};
  p.rank = ir_tensor_dims(f, op->result, p.dims);
  return families[ir_op_info_of(op->code)->family](&p);
}

/* Does it only make the dimension shorter or longer at its end? Where both sides are cut into ranges of the same
 * length, so that operands fit, devices do that with what they hold. */
static bool is_resized_at_end(const ir_func *f, ir_axis dim, const shard_placement *to,
                              uint32_t k) {
  const ir_transform_data *t = ir_transform_at(f, ir_axis_at(f, dim)->def);
  const ir_scalars *s = &f->module->scalars;
  int64_t start, step;
  const shard_axis *a = &to->axes[k];
  bool ranges = k < to->rank && a->kind == SHARD_SHARDED && a->cut == SHARD_OUTER && !a->nested &&
                !a->swizzled;
  return ranges && ir_scalar_is_const(s, t->start, &start) && start == 0 &&
         ir_scalar_is_const(s, t->step, &step) && step == 1;
}

/* A slice or pad along a cut dimension is none of what a device holds. */
static bool resizes_cut(const ir_func *f, const ir_op_data *op) {
  shard_placement p, to;
  ir_axis dims[IR_MAX_RANK];
  ir_family family = ir_op_info_of(op->code)->family;
  if (family != IR_FAMILY_SLICE && family != IR_FAMILY_PAD) return false;
  (void)ir_tensor_dims(f, op->result, dims);
  shard_placement_of(f, op->operands[0], &p);
  shard_placement_of(f, op->result, &to);
  for (uint32_t k = 0; k < p.rank; k++) {
    bool cut = p.axes[k].kind == SHARD_SHARDED && ir_mesh_size(ir_mesh_at(f, p.mesh), k) > 1;
    if (!cut) continue;
    ir_axis dim = dims[p.axes[k].dim];
    bool alike = k < to.rank && to.axes[k].dim == p.axes[k].dim;
    if (is_resized(f, dim) && !(alike && is_resized_at_end(f, dim, &to, k))) return true;
  }
  return false;
}

/* Is there a cut that partial results already have inside one that they get when they are reduced, or one
 * that differs among the devices whose partial results are added up? */
static bool has_partial_around(const ir_func *f, const shard_placement *p) {
  for (uint32_t k = 0; k < p->rank; k++) {
    const shard_axis *a = &p->axes[k];
    bool turns = a->kind == SHARD_SHARDED && a->swizzled;
    if (turns && p->axes[a->swizzle_axis].reduced.id) return true;
    if (p->axes[k].kind != SHARD_SHARDED || !p->axes[k].reduced.id) continue;
    for (uint32_t inside = shard_cuts_inside(f, p, k); inside; inside &= inside - 1) {
      if (!p->axes[__builtin_ctz(inside)].reduced.id) return true;
    }
  }
  return false;
}

/* A gradient of one position adds up what all others give: positions and features are never apart. */
static bool cuts_gradient(const ir_func *f, const ir_op_data *op, const shard_axis *a) {
  ir_axis dims[IR_MAX_RANK];
  return op->code == IR_OP_SDPA_BACKWARD && a->dim + 2 >= ir_tensor_dims(f, op->result, dims);
}

bool shard_needs_whole(const ir_func *f, const ir_op_data *op) {
  shard_placement p;
  shard_placement_of(f, op->result, &p);
  if (resizes_cut(f, op) || has_partial_around(f, &p)) return true;
  for (uint32_t k = 0; k < p.rank; k++) {
    const shard_axis *a = &p.axes[k];
    if (a->kind != SHARD_SHARDED || ir_mesh_size(ir_mesh_at(f, p.mesh), k) <= 1) continue;
    if (cuts_gradient(f, op, a)) return true;
    if (!is_range(a) && !is_free_of_positions(f, op, a)) return true;
  }
  return false;
}

/* Is the operand cut along every mesh axis that the result is cut along, in one of these
 * dimensions? */
static bool is_cut_where_result_is(ir_func *f, const ir_op_data *op, uint32_t operand,
                                   uint32_t dims) {
  shard_placement from, to;
  shard_placement_of(f, op->operands[operand], &from);
  shard_placement_of(f, op->result, &to);
  for (uint32_t k = 0; k < to.rank; k++) {
    bool cut = k < from.rank && from.axes[k].kind == SHARD_SHARDED;
    bool wants = to.axes[k].kind == SHARD_SHARDED && (dims >> to.axes[k].dim & 1) &&
                 ir_mesh_size(ir_mesh_at(f, to.mesh), k) > 1;
    if (wants && !cut) return false;
  }
  return true;
}

/* A key head that several devices read gets a part of its gradient from each of them. */
static bool has_whole_gradients(ir_func *f, const ir_op_data *op) {
  ir_axis q[IR_MAX_RANK], k[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(f, op->operands[0], q);
  if (rank < 3) return true;
  (void)ir_tensor_dims(f, op->operands[1], k);
  ir_scalar many = ir_axis_size(f, q[rank - 3]), few = ir_axis_size(f, k[rank - 3]);
  return ir_func_equal(f, many, few) == IR_TRUE ||
         is_cut_where_result_is(f, op, 1, 1u << (rank - 3));
}

bool shard_counts_fit(ir_func *f, const ir_op_data *op) {
  if (op->code == IR_OP_SDPA_BACKWARD) return has_whole_gradients(f, op);
  return ir_op_info_of(op->code)->family != IR_FAMILY_RESHAPE ||
         is_cut_where_result_is(f, op, 0, ~0u);
}
