/* Streams of our own that follow a caller's streams. A run that waits in the queue is ordered by these: it
 * begins after the work that the caller's streams held when the run was requested, not after later work. */
#ifndef WEIR_SESSION_FOLLOW_H
#define WEIR_SESSION_FOLLOW_H

#include "runtime/control.h"
#include "runtime/device.h"

enum { SESSION_MAX_STREAMS = 64 }; /* of a caller's, for one run */

typedef struct session_follow {
  rt_stream streams[SESSION_MAX_STREAMS];
  uint32_t n;
} session_follow;

/* Adds one that follows `theirs`. */
NODISCARD status session_follow_add(session_follow *f, rt_stream theirs);
/* A driver may block a call until streams are idle, and block the calls of other threads too. If the streams
 * wait for something that the caller does next, that is a deadlock. So before a run makes calls, it waits
 * until the streams have finished the work they held when it was requested. CANCELLED if it is stopped
 * meanwhile. */
NODISCARD status session_follow_await(const session_follow *f, rt_control *control);
/* Waits until the streams, which have the run, are done. Returns `st`, or why waiting failed. */
NODISCARD status session_follow_finish(const session_follow *f, status st);
void session_follow_end(session_follow *f);

#endif
