#include "text/lexer.h"

#include <math.h>
#include <string.h>

#include "base/number.h"
#include "text/strange.h"

void text_lexer_init(text_lexer *lx, arena *memory, diags *errors, const char *text,
                     uint32_t length) {
  *lx = (text_lexer){
      .memory = memory, .errors = errors, .text = text, .length = length, .fresh = true};
  if (length >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) lx->pos = lx->line_start = 3;
}

/* The byte `ahead` of the position; 0 past the end, which like a real NUL starts no token. */
static char at(const text_lexer *lx, uint32_t ahead) {
  return ahead < lx->length - lx->pos ? lx->text[lx->pos + ahead] : '\0';
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_name_part(char c) { return is_name_start(c) || is_digit(c) || c == '$'; }

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static void begin_line(text_lexer *lx) {
  lx->pos++;
  lx->line_start = lx->pos;
  lx->fresh = true;
}

static void skip_blanks(text_lexer *lx) {
  while (lx->pos < lx->length) {
    char c = lx->text[lx->pos];
    if (is_blank(c)) {
      lx->pos++;
    } else if (c == '#') {
      while (lx->pos < lx->length && lx->text[lx->pos] != '\n') lx->pos++;
    } else if (c == '\n' && lx->depth > 0) {
      begin_line(lx);
    } else {
      return;
    }
  }
}

/* ---- names ---- */
static const struct {
  const char *text;
  text_token_kind kind;
} words[] = {
    {"fusion", TOKEN_FUSION}, {"host", TOKEN_HOST},     {"return", TOKEN_RETURN},
    {"mesh", TOKEN_MESH},     {"stream", TOKEN_STREAM}, {"schedule", TOKEN_SCHEDULE},
    {"true", TOKEN_TRUE},     {"false", TOKEN_FALSE},   {"serial", TOKEN_SERIAL},
};

static bool is_word(const text_lexer *lx, const text_token *t, const char *word) {
  return strlen(word) == t->length && memcmp(lx->text + t->offset, word, t->length) == 0;
}

static void lex_name(text_lexer *lx, text_token *t) {
  while (is_name_part(at(lx, 0))) lx->pos++;
  t->kind = TOKEN_NAME;
  t->length = lx->pos - t->offset;
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
    if (is_word(lx, t, words[i].text)) t->kind = words[i].kind;
  }
  if (is_word(lx, t, "inf") || is_word(lx, t, "nan")) {
    t->kind = TOKEN_FLOAT;
    t->real = lx->text[t->offset] == 'i' ? (double)INFINITY : (double)NAN;
  }
}

/* ---- numbers ---- */
static void bad_number(text_lexer *lx, text_token *t, const char *why) {
  t->kind = TOKEN_BAD;
  t->length = lx->pos - t->offset;
  if (lx->errors) diag_error(lx->errors, text_token_loc(t), "%s", why);
}

static void lex_integer(text_lexer *lx, text_token *t) {
  const uint64_t limit = (uint64_t)1 << 63;
  t->kind = TOKEN_INT;
  for (uint32_t i = t->offset; i < lx->pos; i++) {
    uint64_t digit = (uint64_t)(lx->text[i] - '0');
    if (t->integer > (limit - digit) / 10) {
      bad_number(lx, t, "this integer does not fit 64 bits");
      return;
    }
    t->integer = t->integer * 10 + digit;
  }
}

/* number_parse() needs a final NUL, which the text need not have. */
static void lex_float(text_lexer *lx, text_token *t) {
  char small[64];
  size_t n = lx->pos - t->offset;
  char *copy = n < sizeof small ? small : arena_alloc(lx->memory, n + 1);
  memcpy(copy, lx->text + t->offset, n);
  copy[n] = '\0';
  t->kind = TOKEN_FLOAT;
  t->real = number_parse(copy);
  if (isinf(t->real)) bad_number(lx, t, "this number is too large; write inf for infinity");
}

static void skip_digits(text_lexer *lx) {
  while (is_digit(at(lx, 0))) lx->pos++;
}

static void lex_number(text_lexer *lx, text_token *t) {
  bool fraction = false;
  skip_digits(lx);
  if (at(lx, 0) == '.') {
    fraction = true;
    lx->pos++;
    skip_digits(lx);
  }
  if (at(lx, 0) == 'e' || at(lx, 0) == 'E') {
    uint32_t sign = at(lx, 1) == '+' || at(lx, 1) == '-' ? 1 : 0;
    if (is_digit(at(lx, 1 + sign))) {
      fraction = true;
      lx->pos += 1 + sign;
      skip_digits(lx);
    }
  }
  if (is_name_part(at(lx, 0))) {
    while (is_name_part(at(lx, 0))) lx->pos++;
    bad_number(lx, t, "malformed number; numbers look like 12, 1.5 or 1e-5");
  } else if (fraction) {
    lex_float(lx, t);
  } else {
    lex_integer(lx, t);
  }
}

/* ---- punctuation ---- */
static const struct {
  char text[3];
  text_token_kind kind;
} marks[] = {
    /* Longer ones first. */
    {"->", TOKEN_ARROW},    {"==", TOKEN_EQ},     {"!=", TOKEN_NE},    {"<=", TOKEN_LE},
    {">=", TOKEN_GE},       {"(", TOKEN_LPAREN},  {")", TOKEN_RPAREN}, {"[", TOKEN_LBRACKET},
    {"]", TOKEN_RBRACKET},  {"{", TOKEN_LBRACE},  {"}", TOKEN_RBRACE}, {",", TOKEN_COMMA},
    {";", TOKEN_SEMICOLON}, {":", TOKEN_COLON},   {".", TOKEN_DOT},    {"?", TOKEN_QUESTION},
    {"=", TOKEN_ASSIGN},    {"+", TOKEN_PLUS},    {"-", TOKEN_MINUS},  {"*", TOKEN_STAR},
    {"/", TOKEN_SLASH},     {"%", TOKEN_PERCENT}, {"<", TOKEN_LT},     {">", TOKEN_GT},
    {"@", TOKEN_AT},
};

/* The length of the mark at the position, 0 when there is none. */
static uint32_t match_mark(const text_lexer *lx, text_token_kind *kind) {
  char c = at(lx, 0), d = at(lx, 1);
  for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
    if (marks[i].text[0] != c || (marks[i].text[1] != '\0' && marks[i].text[1] != d)) continue;
    *kind = marks[i].kind;
    return marks[i].text[1] == '\0' ? 1 : 2;
  }
  return 0;
}

static void track_depth(text_lexer *lx, text_token_kind kind) {
  if (kind == TOKEN_LPAREN || kind == TOKEN_LBRACKET) {
    if (lx->depth++ == 0) lx->opened = lx->pos; /* of the byte after it, so that 0 is none */
  } else if (kind == TOKEN_RPAREN || kind == TOKEN_RBRACKET) {
    if (lx->depth > 0) lx->depth--;
    if (lx->depth == 0) lx->opened = 0;
  } else if (kind == TOKEN_SEMICOLON || kind == TOKEN_LBRACE || kind == TOKEN_RBRACE) {
    lx->depth = 0;
  }
}

static bool starts_something(const text_lexer *lx) {
  char c = at(lx, 0);
  text_token_kind kind;
  if (c == '\0') return false;
  return is_name_start(c) || is_digit(c) || is_blank(c) || c == '\n' || c == '#' ||
         match_mark(lx, &kind) > 0;
}

/* Skips to the closing quotation mark if it is on this line, so that a quoted text is one error. */
static void skip_quoted(text_lexer *lx) {
  char quote = at(lx, 0);
  if (quote != '"' && quote != '\'') return;
  for (uint32_t i = lx->pos + 1; i < lx->length && lx->text[i] != '\n'; i++)
    if (lx->text[i] == quote) {
      lx->pos = i;
      return;
    }
}

static void lex_bad(text_lexer *lx, text_token *t) {
  skip_quoted(lx);
  do lx->pos++;
  while (lx->pos < lx->length && !starts_something(lx));
  t->kind = TOKEN_BAD;
  t->length = lx->pos - t->offset;
  if (lx->errors)
    text_report_strange(lx->errors, text_token_loc(t), lx->text + t->offset, t->length);
}

static void lex_visible(text_lexer *lx, text_token *t) {
  char c = at(lx, 0);
  uint32_t mark;
  if (is_name_start(c)) {
    lex_name(lx, t);
  } else if (is_digit(c)) {
    lex_number(lx, t);
  } else if ((mark = match_mark(lx, &t->kind)) > 0) {
    lx->pos += mark;
    track_depth(lx, t->kind);
  } else {
    lex_bad(lx, t);
  }
}

text_token text_lexer_next(text_lexer *lx) {
  skip_blanks(lx);
  text_token t = {.kind = TOKEN_END, .offset = lx->pos};
  if (lx->pos == lx->length) return t;
  if (lx->text[lx->pos] == '\n') {
    t.kind = TOKEN_NEWLINE;
    t.length = 1;
    begin_line(lx);
    return t;
  }
  if (lx->fresh) lx->indent = lx->pos - lx->line_start;
  t.first = lx->fresh;
  t.indent = lx->indent;
  lx->fresh = false;
  lex_visible(lx, &t);
  t.length = lx->pos - t.offset;
  return t;
}

text_token text_lexer_peek(const text_lexer *lx) {
  text_lexer copy = *lx;
  copy.errors = NULL;
  return text_lexer_next(&copy);
}
