/* Forms: an operation that works along a sharded axis, written as operations whose reductions along that
 * axis are partial results. Only those are sent, a few bytes per row, instead of the whole operand.
 *
 *     y = softmax(x[n, v mesh.x])    =>    y$1 = amax(x, dims=[1]);  …  y = y$4 / y$6
 *
 * form_wanted.c asks which operations are rewritten, forms.c puts the new ones in their place, and the other files say
 * when a form is wanted, and write it. Inside of a form nothing is scheduled: propagation places the new tensors afterwards. */
#ifndef WEIR_SHARD_FORM_H
#define WEIR_SHARD_FORM_H

#include "shard/shard.h"

/* What is added up, or subtracted, in a sum. */
typedef struct form_term {
  ir_tensor t;
  bool negative;
  uint32_t parts; /* mesh axes along which it is partial sums that are added first */
  bool
      elsewhere; /* it is added first to others that lie where it does, and not where the sum does */
} form_term;

/* Where an index counts, of pieces on different devices: the same for all that look up with it. */
typedef struct form_places {
  ir_tensor of; /* the index, which has dimensions `own` of `rank`, */
  uint32_t own, rank;
  ir_mesh mesh; /* and how the axis that it counts along is cut */
  uint32_t mesh_axis, dim;
  int64_t pieces;
  ir_scalar piece;
  ir_tensor inside; /* does it count in this piece? */
  ir_tensor index;  /* within the piece; 0 where it does not count */
} form_places;
typedef VEC(form_places) form_places_list;

/* By how many positions something is shifted one after the other. */
enum { FORM_MOST_STEPS = 8 };

typedef struct form form;

/* Of the tensor that grouped products leave, or what elementwise operations make of it: the rows of each device's own
 * groups, before the sum over the devices, as [pieces, rows, columns]. */
typedef struct form_rows {
  ir_tensor of, rows;
  const form *product; /* whose groups these are */
} form_rows;
typedef VEC(form_rows) form_rows_list;

struct form {
  shard_ctx *ctx;
  ir_func *f;
  void (*write)(form *m); /* builds the steps and sets `results` */
  uint32_t why;           /* the reason of the mark that cuts the axis; then, of the steps, */
  ir_rule rule;           /* which are there by this rule */
  uint32_t first;         /* of the operations that forms are written with */
  ir_op_data op;          /* the operation that is rewritten, with its operands as they are now */
  bool had_reduction;     /* it has a reduction axis */
  uint32_t dims;          /* bit i: works along dimension i of its first operand */
  uint32_t dim;           /* of forms in pieces: the only one of these, */
  int64_t pieces;         /* how many lie on as many devices along axis `mesh_axis` of `mesh`, */
  ir_scalar piece;        /* their length, */
  ir_scalar length;       /* and that of the axis */
  ir_mesh mesh;
  uint32_t mesh_axis;
  bool uneven;                       /* the axis is filled up to pieces of equal length, */
  ir_number fill;                    /* with this */
  ir_tensor evened[FORM_MOST_STEPS]; /* such tensors, cut into pieces along dimension `dim` */
  uint32_t n_evened;
  ir_tensor cuts[4]; /* tensors with a piece per position of dimension `dim` */
  uint32_t n_cuts;
  int64_t shift;           /* of a shift: positions that come in in front; negative: at the end, */
  uint32_t inside;         /* it moves along these dimensions too, of which devices have all, */
  uint32_t apart;          /* and along these, which are cut, before: that is a shift of its own, */
  int64_t by[IR_MAX_RANK]; /* by so much, */
  ir_tensor source;        /* of which tensor, */
  ir_tensor
      enters; /* and what comes in; none: the number `value`, or, if it wraps, the other end */
  int64_t enters_from; /* its first position that does */
  ir_scalar kept;      /* how much there is of what is moved; none: all */
  ir_number value;
  bool wraps;
  form *widest;    /* of shifts of one tensor: the one that moves most positions; NULL: itself */
  ir_tensor moved; /* of the widest: what has come from the neighbours, once it is written; */
  ir_tensor steps
      [FORM_MOST_STEPS]; /* of pieces of unknown length, all of it, moved by 1, 2, … positions, */
  int64_t n_steps;       /* as far as that is written */
  ir_scalar start;       /* of a range: its first position, */
  int64_t step;          /* and the distance to the next */
  int64_t heads;         /* of keys, where they are fewer, */
  int64_t parts;         /* and of the heads of queries: each reads one of those */
  bool
      reads_own_rows; /* of a grouped product: it needs only the rows that others left for its own groups, */
  form_rows_list *owned;    /* which are these */
  form_places_list *places; /* of indices, as far as they are written */
  form_term *terms;         /* of a sum */
  uint32_t n_terms;
  ir_dtype wide;                     /* what it computes in: f64 for f64, else f32 */
  ir_tensor results[IR_MAX_RESULTS]; /* what takes the place of its results */
};

static inline ir_scalars *form_scalars(const form *m) { return &m->f->module->scalars; }
/* The operation that makes the tensor; NULL: none does. */
static inline const ir_op_data *form_maker(const ir_func *f, ir_tensor t) {
  ir_op o = ir_tensor_at(f, t)->def;
  return o.id ? ir_op_at(f, o) : NULL;
}

/* ---- form_wanted.c ---- */
/* Is the operation cheaper in its form? */
bool form_wanted(shard_ctx *c, const ir_op_data *op, form *result);
/* What it asks for each family, of an operand with that many dimensions; sets what the form says. */
bool form_wants_reduction(form *m, uint32_t rank);
bool form_wants_rows(form *m, uint32_t rank);
bool form_wants_lookup(form *m, uint32_t rank);
bool form_wants_groups(form *m, uint32_t rank);
bool form_wants_outer(form *m, uint32_t rank);
bool form_wants_scatter(form *m, uint32_t rank);
bool form_wants_cumsum(form *m, uint32_t rank);
bool form_wants_range(form *m, uint32_t rank);
bool form_wants_topk(form *m, uint32_t rank);
bool form_wants_step(form *m, uint32_t rank);
bool form_wants_shift(form *m, uint32_t rank);
bool form_wants_attention(form *m, uint32_t rank);
bool form_wants_attention_backward(form *m, uint32_t rank);

/* ---- form_pieces.c ---- */
/* Mesh axes along which dimension `dim` is cut into pieces that can be reduced in parts. */
uint32_t form_cuts_of(const ir_func *f, ir_tensor t, uint32_t dim);
/* Are operand and result cut along the dimension, and one mesh axis? */
bool form_both_cut(const ir_func *f, const ir_op_data *op, uint32_t dim);
/* Is what a row moves without the form more than `steps` partial results, each sent twice, in bytes? An extent that is
 * not expected counts as long. */
bool form_pays(const form *m, int64_t steps);
/* Is `t` cut along `dim` by one mesh axis into ranges of equal length, provably? */
bool form_has_pieces(form *m, ir_tensor t);
/* The same, but the last ranges may be shorter, or empty. */
bool form_has_ranges(form *m, ir_tensor t);
/* The same along the dimension that the attribute `dim` says, which the form works along. */
bool form_begin_pieces(form *m, ir_tensor t, uint32_t rank, void (*write)(form *));
/* Is nothing said of the axis along which `t` is reduced, its last one? Its form may reduce along another one then. */
bool form_reduces_plainly(const ir_func *f, ir_tensor t);
/* A dimension that is counted from the end if it is negative. */
uint32_t form_position(int64_t dim, uint32_t rank);
/* Bytes of `t` on all devices along the mesh axis together, if an element has `element`. */
ir_scalar form_bytes(shard_ctx *c, ir_tensor t, uint32_t mesh_axis, int64_t element);
/* For the extents that are expected, or the usual ones. */
double form_usual(const form *m, ir_scalar x);
/* What an allreduce sends of each element of sums. */
int64_t form_summed_size(ir_dtype dtype);

/* ---- form_build.c: operations without a name, at the place of the one that is rewritten ---- */
ir_tensor form_op(form *m, ir_opcode code, const ir_tensor *operands, uint32_t n,
                  const ir_attr *attrs);
ir_tensor form_unary(form *m, ir_opcode code, ir_tensor a);
ir_tensor form_binary(form *m, ir_opcode code, ir_tensor a, ir_tensor b);
/* Converted to the dtype, unless it has it. */
ir_tensor form_cast(form *m, ir_tensor x, ir_dtype dtype);
ir_tensor form_number(form *m, ir_number n);
ir_tensor form_extent(form *m, ir_scalar n); /* an extent as a value */
ir_tensor form_reduce(form *m, ir_opcode code, ir_tensor x, uint32_t dims);
/* The maximum of floats; of nothing it is -inf, not an error. */
ir_tensor form_greatest(form *m, ir_tensor x, uint32_t dims);
/* The reduced dimensions back, with one position each. */
ir_tensor form_keep(form *m, ir_tensor x, uint32_t dims, uint32_t rank);
/* How many positions of operand 0 are reduced to one. */
ir_scalar form_count(const form *m);
uint32_t form_rank(const form *m); /* of operand 0 */

/* ---- form_moments.c ---- */
void form_kept_reduction(form *m); /* sum prod amax amin with keepdim */
void form_moment(form *m);         /* mean var var_mean */
void form_softmax(form *m);
void form_norm(form *m); /* layer_norm rms_norm */

/* ---- form_index.c ---- */
void form_lookup(form *m);  /* gather index_select */
void form_scatter(form *m); /* with reduce=add */
void form_added(form *m);   /* the same, of what lies on different devices */
void form_cumsum(form *m);
/* What an index picks along `dim` of operand 0: an element each, or, if it selects, a slice. */
void form_pick(form *m, ir_tensor index, bool selects);
ir_tensor form_or_zero(form *m, ir_tensor inside, ir_tensor x);
/* Where an index counts that has dimensions `own` of `rank`. */
form_places form_places_of(form *m, ir_tensor of, uint32_t own, uint32_t rank);
/* Are results, reduced across devices (twice their bytes, or once if they are scattered), less than the table? True
 * if that is undecided. */
bool form_moves_less(form *m, ir_tensor looked_up);
/* [.., v, ..] as [.., n, c, ..]; these lie as x does. What is not as long is filled up. */
ir_tensor form_in_pieces(form *m, ir_tensor x);
/* The same backwards: dimensions dim and dim + 1 as one. */
ir_tensor form_in_one(form *m, ir_tensor x, uint32_t rank);
/* The same, without what the axis of `length` was filled up with. */
ir_tensor form_in_axis(form *m, ir_tensor x, uint32_t rank, ir_scalar length);
/* The numbers of the pieces, along `dim` of `rank` dimensions. */
ir_tensor form_piece_numbers(form *m, uint32_t rank);

/* Starts of pieces, from their numbers. */
ir_tensor form_piece_starts(form *m, ir_tensor numbers);
ir_scalar form_sized(const form *m, ir_tensor t, uint32_t dim);
ir_tensor form_with_shape(form *m, ir_opcode code, ir_tensor x, const ir_scalar *shape,
                          uint32_t rank);
ir_tensor form_picked(form *m, ir_tensor x, ir_tensor index, uint32_t dim); /* gather */

/* ---- form_topk.c ---- */
void form_topk(
    form *m); /* topk topk_index; of a source whose last two dimensions are one, if there is one */

/* ---- form_range.c ---- */
void form_range(form *m); /* select, slice: a few positions that all devices need */

/* ---- form_step.c ---- */
/* Does the slice take every `step`-th position of all that there are along the dimension, from one of the first on? */
bool form_is_step(ir_func *f, const ir_op_data *op, uint32_t dim, int64_t *start, int64_t *step);
void form_step(form *m);

/* ---- form_shift.c ---- */
/* Does it drop as many positions at one end of a dimension as come in at the other (pad; slice of a pad; cat of
 * a slice and something else)? Sets what the form says about shifts. */
bool form_is_shift(form *m, uint32_t rank);
void form_shift(form *m);
/* The tensor that the operation shifts, all dimensions as long as before; none: it is no shift. */
ir_tensor form_shifted(ir_func *f, const ir_op_data *op);
void form_lengthened(form *m); /* pad in front of pieces that stay as long */
/* Is the operation a slice or pad of a few positions less or more along `dim`, so that as many pieces of both have the
 * same length? */
bool form_keeps_pieces(const ir_func *f, const ir_op_data *op, uint32_t dim, int64_t pieces);
/* Is it written with shifts that have a form of their own? */
bool form_needs_shifts(const form *m);
/* Shifts of one tensor in one direction send what crosses ends of pieces once. Returns how many
 * are put off for that: they are forms no more. */
uint32_t form_share_shifts(form **forms, uint32_t n);

/* ---- form_rows.c ---- */
void form_groups(form *m); /* grouped_matmul whose weights lie on different devices, */
void form_outer(form *m);  /* and the gradient of such weights */
/* Does the grouped product read rows of others with the same groups, perhaps through elementwise operations? */
bool form_reads_own_rows(shard_ctx *c, form *const *forms, const form *m);

/* ---- form_sums.c ---- */
/* Finds the sums that are written with their partial results, or what lies elsewhere, first; forms by operation. Returns how many. */
uint32_t form_find_sums(shard_ctx *c, form **forms);
void form_sum(form *m);
void form_apart(form *m); /* sum or mean of a sum: of its partial results, and of the rest */

/* ---- form_attention.c ---- */
void form_heads(form *m);          /* sdpa with fewer heads of keys than pieces of heads, */
void form_heads_backward(form *m); /* and its gradients */
void form_attention(form *m);      /* sdpa over keys on different devices, */
void form_queries(form *m);        /* and gradients of queries on different devices, */
void form_keys(form *m);           /* or of keys */

#endif
