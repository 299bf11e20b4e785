/* Tokens of the text form.
 *
 * The lexer never reads past the end of the text and needs no NUL there. A newline is a token of its
 * own outside ( ) and [ ], and a blank inside them. Two things help the parser to recover: every
 * token knows the indentation of its line, and text that the lexer has already reported comes as one
 * TOKEN_BAD, so that the parser does not report it again. */
#ifndef WEIR_TEXT_LEXER_H
#define WEIR_TEXT_LEXER_H

#include "base/diag.h"

typedef enum text_token_kind {
  TOKEN_END,     /* of the text */
  TOKEN_NEWLINE, /* outside ( ) and [ ] */
  TOKEN_BAD,     /* already reported */
  TOKEN_NAME,
  TOKEN_INT,
  TOKEN_FLOAT, /* with inf and nan */
  TOKEN_LPAREN,
  TOKEN_RPAREN,
  TOKEN_LBRACKET,
  TOKEN_RBRACKET,
  TOKEN_LBRACE,
  TOKEN_RBRACE,
  TOKEN_COMMA,
  TOKEN_SEMICOLON,
  TOKEN_COLON,
  TOKEN_DOT,
  TOKEN_QUESTION,
  TOKEN_AT,
  TOKEN_ASSIGN,
  TOKEN_PLUS,
  TOKEN_MINUS,
  TOKEN_STAR,
  TOKEN_SLASH,
  TOKEN_PERCENT,
  TOKEN_ARROW,
  TOKEN_EQ,
  TOKEN_NE,
  TOKEN_LT,
  TOKEN_LE,
  TOKEN_GT,
  TOKEN_GE,
  /* Words that cannot be names; inf and nan are numbers and so cannot either. */
  TOKEN_FUSION,
  TOKEN_HOST,
  TOKEN_RETURN,
  TOKEN_SCHEDULE,
  TOKEN_MESH,
  TOKEN_STREAM,
  TOKEN_SERIAL,
  TOKEN_TRUE,
  TOKEN_FALSE,
} text_token_kind;

typedef struct text_token {
  text_token_kind kind;
  uint32_t offset, length;
  uint32_t indent;  /* column, from 0, of the first token on its line */
  bool first;       /* this is that token */
  uint64_t integer; /* INT: at most 2^63, which is an int64 only after a minus sign */
  double real;      /* FLOAT */
} text_token;

typedef struct text_lexer {
  arena *memory;
  diags *errors; /* NULL: stay silent */
  const char *text;
  uint32_t length, pos;
  uint32_t depth;  /* open ( and [; a brace or ; closes them all: no expression continues there */
  uint32_t opened; /* the end of the outermost of them, also after a brace or ;. 0: none is open */
  uint32_t line_start, indent;
  bool fresh; /* no token on this line yet */
} text_lexer;

void text_lexer_init(text_lexer *lx, arena *memory, diags *errors, const char *text,
                     uint32_t length);
/* The next token; after the end of the text always TOKEN_END. */
text_token text_lexer_next(text_lexer *lx);
/* What text_lexer_next() would return; changes and reports nothing. */
text_token text_lexer_peek(const text_lexer *lx);

static inline loc text_token_loc(const text_token *t) {
  return (loc){.offset = t->offset, .length = t->length, .known = true};
}

#endif
