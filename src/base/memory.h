/* Memory: the injected allocator, arenas, and the trap that turns exhaustion into a status.
 *
 * All memory of the library comes from one `allocator`. Runtime code calls memory_alloc() and looks
 * at the result. Compiler code uses arenas only, and an arena never returns NULL: when the allocator
 * fails, control leaves for the innermost memory_guard() on this thread, which reports
 * STATUS_OUT_OF_MEMORY. The owner then destroys its arenas. Nothing leaks, because between the guard and
 * the allocation nothing but arena memory may be held. */
#ifndef WEIR_BASE_MEMORY_H
#define WEIR_BASE_MEMORY_H

#include <stdalign.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct allocator {
  void *(*alloc)(void *context, size_t size_bytes); /* 16-byte aligned or NULL */
  void (*free)(void *context, void *block);         /* accepts NULL */
  void *context;
} allocator;

/* malloc and free. Blocks of 64 KiB or more are aligned to a cache line, and those of 4 MiB or more
 * ask for large pages, as NumPy's arrays do. */
extern const allocator memory_default;

/* Allocate through `a`; on failure record the message and return NULL. */
void *memory_alloc(const allocator *a, size_t size_bytes);
void memory_free(const allocator *a, void *block);

/* An allocator that counts, and fails its `fail_at`th call (counted from 0; UINT64_MAX: never).
 * Used by the fault tests; `live` is the number of blocks not yet freed. */
typedef struct memory_faults {
  uint64_t calls, fail_at;
  int64_t live;
} memory_faults;
allocator memory_faulty(memory_faults *state);

/* Runs fn(context); if an arena runs out inside it, returns STATUS_OUT_OF_MEMORY instead.
 * Guards nest. */
NODISCARD status memory_guard(status (*fn)(void *context), void *context);

/* ---- arenas ---- */
typedef struct arena_chunk arena_chunk;
typedef struct arena {
  const allocator *memory;
  arena_chunk *chunks;
  char *next, *end;
  size_t used_bytes;
} arena;

void arena_init(arena *a, const allocator *memory);
void arena_destroy(arena *a); /* frees everything; the arena may be initialised again */
/* Empties the arena but keeps its newest chunk, so that the same use again needs no allocation once
 * one chunk holds it all. */
void arena_reset(arena *a);

/* Never NULL, zeroed, aligned for any object. Only inside a memory_guard(). */
void *arena_alloc(arena *a, size_t size_bytes);
/* The same, not zeroed; only the padding after it is. */
void *arena_room(arena *a, size_t size_bytes);
/* n * size with the multiplication checked. */
void *arena_array(arena *a, size_t n, size_t size_bytes);
void *arena_copy(arena *a, const void *data, size_t size_bytes);
char *arena_string(arena *a, const char *text, size_t length); /* adds the final NUL */
char *arena_printf(arena *a, const char *fmt, ...) PRINTF_LIKE(2, 3);

#define ARENA_NEW(a, type) ((type *)arena_alloc((a), sizeof(type)))
#define ARENA_ARRAY(a, n, type) ((type *)arena_array((a), (n), sizeof(type)))

#endif
