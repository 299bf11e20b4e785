/* Text that grows, for the golden runner. */
#ifndef WEIR_TESTS_GOLDEN_WORDS_H
#define WEIR_TESTS_GOLDEN_WORDS_H

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct words {
  char *data; /* ends with a zero; NULL before the first addition */
  size_t len, cap;
} words;

static inline void words_add(words *t, const char *bytes, size_t n) {
  if (t->len + n + 1 > t->cap) {
    t->cap = 2 * (t->len + n + 1);
    t->data = realloc(t->data, t->cap);
    if (!t->data) abort();
  }
  memcpy(t->data + t->len, bytes, n);
  t->len += n;
  t->data[t->len] = '\0';
}

static inline void words_adds(words *t, const char *s) { words_add(t, s, strlen(s)); }

static inline void words_free(words *t) {
  free(t->data);
  *t = (words){0};
}

#endif
