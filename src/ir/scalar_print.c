/* Scalars as text. */
#include "ir/scalar.h"

typedef struct printer {
  const ir_scalars *s;
  const strings *names;
  ir_tensor_namer namer;
  const void *context;
  strbuf *out;
} printer;

/* How tightly the surroundings bind: a sum inside a product needs parentheses. */
typedef enum level { IN_SUM, IN_PRODUCT, IN_DIVISION } level;

static void print(const printer *p, ir_scalar x, level where);

static void print_symbol(const printer *p, int64_t index) {
  const ir_symbol_data *d = &p->s->symbols.data[index];
  if (d->name) strbuf_puts(p->out, strings_text(p->names, d->name));
  else strbuf_printf(p->out, "%s.%u", p->namer(p->context, d->tensor), d->dim);
}

static void print_call(const printer *p, const char *name, const ir_scalar_node *n) {
  strbuf_printf(p->out, "%s(", name);
  print(p, n->a, IN_SUM);
  strbuf_puts(p->out, ", ");
  print(p, n->b, IN_SUM);
  strbuf_putc(p->out, ')');
}

static void print_list(const printer *p, const ir_chunk_list *l) {
  strbuf_putc(p->out, '[');
  for (uint32_t i = 0; i < l->len; i++) {
    if (i) strbuf_puts(p->out, ", ");
    strbuf_int(p->out, l->lengths[i]);
  }
  strbuf_putc(p->out, ']');
}

static void print_infix(const printer *p, const char *op, const ir_scalar_node *n, level inside) {
  print(p, n->a, inside);
  strbuf_puts(p->out, op);
  print(p, n->b, inside);
}

/* a + (-c)*x prints as a - c*x. */
static void print_sum(const printer *p, const ir_scalar_node *n) {
  print(p, n->a, IN_SUM);
  const ir_scalar_node *b = ir_scalar_node_of(p->s, n->b);
  int64_t coef = 0;
  bool product = b->kind == IR_SCALAR_MUL && ir_scalar_is_const(p->s, b->a, &coef);
  if (b->kind == IR_SCALAR_CONST) coef = b->value;
  if (coef >= 0 || coef == INT64_MIN) {
    strbuf_puts(p->out, " + ");
    print(p, n->b, IN_SUM);
    return;
  }
  strbuf_puts(p->out, " - ");
  if (!product || coef != -1) strbuf_int(p->out, -coef);
  if (product && coef != -1) strbuf_puts(p->out, " * ");
  if (product) print(p, b->b, IN_PRODUCT);
}

static void print_product(const printer *p, const ir_scalar_node *n) {
  int64_t coef;
  if (ir_scalar_is_const(p->s, n->a, &coef) && coef == -1) {
    strbuf_putc(p->out, '-');
    print(p, n->b, IN_PRODUCT);
    return;
  }
  print_infix(p, " * ", n, IN_PRODUCT);
}

static bool needs_parentheses(ir_scalar_kind kind, level where) {
  switch (kind) {
  case IR_SCALAR_ADD: return where != IN_SUM;
  case IR_SCALAR_MUL: return where == IN_DIVISION;
  case IR_SCALAR_FLOORDIV:
  case IR_SCALAR_MOD: return where != IN_SUM;
  case IR_SCALAR_OVERFLOWED:
  case IR_SCALAR_CONST:
  case IR_SCALAR_SYMBOL:
  case IR_SCALAR_CEILDIV:
  case IR_SCALAR_MIN:
  case IR_SCALAR_MAX:
  case IR_SCALAR_LIST:
  case IR_SCALAR_CHUNK:
  case IR_SCALAR_CHUNK_START: return false;
  }
  return false;
}

static void print_node(const printer *p, const ir_scalar_node *n) {
  switch (n->kind) {
  case IR_SCALAR_OVERFLOWED: strbuf_puts(p->out, "<overflow>"); return;
  case IR_SCALAR_CONST: strbuf_int(p->out, n->value); return;
  case IR_SCALAR_SYMBOL: print_symbol(p, n->value); return;
  case IR_SCALAR_ADD: print_sum(p, n); return;
  case IR_SCALAR_MUL: print_product(p, n); return;
  case IR_SCALAR_FLOORDIV: print_infix(p, " / ", n, IN_DIVISION); return;
  case IR_SCALAR_MOD: print_infix(p, " % ", n, IN_DIVISION); return;
  case IR_SCALAR_CEILDIV: print_call(p, "ceildiv", n); return;
  case IR_SCALAR_MIN: print_call(p, "min", n); return;
  case IR_SCALAR_MAX: print_call(p, "max", n); return;
  case IR_SCALAR_LIST: print_list(p, &p->s->lists.data[n->value]); return;
  case IR_SCALAR_CHUNK: print_call(p, "chunk", n); return;
  case IR_SCALAR_CHUNK_START: print_call(p, "chunk_start", n); return;
  }
}

static void print(const printer *p, ir_scalar x, level where) {
  const ir_scalar_node *n = ir_scalar_node_of(p->s, x);
  bool parens = needs_parentheses(n->kind, where);
  if (parens) strbuf_putc(p->out, '(');
  print_node(p, n);
  if (parens) strbuf_putc(p->out, ')');
}

void ir_scalar_print(const ir_scalars *s, const strings *names, ir_scalar x, ir_tensor_namer namer,
                     const void *context, strbuf *out) {
  printer p = {s, names, namer, context, out};
  print(&p, x, IN_SUM);
}
