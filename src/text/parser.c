#include "text/parser.h"
#include "text/strange.h"
#include "text/text.h"

/* ---- types ---- */
static bool continues_expression(text_token_kind kind) {
  return kind == TOKEN_DOT || kind == TOKEN_LPAREN || (kind >= TOKEN_PLUS && kind <= TOKEN_PERCENT);
}

/* Parses what follows an @. */
static void parse_cut(text_parser *p, const text_token *at) {
  text_cut cut = {.token = *at};
  if (!text_parse_mesh_axis(p, &cut.mesh_axis)) return;
  ir_partition *part = &cut.partition;
  if (text_accept(p, TOKEN_PLUS)) {
    if (!text_parse_mesh_axis(p, &cut.turn)) return;
    cut.turn++;
  }
  if (text_accept(p, TOKEN_SLASH)) {
    part->kind = IR_CHUNK;
    part->size = text_parse_factor(p);
    cut.poison = !part->size.id;
  } else if (text_is(p, TOKEN_LBRACKET)) {
    part->kind = IR_CHUNKS;
    cut.poison = !text_parse_ints(p, "chunks", &part->chunks, &part->n_chunks);
  }
  if (text_accept(p, TOKEN_PERCENT)) {
    part->period = text_parse_factor(p);
    cut.poison = cut.poison || !part->period.id;
  }
  vec_push(&p->m->memory, &p->cuts, cut);
}

static void parse_cuts(text_parser *p, text_extent *e) {
  text_token at = p->token;
  e->cuts = p->cuts.len;
  if (text_is(p, TOKEN_AT) && !p->host) {
    text_expected(p, "',' or ']' (only host programs cut extents over devices)");
  }
  for (; text_accept(p, TOKEN_AT); at = p->token) parse_cut(p, &at);
  e->n_cuts = p->cuts.len - e->cuts;
}

static void parse_extent(text_parser *p) {
  text_extent e = {.token = p->token};
  if (text_accept(p, TOKEN_QUESTION)) {
    e.anonymous = true;
    if (p->host) e.scalar = text_host_own_extent(p);
  } else if (text_is(p, TOKEN_NAME) && !continues_expression(text_lexer_peek(&p->lexer).kind)) {
    e.name = text_expect_name(p, "an extent");
  } else {
    e.scalar = text_parse_scalar(p);
    e.poison = !e.scalar.id;
  }
  parse_cuts(p, &e);
  vec_push(&p->m->memory, &p->extents, e);
}

static void unknown_dtype(text_parser *p, const text_token *t) {
  strbuf known;
  strbuf_init(&known, &p->m->memory);
  for (int i = IR_DTYPE_NONE + 1; i < IR_DTYPE_COUNT; i++) {
    strbuf_putc(&known, ' ');
    strbuf_puts(&known, ir_dtype_text((ir_dtype)i));
  }
  const char *here = text_habit_dtype(p, t);
  text_error(p, t, "unknown dtype '%.*s'%s; there are%s", text_shown(t), text_of(p, t),
             here ? arena_printf(&p->m->memory, " (did you mean '%s'?)", here) : "", known.data);
}

ir_dtype text_parse_type(text_parser *p) {
  p->extents.len = p->cuts.len = 0;
  p->declaring = true;
  text_token t = p->token;
  if (!text_expect(p, TOKEN_NAME, "a dtype")) return IR_DTYPE_NONE;
  ir_dtype dtype = ir_dtype_parse(text_of(p, &t), t.length);
  if (dtype == IR_DTYPE_NONE) unknown_dtype(p, &t);
  if (text_is(p, TOKEN_LPAREN)) text_expected(p, "'[' and the extents, as in f32[4, n]");
  if (!text_accept(p, TOKEN_LBRACKET)) return dtype;
  while (!p->panic && !text_is(p, TOKEN_RBRACKET)) {
    parse_extent(p);
    if (!text_accept(p, TOKEN_COMMA)) break;
  }
  text_expect(p, TOKEN_RBRACKET, "',' or ']'");
  return dtype;
}

/* The extents of a failed input become poison, so that their uses are not reported. */
static void poison_extents(text_parser *p) {
  for (uint32_t i = 0; i < p->extents.len; i++) {
    if (p->extents.data[i].name) text_poison(p, p->extents.data[i].name);
  }
}

/* Is it a number or a symbol, and no larger expression? */
static bool is_given(const text_parser *p, ir_scalar x) {
  ir_scalar_kind kind = ir_scalar_node_of(&p->m->scalars, x)->kind;
  return kind == IR_SCALAR_CONST || kind == IR_SCALAR_SYMBOL;
}

static bool resolve_input_extent(text_parser *p, const text_extent *e, ir_scalar *x) {
  *x = e->scalar;
  if (e->anonymous && !x->id) {
    ir_symbol_data symbol = {.kind = IR_SYMBOL_EXTENT, .tensor = p->f->tensors.len};
    symbol.dim = (uint32_t)(e - p->extents.data);
    *x = ir_scalar_symbol(&p->m->scalars, symbol);
  }
  if (e->name) *x = ir_build_extent(p->f, e->name, text_token_loc(&e->token));
  if (e->name && !x->id) return false;
  if (e->poison || e->anonymous || !x->id || is_given(p, *x)) return !e->poison;
  text_error(p, &e->token, "an input's extent is an integer, a name or ?");
  return false;
}

static bool resolve_stated_extent(text_parser *p, const text_extent *e, ir_scalar *x) {
  *x = e->scalar;
  if (!e->name) return !e->poison;
  ir_name_entry entry = text_lookup(p, &e->token, "extent");
  *x = (ir_scalar){entry.kind == IR_NAME_EXTENT ? entry.id : 0};
  if (entry.kind == IR_NAME_TENSOR || entry.kind == IR_NAME_MESH) {
    text_error(p, &e->token, "'%.*s' is not an extent", text_shown(&e->token),
               text_of(p, &e->token));
  }
  return x->id != 0;
}

static bool resolve(text_parser *p, bool (*one)(text_parser *, const text_extent *, ir_scalar *)) {
  bool good = true;
  p->scalars.len = 0;
  for (uint32_t i = 0; i < p->extents.len; i++) {
    ir_scalar x;
    good = one(p, &p->extents.data[i], &x) && good;
    vec_push(&p->m->memory, &p->scalars, x);
  }
  return good;
}

bool text_resolve_stated(text_parser *p) { return resolve(p, resolve_stated_extent); }

/* ---- inputs and definitions ---- */
ir_tensor text_build_input(text_parser *p, const text_token *name, ir_dtype dtype) {
  ir_tensor t = {0};
  if (!p->panic && dtype != IR_DTYPE_NONE && resolve(p, resolve_input_extent)) {
    t = ir_build_input(p->f, text_intern(p, name), dtype, p->scalars.data, p->scalars.len,
                       text_token_loc(name));
  }
  if (t.id) return t;
  text_poison(p, text_intern(p, name));
  poison_extents(p);
  return t;
}

bool text_is_taken(text_parser *p, const text_token *name) {
  return !ir_build_name_is_free(p->f, text_intern(p, name), text_token_loc(name));
}

/* ---- definitions ---- */
/* Adds a result with the type just read, if there was one. The extents move into the module: the rest of
 * the statement reuses the parser's buffers. */
static void add_result(text_parser *p, const text_token *name, bool typed, ir_dtype dtype) {
  text_result r = {.name = *name, .typed = typed, .dtype = dtype};
  r.good = typed && dtype != IR_DTYPE_NONE && text_resolve_stated(p);
  r.rank = typed ? p->extents.len : 0;
  if (r.good) r.extents = arena_copy(&p->m->memory, p->scalars.data, r.rank * sizeof(ir_scalar));
  vec_push(&p->m->memory, &p->results, r);
}

/* `, i : i64[n, 2]`, as often as there is one. */
static void parse_more_results(text_parser *p) {
  for (text_token comma = p->token; !p->panic && text_accept(p, TOKEN_COMMA); comma = p->token) {
    text_token name = p->token;
    if (text_is(p, TOKEN_NEWLINE)) text_wrong(p, &comma, "a statement has no comma at its end");
    if (!text_expect(p, TOKEN_NAME, "the name of a further result")) return;
    bool typed = text_accept(p, TOKEN_COLON);
    ir_dtype dtype = typed ? text_parse_type(p) : IR_DTYPE_NONE;
    if (!p->panic) add_result(p, &name, typed, dtype);
  }
}

static bool any_is_taken(text_parser *p) {
  bool taken = false;
  for (uint32_t i = 0; i < p->results.len; i++)
    taken = text_is_taken(p, &p->results.data[i].name) || taken;
  return taken;
}

static void poison_results(text_parser *p) {
  for (uint32_t i = 0; i < p->results.len; i++)
    text_poison(p, text_intern(p, &p->results.data[i].name));
}

/* Names the further results of the operation that made `first`. */
static bool build_more(text_parser *p, ir_tensor first) {
  uint32_t n = p->results.len - 1, *names = ARENA_ARRAY(&p->m->memory, n + 1, uint32_t);
  for (uint32_t i = 0; i < n; i++) names[i] = text_intern(p, &p->results.data[i + 1].name);
  if (n == 0) return true;
  if (ir_build_more(p->f, first, names, n, text_token_loc(&p->results.data[1].name))) return true;
  for (uint32_t i = 0; i < n; i++) text_poison(p, names[i]);
  return false;
}

/* The expression after the `=`, for the results that were read. */
static void parse_results(text_parser *p) {
  p->declaring = false;
  if (any_is_taken(p)) {
    p->panic = true;
    return;
  }
  ir_tensor first = text_parse_definition(p, &p->results.data[0].name);
  if (!first.id) {
    poison_results(p);
    return;
  }
  if (!build_more(p, first)) return;
  const ir_op_data op = *ir_op_at(p->f, ir_tensor_at(p->f, first)->def);
  for (uint32_t i = 0; i < p->results.len; i++) {
    const text_result *r = &p->results.data[i];
    loc at = text_token_loc(&r->name);
    ir_tensor t = ir_op_result(&op, i);
    ir_tensor_at(p->f, t)->at = at;
    if (r->good) (void)ir_build_stated(p->f, t, r->dtype, r->extents, r->rank, at);
  }
}

static void parse_named(text_parser *p) {
  text_token name = p->token;
  ir_dtype dtype = IR_DTYPE_NONE;
  text_advance(p);
  bool typed = text_accept(p, TOKEN_COLON);
  if (typed) dtype = text_parse_type(p);
  if (typed && !text_is(p, TOKEN_ASSIGN) && !text_is(p, TOKEN_COMMA)) {
    (void)text_build_input(p, &name, dtype);
    return;
  }
  p->results.len = 0;
  add_result(p, &name, typed, dtype);
  bool several = text_is(p, TOKEN_COMMA);
  parse_more_results(p);
  if (p->panic) return;
  if (text_accept(p, TOKEN_ASSIGN)) {
    parse_results(p);
  } else if (several && text_at_end(p)) {
    poison_results(p);
    text_wrong(p, &name,
               "several names are the results of an operation: '=' and the operation are missing; "
               "inputs have a statement each, x : f32[4]; w : f32[4]");
  } else if (several || text_is_word(p, "on") || text_is(p, TOKEN_DOT) ||
             text_is(p, TOKEN_LBRACKET) || text_is(p, TOKEN_LBRACE)) {
    text_expected(p, "'=' or ':' after the name (schedule statements belong in schedule { })");
  } else if (text_is(p, TOKEN_NAME)) {
    text_poison(p, text_intern(p, &p->token));
    text_wrong(p, &name,
               "a statement begins with the name that it defines, as in x : f32[n] or y = exp(x)");
  } else {
    text_expected(p, "'=' or ':' after the name");
  }
}

/* ---- meshes ---- */
/* of { 5, 2, 4 } */
static bool parse_devices(text_parser *p) {
  p->ints.len = 0;
  text_skip_newlines(p);
  while (!p->panic && !text_is(p, TOKEN_RBRACE)) {
    int64_t device = 0;
    if (!text_parse_int(p, "a device", &device)) p->panic = true;
    vec_push(&p->m->memory, &p->ints, device);
    text_skip_newlines(p);
    if (!text_accept(p, TOKEN_COMMA)) break;
    text_skip_newlines(p);
  }
  if (text_expect(p, TOKEN_RBRACE, "',' or '}'")) return true;
  while (!text_is(p, TOKEN_RBRACE) && !text_is(p, TOKEN_NEWLINE) && !text_is(p, TOKEN_END)) {
    text_advance(p);
  }
  if (text_is(p, TOKEN_RBRACE)) text_advance(p);
  return false;
}

static ir_mesh build_mesh(text_parser *p, uint32_t name, loc at) {
  const int64_t *shape, *devices = NULL;
  uint32_t rank, n_devices = 0;
  if (!text_expect(p, TOKEN_ASSIGN, "'='")) return (ir_mesh){0};
  if (!text_parse_ints(p, "the shape of the mesh", &shape, &rank)) return (ir_mesh){0};
  if (text_is_word(p, "of")) {
    text_advance(p);
    if (!text_expect(p, TOKEN_LBRACE, "'{' and the devices")) return (ir_mesh){0};
    if (!parse_devices(p)) return (ir_mesh){0};
    n_devices = p->ints.len;
    devices = arena_copy(&p->m->memory, p->ints.data, n_devices * sizeof(int64_t));
  }
  return ir_build_mesh(p->f, name, shape, rank, devices, n_devices, at);
}

void text_parse_mesh(text_parser *p) {
  text_advance(p);
  text_token t = p->token;
  uint32_t name = text_expect_name(p, "the name of the mesh");
  if (name && !build_mesh(p, name, text_token_loc(&t)).id) text_poison(p, name);
}

/* ---- fusions ---- */
static void parse_return(text_parser *p) {
  text_advance(p);
  do {
    text_token t = p->token;
    if (!text_expect(p, TOKEN_NAME, "the name of a tensor to return")) return;
    if (text_is(p, TOKEN_LPAREN) || (!text_is(p, TOKEN_COMMA) && !text_at_end(p))) {
      text_wrong(p, &p->token,
                 text_is(p, TOKEN_SCHEDULE)
                     ? "a schedule is a statement of its own: write ; or a new line before it"
                     : "return takes names: define the result first, y = ..., and return y");
      return;
    }
    ir_name_entry e = text_lookup(p, &t, "name");
    if (text_is_kind(p, &t, e, IR_NAME_TENSOR))
      (void)ir_build_output(p->f, (ir_tensor){e.id}, text_token_loc(&t));
  } while (text_accept(p, TOKEN_COMMA));
}

/* Nothing but schedules may follow the return. */
static bool is_late(text_parser *p, bool returned) {
  if (!returned || text_is(p, TOKEN_SCHEDULE) || text_is(p, TOKEN_BAD)) return false;
  const char *what = text_is(p, TOKEN_RETURN)
                         ? "a fusion has one return, the last of its statements"
                         : "only a schedule may follow the return";
  text_error(p, &p->token, "%s", what);
  p->panic = true;
  return true;
}

static void parse_statement(text_parser *p, bool *returned) {
  text_begin_statement(p);
  if (is_late(p, *returned)) {
    text_advance(p);
  } else if (text_at_named_extent(p)) {
    text_parse_named_extent(p);
  } else if (text_is(p, TOKEN_NAME)) {
    parse_named(p);
  } else if (text_is(p, TOKEN_MESH)) {
    text_parse_mesh(p);
  } else if (text_is(p, TOKEN_RETURN)) {
    *returned = true;
    parse_return(p);
  } else if (text_accept(p, TOKEN_SCHEDULE)) {
    text_parse_schedule(p);
  } else {
    text_expected(p, "a statement");
    text_advance(p);
  }
  text_end_statement(p);
}

static void parse_body(text_parser *p) {
  bool returned = false;
  uint32_t errors = p->m->errors.errors;
  for (;;) {
    while (text_accept(p, TOKEN_NEWLINE) || text_accept(p, TOKEN_SEMICOLON)) continue;
    if (text_is(p, TOKEN_RBRACE) || text_at_item(p)) break;
    parse_statement(p, &returned);
  }
  if (text_accept(p, TOKEN_RBRACE)) {
    if (!returned)
      diag_error(&p->m->errors, p->f->at,
                 "this fusion has no return; write return and the names of its results");
    return;
  }
  text_begin_statement(p);
  if (errors == p->m->errors.errors || !text_is(p, TOKEN_END)) {
    text_expected(p, "'}' at the end of the fusion");
    if (!text_is(p, TOKEN_BAD)) diag_note(&p->m->errors, p->f->at, "the fusion begins here");
  }
  p->panic = false;
}

static void parse_fusion(text_parser *p) {
  p->f = NULL;
  text_begin_statement(p);
  text_advance(p);
  text_token name = p->token;
  text_expect(p, TOKEN_NAME, "the name of the fusion");
  if (!p->panic) {
    p->f = ir_build_func(p->m, IR_FUNC_FUSION, text_intern(p, &name), text_token_loc(&name));
  }
  if (!p->f) p->panic = true;
  text_skip_newlines(p);
  if (text_is(p, TOKEN_LPAREN))
    text_expected(p, "'{'; inputs are statements inside of it, like x : f32[n, 4]");
  if (text_expect(p, TOKEN_LBRACE, "'{'")) {
    map_init(&p->poisoned, &p->m->memory);
    parse_body(p);
    text_forget_extents(p);
    return;
  }
  p->f = NULL;
  text_end_statement(p);
}

static void parse_module(text_parser *p) {
  text_begin_statement(p);
  text_advance(p);
  while (!text_is(p, TOKEN_END)) {
    if (text_is(p, TOKEN_FUSION)) {
      parse_fusion(p);
    } else if (text_is(p, TOKEN_HOST)) {
      text_parse_host(p);
    } else if (!text_accept(p, TOKEN_NEWLINE) && !text_accept(p, TOKEN_SEMICOLON)) {
      text_begin_statement(p);
      text_expected(p, "'fusion NAME {'");
      while (!text_at_item(p)) text_advance(p);
    }
  }
  text_link_hosts(p->m);
  if (p->m->funcs.len == 0 && p->m->errors.errors == 0) {
    text_error(p, &p->token, "there is no fusion in this file");
  }
}

status text_parse(ir_module *m, const char *name, const char *text, size_t length) {
  bool fits = length < UINT32_MAX;
  m->src = (source){.name = arena_printf(&m->memory, "%s", name)};
  m->src.text = arena_string(&m->memory, fits ? text : "", fits ? length : 0);
  m->src.length = fits ? (uint32_t)length : 0;
  if (!fits) {
    diag_error(&m->errors, (loc){0}, "the file is too large; at most 4 GiB can be read");
    return STATUS_BAD_PROGRAM;
  }
  if (text_refuse_file(&m->errors, m->src.text, m->src.length)) return STATUS_BAD_PROGRAM;
  text_parser p = {.m = m};
  text_lexer_init(&p.lexer, &m->memory, &m->errors, m->src.text, m->src.length);
  strbuf_init(&p.name, &m->memory);
  map_init(&p.poisoned, &m->memory);
  parse_module(&p);
  return m->errors.errors ? STATUS_BAD_PROGRAM : STATUS_OK;
}
