#include "ir/scalar_poly.h"

#include <string.h>

#include "ir/scalar_internal.h"

static int compare_atoms(const ir_scalars *s, const poly_term *a, const poly_term *b) {
  /* The constant term comes last. */
  if (a->degree == 0 || b->degree == 0) return (int)(a->degree == 0) - (int)(b->degree == 0);
  uint32_t n = a->degree < b->degree ? a->degree : b->degree;
  for (uint32_t i = 0; i < n; i++) {
    int c = ir_scalar_compare(s, a->atoms[i], b->atoms[i]);
    if (c) return c;
  }
  return (int)(a->degree > b->degree) - (int)(a->degree < b->degree);
}

poly_fit poly_add_term(const ir_scalars *s, poly *p, const poly_term *t) {
  if (t->coef == 0) return POLY_FITS;
  uint32_t i = 0;
  int c = 1;
  while (i < p->len && (c = compare_atoms(s, &p->terms[i], t)) < 0) i++;
  if (i < p->len && c == 0) {
    int64_t sum;
    if (__builtin_add_overflow(p->terms[i].coef, t->coef, &sum)) return POLY_OVERFLOWS;
    p->terms[i].coef = sum;
    if (sum == 0) {
      memmove(&p->terms[i], &p->terms[i + 1], (p->len - i - 1) * sizeof(poly_term));
      p->len--;
    }
    return POLY_FITS;
  }
  if (p->len == POLY_MAX_TERMS) return POLY_TOO_LARGE;
  memmove(&p->terms[i + 1], &p->terms[i], (p->len - i) * sizeof(poly_term));
  p->terms[i] = *t;
  p->len++;
  return POLY_FITS;
}

static poly_fit term_product(const ir_scalars *s, const poly_term *a, const poly_term *b,
                             poly_term *out) {
  if (a->degree + b->degree > POLY_MAX_DEGREE) return POLY_TOO_LARGE;
  if (__builtin_mul_overflow(a->coef, b->coef, &out->coef)) return POLY_OVERFLOWS;
  uint32_t i = 0, j = 0;
  out->degree = 0;
  while (i < a->degree || j < b->degree) {
    bool left =
        j == b->degree || (i < a->degree && ir_scalar_compare(s, a->atoms[i], b->atoms[j]) <= 0);
    out->atoms[out->degree++] = left ? a->atoms[i++] : b->atoms[j++];
  }
  return POLY_FITS;
}

static bool is_product_of_atoms(const ir_scalars *s, ir_scalar x) {
  const ir_scalar_node *n = ir_scalar_node_of(s, x);
  while (n->kind == IR_SCALAR_MUL) {
    const ir_scalar_node *b = ir_scalar_node_of(s, n->b);
    if (b->kind == IR_SCALAR_ADD || b->kind == IR_SCALAR_MUL) return false;
    n = ir_scalar_node_of(s, n->a);
  }
  return n->kind != IR_SCALAR_ADD;
}

/* Reads coefficient * atom * atom ... as the normal form builds it: MUL(const, MUL(MUL(x, y), z)). */
static poly_fit to_term(const ir_scalars *s, ir_scalar x, poly_term *t) {
  const ir_scalar_node *n = ir_scalar_node_of(s, x);
  *t = (poly_term){.coef = 1};
  if (n->kind == IR_SCALAR_CONST) {
    t->coef = n->value;
    return POLY_FITS;
  }
  if (n->kind == IR_SCALAR_MUL && ir_scalar_is_const(s, n->a, &t->coef)) x = n->b;
  if (!is_product_of_atoms(s, x)) { /* too large to expand when it was built: opaque */
    t->atoms[t->degree++] = x;
    return POLY_FITS;
  }
  poly_term one = {.coef = 1, .degree = 1};
  for (n = ir_scalar_node_of(s, x); n->kind == IR_SCALAR_MUL; n = ir_scalar_node_of(s, x)) {
    poly_term before = *t;
    one.atoms[0] = n->b;
    poly_fit f = term_product(s, &before, &one, t);
    if (f != POLY_FITS) return f;
    x = n->a;
  }
  poly_term before = *t;
  one.atoms[0] = x;
  return term_product(s, &before, &one, t);
}

poly_fit poly_of(const ir_scalars *s, ir_scalar x, poly *p) {
  p->len = 0;
  poly_term t;
  const ir_scalar_node *n = ir_scalar_node_of(s, x);
  for (; n->kind == IR_SCALAR_ADD; n = ir_scalar_node_of(s, x)) {
    bool kept = ir_scalar_node_of(s, n->b)->kind == IR_SCALAR_ADD; /* a sum that was too large */
    poly_fit f = kept ? POLY_TOO_LARGE : to_term(s, n->b, &t);
    if (f == POLY_FITS) f = poly_add_term(s, p, &t);
    if (f != POLY_FITS) return f;
    x = n->a;
  }
  poly_fit f = to_term(s, x, &t);
  return f == POLY_FITS ? poly_add_term(s, p, &t) : f;
}

ir_scalar poly_term_scalar(ir_scalars *s, const poly_term *t) {
  if (t->degree == 0) return ir_scalar_const(s, t->coef);
  ir_scalar x = t->atoms[0];
  for (uint32_t i = 1; i < t->degree; i++)
    x = ir_scalar_intern(s, IR_SCALAR_MUL, 0, x, t->atoms[i]);
  if (t->coef == 1) return x;
  return ir_scalar_intern(s, IR_SCALAR_MUL, 0, ir_scalar_const(s, t->coef), x);
}

ir_scalar poly_scalar(ir_scalars *s, const poly *p) {
  if (p->len == 0) return ir_scalar_const(s, 0);
  ir_scalar x = poly_term_scalar(s, &p->terms[0]);
  for (uint32_t i = 1; i < p->len; i++) {
    x = ir_scalar_intern(s, IR_SCALAR_ADD, 0, x, poly_term_scalar(s, &p->terms[i]));
  }
  return x;
}

poly_fit poly_add(const ir_scalars *s, poly *p, const poly *q) {
  for (uint32_t i = 0; i < q->len; i++) {
    poly_fit f = poly_add_term(s, p, &q->terms[i]);
    if (f != POLY_FITS) return f;
  }
  return POLY_FITS;
}

poly_fit poly_mul(const ir_scalars *s, const poly *p, const poly *q, poly *out) {
  out->len = 0;
  for (uint32_t i = 0; i < p->len; i++) {
    for (uint32_t j = 0; j < q->len; j++) {
      poly_term t;
      poly_fit f = term_product(s, &p->terms[i], &q->terms[j], &t);
      if (f == POLY_FITS) f = poly_add_term(s, out, &t);
      if (f != POLY_FITS) return f;
    }
  }
  return POLY_FITS;
}

bool poly_divide_term(const ir_scalars *s, const poly_term *t, const poly_term *d,
                      poly_term *quotient) {
  if (d->coef < 1 || t->coef % d->coef != 0) return false;
  *quotient = (poly_term){.coef = t->coef / d->coef};
  uint32_t j = 0;
  for (uint32_t i = 0; i < t->degree; i++) {
    if (j < d->degree && ir_scalar_compare(s, t->atoms[i], d->atoms[j]) == 0) j++;
    else quotient->atoms[quotient->degree++] = t->atoms[i];
  }
  return j == d->degree;
}
