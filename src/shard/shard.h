/* Sharding: where the data of a tensor lies, whether an operation needs data from other devices, and
 * which communication brings it.
 *
 * Everything here is a question about the scheduled view; nothing changes the function. Answers are
 * symbolic: they hold for all extents. docs/shard.md has the rules in words.
 *
 * A mesh axis is named by its mark: 0 is mesh.x, the last axis of the mesh, 1 is mesh.y before it.
 * A device with coordinate c along mesh axis k holds those elements of a tensor at which the loop axis
 * marked mesh.k has index c. */
#ifndef WEIR_SHARD_SHARD_H
#define WEIR_SHARD_SHARD_H

#include "ir/fold.h"
#include "ir/ir.h"

/* What questions share: a prover with its own scalars, so that asking leaves no trace in the module,
 * and tables about meshes. Lives in `scratch`; stays valid when the schedule changes, and grows only
 * with expressions not met before. All functions below need a memory_guard(). */
typedef struct shard_ctx shard_ctx;
shard_ctx *shard_begin(ir_func *f, arena *scratch);

/* ---- placements ---- */
typedef enum shard_kind {
  SHARD_REPLICATED, /* every device along the mesh axis holds the same */
  SHARD_SHARDED,    /* each holds a piece */
  SHARD_PARTIAL, /* the mark is on a reduction: partial results, reduced across; for consumers the
                       tensor is replicated */
} shard_kind;

/* How the pieces follow from the logical axis. */
typedef enum shard_cut {
  SHARD_WHOLE,  /* the axis itself is marked: piece c is position c */
  SHARD_OUTER,  /* ranges of equal length, the last perhaps shorter or empty */
  SHARD_CHUNKS, /* ranges of given lengths */
  SHARD_INNER,  /* the inner part of a split: every n-th position */
  SHARD_MERGED, /* a part of several merged axes */
} shard_cut;

typedef struct shard_axis {
  shard_kind kind;
  ir_axis loop;    /* the marked axis. A mark on a broadcast axis leaves the kind REPLICATED */
  ir_axis reduced; /* a reduction with the same mark; SHARDED with one is reduce-scattered */
  ir_axis logical; /* what is cut; of merged axes the outermost */
  uint32_t dim;    /* SHARDED: its number among the dimensions; PARTIAL: in the logical domain */
  shard_cut cut;
  bool nested;     /* the axis that is cut is itself a part of the logical one */
  bool contiguous; /* on a device that knows its other coordinates, pieces are ranges in order */
  ir_scalar piece; /* OUTER: length of a piece; INNER: distance of its positions; else none */
  const int64_t *chunks; /* CHUNKS */
  uint32_t n_chunks;
  bool swizzled; /* device c holds piece (c + coordinate along swizzle_axis) mod n */
  uint32_t swizzle_axis;
} shard_axis;

typedef struct shard_placement {
  ir_mesh mesh; /* none: not placed, counts as replicated wherever it is needed */
  uint32_t rank;
  shard_axis axes[IR_MESH_MAX_RANK]; /* by mesh axis */
} shard_placement;

void shard_placement_of(const ir_func *f, ir_tensor t, shard_placement *result);
/* Is it sharded along any of the mesh axes, a bit each? */
bool shard_is_cut(const ir_func *f, ir_tensor t, uint32_t mesh_axes);

/* ---- does data have to move? ---- */
/* Is the operand sharded otherwise along the mesh axis than the result needs it? "Yes" also when
 * equality cannot be proven. Streams never count; sharding a broadcast axis is free. Where the meshes
 * differ, an axis is named if moving along it is part of what is needed. */
bool shard_differs(shard_ctx *c, const ir_op_data *op, uint32_t operand, uint32_t mesh_axis);
/* Does any operand differ along any axis? If not, every device of the result's mesh can compute its
 * part from what it holds. */
bool shard_is_resharding(shard_ctx *c, const ir_op_data *op);

/* Does every device of the result's mesh hold what it needs of the operand to compute its part? Unlike
 * above, a marked reduction cuts the operands: what devices compute then are partial results. */
bool shard_operand_fits(shard_ctx *c, const ir_op_data *op, uint32_t operand);
bool shard_fits(shard_ctx *c, const ir_op_data *op); /* all operands */

/* ---- propagation ---- */
/* Adds statements to the applied schedule of `f`, so that the user's marks reach the tensors around:
 * forward, then backward, until nothing changes. Statements have reasons (ir/why.h). Returns how many. */
uint32_t shard_propagate(ir_func *f);

/* ---- products that meet a communication ---- */
/* Which products are sliced, and what is reduced or gathered after them in how many slices. */
typedef enum shard_slices {
  SHARD_SLICE_ALL,    /* as many as devices, at most eight */
  SHARD_SLICE_HALVES, /* two */
  SHARD_SLICE_LAST,   /* only the last product, if its result is reduced or gathered: four */
} shard_slices;
/* Adds statements to the schedule of `f` that stream such products: along the pieces of what is gathered for them,
 * or along a dimension of what is reduced or gathered afterwards, in as many slices as `which` says. Everything is
 * where it is without them. Returns how many streams it added. */
uint32_t shard_slice_products(ir_func *f, shard_slices which, arena *scratch);

/* ---- operations along sharded axes ---- */
/* Writes operations that work along a sharded axis (softmax, norms, moments, reductions that keep their
 * dimensions) as several that reduce along it, so that only partial results have to be sent. Returns how
 * many. */
uint32_t shard_write_forms(ir_func *f, arena *scratch);
/* Writes sums so that partial results of devices are added to each other first, and one communication reduces
 * them. Returns how many. */
uint32_t shard_group_sums(ir_func *f, arena *scratch);

/* ---- reductions in two steps ---- */
/* What an rfactor made is not computed on its own, so it has no slices to stream; reports such. */
bool shard_rfactors_fit(ir_func *f);
/* Makes one operation of each reduction that was rfactored: the places of its steps say which parts of
 * the reduction devices compute. Returns how many there were. */
uint32_t shard_merge_rfactors(ir_func *f);

/* ---- variants: the same program with other streams ---- */
/* Drops all stream marks, as if no axis had been marked so. Returns how many. */
uint32_t shard_forget_streams(ir_func *f);
/* Of a decomposed function, streams what is gathered piece by piece (`pieces`: the own piece first) or
 * takes such streams away (slices: a collective each); only beside other streams. Returns how many marks
 * changed. */
uint32_t shard_vary_streams(shard_ctx *c, bool pieces, arena *scratch);

/* ---- decomposition ---- */
/* Changes the function so that each operation either computes from what devices
 * hold, perhaps partial results (shard_fits()), or only moves data (shard_comm_of() gives one
 * communication): gives every tensor a mesh, marks reductions of sharded dimensions, and inserts sets,
 * before or after operations, whichever moves fewer bytes. Equal reshardings of a tensor are shared.
 * Reports what cannot be done. */
bool shard_decompose(shard_ctx *c);
/* Do the tensors of `f` lie on several devices? */
bool shard_is_distributed(const ir_func *f);
/* A mesh of all devices that any mesh of `f` has; made if there is none. */
ir_mesh shard_all_devices(ir_func *f);
/* Have both meshes the same devices, in whatever order? */
bool shard_same_devices(const ir_func *f, ir_mesh a, ir_mesh b);
/* Has every device of `a` the same coordinate along the mesh axis in `b`? */
bool shard_same_coordinates(const ir_func *f, ir_mesh a, ir_mesh b, uint32_t axis);

/* ---- communications ---- */
/* What a change of placement needs: nothing that is sent, messages, or one of the kinds of ir/comms.def. Of those,
 *   GATHER, REDUCE  are one communication per receiver,
 *   SEND_RECV       has one sender for each receiver,
 *   PERMUTE         goes, in iteration i of a swizzled loop, from (me + i) to (me - i) mod n. */
typedef enum shard_comm_kind {
  SHARD_NONE,        /* all data is in place */
  SHARD_LOCAL_SLICE, /* every device takes its piece of what it holds */
  SHARD_SHIFT, /* one position per device, from me to me + shift; a pad's value where none comes from */
#define COMM(id, ...) SHARD_##id,
#include "ir/comms.def"
  SHARD_KINDS
} shard_comm_kind;
enum { SHARD_FIRST_COMM = SHARD_KINDS - IR_COMM_COUNT };

/* Of a kind that is one of ir/comms.def. */
ir_comm_kind shard_comm_posted(shard_comm_kind kind);
/* Is it a collective of the devices along one mesh axis, all alike? */
bool shard_comm_is_in_lines(shard_comm_kind kind);
const char *shard_comm_name(shard_comm_kind kind);

typedef enum shard_answer {
  SHARD_ONE,     /* one communication, described in the result */
  SHARD_SEVERAL, /* the sharding changes along several mesh axes (`changed`): take them one by one */
  SHARD_COMPUTES,    /* the operation is more than a communication */
  SHARD_UNSUPPORTED, /* `why` says what is in the way */
} shard_answer;

enum { SHARD_NO_AXIS = -1, SHARD_NO_DIM = -1 };

typedef struct shard_comm {
  shard_comm_kind kind;
  bool reduces;       /* REDUCE, ALLREDUCE, REDUCE_SCATTER */
  ir_combine combine; /* and how */
  int32_t mesh_axis;  /* along which the sharding changes; SHARD_NO_AXIS: only the mesh does */
  uint32_t changed;   /* bit k: the sharding changes along mesh axis k */
  uint32_t kept;      /* bit k: both sides are sharded alike along k */
  ir_mesh from, to;   /* of operand and result */
  int32_t from_dim, to_dim; /* the dimensions that matter: where pieces lie; SHARD_NO_DIM: none */
  bool by_iteration; /* BROADCAST, COLLECTIVE_PERMUTE: in iteration i the root or offset is i */
  ir_axis stream;    /* and whose iterations: an axis of the result's loop domain */
  int64_t shift;     /* SHIFT: by how many devices; negative: to those before */
  bool sliced;       /* GATHER, REDUCE: the receiver takes only its piece along to_dim */
  shard_placement before, after;
  const char *why; /* UNSUPPORTED, COMPUTES */
} shard_comm;

/* What operand 0 -> result needs. The operation is a communication if it is a set, a squeeze, a
 * reduction of one dimension that is sharded one position per device, or a pad that shifts such a dimension. */
shard_answer shard_comm_of(shard_ctx *c, const ir_op_data *op, shard_comm *result);

/* One team of a communication: device ids, in the order of their pieces. A team of one device is a
 * local copy. */
typedef struct shard_team {
  const int64_t *devices;
  uint32_t len;
  int32_t root; /* index in the team of the sender (broadcast, scatter, send_recv) or the
                   receiver (gather, reduce); SHARD_ROOT_NONE, or SHARD_ROOT_ITERATION: the
                   iteration's number */
} shard_team;
enum { SHARD_ROOT_NONE = -1, SHARD_ROOT_ITERATION = -2 };

typedef struct shard_teams {
  VEC(shard_team) list;
} shard_teams;

/* The teams in which `device` takes part, or all of them (SHARD_EVERY_DEVICE), in an order on which all
 * devices agree. None: it takes no part (NONE and LOCAL_SLICE have no teams). In the arena of `c`. */
enum { SHARD_EVERY_DEVICE = -1 };
shard_teams shard_comm_teams(shard_ctx *c, const shard_comm *m, int64_t device);
/* Which piece along the comm's mesh axis the device holds before, or needs after; 0 if that side is
 * not sharded there, -1 if the device is not in that side's mesh. */
int64_t shard_comm_piece(shard_ctx *c, const shard_comm *m, bool after, int64_t device);

/* Partners in iteration i of a collective permute, as indexes in a team of n. */
static inline int64_t shard_permute_source(int64_t me, int64_t i, int64_t n) {
  return (me + i) % n;
}
static inline int64_t shard_permute_target(int64_t me, int64_t i, int64_t n) {
  return (me - i % n + n) % n;
}

/* ---- bytes ---- */
/* Elements of `t` on one device: the longest piece, reductions not counted. Marks along the mesh axes
 * in `ignored` (a bit mask) count as if they were not there. A scalar of the module. */
ir_scalar shard_local_elements(shard_ctx *c, ir_tensor t, uint32_t ignored);
/* Bytes that the busiest device receives, over all iterations of a loop. A scalar of the module. */
ir_scalar shard_comm_bytes(shard_ctx *c, const ir_op_data *op, const shard_comm *m);
/* The same for partial results of `op`, when they are reduced along the mesh axes in `along` (a
 * mask): to all, or, along one that the result is cut along, to each its piece. The result is
 * not cut yet along those in `uncut`. */
ir_scalar shard_partial_bytes(shard_ctx *c, const ir_op_data *op, uint32_t along, uint32_t uncut);
/* Where should the resharding of an operation that also computes go? True: its operands are resharded
 * first; false: it computes as its operands lie, and its result is resharded. Whichever provably moves
 * fewer bytes (for extents of at least 1); undecided, before if it has several tensor operands. Operands in
 * the mask `brought` are brought over for others anyway, and cost nothing. */
bool shard_prefer_before(shard_ctx *c, const ir_op_data *op, uint32_t brought);
/* Bytes that a device receives if operands are resharded first, or the result afterwards, by the extents that are
 * expected; false: not all are, or it cannot be done. */
bool shard_expected_before(shard_ctx *c, const ir_op_data *op, uint32_t brought, double *bytes);
bool shard_expected_after(shard_ctx *c, const ir_op_data *op, double *bytes);
/* Those for operands, by the usual extents where none are expected. */
double shard_usual_before(shard_ctx *c, const ir_op_data *op, uint32_t brought);

#endif
