#include "base/suggest.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { LONGEST = 64 };

void suggest_init(suggestion *s, const char *word, size_t length) {
  *s = (suggestion){.word = word, .length = length};
  if (length <= LONGEST) s->distance = (length + 1) / 3 < 3 ? (length + 1) / 3 + 1 : 3;
}

static size_t smallest(size_t a, size_t b, size_t c) {
  size_t ab = a < b ? a : b;
  return ab < c ? ab : c;
}

static char lowered(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

/* Counts insertions, deletions, replacements and swapped neighbours; case is ignored. Row i holds the
 * distances of the first i letters of `a`; three rows are kept. */
static size_t distance(const char *a, size_t n, const char *b, size_t m) {
  size_t rows[3][LONGEST + 1] = {{0}};
  for (size_t j = 0; j <= m; j++) rows[0][j] = j;
  for (size_t i = 1; i <= n; i++) {
    size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *higher = rows[(i + 1) % 3];
    row[0] = i;
    for (size_t j = 1; j <= m; j++) {
      row[j] = smallest(above[j] + 1, row[j - 1] + 1,
                        above[j - 1] + (lowered(a[i - 1]) != lowered(b[j - 1])));
      bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped && higher[j - 2] + 1 < row[j]) row[j] = higher[j - 2] + 1;
    }
  }
  return rows[n % 3][m];
}

void suggest_offer(suggestion *s, const char *candidate) {
  size_t m = strlen(candidate);
  size_t apart = m > s->length ? m - s->length : s->length - m;
  if (apart >= s->distance || m > LONGEST) return;
  size_t d = distance(s->word, s->length, candidate, m);
  if (d >= s->distance) return;
  s->best = candidate;
  s->distance = d;
}

const char *suggest_text(const suggestion *s, suggest_advice to) {
  to[0] = '\0';
  if (s->best) (void)snprintf(to, sizeof(suggest_advice), " (did you mean '%s'?)", s->best);
  return to;
}
