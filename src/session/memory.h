/* Copies of the caller's tensors that are in memory where a program cannot use them. */
#ifndef WEIR_SESSION_MEMORY_H
#define WEIR_SESSION_MEMORY_H

#include "ir/array.h"
#include "runtime/device.h"

/* The memory operations of GPUs; NULL: this build has none. */
const rt_memory_ops *session_memory(void);
/* ir_array_copy() between arrays of one dtype, wherever they are. */
NODISCARD status session_memory_copy(const ir_array *to, const ir_array *from);

/* An array that a run uses a copy of: until session_away_end() the list's entry is the copy. */
typedef struct session_moved {
  ir_array *entry;
  ir_array original;
  bool is_output;
} session_moved;

typedef struct session_away {
  const allocator *memory;
  session_moved *moved;
  uint32_t n, room;
} session_away;

/* Replaces *a by a dense array in `space`: a copy, or, for an output, memory without contents. */
NODISCARD status session_away_move(session_away *w, ir_array *a, uint32_t space, bool is_output);
/* Puts the originals back and frees the copies. If `st` is OK, copies the outputs to their originals first.
 * Returns `st`, or why that failed. */
NODISCARD status session_away_end(session_away *w, status st);

#endif
