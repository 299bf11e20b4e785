/* Lowers the steps of a body to nodes (codegen/body.h).
 *
 * A value is lowered at an *index*: per dimension of the value, an affine expression in the position in the
 * kernel's space and in integer nodes. Steps that only move elements change the index and lower their
 * operand; parameters become loads; everything else becomes a node, whose operands are the nodes of its
 * operands. A value that is lowered at the same index again is the same node. */
#ifndef WEIR_DEVICE_CUDA_LOWER_H
#define WEIR_DEVICE_CUDA_LOWER_H

#include "codegen/body.h"
#include "device/cuda/kernel_body.h"

/* The longest chain of steps, each computed from the one before: lowering recurses. */
enum { LOWER_DEPTH = 256 };

/* Along one dimension of a value. */
typedef struct lower_index {
  int64_t first, strides[IR_MAX_RANK]; /* per dimension of the space */
  uint32_t n_terms;
  cg_term terms[CG_MAX_TERMS];
} lower_index;

typedef struct lower_memo {
  uint32_t step, result, guard, node;
  const lower_index *at;
} lower_memo;

typedef struct lowering {
  const rt_plan *plan;
  const rt_task *task;
  const rt_body *body;
  arena *memory;
  cg_body *out;
  VEC(lower_memo) memos;
  VEC(cuda_indexed) indexed;
  uint32_t guard; /* the guard of what is being lowered; CG_NO_NODE: none */
  uint32_t depth; /* how many steps are being lowered */
  bool failed;    /* there is no form for it */
  /* If there are folds: the space, and the dimensions of its rows. */
  uint32_t rank, row;
  int64_t extents[IR_MAX_RANK];
} lowering;

/* A step while it is lowered: `task` has its attributes, and which operands are sliced, but no views. */
typedef struct lower_step {
  lowering *l;
  const rt_step *step;
  const ir_op_info *info;
  rt_task task;
  const rt_shape *result;
  int64_t offset[IR_MAX_RANK], whole[IR_MAX_RANK];
} lower_step;

/* ---- values (lower.c) ---- */
uint32_t lower_value(lowering *l, const rt_value *v, const lower_index *at);
/* The same for operand k of a step. */
uint32_t lower_operand(const lower_step *s, uint32_t k, const lower_index *at);
const rt_shape *lower_shape(const lower_step *s, uint32_t k);
bool lower_has_operand(const lower_step *s, uint32_t k);
/* at[d], moved by the window unless operand k was cut along result dimension d already. */
lower_index lower_moved(const lower_step *s, uint32_t k, uint32_t d, const lower_index *at);
uint32_t lower_fail(lowering *l);

/* ---- nodes (lower_nodes.c) ---- */
/* Adds a node, or returns the same one if there is one already. */
uint32_t lower_node(lowering *l, const cg_node *n);
uint32_t lower_number(lowering *l, ir_number number);
/* The key of a stream of random numbers. */
uint32_t lower_key(lowering *l, ir_number number);
/* The number rounded to t. */
uint32_t lower_constant(lowering *l, ir_number number, ir_dtype t);
uint32_t lower_cast(lowering *l, uint32_t node, ir_dtype t);
/* A pointwise operation without choices, computed in t and rounded to it; b may be CG_NO_NODE. */
uint32_t lower_apply(lowering *l, ir_opcode code, ir_dtype t, uint32_t a, uint32_t b);
uint32_t lower_step_node(lowering *l, const cg_step *step, uint32_t n, const uint32_t *operands);
uint32_t lower_at(lowering *l, const lower_index *i);
uint32_t lower_divided(lowering *l, cg_node_kind kind, uint32_t node, int64_t n, int64_t high);
uint32_t lower_range(lowering *l, const lower_index *i, int64_t low, int64_t high);
uint32_t lower_both(lowering *l, uint32_t a, uint32_t b);
uint32_t lower_choose(lowering *l, uint32_t truth, uint32_t yes, uint32_t no);
uint32_t lower_inside(lowering *l, uint32_t node, const char *op, uint32_t dim, int64_t n);

/* ---- indexes ---- */
lower_index lower_index_of(uint32_t node);
void lower_index_add(lowering *l, lower_index *to, const lower_index *x, int64_t scale);
bool lower_index_same(const lower_index *a, const lower_index *b);
/* The indexes, along dimensions of these extents, of the element of row-major number i. */
void lower_unravel(lowering *l, lower_index i, const rt_shape *shape, lower_index *at);

/* ---- families ---- */
/* Lowers one step at an index; CG_NO_NODE: there is no form for it. */
typedef uint32_t lower_fn(const lower_step *s, const lower_index *at);
lower_fn lower_moves, lower_makes, lower_indexed; /* lower_moves.c */
lower_fn lower_folds;                             /* lower_folds.c */

/* ---- bodies ---- */
/* Whether an operation can be a node, or several; others are always kernels of their own. */
bool lower_takes(ir_opcode code);
/* The body as one kernel (or a few, where its results have different shapes); false: there is no form. */
bool cuda_lower_body(const rt_plan *plan, const rt_task *task, arena *memory, cuda_kernel *k);
/* Finds the space of the folds of the body, and its row; false: there are no folds, or they do not fit together. */
bool lower_find_rows(lowering *l);

#endif
