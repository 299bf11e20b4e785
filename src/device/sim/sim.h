/* The sim device: runs a plan on a virtual clock. No value is computed and no memory is touched
 * (inputs and outputs may be NULL); spans hold virtual times.
 *
 * Streams run in order and waits hold, as on any device. How long a task takes is rt_task_ns() of
 * the machine (options.machine). It starts when its stream is free, the host has issued it and a
 * compute unit is free (options.threads; 0: one); of those that could start then, the one that
 * comes first in the plan does.
 *
 * A communication begins when all members have posted it and their links are free (sim_comm.h), and
 * takes as many latencies and bytes as a ring of its members needs steps. In a plan of several
 * ranks each has its own host and its own units. If the machine says so, ranks share the cores of a
 * host (sim_cores.h). */
#ifndef WEIR_DEVICE_SIM_SIM_H
#define WEIR_DEVICE_SIM_SIM_H

#include "runtime/device.h"

/* For plans loaded later. */
void sim_set_machine(rt_device *device, const rt_speed *machine);

/* ---- after a run ---- */
int64_t sim_total_ns(const rt_loaded *loaded);
/* The launches and communications that the total is made of, in order of time: each one started when the
 * one before it ended (on its stream, on one it waited for, on its unit, on its link), the first when
 * the host issued it. A communication is its RT_POST that came last. Valid until the next run. */
uint32_t sim_critical_path(const rt_loaded *loaded, const uint32_t **instrs);

#endif
