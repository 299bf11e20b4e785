/* weir fmt: keeps tokens, comments and lines, and sets the blanks between them.
 *
 * What is between two tokens of the text is read again: whether a line ends there, whether there is
 * a comment, how many blanks. Lines stay lines, and columns that were lined up (before a colon, an
 * assignment or a comment, after a semicolon) stay lined up; everything else follows from the
 * tokens. */
#include <string.h>

#include "text/lexer.h"
#include "text/text.h"

typedef struct piece {
  text_token_kind kind;
  uint32_t offset, end;
} piece;

typedef struct format {
  arena *memory;
  const char *text;
  strbuf *out;
  VEC(piece) pieces;         /* without newlines */
  uint32_t braces, brackets; /* open ones before the current piece */
  bool list;                 /* the innermost brace is one of `of {0, 1}` */
  int64_t shift;             /* of the statement's first line: what its other lines move by */
} format;

enum { INDENT = 2, BEFORE_COMMENT = 2 };

/* ---- what is between two tokens ---- */
typedef struct gap {
  const char *text;
  size_t length;
} gap;

static uint32_t end_of(const format *f, uint32_t i) { return i ? f->pieces.data[i - 1].end : 0; }

static gap gap_before(const format *f, uint32_t i) {
  uint32_t from = end_of(f, i), to = f->pieces.data[i].offset;
  return (gap){f->text + from, to - from};
}

static size_t blanks_at(const char *text, size_t n) {
  size_t i = 0;
  while (i < n && (text[i] == ' ' || text[i] == '\t' || text[i] == '\r')) i++;
  return i;
}

static bool has_newline(gap g) { return memchr(g.text, '\n', g.length) != NULL; }

/* ---- blanks inside a line ---- */
static bool ends_value(text_token_kind k) {
  return k == TOKEN_NAME || k == TOKEN_INT || k == TOKEN_FLOAT || k == TOKEN_RPAREN ||
         k == TOKEN_RBRACKET || k == TOKEN_QUESTION || k == TOKEN_TRUE || k == TOKEN_FALSE ||
         k == TOKEN_STREAM || k == TOKEN_SERIAL || k == TOKEN_MESH;
}

static bool is_operator(text_token_kind k) {
  return k == TOKEN_PLUS || k == TOKEN_MINUS || k == TOKEN_STAR || k == TOKEN_SLASH ||
         k == TOKEN_PERCENT || (k >= TOKEN_EQ && k <= TOKEN_GE);
}

/* `<-` is two tokens that touch. */
static bool is_arrow(const format *f, uint32_t i) {
  const piece *p = &f->pieces.data[i];
  return p[0].kind == TOKEN_LT && i + 1 < f->pieces.len && p[1].kind == TOKEN_MINUS &&
         p[1].offset == p[0].end;
}

static bool is_sign(const format *f, uint32_t i) {
  if (f->pieces.data[i].kind != TOKEN_MINUS || (i > 0 && is_arrow(f, i - 1))) return false;
  return i == 0 || !ends_value(f->pieces.data[i - 1].kind);
}

static bool blank_before(const format *f, uint32_t i) {
  return f->pieces.data[i].offset > end_of(f, i);
}

/* An operator has blanks on both sides; inside brackets it may have none, if it had none. */
static bool is_spaced(const format *f, uint32_t i) {
  if (f->brackets == 0) return true;
  bool after = i + 1 < f->pieces.len && blank_before(f, i + 1);
  return blank_before(f, i) || after;
}

static bool wants_blank(const format *f, uint32_t i) {
  text_token_kind before = f->pieces.data[i - 1].kind, here = f->pieces.data[i].kind;
  if (is_arrow(f, i - 1)) return false;
  if (i > 1 && is_arrow(f, i - 2)) return true;
  if (is_arrow(f, i)) return true;
  if (before == TOKEN_LPAREN || before == TOKEN_LBRACKET || before == TOKEN_DOT ||
      before == TOKEN_AT || is_sign(f, i - 1))
    return false;
  if (here == TOKEN_RPAREN || here == TOKEN_RBRACKET || here == TOKEN_COMMA ||
      here == TOKEN_SEMICOLON || here == TOKEN_DOT || here == TOKEN_AT)
    return false;
  if (here == TOKEN_LPAREN || here == TOKEN_LBRACKET)
    return ends_value(before)
               ? blank_before(f, i)
               : !(is_operator(before) || before == TOKEN_ASSIGN) || is_spaced(f, i - 1);
  if (before == TOKEN_LBRACE || here == TOKEN_RBRACE) return !f->list;
  if (is_sign(f, i)) return before != TOKEN_ASSIGN || is_spaced(f, i - 1);
  if (is_operator(here) || here == TOKEN_ASSIGN) return is_spaced(f, i);
  if (is_operator(before) || before == TOKEN_ASSIGN) return is_spaced(f, i - 1);
  return true;
}

/* The number of blanks before piece i. Columns stay lined up. */
static size_t blanks_wanted(const format *f, uint32_t i) {
  text_token_kind before = f->pieces.data[i - 1].kind, here = f->pieces.data[i].kind;
  bool column = here == TOKEN_COLON || (here == TOKEN_ASSIGN && f->brackets == 0) ||
                before == TOKEN_SEMICOLON;
  gap g = gap_before(f, i);
  if (!wants_blank(f, i)) return 0;
  size_t had = blanks_at(g.text, g.length);
  return column && had > 1 ? had : 1;
}

/* ---- lines ---- */
static void put_blanks(format *f, size_t n) {
  while (n-- > 0) strbuf_putc(f->out, ' ');
}

static uint32_t column_of(const format *f, uint32_t offset) {
  uint32_t start = offset;
  while (start > 0 && f->text[start - 1] != '\n') start--;
  return offset - start;
}

/* The indentation of a line; `closes`: it begins with a closing brace. Lines that continue a statement keep their
 * place relative to it. */
static size_t indent_of(const format *f, uint32_t column, bool closes) {
  if (f->brackets > 0) {
    int64_t moved = (int64_t)column + f->shift;
    return moved > 0 ? (size_t)moved : 0;
  }
  uint32_t depth = f->braces - (closes && f->braces > 0 ? 1 : 0);
  return (size_t)depth * INDENT;
}

static void end_line(format *f) {
  while (f->out->len > 0 && f->out->data[f->out->len - 1] == ' ')
    f->out->data[--f->out->len] = '\0';
  strbuf_putc(f->out, '\n');
}

static bool at_block_start(const format *f) {
  size_t n = f->out->len;
  return n == 0 || (n >= 2 && f->out->data[n - 1] == '\n' && f->out->data[n - 2] == '{');
}

static bool at_blank_line(const format *f) {
  size_t n = f->out->len;
  return n >= 2 && f->out->data[n - 1] == '\n' && f->out->data[n - 2] == '\n';
}

static void put_comment(format *f, const char *text, size_t n) {
  while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t' || text[n - 1] == '\r')) n--;
  strbuf_add(f->out, text, n);
}

/* The rest of a line after its last token: blanks and perhaps a comment. */
static void put_line_end(format *f, const char *text, size_t n) {
  size_t blanks = blanks_at(text, n);
  if (blanks == n) return;
  put_blanks(f, blanks > BEFORE_COMMENT ? blanks : BEFORE_COMMENT);
  put_comment(f, text + blanks, n - blanks);
}

/* A line without tokens: a comment, or blank, of which one is kept. */
static void put_line(format *f, const char *text, size_t n) {
  size_t blanks = blanks_at(text, n);
  if (blanks < n) {
    put_blanks(f, indent_of(f, (uint32_t)blanks, false));
    put_comment(f, text + blanks, n - blanks);
    strbuf_putc(f->out, '\n');
  } else if (!at_block_start(f) && !at_blank_line(f)) strbuf_putc(f->out, '\n');
}

/* All lines that end in the gap. */
static void put_lines(format *f, gap g, bool closes) {
  const char *at = g.text, *end = g.text + g.length, *stop;
  bool first = f->out->len > 0; /* the rest of a line that has tokens */
  for (; (stop = memchr(at, '\n', (size_t)(end - at))) != NULL; at = stop + 1, first = false) {
    if (!first) put_line(f, at, (size_t)(stop - at));
    else {
      put_line_end(f, at, (size_t)(stop - at));
      end_line(f);
    }
    if (stop + 1 == end) break;
  }
  if (closes && at_blank_line(f)) f->out->data[--f->out->len] = '\0';
}

static void put_gap(format *f, uint32_t i) {
  const piece *p = &f->pieces.data[i];
  gap g = gap_before(f, i);
  bool closes = p->kind == TOKEN_RBRACE;
  if (i > 0 && !has_newline(g)) {
    put_blanks(f, blanks_wanted(f, i));
    return;
  }
  if (has_newline(g)) put_lines(f, g, closes);
  uint32_t column = column_of(f, p->offset);
  size_t indent = indent_of(f, column, closes);
  if (f->brackets == 0) f->shift = (int64_t)indent - (int64_t)column;
  put_blanks(f, indent);
}

static bool is_word(const format *f, const piece *p, const char *word) {
  return p->end - p->offset == strlen(word) && memcmp(f->text + p->offset, word, strlen(word)) == 0;
}

static void put_piece(format *f, uint32_t i) {
  const piece *p = &f->pieces.data[i];
  put_gap(f, i);
  if (p->kind == TOKEN_LBRACE) f->list = i > 0 && is_word(f, p - 1, "of");
  if (p->kind == TOKEN_RBRACE) f->list = false;
  strbuf_add(f->out, f->text + p->offset, p->end - p->offset);
  if (p->kind == TOKEN_LPAREN || p->kind == TOKEN_LBRACKET) f->brackets++;
  if ((p->kind == TOKEN_RPAREN || p->kind == TOKEN_RBRACKET) && f->brackets > 0) f->brackets--;
  if (p->kind == TOKEN_LBRACE) f->braces++;
  if (p->kind == TOKEN_RBRACE && f->braces > 0) f->braces--;
}

static void take_pieces(format *f, size_t length) {
  text_lexer lx;
  text_lexer_init(&lx, f->memory, NULL, f->text, (uint32_t)length);
  for (;;) {
    text_token t = text_lexer_next(&lx);
    if (t.kind == TOKEN_END) break;
    piece p = {t.kind, t.offset, t.offset + t.length};
    if (t.kind != TOKEN_NEWLINE) vec_push(f->memory, &f->pieces, p);
  }
}

void text_format(const char *text, size_t length, arena *memory, strbuf *out) {
  format f = {.memory = memory, .text = text, .out = out};
  take_pieces(&f, length);
  for (uint32_t i = 0; i < f.pieces.len; i++) put_piece(&f, i);
  uint32_t end = end_of(&f, f.pieces.len);
  char *tail = ARENA_ARRAY(memory, length - end + 1, char);
  memcpy(tail, text + end, length - end);
  tail[length - end] = '\n';
  put_lines(&f, (gap){tail, length - end + 1}, false);
  while (at_blank_line(&f)) out->data[--out->len] = '\0';
}
