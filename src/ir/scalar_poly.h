/* Polynomials: the form in which sums and products of scalars are simplified. Private to ir/scalar*.c.
 *
 * A polynomial is a sum of terms; a term is a coefficient and a sorted product of atoms, scalars that are neither
 * sums nor products. Terms are sorted, with the constant one last, so a polynomial has one scalar form. */
#ifndef WEIR_IR_SCALAR_POLY_H
#define WEIR_IR_SCALAR_POLY_H

#include "ir/scalar.h"

enum { POLY_MAX_TERMS = IR_SCALAR_MAX_TERMS, POLY_MAX_DEGREE = IR_SCALAR_MAX_DEGREE };

typedef struct poly_term {
  int64_t coef;
  uint32_t degree;
  ir_scalar atoms[POLY_MAX_DEGREE]; /* sorted */
} poly_term;

typedef struct poly {
  uint32_t len;
  poly_term terms[POLY_MAX_TERMS];
} poly;

typedef enum poly_fit { POLY_FITS, POLY_TOO_LARGE, POLY_OVERFLOWS } poly_fit;

/* Adds a term in its sorted place; terms with the same atoms join, and vanish at 0. */
poly_fit poly_add_term(const ir_scalars *s, poly *p, const poly_term *t);
poly_fit poly_add(const ir_scalars *s, poly *p, const poly *q); /* p += q */
poly_fit poly_mul(const ir_scalars *s, const poly *p, const poly *q, poly *out);
/* t / d when that is exact for all values: the coefficient divides and d's atoms are among t's. */
bool poly_divide_term(const ir_scalars *s, const poly_term *t, const poly_term *d,
                      poly_term *quotient);

/* The polynomial of a scalar in normal form; the scalars of a polynomial and of a term. */
poly_fit poly_of(const ir_scalars *s, ir_scalar x, poly *p);
ir_scalar poly_scalar(ir_scalars *s, const poly *p);
ir_scalar poly_term_scalar(ir_scalars *s, const poly_term *t);

#endif
