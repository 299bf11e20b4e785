/* The emitter's state, shared by the files that write instructions, tensors and slices. */
#ifndef WEIR_HOST_EMIT_H
#define WEIR_HOST_EMIT_H

#include "host/internal.h"

typedef struct open_loop {
  uint32_t number; /* as host_group() counted them */
  ir_instr loop;
  ir_scalar variable;
  ir_scalar turn;  /* the iteration: the variable, or one more where the own piece came before */
  ir_scalar index; /* of the slices: the iteration, or turned by the device's coordinate */
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
  ir_tensor operands[64];         /* in h, cut */
  ir_tensor more[IR_MAX_RESULTS]; /* in h, cut: where further results go */
  uint32_t *sliced;               /* per operand: the result's dimensions it is cut along */
  uint32_t result_dropped;
  ir_tensor sum;  /* what the loops of a reduction add up in */
  uint32_t whole; /* bit q: operands are not cut in the loop of level q */
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
  const own_first *own; /* the own piece of this nest is emitted, before its loops */
  ir_block *sink;       /* where instructions go; NULL: the innermost open loop */
  map numbers;          /* by the name of a tensor of f: where to look for a free number */
  VEC(bool) dense;      /* by tensor id of h: its memory has no gaps */
  bool *is_output;      /* by tensor id of f */
  VEC(bool) callers;    /* by tensor id of h: it is an input or output, in the caller's memory */
  uint32_t n_comms;
  bool assume_even; /* what is emitted runs only where pieces are equally long */
} emitter;

/* ---- tensors (tensors.c) ---- */
/* A name like `base` that is free in h: base itself, or base$1, base$2, … */
uint32_t emit_fresh_name(emitter *e, const char *base, bool numbered);
/* The tensor of h that represents input, constant or buffer `t` of f; `inside` levels of the open
 * nest are cut off already. */
ir_tensor emit_clone(emitter *e, ir_tensor t, const op_plan *plan, uint32_t inside);
/* The same without the cuts along the mesh axes in `without`: for partial results. */
ir_tensor emit_clone_without(emitter *e, ir_tensor t, const op_plan *plan, uint32_t inside,
                             uint32_t without);
/* A buffer of its own, called like `origin` (a tensor of f), on the mesh of `like` (a tensor of h). */
ir_tensor emit_scratch(emitter *e, ir_tensor like, const ir_scalar *sizes, uint32_t rank);
bool emit_is_dense(const emitter *e, ir_tensor t);
/* Notes that `buffer` holds tensor t of f, in the caller's memory if that is an input or output. */
void emit_set_buffer(emitter *e, ir_tensor t, ir_tensor buffer);
/* Its axes as they lie in memory, the outermost first: those of the caller's tensors in the order of
 * their dimensions, whatever order the schedule gives them. */
ir_axes emit_order(const emitter *e, ir_tensor t);
/* Is the dimension outermost in memory, not counting those of size 1? */
bool emit_is_outermost(const emitter *e, ir_tensor t, uint32_t dim);
ir_tensor emit_add_tensor(emitter *e, const ir_tensor_data *data, ir_tensor origin, bool slice);
/* The slice of `from` (a tensor of h) along its dimension `dim`. */
ir_tensor emit_slice_tensor(emitter *e, ir_tensor from, uint32_t dim, const stream_axis *s,
                            bool drops, ir_scalar index);

/* ---- instructions (emit.c) ---- */
/* One operation, in the loops that are open. */
void emit_step(emitter *e, ir_op o);
void emit_instr(emitter *e, const ir_instr_data *data);
/* Sets the rule that new instructions are there for; returns the one before. */
ir_rule emit_because(emitter *e, ir_rule rule);
/* Notes that the preferred form of communication does not apply to the current operation. */
void emit_fallback(emitter *e, ir_rule used, ir_rule why);
/* The slice of `from` along `dim` at `index`, cut as `s` says: a select if it drops the dimension. */
ir_tensor emit_cut(emitter *e, ir_tensor from, uint32_t dim, const stream_axis *s, bool drops,
                   ir_scalar index, loc at);
/* Takes a slice, once per loop body. */
ir_tensor emit_slice(emitter *e, ir_tensor from, uint32_t dim, uint32_t level, const stream_axis *s,
                     bool drops);
/* The slice that iteration i of a loop works on: slice i, or, in a turned loop, counted from the device's
 * own. */
ir_scalar emit_slice_index(emitter *e, uint32_t number, const stream_axis *a, ir_mesh mesh,
                           ir_scalar i);
ir_scalars *emit_scalars(emitter *e);
/* Puts an instruction before open loop `level`, after what was put there earlier. */
void emit_before_loop(emitter *e, uint32_t level, const ir_instr_data *data);
/* The slice of `buffer`, which represents the plan's result, in the first `levels` loops. */
ir_tensor emit_destination(emitter *e, const op_plan *plan, uint32_t levels, ir_tensor buffer);
/* Operand k as the operation needs it: cut where the result is. */
ir_tensor emit_operand(emitter *e, step *s, uint32_t k);
/* The operation on its slices, into `to`. */
ir_instr_data emit_compute(emitter *e, const step *s, ir_tensor to);
/* Must the operation be told where its part begins? */
bool emit_needs_offsets(emitter *e, const step *s);
/* Allocates the result at its place, unless it is allocated already. */
void emit_result_buffer(emitter *e, step *s);
ir_scalar emit_piece_begin(emitter *e, const ir_partition *p, ir_scalar n, ir_scalar index);

/* Sends instructions to `block` until emit_end(), which restores the sink that this returns. */
ir_block *emit_begin(emitter *e, ir_block *block);
void emit_end(emitter *e, ir_block *before);
/* A loop index; `nested` loops around it are not among the emitter's open ones. */
ir_scalar emit_new_variable(emitter *e, uint32_t nested);
/* The position of a dimension once those in `dropped` are gone. */
uint32_t emit_renumber(uint32_t dim, uint32_t dropped);
/* to <- op(from...) */
void emit_simple(emitter *e, ir_opcode code, const ir_tensor *operands, uint32_t n, ir_tensor to,
                 loc at);
/* to <- full([...], value) */
ir_instr_data emit_fill(emitter *e, ir_tensor to, int64_t value, loc at);
ir_instr_data emit_fill_number(emitter *e, ir_tensor to, ir_number value, loc at);
void emit_allocation(emitter *e, ir_tensor t, loc at);
/* An allocation, and to <- set(from) on the devices of `where`, because of `rule`. */
void emit_allocation_because(emitter *e, ir_tensor t, ir_rule rule, loc at);
void emit_copy_because(emitter *e, ir_tensor from, ir_tensor to, ir_mesh where, ir_rule rule,
                       loc at);

/* ---- several devices (emit_devices.c, emit_comm.c, emit_pipeline.c, emit_own.c) ---- */
/* Emits all operations of the nest for the device's own piece, on the calling stream. `anchor`: as in
 * open_loop. */
void emit_own_first(emitter *e, const own_first *own, uint32_t *anchor);
/* me(mesh.axis) */
ir_scalar emit_me(emitter *e, ir_mesh mesh, uint32_t axis);
/* What is emitted in between runs on the devices of `mesh` only. */
typedef struct host_guard {
  bool on;
  ir_scalar a, b; /* the condition */
  ir_relation relation;
  ir_block body;
  ir_block *before;
  uint32_t slices;
} host_guard;
void emit_guard(emitter *e, ir_mesh mesh, host_guard *g);
/* What is emitted in between runs if a == b. */
void emit_guard_if(emitter *e, ir_scalar a, ir_scalar b, host_guard *g);
/* What is emitted in between runs if a <= b. */
void emit_guard_at_most(emitter *e, ir_scalar a, ir_scalar b, host_guard *g);
void emit_unguard(emitter *e, host_guard *g, loc at);
/* The device's part of a dimension of the result: where it begins in the whole. Mesh axes in
 * `without` (a mask) do not cut it. */
ir_scalar emit_device_begin(emitter *e, ir_tensor t, uint32_t dim, uint32_t without);
/* Copies the running device's piece of dimension `dim`, which is cut as the result of a move is. */
void emit_own_piece(emitter *e, const step *s, ir_tensor from, uint32_t dim, ir_tensor to);
void emit_slicing(emitter *e, step *s);
void emit_move(emitter *e, step *s);
/* A mesh of the host program with this shape and these devices: one that is there, or a new one. */
ir_mesh emit_mesh(emitter *e, const int64_t *shape, uint32_t rank, const int64_t *devices,
                  int64_t n);
void emit_partial_results(emitter *e, step *s);
/* Moves one piece per iteration of level q. */
void emit_piece(emitter *e, step *s, uint32_t q);
void emit_exchanged_piece(emitter *e, step *s);
/* What a device has goes to the one that is `shift` places further; those that get nothing get the
 * pad's value. (emit_shift.c) */
void emit_shift(emitter *e, step *s);
void emit_reduced_piece(emitter *e, step *s);

/* A communication from `in` to `out` and the wait for it. */
typedef struct comm_call {
  ir_comm_kind kind;
  ir_combine combine;
  ir_mesh team;
  uint32_t axis;
  ir_scalar root;
  loc at;
} comm_call;
void emit_comm(emitter *e, const comm_call *c, ir_tensor in, ir_tensor out);
/* The same with copies where memory is not dense. */
void emit_dense_comm(emitter *e, const comm_call *c, ir_tensor in, ir_tensor out);
/* Where the pieces of a tensor lie. */
typedef struct pieces {
  int32_t dim;
  ir_partition partition;
  int64_t count;  /* 0: one per member of the team */
  ir_scalar turn; /* member p has piece (p + turn) mod count; none: piece p */
  /* The length of what the pieces are cut from, as the devices of this side see it; none: as on the other
   * side. */
  ir_scalar whole;
} pieces;
/* The pieces of a tensor of f that is sharded along a mesh axis; the dimension is left to the caller. */
pieces emit_pieces_along(emitter *e, ir_tensor t, uint32_t mesh_axis);

/* A copy of one piece of dimension `dim` between the whole and a tensor of its own. */
typedef struct piece_copy {
  ir_tensor whole, part;
  uint32_t dim;
  ir_partition partition;
  ir_scalar index, count;
  bool back;       /* part -> whole */
  uint32_t nested; /* loops that are open around it but not by the emitter */
  loc at;
} piece_copy;
void emit_copy_piece(emitter *e, const piece_copy *c);
/* Is the piece a range of the whole, so that there is a slice of it? */
bool emit_piece_is_range(const ir_partition *p);
/* A communication that puts pieces together or takes them apart: p and q say which dimension of `in` and
 * `out` the pieces are cut from. */
void emit_pieces_comm(emitter *e, const comm_call *c, ir_tensor in, const pieces *p, ir_tensor out,
                      const pieces *q);
/* A view of the first `lengths` positions of `t` along the dimensions in `which`. */
ir_tensor emit_first(emitter *e, ir_tensor t, uint32_t which, const ir_scalar *lengths, loc at);
uint32_t emit_comm_name(emitter *e);
void emit_wait(emitter *e, uint32_t name, loc at);
/* emit_densely(): `t` or a dense copy of it. emit_dense_target(): a dense buffer, from which
 * emit_copy_back() copies to where the data belongs. */
ir_tensor emit_densely(emitter *e, ir_tensor t, ir_mesh where, loc at);
ir_tensor emit_dense_target(emitter *e, ir_tensor t, loc at);
void emit_copy_back(emitter *e, ir_tensor from, ir_tensor to, ir_mesh where, loc at);

/* ---- streams on reduction axes (emit_reduce.c) ---- */
bool emit_has_reduction(const op_plan *plan);
/* Is it an error if there is nothing to reduce? */
bool emit_refuses_nothing(const ir_op_data *op);
/* Allocates what the loops add up in, at the place of the result's buffer, and sees to it that a sum
 * over no iterations is written too. */
void emit_accumulator(emitter *e, step *s, ir_tensor buffer);
void emit_partial(emitter *e, step *s);
/* Partial results are made in `sum`: the operand of a reduction becomes a copy of that dtype if it is f32
 * for a result in f16 or bf16. */
void emit_convert_operand(emitter *e, step *s, ir_dtype sum);
/* sum <- sum + bias, in the dtype of the sum. */
void emit_add_bias(emitter *e, ir_tensor sum, ir_tensor bias, loc at);
void emit_cast(emitter *e, ir_tensor from, ir_tensor to, loc at);
/* Finishes what the loop of `level`, which has just been closed, added up. */
void emit_finishes(emitter *e, uint32_t level);

#endif
