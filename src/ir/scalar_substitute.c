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

ir_scalar ir_scalar_substitute(ir_scalars *s, ir_scalar x, ir_substitution with,
                               const void *context) {
  const ir_scalar_node node = *ir_scalar_node_of(s, x);
  if (node.kind == IR_SCALAR_SYMBOL) {
    ir_scalar other = with(context, (uint32_t)node.value);
    return other.id ? other : x;
  }
  if (node.a.id == 0) return x;
  ir_scalar a = ir_scalar_substitute(s, node.a, with, context);
  return ir_scalar_with(s, x, a, ir_scalar_substitute(s, node.b, with, context));
}

bool ir_scalar_mentions(const ir_scalars *s, ir_scalar x, uint32_t symbol) {
  const ir_scalar_node *n = ir_scalar_node_of(s, x);
  if (n->kind == IR_SCALAR_SYMBOL) return n->value == (int64_t)symbol;
  return n->a.id != 0 &&
         (ir_scalar_mentions(s, n->a, symbol) || ir_scalar_mentions(s, n->b, symbol));
}
