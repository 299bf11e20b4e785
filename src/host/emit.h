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

typedef struct emitter {
  lowering *l;
  ir_func *f, *h;
  ir_tensor *buffer; /* by tensor id of f: its tensor in h; none: not allocated yet */
  open_loop loops[HOST_MAX_NEST];
  uint32_t depth;
  VEC(taken_slice) slices;
  uint32_t main_stream; /* the name of the calling stream in the open nest */
} emitter;

/* ---- tensors (tensors.c) ---- */
/* A name like `base` that is free in h: base itself, or base$1, base$2, … */
uint32_t emit_fresh_name(emitter *e, const char *base, bool numbered);
/* The tensor of h that stands for input, constant or buffer `t` of f; `inside` levels of the open
 * nest are cut off already. */
ir_tensor emit_clone(emitter *e, ir_tensor t, const op_plan *plan, uint32_t inside);
/* The slice of `from` (a tensor of h) along its dimension `dim`. */
ir_tensor emit_slice_tensor(emitter *e, ir_tensor from, uint32_t dim, const stream_axis *s,
                            bool drops, ir_scalar index);

/* ---- instructions (emit.c) ---- */
void emit_instr(emitter *e, const ir_instr_data *data);
/* Takes a slice, once per loop body. */
ir_tensor emit_slice(emitter *e, ir_tensor from, uint32_t dim, uint32_t level, const stream_axis *s,
                     bool drops);
ir_scalars *emit_scalars(emitter *e);

#endif
