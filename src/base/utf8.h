/* UTF-8, one character at a time. */
#ifndef WEIR_BASE_UTF8_H
#define WEIR_BASE_UTF8_H

#include <stdint.h>

enum { UTF8_BAD = -1 };

/* The character at the beginning of n bytes, n at least 1, and the bytes it takes. UTF8_BAD: a byte
 * that begins none; it is one byte long. */
int32_t utf8_next(const char *text, uint32_t n, uint32_t *length);

#endif
