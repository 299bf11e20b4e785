/* "Did you mean …?": the candidate nearest to a word, by edit distance. */
#ifndef WEIR_BASE_SUGGEST_H
#define WEIR_BASE_SUGGEST_H

#include <stddef.h>
#include <stdint.h>

typedef struct suggestion {
  const char *word;
  size_t length;
  const char *best; /* NULL: nothing is near enough */
  size_t distance;  /* of `best`; before there is one, the first distance that is too far */
} suggestion;

void suggest_init(suggestion *s, const char *word, size_t length);
/* Offers a candidate. The first of equally near ones stays. */
void suggest_offer(suggestion *s, const char *candidate);

typedef char suggest_advice[96];
/* " (did you mean 'x'?)" or "", in the buffer given. */
const char *suggest_text(const suggestion *s, suggest_advice to);

#endif
