/* The emitter's state, shared by the files that write instructions, tensors and slices. */
#ifndef WEIR_HOST_EMIT_H
#define WEIR_HOST_EMIT_H

#include "host/internal.h"

typedef struct open_loop {
  uint32_t number; /* as host_group() counted them */
  ir_instr loop;
  ir_scalar variable;
  uint32_t anchor; /* where in the block around it to put what must come before it */
} open_loop;

/* A slice that was already taken in an open loop. */
typedef struct taken_slice {
  ir_tensor from, slice;
  uint32_t dim, level; /* which dimension, by the index of which loop */
  uint32_t depth;      /* of the block it was taken in */
} taken_slice;

/* One operation on its way into the program. */
typedef struct step {
  const ir_op_data *op;
  const op_plan *plan;
  ir_tensor operands[64]; /* in h, cut */
  uint32_t *sliced;       /* per operand: the result's dimensions it is cut along */
  uint32_t result_dropped;
  ir_tensor sum; /* what the loops of a reduction add up in */
} step;

/* What is left to do when a loop that adds up is closed: a bias is added once, and a sum in f16 or
 * bf16, which is added up in f32, is rounded once. */
typedef struct finish {
  const ir_op_data *op;
  const op_plan *plan;
  uint32_t level; /* of the loop */
  ir_tensor sum;
  bool bias, round;
} finish;

typedef struct emitter {
  lowering *l;
  ir_func *f, *h;
  ir_tensor *buffer; /* by tensor id of f: its tensor in h; none: not allocated yet */
  open_loop loops[HOST_MAX_NEST];
  uint32_t depth;
  VEC(taken_slice) slices;
  VEC(finish) finishes; /* still to come */
  uint32_t main_stream; /* the name of the calling stream in the open nest */
} emitter;

/* ---- tensors (tensors.c) ---- */
/* A name like `base` that is free in h: base itself, or base$1, base$2, … */
uint32_t emit_fresh_name(emitter *e, const char *base, bool numbered);
/* The tensor of h that stands for input, constant or buffer `t` of f; `inside` levels of the open
 * nest are cut off already. */
ir_tensor emit_clone(emitter *e, ir_tensor t, const op_plan *plan, uint32_t inside);
ir_tensor emit_add_tensor(emitter *e, const ir_tensor_data *data, ir_tensor origin, bool slice);
/* The slice of `from` (a tensor of h) along its dimension `dim`. */
ir_tensor emit_slice_tensor(emitter *e, ir_tensor from, uint32_t dim, const stream_axis *s,
                            bool drops, ir_scalar index);

/* ---- instructions (emit.c) ---- */
void emit_instr(emitter *e, const ir_instr_data *data);
/* Takes a slice, once per loop body. */
ir_tensor emit_slice(emitter *e, ir_tensor from, uint32_t dim, uint32_t level, const stream_axis *s,
                     bool drops);
ir_scalars *emit_scalars(emitter *e);
/* Puts an instruction before open loop `level`, behind what was put there earlier. */
void emit_before_loop(emitter *e, uint32_t level, const ir_instr_data *data);
/* The slice of `buffer`, which stands for the plan's result, in the first `levels` loops. */
ir_tensor emit_destination(emitter *e, const op_plan *plan, uint32_t levels, ir_tensor buffer);
/* Operand k as the operation needs it: cut where the result is. */
ir_tensor emit_operand(emitter *e, step *s, uint32_t k);
/* The operation on its slices, into `to`. */
ir_instr_data emit_compute(emitter *e, const step *s, ir_tensor to);
ir_scalar emit_piece_begin(emitter *e, const ir_partition *p, ir_scalar n, ir_scalar index);

/* ---- streams on reduction axes (emit_reduce.c) ---- */
bool emit_has_reduction(const op_plan *plan);
/* Allocates what the loops add up in, at the place of the result's buffer, and sees to it that a sum
 * over no iterations is written too. */
void emit_accumulator(emitter *e, step *s, ir_tensor buffer);
void emit_partial(emitter *e, step *s);
/* Finishes what the loop of `level`, which has just been closed, added up. */
void emit_finishes(emitter *e, uint32_t level);

#endif
