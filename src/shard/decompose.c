/* Splits operations that both compute and communicate, and changes along several mesh axes. */
#include <string.h>

#include "base/table.h"
#include "ir/build.h"
#include "schedule/schedule.h"
#include "shard/decompose.h"

typedef shard_decomposing decomposing;

enum { ALL_AXES = -1 };

static arena *memory_of(const decomposing *d) { return &d->f->module->memory; }

static void report(decomposing *d, const ir_op_data *op, const char *why) {
  diag_error(&d->f->module->errors, op->at,
             "the communication that '%s' needs is not supported: %s",
             ir_tensor_name(d->f, op->result), why);
  d->ok = false;
}

/* ---- building ---- */
/* set(of), not yet in the order; its dimensions are those of `of`, without marks or a mesh. */
static ir_op add_set(decomposing *d, ir_tensor of, uint32_t name, ir_why why) {
  ir_func *f = d->f;
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(f, of, dims);
  for (uint32_t i = 0; i < rank; i++) {
    ir_axis_data a = *ir_axis_at(f, dims[i]);
    dims[i] = ir_axis_new(f, a.kind, a.extent);
    ir_axis_at(f, dims[i])->expanded = a.expanded;
  }
  ir_axes list = ir_axes_new(f, dims, rank);
  ir_tensor_data t = {.kind = IR_TENSOR_RESULT, .name = name, .at = why.at};
  t.dtype = ir_tensor_at(f, of)->dtype;
  t.defined = (ir_domains){list, list, list, list, ir_dense_default(f, list)};
  t.now = t.defined;
  t.def = t.scheduled_def = (ir_op){f->ops.len};
  ir_tensor result = {f->tensors.len};
  ir_op_data op = {.code = IR_OP_SET, .at = why.at, .n_operands = 1, .result = result};
  /* mutant: why_copy_unsaid */
  op.why = ir_why_add(f, why);
  op.operands = arena_copy(memory_of(d), &of, sizeof of);
  op.attrs = ir_attrs_complete(f, ir_op_info_of(IR_OP_SET), NULL);
  vec_push(memory_of(d), &f->tensors, t);
  vec_push(memory_of(d), &f->ops, op);
  ir_func_declare(f, name, (ir_name_entry){IR_NAME_TENSOR, result.id});
  return t.def;
}

ir_op shard_add_set(decomposing *d, ir_tensor of, ir_why why) {
  return add_set(d, of, ir_func_fresh_name(d->f, ir_tensor_at(d->f, of)->name), why);
}

static ir_tensor result_of(const decomposing *d, ir_op o) { return ir_op_at(d->f, o)->result; }

void shard_put_on_mesh_of(decomposing *d, ir_tensor like, ir_tensor t) {
  ir_tensor_at(d->f, t)->mesh = ir_tensor_at(d->f, like)->mesh;
  /* mutant: why_mesh_unsaid */
  ir_tensor_at(d->f, t)->mesh_why = ir_tensor_at(d->f, like)->mesh_why;
}

static void replace_operand(decomposing *d, ir_op o, uint32_t k, ir_tensor by) {
  ir_op_data *op = ir_op_at(d->f, o);
  ir_tensor *list = arena_copy(memory_of(d), op->operands, op->n_operands * sizeof *list);
  list[k] = by;
  op->operands = list;
}

/* ---- marks ---- */
void shard_mark_like(decomposing *d, ir_tensor from, ir_tensor to, schedule_marks which) {
  ir_axis a[IR_MAX_RANK], b[IR_MAX_RANK];
  ir_pair pairs[IR_MAX_RANK];
  uint32_t n = ir_axes_dims(d->f, ir_tensor_at(d->f, from)->now.logical, a);
  (void)ir_axes_dims(d->f, ir_tensor_at(d->f, to)->now.logical, b);
  for (uint32_t i = 0; i < n; i++) pairs[i] = (ir_pair){a[i], b[i], IR_PAIR_EXACT};
  (void)schedule_replay_marked(d->f, from, to, pairs, n, which, NULL);
}

/* Mesh axes along which the result of `op` is reduced across devices. */
static uint32_t reduced_axes(const decomposing *d, ir_tensor t) {
  shard_placement p;
  uint32_t mask = 0;
  shard_placement_of(d->f, t, &p);
  for (uint32_t k = 0; k < p.rank; k++) {
    if (p.axes[k].reduced.id) mask |= 1u << k;
  }
  return mask;
}

/* The one cut of `axis` into equal pieces, the last of them shorter, if there is no other; else none. */
static ir_axis only_cut(const ir_func *f, ir_tensor t, ir_axis axis) {
  ir_axes loop = ir_tensor_at(f, t)->now.loop;
  ir_axis found = {0};
  for (uint32_t i = 0; i < loop.len; i++) {
    const ir_axis_data *a = ir_axis_at(f, loop.data[i]);
    if (a->mark.kind == IR_MARK_NONE || !shard_descends(f, loop.data[i], axis)) continue;
    const ir_transform_data *def = a->def.id ? ir_transform_at(f, a->def) : NULL;
    bool outer = def && def->kind == IR_OUTER_SPLIT && IR_SAME(def->in[0], axis) &&
                 IR_SAME(def->out[0], loop.data[i]);
    if (found.id || !outer) return (ir_axis){0};
    found = loop.data[i];
  }
  return found;
}

/* Is every piece of the consumer's dimension, of whatever length, what reads a piece of the producer's?
 *     8 heads in 5 pieces: 2 2 2 2 0      4 of those they read: 1 1 1 1 0 */
static bool pieces_match(const ir_func *f, ir_tensor t, const ir_pair *pair) {
  const ir_scalars *s = &f->module->scalars;
  ir_axis cut = only_cut(f, t, pair->consumer);
  int64_t pieces, many, few;
  if (!cut.id || !ir_scalar_is_const(s, ir_axis_size(f, cut), &pieces) || pieces < 1) return false;
  if (!ir_scalar_is_const(s, ir_axis_size(f, pair->consumer), &many)) return false;
  if (!ir_scalar_is_const(s, ir_axis_size(f, pair->producer), &few) || few < 1) return false;
  int64_t longest = many / pieces + (many % pieces != 0), read = few / pieces + (few % pieces != 0);
  return many % few == 0 && longest == read * (many / few);
}

bool shard_repeats_cuts(const decomposing *d, ir_tensor t, const ir_pair *pair) {
  bool bare = false;
  schedule_marks all = {true, (uint32_t)ALL_AXES};
  if (pair->kind == IR_PAIR_EXACT) return true;
  if (pair->kind != IR_PAIR_GROUP) return false;
  return pieces_match(d->f, t, pair) ||
         (shard_may_cross(d->f, t, pair->consumer, pair->producer, all, &bare) && !bare);
}

/* Pairs from the result's axes, reductions or others, to those of `to`, which represents operand k. */
static uint32_t backward_pairs(const decomposing *d, const ir_op_data *op, uint32_t k, ir_tensor to,
                               bool reductions, ir_pair *result) {
  ir_pair pairs[IR_MAX_RANK];
  ir_axis mine[IR_MAX_RANK], dims[IR_MAX_RANK];
  uint32_t n = ir_map_pairs(d->f, op, k, pairs), found = 0;
  uint32_t rank = ir_tensor_dims(d->f, op->operands[k], mine);
  (void)ir_tensor_dims(d->f, to, dims);
  for (uint32_t i = 0; i < n; i++) {
    bool reduction = ir_axis_at(d->f, pairs[i].consumer)->kind == IR_AXIS_REDUCTION;
    if (!shard_repeats_cuts(d, op->result, &pairs[i]) || reduction != reductions) continue;
    for (uint32_t j = 0; j < rank; j++) {
      if (!IR_SAME(mine[j], pairs[i].producer)) continue;
      result[found++] = (ir_pair){pairs[i].consumer, dims[j], IR_PAIR_EXACT};
    }
  }
  return found;
}

void shard_place_for(decomposing *d, const ir_op_data *op, uint32_t k, ir_tensor to) {
  ir_pair pairs[IR_MAX_RANK];
  bool bias = op->code == IR_OP_LINEAR && k == 2; /* added when partial results have been reduced */
  uint32_t reduced = bias ? 0 : reduced_axes(d, op->result);
  ir_why why = {.rule = IR_RULE_BACKWARD, .at = op->at};
  why.from = ir_tensor_at(d->f, op->result)->name;
  shard_put_on_mesh_of(d, op->result, to);
  uint32_t n = backward_pairs(d, op, k, to, true, pairs);
  schedule_marks reductions = {true, (uint32_t)ALL_AXES}, others = {true, ~reduced};
  (void)schedule_replay_marked(d->f, op->result, to, pairs, n, reductions, &why);
  n = backward_pairs(d, op, k, to, false, pairs);
  (void)schedule_replay_marked(d->f, op->result, to, pairs, n, others, &why);
  if (ir_op_info_of(op->code)->family != IR_FAMILY_RESHAPE) return;
  ir_op_data seen = *op;
  seen.operands = &to;
  (void)shard_cross_reshape(d->f, &seen, false, (uint32_t)ALL_AXES, &why);
}

/* ---- sets along several mesh axes ---- */
static uint32_t sharded_axes(const shard_placement *p) {
  uint32_t mask = 0;
  for (uint32_t k = 0; k < p->rank; k++) {
    if (p->axes[k].kind == SHARD_SHARDED) mask |= 1u << k;
  }
  return mask;
}

/* Puts a tensor between operand and result of `o`, with the marks of `like` along `axes`; the new set
 * follows o in the chain, and is returned. */
static ir_op insert_between(decomposing *d, ir_op o, ir_tensor like, uint32_t axes) {
  ir_op_data op = *ir_op_at(d->f, o);
  uint32_t name = ir_tensor_at(d->f, op.result)->name;
  ir_why why = {.rule = IR_RULE_STEP, .at = op.at, .from = name, .because = op.why};
  ir_op first = add_set(d, op.operands[0], ir_func_fresh_name(d->f, name), why);
  ir_tensor t = result_of(d, first);
  shard_put_on_mesh_of(d, like, t);
  shard_mark_like(d, like, t, (schedule_marks){false, axes});
  shard_mark_like(d, op.result, t, (schedule_marks){true, 0});
  replace_operand(d, o, 0, t);
  return first;
}

/* How many transforms lie between the marked axis and its dimension. */
static uint32_t depth_of(const ir_func *f, const shard_axis *a) {
  uint32_t n = 0;
  for (ir_axis at = shard_parent(f, a->loop); at.id; n++) at = shard_parent(f, at);
  return n;
}

/* The mesh axis of `among` whose cut is the innermost. Cuts of one dimension come from the outermost on and go from the
 * innermost on: a piece of a piece is nothing by itself. Of several the last axis of the mesh, or with
 * `outer_first` the first: devices along that are often on other hosts, and what is gathered first is least. */
static uint32_t innermost(const ir_func *f, const shard_placement *p, uint32_t among,
                          bool outer_first) {
  uint32_t best = (uint32_t)__builtin_ctz(among), most = 0, inside;
  for (uint32_t left = among; left; left &= left - 1) {
    uint32_t k = (uint32_t)__builtin_ctz(left), depth = depth_of(f, &p->axes[k]);
    /* mutant: dev_outermost_first */
    if (depth < most || (depth == most && !outer_first)) continue;
    best = k;
    most = depth;
  }
  while ((inside = shard_cuts_inside(f, p, best) & among)) best = (uint32_t)__builtin_ctz(inside);
  return best;
}

/* A cut inside the one that changes is a piece of another piece afterwards, even where the prover finds
 * the same index on both sides (pieces of one position, say): it changes too. */
static bool has_more_changes(const ir_func *f, shard_comm *m) {
  if (m->mesh_axis == SHARD_NO_AXIS) return false;
  uint32_t k = (uint32_t)m->mesh_axis;
  uint32_t inside = shard_cuts_inside(f, &m->before, k) | shard_cuts_inside(f, &m->after, k);
  /* mutant: inner_cut_kept */
  m->changed |= inside;
  return inside != 0;
}

/* Takes away a sharding that changes on the side of the operand, or adds one on that of the result last,
 * so that what is left has one change less. */
static void split_changes(decomposing *d, ir_op o, const shard_comm *m, uint32_t depth) {
  ir_op_data op = *ir_op_at(d->f, o);
  uint32_t from = sharded_axes(&m->before), to = sharded_axes(&m->after);
  uint32_t lost = m->changed & from, gained = m->changed & to & ~from;
  if (depth > 2 * IR_MESH_MAX_RANK || (lost | gained) == 0) {
    report(d, &op,
           "its sharding changes along several mesh axes in a way that does not come apart");
    return;
  }
  uint32_t last = gained ? innermost(d->f, &m->after, gained, false) : 0;
  bool adds = gained && (!lost || !shard_cuts_inside(d->f, &m->after, last));
  ir_tensor like = adds ? op.result : op.operands[0];
  uint32_t axes =
      adds ? to & ~(1u << last) : from & ~(1u << innermost(d->f, &m->before, lost, true));
  ir_op first = insert_between(d, o, like, axes);
  shard_settle(d, first, depth + 1);
  shard_settle(d, o, depth + 1);
}

/* A mesh axis whose pieces turn along one that changes, or that another mesh does not have so. */
static int32_t twisted_axis(const decomposing *d, const shard_comm *m, const shard_placement *p) {
  bool same = ir_mesh_same(ir_mesh_at(d->f, m->from), ir_mesh_at(d->f, m->to));
  for (uint32_t k = 0; k < p->rank; k++) {
    const shard_axis *a = &p->axes[k];
    if (a->kind != SHARD_SHARDED || !a->swizzled || a->swizzle_axis == k) continue;
    bool turns = !same || (m->changed >> a->swizzle_axis & 1);
    /* mutant: pieces_never_untwisted */
    if (turns && !shard_cuts_inside(d->f, p, k)) return (int32_t)k;
  }
  return -1;
}

/* Such pieces are put together before anything else changes, or taken apart when all else has changed. */
static bool untwist(decomposing *d, ir_op o, const shard_comm *m, uint32_t depth) {
  ir_op_data op = *ir_op_at(d->f, o);
  if (op.code != IR_OP_SET || !m->from.id || !m->to.id || depth > 2 * IR_MESH_MAX_RANK)
    return false;
  int32_t before = twisted_axis(d, m, &m->before), after = twisted_axis(d, m, &m->after);
  if (before < 0 && after < 0) return false;
  uint32_t from = sharded_axes(&m->before), to = sharded_axes(&m->after);
  ir_op first = before >= 0 ? insert_between(d, o, op.operands[0], from & ~(1u << before))
                            : insert_between(d, o, op.result, to & ~(1u << after));
  shard_settle(d, first, depth + 1);
  shard_settle(d, o, depth + 1);
  return true;
}

void shard_settle(decomposing *d, ir_op o, uint32_t depth) {
  ir_op_data op = *ir_op_at(d->f, o);
  shard_comm m;
  switch (shard_comm_of(d->c, &op, &m)) {
  case SHARD_ONE:
    if (op.code == IR_OP_SET && has_more_changes(d->f, &m)) split_changes(d, o, &m, depth);
    else vec_push(memory_of(d), &d->order, o);
    return;
  case SHARD_SEVERAL: split_changes(d, o, &m, depth); return;
  case SHARD_COMPUTES:
  case SHARD_UNSUPPORTED:
    if (!untwist(d, o, &m, depth)) report(d, &op, m.why ? m.why : "unknown");
    return;
  }
}

/* ---- before ---- */
ir_tensor shard_find_copy(decomposing *d, ir_op o, uint32_t k) {
  ir_op_data op = *ir_op_at(d->f, o);
  ir_tensor *seen = arena_copy(memory_of(d), op.operands, op.n_operands * sizeof *seen);
  op.operands = seen;
  for (uint32_t i = 0; i < d->copies.len; i++) {
    if (!IR_SAME(d->copies.data[i].from, ir_op_at(d->f, o)->operands[k])) continue;
    seen[k] = d->copies.data[i].to;
    /* mutant: dev_never_shared */
    if (shard_operand_fits(d->c, &op, k)) return seen[k];
  }
  return (ir_tensor){0};
}

static bool use_copy(decomposing *d, ir_op o, uint32_t k) {
  ir_tensor copy = shard_find_copy(d, o, k);
  if (copy.id) replace_operand(d, o, k, copy);
  return copy.id != 0;
}

uint32_t shard_decided_by(decomposing *d, const ir_op_data *op, uint32_t operand) {
  shard_placement p;
  shard_placement_of(d->f, op->result, &p);
  for (uint32_t k = 0; k < p.rank; k++) {
    const shard_axis *a = &p.axes[k];
    /* mutant: why_wrong_mark */
    if (!shard_differs(d->c, op, operand, k)) continue;
    if (a->loop.id) return ir_axis_at(d->f, a->loop)->why;
  }
  return ir_tensor_at(d->f, op->result)->mesh_why;
}

static void copy_operand(decomposing *d, ir_op o, uint32_t k) {
  ir_op_data op = *ir_op_at(d->f, o);
  uint32_t name = ir_tensor_at(d->f, op.operands[k])->name;
  ir_why why = {.rule = IR_RULE_BEFORE, .at = op.at, .from = name};
  why.because = shard_decided_by(d, &op, k);
  ir_op set = shard_add_set(d, op.operands[k], why);
  ir_tensor t = result_of(d, set);
  shard_place_for(d, &op, k, t);
  shard_settle(d, set, 0);
  vec_push(memory_of(d), &d->copies, ((shard_copied){op.operands[k], t}));
  replace_operand(d, o, k, t);
}

void shard_reshard_operand(decomposing *d, ir_op o, uint32_t k) {
  if (shard_operand_fits(d->c, ir_op_at(d->f, o), k) || use_copy(d, o, k)) return;
  /* mutant: views_copied_apart */
  if (!shard_copy_viewed(d, o, k) && !shard_copy_narrow(d, o, k)) copy_operand(d, o, k);
}

static void reshard_operands(decomposing *d, ir_op o) {
  for (uint32_t k = 0; k < ir_op_at(d->f, o)->n_operands; k++) shard_reshard_operand(d, o, k);
}

/* ---- after ---- */
static void clear_marks(decomposing *d, ir_tensor t) {
  ir_tensor_data *x = ir_tensor_at(d->f, t);
  ir_axes all[] = {x->defined.root, x->defined.logical};
  for (uint32_t i = 0; i < 2; i++) {
    for (uint32_t j = 0; j < all[i].len; j++) {
      ir_axis_at(d->f, all[i].data[j])->mark = (ir_mark){0};
    }
  }
  x->now.loop = x->defined.loop;
}

static void replace_uses(decomposing *d, ir_tensor of, ir_tensor by, ir_op except) {
  ir_func *f = d->f;
  for (uint32_t i = 0; i < f->order.len; i++) {
    ir_op o = f->order.data[i];
    if (IR_SAME(o, except)) continue;
    for (uint32_t k = 0; k < ir_op_at(f, o)->n_operands; k++) {
      if (IR_SAME(ir_op_at(f, o)->operands[k], of)) replace_operand(d, o, k, by);
    }
  }
  for (uint32_t i = 0; i < f->outputs.len; i++) {
    if (IR_SAME(f->outputs.data[i], of)) f->outputs.data[i] = by;
  }
}

void shard_keep_key(decomposing *d, ir_op o) {
  ir_op_data *op = ir_op_at(d->f, o);
  if (op->code != IR_OP_UNIFORM || ir_op_attr(op, "key")->given) return;
  const char *name = ir_tensor_name(d->f, op->result);
  ir_attr *attrs =
      arena_copy(memory_of(d), op->attrs, ir_op_info_of(op->code)->n_attrs * sizeof *attrs);
  ir_attr *key = &attrs[ir_op_attr(op, "key") - op->attrs];
  key->given = true;
  key->i = (int64_t)hash_bytes(name, strlen(name));
  op->attrs = attrs;
}

ir_op shard_set_of_result(decomposing *d, ir_tensor old, ir_why why) {
  ir_func *f = d->f;
  uint32_t name = ir_tensor_at(f, old)->name, other = ir_func_fresh_name(d->f, name);
  why.from = name;
  ir_op set = add_set(d, old, other, why);
  ir_tensor now = result_of(d, set);
  shard_mark_like(d, old, now, (schedule_marks){true, (uint32_t)ALL_AXES});
  shard_put_on_mesh_of(d, old, now);
  ir_tensor_at(f, now)->placed = ir_tensor_at(f, old)->placed;
  ir_tensor_at(f, now)->memory = ir_tensor_at(f, old)->memory;
  ir_tensor_at(f, now)->shrinks = ir_tensor_at(f, old)->shrinks;
  ir_tensor_at(f, now)->name = name;
  ir_tensor_at(f, old)->name = other;
  ir_func_declare(f, name, (ir_name_entry){IR_NAME_TENSOR, now.id});
  ir_func_declare(f, other, (ir_name_entry){IR_NAME_TENSOR, old.id});
  replace_uses(d, old, now, set);
  /* What needs it as it was computed takes that. */
  if (!ir_axes_streamed(f, ir_tensor_at(f, now)->now.loop))
    vec_push(memory_of(d), &d->copies, ((shard_copied){now, old}));
  clear_marks(d, old);
  ir_tensor_at(f, old)->mesh = (ir_mesh){0};
  return set;
}

static ir_op set_behind(decomposing *d, ir_op o, uint32_t k, ir_rule rule) {
  ir_why why = {.rule = rule, .at = ir_op_at(d->f, o)->at};
  shard_keep_key(d, o);
  why.because = shard_decided_by(d, ir_op_at(d->f, o), k);
  return shard_set_of_result(d, result_of(d, o), why);
}

/* Lets the result of `o` lie as its operand k does. */
static void place_like_operand(decomposing *d, ir_op o, uint32_t k) {
  ir_op_data op = *ir_op_at(d->f, o);
  ir_pair pairs[IR_MAX_RANK];
  uint32_t n = ir_map_pairs(d->f, &op, k, pairs);
  ir_why why = {.rule = IR_RULE_FORWARD, .at = op.at};
  why.from = ir_tensor_at(d->f, op.operands[k])->name;
  shard_put_on_mesh_of(d, op.operands[k], op.result);
  (void)schedule_replay_marked(d->f, op.operands[k], op.result, pairs, n,
                               (schedule_marks){false, (uint32_t)ALL_AXES}, &why);
}

static bool is_streamed(const ir_func *f, ir_tensor t, ir_axis a) {
  ir_axes loop = ir_tensor_at(f, t)->now.loop;
  for (uint32_t i = 0; i < loop.len; i++) {
    if (IR_SAME(loop.data[i], a)) return ir_axis_at(f, a)->mark.kind == IR_MARK_STREAM;
  }
  return false;
}

/* Where positions along one dimension are dealt out for those along another, and the result of the
 * exchange is to arrive in slices, what leaves is computed in such slices too:
 *     u[stream, mesh.x] = op(x[mesh.x, n])  =>  u$1[mesh.x, stream] = op(x);  u[stream, mesh.x] = set(u$1) */
static void stream_what_leaves(decomposing *d, ir_tensor leaves, ir_tensor arrives) {
  shard_placement from, to;
  ir_axis mine[IR_MAX_RANK], theirs[IR_MAX_RANK];
  (void)ir_axes_dims(d->f, ir_tensor_at(d->f, leaves)->now.logical, mine);
  (void)ir_axes_dims(d->f, ir_tensor_at(d->f, arrives)->now.logical, theirs);
  shard_placement_of(d->f, leaves, &from);
  shard_placement_of(d->f, arrives, &to);
  for (uint32_t k = 0; k < from.rank && k < to.rank; k++) {
    const shard_axis *a = &from.axes[k], *b = &to.axes[k];
    if (a->kind != SHARD_SHARDED || b->kind != SHARD_SHARDED || a->dim == b->dim) continue;
    bool dealt = a->cut == SHARD_WHOLE && b->cut == SHARD_WHOLE;
    if (!dealt || !is_streamed(d->f, arrives, theirs[a->dim])) continue;
    ir_axis_data *axis = ir_axis_at(d->f, mine[b->dim]);
    if (axis->mark.kind != IR_MARK_NONE) continue;
    /* mutant: nothing_leaves_in_slices */
    axis->mark.kind = IR_MARK_STREAM;
    axis->why = ir_axis_at(d->f, theirs[a->dim])->why;
  }
}

bool shard_is_local(decomposing *d, ir_op o) {
  const ir_op_data *op = ir_op_at(d->f, o);
  return shard_fits(d->c, op) && shard_counts_fit(d->f, op) && !shard_needs_whole(d->f, op);
}

/* Mesh axes along which `set` is cut in dimensions that the operation leaves as they are. */
static uint32_t untouched_axes(const decomposing *d, ir_op o, ir_op set) {
  const ir_op_data *op = ir_op_at(d->f, o);
  ir_family family = ir_op_info_of(op->code)->family;
  shard_placement p;
  ir_axis dims[IR_MAX_RANK];
  uint32_t mask = 0;
  if (family != IR_FAMILY_SLICE && family != IR_FAMILY_PAD) return 0;
  shard_placement_of(d->f, result_of(d, set), &p);
  (void)ir_tensor_dims(d->f, op->result, dims);
  for (uint32_t k = 0; k < p.rank; k++) {
    const shard_axis *a = &p.axes[k];
    if (a->kind == SHARD_SHARDED && !a->swizzled && !ir_axis_at(d->f, dims[a->dim])->def.id)
      mask |= 1u << k;
  }
  return mask;
}

/* Every device computes the whole of what `set` copies, but for what is cut in dimensions that stay, and `set` takes its
 * part. */
static void compute_whole(decomposing *d, ir_op o, ir_op set) {
  uint32_t kept = untouched_axes(d, o, set);
  clear_marks(d, result_of(d, o));
  shard_put_on_mesh_of(d, result_of(d, set), result_of(d, o));
  shard_mark_like(d, result_of(d, set), result_of(d, o), (schedule_marks){false, kept});
  reshard_operands(d, o);
  if (kept && !shard_is_local(d, o)) {
    clear_marks(d, result_of(d, o));
    reshard_operands(d, o);
  }
  ir_op_data op = *ir_op_at(d->f, o);
  if (!shard_fits(d->c, &op)) report(d, &op, "an operand cannot be brought to all devices");
}

static void reshard_result(decomposing *d, ir_op o) {
  uint32_t k = 0;
  while (shard_operand_fits(d->c, ir_op_at(d->f, o), k)) k++;
  ir_op set = set_behind(d, o, k, IR_RULE_AFTER);
  place_like_operand(d, o, k);
  shard_mark_like(d, result_of(d, set), result_of(d, o), (schedule_marks){true, 0});
  stream_what_leaves(d, result_of(d, o), result_of(d, set));
  bool whole = shard_needs_whole(d->f, ir_op_at(d->f, o));
  if (!whole) reshard_operands(d, o);
  /* mutant: cyclic_positions_trusted */
  if (whole || !shard_is_local(d, o)) compute_whole(d, o, set);
  vec_push(memory_of(d), &d->order, o);
  shard_settle(d, set, 0);
}

/* The last resort. */
static void compute_everywhere(decomposing *d, ir_op o) {
  ir_op set = set_behind(d, o, 0, IR_RULE_WHOLE);
  compute_whole(d, o, set);
  vec_push(memory_of(d), &d->order, o);
  shard_settle(d, set, 0);
}

/* ---- reductions ---- */
/* Is operand k sharded along mesh axis `axis`, in the dimension that maps to reduction `r`? */
static bool is_cut_along(const decomposing *d, const ir_op_data *op, uint32_t k, ir_axis r,
                         uint32_t axis, bool *has_it) {
  ir_pair pairs[IR_MAX_RANK];
  shard_placement p;
  uint32_t n = ir_map_pairs(d->f, op, k, pairs);
  *has_it = false;
  for (uint32_t i = 0; i < n; i++) {
    if (!IR_SAME(pairs[i].consumer, r)) continue;
    *has_it = true;
    shard_placement_of(d->f, op->operands[k], &p);
    const shard_axis *a = &p.axes[axis]; /* turned pieces would be added up in another order */
    bool cut = axis < p.rank && a->kind == SHARD_SHARDED && !a->swizzled;
    return cut && IR_SAME(a->logical, pairs[i].producer);
  }
  return false;
}

static bool all_cut_along(const decomposing *d, const ir_op_data *op, ir_axis r, uint32_t axis,
                          uint32_t *first) {
  bool any = false;
  for (uint32_t k = 0; k < op->n_operands; k++) {
    bool has_it;
    if (op->operands[k].id == 0) continue;
    bool cut = is_cut_along(d, op, k, r, axis, &has_it);
    if (has_it && !cut) return false;
    if (cut && !any) *first = k;
    any = any || cut;
  }
  return any;
}

/* Operands that are all sharded along a reduced dimension give partial results. */
static void mark_reduction(decomposing *d, const ir_op_data *op, ir_axis r) {
  ir_mesh mesh = ir_tensor_at(d->f, op->result)->mesh;
  uint32_t rank = ir_mesh_at(d->f, mesh)->rank, first = 0;
  uint32_t axes = 0;
  for (uint32_t axis = 0; axis < rank; axis++) {
    if (reduced_axes(d, op->result) >> axis & 1) continue;
    if (all_cut_along(d, op, r, axis, &first)) axes |= 1u << axis;
  }
  ir_tensor from = op->operands[first];
  const ir_mesh_data *a = ir_mesh_at(d->f, ir_tensor_at(d->f, from)->mesh);
  if (!axes || !ir_mesh_same(a, ir_mesh_at(d->f, mesh))) return;
  ir_pair pairs[IR_MAX_RANK], one = {0};
  uint32_t n = ir_map_pairs(d->f, op, first, pairs);
  for (uint32_t i = 0; i < n; i++) {
    if (IR_SAME(pairs[i].consumer, r)) one = pairs[i];
  }
  /* mutant: why_partial_unsaid */
  ir_why why = {.rule = IR_RULE_PARTIAL, .at = op->at, .from = ir_tensor_at(d->f, from)->name};
  (void)schedule_replay_marked(d->f, from, op->result, &one, 1, (schedule_marks){false, axes},
                               &why);
}

bool shard_gives_parts(decomposing *d, const ir_op_data *op) {
  ir_axes root = ir_tensor_at(d->f, op->result)->now.root;
  uint32_t first, rank = ir_mesh_at(d->f, ir_tensor_at(d->f, op->result)->mesh)->rank;
  for (uint32_t i = 0; i < root.len; i++) {
    if (ir_axis_at(d->f, root.data[i])->kind != IR_AXIS_REDUCTION) continue;
    for (uint32_t axis = 0; axis < rank; axis++)
      if (all_cut_along(d, op, root.data[i], axis, &first)) return true;
  }
  return false;
}

static void mark_reductions(decomposing *d, const ir_op_data *op) {
  ir_axes root = ir_tensor_at(d->f, op->result)->now.root;
  for (uint32_t i = 0; i < root.len; i++) {
    if (ir_axis_at(d->f, root.data[i])->kind == IR_AXIS_REDUCTION)
      mark_reduction(d, op, root.data[i]);
  }
}

/* ---- operations ---- */
bool shard_only_moves(decomposing *d, const ir_op_data *op) {
  shard_comm m;
  ir_family family = ir_op_info_of(op->code)->family;
  if (family != IR_FAMILY_SET && family != IR_FAMILY_REDUCE && family != IR_FAMILY_PAD)
    return false;
  shard_answer answer = shard_comm_of(d->c, op, &m);
  if (answer == SHARD_SEVERAL) return family == IR_FAMILY_SET;
  /* What is scattered around a cut that is there already does not come in pieces of that. */
  bool around = answer == SHARD_ONE && family == IR_FAMILY_REDUCE && m.mesh_axis >= 0 &&
                shard_cuts_inside(d->f, &m.after, (uint32_t)m.mesh_axis);
  /* mutant: scattered_around */
  return !around && answer == SHARD_ONE && m.kind != SHARD_NONE;
}

static bool prefers_before(decomposing *d, ir_op o) {
  const ir_op_data *op = ir_op_at(d->f, o);
  /* mutant: dev_always_before */
  if (shard_prefer_before(d->c, op, 0)) return true;
  uint32_t brought = shard_brought(d, o);
  return brought && shard_prefer_before(d->c, op, brought);
}

static void decompose_op(decomposing *d, ir_op o) {
  ir_op_data op = *ir_op_at(d->f, o);
  if (shard_only_moves(d, &op)) {
    shard_settle(d, o, 0);
    return;
  }
  shard_unmark_unshared(d->f, &op);
  mark_reductions(d, &op);
  if (!shard_fits(d->c, &op)) {
    bool partial = reduced_axes(d, op.result) != 0;
    if (!partial && !prefers_before(d, o)) {
      reshard_result(d, o);
      return;
    }
    if (!partial && shard_turn(d, o)) return;
    reshard_operands(d, o);
  }
  if (!shard_is_local(d, o)) {
    compute_everywhere(d, o);
    return;
  }
  vec_push(memory_of(d), &d->order, o);
}

static void decompose(decomposing *d, ir_op o) {
  decompose_op(d, o);
  shard_follow_first(d, o);
}

bool shard_decompose(shard_ctx *c) {
  ir_func *f = c->f;
  decomposing d = {.f = f, .c = c, .ok = true};
  uint32_t n_tensors = f->tensors.len;
  const bool *was_read = shard_reads(f, c->scratch);
  shard_place_all(f);
  for (d.at = 0; d.at < f->order.len; d.at++) decompose(&d, f->order.data[d.at]);
  shard_drop_unread(&d, was_read, n_tensors);
  f->order.data = d.order.data;
  f->order.len = d.order.len;
  f->order.cap = d.order.cap;
  f->scheduled.data = arena_copy(memory_of(&d), d.order.data, d.order.len * sizeof *d.order.data);
  f->scheduled.len = f->scheduled.cap = d.order.len;
  return d.ok;
}
