/* `# CHECK:` lines of a golden case: which part of what a command prints is compared. */
#ifndef WEIR_TESTS_GOLDEN_PARTS_H
#define WEIR_TESTS_GOLDEN_PARTS_H

#include <stdbool.h>

#include "words.h"

/* Replaces `t` by the part of it that `check` names. Patterns are extended regular expressions, matched
 * against one line at a time:
 *   lines PATTERN             the lines that match
 *   from PATTERN              from the first line that matches to the end
 *   from PATTERN to PATTERN   ... to the next line that matches the second, and so on after it
 *   words PATTERN             of each line what matches, on lines of its own
 *   without PATTERN           all lines, what matches taken out
 *   count PATTERN             how many lines match
 * False, and `t` is as before: `check` is none of these. */
bool golden_part(const char *check, words *t);

#endif
