/* Shared by the inference files: the context of one operation, and how dimensions meet. */
#ifndef WEIR_IR_INFER_INTERNAL_H
#define WEIR_IR_INFER_INTERNAL_H

#include "ir/build.h"
#include "ir/infer.h"

typedef struct infer {
  ir_func *f;
  const ir_op_data *op;
  const char *name; /* of the operation */
  ir_inferred *results;
} infer;

static inline ir_scalars *infer_scalars(const infer *c) { return &c->f->module->scalars; }

/* A list of axes under construction. */
typedef struct dims {
  ir_axis data[IR_MAX_RANK];
  uint32_t len;
} dims;

/* Reports at the operation; always false, so callers can return it. */
bool infer_error(infer *c, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Dimensions of operand i of the op, without reductions. */
dims infer_dims(infer *c, uint32_t i);
ir_scalar infer_size(const infer *c, ir_axis a);
bool infer_is_one(const infer *c, ir_axis a); /* broadcasts: size 1 and not expanded */

/* Resolves an axis number that may be negative. */
bool infer_axis(infer *c, int64_t axis, uint32_t rank, uint32_t *result);
/* Marks the axes of an attribute list in `chosen`; absent: all. Refuses duplicates. */
bool infer_axis_set(infer *c, const ir_attr *list, uint32_t rank, bool chosen[IR_MAX_RANK]);

bool infer_push(infer *c, dims *d, ir_axis a);
/* A fresh axis of that size: a broadcast axis when it is the constant 1. */
ir_axis infer_new_dim(infer *c, ir_scalar size);
ir_axis infer_copy_dim(infer *c, ir_axis a);
/* The same, but of a stretched axis an ordinary one: for results that differ along an axis along which the
 * operand only repeats. */
ir_axis infer_unlike_dim(infer *c, ir_axis a);
/* Axis `a`, or `b` if `a` is stretched, so that all its positions are equal, and `b` is an ordinary one. */
ir_axis infer_varying(const infer *c, ir_axis a, ir_axis b);
/* Asserts that two sizes are equal: an error if they cannot be, a constraint if it is unknown. */
bool infer_same_size(infer *c, ir_scalar a, ir_scalar b, const char *what);
/* Asserts a <= b: an error if it cannot be, a constraint if it is unknown. */
bool infer_at_most(infer *c, ir_scalar a, ir_scalar b, const char *what);
/* Asserts that an extent is not negative and does not overflow. */
bool infer_not_negative(infer *c, ir_scalar size);
/* The dimension that dimensions of two operands broadcast to. */
bool infer_meet(infer *c, ir_axis a, ir_axis b, ir_axis *result);
/* Broadcasts two lists of dimensions, aligned at the last one. */
bool infer_broadcast(infer *c, const dims *a, const dims *b, dims *result);

/* Writes root and logical domains (and the defaults for allocation and loop). */
bool infer_done(infer *c, ir_dtype dtype, const dims *root, const dims *logical);
/* Does the program name result `k` > 0? Then infer_more() writes its domains, after infer_done(). */
bool infer_wants(const infer *c, uint32_t k);
bool infer_more(infer *c, uint32_t k, ir_dtype dtype, const dims *logical);
/* The same with copies of the axes of `like`. */
bool infer_more_like(infer *c, uint32_t k, ir_dtype dtype, const dims *like);

/* Is operand i of an integer dtype? */
bool infer_is_index(infer *c, uint32_t i);

/* ---- one function per family, by the names of families.def ---- */
typedef bool infer_fn(infer *c);
#define IR(name, ...) infer_##name
#define FAMILY(id, group, ir, ...) infer_fn ir;
#include "ir/families.def"

#endif
