/* Puts values of the pool into the memory of outputs that are not written yet. */
#ifndef WEIR_BIND_LEND_H
#define WEIR_BIND_LEND_H

#include "runtime/lives.h"

enum { BIND_NO_LOAN = UINT32_MAX };

typedef struct bind_loan {
  uint32_t from; /* an output; BIND_NO_LOAN: none */
  int64_t at;    /* in bytes from its start */
} bind_loan;

/* The loans, by buffer; a buffer that got one is not `used` in `lives` any more. moved: by buffer, the buffer that it
 * became a part of, or itself. donated: by output, >= 0 if its memory may not be lent; NULL: all may. Needs a
 * memory_guard(). */
bind_loan *bind_lend(const rt_plan *plan, rt_lives *lives, const uint32_t *moved,
                     const int64_t *donated, arena *memory);

#endif
