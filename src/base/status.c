#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const struct {
  const char *text;
  int exit_code;
} table[] = {
#define STATUS(name, exit_code, text) {text, exit_code},
#include "base/status.def"
#undef STATUS
};

/* Fixed size on purpose: an out-of-memory message must not need memory. */
static _Thread_local char message[2048];
static _Thread_local bool has_message;

const char *status_text(status s) { return table[s].text; }
int status_exit_code(status s) { return table[s].exit_code; }

status fail(status s, const char *fmt, ...) {
  if (has_message) return s;
  va_list args;
  va_start(args, fmt);
  (void)vsnprintf(message, sizeof message, fmt, args);
  va_end(args);
  has_message = true;
  return s;
}

const char *status_message(void) { return has_message ? message : ""; }

void status_clear(void) { has_message = false; }

void check_failed(const char *file, int line, const char *cond) {
  (void)fprintf(stderr, "weir: internal error at %s:%d: %s\n", file, line, cond);
  (void)fprintf(stderr, "weir: this is a bug in weir; please report it with the program\n");
  abort();
}
