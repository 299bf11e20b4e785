#include <inttypes.h>

#include "text/parser.h"
#include "text/parser_host.h"

/* ---- building ---- */
/* Names a result inside the statement: y$1, y$2, … */
static bool name_nested(text_parser *p) {
  ir_tensor t = p->newest;
  p->newest = (ir_tensor){0};
  if (!t.id) return true;
  p->name.len = 0;
  strbuf_puts(&p->name, strings_text(&p->m->names, p->defining));
  strbuf_putc(&p->name, '$');
  strbuf_int(&p->name, ++p->nested);
  uint32_t name = strings_intern(&p->m->names, p->name.data, p->name.len);
  return ir_build_name(p->f, t, name, ir_tensor_at(p->f, t)->at);
}

text_value text_build(text_parser *p, ir_opcode code, const ir_tensor *operands, uint32_t n,
                      const ir_attr *attrs, loc at) {
  if (p->host) return text_host_build(p, code, operands, n, attrs, at);
  if (!name_nested(p)) return TEXT_POISONED;
  ir_tensor t = ir_build_op(p->f, code, operands, n, attrs, 0, at);
  if (!t.id) return TEXT_POISONED;
  p->newest = t;
  return (text_value){.kind = TEXT_TENSOR, .at = at, .tensor = t};
}

ir_tensor text_operand(text_parser *p, const text_value *v) {
  switch (v->kind) {
  case TEXT_POISON: break;
  case TEXT_NUMBER: return ir_build_number(p->f, v->number, v->at);
  case TEXT_SCALAR: return ir_build_extent_value(p->f, v->scalar, v->at);
  case TEXT_TENSOR: return v->tensor;
  }
  return (ir_tensor){0};
}

static text_value number_value(ir_number n, loc at) {
  return (text_value){.kind = TEXT_NUMBER, .at = at, .number = n};
}

/* Arithmetic on extents may come out constant: then it is a number like any other. */
static text_value scalar_value(text_parser *p, ir_scalar x, loc at) {
  int64_t value;
  if (!x.id) return TEXT_POISONED;
  if (ir_scalar_is_overflow(x)) {
    diag_error(&p->m->errors, at, "this integer expression %s",
               ir_scalar_overflow_text(&p->m->scalars));
    return TEXT_POISONED;
  }
  if (ir_scalar_is_const(&p->m->scalars, x, &value)) return number_value(ir_number_int(value), at);
  return (text_value){.kind = TEXT_SCALAR, .at = at, .scalar = x};
}

/* ---- operators ---- */
typedef enum level { COMPARISON, SUM, PRODUCT } level;

typedef struct infix {
  text_token_kind token;
  level binds;
  ir_opcode code;
} infix;

static const infix infixes[] = {
    {TOKEN_PLUS, SUM, IR_OP_ADD},     {TOKEN_MINUS, SUM, IR_OP_SUB},
    {TOKEN_STAR, PRODUCT, IR_OP_MUL}, {TOKEN_SLASH, PRODUCT, IR_OP_DIV},
    {TOKEN_EQ, COMPARISON, IR_OP_EQ}, {TOKEN_NE, COMPARISON, IR_OP_NE},
    {TOKEN_LT, COMPARISON, IR_OP_LT}, {TOKEN_LE, COMPARISON, IR_OP_LE},
    {TOKEN_GT, COMPARISON, IR_OP_GT}, {TOKEN_GE, COMPARISON, IR_OP_GE},
};

static const infix *infix_of(text_token_kind kind) {
  for (size_t i = 0; i < sizeof infixes / sizeof infixes[0]; i++) {
    if (infixes[i].token == kind) return &infixes[i];
  }
  return NULL;
}

static text_value fold_floats(const infix *op, double a, double b, loc at) {
  double x = op->token == TOKEN_PLUS    ? a + b
             : op->token == TOKEN_MINUS ? a - b
             : op->token == TOKEN_STAR  ? a * b
                                        : a / b;
  return number_value(ir_number_float(x), at);
}

static text_value fold_numbers(text_parser *p, const infix *op, ir_number a, ir_number b, loc at) {
  if (op->binds == COMPARISON) {
    diag_error(&p->m->errors, at, "this compares two numbers; one side must be a tensor");
    return TEXT_POISONED;
  }
  double divisor = ir_number_as_f64(b);
  if (op->token == TOKEN_SLASH && !(divisor < 0 || divisor > 0) && divisor == divisor) {
    diag_error(&p->m->errors, at, "this divides a number by 0; write inf or nan");
    return TEXT_POISONED;
  }
  if (a.is_float || b.is_float || op->token == TOKEN_SLASH) {
    return fold_floats(op, ir_number_as_f64(a), ir_number_as_f64(b), at);
  }
  int64_t x;
  bool overflow = op->token == TOKEN_PLUS    ? __builtin_add_overflow(a.i, b.i, &x)
                  : op->token == TOKEN_MINUS ? __builtin_sub_overflow(a.i, b.i, &x)
                                             : __builtin_mul_overflow(a.i, b.i, &x);
  if (!overflow) return number_value(ir_number_int(x), at);
  diag_error(&p->m->errors, at, "this integer expression overflows 64 bits");
  return TEXT_POISONED;
}

static bool is_integer(const text_value *v) {
  return v->kind == TEXT_SCALAR || (v->kind == TEXT_NUMBER && !v->number.is_float);
}

static ir_scalar as_scalar(text_parser *p, const text_value *v) {
  return v->kind == TEXT_SCALAR ? v->scalar : ir_scalar_const(&p->m->scalars, v->number.i);
}

static text_value fold_scalars(text_parser *p, const infix *op, const text_value *left,
                               const text_value *right, loc at) {
  ir_scalars *s = &p->m->scalars;
  ir_scalar a = as_scalar(p, left), b = as_scalar(p, right);
  ir_scalar x = op->token == TOKEN_PLUS    ? ir_scalar_add(s, a, b)
                : op->token == TOKEN_MINUS ? ir_scalar_sub(s, a, b)
                                           : ir_scalar_mul(s, a, b);
  return scalar_value(p, x, at);
}

static text_value combine(text_parser *p, const infix *op, const text_value *a, const text_value *b,
                          loc at) {
  if (a->kind == TEXT_POISON || b->kind == TEXT_POISON) return TEXT_POISONED;
  if (a->kind == TEXT_NUMBER && b->kind == TEXT_NUMBER) {
    return fold_numbers(p, op, a->number, b->number, at);
  }
  bool exact = op->binds != COMPARISON && op->token != TOKEN_SLASH;
  if (is_integer(a) && is_integer(b)) {
    if (exact) return fold_scalars(p, op, a, b, at);
    /* Rounding down silently would turn x * (1 / n) into 0. */
    diag_error(&p->m->errors, at,
               "one side must be a tensor; extent(n / 2) divides extents and "
               "rounds down");
    return TEXT_POISONED;
  }
  ir_tensor operands[2] = {text_operand(p, a), text_operand(p, b)};
  if (!operands[0].id || !operands[1].id) return TEXT_POISONED;
  return text_build(p, op->code, operands, 2, NULL, at);
}

/* ---- expressions ---- */
/* extent( integer expression ), with the word in hand. */
static text_value parse_extent(text_parser *p) {
  text_token first = p->token;
  text_advance(p);
  text_advance(p);
  ir_scalar x = text_enter(p) ? text_parse_scalar(p) : (ir_scalar){0};
  text_expect(p, TOKEN_RPAREN, "')'");
  text_leave(p);
  return scalar_value(p, p->panic ? (ir_scalar){0} : x, text_span(p, &first));
}

/* Reports torch.nn.functional.gelu(x): the function is written alone. The first word is consumed. */
static text_value parse_of_module(text_parser *p, const text_token *module) {
  text_token name = *module;
  while (text_accept(p, TOKEN_DOT)) {
    name = p->token;
    if (!text_expect(p, TOKEN_NAME, "a function")) return TEXT_POISONED;
  }
  if (!text_is(p, TOKEN_LPAREN)) text_unknown_name(p, module, "name");
  else if (text_is_function(p, &name))
    text_error(p, module, "write %.*s alone: functions belong to no module", text_shown(&name),
               text_of(p, &name));
  if (text_is(p, TOKEN_LPAREN)) (void)text_parse_call(p, &name);
  return TEXT_POISONED;
}

static text_value parse_name(text_parser *p) {
  text_token t = p->token;
  if (text_is_word(p, "extent") && text_lexer_peek(&p->lexer).kind == TOKEN_LPAREN) {
    return parse_extent(p);
  }
  if (text_at_coordinate(p)) {
    ir_scalar x = text_parse_coordinate(p);
    return scalar_value(p, x, text_span(p, &t));
  }
  text_advance(p);
  if (text_is(p, TOKEN_LPAREN)) return text_parse_call(p, &t);
  loc at = text_token_loc(&t);
  bool dot = text_is(p, TOKEN_DOT);
  if (dot && text_habit_module(p, &t) && !ir_func_lookup(p->f, text_intern(p, &t)).kind)
    return parse_of_module(p, &t);
  ir_name_entry e = text_lookup(p, &t, "name");
  switch (e.kind) {
  case IR_NAME_EXTENT: return scalar_value(p, (ir_scalar){e.id}, at);
  case IR_NAME_TENSOR:
    if (dot) return scalar_value(p, text_parse_extent_of(p, &t, (ir_tensor){e.id}), at);
    if (text_is(p, TOKEN_LBRACKET))
      text_expected(p, "an operator; write slice(x, starts=[...], stops=[...]) for a part");
    return (text_value){.kind = TEXT_TENSOR, .at = at, .tensor = {e.id}};
  case IR_NAME_MESH:
    text_error(p, &t, "'%.*s' is a mesh, which has no value in an expression", text_shown(&t),
               text_of(p, &t));
    break;
  case IR_NAME_NONE: break;
  }
  if (text_accept(p, TOKEN_DOT)) text_advance(p);
  return TEXT_POISONED;
}

static text_value parse_number(text_parser *p, bool negative) {
  text_token t = p->token;
  loc at = text_token_loc(&t);
  if (text_accept(p, TOKEN_FLOAT)) {
    return number_value(ir_number_float(negative ? -t.real : t.real), at);
  }
  int64_t value;
  if (!text_parse_literal(p, negative, &value)) return TEXT_POISONED;
  return number_value(ir_number_int(value), at);
}

static bool at_number(const text_parser *p) {
  return text_is(p, TOKEN_INT) || text_is(p, TOKEN_FLOAT);
}

/* What to write where a token begins no expression. */
static const char *wanted_instead(const text_parser *p) {
  if (text_is(p, TOKEN_LBRACKET))
    return "an expression; tensors are listed without brackets: cat(a, b, dim=0)";
  bool twice = p->token.offset > 0 && text_of(p, &p->token)[-1] == '*';
  if (text_is(p, TOKEN_STAR) && twice) return "an expression; write pow(x, y) for a power";
  if (text_is(p, TOKEN_DOT)) return "an expression; numbers begin with a digit: 0.5";
  return "an expression";
}

static text_value parse_primary(text_parser *p) {
  if (text_is(p, TOKEN_NAME)) return parse_name(p);
  if (at_number(p)) return parse_number(p, false);
  if (text_is(p, TOKEN_TRUE) || text_is(p, TOKEN_FALSE)) {
    text_expected(p, "a tensor or a number; write full([], 1, dtype=bool) for a truth value");
  }
  if (!text_expect(p, TOKEN_LPAREN, wanted_instead(p))) return TEXT_POISONED;
  text_value v = text_enter(p) ? text_parse_expr(p) : TEXT_POISONED;
  text_expect(p, TOKEN_RPAREN, "')'");
  text_leave(p);
  return v;
}

static text_value negate(text_parser *p, const text_value *v, loc at) {
  if (v->kind == TEXT_POISON) return *v;
  if (v->kind == TEXT_NUMBER && v->number.is_float) {
    return number_value(ir_number_float(-v->number.f), at);
  }
  if (is_integer(v)) {
    ir_scalar zero = ir_scalar_const(&p->m->scalars, 0);
    return scalar_value(p, ir_scalar_sub(&p->m->scalars, zero, as_scalar(p, v)), at);
  }
  ir_tensor operand = text_operand(p, v);
  return text_build(p, IR_OP_NEG, &operand, 1, NULL, at);
}

static text_value parse_unary(text_parser *p) {
  if (!text_is(p, TOKEN_MINUS)) return parse_primary(p);
  loc at = text_token_loc(&p->token);
  text_advance(p);
  if (at_number(p)) return parse_number(p, true);
  text_value v = text_enter(p) ? parse_unary(p) : TEXT_POISONED;
  text_leave(p);
  return p->panic ? TEXT_POISONED : negate(p, &v, at);
}

/* Operators of other languages. */
static void refuse_infix(text_parser *p) {
  if (text_is(p, TOKEN_AT)) text_expected(p, "an operator; write matmul(a, b) for a product");
  if (text_is_word(p, "and")) text_expected(p, "an operator; write and(a, b)");
  if (text_is_word(p, "or")) text_expected(p, "an operator; write or(a, b)");
  if (text_is(p, TOKEN_PERCENT)) text_expected(p, "an operator; write mod(a, b)");
  if (text_is(p, TOKEN_QUESTION) || text_is_word(p, "if"))
    text_expected(p, "an operator; write where(c, a, b) for a choice");
}

static text_value parse_infix(text_parser *p, level least) {
  text_value left = parse_unary(p);
  for (;;) {
    const infix *op = infix_of(p->token.kind);
    if (!p->panic && !op) refuse_infix(p);
    if (p->panic || !op || op->binds < least) return left;
    loc at = text_token_loc(&p->token);
    text_advance(p);
    text_value right = parse_infix(p, op->binds + 1);
    if (p->panic) return TEXT_POISONED;
    left = combine(p, op, &left, &right, at);
    const infix *next = infix_of(p->token.kind);
    if (op->binds == COMPARISON && next && next->binds == COMPARISON) {
      text_expected(p, "at most one comparison; join two with and(..., ...)");
    }
  }
}

text_value text_parse_expr(text_parser *p) { return parse_infix(p, COMPARISON); }

/* ---- definitions ---- */
/* `y = x` and `y = 2` compute nothing that could carry the name. */
void text_refuse_lone(text_parser *p, const text_token *first, text_value_kind kind) {
  loc at = text_span(p, first);
  int n = at.length < 60 ? (int)at.length : 60;
  const char *text = text_of(p, first);
  const char *fmt = kind == TEXT_NUMBER ? "a number has no shape; write full([...], %.*s)"
                    : kind == TEXT_SCALAR
                        ? "an extent has no shape; write zeros([...], dtype=i64) + %.*s"
                        : "a name is not an operation; write set(%.*s) for a copy";
  diag_error(&p->m->errors, at, "%s", arena_printf(&p->m->memory, fmt, n, text));
}

ir_tensor text_parse_definition(text_parser *p, const text_token *name) {
  text_token first = p->token;
  p->defining = text_intern(p, name);
  p->nested = 0;
  p->newest = (ir_tensor){0};
  p->operands.len = p->attrs.len = 0;
  text_value v = text_parse_expr(p);
  ir_tensor t = p->newest;
  bool whole = !p->panic && v.kind == TEXT_TENSOR && IR_SAME(v.tensor, t);
  if (whole && ir_build_name(p->f, t, p->defining, text_token_loc(name))) return t;
  if (!whole) {
    if (text_at_end(p) && v.kind != TEXT_POISON) text_refuse_lone(p, &first, v.kind);
    (void)name_nested(p);
  }
  text_poison(p, p->defining);
  return (ir_tensor){0};
}
