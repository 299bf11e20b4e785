/* Nests that begin with the piece a device has.
 *
 *   for i in n {                              own product
 *     for j in slices {                 =>    for i in n - 1 {
 *       own piece: copy; or receive             for j in slices {
 *       product                                   receive
 *                                                 product
 *
 * In such a nest every operation makes each of its slices from the same slices of what the nest makes, so
 * it can as well make all of them at once. That is done unless devices compute the same: a product of more
 * rows may round otherwise, and what devices hold of the same part is equal bit for bit. */
#include "host/internal.h"

/* Finds the level that runs over the pieces of what is moved, if the own piece is to come first. */
static bool find_level(const lowering *l, own_first *own) {
  for (uint32_t i = 0; i < own->len; i++) {
    ir_op o = l->f->order.data[own->first + i];
    const op_plan *plan = &l->ops[o.id];
    int32_t q = host_piece_level(plan);
    if (q < 0) continue;
    own->level = (uint32_t)q;
    own->comm = plan->comm;
    return host_form_asked(l, ir_op_at(l->f, o)) == IR_FORM_OWN;
  }
  return false;
}

/* Can the operation be done for the own piece before the loops? It must be in the loop over pieces, and its
 * result must be kept for one piece or for all of them. */
static bool fits(const lowering *l, ir_op o, const own_first *own, uint32_t pieces) {
  const op_plan *plan = &l->ops[o.id];
  if (plan->axes.len <= own->level || plan->loop[own->level] != pieces || plan->partial)
    return false;
  if (plan->inside > 0 && plan->inside <= own->level) return false;
  for (uint32_t q = 0; q < plan->axes.len; q++) {
    if (plan->axes.data[q].reduction) return false;
  }
  if (plan->kind == STEP_COMPUTES) return true;
  return plan->kind == STEP_MOVES && host_piece_level(plan) == (int32_t)own->level &&
         IR_SAME(plan->comm->from, plan->comm->to);
}

/* Do other devices compute the same in slices, and might the result differ? */
static bool is_shared(const lowering *l, ir_op o, const own_first *own) {
  const ir_op_data *op = ir_op_at(l->f, o);
  shard_placement p;
  shard_placement_of(l->f, op->result, &p);
  bool exact = ir_op_info_of(op->code)->family == IR_FAMILY_SET || ir_op_is_view(op->code) ||
               !ir_dtype_is_float(ir_tensor_at(l->f, op->result)->dtype);
  return !exact &&
         (!IR_SAME(p.mesh, own->comm->from) || p.axes[own->comm->mesh_axis].kind != SHARD_SHARDED);
}

static bool same_loops(const op_plan *a, const op_plan *b) {
  if (a->axes.len != b->axes.len) return false;
  for (uint32_t q = 0; q < a->axes.len; q++) {
    if (a->loop[q] != b->loop[q]) return false;
  }
  return true;
}

static void judge(const lowering *l, own_first *own) {
  if (!find_level(l, own)) return;
  const op_plan *first = &l->ops[l->f->order.data[own->first].id];
  uint32_t pieces = first->axes.len > own->level ? first->loop[own->level] : 0;
  bool on = first->axes.len > own->level && l->loop_turns[pieces], alike = true;
  own->pairs = first->axes.len > 1;
  own->whole = true;
  for (uint32_t i = 0; on && i < own->len; i++) {
    ir_op o = l->f->order.data[own->first + i];
    const op_plan *plan = &l->ops[o.id];
    /* mutant: own_piece_of_some */
    on = fits(l, o, own, pieces);
    alike = alike && same_loops(plan, first);
    own->pairs = own->pairs && plan->axes.len > 1 && plan->loop[1] == first->loop[1];
    /* mutant: own_piece_rounds */
    own->whole = own->whole && !is_shared(l, o, own);
  }
  if (alike && first->axes.len == 1) own->whole = true; /* there are no slices */
  /* mutant: own_piece_last, own_piece_slices */
  own->on = on && (own->whole || alike);
}

void host_find_own(lowering *l) {
  const ir_func *f = l->f;
  l->own = ARENA_ARRAY(&l->scratch, l->n_loops, own_first);
  for (uint32_t i = 0; i < f->order.len; i++) { /* a nest's operations follow each other */
    const op_plan *plan = &l->ops[f->order.data[i].id];
    if (plan->axes.len == 0) continue;
    own_first *own = &l->own[plan->loop[0]];
    if (own->len == 0) own->first = i;
    own->len++;
  }
  for (uint32_t i = 0; i < l->n_loops; i++) {
    judge(l, &l->own[i]);
    l->h->host->own_first = l->h->host->own_first || l->own[i].on;
  }
}

op_plan host_own_plan(const op_plan *plan, const own_first *own) {
  op_plan whole = *plan;
  if (!own->whole) return whole;
  whole.axes.data[0] = plan->axes.data[own->level];
  whole.axes.len = 1;
  whole.loop[0] = plan->loop[own->level];
  whole.inside = plan->inside > own->level;
  return whole;
}
