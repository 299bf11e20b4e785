/* Measures the link between processes: its speed, and what using it costs. */
#ifndef WEIR_SESSION_LINK_H
#define WEIR_SESSION_LINK_H

#include "session/ranks.h"

typedef struct session_link {
  double idle_ns;    /* of a step, of ranks that do nothing else */
  double latency_ns; /* while each computes */
  double bytes_per_ns;
  double burst_bytes; /* rt_speed.link_burst_bytes */
  double cores;       /* the fraction of a thread's time that sending and receiving takes */
} session_link;

/* All processes call it. */
NODISCARD status session_link_measure(const session_ranks *r, const allocator *memory,
                                      session_link *result);

#endif
