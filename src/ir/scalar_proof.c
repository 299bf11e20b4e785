/* What holds for all values of the symbols. */
#include "ir/scalar_internal.h"
#include "ir/scalar_poly.h"

/* A number that the atom never exceeds: x mod c is at most c - 1. */
static bool greatest_of_atom(const ir_scalars *s, ir_scalar atom, int64_t *greatest) {
  const ir_scalar_node *n = ir_scalar_node_of(s, atom);
  int64_t divisor;
  bool chunk = n->kind == IR_SCALAR_CHUNK, start = n->kind == IR_SCALAR_CHUNK_START;
  if (chunk) *greatest = ir_scalar_list_of(s, n->b)->longest;
  if (start) *greatest = ir_scalar_list_of(s, n->b)->total;
  if (chunk || start) return true;
  if (n->kind != IR_SCALAR_MOD || !ir_scalar_is_const(s, n->b, &divisor)) return false;
  *greatest = divisor - 1;
  return true;
}

/* The least value of coef * (product of atoms), if it is bounded below. */
static bool least_of_term(ir_scalars *s, const poly_term *t, int64_t *least) {
  *least = t->degree == 0 ? t->coef : 0;
  for (uint32_t i = 0; i < t->degree; i++) {
    if (!ir_scalar_never_negative(s, t->atoms[i])) return false;
  }
  if (t->degree == 0 || t->coef >= 0) return true;
  int64_t greatest;
  return t->degree == 1 && greatest_of_atom(s, t->atoms[0], &greatest) &&
         !__builtin_mul_overflow(t->coef, greatest, least);
}

/* A lower bound of the term: c * d * ceildiv(x, d) >= c * x, and max(x, y) >= y. */
static bool term_below(ir_scalars *s, const poly_term *t, ir_scalar *below) {
  for (uint32_t i = 0; i < t->degree; i++) {
    if (!ir_scalar_never_negative(s, t->atoms[i])) return false;
  }
  for (uint32_t i = 0; i < t->degree && t->coef > 0; i++) {
    const ir_scalar_node n = *ir_scalar_node_of(s, t->atoms[i]);
    int64_t d = 1;
    bool divided = n.kind == IR_SCALAR_CEILDIV && ir_scalar_is_const(s, n.b, &d);
    if ((!divided && n.kind != IR_SCALAR_MAX) || t->coef % d) continue;
    *below = ir_scalar_mul(s, ir_scalar_const(s, t->coef / d), divided ? n.a : n.b);
    for (uint32_t j = 0; j < t->degree; j++) {
      if (j != i) *below = ir_scalar_mul(s, *below, t->atoms[j]);
    }
    return true;
  }
  return false;
}

/* Is x never negative even with a term replaced by its lower bound? Not tried for large scalars, where it
 * could take long. */
static bool proves_below(ir_scalars *s, ir_scalar x, const poly *p) {
  if (ir_scalar_node_of(s, x)->size > IR_SCALAR_SMALL) return false;
  for (uint32_t i = 0; i < p->len; i++) {
    ir_scalar below;
    if (!term_below(s, &p->terms[i], &below)) continue;
    ir_scalar less = ir_scalar_sub(s, poly_term_scalar(s, &p->terms[i]), below);
    below = ir_scalar_sub(s, x, less);
    return !ir_scalar_is_overflow(below) && ir_scalar_never_negative(s, below);
  }
  return false;
}

static bool proves_not_negative(ir_scalars *s, ir_scalar x) {
  const ir_scalar_node n = *ir_scalar_node_of(s, x);
  switch (n.kind) {
  case IR_SCALAR_OVERFLOWED: return false;
  case IR_SCALAR_CONST: return n.value >= 0;
  case IR_SCALAR_LIST: return false;
  case IR_SCALAR_SYMBOL: return true;
  case IR_SCALAR_MOD: return true;
  case IR_SCALAR_CHUNK:
  case IR_SCALAR_CHUNK_START: return true;
  case IR_SCALAR_FLOORDIV:
  case IR_SCALAR_CEILDIV: return ir_scalar_never_negative(s, n.a);
  case IR_SCALAR_MIN: return ir_scalar_never_negative(s, n.a) && ir_scalar_never_negative(s, n.b);
  case IR_SCALAR_MAX: return ir_scalar_never_negative(s, n.a) || ir_scalar_never_negative(s, n.b);
  case IR_SCALAR_ADD:
  case IR_SCALAR_MUL: break;
  }
  poly p;
  if (poly_of(s, x, &p) != POLY_FITS)
    return ir_scalar_never_negative(s, n.a) && ir_scalar_never_negative(s, n.b);
  int64_t sum = 0;
  for (uint32_t i = 0; i < p.len; i++) {
    int64_t least;
    const poly_term *t = &p.terms[i];
    bool is_self = p.len == 1 && t->degree == 1 && IR_SAME(t->atoms[0], x); /* an opaque product */
    if (is_self) return ir_scalar_never_negative(s, n.a) && ir_scalar_never_negative(s, n.b);
    if (!least_of_term(s, t, &least)) return proves_below(s, x, &p);
    if (__builtin_add_overflow(sum, least, &sum)) return false;
  }
  return sum >= 0 || proves_below(s, x, &p);
}

enum { SIGN_UNKNOWN, SIGN_NEVER_NEGATIVE, SIGN_ANY };

bool ir_scalar_never_negative(ir_scalars *s, ir_scalar x) {
  if (ir_scalar_node_of(s, x)->sign == SIGN_UNKNOWN) {
    bool never = proves_not_negative(s, x);
    s->nodes.data[x.id].sign = never ? SIGN_NEVER_NEGATIVE : SIGN_ANY;
  }
  return s->nodes.data[x.id].sign == SIGN_NEVER_NEGATIVE;
}

/* Are both operands of a maximum at most b? Not tried for large scalars. */
static bool both_below(ir_scalars *s, ir_scalar a, ir_scalar b) {
  const ir_scalar_node n = *ir_scalar_node_of(s, a);
  if (n.kind != IR_SCALAR_MAX || n.size > IR_SCALAR_SMALL) return false;
  return ir_scalar_le(s, n.a, b) == IR_TRUE && ir_scalar_le(s, n.b, b) == IR_TRUE;
}

ir_proof ir_scalar_le(ir_scalars *s, ir_scalar a, ir_scalar b) {
  if (ir_scalar_either_overflowed(a, b)) return IR_UNKNOWN;
  ir_scalar d = ir_scalar_sub(s, b, a);
  if (ir_scalar_is_overflow(d)) return IR_UNKNOWN;
  if (ir_scalar_never_negative(s, d) || both_below(s, a, b)) return IR_TRUE;
  ir_scalar less = ir_scalar_sub(s, ir_scalar_sub(s, a, b), ir_scalar_const(s, 1));
  return !ir_scalar_is_overflow(less) && ir_scalar_never_negative(s, less) ? IR_FALSE : IR_UNKNOWN;
}

ir_proof ir_scalar_lt(ir_scalars *s, ir_scalar a, ir_scalar b) {
  ir_proof reverse = ir_scalar_le(s, b, a);
  return reverse == IR_TRUE ? IR_FALSE : reverse == IR_FALSE ? IR_TRUE : IR_UNKNOWN;
}

ir_proof ir_scalar_eq(ir_scalars *s, ir_scalar a, ir_scalar b) {
  if (IR_SAME(a, b)) return ir_scalar_is_overflow(a) ? IR_UNKNOWN : IR_TRUE;
  bool apart = ir_scalar_lt(s, a, b) == IR_TRUE || ir_scalar_lt(s, b, a) == IR_TRUE;
  return apart ? IR_FALSE : IR_UNKNOWN;
}

ir_proof ir_scalar_divides(ir_scalars *s, ir_scalar b, ir_scalar a) {
  ir_scalar rest = ir_scalar_mod(s, a, b);
  int64_t value;
  if (ir_scalar_is_overflow(rest) || !ir_scalar_is_const(s, rest, &value)) return IR_UNKNOWN;
  return value == 0 ? IR_TRUE : IR_FALSE;
}
