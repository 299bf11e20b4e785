/* An endpoint around an endpoint that makes things go wrong, for tests.
 *
 * Posts are counted from 0. One of them can fail, which ends the world with the given status. One can
 * be late: it is held back until the delay is over and the endpoint is called again. All posts after
 * it are then held back too, in order; or, if the endpoint `reorders`, only those that must stay after
 * it, because they are on the same team or between the same ranks, and all others overtake it. post()
 * itself never blocks. */
#ifndef WEIR_COMM_FAULTY_H
#define WEIR_COMM_FAULTY_H

#include "runtime/comm.h"

typedef struct rt_comm_faults {
  uint64_t fail_at; /* UINT64_MAX: never */
  status fail_with;
  uint64_t delay_at; /* likewise */
  int64_t delay_ns;
  bool reorders; /* posts that may overtake the late one do */
} rt_comm_faults;

/* On success the result owns `inner`: closing the one closes the other. */
NODISCARD status rt_comm_faulty_open(rt_comm *inner, const rt_comm_faults *faults,
                                     const allocator *memory, rt_comm **result);

#endif
