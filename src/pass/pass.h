/* Passes: the table (passes.def) and the manager.
 *
 * A pass rewrites a function in place. Definition passes see the fusion without its scheduled view
 * (the manager drops it and derives it again afterwards); schedule passes see it applied. After every
 * pass the manager verifies the function; when a pass or the verification fails it gives back a
 * reproducer: the text before the pass and the passes still to run. */
#ifndef WEIR_PASS_PASS_H
#define WEIR_PASS_PASS_H

#include "ir/ir.h"

typedef struct pass_ctx {
  arena *scratch; /* emptied after each pass */
  bool changed;   /* set by the pass when it changed something */
} pass_ctx;

typedef enum pass_level { PASS_DEFINITION, PASS_SCHEDULE } pass_level;

typedef struct pass_info {
  const char *name;
  pass_level level;
  status (*run)(ir_func *f, pass_ctx *ctx);
  const char *summary; /* one sentence */
} pass_info;

uint32_t pass_count(void);
const pass_info *pass_at(uint32_t i);
const pass_info *pass_find(const char *name, size_t length); /* NULL: no such pass */

typedef struct pass_request {
  const char *passes;      /* comma separated; "" is the identity */
  const char *print_after; /* "all", "changed", a pass's name, or NULL */
  bool time;
} pass_request;

/* Runs the passes over every function of the module. Appends to `log` what was asked to be printed.
 * On failure returns the status, with diagnostics in the module, and appends a reproducer (a
 * program with the passes in a comment at its head) to `reproducer`, which may be NULL. */
NODISCARD status pass_run(ir_module *m, const pass_request *request, strbuf *log,
                          strbuf *reproducer);

#endif
