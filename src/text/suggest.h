/* "Did you mean …?": the candidate nearest to a word, by edit distance. */
#ifndef WEIR_TEXT_SUGGEST_H
#define WEIR_TEXT_SUGGEST_H

#include <stddef.h>
#include <stdint.h>

typedef struct text_suggestion {
  const char *word;
  size_t length;
  const char *best; /* NULL: nothing is near enough */
  size_t distance;  /* of `best`; before there is one, the first distance that is too far */
} text_suggestion;

void text_suggest_init(text_suggestion *s, const char *word, size_t length);
/* Offers a candidate. The first of equally near ones stays. */
void text_suggest_offer(text_suggestion *s, const char *candidate);

#endif
