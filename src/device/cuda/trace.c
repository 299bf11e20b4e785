/* Records when steps ran, on the host's time line.
 *
 * Every launch is between two events with time stamps, and every event of the order has a twin with a
 * time stamp. GPUs have no common clock: times are measured from the rank's `origin`, an event that passes
 * when the run begins, soon after the host read its clock. */
#include "device/cuda/device.h"

/* An event belongs to the GPU of the stream that records it. */
static status make_event(cuda_loaded *l, uint32_t rank, CUevent *event) {
  CUcontext context = l->device->gpus[l->ranks[rank].gpu].context;
  TRY(cuda_try(l->cu->cuCtxSetCurrent(context), "making a context current"));
  return cuda_try(l->cu->cuEventCreate(event, CU_EVENT_DEFAULT), "making an event");
}

static uint32_t count(const cuda_loaded *l) { return 2 * l->n_launched + l->order.n_events; }

CUevent cuda_trace_twin(const cuda_loaded *l, uint32_t event) {
  return l->timing[2 * (size_t)l->n_launched + event];
}

/* The span of a post. If ranks are processes, only those of this one have spans, numbered as in its own plan. */
static rt_span *post_span(const cuda_loaded *l, uint32_t post) {
  const rt_plan *own = l->base.plan;
  uint32_t first = l->share ? l->share->first_post : 0;
  bool is_here = post >= first && post - first < own->n_posts;
  return is_here ? &l->spans[own->n_tasks + post - first] : NULL;
}

static uint16_t own_stream(const cuda_loaded *l, uint32_t stream) {
  return (uint16_t)(stream - (l->share ? l->plan->first_stream[l->share->me] : 0));
}

static uint32_t rank_of_task(const cuda_loaded *l, uint32_t task) {
  return l->streams[l->tasks[task].stream].rank;
}

/* How many launches come before the task in repetition `turn` of its loop. */
static uint32_t launch_of(const cuda_task *task, uint32_t turn) {
  return task->launch + turn * task->more_launches;
}

/* The rank that records the twin: an event of another process passes here when a stream has waited for it. */
static uint32_t who_sees(const cuda_loaded *l, uint32_t event) {
  uint32_t rank = l->rank_of_event[event];
  return cuda_is_here(l, rank) ? rank : l->share->me;
}

static status make_events(cuda_loaded *l) {
  uint32_t n = count(l);
  if (l->timing) return STATUS_OK;
  CUevent *events = memory_alloc(l->device->memory, (n + (size_t)1) * sizeof *events);
  if (!events) return STATUS_OUT_OF_MEMORY;
  for (uint32_t i = 0; i <= n; i++) events[i] = NULL;
  l->timing = events;
  l->current_gpu = UINT32_MAX;
  for (uint32_t t = 0; t < l->plan->n_tasks; t++)
    for (uint32_t turn = 0; turn < l->tasks[t].times; turn++)
      for (uint32_t end = 0; end < 2; end++)
        TRY(make_event(l, rank_of_task(l, t), &events[2 * launch_of(&l->tasks[t], turn) + end]));
  for (uint32_t e = 0; e < l->order.n_events; e++)
    TRY(make_event(l, who_sees(l, e), &events[2 * l->n_launched + e]));
  for (uint32_t r = 0; r < l->n_ranks; r++)
    if (cuda_is_here(l, r)) TRY(make_event(l, r, &l->ranks[r].origin));
  return STATUS_OK;
}

static void list_spans(cuda_loaded *l) {
  const rt_plan *own = l->base.plan;
  for (uint32_t t = 0; t < l->plan->n_tasks; t++) {
    const cuda_task *task = &l->tasks[t];
    for (uint32_t turn = 0; turn < task->times; turn++)
      l->spans[launch_of(task, turn)] = (rt_span){.instr = task->instr + turn * task->more_instrs,
                                                  .stream = own_stream(l, task->stream)};
  }
  for (uint32_t i = 0; i < own->n_instrs; i++) {
    const rt_instr *instr = &own->instrs[i];
    if (instr->kind == RT_POST)
      l->spans[own->n_tasks + instr->task] = (rt_span){.instr = i, .stream = instr->stream};
  }
}

status cuda_trace_begin(cuda_loaded *l) {
  status st = make_events(l);
  if (st != STATUS_OK) {
    cuda_trace_destroy(l);
    return st;
  }
  list_spans(l);
  for (uint32_t r = 0; r < l->n_ranks; r++) {
    cuda_rank *x = &l->ranks[r];
    CUstream stream = l->streams[cuda_main_stream(l, r)].handle;
    if (!cuda_is_here(l, r)) continue;
    /* read before the record, not after it: a delay of the host must not make events seem late */
    x->offset_ns = rt_clock_ns() - l->origin_ns;
    TRY(cuda_try(l->cu->cuEventRecord(x->origin, stream), "recording an event"));
    TRY(cuda_try(l->cu->cuEventSynchronize(x->origin), "waiting for an event"));
  }
  return STATUS_OK;
}

/* The time of an event of the rank from the run's start; -1: it was not recorded. */
static int64_t time_of(const cuda_loaded *l, uint32_t rank, CUevent event) {
  float ms = 0;
  if (l->cu->cuEventElapsedTime(&ms, l->ranks[rank].origin, event) != CUDA_SUCCESS) return -1;
  return l->ranks[rank].offset_ns + (int64_t)((double)ms * 1e6);
}

/* The time of an event of the order. */
static int64_t time_of_event(const cuda_loaded *l, uint32_t event) {
  return time_of(l, who_sees(l, event), cuda_trace_twin(l, event));
}

static void end_span(cuda_loaded *l, uint32_t rank, uint32_t launch) {
  rt_span *s = &l->spans[launch];
  int64_t start = time_of(l, rank, l->timing[2 * launch]),
          end = time_of(l, rank, l->timing[2 * launch + 1]);
  if (start < 0 || end < start) return;
  s->start_ns = start;
  s->end_ns = end;
}

void cuda_trace_end(cuda_loaded *l) {
  const rt_plan *plan = l->plan;
  for (uint32_t t = 0; t < plan->n_tasks; t++)
    for (uint32_t turn = 0; turn < l->tasks[t].times; turn++)
      end_span(l, rank_of_task(l, t), launch_of(&l->tasks[t], turn));
  for (uint32_t p = 0; p < plan->n_posts; p++) {
    rt_span *s = post_span(l, p);
    if (!s) continue;
    int64_t start = time_of_event(l, l->order.posted[p]);
    s->start_ns = s->end_ns = start > 0 ? start : 0;
  }
  for (uint32_t i = 0; i < l->order.ends.len; i++) {
    const issue_end *end = &l->order.ends.data[i];
    rt_span *s = post_span(l, end->post);
    int64_t at = s ? time_of_event(l, end->event) : -1;
    if (s && at > s->end_ns) s->end_ns = at;
  }
}

void cuda_trace_destroy(cuda_loaded *l) {
  for (uint32_t i = 0; l->timing && i < count(l); i++)
    if (l->timing[i]) (void)l->cu->cuEventDestroy(l->timing[i]);
  for (uint32_t r = 0; l->ranks && r < l->n_ranks; r++) {
    if (l->ranks[r].origin) (void)l->cu->cuEventDestroy(l->ranks[r].origin);
    l->ranks[r].origin = NULL;
  }
  memory_free(l->device->memory, l->timing);
  l->timing = NULL;
}
