/* What the writers of bodies share: nodes as text. */
#ifndef WEIR_CODEGEN_BODY_INTERNAL_H
#define WEIR_CODEGEN_BODY_INTERNAL_H

#include "codegen/body.h"
#include "codegen/internal.h"

/* Views that walk alike share an offset. Slot 0 … of the space. */
typedef struct cg_walks {
  uint32_t n;
  const cg_view *views[CG_MAX_VIEWS]; /* the first that walks so */
  uint32_t *of_node;                  /* by node: LOAD and AT */
  uint32_t of_output[CG_MAX_OUTPUTS];
} cg_walks;

/* False: there are too many. */
bool cg_walks_find(cg_walks *x, const cg_body *b, arena *memory);

typedef struct cg_values {
  cg_writer *w;
  const cg_body *b;
  uint32_t *address; /* by node: LOAD, the place in p.at; INSIDE: of its error record */
  uint32_t out[CG_MAX_OUTPUTS];
  bool paired[CG_MAX_OUTPUTS]; /* its elements wait to be rounded */
  const char **texts;          /* by node: its value, of the native type; NULL: not there yet */
  const char **stored;         /* by node: its value as it is in memory, where that was computed */
  const char **bits;           /* by node: the random bits of a uniform; NULL: they are not there */
  const char **raw; /* by node: what is rounded to its dtype, f16 or bf16; NULL: it is not there */
} cg_values;

/* Adds the addresses of all nodes and outputs. */
void cg_values_begin(cg_values *x, cg_writer *w, const cg_body *b);

/* Does the element at `at`, an offset of type ix, of a LOAD or the value of an AT, as text; terms are
 * added. */
const char *cg_place_text(const cg_values *x, uint32_t node, const char *at);

/* Writes `const T NAME = value;` of a node that is no vector load, constant or fold, whose operands are
 * there, and makes NAME its text. `at`: of a LOAD or AT, its offset. With `assigned`, NAME exists. */
void cg_put_node(cg_values *x, uint32_t node, const char *name, const char *at, bool assigned);

/* The value of a node, rounded to storage of dtype t. */
const char *cg_stored_text(const cg_values *x, uint32_t node, ir_dtype t);

/* A result that is written in whole vectors, y<r> of type w<r>: its declaration; element e of it, when its
 * node is there; what is left to do when all elements are there. Numbers that are rounded to f16 or bf16 wait
 * in f<r>, and are rounded two by one instruction. */
void cg_put_result_begin(const cg_values *x, uint32_t r, uint32_t width);
void cg_put_result(cg_values *x, uint32_t r, uint32_t width);
void cg_put_result_end(const cg_values *x, uint32_t r, uint32_t width);

/* The nodes that `target` needs, itself included: marks them. Stops at nodes that have a text. */
void cg_mark_cone(const cg_values *x, uint32_t target, bool *marks);

/* How far any place of the body reaches, terms and constants included (cg_space_reach of all walks is
 * added by the caller). */
int64_t cg_body_reach(const cg_body *b);

bool cg_write_body_map(cg_kernel *k, const cg_body *b);
bool cg_write_body_rows(cg_kernel *k, const cg_body *b);

#endif
