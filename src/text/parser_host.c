#include "text/parser_host.h"

#include <string.h>

#include "ir/build.h"
#include "text/text.h"

/* ---- names ---- */
void text_host_declare(text_parser *p, uint32_t name, ir_name_entry entry) {
  ir_func_declare(p->f, name, entry);
  vec_push(&p->m->memory, &p->host->names, name);
}

bool text_host_declare_stream(text_parser *p, const text_token *t) {
  uint32_t name = text_intern(p, t);
  bool known = map_get(&p->host->streams, name, 0);
  for (uint32_t i = p->host->scope; known && i < p->host->names.len; i++) {
    if (p->host->names.data[i] == name) return true;
  }
  if (text_host_is_taken(p, t)) return false;
  map_put(&p->host->streams, name, 1);
  vec_push(&p->m->memory, &p->host->names, name);
  return true;
}

void text_host_leave_scope(text_parser *p, uint32_t names) {
  while (p->host->names.len > names) {
    uint32_t name = p->host->names.data[--p->host->names.len];
    ir_func_undeclare(p->f, name);
    map_put(&p->host->streams, name, 0);
  }
}

bool text_host_is_taken(text_parser *p, const text_token *name) {
  uint32_t interned = text_intern(p, name);
  bool stream = map_get(&p->host->streams, interned, 0);
  if (!stream && !map_get(&p->host->comm_names, interned, 0)) return text_is_taken(p, name);
  text_error(p, name, "'%.*s' is already the name of a %s", text_shown(name), text_of(p, name),
             stream ? "stream" : "communication");
  return true;
}

static uint32_t streams_name(text_parser *p) {
  return strings_intern(&p->m->names, "streams", strlen("streams"));
}

/* After the parameters, so that in products and sums `streams` follows every extent, as it does in a
 * program that was lowered. */
static void declare_streams(text_parser *p) {
  ir_symbol_data symbol = {.kind = IR_SYMBOL_STREAMS, .name = streams_name(p)};
  p->f->host->streams = ir_scalar_symbol(&p->m->scalars, symbol);
  ir_func_declare(p->f, symbol.name, (ir_name_entry){IR_NAME_EXTENT, p->f->host->streams.id});
}

/* ---- blocks ---- */
static void parse_statement(text_parser *p, ir_block *block);

static void parse_statements(text_parser *p, ir_block *block) {
  for (;;) {
    while (text_accept(p, TOKEN_NEWLINE) || text_accept(p, TOKEN_SEMICOLON)) continue;
    if (text_is(p, TOKEN_RBRACE) || text_at_item(p)) return;
    parse_statement(p, block);
  }
}

/* The blocks around one without its } miss theirs, too: only the innermost is reported. */
void text_host_close_block(text_parser *p, loc opened, const char *what) {
  if (text_accept(p, TOKEN_RBRACE)) return;
  if (!p->host->unclosed) {
    text_expected(p, arena_printf(&p->m->memory, "'}' at the end of the %s", what));
    if (!text_is(p, TOKEN_BAD)) diag_note(&p->m->errors, opened, "the %s begins here", what);
  }
  p->host->unclosed = true;
}

/* { … } with its own names; false, and nothing consumed, when it does not begin here. */
static bool parse_block(text_parser *p, loc opened, const char *what, ir_block *block) {
  if (p->host->depth == TEXT_MAX_NESTING) {
    diag_error(&p->m->errors, opened, "blocks nest deeper than %d levels", TEXT_MAX_NESTING);
    p->panic = true;
    return false;
  }
  if (!text_expect(p, TOKEN_LBRACE, "'{'")) return false;
  uint32_t names = p->host->names.len, scope = p->host->scope;
  p->host->scope = names;
  p->host->depth++;
  parse_statements(p, block);
  p->host->depth--;
  text_host_leave_scope(p, names);
  p->host->scope = scope;
  text_host_close_block(p, opened, what);
  return true;
}

/* ---- loops and branches ---- */
/* What the index of a loop counts: from `start` by `step`; both none: from 0 by 1. */
typedef struct loop_range {
  ir_scalar start, step;
} loop_range;

/* Declares the counter, which runs from 0 by 1. The name means what the range gives for it. */
static ir_scalar declare_index(text_parser *p, const text_token *name, const loop_range *range) {
  if (text_host_is_taken(p, name)) return (ir_scalar){0};
  ir_scalars *s = &p->m->scalars;
  ir_symbol_data symbol = {.kind = IR_SYMBOL_INDEX, .name = text_intern(p, name)};
  ir_scalar x = ir_scalar_symbol(s, symbol), value = x;
  if (range->start.id) value = ir_scalar_add(s, range->start, ir_scalar_mul(s, range->step, x));
  text_host_declare(p, symbol.name, (ir_name_entry){IR_NAME_EXTENT, value.id});
  return x;
}

/* n, or start to stop [step s]: how many iterations there are. */
static ir_scalar parse_range(text_parser *p, loop_range *range) {
  ir_scalars *s = &p->m->scalars;
  ir_scalar none = {0}, first = text_parse_scalar(p);
  int64_t value;
  if (p->panic || !text_is_word(p, "to")) return first;
  text_advance(p);
  ir_scalar stop = text_parse_scalar(p);
  range->step = ir_scalar_const(s, 1);
  if (!p->panic && text_is_word(p, "step")) {
    text_token at = p->token;
    text_advance(p);
    range->step = text_parse_scalar(p);
    if (range->step.id && ir_scalar_is_const(s, range->step, &value) && value < 1) {
      diag_error(&p->m->errors, text_token_loc(&at), "a step is at least 1, not %lld",
                 (long long)value);
      return none;
    }
  }
  if (p->panic || !first.id || !stop.id || !range->step.id) return none;
  range->start = first;
  ir_scalar length = ir_scalar_max(s, ir_scalar_const(s, 0), ir_scalar_sub(s, stop, first));
  return ir_scalar_ceildiv(s, length, range->step);
}

/* for i in n [stream] { … }, for i in a to b [step c] [stream] { … } */
static void parse_for(text_parser *p, ir_block *block) {
  text_token word = p->token;
  text_advance(p);
  text_token name = p->token;
  text_advance(p);
  if (!text_is_word(p, "in")) {
    text_expected(p, "'in' and the number of iterations");
    return;
  }
  text_advance(p);
  ir_instr_data d = {.kind = IR_FOR, .at = text_token_loc(&word)};
  loop_range range = {0};
  d.extent = parse_range(p, &range);
  if (p->panic) return;
  d.streamed = text_accept(p, TOKEN_STREAM);
  uint32_t names = p->host->names.len, comms = p->host->comms.len;
  int64_t n;
  bool runs = d.extent.id && ir_scalar_is_const(&p->m->scalars, d.extent, &n) && n > 0;
  d.variable = declare_index(p, &name, &range);
  p->host->skippable += !runs;
  p->host->loops++;
  vec_push(&p->m->memory, &p->host->open, ((text_loop){d.variable, d.extent}));
  bool closed = parse_block(p, d.at, "loop", &d.body);
  p->host->open.len--;
  p->host->loops--;
  if (closed && d.extent.id && d.variable.id) {
    ir_block_add(p->f, block, ir_host_instr(p->f, &d));
  }
  p->host->skippable -= !runs;
  text_host_leave_scope(p, names);
  text_host_leave_comms(p, comms);
}

/* a > b is b < a. */
static bool parse_relation(text_parser *p, ir_relation *relation, bool *swapped) {
  static const struct {
    text_token_kind token;
    ir_relation relation;
    bool swapped;
  } relations[] = {{TOKEN_EQ, IR_EQ, false}, {TOKEN_NE, IR_NE, false}, {TOKEN_LT, IR_LT, false},
                   {TOKEN_LE, IR_LE, false}, {TOKEN_GT, IR_LT, true},  {TOKEN_GE, IR_LE, true}};
  for (uint32_t i = 0; i < sizeof relations / sizeof relations[0]; i++) {
    if (!text_accept(p, relations[i].token)) continue;
    *relation = relations[i].relation;
    *swapped = relations[i].swapped;
    return true;
  }
  text_expected(p, "==, !=, <, <=, > or >=");
  return false;
}

/* { … } else { … } */
static bool parse_branches(text_parser *p, ir_instr_data *d) {
  if (!parse_block(p, d->at, "branch", &d->body)) return false;
  loc other = text_token_loc(&p->token);
  if (p->panic || !text_is_word(p, "else")) return true;
  text_advance(p);
  return parse_block(p, other, "branch", &d->otherwise);
}

/* if a == b { … } else { … } */
static void parse_if(text_parser *p, ir_block *block) {
  ir_instr_data d = {.kind = IR_IF, .at = text_token_loc(&p->token)};
  text_advance(p);
  bool swapped = false;
  d.a = text_parse_scalar(p);
  if (p->panic || !parse_relation(p, &d.relation, &swapped)) return;
  d.b = text_parse_scalar(p);
  if (swapped) {
    ir_scalar a = d.a;
    d.a = d.b;
    d.b = a;
  }
  if (p->panic) return;
  p->host->skippable++;
  bool good = parse_branches(p, &d);
  p->host->skippable--;
  if (good && d.a.id && d.b.id) ir_block_add(p->f, block, ir_host_instr(p->f, &d));
}

static bool begins_scalar(text_token_kind kind) {
  return kind == TOKEN_NAME || kind == TOKEN_INT || kind == TOKEN_LPAREN || kind == TOKEN_MINUS;
}

/* for and if are names elsewhere: what follows decides. */
static void parse_statement(text_parser *p, ir_block *block) {
  text_begin_statement(p);
  text_token start = p->token;
  text_token_kind next = text_lexer_peek(&p->lexer).kind;
  if (text_is_word(p, "for") && next == TOKEN_NAME) {
    parse_for(p, block);
  } else if (text_is_word(p, "if") && begins_scalar(next)) {
    parse_if(p, block);
  } else if (text_at_named_extent(p)) {
    text_parse_named_extent(p);
  } else {
    text_parse_host_step(p, block);
  }
  p->start = start; /* a body began statements of its own */
  text_end_statement(p);
}

/* ---- the head ---- */
static void parse_parameter(text_parser *p, uint32_t number) {
  text_token name = p->token;
  if (!text_expect(p, TOKEN_NAME, "the name of a parameter")) return;
  if (!text_expect(p, TOKEN_COLON, "':' and the type of the parameter")) return;
  p->host->parameter = number;
  ir_dtype dtype = text_parse_type(p);
  p->host->parameter = 0;
  ir_mesh mesh;
  bool placed = text_host_parse_on(p, &mesh) && text_host_cuts_fit(p, mesh);
  ir_tensor t = text_build_input(p, &name, placed ? dtype : IR_DTYPE_NONE);
  if (t.id) text_host_place(p, t, mesh, false);
}

static void refuse_streams(text_parser *p, const text_token *at) {
  if (ir_func_lookup(p->f, streams_name(p)).kind == IR_NAME_NONE) return;
  text_error(p, at, "'streams' is the number of worker streams; take another name");
  ir_func_undeclare(p->f, streams_name(p));
}

/* The braces around its devices hide that the parentheses are still open. */
static void parse_mesh(text_parser *p) {
  uint32_t depth = p->lexer.depth;
  if (p->f->inputs.len) text_error(p, &p->token, "meshes come before the tensors");
  text_parse_mesh(p);
  text_skip_newlines(p);
  if (!text_is(p, TOKEN_RPAREN) && p->lexer.depth == 0) p->lexer.depth = depth;
}

static void parse_parameters(text_parser *p) {
  uint32_t n = 0;
  text_expect(p, TOKEN_LPAREN, "'(' and the parameters");
  while (!p->panic && !text_is(p, TOKEN_RPAREN)) {
    text_token first = p->token;
    if (!text_is(p, TOKEN_MESH) && n == 0) text_host_read_ahead(p);
    if (text_is(p, TOKEN_MESH)) parse_mesh(p);
    else parse_parameter(p, ++n);
    refuse_streams(p, &first);
    if (!text_accept(p, TOKEN_COMMA)) break;
  }
  text_expect(p, TOKEN_RPAREN, "',' or ')'");
}

typedef VEC(text_token) token_list;

/* Only their names: the body defines them. */
static void parse_outputs(text_parser *p, token_list *outputs) {
  text_expect(p, TOKEN_ARROW, "'->' and the outputs");
  text_expect(p, TOKEN_LPAREN, "'(' and the outputs");
  while (!p->panic && !text_is(p, TOKEN_RPAREN)) {
    text_token t = p->token;
    if (text_expect(p, TOKEN_NAME, "the name of an output")) {
      vec_push(&p->m->memory, outputs, t);
    }
    if (!text_accept(p, TOKEN_COMMA)) break;
  }
  text_expect(p, TOKEN_RPAREN, "',' or ')'");
}

static void resolve_outputs(text_parser *p, const token_list *outputs) {
  for (uint32_t i = 0; i < outputs->len; i++) {
    const text_token *t = &outputs->data[i];
    ir_name_entry e = text_lookup(p, t, "output");
    if (text_is_kind(p, t, e, IR_NAME_TENSOR))
      (void)ir_build_output(p->f, (ir_tensor){e.id}, text_token_loc(t));
  }
}

/* After an error in the head the body is still parsed. Names of the head are poison then, so that their uses
 * are not reported. */
static void recover_head(text_parser *p) {
  if (!p->panic) return;
  while (!text_is(p, TOKEN_LBRACE) && !text_is(p, TOKEN_NEWLINE) && !text_at_item(p)) {
    bool devices = text_is_word(p, "of") && text_lexer_peek(&p->lexer).kind == TOKEN_LBRACE;
    while (devices && !text_is(p, TOKEN_RBRACE) && !text_at_item(p)) text_advance(p);
    if (text_is(p, TOKEN_NAME)) text_poison(p, text_intern(p, &p->token));
    text_advance(p);
  }
  p->panic = !text_is(p, TOKEN_LBRACE);
}

/* ---- host programs ---- */
static bool parse_head(text_parser *p, token_list *outputs) {
  map_init(&p->poisoned, &p->m->memory);
  map_init(&p->host->streams, &p->m->memory);
  map_init(&p->host->comm_names, &p->m->memory);
  map_init(&p->host->head, &p->m->memory);
  parse_parameters(p);
  if (!p->panic) parse_outputs(p, outputs);
  if (!p->panic) text_skip_newlines(p);
  recover_head(p);
  return text_expect(p, TOKEN_LBRACE, "'{'");
}

static void parse_body(text_parser *p, const token_list *outputs) {
  declare_streams(p);
  text_host_place_later(p);
  ir_block body = {0};
  parse_statements(p, &body);
  p->f->host->body = body;
  text_begin_statement(p);
  text_host_close_block(p, p->f->at, "host program");
  p->panic = false;
  resolve_outputs(p, outputs);
  ir_func_undeclare(p->f, streams_name(p)); /* -D does not set it */
  text_forget_extents(p);
}

void text_parse_host(text_parser *p) {
  text_host host = {0};
  token_list outputs = {0};
  p->f = NULL;
  text_begin_statement(p);
  text_advance(p);
  text_token name = p->token;
  if (text_expect(p, TOKEN_NAME, "the name of the host program")) {
    p->f = ir_host_new(p->m, text_intern(p, &name), text_token_loc(&name));
  }
  if (p->f) {
    p->host = &host;
    if (parse_head(p, &outputs)) parse_body(p, &outputs);
  } else {
    p->panic = true;
  }
  if (p->panic) text_end_statement(p);
  p->host = NULL;
}

void text_link_hosts(ir_module *m) {
  for (uint32_t i = 0; i < m->funcs.len; i++) {
    ir_func *h = m->funcs.data[i];
    if (h->host) h->host->fusion = ir_build_find(m, IR_FUNC_FUSION, h->name);
  }
}
