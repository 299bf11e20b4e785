/* Diagnostics about a source text: errors and notes with a place, collected, many per run.
 *
 * Rendered as
 *   file:line:col: error: what, and what to do
 *       source line
 *       ^~~~
 */
#ifndef WEIR_BASE_DIAG_H
#define WEIR_BASE_DIAG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"
#include "base/strbuf.h"
#include "base/vec.h"

/* A text and its name. Offsets are bytes from its start. */
typedef struct source {
  const char *name;
  const char *text;
  uint32_t length;
  VEC(uint32_t) lines; /* offset of each line's first byte, filled on first use */
} source;

/* A place in the source. {0, 0} with `known` false: no place (built through the API). */
typedef struct loc {
  uint32_t offset, length;
  bool known;
} loc;

typedef enum diag_kind { DIAG_ERROR, DIAG_NOTE } diag_kind;

typedef struct diag_entry {
  diag_kind kind;
  loc at;
  const char *message;
} diag_entry;

typedef struct diags {
  arena *memory;
  source *src;
  VEC(diag_entry) entries;
  uint32_t errors;     /* errors reported, those past the limit included */
  uint32_t last_shown; /* whether notes attach to a shown error */
} diags;

enum { DIAG_LIMIT = 100 }; /* errors kept; the rest are counted */

void diags_init(diags *d, arena *memory, source *src);

void diag_error(diags *d, loc at, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* Adds to the error before it. */
void diag_note(diags *d, loc at, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Line and column, both counted from 1; columns count bytes. */
void source_position(source *src, arena *memory, uint32_t offset, uint32_t *line, uint32_t *column);

/* Appends all entries as text, and a line with the number of errors past the limit. */
void diags_render(diags *d, strbuf *out);

#endif
