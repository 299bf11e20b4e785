/* Index arithmetic with bounds: divisions and remainders in a normal form.
 *
 * ir_scalar knows that symbols are >= 0; here index symbols are also below the size of their axis.
 * That decides what splits and merges make of indexes:
 *
 *   (o * f + i) / f  =>  o              0 <= i < f
 *   (o * f + i) % f  =>  i
 *   (g * a + r) / (g * d)  =>  a / d    0 <= r < g
 *   (g * a + r) % (g * m)  =>  g * (a % m) + r
 *   (x % (d * k)) / d  =>  (x / d) % k
 *   (x % (m * k)) % m  =>  x % m
 *
 * Every rule holds for all values, so equal results mean equal indexes. */
#include "shard/internal.h"

enum { MAX_TERMS = 32 };

typedef struct terms {
  ir_scalar data[MAX_TERMS];
  uint32_t len;
} terms;

static bool is_const(const shard_ctx *c, ir_scalar x, int64_t value) {
  int64_t v;
  return ir_scalar_is_const(&c->s, x, &v) && v == value;
}

static bool divides(shard_ctx *c, ir_scalar d, ir_scalar x) {
  return ir_scalar_divides(&c->s, d, x) == IR_TRUE;
}

/* ---- bounds ---- */

static bool greatest(shard_ctx *c, ir_scalar x, ir_scalar *result);

static bool at_least_zero(shard_ctx *c, ir_scalar x) {
  return ir_scalar_le(&c->s, ir_scalar_const(&c->s, 0), x) == IR_TRUE;
}

static ir_scalar one_less(shard_ctx *c, ir_scalar x) {
  return ir_scalar_sub(&c->s, x, ir_scalar_const(&c->s, 1));
}

/* Own symbols below SHARD_SLOTS are indexes; the others are extents, their own greatest value. */
static bool greatest_symbol(shard_ctx *c, ir_scalar x, int64_t symbol, ir_scalar *result) {
  if (symbol >= SHARD_SLOTS) {
    *result = x;
    return true;
  }
  ir_scalar bound = c->slots[symbol].bound;
  if (bound.id) *result = one_less(c, bound);
  return bound.id != 0;
}

static bool greatest_product(shard_ctx *c, const ir_scalar_node *n, ir_scalar *result) {
  int64_t factor;
  if (ir_scalar_is_const(&c->s, n->a, &factor) && factor < 0) { /* least is 0 */
    *result = ir_scalar_const(&c->s, 0);
    return at_least_zero(c, n->b);
  }
  ir_scalar a, b;
  if (!at_least_zero(c, n->a) || !at_least_zero(c, n->b)) return false;
  if (!greatest(c, n->a, &a) || !greatest(c, n->b, &b)) return false;
  *result = ir_scalar_mul(&c->s, a, b);
  return true;
}

/* x / ceildiv(n, f) < f for every x < n, and x / d < k for every x < d * k, which plain arithmetic on bounds does
 * not see. */
static bool greatest_quotient(shard_ctx *c, const ir_scalar_node *n, ir_scalar *result) {
  ir_scalar a;
  if (!greatest(c, n->a, &a)) return false;
  ir_scalar below = ir_scalar_add(&c->s, a, ir_scalar_const(&c->s, 1));
  const ir_scalar_node d = *ir_scalar_node_of(&c->s, n->b);
  bool part = d.kind == IR_SCALAR_CEILDIV && IR_SAME(d.a, below);
  if (part) *result = one_less(c, d.b);
  else if (divides(c, n->b, below)) *result = one_less(c, ir_scalar_floordiv(&c->s, below, n->b));
  else *result = ir_scalar_floordiv(&c->s, a, n->b);
  return true;
}

static bool greatest_of_two(shard_ctx *c, const ir_scalar_node *n, ir_scalar *result) {
  ir_scalar a, b;
  bool has_a = greatest(c, n->a, &a), has_b = greatest(c, n->b, &b);
  if (n->kind == IR_SCALAR_MIN && has_a != has_b) {
    *result = has_a ? a : b;
    return true;
  }
  if (!has_a || !has_b) return false;
  if (n->kind == IR_SCALAR_MIN) *result = ir_scalar_min(&c->s, a, b);
  else if (n->kind == IR_SCALAR_MAX) *result = ir_scalar_max(&c->s, a, b);
  else *result = ir_scalar_add(&c->s, a, b);
  return true;
}

/* Something large: extents are their own greatest value, of indexes nothing is said. */
static bool greatest_large(const shard_ctx *c, ir_scalar x, ir_scalar *result) {
  *result = x;
  return ir_scalar_of_extents(&c->s, x);
}

/* A value that x never exceeds. */
static bool greatest(shard_ctx *c, ir_scalar x, ir_scalar *result) {
  const ir_scalar_node n = *ir_scalar_node_of(&c->s, x);
  if (n.size > IR_SCALAR_LARGE) return greatest_large(c, x, result);
  switch (n.kind) {
  case IR_SCALAR_OVERFLOWED:
  case IR_SCALAR_LIST: return false;
  case IR_SCALAR_CHUNK:
    *result = ir_scalar_const(&c->s, ir_scalar_list_of(&c->s, n.b)->longest);
    return true;
  case IR_SCALAR_CHUNK_START:
    *result = ir_scalar_const(&c->s, ir_scalar_list_of(&c->s, n.b)->total);
    return true;
  case IR_SCALAR_CONST: *result = x; return true;
  case IR_SCALAR_SYMBOL: return greatest_symbol(c, x, n.value, result);
  case IR_SCALAR_MUL: return greatest_product(c, &n, result);
  case IR_SCALAR_FLOORDIV: return greatest_quotient(c, &n, result);
  case IR_SCALAR_MOD: *result = one_less(c, n.b); return true;
  case IR_SCALAR_ADD:
  case IR_SCALAR_MIN:
  case IR_SCALAR_MAX: return greatest_of_two(c, &n, result);
  case IR_SCALAR_CEILDIV: {
    ir_scalar a;
    if (!greatest(c, n.a, &a)) return false;
    *result = ir_scalar_ceildiv(&c->s, a, n.b);
    return true;
  }
  }
  return false;
}

/* 0 <= x < d, provably? */
static bool within(shard_ctx *c, ir_scalar x, ir_scalar d) {
  ir_scalar top;
  if (is_const(c, x, 0)) return true; /* divisors are at least 1 */
  return at_least_zero(c, x) && greatest(c, x, &top) && ir_scalar_lt(&c->s, top, d) == IR_TRUE;
}

/* ---- sums ---- */

static bool read_terms(const shard_ctx *c, ir_scalar x, terms *t) {
  t->len = 0;
  const ir_scalar_node *n = ir_scalar_node_of(&c->s, x);
  for (; n->kind == IR_SCALAR_ADD; n = ir_scalar_node_of(&c->s, x)) {
    if (t->len + 1 == MAX_TERMS) return false;
    t->data[t->len++] = n->b;
    x = n->a;
  }
  t->data[t->len++] = x;
  return true;
}

/* x = quotient * d + rest, with every term that d divides in the quotient. */
static bool take_out(shard_ctx *c, ir_scalar x, ir_scalar d, ir_scalar *quotient, ir_scalar *rest) {
  terms t;
  *quotient = *rest = ir_scalar_const(&c->s, 0);
  if (!read_terms(c, x, &t)) return false;
  for (uint32_t i = 0; i < t.len; i++) {
    bool whole = divides(c, d, t.data[i]);
    ir_scalar part = whole ? ir_scalar_floordiv(&c->s, t.data[i], d) : t.data[i];
    ir_scalar *sum = whole ? quotient : rest;
    *sum = ir_scalar_add(&c->s, *sum, part);
  }
  return true;
}

/* x = g * high + low with 0 <= low < g and g | d: high / (d / g) is x / d. */
typedef struct digits {
  ir_scalar g, high, low;
} digits;

static bool try_factor(shard_ctx *c, ir_scalar x, ir_scalar d, ir_scalar g, digits *result) {
  if (is_const(c, g, 1) || is_const(c, g, 0) || !divides(c, g, d)) return false;
  result->g = g;
  if (!take_out(c, x, g, &result->high, &result->low)) return false;
  return !is_const(c, result->high, 0) && within(c, result->low, g);
}

static bool factor_from_term(shard_ctx *c, ir_scalar x, ir_scalar d, ir_scalar term, digits *r) {
  int64_t coef = 1, whole;
  ir_scalar_node n = *ir_scalar_node_of(&c->s, term);
  if (n.kind == IR_SCALAR_MUL && ir_scalar_is_const(&c->s, n.a, &coef)) term = n.b;
  if (n.kind == IR_SCALAR_CONST) coef = n.value;
  if (ir_scalar_is_const(&c->s, d, &whole) && coef != 0) {
    return try_factor(c, x, d, ir_scalar_const(&c->s, ir_gcd(whole, coef)), r);
  }
  for (n = *ir_scalar_node_of(&c->s, term); n.kind == IR_SCALAR_MUL;
       n = *ir_scalar_node_of(&c->s, term)) {
    if (try_factor(c, x, d, n.b, r)) return true;
    term = n.a;
  }
  return try_factor(c, x, d, term, r);
}

static bool find_digits(shard_ctx *c, ir_scalar x, ir_scalar d, digits *r) {
  terms t;
  if (!read_terms(c, x, &t)) return false;
  for (uint32_t i = 0; i < t.len; i++) {
    if (factor_from_term(c, x, d, t.data[i], r)) return true;
  }
  return false;
}

static ir_scalar quotient_of(shard_ctx *c, ir_scalar x, ir_scalar d) {
  digits g;
  if (within(c, x, d)) return ir_scalar_const(&c->s, 0);
  if (find_digits(c, x, d, &g)) return shard_div(c, g.high, ir_scalar_floordiv(&c->s, d, g.g));
  const ir_scalar_node n = *ir_scalar_node_of(&c->s, x);
  if (n.kind == IR_SCALAR_FLOORDIV) {
    ir_scalar product = ir_scalar_mul(&c->s, n.b, d);
    if (!IR_SAME(product, d)) return shard_div(c, n.a, product);
  }
  if (n.kind == IR_SCALAR_MOD && divides(c, d, n.b)) {
    return shard_mod(c, shard_div(c, n.a, d), ir_scalar_floordiv(&c->s, n.b, d));
  }
  return ir_scalar_floordiv(&c->s, x, d);
}

ir_scalar shard_div(shard_ctx *c, ir_scalar x, ir_scalar d) {
  ir_scalar whole, rest;
  if (is_const(c, d, 1)) return x;
  if (!take_out(c, x, d, &whole, &rest)) return ir_scalar_floordiv(&c->s, x, d);
  return ir_scalar_add(&c->s, whole, quotient_of(c, rest, d));
}

ir_scalar shard_mod(shard_ctx *c, ir_scalar x, ir_scalar d) {
  ir_scalar whole, rest;
  digits g;
  if (is_const(c, d, 1)) return ir_scalar_const(&c->s, 0);
  if (!take_out(c, x, d, &whole, &rest)) return ir_scalar_mod(&c->s, x, d);
  if (within(c, rest, d)) return rest;
  if (find_digits(c, rest, d, &g)) {
    ir_scalar high = shard_mod(c, g.high, ir_scalar_floordiv(&c->s, d, g.g));
    return shard_join(c, high, g.low, g.g);
  }
  const ir_scalar_node n = *ir_scalar_node_of(&c->s, rest);
  if (n.kind == IR_SCALAR_MOD && divides(c, d, n.b)) return shard_mod(c, n.a, d);
  return ir_scalar_mod(&c->s, rest, d);
}

/* (x / size) * size + x % size is x; with (x / size) % k in front it is x % (size * k). */
ir_scalar shard_join(shard_ctx *c, ir_scalar outer, ir_scalar inner, ir_scalar size) {
  const ir_scalar_node i = *ir_scalar_node_of(&c->s, inner);
  if (i.kind == IR_SCALAR_MOD && IR_SAME(i.b, size)) {
    ir_scalar high = shard_div(c, i.a, size);
    const ir_scalar_node o = *ir_scalar_node_of(&c->s, outer);
    if (IR_SAME(high, outer)) return i.a;
    if (o.kind == IR_SCALAR_MOD && IR_SAME(o.a, high)) {
      return shard_mod(c, i.a, ir_scalar_mul(&c->s, size, o.b));
    }
  }
  return ir_scalar_add(&c->s, ir_scalar_mul(&c->s, outer, size), inner);
}
