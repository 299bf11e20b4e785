/* Programs on several devices that are refused: counted by what the diagnostic says. */
#ifndef WEIR_TESTS_FUZZ_REFUSALS_H
#define WEIR_TESTS_FUZZ_REFUSALS_H

#include <pthread.h>

#include "stream_kit.h"

enum { REFUSALS = 64 };

static struct {
  char text[160];
  uint64_t count, seed;
} refusals[REFUSALS];
static uint32_t n_refusals;
static uint64_t n_refused;
static pthread_mutex_t refusals_lock = PTHREAD_MUTEX_INITIALIZER;

/* The first message of a refusal, without the names in it. */
static inline void refusal_text(char text[160]) {
  const char *from = strstr(kit_reason, "error: ");
  uint32_t n = 0;
  bool quoted = false;
  for (from = from ? from + 7 : kit_reason; *from && *from != '\n' && n < 150; from++) {
    if (*from == '\'' && (quoted || n == 0 || text[n - 1] == ' ')) {
      quoted = !quoted;
      if (quoted) text[n++] = '_';
      continue;
    }
    if (!quoted) text[n++] = *from;
  }
  text[n] = '\0';
}

static inline void refusal_count(uint64_t seed) {
  char text[160];
  uint32_t i = 0;
  refusal_text(text);
  (void)pthread_mutex_lock(&refusals_lock);
  n_refused++;
  while (i < n_refusals && strcmp(refusals[i].text, text) != 0) i++;
  if (i == n_refusals && i < REFUSALS) {
    snprintf(refusals[n_refusals++].text, sizeof refusals[0].text, "%s", text);
    refusals[i].seed = seed;
  }
  if (i < REFUSALS) refusals[i].count++;
  (void)pthread_mutex_unlock(&refusals_lock);
}

static inline void refusals_print(void) {
  for (uint32_t i = 0; i < n_refusals; i++)
    printf("refused %llu times (seed %llu): %s\n", (unsigned long long)refusals[i].count,
           (unsigned long long)refusals[i].seed, refusals[i].text);
}

/* What may be refused; anything else is a failure. */
static inline bool refusal_is_expected(void) {
  static const char *const expected[] = {
      "is swizzled along one that is swizzled along it",
      "comes from merged axes",
      "comes from a broadcast axis that was merged with another one",
      "the communication that",
      "stream axes must be logical axes or the outer part of a split",
      "mixes chunks of different lengths with other splits",
      "lies inside an axis that is neither streamed nor placed",
      "lies inside chunks of given lengths",
      "counts chunks of given lengths in steps of several positions",
      "lies in pieces of different lengths, whose positions have no common step",
      "are made in the same loops", /* results of one operation that were given different streams */
  };
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
    if (strstr(kit_reason, expected[i])) return true;
  return false;
}

/* What only the extents tell. */
static inline bool refusal_is_unfit(void) {
  return strstr(kit_reason, "must be whole rows of the first of them");
}

#endif
