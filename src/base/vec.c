#include "base/vec.h"

#include <string.h>

void *vec_grow(arena *a, void *data, uint32_t *cap, size_t element_bytes) {
  check(*cap <= UINT32_MAX / 2);
  uint32_t grown = *cap ? *cap * 2 : 4;
  void *block = arena_array(a, grown, element_bytes);
  if (*cap) memcpy(block, data, (size_t)*cap * element_bytes);
  *cap = grown;
  return block;
}
