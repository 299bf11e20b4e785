/* Operations with several results: all are made where the first one is. */
#include "schedule/schedule.h"
#include "shard/decompose.h"

typedef shard_decomposing decomposing;

enum { ALL_AXES = -1 };

/* Is `b`, an axis of result k, cut out of its dimensions as `a` is out of those of the first? */
static bool same_axis(const ir_func *f, ir_axis a, ir_axis b, const ir_pair *pairs, uint32_t n) {
  ir_transform da = ir_axis_at(f, a)->def, db = ir_axis_at(f, b)->def;
  for (uint32_t i = 0; i < n; i++) {
    if (IR_SAME(pairs[i].consumer, a)) return IR_SAME(pairs[i].producer, b);
  }
  if (da.id == 0 || db.id == 0) return false;
  const ir_transform_data *x = ir_transform_at(f, da), *y = ir_transform_at(f, db);
  if (x->kind != y->kind || !IR_SAME(x->factor, y->factor) || x->mesh_axis != y->mesh_axis ||
      x->n_chunks != y->n_chunks || IR_SAME(x->out[0], a) != IR_SAME(y->out[0], b))
    return false;
  for (uint32_t i = 0; i < x->n_chunks; i++) {
    if (x->chunks[i] != y->chunks[i]) return false;
  }
  bool both = x->in[1].id != 0;
  return same_axis(f, x->in[0], y->in[0], pairs, n) &&
         (!both || same_axis(f, x->in[1], y->in[1], pairs, n));
}

static bool is_marked(const ir_func *f, ir_axis a) {
  ir_mark_kind kind = ir_axis_at(f, a)->mark.kind;
  return kind == IR_MARK_STREAM || kind == IR_MARK_MESH;
}

/* Is the axis a part of a dimension that result k shares with the first? */
static bool is_paired(const ir_func *f, ir_axis a, const ir_pair *pairs, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    if (shard_descends(f, a, pairs[i].consumer)) return true;
  }
  return false;
}

/* Is result k where and as it is made, with the marks of the first and no others? */
static bool lies_like_first(const decomposing *d, const ir_op_data *op, uint32_t k) {
  const ir_func *f = d->f;
  const ir_tensor_data *first = ir_tensor_at(f, op->result);
  const ir_tensor_data *own = ir_tensor_at(f, ir_op_result(op, k));
  ir_pair pairs[IR_MAX_RANK];
  uint32_t n = ir_map_result_pairs(f, op, k, pairs), at = 0;
  if (!ir_mesh_same(ir_mesh_at(f, first->mesh), ir_mesh_at(f, own->mesh))) return false;
  for (uint32_t i = 0; i < first->now.loop.len; i++) {
    ir_axis a = first->now.loop.data[i];
    if (!is_marked(f, a) || !is_paired(f, a, pairs, n)) continue;
    while (at < own->now.loop.len && !is_marked(f, own->now.loop.data[at])) at++;
    if (at == own->now.loop.len) return false;
    ir_axis b = own->now.loop.data[at++];
    ir_mark ma = ir_axis_at(f, a)->mark, mb = ir_axis_at(f, b)->mark;
    if (ma.kind != mb.kind || ma.mesh_axis != mb.mesh_axis || !same_axis(f, a, b, pairs, n))
      return false;
  }
  while (at < own->now.loop.len && !is_marked(f, own->now.loop.data[at])) at++;
  return at == own->now.loop.len;
}

/* Heads that are fewer than the first result's, whose cut cannot be repeated: gradients of keys and values are where
 * those are. */
static void place_like_operand(decomposing *d, const ir_op_data *op, uint32_t k, ir_axis heads,
                               const ir_why *why) {
  ir_axis own[IR_MAX_RANK], of[IR_MAX_RANK];
  ir_tensor t = ir_op_result(op, k), like = op->operands[k];
  uint32_t rank = ir_tensor_dims(d->f, t, own);
  if (ir_tensor_dims(d->f, like, of) != rank) return;
  for (uint32_t i = 0; i < rank; i++) {
    ir_pair pair = {of[i], own[i], IR_PAIR_EXACT};
    if (IR_SAME(own[i], heads))
      (void)schedule_replay_marked(d->f, like, t, &pair, 1,
                                   (schedule_marks){false, (uint32_t)ALL_AXES}, why);
  }
}

static void place_like_first(decomposing *d, const ir_op_data *op, uint32_t k) {
  ir_pair pairs[IR_MAX_RANK], from_first[IR_MAX_RANK];
  uint32_t n = ir_map_result_pairs(d->f, op, k, pairs), kept = 0;
  ir_tensor t = ir_op_result(op, k);
  ir_why why = {.rule = IR_RULE_RESULT, .at = op->at};
  why.from = ir_tensor_at(d->f, op->result)->name;
  ir_axis heads = {0};
  for (uint32_t i = 0; i < n; i++) {
    if (!shard_repeats_cuts(d, op->result, &pairs[i])) heads = pairs[i].producer;
    else from_first[kept++] = (ir_pair){pairs[i].consumer, pairs[i].producer, IR_PAIR_EXACT};
  }
  shard_put_on_mesh_of(d, op->result, t);
  (void)schedule_replay_marked(d->f, op->result, t, from_first, kept,
                               (schedule_marks){true, (uint32_t)ALL_AXES}, &why);
  if (heads.id) place_like_operand(d, op, k, heads, &why);
}

void shard_follow_first(decomposing *d, ir_op o) {
  for (uint32_t k = 1; k < ir_op_n_results(ir_op_at(d->f, o)); k++) {
    ir_op_data op = *ir_op_at(d->f, o);
    if (lies_like_first(d, &op, k)) continue;
    ir_tensor t = ir_op_result(&op, k);
    ir_why why = {.rule = IR_RULE_APART, .at = op.at, .because = ir_tensor_at(d->f, t)->mesh_why};
    ir_op set = shard_set_of_result(d, t, why);
    place_like_first(d, &op, k);
    shard_settle(d, set, 0);
  }
}
