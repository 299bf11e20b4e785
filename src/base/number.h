/* Numbers as text, whatever the locale of the program: the decimal point is a point.
 *
 * A program that embeds the library may have called setlocale(), and strtod() and printf() would then
 * read and write decimal commas. The content of files must not depend on that. */
#ifndef WEIR_BASE_NUMBER_H
#define WEIR_BASE_NUMBER_H

#include <stdarg.h>
#include <stddef.h>

#include "base/status.h"

enum { NUMBER_TEXT_MAX = 40 }; /* room for any double, its final NUL included */

/* The number at the start of `text`, as strtod() reads it in the C locale. */
double number_parse(const char *text);
/* The shortest decimal text that reads back as the same double; always with a point, an exponent,
 * "inf" or "nan", so that it never looks like an integer. */
void number_print(double value, char out[NUMBER_TEXT_MAX]);
/* vsnprintf() in the C locale. */
int number_format(char *out, size_t size, const char *fmt, va_list args) PRINTF_LIKE(3, 0);

#endif
