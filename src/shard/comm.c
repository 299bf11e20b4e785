/* Which communication a change of placement needs. */
#include "shard/internal.h"

ir_comm_kind shard_comm_posted(shard_comm_kind kind) {
  check(kind >= (shard_comm_kind)SHARD_FIRST_COMM);
  return (ir_comm_kind)(kind - SHARD_FIRST_COMM);
}

const char *shard_comm_name(shard_comm_kind kind) {
  static const char *const others[] = {
      [SHARD_NONE] = "none", [SHARD_LOCAL_SLICE] = "local_slice", [SHARD_SHIFT] = "shift"};
  bool other = kind < (shard_comm_kind)SHARD_FIRST_COMM;
  return other ? others[kind] : ir_comm_text(shard_comm_posted(kind));
}

bool shard_comm_is_in_lines(shard_comm_kind kind) {
  if (kind < (shard_comm_kind)SHARD_FIRST_COMM) return false;
  const ir_comm_info *info = ir_comm_info_of(shard_comm_posted(kind));
  return info->root == IR_ROOT_NO && info->way != IR_WAY_PAIR;
}

typedef struct rule {
  shard_view v;
  shard_comm *m;
  bool changes; /* the sharding changes along m->mesh_axis, and then: */
  shard_leaf from, to;
} rule;

static const shard_axis *axis_before(const rule *r) { return &r->m->before.axes[r->m->mesh_axis]; }
static const shard_axis *axis_after(const rule *r) { return &r->m->after.axes[r->m->mesh_axis]; }

/* ---- is the operation a communication? ---- */

/* The one reduced axis of the operand; none if there is not exactly one. */
static ir_axis reduced_axis(const rule *r) {
  const ir_func *f = r->v.c->f;
  ir_pair pairs[IR_MAX_RANK];
  ir_axis found = {0};
  uint32_t n = ir_map_pairs(f, r->v.op, 0, pairs), count = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (ir_axis_at(f, pairs[i].consumer)->kind != IR_AXIS_REDUCTION) continue;
    found = pairs[i].producer;
    count++;
  }
  return count == 1 ? found : (ir_axis){0};
}

/* A reduction only adds up what lies on different devices, one position each? */
static bool only_reduces_devices(const rule *r) {
  if (!r->changes || !r->from.present) return false;
  const shard_axis *a = axis_before(r);
  return a->cut == SHARD_WHOLE && IR_SAME(a->logical, reduced_axis(r));
}

static shard_answer computes(rule *r, const char *why) {
  r->m->why = why;
  return SHARD_COMPUTES;
}

static shard_answer unsupported(rule *r, const char *why) {
  r->m->why = why;
  return SHARD_UNSUPPORTED;
}

/* A pad that drops as many positions at one end of a dimension as it adds at the other, where devices have one
 * position each? Then each device's goes to another one. */
static bool is_shift(rule *r) {
  const ir_func *f = r->v.c->f;
  const ir_scalars *s = &f->module->scalars;
  const ir_attr *widths = ir_op_attr(r->v.op, "widths");
  if (!r->changes || r->v.from.coords != r->v.to.coords) return false;
  const shard_axis *a = axis_before(r), *b = axis_after(r);
  bool dealt = a->kind == SHARD_SHARDED && b->kind == SHARD_SHARDED && a->cut == SHARD_WHOLE &&
               b->cut == SHARD_WHOLE && a->dim == b->dim && !a->swizzled && !b->swizzled;
  int64_t n = ir_mesh_size(ir_mesh_at(f, r->m->from), (uint32_t)r->m->mesh_axis);
  for (uint32_t i = 0; dealt && i < widths->len; i += 2) {
    int64_t before, after;
    if (!ir_scalar_is_const(s, widths->scalars[i], &before)) return false;
    if (!ir_scalar_is_const(s, widths->scalars[i + 1], &after)) return false;
    bool shifts = before && before + after == 0 && before < n && -before < n;
    if (i / 2 == a->dim ? !shifts : before || after) return false;
    if (i / 2 == a->dim) r->m->shift = before;
  }
  return dealt;
}

/* Has each line of devices the positions in another order, while all lines must have the same rounded result? */
static bool order_varies(const rule *r) {
  const shard_axis *a = axis_before(r);
  return a->swizzled && shard_rounds(r->v.c->f, r->v.op) &&
         r->m->after.axes[a->swizzle_axis].kind != SHARD_SHARDED;
}

static shard_answer check_family(rule *r) {
  const ir_op_data *op = r->v.op;
  ir_family family = ir_op_info_of(op->code)->family;
  if (family == IR_FAMILY_SET || family == IR_FAMILY_SQUEEZE) return SHARD_ONE;
  if (family == IR_FAMILY_PAD && is_shift(r)) return SHARD_ONE;
  if (family != IR_FAMILY_REDUCE) return computes(r, "it is no set, squeeze, reduction or shift");
  if (!only_reduces_devices(r)) {
    return computes(r, "it reduces other things than one axis with a position per device");
  }
  const ir_func *f = r->v.c->f;
  /* mutant: dev_dtype_ignored */
  if (ir_tensor_at(f, op->operands[0])->dtype != ir_tensor_at(f, op->result)->dtype) {
    return computes(r, "its result has another dtype");
  }
  if (order_varies(r)) return unsupported(r, "replicas would combine in different orders");
  r->m->reduces = true;
  r->m->combine = ir_fold_combine(ir_op_fold(op->code), ir_tensor_at(r->v.c->f, op->result)->dtype);
  return SHARD_ONE;
}

/* A swizzled mark makes pieces depend on another coordinate: fine where that one stays. */
static bool swizzle_fits(const rule *r, const shard_placement *p, bool same_mesh) {
  for (uint32_t k = 0; k < p->rank; k++) {
    const shard_axis *a = &p->axes[k];
    if (a->kind != SHARD_SHARDED || !a->swizzled) continue;
    if (!same_mesh || a->swizzle_axis == k) return false;
    if (r->changes && (int32_t)a->swizzle_axis == r->m->mesh_axis) return false;
  }
  return true;
}

static shard_answer check_placements(rule *r) {
  const shard_comm *m = r->m;
  if (m->from.id == 0 || m->to.id == 0) return unsupported(r, "a tensor is not placed on a mesh");
  bool same_mesh = r->v.from.coords == r->v.to.coords;
  if (!swizzle_fits(r, &m->before, same_mesh) || !swizzle_fits(r, &m->after, same_mesh)) {
    return unsupported(r, "a swizzled device axis turns along the mesh axis that changes");
  }
  if (r->changes && (r->from.mixed || r->to.mixed)) {
    return unsupported(r, "a broadcast axis is merged into a device axis");
  }
  return SHARD_ONE;
}

/* ---- how the meshes lie ---- */

static bool same_coordinates(rule *r, uint32_t axes, int64_t device) {
  for (uint32_t k = 0; k < IR_MESH_MAX_RANK; k++) {
    if (!(axes >> k & 1)) continue;
    int64_t a = shard_coordinate(r->v.c, r->m->from, device, k);
    if (a != shard_coordinate(r->v.c, r->m->to, device, k)) return false;
  }
  return true;
}

/* Every receiver is a sender with the same coordinates along the axes that both are sharded on. */
static bool receivers_hold_kept(rule *r) {
  const ir_mesh_data *to = ir_mesh_at(r->v.c->f, r->m->to);
  for (int64_t i = 0; i < to->n_devices; i++) {
    int64_t device = to->devices[i];
    if (shard_position(r->v.c, r->m->from, device) < 0) return false;
    if (!same_coordinates(r, r->m->kept, device)) return false;
  }
  return true;
}

static bool same_devices(rule *r) {
  const ir_func *f = r->v.c->f;
  return ir_mesh_at(f, r->m->from)->n_devices == ir_mesh_at(f, r->m->to)->n_devices;
}

/* Are the lines of devices along the changed axis the same on both sides, in whatever order? */
static bool same_lines(rule *r) {
  shard_ctx *c = r->v.c;
  const ir_mesh_data *from = ir_mesh_at(c->f, r->m->from), *to = ir_mesh_at(c->f, r->m->to);
  uint32_t k = (uint32_t)r->m->mesh_axis;
  if (ir_mesh_size(from, k) != ir_mesh_size(to, k)) return false;
  for (int64_t i = 0; i < to->n_devices; i++) {
    int64_t first = shard_neighbour(c, r->m->to, to->devices[i], k, 0);
    int64_t at = shard_coordinate(c, r->m->from, to->devices[i], k);
    if (shard_neighbour(c, r->m->from, first, k, at) != to->devices[i]) return false;
  }
  return true;
}

/* ---- the table ---- */

static ir_axis before_swizzle(const ir_func *f, ir_axis a, uint32_t k, bool *swizzled) {
  ir_transform def = ir_axis_at(f, a)->def;
  const ir_transform_data *t = def.id ? ir_transform_at(f, def) : NULL;
  *swizzled = t && t->kind == IR_SWIZZLE && t->mesh_axis == k;
  return *swizzled ? t->in[0] : a;
}

/* Is there one iteration per device? An axis that is a device axis too is as long as the mesh. */
static bool one_per_device(const rule *r, ir_axis a) {
  const ir_func *f = r->v.c->f;
  int64_t n;
  if (!ir_scalar_is_const(&f->module->scalars, ir_axis_size(f, a), &n)) {
    return axis_before(r)->cut == SHARD_WHOLE;
  }
  return n == ir_mesh_size(ir_mesh_at(f, r->m->from), (uint32_t)r->m->mesh_axis);
}

/* Does the result iterate over the very pieces in which the operand lies? */
static bool streams_over_pieces(rule *r, bool *swizzled) {
  const ir_func *f = r->v.c->f;
  ir_axes loop = ir_tensor_at(f, r->v.to.tensor)->now.loop;
  for (uint32_t i = 0; i < loop.len; i++) {
    if (ir_axis_at(f, loop.data[i])->mark.kind != IR_MARK_STREAM) continue;
    ir_axis a = before_swizzle(f, loop.data[i], (uint32_t)r->m->mesh_axis, swizzled);
    shard_leaf leaf = shard_leaf_at(&r->v, &r->v.to, a);
    if (shard_leaf_compare(r->v.c, &r->from, &leaf) != SHARD_EQUAL) continue;
    /* mutant: dev_any_count */
    if (!one_per_device(r, a)) continue;
    r->m->stream = loop.data[i];
    return true;
  }
  return false;
}

static shard_comm_kind gathering(rule *r, bool in_place) {
  bool swizzled = false;
  if (!in_place) return SHARD_GATHER;
  if (axis_before(r)->swizzled || !streams_over_pieces(r, &swizzled)) return SHARD_ALLGATHER;
  if (swizzled && r->v.from.coords != r->v.to.coords) return SHARD_ALLGATHER; /* other offsets */
  r->m->by_iteration = true;
  return swizzled ? SHARD_PERMUTE : SHARD_BROADCAST;
}

static shard_leaf unswizzled(rule *r, const shard_side *side, const shard_axis *a) {
  ir_axis axis = a->loop;
  if (a->swizzled) axis = ir_transform_at(r->v.c->f, ir_axis_at(r->v.c->f, axis)->def)->in[0];
  return shard_leaf_at(&r->v, side, axis);
}

/* The same pieces, dealt out in another order. */
static bool only_turned(rule *r) {
  const shard_axis *a = axis_before(r), *b = axis_after(r);
  if (!a->swizzled && !b->swizzled) return false;
  shard_leaf x = unswizzled(r, &r->v.from, a), y = unswizzled(r, &r->v.to, b);
  return shard_leaf_compare(r->v.c, &x, &y) == SHARD_EQUAL;
}

static shard_comm_kind recutting(rule *r, bool in_place) {
  if (in_place && only_turned(r)) return SHARD_SEND_RECV;
  if (in_place && same_lines(r)) return SHARD_ALL_TO_ALL;
  r->m->sliced = true;
  return SHARD_GATHER;
}

static shard_comm_kind reducing(rule *r, bool in_place) {
  if (!r->to.present) return in_place ? SHARD_ALLREDUCE : SHARD_REDUCE;
  if (in_place && same_lines(r)) return SHARD_REDUCE_SCATTER;
  r->m->sliced = true;
  return SHARD_REDUCE;
}

/* Only the mesh changes: pieces go from owner to owner, or everything to every device. */
static shard_comm_kind moving(rule *r, bool held) {
  bool marked = false;
  for (uint32_t k = 0; k < IR_MESH_MAX_RANK; k++) {
    marked |=
        r->m->before.axes[k].kind == SHARD_SHARDED && r->m->after.axes[k].kind == SHARD_SHARDED;
  }
  if (held) return SHARD_NONE;
  return marked ? SHARD_SEND_RECV : SHARD_BROADCAST;
}

static shard_comm_kind decide(rule *r) {
  bool held = receivers_hold_kept(r), in_place = held && same_devices(r);
  if (r->m->shift) return SHARD_SHIFT;
  if (!r->changes) return moving(r, held);
  if (r->m->reduces) return reducing(r, in_place);
  if (!r->to.present) return gathering(r, in_place);
  if (!r->from.present) return held ? SHARD_LOCAL_SLICE : SHARD_SCATTER;
  return recutting(r, in_place);
}

/* ---- the dimensions that matter ---- */

static int32_t dim_of(const ir_func *f, ir_axes logical, ir_axis a) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t n = ir_axes_dims(f, logical, dims);
  for (uint32_t i = 0; i < n; i++) {
    if (IR_SAME(dims[i], a)) return (int32_t)i;
  }
  return SHARD_NO_DIM;
}

/* The dimension of the other side that is mapped to axis `a` of this one. */
static int32_t image_dim(const rule *r, ir_axis a, bool of_result) {
  const ir_func *f = r->v.c->f;
  ir_pair pairs[IR_MAX_RANK];
  uint32_t n = ir_map_pairs(f, r->v.op, 0, pairs);
  ir_tensor other = of_result ? r->v.to.tensor : r->v.from.tensor;
  for (uint32_t i = 0; i < n; i++) {
    ir_axis mine = of_result ? pairs[i].producer : pairs[i].consumer;
    ir_axis image = of_result ? pairs[i].consumer : pairs[i].producer;
    if (IR_SAME(mine, a)) return dim_of(f, ir_tensor_at(f, other)->now.logical, image);
  }
  return SHARD_NO_DIM;
}

static void find_dims(rule *r) {
  shard_comm *m = r->m;
  m->from_dim = m->to_dim = SHARD_NO_DIM;
  if (!r->changes) return;
  const shard_axis *a = axis_before(r), *b = axis_after(r);
  bool reduces = m->reduces;
  if (r->from.present) m->from_dim = (int32_t)a->dim;
  if (r->to.present) m->to_dim = (int32_t)b->dim;
  if (r->from.present && !r->to.present && !reduces) m->to_dim = image_dim(r, a->logical, true);
  if (r->to.present && (!r->from.present || reduces)) {
    m->from_dim = image_dim(r, b->logical, false);
  }
}

/* ---- all together ---- */

static void read_sides(shard_ctx *c, rule *r) {
  shard_comm *m = r->m;
  m->from = r->v.from.mesh;
  m->to = r->v.to.mesh;
  shard_placement_of(c->f, r->v.from.tensor, &m->before);
  shard_placement_of(c->f, r->v.to.tensor, &m->after);
  shard_changes changes = shard_view_changes(&r->v);
  m->changed = changes.changed;
  m->kept = changes.kept;
  m->mesh_axis = SHARD_NO_AXIS;
  if (m->changed == 0) return;
  r->changes = true;
  m->mesh_axis = __builtin_ctz(m->changed);
  r->from = shard_leaf_of(&r->v, &r->v.from, (uint32_t)m->mesh_axis);
  r->to = shard_leaf_of(&r->v, &r->v.to, (uint32_t)m->mesh_axis);
}

shard_answer shard_comm_of(shard_ctx *c, const ir_op_data *op, shard_comm *result) {
  rule r = {.m = result};
  *result = (shard_comm){.mesh_axis = SHARD_NO_AXIS};
  if (op->n_operands != 1) return computes(&r, "it has several operands");
  shard_view_open(c, op, 0, &r.v);
  read_sides(c, &r);
  shard_answer answer = check_placements(&r);
  if (answer == SHARD_ONE && __builtin_popcount(result->changed) > 1) return SHARD_SEVERAL;
  if (answer == SHARD_ONE) answer = check_family(&r);
  if (answer != SHARD_ONE) return answer;
  result->kind = decide(&r);
  find_dims(&r);
  return SHARD_ONE;
}
