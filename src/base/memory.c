#define _DEFAULT_SOURCE /* madvise */
#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* malloc returns large blocks 16 bytes after the start of a page, where every vector of 64 bytes would lie
 * in two cache lines. */
enum { LINE = 64, IN_LINES = 1 << 16, LARGE = 1 << 22, LARGE_PAGE = 1 << 21 };

static void ask_for_large_pages(char *block, size_t size_bytes) {
#if defined(MADV_HUGEPAGE)
  size_t first = (LARGE_PAGE - (uintptr_t)block % LARGE_PAGE) % LARGE_PAGE;
  (void)madvise(block + first, (size_bytes - first) / LARGE_PAGE * LARGE_PAGE, MADV_HUGEPAGE);
#else
  (void)block, (void)size_bytes;
#endif
}

static void *default_alloc(void *context, size_t size_bytes) {
  (void)context;
  if (size_bytes < IN_LINES || size_bytes > SIZE_MAX - LINE) return malloc(size_bytes);
  void *block = aligned_alloc(LINE, (size_bytes + LINE - 1) / LINE * LINE);
  if (block && size_bytes >= LARGE) ask_for_large_pages(block, size_bytes);
  return block;
}

static void default_free(void *context, void *block) {
  (void)context;
  free(block);
}

const allocator memory_default = {default_alloc, default_free, NULL};

void *memory_alloc(const allocator *a, size_t size_bytes) {
  void *block = a->alloc(a->context, size_bytes == 0 ? 1 : size_bytes);
  if (!block) (void)fail(STATUS_OUT_OF_MEMORY, "cannot allocate %zu bytes", size_bytes);
  return block;
}

void memory_free(const allocator *a, void *block) {
  if (block) a->free(a->context, block);
}

static void *faulty_alloc(void *context, size_t size_bytes) {
  memory_faults *f = context;
  if (f->calls++ == f->fail_at) return NULL;
  void *block = malloc(size_bytes);
  if (block) f->live++;
  return block;
}

static void faulty_free(void *context, void *block) {
  memory_faults *f = context;
  if (block) f->live--;
  free(block);
}

allocator memory_faulty(memory_faults *state) {
  return (allocator){faulty_alloc, faulty_free, state};
}

static _Thread_local jmp_buf *trap;

status memory_guard(status (*fn)(void *context), void *context) {
  jmp_buf here;
  jmp_buf *volatile outer = trap;
  if (setjmp(here) != 0) {
    trap = outer;
    return STATUS_OUT_OF_MEMORY;
  }
  trap = &here;
  status st = fn(context);
  trap = outer;
  return st;
}

__attribute__((noreturn)) static void exhausted(size_t size_bytes) {
  (void)fail(STATUS_OUT_OF_MEMORY, "cannot allocate %zu bytes", size_bytes);
  check(trap != NULL);
  longjmp(*trap, 1);
}

struct arena_chunk {
  arena_chunk *next;
  size_t size_bytes;
};

enum { ALIGN = 16, FIRST_CHUNK = 4096, LARGEST_CHUNK = 1 << 20 };

void arena_init(arena *a, const allocator *memory) { *a = (arena){.memory = memory}; }

void arena_destroy(arena *a) {
  arena_chunk *c = a->chunks;
  while (c) {
    arena_chunk *next = c->next;
    memory_free(a->memory, c);
    c = next;
  }
  *a = (arena){.memory = a->memory};
}

static size_t round_up(size_t n) { return (n + (ALIGN - 1)) & ~(size_t)(ALIGN - 1); }

void arena_reset(arena *a) {
  arena_chunk *newest = a->chunks;
  if (!newest) return;
  while (newest->next) {
    arena_chunk *older = newest->next;
    newest->next = older->next;
    memory_free(a->memory, older);
  }
  a->next = (char *)newest + round_up(sizeof(arena_chunk));
  a->used_bytes = 0;
}

/* Chunks double up to a limit, so small modules stay small and large ones make few calls. */
static void grow(arena *a, size_t need_bytes) {
  size_t size = a->chunks ? a->chunks->size_bytes * 2 : FIRST_CHUNK;
  if (size > LARGEST_CHUNK) size = LARGEST_CHUNK;
  size_t header = round_up(sizeof(arena_chunk));
  if (need_bytes > SIZE_MAX - header - ALIGN) exhausted(need_bytes);
  if (size < need_bytes + header) size = need_bytes + header;
  arena_chunk *c = memory_alloc(a->memory, size);
  if (!c) exhausted(size);
  *c = (arena_chunk){.next = a->chunks, .size_bytes = size};
  a->chunks = c;
  a->next = (char *)c + header;
  a->end = (char *)c + size;
}

void *arena_room(arena *a, size_t size_bytes) {
  if (size_bytes > SIZE_MAX / 2) exhausted(size_bytes);
  size_t size = round_up(size_bytes == 0 ? 1 : size_bytes);
  if ((size_t)(a->end - a->next) < size) grow(a, size);
  void *block = a->next;
  a->next += size;
  a->used_bytes += size;
  memset((char *)block + size_bytes, 0, size - size_bytes);
  return block;
}

void *arena_alloc(arena *a, size_t size_bytes) {
  return memset(arena_room(a, size_bytes), 0, size_bytes);
}

void *arena_array(arena *a, size_t n, size_t size_bytes) {
  size_t total;
  if (__builtin_mul_overflow(n, size_bytes, &total)) exhausted(SIZE_MAX);
  return arena_alloc(a, total);
}

void *arena_copy(arena *a, const void *data, size_t size_bytes) {
  void *block = arena_room(a, size_bytes);
  if (size_bytes) memcpy(block, data, size_bytes);
  return block;
}

char *arena_string(arena *a, const char *text, size_t length) {
  char *copy = arena_alloc(a, length + 1);
  if (length) memcpy(copy, text, length);
  return copy;
}

char *arena_printf(arena *a, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  int n = vsnprintf(NULL, 0, fmt, args);
  va_end(args);
  check(n >= 0);
  char *text = arena_alloc(a, (size_t)n + 1);
  va_start(args, fmt);
  (void)vsnprintf(text, (size_t)n + 1, fmt, args);
  va_end(args);
  return text;
}
