/* Arrays: concrete values of tensors in memory, with strides counted in elements.
 *
 * An array does not own its memory; its allocator does. A stride may be 0 (expanded) or
 * negative. Rank 0 is one element. */
#ifndef WEIR_IR_ARRAY_H
#define WEIR_IR_ARRAY_H

#include "base/memory.h"
#include "ir/dtype.h"
#include "ir/ir.h"

typedef struct ir_array {
  ir_dtype dtype;
  uint32_t rank;
  int64_t extents[IR_MAX_RANK];
  int64_t strides[IR_MAX_RANK];
  void *data;
  /* Which memory `data` is in: 0 is the host's. Others belong to devices (runtime/device.h); functions
   * here that touch data must not be given those. */
  uint32_t space;
} ir_array;

/* Elements, and bytes of a dense copy. False on overflow of 63 bits. */
bool ir_array_count(const ir_array *a, int64_t *elements);
bool ir_array_size_bytes(const ir_array *a, int64_t *bytes);
/* Sets the strides of a dense row-major array. */
void ir_array_dense(ir_array *a);
bool ir_array_is_dense(const ir_array *a);
/* Allocates dense memory for dtype, rank and extents already set. */
NODISCARD status ir_array_alloc(ir_array *a, const allocator *memory);

/* Address of the element at index[0..rank). */
void *ir_array_at(const ir_array *a, const int64_t *index);
/* Steps `index` to the next position in row-major order; false after the last one.
 * Start from all zeros; an array with a zero extent has no positions (check the count first). */
bool ir_array_next(const ir_array *a, int64_t *index);

/* ---- two arrays of equal extents (array_pairs.c) ---- */
/* Copies elementwise, converting dtype. Positions of `to` do not share memory, nor with other positions of `from`. */
void ir_array_copy(const ir_array *to, const ir_array *from);
/* Do arrays of one dtype have the same bits? */
bool ir_array_same_bytes(const ir_array *a, const ir_array *b);
/* Of the bits of all elements in row-major order, whatever the strides. */
uint64_t ir_array_hash(const ir_array *a);

/* ---- which bytes an array covers (overlap.c) ---- */
/* From the first byte to the end of the last, relative to `data`; 0 and 0 for an empty array. False on
 * overflow of 63 bits. */
bool ir_array_span(const ir_array *a, int64_t *first, int64_t *end);
/* Do two positions of the array share memory? Do two arrays? Their spans must not overflow. Where the exact
 * answer would take long to find, it is yes. */
bool ir_array_shares(const ir_array *a);
bool ir_arrays_overlap(const ir_array *a, const ir_array *b);

#endif
