/* Runs that are ordered by the caller's streams: after what these hold, and before what the caller puts on them next.
 *
 *   caller's streams ──▶ first stream ──▶ all streams: the plan ──▶ first stream ──▶ caller's streams
 *
 * All streams begin after the first one and end before it goes on, so runs follow each other without the host
 * waiting for them. By the same events, a caller's capture includes the whole run. */
#include "device/cuda/errors.h"
#include "device/cuda/run.h"

/* ---- the caller's streams ---- */
/* The event of a GPU with which its streams are followed. */
static status entry_event(cuda_device *d, uint32_t gpu, CUevent *result) {
  cuda_gpu *g = &d->gpus[gpu];
  (void)pthread_mutex_lock(&d->lock);
  status st = cuda_gpu_open(d, gpu);
  if (st == STATUS_OK && !g->entry)
    st = cuda_try(d->cu->cuEventCreate(&g->entry, CU_EVENT_DISABLE_TIMING), "making an event");
  (void)pthread_mutex_unlock(&d->lock);
  *result = g->entry;
  return st;
}

static status check_stream(cuda_loaded *l, const rt_stream *s) {
  CUcontext context = NULL;
  cuda_device *d = l->device;
  uint32_t gpu = s->space - 1;
  CUevent unused;
  if (gpu >= d->n_gpus)
    return fail(STATUS_BAD_USAGE, "a stream of GPU %u is given: this machine has %u", gpu,
                d->n_gpus);
  TRY(entry_event(d, gpu, &unused));
  TRY(cuda_try(l->cu->cuStreamGetCtx(s->handle, &context), "asking for a stream"));
  if (context == d->gpus[gpu].context) return STATUS_OK;
  return fail(STATUS_BAD_USAGE, "a stream is said to be of GPU %u, but belongs to another context",
              gpu);
}

static status is_captured(cuda_loaded *l, const rt_stream *streams, uint32_t n, bool *result) {
  *result = false;
  for (uint32_t i = 0; i < n; i++) {
    CUstreamCaptureStatus how = CU_STREAM_CAPTURE_STATUS_NONE;
    TRY(check_stream(l, &streams[i]));
    TRY(cuda_try(l->cu->cuStreamIsCapturing(streams[i].handle, &how), "asking for a capture"));
    if (how != CU_STREAM_CAPTURE_STATUS_NONE) *result = true;
  }
  return STATUS_OK;
}

static status follow_callers(cuda_loaded *l, const rt_stream *streams, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    CUevent event;
    TRY(entry_event(l->device, streams[i].space - 1, &event));
    TRY(cuda_try(l->cu->cuEventRecord(event, streams[i].handle), "following a stream"));
    TRY(cuda_try(l->cu->cuStreamWaitEvent(l->streams[0].handle, event, 0), "following a stream"));
  }
  l->current_gpu = UINT32_MAX; /* contexts of the caller's streams were current */
  return cuda_blocks_follow(l, l->streams[0].handle);
}

static status lead_callers(cuda_loaded *l, const rt_stream *streams, uint32_t n) {
  CUevent end = l->events[l->order.n_events]; /* of the first stream, which joining does not use */
  TRY(cuda_try(l->cu->cuEventRecord(end, l->streams[0].handle), "leading a stream"));
  for (uint32_t i = 0; i < n; i++)
    TRY(cuda_try(l->cu->cuStreamWaitEvent(streams[i].handle, end, 0), "leading a stream"));
  return STATUS_OK;
}

/* ---- runs ---- */
/* Lets the host wait for the caller's streams, then runs as without streams. */
static status run_after(cuda_loaded *l, void *const *inputs, void *const *outputs,
                        const rt_stream *streams, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    TRY(cuda_try(l->cu->cuStreamSynchronize(streams[i].handle), "waiting for a stream"));
  return rt_run(&l->base, inputs, outputs, NULL, NULL);
}

/* Issues copies in, the plan, and copies out; each waits for everything before it. */
static status issue_all(cuda_loaded *l, bool captured) {
  bool copied = false;
  TRY(cuda_run_fork(l));
  TRY(cuda_run_copy_in(l, &copied));
  TRY(cuda_run_set_seed(l, captured, &copied));
  if (copied) TRY(cuda_run_join(l));
  l->replaying = cuda_run_replays(l) && !captured;
  if (l->replaying) TRY(cuda_run_replay(l));
  else {
    if (copied) TRY(cuda_run_fork(l));
    cuda_issue(l, l->order.steps.len);
  }
  TRY(cuda_run_join(l));
  TRY(cuda_run_failure(l));
  copied = false;
  TRY(cuda_run_copy_out(l, &copied));
  return copied ? cuda_run_join(l) : STATUS_OK;
}

/* Refuses what cannot be part of a graph. */
static status check_capture(const cuda_loaded *l) {
  for (uint32_t i = 0; i < l->n_externals; i++) {
    const cuda_external *e = &l->externals[i];
    if (cuda_run_is_pageable(l, e))
      return fail(STATUS_BAD_USAGE,
                  "within a capture of a CUDA graph all tensors must be on a GPU or in pinned or "
                  "managed memory");
  }
  return STATUS_OK;
}

/* Must the host wait for the end? Yes, if the caller may next change or read memory that is not pinned. */
static bool must_wait(const cuda_loaded *l) {
  bool waits = false;
  for (uint32_t i = 0; i < l->n_externals && !waits; i++)
    waits = cuda_run_is_pageable(l, &l->externals[i]);
  return waits;
}

static status run_locked(cuda_loaded *l, void *const *inputs, void *const *outputs,
                         const rt_stream *streams, uint32_t n, bool captured) {
  if (captured) l->keeps_memory = true;
  TRY(cuda_errors_earlier(l->device));
  TRY(cuda_run_prepare(l, inputs, outputs));
  if (captured) TRY(check_capture(l));
  /* a graph is not ordered after runs outside of it */
  if (captured && l->is_pending) TRY(cuda_run_settle(l));
  TRY(follow_callers(l, streams, n));
  status st = issue_all(l, captured), led = lead_callers(l, streams, n);
  if (st == STATUS_OK) st = led;
  l->is_pending = !captured;
  cuda_errors_follow(l);
  if (st == STATUS_OK && !captured && must_wait(l)) {
    st = cuda_run_settle(l);
    if (st == STATUS_OK) st = cuda_errors_tell(l);
  }
  return st;
}

static status run_on(cuda_loaded *l, void *const *inputs, void *const *outputs,
                     const rt_stream *streams, uint32_t n, bool *captured) {
  TRY(is_captured(l, streams, n, captured));
  bool alone = !l->share && !l->watched && !l->device->options.adversarial;
  if (!alone && *captured)
    return fail(STATUS_UNAVAILABLE,
                "a program whose communications need the host, between processes "
                "or by NCCL, cannot be captured");
  if (!alone) return run_after(l, inputs, outputs, streams, n);
  (void)pthread_mutex_lock(&l->device->run);
  status st = run_locked(l, inputs, outputs, streams, n, *captured);
  if (st != STATUS_OK && !*captured) cuda_run_drain(l);
  (void)pthread_mutex_unlock(&l->device->run);
  return st;
}

status cuda_run_on(rt_loaded *loaded, void *const *inputs, void *const *outputs,
                   const rt_stream *streams, uint32_t n, bool *captured) {
  cuda_loaded *l = (cuda_loaded *)loaded;
  CUcontext caller = cuda_caller_enter(l->cu);
  status st = run_on(l, inputs, outputs, streams, n, captured);
  cuda_caller_leave(l->cu, caller);
  return st;
}
