#include "text/suggest.h"

#include <string.h>

enum { LONGEST = 64 };

void text_suggest_init(text_suggestion *s, const char *word, size_t length) {
  *s = (text_suggestion){.word = word, .length = length};
  if (length <= LONGEST) s->distance = (length + 1) / 3 < 3 ? (length + 1) / 3 + 1 : 3;
}

static size_t smallest(size_t a, size_t b, size_t c) {
  size_t ab = a < b ? a : b;
  return ab < c ? ab : c;
}

/* Insertions, deletions and replacements; `row` holds the distances of the prefix of `a` so far. */
static size_t distance(const char *a, size_t n, const char *b, size_t m) {
  size_t row[LONGEST + 1];
  for (size_t j = 0; j <= m; j++) row[j] = j;
  for (size_t i = 1; i <= n; i++) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= m; j++) {
      size_t above = row[j];
      row[j] = smallest(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
      diagonal = above;
    }
  }
  return row[m];
}

void text_suggest_offer(text_suggestion *s, const char *candidate) {
  size_t m = strlen(candidate);
  size_t apart = m > s->length ? m - s->length : s->length - m;
  if (apart >= s->distance || m > LONGEST) return;
  size_t d = distance(s->word, s->length, candidate, m);
  if (d >= s->distance) return;
  s->best = candidate;
  s->distance = d;
}
