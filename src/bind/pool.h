/* The pool of a plan while it is bound: which ranges are free, and which streams must be waited
 * for before one is used again.
 *
 * A range that was given back remembers the last access of each stream to it. It is *safe* for a stream
 * whose clock has passed all of them; that is the proof that its reuse is ordered.
 *
 * Free ranges whose accesses are by the same streams form a group, most often those of one stream. In a
 * group neighbours are one range, and a tree ordered by size finds the smallest safe one that is large
 * enough. If no range is, safe neighbours of different groups serve together; and if that is not enough
 * either, the pool grows after its last safe ranges. */
#ifndef WEIR_BIND_POOL_H
#define WEIR_BIND_POOL_H

#include "base/table.h"
#include "base/vec.h"

/* The last position of a stream that touched a buffer; accesses that happen before another are left
 * out. */
typedef struct bind_access {
  uint32_t stream, position;
} bind_access;

typedef VEC(bind_access) bind_accesses;

typedef struct bind_piece bind_piece;
typedef struct bind_group bind_group;

typedef struct bind_pool {
  arena *memory;
  int64_t size_bytes;
  VEC(bind_group *) groups, used; /* all, by number; those with pieces */
  table group_index;
  VEC(bind_piece *) pieces; /* by number, from 1; some are not in use */
  map begins, ends; /* address -> number of the free piece that begins or ends there; 0: none */
  int64_t free_bytes;
  uint32_t credit;          /* steps that looking for neighbours may take */
  VEC(bind_accesses) spare; /* emptied lists, to be filled again */
} bind_pool;

void bind_pool_init(bind_pool *p, arena *memory);
/* Takes a range of `size_bytes` for a stream with this clock. `accesses` gets the earlier accesses to the
 * range, which still hold if it is given back untouched. Sizes are multiples of 64. False: the pool would be
 * too large. */
bool bind_pool_take(bind_pool *p, const uint32_t *clock, int64_t size_bytes, int64_t *offset_bytes,
                    bind_accesses *accesses);
/* Gives a range back, with the accesses to it, and empties the list. */
void bind_pool_give(bind_pool *p, int64_t offset_bytes, int64_t size_bytes,
                    bind_accesses *accesses);
/* Stream `stream` touches a buffer at its own position clock[stream]. */
void bind_pool_touch(bind_pool *p, bind_accesses *accesses, uint32_t stream, const uint32_t *clock);

#endif
