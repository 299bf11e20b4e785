/* Status codes, the per-thread error record, and the checks for our own bugs.
 *
 * Three kinds of trouble are kept apart:
 *   - a broken invariant (our bug):     check(cond), ends the process with the place;
 *   - a wrong program (the user's):     a diagnostic with line and column (diag.h), many per run;
 *   - the world failed:                 return fail(STATUS_X, "fmt", ...).
 *
 * fail() records the message for this thread. The first error wins: while there is a record, later
 * calls of fail() keep it, so the message names the cause and not what followed from it. */
#ifndef WEIR_BASE_STATUS_H
#define WEIR_BASE_STATUS_H

#include <stdbool.h>
#include <stddef.h>

typedef enum status {
#define STATUS(name, exit_code, text) STATUS_##name,
#include "base/status.def"
#undef STATUS
} status;

#define NODISCARD __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

/* What a status means, and the exit code that the command line gives for it. */
const char *status_text(status s);
int status_exit_code(status s);

/* Records the message (first error wins) and returns `s`. */
status fail(status s, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* The message of this thread, "" when there is none. Valid until the next call here. */
const char *status_message(void);
void status_clear(void);

/* Ends the process with file, line and the condition. For what can only be our own mistake. */
#define check(cond) ((cond) ? (void)0 : check_failed(__FILE__, __LINE__, #cond))
/* For a place that cannot be reached. */
#define impossible(what) check_failed(__FILE__, __LINE__, what)
__attribute__((noreturn)) void check_failed(const char *file, int line, const char *cond);

/* Return the status of `expr` at once unless it is OK. */
#define TRY(expr)                                                                                  \
  do {                                                                                             \
    status try_status_ = (expr);                                                                   \
    if (try_status_ != STATUS_OK) return try_status_;                                              \
  } while (0)

/* The same in a function that cleans up at `out:` and returns `st`. */
#define TRY_OUT(expr)                                                                              \
  do {                                                                                             \
    st = (expr);                                                                                   \
    if (st != STATUS_OK) goto out;                                                                 \
  } while (0)

#endif
