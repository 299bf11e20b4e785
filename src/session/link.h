/* Measures the link between processes: its speed, and what using it costs. */
#ifndef WEIR_SESSION_LINK_H
#define WEIR_SESSION_LINK_H

#include "session/ranks.h"

typedef struct session_link {
  double idle_ns;    /* the time of a step, if ranks do nothing else */
  double latency_ns; /* the same while each rank computes */
  double bytes_per_ns;
  double burst_bytes; /* rt_speed.link_burst_bytes */
  double cores;       /* the fraction of a thread's time that sending and receiving takes */
} session_link;

/* How fast a thread computes: alone, while bytes move, and alone again. */
typedef struct session_link_round {
  double before, beside, after;
} session_link_round;
/* The fraction of a thread's time that communication takes. It is the median of the rounds, so that other processes
 * that use a core during some rounds do not count. */
double session_link_lost(const session_link_round *rounds, uint32_t n);

/* All processes call it. */
NODISCARD status session_link_measure(const session_ranks *r, const allocator *memory,
                                      session_link *result);

#endif
