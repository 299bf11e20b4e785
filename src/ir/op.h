/* The table of operations (ops.def) as data: parser, printer, builder and `weir list ops` read it. */
#ifndef WEIR_IR_OP_H
#define WEIR_IR_OP_H

#include "ir/dtype.h"
#include "ir/handle.h"

typedef enum ir_opcode {
  IR_OP_NONE,
#define POINTWISE(id, name, result, params, fexpr, iexpr) IR_OP_##id,
#define OP(id, name, family, params) IR_OP_##id,
#include "ir/ops.def"
#undef POINTWISE
#undef OP
  IR_OP_COUNT
} ir_opcode;

/* The family of an operation: a row of families.def. All pointwise ops are one family. */
typedef enum ir_family {
#define FAMILY(id, ...) IR_FAMILY_##id,
#include "ir/families.def"
} ir_family;

/* Along which dimensions of its result an operation must know where a part begins in the whole ('at'). */
typedef enum ir_window {
  IR_WINDOW_NONE,      /* none: it has no 'at' */
  IR_WINDOW_ALWAYS,    /* all: it counts elements */
  IR_WINDOW_RESIZED,   /* those along which the operand is not cut as the result is */
  IR_WINDOW_AT_DIM,    /* `dim` */
  IR_WINDOW_AT_LAST,   /* the last */
  IR_WINDOW_AT_GROUPS, /* the last but two */
  IR_WINDOW_LOOKED_UP, /* gather: those but `dim` along which an operand is not cut */
  IR_WINDOW_WRITTEN,   /* scatter: the same, and `dim` */
  IR_WINDOW_CAUSAL,    /* the last but one, if a mask is causal */
  IR_WINDOW_COUNTED,   /* all of iota and uniform, which count positions; none of other makers */
} ir_window;

/* How many floating-point operations it takes, counted by elements of results or operands. */
typedef enum ir_flops {
  IR_FLOPS_NONE,        /* it moves elements */
  IR_FLOPS_RESULT,      /* one for each element of the result */
  IR_FLOPS_ROWS,        /* four for each element of the result */
  IR_FLOPS_OPERAND,     /* one for each element of the operand */
  IR_FLOPS_COMPARISONS, /* four for each element of the operand */
  IR_FLOPS_ADDENDS,     /* scatter: one for each element of src that is added */
  IR_FLOPS_PRODUCT,     /* two for each element of the result and position of the contracted axis */
  IR_FLOPS_OUTER,       /* grouped_outer: two for each element of x and column of y */
  IR_FLOPS_ATTENTION,   /* two products */
  IR_FLOPS_ATTENTION_BACKWARD, /* five products */
} ir_flops;

typedef struct ir_family_info {
  const char *group; /* as `weir list ops` says it */
  bool is_view;      /* the result can be the operand's memory, looked at differently */
  ir_window window;
  ir_flops flops;
} ir_family_info;

const ir_family_info *ir_family_info_of(ir_opcode code);
/* Is it matmul, linear, grouped_matmul or grouped_outer? */
bool ir_op_is_product(ir_opcode code);
/* Is it matmul or linear, with one weight for all rows? */
bool ir_op_is_plain_product(ir_opcode code);
/* How many operands of a product, the first ones, decide the dtype of its result: all but an index. */
uint32_t ir_op_n_factors(ir_opcode code, uint32_t n_operands);
/* Does it multiply matrices? Products do, and attention. */
bool ir_op_multiplies(ir_opcode code);

/* How the result dtype of a pointwise operation or of a reduction follows from its operands; ops.def. */
typedef enum ir_result_rule {
  IR_RESULT_SAME,
  IR_RESULT_NUMBER,
  IR_RESULT_FLOAT,
  IR_RESULT_BITS,
  IR_RESULT_TRUTH,
  IR_RESULT_CHOICE,
  IR_RESULT_WIDE, /* of a reduction: integers and bools become i64 */
} ir_result_rule;

/* How a reduction folds elements: one per row of folds.def (ir/fold.h). */
typedef enum ir_fold {
  IR_FOLD_NONE,
#define FOLD(id, ...) IR_FOLD_##id,
#include "ir/folds.def"
#undef FOLD
  IR_FOLD_COUNT
} ir_fold;

typedef enum ir_param_kind {
  IR_PARAM_END,     /* closes the list */
  IR_PARAM_TENSOR,  /* an operand */
  IR_PARAM_TENSORS, /* one or more operands; the last tensor param */
  IR_PARAM_INT,     /* a constant integer (dimension, correction) */
  IR_PARAM_INTS,
  IR_PARAM_BOOL,
  IR_PARAM_BOOLS,
  IR_PARAM_NUMBER, /* an integer or a fraction, inf, nan */
  IR_PARAM_DTYPE,
  IR_PARAM_SCALAR, /* an integer expression over symbolic extents */
  IR_PARAM_SCALARS,
  IR_PARAM_CHOICE, /* one of a few words; stored as its index */
} ir_param_kind;

typedef enum ir_param_use { IR_USE_REQUIRED, IR_USE_OMIT, IR_USE_DEFAULT } ir_param_use;

enum { IR_MAX_CHOICES = 4, IR_MAX_PARAMS = 8, IR_MAX_RESULTS = 3 };

typedef struct ir_param {
  ir_param_kind kind;
  const char *name;
  ir_param_use use;
  double value;    /* the default of BOOL, INT, NUMBER, DTYPE, CHOICE */
  bool positional; /* prints without its name */
  const char *choices[IR_MAX_CHOICES + 1];
} ir_param;

typedef struct ir_op_info {
  const char *name;
  ir_family family;
  ir_result_rule rule;         /* POINTWISE, REDUCE */
  ir_fold fold;                /* REDUCE */
  const char *fexpr, *iexpr;   /* POINTWISE: the scalar expressions as text, "NO" where none */
  const ir_param *params;      /* ends in IR_PARAM_END */
  uint32_t n_tensors, n_attrs; /* tensor params, attribute params */
  uint32_t n_results;          /* that it can have; at least 1 */
  const char *const *results;  /* their names; NULL: it has one result */
} ir_op_info;

const ir_op_info *ir_op_info_of(ir_opcode code);
/* IR_OP_NONE when no operation has that name. */
ir_opcode ir_op_parse(const char *name, size_t length);
/* "+" for add, "<=" for le …; NULL when the op has no infix form. */
const char *ir_op_infix(ir_opcode code);
/* Does each element of the result depend on the operands' elements at its own place only? */
bool ir_op_is_elementwise(ir_opcode code);

/* ---- attribute values ---- */
/* A number as written: integers keep all 64 bits, and 2 differs from 2.0. */
typedef struct ir_number {
  bool is_float;
  int64_t i;
  double f;
} ir_number;

static inline ir_number ir_number_int(int64_t i) { return (ir_number){.i = i, .f = (double)i}; }
static inline ir_number ir_number_float(double f) { return (ir_number){.is_float = true, .f = f}; }
/* Equal as written: same kind, same bits (so nan equals itself, and 0.0 differs from -0.0). */
bool ir_number_same(ir_number a, ir_number b);
static inline double ir_number_as_f64(ir_number n) { return n.is_float ? n.f : (double)n.i; }

typedef struct ir_attr {
  bool given; /* written, or equal to what was written; false: the default holds */
  int64_t i;  /* INT, BOOL, DTYPE, CHOICE */
  ir_number number;
  ir_scalar scalar;
  uint32_t len;        /* lists */
  const int64_t *ints; /* INTS, BOOLS */
  const ir_scalar *scalars;
} ir_attr;

#endif
