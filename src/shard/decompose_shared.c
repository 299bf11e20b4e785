/* Operands that several operations need in the same way: they are brought over once, and cost the others nothing.
 *
 *     q = linear(h, wq);  k = linear(h, wk);  v = linear(h, wv)      h cut along rows, results along columns
 *
 * Moving wk and k may be less than gathering h. It is not where h is gathered for q, and not where that is less than
 * moving wk, k, wv and v. */
#include "shard/decompose.h"

typedef shard_decomposing decomposing;

/* The mesh axes along which operand k is gathered for the operation; 0: none, or something else happens to it. */
static uint32_t gathered_along(decomposing *d, const ir_op_data *op, uint32_t k) {
  shard_view v;
  shard_view_open(d->c, op, k, &v);
  uint32_t changed = shard_view_changes(&v).changed;
  if (v.from.coords != v.to.coords) return 0;
  for (uint32_t left = changed; left; left &= left - 1)
    if (shard_leaf_of(&v, &v.to, (uint32_t)__builtin_ctz(left)).present) return 0;
  return changed;
}

/* Which operand of the operation is the tensor, gathered along the same mesh axes? n_operands: none. What is streamed
 * arrives in pieces, and partial results need no operand whole. */
static uint32_t operand_alike(decomposing *d, const ir_op_data *op, ir_tensor t, uint32_t along) {
  for (uint32_t k = 0; k < op->n_operands; k++) {
    if (!IR_SAME(op->operands[k], t)) continue;
    bool streams = ir_axes_streamed(d->f, ir_tensor_at(d->f, op->result)->now.loop);
    bool other = streams || shard_only_moves(d, op) || shard_gives_parts(d, op);
    return !other && gathered_along(d, op, k) == along ? k : op->n_operands;
  }
  return op->n_operands;
}

/* Does the operation bring its operand over if it decides alone? If not, what it moves, and what it would move, are
 * added up. */
static bool wants(decomposing *d, const ir_op_data *op, uint32_t k, double *after, double *rest) {
  double bytes, others;
  if (shard_prefer_before(d->c, op, 0)) return true;
  if (!shard_expected_after(d->c, op, &bytes) || !shard_expected_before(d->c, op, 1u << k, &others))
    return false;
  *after += bytes;
  *rest += others;
  return false;
}

/* Is operand k brought over for a later operation, or is that less than what all that need it move without it? */
static bool pays_for_all(decomposing *d, ir_op o, uint32_t k) {
  const ir_op_data *op = ir_op_at(d->f, o);
  ir_tensor t = op->operands[k];
  uint32_t along = gathered_along(d, op, k);
  double after = 0, rest = 0, alone, without;
  if (!along || operand_alike(d, op, t, along) != k) return false;
  (void)wants(d, op, k, &after, &rest);
  for (uint32_t i = d->at + 1; i < d->f->order.len; i++) {
    const ir_op_data *reader = ir_op_at(d->f, d->f->order.data[i]);
    uint32_t mine = operand_alike(d, reader, t, along);
    if (mine < reader->n_operands && wants(d, reader, mine, &after, &rest)) return true;
  }
  return shard_expected_before(d->c, op, 0, &alone) &&
         shard_expected_before(d->c, op, 1u << k, &without) && alone - without + rest < after;
}

uint32_t shard_copied_already(decomposing *d, ir_op o) {
  uint32_t mask = 0, n = ir_op_at(d->f, o)->n_operands;
  for (uint32_t k = 0; k < n; k++)
    if (shard_find_copy(d, o, k).id) mask |= 1u << k;
  return mask;
}

uint32_t shard_brought(decomposing *d, ir_op o) {
  uint32_t mask = shard_copied_already(d, o), n = ir_op_at(d->f, o)->n_operands;
  for (uint32_t k = 0; k < n; k++) {
    bool fits =
        !ir_op_at(d->f, o)->operands[k].id || shard_operand_fits(d->c, ir_op_at(d->f, o), k);
    /* mutant: dev_each_for_itself */
    if (!fits && !(mask >> k & 1) && pays_for_all(d, o, k)) mask |= 1u << k;
  }
  return mask;
}
