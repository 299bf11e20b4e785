#include "host/host.h"

bool host_never_merge(const ir_func *f, ir_op a, ir_op b) {
  (void)f;
  (void)a;
  (void)b;
  return false;
}

host_step *host_segment(const ir_func *f, host_merge_rule rule, arena *memory, uint32_t *n) {
  host_step *steps = ARENA_ARRAY(memory, f->order.len, host_step);
  *n = 0;
  for (uint32_t i = 0; i < f->order.len; i++) {
    bool joins = i > 0 && rule(f, f->order.data[i - 1], f->order.data[i]);
    if (joins) steps[*n - 1].len++;
    else steps[(*n)++] = (host_step){i, 1};
  }
  return steps;
}
