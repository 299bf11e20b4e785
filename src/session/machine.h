/* The machine that choices between programs are made for.
 *
 * The same command must give the same bits whatever else the machine does, so choices depend on
 * figures that do not change: given by the option machine, kept from an earlier measurement
 * (runtime/measured.h), or built in if nothing can be kept. All processes of a run use the figures of
 * rank 0. */
#ifndef WEIR_SESSION_MACHINE_H
#define WEIR_SESSION_MACHINE_H

#include "runtime/device.h"
#include "session/ranks.h"

typedef enum session_machine_origin {
  SESSION_MACHINE_UNKNOWN,
  SESSION_MACHINE_GIVEN,
  SESSION_MACHINE_KEPT,     /* measured earlier */
  SESSION_MACHINE_MEASURED, /* now */
  SESSION_MACHINE_BUILT_IN
} session_machine_origin;

typedef struct session_machine {
  session_machine_origin origin;
  rt_speed speed;
} session_machine;

/* Determines the machine, unless it is known. All processes call it. */
NODISCARD status session_machine_need(session_machine *m, rt_device *device,
                                      const session_ranks *ranks, const allocator *memory);
/* Prints the machine and where its figures come from. `renew`: measures it again. */
NODISCARD status session_machine_describe(session_machine *m, rt_device *device,
                                          const session_ranks *ranks, bool renew,
                                          const allocator *memory, strbuf *out);
/* The argument of rt_device_ops.speed; NULL: the device uses its own figures. */
const rt_speed *session_machine_speed(const session_machine *m);

#endif
