/* Outputs in the memory of inputs. */
#include "runtime/plan.h"

uint32_t rt_plan_buffer(const rt_plan *plan, rt_buffer_kind kind, uint32_t slot) {
  for (uint32_t b = 0; b < plan->n_buffers; b++)
    if (plan->buffers[b].kind == kind && plan->buffers[b].slot == slot) return b;
  return UINT32_MAX;
}

void rt_plan_donate(rt_plan *plan, uint32_t input, uint32_t output) {
  uint32_t in = rt_plan_buffer(plan, RT_BUFFER_INPUT, input);
  uint32_t out = rt_plan_buffer(plan, RT_BUFFER_OUTPUT, output);
  if (in == UINT32_MAX || out == UINT32_MAX) return; /* a device without it */
  for (uint32_t v = 0; v < plan->n_views; v++)
    if (plan->views[v].buffer == out) plan->views[v].buffer = in;
  plan->buffers[in].updated = true;
  plan->passed = plan->passed_for_all = false;
  plan->buffers[out].size_bytes = 0;
}
