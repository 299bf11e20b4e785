/* Passes: the table (passes.def), which of them run, and the manager.
 *
 * The rows of passes.def are in the order of the default pipeline: the way from a fusion as it was
 * written to the host program that runs. A pass rewrites a function in place. What it leaves prints,
 * parses back, verifies and computes the same; and the rest of the pipeline gives the same result for
 * the program that was parsed back as for the one in memory (only reasons are lost, docs/passes.md).
 *
 * On request the manager verifies after every pass, and returns a reproducer when a pass or the
 * verification fails: the text before the pass, and the passes still to run. */
#ifndef WEIR_PASS_PASS_H
#define WEIR_PASS_PASS_H

#include "host/host.h"
#include "ir/ir.h"

typedef struct pass_ctx {
  arena *scratch;              /* emptied after all passes */
  const host_options *options; /* preferences, which every pass may look at */
  bool decomposed;             /* `decompose` has run before, in the same list */
  bool changed;                /* set by the pass when it changed something */
  ir_func *made;               /* `lower`: the host program */
} pass_ctx;

/* What a pass looks at. Definition passes change what is computed, and with it the scheduled view, which
 * the manager derives again; schedule and shard passes change statements and the view together; host and
 * join passes see host programs. Definition and schedule passes cannot work on what shard passes and later
 * ones leave, so a list of passes must not go back. */
typedef enum pass_level {
  PASS_DEFINITION,
  PASS_SCHEDULE,
  PASS_SHARD,
  PASS_HOST,
  PASS_JOIN,
} pass_level;
const char *pass_level_text(pass_level level);

typedef enum pass_use {
  PASS_DEFAULT,
  PASS_OPTIONAL, /* runs only when it is enabled or named */
} pass_use;

typedef struct pass_info {
  const char *name;
  pass_level level;
  pass_use use;
  status (*run)(ir_func *f, pass_ctx *ctx);
  const char *needs;   /* passes without which it has nothing to work on, separated by blanks */
  const char *summary; /* one sentence */
} pass_info;

uint32_t pass_count(void);
const pass_info *pass_at(uint32_t i);
const pass_info *pass_find(const char *name, size_t length); /* NULL: no such pass */

typedef struct pass_request {
  const char *passes;  /* comma separated; "" is the identity; NULL or "default": the pipeline */
  const char *disable; /* of those, leave out these; comma separated, or NULL */
  const char *enable;  /* optional passes to run at their place in the default pipeline, or NULL */
  const char *print_after; /* "all", "changed", a pass's name, or NULL */
  bool time;
  bool verify;            /* after every pass */
  const char *reproducer; /* where the caller writes it, or NULL; the manager only hands it out */
  host_options options;
} pass_request;

/* The nvFuser style shows programs with whole buffers and the own piece among the others, before results
 * become views, communications are moved, memory is freed and operations are joined. */
#define PASS_NVFUSER_DISABLED "own-first,shrink,buckets,views,order,free,join"

/* The passes that a request means, in order. */
typedef struct pass_list {
  const pass_info **data;
  uint32_t len;
} pass_list;
/* BAD_USAGE: an unknown name, a pass disabled that another one needs, or levels out of order. */
NODISCARD status pass_select(const pass_request *request, arena *memory, pass_list *result);

/* Runs the passes over every function of the module. What a fusion is lowered to is listed after it.
 * Appends to `log` what was asked to be printed. On failure returns the status, with diagnostics in the
 * module, and appends a reproducer (a program with the passes in a comment at its head) to `reproducer`,
 * which may be NULL. */
NODISCARD status pass_run(ir_module *m, const pass_request *request, strbuf *log,
                          strbuf *reproducer);

/* Runs the passes on a copy of the fusion `f`, which stays as it is, and returns the host program. It is
 * not listed in the module. */
NODISCARD status pass_run_fusion(ir_func *f, const pass_request *request, strbuf *log,
                                 strbuf *reproducer, ir_func **result);

#endif
