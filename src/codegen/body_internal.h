/* What the writers of bodies share: nodes as text. */
#ifndef WEIR_CODEGEN_BODY_INTERNAL_H
#define WEIR_CODEGEN_BODY_INTERNAL_H

#include "codegen/body.h"
#include "codegen/internal.h"

/* Views that have the same strides share an offset: a *walk*, with a slot of the space. */
typedef struct cg_walks {
  uint32_t n;
  const cg_view *views[CG_MAX_VIEWS]; /* by walk: its first view */
  uint32_t *of_node;                  /* by node, LOAD or AT: its walk */
  uint32_t of_output[CG_MAX_OUTPUTS];
} cg_walks;

/* False: there are too many walks. */
bool cg_walks_find(cg_walks *x, const cg_body *b, arena *memory);

typedef struct cg_values {
  cg_writer *w;
  const cg_body *b;
  uint32_t *address; /* by node: the place in p.at of a LOAD's memory, an INSIDE's record */
  uint32_t out[CG_MAX_OUTPUTS];
  bool paired[CG_MAX_OUTPUTS]; /* elements are rounded in pairs, when all of them are computed */
  const char **texts;          /* by node: its value, in the native type; NULL: not written yet */
  const char **stored;         /* by node: its value as it is in memory; NULL: not written */
  const char **bits;           /* by node: the random bits of a uniform; NULL: not written */
  const char **raw; /* by node: its value before it is rounded to f16 or bf16; NULL: not written */
} cg_values;

/* Adds the addresses of all nodes and outputs. */
void cg_values_begin(cg_values *x, cg_writer *w, const cg_body *b);

/* As text: where the element of a LOAD is, or the value of an AT. `at` is an offset of type ix, to which terms
 * are added. */
const char *cg_place_text(const cg_values *x, uint32_t node, const char *at);

/* Writes `const T NAME = value;` for a node whose operands have texts, and makes NAME its text. Not for vector
 * loads, constants and folds. `at`: the offset of a LOAD or AT. With `assigned`, NAME exists already. */
void cg_put_node(cg_values *x, uint32_t node, const char *name, const char *at, bool assigned);

/* The value of a node, rounded to storage of dtype t. */
const char *cg_stored_text(const cg_values *x, uint32_t node, ir_dtype t);

/* A result that is written in whole vectors, y<r> of type w<r>: its declaration; element e of it, when its
 * node has a text; the rest, when all elements are computed. Numbers to be rounded to f16 or bf16 wait in
 * f<r>; one instruction rounds two of them. */
void cg_put_result_begin(const cg_values *x, uint32_t r, uint32_t width);
void cg_put_result(cg_values *x, uint32_t r, uint32_t width);
void cg_put_result_end(const cg_values *x, uint32_t r, uint32_t width);

/* Marks the nodes that `target` needs, itself included. Stops at nodes that have a text. */
void cg_mark_cone(const cg_values *x, uint32_t target, bool *marks);

/* How far any place of the body reaches beyond the walks: by terms and constants (the caller adds
 * cg_space_reach() of all walks). */
int64_t cg_body_reach(const cg_body *b);

bool cg_write_body_map(cg_kernel *k, const cg_body *b);
bool cg_write_body_rows(cg_kernel *k, const cg_body *b);

#endif
