/* Hash tables in an arena.
 *
 * `table` maps a hash to candidate 32-bit values; the caller decides equality. It serves interning
 * (strings, scalars) and any other keyed lookup with one piece of code. Iteration order is never
 * exposed, so no hash order can reach an output. */
#ifndef WEIR_BASE_TABLE_H
#define WEIR_BASE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"

typedef struct table_slot {
  uint64_t hash;
  uint32_t value; /* 0: empty */
} table_slot;

typedef struct table {
  arena *memory;
  table_slot *slots;
  uint32_t cap, len;
} table;

void table_init(table *t, arena *memory);

/* The value stored under `hash` for which same(context, value) holds; 0 when there is none. */
uint32_t table_find(const table *t, uint64_t hash,
                    bool (*same)(const void *context, uint32_t value), const void *context);
/* Adds a value, which must not be 0 and must not be in the table yet. */
void table_add(table *t, uint64_t hash, uint32_t value);

uint64_t hash_bytes(const void *data, size_t size_bytes);
uint64_t hash_numbers(const int64_t *data, uint32_t n);
uint64_t hash_mix(uint64_t seed, uint64_t value);

/* ---- maps from a 64-bit key to a 32-bit value ---- */
typedef struct map {
  table index;
  uint64_t *keys; /* by entry, from 1 */
  uint32_t *values;
  uint32_t len, cap;
} map;

void map_init(map *m, arena *memory);
/* The value, or `missing`. */
uint32_t map_get(const map *m, uint64_t key, uint32_t missing);
/* Adds or replaces. */
void map_put(map *m, uint64_t key, uint32_t value);
/* A second map with the same entries; later changes to one do not reach the other. */
map map_copy(const map *m, arena *memory);

/* ---- interned strings ----
 * Equal text has equal id; ids count from 1 in order of first appearance; 0 means "no string". */
typedef struct strings {
  arena *memory;
  table index;
  const char **text; /* by id */
  uint32_t *length;
  uint32_t len, cap;
  map attached;
} strings;

void strings_init(strings *s, arena *memory);
uint32_t strings_intern(strings *s, const char *text, size_t length);
uint32_t strings_find(const strings *s, const char *text, size_t length); /* 0: not interned */
const char *strings_text(const strings *s, uint32_t id);                  /* "" for 0 */
/* Lets the owner of the table note what a string names: a number per string and kind, 0 until one is
 * attached. */
void strings_attach(strings *s, uint32_t id, uint32_t kind, uint32_t value);
uint32_t strings_attached(const strings *s, uint32_t id, uint32_t kind);

#endif
