/* Host programs: the second level of the IR.
 *
 * A host program says what the host does, in order: allocate buffers, take slices, choose streams,
 * launch operations that write into a given destination, wait. It is a function (IR_FUNC_HOST) with
 * tensors, axes and operations in the same tables as a fusion, and a tree of instructions beside
 * them. It is not SSA: a destination may be written more than once.
 *
 *   host two_sets(t0 : f32[n, m]) -> (t2) {
 *     t2 : f32[n, m] = allocate()
 *     main = current_stream()
 *     for i in min(n, streams) {
 *       set_stream(i)
 *       wait_stream(main)
 *     }
 *     for i in n {
 *       set_stream(i % streams)
 *       t0$1 = select(t0, dim=0, index=i)
 *       t1$1 : f32[m] = allocate()
 *       t1$1 <- set(t0$1)
 *       t2$1 = select(t2, dim=0, index=i)
 *       t2$1 <- set(t1$1)
 *       deallocate(t1$1)
 *     }
 *     set_stream(main)
 *     for i in min(n, streams) {
 *       wait_stream(i)
 *     }
 *   }
 *
 * Scalars in instructions range over the extents, the loop indexes (symbols of kind INDEX), `streams`
 * (the number of worker streams) and `me(d.x)`, the coordinate of the running device along an axis of a
 * mesh (-1 on devices outside of it).
 *
 * Streams: `main = current_stream()` names the stream the program was called on; worker streams are
 * named by an index, and equal indexes are the same stream. wait_stream(x) makes the current stream
 * wait for all that was put on x so far; the host never blocks.
 *
 * Devices: one text for all of them. Tensors on a mesh have the extents that the running device holds;
 * an axis that is cut over devices also knows its whole length:
 *
 *   host ag(mesh d = [4], x : f32[n, m@x] on d) -> (y) {
 *     y : f32[n, m] on d = allocate()
 *     …
 *       c = allgather(x$1 -> y$1, team=d.x)
 *       wait(c)
 *
 * A communication is posted on the current stream when the stream gets there, and runs concurrently with it;
 * wait() makes the stream that is current then wait for it. A team is a line of devices through the running
 * one along a mesh axis; roots and peers are positions in the team; a device outside of the mesh skips the
 * communication. Where a tensor is not on the running device, it has no part in that role: the receiver of a
 * gather need not send. Absence from other steps is written with `if`.
 *
 * Kernels: a launch may compute several operations.
 *
 *   y$1, m <- kernel(x$1, w, b) {
 *     t = x$1 * w
 *     u = t + b
 *     return gelu(u), amax(u, dims=[1])
 *   }
 *
 * The body is a list of IR_COMPUTE instructions. Their destinations are *locals*: tensors without memory,
 * visible in the body only, each written once and rounded to its dtype. A body reads its parameters (the
 * operands of the launch), its locals and numbers, and may use every scalar that the launch could use. It
 * holds operations only: no streams, loops, slices or communications, and no other kernel. */
#ifndef WEIR_IR_HOST_H
#define WEIR_IR_HOST_H

#include "ir/comm.h"
#include "ir/ir.h"

typedef enum ir_instr_kind {
  IR_ALLOCATE,       /* tensor : type = allocate() */
  IR_DEALLOCATE,     /* deallocate(tensor) */
  IR_CURRENT_STREAM, /* name = current_stream() */
  IR_SET_STREAM,     /* set_stream(stream) */
  IR_WAIT_STREAM,    /* wait_stream(stream) */
  IR_FOR,            /* for i in extent [stream] { body } */
  IR_IF,             /* if a == b { body } else { otherwise } */
  IR_SELECT,         /* tensor = select(from, dim=, index=): a slice without that dimension */
  IR_SHARD,       /* tensor = shard(from, dim=, index=, parts= | chunk= | chunks=[...]): keeps it */
  IR_VIEW,        /* tensor : type = op(...): a view of the operand's memory, no copy */
  IR_COMPUTE,     /* tensor <- op(...) [at [offsets]]: runs an operation into `tensor` */
  IR_LAUNCH,      /* tensor <- kernel(operands) { body }: several operations as one launch */
  IR_COMMUNICATE, /* name = allgather(from -> tensor, team=d.x): see ir_comm_kind */
  IR_GROUP_START, /* group_start(): the sends and receives up to group_end() are one communication */
  IR_GROUP_END,   /* name = group_end() */
  IR_WAIT,        /* wait(name): the current stream waits for a communication or group */
} ir_instr_kind;

typedef enum ir_relation { IR_EQ, IR_NE, IR_LT, IR_LE } ir_relation;

/* How a dimension of n positions is cut. Piece i is [begin, begin + length), clamped to n, so the last
 * pieces may be shorter or empty. */
typedef enum ir_partition_kind {
  IR_PARTS,  /* `size` pieces of ceildiv(n, size): an outer split */
  IR_CHUNK,  /* pieces of `size` positions: an inner split */
  IR_CHUNKS, /* pieces of the given lengths */
} ir_partition_kind;

typedef struct ir_partition {
  ir_partition_kind kind;
  ir_scalar size;        /* PARTS, CHUNK */
  const int64_t *chunks; /* CHUNKS */
  uint32_t n_chunks;
  bool ends_early; /* CHUNKS: the dimension is itself a piece, and may be shorter than the chunks */
  /* Cuts over devices only. If given, the dimension consists of periods of this many positions, the last
   * perhaps shorter. Each period is cut like a dimension of its length; piece i is piece i of every period,
   * stored contiguously. */
  ir_scalar period;
} ir_partition;

/* A stream: by the name current_stream() gave it, or by index. */
typedef struct ir_stream {
  uint32_t name; /* interned; 0: by index */
  ir_scalar index;
} ir_stream;

IR_HANDLE(ir_instr); /* in ir_host.instrs */

/* A list of instructions. */
typedef struct ir_block {
  ir_instr *data;
  uint32_t len, cap;
} ir_block;

typedef struct ir_instr_data {
  ir_instr_kind kind;
  loc at;
  ir_op source; /* of ir_host.lowered: the operation it was made for; none: written by hand */
  ir_rule why;  /* why it is there; NONE: it is the operation itself */

  ir_tensor tensor; /* ALLOCATE, DEALLOCATE: the buffer; SELECT, SHARD: the slice; COMPUTE: the
                       first destination */
  ir_tensor from;   /* SELECT, SHARD: what is sliced */
  uint32_t dim;     /* SELECT, SHARD: which of its dimensions (reductions not counted) */
  ir_scalar index;  /* SELECT, SHARD: which position or piece; on a dimension of size 1 always 0 */
  ir_partition partition; /* SHARD */

  /* COMPUTE, VIEW: code, operands and attributes; its results are the destinations, of which `tensor` is the
   * first. LAUNCH: no code; operands and destinations. */
  ir_op op;
  /* COMPUTE: where in the operation's whole result the destination begins, per dimension. NULL: the
   * destination is the whole result of these operands. Further results have the same window as the
   * first one along the dimensions that they share with it (ir_map_result_dim()).
   * `sliced[k]` has bit d set when operand k was already cut along result dimension d, so that
   * positions along d count from the slice's start. */
  const ir_scalar *offsets;
  const uint32_t *sliced; /* one mask per operand */

  ir_stream stream; /* CURRENT_STREAM: the name it gives; SET_STREAM, WAIT_STREAM */

  ir_scalar variable; /* FOR: the index symbol */
  ir_scalar extent;   /* FOR: 0 <= index < extent */
  bool streamed;      /* FOR: iterations may take turns on the worker streams; until pass `streams`
                    says how, they are on the current one */
  ir_relation relation; /* IF: a relation b */
  ir_scalar a, b;
  ir_block body, otherwise; /* LAUNCH: `body` holds its operations */
  const ir_tensor *returns; /* LAUNCH: the local that each destination gets */

  ir_comm_kind comm;  /* COMMUNICATE: sends `from`, receives into `tensor`; one may be none */
  ir_combine combine; /* COMMUNICATE that combines */
  ir_mesh team;       /* COMMUNICATE: the team is a line along axis `team_axis` of this mesh */
  uint32_t team_axis;
  ir_scalar root;  /* a position in the team, where the kind has one */
  ir_scalar to;    /* PERMUTE, SEND: the receiver */
  ir_scalar peer;  /* PERMUTE, RECV: the sender */
  double saved_ns; /* COMMUNICATE of a bucket: predicted saving over sending its parts one by one */
  uint32_t name; /* COMMUNICATE, GROUP_END: its name, interned; 0 inside a group. WAIT: for what */
} ir_instr_data;

/* One cut of an axis over the devices of its tensor's mesh: along mark axis `mesh_axis`, the device with
 * coordinate c holds piece c. */
typedef struct ir_cut {
  uint32_t mesh_axis;
  ir_partition partition;
  uint32_t
      turn; /* 0, or mark axis + 1: it holds piece (c + its coordinate along that axis) mod n */
} ir_cut;

/* An axis of which each device holds a part. Its extent is that of the running device's part. */
typedef struct ir_cut_axis {
  ir_axis axis;
  ir_scalar whole; /* the length over all devices */
  const ir_cut *cuts;
  uint32_t n_cuts; /* each cuts what the one before leaves */
} ir_cut_axis;

/* me(d.x) */
typedef struct ir_coordinate {
  ir_scalar symbol;
  ir_mesh mesh;
  uint32_t axis;
} ir_coordinate;

/* Where a tensor of a host program comes from; for printing, provenance and the nvFuser style. */
typedef struct ir_origin {
  ir_tensor tensor; /* in the fusion */
  bool slice;       /* a slice of it */
} ir_origin;

/* A preferred form of communication that did not apply to an operation of ir_host.lowered. */
typedef struct ir_fallback {
  ir_op source;
  ir_rule used, why;
} ir_fallback;

/* A stream axis of a result of ir_host.lowered for which there is no loop. */
typedef struct ir_unstreamed {
  ir_op source;
  ir_axis axis;
  ir_rule why;
} ir_unstreamed;

struct ir_host {
  VEC(ir_instr_data) instrs; /* from 1 */
  ir_block body;
  ir_scalar streams; /* the symbol `streams` */
  ir_func *fusion;   /* the fusion of the same name; NULL if there is none */
  ir_func *named_by; /* whose inputs the anonymous extents belong to; NULL: its own */
  ir_func *lowered;  /* what the instructions were made from, with its reasons; NULL: by hand */
  ir_op source;      /* `source` and `why` of new instructions that do not give theirs */
  ir_rule why;
  VEC(ir_fallback) fallbacks;
  VEC(ir_unstreamed) unstreamed;
  bool own_first;         /* the device's own piece is computed before a loop over pieces */
  VEC(ir_origin) origins; /* by tensor id; empty for a program written by hand */
  VEC(ir_cut_axis) cut;
  map cut_of; /* axis id -> position in `cut` + 1 */
  VEC(ir_coordinate) coordinates;
};

/* ---- building ---- */
ir_func *ir_host_new(ir_module *m, uint32_t name, loc at);
/* The host program that `fusion` is lowered to. It is no item of the module, and shares the fusion's
 * symbols: both speak of the same extents. */
ir_func *ir_host_of(ir_func *fusion);
/* The handle of a new instruction; the caller appends it to a block. */
ir_instr ir_host_instr(ir_func *h, const ir_instr_data *data);
void ir_block_add(ir_func *h, ir_block *block, ir_instr i);
static inline ir_instr_data *ir_instr_at(const ir_func *h, ir_instr i) {
  return &h->host->instrs.data[i.id];
}
/* A tensor with fresh logical axes of these sizes (constant 1: a broadcast axis). */
ir_tensor ir_host_tensor(ir_func *h, uint32_t name, ir_dtype dtype, const ir_scalar *sizes,
                         uint32_t rank, loc at);
/* The order of its dimensions in memory, outermost first; false if that is no permutation. */
bool ir_host_order(ir_func *h, ir_tensor t, const int64_t *order, uint32_t n);
/* An operation for COMPUTE: operands, attributes as ir_build_op takes them; the result is `tensor`.
 * Not inferred here; the verifier does that. */
ir_op ir_host_op(ir_func *h, ir_opcode code, const ir_tensor *operands, uint32_t n_operands,
                 const ir_attr *attrs, ir_tensor tensor, loc at);
/* Where it writes its further results; they are copied. */
void ir_host_op_more(ir_func *h, ir_op o, const ir_tensor *more, uint32_t n);

/* ---- slices (host_slices.c) ---- */
/* The length that a slice has along dimension `dim`, where the sliced tensor has `size`. `iterations`: how
 * often the loop runs whose index selects the slice; none: the index is not that of a loop. */
ir_scalar ir_host_slice_size(ir_func *h, const ir_instr_data *d, uint32_t dim, ir_scalar size,
                             ir_scalar iterations);
/* Gives all slices the sizes that parsing the printed program would give them. Lowering knows more about
 * some; later passes must not depend on that, or they would decide differently after the program has been
 * printed and parsed. */
void ir_host_resize_slices(ir_func *h);

/* ---- kernels (host_body.c) ---- */
/* The operands and destinations of a launch. */
ir_op ir_host_launch_op(ir_func *h, const ir_tensor *operands, uint32_t n_operands,
                        const ir_tensor *results, uint32_t n_results, loc at);
/* The dtype and sizes of the operation's result; false: it is wrong, which is reported. */
bool ir_host_infer(ir_func *h, const ir_op_data *op, ir_dtype *dtype, ir_scalar sizes[IR_MAX_RANK],
                   uint32_t *rank);
/* Gives a local its type. */
void ir_host_retype(ir_func *h, ir_tensor t, ir_dtype dtype, const ir_scalar *sizes, uint32_t rank);
/* Do the two have the same dtype and the same size expressions? */
bool ir_host_same_type(const ir_func *h, ir_tensor a, ir_tensor b);
/* Gives a random operation without a key the name of its result as key. The result must have its name. */
void ir_host_key_by_name(const ir_func *h, ir_op op);

/* The symbol me(mesh.axis). */
ir_scalar ir_host_coordinate(ir_func *h, ir_mesh mesh, uint32_t axis);
/* Cuts an axis of h, whose extent is that over all devices, over the devices of `mesh`: the extent
 * becomes that of the running device's part. */
void ir_host_cut(ir_func *h, ir_axis a, ir_mesh mesh, const ir_cut *cuts, uint32_t n_cuts);
/* Which piece the running device has. */
ir_scalar ir_host_cut_index(ir_func *h, ir_mesh mesh, const ir_cut *cut);
/* How long the running device's part of n positions is. */
ir_scalar ir_host_part(ir_func *h, ir_mesh mesh, const ir_cut *cut, ir_scalar n);
/* Notes that axis `a`, whose extent is already that of a part, is cut like another one. */
void ir_host_note_cut(ir_func *h, ir_axis a, const ir_cut_axis *like);
/* NULL: the axis is not cut. */
const ir_cut_axis *ir_host_cut_of(const ir_func *h, ir_axis a);
/* The length of an axis over all devices; its size where it is not cut. Also of fusions. */
ir_scalar ir_axis_whole(const ir_func *f, ir_axis a);

/* May this dimension of `t` be only a piece of a longer one, because `t` is a slice, or cut over devices? It
 * may then be shorter than the chunks that cut it. */
bool ir_host_is_piece(const ir_func *h, ir_tensor t, uint32_t dim);

/* Can the operation's result be a view of its operand's memory, whatever the operand's strides? */
bool ir_op_is_view(ir_opcode code);
/* How many pieces of n positions there are, how long the longest of them is, and how long piece `index`
 * is. `iterations` bounds the index where it may run past the last piece; none: it does not. */
ir_scalar ir_partition_count(ir_scalars *s, const ir_partition *p, ir_scalar n);
ir_scalar ir_partition_longest(ir_scalars *s, const ir_partition *p, ir_scalar n);
ir_scalar ir_partition_length(ir_scalars *s, const ir_partition *p, ir_scalar n, ir_scalar index,
                              ir_scalar iterations);
/* Where piece `index` begins; with a period, where in each period. */
ir_scalar ir_partition_begin(ir_scalars *s, const ir_partition *p, ir_scalar n, ir_scalar index);
/* How each period is cut: the same partition without a period. */
ir_partition ir_partition_of_period(const ir_partition *p);

/* Calls visit() for every instruction, in program order, bodies after their loop; not for the operations
 * inside kernels. */
typedef void (*ir_instr_visitor)(void *context, ir_func *h, ir_instr i, uint32_t depth);
void ir_host_walk(ir_func *h, ir_instr_visitor visit, void *context);

/* A table by tensor id: the buffer that the tensor is a part or view of; its own id if it is a buffer. */
uint32_t *ir_host_roots(ir_func *h, arena *memory);

/* Structure: every name defined before use and visible there, no use after deallocate, types of
 * operations (where the destination is the whole result), slices within their tensor, streams named
 * before use, outputs allocated, every stream that got work joined by the stream the program was
 * called on. Reports to the module's diagnostics. */
bool ir_host_verify(ir_func *h);

#endif
