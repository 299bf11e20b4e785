/* Placements: reading the marks of a tensor's loop domain. */
#include "shard/shard.h"

static bool find(ir_axes axes, ir_axis a, uint32_t *place) {
  for (uint32_t i = 0; i < axes.len; i++) {
    if (!IR_SAME(axes.data[i], a)) continue;
    *place = i;
    return true;
  }
  return false;
}

static bool on_mesh(const ir_func *f, ir_axis a) {
  return ir_axis_at(f, a)->mark.kind == IR_MARK_MESH;
}

/* The last transform before the mark says how pieces lie in the axis it cuts. */
static void read_cut(const ir_func *f, ir_axis a, const ir_transform_data *t, shard_axis *s) {
  bool outer = IR_SAME(a, t->out[0]);
  switch (t->kind) {
  case IR_SPLIT: s->piece = t->factor; break;
  case IR_OUTER_SPLIT:
    s->piece = outer ? ir_axis_at(f, t->out[1])->extent : ir_axis_at(f, a)->extent;
    break;
  case IR_CHUNK_SPLIT:
    s->chunks = t->chunks;
    s->n_chunks = t->n_chunks;
    break;
  case IR_MERGE:
  case IR_RESIZE:
  case IR_SWIZZLE: s->cut = SHARD_MERGED; return;
  }
  s->cut = !outer ? SHARD_INNER : t->kind == IR_CHUNK_SPLIT ? SHARD_CHUNKS : SHARD_OUTER;
}

/* One step up from `at`. Ranges of an inner part are ranges on a device only if the outer part beside
 * it is fixed there. */
static ir_axis step_up(const ir_func *f, ir_axis at, shard_axis *s, bool first) {
  const ir_transform_data *t = ir_transform_at(f, ir_axis_at(f, at)->def);
  bool split = t->kind == IR_SPLIT || t->kind == IR_OUTER_SPLIT || t->kind == IR_CHUNK_SPLIT;
  bool inner = split && IR_SAME(at, t->out[1]);
  if (first) read_cut(f, at, t, s);
  else if (!split) s->cut = SHARD_MERGED;
  if (!split || (inner && (first || !on_mesh(f, t->out[0])))) s->contiguous = false;
  s->nested = !first;
  return t->in[0];
}

static bool has_one_position(const ir_func *f, ir_axis a) {
  int64_t n;
  return ir_scalar_is_const(&f->module->scalars, ir_axis_size(f, a), &n) && n == 1;
}

/* A merge with an axis of one position changes nothing. */
static ir_axis through_ones(const ir_func *f, ir_axes logical, ir_axis at) {
  uint32_t place;
  while (!find(logical, at, &place) && ir_axis_at(f, at)->def.id) {
    const ir_transform_data *t = ir_transform_at(f, ir_axis_at(f, at)->def);
    if (t->kind != IR_MERGE) break;
    if (has_one_position(f, t->in[0])) at = t->in[1];
    else if (has_one_position(f, t->in[1])) at = t->in[0];
    else break;
  }
  return at;
}

static void trace(const ir_func *f, ir_tensor t, ir_axis leaf, shard_axis *s) {
  ir_axes logical = ir_tensor_at(f, t)->now.logical;
  uint32_t place;
  ir_axis at = leaf;
  ir_transform def = ir_axis_at(f, at)->def;
  s->contiguous = true;
  if (!find(logical, at, &place) && def.id && ir_transform_at(f, def)->kind == IR_SWIZZLE) {
    s->swizzled = true;
    s->swizzle_axis = ir_transform_at(f, def)->mesh_axis;
    at = ir_transform_at(f, def)->in[0];
  }
  at = through_ones(f, logical, at);
  for (bool first = true; !find(logical, at, &place); first = false) {
    check(ir_axis_at(f, at)->def.id != 0);
    at = through_ones(f, logical, step_up(f, at, s, first));
  }
  s->logical = at;
  s->dim = place;
}

static uint32_t dims_before(const ir_func *f, ir_axes logical, uint32_t place) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < place; i++) {
    n += ir_axis_at(f, logical.data[i])->kind != IR_AXIS_REDUCTION;
  }
  return n;
}

static void place(const ir_func *f, ir_tensor t, ir_axis leaf, shard_axis *s) {
  const ir_axis_data *d = ir_axis_at(f, leaf);
  if (d->kind == IR_AXIS_REDUCTION) {
    s->reduced = leaf;
    if (s->kind == SHARD_SHARDED) return;
    s->kind = SHARD_PARTIAL;
  } else if (d->kind == IR_AXIS_BROADCAST) {
    if (s->kind == SHARD_REPLICATED) s->loop = leaf;
    return;
  } else {
    ir_axis reduced = s->reduced;
    *s = (shard_axis){.kind = SHARD_SHARDED, .reduced = reduced};
  }
  s->loop = leaf;
  trace(f, t, leaf, s);
  if (s->kind == SHARD_SHARDED) s->dim = dims_before(f, ir_tensor_at(f, t)->now.logical, s->dim);
}

void shard_placement_of(const ir_func *f, ir_tensor t, shard_placement *result) {
  const ir_tensor_data *d = ir_tensor_at(f, t);
  *result = (shard_placement){.mesh = d->mesh};
  if (d->mesh.id) result->rank = ir_mesh_at(f, d->mesh)->rank;
  for (uint32_t i = 0; i < d->now.loop.len; i++) {
    ir_mark m = ir_axis_at(f, d->now.loop.data[i])->mark;
    if (m.kind != IR_MARK_MESH || m.mesh_axis >= IR_MESH_MAX_RANK) continue;
    place(f, t, d->now.loop.data[i], &result->axes[m.mesh_axis]);
  }
}

bool shard_is_cut(const ir_func *f, ir_tensor t, uint32_t mesh_axes) {
  shard_placement p;
  shard_placement_of(f, t, &p);
  for (uint32_t k = 0; k < p.rank; k++)
    if ((mesh_axes >> k & 1) && p.axes[k].kind == SHARD_SHARDED) return true;
  return false;
}
