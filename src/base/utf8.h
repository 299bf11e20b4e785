/* UTF-8, one character at a time. */
#ifndef WEIR_BASE_UTF8_H
#define WEIR_BASE_UTF8_H

#include <stdint.h>

enum { UTF8_BAD = -1 };

/* The character at the start of `text`, which has n >= 1 bytes; *length is how many of them it takes.
 * UTF8_BAD, with length 1: no character begins with that byte. */
int32_t utf8_next(const char *text, uint32_t n, uint32_t *length);

#endif
