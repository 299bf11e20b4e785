/* What the files of decomposition share: the copy that is being changed, and its steps. */
#ifndef WEIR_SHARD_DECOMPOSE_H
#define WEIR_SHARD_DECOMPOSE_H

#include "shard/internal.h"

typedef struct shard_copied {
  ir_tensor from, to;
} shard_copied;

typedef struct shard_decomposing {
  ir_func *f;
  shard_ctx *c;
  VEC(ir_op) order;
  VEC(shard_copied) copies; /* sets inserted before operations */
  uint32_t at;              /* where the operation that is decomposed is in the order of `f` */
  bool ok;
} shard_decomposing;

/* ---- decompose.c ---- */
void shard_put_on_mesh_of(shard_decomposing *d, ir_tensor like, ir_tensor t);
/* Repeats marks of `from` on `to`, two tensors with the same dimensions. */
void shard_mark_like(shard_decomposing *d, ir_tensor from, ir_tensor to, schedule_marks which);
/* Can cuts of the consumer's axis, of tensor t, be repeated on the producer's? */
bool shard_repeats_cuts(const shard_decomposing *d, ir_tensor t, const ir_pair *pair);
/* Places `to`, which represents operand k, as the operation needs it. */
void shard_place_for(shard_decomposing *d, const ir_op_data *op, uint32_t k, ir_tensor to);
/* What decides how the operation needs its operand: the reason of the first mark of the result along a mesh axis that
 * differs, or else of its mesh. */
uint32_t shard_decided_by(shard_decomposing *d, const ir_op_data *op, uint32_t operand);
/* Puts a set, squeeze or reduction that only moves data into the order, in as many steps as it takes. */
void shard_settle(shard_decomposing *d, ir_op o, uint32_t depth);
/* A result becomes set(of what it was), which takes over its name, place and consumers. What was the result
 * has neither marks nor a mesh. */
ir_op shard_set_of_result(shard_decomposing *d, ir_tensor old, ir_why why);
/* The copy that there is of operand k, and fits; none: there is none. */
ir_tensor shard_find_copy(shard_decomposing *d, ir_op o, uint32_t k);
/* Are operands cut along a dimension that the operation reduces, so that devices compute partial results? */
bool shard_gives_parts(shard_decomposing *d, const ir_op_data *op);
/* Is it a set or a reduction that one communication, or a chain of them, does? */
bool shard_only_moves(shard_decomposing *d, const ir_op_data *op);
/* Lets operand k of `o` be one that fits: a copy that there is, or a new one. */
void shard_reshard_operand(shard_decomposing *d, ir_op o, uint32_t k);
/* Random numbers go by the name that the result has now. */
void shard_keep_key(shard_decomposing *d, ir_op o);
/* set(of), under a fresh name, not in the order; without marks or a mesh. */
ir_op shard_add_set(shard_decomposing *d, ir_tensor of, ir_why why);
/* Can every device compute its part of the result, as it is placed, from what it holds? */
bool shard_is_local(shard_decomposing *d, ir_op o);

/* ---- decompose_shared.c ---- */
/* A mask of the operands of which there are copies that fit. */
uint32_t shard_copied_already(shard_decomposing *d, ir_op o);
/* And of those that are brought to where the operation needs them for later operations, or for all together. */
uint32_t shard_brought(shard_decomposing *d, ir_op o);

/* ---- decompose_turned.c ---- */
/* Computes a product, or attention, of operands that were exchanged, and brings the result to where it is to be, if that
 * is less than bringing operands there. False: it is not, and nothing was done. */
bool shard_turn(shard_decomposing *d, ir_op o);

/* ---- decompose_results.c ---- */
/* Further results are made beside the first; those that are to lie elsewhere are brought there:
 *     v, i = topk(x)  =>  v, i$1 = topk(x);  i = set(i$1) */
void shard_follow_first(shard_decomposing *d, ir_op o);

/* ---- decompose_views.c ---- */
/* Operand k is a rearrangement of a tensor that others read too: that is brought over, once for all of them, and
 * rearranged there. So is what is made of nothing.
 *     r = reshape(x);  op(r)  =>  x$1 = set(x);  r$1 = reshape(x$1);  op(r$1)
 * False: it is not, or does not fit then. */
bool shard_copy_viewed(shard_decomposing *d, ir_op o, uint32_t k);
/* It is no longer a result of any operation. */
void shard_forget(ir_func *f, ir_tensor t);
/* Operand k is computed by elementwise operations of what is fewer bytes (quantized weights): that is brought over, and
 * computed there; what is made of nothing is made there. False: it is not. */
bool shard_copy_narrow(shard_decomposing *d, ir_op o, uint32_t k);

/* ---- decompose_unread.c ---- */
/* By tensor: does an operation read it? */
const bool *shard_reads(const ir_func *f, arena *memory);
/* Drops operations whose results were read before (`was_read`, of the first n_tensors), and are no more, since others
 * are computed in their place; and copies that were made for those. */
void shard_drop_unread(shard_decomposing *d, const bool *was_read, uint32_t n_tensors);

#endif
