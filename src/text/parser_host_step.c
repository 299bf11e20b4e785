#include <string.h>

#include "ir/build.h"
#include "text/parser_host.h"

void text_host_add(text_parser *p, ir_block *block, const ir_instr_data *d) {
  ir_block_add(p->f, block, ir_host_instr(p->f, d));
}

ir_tensor text_host_parse_tensor(text_parser *p) {
  text_token t = p->token;
  if (!text_expect(p, TOKEN_NAME, "the name of a tensor")) return (ir_tensor){0};
  ir_name_entry e = text_lookup(p, &t, "tensor");
  return (ir_tensor){text_is_kind(p, &t, e, IR_NAME_TENSOR) ? e.id : 0};
}

/* ---- streams ---- */
/* A name that current_stream() gave, or the index of a worker stream. */
static bool parse_stream(text_parser *p, ir_stream *s) {
  text_token t = p->token;
  *s = (ir_stream){0};
  if (text_is(p, TOKEN_NAME) && map_get(&p->host->streams, text_intern(p, &t), 0)) {
    s->name = text_intern(p, &t);
    text_advance(p);
    return true;
  }
  s->index = text_parse_scalar(p);
  return s->index.id != 0;
}

/* ---- deallocate(t), set_stream(s), wait_stream(s) ---- */
static void refuse_action(text_parser *p, const text_token *word) {
  static const char *const actions[] = {"deallocate", "set_stream", "wait_stream", "group_start",
                                        "wait",       "send",       "recv"};
  ir_comm_kind kind;
  suggestion s;
  suggest_init(&s, text_of(p, word), word->length);
  for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
    suggest_offer(&s, actions[i]);
  }
  bool op = ir_op_parse(text_of(p, word), word->length) != IR_OP_NONE;
  if (!op && text_host_at_comm(p, &kind)) {
    text_error(p, word, "a communication has a name to wait for: 'c = %.*s(...)'", text_shown(word),
               text_of(p, word));
  } else {
    text_error(p, word, "unknown statement '%.*s'%s", text_shown(word), text_of(p, word),
               op ? "; an operation names its destination: 'y <- op(...)'"
                  : text_did_you_mean(p, &s));
  }
  p->panic = true;
}

static void parse_action(text_parser *p, ir_block *block) {
  text_token word = p->token;
  ir_instr_data d = {.at = text_token_loc(&word)};
  if (text_host_parse_comm_action(p, block)) return;
  bool free = text_is_word(p, "deallocate"), set = text_is_word(p, "set_stream");
  if (!free && !set && !text_is_word(p, "wait_stream")) {
    refuse_action(p, &word);
    return;
  }
  d.kind = free ? IR_DEALLOCATE : set ? IR_SET_STREAM : IR_WAIT_STREAM;
  text_advance(p);
  text_advance(p);
  bool good = true;
  if (free) good = (d.tensor = text_host_parse_tensor(p)).id != 0;
  else good = parse_stream(p, &d.stream);
  if (text_expect(p, TOKEN_RPAREN, "')'") && good) text_host_add(p, block, &d);
}

/* ---- t : f32[n, m] = allocate(), t : f32[m, n] = transpose(x) ---- */
bool text_host_resolve_sizes(text_parser *p, const text_token *name) {
  if (!text_resolve_stated(p)) return false;
  if (p->scalars.len > IR_MAX_RANK) {
    text_error(p, name, "a tensor has at most %d axes, not %u", IR_MAX_RANK, p->scalars.len);
    return false;
  }
  for (uint32_t i = 0; i < p->scalars.len; i++) {
    const text_token *at = &p->extents.data[i].token;
    int64_t value;
    if (!p->scalars.data[i].id) {
      text_error(p, at, "the extents of an allocation are integer expressions, not ?");
      return false;
    }
    if (ir_scalar_is_const(&p->m->scalars, p->scalars.data[i], &value) && value < 0) {
      text_error(p, at, "extent %u of '%.*s' cannot be negative: %lld", i, text_shown(name),
                 text_of(p, name), (long long)value);
      return false;
    }
  }
  return true;
}

static void expect_empty_call(text_parser *p, const char *word, const char *wanted) {
  if (!text_is_word(p, word)) {
    text_expected(p, wanted);
    return;
  }
  text_advance(p);
  text_expect(p, TOKEN_LPAREN, "'('");
  text_expect(p, TOKEN_RPAREN, "')'");
}

/* allocate(), allocate(order=[1, 0]) */
static void parse_allocate_call(text_parser *p, const int64_t **order, uint32_t *n) {
  if (!text_is_word(p, "allocate")) {
    text_expected(p, "allocate() or a view of another tensor");
    return;
  }
  text_advance(p);
  text_expect(p, TOKEN_LPAREN, "'('");
  if (!p->panic && text_is_word(p, "order")) {
    text_advance(p);
    text_expect(p, TOKEN_ASSIGN, "'='");
    if (!p->panic) p->panic = !text_parse_ints(p, "order", order, n) || p->panic;
  }
  text_expect(p, TOKEN_RPAREN, "')'");
}

/* t : f32[m, n] = transpose(x): the type has been read, and is in p->scalars. */
static void parse_view(text_parser *p, const text_token *name, ir_dtype dtype, ir_mesh mesh,
                       ir_block *block) {
  ir_instr_data d = {.kind = IR_VIEW, .at = text_token_loc(name)};
  uint32_t interned = text_intern(p, name);
  bool taken = text_host_is_taken(p, name);
  d.tensor =
      ir_host_tensor(p->f, interned, dtype, p->scalars.data, p->scalars.len, text_token_loc(name));
  text_host_place(p, d.tensor, mesh, true);
  p->operands.len = p->attrs.len = 0;
  p->host->destination = d.tensor;
  p->host->more.len = 0;
  p->host->op = (ir_op){0};
  text_value v = text_parse_expr(p);
  d.op = p->host->op;
  if (p->panic || taken || v.kind == TEXT_POISON || !d.op.id) {
    text_poison(p, interned);
    return;
  }
  const ir_op_data *op = ir_op_at(p->f, d.op);
  if (!ir_op_is_view(op->code)) {
    text_error(p, name, "%s computes new values; allocate '%.*s' and write '%.*s <- %s(...)'",
               ir_op_info_of(op->code)->name, text_shown(name), text_of(p, name), text_shown(name),
               text_of(p, name), ir_op_info_of(op->code)->name);
    text_poison(p, interned);
    return;
  }
  text_host_declare(p, interned, (ir_name_entry){IR_NAME_TENSOR, d.tensor.id});
  text_host_add(p, block, &d);
}

static void parse_typed(text_parser *p, const text_token *name, ir_block *block) {
  ir_dtype dtype = text_parse_type(p);
  p->declaring = false;
  ir_mesh mesh;
  bool placed = text_host_parse_on(p, &mesh);
  bool good = !p->panic && dtype != IR_DTYPE_NONE && text_host_resolve_sizes(p, name) && placed &&
              text_host_cuts_fit(p, mesh);
  text_expect(p, TOKEN_ASSIGN, "'= allocate()' or a view of another tensor after the type");
  if (!p->panic && good && !text_is_word(p, "allocate") &&
      text_lexer_peek(&p->lexer).kind == TOKEN_LPAREN) {
    parse_view(p, name, dtype, mesh, block);
    return;
  }
  if (!good && !text_is_word(p, "allocate")) p->panic = true; /* a view, of a type that is wrong */
  const int64_t *order = NULL;
  uint32_t n_order = 0;
  parse_allocate_call(p, &order, &n_order);
  if (p->panic || !good || text_host_is_taken(p, name)) {
    text_poison(p, text_intern(p, name));
    return;
  }
  ir_instr_data d = {.kind = IR_ALLOCATE, .at = text_token_loc(name)};
  d.tensor = ir_host_tensor(p->f, text_intern(p, name), dtype, p->scalars.data, p->scalars.len,
                            text_token_loc(name));
  text_host_place(p, d.tensor, mesh, true);
  if (order && !ir_host_order(p->f, d.tensor, order, n_order)) {
    text_error(p, name, "the order must name each of the %u dimensions once", p->scalars.len);
    text_poison(p, text_intern(p, name));
    return;
  }
  text_host_declare(p, text_intern(p, name), (ir_name_entry){IR_NAME_TENSOR, d.tensor.id});
  text_host_add(p, block, &d);
}

/* ---- name = … ---- */
static void parse_current_stream(text_parser *p, const text_token *name, ir_block *block) {
  expect_empty_call(p, "current_stream", "current_stream()");
  if (p->panic || !text_host_declare_stream(p, name)) return;
  ir_instr_data d = {.kind = IR_CURRENT_STREAM, .at = text_token_loc(name)};
  d.stream.name = text_intern(p, name);
  text_host_add(p, block, &d);
}

static void refuse_definition(text_parser *p) {
  suggestion s;
  suggest_init(&s, text_of(p, &p->token), p->token.length);
  text_host_suggest_comms(&s);
  bool word = text_is(p, TOKEN_NAME) && text_lexer_peek(&p->lexer).kind == TOKEN_LPAREN;
  bool op = ir_op_parse(text_of(p, &p->token), p->token.length) != IR_OP_NONE;
  if (word && !op && s.best) {
    text_error(p, &p->token, "unknown communication '%.*s'%s", text_shown(&p->token),
               text_of(p, &p->token), text_did_you_mean(p, &s));
    p->panic = true;
  }
  text_expected(p, "current_stream(), select(...), shard(...) or a communication; operations are "
                   "written 'y <- op(...)'");
}

static void parse_definition(text_parser *p, const text_token *name, ir_block *block) {
  ir_comm_kind kind;
  if (text_host_at_comm(p, &kind)) {
    text_host_parse_comm(p, name, block);
  } else if (text_is_word(p, "group_end")) {
    text_host_parse_group_end(p, name, block);
  } else if (text_is_word(p, "current_stream")) {
    parse_current_stream(p, name, block);
  } else if (text_is_word(p, "select") || text_is_word(p, "shard")) {
    text_host_parse_slice(p, name, block);
  } else if (text_is_word(p, "allocate")) {
    text_expected(p, "the type in front: 't : f32[n] = allocate()'");
  } else {
    refuse_definition(p);
  }
}

/* ---- dst <- op(…) at [offsets] sliced [[dims], …] ---- */
text_value text_host_build(text_parser *p, ir_opcode code, const ir_tensor *operands, uint32_t n,
                           const ir_attr *attrs, loc at) {
  text_host *host = p->host;
  if (host->body) return text_body_build(p, code, operands, n, attrs, at);
  if (host->op.id) {
    diag_error(&p->m->errors, at,
               "operations of a host program do not nest; give the inner result a tensor");
    return TEXT_POISONED;
  }
  const ir_op_info *info = ir_op_info_of(code);
  if (host->more.len >= info->n_results) {
    diag_error(&p->m->errors, at, "%s has %u result%s, not %u", info->name, info->n_results,
               info->n_results == 1 ? "" : "s", host->more.len + 1);
    return TEXT_POISONED;
  }
  host->op = ir_host_op(p->f, code, operands, n, attrs, host->destination, at);
  if (host->more.len) ir_host_op_more(p->f, host->op, host->more.data, host->more.len);
  return (text_value){.kind = TEXT_TENSOR, .at = at, .tensor = host->destination};
}

static bool parse_offsets(text_parser *p, ir_instr_data *d, uint32_t rank) {
  text_token first = p->token;
  uint32_t n;
  if (!text_parse_scalars(p, "the offsets", &d->offsets, &n)) return false;
  if (n == rank) return true;
  text_error(p, &first, "'at' needs %u offsets, one per dimension of '%s', not %u", rank,
             ir_tensor_name(p->f, d->tensor), n);
  return false;
}

static bool parse_mask(text_parser *p, uint32_t rank, uint32_t *mask) {
  text_token first = p->token;
  const int64_t *dims;
  uint32_t n;
  *mask = 0;
  if (!text_parse_ints(p, "the dimensions of an operand", &dims, &n)) return false;
  for (uint32_t i = 0; i < n; i++) {
    if (dims[i] < 0 || dims[i] >= (int64_t)rank) {
      text_error(p, &first, "dimension %lld is out of range: the destination has %u",
                 (long long)dims[i], rank);
      return false;
    }
    *mask |= 1u << dims[i];
  }
  return true;
}

/* [[0], [], [0, 1]]: a list of dimensions per operand. */
static bool parse_masks(text_parser *p, uint32_t rank, uint32_t *masks, uint32_t n) {
  text_token first = p->token;
  uint32_t k = 0;
  bool good = true;
  text_expect(p, TOKEN_LBRACKET, "a list like [[0], []]: the sliced dimensions of each operand");
  while (!p->panic && !text_is(p, TOKEN_RBRACKET)) {
    uint32_t mask;
    good = parse_mask(p, rank, &mask) && good;
    if (k < n) masks[k] = mask;
    k++;
    if (!text_accept(p, TOKEN_COMMA)) break;
  }
  if (!text_expect(p, TOKEN_RBRACKET, "',' or ']'") || !good || k == n) return good && !p->panic;
  text_error(p, &first, "'sliced' has %u lists for %u operands", k, n);
  return false;
}

bool text_host_parse_window(text_parser *p, ir_instr_data *d) {
  if (!text_is_word(p, "at")) return true;
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(p->f, d->tensor, dims), n = ir_op_at(p->f, d->op)->n_operands;
  text_advance(p);
  bool good = parse_offsets(p, d, rank);
  uint32_t *masks = ARENA_ARRAY(&p->m->memory, n, uint32_t);
  d->sliced = masks;
  if (!p->panic && text_is_word(p, "sliced")) {
    text_advance(p);
    good = parse_masks(p, rank, masks, n) && good;
  }
  return good && !p->panic;
}

/* The two characters together; apart they compare with a negative number. */
static bool at_arrow(const text_parser *p) {
  text_token next = text_lexer_peek(&p->lexer);
  return text_is(p, TOKEN_LT) && next.kind == TOKEN_MINUS && next.offset == p->token.offset + 1;
}

/* `, i, j` between the first destination and the arrow. False: one of them is no tensor, which is
 * reported, or the parser panics. */
static bool parse_more(text_parser *p) {
  bool good = true;
  p->host->more.len = 0;
  while (!p->panic && text_accept(p, TOKEN_COMMA)) {
    ir_tensor t = text_host_parse_tensor(p);
    good = good && t.id;
    vec_push(&p->m->memory, &p->host->more, t);
  }
  if (!p->panic && !at_arrow(p)) text_expected(p, "',' or '<-' after a destination");
  return good && !p->panic;
}

static bool at_kernel(const text_parser *p) {
  return text_is_word(p, "kernel") && text_lexer_peek(&p->lexer).kind == TOKEN_LPAREN;
}

/* The body is read even if a destination is wrong; that destination is none. */
static void parse_kernel(text_parser *p, const text_token *name, ir_block *block) {
  text_host *host = p->host;
  uint32_t n = 1 + host->more.len;
  ir_tensor *to = ARENA_ARRAY(&p->m->memory, n, ir_tensor);
  to[0] = host->destination;
  for (uint32_t i = 1; i < n; i++) to[i] = host->more.data[i - 1];
  text_host_parse_kernel(p, name, to, n, block);
}

static void parse_compute(text_parser *p, const text_token *name, ir_block *block) {
  ir_name_entry e = text_lookup(p, name, "tensor");
  bool good = parse_more(p);
  if (p->panic) return;
  text_advance(p);
  text_advance(p);
  text_token first = p->token;
  p->operands.len = p->attrs.len = 0;
  p->host->destination = (ir_tensor){text_is_kind(p, name, e, IR_NAME_TENSOR) ? e.id : 0};
  p->host->op = (ir_op){0};
  if (at_kernel(p)) {
    parse_kernel(p, name, block);
    return;
  }
  text_value v = text_parse_expr(p);
  if (p->panic) return;
  if (v.kind != TEXT_POISON && !p->host->op.id) text_refuse_lone(p, &first, v.kind);
  ir_instr_data d = {.kind = IR_COMPUTE, .at = text_token_loc(name)};
  d.tensor = p->host->destination;
  d.op = p->host->op;
  p->panic = v.kind == TEXT_POISON || !d.tensor.id || !d.op.id || !good; /* has been reported */
  if (!p->panic && text_host_parse_window(p, &d)) text_host_add(p, block, &d);
}

void text_parse_host_step(text_parser *p, ir_block *block) {
  text_token name = p->token;
  if (!text_is(p, TOKEN_NAME)) {
    text_expected(p, "a statement");
    text_advance(p);
    return;
  }
  if (text_lexer_peek(&p->lexer).kind == TOKEN_LPAREN) {
    parse_action(p, block);
    return;
  }
  text_advance(p);
  if (text_accept(p, TOKEN_COLON)) parse_typed(p, &name, block);
  else if (text_accept(p, TOKEN_ASSIGN)) parse_definition(p, &name, block);
  else if (at_arrow(p) || text_is(p, TOKEN_COMMA)) parse_compute(p, &name, block);
  else text_expected(p, "':', '=' or '<-' after the name");
}
