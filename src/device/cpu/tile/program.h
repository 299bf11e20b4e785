/* Tile programs: how a body is computed without memory for its intermediate values.
 *
 * A program computes one or more values of a body (its targets) over one *space*: the positions of the
 * targets, and beside them those that reductions on the way go over (inner axes). Making one takes three
 * steps, each in a file of its own:
 *
 *   lower   from the targets down to the operands of the task. Each value that is needed becomes a node,
 *           together with where it is needed: an affine map from positions of the space to positions of the
 *           value. Operations that only move elements change the map and vanish; at an operand the map
 *           is a view of memory with one stride for each axis of the space.
 *   emit    axes that all views walk evenly become one. The last loop (columns) and the one before it
 *           (rows) are cut into tiles; nodes become instructions on tiles, each a vector loop, whose
 *           results are in slots of scratch memory that are used again as soon as they are free. A node
 *           that depends on columns only, on rows only or on neither is computed that often only
 *           (loops.c, emit.c, assemble.c).
 *   run     instruction after instruction for each tile. Tiles are grouped into parts by shape alone.
 *
 * Forms of programs with reductions:
 *   rows      a tile holds whole rows, so that what depends on a reduction can use the row again
 *   streamed  reductions are folded tile by tile, along columns or rows, and what depends on them is
 *             computed when they are complete */
#ifndef WEIR_DEVICE_CPU_TILE_PROGRAM_H
#define WEIR_DEVICE_CPU_TILE_PROGRAM_H

#include "device/cpu/kernel_internal.h"

enum {
  TILE_AXES = 8,          /* of a space, at most */
  TILE_LOOPS = 10,        /* of a program, at most */
  TILE_DIMS = 8,          /* of a value, at most */
  TILE_NODES = 600,       /* of a program, at most */
  TILE_DEPTH = 256,       /* steps in a row, each computed from the one before: lowering recurses */
  TILE_ELEMENTS = 2048,   /* of a tile, about */
  TILE_SHORT = 512,       /* of a tile of few steps that wait for memory */
  TILE_LOADED = 8192,     /* of a tile of a reduction that folds memory as it is */
  TILE_ROW = 1 << 16,     /* elements of a row that a tile may hold */
  TILE_STREAM = 12 << 20, /* bytes of a result from which on it is written past the caches */
  TILE_AHEAD = 6,         /* views fetched ahead, at most */
  TILE_NEST = 1024,       /* columns of several loops, at most */
  TILE_NEST_RUN = 8,      /* elements of such columns that are worth a copy of their own */
  TILE_NONE = UINT32_MAX,
};

/* ---- lowering ---- */
/* Position e of a value: offset[e] + sum over axes of coef[e][axis] * position along the axis. */
typedef struct tile_map {
  int64_t offset[TILE_DIMS];
  int64_t coef[TILE_DIMS][TILE_AXES];
} tile_map;

/* Where on each axis (of a program: in each loop) a node is needed: lo <= position < hi. */
typedef struct tile_box {
  int64_t lo[TILE_LOOPS], hi[TILE_LOOPS];
} tile_box;

typedef enum tile_node_kind {
  TILE_LOAD,   /* from memory: a view; zeros outside the box */
  TILE_NUMBER, /* one element */
  TILE_MAKE,   /* iota, uniform: by number */
  TILE_MAP,    /* a pointwise operation */
  TILE_CAST,   /* another dtype */
  TILE_BLEND,  /* x[0] inside the box, x[1] outside */
  TILE_FOLD,   /* a reduction along the inner axes */
  TILE_ROWS,   /* softmax, norms: x, weight, bias */
} tile_node_kind;

typedef struct tile_node {
  tile_node_kind kind;
  ir_dtype dtype;
  uint32_t axes; /* bit a: depends on axis a */
  uint32_t n_x, x[3];
  const rt_step *step;
  ir_opcode code;
  uint32_t place;             /* LOAD: in the table of places */
  int64_t first;              /* LOAD: the first element; MAKE: its number */
  int64_t strides[TILE_AXES]; /* LOAD: elements; MAKE: numbers */
  bool guarded;
  tile_box box;  /* LOAD if guarded, BLEND */
  bool bounded;  /* `need` is set */
  tile_box need; /* where it is used; elsewhere it may be anything */
  cpu_element value;
  bool after_fold; /* depends on a reduction */
} tile_node;

/* What of a body is in memory: an operand, or a value computed before. */
typedef struct tile_memory {
  uint32_t place;
  const int64_t *strides;
} tile_memory;

/* What a program computes: value `value` into memory. */
typedef struct tile_target {
  rt_value value;
  tile_memory to;
  bool in_scratch; /* `to` is: it is read soon */
  uint32_t node;
} tile_target;

typedef struct tile_lowering {
  arena *work; /* until the program is there */
  const rt_plan *plan;
  const rt_body *body;
  /* In memory: params[k], and steps[s][result] where `place` is not TILE_NONE. */
  const tile_memory *params;
  tile_memory *const *steps;
  /* The space: kept axes first, then inner ones; and how the targets lie in it. */
  uint32_t n_axes, n_kept;
  int64_t extents[TILE_AXES];
  tile_map base;
  tile_target *targets;
  uint32_t n_targets;
  tile_node *nodes;
  uint32_t n_nodes;
  struct tile_known *known;
  uint32_t n_known;
  uint32_t depth;   /* of steps being lowered */
  uint32_t blocked; /* the step that has no place in this program; TILE_NONE: none */
} tile_lowering;

/* Lowers the targets, which all have the same extents. False: `blocked` says which step must be computed
 * apart from them. */
bool tile_lower(tile_lowering *l);

/* A step as a task, for the functions of runtime/task.h. */
rt_task tile_step_task(arena *memory, const rt_step *s);
/* Does the family of the operation have a form in tile programs? */
bool tile_knows(const rt_body *body, const rt_step *s);

/* ---- programs ---- */
/* How a view walks columns that are several loops, where it does not walk them evenly: `n` runs of `length`
 * elements, `step` bytes from one to the next, each run from an offset in bytes on. */
typedef struct tile_nest {
  int64_t n, length, step;
  const int64_t *offsets;
} tile_nest;

typedef struct tile_view {
  uint32_t place;
  ir_dtype dtype;
  int64_t first_bytes;
  int64_t steps[TILE_LOOPS]; /* in bytes; of MAKE, in numbers */
  const tile_nest *nest;     /* of a load; NULL: columns are a loop for it */
} tile_view;

typedef enum tile_instr_kind {
  TILE_DO_LOAD,
  TILE_DO_FILL, /* a number */
  TILE_DO_MAKE,
  TILE_DO_MAP,
  TILE_DO_CONVERT,
  TILE_DO_ROUND,
  TILE_DO_SPREAD, /* repeats along rows or columns */
  TILE_DO_BLEND,
  TILE_DO_FOLD,       /* of whole rows */
  TILE_DO_ACCUMULATE, /* of a tile, into the accumulators */
  TILE_DO_TAKE,       /* what was accumulated */
  TILE_DO_ROWS,
  TILE_DO_STORE,
} tile_instr_kind;

/* How often a value exists in a tile: once for each row, for each column, both, or once. */
typedef struct tile_form {
  bool rows, columns;
} tile_form;

typedef struct tile_instr {
  tile_instr_kind kind;
  tile_form form, from; /* of the result; SPREAD: of the operand */
  uint32_t to, x[3];    /* values */
  uint32_t size_bytes;  /* of an element of the result */
  uint32_t from_bytes;  /* of an element of the operand: SPREAD, BLEND, FOLD, ROWS, STORE */
  /* LOAD, STORE, MAKE */
  uint32_t view;
  bool direct;  /* LOAD: used where it is. MAP, ROWS: computed where view says. */
  bool stream;  /* STORE: past the caches. MAP, ROWS: computed and stored so where view says. */
  bool guarded; /* LOAD, BLEND */
  uint32_t box; /* in program->boxes */
  bool bounded; /* not needed in tiles outside of box `need` */
  uint32_t need;
  cpu_convert_fn *convert[2];
  ir_dtype middle; /* between them */
  cpu_map_fn *map;
  const uint16_t *table; /* MAP: of a lookup; else NULL */
  bool mode;
  float cost_ns; /* MAP, MAKE: of an element, about */
  bool heavy;    /* MAP: a function; the next tile may be fetched meanwhile */
  bool is_long;  /* MAP: tile_is_long() */
  void (*round)(int64_t n, float *x);
  cpu_element value;
  const struct cpu_maker *maker;
  /* FOLD, ACCUMULATE, TAKE */
  const cpu_fold *fold, *squares;
  bool products; /* of x[0] and x[1] are folded */
  uint32_t accumulator;
  double divisor, second_divisor; /* 0: none */
  /* ROWS */
  ir_dtype native;
  bool softmax, centered;
  double eps;
} tile_instr;

typedef struct tile_code {
  uint32_t n;
  tile_instr *list;
} tile_code;

typedef enum tile_stream { TILE_WHOLE, TILE_STREAM_COLUMNS, TILE_STREAM_ROWS } tile_stream;

typedef struct tile_program {
  /* Loops from the outside in; the last two are rows and columns. */
  uint32_t n_loops;
  int64_t extents[TILE_LOOPS];
  int64_t tile_rows, tile_columns; /* at most */
  int64_t row_tiles, column_tiles; /* how many, at each outer position */
  uint32_t n_views;
  tile_view *views;
  uint32_t n_boxes;
  tile_box *boxes; /* per loop */
  /* Views that are fetched ahead: those that instructions for each tile read densely, where some of these
   * take long enough. */
  uint32_t n_ahead;
  uint32_t ahead[TILE_AHEAD];
  /* Once for each part; for each tile; streamed: when the reductions are complete. */
  tile_code once, each, last;
  uint32_t n_values;
  size_t *slots; /* where each value is in scratch; SIZE_MAX: set by LOAD or STORE */
  size_t scratch_bytes;
  tile_stream stream;
  bool past_caches; /* some of its stores are: what they wrote is made visible at the end */
  /* Where in scratch: two blocks for elements on their way, and the accumulators, `width` elements each. */
  size_t temporary, temporary_bytes, accumulators;
  uint32_t n_accumulators;
  int64_t width;
  const cpu_fold **folds, **joins; /* of elements; of accumulators */
  int64_t n_units; /* pieces of work: tiles, or blocks of results and spans of what is folded */
  int64_t span;    /* streamed: positions folded in one unit */
  int64_t n_spans;
  double unit_ns; /* what one takes, about */
} tile_program;

/* NULL: there is no program for it (blocked is set). */
tile_program *tile_emit(tile_lowering *l, arena *memory, bool in_place);
size_t tile_shared_bytes(const tile_program *p);
/* For tests: the bytes from which on results are written past the caches; at first TILE_STREAM. */
void tile_stream_from(int64_t bytes);

/* at: the table of places. Runs units [first, end). */
void tile_run(const tile_program *p, int64_t first, int64_t end, char *const *at, char *scratch,
              char *shared);
/* Streamed over several spans: after all units. */
void tile_finish(const tile_program *p, char *const *at, char *scratch, char *shared);

#endif
