/* Maps between the axes of producers and consumers, and axis equivalence over a whole program.
 *
 * A pair says that position i of a producer's logical axis is what position i of a consumer's root
 * axis reads:
 *   EXACT      one to one, equal sizes
 *   BROADCAST  the producer's axis is a broadcast (size 1) and every consumer position reads it
 *   GROUP      each of the producer's positions is read by as many consecutive ones of the consumer
 *              (the heads of k and v in attention, where q has more)
 *   WHOLE      one to one in size, but each consumer position needs all producer positions
 *              (the axis of softmax, norms, cumsum and argsort): not independent, so it cannot be cut
 * Axes without a pair (dropped, inserted, indexed) are not mapped. */
#ifndef WEIR_IR_MAP_H
#define WEIR_IR_MAP_H

#include "ir/ir.h"

typedef enum ir_pair_kind {
  IR_PAIR_EXACT,
  IR_PAIR_BROADCAST,
  IR_PAIR_GROUP,
  IR_PAIR_WHOLE,
} ir_pair_kind;

typedef struct ir_pair {
  ir_axis producer, consumer;
  ir_pair_kind kind;
} ir_pair;

/* Pairs between operand number `operand` of `op` and its result, in the scheduled view if it is applied
 * and in the definition otherwise. Writes at most IR_MAX_RANK pairs, returns their number. */
uint32_t ir_map_pairs(const ir_func *f, const ir_op_data *op, uint32_t operand,
                      ir_pair pairs[IR_MAX_RANK]);

/* The same in the definition, even if the schedule is applied. */
uint32_t ir_map_pairs_defined(const ir_func *f, const ir_op_data *op, uint32_t operand,
                              ir_pair pairs[IR_MAX_RANK]);

/* The results of an operation are made together, so their dimensions at the same place correspond: is
 * dimension `dim` of result `k` the same as that of the first result? */
bool ir_map_result_dim(const ir_func *f, const ir_op_data *op, uint32_t k, uint32_t dim);
/* The same as pairs, of the definition: result k > 0 is the producer, the first one the consumer. */
uint32_t ir_map_result_pairs(const ir_func *f, const ir_op_data *op, uint32_t k,
                             ir_pair pairs[IR_MAX_RANK]);

/* The axis of `root` whose outermost part is `a`, found through the splits and merges of a reshape. None
 * if a slice or pad is in between. */
ir_axis ir_map_root(const ir_func *f, ir_axes root, ir_axis a);

/* Classes of equivalent axes over the operations of the function.
 *   EXACT      joins EXACT and WHOLE pairs, and what the results of an operation share
 *   BROADCAST  joins BROADCAST pairs too
 * Axes derived by equal transforms from equivalent axes are equivalent too. */
typedef enum ir_class_kind { IR_CLASS_EXACT, IR_CLASS_BROADCAST } ir_class_kind;

typedef struct ir_classes {
  uint32_t *parent; /* union-find by axis id */
  uint32_t len;
} ir_classes;

/* Built in `scratch`; stale once the function changes. */
ir_classes ir_classes_build(ir_func *f, ir_class_kind kind, arena *scratch);
/* The class as the smallest axis id in it: deterministic. */
ir_axis ir_class_of(const ir_classes *c, ir_axis a);
static inline bool ir_class_same(const ir_classes *c, ir_axis a, ir_axis b) {
  return IR_SAME(ir_class_of(c, a), ir_class_of(c, b));
}

#endif
