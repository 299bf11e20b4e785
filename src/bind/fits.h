/* Checks the bound extents of operands and results against each other, family by family. Types cannot show all of
 * it; after this check no kernel reads or writes outside its views. */
#ifndef WEIR_BIND_FITS_H
#define WEIR_BIND_FITS_H

#include "bind/internal.h"

typedef struct shapes {
  binder *b;
  const ir_instr_data *d;
  rt_task *task;
  const rt_view *r;
  bool windowed;
  /* Where the window begins and what it is a part of; 0 and the result's own extents by default. */
  int64_t offset[IR_MAX_RANK], whole[IR_MAX_RANK];
  /* A bit per dimension: */
  uint32_t known; /* `whole` was found */
  uint32_t cut;   /* an operand is cut to the window along it */
  uint32_t kept;  /* the kernel needs the offset even so */
} shapes;

/* ---- errors; all return false ---- */
bool fit_refuse(shapes *s, const char *what);
/* The same, with the extents of all operands and of the destination. */
bool fit_mismatch(shapes *s, const char *what);
void fit_put_extents(strbuf *out, const char *name, const rt_view *v);

/* ---- operands and attributes ---- */
/* The k-th operand; NULL when it is a number or left out. */
const rt_view *fit_operand(const shapes *s, uint32_t k);
const rt_attr *fit_attr(const shapes *s, const char *name);
/* Was operand k cut along dimension `dim` of the result? */
bool fit_is_cut(const shapes *s, uint32_t k, uint32_t dim);
/* A dimension of `rank`, counted from the front. */
uint32_t fit_position(int64_t dim, uint32_t rank);

/* ---- extents ---- */
/* The whole result has n positions along dimension i. */
void fit_set_whole(shapes *s, uint32_t i, int64_t n);
/* Checks that dimension p of operand k is dimension i of the result: cut to the window already, or whole. */
bool fit_along(shapes *s, uint32_t k, uint32_t p, uint32_t i);
/* The first dimensions of operand k, aligned at the last of the first `r_end` of the result; a 1
 * stretches. */
bool fit_along_aligned(shapes *s, uint32_t k, uint32_t p_end, uint32_t r_end);
/* Without a window. Operand dimensions p.. against result dimensions r..; a 1 stretches if `stretches`. */
bool fit_same_dims(const shapes *s, const rt_view *x, uint32_t p, uint32_t r, uint32_t n,
                   bool stretches);
bool fit_right_aligned(shapes *s, uint32_t k, uint32_t p_end, uint32_t r_end);
bool fit_same_rank(shapes *s, const rt_view *x);
bool fit_same_extents(const rt_view *a, const rt_view *b, uint32_t rank);

/* ---- one function per family, by the names of families.def ---- */
typedef bool fits_fn(shapes *s);
#define RUNTIME(fits, writes) fits_##fits
#define FAMILY(id, group, ir, shard, host, join, ref, runtime, ...) fits_fn runtime;
#include "ir/families.def"

#endif
