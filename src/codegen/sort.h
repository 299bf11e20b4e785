/* What the two ways to sort in shared memory have in common: a network (sort.c) and digits (radix.c). */
#ifndef WEIR_CODEGEN_SORT_H
#define WEIR_CODEGEN_SORT_H

#include "codegen/internal.h"

enum { CG_RADIX_BLOCK = 512 };

typedef struct sort_writer {
  cg_writer *w;
  const cg_lines *l;
  cg_space space; /* of the lines; views: the result, x */
  int64_t lines, end, pieces;
  int64_t kept;          /* elements kept of each sorted piece: a power of two */
  uint32_t piece, items; /* elements of a piece; of a block, in whole pieces; powers of two */
  bool radix;
} sort_writer;

/* The template that makes `key` of element j of a line, as many bits as an element; sets its names. */
const char *cg_sort_key(cg_writer *w, const cg_lines *l);
/* Declares oy and ox, the offsets of `line`. */
void cg_sort_put_offsets(const sort_writer *x);

/* The most elements of a piece (radix.c). */
uint32_t cg_radix_piece(ir_dtype t);
/* A block sorts piece blockIdx.y of line blockIdx.x. */
void cg_put_radix(const sort_writer *x);

#endif
