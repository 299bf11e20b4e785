/* Makes everything that the runs of a plan need. */
#include <string.h>

#include "base/table.h"
#include "device/cuda/device.h"
#include "device/cuda/errors.h"

static const rt_plan *plan_of(const cuda_loaded *l) { return l->plan; }

static size_t round_up(size_t bytes) { return (bytes + CUDA_ALIGN - 1) / CUDA_ALIGN * CUDA_ALIGN; }

static cuda_gpu *gpu_of(const cuda_loaded *l, uint32_t rank) {
  return &l->device->gpus[l->ranks[rank].gpu];
}

static status make_current(const cuda_loaded *l, uint32_t rank) {
  return cuda_try(l->cu->cuCtxSetCurrent(gpu_of(l, rank)->context), "making a context current");
}

/* ---- which rank owns what ---- */
static void own_buffers(cuda_loaded *l) {
  const rt_plan *plan = plan_of(l);
  for (uint32_t b = 0, r = 0; plan->first_buffer && b < plan->n_buffers; b++) {
    while (b >= plan->first_buffer[r + 1]) r++;
    l->rank_of_buffer[b] = r;
  }
}

/* Each rank has its own part of the pool. */
static void own_pool(cuda_loaded *l) {
  const rt_plan *plan = plan_of(l);
  for (uint32_t r = 0; r < l->n_ranks; r++) l->ranks[r].pool_begin = INT64_MAX;
  for (uint32_t b = 0; b < plan->n_buffers; b++) {
    const rt_buffer *buffer = &plan->buffers[b];
    cuda_rank *r = &l->ranks[l->rank_of_buffer[b]];
    if (buffer->kind != RT_BUFFER_POOL) continue;
    int64_t end = buffer->offset_bytes + buffer->size_bytes;
    if (buffer->offset_bytes < r->pool_begin) r->pool_begin = buffer->offset_bytes;
    if (end > r->pool_end) r->pool_end = end;
  }
  for (uint32_t r = 0; r < l->n_ranks; r++)
    if (l->ranks[r].pool_begin > l->ranks[r].pool_end) l->ranks[r].pool_begin = 0;
}

/* ---- tasks ---- */
static void place_tasks(cuda_loaded *l) {
  cuda_loops_number(l);
  for (uint32_t i = 0; i < l->order.steps.len; i++) {
    const issue_step *s = &l->order.steps.data[i];
    if (s->kind == ISSUE_LAUNCH) l->tasks[s->index].on = s->stream;
  }
}

/* Finds the streams whose last work no other stream waits for: a run is over when these are done. */
static void find_last(cuda_loaded *l) {
  uint32_t n = l->order.steps.len;
  bool *waited = ARENA_ARRAY(&l->memory, l->order.n_events, bool);
  bool *seen = ARENA_ARRAY(&l->memory, l->n_streams, bool);
  for (uint32_t i = n; i-- > 0;) {
    const issue_step *s = &l->order.steps.data[i];
    cuda_stream *stream = &l->streams[s->stream];
    if (s->kind == ISSUE_WAIT) waited[s->index] = true;
    stream->used = true;
    if (seen[s->stream] || (s->kind == ISSUE_RECORD && !waited[s->index])) continue;
    seen[s->stream] = true;
    stream->is_last = s->kind != ISSUE_RECORD;
  }
}

/* An event belongs to the GPU of the stream that records it. */
static void find_recorders(cuda_loaded *l) {
  l->rank_of_event = ARENA_ARRAY(&l->memory, l->n_events, uint32_t);
  for (uint32_t i = 0; i < l->order.steps.len; i++) {
    const issue_step *s = &l->order.steps.data[i];
    /* mutant: cuda_events_of_first_gpu */
    if (s->kind == ISSUE_RECORD) l->rank_of_event[s->index] = l->streams[s->stream].rank;
  }
  for (uint32_t e = 0; l->share && e < l->order.n_events; e++)
    l->rank_of_event[e] = l->share->split.rank_of_event[e];
  for (uint32_t s = 0; s < l->n_streams; s++)
    l->rank_of_event[l->order.n_events + s] = l->streams[s].rank;
}

/* A task with a result of so many elements keeps a GPU busy: large GPUs have about 128 processors, each with a tile of
 * 64 x 128. */
enum { LARGE = 1 << 20 };

static status build(void *context) {
  cuda_loaded *l = context;
  const rt_plan *plan = plan_of(l);
  issue_order_options options = {.staged = l->through_host, .through_host = l->through_host};
  options.one_gpu = l->device->n_gpus == 1 || l->n_ranks == 1;
  if (l->share) options.one_gpu = l->device->world.one_gpu;
  options.apart = l->share != NULL;
  options.large = l->device->options.adversarial ? 1 : LARGE;
  options.as_posted = l->device->nccl != NULL;
  options.reduces = cuda_nccl_reduces;
  TRY(issue_order_make(plan, &options, &l->memory, &l->order));
  if (l->share) cuda_share_split(l);
  l->rank_of_buffer = ARENA_ARRAY(&l->memory, plan->n_buffers, uint32_t);
  own_buffers(l);
  own_pool(l);
  cuda_externals_list(l);
  l->bases = ARENA_ARRAY(&l->memory, plan->n_buffers, CUdeviceptr);
  l->tasks = ARENA_ARRAY(&l->memory, plan->n_tasks, cuda_task);
  l->moves = ARENA_ARRAY(&l->memory, l->order.copies.len, cuda_move);
  l->folds = ARENA_ARRAY(&l->memory, l->order.folds.len, cuda_fold_call);
  l->n_streams = plan->n_streams + l->order.n_lanes;
  l->streams = ARENA_ARRAY(&l->memory, l->n_streams, cuda_stream);
  for (uint32_t s = 0; s < l->n_streams; s++)
    l->streams[s].rank =
        s < plan->n_streams ? rt_plan_rank(plan, s) : l->order.rank_of_lane[s - plan->n_streams];
  find_last(l);
  place_tasks(l);
  /* one to fork a capture, and one per stream to join it */
  l->n_events = l->order.n_events + 1 + l->n_streams;
  l->events = ARENA_ARRAY(&l->memory, l->n_events, CUevent);
  find_recorders(l);
  if (l->order.comms.len == 0) return STATUS_OK;
  l->nccl.groups = ARENA_ARRAY(&l->memory, l->order.n_circles, cuda_nccl_group *);
  cuda_watch_prepare(l);
  return STATUS_OK;
}

static void need_scratch(cuda_task *t, size_t bytes) {
  if (bytes > t->scratch_bytes) t->scratch_bytes = bytes;
}

/* Makes a product that the library takes a `call`. `starts`: of the result and the operands. If
 * call->matmul stays NULL, kernels compute it. */
static status try_matmul(cuda_loaded *l, cuda_task *t, const rt_plan *plan, const rt_task *task,
                         const cuda_after *after, const cg_pointer *starts, cuda_call *call) {
  cuda_matmul_shape shape;
  cuda_matmul_starts offsets;
  cuda_stream *s = &l->streams[t->on];
  if (!cuda_matmul_shape_of(plan, task, after, &shape, &offsets)) return STATUS_OK;
  shape.tf32 = shape.dtype == IR_F32 && l->device->options.tf32;
  cuda_gpu *g = gpu_of(l, s->rank);
  TRY(make_current(l, s->rank));
  TRY(cuda_matmul_get(l->cu, g->lt, &g->matmuls, &shape, l->device->memory, &call->matmul));
  if (!call->matmul) return STATUS_OK;
  cg_pointer *pointers = ARENA_ARRAY(&l->memory, CUDA_MATMUL_SIDES, cg_pointer);
  pointers[0] = starts[0];
  for (uint32_t k = 0; k < task->n_operands; k++) {
    ir_dtype dtype = (ir_dtype)(k < 2 ? shape.dtype : shape.dtype_d);
    int64_t size = (int64_t)ir_dtype_size_bytes(dtype);
    pointers[k + 1] = starts[k + 1];
    pointers[k + 1].offset_bytes += offsets.offset[k] * size;
  }
  call->n_pointers = CUDA_MATMUL_SIDES;
  call->pointers = pointers;
  call->addresses = ARENA_ARRAY(&l->memory, CUDA_MATMUL_SIDES, CUdeviceptr);
  /* mutant: cuda_workspaces_shared */
  need_scratch(t, call->workspace_at + call->matmul->workspace_bytes);
  return STATUS_OK;
}

static void open_attention(cuda_gpu *g) {
  if (g->attention.dnn || g->attention.why) return;
  cuda_att_open(&g->attention, g->major, g->minor, g->units);
}

static void place_attention(cuda_loaded *l, const cuda_att_places *places, const cg_pointer *starts,
                            cuda_call *call) {
  cg_pointer *pointers = ARENA_ARRAY(&l->memory, N_ATT_SIDES, cg_pointer);
  for (uint32_t i = 0; i < N_ATT_SIDES; i++) {
    pointers[i] = starts[places->start[i] == ATT_NO_START ? 0 : places->start[i]];
    pointers[i].offset_bytes += places->offset_bytes[i];
  }
  call->scale = places->scale;
  call->n_pointers = N_ATT_SIDES;
  call->pointers = pointers;
  call->addresses = ARENA_ARRAY(&l->memory, N_ATT_SIDES, CUdeviceptr);
}

/* The same for attention that cuDNN takes. */
static status try_attention(cuda_loaded *l, cuda_task *t, const rt_plan *plan, const rt_task *task,
                            const cg_pointer *starts, cuda_call *call) {
  cuda_att_shape shape;
  cuda_att_places places;
  const char *why;
  cuda_stream *s = &l->streams[t->on];
  cuda_gpu *g = gpu_of(l, s->rank);
  if (!cuda_att_is(task)) return STATUS_OK;
  if (!cuda_att_shape_of(plan, task, &shape, &places, &why)) {
    cuda_att_explain(&shape, NULL, why);
    return STATUS_OK;
  }
  TRY(make_current(l, s->rank));
  open_attention(g);
  TRY(cuda_attention_get(&g->attention, l->cu, &shape, l->device->memory, &call->attention));
  cuda_att_explain(&shape, call->attention, g->attention.why);
  if (!call->attention) return STATUS_OK;
  place_attention(l, &places, starts, call);
  need_scratch(t, call->workspace_at + cuda_attention_scratch(call->attention));
  return STATUS_OK;
}

static bool is_by_library(const cuda_call *c) { return c->matmul || c->attention; }

static status try_library(cuda_loaded *l, cuda_task *t, const rt_plan *plan, const rt_task *task,
                          const cg_pointer *starts, cuda_call *call) {
  TRY(try_matmul(l, t, plan, task, NULL, starts, call));
  return call->matmul ? STATUS_OK : try_attention(l, t, plan, task, starts, call);
}

typedef struct kernel_key {
  const cuda_loaded *l;
  const rt_task *task;
} kernel_key;

static bool serves(const void *context, uint32_t value) {
  const kernel_key *key = context;
  const rt_plan *plan = plan_of(key->l);
  return rt_task_equal(plan, key->task, &plan->tasks[value - 1], CUDA_BUFFER_ALIGN);
}

/* What all GPUs have in common: ranks on different GPUs share kernels. GPUs that this process has not opened are not
 * used by it. */
static cg_gpu weakest(const cuda_device *d) {
  cg_gpu least = {UINT32_MAX, UINT32_MAX, true};
  for (uint32_t g = 0; g < d->n_gpus; g++) {
    const cuda_gpu *x = &d->gpus[g];
    if (!x->context) continue;
    if ((uint32_t)x->shared_bytes < least.shared_bytes)
      least.shared_bytes = (uint32_t)x->shared_bytes;
    if ((uint32_t)x->units < least.units) least.units = (uint32_t)x->units;
    least.is_90 = least.is_90 && x->major == 9 && x->minor == 0;
  }
  return least;
}

/* Takes the kernel of an earlier equal task, or writes a new one. */
static status find_kernel(cuda_loaded *l, table *known, uint32_t t) {
  const rt_plan *plan = plan_of(l);
  const rt_task *task = &plan->tasks[t];
  kernel_key key = {l, task};
  uint64_t hash = rt_task_hash(plan, task, CUDA_BUFFER_ALIGN);
  uint32_t found = table_find(known, hash, serves, &key);
  if (found) {
    l->tasks[t].kernel = l->tasks[found - 1].kernel;
    return STATUS_OK;
  }
  cg_gpu gpu = weakest(l->device);
  TRY(cuda_kernel_prepare(plan, task, &gpu, &l->memory, &l->tasks[t].kernel));
  table_add(known, hash, t + 1);
  return STATUS_OK;
}

static void add_calls(cuda_loaded *l, cuda_task *t, uint32_t first, uint32_t n) {
  for (uint32_t i = first; i < first + n; i++) {
    const cg_launch *x = &t->kernel->code.launches[i];
    for (uint32_t p = 0; p < x->n_pointers; p++)
      if (x->pointers[p].start == CG_START_SEED) l->draws = true;
    t->calls[t->n_calls++] =
        (cuda_call){.launch = x,
                    .n_pointers = x->n_pointers,
                    .pointers = x->pointers,
                    .addresses = ARENA_ARRAY(&l->memory, x->n_pointers + (size_t)1, CUdeviceptr)};
  }
}

/* Makes the calls of a task. The workspace of a product in a body follows the body's own scratch memory. */
static status make_calls(cuda_loaded *l, cuda_task *t) {
  const cuda_kernel *k = t->kernel;
  const cuda_stream *s = &l->streams[t->on];
  t->calls = ARENA_ARRAY(&l->memory, k->code.n_launches + (size_t)k->n_parts, cuda_call);
  need_scratch(t, k->code.scratch_bytes);
  t->error = l->ranks[s->rank].n_errors;
  l->ranks[s->rank].n_errors += k->n_indexed;
  l->n_errors += k->n_indexed;
  if (k->n_parts == 0) add_calls(l, t, 0, k->code.n_launches);
  for (uint32_t i = 0; i < k->n_parts; i++) {
    const cuda_part *p = &k->parts[i];
    cuda_call *call = &t->calls[t->n_calls];
    call->workspace_at = round_up(k->code.scratch_bytes);
    if (p->whole) TRY(try_matmul(l, t, p->plan, p->whole, p->after, p->whole_starts, call));
    if (is_by_library(call)) {
      t->n_calls++;
      return STATUS_OK;
    }
    if (p->task) TRY(try_library(l, t, p->plan, p->task, p->starts, call));
    if (is_by_library(call)) t->n_calls++;
    else add_calls(l, t, p->first, p->n_launches);
  }
  return STATUS_OK;
}

/* The starts of a task that is one operation: its own result and operands. */
static const cg_pointer own_starts[] = {{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0},
                                        {5, 0}, {6, 0}, {7, 0}, {8, 0}, {9, 0}};

static status find_library(cuda_loaded *l, uint32_t t) {
  const rt_task *task = &plan_of(l)->tasks[t];
  cuda_call call = {.matmul = NULL};
  if (task->body) return STATUS_OK;
  TRY(try_library(l, &l->tasks[t], plan_of(l), task, own_starts, &call));
  if (!is_by_library(&call)) return STATUS_OK;
  l->tasks[t].calls = ARENA_NEW(&l->memory, cuda_call);
  *l->tasks[t].calls = call;
  l->tasks[t].n_calls = 1;
  return STATUS_OK;
}

static status find_kernels(void *context) {
  cuda_loaded *l = context;
  table known;
  table_init(&known, &l->memory);
  for (uint32_t t = 0; t < plan_of(l)->n_tasks; t++) {
    if (!l->tasks[t].is_here) continue;
    TRY(find_library(l, t));
    if (l->tasks[t].n_calls > 0) continue;
    TRY(find_kernel(l, &known, t));
    TRY(make_calls(l, &l->tasks[t]));
  }
  cuda_loops_move(l);
  return STATUS_OK;
}

/* ---- memory ---- */
static status lay_out(void *context) {
  cuda_blocks_lay_out(context);
  return STATUS_OK;
}

static status allocate(cuda_loaded *l) {
  if (l->n_errors) TRY(make_current(l, l->share ? l->share->me : 0));
  TRY(cuda_errors_make(l));
  for (uint32_t r = 0; r < l->n_ranks && !l->share; r++) {
    size_t slots_bytes = (size_t)l->order.slots_bytes[r];
    if (slots_bytes == 0) continue;
    TRY(make_current(l, r));
    TRY(cuda_try(l->cu->cuMemHostAlloc(&l->ranks[r].slots, slots_bytes, CU_MEMHOSTALLOC_PORTABLE),
                 "allocating pinned memory"));
  }
  if (!cuda_is_mapped(l)) return STATUS_OK;
  TRY(cuda_blocks_export(l));
  TRY(cuda_share_connect(l));
  return cuda_blocks_ready(l);
}

/* Streams that communicate get the highest priority, since other ranks wait for them. */
static status make_streams(cuda_loaded *l) {
  for (uint32_t s = 0; s < l->n_streams; s++) {
    cuda_stream *x = &l->streams[s];
    bool is_main = s == cuda_main_stream(l, x->rank);
    if ((!x->used && !is_main) || !cuda_is_here(l, x->rank)) continue;
    TRY(make_current(l, x->rank));
    int least = 0, most = 0;
    TRY(cuda_try(l->cu->cuCtxGetStreamPriorityRange(&least, &most), "asking for priorities"));
    TRY(cuda_try(l->cu->cuStreamCreateWithPriority(&x->handle, CU_STREAM_NON_BLOCKING,
                                                   s < plan_of(l)->n_streams ? least : most),
                 "making a stream"));
  }
  for (uint32_t i = 0; i < l->n_events; i++) {
    if (!cuda_is_here(l, l->rank_of_event[i])) continue;
    TRY(make_current(l, l->rank_of_event[i]));
    TRY(cuda_try(l->cu->cuEventCreate(&l->events[i], CU_EVENT_DISABLE_TIMING), "making an event"));
  }
  return STATUS_OK;
}

/* ---- addresses ---- */
CUdeviceptr cuda_place_address(const cuda_loaded *l, const issue_place *p) {
  CUdeviceptr base = 0;
  switch (p->kind) {
  case ISSUE_IN_BUFFER: base = l->bases[p->index]; break;
  case ISSUE_IN_STAGING: base = l->ranks[p->index].staging; break;
  case ISSUE_IN_SLOTS: base = (CUdeviceptr)(uintptr_t)l->ranks[p->index].slots; break;
  case ISSUE_NOWHERE: return 0;
  }
  return base + (CUdeviceptr)p->offset_bytes;
}

static CUdeviceptr start_of(const cuda_loaded *l, const rt_task *task, uint32_t k) {
  const rt_view *v = cuda_start_view(l, task, k);
  return v ? l->bases[v->buffer] + (CUdeviceptr)v->offset_bytes : 0;
}

static void place_calls(cuda_loaded *l, cuda_task *t, const rt_task *task) {
  const cuda_stream *s = &l->streams[t->on];
  for (uint32_t i = 0; i < t->n_calls; i++) {
    const cuda_call *c = &t->calls[i];
    for (uint32_t p = 0; p < c->n_pointers; p++) {
      const cg_pointer *from = &c->pointers[p];
      CUdeviceptr start;
      if (from->start == CG_START_SCRATCH) start = t->scratch;
      else if (from->start == CG_START_SEED) start = l->ranks[s->rank].seed;
      else if (from->start == CG_START_ERROR)
        start = l->ranks[s->rank].errors + t->error * sizeof(cg_error);
      else start = start_of(l, task, from->start);
      c->addresses[p] = start + (CUdeviceptr)from->offset_bytes;
    }
  }
}

void cuda_program_place(cuda_loaded *l) {
  const rt_plan *plan = plan_of(l);
  for (uint32_t b = 0; b < plan->n_buffers; b++) {
    const cuda_rank *r = &l->ranks[l->rank_of_buffer[b]];
    if (plan->buffers[b].kind == RT_BUFFER_POOL)
      l->bases[b] = r->pool + (CUdeviceptr)(plan->buffers[b].offset_bytes - r->pool_begin);
  }
  for (uint32_t i = 0; i < l->n_externals; i++)
    l->bases[l->externals[i].buffer] = l->externals[i].used;
  for (uint32_t t = 0; t < plan->n_tasks; t++) {
    cuda_task *task = &l->tasks[t];
    if (task->is_here) place_calls(l, task, &plan->tasks[t]);
  }
  for (uint32_t i = 0; i < l->order.copies.len; i++) {
    const issue_copy *c = &l->order.copies.data[i];
    l->moves[i].to = (void *)(uintptr_t)cuda_place_address(l, &c->to);
    l->moves[i].from = (void *)(uintptr_t)cuda_place_address(l, &c->from);
  }
  for (uint32_t f = 0; f < l->order.folds.len; f++)
    if (cuda_is_here(l, l->order.folds.data[f].rank)) cuda_fold_place(l, f);
}

/* ---- all of it ---- */
static status open_ranks(cuda_loaded *l) {
  const rt_plan *plan = plan_of(l);
  l->n_ranks = plan->n_ranks ? plan->n_ranks : 1;
  l->ranks = memory_alloc(l->device->memory, l->n_ranks * sizeof *l->ranks);
  if (!l->ranks) return STATUS_OUT_OF_MEMORY;
  memset(l->ranks, 0, l->n_ranks * sizeof *l->ranks);
  uint32_t n = l->device->n_gpus, first = l->device->options.first_gpu % n;
  if (l->share) first += n - l->share->me % n;
  for (uint32_t r = 0; r < l->n_ranks; r++) {
    l->ranks[r].gpu = (first + r) % n;
    if (cuda_is_here(l, r)) TRY(cuda_gpu_open(l->device, l->ranks[r].gpu));
  }
  if (!l->share) return STATUS_OK;
  TRY(make_current(l, l->share->me));
  if (!cuda_is_mapped(l)) return STATUS_OK;
  TRY(cuda_share_meet(l));
  l->through_host = l->device->world.through_host;
  return STATUS_OK;
}

/* If some GPU cannot read another's memory, all communicate by way of the host. */
static status connect_gpus(cuda_loaded *l) {
  uint32_t n = l->n_ranks < l->device->n_gpus ? l->n_ranks : l->device->n_gpus;
  if (l->share) return STATUS_OK;
  l->through_host = l->device->options.link_host;
  for (uint32_t a = 0; a < n; a++) {
    for (uint32_t b = 0; b < n && !l->through_host; b++) {
      bool can = true;
      if (a != b) TRY(cuda_gpu_connect(l->device, a, b, &can));
      /* mutant: cuda_peers_taken_for_granted */
      l->through_host = !can;
    }
  }
  return STATUS_OK;
}

status cuda_program_init(cuda_loaded *l) {
  TRY(open_ranks(l));
  TRY(connect_gpus(l));
  TRY(memory_guard(build, l));
  if (l->watched) TRY(cuda_nccl_prepare(l));
  TRY(memory_guard(find_kernels, l));
  TRY(cuda_program_compile(l));
  l->keeps_memory = l->share || l->watched;
  TRY(memory_guard(lay_out, l));
  TRY(allocate(l));
  return make_streams(l);
}

/* Freeing works in any context, but one must be current. */
static void make_any_current(const cuda_loaded *l) {
  for (uint32_t r = 0; l->ranks && r < l->n_ranks; r++)
    if (gpu_of(l, r)->context) (void)l->cu->cuCtxSetCurrent(gpu_of(l, r)->context);
}

void cuda_program_destroy(cuda_loaded *l) {
  const cuda_vendor *cu = l->cu;
  cuda_errors_leave(l);
  if (l->is_stuck) return; /* to free what streams still use would wait for them */
  /* mutant: cuda_unload_without_context */
  make_any_current(l);
  if (l->is_pending) (void)cu->cuStreamSynchronize(l->streams[0].handle);
  cuda_errors_end(l);
  for (uint32_t s = 0; l->streams && s < l->n_streams; s++)
    if (l->streams[s].handle) (void)cu->cuStreamDestroy(l->streams[s].handle);
  for (uint32_t i = 0; l->events && i < l->n_events; i++)
    if (l->events[i]) (void)cu->cuEventDestroy(l->events[i]);
  cuda_trace_destroy(l);
  if (l->graph) (void)cu->cuGraphExecDestroy(l->graph);
  if (l->share && l->ranks && gpu_of(l, l->share->me)->context)
    (void)cu->cuCtxSetCurrent(gpu_of(l, l->share->me)->context);
  cuda_share_close(l);
  cuda_blocks_leave(l);
  for (uint32_t r = 0; l->ranks && r < l->n_ranks; r++) {
    if (gpu_of(l, r)->context) (void)cu->cuCtxSetCurrent(gpu_of(l, r)->context);
    if (l->ranks[r].slots) (void)cu->cuMemFreeHost(l->ranks[r].slots);
  }
  memory_free(l->device->memory, l->ranks);
  rt_plan_destroy(l->joined);
  arena_destroy(&l->memory);
}
