/* Streams of our own that follow a caller's: a run that has to wait its turn is ordered by these,
 * so that it begins after what the caller's held when it was asked for, and not after what comes
 * later. */
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
/* Drivers may answer a call only after all that streams hold, and keep other threads from calling
 * meanwhile. If the streams wait for something that the caller does next, that would never end. So
 * before a run makes calls, it waits until the streams have come to where they were when it was
 * asked for; CANCELLED if it is stopped meanwhile. */
NODISCARD status session_follow_await(const session_follow *f, rt_control *control);
/* The run is on these streams: when they are done, it has ended. Returns `st`, or why waiting failed. */
NODISCARD status session_follow_finish(const session_follow *f, status st);
void session_follow_end(session_follow *f);

#endif
