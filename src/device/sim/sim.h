/* The sim device: runs a plan on a virtual clock. No value is computed and no memory is touched
 * (inputs and outputs may be NULL); spans hold virtual times.
 *
 * Streams run in order and waits hold, as on any device. A task takes rt_task_ns() on the machine
 * (options.machine). It starts when its stream is free, the host has issued it and a compute unit is
 * free (options.threads units; 0: one). If several tasks could start on a unit, the first one in the
 * plan does.
 *
 * A communication begins when all members have posted it and their links are free (sim_comm.h), and
 * takes as many latencies and bytes as a ring of its members needs steps. In a plan of several
 * ranks each has its own host and its own units. If the machine says so, ranks share the cores of a
 * host (sim_cores.h). */
#ifndef WEIR_DEVICE_SIM_SIM_H
#define WEIR_DEVICE_SIM_SIM_H

#include "runtime/device.h"

/* Sets the machine for plans that are loaded later. */
void sim_set_machine(rt_device *device, const rt_speed *machine);

/* ---- after a run ---- */
int64_t sim_total_ns(const rt_loaded *loaded);
/* The launches and communications that determine the total, in order of time: each one started when the
 * one before it ended (on its stream, on one that it waited for, on its unit, on its link), the first one
 * when the host issued it. A communication is given as the last of its RT_POSTs. Valid until the next run. */
uint32_t sim_critical_path(const rt_loaded *loaded, const uint32_t **instrs);

#endif
