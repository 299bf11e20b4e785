/* What the library reports while it works: texts that were asked for (WEIR_DUMP), and the progress of
 * long work. By default texts go to standard error and progress nowhere; a program that embeds the
 * library can take both. */
#ifndef WEIR_BASE_LOG_H
#define WEIR_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

typedef void log_text_fn(void *context, const char *text);
typedef void log_progress_fn(void *context, const char *what, int64_t done, int64_t total);

/* For the whole process. Both are called from any thread, but never two at once. NULL: standard
 * error; no progress. */
void log_to(log_text_fn *text, log_progress_fn *progress, void *context);
void log_text(const char *text);
/* "compiling kernels": `done` of `total` so far. False: nothing listens. */
bool log_progress(const char *what, int64_t done, int64_t total);

#endif
