/* Scalars as text. */
#include "ir/scalar.h"

typedef struct printer {
  const ir_scalars *s;
  const strings *names;
  ir_tensor_namer namer;
  const void *context;
  strbuf *out;
  bool brief; /* leaves out large parts */
  uint32_t nesting;
} printer;

/* How tightly the surroundings bind: a sum inside a product needs parentheses. */
typedef enum level { IN_SUM, IN_PRODUCT, IN_DIVISION } level;

static void print(const printer *p, ir_scalar x, level where);

/* The name that stands for x in the text, or NULL. Where a name is declared its scalar is written out. */
static const char *name_of(const printer *p, ir_scalar x) {
  const ir_scalar_names *names = p->s->names;
  if (!names || names->collecting || !names->large.len || IR_SAME(x, names->declared)) return NULL;
  uint32_t name = map_get(&names->by_id, x.id, 0);
  return name ? strings_text(p->names, name) : NULL;
}

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

/* Is x a product as the normal form has it, after a coefficient? */
static bool is_plain_product(const ir_scalars *s, ir_scalar x) {
  const ir_scalar_node *n = ir_scalar_node_of(s, x);
  uint32_t degree = 1;
  for (; n->kind == IR_SCALAR_MUL; n = ir_scalar_node_of(s, n->a), degree++) {
    ir_scalar_kind kind = ir_scalar_node_of(s, n->b)->kind;
    if (kind == IR_SCALAR_ADD || kind == IR_SCALAR_MUL) return false;
  }
  return degree <= IR_SCALAR_MAX_DEGREE;
}

/* Sums and products that are too large to be put in order keep their operands: one on the right has
 * parentheses, so that it is read back as one. */
static void print_term(const printer *p, ir_scalar x) {
  print(p, x, ir_scalar_node_of(p->s, x)->kind == IR_SCALAR_ADD ? IN_PRODUCT : IN_SUM);
}

static void print_factor(const printer *p, ir_scalar x, bool scaled) {
  bool apart = ir_scalar_node_of(p->s, x)->kind == IR_SCALAR_MUL;
  if (scaled && is_plain_product(p->s, x)) apart = false;
  print(p, x, apart ? IN_DIVISION : IN_PRODUCT);
}

/* a + (-c)*x prints as a - c*x. */
static void print_sum(const printer *p, const ir_scalar_node *n) {
  print(p, n->a, IN_SUM);
  const ir_scalar_node *b = ir_scalar_node_of(p->s, n->b);
  int64_t coef = 0;
  bool product = b->kind == IR_SCALAR_MUL && ir_scalar_is_const(p->s, b->a, &coef);
  if (b->kind == IR_SCALAR_CONST) coef = b->value;
  if (coef >= 0 || coef == INT64_MIN || name_of(p, n->b)) {
    strbuf_puts(p->out, " + ");
    print_term(p, n->b);
    return;
  }
  strbuf_puts(p->out, " - ");
  if (!product || coef != -1) strbuf_int(p->out, -coef);
  if (product && coef != -1) strbuf_puts(p->out, " * ");
  if (product) print_factor(p, b->b, true);
}

static void print_product(const printer *p, const ir_scalar_node *n) {
  int64_t coef;
  bool scaled = ir_scalar_is_const(p->s, n->a, &coef);
  if (scaled && coef == -1) {
    strbuf_putc(p->out, '-');
    print_factor(p, n->b, true);
    return;
  }
  print(p, n->a, IN_PRODUCT);
  strbuf_puts(p->out, " * ");
  print_factor(p, n->b, scaled);
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

/* Of a large scalar, the outer operations and the small parts are printed. */
static bool is_left_out(const printer *p, const ir_scalar_node *n) {
  return p->brief && p->nesting > 4 && n->size > 16;
}

static void print(const printer *p, ir_scalar x, level where) {
  const ir_scalar_node *n = ir_scalar_node_of(p->s, x);
  const char *name = name_of(p, x);
  bool parens = !name && !is_left_out(p, n) && needs_parentheses(n->kind, where);
  printer inside = *p;
  inside.nesting++;
  if (parens) strbuf_putc(p->out, '(');
  if (name) strbuf_puts(p->out, name);
  else if (is_left_out(p, n)) strbuf_puts(p->out, "...");
  else print_node(&inside, n);
  if (parens) strbuf_putc(p->out, ')');
}

void ir_scalar_print(const ir_scalars *s, const strings *names, ir_scalar x, ir_tensor_namer namer,
                     const void *context, strbuf *out) {
  bool large = ir_scalar_node_of(s, x)->size > IR_SCALAR_LARGE;
  printer p = {.s = s, .names = names, .namer = namer, .context = context, .out = out};
  p.brief = large && !s->names;
  if (large && s->names && s->names->collecting) vec_push(s->names->memory, &s->names->large, x);
  else print(&p, x, IN_SUM);
}
