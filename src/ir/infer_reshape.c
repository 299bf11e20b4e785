/* reshape: finds which axes of the operand become which axes of the result.
 *
 * The two shapes are cut from the left into the smallest groups of equal product; within a group the
 * operand's axes are merged and split again:
 *
 *     [a, b, 4] -> [a * b, 2, 2]      groups  a, b | 4   and   a*b | 2, 2
 *                                     merge(a, b)        split(4, 2)
 *
 * A shape that divides an extent takes it for a multiple, which is required then:
 *
 *     [b, e] -> [b, 8, e / 8]         groups  b | e   and   b | 8, e / 8      if 8 divides e
 *
 * What cannot be proven equal ends up in one last group; the products then must be equal when the
 * extents are bound. */
#include "ir/infer_internal.h"

typedef struct sizes {
  ir_scalar data[IR_MAX_RANK];
  uint32_t len;
} sizes;

/* An extent that the shape assumes to be a multiple of `by`. */
typedef struct multiple {
  uint32_t symbol; /* of the extent */
  ir_scalar extent, by, value;
} multiple;

static ir_scalar product(infer *c, const ir_scalar *x, uint32_t n) {
  ir_scalar p = ir_scalar_const(infer_scalars(c), 1);
  for (uint32_t i = 0; i < n; i++) p = ir_scalar_mul(infer_scalars(c), p, x[i]);
  return p;
}

/* Replaces the one -1 by what is left over. */
static bool fill_in(infer *c, sizes *out, ir_scalar total) {
  int64_t value;
  uint32_t unknown = IR_MAX_RANK;
  for (uint32_t i = 0; i < out->len; i++) {
    if (ir_scalar_is_overflow(out->data[i]))
      return infer_error(c, "an extent %s", ir_scalar_overflow_text(infer_scalars(c)));
    if (!ir_scalar_is_const(infer_scalars(c), out->data[i], &value) || value >= 0) continue;
    if (value != -1) return infer_error(c, "an extent cannot be %lld", (long long)value);
    if (unknown != IR_MAX_RANK) return infer_error(c, "only one extent can be -1");
    unknown = i;
  }
  if (unknown == IR_MAX_RANK) return true;
  out->data[unknown] = ir_scalar_const(infer_scalars(c), 1);
  ir_scalar rest = product(c, out->data, out->len);
  if (ir_scalar_is_const(infer_scalars(c), rest, &value) && value == 0) {
    return infer_error(c, "-1 is undetermined beside an extent of 0");
  }
  ir_proof divides = ir_scalar_divides(infer_scalars(c), rest, total);
  if (divides == IR_FALSE) {
    return infer_error(c, "%s elements cannot be divided into groups of %s",
                       ir_scalar_text(c->f, total), ir_scalar_text(c->f, rest));
  }
  if (divides == IR_UNKNOWN) {
    ir_require(c->f, IR_REQUIRE_DIVIDES, rest, total, "the extent -1 of reshape", c->op->at);
  }
  out->data[unknown] = ir_scalar_floordiv(infer_scalars(c), total, rest);
  return true;
}

/* ---- multiples ---- */

static ir_scalar put_in(const void *context, uint32_t symbol) {
  const multiple *m = context;
  return m->value.id && symbol == m->symbol ? m->value : (ir_scalar){0};
}

static ir_scalar under(infer *c, const multiple *m, ir_scalar x) {
  return ir_scalar_substitute(infer_scalars(c), ir_func_resolve(c->f, x), put_in, m);
}

static bool are_equal(infer *c, const multiple *m, ir_scalar x, ir_scalar y) {
  if (ir_scalar_is_overflow(x)) return false;
  if (ir_func_equal(c->f, x, y) == IR_TRUE) return true;
  return m->value.id && ir_scalar_eq(infer_scalars(c), under(c, m, x), under(c, m, y)) == IR_TRUE;
}

/* Is there an e / d in x with which the two counts are equal if d divides e? */
static bool find_multiple(infer *c, ir_scalar x, ir_scalar total, ir_scalar other, multiple *m) {
  ir_scalars *s = infer_scalars(c);
  const ir_scalar_node n = *ir_scalar_node_of(s, x);
  const ir_scalar_node e = n.a.id ? *ir_scalar_node_of(s, n.a) : (ir_scalar_node){0};
  bool divides = n.kind == IR_SCALAR_FLOORDIV && e.kind == IR_SCALAR_SYMBOL &&
                 !ir_scalar_mentions(s, n.b, (uint32_t)e.value);
  if (divides) {
    ir_scalar times = ir_scalar_symbol(s, (ir_symbol_data){.kind = IR_SYMBOL_EXTENT});
    *m = (multiple){(uint32_t)e.value, n.a, n.b, ir_scalar_mul(s, n.b, times)};
    if (are_equal(c, m, total, other)) return true;
    *m = (multiple){0};
  }
  return (n.a.id && find_multiple(c, n.a, total, other, m)) ||
         (n.b.id && find_multiple(c, n.b, total, other, m));
}

/* Returns true if the counts are equal under a new constraint. */
static bool require_multiple(infer *c, ir_scalar from, ir_scalar to, multiple *m) {
  if (ir_func_equal(c->f, from, to) != IR_UNKNOWN) return false;
  if (!find_multiple(c, ir_func_resolve(c->f, to), from, to, m)) return false;
  ir_require(c->f, IR_REQUIRE_DIVIDES, m->by, m->extent, "an extent that reshape divides",
             c->op->at);
  return true;
}

/* ---- groups ---- */

/* A group: p axes of the operand become q axes of the result. */
typedef struct group {
  uint32_t p, q;
} group;

static bool equal_products(infer *c, const multiple *m, const ir_scalar *a, uint32_t p,
                           const ir_scalar *b, uint32_t q) {
  return are_equal(c, m, product(c, a, p), product(c, b, q));
}

/* The smallest leading group, single axes first. An axis of size 1 may be alone: (1, 0), (0, 1). */
static group next_group(infer *c, const multiple *known, const ir_scalar *a, uint32_t n,
                        const ir_scalar *b, uint32_t m) {
  if (n && m && equal_products(c, known, a, 1, b, 1)) return (group){1, 1};
  for (uint32_t total = 1; total <= n + m; total++) {
    for (uint32_t p = total > m ? total - m : 0; p <= n && p <= total; p++) {
      if (equal_products(c, known, a, p, b, total - p)) return (group){p, total - p};
    }
  }
  return (group){n, m};
}

static ir_axis merge(infer *c, ir_axis outer, ir_axis inner) {
  ir_scalar n = ir_scalar_mul(infer_scalars(c), infer_size(c, outer), infer_size(c, inner));
  ir_axis to = ir_axis_new(c->f, IR_AXIS_ITERATION, n);
  ir_transform_data t = {.kind = IR_MERGE, .in = {outer, inner}, .out = {to}};
  (void)ir_transform_new(c->f, &t);
  return to;
}

static ir_axis split(infer *c, ir_axis from, ir_scalar outer_size, ir_scalar inner_size,
                     ir_axis *inner) {
  ir_axis outer = infer_new_dim(c, outer_size);
  *inner = infer_new_dim(c, inner_size);
  ir_transform_data t = {.kind = IR_SPLIT, .in = {from}, .out = {outer, *inner}};
  t.factor = inner_size;
  (void)ir_transform_new(c->f, &t);
  return outer;
}

static void apply_group(infer *c, const multiple *known, group g, const ir_axis *in,
                        const ir_scalar *a, const ir_scalar *b, dims *out) {
  /* Axes of size 1 come and go. Leftover sizes that are not proven equal have no common history: in an
   * empty tensor they need not even agree, 0 x 3 and 0 x 5 both have no elements. */
  if (g.p == 0 || g.q == 0 || !equal_products(c, known, a, g.p, b, g.q)) {
    for (uint32_t j = 0; j < g.q; j++) out->data[out->len++] = infer_new_dim(c, b[j]);
    return;
  }
  ir_axis x = in[0];
  for (uint32_t i = 1; i < g.p; i++) x = merge(c, x, in[i]);
  for (uint32_t j = g.q - 1; j > 0; j--) {
    x = split(c, x, product(c, b, j), b[j], &out->data[out->len + j]);
  }
  out->data[out->len] = x;
  out->len += g.q;
}

bool infer_reshape(infer *c) {
  dims in = infer_dims(c, 0), root = {.len = in.len}, out = {.len = 0};
  const ir_attr *shape = ir_op_attr(c->op, "shape");
  if (shape->len > IR_MAX_RANK) return infer_error(c, "the result would have too many axes");
  sizes a = {.len = in.len}, b = {.len = shape->len};
  for (uint32_t i = 0; i < a.len; i++) {
    root.data[i] = infer_copy_dim(c, in.data[i]);
    a.data[i] = infer_size(c, in.data[i]);
  }
  for (uint32_t i = 0; i < b.len; i++) b.data[i] = shape->scalars[i];
  ir_scalar total = product(c, a.data, a.len);
  if (!fill_in(c, &b, total)) return false;
  ir_scalar made = product(c, b.data, b.len);
  multiple known = {0};
  if (!require_multiple(c, total, made, &known) &&
      !infer_same_size(c, total, made, "element counts"))
    return false;
  for (uint32_t i = 0, j = 0; i < a.len || j < b.len;) {
    group g = next_group(c, &known, a.data + i, a.len - i, b.data + j, b.len - j);
    apply_group(c, &known, g, root.data + i, a.data + i, b.data + j, &out);
    i += g.p;
    j += g.q;
  }
  return infer_done(c, ir_tensor_at(c->f, c->op->operands[0])->dtype, &root, &out);
}
