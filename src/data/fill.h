/* Values for inputs that were not given: a function of kind, seed, name, position and dtype only, so
 * every device count and schedule sees the same ones. */
#ifndef WEIR_DATA_FILL_H
#define WEIR_DATA_FILL_H

#include "ir/array.h"

typedef enum data_fill_kind {
  DATA_FILL_NORMAL, /* standard normal; integers and bools as INT */
  DATA_FILL_INT,    /* -3..3; u8: 0..3; bool: false, true */
  DATA_FILL_IOTA,   /* the row-major position; bool: odd positions are true */
  DATA_FILL_ONES,
} data_fill_kind;

/* False when `text` names no kind. */
bool data_fill_parse(const char *text, data_fill_kind *kind);

void data_fill(const ir_array *a, data_fill_kind kind, uint64_t seed, const char *name);

/* Integers in [0, bound), for inputs that index an axis of that size. */
NODISCARD status data_fill_index(const ir_array *a, int64_t bound, uint64_t seed, const char *name);

#endif
