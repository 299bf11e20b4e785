#include <string.h>

#include "text/parser.h"
#include "text/text.h"

void text_advance(text_parser *p) {
  p->end = p->token.offset + p->token.length;
  p->token = text_lexer_next(&p->lexer);
}

bool text_accept(text_parser *p, text_token_kind kind) {
  if (p->panic || p->token.kind != kind) return false;
  text_advance(p);
  return true;
}

bool text_expect(text_parser *p, text_token_kind kind, const char *wanted) {
  if (text_accept(p, kind)) return true;
  text_expected(p, wanted);
  return false;
}

uint32_t text_expect_name(text_parser *p, const char *wanted) {
  text_token t = p->token;
  return text_expect(p, TOKEN_NAME, wanted) ? text_intern(p, &t) : 0;
}

bool text_is_word(const text_parser *p, const char *word) {
  return p->token.kind == TOKEN_NAME && strlen(word) == p->token.length &&
         memcmp(text_of(p, &p->token), word, p->token.length) == 0;
}

void text_skip_newlines(text_parser *p) {
  while (text_is(p, TOKEN_NEWLINE)) text_advance(p);
}

/* ---- places and messages ---- */
enum { LONGEST_SHOWN = 60 };

const char *text_of(const text_parser *p, const text_token *t) { return p->lexer.text + t->offset; }

int text_shown(const text_token *t) {
  return t->length < LONGEST_SHOWN ? (int)t->length : LONGEST_SHOWN;
}

uint32_t text_intern(text_parser *p, const text_token *t) {
  return strings_intern(&p->m->names, text_of(p, t), t->length);
}

loc text_span(const text_parser *p, const text_token *first) {
  return (loc){.offset = first->offset, .length = p->end - first->offset, .known = true};
}

/* Most likely, a bracket that was opened on an earlier line lacks its end. */
static void note_open(text_parser *p) {
  uint32_t opened = p->lexer.opened;
  const char *text = p->lexer.text;
  if (!opened || opened > p->token.offset) return;
  if (!text_is(p, TOKEN_END) && !memchr(text + opened, '\n', p->token.offset - opened)) return;
  loc at = {.offset = opened - 1, .length = 1, .known = true};
  diag_note(&p->m->errors, at, "this '%c' is not closed", text[opened - 1]);
}

/* Advice on common mistakes that end up at this token. */
static const char *advice_on(const text_parser *p) {
  const text_token *t = &p->token;
  const char *text = text_of(p, t);
  bool slash = t->kind == TOKEN_SLASH, more = t->offset + 1 < p->lexer.length;
  if (slash && more && (text[1] == '/' || text[1] == '*')) return "; a comment begins with #";
  if (slash && t->offset > 0 && text[-1] == '/')
    return "; a comment begins with #, and floor(a / b) rounds down";
  return "";
}

static void expected(text_parser *p, const char *wanted, const char *advice) {
  bool quiet = p->panic || text_is(p, TOKEN_BAD); /* then it has been reported */
  p->panic = true;
  if (quiet) return;
  const text_token *t = &p->token;
  if (t->kind == TOKEN_END) {
    text_error(p, t, "expected %s, found the end of the file", wanted);
  } else if (t->kind == TOKEN_NEWLINE) {
    text_error(p, t, "expected %s, found the end of the line", wanted);
  } else {
    const char *kind = t->kind >= TOKEN_FUSION ? "the reserved word " : "";
    text_error(p, t, "expected %s, found %s'%.*s'%s", wanted, kind, text_shown(t), text_of(p, t),
               advice);
  }
  note_open(p);
}

void text_expected(text_parser *p, const char *wanted) { expected(p, wanted, advice_on(p)); }

void text_wrong(text_parser *p, const text_token *t, const char *what) {
  if (!p->panic && !text_is(p, TOKEN_BAD)) text_error(p, t, "%s", what);
  p->panic = true;
}

void text_expected_word(text_parser *p, const char *wanted, const char *const *words, size_t n) {
  suggestion s;
  suggest_init(&s, text_of(p, &p->token), p->token.kind == TOKEN_NAME ? p->token.length : 0);
  for (size_t i = 0; i < n && p->token.kind == TOKEN_NAME; i++) suggest_offer(&s, words[i]);
  expected(p, wanted, text_did_you_mean(p, &s));
}

bool text_enter(text_parser *p) {
  p->depth++;
  if (p->depth <= TEXT_MAX_NESTING) return true;
  if (!p->panic) {
    text_error(p, &p->token, "this is nested deeper than %d levels; give parts a name of their own",
               TEXT_MAX_NESTING);
  }
  p->panic = true;
  return false;
}

void text_leave(text_parser *p) { p->depth--; }

/* ---- statements and recovery ---- */
void text_begin_statement(text_parser *p) {
  p->start = p->token;
  p->depth = 0;
  p->panic = false;
  p->declaring = false;
  p->tainted = false;
  p->lexer.opened = 0;
}

static bool ends_statement(text_token_kind kind) {
  return kind == TOKEN_NEWLINE || kind == TOKEN_SEMICOLON || kind == TOKEN_RBRACE ||
         kind == TOKEN_END;
}

bool text_at_end(const text_parser *p) { return !p->panic && ends_statement(p->token.kind); }

/* Does something new begin here, whatever brackets are open? A line that is indented no deeper than
 * the failed statement most likely does: that is how a missing ) stays one error. */
static bool at_break(const text_parser *p) {
  const text_token *t = &p->token;
  if (ends_statement(t->kind)) return true;
  if (t->offset <= p->start.offset) return false;
  if (t->kind == TOKEN_FUSION || t->kind == TOKEN_HOST) return true;
  return t->first && t->indent <= p->start.indent && t->kind != TOKEN_RPAREN &&
         t->kind != TOKEN_RBRACKET;
}

static void skip_statement(text_parser *p) {
  uint32_t braces = 0;
  while (!text_is(p, TOKEN_END)) {
    if (braces == 0 && at_break(p)) break;
    if (text_at_item(p) && p->token.offset > p->start.offset) break;
    if (text_is(p, TOKEN_LBRACE)) braces++;
    if (text_is(p, TOKEN_RBRACE)) braces--;
    if (p->declaring && text_is(p, TOKEN_NAME)) text_poison(p, text_intern(p, &p->token));
    text_advance(p);
  }
  p->lexer.depth = text_is(p, TOKEN_LPAREN) || text_is(p, TOKEN_LBRACKET) ? 1 : 0;
}

void text_end_statement(text_parser *p) {
  if (!text_at_end(p)) text_expected(p, "the end of the statement");
  if (!p->panic) return;
  if (p->f && p->start.kind == TOKEN_NAME) text_poison(p, text_intern(p, &p->start));
  skip_statement(p);
  p->panic = false;
}

bool text_at_item(const text_parser *p) {
  return text_is(p, TOKEN_END) || text_is(p, TOKEN_FUSION) || text_is(p, TOKEN_HOST);
}

void text_skip_argument(text_parser *p) {
  uint32_t open = 0;
  while (!at_break(p)) {
    text_token_kind kind = p->token.kind;
    if (open == 0 && (kind == TOKEN_COMMA || kind == TOKEN_RPAREN)) return;
    if (kind == TOKEN_LPAREN || kind == TOKEN_LBRACKET) open++;
    if ((kind == TOKEN_RPAREN || kind == TOKEN_RBRACKET) && open > 0) open--;
    text_advance(p);
  }
}
