#include <string.h>

#include "text/parser.h"
#include "text/text.h"

/* A call while its arguments are read. */
typedef struct call {
  ir_opcode code;
  const ir_op_info *info;
  const text_token *name;
  uint32_t operands, attrs; /* where its part of the parser's stacks begins */
  uint32_t n_params;
  uint32_t given;    /* a bit per param */
  uint32_t position; /* the param that the next positional argument fills */
  bool by_name;      /* a keyword argument was seen: no positional one may follow */
  bool poison;
} call;

static bool is_tensor(const ir_param *q) {
  return q->kind == IR_PARAM_TENSOR || q->kind == IR_PARAM_TENSORS;
}

/* The place of a param among the tensor params, or among the attribute params. */
static uint32_t slot_of(const ir_op_info *info, uint32_t param) {
  uint32_t slot = 0;
  for (uint32_t i = 0; i < param; i++) {
    slot += is_tensor(&info->params[i]) == is_tensor(&info->params[param]);
  }
  return slot;
}

const char *text_signature(text_parser *p, const ir_op_info *info) {
  strbuf b;
  strbuf_init(&b, &p->m->memory);
  text_print_signature(info, &b);
  return b.data;
}

/* ---- attributes ---- */
static void expected_attr(text_parser *p, const ir_param *q, const char *wanted) {
  text_expected(p, arena_printf(&p->m->memory, "%s as %s", wanted, q->name));
}

static bool parse_bool(text_parser *p, const ir_param *q, ir_attr *a) {
  a->i = text_is(p, TOKEN_TRUE);
  if (text_accept(p, TOKEN_TRUE) || text_accept(p, TOKEN_FALSE)) return true;
  expected_attr(p, q, "true or false");
  return false;
}

static bool parse_dtype(text_parser *p, const ir_param *q, ir_attr *a) {
  if (text_is(p, TOKEN_NAME)) {
    a->i = ir_dtype_parse(text_of(p, &p->token), p->token.length);
  }
  if (a->i == IR_DTYPE_NONE) {
    const char *here = text_is(p, TOKEN_NAME) ? text_habit_dtype(p, &p->token) : NULL;
    bool module = text_is(p, TOKEN_NAME) && text_habit_module(p, &p->token);
    if (module) here = "a dtype of no module (f32, bf16, i64, bool, ...)";
    expected_attr(p, q, here ? here : "a dtype (f32, bf16, i64, bool, ...)");
    return false;
  }
  text_advance(p);
  return true;
}

static bool parse_choice(text_parser *p, const ir_param *q, ir_attr *a) {
  strbuf b;
  for (uint32_t i = 0; q->choices[i]; i++) {
    if (!text_is_word(p, q->choices[i])) continue;
    a->i = i;
    text_advance(p);
    return true;
  }
  strbuf_init(&b, &p->m->memory);
  for (uint32_t i = 0; q->choices[i]; i++) {
    strbuf_printf(&b, "%s%s", i ? " or " : "", q->choices[i]);
  }
  expected_attr(p, q, b.data);
  return false;
}

static bool parse_number(text_parser *p, const ir_param *q, ir_attr *a) {
  text_token first = p->token;
  if (text_is(p, TOKEN_LBRACKET) || first.kind >= TOKEN_FUSION) {
    expected_attr(p, q, "a number");
    return false;
  }
  text_value v = text_parse_expr(p);
  if (p->panic || v.kind == TEXT_POISON) return false;
  a->number = v.number;
  if (v.kind == TEXT_NUMBER) return true;
  diag_error(&p->m->errors, text_span(p, &first), "%s must be a constant number", q->name);
  return false;
}

/* One integer is a list of one: dims=1. */
static bool parse_ints(text_parser *p, const ir_param *q, ir_attr *a) {
  if (text_is(p, TOKEN_LBRACKET)) return text_parse_ints(p, q->name, &a->ints, &a->len);
  int64_t value;
  if (!text_parse_int(p, q->name, &value)) return false;
  a->ints = arena_copy(&p->m->memory, &value, sizeof value);
  a->len = 1;
  return true;
}

static bool parse_attr(text_parser *p, const ir_param *q, ir_attr *a) {
  *a = (ir_attr){.given = true};
  switch (q->kind) {
  case IR_PARAM_INT: return text_parse_int(p, q->name, &a->i);
  case IR_PARAM_INTS: return parse_ints(p, q, a);
  case IR_PARAM_BOOL: return parse_bool(p, q, a);
  case IR_PARAM_BOOLS: return text_parse_bools(p, q->name, &a->ints, &a->len);
  case IR_PARAM_NUMBER: return parse_number(p, q, a);
  case IR_PARAM_DTYPE: return parse_dtype(p, q, a);
  case IR_PARAM_SCALAR: a->scalar = text_parse_scalar(p); return a->scalar.id != 0;
  case IR_PARAM_SCALARS: return text_parse_scalars(p, q->name, &a->scalars, &a->len);
  case IR_PARAM_CHOICE: return parse_choice(p, q, a);
  case IR_PARAM_END:
  case IR_PARAM_TENSOR:
  case IR_PARAM_TENSORS: break;
  }
  check(false);
  return false;
}

/* ---- arguments ---- */
static void fill_tensor(text_parser *p, call *c, uint32_t param) {
  text_value v = text_parse_expr(p);
  ir_tensor t = p->panic ? (ir_tensor){0} : text_operand(p, &v);
  if (!t.id) {
    c->poison = true;
  } else if (c->info->params[param].kind == IR_PARAM_TENSORS) {
    vec_push(&p->m->memory, &p->operands, t);
  } else {
    p->operands.data[c->operands + slot_of(c->info, param)] = t;
  }
}

/* Reports at `t` and skips the argument. */
static void refuse_argument(text_parser *p, call *c, const text_token *t, const char *what) {
  if (!c->poison) text_error(p, t, "%s; it is %s", what, text_signature(p, c->info));
  c->poison = true;
  text_skip_argument(p);
}

/* Is a tensor given in the place of an integer? gather(x, 0, index) has the order of PyTorch. */
static bool is_misplaced(text_parser *p, const ir_param *q) {
  bool integer = q->kind == IR_PARAM_INT || q->kind == IR_PARAM_INTS || q->kind == IR_PARAM_SCALAR;
  if (!integer || !text_is(p, TOKEN_NAME)) return false;
  text_token_kind next = text_lexer_peek(&p->lexer).kind;
  if (next != TOKEN_COMMA && next != TOKEN_RPAREN) return false;
  return ir_func_lookup(p->f, text_intern(p, &p->token)).kind == IR_NAME_TENSOR;
}

static void fill(text_parser *p, call *c, uint32_t param) {
  const ir_param *q = &c->info->params[param];
  c->given |= 1u << param;
  if (is_tensor(q)) {
    fill_tensor(p, c, param);
    return;
  }
  if (is_misplaced(p, q)) {
    text_token t = p->token;
    refuse_argument(p, c, &t,
                    arena_printf(&p->m->memory, "%s cannot be the tensor '%.*s'", q->name,
                                 text_shown(&t), text_of(p, &t)));
    return;
  }
  ir_attr a;
  if (parse_attr(p, q, &a)) p->attrs.data[c->attrs + slot_of(c->info, param)] = a;
  else c->poison = true;
}

/* max and min take two tensors; amax and amin reduce one. */
static const char *of_one_tensor(const call *c) {
  if (c->code == IR_OP_MAX) return " (did you mean amax?)";
  return c->code == IR_OP_MIN ? " (did you mean amin?)" : "";
}

/* Advice on a keyword argument that the operation does not have. */
static const char *advice_on_keyword(text_parser *p, const call *c, const text_token *t) {
  const char *here = text_habit_argument(p, t, c->info);
  const char *instead = text_habit_of(p, t, c->code);
  if (instead) return arena_printf(&p->m->memory, "; write %s", instead);
  if (here) return arena_printf(&p->m->memory, " (did you mean '%s'?)", here);
  suggestion s;
  suggest_init(&s, text_of(p, t), t->length);
  for (uint32_t i = 0; i < c->n_params; i++) suggest_offer(&s, c->info->params[i].name);
  return s.best ? text_did_you_mean(p, &s) : of_one_tensor(c);
}

static void parse_keyword(text_parser *p, call *c) {
  text_token t = p->token;
  uint32_t param = 0;
  while (param < c->n_params && !text_is_word(p, c->info->params[param].name)) param++;
  text_advance(p);
  text_advance(p);
  c->by_name = true;
  if (param == c->n_params) {
    const char *what = arena_printf(&p->m->memory, "%s has no argument '%.*s'%s", c->info->name,
                                    text_shown(&t), text_of(p, &t), advice_on_keyword(p, c, &t));
    refuse_argument(p, c, &t, what);
  } else if (c->given & (1u << param)) {
    refuse_argument(p, c, &t,
                    arena_printf(&p->m->memory, "%s is given twice", c->info->params[param].name));
  } else {
    fill(p, c, param);
  }
}

/* Advice on permute(x, 1, 0) and transpose(x, 0, 1), as other systems write them. */
static const char *too_many(text_parser *p, const call *c) {
  const ir_param *last = &c->info->params[c->n_params - 1];
  const char *advice = "";
  if (c->code == IR_OP_TRANSPOSE) advice = " (did you mean 'permute'?)";
  if (last->kind == IR_PARAM_INTS && text_is(p, TOKEN_INT))
    advice = ", whose list is written [1, 0]";
  return arena_printf(&p->m->memory, "too many arguments of %s%s", c->info->name, advice);
}

static void parse_argument(text_parser *p, call *c) {
  text_token t = p->token;
  if (text_is(p, TOKEN_NAME) && text_lexer_peek(&p->lexer).kind == TOKEN_ASSIGN) {
    parse_keyword(p, c);
  } else if (c->by_name) {
    refuse_argument(p, c, &t, "an argument without a name follows one with a name");
  } else if (c->position == c->n_params) {
    refuse_argument(p, c, &t, too_many(p, c));
  } else {
    fill(p, c, c->position);
    if (c->info->params[c->position].kind != IR_PARAM_TENSORS) c->position++;
  }
}

static void parse_arguments(text_parser *p, call *c) {
  text_advance(p);
  if (text_enter(p)) {
    while (!p->panic && !text_is(p, TOKEN_RPAREN)) {
      parse_argument(p, c);
      if (!text_accept(p, TOKEN_COMMA)) break;
    }
  }
  text_leave(p);
  text_expect(p, TOKEN_RPAREN, "',' or ')'");
}

static void require_params(text_parser *p, call *c) {
  for (uint32_t i = 0; i < c->n_params && !c->poison; i++) {
    const ir_param *q = &c->info->params[i];
    if (q->use != IR_USE_REQUIRED || (c->given & (1u << i))) continue;
    text_error(p, c->name, "%s needs %s%s; it is %s", c->info->name, q->name, of_one_tensor(c),
               text_signature(p, c->info));
    c->poison = true;
  }
}

/* ---- calls ---- */
static const char *advice_on(text_parser *p, const text_token *name) {
  const char *here = text_habit_function(p, name), *dtype = text_habit_dtype(p, name);
  if (ir_dtype_parse(text_of(p, name), name->length) != IR_DTYPE_NONE)
    dtype = arena_printf(&p->m->memory, "%.*s", text_shown(name), text_of(p, name));
  if (here) return arena_printf(&p->m->memory, "; write %s", here);
  if (dtype) return arena_printf(&p->m->memory, "; write cast(x, %s)", dtype);
  suggestion s;
  suggest_init(&s, text_of(p, name), name->length);
  for (int code = IR_OP_NONE + 1; code < IR_OP_COUNT; code++) {
    suggest_offer(&s, ir_op_info_of((ir_opcode)code)->name);
  }
  return text_did_you_mean(p, &s);
}

static text_value refuse_function(text_parser *p, const text_token *name) {
  text_error(p, name, "unknown function '%.*s'%s", text_shown(name), text_of(p, name),
             advice_on(p, name));
  diags *errors = p->lexer.errors;
  p->lexer.errors = NULL; /* its arguments are skipped: the function is the error */
  text_advance(p);
  text_skip_argument(p);
  while (text_accept(p, TOKEN_COMMA)) text_skip_argument(p);
  p->lexer.errors = errors;
  text_expect(p, TOKEN_RPAREN, "',' or ')'");
  return TEXT_POISONED;
}

static void open_call(text_parser *p, call *c) {
  c->operands = p->operands.len;
  c->attrs = p->attrs.len;
  for (; c->info->params[c->n_params].kind != IR_PARAM_END; c->n_params++) {
    ir_param_kind kind = c->info->params[c->n_params].kind;
    if (kind == IR_PARAM_TENSOR) vec_push(&p->m->memory, &p->operands, (ir_tensor){0});
    else if (kind != IR_PARAM_TENSORS) vec_push(&p->m->memory, &p->attrs, (ir_attr){0});
  }
}

static text_value build_call(text_parser *p, const call *c) {
  uint32_t n = p->operands.len - c->operands;
  const ir_tensor *operands = n ? &p->operands.data[c->operands] : NULL;
  const ir_attr *attrs = c->info->n_attrs ? &p->attrs.data[c->attrs] : NULL;
  return text_build(p, c->code, operands, n, attrs, text_token_loc(c->name));
}

text_value text_parse_call(text_parser *p, const text_token *name) {
  ir_opcode code = ir_op_parse(text_of(p, name), name->length);
  if (code == IR_OP_NONE) return refuse_function(p, name);
  call c = {.code = code, .info = ir_op_info_of(code), .name = name};
  open_call(p, &c);
  parse_arguments(p, &c);
  if (!p->panic) require_params(p, &c);
  text_value v = p->panic || c.poison ? TEXT_POISONED : build_call(p, &c);
  p->operands.len = c.operands;
  p->attrs.len = c.attrs;
  return v;
}
