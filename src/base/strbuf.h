/* A growing string in an arena. Always ends in NUL. */
#ifndef WEIR_BASE_STRBUF_H
#define WEIR_BASE_STRBUF_H

#include "base/memory.h"

typedef struct strbuf {
  arena *memory;
  char *data;
  size_t len, cap;
} strbuf;

void strbuf_init(strbuf *b, arena *memory);
void strbuf_add(strbuf *b, const char *text, size_t length);
void strbuf_puts(strbuf *b, const char *text);
void strbuf_putc(strbuf *b, char c);
void strbuf_printf(strbuf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* A decimal integer; faster than strbuf_printf, printers use it everywhere. */
void strbuf_int(strbuf *b, int64_t value);
/* The shortest decimal text that reads back as the same double; always with a point, an exponent,
 * "inf" or "nan", so that it never looks like an integer. */
void strbuf_double(strbuf *b, double value);

#endif
