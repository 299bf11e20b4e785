#include "base/strbuf.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"

void strbuf_init(strbuf *b, arena *memory) {
  *b = (strbuf){.memory = memory, .cap = 64};
  b->data = arena_alloc(memory, b->cap);
}

static void reserve(strbuf *b, size_t more) {
  if (b->cap - b->len > more) return;
  size_t cap = b->cap;
  while (cap - b->len <= more) {
    check(cap <= SIZE_MAX / 4);
    cap *= 2;
  }
  char *data = arena_alloc(b->memory, cap);
  memcpy(data, b->data, b->len);
  b->data = data;
  b->cap = cap;
}

void strbuf_add(strbuf *b, const char *text, size_t length) {
  reserve(b, length);
  if (length) memcpy(b->data + b->len, text, length);
  b->len += length;
  b->data[b->len] = '\0';
}

void strbuf_puts(strbuf *b, const char *text) { strbuf_add(b, text, strlen(text)); }

void strbuf_putc(strbuf *b, char c) { strbuf_add(b, &c, 1); }

void strbuf_printf(strbuf *b, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  int n = number_format(NULL, 0, fmt, args);
  va_end(args);
  check(n >= 0);
  reserve(b, (size_t)n + 1);
  va_start(args, fmt);
  (void)number_format(b->data + b->len, (size_t)n + 1, fmt, args);
  va_end(args);
  b->len += (size_t)n;
}

void strbuf_int(strbuf *b, int64_t value) {
  char digits[24];
  int n = snprintf(digits, sizeof digits, "%" PRId64, value);
  strbuf_add(b, digits, (size_t)n);
}

void strbuf_double(strbuf *b, double value) {
  char text[NUMBER_TEXT_MAX];
  number_print(value, text);
  strbuf_puts(b, text);
}
