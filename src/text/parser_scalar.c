#include "text/parser.h"

#define NONE ((ir_scalar){0})

static ir_scalars *scalars_of(const text_parser *p) { return &p->m->scalars; }

bool text_parse_literal(text_parser *p, bool negative, int64_t *value) {
  text_token t = p->token;
  text_advance(p);
  if (t.integer > INT64_MAX) {
    *value = INT64_MIN;
    if (negative) return true;
    text_error(p, &t, "this integer does not fit 64 bits");
    return false;
  }
  *value = negative ? -(int64_t)t.integer : (int64_t)t.integer;
  return true;
}

/* ---- extents and mesh sizes ---- */
/* x.sum() is sum(x), x.T is transpose(x). The name after the dot is in hand. */
static const char *advice_on_member(text_parser *p, const text_token *tensor) {
  const text_token *t = &p->token;
  const char *here = text_habit_function(p, t), *of = text_of(p, tensor);
  ir_opcode code = ir_op_parse(text_of(p, t), t->length);
  if (code != IR_OP_NONE) here = text_signature(p, ir_op_info_of(code));
  if (text_is_word(p, "T") || text_is_word(p, "t")) here = "transpose(x)";
  if (text_is_word(p, "shape") || text_is_word(p, "size")) here = NULL;
  if (here)
    return arena_printf(&p->m->memory, "tensors have no '%.*s'; write %s", text_shown(t),
                        text_of(p, t), here);
  return arena_printf(&p->m->memory, "tensors have no '%.*s'; '%.*s.0' is the first extent",
                      text_shown(t), text_of(p, t), text_shown(tensor), of);
}

ir_scalar text_parse_extent_of(text_parser *p, const text_token *t, ir_tensor tensor) {
  if (!text_accept(p, TOKEN_DOT)) {
    text_error(p, t, "'%.*s' is a tensor, not an integer; '%.*s.0' is its first extent",
               text_shown(t), text_of(p, t), text_shown(t), text_of(p, t));
    return NONE;
  }
  text_token number = p->token;
  if (text_is(p, TOKEN_NAME)) {
    text_wrong(p, &number, advice_on_member(p, t));
    return NONE;
  }
  if (!text_expect(p, TOKEN_INT, "the number of a dimension")) return NONE;
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_axes_dims(p->f, ir_tensor_at(p->f, tensor)->defined.logical, dims);
  if (number.integer < rank) return ir_axis_whole(p->f, dims[number.integer]);
  text_error(p, &number, "'%.*s' has %u dimensions, counted from 0", text_shown(t), text_of(p, t),
             rank);
  return NONE;
}

bool text_parse_mesh_axis(text_parser *p, uint32_t *axis) {
  static const char *const letters[] = {"x", "y", "z"};
  for (uint32_t i = 0; i < 3; i++) {
    if (!text_is_word(p, letters[i])) continue;
    *axis = i;
    text_advance(p);
    return true;
  }
  if (!text_is(p, TOKEN_INT) || p->token.integer >= IR_MESH_MAX_RANK) {
    text_expected(p, "a mesh axis: x, y, z or its number");
    return false;
  }
  *axis = (uint32_t)p->token.integer;
  text_advance(p);
  return true;
}

bool text_parse_mesh_size(text_parser *p, const text_token *t, ir_mesh mesh, uint32_t *axis,
                          bool *named) {
  const ir_mesh_data *m = ir_mesh_at(p->f, mesh);
  *axis = 0;
  *named = text_accept(p, TOKEN_DOT);
  if (*named && !text_parse_mesh_axis(p, axis)) return false;
  if (!*named && m->rank != 1) {
    text_error(p, t, "mesh '%.*s' has %u axes; say which one's size: '%.*s.x'", text_shown(t),
               text_of(p, t), m->rank, text_shown(t), text_of(p, t));
    return false;
  }
  if (*axis >= m->rank) {
    text_error(p, t, "mesh '%.*s' has only %u axes", text_shown(t), text_of(p, t), m->rank);
    return false;
  }
  return true;
}

bool text_parse_mesh_and_axis(text_parser *p, ir_mesh *mesh, uint32_t *axis) {
  text_token t = p->token;
  if (!text_expect(p, TOKEN_NAME, "a mesh and its axis, like d.x")) return false;
  ir_name_entry e = text_lookup(p, &t, "mesh");
  bool named = text_accept(p, TOKEN_DOT);
  *mesh = (ir_mesh){e.id};
  *axis = 0;
  if (named && !text_parse_mesh_axis(p, axis)) return false;
  if (!text_is_kind(p, &t, e, IR_NAME_MESH)) return false;
  uint32_t rank = ir_mesh_at(p->f, *mesh)->rank;
  if (!named && rank != 1) {
    text_error(p, &t, "mesh '%.*s' has %u axes; say which one: '%.*s.x'", text_shown(&t),
               text_of(p, &t), rank, text_shown(&t), text_of(p, &t));
    return false;
  }
  if (*axis < rank) return true;
  text_error(p, &t, "mesh '%.*s' has only %u ax%s", text_shown(&t), text_of(p, &t), rank,
             rank == 1 ? "is" : "es");
  return false;
}

static ir_scalar mesh_size(text_parser *p, const text_token *t, ir_mesh mesh) {
  uint32_t axis;
  bool named;
  if (!text_parse_mesh_size(p, t, mesh, &axis, &named)) return NONE;
  return ir_scalar_const(scalars_of(p), ir_mesh_size(ir_mesh_at(p->f, mesh), axis));
}

/* ---- expressions ---- */
static ir_scalar parse_sum(text_parser *p);

static bool is_divisor(text_parser *p, const text_token *at, ir_scalar x) {
  int64_t value;
  if (!ir_scalar_is_const(scalars_of(p), x, &value) || value >= 1) return true;
  text_error(p, at, "a divisor must be at least 1");
  return false;
}

static ir_scalar call(text_parser *p, const text_token *name, ir_scalar a, ir_scalar b) {
  char first = *text_of(p, name), second = text_of(p, name)[1];
  if (first == 'c') {
    return is_divisor(p, name, b) ? ir_scalar_ceildiv(scalars_of(p), a, b) : NONE;
  }
  return second == 'i' ? ir_scalar_min(scalars_of(p), a, b) : ir_scalar_max(scalars_of(p), a, b);
}

bool text_at_coordinate(const text_parser *p) {
  return text_is_word(p, "me") && text_lexer_peek(&p->lexer).kind == TOKEN_LPAREN;
}

ir_scalar text_parse_coordinate(text_parser *p) {
  text_token word = p->token;
  ir_mesh mesh;
  uint32_t axis;
  text_advance(p);
  text_advance(p);
  bool good = text_parse_mesh_and_axis(p, &mesh, &axis);
  text_expect(p, TOKEN_RPAREN, "')'");
  if (p->panic || !good) return NONE;
  if (p->host) return ir_host_coordinate(p->f, mesh, axis);
  text_error(p, &word, "me() is the coordinate of a device: it is for host programs only");
  return NONE;
}

/* ceildiv(a, b), min(a, b) or max(a, b), with the name in hand. */
static ir_scalar parse_call(text_parser *p) {
  text_token name = p->token;
  text_advance(p);
  text_advance(p);
  ir_scalar a = text_enter(p) ? parse_sum(p) : NONE;
  text_expect(p, TOKEN_COMMA, "','");
  ir_scalar b = p->panic ? NONE : parse_sum(p);
  text_expect(p, TOKEN_RPAREN, "')'");
  text_leave(p);
  return p->panic || !a.id || !b.id ? NONE : call(p, &name, a, b);
}

static bool is_of_chunks(const text_parser *p) {
  return text_is_word(p, "chunk") || text_is_word(p, "chunk_start");
}

/* chunk(i, [7, 5, 3]) or chunk_start(i, [7, 5, 3]), with the name in hand. */
static ir_scalar parse_of_chunks(text_parser *p) {
  text_token name = p->token;
  const int64_t *lengths = NULL;
  uint32_t n = 0;
  bool length = text_is_word(p, "chunk");
  text_advance(p);
  text_advance(p);
  ir_scalar index = text_enter(p) ? parse_sum(p) : NONE;
  text_expect(p, TOKEN_COMMA, "','");
  bool good = !p->panic && text_parse_ints(p, "the chunks", &lengths, &n);
  text_expect(p, TOKEN_RPAREN, "')'");
  text_leave(p);
  if (p->panic || !good || !index.id) return NONE;
  ir_scalar list = ir_scalar_list(scalars_of(p), lengths, n);
  if (ir_scalar_is_overflow(list)) {
    text_error(p, &name, "the chunks are negative or overflow");
    return NONE;
  }
  return length ? ir_scalar_chunk(scalars_of(p), index, list)
                : ir_scalar_chunk_start(scalars_of(p), index, list);
}

static ir_scalar parse_name(text_parser *p) {
  text_token t = p->token;
  if (text_lexer_peek(&p->lexer).kind == TOKEN_LPAREN) {
    if (is_of_chunks(p)) return parse_of_chunks(p);
    if (text_is_word(p, "ceildiv") || text_is_word(p, "min") || text_is_word(p, "max")) {
      return parse_call(p);
    }
    if (text_at_coordinate(p)) return text_parse_coordinate(p);
    text_expected(p, p->host ? "an integer expression; its functions are ceildiv, min, max, chunk, "
                               "chunk_start and me"
                             : "an integer expression; its functions are ceildiv, min, max, chunk "
                               "and chunk_start");
    return NONE;
  }
  text_advance(p);
  if (p->host && text_host_is_ahead(p, &t)) return text_host_extent_ahead(p, &t);
  ir_name_entry e = text_lookup(p, &t, "name");
  switch (e.kind) {
  case IR_NAME_EXTENT: return (ir_scalar){e.id};
  case IR_NAME_MESH: return mesh_size(p, &t, (ir_mesh){e.id});
  case IR_NAME_TENSOR: return text_parse_extent_of(p, &t, (ir_tensor){e.id});
  case IR_NAME_NONE: break;
  }
  /* An unknown name may still be followed by .k. */
  if (text_accept(p, TOKEN_DOT)) text_advance(p);
  return NONE;
}

static ir_scalar parse_primary(text_parser *p) {
  if (text_is(p, TOKEN_NAME)) return parse_name(p);
  if (text_is(p, TOKEN_INT)) {
    int64_t value;
    return text_parse_literal(p, false, &value) ? ir_scalar_const(scalars_of(p), value) : NONE;
  }
  if (!text_expect(p, TOKEN_LPAREN, "an integer expression")) return NONE;
  ir_scalar x = text_enter(p) ? parse_sum(p) : NONE;
  text_expect(p, TOKEN_RPAREN, "')'");
  text_leave(p);
  return x;
}

static ir_scalar parse_negative(text_parser *p);

static ir_scalar parse_unary(text_parser *p) {
  if (!text_accept(p, TOKEN_MINUS)) return parse_primary(p);
  ir_scalar x = text_enter(p) ? parse_negative(p) : NONE;
  text_leave(p);
  return x;
}

static ir_scalar parse_negative(text_parser *p) {
  if (text_is(p, TOKEN_INT)) {
    int64_t value;
    (void)text_parse_literal(p, true, &value);
    return ir_scalar_const(scalars_of(p), value);
  }
  ir_scalar x = parse_unary(p);
  return x.id ? ir_scalar_sub(scalars_of(p), ir_scalar_const(scalars_of(p), 0), x) : NONE;
}

static ir_scalar parse_product(text_parser *p) {
  ir_scalar a = parse_unary(p);
  for (;;) {
    text_token op = p->token;
    bool product = op.kind == TOKEN_STAR || op.kind == TOKEN_SLASH || op.kind == TOKEN_PERCENT;
    if (p->panic || !product) return a;
    text_advance(p);
    ir_scalar b = parse_unary(p);
    if (!a.id || !b.id) a = NONE;
    else if (op.kind == TOKEN_STAR) a = ir_scalar_mul(scalars_of(p), a, b);
    else if (!is_divisor(p, &op, b)) a = NONE;
    else if (op.kind == TOKEN_SLASH) a = ir_scalar_floordiv(scalars_of(p), a, b);
    else a = ir_scalar_mod(scalars_of(p), a, b);
  }
}

static ir_scalar parse_sum(text_parser *p) {
  ir_scalar a = parse_product(p);
  for (;;) {
    bool plus = text_is(p, TOKEN_PLUS);
    if (p->panic || !(plus || text_is(p, TOKEN_MINUS))) return a;
    text_advance(p);
    ir_scalar b = parse_product(p);
    if (!a.id || !b.id) a = NONE;
    else if (plus) a = ir_scalar_add(scalars_of(p), a, b);
    else a = ir_scalar_sub(scalars_of(p), a, b);
  }
}

static ir_scalar without_overflow(text_parser *p, const text_token *first, ir_scalar x) {
  if (p->panic || !x.id || !ir_scalar_is_overflow(x)) return p->panic ? NONE : x;
  diag_error(&p->m->errors, text_span(p, first), "this integer expression %s",
             ir_scalar_overflow_text(scalars_of(p)));
  return NONE;
}

ir_scalar text_parse_scalar(text_parser *p) {
  text_token first = p->token;
  return without_overflow(p, &first, parse_sum(p));
}

ir_scalar text_parse_factor(text_parser *p) {
  text_token first = p->token;
  return without_overflow(p, &first, parse_unary(p));
}

bool text_parse_int(text_parser *p, const char *what, int64_t *value) {
  text_token first = p->token;
  if (text_is(p, TOKEN_LBRACKET) || text_is(p, TOKEN_FLOAT) || first.kind >= TOKEN_FUSION) {
    text_expected(p, arena_printf(&p->m->memory, "one integer as %s", what));
    return false;
  }
  ir_scalar x = text_parse_scalar(p);
  if (!x.id || ir_scalar_is_const(scalars_of(p), x, value)) return x.id != 0;
  diag_error(&p->m->errors, text_span(p, &first), "%s must be a constant integer", what);
  return false;
}

/* ---- lists ---- */
static bool push_int(text_parser *p, const char *what) {
  int64_t value = 0;
  bool good = text_parse_int(p, what, &value);
  vec_push(&p->m->memory, &p->ints, value);
  return good;
}

static bool push_bool(text_parser *p, const char *what) {
  vec_push(&p->m->memory, &p->ints, text_is(p, TOKEN_TRUE));
  if (text_accept(p, TOKEN_TRUE) || text_accept(p, TOKEN_FALSE)) return true;
  text_expected(p, arena_printf(&p->m->memory, "true or false in %s", what));
  return false;
}

static bool push_scalar(text_parser *p, const char *what) {
  (void)what;
  ir_scalar x = text_parse_scalar(p);
  vec_push(&p->m->memory, &p->scalars, x);
  return x.id != 0;
}

static bool parse_list(text_parser *p, const char *what, const char *like,
                       bool (*element)(text_parser *, const char *)) {
  if (!text_accept(p, TOKEN_LBRACKET)) {
    text_expected(p, arena_printf(&p->m->memory, "a list like %s as %s", like, what));
    return false;
  }
  bool good = text_enter(p);
  while (!p->panic && !text_is(p, TOKEN_RBRACKET)) {
    good = element(p, what) && good;
    if (!text_accept(p, TOKEN_COMMA)) break;
  }
  text_leave(p);
  return text_expect(p, TOKEN_RBRACKET, "',' or ']'") && good;
}

static void keep_ints(text_parser *p, const int64_t **list, uint32_t *n) {
  *n = p->ints.len;
  *list = arena_copy(&p->m->memory, p->ints.data, p->ints.len * sizeof(int64_t));
}

bool text_parse_ints(text_parser *p, const char *what, const int64_t **list, uint32_t *n) {
  p->ints.len = 0;
  bool good = parse_list(p, what, "[0, 1]", push_int);
  keep_ints(p, list, n);
  return good;
}

bool text_parse_bools(text_parser *p, const char *what, const int64_t **list, uint32_t *n) {
  p->ints.len = 0;
  bool good = parse_list(p, what, "[true, false]", push_bool);
  keep_ints(p, list, n);
  return good;
}

bool text_parse_scalars(text_parser *p, const char *what, const ir_scalar **list, uint32_t *n) {
  p->scalars.len = 0;
  bool good = parse_list(p, what, "[n, 4]", push_scalar);
  *n = p->scalars.len;
  *list = arena_copy(&p->m->memory, p->scalars.data, p->scalars.len * sizeof(ir_scalar));
  return good;
}
