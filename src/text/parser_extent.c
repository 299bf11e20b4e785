/* Named extents: extent half = n / 2; capacities: extent n <= 8192; multiples: extent n % 4 == 0 */
#include "text/parser_host.h"

bool text_at_named_extent(const text_parser *p) {
  return text_is_word(p, "extent") && text_lexer_peek(&p->lexer).kind == TOKEN_NAME;
}

static bool is_taken(text_parser *p, const text_token *name) {
  return p->host ? text_host_is_taken(p, name) : text_is_taken(p, name);
}

static void declare(text_parser *p, uint32_t name, ir_scalar x) {
  ir_name_entry entry = {IR_NAME_EXTENT, x.id};
  if (p->host && p->host->depth) {
    text_host_declare(p, name, entry);
    return;
  }
  ir_func_declare(p->f, name, entry);
  vec_push(&p->m->memory, &p->named, name);
}

/* The symbol of that name, among those that inputs declare; NULL: there is none. */
static ir_symbol_data *find_symbol(text_parser *p, const text_token *name) {
  ir_name_entry e = ir_func_lookup(p->f, text_intern(p, name));
  if (e.kind != IR_NAME_EXTENT) return NULL;
  const ir_scalar_node *n = ir_scalar_node_of(&p->m->scalars, (ir_scalar){e.id});
  if (n->kind != IR_SCALAR_SYMBOL) return NULL;
  ir_symbol_data *d = &p->m->scalars.symbols.data[n->value];
  return d->kind == IR_SYMBOL_EXTENT && d->name ? d : NULL;
}

/* extent n <= 8192 */
static void parse_capacity(text_parser *p, const text_token *name) {
  text_token at = p->token;
  int64_t most = 0;
  text_advance(p);
  ir_scalar x = text_parse_scalar(p);
  if (!x.id) return;
  ir_symbol_data *symbol = find_symbol(p, name);
  const char *text = ir_name_text(p->f, text_intern(p, name));
  if (!symbol)
    text_error(
        p, name,
        "'%s' is no extent that an input declares before this line: only those have a capacity",
        text);
  else if (!ir_scalar_is_const(&p->m->scalars, x, &most) || most < 1)
    text_error(p, &at, "a capacity is a number above 0");
  else if (symbol->capacity) text_error(p, name, "'%s' has a capacity already", text);
  else symbol->capacity = most;
}

/* Declares that `of` divides the extent. */
static void declare_multiple(text_parser *p, const text_token *name, ir_symbol_data *symbol,
                             ir_scalar x, int64_t of) {
  ir_scalar n = {ir_func_lookup(p->f, text_intern(p, name)).id};
  symbol->multiple = of;
  ir_require(p->f, IR_REQUIRE_DIVIDES, x, n, "an extent that is declared to be a multiple",
             text_token_loc(name));
  ir_func_learn_multiple(p->f, x, n);
}

/* extent n % 4 == 0 */
static void parse_multiple(text_parser *p, const text_token *name) {
  int64_t of = 0, rest = -1;
  text_advance(p);
  text_token at = p->token;
  ir_scalar x = text_parse_scalar(p), zero = {0};
  if (x.id && text_expect(p, TOKEN_EQ, "'== 0'")) zero = text_parse_scalar(p);
  if (!zero.id) return;
  ir_symbol_data *symbol = find_symbol(p, name);
  const char *text = ir_name_text(p->f, text_intern(p, name));
  bool good = ir_scalar_is_const(&p->m->scalars, x, &of) && of > 0 &&
              ir_scalar_is_const(&p->m->scalars, zero, &rest) && rest == 0;
  if (!symbol)
    text_error(p, name, "'%s' is no extent that an input declares before this line", text);
  else if (symbol->multiple) text_error(p, name, "'%s' is already declared to be a multiple", text);
  else if (!good)
    text_error(p, &at, "a multiple is declared as extent n %% k == 0, where k is a number above 0");
  else declare_multiple(p, name, symbol, x, of);
}

void text_parse_named_extent(text_parser *p) {
  text_advance(p);
  text_token name = p->token;
  text_advance(p);
  if (p->token.kind == TOKEN_LE) {
    parse_capacity(p, &name);
    return;
  }
  if (p->token.kind == TOKEN_PERCENT) {
    parse_multiple(p, &name);
    return;
  }
  if (is_taken(p, &name)) {
    p->panic = true;
    return;
  }
  ir_scalar x = {0};
  if (text_expect(p, TOKEN_ASSIGN, "'=' and an integer expression")) x = text_parse_scalar(p);
  if (x.id) declare(p, text_intern(p, &name), x);
  else text_poison(p, text_intern(p, &name));
}

void text_forget_extents(text_parser *p) {
  for (uint32_t i = 0; i < p->named.len; i++) ir_func_undeclare(p->f, p->named.data[i]);
  p->named.len = 0;
}
