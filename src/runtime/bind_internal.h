/* Shared by the files that bind a host program. */
#ifndef WEIR_RUNTIME_BIND_INTERNAL_H
#define WEIR_RUNTIME_BIND_INTERNAL_H

#include "base/vec.h"
#include "runtime/plan.h"

/* The last position of a stream that touched a buffer. */
typedef struct last_access {
  uint32_t stream, position;
} last_access;

typedef VEC(last_access) access_list;

/* A piece of the pool that was given back, and who must be waited for before it is used again. */
typedef struct free_piece {
  int64_t offset_bytes, size_bytes;
  access_list accesses;
} free_piece;

typedef struct binder {
  const ir_func *h;
  rt_plan *plan;
  arena *memory; /* the plan's */
  arena scratch;
  diags *errors;
  int64_t *symbols; /* values of extents, loop indexes, streams */
  uint32_t n_symbols;
  uint32_t stream; /* the current one */
  bool keep_waits;

  rt_view *views;            /* by tensor id: what it stands for now */
  bool *bound;               /* by tensor id */
  map stream_names;          /* name -> stream + 1 */
  VEC(access_list) accesses; /* by buffer */
  VEC(free_piece) pieces;    /* of the pool */
  uint32_t **clocks;         /* by stream: the position of every stream it is ordered after */
  uint32_t *positions;       /* by stream: instructions put on it */

  VEC(rt_instr) instrs;
  VEC(rt_task) tasks;
  VEC(rt_view) all_views;
  VEC(rt_buffer) buffers;
  table view_index;
} binder;

bool bind_error(binder *b, const ir_instr_data *d, const char *fmt, ...) PRINTF_LIKE(3, 4);
bool bind_eval(binder *b, const ir_instr_data *d, ir_scalar x, int64_t *value);

/* ---- memory (bind_memory.c) ---- */
bool bind_allocate(binder *b, const ir_instr_data *d);
bool bind_deallocate(binder *b, const ir_instr_data *d);
void bind_inputs(binder *b);
void bind_touch(binder *b, uint32_t buffer); /* by the instruction just put on the current stream */

/* ---- slices and tasks (bind_task.c) ---- */
bool bind_select(binder *b, const ir_instr_data *d);
bool bind_shard(binder *b, const ir_instr_data *d);
bool bind_view(binder *b, const ir_instr_data *d); /* (bind_view.c) */
bool bind_compute(binder *b, ir_instr at, const ir_instr_data *d);
/* The operand number k of an operation, and its attributes with their scalars evaluated. */
bool bind_operand(binder *b, const ir_instr_data *d, uint32_t k, ir_tensor t, rt_operand *out);
bool bind_attrs(binder *b, const ir_instr_data *d, const ir_op_data *op, rt_task *task);
/* Do the operands' extents fit the operation and its result? (bind_shape.c) */
bool bind_shapes_fit(binder *b, const ir_instr_data *d, rt_task *task);

#endif
