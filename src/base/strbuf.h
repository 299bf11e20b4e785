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
/* In the C locale, whatever the program's: numbers in files have a decimal point. */
void strbuf_printf(strbuf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* A decimal integer; faster than strbuf_printf, printers use it everywhere. */
void strbuf_int(strbuf *b, int64_t value);
/* As number_print() writes it: reads back as the same double, and never looks like an integer. */
void strbuf_double(strbuf *b, double value);

#endif
