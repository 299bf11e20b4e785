#include <string.h>

#include "ir/scalar_internal.h"
#include "ir/scalar_poly.h"

/* ---- interning ---- */

typedef struct node_key {
  const ir_scalars *s;
  const ir_scalar_node *node;
} node_key;

static bool same_node(const void *context, uint32_t id) {
  const node_key *k = context;
  const ir_scalar_node *n = &k->s->nodes.data[id];
  return n->kind == k->node->kind && n->value == k->node->value && IR_SAME(n->a, k->node->a) &&
         IR_SAME(n->b, k->node->b);
}

static uint32_t size_with(uint32_t size, uint32_t more) {
  return size > UINT32_MAX - more ? UINT32_MAX : size + more;
}

/* Fills in what follows from the operands. */
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
  /* Finding a sign recurses into operands. Finding it at every 32nd level bounds the recursion. */
  if (node.depth % 32 == 31) (void)ir_scalar_never_negative(s, (ir_scalar){id});
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

/* Symbols are ordered by kind, then by declaration; coordinates by mesh and axis, since they are declared
 * when they are first asked for. */
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

/* Small scalars first, then by depth and size, so that large ones that differ far below are told apart here. */
static int compare_sizes(const ir_scalar_node *x, const ir_scalar_node *y) {
  bool p = x->size > IR_SCALAR_SMALL, q = y->size > IR_SCALAR_SMALL;
  if (p != q) return q ? -1 : 1;
  if (!p || (x->depth == y->depth && x->size == y->size)) return 0;
  if (x->depth != y->depth) return x->depth < y->depth ? -1 : 1;
  return x->size < y->size ? -1 : 1;
}

int ir_scalar_compare(const ir_scalars *s, ir_scalar a, ir_scalar b) {
  if (IR_SAME(a, b)) return 0;
  if (a.id == 0 || b.id == 0) return a.id == 0 ? -1 : 1;
  const ir_scalar_node *x = ir_scalar_node_of(s, a), *y = ir_scalar_node_of(s, b);
  if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
  int sizes = compare_sizes(x, y);
  if (sizes) return sizes;
  if (x->kind == IR_SCALAR_SYMBOL) return compare_symbols(s, x->value, y->value);
  if (x->kind == IR_SCALAR_LIST) return compare_lists(s, a, b);
  if (x->value != y->value) return x->value < y->value ? -1 : 1;
  int first = ir_scalar_compare(s, x->a, y->a);
  return first ? first : ir_scalar_compare(s, x->b, y->b);
}

/* ---- arithmetic ---- */

static bool both_const(const ir_scalars *s, ir_scalar a, ir_scalar b, int64_t *x, int64_t *y) {
  return ir_scalar_is_const(s, a, x) && ir_scalar_is_const(s, b, y);
}

/* An expression that is not simplified further; commutative ones get a fixed operand order. */
static ir_scalar opaque(ir_scalars *s, ir_scalar_kind kind, ir_scalar a, ir_scalar b) {
  bool commutes = kind == IR_SCALAR_ADD || kind == IR_SCALAR_MUL || kind == IR_SCALAR_MIN ||
                  kind == IR_SCALAR_MAX;
  if (commutes && ir_scalar_compare(s, a, b) > 0) return ir_scalar_intern(s, kind, 0, b, a);
  return ir_scalar_intern(s, kind, 0, a, b);
}

enum { MEMO = 512 };

/* The memo's entry for this question. It may hold the answer to another one. */
static ir_scalar_made *memo_of(ir_scalars *s, ir_scalar_kind kind, ir_scalar a, ir_scalar b) {
  if (!s->memo) s->memo = ARENA_ARRAY(s->memory, MEMO, ir_scalar_made);
  return &s->memo[hash_mix((uint64_t)kind, ((uint64_t)a.id << 32) | b.id) % MEMO];
}

/* The result from the memo, or what `make` gives. Overflows are not kept: making them again finds out why
 * they overflow. */
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
  poly_fit f = poly_of(s, a, &p);
  if (f == POLY_FITS) f = poly_of(s, b, &q);
  if (f == POLY_FITS) f = poly_add(s, &p, &q);
  if (f == POLY_OVERFLOWS) return IR_SCALAR_OVERFLOW;
  return f == POLY_FITS ? poly_scalar(s, &p) : opaque(s, IR_SCALAR_ADD, a, b);
}

ir_scalar ir_scalar_add(ir_scalars *s, ir_scalar a, ir_scalar b) {
  int64_t x, y, z;
  if (ir_scalar_either_overflowed(a, b)) return IR_SCALAR_OVERFLOW;
  if (both_const(s, a, b, &x, &y)) {
    return __builtin_add_overflow(x, y, &z) ? IR_SCALAR_OVERFLOW : ir_scalar_const(s, z);
  }
  return remembered(s, IR_SCALAR_ADD, a, b, sum);
}

static ir_scalar product(ir_scalars *s, ir_scalar a, ir_scalar b) {
  poly p, q, r;
  poly_fit f = poly_of(s, a, &p);
  if (f == POLY_FITS) f = poly_of(s, b, &q);
  if (f == POLY_FITS) f = poly_mul(s, &p, &q, &r);
  if (f == POLY_OVERFLOWS) return IR_SCALAR_OVERFLOW;
  return f == POLY_FITS ? poly_scalar(s, &r) : opaque(s, IR_SCALAR_MUL, a, b);
}

ir_scalar ir_scalar_mul(ir_scalars *s, ir_scalar a, ir_scalar b) {
  int64_t x, y, z;
  if (ir_scalar_either_overflowed(a, b)) return IR_SCALAR_OVERFLOW;
  if (both_const(s, a, b, &x, &y)) {
    return __builtin_mul_overflow(x, y, &z) ? IR_SCALAR_OVERFLOW : ir_scalar_const(s, z);
  }
  return remembered(s, IR_SCALAR_MUL, a, b, product);
}

ir_scalar ir_scalar_sub(ir_scalars *s, ir_scalar a, ir_scalar b) {
  return ir_scalar_add(s, a, ir_scalar_mul(s, b, ir_scalar_const(s, -1)));
}

/* a = quotient * b + rest, with every term that b divides moved into the quotient. */
static bool divide(ir_scalars *s, ir_scalar a, ir_scalar b, ir_scalar *quotient, ir_scalar *rest) {
  poly p, d, q = {0}, r = {0};
  if (poly_of(s, a, &p) != POLY_FITS || poly_of(s, b, &d) != POLY_FITS || d.len != 1) return false;
  for (uint32_t i = 0; i < p.len; i++) {
    poly_term t;
    bool exact = poly_divide_term(s, &p.terms[i], &d.terms[0], &t);
    if (poly_add_term(s, exact ? &q : &r, exact ? &t : &p.terms[i]) != POLY_FITS) return false;
  }
  *quotient = poly_scalar(s, &q);
  *rest = poly_scalar(s, &r);
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
  if (ir_scalar_either_overflowed(a, b)) return IR_SCALAR_OVERFLOW;
  if (IR_SAME(a, b)) return ir_scalar_const(s, 1);
  return remembered(s, IR_SCALAR_FLOORDIV, a, b, rounded_down);
}

ir_scalar ir_scalar_ceildiv(ir_scalars *s, ir_scalar a, ir_scalar b) {
  if (ir_scalar_either_overflowed(a, b)) return IR_SCALAR_OVERFLOW;
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
  if (ir_scalar_either_overflowed(a, b)) return IR_SCALAR_OVERFLOW;
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

/* The minimum or maximum of a constant and an expression that is such a minimum or maximum itself:
 *   max(c, max(d, x) + e)  =>  max(max(c, d + e), x + e)
 * where max(c, d + e) is one constant; so repeated clamping does not nest. */
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
  if (ir_scalar_either_overflowed(a, b)) return IR_SCALAR_OVERFLOW;
  if (ir_scalar_le(s, a, b) == IR_TRUE) return a;
  if (ir_scalar_le(s, b, a) == IR_TRUE) return b;
  return choose(s, IR_SCALAR_MIN, a, b);
}

ir_scalar ir_scalar_max(ir_scalars *s, ir_scalar a, ir_scalar b) {
  if (ir_scalar_either_overflowed(a, b)) return IR_SCALAR_OVERFLOW;
  if (ir_scalar_le(s, a, b) == IR_TRUE) return b;
  if (ir_scalar_le(s, b, a) == IR_TRUE) return a;
  return choose(s, IR_SCALAR_MAX, a, b);
}

int64_t ir_gcd(int64_t a, int64_t b) {
  while (b) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a < 0 ? -a : a;
}
