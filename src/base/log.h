/* What the library reports while it works: texts that were asked for (WEIR_DUMP), and the progress of
 * long work. By default texts go to standard error and progress nowhere; a program that embeds the
 * library can take both. */
#ifndef WEIR_BASE_LOG_H
#define WEIR_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

typedef void log_text_fn(void *context, const char *text);
typedef void log_progress_fn(void *context, const char *what, int64_t done, int64_t total);

/* Sets where both go, for the whole process. `text` NULL: to standard error; `progress` NULL: nowhere. The
 * functions are called from any thread, but never two at once. */
void log_to(log_text_fn *text, log_progress_fn *progress, void *context);
void log_text(const char *text);
/* Reports `what` ("compiling kernels"): `done` of `total` so far. False: nobody listens. */
bool log_progress(const char *what, int64_t done, int64_t total);

#endif
