/* What the files of the reference evaluator share.
 *
 * Every family has one function, status ref_<family>(const ref_call *). It is given a dense result of the right
 * shape and operands of any strides, and writes every element of the result.
 *
 * Most shape operations are a view (same memory, other extents and strides) and then a copy. Most
 * others walk the result in row-major order and read operands through views with its extents. */
#ifndef WEIR_REF_INTERNAL_H
#define WEIR_REF_INTERNAL_H

#include "ir/array.h"
#include "ir/bind.h"
#include "ir/fold.h"
#include "ir/ir.h"
#include "ref/ref.h"

/* The value of one tensor while it lives. */
typedef struct ref_value {
  ir_array array;
  bool owned;        /* array.data is ours to free */
  bool own;          /* of a lane above 0: differs from lane 0's */
  uint32_t last_use; /* position in the order of operations; UINT32_MAX: needed at the end */
  union {
    double f;
    int64_t i;
  } number; /* memory of a constant */
} ref_value;

typedef struct ref_state {
  const ir_env *env;
  const ir_func *f;
  const ref_options *options;
  bool scheduled; /* evaluates the scheduled view */
  bool wide;      /* a lane above 0: floats are f64, whatever their dtype (spread.c) */
  const ir_op *order;
  uint32_t n_order;
  ref_value *values; /* by tensor id */
} ref_state;

typedef struct ref_call {
  const ref_state *state;
  const ir_op_data *op;
  ir_array result;
  ir_array more[IR_MAX_RESULTS - 1]; /* further results, as many as the operation has */
  double *noise[IR_MAX_RESULTS]; /* one per element of a result, all 0 at first; NULL: not wanted */
} ref_call;

/* Is result k wanted? */
static inline bool ref_wants(const ref_call *c, uint32_t k) { return k < ir_op_n_results(c->op); }

/* ---- rounding (noise.c) ----
 * How far from the exact result of its operands a device may compute an element, beyond the rounding of the
 * result itself: a standard deviation. Only families with REF_NOISE_NOTES report it. */
typedef enum ref_noise {
  REF_NOISE_NONE,   /* moves or picks elements: nothing is rounded */
  REF_NOISE_ROUNDS, /* rounds its result */
  REF_NOISE_NOTES,  /* rounds on the way too */
} ref_noise;
ref_noise ref_noise_of(const ref_state *s, const ir_op_data *op);
/* Does the error of a device's function also have a part that is the same for all elements, a bias? */
bool ref_noise_is_biased(const ir_op_data *op);
/* Notes the deviation of the element at `p` of result k, if deviations are wanted. Infinities and NaNs that come
 * from the operands are not deviations. REF_OPEN: a device that accumulates in f32 may overflow, so any result
 * is right. */
#define REF_OPEN 1e300
void ref_note(const ref_call *c, uint32_t k, const void *p, double deviation);
/* ir_dtype_unit() of the dtype that sums of `t` are accumulated in. */
double ref_unit_sum(ir_dtype t);
/* The smallest normal number of `t`. */
double ref_tiny(ir_dtype t);
/* Values of this size or more overflow `t`; infinity: none do. */
double ref_largest(ir_dtype t);
/* The deviation of a sum in dtype `t`; `squares` is the sum of the squares of its n partial sums. */
double ref_sum_noise(ir_dtype t, double squares, int64_t n);
double ref_pointwise_noise(const ref_call *c, const double x[3], double value);

/* ---- operands and attributes (access.c) ---- */
/* The value of operand `i`; NULL when it was left out. */
const ir_array *ref_operand(const ref_call *c, uint32_t i);
/* The operand of the tensor param called `name`; NULL when it was left out. */
const ir_array *ref_operand_named(const ref_call *c, const char *name);

/* An attribute's value, or its default from the table. */
int64_t ref_attr_int(const ref_call *c, const char *name);
ir_number ref_attr_number(const ref_call *c, const char *name);
/* A dimension attribute, counted from the front; `rank` is that of the tensor it belongs to. */
uint32_t ref_attr_dim(const ref_call *c, const char *name, uint32_t rank);
/* Which of `rank` axes a list of dimensions names; a list left out names all. */
void ref_attr_dims(const ref_call *c, const char *name, uint32_t rank, bool named[IR_MAX_RANK]);
int64_t ref_eval_scalar(const ref_call *c, ir_scalar x);

/* Domains in the view that is evaluated. */
ir_domains ref_domains(const ref_state *s, ir_tensor t);

/* A wrong program: names the operation and its result, then says what is wrong. */
status ref_fail(const ref_call *c, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* ---- arrays (access.c) ---- */
int64_t ref_count(const ir_array *a);
/* Element number `i` of a dense array. */
void *ref_element(const ir_array *dense, int64_t i);
/* `a` stretched to the given extents: aligned at the last axis, size 1 repeats. */
ir_array ref_broadcast_to(const ir_array *a, uint32_t rank, const int64_t *extents);

/* An array cut into rows: `outer` has the axes left out, `row` the axes chosen. */
typedef struct ref_rows {
  ir_array outer, row;
} ref_rows;
ref_rows ref_rows_of(const ir_array *a, const bool chosen[IR_MAX_RANK]);
/* The row at a position of `outer`. */
ir_array ref_row_at(const ref_rows *rows, const int64_t *index);

/* ---- numbers (access.c) ---- */
/* The dtype in which sums and products with a result of `t` are accumulated. */
ir_dtype ref_accumulator(const ref_state *s, ir_dtype t);
/* `value` after one step of accumulation in `t`. */
double ref_accumulated(ir_dtype t, double value);
/* Writes a number into an element, in the number's own kind. */
void ref_set_number(ir_dtype t, void *p, ir_number n);

static inline int64_t ref_wrap_add(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)a + (uint64_t)b);
}
static inline int64_t ref_wrap_sub(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)a - (uint64_t)b);
}
static inline int64_t ref_wrap_mul(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)a * (uint64_t)b);
}

/* ---- partial reductions, as rfactor makes them (partial.c) ----
 * The terms of a reduction live on the root domain, reduction axes included: term(i) is left[i], or
 * left[i] * right[i] when there is a right. */
typedef struct ref_terms {
  ir_array left, right;
  bool has_right;
  /* Of a grouped product: the group of each row, which chooses the right factor; the factors of groups are
   * `group_step` elements apart. The value n_groups: the row is in no group, and has no terms. */
  ir_array group;
  bool has_group;
  int64_t n_groups, group_step;
  /* Of grouped_outer: a term belongs to the group that `group` says, and to no other position along
   * `group_axis`. */
  bool has_member;
  uint32_t group_axis;
} ref_terms;
/* The distance in elements from the first right factor to that of a position. False: there is none. */
bool ref_terms_right(const ref_terms *terms, const int64_t *index, int64_t *elements);
/* Was the call's result made by rfactor? Then its domains, not the op, say what is reduced. */
bool ref_is_partial(const ref_call *c);
status ref_reduce_partial(const ref_call *c, const ref_terms *terms);

/* One accumulation, for floats and for integers. */
typedef struct ref_fold {
  ir_fold fold;
  bool is_float;
  ir_dtype accumulator;
  double f;
  int64_t i;
  double squares; /* of all values of f so far */
  int64_t n;
  /* Of a fold by multiplication: the largest and the smallest magnitude of a product of some of the factors,
   * infinities and zeros left out; and whether a factor is zero. */
  double most, least;
  bool has_zero;
} ref_fold;
ref_fold ref_fold_start(const ref_state *s, ir_fold fold, bool is_float, ir_dtype result);
void ref_fold_f64(ref_fold *fold, double value);
void ref_fold_i64(ref_fold *fold, int64_t value);
/* Adds the term at an index of the terms' space. */
void ref_fold_term(ref_fold *fold, const ref_terms *terms, const int64_t *index);
void ref_fold_store(const ref_fold *fold, ir_dtype t, void *p);
/* The deviation of its value, when it ends in dtype `t`. */
double ref_fold_noise(const ref_fold *fold, ir_dtype t);

/* ---- products of matrices (product.c) ---- */
typedef struct ref_factors {
  int64_t m, n, k;
  const double *a; /* m rows of k */
  const double *b; /* k rows of n, in panels: ref_panels() */
  double *sums;    /* m rows of n, each sum from the first term to the last */
  double *squares; /* per sum, the sum of the squares of its partial sums; NULL: not wanted */
} ref_factors;
int64_t ref_panels_count(int64_t n, int64_t k); /* doubles */
/* The index of element [k][j] in the panels. */
int64_t ref_panels_at(int64_t n_k, int64_t k, int64_t j);
void ref_product(const ref_factors *f, uint32_t threads);

/* ---- threads (threads.c) ---- */
typedef void ref_task(void *context, uint32_t i);
/* Calls task(context, i) for all i below n, on up to `threads` threads. */
void ref_parallel(uint32_t n, uint32_t threads, ref_task *task, void *context);
uint32_t ref_cores(void);
/* How many threads a call may use; 1 while lanes are worked on in parallel. */
uint32_t ref_threads(const ref_call *c);

/* ---- the driver's parts (eval.c) ---- */
/* Sets up inputs and constants. options->memory must be set. */
NODISCARD status ref_state_begin(ref_state *s, const ir_env *env, const ref_options *options,
                                 const ir_array *inputs);
void ref_state_end(ref_state *s);
/* Makes and computes an operation's results; noise: one list per result (see ref_call), or NULL. */
NODISCARD status ref_eval_op(const ref_state *s, const ir_op_data *op, double *const *noise);
/* Frees values whose last use was the operation at this position. */
void ref_release_unneeded(const ref_state *s, uint32_t position);
/* Dtype, rank and extents of a tensor. */
void ref_set_shape(const ref_state *s, ir_tensor t, ir_array *a);
void ref_give_outputs(const ref_state *s, const ir_array *outputs);

/* ---- one function per family ---- */
NODISCARD status ref_call_family(const ref_call *c);
typedef status ref_fn(const ref_call *c);
#define REF(eval, noise) ref_##eval
#define FAMILY(id, group, ir, shard, host, join, ref, ...) NODISCARD ref_fn ref;
#include "ir/families.def"
#endif
