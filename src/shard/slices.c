/* Products that meet a communication, computed slice by slice. Written as the statements that a user would write:
 *
 *   y = linear(x[mesh.x t], w)     y.outer_split(0, d);  y[0] = stream    x arrives piece by piece
 *   y[mesh.x t] = linear(h, w)     y.outer_split(2, d);  y[2] = stream    a reduce-scatter per slice
 *   y = linear(h, w)               y.outer_split(0, d);  y[0] = stream    an allreduce per slice
 *
 * What moves is read off a copy of the function that is propagated and decomposed. docs/overlap.md has the rules. */
#include "ir/build.h"
#include "shard/internal.h"

/* One stream to be added. */
typedef struct wish {
  ir_tensor of;
  uint32_t axis; /* of its logical domain */
  ir_mesh mesh;  /* as many slices as it has devices along */
  uint32_t mesh_axis;
  bool whole;            /* the axis has one position per device: it needs no split */
  int64_t slices;        /* or: so many; 0: one per device */
  const int64_t *chunks; /* or: slices of these lengths */
  uint32_t n_chunks;
} wish;

typedef struct slicing {
  ir_func *f; /* as it is written */
  ir_func *g; /* a copy: decomposed */
  shard_ctx *c;
  arena *scratch;
  shard_slices which;
  ir_op *producer; /* by tensor of the copy; none for inputs */
  ir_op *gather;   /* by tensor of the copy: the first set that reads it */
  bool *wished;    /* by tensor */
  VEC(wish) wishes;
} slicing;

static bool find_axis(ir_axes axes, ir_axis a, uint32_t *place) {
  for (uint32_t i = 0; i < axes.len; i++) {
    if (!IR_SAME(axes.data[i], a)) continue;
    *place = i;
    return true;
  }
  return false;
}

/* The tensor of the same name in the function as it is written; none: decomposition made it. */
static ir_tensor written(const slicing *s, ir_tensor t) {
  const ir_tensor_data *d = ir_tensor_at(s->g, t);
  bool same = t.id < s->f->tensors.len && ir_tensor_at(s->f, t)->name == d->name &&
              ir_tensor_at(s->f, t)->kind == IR_TENSOR_RESULT;
  return same ? t : (ir_tensor){0};
}

/* Has the axis as many positions as there would be slices, as far as that is known? */
static bool has_room(const slicing *s, ir_axis a, int64_t slices) {
  int64_t n;
  ir_scalar size = ir_axis_size(s->g, a);
  if (ir_scalar_is_const(&s->g->module->scalars, size, &n)) return n >= slices;
  return !ir_module_expects(s->g->module, size, &n) || n >= slices;
}

/* Where the axis of the logical domain is in the loop domain as it is written: neither split nor marked. */
static bool is_open(const slicing *s, ir_tensor t, uint32_t axis, uint32_t *place) {
  const ir_domains *now = &ir_tensor_at(s->f, t)->now;
  if (axis >= now->logical.len || !find_axis(now->loop, now->logical.data[axis], place))
    return false;
  const ir_axis_data *a = ir_axis_at(s->f, now->logical.data[axis]);
  return a->mark.kind == IR_MARK_NONE &&
         (a->kind == IR_AXIS_ITERATION || a->kind == IR_AXIS_REDUCTION);
}

static bool want(slicing *s, wish w) {
  uint32_t place;
  if (w.mesh.id >= s->f->meshes.len || !is_open(s, w.of, w.axis, &place)) return false;
  if (!s->wished[w.of.id]) vec_push(s->scratch, &s->wishes, w);
  s->wished[w.of.id] = true;
  return true;
}

/* ---- what is gathered ---- */
static bool is_gather(const slicing *s, const ir_op_data *op, shard_comm *m) {
  if (ir_op_info_of(op->code)->family != IR_FAMILY_SET) return false;
  if (shard_comm_of(s->c, op, m) != SHARD_ONE || m->kind != SHARD_ALLGATHER) return false;
  const shard_axis *a = &m->before.axes[m->mesh_axis];
  bool ranges = a->cut == SHARD_WHOLE || a->cut == SHARD_OUTER || a->cut == SHARD_CHUNKS;
  return ranges && a->contiguous && !a->nested && !a->swizzled && m->to_dim >= 0;
}

/* The pieces of the operand, as slices of the product. */
static bool want_pieces(slicing *s, const ir_op_data *op, uint32_t k) {
  ir_pair pairs[IR_MAX_RANK];
  ir_axis dims[IR_MAX_RANK];
  shard_comm m = {0};
  ir_op from = s->producer[op->operands[k].id];
  if (!from.id || !is_gather(s, ir_op_at(s->g, from), &m)) return false;
  wish w = {.of = written(s, op->result), .mesh = m.from, .mesh_axis = (uint32_t)m.mesh_axis};
  const shard_axis *cut = &m.before.axes[m.mesh_axis];
  w.whole = cut->cut == SHARD_WHOLE;
  w.chunks = cut->chunks;
  w.n_chunks = cut->n_chunks;
  (void)ir_tensor_dims(s->g, op->operands[k], dims);
  uint32_t n = ir_map_pairs(s->g, op, k, pairs);
  for (uint32_t i = 0; i < n && w.of.id; i++) {
    if (pairs[i].kind != IR_PAIR_EXACT || !IR_SAME(pairs[i].producer, dims[m.to_dim])) continue;
    ir_axes logical = ir_tensor_at(s->g, op->result)->now.logical;
    return find_axis(logical, pairs[i].consumer, &w.axis) && want(s, w);
  }
  return false;
}

/* ---- what is reduced, or gathered afterwards ---- */
/* The first dimension of `t` that no device has only a part of. */
static bool want_slices(slicing *s, ir_tensor t, ir_mesh mesh, uint32_t mesh_axis) {
  ir_tensor of = written(s, t);
  shard_placement p;
  ir_axes logical = ir_tensor_at(s->g, t)->now.logical;
  enum { MOST_SLICES = 8, LAST_SLICES = 4 };
  int64_t devices = ir_mesh_size(ir_mesh_at(s->g, mesh), mesh_axis);
  wish w = {.of = of, .mesh = mesh, .mesh_axis = mesh_axis};
  switch (s->which) {
  case SHARD_SLICE_ALL: w.slices = devices > MOST_SLICES ? MOST_SLICES : 0; break;
  case SHARD_SLICE_HALVES: w.slices = 2; break;
  case SHARD_SLICE_LAST: w.slices = devices != LAST_SLICES ? LAST_SLICES : 0; break;
  }
  int64_t slices = w.slices ? w.slices : devices;
  shard_placement_of(s->g, t, &p);
  for (uint32_t i = 0; i < logical.len && of.id; i++) {
    ir_axis a = logical.data[i];
    bool cut = ir_axis_at(s->g, a)->kind != IR_AXIS_ITERATION || !has_room(s, a, slices);
    for (uint32_t k = 0; k < p.rank; k++)
      cut = cut || (p.axes[k].kind == SHARD_SHARDED && IR_SAME(p.axes[k].logical, a));
    w.axis = i;
    if (!cut && want(s, w)) return true;
  }
  return false;
}

static bool want_reductions(slicing *s, const ir_op_data *op) {
  shard_placement p;
  shard_placement_of(s->g, op->result, &p);
  for (uint32_t k = 0; k < p.rank; k++) {
    bool reduced = p.axes[k].reduced.id && ir_mesh_size(ir_mesh_at(s->g, p.mesh), k) > 1;
    if (reduced && want_slices(s, op->result, p.mesh, k)) return true;
  }
  return false;
}

/* What is computed where its operand lies, and gathered then. */
static bool want_result(slicing *s, const ir_op_data *op) {
  shard_comm m = {0};
  ir_op set = s->gather[op->result.id];
  if (!set.id || !is_gather(s, ir_op_at(s->g, set), &m)) return false;
  return want_slices(s, ir_op_at(s->g, set)->result, m.from, (uint32_t)m.mesh_axis);
}

static void look_at(slicing *s, const ir_op_data *op) {
  if (!ir_op_is_product(op->code)) return;
  if (ir_axes_streamed(s->g, ir_tensor_at(s->g, op->result)->now.loop)) return;
  if (want_pieces(s, op, 0) || want_pieces(s, op, 1)) return;
  if (!want_reductions(s, op)) (void)want_result(s, op);
}

/* Nothing is left to compute while the result of the last one moves. */
static void look_at_last(slicing *s) {
  for (uint32_t i = s->g->order.len; i-- > 0;) {
    const ir_op_data *op = ir_op_at(s->g, s->g->order.data[i]);
    if (!ir_op_is_product(op->code)) continue;
    bool streamed = ir_axes_streamed(s->g, ir_tensor_at(s->g, op->result)->now.loop);
    if (!streamed && !want_reductions(s, op)) (void)want_result(s, op);
    return;
  }
}

static void look_at_all(slicing *s) {
  for (uint32_t i = 0; i < s->g->order.len; i++) look_at(s, ir_op_at(s->g, s->g->order.data[i]));
}

static void index_copy(slicing *s) {
  s->producer = ARENA_ARRAY(s->scratch, s->g->tensors.len, ir_op);
  s->gather = ARENA_ARRAY(s->scratch, s->g->tensors.len, ir_op);
  s->wished = ARENA_ARRAY(s->scratch, s->g->tensors.len, bool);
  for (uint32_t i = s->g->order.len; i-- > 0;) {
    const ir_op_data *op = ir_op_at(s->g, s->g->order.data[i]);
    s->producer[op->result.id] = s->g->order.data[i];
    if (ir_op_info_of(op->code)->family == IR_FAMILY_SET)
      s->gather[op->operands[0].id] = s->g->order.data[i];
  }
}

/* ---- statements ---- */
static bool add(ir_func *f, ir_tensor t, ir_stmt stmt) {
  ir_target *target = ARENA_NEW(&f->module->memory, ir_target);
  target->name = ir_tensor_at(f, t)->name;
  stmt.targets = target;
  stmt.n_targets = 1;
  stmt.at = ir_tensor_at(f, t)->at;
  return schedule_add_quiet(f, &stmt);
}

static bool split(ir_func *f, const wish *w, uint32_t place) {
  if (w->whole) return true;
  ir_stmt stmt = {.kind = IR_STMT_OUTER_SPLIT, .axis = place, .mesh = w->mesh};
  stmt.factor_is_mesh = !w->slices;
  stmt.mesh_axis = w->mesh_axis;
  stmt.mesh_axis_named = ir_mesh_at(f, w->mesh)->rank > 1;
  if (w->slices) stmt.factor = ir_scalar_const(&f->module->scalars, w->slices);
  if (w->n_chunks) {
    stmt = (ir_stmt){.kind = IR_STMT_CHUNK_SPLIT, .axis = place, .n_list = w->n_chunks};
    stmt.list = w->chunks;
  }
  return add(f, w->of, stmt);
}

static uint32_t write(slicing *s, ir_func *f, const wish *w) {
  uint32_t place;
  ir_why why = {.rule = IR_RULE_SLICED, .at = ir_tensor_at(f, w->of)->at};
  why.from = ir_tensor_at(f, w->of)->name;
  check(is_open(s, w->of, w->axis, &place));
  if (!split(f, w, place)) return 0;
  ir_stmt mark = {.kind = IR_STMT_MARK, .axis = place, .why = ir_why_add(f, why)};
  mark.mark.kind = IR_MARK_STREAM;
  return add(f, w->of, mark);
}

/* ---- whether everything still lies where it did ---- */
static bool same_axis(const shard_axis *a, const shard_axis *b) {
  if (a->kind != b->kind || (a->reduced.id == 0) != (b->reduced.id == 0)) return false;
  if (a->kind == SHARD_REPLICATED) return true;
  return a->dim == b->dim && a->cut == b->cut && a->swizzled == b->swizzled;
}

static bool lies_alike(const ir_func *a, const ir_func *b, ir_tensor t) {
  shard_placement p, q;
  shard_placement_of(a, t, &p);
  shard_placement_of(b, t, &q);
  if (!IR_SAME(p.mesh, q.mesh)) return false;
  for (uint32_t k = 0; k < p.rank; k++)
    if (!same_axis(&p.axes[k], &q.axes[k])) return false;
  return true;
}

/* A split for a stream may be in the way of one for devices. */
static bool keeps_places(slicing *s, const ir_func *placed, const wish *wishes, uint32_t n) {
  ir_func *tried = ir_func_copy(s->f);
  for (uint32_t i = 0; i < n; i++) (void)write(s, tried, &wishes[i]);
  (void)shard_propagate(tried);
  for (uint32_t i = 1; i < s->f->tensors.len; i++)
    if (!lies_alike(placed, tried, (ir_tensor){i})) return false;
  return true;
}

/* Those of the wishes with which everything lies as it does without. One by one only where all of them are too
 * many. */
static uint32_t grant(slicing *s, const ir_func *placed) {
  enum { MOST_TRIED = 32 };
  uint32_t kept = 0, n = s->wishes.len;
  wish *w = s->wishes.data;
  if (keeps_places(s, placed, w, n)) return n;
  for (uint32_t i = 0; i < n && n <= MOST_TRIED; i++) {
    w[kept] = w[i];
    kept += keeps_places(s, placed, w, kept + 1);
  }
  return kept;
}

uint32_t shard_slice_products(ir_func *f, shard_slices which, arena *scratch) {
  slicing s = {.f = f, .scratch = scratch, .which = which};
  if (!shard_is_distributed(f) || f->scheduled.len != f->order.len) return 0;
  ir_func *placed = ir_func_copy(f);
  (void)shard_propagate(placed);
  f->choice = placed->choice; /* what is sliced is placed by the same choice */
  s.g = ir_func_copy(placed);
  s.c = shard_begin(s.g, scratch);
  diags before = f->module->errors;
  bool decomposed = shard_decompose(s.c);
  f->module->errors = before; /* the pass that follows says what is wrong */
  if (!decomposed) return 0;
  index_copy(&s);
  if (which == SHARD_SLICE_LAST) look_at_last(&s);
  else look_at_all(&s);
  uint32_t n = s.wishes.len ? grant(&s, placed) : 0, written_marks = 0;
  for (uint32_t i = 0; i < n; i++) written_marks += write(&s, f, &s.wishes.data[i]);
  return written_marks;
}
