#include "base/vec.h"

#include <string.h>

void *vec_grow(arena *a, void *data, uint32_t *cap, size_t element_bytes) {
  check(*cap <= UINT32_MAX / 2);
  uint32_t grown = *cap ? *cap * 2 : 4;
  size_t had_bytes = *cap * element_bytes, bytes = grown * element_bytes;
  char *block = arena_room(a, bytes);
  if (*cap) memcpy(block, data, had_bytes);
  memset(block + had_bytes, 0, bytes - had_bytes);
  *cap = grown;
  return block;
}
