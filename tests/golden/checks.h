/* What must hold of every valid program, checked for each golden case. */
#ifndef WEIR_TESTS_GOLDEN_CHECKS_H
#define WEIR_TESTS_GOLDEN_CHECKS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct golden_program {
  const char *path, *text;
  const char *bind; /* "t=6 inp=6x32"; "": values that fit are looked for */
} golden_program;

/* Does it parse, and do its schedules apply? */
bool golden_is_valid(const golden_program *p);

/* The program, and the program after `passes` ("" for none): both verify and print to a fixpoint, and
 * with random inputs all of their forms evaluate to the same bits. False, and a message, if not.
 * Programs too large for the reference evaluator, or without extents that fit, are not evaluated. */
bool golden_check(const golden_program *p, const char *passes, char *message, size_t size);

#endif
