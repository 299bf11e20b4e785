/* What the files that make programs of nodes share. */
#ifndef WEIR_DEVICE_CPU_TILE_EMIT_H
#define WEIR_DEVICE_CPU_TILE_EMIT_H

#include "device/cpu/tile/program.h"

/* When code runs: once for each part, for each tile, when streamed reductions are complete. */
typedef enum tile_phase { TILE_ONCE, TILE_EACH, TILE_LAST } tile_phase;

/* A value of the program. */
typedef struct tile_value {
  tile_form form;
  ir_dtype native;
  tile_phase phase;
  bool placed;        /* phase is set */
  bool permanent;     /* its slot serves nothing else */
  bool elsewhere;     /* not in a slot */
  uint32_t spread_of; /* value + 1 */
  uint32_t maker;     /* instruction + 1 that may compute it anywhere */
  uint32_t made, last_use;
} tile_value;

typedef struct tile_emitter {
  tile_lowering *l;
  arena *memory;
  bool in_place; /* nothing may be stored before everything was loaded */
  /* Loops, from the outside in. */
  uint32_t n_loops;
  int64_t extents[TILE_LOOPS];
  uint32_t loop_axis[TILE_LOOPS]; /* the innermost axis of each; TILE_NONE: a loop of 1 */
  bool merged[TILE_AXES];         /* it is several axes */
  int64_t tile_rows, tile_columns;
  uint32_t row_axes, column_axes;
  uint32_t steady_axes; /* what depends on these only is the same for all tiles */
  /* Columns that are several loops, from the outside in. */
  uint32_t n_nested, nested_axis[TILE_AXES];
  int64_t nested_extents[TILE_AXES];
  tile_form store_form;
  tile_stream stream;
  int64_t n_positions; /* of the space */
  int64_t n_inner;     /* positions that reductions go over */
  /* What is emitted. */
  tile_code code[3];
  uint32_t capacity[3];
  tile_value *values;
  uint32_t n_values;
  tile_view *views;
  uint32_t n_views;
  tile_box *boxes;
  uint32_t n_boxes;
  const cpu_fold **folds, **joins;
  uint32_t n_accumulators;
  uint32_t (*emitted)[3]; /* [node][phase]: value + 1 */
  uint32_t *n_uses;       /* of nodes, by nodes */
} tile_emitter;

/* Is the target so large that it is written past the caches? */
bool tile_is_large(const tile_lowering *l, const tile_target *t);
/* Is more computed than an arithmetic operation? */
bool tile_is_function(ir_opcode code);
/* A function that takes so long that memory would rest meanwhile: the next tile is fetched then. */
bool tile_is_long(ir_opcode code);
/* Where the first result alone is wanted, var_mean is var. */
static inline bool tile_is_variance(ir_opcode code) {
  return code == IR_OP_VAR || code == IR_OP_VAR_MEAN;
}
/* Chooses form, loops and tiles. False: l->blocked says which reduction must be computed apart. */
bool tile_choose_loops(tile_emitter *e);
/* The program of what is emitted. */
tile_program *tile_assemble(tile_emitter *e);

#endif
