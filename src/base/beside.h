/* Writes a file completely or not at all: under a temporary name beside its target, then renamed.
 *
 *   beside b;
 *   st = beside_open(&b, path, memory);          b.file is open
 *   … fwrite(…, b.file) …
 *   if (st == STATUS_OK) st = beside_close(&b);  on the disk, under the temporary name
 *   if (st == STATUS_OK) st = beside_commit(&b); under its own
 *   beside_drop(&b);                             always: removes what was not committed
 *
 * The temporary file is always created anew, so a link that somebody planted there is not followed; links
 * in `path` itself are. A file that is replaced keeps its permissions. Devices and pipes are written
 * directly. */
#ifndef WEIR_BASE_BESIDE_H
#define WEIR_BASE_BESIDE_H

#include <stdbool.h>
#include <stdio.h>

#include "base/memory.h"
#include "base/status.h"

typedef struct beside {
  FILE *file;       /* open from beside_open() to beside_close() */
  const char *path; /* as given, for messages; it must live as long */
  char *final;      /* the name at the end: `path` with links followed */
  char *temporary;  /* NULL: written directly */
  bool exists;      /* the temporary file is there */
  const allocator *memory;
} beside;

NODISCARD status beside_open(beside *b, const char *path, const allocator *memory);
NODISCARD status beside_close(beside *b);
NODISCARD status beside_commit(beside *b);
void beside_drop(beside *b);
/* What to say when writing to b->file failed; errno says why. */
status beside_failed(const beside *b);

/* Removes all temporary files of the process. For signal handlers, when the process is about to end. */
void beside_abandon(void);

#endif
