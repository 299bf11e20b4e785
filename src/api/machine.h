/* The machine that choices between programs are made for.
 *
 * The same command must give the same bits whatever else the machine does, so choices depend on figures that stay:
 * given by the option machine, kept from an earlier measurement (runtime/measured.h), or built in where nothing
 * can be kept. All processes of a run go by what rank 0 found. */
#ifndef WEIR_API_MACHINE_H
#define WEIR_API_MACHINE_H

#include "api/ranks.h"
#include "runtime/device.h"

typedef enum api_machine_origin {
  API_MACHINE_UNKNOWN,
  API_MACHINE_GIVEN,
  API_MACHINE_KEPT,     /* measured earlier */
  API_MACHINE_MEASURED, /* now */
  API_MACHINE_BUILT_IN
} api_machine_origin;

typedef struct api_machine {
  api_machine_origin origin;
  rt_speed speed;
} api_machine;

/* Finds it out unless it is known; all processes call it. */
NODISCARD status api_machine_need(api_machine *m, rt_device *device, const api_ranks *ranks,
                                  const allocator *memory);
/* For rt_device_ops.speed: NULL if it knows best itself. */
const rt_speed *api_machine_speed(const api_machine *m);

#endif
