/* What the files about scalars share. */
#ifndef WEIR_IR_SCALAR_INTERNAL_H
#define WEIR_IR_SCALAR_INTERNAL_H

#include "ir/scalar.h"

/* The node with these fields; added if there is none. */
ir_scalar ir_scalar_intern(ir_scalars *s, ir_scalar_kind kind, int64_t value, ir_scalar a,
                           ir_scalar b);

/* x / y rounded down, for y >= 1. */
static inline int64_t ir_floor_of(int64_t x, int64_t y) { return x / y - (x % y < 0 ? 1 : 0); }

/* The value of chunk or chunk_start (`kind`) for an index. */
int64_t ir_scalar_chunk_value(const ir_chunk_list *l, ir_scalar_kind kind, int64_t index);

#endif
