/* Scalars with values for their symbols. */
#include <string.h>

#include "ir/scalar_internal.h"

static bool combine(ir_scalar_kind kind, int64_t a, int64_t b, int64_t *value) {
  bool division = kind == IR_SCALAR_FLOORDIV || kind == IR_SCALAR_CEILDIV || kind == IR_SCALAR_MOD;
  if (division && b < 1) return false;
  switch (kind) {
  case IR_SCALAR_ADD: return !__builtin_add_overflow(a, b, value);
  case IR_SCALAR_MUL: return !__builtin_mul_overflow(a, b, value);
  case IR_SCALAR_FLOORDIV: *value = ir_floor_of(a, b); return true;
  case IR_SCALAR_CEILDIV: *value = ir_floor_of(a, b) + (a % b != 0); return true;
  case IR_SCALAR_MOD: *value = a - b * ir_floor_of(a, b); return true;
  case IR_SCALAR_MIN: *value = a < b ? a : b; return true;
  case IR_SCALAR_MAX: *value = a > b ? a : b; return true;
  case IR_SCALAR_OVERFLOWED:
  case IR_SCALAR_CONST:
  case IR_SCALAR_SYMBOL:
  case IR_SCALAR_LIST:
  case IR_SCALAR_CHUNK:
  case IR_SCALAR_CHUNK_START: break;
  }
  return false;
}

/* The value of a node whose operands have the values a and b. */
static bool value_of(const ir_scalars *s, const ir_scalar_node *n, const int64_t *symbols,
                     uint32_t n_symbols, int64_t a, int64_t b, int64_t *value) {
  switch (n->kind) {
  case IR_SCALAR_CONST: *value = n->value; return true;
  case IR_SCALAR_SYMBOL:
    if ((uint64_t)n->value >= n_symbols || symbols[n->value] == IR_UNBOUND) return false;
    *value = symbols[n->value];
    return true;
  case IR_SCALAR_CHUNK:
  case IR_SCALAR_CHUNK_START:
    *value = ir_scalar_chunk_value(ir_scalar_list_of(s, n->b), n->kind, a);
    return true;
  case IR_SCALAR_LIST: *value = 0; return true; /* nothing by itself */
  case IR_SCALAR_OVERFLOWED: return false;
  case IR_SCALAR_ADD:
  case IR_SCALAR_MUL:
  case IR_SCALAR_FLOORDIV:
  case IR_SCALAR_CEILDIV:
  case IR_SCALAR_MOD:
  case IR_SCALAR_MIN:
  case IR_SCALAR_MAX: return combine(n->kind, a, b, value);
  }
  return false;
}

static bool eval_small(const ir_scalars *s, ir_scalar x, const int64_t *symbols, uint32_t n,
                       int64_t *value) {
  const ir_scalar_node *node = ir_scalar_node_of(s, x);
  int64_t a = 0, b = 0;
  if (node->a.id && !eval_small(s, node->a, symbols, n, &a)) return false;
  if (node->b.id && !eval_small(s, node->b, symbols, n, &b)) return false;
  return value_of(s, node, symbols, n, a, b, value);
}

/* An array by id: 1 for x and everything in it, else 0. The caller frees it to the allocator of the scalars'
 * arena. NULL: no memory. */
static uint8_t *reach(const ir_scalars *s, ir_scalar x) {
  uint8_t *reached = memory_alloc(s->memory->memory, (size_t)x.id + 1);
  if (!reached) return NULL;
  memset(reached, 0, (size_t)x.id + 1);
  reached[x.id] = 1;
  for (uint32_t id = x.id; id > 0; id--) {
    if (!reached[id]) continue;
    reached[s->nodes.data[id].a.id] = 1;
    reached[s->nodes.data[id].b.id] = 1;
  }
  reached[0] = 0;
  return reached;
}

/* Operands have smaller ids than the nodes that use them. */
static bool eval_large(const ir_scalars *s, ir_scalar x, const int64_t *symbols, uint32_t n,
                       int64_t *value) {
  const allocator *memory = s->memory->memory;
  uint8_t *reached = reach(s, x);
  int64_t *values = reached ? memory_alloc(memory, ((size_t)x.id + 1) * sizeof *values) : NULL;
  bool good = values != NULL;
  for (uint32_t id = 1; good && id <= x.id; id++) {
    const ir_scalar_node *node = &s->nodes.data[id];
    if (!reached[id]) continue;
    int64_t a = node->a.id ? values[node->a.id] : 0, b = node->b.id ? values[node->b.id] : 0;
    good = value_of(s, node, symbols, n, a, b, &values[id]);
  }
  if (good) *value = values[x.id];
  memory_free(memory, values);
  memory_free(memory, reached);
  return good;
}

bool ir_scalar_eval(const ir_scalars *s, ir_scalar x, const int64_t *symbols, uint32_t n,
                    int64_t *value) {
  bool small = ir_scalar_node_of(s, x)->size <= IR_SCALAR_SMALL;
  return small ? eval_small(s, x, symbols, n, value) : eval_large(s, x, symbols, n, value);
}

/* ---- symbols ---- */

static bool any_small(const ir_scalars *s, ir_scalar x, ir_symbol_visitor visit, void *context) {
  const ir_scalar_node *n = ir_scalar_node_of(s, x);
  if (n->kind == IR_SCALAR_SYMBOL) return visit(context, (uint32_t)n->value);
  return (n->a.id && any_small(s, n->a, visit, context)) ||
         (n->b.id && any_small(s, n->b, visit, context));
}

/* Without memory every symbol is taken to occur. */
static bool any_large(const ir_scalars *s, ir_scalar x, ir_symbol_visitor visit, void *context) {
  uint8_t *reached = reach(s, x);
  bool found = false;
  for (uint32_t id = 1; !found && id <= x.id; id++) {
    const ir_scalar_node *n = &s->nodes.data[id];
    bool here = n->kind == IR_SCALAR_SYMBOL && (!reached || reached[id]);
    found = here && visit(context, (uint32_t)n->value);
  }
  memory_free(s->memory->memory, reached);
  return found;
}

bool ir_scalar_any_symbol(const ir_scalars *s, ir_scalar x, ir_symbol_visitor visit,
                          void *context) {
  bool small = ir_scalar_node_of(s, x)->size <= IR_SCALAR_SMALL;
  return small ? any_small(s, x, visit, context) : any_large(s, x, visit, context);
}

static bool is_symbol(void *context, uint32_t symbol) {
  return *(const uint32_t *)context == symbol;
}

bool ir_scalar_mentions(const ir_scalars *s, ir_scalar x, uint32_t symbol) {
  return ir_scalar_any_symbol(s, x, is_symbol, &symbol);
}
