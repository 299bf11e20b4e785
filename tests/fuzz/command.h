/* The command line of a random suite: [N] [--seed S] [--first S] [--seconds T] [--failures F], and
 * what it adds. */
#ifndef WEIR_TESTS_FUZZ_COMMAND_H
#define WEIR_TESTS_FUZZ_COMMAND_H

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "test.h"

typedef struct command {
  uint64_t first, count; /* seeds */
  double seconds;        /* no program begins later; 0: as long as it takes */
  unsigned failures;     /* nor after so many; 0: all run */
  bool one;              /* --seed: that one alone, and more is printed */
  double start;
} command;

static inline double command_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* How many arguments from argv[i] on an option takes; 0: it is none of these. argv ends with NULL. */
typedef int (*command_option)(command *c, char **argv);

static inline int command_common(command *c, char **argv) {
  const char *name = argv[0], *value = argv[1];
  if (isdigit((unsigned char)name[0])) return c->count = strtoull(name, NULL, 0), 1;
  if (!value) return 0;
  if (strcmp(name, "--seed") == 0) {
    c->first = strtoull(value, NULL, 0);
    c->count = 1;
    c->one = true;
  } else if (strcmp(name, "--first") == 0) {
    c->first = strtoull(value, NULL, 0);
  } else if (strcmp(name, "--seconds") == 0) {
    c->seconds = strtod(value, NULL);
  } else if (strcmp(name, "--failures") == 0) {
    c->failures = (unsigned)strtoul(value, NULL, 0);
  } else {
    return 0;
  }
  return 2;
}

/* own: further options; NULL: there are none. Exits with 2 where an argument is unknown: a suite
 * that misreads its number of programs would pass without any. */
static inline command command_read(char **argv, command c, command_option own) {
  c.start = command_now();
  for (int i = 1; argv[i];) {
    int n = command_common(&c, argv + i);
    if (!n && own) n = own(&c, argv + i);
    if (!n) {
      fprintf(stderr, "%s: what is '%s'?\n", argv[0], argv[i]);
      exit(2);
    }
    i += n;
  }
  return c;
}

/* Is there a program `at`? */
static inline bool command_more(const command *c, uint64_t at) {
  return at < c->count && (!c->failures || test_failed < c->failures) &&
         (c->seconds <= 0 || command_now() - c->start <= c->seconds);
}

/* The seed of program `at`: first those that were wrong once, unless one alone was asked for. */
static inline uint64_t command_seed(const command *c, uint64_t at, const uint64_t *once_wrong,
                                    uint64_t n) {
  if (c->one) return c->first;
  return at < n ? once_wrong[at] : c->first + at - n;
}

#endif
