/* Bodies: several operations as one kernel.
 *
 * A body is a list of *nodes* over one space of positions. A node has one value at each position; its
 * operands are earlier nodes. There are no nodes for permutes, slices, broadcasts and other views: a load
 * has a stride for each dimension of the space. Places that strides cannot express (reshapes that mix
 * dimensions, indexes from memory) are integer nodes, which a load adds to its address. Bodies are made by
 * device/cuda/lower*.c.
 *
 * The forms, each with a writer of its own (docs/codegen.md has the table by which one is chosen):
 *
 *   map       no folds: each position independently                                    body_map.c
 *   rows      folds along the row dimensions, which are dense; the row stays on chip, or is read again
 *             in each pass                                                             body_rows.c
 *   columns   folds along the other dimensions: partial results, then a second launch  body_columns.c */
#ifndef WEIR_CODEGEN_BODY_H
#define WEIR_CODEGEN_BODY_H

#include "base/vec.h"
#include "codegen/codegen.h"

enum { CG_MAX_NODES = 600, CG_MAX_OUTPUTS = 16, CG_MAX_TERMS = 6, CG_NO_NODE = UINT32_MAX };

typedef enum cg_node_kind {
  CG_NODE_CONSTANT, /* `number`, an f64 or i64 */
  CG_NODE_KEY, /* the key of random stream `number` for the seed of the run; only for IR_OP_UNIFORM */
  CG_NODE_LOAD, /* the element of `view` at this position, + terms; 0 where the guard is false */
  CG_NODE_AT, /* the number first + the offset of `view` at this position + terms; reads no memory */
  CG_NODE_DIV, /* operand 0, an index >= 0, divided by n */
  CG_NODE_MOD,
  CG_NODE_INSIDE, /* operand 0 as an index; if it is not in 0 … n - 1, an error is reported and it is 0 */
  CG_NODE_RANGE,  /* low <= operand 0 < high */
  CG_NODE_BOTH,   /* operands 0 and 1, two bools, are both true */
  CG_NODE_CHOOSE, /* operand 0 ? operand 1 : operand 2, of one dtype */
  CG_NODE_CAST,   /* operand 0 rounded to dtype */
  CG_NODE_STEP,   /* a scalar operation; its operands are this node's */
  CG_NODE_FOLD,   /* operand 0 folded along the row dimensions, or along all others */
} cg_node_kind;

/* Does it have the same value at all positions, without a load? */
static inline bool cg_node_is_constant(cg_node_kind k) {
  return k == CG_NODE_CONSTANT || k == CG_NODE_KEY;
}

/* Adds scale * the value of the node, in elements. */
typedef struct cg_term {
  uint32_t node;
  int64_t scale;
} cg_term;

typedef struct cg_node {
  cg_node_kind kind;
  ir_dtype dtype; /* of the value, in its native type; AT … INSIDE: i64; RANGE, BOTH: bool */
  uint32_t n_operands, operands[CG_MAX_OPERANDS];
  ir_number number;
  cg_view view;
  int64_t first;
  uint32_t n_terms;
  cg_term terms[CG_MAX_TERMS];
  uint32_t guard; /* LOAD, INSIDE: nothing is read where this node is false; CG_NO_NODE: none */
  int64_t n, low, high;
  uint32_t error; /* INSIDE: the number of the error record */
  cg_step step;
  ir_fold fold; /* the value has the accumulator's dtype, not rounded */
  bool columns; /* it folds along the dimensions that do not belong to the row */
} cg_node;

typedef struct cg_output {
  uint32_t node;
  cg_view view;
} cg_output;

typedef struct cg_body {
  uint32_t rank;
  int64_t extents[IR_MAX_RANK]; /* none of them 0 */
  uint32_t row;                 /* bit d: dimension d belongs to the row; 0: there are no folds */
  VEC(cg_node) nodes;
  uint32_t n_outputs;
  cg_output outputs[CG_MAX_OUTPUTS];
} cg_body;

/* Writes the body as one kernel (or two, if columns are folded). False: there is no form for it, and nothing
 * was written. */
bool cg_write_body(cg_kernel *k, const cg_body *b);

#endif
