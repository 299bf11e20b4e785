/* What the files about scalars share. */
#ifndef WEIR_IR_SCALAR_INTERNAL_H
#define WEIR_IR_SCALAR_INTERNAL_H

#include "ir/scalar.h"

/* The node with these fields; added if there is none. */
ir_scalar ir_scalar_intern(ir_scalars *s, ir_scalar_kind kind, int64_t value, ir_scalar a,
                           ir_scalar b);

/* A total order that depends on structure only, so that printed forms never depend on hashing. */
int ir_scalar_compare(const ir_scalars *s, ir_scalar a, ir_scalar b);

/* Is it proven that x is never negative? Remembered in its node. (scalar_proof.c) */
bool ir_scalar_never_negative(ir_scalars *s, ir_scalar x);

static inline bool ir_scalar_either_overflowed(ir_scalar a, ir_scalar b) {
  return ir_scalar_is_overflow(a) || ir_scalar_is_overflow(b);
}

/* x / y rounded down, for y >= 1. */
static inline int64_t ir_floor_of(int64_t x, int64_t y) { return x / y - (x % y < 0 ? 1 : 0); }

/* The value of chunk or chunk_start (`kind`) for an index. */
int64_t ir_scalar_chunk_value(const ir_chunk_list *l, ir_scalar_kind kind, int64_t index);

#endif
