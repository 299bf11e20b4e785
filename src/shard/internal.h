/* What the files of shard/ share.
 *
 * To compare shardings, every root axis of a result gets a symbol for its index; the axes of the
 * operand that map to it get the same. The index of a marked loop axis is then an expression in these
 * symbols, and equal expressions mean equal pieces. */
#ifndef WEIR_SHARD_INTERNAL_H
#define WEIR_SHARD_INTERNAL_H

#include "ir/map.h"
#include "schedule/schedule.h"
#include "shard/shard.h"

/* What a symbol of the prover means in the question at hand. */
typedef enum shard_symbol {
  SHARD_FREE,    /* any position will do: broadcasts, and axes of the result the operand lacks */
  SHARD_MAPPED,  /* one position on both sides */
  SHARD_BLOCKED, /* all positions are needed at once, or nothing is known */
  SHARD_COORD,   /* a coordinate of the device */
} shard_symbol;

/* Symbols are reused from question to question; only their meaning and bound change. */
enum {
  SHARD_SLOT_ROOT = 0,                /* by position in the result's root domain */
  SHARD_SLOT_OPERAND = IR_MAX_RANK,   /* by dimension of the operand, unmapped ones */
  SHARD_SLOT_COORD = 2 * IR_MAX_RANK, /* by mesh axis; operand, then result */
  SHARD_SLOT_OPAQUE = SHARD_SLOT_COORD + 2 * IR_MESH_MAX_RANK,
  SHARD_SLOTS,
};

typedef struct shard_slot {
  ir_scalar symbol;
  shard_symbol means;
  ir_scalar bound; /* the symbol is less; none: unbounded */
} shard_slot;

struct shard_ctx {
  ir_func *f;
  arena *scratch;
  ir_scalars s; /* the prover's own */
  shard_slot slots[SHARD_SLOTS];
  map translated;       /* module scalar -> own scalar */
  map extents;          /* module symbol -> own symbol */
  map asserted;         /* module expression -> the symbol in it that it is asserted to equal */
  VEC(ir_scalar) grown; /* the same, plus one */
  VEC(ir_scalar) own_extents; /* own symbols after the slots */
  VEC(map *) positions;       /* by mesh: device -> position + 1; NULL until asked for */
};

/* ---- context.c ---- */
/* A scalar of the module among the prover's, with what the function learned about extents put in. */
ir_scalar shard_translate(shard_ctx *c, ir_scalar x);
/* Position of a device in the mesh's list, or -1. */
int64_t shard_position(shard_ctx *c, ir_mesh mesh, int64_t device);
/* Coordinate of a device that is in the mesh. */
int64_t shard_coordinate(shard_ctx *c, ir_mesh mesh, int64_t device, uint32_t k);

/* The device that differs from `device` only in having coordinate i along k. */
int64_t shard_neighbour(shard_ctx *c, ir_mesh mesh, int64_t device, uint32_t k, int64_t i);

/* ---- index.c: arithmetic on indexes; all of it is exact for every value within the bounds ---- */
ir_scalar shard_div(shard_ctx *c, ir_scalar x, ir_scalar d);
ir_scalar shard_mod(shard_ctx *c, ir_scalar x, ir_scalar d);
/* outer * size + inner, where 0 <= inner < size. */
ir_scalar shard_join(shard_ctx *c, ir_scalar outer, ir_scalar inner, ir_scalar size);

/* ---- leaf.c ---- */
typedef struct shard_known {
  ir_axis axis;
  ir_scalar index;
} shard_known;

typedef struct shard_side {
  ir_tensor tensor;
  ir_mesh mesh;
  uint32_t coords; /* first slot of its coordinates */
  shard_known known[2 * IR_MAX_RANK];
  uint32_t n_known;
} shard_side;

/* Operand and result of an operation with their symbols. One at a time per context. */
typedef struct shard_view {
  shard_ctx *c;
  const ir_op_data *op;
  uint32_t operand;
  shard_side from, to;
} shard_view;

/* Which piece of something a device, or an iteration, has.
 *
 * The index of an axis with one position is 0, and so is that of every part of it: such an index says
 * nothing about what it is a part of. A leaf whose index mentions no position is fixed: one device holds
 * everything along `dim`, and the others nothing. Two of them are alike only along one dimension. */
typedef struct shard_leaf {
  bool present; /* devices hold different pieces */
  bool mixed;   /* cut in a way that no operand or result can match */
  bool fixed;
  ir_scalar index;
  ir_axis dim; /* of a fixed one: the root axis of the result; none: not an axis of both sides */
} shard_leaf;

void shard_view_open(shard_ctx *c, const ir_op_data *op, uint32_t operand, shard_view *v);
/* The index of an axis derived from the side's known ones. */
ir_scalar shard_index_of(shard_view *v, const shard_side *side, ir_axis a);
/* What devices hold along mesh axis k. */
shard_leaf shard_leaf_of(shard_view *v, const shard_side *side, uint32_t k);
/* What is held along an axis of the side, if it were marked. */
shard_leaf shard_leaf_at(shard_view *v, const shard_side *side, ir_axis a);
/* A leaf of the result as the operand of the view opened last sees it. */
shard_leaf shard_leaf_seen(shard_ctx *c, shard_leaf leaf);

typedef enum shard_relation {
  SHARD_BOTH_ABSENT, /* sharded on neither side */
  SHARD_EQUAL,       /* sharded alike */
  SHARD_DIFFERENT,
} shard_relation;
shard_relation shard_leaf_compare(shard_ctx *c, const shard_leaf *from, const shard_leaf *to);
shard_relation shard_relate(shard_view *v, uint32_t k);
/* Mesh axes that exist on either side. */
uint32_t shard_view_rank(const shard_view *v);
/* Bit k of each: how the sides relate along mesh axis k. */
typedef struct shard_changes {
  uint32_t changed, kept;
} shard_changes;
shard_changes shard_view_changes(shard_view *v);

/* ---- mesh.c ---- */
/* Gives a mesh to every tensor that has none: that of its operands, or all devices. */
void shard_place_all(ir_func *f);
/* A 1-D mesh of these devices, called `base` or like it. */
ir_mesh shard_fresh_mesh(ir_func *f, const char *base, const int64_t *devices, int64_t n);

/* ---- propagate.c ---- */
/* Propagation that only adds to the tensors that are open, by number; NULL: to all. */
uint32_t shard_propagate_to(ir_func *f, const bool *open);
/* Did the user say where it lies? */
bool shard_is_frozen(const ir_func *f, ir_tensor t);
/* The marks that a tensor may still get from others. */
schedule_marks shard_open_marks(const ir_func *f, ir_tensor t);
/* Do cuts of `axis` of a tensor, by these marks, make pieces of equal length of it and of `to`? `bare`: the
 * axis is marked itself, as a whole. */
bool shard_may_cross(ir_func *f, ir_tensor from, ir_axis axis, ir_axis to, schedule_marks which,
                     bool *bare);
/* Operands in the order in which they are asked; returns their number. */
uint32_t shard_reference_order(const ir_func *f, const ir_op_data *op, uint32_t *order);

/* ---- reshape.c ---- */
/* Repeats cuts along these mesh axes on the other side of a reshape, where what is cut is a whole part of a
 * dimension there, inner or outer. Forward: from the operand. Returns how many statements were added. */
uint32_t shard_cross_reshape(ir_func *f, const ir_op_data *op, bool forward, uint32_t mesh_axes,
                             const ir_why *why);

/* ---- product.c ---- */
/* Products whose operands are cut in ways that do not go together. Of two that are cut along rows and columns the
 * second one may yield, of two of which one is cut along the inner dimension that one, and the one that is not cut
 * along a batch: it is gathered or exchanged then. Or both do, and the readers of the result decide how it is cut.
 * Products of the same extents are a class, and do the same. */
enum { SHARD_MAX_CLASSES = 64 };
typedef struct shard_choice {
  const uint8_t *class_of; /* by operation, plus 1; 0: of no class */
  uint32_t n_ops;
  uint64_t yields; /* bit c: those of class c */
  uint64_t both;   /* the same: both operands yield */
  uint64_t
      turned; /* the same: all operands yield, and the result is cut along another dimension (turn.c) */
  bool by_cost;    /* no class is asked: who yields moves fewer bytes, where extents are expected */
  uint64_t *met;   /* classes that had such operands are added; NULL: not asked for */
  uint64_t *gave;  /* those of them that yielded */
  uint64_t *turns; /* those that can be turned */
  uint64_t key;    /* of what it was made for */
  const struct shard_choice *next; /* made before it */
} shard_choice;
/* Mesh axes along which operand k of a matrix product, or of attention, leaves the word to others. `turned`: those
 * along which the result is turned. */
uint32_t shard_product_yields(const ir_func *f, const ir_op_data *op, uint32_t k,
                              const shard_choice *choice, uint32_t *turned);

/* ---- turn.c ---- */
/* Are there operations of its kind that can be turned? */
bool shard_may_turn(const ir_op_data *op);
/* Can all that is cut along the axis of the mesh, which is that of the operands, be exchanged so that the result is cut
 * along another dimension, or its reduction, by as many devices? Where that is in the result's loop domain. */
bool shard_turn_of(const ir_func *f, const ir_op_data *op, ir_mesh mesh, uint32_t mesh_axis,
                   uint32_t *at);
/* Attention whose keys are cut along their positions, or queries beside whole keys would be: it meets others along it. */
bool shard_attention_meets(const ir_func *f, const ir_op_data *op, uint32_t mesh_axis);

/* ---- choose.c ---- */
/* Decides for the function what moves and computes least in all, unless that has been decided. True: it was
 * propagated on the way, because there was nothing to decide. */
bool shard_choose(ir_func *f);

/* ---- moved.c ---- */
/* Bytes that each device receives in a decomposed function, by the extents that are expected; others count as
 * IR_USUAL_EXTENT. */
double shard_moved_bytes(shard_ctx *c);
/* Operations of products and attention that each device computes in it, likewise. */
double shard_product_flops(shard_ctx *c);

/* ---- positions.c ---- */
/* What an axis is a part of; none: it is no part. Of merged axes the outermost with several positions. */
ir_axis shard_parent(const ir_func *f, ir_axis a);
/* Is `a` the axis `of`, a part of it, or a part of a part? */
bool shard_descends(const ir_func *f, ir_axis a, ir_axis of);
/* The mesh axes whose cuts of the same dimension cut what that along k leaves. */
uint32_t shard_cuts_inside(const ir_func *f, const shard_placement *p, uint32_t k);
/* Takes the device marks of reductions away that devices cannot share: of those that add up one position again and again,
 * which is the same everywhere and not cut, and of swizzled ones that round, whose parts each line of devices would
 * combine in its own order. */
void shard_unmark_unshared(ir_func *f, const ir_op_data *op);
/* Does the result depend on the order in which it is reduced? Maxima, minima and integers do not. */
bool shard_rounds(const ir_func *f, const ir_op_data *op);
/* Can the operation not be computed on local parts, though devices hold what they need? */
bool shard_needs_whole(const ir_func *f, const ir_op_data *op);
/* Are operands cut wherever the result must not count elements, or heads, that they do not have
 * there? A reshape counts elements, also those of a broadcast, of which any position would do. */
bool shard_counts_fit(ir_func *f, const ir_op_data *op);

#endif
