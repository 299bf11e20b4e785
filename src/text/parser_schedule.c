#include "text/parser.h"

/* ---- arguments of statements ---- */
static void parse_axis(text_parser *p, ir_stmt *s) { text_parse_int(p, "the axis", &s->axis); }

/* A mesh's name, alone or with an axis, and nothing more: kept as written. Otherwise nothing is
 * consumed. */
static bool parse_mesh_factor(text_parser *p, ir_stmt *s) {
  text_lexer lexer = p->lexer;
  text_token t = p->token;
  if (t.kind != TOKEN_NAME) return false;
  ir_name_entry e = ir_func_lookup(p->f, text_intern(p, &t));
  if (e.kind != IR_NAME_MESH) return false;
  text_advance(p);
  bool dot = text_is(p, TOKEN_DOT);
  text_token_kind after = p->token.kind;
  for (uint32_t i = 0; dot && i < 2; i++) {
    text_advance(p);
    after = p->token.kind;
  }
  p->lexer = lexer;
  p->token = t;
  if (after != TOKEN_RPAREN) return false;
  text_advance(p);
  s->factor_is_mesh = true;
  s->mesh = (ir_mesh){e.id};
  if (text_parse_mesh_size(p, &t, s->mesh, &s->mesh_axis, &s->mesh_axis_named)) {
    int64_t size = ir_mesh_size(ir_mesh_at(p->f, s->mesh), s->mesh_axis);
    s->factor = ir_scalar_const(&p->m->scalars, size);
  }
  return true;
}

static void parse_factor(text_parser *p, ir_stmt *s) {
  if (!parse_mesh_factor(p, s)) s->factor = text_parse_scalar(p);
}

static void parse_split(text_parser *p, ir_stmt *s) {
  parse_axis(p, s);
  if (text_expect(p, TOKEN_COMMA, "',' and a factor")) parse_factor(p, s);
}

static void parse_outer_split(text_parser *p, ir_stmt *s) {
  parse_axis(p, s);
  if (!text_expect(p, TOKEN_COMMA, "',' and a factor")) return;
  if (text_is(p, TOKEN_LBRACKET)) {
    s->kind = IR_STMT_CHUNK_SPLIT;
    text_parse_ints(p, "the length of a chunk", &s->list, &s->n_list);
  } else {
    parse_factor(p, s);
  }
}

static void parse_reorder(text_parser *p, ir_stmt *s) {
  p->ints.len = 0;
  do {
    int64_t from = 0, to = 0;
    text_parse_int(p, "the axis", &from);
    text_expect(p, TOKEN_ARROW, "'->' and the new position");
    if (p->panic) return;
    text_parse_int(p, "the new position", &to);
    vec_push(&p->m->memory, &p->ints, from);
    vec_push(&p->m->memory, &p->ints, to);
  } while (text_accept(p, TOKEN_COMMA));
  s->n_list = p->ints.len;
  s->list = arena_copy(&p->m->memory, p->ints.data, p->ints.len * sizeof(int64_t));
}

/* mesh.x */
static void parse_mesh_mark(text_parser *p, uint32_t *axis) {
  if (!text_expect(p, TOKEN_MESH, "mesh.x, mesh.y or mesh.z")) return;
  if (text_expect(p, TOKEN_DOT, "'.' and a mesh axis")) text_parse_mesh_axis(p, axis);
}

static void parse_swizzle(text_parser *p, ir_stmt *s) {
  parse_axis(p, s);
  if (text_expect(p, TOKEN_COMMA, "',' and a mesh axis")) parse_mesh_mark(p, &s->mesh_axis);
}

static void parse_axes(text_parser *p, ir_stmt *s) {
  text_parse_ints(p, "the axes", &s->list, &s->n_list);
}

static void parse_contiguity(text_parser *p, ir_stmt *s) {
  text_parse_bools(p, "the contiguity", &s->list, &s->n_list);
}

static void parse_memory(text_parser *p, ir_stmt *s) {
  static const char *const kinds[] = {"global", "symmetric"};
  bool global = text_is_word(p, "global");
  s->memory = global ? IR_MEMORY_GLOBAL : IR_MEMORY_SYMMETRIC;
  if (global || text_is_word(p, "symmetric")) text_advance(p);
  else text_expected_word(p, "global or symmetric", kinds, 2);
}

static void parse_nothing(text_parser *p, ir_stmt *s) {
  (void)p;
  (void)s;
}

/* ---- T.method(…) ---- */
static const struct method {
  const char *name;
  ir_stmt_kind kind;
  void (*parse)(text_parser *, ir_stmt *);
} methods[] = {
    {"split", IR_STMT_SPLIT, parse_split},
    {"outer_split", IR_STMT_OUTER_SPLIT, parse_outer_split},
    {"merge", IR_STMT_MERGE, parse_axis},
    {"reorder", IR_STMT_REORDER, parse_reorder},
    {"swizzle", IR_STMT_SWIZZLE, parse_swizzle},
    {"rfactor", IR_STMT_RFACTOR, parse_axes},
    {"memory", IR_STMT_MEMORY, parse_memory},
    {"allocate", IR_STMT_ALLOCATE, parse_axes},
    {"allocate_as_loop", IR_STMT_ALLOCATE_AS_LOOP, parse_nothing},
    {"contiguity", IR_STMT_CONTIGUITY, parse_contiguity},
    {"shrink", IR_STMT_SHRINK, parse_nothing},
};
enum { N_METHODS = sizeof methods / sizeof methods[0] };

/* The nearest one, or else all of them. */
static const char *advice_on_method(text_parser *p) {
  suggestion s;
  strbuf all;
  suggest_init(&s, text_of(p, &p->token), p->token.length);
  for (size_t i = 0; i < N_METHODS; i++) suggest_offer(&s, methods[i].name);
  if (s.best) return text_did_you_mean(p, &s);
  strbuf_init(&all, &p->m->memory);
  for (size_t i = 0; i < N_METHODS; i++)
    strbuf_printf(&all, "%s%s", i ? ", " : "; there are ", methods[i].name);
  return all.data;
}

static const struct method *find_method(text_parser *p) {
  for (size_t i = 0; i < N_METHODS; i++) {
    if (text_is_word(p, methods[i].name)) return &methods[i];
  }
  if (!text_is(p, TOKEN_NAME)) {
    text_expected(p, "the name of a schedule statement");
    return NULL;
  }
  text_error(p, &p->token, "unknown schedule statement '%.*s'%s", text_shown(&p->token),
             text_of(p, &p->token), advice_on_method(p));
  p->panic = true;
  return NULL;
}

/* Parses what follows the dot. */
static void parse_method(text_parser *p, ir_stmt *s) {
  text_token name = p->token;
  const struct method *m = find_method(p);
  if (!m) return;
  bool named = s->result.name != 0;
  if (named != (m->kind == IR_STMT_RFACTOR)) {
    text_error(p, &name, named ? "only rfactor gives a new tensor" : "write U = T.rfactor([axes])");
    p->panic = true;
    return;
  }
  text_advance(p);
  s->kind = m->kind;
  if (!text_expect(p, TOKEN_LPAREN, "'('")) return;
  m->parse(p, s);
  text_expect(p, TOKEN_RPAREN, "')'");
}

/* ---- statements ---- */
static void parse_rfactor(text_parser *p, ir_stmt *s, ir_target result) {
  text_token t = p->token;
  s->result = result;
  p->targets.len = 0;
  uint32_t name = text_expect_name(p, "the tensor to factor");
  vec_push(&p->m->memory, &p->targets, ((ir_target){name, text_token_loc(&t)}));
  if (text_expect(p, TOKEN_DOT, "'.rfactor([axes])'")) parse_method(p, s);
}

/* stream, or stream.ring */
static void parse_form(text_parser *p, ir_form *form) {
  static const char *const forms[] = {"broadcast", "p2p", "offset", "ring", "own"};
  if (!text_accept(p, TOKEN_DOT)) return;
  text_token t = p->token;
  if (t.kind == TOKEN_NAME) *form = ir_form_find(text_of(p, &t), t.length);
  if (*form == IR_FORM_NONE) text_expected_word(p, "broadcast, p2p, offset, ring or own", forms, 5);
  else text_advance(p);
}

/* Parses what follows T[. */
static void parse_mark(text_parser *p, ir_stmt *s) {
  static const char *const marks[] = {"stream", "serial", "mesh"};
  s->kind = IR_STMT_MARK;
  parse_axis(p, s);
  text_expect(p, TOKEN_RBRACKET, "']'");
  text_expect(p, TOKEN_ASSIGN, "'=' and a mark");
  if (text_accept(p, TOKEN_STREAM)) {
    s->mark.kind = IR_MARK_STREAM;
    parse_form(p, &s->mark.form);
  } else if (text_accept(p, TOKEN_SERIAL)) {
    s->mark.kind = IR_MARK_SERIAL;
  } else if (text_is(p, TOKEN_MESH)) {
    s->mark.kind = IR_MARK_MESH;
    parse_mesh_mark(p, &s->mark.mesh_axis);
  } else {
    text_expected_word(p, "stream, serial, mesh.x, mesh.y or mesh.z", marks, 3);
  }
}

/* T, U on M, after the first name. */
static void parse_on(text_parser *p, ir_stmt *s) {
  s->kind = IR_STMT_ON;
  while (text_accept(p, TOKEN_COMMA)) {
    text_token t = p->token;
    uint32_t name = text_expect_name(p, "the name of a tensor");
    vec_push(&p->m->memory, &p->targets, ((ir_target){name, text_token_loc(&t)}));
  }
  if (!text_is_word(p, "on")) {
    text_expected(p, "',' or 'on'");
    return;
  }
  text_advance(p);
  text_token t = p->token;
  if (!text_expect(p, TOKEN_NAME, "the name of a mesh")) return;
  ir_name_entry e = text_lookup(p, &t, "mesh");
  if (text_is_kind(p, &t, e, IR_NAME_MESH)) s->mesh = (ir_mesh){e.id};
}

static void dispatch(text_parser *p, ir_stmt *s) {
  text_token first = p->token;
  uint32_t name = text_expect_name(p, "a schedule statement, which begins with a tensor's name");
  ir_target target = {name, text_token_loc(&first)};
  p->targets.len = 0;
  vec_push(&p->m->memory, &p->targets, target);
  if (p->panic) return;
  if (text_accept(p, TOKEN_DOT)) parse_method(p, s);
  else if (text_accept(p, TOKEN_LBRACKET)) parse_mark(p, s);
  else if (text_accept(p, TOKEN_ASSIGN)) parse_rfactor(p, s, target);
  else if (text_is(p, TOKEN_COMMA) || text_is_word(p, "on")) parse_on(p, s);
  else text_expected(p, "'on', '.', '[' or '=' after the name");
}

static void parse_statement(text_parser *p) {
  uint32_t errors = p->m->errors.errors;
  ir_stmt s = {0};
  text_begin_statement(p);
  text_token first = p->token;
  dispatch(p, &s);
  /* Recovery would stop at a reserved word with which the statement begins. */
  if (p->panic && p->token.offset == first.offset) text_advance(p);
  s.at = text_span(p, &first);
  text_end_statement(p);
  if (p->m->errors.errors != errors || p->tainted) return;
  s.n_targets = p->targets.len;
  s.targets = arena_copy(&p->m->memory, p->targets.data, p->targets.len * sizeof(ir_target));
  ir_build_stmt(p->f, &s);
}

void text_parse_schedule(text_parser *p) {
  text_skip_newlines(p);
  if (!text_expect(p, TOKEN_LBRACE, "'{' after schedule")) return;
  for (;;) {
    while (text_accept(p, TOKEN_NEWLINE) || text_accept(p, TOKEN_SEMICOLON)) continue;
    if (text_is(p, TOKEN_RBRACE) || text_at_item(p)) break;
    parse_statement(p);
  }
  text_expect(p, TOKEN_RBRACE, "'}' at the end of the schedule");
}
