#include "device/cpu/tile/body.h"

status cpu_prepare_body(const rt_plan *plan, const rt_task *task, arena *memory,
                        cpu_kernel **result) {
  return cpu_prepare_steps(plan, task, memory, result);
}
