/* Memory of loaded plans. */
#include <stdio.h>
#include <string.h>

#include "device/cuda/run.h"
#include "runtime/lives.h"

static const rt_plan *plan_of(const cuda_loaded *l) { return l->plan; }

static size_t round_up(size_t bytes) { return (bytes + CUDA_ALIGN - 1) / CUDA_ALIGN * CUDA_ALIGN; }

/* ---- blocks ---- */
static CUresult take_block(const cuda_device *d, bool mapped, size_t bytes, cuda_block *b) {
  const rt_device_memory *m = &d->options.memory;
  /* memory that other processes open comes from the driver: the caller's may be part of a larger block */
  b->is_callers = m->alloc && !mapped;
  if (b->is_callers) b->at = (CUdeviceptr)(uintptr_t)m->alloc(m->context, (int32_t)b->gpu, bytes);
  CUresult got = b->is_callers ? CUDA_SUCCESS : d->cu->cuMemAlloc(&b->at, bytes);
  if (got != CUDA_SUCCESS) b->at = 0;
  else if (!b->at) got = CUDA_ERROR_OUT_OF_MEMORY;
  b->bytes = got == CUDA_SUCCESS ? bytes : 0;
  return got;
}

static void free_block(const cuda_device *d, cuda_block *b) {
  const rt_device_memory *m = &d->options.memory;
  if (!b->at) return;
  if (b->is_callers) m->free(m->context, (int32_t)b->gpu, (void *)(uintptr_t)b->at);
  else (void)d->cu->cuMemFree(b->at);
  b->at = 0;
  b->bytes = 0;
}

static status make_current(const cuda_device *d, uint32_t gpu) {
  return cuda_try(d->cu->cuCtxSetCurrent(d->gpus[gpu].context), "making a context current");
}

static status allocate(const cuda_loaded *l, uint32_t rank, cuda_block *b) {
  size_t free_bytes = 0, all_bytes = 0, bytes = l->ranks[rank].block_bytes;
  b->gpu = l->ranks[rank].gpu;
  TRY(make_current(l->device, b->gpu));
  CUresult got = take_block(l->device, cuda_is_mapped(l), bytes, b);
  if (b->at % CUDA_ALIGN)
    return fail(STATUS_BAD_USAGE, "the device allocator gave %p, which is not aligned to %d bytes",
                (void *)(uintptr_t)b->at, CUDA_ALIGN);
  if (got != CUDA_ERROR_OUT_OF_MEMORY) return cuda_try(got, "allocating memory");
  (void)l->cu->cuMemGetInfo(&free_bytes, &all_bytes);
  char message[256];
  (void)snprintf(message, sizeof message,
                 "cuda: device %u needs %zu bytes; GPU %u has %zu of %zu free", rank, bytes, b->gpu,
                 free_bytes, all_bytes);
  return rt_fail_in_run(l->base.plan, STATUS_OUT_OF_MEMORY, message);
}

/* ---- what is in a block ---- */
static size_t reserve(cuda_rank *r, size_t bytes) {
  size_t at = r->block_bytes;
  r->block_bytes += round_up(bytes);
  return at;
}

static void reserve_place(cuda_loaded *l, cuda_external *e) {
  size_t bytes = (size_t)plan_of(l)->buffers[e->buffer].size_bytes;
  if (e->has_place) return;
  e->has_place = true;
  e->place_at = reserve(&l->ranks[e->rank], bytes);
}

/* Tasks of one stream share scratch memory; those of different streams run at the same time. */
static void lay_out_scratch(cuda_loaded *l) {
  size_t *bytes = ARENA_ARRAY(&l->memory, l->n_streams, size_t);
  size_t *at = ARENA_ARRAY(&l->memory, l->n_streams, size_t);
  for (uint32_t t = 0; t < plan_of(l)->n_tasks; t++) {
    const cuda_task *x = &l->tasks[t];
    if (x->is_here && !x->in_pool && x->scratch_bytes > bytes[x->on])
      bytes[x->on] = x->scratch_bytes;
  }
  for (uint32_t s = 0; s < l->n_streams; s++)
    at[s] = reserve(&l->ranks[l->streams[s].rank], bytes[s]);
  for (uint32_t t = 0; t < plan_of(l)->n_tasks; t++)
    if (l->tasks[t].is_here && !l->tasks[t].in_pool) l->tasks[t].scratch_at = at[l->tasks[t].on];
}

/* ---- scratch memory between the buffers of the pool ---- */
typedef struct gaps {
  const rt_plan *plan;
  rt_lives lives;
  uint32_t *by_offset; /* buffers of the pool */
  uint32_t n;
} gaps;

static void list_by_offset(gaps *g, arena *memory) {
  const rt_buffer *buffers = g->plan->buffers;
  g->by_offset = ARENA_ARRAY(memory, g->plan->n_buffers, uint32_t);
  for (uint32_t b = 0; b < g->plan->n_buffers; b++) {
    if (!g->lives.of[b].used) continue;
    uint32_t k = g->n++;
    for (; k > 0 && buffers[g->by_offset[k - 1]].offset_bytes > buffers[b].offset_bytes; k--)
      g->by_offset[k] = g->by_offset[k - 1];
    g->by_offset[k] = b;
  }
}

/* The first place in the pool that no buffer uses while the instruction runs. */
static size_t find_gap(const gaps *g, uint32_t instr, size_t bytes) {
  size_t end = 0;
  for (uint32_t i = 0; i < g->n; i++) {
    const rt_buffer *b = &g->plan->buffers[g->by_offset[i]];
    const rt_life *life = &g->lives.of[g->by_offset[i]];
    /* mutant: cuda_scratch_over_buffers */
    if (life->first > instr || life->end <= instr) continue;
    if ((size_t)b->offset_bytes >= end + bytes) return end;
    size_t after = round_up((size_t)(b->offset_bytes + rt_pool_bytes(b->size_bytes)));
    if (after > end) end = after;
  }
  return end;
}

/* Places the scratch memory of tasks in the pool, if the plan runs in order: what other tasks have in the
 * same bytes is used before or later. The pool grows if there is not enough room. */
static void place_in_pool(cuda_loaded *l) {
  enum { MOST_BUFFERS = 2048, MOST_STEPS = 10 * 1000 * 1000 };
  const rt_plan *plan = plan_of(l);
  gaps g = {.plan = plan};
  cuda_rank *r = &l->ranks[0];
  uint64_t steps = (uint64_t)plan->n_buffers * plan->n_tasks;
  if (l->n_ranks > 1 || l->share || plan->n_posts > 0) return;
  if (plan->n_buffers > MOST_BUFFERS || steps > MOST_STEPS) return;
  rt_lives_find(plan, &l->memory, &g.lives);
  if (!g.lives.in_order) return;
  list_by_offset(&g, &l->memory);
  r->pool_begin = 0;
  for (uint32_t i = 0; i < plan->n_instrs; i++) {
    if (plan->instrs[i].kind != RT_LAUNCH) continue;
    cuda_task *t = &l->tasks[plan->instrs[i].task];
    if (t->scratch_bytes == 0) continue;
    t->in_pool = true;
    t->scratch_at = find_gap(&g, i, t->scratch_bytes);
    int64_t end = (int64_t)(t->scratch_at + t->scratch_bytes);
    if (end > r->pool_end) r->pool_end = end;
  }
}

/* Lays out the blocks. What other processes access in a rank's block comes first, where they can compute its place. */
void cuda_blocks_lay_out(cuda_loaded *l) {
  place_in_pool(l);
  for (uint32_t r = 0; r < l->n_ranks; r++) {
    cuda_rank *x = &l->ranks[r];
    x->pool_at = reserve(x, (size_t)(x->pool_end - x->pool_begin));
    x->staging_at = reserve(x, (size_t)l->order.staging_bytes[r]);
  }
  for (uint32_t i = 0; i < l->n_externals && cuda_is_mapped(l); i++)
    reserve_place(l, &l->externals[i]);
  for (uint32_t r = 0; r < l->n_ranks; r++)
    l->ranks[r].seed_at = reserve(&l->ranks[r], l->draws ? sizeof l->seed : 0);
  lay_out_scratch(l);
}

/* Turns offsets into addresses. */
static void place_all(cuda_loaded *l) {
  for (uint32_t r = 0; r < l->n_ranks; r++) {
    cuda_rank *x = &l->ranks[r];
    x->pool = x->block + x->pool_at;
    x->staging = x->block + x->staging_at;
    x->seed = x->block + x->seed_at;
  }
  for (uint32_t i = 0; i < l->n_externals; i++) {
    cuda_external *e = &l->externals[i];
    e->place = l->ranks[e->rank].block + e->place_at;
  }
  for (uint32_t t = 0; t < plan_of(l)->n_tasks; t++) {
    cuda_task *x = &l->tasks[t];
    const cuda_rank *r = &l->ranks[l->streams[x->on].rank];
    x->scratch = (x->in_pool ? r->pool : r->block) + x->scratch_at;
  }
  l->moved = true;
}

/* ---- blocks that plans share ---- */
static bool is_shared(const cuda_loaded *l) { return !l->keeps_memory && !cuda_is_mapped(l); }

static status find_block(cuda_loaded *l, uint32_t rank, cuda_block **result) {
  cuda_device *d = l->device;
  *result = &l->ranks[rank].own;
  if (!is_shared(l)) return STATUS_OK;
  if (rank >= d->n_blocks) {
    cuda_block *more = memory_alloc(d->memory, l->n_ranks * sizeof *more);
    if (!more) return STATUS_OUT_OF_MEMORY;
    memset(more, 0, l->n_ranks * sizeof *more);
    if (d->n_blocks) memcpy(more, d->blocks, d->n_blocks * sizeof *more);
    memory_free(d->memory, d->blocks);
    d->blocks = more;
    d->n_blocks = l->n_ranks;
  }
  *result = &d->blocks[rank];
  return STATUS_OK;
}

/* Lets the host wait for the run that uses the shared blocks. */
static status settle_last(cuda_loaded *l) {
  cuda_loaded *last = l->device->last;
  if (!last || !last->is_pending) return STATUS_OK;
  last->current_gpu = UINT32_MAX;
  return cuda_run_settle(last);
}

static status ready_rank(cuda_loaded *l, uint32_t rank, bool *changed) {
  cuda_rank *r = &l->ranks[rank];
  cuda_block *b;
  TRY(find_block(l, rank, &b));
  if (b->bytes < r->block_bytes) {
    if (is_shared(l)) TRY(settle_last(l));
    l->has_seed = false;
    TRY(make_current(l->device, r->gpu));
    free_block(l->device, b);
    TRY(allocate(l, rank, b));
  }
  if (r->block != b->at) *changed = true;
  r->block = b->at;
  return STATUS_OK;
}

status cuda_blocks_ready(cuda_loaded *l) {
  bool changed = l->placed_bytes == 0;
  size_t needed = 1;
  for (uint32_t r = 0; r < l->n_ranks; r++) {
    if (!cuda_is_here(l, r)) continue;
    needed += l->ranks[r].block_bytes;
    TRY(ready_rank(l, r, &changed));
  }
  l->current_gpu = UINT32_MAX;
  if (changed || needed != l->placed_bytes) place_all(l);
  l->placed_bytes = needed;
  return STATUS_OK;
}

status cuda_blocks_export(cuda_loaded *l) {
  cuda_rank *r = &l->ranks[l->share->me];
  r->block_bytes = (r->block_bytes + CUDA_SHARED_ALIGN - 1) / CUDA_SHARED_ALIGN * CUDA_SHARED_ALIGN;
  if (r->block_bytes) TRY(allocate(l, l->share->me, &r->own));
  r->block = r->own.at;
  return STATUS_OK;
}

void cuda_blocks_need_place(cuda_loaded *l, cuda_external *e) { reserve_place(l, e); }

/* ---- who uses them ---- */
status cuda_blocks_follow(cuda_loaded *l, CUstream stream) {
  cuda_device *d = l->device;
  cuda_loaded *last = d->last;
  if (!is_shared(l) || last == l) return STATUS_OK;
  l->has_seed = false;
  if (!stream) TRY(settle_last(l));
  /* mutant: cuda_pool_of_two_at_once */
  else if (last && last->is_pending)
    TRY(cuda_try(l->cu->cuStreamWaitEvent(stream, last->events[last->order.n_events], 0),
                 "waiting for another plan"));
  d->last = l;
  l->current_gpu = UINT32_MAX;
  return STATUS_OK;
}

void cuda_blocks_leave(cuda_loaded *l) {
  cuda_device *d = l->device;
  if (d->last == l) { /* only runs of `l` set that, so no lock is needed to read it */
    (void)pthread_mutex_lock(&d->run);
    d->last = NULL;
    (void)pthread_mutex_unlock(&d->run);
  }
  for (uint32_t r = 0; l->ranks && r < l->n_ranks; r++) {
    cuda_gpu *g = &d->gpus[l->ranks[r].gpu];
    if (g->context) (void)d->cu->cuCtxSetCurrent(g->context);
    free_block(d, &l->ranks[r].own);
  }
}

void cuda_blocks_close(cuda_device *d) {
  for (uint32_t r = 0; r < d->n_blocks; r++) {
    if (d->blocks[r].at) (void)d->cu->cuCtxSetCurrent(d->gpus[d->blocks[r].gpu].context);
    free_block(d, &d->blocks[r]);
  }
  memory_free(d->memory, d->blocks);
  d->blocks = NULL;
  d->n_blocks = 0;
}
