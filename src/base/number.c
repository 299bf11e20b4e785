#include "base/number.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static locale_t c_locale; /* made once and kept; none if that failed */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_locale(void) { c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

/* Only this thread changes its locale, and only until leave(): setlocale() would change it for all. */
static locale_t enter(void) {
  (void)pthread_once(&once, make_locale);
  return c_locale ? uselocale(c_locale) : (locale_t)0;
}

static void leave(locale_t before) {
  if (before) (void)uselocale(before);
}

double number_parse(const char *text) {
  locale_t before = enter();
  double value = strtod(text, NULL);
  leave(before);
  return value;
}

int number_format(char *out, size_t size, const char *fmt, va_list args) {
  locale_t before = enter();
  int n = vsnprintf(out, size, fmt, args);
  leave(before);
  return n;
}

static void print_finite(double value, char out[NUMBER_TEXT_MAX]) {
  int digits = 0;
  do (void)snprintf(out, NUMBER_TEXT_MAX, "%.*g", ++digits, value);
  while (digits < 17 && strtod(out, NULL) != value);
  if (!strpbrk(out, ".e")) (void)snprintf(out, NUMBER_TEXT_MAX, "%.*g.0", digits, value);
}

void number_print(double value, char out[NUMBER_TEXT_MAX]) {
  locale_t before = enter();
  if (isfinite(value)) print_finite(value, out);
  else (void)snprintf(out, NUMBER_TEXT_MAX, isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
  leave(before);
}
