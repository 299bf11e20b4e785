/* Runs a loaded plan: issues its steps on streams. */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>

#include "base/random.h"
#include "device/cuda/errors.h"
#include "device/cuda/run.h"

static const rt_plan *plan_of(const cuda_loaded *l) { return l->plan; }

uint32_t cuda_main_stream(const cuda_loaded *l, uint32_t rank) {
  return rt_plan_first_stream(plan_of(l), rank);
}

CUresult cuda_run_make_current(cuda_loaded *l, uint32_t rank) {
  uint32_t gpu = l->ranks[rank].gpu;
  if (l->current_gpu == gpu) return CUDA_SUCCESS;
  l->current_gpu = gpu;
  return l->cu->cuCtxSetCurrent(l->device->gpus[gpu].context);
}

/* ---- steps ---- */
static const CUdeviceptr *addresses_of(const cuda_loaded *l, const cuda_call *c) {
  return c->steps && l->turn ? cuda_loops_addresses(c, l->turn) : c->addresses;
}

static CUresult run_matmul(cuda_loaded *l, const cuda_task *t, const cuda_call *c,
                           const cuda_stream *s) {
  cublasLtHandle_t lt = l->device->gpus[l->ranks[s->rank].gpu].lt;
  CUdeviceptr workspace = t->scratch + c->workspace_at;
  l->failed_lt = cuda_matmul_run(l->cu, lt, c->matmul, addresses_of(l, c), workspace, s->handle);
  return l->failed_lt == CUBLAS_STATUS_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

static CUresult run_attention(cuda_loaded *l, const cuda_task *t, const cuda_call *c,
                              const cuda_stream *s) {
  const cuda_att_library *x = &l->device->gpus[l->ranks[s->rank].gpu].attention;
  cuda_att_run run = {.sides = addresses_of(l, c),
                      .scale = c->scale,
                      .scratch = t->scratch + c->workspace_at,
                      .stream = s->handle};
  l->failed_dnn = cuda_attention_run(x->dnn, x->run_handle, c->attention, &run);
  return l->failed_dnn == DNN_STATUS_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

static CUresult run_calls(cuda_loaded *l, const cuda_task *t, const cuda_stream *s) {
  CUresult r = CUDA_SUCCESS;
  for (uint32_t i = 0; i < t->n_calls && r == CUDA_SUCCESS; i++) {
    const cuda_call *c = &t->calls[i];
    const cg_launch *x = c->launch;
    if (c->matmul || c->attention) {
      r = c->matmul ? run_matmul(l, t, c, s) : run_attention(l, t, c, s);
      continue;
    }
    const CUdeviceptr *at = addresses_of(l, c);
    void *params[] = {(void *)(uintptr_t)at, (void *)(uintptr_t)x->numbers};
    if (x->moves && at[0] == at[1]) continue;
    r = l->cu->cuLaunchKernel(c->function, x->grid[0], x->grid[1], x->grid[2], x->block, 1, 1,
                              x->shared_bytes, s->handle, params, NULL);
  }
  return r;
}

static const char *name_of(const cuda_task *t) {
  if (t->kernel) return t->kernel->name;
  return t->calls->matmul ? "matmul" : "attention (cudnn)";
}

static CUresult run_launch(cuda_loaded *l, uint32_t task, const cuda_stream *s) {
  const cuda_task *t = &l->tasks[task];
  const CUevent *timing =
      l->spans ? &l->timing[2 * (t->launch + (size_t)l->turn * t->more_launches)] : NULL;
  CUresult r = CUDA_SUCCESS;
  (void)nvtxRangePushA(name_of(t)); /* nothing without a profiler */
  if (timing) r = l->cu->cuEventRecord(timing[0], s->handle);
  if (r == CUDA_SUCCESS) r = run_calls(l, t, s);
  if (r == CUDA_SUCCESS && timing) r = l->cu->cuEventRecord(timing[1], s->handle);
  (void)nvtxRangePop();
  return r;
}

static CUresult run_copy(cuda_loaded *l, uint32_t copy, CUstream stream) {
  const issue_copy *c = &l->order.copies.data[copy];
  const cuda_move *m = &l->moves[copy];
  size_t bytes = (size_t)c->size_bytes;
  CUdeviceptr to = (CUdeviceptr)(uintptr_t)m->to, from = (CUdeviceptr)(uintptr_t)m->from;
  if (c->to.kind == ISSUE_IN_SLOTS) return l->cu->cuMemcpyDtoHAsync(m->to, from, bytes, stream);
  if (c->from.kind == ISSUE_IN_SLOTS) return l->cu->cuMemcpyHtoDAsync(to, m->from, bytes, stream);
  uint32_t there = l->ranks[c->to_rank].gpu, here = l->ranks[c->from_rank].gpu;
  /* memory opened from other processes has ordinary addresses; managed memory is in no GPU's context */
  if (there == here || l->share || l->has_managed)
    return l->cu->cuMemcpyDtoDAsync(to, from, bytes, stream);
  return l->cu->cuMemcpyPeerAsync(to, l->device->gpus[there].context, from,
                                  l->device->gpus[here].context, bytes, stream);
}

static CUresult run_fold(cuda_loaded *l, uint32_t fold, CUstream stream) {
  enum { THREADS = 256 };
  cuda_fold_call *f = &l->folds[fold];
  return l->cu->cuLaunchKernel(f->function, f->grid, 1, 1, THREADS, 1, 1, 0, stream, f->params,
                               NULL);
}

static CUresult run_record(cuda_loaded *l, uint32_t event, CUstream stream) {
  if (!l->spans && !l->order.is_waited_for[event] && !l->device->nccl) return CUDA_SUCCESS;
  CUresult r = l->cu->cuEventRecord(l->events[event], stream);
  if (r == CUDA_SUCCESS && cuda_is_mapped(l)) r = cuda_share_record(l, event, stream);
  if (r != CUDA_SUCCESS || !l->spans) return r;
  return l->cu->cuEventRecord(cuda_trace_twin(l, event), stream);
}

static CUresult run_wait(cuda_loaded *l, uint32_t step, CUstream stream) {
  if (cuda_is_mapped(l)) return cuda_share_wait(l, step, stream);
  return l->cu->cuStreamWaitEvent(stream, l->events[l->order.steps.data[step].index], 0);
}

/* The adversary delays some streams, so that work that is not ordered happens in another order. */
static CUresult delay(cuda_loaded *l, uint32_t step, const cuda_stream *s) {
  enum { ONE_IN = 3, LONGEST_NS = 200000 };
  uint64_t bits = random_bits(l->device->options.seed + l->turn, step);
  if (bits % ONE_IN != 0) return CUDA_SUCCESS;
  int64_t ns = (int64_t)(bits >> 8) % LONGEST_NS;
  void *params[] = {&ns};
  CUfunction function = l->device->gpus[l->ranks[s->rank].gpu].delay;
  return l->cu->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, s->handle, params, NULL);
}

static CUresult run_step(cuda_loaded *l, uint32_t at) {
  const issue_step *step = &l->order.steps.data[at];
  const cuda_stream *s = &l->streams[step->stream];
  CUresult r = cuda_run_make_current(l, s->rank);
  bool works = step->kind != ISSUE_RECORD && step->kind != ISSUE_WAIT;
  if (r == CUDA_SUCCESS && l->device->options.adversarial && works) r = delay(l, at, s);
  if (r != CUDA_SUCCESS) return r;
  switch ((issue_step_kind)step->kind) {
  case ISSUE_LAUNCH: return run_launch(l, step->index, s);
  case ISSUE_RECORD: return run_record(l, step->index, s->handle);
  /* mutant: cuda_waits_nothing */
  case ISSUE_WAIT: return run_wait(l, at, s->handle);
  case ISSUE_COPY: return run_copy(l, step->index, s->handle);
  case ISSUE_FOLD: return run_fold(l, step->index, s->handle);
  case ISSUE_COMM:
    return cuda_nccl_issue(l, step->index, s->handle) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
  }
  return CUDA_SUCCESS;
}

void cuda_issue(cuda_loaded *l, uint32_t upto) {
  while (l->failed == CUDA_SUCCESS) {
    if (l->issued == l->bound) cuda_loops_cross(l);
    if (l->issued >= upto) return;
    if (atomic_load_explicit(&l->cancelled, memory_order_relaxed)) {
      l->failed = CUDA_ERROR_UNKNOWN;
      return;
    }
    l->failed = run_step(l, l->issued);
    l->failed_step = l->issued++;
  }
}

/* ---- graphs ---- */
/* Does the stream take part in a run? The main stream of a rank always does: copies are on it. */
static bool takes_part(const cuda_loaded *l, uint32_t stream) {
  const cuda_stream *s = &l->streams[stream];
  return s->used || (s->handle && stream == cuda_main_stream(l, s->rank));
}

status cuda_run_fork(cuda_loaded *l) {
  CUevent start = l->events[l->order.n_events + l->n_streams];
  TRY(cuda_try(l->cu->cuEventRecord(start, l->streams[0].handle), "forking streams"));
  for (uint32_t s = 1; s < l->n_streams; s++)
    if (takes_part(l, s))
      TRY(cuda_try(l->cu->cuStreamWaitEvent(l->streams[s].handle, start, 0), "forking streams"));
  return STATUS_OK;
}

status cuda_run_join(cuda_loaded *l) {
  const CUevent *ends = l->events + l->order.n_events;
  for (uint32_t s = 1; s < l->n_streams; s++) {
    if (!takes_part(l, s)) continue;
    TRY(cuda_try(l->cu->cuEventRecord(ends[s], l->streams[s].handle), "joining streams"));
    TRY(cuda_try(l->cu->cuStreamWaitEvent(l->streams[0].handle, ends[s], 0), "joining streams"));
  }
  return STATUS_OK;
}

/* Issues everything. After a failure streams are joined too, so that the capture can be ended. */
static status record_all(cuda_loaded *l) {
  TRY(cuda_run_fork(l));
  cuda_issue(l, l->order.steps.len);
  status st = STATUS_OK;
  if (l->failed_nccl.result) st = cuda_nccl_failure(l);
  else st = cuda_try(l->failed, "capturing a plan");
  status joined = cuda_run_join(l);
  return st == STATUS_OK ? joined : st;
}

static void forget_graph(cuda_loaded *l) {
  if (l->graph) (void)l->cu->cuGraphExecDestroy(l->graph);
  l->graph = NULL;
}

static status capture(cuda_loaded *l) {
  CUgraph graph = NULL;
  CUstream first = l->streams[0].handle;
  TRY(cuda_try(l->cu->cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
               "beginning a capture"));
  status st = record_all(l);
  CUresult ended = l->cu->cuStreamEndCapture(first, &graph);
  if (st == STATUS_OK) st = cuda_try(ended, "ending a capture");
  if (st == STATUS_OK)
    st = cuda_try(l->cu->cuGraphInstantiateWithFlags(&l->graph, graph, 0), "making a graph");
  if (graph) (void)l->cu->cuGraphDestroy(graph);
  cuda_loops_begin(l);
  return st;
}

bool cuda_run_replays(const cuda_loaded *l) {
  return l->device->options.graph && !l->spans && l->order.steps.len > 0;
}

static status launch_graph(cuda_loaded *l) {
  TRY(cuda_try(cuda_run_make_current(l, 0), "making a context current"));
  return cuda_try(l->cu->cuGraphLaunch(l->graph, l->streams[0].handle), "launching a graph");
}

status cuda_run_replay(cuda_loaded *l) {
  if (!l->graph) TRY(capture(l));
  return launch_graph(l);
}

/* The driver does not say what has failed meanwhile, nor where in the plan. */
status cuda_run_try(const cuda_loaded *l, CUresult r) {
  char message[256];
  status st = cuda_try(r, "running the plan");
  if (st == STATUS_OK || l->failed != CUDA_SUCCESS)
    return st; /* the first failure is recorded already */
  (void)snprintf(message, sizeof message, "%s", status_message());
  status_clear();
  return rt_fail_in_run(l->base.plan, st, message);
}

static status wait_for(cuda_loaded *l, uint32_t stream) {
  return cuda_run_try(l, l->cu->cuStreamSynchronize(l->streams[stream].handle));
}

static status wait_for_main(cuda_loaded *l) {
  for (uint32_t r = 0; r < l->n_ranks; r++)
    if (cuda_is_here(l, r)) TRY(wait_for(l, cuda_main_stream(l, r)));
  return STATUS_OK;
}

/* Fills memory so that reads of values that were never written are noticed. */
static status poison(cuda_loaded *l) {
  for (uint32_t r = 0; r < l->n_ranks && l->device->options.adversarial; r++) {
    const cuda_rank *x = &l->ranks[r];
    size_t bytes = (size_t)(x->pool_end - x->pool_begin);
    uint32_t s = cuda_main_stream(l, r);
    if (bytes == 0 || !cuda_is_here(l, r)) continue;
    /* mutant: cuda_poison_elsewhere */
    TRY(cuda_try(cuda_run_make_current(l, r), "making a context current"));
    TRY(cuda_try(l->cu->cuMemsetD8Async(x->pool, 0xff, bytes, l->streams[s].handle), "poisoning"));
    TRY(wait_for(l, s));
  }
  return STATUS_OK;
}

/* Waits after a failed run, so that nothing uses the caller's arrays any more. */
void cuda_run_drain(cuda_loaded *l) {
  for (uint32_t s = 0; s < l->n_streams && !l->is_stuck; s++)
    if (l->streams[s].handle) (void)l->cu->cuStreamSynchronize(l->streams[s].handle);
}

/* ---- runs ---- */
static void reset(cuda_loaded *l, rt_span *spans) {
  l->spans = spans;
  l->origin_ns = spans ? rt_clock_ns() : 0;
  cuda_loops_begin(l);
  l->failed = CUDA_SUCCESS;
  atomic_store(&l->cancelled, false);
  l->failed_lt = CUBLAS_STATUS_SUCCESS;
  l->failed_dnn = DNN_STATUS_SUCCESS;
  l->failed_nccl = (cuda_nccl_error){0};
  l->current_gpu = UINT32_MAX;
}

static void place(cuda_loaded *l) {
  /* mutant: cuda_graph_of_old_arrays, cuda_graph_of_arrays_before_a_trace */
  cuda_program_place(l);
  forget_graph(l);
  l->moved = false;
}

static status check_stuck(const cuda_loaded *l) {
  if (!l->is_stuck) return STATUS_OK;
  return fail(STATUS_UNAVAILABLE, "cuda: streams of an earlier run never ended; nothing more can "
                                  "run here");
}

status cuda_run_settle(cuda_loaded *l) {
  TRY(cuda_try(cuda_run_make_current(l, 0), "making a context current"));
  TRY(wait_for(l, 0));
  l->is_pending = false;
  return STATUS_OK;
}

status cuda_run_prepare(cuda_loaded *l, void *const *inputs, void *const *outputs) {
  TRY(check_stuck(l));
  reset(l, NULL);
  TRY(cuda_try(cuda_run_make_current(l, 0), "making a context current"));
  TRY(cuda_run_find(l, inputs, outputs));
  TRY(cuda_try(cuda_run_make_current(l, 0), "making a context current"));
  if (l->moved) place(l);
  return STATUS_OK;
}

static status start(cuda_loaded *l, void *const *inputs, void *const *outputs) {
  TRY(check_stuck(l));
  if (l->is_pending) TRY(cuda_run_settle(l));
  TRY(cuda_errors_earlier(l->device));
  cuda_errors_clear(l);
  TRY(cuda_try(cuda_run_make_current(l, l->share ? l->share->me : 0), "making a context current"));
  TRY(cuda_run_find(l, inputs, outputs));
  TRY(cuda_blocks_follow(l, NULL));
  TRY(cuda_try(cuda_run_make_current(l, l->share ? l->share->me : 0), "making a context current"));
  TRY(poison(l));
  bool copied = false;
  TRY(cuda_run_copy_in(l, &copied));
  /* mutant: cuda_arrays_not_awaited */
  TRY(cuda_run_set_seed(l, false, &copied));
  if (copied) TRY(wait_for_main(l));
  bool stale = l->watched && cuda_nccl_is_stale(l), moved = l->moved || stale;
  if (stale) {
    /* mutant: cuda_nccl_changes_contexts */
    l->current_gpu = UINT32_MAX; /* communicators are made in the contexts of all */
    /* mutant: cuda_nccl_not_remade */
    TRY(cuda_nccl_prepare(l));
  }
  if (moved) place(l); /* also if this run is traced, and replays nothing */
  l->replaying = cuda_run_replays(l);
  if (l->replaying && !l->graph) TRY(capture(l));
  return l->spans ? cuda_trace_begin(l) : STATUS_OK;
}

static void end_run(cuda_device *d) {
  /* mutant: cuda_context_not_given_back */
  cuda_caller_leave(d->cu, d->caller);
  (void)pthread_mutex_unlock(&d->run);
}

status cuda_begin(rt_loaded *loaded, void *const *inputs, void *const *outputs, rt_span *spans) {
  cuda_loaded *l = (cuda_loaded *)loaded;
  (void)pthread_mutex_lock(&l->device->run);
  l->device->caller = cuda_caller_enter(l->cu);
  reset(l, spans);
  status st = l->share ? cuda_share_begin(l->share) : STATUS_OK;
  if (st == STATUS_OK) {
    st = start(l, inputs, outputs);
    if (st == STATUS_OK) return STATUS_OK;
    if (l->failed_nccl.result) cuda_nccl_abort(l->device->nccl);
    /* mutant: cuda_failure_leaves_work */
    if (l->share) st = cuda_share_finish(l->share, st);
    cuda_run_drain(l);
  }
  end_run(l->device);
  return st;
}

void cuda_launch(rt_loaded *loaded, uint32_t instr) {
  cuda_loaded *l = (cuda_loaded *)loaded;
  if (!l->replaying) {
    cuda_issue(l, l->order.upto[instr]);
    if (l->share && l->share->fault.after == instr) rt_fault_strike(&l->share->fault);
    return;
  }
  if (instr > 0) return;
  l->failed = cuda_run_make_current(l, 0);
  if (l->failed == CUDA_SUCCESS) l->failed = l->cu->cuGraphLaunch(l->graph, l->streams[0].handle);
}

/* A run in which others take part is not cancelled: they would wait for what is not issued. */
void cuda_cancel(rt_loaded *loaded) {
  cuda_loaded *l = (cuda_loaded *)loaded;
  if (!l->share && !l->watched) atomic_store(&l->cancelled, true);
}

static status issue_failure(const cuda_loaded *l) {
  if (l->failed_lt != CUBLAS_STATUS_SUCCESS)
    return cuda_try_lt(l->failed_lt, "issuing a matrix product");
  if (l->failed_dnn != DNN_STATUS_SUCCESS) return cuda_att_failure(l->failed_dnn);
  return cuda_try(l->failed, "issuing a step");
}

status cuda_run_failure(cuda_loaded *l) {
  if (l->failed != CUDA_SUCCESS && atomic_load(&l->cancelled))
    return fail(STATUS_CANCELLED, "the run was cancelled");
  if (l->failed_nccl.result) return cuda_nccl_failure(l);
  status st = issue_failure(l);
  if (st == STATUS_OK || l->replaying) return st;
  char message[256];
  (void)snprintf(message, sizeof message, "%s", status_message());
  status_clear();
  return rt_fail_at(l->base.plan, cuda_loops_instr(l), st, message);
}

static status sync_all(cuda_loaded *l) {
  if (l->watched) return cuda_watch(l);
  if (l->replaying) return wait_for(l, 0);
  /* the time stamps of ends, and the notes of ends for other processes, come after what others wait for */
  bool all = l->failed != CUDA_SUCCESS || l->spans || l->share;
  /* mutant: cuda_ends_forgotten */
  for (uint32_t s = 0; s < l->n_streams; s++)
    if (all ? l->streams[s].used : l->streams[s].is_last) TRY(wait_for(l, s));
  return STATUS_OK;
}

static status complete(cuda_loaded *l) {
  if (cuda_is_mapped(l) && l->failed == CUDA_SUCCESS) l->failed = cuda_share_end(l);
  if (l->share && l->failed != CUDA_SUCCESS)
    return cuda_run_failure(l); /* others must be told first */
  status issued = cuda_run_failure(l), ran = sync_all(l);
  if (issued != STATUS_OK) return issued;
  if (ran != STATUS_OK) return ran;
  TRY(cuda_errors_tell(l));
  bool copied = false;
  /* mutant: cuda_outputs_not_awaited */
  TRY(cuda_run_copy_out(l, &copied));
  if (copied) TRY(wait_for_main(l));
  if (l->spans) cuda_trace_end(l);
  return STATUS_OK;
}

status cuda_finish(rt_loaded *loaded) {
  cuda_loaded *l = (cuda_loaded *)loaded;
  status st = complete(l);
  if (l->share) st = cuda_share_finish(l->share, st);
  if (st != STATUS_OK) cuda_run_drain(l);
  end_run(l->device);
  return st;
}
