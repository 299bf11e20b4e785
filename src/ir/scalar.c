#include <string.h>

#include "ir/scalar_internal.h"

/* ---- interning ---- */

typedef struct node_key {
  const ir_scalars *s;
  const ir_scalar_node *node;
} node_key;

static bool never_negative(ir_scalars *s, ir_scalar x);

static bool same_node(const void *context, uint32_t id) {
  const node_key *k = context;
  const ir_scalar_node *n = &k->s->nodes.data[id];
  return n->kind == k->node->kind && n->value == k->node->value && IR_SAME(n->a, k->node->a) &&
         IR_SAME(n->b, k->node->b);
}

static uint32_t size_with(uint32_t size, uint32_t more) {
  return size > UINT32_MAX - more ? UINT32_MAX : size + more;
}

/* What follows from the operands. */
static void measure(const ir_scalars *s, ir_scalar_node *n) {
  const ir_scalar operands[] = {n->a, n->b};
  n->size = 1;
  if (n->kind == IR_SCALAR_SYMBOL) n->kinds = (uint8_t)(1u << s->symbols.data[n->value].kind);
  for (uint32_t i = 0; i < 2; i++) {
    if (operands[i].id == 0) continue;
    const ir_scalar_node *o = &s->nodes.data[operands[i].id];
    n->size = size_with(n->size, o->size);
    n->kinds |= o->kinds;
    if (o->depth >= n->depth) n->depth = (uint16_t)(o->depth + 1);
  }
}

ir_scalar ir_scalar_intern(ir_scalars *s, ir_scalar_kind kind, int64_t value, ir_scalar a,
                           ir_scalar b) {
  ir_scalar_node node = {.kind = kind, .value = value, .a = a, .b = b};
  uint64_t hash =
      hash_mix(hash_mix((uint64_t)kind, (uint64_t)value), ((uint64_t)a.id << 32) | b.id);
  node_key key = {s, &node};
  uint32_t id = table_find(&s->index, hash, same_node, &key);
  if (id) return (ir_scalar){id};
  measure(s, &node);
  if (node.depth > IR_SCALAR_MAX_DEPTH) {
    s->too_deep = true;
    return IR_SCALAR_OVERFLOW;
  }
  id = s->nodes.len;
  vec_push(s->memory, &s->nodes, node);
  table_add(&s->index, hash, id);
  /* Asking for a sign asks for those below; known ones every few levels keep that shallow. */
  if (node.depth % 32 == 31) (void)never_negative(s, (ir_scalar){id});
  return (ir_scalar){id};
}

const char *ir_scalar_overflow_text(const ir_scalars *s) {
  _Static_assert(IR_SCALAR_MAX_DEPTH == 8192, "the text says so");
  return s->too_deep ? "nests more than 8192 operations" : "overflows 64 bits";
}

void ir_scalars_init(ir_scalars *s, arena *memory) {
  *s = (ir_scalars){.memory = memory};
  table_init(&s->index, memory);
  ir_scalar_node unused = {0};
  vec_push(memory, &s->nodes, unused);
  (void)ir_scalar_intern(s, IR_SCALAR_OVERFLOWED, 0, (ir_scalar){0}, (ir_scalar){0});
}

const ir_scalar_node *ir_scalar_node_of(const ir_scalars *s, ir_scalar x) {
  check(x.id != 0 && x.id < s->nodes.len);
  return &s->nodes.data[x.id];
}

ir_scalar ir_scalar_const(ir_scalars *s, int64_t value) {
  return ir_scalar_intern(s, IR_SCALAR_CONST, value, (ir_scalar){0}, (ir_scalar){0});
}

ir_scalar ir_scalar_symbol(ir_scalars *s, ir_symbol_data data) {
  int64_t index = s->symbols.len;
  vec_push(s->memory, &s->symbols, data);
  return ir_scalar_intern(s, IR_SCALAR_SYMBOL, index, (ir_scalar){0}, (ir_scalar){0});
}

bool ir_scalar_is_const(const ir_scalars *s, ir_scalar x, int64_t *value) {
  const ir_scalar_node *n = ir_scalar_node_of(s, x);
  if (n->kind != IR_SCALAR_CONST) return false;
  if (value) *value = n->value;
  return true;
}

/* Symbols by what they mean, then by declaration; devices by mesh and axis, as they are made when they are
 * first asked for. */
static int compare_symbols(const ir_scalars *s, int64_t a, int64_t b) {
  static const int orders[] = {
      [IR_SYMBOL_EXTENT] = 0, [IR_SYMBOL_STREAMS] = 1, [IR_SYMBOL_RANK] = 2, [IR_SYMBOL_INDEX] = 3};
  const ir_symbol_data *x = &s->symbols.data[a], *y = &s->symbols.data[b];
  if (x->kind != y->kind) return orders[x->kind] < orders[y->kind] ? -1 : 1;
  bool ranks = x->kind == IR_SYMBOL_RANK;
  if (ranks && x->tensor != y->tensor) return x->tensor < y->tensor ? -1 : 1;
  if (ranks && x->dim != y->dim) return x->dim < y->dim ? -1 : 1;
  return a < b ? -1 : 1;
}

static int compare_lists(const ir_scalars *s, ir_scalar a, ir_scalar b) {
  const ir_chunk_list *x = ir_scalar_list_of(s, a), *y = ir_scalar_list_of(s, b);
  for (uint32_t i = 0; i < x->len && i < y->len; i++) {
    if (x->lengths[i] != y->lengths[i]) return x->lengths[i] < y->lengths[i] ? -1 : 1;
  }
  return x->len < y->len ? -1 : 1;
}

/* Small ones first, then by depth and size: large ones that differ far below are told apart here. */
static int compare_sizes(const ir_scalar_node *x, const ir_scalar_node *y) {
  bool p = x->size > IR_SCALAR_SMALL, q = y->size > IR_SCALAR_SMALL;
  if (p != q) return q ? -1 : 1;
  if (!p || (x->depth == y->depth && x->size == y->size)) return 0;
  if (x->depth != y->depth) return x->depth < y->depth ? -1 : 1;
  return x->size < y->size ? -1 : 1;
}

/* A total order that depends on structure only, so that printed forms never depend on hashing. */
static int compare(const ir_scalars *s, ir_scalar a, ir_scalar b) {
  if (IR_SAME(a, b)) return 0;
  if (a.id == 0 || b.id == 0) return a.id == 0 ? -1 : 1;
  const ir_scalar_node *x = ir_scalar_node_of(s, a), *y = ir_scalar_node_of(s, b);
  if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
  int sizes = compare_sizes(x, y);
  if (sizes) return sizes;
  if (x->kind == IR_SCALAR_SYMBOL) return compare_symbols(s, x->value, y->value);
  if (x->kind == IR_SCALAR_LIST) return compare_lists(s, a, b);
  if (x->value != y->value) return x->value < y->value ? -1 : 1;
  int first = compare(s, x->a, y->a);
  return first ? first : compare(s, x->b, y->b);
}

/* ---- polynomials: the form in which sums and products are simplified ---- */

enum { MAX_TERMS = IR_SCALAR_MAX_TERMS, MAX_DEGREE = IR_SCALAR_MAX_DEGREE };

typedef struct term {
  int64_t coef;
  uint32_t degree;
  ir_scalar atoms[MAX_DEGREE]; /* sorted */
} term;

typedef struct poly {
  uint32_t len;
  term terms[MAX_TERMS];
} poly;

typedef enum fit { FITS, TOO_LARGE, OVERFLOWS } fit;

static int compare_atoms(const ir_scalars *s, const term *a, const term *b) {
  /* The constant term comes last. */
  if (a->degree == 0 || b->degree == 0) return (int)(a->degree == 0) - (int)(b->degree == 0);
  uint32_t n = a->degree < b->degree ? a->degree : b->degree;
  for (uint32_t i = 0; i < n; i++) {
    int c = compare(s, a->atoms[i], b->atoms[i]);
    if (c) return c;
  }
  return (int)(a->degree > b->degree) - (int)(a->degree < b->degree);
}

/* Adds a term in its sorted place; terms with the same atoms join, and vanish at 0. */
static fit add_term(const ir_scalars *s, poly *p, const term *t) {
  if (t->coef == 0) return FITS;
  uint32_t i = 0;
  int c = 1;
  while (i < p->len && (c = compare_atoms(s, &p->terms[i], t)) < 0) i++;
  if (i < p->len && c == 0) {
    int64_t sum;
    if (__builtin_add_overflow(p->terms[i].coef, t->coef, &sum)) return OVERFLOWS;
    p->terms[i].coef = sum;
    if (sum == 0) {
      memmove(&p->terms[i], &p->terms[i + 1], (p->len - i - 1) * sizeof(term));
      p->len--;
    }
    return FITS;
  }
  if (p->len == MAX_TERMS) return TOO_LARGE;
  memmove(&p->terms[i + 1], &p->terms[i], (p->len - i) * sizeof(term));
  p->terms[i] = *t;
  p->len++;
  return FITS;
}

static fit term_product(const ir_scalars *s, const term *a, const term *b, term *out) {
  if (a->degree + b->degree > MAX_DEGREE) return TOO_LARGE;
  if (__builtin_mul_overflow(a->coef, b->coef, &out->coef)) return OVERFLOWS;
  uint32_t i = 0, j = 0;
  out->degree = 0;
  while (i < a->degree || j < b->degree) {
    bool left = j == b->degree || (i < a->degree && compare(s, a->atoms[i], b->atoms[j]) <= 0);
    out->atoms[out->degree++] = left ? a->atoms[i++] : b->atoms[j++];
  }
  return FITS;
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
static fit to_term(const ir_scalars *s, ir_scalar x, term *t) {
  const ir_scalar_node *n = ir_scalar_node_of(s, x);
  *t = (term){.coef = 1};
  if (n->kind == IR_SCALAR_CONST) {
    t->coef = n->value;
    return FITS;
  }
  if (n->kind == IR_SCALAR_MUL && ir_scalar_is_const(s, n->a, &t->coef)) x = n->b;
  if (!is_product_of_atoms(s, x)) { /* too large to expand when it was built: opaque */
    t->atoms[t->degree++] = x;
    return FITS;
  }
  term one = {.coef = 1, .degree = 1};
  for (n = ir_scalar_node_of(s, x); n->kind == IR_SCALAR_MUL; n = ir_scalar_node_of(s, x)) {
    term before = *t;
    one.atoms[0] = n->b;
    fit f = term_product(s, &before, &one, t);
    if (f != FITS) return f;
    x = n->a;
  }
  term before = *t;
  one.atoms[0] = x;
  return term_product(s, &before, &one, t);
}

static fit to_poly(const ir_scalars *s, ir_scalar x, poly *p) {
  p->len = 0;
  term t;
  const ir_scalar_node *n = ir_scalar_node_of(s, x);
  for (; n->kind == IR_SCALAR_ADD; n = ir_scalar_node_of(s, x)) {
    bool kept = ir_scalar_node_of(s, n->b)->kind == IR_SCALAR_ADD; /* a sum that was too large */
    fit f = kept ? TOO_LARGE : to_term(s, n->b, &t);
    if (f == FITS) f = add_term(s, p, &t);
    if (f != FITS) return f;
    x = n->a;
  }
  fit f = to_term(s, x, &t);
  return f == FITS ? add_term(s, p, &t) : f;
}

static ir_scalar from_term(ir_scalars *s, const term *t) {
  if (t->degree == 0) return ir_scalar_const(s, t->coef);
  ir_scalar x = t->atoms[0];
  for (uint32_t i = 1; i < t->degree; i++)
    x = ir_scalar_intern(s, IR_SCALAR_MUL, 0, x, t->atoms[i]);
  if (t->coef == 1) return x;
  return ir_scalar_intern(s, IR_SCALAR_MUL, 0, ir_scalar_const(s, t->coef), x);
}

static ir_scalar from_poly(ir_scalars *s, const poly *p) {
  if (p->len == 0) return ir_scalar_const(s, 0);
  ir_scalar x = from_term(s, &p->terms[0]);
  for (uint32_t i = 1; i < p->len; i++) {
    x = ir_scalar_intern(s, IR_SCALAR_ADD, 0, x, from_term(s, &p->terms[i]));
  }
  return x;
}

/* ---- arithmetic ---- */

static bool either_overflowed(ir_scalar a, ir_scalar b) {
  return ir_scalar_is_overflow(a) || ir_scalar_is_overflow(b);
}

static bool both_const(const ir_scalars *s, ir_scalar a, ir_scalar b, int64_t *x, int64_t *y) {
  return ir_scalar_is_const(s, a, x) && ir_scalar_is_const(s, b, y);
}

/* An expression that is not simplified further; commutative ones get a fixed operand order. */
static ir_scalar opaque(ir_scalars *s, ir_scalar_kind kind, ir_scalar a, ir_scalar b) {
  bool commutes = kind == IR_SCALAR_ADD || kind == IR_SCALAR_MUL || kind == IR_SCALAR_MIN ||
                  kind == IR_SCALAR_MAX;
  if (commutes && compare(s, a, b) > 0) return ir_scalar_intern(s, kind, 0, b, a);
  return ir_scalar_intern(s, kind, 0, a, b);
}

static fit add_polys(const ir_scalars *s, poly *p, const poly *q) {
  for (uint32_t i = 0; i < q->len; i++) {
    fit f = add_term(s, p, &q->terms[i]);
    if (f != FITS) return f;
  }
  return FITS;
}

static fit mul_polys(const ir_scalars *s, const poly *p, const poly *q, poly *out) {
  out->len = 0;
  for (uint32_t i = 0; i < p->len; i++) {
    for (uint32_t j = 0; j < q->len; j++) {
      term t;
      fit f = term_product(s, &p->terms[i], &q->terms[j], &t);
      if (f == FITS) f = add_term(s, out, &t);
      if (f != FITS) return f;
    }
  }
  return FITS;
}

enum { MEMO = 512 };

/* The entry for such a question, whether it holds the answer or that to another one. */
static ir_scalar_made *memo_of(ir_scalars *s, ir_scalar_kind kind, ir_scalar a, ir_scalar b) {
  if (!s->memo) s->memo = ARENA_ARRAY(s->memory, MEMO, ir_scalar_made);
  return &s->memo[hash_mix((uint64_t)kind, ((uint64_t)a.id << 32) | b.id) % MEMO];
}

/* The answer to a question that was asked before, or what `make` says. Overflows are not kept: to find out
 * why tells the caller more. */
static ir_scalar remembered(ir_scalars *s, ir_scalar_kind kind, ir_scalar a, ir_scalar b,
                            ir_scalar make(ir_scalars *, ir_scalar, ir_scalar)) {
  const ir_scalar_made *m = memo_of(s, kind, a, b);
  if (m->kind == kind && IR_SAME(m->a, a) && IR_SAME(m->b, b)) return m->result;
  ir_scalar result = make(s, a, b);
  if (!ir_scalar_is_overflow(result))
    *memo_of(s, kind, a, b) = (ir_scalar_made){kind, a, b, result};
  return result;
}

static ir_scalar sum(ir_scalars *s, ir_scalar a, ir_scalar b) {
  poly p, q;
  fit f = to_poly(s, a, &p);
  if (f == FITS) f = to_poly(s, b, &q);
  if (f == FITS) f = add_polys(s, &p, &q);
  if (f == OVERFLOWS) return IR_SCALAR_OVERFLOW;
  return f == FITS ? from_poly(s, &p) : opaque(s, IR_SCALAR_ADD, a, b);
}

ir_scalar ir_scalar_add(ir_scalars *s, ir_scalar a, ir_scalar b) {
  int64_t x, y, z;
  if (either_overflowed(a, b)) return IR_SCALAR_OVERFLOW;
  if (both_const(s, a, b, &x, &y)) {
    return __builtin_add_overflow(x, y, &z) ? IR_SCALAR_OVERFLOW : ir_scalar_const(s, z);
  }
  return remembered(s, IR_SCALAR_ADD, a, b, sum);
}

static ir_scalar product(ir_scalars *s, ir_scalar a, ir_scalar b) {
  poly p, q, r;
  fit f = to_poly(s, a, &p);
  if (f == FITS) f = to_poly(s, b, &q);
  if (f == FITS) f = mul_polys(s, &p, &q, &r);
  if (f == OVERFLOWS) return IR_SCALAR_OVERFLOW;
  return f == FITS ? from_poly(s, &r) : opaque(s, IR_SCALAR_MUL, a, b);
}

ir_scalar ir_scalar_mul(ir_scalars *s, ir_scalar a, ir_scalar b) {
  int64_t x, y, z;
  if (either_overflowed(a, b)) return IR_SCALAR_OVERFLOW;
  if (both_const(s, a, b, &x, &y)) {
    return __builtin_mul_overflow(x, y, &z) ? IR_SCALAR_OVERFLOW : ir_scalar_const(s, z);
  }
  return remembered(s, IR_SCALAR_MUL, a, b, product);
}

ir_scalar ir_scalar_sub(ir_scalars *s, ir_scalar a, ir_scalar b) {
  return ir_scalar_add(s, a, ir_scalar_mul(s, b, ir_scalar_const(s, -1)));
}

/* t / d when that is exact for all values: the coefficient divides and d's atoms are among t's. */
static bool divide_term(const ir_scalars *s, const term *t, const term *d, term *quotient) {
  if (d->coef < 1 || t->coef % d->coef != 0) return false;
  *quotient = (term){.coef = t->coef / d->coef};
  uint32_t j = 0;
  for (uint32_t i = 0; i < t->degree; i++) {
    if (j < d->degree && compare(s, t->atoms[i], d->atoms[j]) == 0) j++;
    else quotient->atoms[quotient->degree++] = t->atoms[i];
  }
  return j == d->degree;
}

/* a = quotient * b + rest, with every term that b divides moved into the quotient. */
static bool divide(ir_scalars *s, ir_scalar a, ir_scalar b, ir_scalar *quotient, ir_scalar *rest) {
  poly p, d, q = {0}, r = {0};
  if (to_poly(s, a, &p) != FITS || to_poly(s, b, &d) != FITS || d.len != 1) return false;
  for (uint32_t i = 0; i < p.len; i++) {
    term t;
    bool exact = divide_term(s, &p.terms[i], &d.terms[0], &t);
    if (add_term(s, exact ? &q : &r, exact ? &t : &p.terms[i]) != FITS) return false;
  }
  *quotient = from_poly(s, &q);
  *rest = from_poly(s, &r);
  return true;
}

static bool is_zero(const ir_scalars *s, ir_scalar x) {
  int64_t v;
  return ir_scalar_is_const(s, x, &v) && v == 0;
}

static ir_scalar divided(ir_scalars *s, ir_scalar_kind kind, ir_scalar a, ir_scalar b) {
  int64_t x, y;
  if (both_const(s, a, b, &x, &y) && y >= 1) {
    if (kind == IR_SCALAR_FLOORDIV) return ir_scalar_const(s, ir_floor_of(x, y));
    int64_t low = ir_floor_of(x, y);
    return ir_scalar_const(s, x % y == 0 ? low : low + 1);
  }
  const ir_scalar_node *n = ir_scalar_node_of(s, a);
  if (n->kind == kind) { /* (x / c) / d == x / (c * d), for both roundings */
    return divided(s, kind, n->a, ir_scalar_mul(s, n->b, b));
  }
  return ir_scalar_intern(s, kind, 0, a, b);
}

static ir_scalar divide_rounding(ir_scalars *s, ir_scalar_kind kind, ir_scalar a, ir_scalar b) {
  ir_scalar q, r;
  if (!divide(s, a, b, &q, &r)) return divided(s, kind, a, b);
  if (is_zero(s, r)) return q;
  return ir_scalar_add(s, q, divided(s, kind, r, b));
}

static ir_scalar rounded_down(ir_scalars *s, ir_scalar a, ir_scalar b) {
  return divide_rounding(s, IR_SCALAR_FLOORDIV, a, b);
}

static ir_scalar rounded_up(ir_scalars *s, ir_scalar a, ir_scalar b) {
  return divide_rounding(s, IR_SCALAR_CEILDIV, a, b);
}

ir_scalar ir_scalar_floordiv(ir_scalars *s, ir_scalar a, ir_scalar b) {
  if (either_overflowed(a, b)) return IR_SCALAR_OVERFLOW;
  if (IR_SAME(a, b)) return ir_scalar_const(s, 1);
  return remembered(s, IR_SCALAR_FLOORDIV, a, b, rounded_down);
}

ir_scalar ir_scalar_ceildiv(ir_scalars *s, ir_scalar a, ir_scalar b) {
  if (either_overflowed(a, b)) return IR_SCALAR_OVERFLOW;
  if (IR_SAME(a, b)) return ir_scalar_const(s, 1);
  return remembered(s, IR_SCALAR_CEILDIV, a, b, rounded_up);
}

static ir_scalar remainder_of(ir_scalars *s, ir_scalar a, ir_scalar b) {
  ir_scalar q, r = a;
  if (divide(s, a, b, &q, &r) && is_zero(s, r)) return r;
  int64_t x, y;
  if (both_const(s, r, b, &x, &y) && y >= 1) return ir_scalar_const(s, x - y * ir_floor_of(x, y));
  bool small =
      ir_scalar_le(s, ir_scalar_const(s, 0), r) == IR_TRUE && ir_scalar_lt(s, r, b) == IR_TRUE;
  return small ? r : ir_scalar_intern(s, IR_SCALAR_MOD, 0, r, b);
}

ir_scalar ir_scalar_mod(ir_scalars *s, ir_scalar a, ir_scalar b) {
  if (either_overflowed(a, b)) return IR_SCALAR_OVERFLOW;
  if (IR_SAME(a, b)) return ir_scalar_const(s, 0);
  return remembered(s, IR_SCALAR_MOD, a, b, remainder_of);
}

/* Is x `rest + c`, with a constant c that is not 0? */
static bool split_const(ir_scalars *s, ir_scalar x, ir_scalar *rest, ir_scalar *c) {
  const ir_scalar_node n = *ir_scalar_node_of(s, x);
  if (n.kind != IR_SCALAR_ADD || !ir_scalar_is_const(s, n.b, NULL)) return false;
  *rest = n.a;
  *c = n.b;
  return true;
}

/* The least or greatest of a constant and of such a one of a constant:
 *   max(c, max(d, x) + e)  =>  max(max(c, d + e), x + e)
 * where that is one constant; so repeated clamping does not nest. */
static bool clamp_again(ir_scalars *s, ir_scalar_kind kind, ir_scalar c, ir_scalar x,
                        ir_scalar *result) {
  ir_scalar inner = x, shift = ir_scalar_const(s, 0);
  (void)split_const(s, x, &inner, &shift);
  const ir_scalar_node n = *ir_scalar_node_of(s, inner);
  if (n.kind != kind || !ir_scalar_is_const(s, c, NULL) || !ir_scalar_is_const(s, n.a, NULL))
    return false;
  ir_scalar bound = ir_scalar_of_kind(s, kind, c, ir_scalar_add(s, n.a, shift));
  *result = ir_scalar_of_kind(s, kind, bound, ir_scalar_add(s, n.b, shift));
  return true;
}

static ir_scalar choose(ir_scalars *s, ir_scalar_kind kind, ir_scalar a, ir_scalar b) {
  ir_scalar result;
  if (clamp_again(s, kind, a, b, &result) || clamp_again(s, kind, b, a, &result)) return result;
  return opaque(s, kind, a, b);
}

ir_scalar ir_scalar_min(ir_scalars *s, ir_scalar a, ir_scalar b) {
  if (either_overflowed(a, b)) return IR_SCALAR_OVERFLOW;
  if (ir_scalar_le(s, a, b) == IR_TRUE) return a;
  if (ir_scalar_le(s, b, a) == IR_TRUE) return b;
  return choose(s, IR_SCALAR_MIN, a, b);
}

ir_scalar ir_scalar_max(ir_scalars *s, ir_scalar a, ir_scalar b) {
  if (either_overflowed(a, b)) return IR_SCALAR_OVERFLOW;
  if (ir_scalar_le(s, a, b) == IR_TRUE) return b;
  if (ir_scalar_le(s, b, a) == IR_TRUE) return a;
  return choose(s, IR_SCALAR_MAX, a, b);
}

/* ---- proofs ---- */

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
static bool least_of_term(ir_scalars *s, const term *t, int64_t *least) {
  *least = t->degree == 0 ? t->coef : 0;
  for (uint32_t i = 0; i < t->degree; i++) {
    if (!never_negative(s, t->atoms[i])) return false;
  }
  if (t->degree == 0 || t->coef >= 0) return true;
  int64_t greatest;
  return t->degree == 1 && greatest_of_atom(s, t->atoms[0], &greatest) &&
         !__builtin_mul_overflow(t->coef, greatest, least);
}

/* What a term is never less than: c * d * ceildiv(x, d) >= c * x, and max(x, y) >= y. */
static bool term_below(ir_scalars *s, const term *t, ir_scalar *below) {
  for (uint32_t i = 0; i < t->degree; i++) {
    if (!never_negative(s, t->atoms[i])) return false;
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

/* Is what x is never less than never negative? Not asked of what is large, where it could go on for long. */
static bool proves_below(ir_scalars *s, ir_scalar x, const poly *p) {
  if (ir_scalar_node_of(s, x)->size > IR_SCALAR_SMALL) return false;
  for (uint32_t i = 0; i < p->len; i++) {
    ir_scalar below;
    if (!term_below(s, &p->terms[i], &below)) continue;
    ir_scalar less = ir_scalar_sub(s, from_term(s, &p->terms[i]), below);
    below = ir_scalar_sub(s, x, less);
    return !ir_scalar_is_overflow(below) && never_negative(s, below);
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
  case IR_SCALAR_CEILDIV: return never_negative(s, n.a);
  case IR_SCALAR_MIN: return never_negative(s, n.a) && never_negative(s, n.b);
  case IR_SCALAR_MAX: return never_negative(s, n.a) || never_negative(s, n.b);
  case IR_SCALAR_ADD:
  case IR_SCALAR_MUL: break;
  }
  poly p;
  if (to_poly(s, x, &p) != FITS) return never_negative(s, n.a) && never_negative(s, n.b);
  int64_t sum = 0;
  for (uint32_t i = 0; i < p.len; i++) {
    int64_t least;
    const term *t = &p.terms[i];
    bool is_self = p.len == 1 && t->degree == 1 && IR_SAME(t->atoms[0], x); /* an opaque product */
    if (is_self) return never_negative(s, n.a) && never_negative(s, n.b);
    if (!least_of_term(s, t, &least)) return proves_below(s, x, &p);
    if (__builtin_add_overflow(sum, least, &sum)) return false;
  }
  return sum >= 0 || proves_below(s, x, &p);
}

enum { SIGN_UNKNOWN, SIGN_NEVER_NEGATIVE, SIGN_ANY };

static bool never_negative(ir_scalars *s, ir_scalar x) {
  if (ir_scalar_node_of(s, x)->sign == SIGN_UNKNOWN) {
    bool never = proves_not_negative(s, x);
    s->nodes.data[x.id].sign = never ? SIGN_NEVER_NEGATIVE : SIGN_ANY;
  }
  return s->nodes.data[x.id].sign == SIGN_NEVER_NEGATIVE;
}

ir_proof ir_scalar_le(ir_scalars *s, ir_scalar a, ir_scalar b) {
  if (either_overflowed(a, b)) return IR_UNKNOWN;
  ir_scalar d = ir_scalar_sub(s, b, a);
  if (ir_scalar_is_overflow(d)) return IR_UNKNOWN;
  if (never_negative(s, d)) return IR_TRUE;
  ir_scalar less = ir_scalar_sub(s, ir_scalar_sub(s, a, b), ir_scalar_const(s, 1));
  return !ir_scalar_is_overflow(less) && never_negative(s, less) ? IR_FALSE : IR_UNKNOWN;
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

int64_t ir_gcd(int64_t a, int64_t b) {
  while (b) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a < 0 ? -a : a;
}
