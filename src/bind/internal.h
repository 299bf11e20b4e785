/* Shared by the files that bind a host program. */
#ifndef WEIR_BIND_INTERNAL_H
#define WEIR_BIND_INTERNAL_H

#include "base/vec.h"
#include "bind/bind.h"
#include "bind/pool.h"

/* A list of the plan. */
typedef struct bind_numbers {
  const int64_t *data;
  uint32_t n;
} bind_numbers;

/* A table that grows with the plan, in chunks, so that nothing is copied before the end. */
typedef struct bind_rows {
  VEC(char *) chunks;
  uint32_t len, size_bytes;
} bind_rows;
enum { BIND_CHUNK = 256 };

typedef struct bind_buffer {
  rt_buffer buffer;
  bind_accesses accesses; /* of a pool buffer */
} bind_buffer;

/* What a name of a communication or group represents now: posts [first, first + n). */
typedef struct bind_comms {
  uint32_t first, n;
  bool posted, joined;
  uint32_t joined_by; /* the last stream that waited */
} bind_comms;

/* How a view moves with the rank: on the next rank along an axis of the mesh it is one block further on. At the end
 * of the period it wraps around. */
typedef struct bind_turn {
  uint32_t axis; /* mark axis of the mesh + 1; 0: it is the same on all ranks */
  int64_t block_bytes, period_bytes;
} bind_turn;

/* A team of devices; equal teams are stored once. Then: the team of this rank along an axis of a mesh. */
typedef struct bind_team {
  const uint32_t *devices;
  uint32_t n, last; /* the last collective posted there + 1 */
} bind_team;
typedef struct bind_line {
  ir_mesh mesh;
  uint32_t axis, team, me;
  bool member;
} bind_line;

/* What the binder knew at the start of a window that may be repeated (loop.h). */
typedef struct bind_state {
  rt_view *views;
  bool *bound;
  uint32_t room, n_streams, stream; /* streams that there is room for */
  uint32_t *clocks, *positions;
} bind_state;
typedef struct bind_watch bind_watch;

typedef struct binder {
  const ir_func *h;
  rt_plan *plan;
  arena *memory; /* the plan's */
  arena scratch;
  arena work; /* emptied before each kernel */
  diags *errors;
  int64_t *symbols; /* values of extents, loop indexes, streams */
  uint32_t n_symbols;
  uint32_t stream; /* the current one */
  bool keep_waits, lends, folds_in_place;
  const int64_t *donated; /* by output; or NULL */
  int64_t rank;           /* the running device */
  bool takes_part;        /* this device has a tensor of the program */

  rt_view *views;         /* by tensor id: what it represents now */
  const rt_attr **attrs;  /* by op: those it was bound with last */
  const rt_body **bodies; /* by op of a launch: the body it was bound with last */
  VEC(rt_view) locals;    /* of the kernel being bound: view BIND_LOCAL_VIEW + k is number k */
  uint32_t *steps_at; /* by tensor id: the step that computes it in the kernel being bound + 1 */
  bool *bound;        /* by tensor id */
  bool *absent;       /* by tensor id: it lies on other devices */
  map stream_names;   /* name -> stream + 1 */
  bind_pool pool;
  uint32_t clock_room; /* streams that there are clocks for */
  uint32_t **clocks;   /* by stream: the position of every stream it is ordered after */
  uint32_t *positions; /* by stream: instructions put on it */

  int64_t steps; /* taken so far: instructions and iterations */
  int64_t max_steps, max_bytes;
  const ir_instr_data *loop; /* the outermost one that runs; NULL: none */

  /* ---- loops that are kept (loop.h) ---- */
  uint32_t min_loops; /* repetitions that are worth a loop; 0: none is kept */
  bind_watch *watch;  /* of the window that is watched; NULL: none is */
  bool in_window;     /* loops in it are unrolled */
  bind_state before;
  int64_t n_done; /* instructions of repetitions that are executed without being bound one by one */
  VEC(rt_loop) loops;
  VEC(rt_unrolled) unrolled;

  bind_rows instrs, tasks; /* rt_instr, rt_task */
  bind_rows all_views;     /* rt_view */
  bind_rows buffers;       /* bind_buffer */
  VEC(rt_post) posts;
  VEC(bind_team) teams;
  VEC(bind_line) lines;
  uint32_t last_message; /* the last message posted + 1 */
  VEC(bind_comms) comms;
  map comm_names; /* name -> position in `comms` + 1 */
  bool in_group;
  uint32_t group_first;
  table view_index;
  VEC(bind_numbers) lists; /* equal lists are stored once */
  table list_index;

  /* ---- are all ranks alike? (alike.c) ---- */
  const ir_mesh_data *alike; /* the mesh of all ranks, while they may still be alike; else NULL */
  bind_turn *turns;          /* by tensor */
  VEC(bind_turn) view_turns; /* by view */
  uint32_t n_same;
  uint8_t *same;       /* by scalar: it has been checked which ranks have another value */
  bool *differs;       /* by position in the mesh: the rank's plan differs */
  int64_t n_differ;    /* ranks whose plan differs */
  int64_t alike_steps; /* how many more steps the comparison may take */
} binder;

/* A view while its extents and strides are made. */
typedef struct bind_shape {
  rt_view view; /* without its lists */
  int64_t extents[IR_MAX_RANK], strides[IR_MAX_RANK];
} bind_shape;

bool bind_error(binder *b, const ir_instr_data *d, const char *fmt, ...) PRINTF_LIKE(3, 4);
bool bind_eval(binder *b, const ir_instr_data *d, ir_scalar x, int64_t *value);

/* ---- windows that are watched (loop.c) ---- */
/* What the binding of a window depends on. A repetition must have the same value of x; the same outcome of a
 * condition; an index below n; a piece of the same length, in n positions. */
void bind_watch_value(binder *b, ir_scalar x);
void bind_watch_relation(binder *b, const ir_instr_data *d);
void bind_watch_index(binder *b, ir_scalar x, int64_t n);
void bind_watch_piece(binder *b, const ir_instr_data *d, int64_t n, int64_t begin, int64_t length);
/* A value that may differ on other ranks, in windows that are not bound; a slice of memory at this offset that moves
 * with the rank. */
void bind_watch_rank(binder *b, ir_scalar x);
void bind_watch_turn(binder *b, ir_tensor from, int64_t offset_bytes);

/* ---- rows ---- */
static inline void *bind_row(const bind_rows *r, uint32_t i) {
  return r->chunks.data[i / BIND_CHUNK] + (size_t)(i % BIND_CHUNK) * r->size_bytes;
}
/* Locals of kernels are no views of the plan, but operations are checked against them as if they were. */
#define BIND_LOCAL UINT32_MAX               /* the buffer of a local */
#define BIND_LOCAL_VIEW (UINT32_C(1) << 31) /* the numbers of their views begin here */
static inline const rt_view *bind_view_at(const binder *b, uint32_t view) {
  if (view >= BIND_LOCAL_VIEW) return &b->locals.data[view - BIND_LOCAL_VIEW];
  return bind_row(&b->all_views, view);
}
static inline bind_buffer *bind_buffer_at(const binder *b, uint32_t buffer) {
  return bind_row(&b->buffers, buffer);
}
/* A copy of what `value` points at, and its number. */
uint32_t bind_row_add(binder *b, bind_rows *r, const void *value);
/* All rows, contiguous, in the plan's memory. */
void *bind_rows_flat(binder *b, const bind_rows *r);

/* ---- lists (list.c) ---- */
/* The plan's copy of a list; equal lists have equal addresses. `likely`: a list of the plan that is probably equal,
 * or NULL. */
const int64_t *bind_list(binder *b, const int64_t *list, uint32_t n, const int64_t *likely);
bind_shape bind_shape_of(const rt_view *v);
/* From now on `t` is this view. */
void bind_tensor(binder *b, ir_tensor t, const bind_shape *shape);

/* ---- memory (memory.c) ---- */
bool bind_allocate(binder *b, const ir_instr_data *d);
bool bind_deallocate(binder *b, const ir_instr_data *d);
void bind_inputs(binder *b);
void bind_touch(binder *b, uint32_t buffer); /* by the instruction just put on the current stream */

/* When everything is bound: places the buffers of the pool again, now that all lifetimes are known. (place.c) */
void bind_place(binder *b);

/* ---- slices and tasks (task.c) ---- */
bool bind_select(binder *b, const ir_instr_data *d);
bool bind_shard(binder *b, const ir_instr_data *d);
bool bind_view(binder *b, const ir_instr_data *d); /* (view.c) */
bool bind_compute(binder *b, ir_instr at, const ir_instr_data *d);
bool bind_launch(binder *b, ir_instr at, const ir_instr_data *d); /* (body.c) */
/* Is the tensor bound to a view, here and on this device? */
bool bind_is_bound(binder *b, const ir_instr_data *d, ir_tensor t);
/* Puts the task on the current stream. */
void bind_put_launch(binder *b, ir_instr at, const rt_task *task);
/* Adds the tensor's present view to the plan and returns its number. */
uint32_t bind_add_view(binder *b, ir_tensor t);
/* The operand number k of an operation, and its attributes with their scalars evaluated. */
bool bind_operand(binder *b, const ir_instr_data *d, uint32_t k, ir_tensor t, rt_operand *out);
bool bind_operands(binder *b, const ir_instr_data *d, const ir_op_data *op, arena *memory,
                   rt_task *task);
bool bind_attrs(binder *b, const ir_instr_data *d, const ir_op_data *op, rt_task *task);
/* ---- are all ranks alike? (alike.c) ---- */
/* Starts the comparison, in a world of `world` ranks. */
void bind_alike_begin(binder *b, uint32_t world);
/* Ends it: the ranks are not alike. */
static inline void bind_unlike(binder *b) { b->alike = NULL; }
/* Is it known that no other rank has this plan? */
static inline bool bind_is_alone(const binder *b) {
  return !b->alike || b->n_differ + 1 == b->alike->n_devices;
}
/* Notes the ranks on which a scalar that contains coordinates has another value than here. */
void bind_alike_value(binder *b, ir_scalar x, int64_t value);
/* Evaluates a scalar that may move with the rank: *axis is the mark axis + 1 along which the next rank has the next
 * value, modulo the size of the mesh; 0: the value is the same on all ranks. */
bool bind_eval_turning(binder *b, const ir_instr_data *d, ir_scalar x, int64_t *value,
                       uint32_t *axis);
/* Notes that `part` is one of the `n` blocks of `from`, by an index that moves with the rank along `axis`. */
void bind_turn_part(binder *b, ir_tensor part, ir_tensor from, uint32_t axis, int64_t n,
                    int64_t block_bytes);
/* Notes that the tensor is this view of the plan; `known`: the view was there before. */
void bind_turn_note(binder *b, ir_tensor t, uint32_t view, bool known);
/* When everything is bound and placed: writes the result into the plan. */
void bind_alike_end(binder *b);

/* ---- communications (comm.c) ---- */
bool bind_communicate(binder *b, ir_instr at, const ir_instr_data *d);
bool bind_group_start(binder *b, const ir_instr_data *d);
bool bind_group_end(binder *b, const ir_instr_data *d);
bool bind_wait(binder *b, ir_instr at, const ir_instr_data *d);
/* Has every communication been waited for? */
bool bind_comms_end(binder *b);

/* Do the operands' extents fit the operation and its result? (shape.c) */
bool bind_shapes_fit(binder *b, const ir_instr_data *d, rt_task *task);

#endif
