/* Tasks with a body (rt_body): several operations in one launch.
 *
 * A body runs as tile programs (program.h) where it has a form for them, otherwise step by step. */
#ifndef WEIR_DEVICE_CPU_TILE_BODY_H
#define WEIR_DEVICE_CPU_TILE_BODY_H

#include "device/cpu/kernel_internal.h"

/* Makes a task with a body ready. */
NODISCARD status cpu_prepare_body(const rt_plan *plan, const rt_task *task, arena *memory,
                                  cpu_kernel **result);

/* The form that every body has: each step is the kernel of its operation, and results of steps that nothing
 * else sees are dense arrays in scratch memory. */
NODISCARD status cpu_prepare_steps(const rt_plan *plan, const rt_task *task, arena *memory,
                                   cpu_kernel **result);

/* One operation by a tile program; *result is NULL if there is no form for it. */
NODISCARD status cpu_prepare_single(const cpu_call *c, cpu_kernel **result);

/* The operand that a value of the body is for the kernel of its step. Sets where in the table of starts it begins.
 * `view`, `at`: those of a value that another step makes. */
enum { TILE_NO_PLACE = UINT32_MAX };
rt_operand tile_operand(const rt_value *v, uint32_t view, uint32_t at, uint32_t *place);

/* Does a result of the task share a buffer with one of its operands? Then nothing may be written to it
 * before everything has been read. */
bool cpu_body_in_place(const rt_plan *plan, const rt_task *task);

#endif
