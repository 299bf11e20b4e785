/* Where the caller's tensors lie, and copies of those that a program cannot use there. */
#ifndef WEIR_SESSION_MEMORY_H
#define WEIR_SESSION_MEMORY_H

#include "ir/array.h"
#include "runtime/device.h"

/* The memory operations of GPUs; NULL: this build has none. */
const rt_memory_ops *session_memory(void);
/* ir_array_copy() between arrays of one dtype, wherever they are. */
NODISCARD status session_memory_copy(const ir_array *to, const ir_array *from);

/* Arrays that a run uses copies of: the list's entry is the copy until session_away_end(). */
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

/* Makes *a a dense copy in `space` of what it was; outputs are not copied before the run. */
NODISCARD status session_away_move(session_away *w, ir_array *a, uint32_t space, bool is_output);
/* Puts the originals back, with what the copies of outputs hold if the run went well, and frees all. Returns
 * `st`, or why that failed. */
NODISCARD status session_away_end(session_away *w, status st);

#endif
