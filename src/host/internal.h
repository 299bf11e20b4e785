/* Shared by the lowering files. */
#ifndef WEIR_HOST_INTERNAL_H
#define WEIR_HOST_INTERNAL_H

#include "host/host.h"
#include "ir/map.h"
#include "shard/shard.h"

enum { HOST_MAX_NEST = 8 };

/* One stream axis of a result, outermost first. */
typedef struct stream_axis {
  ir_axis axis;   /* in the loop domain: what loops are matched by */
  bool logical;   /* the axis is a dimension itself; else the outer part of a split */
  bool reduction; /* of a reduction axis: iterations add up */
  uint32_t dim;   /* which dimension of the result it cuts; for a reduction, which axis of the
                             logical domain */
  uint32_t depth; /* how many stream axes cut that dimension before this one */
  ir_partition partition; /* of that dimension, or of what those leave of it */
  ir_partition slice;     /* the same before devices take their part of each slice */
  bool scattered;         /* slices are whole until they are cut, each by itself, along */
  uint32_t scatter_axis;  /* this mesh axis */
  ir_scalar count;        /* iterations */
  bool cut_short;         /* `count` may be less than its positions: the rest are empty */
  bool swizzled;         /* device c takes slice (i + c) mod count in iteration i, where c is its */
  uint32_t swizzle_axis; /* coordinate along this mesh axis */
} stream_axis;

typedef struct stream_axes {
  stream_axis data[HOST_MAX_NEST];
  uint32_t len;
} stream_axes;

/* What an operation is on several devices. */
typedef enum step_kind {
  STEP_COMPUTES,
  STEP_SLICES, /* each device takes its piece of what it holds */
  STEP_MOVES,  /* a communication */
  /* One piece per iteration of the loop that makes them: */
  STEP_EXCHANGES, /* an all-to-all as sends and receives */
  STEP_REDUCES,   /* a reduce-scatter as reductions, each to the device whose piece it is */
} step_kind;

/* How one operation is lowered; found before anything is emitted. */
typedef struct op_plan {
  step_kind kind;
  const shard_comm *comm; /* SLICES, MOVES */
  uint32_t partial;       /* mesh axes along which devices compute partial results */
  bool unreduced;         /* what reads these takes them as they are */
  bool carried;           /* these readers are linear operations or copies, not sums */
  bool gathered;          /* MOVES: each slice of a stream is gathered by itself */
  bool by_pieces; /* a stream runs over what the communication takes apart or puts together */
  stream_axes axes;
  uint32_t loop[HOST_MAX_NEST]; /* the loop of each level; loops are numbered over the program */
  uint32_t inside;              /* levels of the nest within which its result's buffer lives */
  ir_rule buffer;               /* and why there */
} op_plan;

/* A nest of loops, one of them over pieces, in which each device begins with its own. Nothing is received
 * for that one: it comes before the loops, and is read where it lies. */
typedef struct own_first {
  bool on;
  const shard_comm *comm; /* whose pieces */
  uint32_t level;         /* of the loop over them */
  uint32_t first, len;    /* the nest's operations, in f->order */
  bool whole;             /* the own piece needs no slices */
  bool pairs; /* all of them are in the two outermost loops, whose iterations take turns together */
} own_first;

/* A loop that goes on where another one ended, iteration by iteration, on the same streams. */
typedef struct loop_phase {
  uint32_t loop, after; /* UINT32_MAX: none, it begins anew */
} loop_phase;

typedef struct lowering {
  ir_func *f, *h;
  shard_ctx *shard; /* NULL: one device */
  ir_mesh everywhere;
  const host_options *options;
  arena scratch;
  ir_classes classes;
  op_plan *ops;                  /* by ir_op id */
  bool *loop_drops;              /* by loop number: slices drop the dimension (select) */
  const shard_comm **loop_turns; /* by loop number: device c begins with slice c of this */
  bool *loop_meets; /* by loop number: devices that exchange pieces in it also meet otherwise */
  own_first *own;   /* by the number of the outermost loop of a nest */
  uint32_t n_loops;
  VEC(loop_phase) phases;
  struct host_cut_store *cuts; /* what cuts.c has derived */
  ir_op *producer;             /* by tensor id of f: the operation that makes it; none for inputs */
} lowering;

/* The stream axes of a result; reports what cannot be lowered. */
bool host_stream_axes(lowering *l, ir_tensor t, stream_axes *result);

/* Takes away the streams along dimensions that not all results and operands have: all results are made in
 * the same loops. */
void host_drop_unshared_streams(const lowering *l, const ir_op_data *op, stream_axes *axes);
/* Do streams of further results contradict those of the first? Reports those that do. */
bool host_check_results(lowering *l, const ir_op_data *op, const stream_axes *axes);

/* Which dimension of operand k is cut when the result is cut along `s`; false if none is: the operand
 * is used whole. `stretched` when that dimension is a broadcast. */
bool host_operand_dim(const lowering *l, const ir_op_data *op, uint32_t k, const stream_axis *s,
                      uint32_t *dim, bool *stretched);

/* Can this operation work on slices that drop dimension `s`? */
bool host_can_drop(const lowering *l, const ir_op_data *op, const stream_axis *s);
/* Must it be told where its slice begins? */
bool host_needs_offset(const lowering *l, const ir_op_data *op, const stream_axis *s);
/* Does the loop of level q of this operation drop the dimension it cuts? */
bool host_drops(const lowering *l, const op_plan *plan, uint32_t q);
/* Which dimensions of operand k (a mask) are dropped in the operation's loops; of the result too. */
uint32_t host_dropped_dims(const lowering *l, const ir_op_data *op, uint32_t k);
uint32_t host_dropped_result(const lowering *l, const op_plan *plan);

/* Opcode and attributes for slices: without the dropped dimensions, and with the extents of cut ones
 * replaced by `sizes` (per dimension of the whole result; none where uncut). */
void host_rewrite(lowering *l, const ir_op_data *op, const ir_scalar *sizes, ir_opcode *code,
                  const ir_attr **attrs);

/* ---- cuts.c, devices.c ---- */
struct host_cut_store *host_cut_store_new(arena *memory);
/* How dimension `dim` of `t` is cut over the devices of its mesh, outermost first; their number. Cuts
 * along the mesh axes in `without` (a mask) do not count. `cuts`: may be NULL. Derived once, from the
 * scheduled view, and kept; from here on the host program has them on its axes (ir_host_cut()). */
uint32_t host_cuts(const lowering *l, ir_tensor t, uint32_t dim, uint32_t without,
                   const ir_cut **cuts);
/* The cut along one mesh axis, along which the tensor is sharded. */
ir_cut host_cut_along(const lowering *l, ir_tensor t, uint32_t mesh_axis);
/* Why the dimension cannot be cut as it is placed; NULL: it can. */
const char *host_cuts_problem(const lowering *l, ir_tensor t, uint32_t dim);
/* Leaves to binding what only the extents tell about cuts that have no problem. */
void host_require_cuts(const lowering *l, ir_tensor t, uint32_t dim);
/* Where devices hold a part of each slice, makes the slices those of the running device's part; false if
 * there are no such slices. */
bool host_fit_stream(const lowering *l, ir_tensor t, stream_axis *a);
/* The form that the schedule asks for, of a move whose stream goes over pieces; BROADCAST: none. */
ir_form host_form_asked(const lowering *l, const ir_op_data *op);
/* Which level of the operation's loops runs over the pieces that lie on different devices; none: -1. */
int32_t host_piece_level(const op_plan *plan);
/* Are slices of one of its streams cut along mesh axis k, each by itself? */
bool host_scatters_slices(const op_plan *plan, uint32_t k);
/* Can the inputs be cut as they are placed? Reports those that cannot. */
bool host_check_inputs(lowering *l);
/* What the operation is on its devices; reports what cannot be lowered. */
bool host_plan_devices(lowering *l, const ir_op_data *op, op_plan *plan);
/* Turns a move whose pieces are made by the loops of `made`, the plan of its operand, into one piece per
 * iteration, if that is asked for and possible; the level that makes them becomes its only one. */
bool host_join_pieces(const lowering *l, const ir_op_data *op, op_plan *plan, const op_plan *made);
/* Takes away stream axes along dimensions that a move cuts differently from before. */
void host_drop_recut_streams(const lowering *l, const ir_op_data *op, op_plan *plan);
/* Does the slice or pad make a dimension shorter or longer of which devices hold parts? Each device then
 * does so with its own part. Other slices and pads are computed whole (shard/positions.c). */
bool host_resizes_part(const lowering *l, const ir_op_data *op, uint32_t dim);
/* Must the operation be told where its part of dimension `dim` begins in the whole result? */
bool host_needs_device_offset(const lowering *l, const ir_op_data *op, const op_plan *plan,
                              uint32_t dim);

/* Lets partial results go through sums and linear operations before they are reduced. (sums.c) */
void host_add_parts(lowering *l);
bool host_same_partition(const lowering *l, const ir_partition *a, const ir_partition *b);

/* ---- phases.c ---- */
/* Splits loops in which communications depend on one another, so that iterations take turns with them. */
void host_split_phases(lowering *l);
/* Does the loop go on where `before` ended? */
bool host_continues(const lowering *l, uint32_t loop, uint32_t before);

/* ---- own.c ---- */
/* Finds the nests that begin with what the device has. */
void host_find_own(lowering *l);
/* The plan of an operation of such a nest for the device's own piece; whole: as if the loop over pieces
 * were the only one. */
op_plan host_own_plan(const op_plan *plan, const own_first *own);

/* Decides loops and buffers for every operation. */
bool host_group(lowering *l);
/* Writes the host program. */
void host_emit(lowering *l);

#endif
