/* Scalars made of others: with other operands, with other symbols. */
#include "ir/scalar.h"

ir_scalar ir_scalar_of_kind(ir_scalars *s, ir_scalar_kind kind, ir_scalar a, ir_scalar b) {
  switch (kind) {
  case IR_SCALAR_ADD: return ir_scalar_add(s, a, b);
  case IR_SCALAR_MUL: return ir_scalar_mul(s, a, b);
  case IR_SCALAR_FLOORDIV: return ir_scalar_floordiv(s, a, b);
  case IR_SCALAR_CEILDIV: return ir_scalar_ceildiv(s, a, b);
  case IR_SCALAR_MOD: return ir_scalar_mod(s, a, b);
  case IR_SCALAR_MIN: return ir_scalar_min(s, a, b);
  case IR_SCALAR_MAX: return ir_scalar_max(s, a, b);
  case IR_SCALAR_CHUNK: return ir_scalar_chunk(s, a, b);
  case IR_SCALAR_CHUNK_START: return ir_scalar_chunk_start(s, a, b);
  case IR_SCALAR_OVERFLOWED:
  case IR_SCALAR_CONST:
  case IR_SCALAR_SYMBOL:
  case IR_SCALAR_LIST: break;
  }
  impossible("a leaf has no operands");
}

ir_scalar ir_scalar_with(ir_scalars *s, ir_scalar x, ir_scalar a, ir_scalar b) {
  const ir_scalar_node *n = ir_scalar_node_of(s, x);
  return IR_SAME(a, n->a) && IR_SAME(b, n->b) ? x : ir_scalar_of_kind(s, n->kind, a, b);
}

static ir_scalar replaced(ir_scalar x, const ir_scalar_node *n, ir_substitution with,
                          const void *context) {
  ir_scalar other = n->kind == IR_SCALAR_SYMBOL ? with(context, (uint32_t)n->value) : x;
  return other.id ? other : x;
}

static ir_scalar substitute_small(ir_scalars *s, ir_scalar x, ir_substitution with,
                                  const void *context) {
  const ir_scalar_node n = *ir_scalar_node_of(s, x);
  if (n.a.id == 0) return replaced(x, &n, with, context);
  ir_scalar a = substitute_small(s, n.a, with, context);
  return ir_scalar_with(s, x, a, substitute_small(s, n.b, with, context));
}

/* Operands have smaller ids than the nodes that use them. Nodes that do not occur in x are left out. */
static ir_scalar substitute_large(ir_scalars *s, ir_scalar x, ir_substitution with,
                                  const void *context) {
  s->made.len = 0;
  for (uint32_t id = 0; id <= x.id; id++) vec_push(s->memory, &s->made, (ir_scalar){0});
  s->made.data[x.id] = x;
  for (uint32_t id = x.id; id > 0; id--) {
    const ir_scalar_node *n = &s->nodes.data[id];
    if (!s->made.data[id].id || !n->a.id) continue;
    s->made.data[n->a.id] = n->a;
    s->made.data[n->b.id] = n->b;
  }
  for (uint32_t id = 1; id <= x.id; id++) {
    const ir_scalar_node n = s->nodes.data[id];
    ir_scalar *made = &s->made.data[id];
    if (!made->id) continue;
    if (n.a.id == 0) *made = replaced(*made, &n, with, context);
    else *made = ir_scalar_with(s, *made, s->made.data[n.a.id], s->made.data[n.b.id]);
  }
  return s->made.data[x.id];
}

ir_scalar ir_scalar_substitute(ir_scalars *s, ir_scalar x, ir_substitution with,
                               const void *context) {
  bool small = ir_scalar_node_of(s, x)->size <= IR_SCALAR_SMALL;
  return small ? substitute_small(s, x, with, context) : substitute_large(s, x, with, context);
}
