/* Propagation: a few marks reach the whole program. docs/shard.md has the rules in words. */
#include <string.h>

#include "ir/build.h"
#include "schedule/schedule.h"
#include "shard/form.h"
#include "shard/internal.h"

typedef struct propagating {
  ir_func *f;
  const bool *open; /* by tensor: it may get marks; NULL: all may */
  const shard_choice *choice;
  uint32_t yields;   /* mesh axes that the reference says nothing about */
  uint32_t turned;   /* mesh axes along which the operation is turned */
  uint32_t time;     /* counts visits */
  uint32_t *changed; /* by tensor: when it last was */
  uint32_t *seen[2]; /* by operation and direction: when it was last visited */
} propagating;

enum { ALL_AXES = -1 };

/* ---- what a tensor may still get ---- */
bool shard_is_frozen(const ir_func *f, ir_tensor t) { return ir_tensor_at(f, t)->placed; }

/* `on` is the user's whole word about devices, and about streams unless the tensor is an input. Inputs
 * lie as their owner says: they get no device marks from others. A mark comes once per tensor, but a
 * reduction on a mesh axis leaves room for another axis on it. */
schedule_marks shard_open_marks(const ir_func *f, ir_tensor t) {
  const ir_tensor_data *d = ir_tensor_at(f, t);
  bool input = d->kind == IR_TENSOR_INPUT;
  /* mutant: propagate_streams_onto_placed, propagate_no_streams_to_inputs */
  schedule_marks open = {.streams = !d->placed || input};
  /* mutant: propagate_onto_placed, propagate_devices_to_inputs */
  if (!d->placed && !input) open.mesh_axes = (uint32_t)ALL_AXES;
  for (uint32_t i = 0; i < d->now.loop.len; i++) {
    const ir_axis_data *a = ir_axis_at(f, d->now.loop.data[i]);
    /* mutant: propagate_two_streams */
    if (a->mark.kind == IR_MARK_STREAM) open.streams = false;
    /* mutant: propagate_reduction_closes */
    if (a->mark.kind == IR_MARK_MESH && a->kind != IR_AXIS_REDUCTION)
      open.mesh_axes &= ~(1u << a->mark.mesh_axis);
  }
  return open;
}

/* Marks along mesh axes that both meshes have, with as many devices. */
static uint32_t common_axes(const ir_func *f, ir_mesh a, ir_mesh b) {
  uint32_t mask = 0;
  if (a.id == 0 || b.id == 0) return 0;
  const ir_mesh_data *x = ir_mesh_at(f, a), *y = ir_mesh_at(f, b);
  for (uint32_t k = 0; k < x->rank && k < y->rank; k++) {
    /* mutant: propagate_any_mesh */
    if (ir_mesh_size(x, k) == ir_mesh_size(y, k)) mask |= 1u << k;
  }
  return mask;
}

/* ---- pairs of axes, across a reshape ---- */
/* A reference axis and the one of the target that takes over its marks. */
typedef struct link {
  ir_axis from, to;
  bool crossed; /* of different length: the outermost parts of a reshape, or heads in groups */
  bool whole;   /* every position needs all: devices may share them, iterations may not */
} link;

/* Is the operation computed from partial results where the axis it works along is sharded? (forms.c) */
static bool shares_whole(const ir_op_data *op) {
  ir_family family = ir_op_info_of(op->code)->family;
  return family == IR_FAMILY_SOFTMAX || family == IR_FAMILY_NORM || op->code == IR_OP_CUMSUM;
}

static uint32_t find_links(const ir_func *f, const ir_op_data *op, uint32_t k, bool forward,
                           link *links) {
  ir_pair pairs[IR_MAX_RANK];
  const ir_domains *now = &ir_tensor_at(f, op->result)->now;
  ir_family family = ir_op_info_of(op->code)->family;
  bool reshape = family == IR_FAMILY_RESHAPE;
  uint32_t n_pairs = ir_map_pairs(f, op, k, pairs), n = 0;
  for (uint32_t i = 0; i < now->logical.len; i++) {
    ir_axis mine = now->logical.data[i], root = ir_map_root(f, now->root, mine);
    bool crossed = !IR_SAME(mine, root);
    for (uint32_t j = 0; j < n_pairs && root.id && (reshape || !crossed); j++) {
      bool exact = pairs[j].kind == IR_PAIR_EXACT, group = pairs[j].kind == IR_PAIR_GROUP;
      bool whole = pairs[j].kind == IR_PAIR_WHOLE && shares_whole(op);
      /* mutant: propagate_not_exact */
      if ((!exact && !group && !whole) || !IR_SAME(pairs[j].consumer, root)) continue;
      ir_axis other = pairs[j].producer;
      bool across = crossed || group;
      links[n++] =
          forward ? (link){other, mine, across, whole} : (link){mine, other, across, whole};
    }
  }
  return n;
}

/* The same between the first result and result k; forward: from the first. */
static uint32_t find_result_links(const ir_func *f, const ir_op_data *op, uint32_t k, bool forward,
                                  link *links) {
  ir_pair pairs[IR_MAX_RANK];
  uint32_t n = ir_map_result_pairs(f, op, k, pairs);
  for (uint32_t i = 0; i < n; i++) {
    bool group = pairs[i].kind == IR_PAIR_GROUP;
    links[i] = forward ? (link){pairs[i].consumer, pairs[i].producer, group, false}
                       : (link){pairs[i].producer, pairs[i].consumer, group, false};
  }
  return n;
}

/* The loop axes of `from` that descend from `axis` and bear marks of `which`: into how many pieces do
 * they cut it together? None if they do so in another way than by outer splits. */
static ir_scalar pieces_along(ir_func *f, ir_tensor from, ir_axis axis, schedule_marks which,
                              bool *bare) {
  ir_axes loop = ir_tensor_at(f, from)->now.loop;
  ir_scalar product = {0};
  *bare = false;
  for (uint32_t i = 0; i < loop.len; i++) {
    bool wanted = schedule_has_mark(which, ir_axis_at(f, loop.data[i])->mark);
    ir_scalar pieces = ir_axis_size(f, loop.data[i]);
    ir_axis a = loop.data[i];
    bool outer = true;
    while (wanted && !IR_SAME(a, axis) && ir_axis_at(f, a)->def.id) {
      const ir_transform_data *t = ir_transform_at(f, ir_axis_at(f, a)->def);
      /* mutant: propagate_reshape_inner */
      outer = outer && t->kind == IR_OUTER_SPLIT;
      if (outer && IR_SAME(a, t->out[1]))
        pieces = ir_scalar_mul(&f->module->scalars, pieces, ir_axis_size(f, t->out[0]));
      a = t->in[0];
    }
    if (!wanted || !IR_SAME(a, axis)) continue;
    if (!outer) return (ir_scalar){0};
    *bare = IR_SAME(loop.data[i], axis);
    /* The innermost cut counts all the pieces. */
    if (product.id == 0 || ir_scalar_le(&f->module->scalars, product, pieces) == IR_TRUE)
      product = pieces;
  }
  return product;
}

static bool divides(ir_func *f, ir_scalar pieces, ir_axis a) {
  return ir_func_divides(f, pieces, ir_axis_size(f, a)) == IR_TRUE;
}

/* Cuts of a dimension survive a reshape if all pieces are of equal length on both sides. */
bool shard_may_cross(ir_func *f, ir_tensor from, ir_axis axis, ir_axis to, schedule_marks which,
                     bool *bare) {
  ir_scalar pieces = pieces_along(f, from, axis, which, bare);
  /* mutant: propagate_reshape_from, propagate_reshape_to */
  return pieces.id && divides(f, pieces, axis) && divides(f, pieces, to);
}

/* ---- one tensor after another ---- */
static uint32_t add_stmt(propagating *p, ir_tensor to, ir_stmt stmt) {
  ir_target *target = ARENA_NEW(&p->f->module->memory, ir_target);
  target->name = ir_tensor_at(p->f, to)->name;
  stmt.targets = target;
  stmt.n_targets = 1;
  return schedule_add_quiet(p->f, &stmt);
}

static uint32_t take_mesh(propagating *p, ir_tensor from, ir_tensor to, ir_why why) {
  const ir_tensor_data *ref = ir_tensor_at(p->f, from);
  if (ref->mesh.id == 0 || ir_tensor_at(p->f, to)->mesh.id) return 0;
  why.because = ref->mesh_why;
  ir_stmt stmt = {.kind = IR_STMT_ON, .mesh = ref->mesh, .why = ir_why_add(p->f, why)};
  return add_stmt(p, to, stmt);
}

/* An axis marked as a whole that a reshape made the outer part of a longer one. */
static uint32_t take_bare(propagating *p, ir_tensor to, const link *l, schedule_marks open,
                          ir_why why) {
  ir_func *f = p->f;
  ir_axis_data from = *ir_axis_at(f, l->from);
  ir_axes loop = ir_tensor_at(f, to)->now.loop;
  uint32_t at = 0;
  while (at < loop.len && !IR_SAME(loop.data[at], l->to)) at++;
  if (!schedule_has_mark(open, from.mark) || at == loop.len ||
      ir_axis_at(f, l->to)->mark.kind != IR_MARK_NONE)
    return 0;
  ir_scalar pieces = ir_axis_size(f, l->from);
  if (from.mark.kind == IR_MARK_MESH && !ir_scalar_is_const(&f->module->scalars, pieces, NULL))
    return 0; /* as many as devices, but that is only known when shapes are */
  ir_stmt split = {.kind = IR_STMT_OUTER_SPLIT, .axis = at, .factor = pieces};
  why.because = from.why;
  ir_stmt mark = {.kind = IR_STMT_MARK, .axis = at, .mark = from.mark, .why = ir_why_add(f, why)};
  return add_stmt(p, to, split) && add_stmt(p, to, mark);
}

/* Does another result of its operation have streams? Then it gets those, and no others: all results are
 * made in the same loops. */
static bool has_streams_to_take(const ir_func *f, ir_tensor t) {
  ir_op def = ir_tensor_at(f, t)->scheduled_def;
  if (def.id == 0) return false;
  const ir_op_data *op = ir_op_at(f, def);
  for (uint32_t k = 0; k < ir_op_n_results(op); k++) {
    ir_tensor other = ir_op_result(op, k);
    if (IR_SAME(other, t)) continue;
    if (ir_axes_streamed(f, ir_tensor_at(f, other)->now.loop)) return true;
  }
  return false;
}

/* The marks that `to` may get from `from`. */
static schedule_marks common_marks(const propagating *p, ir_tensor from, ir_tensor to,
                                   ir_rule rule) {
  const ir_func *f = p->f;
  schedule_marks open = shard_open_marks(f, to);
  if (rule != IR_RULE_RESULT && has_streams_to_take(f, to)) open.streams = false;
  open.mesh_axes &= common_axes(f, ir_tensor_at(f, from)->mesh, ir_tensor_at(f, to)->mesh);
  open.mesh_axes &= ~p->yields;
  return open;
}

/* Is it a step of a form? These have a form no more. */
static bool is_step(const propagating *p, ir_tensor t) { return p->open && p->open[t.id]; }

/* Does `t` come of partial results along these mesh axes, perhaps through elementwise operations? */
static bool comes_in_parts(const ir_func *f, ir_tensor t, uint32_t mesh_axes, uint32_t steps) {
  ir_op def = ir_tensor_at(f, t)->scheduled_def;
  shard_placement p;
  if (def.id == 0 || steps == 0) return false;
  shard_placement_of(f, t, &p);
  for (uint32_t k = 0; k < p.rank; k++)
    if ((mesh_axes >> k & 1) && p.axes[k].reduced.id) return true;
  const ir_op_data *op = ir_op_at(f, def);
  ir_family family = ir_op_info_of(op->code)->family;
  if (family != IR_FAMILY_POINTWISE && family != IR_FAMILY_CAST) return false;
  for (uint32_t k = 0; k < op->n_operands; k++)
    if (comes_in_parts(f, op->operands[k], mesh_axes, steps - 1)) return true;
  return false;
}

/* Of an operand that all devices have, each computes its piece of the result without a word to the others: it is not
 * cut for the sake of the result. Partial results are scattered if it is. */
static bool stays_whole(const propagating *p, ir_tensor to, const ir_why *why, uint32_t mesh_axes) {
  enum { STEPS = 8 };
  return why->rule == IR_RULE_BACKWARD && !p->open && !comes_in_parts(p->f, to, mesh_axes, STEPS);
}

/* What every position of `to` needs all of may be shared by devices, but not by iterations. */
static uint32_t take_whole(propagating *p, ir_tensor from, ir_tensor to, const link *links,
                           uint32_t n_links, ir_why why) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < n_links; i++) {
    schedule_marks open = common_marks(p, from, to, why.rule);
    ir_pair pair = {links[i].from, links[i].to, IR_PAIR_EXACT};
    open.streams = false;
    if (links[i].whole && open.mesh_axes && !is_step(p, to) &&
        !stays_whole(p, to, &why, open.mesh_axes))
      n += schedule_replay_marked(p->f, from, to, &pair, 1, open, &why);
  }
  return n;
}

/* Does the operation of `result` reduce what devices have in another order on each line of them? Parts are combined
 * in the order of devices, so a result that is rounded would differ from line to line. */
static bool reduces_turned(const ir_func *f, ir_tensor from, ir_tensor result, const link *l) {
  shard_placement at;
  if (ir_axis_at(f, l->to)->kind != IR_AXIS_REDUCTION) return false;
  if (!shard_rounds(f, ir_op_at(f, ir_tensor_at(f, result)->scheduled_def))) return false;
  shard_placement_of(f, from, &at);
  for (uint32_t k = 0; k < at.rank; k++) {
    const shard_axis *a = &at.axes[k];
    if (a->kind == SHARD_SHARDED && a->swizzled && IR_SAME(a->logical, l->from)) return true;
  }
  return false;
}

/* Lets `to` lie and iterate like `from`, as far as it is free to. */
static void take_along(propagating *p, ir_tensor from, ir_tensor to, const link *links,
                       uint32_t n_links, ir_why why) {
  ir_func *f = p->f;
  if (p->open && !p->open[to.id]) return;
  why.from = ir_tensor_at(f, from)->name;
  /* mutant: propagate_no_mesh */
  uint32_t n = shard_is_frozen(f, to) ? 0 : take_mesh(p, from, to, why);
  schedule_marks open = common_marks(p, from, to, why.rule);
  ir_pair pairs[IR_MAX_RANK];
  uint32_t n_pairs = 0;
  for (uint32_t i = 0; i < n_links; i++) {
    bool bare = false;
    if (links[i].whole || reduces_turned(f, from, to, &links[i])) continue;
    if (links[i].crossed && !shard_may_cross(f, from, links[i].from, links[i].to, open, &bare))
      continue;
    /* mutant: propagate_reshape_bare */
    if (bare && links[i].crossed) n += take_bare(p, to, &links[i], open, why);
    else pairs[n_pairs++] = (ir_pair){links[i].from, links[i].to, IR_PAIR_EXACT};
  }
  if (open.streams || open.mesh_axes)
    n += schedule_replay_marked(f, from, to, pairs, n_pairs, open, &why);
  n += take_whole(p, from, to, links, n_links, why);
  if (n) p->changed[to.id] = p->time;
}

/* Cuts of dimensions that a reshape merges or splits, and that the other side has as parts. */
static void take_parts(propagating *p, const ir_op_data *op, bool forward, ir_why why) {
  ir_tensor from = forward ? op->operands[0] : op->result;
  ir_tensor to = forward ? op->result : op->operands[0];
  if (p->open && !p->open[to.id]) return;
  why.from = ir_tensor_at(p->f, from)->name;
  uint32_t open = common_marks(p, from, to, why.rule).mesh_axes;
  /* mutant: propagate_no_parts */
  if (open && shard_cross_reshape(p->f, op, forward, open, &why)) p->changed[to.id] = p->time;
}

/* A shift of a tensor by a few positions lies as that does: devices send what crosses the ends of their pieces. */
static void take_shifted(propagating *p, const ir_op_data *op, bool forward, ir_why why) {
  ir_axis from[IR_MAX_RANK], to[IR_MAX_RANK];
  link links[IR_MAX_RANK];
  ir_tensor shifted = form_shifted(p->f, op);
  if (!shifted.id) return;
  (void)ir_axes_dims(p->f, ir_tensor_at(p->f, shifted)->now.logical, from);
  uint32_t n = ir_axes_dims(p->f, ir_tensor_at(p->f, op->result)->now.logical, to);
  for (uint32_t i = 0; i < n; i++)
    links[i] = forward ? (link){from[i], to[i], false, true} : (link){to[i], from[i], false, true};
  if (forward) take_along(p, shifted, op->result, links, n, why);
  else take_along(p, op->result, shifted, links, n, why);
}

/* Every k-th position of a tensor lies as that does, where pieces are of equal length on both sides. */
static void take_stepped(propagating *p, const ir_op_data *op, bool forward, ir_why why) {
  ir_axis x[IR_MAX_RANK], y[IR_MAX_RANK];
  link links[IR_MAX_RANK];
  int64_t start, step;
  bool bare;
  uint32_t n = 0;
  if (op->code != IR_OP_SLICE) return;
  ir_tensor from = forward ? op->operands[0] : op->result;
  ir_tensor to = forward ? op->result : op->operands[0];
  schedule_marks open = {false, common_marks(p, from, to, why.rule).mesh_axes};
  (void)ir_axes_dims(p->f, ir_tensor_at(p->f, op->operands[0])->now.logical, x);
  uint32_t rank = ir_axes_dims(p->f, ir_tensor_at(p->f, op->result)->now.logical, y);
  for (uint32_t i = 0; i < rank; i++) {
    link l = forward ? (link){x[i], y[i], false, true} : (link){y[i], x[i], false, true};
    bool steps = form_is_step(p->f, op, i, &start, &step);
    if (steps && shard_may_cross(p->f, from, l.from, l.to, open, &bare) && !bare) links[n++] = l;
  }
  if (n) take_along(p, from, to, links, n, why);
}

/* Do both have pieces of one length along each mesh axis that cuts dimension `dim` of `from`? */
static bool keeps_pieces(const propagating *p, const ir_op_data *op, ir_tensor from, uint32_t dim) {
  shard_placement is;
  shard_placement_of(p->f, from, &is);
  bool any = false;
  for (uint32_t k = 0; k < is.rank; k++) {
    const shard_axis *a = &is.axes[k];
    if (a->kind != SHARD_SHARDED || a->dim != dim) continue;
    int64_t n = ir_mesh_size(ir_mesh_at(p->f, is.mesh), k);
    if (a->cut != SHARD_OUTER || a->nested || !form_keeps_pieces(p->f, op, dim, n)) return false;
    any = true;
  }
  return any;
}

/* A slice or pad by a few positions lies as what it is of, where pieces stay as long. */
static void take_resized(propagating *p, const ir_op_data *op, bool forward, ir_why why) {
  ir_axis x[IR_MAX_RANK], y[IR_MAX_RANK];
  if (op->code != IR_OP_SLICE && op->code != IR_OP_PAD) return;
  ir_tensor from = forward ? op->operands[0] : op->result;
  ir_tensor to = forward ? op->result : op->operands[0];
  (void)ir_axes_dims(p->f, ir_tensor_at(p->f, op->operands[0])->now.logical, x);
  uint32_t rank = ir_axes_dims(p->f, ir_tensor_at(p->f, op->result)->now.logical, y);
  for (uint32_t i = 0; i < rank; i++) {
    link l = forward ? (link){x[i], y[i], false, true} : (link){y[i], x[i], false, true};
    if (keeps_pieces(p, op, from, i)) take_along(p, from, to, &l, 1, why);
  }
}

/* The gradient of attention lies as what it is of, also along its positions: the others come in parts then. */
static void take_gradient(propagating *p, const ir_op_data *op, uint32_t k, ir_why why) {
  ir_axis from[IR_MAX_RANK], to[IR_MAX_RANK];
  if (op->code != IR_OP_SDPA_BACKWARD || k >= 3 || k >= ir_op_n_results(op)) return;
  if (ir_op_attr(op, "causal")->i) return;
  ir_tensor of = op->operands[k], gradient = ir_op_result(op, k);
  uint32_t rank = ir_axes_dims(p->f, ir_tensor_at(p->f, of)->now.logical, from);
  (void)ir_axes_dims(p->f, ir_tensor_at(p->f, gradient)->now.logical, to);
  link positions = {from[rank - 2], to[rank - 2], false, true};
  take_along(p, of, gradient, &positions, 1, why);
}

static void take_over(propagating *p, const ir_op_data *op, uint32_t k, bool forward) {
  link links[IR_MAX_RANK];
  ir_why why = {.rule = forward ? IR_RULE_FORWARD : IR_RULE_BACKWARD, .at = op->at};
  uint32_t n = find_links(p->f, op, k, forward, links);
  uint32_t turned = 0;
  p->yields = forward ? shard_product_yields(p->f, op, k, p->choice, &turned) : 0;
  p->turned |= turned;
  if (forward) take_along(p, op->operands[k], op->result, links, n, why);
  else take_along(p, op->result, op->operands[k], links, n, why);
  if (ir_op_info_of(op->code)->family == IR_FAMILY_RESHAPE) take_parts(p, op, forward, why);
  if (forward) take_gradient(p, op, k, why);
  if (k == 0) take_shifted(p, op, forward, why);
  if (k == 0) take_stepped(p, op, forward, why);
  if (k == 0) take_resized(p, op, forward, why);
  p->yields = 0;
}

/* What is cut along another dimension than its operands are: these are exchanged. */
static void take_turned(propagating *p, const ir_op_data *op, ir_tensor like) {
  ir_func *f = p->f;
  ir_mesh mesh = ir_tensor_at(f, like)->mesh;
  ir_why why = {.rule = IR_RULE_TURNED, .at = op->at, .from = ir_tensor_at(f, like)->name};
  uint32_t at, open = p->turned & shard_open_marks(f, op->result).mesh_axes;
  shard_placement is;
  shard_placement_of(f, like, &is);
  for (; open; open &= open - 1) {
    uint32_t k = (uint32_t)__builtin_ctz(open);
    if (!shard_turn_of(f, op, mesh, k, &at)) continue;
    int64_t n = ir_mesh_size(ir_mesh_at(f, mesh), k);
    ir_stmt split = {.kind = IR_STMT_OUTER_SPLIT, .axis = at};
    split.factor = ir_scalar_const(&f->module->scalars, n);
    why.because = ir_axis_at(f, is.axes[k].loop)->why;
    ir_stmt mark = {.kind = IR_STMT_MARK, .axis = at, .why = ir_why_add(f, why)};
    mark.mark = (ir_mark){.kind = IR_MARK_MESH, .mesh_axis = k};
    if (add_stmt(p, op->result, split) && add_stmt(p, op->result, mark))
      p->changed[op->result.id] = p->time;
  }
}

/* The operand whose cut decides that: the first that is cut along such an axis. */
static void turn(propagating *p, const ir_op_data *op) {
  for (uint32_t k = 0; k < op->n_operands && p->turned; k++) {
    if (!op->operands[k].id || !shard_is_cut(p->f, op->operands[k], p->turned)) continue;
    take_turned(p, op, op->operands[k]);
    break;
  }
  p->turned = 0;
}

/* All results are made where the first one is, by the same loops. */
static void take_over_results(propagating *p, const ir_op_data *op, bool forward) {
  link links[IR_MAX_RANK];
  ir_why why = {.rule = IR_RULE_RESULT, .at = op->at};
  for (uint32_t k = 1; k < ir_op_n_results(op); k++) {
    uint32_t n = find_result_links(p->f, op, k, forward, links);
    if (forward) take_along(p, op->result, ir_op_result(op, k), links, n, why);
    else take_along(p, ir_op_result(op, k), op->result, links, n, why);
  }
}

/* ---- references in order ---- */
static bool is_reference(const ir_func *f, ir_tensor t) {
  return t.id && ir_tensor_at(f, t)->kind != IR_TENSOR_CONST;
}

/* How much a tensor says: its marked axes, then the rank of its mesh. */
static uint32_t weight_of(const ir_func *f, ir_tensor t) {
  const ir_tensor_data *d = ir_tensor_at(f, t);
  uint32_t n = 0, rank = d->mesh.id ? ir_mesh_at(f, d->mesh)->rank : 0;
  for (uint32_t i = 0; i < d->now.loop.len; i++) {
    const ir_axis_data *a = ir_axis_at(f, d->now.loop.data[i]);
    bool marked = a->mark.kind == IR_MARK_STREAM || a->mark.kind == IR_MARK_MESH;
    /* mutant: propagate_reductions_weigh */
    n += marked && a->kind != IR_AXIS_REDUCTION;
  }
  /* mutant: propagate_mesh_weighs_nothing */
  return n * (IR_MESH_MAX_RANK + 1) + rank;
}

static uint32_t dims_of(const ir_func *f, ir_tensor t) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t n = 0, rank = ir_tensor_dims(f, t, dims);
  for (uint32_t i = 0; i < rank; i++) n += ir_axis_at(f, dims[i])->kind != IR_AXIS_BROADCAST;
  return n;
}

/* Does `a` say more than `b`, or as much of more dimensions? What is stretched is the less to move. */
static bool comes_before(const ir_func *f, ir_tensor a, ir_tensor b) {
  uint32_t x = weight_of(f, a), y = weight_of(f, b);
  return x != y ? x > y : dims_of(f, a) > dims_of(f, b);
}

/* Weights of linear and matmul come before activations; elsewhere those that say most come first, of equals those
 * of more dimensions, and of these the one that is written first. */
uint32_t shard_reference_order(const ir_func *f, const ir_op_data *op, uint32_t *order) {
  ir_family family = ir_op_info_of(op->code)->family;
  /* mutant: propagate_input_first, propagate_bias_last, propagate_matmul_in_order */
  static const uint32_t linear[] = {1, 2, 0}, matmul[] = {1, 0, 2};
  uint32_t n = 0;
  for (uint32_t i = 0; i < op->n_operands; i++) {
    uint32_t k = i;
    if (family == IR_FAMILY_LINEAR) k = linear[i];
    if (family == IR_FAMILY_MATMUL || family == IR_FAMILY_GROUPED_MATMUL) k = matmul[i];
    if (!is_reference(f, op->operands[k])) continue;
    uint32_t at = n++;
    /* mutant: propagate_least_first, propagate_ties_backward */
    while (!ir_op_is_product(op->code) && at > 0 &&
           comes_before(f, op->operands[k], op->operands[order[at - 1]])) {
      order[at] = order[at - 1];
      at--;
    }
    order[at] = k;
  }
  return n;
}

/* Has another operation, which reads `t`, its result on the mesh of `other`, where `t` is not? */
static bool is_brought_to(const ir_func *f, ir_op o, ir_tensor t, ir_tensor other) {
  ir_mesh from = ir_tensor_at(f, t)->mesh, to = ir_tensor_at(f, other)->mesh;
  if (!from.id || !to.id || shard_same_devices(f, from, to)) return false;
  for (uint32_t i = 0; i < f->scheduled.len; i++) {
    const ir_op_data *op = ir_op_at(f, f->scheduled.data[i]);
    bool reads = false;
    for (uint32_t k = 0; k < op->n_operands && !IR_SAME(f->scheduled.data[i], o); k++)
      reads = reads || IR_SAME(op->operands[k], t);
    ir_mesh mesh = ir_tensor_at(f, op->result)->mesh;
    if (reads && mesh.id && shard_same_devices(f, mesh, to)) return true;
  }
  return false;
}

/* An operand that is brought to the mesh of another one anyway comes after that: the activations
 * of the stage before, in the gradient of a weight. */
static void put_brought_last(const ir_func *f, ir_op o, uint32_t *order, uint32_t n) {
  const ir_op_data *op = ir_op_at(f, o);
  for (uint32_t i = 0; i + 1 < n; i++) {
    ir_tensor a = op->operands[order[i]], b = op->operands[order[i + 1]];
    if (!is_brought_to(f, o, a, b) || is_brought_to(f, o, b, a)) continue;
    uint32_t first = order[i];
    order[i] = order[i + 1];
    order[i + 1] = first;
  }
}

static bool must_visit(propagating *p, ir_op o, bool forward) {
  const ir_op_data *op = ir_op_at(p->f, o);
  uint32_t last = p->seen[forward][o.id];
  bool news = last == 0;
  for (uint32_t k = 0; k < ir_op_n_results(op) && !news; k++)
    news = p->changed[ir_op_result(op, k).id] > last;
  for (uint32_t k = 0; k < op->n_operands && !news; k++)
    news = p->changed[op->operands[k].id] > last;
  if (news) p->seen[forward][o.id] = ++p->time;
  return news;
}

static bool visit(propagating *p, ir_op o, bool forward) {
  if (!must_visit(p, o, forward)) return false;
  const ir_op_data op = *ir_op_at(p->f, o);
  uint32_t before = p->f->statements.len;
  uint32_t *order = ARENA_ARRAY(&p->f->module->memory, op.n_operands + 1, uint32_t);
  uint32_t n = shard_reference_order(p->f, &op, order);
  if (!ir_tensor_at(p->f, op.result)->mesh.id) put_brought_last(p->f, o, order, n);
  if (!forward) take_over_results(p, &op, false);
  for (uint32_t i = 0; i < n; i++) take_over(p, &op, order[i], forward);
  turn(p, &op);
  take_over_results(p, &op, true);
  return p->f->statements.len > before;
}

uint32_t shard_propagate(ir_func *f) {
  uint32_t before = f->statements.len;
  if (before && !shard_choose(f)) (void)shard_propagate_to(f, NULL);
  return f->statements.len - before;
}

uint32_t shard_propagate_to(ir_func *f, const bool *open) {
  arena *memory = &f->module->memory;
  uint32_t before = f->statements.len;
  if (before == 0) return 0;
  check(f->applied);
  static const shard_choice by_cost = {.by_cost = true};
  propagating p = {.f = f, .open = open, .changed = ARENA_ARRAY(memory, f->tensors.len, uint32_t)};
  p.choice = f->choice ? f->choice : &by_cost;
  for (int i = 0; i < 2; i++) p.seen[i] = ARENA_ARRAY(memory, f->ops.len, uint32_t);
  /* mutant: propagate_one_round */
  for (bool news = true; news;) {
    news = false;
    /* mutant: propagate_no_forward */
    for (uint32_t i = 0; i < f->scheduled.len; i++)
      news = visit(&p, f->scheduled.data[i], true) || news;
    /* mutant: propagate_no_backward */
    for (uint32_t i = f->scheduled.len; i-- > 0;)
      news = visit(&p, f->scheduled.data[i], false) || news;
  }
  return f->statements.len - before;
}
