/* The null device: takes every instruction and does nothing. A run takes only the time of the host. */
#include "runtime/device.h"

typedef struct null_device {
  rt_device base;
  const allocator *memory;
} null_device;

typedef struct null_loaded {
  rt_loaded base;
  const allocator *memory;
} null_loaded;

static status null_open(const rt_device_options *options, const allocator *memory,
                        rt_device **result) {
  (void)options;
  null_device *d = memory_alloc(memory, sizeof *d);
  if (!d) return STATUS_OUT_OF_MEMORY;
  *d = (null_device){.base.ops = &rt_device_null, .memory = memory};
  *result = &d->base;
  return STATUS_OK;
}

static void null_close(rt_device *device) {
  if (device) memory_free(((null_device *)device)->memory, device);
}

static status null_load(rt_device *device, const rt_plan *plan, rt_loaded **result) {
  const allocator *memory = ((null_device *)device)->memory;
  null_loaded *l = memory_alloc(memory, sizeof *l);
  if (!l) return STATUS_OUT_OF_MEMORY;
  *l = (null_loaded){.base = {&rt_device_null, plan}, .memory = memory};
  *result = &l->base;
  return STATUS_OK;
}

static void null_unload(rt_loaded *loaded) {
  if (loaded) memory_free(((null_loaded *)loaded)->memory, loaded);
}

/* Spans stay empty: nothing ran. */
static status null_begin(rt_loaded *loaded, void *const *inputs, void *const *outputs,
                         rt_span *spans) {
  (void)inputs, (void)outputs;
  uint32_t k = 0, i = 0, n = 0, n_launched = rt_plan_n_launched(loaded->plan);
  for (rt_cursor c = {.plan = loaded->plan}; spans && rt_cursor_next(&c); i++) {
    const rt_instr *instr = &loaded->plan->instrs[c.instr];
    rt_span nothing = {.instr = i, .stream = instr->stream};
    if (instr->kind == RT_LAUNCH) spans[k++] = nothing;
    if (instr->kind == RT_POST)
      spans[n_launched + (loaded->plan->n_loops ? n++ : instr->task)] = nothing;
  }
  return STATUS_OK;
}

static void null_issue(rt_loaded *loaded, uint32_t instr) { (void)loaded, (void)instr; }

static status null_finish(rt_loaded *loaded) {
  (void)loaded;
  return STATUS_OK;
}

const rt_device_ops rt_device_null = {
    .name = "null",
    .summary = "does nothing: shows what issuing a plan costs the host",
    .takes_loops = RT_LOOPS_ALL,
    .open = null_open,
    .close = null_close,
    .load = null_load,
    .unload = null_unload,
    .begin = null_begin,
    .launch = null_issue,
    .wait = null_issue,
    .finish = null_finish,
};
