/* Which axis of an operand is which axis of the result, family by family: what ir_map_pairs() asks. */
#ifndef WEIR_IR_PAIRS_H
#define WEIR_IR_PAIRS_H

#include "ir/map.h"

typedef struct pairing {
  const ir_func *f;
  const ir_op_data *op;
  uint32_t operand;
  ir_axis p[IR_MAX_RANK]; /* the producer's dimensions */
  uint32_t np;
  const ir_axis *r; /* the consumer's root */
  uint32_t nr;
  ir_pair *out;
  uint32_t n;
} pairing;

/* Axis `p` of the producer is axis `r` of the consumer. An exact pair of a broadcast axis and one
 * that is none becomes one that stretches. */
void pairs_add(pairing *m, uint32_t p, uint32_t r, ir_pair_kind kind);
/* The last of the producer's first `p_end` dimensions against the consumer's before `r_end`. */
void pairs_align(pairing *m, uint32_t p_end, uint32_t r_end);
/* The attribute `dim`, of `rank` dimensions, counted from the front. */
uint32_t pairs_dim(const pairing *m, uint32_t rank);
/* All but one axis; `shift` when the consumer has no place for it. */
void pairs_all_but(pairing *m, uint32_t axis, bool shift);
/* The same of axes that have the consumer's extent. */
void pairs_equal_but(pairing *m, uint32_t axis);

/* ---- one function per family, by the names of families.def ---- */
typedef void pairs_fn(pairing *m);
#define IR(infer, pairs, ...) pairs_##pairs
#define FAMILY(id, group, ir, ...) pairs_fn ir;
#include "ir/families.def"

#endif
