/* What reductions and variances share: reduce.c plans the threads of both, variance.c has its own fold. */
#ifndef WEIR_CODEGEN_REDUCE_H
#define WEIR_CODEGEN_REDUCE_H

#include "codegen/internal.h"

enum { CG_REDUCE_BLOCK = 256 };

typedef struct reduce_writer {
  cg_writer *w;
  const cg_reduce *r;
  cg_space kept, reduced; /* views: x, and of kept also the result */
  int64_t parts_at;       /* where in scratch memory the parts begin, in bytes */
  bool of_parts;          /* x is the parts in scratch memory; those of a variance are in planes: */
  int64_t plane_bytes;    /* counts, means, squares */
  bool columns, tail;
  uint32_t width;   /* elements of x loaded at once */
  uint32_t threads; /* of a row, or side by side */
  int64_t segments, results, items;
  ir_dtype acc;
  const char *fold;
} reduce_writer;

/* How many numbers make up a part; each has a plane of scratch memory. */
static inline int64_t cg_reduce_planes(ir_opcode code) { return code == IR_OP_VAR ? 3 : 1; }
int64_t cg_reduce_plane_bytes(const reduce_writer *x);

/* May an item have fewer than `width` elements? So many: `left`. */
static inline bool cg_reduce_is_guarded(const reduce_writer *x) { return x->tail && !x->columns; }

/* Sets $acc $V $T $warps $half $get $guard. */
void cg_reduce_set_names(const reduce_writer *x);
/* Declares `at`, where `item` is in x, and `left`. */
void cg_reduce_put_at(const reduce_writer *x);
/* Declares the vector `to`, loaded from there. */
void cg_reduce_put_load(const reduce_writer *x, uint32_t address, const char *to);
/* Lets the first lane write the results, or parts of them; `value`: that of result `e` of a thread. */
void cg_reduce_put_results(const reduce_writer *x, int64_t parts_at, const char *value);

/* Writes a variance, except how threads are placed (variance.c). */
void cg_put_variance(const reduce_writer *x);

#endif
