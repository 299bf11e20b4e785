/* When steps ran, on the host's time line.
 *
 * Every launch stands between two events with time stamps, and every event of the order has a twin with
 * one. They are told relative to `origin`, which the host saw pass when the run began. */
#include "device/cuda/device.h"

static status make_event(cuda_loaded *l, CUevent *event) {
  return cuda_try(l->cu->cuEventCreate(event, CU_EVENT_DEFAULT), "making an event");
}

static uint32_t count(const cuda_loaded *l) {
  return 2 * l->base.plan->n_tasks + l->order.n_events;
}

static status make_events(cuda_loaded *l) {
  uint32_t n = count(l);
  if (l->timing) return STATUS_OK;
  CUevent *events = memory_alloc(l->device->memory, (n + (size_t)1) * sizeof *events);
  if (!events) return STATUS_OUT_OF_MEMORY;
  for (uint32_t i = 0; i <= n; i++) events[i] = NULL;
  l->timing = events;
  for (uint32_t i = 0; i < n; i++) TRY(make_event(l, &events[i]));
  return make_event(l, &l->origin);
}

/* GPUs of one machine have no common clock; with several, what is told of the others is off by the
 * time between two records. */
status cuda_trace_begin(cuda_loaded *l) {
  const rt_plan *plan = l->base.plan;
  status st = make_events(l);
  if (st != STATUS_OK) {
    cuda_trace_destroy(l);
    return st;
  }
  for (uint32_t t = 0; t < plan->n_tasks; t++) {
    const cuda_task *task = &l->tasks[t];
    l->spans[task->launch] = (rt_span){.instr = task->instr, .stream = task->stream};
  }
  for (uint32_t i = 0; i < plan->n_instrs; i++) {
    const rt_instr *instr = &plan->instrs[i];
    if (instr->kind == RT_POST)
      l->spans[plan->n_tasks + instr->task] = (rt_span){.instr = i, .stream = instr->stream};
  }
  TRY(cuda_try(l->cu->cuEventRecord(l->origin, l->streams[0].handle), "recording an event"));
  TRY(cuda_try(l->cu->cuEventSynchronize(l->origin), "waiting for an event"));
  l->offset_ns = rt_clock_ns() - l->origin_ns;
  return STATUS_OK;
}

/* From the run's start; -1: not recorded. */
static int64_t time_of(const cuda_loaded *l, CUevent event) {
  float ms = 0;
  if (l->cu->cuEventElapsedTime(&ms, l->origin, event) != CUDA_SUCCESS) return -1;
  return l->offset_ns + (int64_t)((double)ms * 1e6);
}

void cuda_trace_end(cuda_loaded *l) {
  const rt_plan *plan = l->base.plan;
  for (uint32_t t = 0; t < plan->n_tasks; t++) {
    rt_span *s = &l->spans[l->tasks[t].launch];
    int64_t start = time_of(l, l->timing[2 * t]), end = time_of(l, l->timing[2 * t + 1]);
    if (start < 0 || end < start) continue;
    s->start_ns = start;
    s->end_ns = end;
  }
  const CUevent *events = l->timing + 2 * (size_t)plan->n_tasks;
  for (uint32_t p = 0; p < plan->n_posts; p++) {
    rt_span *s = &l->spans[plan->n_tasks + p];
    int64_t start = time_of(l, events[l->order.posted[p]]);
    s->start_ns = s->end_ns = start > 0 ? start : 0;
  }
  for (uint32_t i = 0; i < l->order.ends.len; i++) {
    const cuda_end *end = &l->order.ends.data[i];
    rt_span *s = &l->spans[plan->n_tasks + end->post];
    int64_t at = time_of(l, events[end->event]);
    if (at > s->end_ns) s->end_ns = at;
  }
}

void cuda_trace_destroy(cuda_loaded *l) {
  for (uint32_t i = 0; l->timing && i < count(l); i++)
    if (l->timing[i]) (void)l->cu->cuEventDestroy(l->timing[i]);
  if (l->origin) (void)l->cu->cuEventDestroy(l->origin);
  memory_free(l->device->memory, l->timing);
  l->timing = NULL;
  l->origin = NULL;
}
