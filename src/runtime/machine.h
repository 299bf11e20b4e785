/* Machines as data: how fast devices and links are, for models and the simulator.
 *
 * A machine is one of those built in (machines.def) or a file of lines `key = number` (machine.def);
 * `#` begins a comment. Every figure is checked when it is read. */
#ifndef WEIR_RUNTIME_MACHINE_H
#define WEIR_RUNTIME_MACHINE_H

#include "base/strbuf.h"
#include "runtime/device.h"

uint32_t rt_machine_count(void); /* of those built in */
const char *rt_machine_name(uint32_t i);
const char *rt_machine_summary(uint32_t i);

/* The text of a machine file; `name` is for messages. */
NODISCARD status rt_machine_parse(const char *name, const char *text, rt_speed *result);
/* A name of a built-in machine, or else a path. */
NODISCARD status rt_machine_load(const char *name, rt_speed *result);
/* What parses back to the same. */
void rt_machine_print(const rt_speed *machine, strbuf *out);
/* The simulator's defaults. */
rt_speed rt_machine_default(void);

/* Identifies the running system: another boot has another hash. */
uint64_t rt_system_hash(void);
/* The same with the cores that the caller may run on: processes with the same hash share these cores. */
uint64_t rt_cores_hash(void);

/* The link that a communication uses: that between islands if its members, or the two ends of a message, are
 * not all in one. */
typedef struct rt_link {
  double bytes_per_ns, latency_ns;
  double burst_ns; /* the time of bytes that it takes at once after a rest; it recovers meanwhile */
} rt_link;
rt_link rt_machine_link(const rt_speed *machine, const rt_post *post);
/* When bytes are through that begin at `start_ns` and take `bytes_ns` at the link's rate. *recovered_ns:
 * when the link will have rested, before the bytes and after them. */
double rt_link_through_ns(rt_link link, double start_ns, double bytes_ns, double *recovered_ns);
bool rt_machine_is_far(const rt_speed *machine, uint32_t a, uint32_t b); /* in different islands */
rt_link rt_machine_link_of(const rt_speed *machine, bool far);

/* How long one compute unit takes for a task. */
double rt_task_ns(const rt_plan *plan, const rt_task *task, const rt_speed *machine);

#endif
