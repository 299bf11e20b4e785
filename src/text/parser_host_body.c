/* y, z <- kernel(x, w) { t = x * w; return gelu(t), t } */
#include "text/parser_host.h"

typedef struct text_body {
  ir_block block;
  const ir_tensor *params;
  uint32_t n_params;
  uint32_t first_local; /* tensors from this one on are the body's */
  uint32_t base;        /* the name that nested results are named after */
  /* The newest operation and its result, whose type depends on what follows; none: all have theirs. */
  ir_op op;
  ir_tensor newest;
} text_body;

static text_body *body_of(text_parser *p) { return p->host->body; }

/* ---- names ---- */
static bool is_free(text_parser *p, uint32_t name) {
  return ir_func_lookup(p->f, name).kind == IR_NAME_NONE && !map_get(&p->host->streams, name, 0) &&
         !map_get(&p->host->comm_names, name, 0);
}

/* base$1, base$2, …: the first that is free. */
static uint32_t fresh_name(text_parser *p) {
  for (uint32_t k = 1;; k++) {
    const char *base = strings_text(&p->m->names, body_of(p)->base);
    uint32_t name = ir_name_numbered(p->m, base, k);
    if (is_free(p, name)) return name;
  }
}

static bool is_local(const text_body *b, ir_tensor t) { return t.id >= b->first_local; }

static bool sees(const text_body *b, ir_tensor t) {
  bool seen = is_local(b, t);
  for (uint32_t i = 0; i < b->n_params; i++) seen = seen || IR_SAME(b->params[i], t);
  return seen;
}

/* ---- operations ---- */
static bool infer_newest(text_parser *p) {
  text_body *b = body_of(p);
  ir_dtype dtype;
  ir_scalar sizes[IR_MAX_RANK];
  uint32_t rank;
  const ir_op_data op = *ir_op_at(p->f, b->op);
  if (!ir_host_infer(p->f, &op, &dtype, sizes, &rank)) return false;
  ir_host_retype(p->f, b->newest, dtype, sizes, rank);
  return true;
}

/* The newest operation gets its name and its place in the body. */
static void add_newest(text_parser *p, uint32_t name, ir_instr_data d) {
  text_body *b = body_of(p);
  d.kind = IR_COMPUTE;
  d.tensor = b->newest;
  d.op = b->op;
  ir_tensor_at(p->f, b->newest)->name = name;
  ir_host_key_by_name(p->f, b->op);
  text_host_declare(p, name, (ir_name_entry){IR_NAME_TENSOR, b->newest.id});
  text_host_add(p, &b->block, &d);
  b->newest = (ir_tensor){0};
}

/* Another operation follows: this one was nested in the statement. */
static bool settle_nested(text_parser *p) {
  text_body *b = body_of(p);
  if (!b->newest.id) return true;
  bool good = infer_newest(p);
  if (good) add_newest(p, fresh_name(p), (ir_instr_data){.at = ir_op_at(p->f, b->op)->at});
  b->newest = (ir_tensor){0};
  return good;
}

static bool sees_operands(text_parser *p, const ir_tensor *operands, uint32_t n, loc at) {
  for (uint32_t i = 0; i < n; i++) {
    ir_tensor t = operands[i];
    if (!t.id || ir_tensor_at(p->f, t)->kind == IR_TENSOR_CONST || sees(body_of(p), t)) continue;
    diag_error(&p->m->errors, at,
               "the kernel reads '%s', which is not one of its parameters: write kernel(..., %s)",
               ir_tensor_name(p->f, t), ir_tensor_name(p->f, t));
    return false;
  }
  return true;
}

text_value text_body_build(text_parser *p, ir_opcode code, const ir_tensor *operands, uint32_t n,
                           const ir_attr *attrs, loc at) {
  text_body *b = body_of(p);
  if (!settle_nested(p) || !sees_operands(p, operands, n, at)) return TEXT_POISONED;
  b->newest = ir_host_tensor(p->f, 0, IR_F32, NULL, 0, at);
  b->op = ir_host_op(p->f, code, operands, n, attrs, b->newest, at);
  return (text_value){.kind = TEXT_TENSOR, .at = at, .tensor = b->newest};
}

/* The expression of a statement. False: it has been reported. */
static bool parse_expression(text_parser *p, uint32_t base, text_value *v) {
  text_token first = p->token;
  if (text_is_word(p, "kernel") && text_lexer_peek(&p->lexer).kind == TOKEN_LPAREN) {
    text_error(p, &first, "a kernel cannot hold another kernel");
    p->panic = true;
    return false;
  }
  body_of(p)->base = base;
  body_of(p)->newest = (ir_tensor){0};
  p->operands.len = p->attrs.len = 0;
  *v = text_parse_expr(p);
  if (p->panic || v->kind == TEXT_POISON) return false;
  if (v->kind == TEXT_TENSOR) return true;
  text_refuse_lone(p, &first, v->kind);
  return false;
}

/* ---- t = op(…), t : f32[n] = op(…) at [offsets] ---- */
typedef struct stated_type {
  bool given, good;
  ir_dtype dtype;
  const ir_scalar *sizes;
  uint32_t rank;
} stated_type;

static stated_type parse_stated(text_parser *p, const text_token *name) {
  stated_type s = {.given = text_accept(p, TOKEN_COLON)};
  if (!s.given) return s;
  s.dtype = text_parse_type(p);
  p->declaring = false;
  s.good = !p->panic && s.dtype != IR_DTYPE_NONE && text_host_resolve_sizes(p, name);
  s.rank = p->scalars.len;
  s.sizes = arena_copy(&p->m->memory, p->scalars.data, s.rank * sizeof *s.sizes);
  return s;
}

static bool give_type(text_parser *p, const text_token *name, const stated_type *type) {
  text_body *b = body_of(p);
  if (type->given) {
    ir_host_retype(p->f, b->newest, type->dtype, type->sizes, type->rank);
    ir_tensor_at(p->f, b->newest)->stated = true;
    return true;
  }
  if (!text_is_word(p, "at")) return infer_newest(p);
  text_error(p, &p->token, "a part of a result needs a type: '%.*s : f32[...] = ...'",
             text_shown(name), text_of(p, name));
  p->panic = true;
  return false;
}

static void parse_local(text_parser *p) {
  text_token name = p->token, first;
  uint32_t interned = text_intern(p, &name);
  text_advance(p);
  stated_type type = parse_stated(p, &name);
  if (!text_expect(p, TOKEN_ASSIGN, "'=' and an operation")) return;
  bool taken = text_host_is_taken(p, &name);
  first = p->token;
  text_value v;
  bool good = parse_expression(p, interned, &v) && (!type.given || type.good) && !taken;
  if (good && !IR_SAME(v.tensor, body_of(p)->newest)) {
    text_refuse_lone(p, &first, TEXT_TENSOR);
    good = false;
  }
  ir_instr_data d = {.at = text_token_loc(&name), .tensor = body_of(p)->newest};
  d.op = body_of(p)->op;
  good = good && give_type(p, &name, &type) && text_host_parse_window(p, &d);
  if (good) add_newest(p, interned, d);
  else text_poison(p, interned);
}

/* ---- return op(…), t ---- */
/* An operation that is only returned has the type of its destination, if that is known. */
static ir_tensor return_newest(text_parser *p, ir_tensor destination) {
  text_body *b = body_of(p);
  ir_axis dims[IR_MAX_RANK];
  if (!destination.id) return (ir_tensor){0};
  ir_scalar sizes[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(p->f, destination, dims);
  for (uint32_t i = 0; i < rank; i++) sizes[i] = ir_axis_size(p->f, dims[i]);
  ir_host_retype(p->f, b->newest, ir_tensor_at(p->f, destination)->dtype, sizes, rank);
  ir_instr_data d = {.at = ir_op_at(p->f, b->op)->at, .tensor = b->newest, .op = b->op};
  ir_tensor t = b->newest;
  if (!text_host_parse_window(p, &d)) return (ir_tensor){0};
  add_newest(p, fresh_name(p), d);
  return t;
}

static ir_tensor parse_returned(text_parser *p, ir_tensor destination) {
  text_token first = p->token;
  text_value v;
  uint32_t base = destination.id ? ir_tensor_at(p->f, destination)->name : 0;
  if (!parse_expression(p, base, &v)) return (ir_tensor){0};
  if (IR_SAME(v.tensor, body_of(p)->newest)) return return_newest(p, destination);
  if (is_local(body_of(p), v.tensor)) return v.tensor;
  text_refuse_lone(p, &first, TEXT_TENSOR);
  return (ir_tensor){0};
}

/* What each of the n destinations gets; false: reported. */
static bool parse_return(text_parser *p, const ir_tensor *destinations, uint32_t n,
                         ir_tensor *returns) {
  text_token word = p->token;
  uint32_t k = 0;
  bool good = true;
  text_advance(p);
  do {
    ir_tensor t = parse_returned(p, destinations[k < n ? k : n - 1]);
    if (k < n) returns[k] = t;
    good = good && t.id;
    k++;
  } while (text_accept(p, TOKEN_COMMA));
  if (p->panic || k == n) return good && !p->panic;
  text_error(p, &word, "the kernel has %u destination%s, but returns %u", n, n == 1 ? "" : "s", k);
  return false;
}

/* ---- the kernel ---- */
static bool parse_params(text_parser *p, text_body *b) {
  VEC(ir_tensor) params = {0};
  bool good = true;
  text_expect(p, TOKEN_LPAREN, "'('");
  while (!p->panic && !text_is(p, TOKEN_RPAREN)) {
    text_token t = p->token;
    ir_tensor x = text_host_parse_tensor(p);
    good = good && x.id;
    for (uint32_t i = 0; i < params.len; i++) {
      if (x.id == 0 || !IR_SAME(params.data[i], x)) continue;
      text_error(p, &t, "'%.*s' is a parameter already", text_shown(&t), text_of(p, &t));
      good = false;
    }
    vec_push(&p->m->memory, &params, x);
    if (!text_accept(p, TOKEN_COMMA)) break;
  }
  text_expect(p, TOKEN_RPAREN, "',' or ')'");
  b->params = params.data;
  b->n_params = params.len;
  return good && !p->panic;
}

static bool parse_statement(text_parser *p, const ir_tensor *to, uint32_t n, ir_tensor *returns,
                            bool *returned) {
  bool good = true;
  text_begin_statement(p);
  text_token_kind next = text_lexer_peek(&p->lexer).kind;
  if (*returned) {
    text_expected(p, "'}': the return is the last statement of a kernel");
  } else if (text_is(p, TOKEN_RETURN)) {
    *returned = true;
    good = parse_return(p, to, n, returns);
  } else if (text_is(p, TOKEN_NAME) && (next == TOKEN_ASSIGN || next == TOKEN_COLON)) {
    parse_local(p);
  } else {
    text_expected(p, "'t = op(...)' or 'return ...': a kernel holds operations only");
    text_advance(p);
  }
  text_end_statement(p);
  return good;
}

static bool parse_statements(text_parser *p, loc at, const ir_tensor *to, uint32_t n,
                             ir_tensor *returns) {
  bool returned = false, good = true;
  for (;;) {
    while (text_accept(p, TOKEN_NEWLINE) || text_accept(p, TOKEN_SEMICOLON)) continue;
    if (text_is(p, TOKEN_RBRACE) || text_at_item(p)) break;
    good = parse_statement(p, to, n, returns, &returned) && good;
  }
  if (!returned) diag_error(&p->m->errors, at, "this kernel has no return");
  return good && returned;
}

/* Nothing is added to the program if anything in the body is wrong. */
void text_host_parse_kernel(text_parser *p, const text_token *name, const ir_tensor *to, uint32_t n,
                            ir_block *block) {
  text_token start = p->start;
  text_body b = {0};
  ir_instr_data d = {.kind = IR_LAUNCH, .at = text_token_loc(name)};
  uint32_t errors = p->m->errors.errors, names = p->host->names.len, scope = p->host->scope;
  text_advance(p);
  bool good = parse_params(p, &b);
  if (!text_expect(p, TOKEN_LBRACE, "'{' and the operations of the kernel")) return;
  ir_tensor *returns = ARENA_ARRAY(&p->m->memory, n, ir_tensor);
  b.first_local = p->f->tensors.len;
  p->host->scope = names;
  p->host->body = &b;
  good = parse_statements(p, d.at, to, n, returns) && good;
  p->host->body = NULL;
  p->host->scope = scope;
  text_host_leave_scope(p, names);
  text_host_close_block(p, d.at, "kernel");
  p->start = start;
  for (uint32_t i = 0; i < n; i++) good = good && to[i].id;
  if (!good || p->panic || errors != p->m->errors.errors) return;
  d.tensor = to[0];
  d.op = ir_host_launch_op(p->f, b.params, b.n_params, to, n, d.at);
  d.body = b.block;
  d.returns = returns;
  text_host_add(p, block, &d);
}
