/* Which axis of an operand corresponds to which axis of the result: a function per family, called by
 * ir_map_pairs(). */
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

/* ---- one function per family, by the names of families.def ---- */
typedef void pairs_fn(pairing *m);
#define IR(infer, pairs, ...) pairs_##pairs
#define FAMILY(id, group, ir, ...) pairs_fn ir;
#include "ir/families.def"

#endif
