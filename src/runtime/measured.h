/* Measurements of machines, kept between processes: choices that depend on them must not change from run to run.
 *
 * One machine file (machine.h) per device, way to communicate and hosts, in the user's cache folder
 * (base/folder.h). The first one written counts, for all processes, until it is renewed. */
#ifndef WEIR_RUNTIME_MEASURED_H
#define WEIR_RUNTIME_MEASURED_H

#include "runtime/machine.h"

typedef struct rt_measured_key {
  const char *device, *comm;
  uint32_t ranks;    /* in how many processes */
  const char *hosts; /* of the processes, by rank, separated by spaces */
} rt_measured_key;

typedef enum rt_measured {
  RT_MEASURED_NOWHERE, /* there is no folder to keep anything in */
  RT_MEASURED_MISSING,
  RT_MEASURED_FOUND
} rt_measured;

/* A file that cannot be used counts as missing; base/log.h gets the reason. */
rt_measured rt_measured_read(const rt_measured_key *key, rt_speed *result);
/* Keeps a measurement; without `renew` only if there is none yet. Read it again afterwards: another process may have
 * written first. False: it could not be kept. */
bool rt_measured_write(const rt_measured_key *key, const rt_speed *machine, bool renew,
                       arena *scratch);
/* Where it is kept, or would be; false: nowhere. */
bool rt_measured_path(const rt_measured_key *key, strbuf *path);

#endif
