/* Attention of a plan as cuDNN takes it: batch and heads; there may be fewer heads of keys than of queries.
 *
 *   q[b, hq, sq, d]  k[b, hk, skv, d]  v[b, hk, skv, dv]  ->  o[b, hq, sq, dv]
 *
 * Query head i reads key head i / (hq / hk). What the library would compute wrongly without an error is
 * refused here, before it is asked: see refuse() in attention_shape.c. Knows no GPU and no library. */
#ifndef WEIR_DEVICE_CUDA_ATTENTION_SHAPE_H
#define WEIR_DEVICE_CUDA_ATTENTION_SHAPE_H

#include "runtime/task.h"

/* The tensors of attention; those of the gradient follow those of the result. */
typedef enum cuda_att_side {
  ATT_Q,
  ATT_K,
  ATT_V,
  ATT_O,
  ATT_STATS, /* logarithms of the sums of exponentials, f32[b, hq, sq], packed */
  ATT_DO,
  ATT_DQ,
  ATT_DK,
  ATT_DV,
  N_ATT_SIDES
} cuda_att_side;

typedef enum cuda_att_mask {
  ATT_ALL,
  ATT_TOP_LEFT,     /* query i sees the keys 0 … i */
  ATT_BOTTOM_RIGHT, /* the last query sees all keys, each one before it sees one fewer */
} cuda_att_mask;

/* Everything that a plan of the library depends on. Compared as bytes, so all fields have one type. */
typedef struct cuda_att_shape {
  int64_t backward;
  int64_t dtype; /* ir_dtype */
  int64_t b, hq, hk, sq, skv, d, dv;
  int64_t mask;
  int64_t stats;                   /* forward: statistics are wanted */
  int64_t spare;                   /* bit i: side i is not wanted, and goes to scratch memory */
  int64_t strides[N_ATT_SIDES][3]; /* b, h, s; along d they are 1 */
} cuda_att_shape;

enum { ATT_NO_START = UINT32_MAX };
/* Where the tensors of one task are, and what does not belong to its shape. */
typedef struct cuda_att_places {
  float scale;
  uint32_t start[N_ATT_SIDES]; /* of the task: 0 the result, k + 1 operand k, as in cg_pointer */
  int64_t offset_bytes[N_ATT_SIDES]; /* from where the view begins */
} cuda_att_places;

/* Can the library take the task? If not, *why says what it cannot take; NULL: the task is no attention. */
bool cuda_att_shape_of(const rt_plan *plan, const rt_task *task, cuda_att_shape *shape,
                       cuda_att_places *places, const char **why);

/* Is a task attention or its gradient? */
bool cuda_att_is(const rt_task *task);

/* Elements from the first to the last of a side, both included. */
int64_t cuda_att_reach(const cuda_att_shape *s, cuda_att_side side);
/* Extents of a side: b, heads, positions, width. */
void cuda_att_extents(const cuda_att_shape *s, cuda_att_side side, int64_t extents[4]);

#endif
