/* Growing arrays in an arena, typed by macro.
 *
 *   VEC(int) v = {0};
 *   vec_push(arena, &v, 7);
 *   for (uint32_t i = 0; i < v.len; i++) use(v.data[i]);
 *
 * Growth leaves the old block to the arena, so a pointer into `data` may go stale on push but never
 * dangles: it still reads the old contents. Hold indexes, not pointers, across a push. */
#ifndef WEIR_BASE_VEC_H
#define WEIR_BASE_VEC_H

#include <stdint.h>

#include "base/memory.h"

#define VEC(type)                                                                                  \
  struct {                                                                                         \
    type *data;                                                                                    \
    uint32_t len, cap;                                                                             \
  }

#define vec_push(arena_, v, value)                                                                 \
  ((v)->len == (v)->cap                                                                            \
       ? (void)((v)->data = vec_grow((arena_), (v)->data, &(v)->cap, sizeof *(v)->data))           \
       : (void)0,                                                                                  \
   (v)->data[(v)->len++] = (value))

#define vec_last(v) ((v)->data[(v)->len - 1])

/* Doubles the capacity; returns the new block with the old contents. */
void *vec_grow(arena *a, void *data, uint32_t *cap, size_t element_bytes);

#endif
