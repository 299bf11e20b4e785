/* Rows of bodies: what planning (body_plan.c), the first launch (body_rows.c) and the launch that adds up
 * columns (body_columns.c) share. */
#ifndef WEIR_CODEGEN_BODY_ROWS_H
#define WEIR_CODEGEN_BODY_ROWS_H

#include "codegen/body_internal.h"

typedef struct rows_writer {
  cg_writer *w;
  const cg_body *b;
  cg_walks walks;
  cg_view placed[CG_MAX_VIEWS]; /* by walk, with the dimensions of the row last */
  cg_space outer, inner;        /* the rows, and a row, which has one dimension; views: the walks */
  cg_values values;
  int64_t n, rows;         /* elements of a row; how many rows */
  bool kept;               /* a row is read once, into registers; otherwise in each pass */
  uint32_t width;          /* V: elements of a vector */
  uint32_t vectors;        /* of a thread: all that it has of a row, or reads at once */
  bool early;              /* the next row is loaded before this one is computed */
  bool staged;             /* rows are in shared memory (body_stage.c), */
  bool held;               /* but what the first pass saves is in registers */
  uint32_t slots;          /* rows there: the one that is computed, and those being loaded */
  uint32_t most_staged;    /* bytes, at most */
  uint32_t resident;       /* blocks that a multiprocessor must have room for; 0: any number */
  uint32_t threads, block; /* of a row; of a block */
  uint32_t passes;         /* of folds; then the results */
  uint32_t *level;         /* by node: in which pass its value is known */
  bool *along;             /* by node: it differs within the row */
  bool *across;            /* by node: it differs between rows */
  bool *late;              /* by node: it needs folds of columns */
  bool *vector;            /* by node: a load of whole vectors */
  bool *spare;             /* by node: a vector that only results need, the same for all rows */
  bool *saved;             /* by node: computed in the first pass, and kept for the others */
  /* By node, if rows are read in each pass: the maximum m of g, if the node is a sum of exp(g - m). Both are
   * found in one pass, and the sum is scaled when a larger maximum is found. CG_NO_NODE: it is no such sum. */
  uint32_t *top;
  bool online;
  bool stores[CG_MAX_OUTPUTS];
  bool has_columns;
  int64_t grid;          /* blocks that go over the rows, if columns are folded */
  int64_t tile;          /* elements of a row that a block has; n: all */
  int64_t parts_at;      /* where the parts of columns are in scratch memory */
  uint32_t parts, *part; /* address of the parts; by node: the number of its plane */
  uint32_t n_parts;
} rows_writer;

static inline const cg_node *rows_node(const rows_writer *x, uint32_t i) {
  return &x->b->nodes.data[i];
}
static inline int64_t rows_step(const rows_writer *x, uint32_t walk) {
  return x->n > 1 ? x->inner.strides[walk][0] : 0;
}
static inline bool rows_is_fold(const rows_writer *x, uint32_t i, bool columns) {
  const cg_node *n = rows_node(x, i);
  return n->kind == CG_NODE_FOLD && n->columns == columns;
}
static inline bool rows_folds_in(const rows_writer *x, uint32_t i, uint32_t pass) {
  return rows_is_fold(x, i, false) && x->level[i] == pass + 1;
}
/* What is folded; for a sum with a running maximum, the operand of that maximum. */
static inline uint32_t rows_operand(const rows_writer *x, uint32_t i) {
  return rows_node(x, x->top[i] == CG_NO_NODE ? i : x->top[i])->operands[0];
}

/* The node of f32 that fold i sums, in f64 or f32; CG_NO_NODE: it is no such sum. Neighbours of a vector
 * are added in f32 before they are added to the sum. */
uint32_t cg_rows_narrow(const rows_writer *x, uint32_t i);
/* The parts of columns beside rows, which have at most CG_PART_ROWS rows each, are in f32, too. */
enum { CG_PART_ROWS = 128 };
static inline ir_dtype rows_part_dtype(const rows_writer *x, uint32_t i) {
  bool narrow = x->passes > 0 && cg_rows_narrow(x, i) != CG_NO_NODE;
  return narrow ? IR_F32 : rows_node(x, i)->dtype;
}
/* The bytes of the parts of one fold: one part per block and column. */
static inline int64_t rows_plane_bytes(const rows_writer *x) {
  int64_t size = 4;
  for (uint32_t i = 0; i < x->b->nodes.len; i++)
    if (rows_is_fold(x, i, true) && ir_dtype_size_bytes(rows_part_dtype(x, i)) > 4) size = 8;
  return cg_ceildiv(x->grid * x->n * size, CG_ALIGN) * CG_ALIGN;
}
/* Plans the kernel; false: there is no form for the body. */
bool cg_rows_plan(rows_writer *x, arena *memory);
const char *cg_fold_text(cg_writer *w, const cg_node *n, const char *a, const char *b);
/* Does every thread have all of its vectors, without a remainder of the row? */
static inline bool cg_rows_is_full(const rows_writer *x) {
  return x->kept && x->tile == x->n && x->n == (int64_t)x->vectors * x->threads * x->width;
}
/* Begins the loop over a thread's vectors, each at element j of the row; and the loop over its elements e. */
void cg_rows_put_loop(const rows_writer *x);
void cg_rows_put_element_loop(const rows_writer *x);

/* ---- sums with a running maximum (body_tops.c) ---- */
/* Is fold i such a sum, or the maximum of one? */
bool cg_rows_has_top(const rows_writer *x, uint32_t i);
/* In a pass: before the elements of a vector; for each of them; after them. */
void cg_put_tops_begin(const rows_writer *x, uint32_t pass);
void cg_put_tops_element(const rows_writer *x, uint32_t pass);
void cg_put_tops_end(const rows_writer *x, uint32_t pass);
/* Joins sum i and its maximum across the threads of a warp, and across warps. */
void cg_put_tops_warp(const rows_writer *x, uint32_t i);
void cg_put_tops_block(const rows_writer *x, uint32_t i);

/* The same body with sums of rows that depend on fewer other folds (body_factor.c). */
const cg_body *cg_rows_factored(const rows_writer *x, arena *memory);

/* ---- rows in shared memory (body_stage.c) ---- */
static inline bool rows_saves_in_stage(const rows_writer *x) { return x->staged && !x->held; }
/* Can rows be there? How many bytes their slots take. */
bool cg_stage_fits(const rows_writer *x);
uint32_t cg_stage_bytes(const rows_writer *x);
/* Writes the declaration of the memory; the copies of what all rows share; the copies of the row at q… into a slot,
 * if there is such a row; the loads of vectors in a pass. */
void cg_put_stage(const rows_writer *x);
void cg_put_stage_shared(const rows_writer *x);
void cg_put_stage_copies(const rows_writer *x, const char *slot, const char *is_there);
void cg_put_stage_loads(const rows_writer *x, const bool *marks);
/* Reads what the first pass has saved there, or writes it. */
void cg_put_stage_saved(const rows_writer *x, bool writes);

/* ---- columns (body_columns.c) ---- */
/* Declares what a thread folds its columns into; after all rows, writes the block's part of them to scratch memory. */
void cg_rows_put_accumulators(const rows_writer *x);
void cg_rows_put_parts(rows_writer *x);
/* Writes the launch that adds up the parts and computes the results that need them. */
void cg_write_rows_columns(cg_kernel *k, rows_writer *x);

#endif
