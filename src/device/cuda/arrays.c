/* The caller's arrays of a run: where they are, copies in and out. */
#include "device/cuda/run.h"

static const rt_plan *plan_of(const cuda_loaded *l) { return l->plan; }

/* Finds out whether the caller's memory is on a GPU, and on which; managed memory is on all of them. */
static status find_array(cuda_loaded *l, cuda_external *e) {
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                 CU_POINTER_ATTRIBUTE_IS_MANAGED};
  unsigned kind = 0, managed = 0;
  int ordinal = -1;
  void *values[] = {&kind, &ordinal, &managed};
  CUdeviceptr p = (CUdeviceptr)(uintptr_t)e->caller;
  if (p) /* a failure is no error: the driver does not know all memory */
    TRY(cuda_try(l->cu->cuPointerGetAttributes(3, which, values, p), "asking for an address"));
  e->on_device = kind == CU_MEMORYTYPE_DEVICE || managed;
  e->is_pinned = kind == CU_MEMORYTYPE_HOST;
  e->gpu = managed ? l->ranks[e->rank].gpu : (uint32_t)ordinal;
  l->has_managed = l->has_managed || managed;
  return STATUS_OK;
}

/* The caller's own memory, if the rank's GPU can use it as it is; else 0. */
static CUdeviceptr usable(const cuda_external *e, uint32_t gpu) {
  CUdeviceptr p = (CUdeviceptr)(uintptr_t)e->caller;
  /* mutant: cuda_any_gpu_will_do, cuda_any_alignment_will_do */
  return e->on_device && !e->is_shared && e->gpu == gpu && p % CUDA_BUFFER_ALIGN == 0 ? p : 0;
}

static bool is_placed(const cuda_external *e) { return e->has_place && e->used == e->place; }

static status copy_in(cuda_loaded *l, const cuda_external *e, bool *copied) {
  size_t bytes = (size_t)plan_of(l)->buffers[e->buffer].size_bytes;
  CUstream stream = l->streams[cuda_main_stream(l, e->rank)].handle;
  if (!is_placed(e) || !e->copies_in || bytes == 0 || !e->caller) return STATUS_OK;
  TRY(cuda_try(cuda_run_make_current(l, e->rank), "making a context current"));
  *copied = true;
  if (e->on_device)
    return cuda_try(
        l->cu->cuMemcpyDtoDAsync(e->place, (CUdeviceptr)(uintptr_t)e->caller, bytes, stream),
        "copying an array in");
  return cuda_try(l->cu->cuMemcpyHtoDAsync(e->place, e->caller, bytes, stream),
                  "copying an array in");
}

static status copy_out(cuda_loaded *l, const cuda_external *e, bool *copied) {
  size_t bytes = (size_t)plan_of(l)->buffers[e->buffer].size_bytes;
  CUstream stream = l->streams[cuda_main_stream(l, e->rank)].handle;
  if (!is_placed(e) || !e->copies_out || bytes == 0 || !e->caller) return STATUS_OK;
  *copied = true;
  TRY(cuda_try(cuda_run_make_current(l, e->rank), "making a context current"));
  if (e->on_device)
    return cuda_try(
        l->cu->cuMemcpyDtoDAsync((CUdeviceptr)(uintptr_t)e->caller, e->place, bytes, stream),
        "copying an output back");
  return cuda_try(l->cu->cuMemcpyDtoHAsync(e->caller, e->place, bytes, stream),
                  "copying an output back");
}

static status find_arrays(cuda_loaded *l, void *const *inputs, void *const *outputs) {
  const rt_plan *own = l->base.plan;
  uint32_t before = l->share ? l->share->me : 0; /* ranks whose slots come first */
  l->has_managed = false;
  for (uint32_t i = 0; i < l->n_externals; i++) {
    cuda_external *e = &l->externals[i];
    const rt_buffer *b = &plan_of(l)->buffers[e->buffer];
    if (!cuda_is_here(l, e->rank)) continue;
    e->caller = e->is_output ? outputs[b->slot - before * own->n_outputs]
                             : inputs[b->slot - before * own->n_inputs];
    TRY(find_array(l, e));
    if (!usable(e, l->ranks[e->rank].gpu)) cuda_blocks_need_place(l, e);
  }
  return STATUS_OK;
}

status cuda_run_find(cuda_loaded *l, void *const *inputs, void *const *outputs) {
  TRY(find_arrays(l, inputs, outputs));
  TRY(cuda_blocks_ready(l));
  for (uint32_t i = 0; i < l->n_externals; i++) {
    cuda_external *e = &l->externals[i];
    CUdeviceptr theirs = usable(e, l->ranks[e->rank].gpu), used = theirs ? theirs : e->place;
    if (!cuda_is_here(l, e->rank)) used = e->place;
    if (used != e->used) l->moved = true;
    e->used = used;
  }
  return STATUS_OK;
}

bool cuda_run_is_pageable(const cuda_loaded *l, const cuda_external *e) {
  bool moves = cuda_is_here(l, e->rank) && is_placed(e) && (e->copies_in || e->copies_out);
  return moves && e->caller && !e->on_device && !e->is_pinned &&
         plan_of(l)->buffers[e->buffer].size_bytes > 0;
}

/* Writes the seed by memset, whose value is part of the call: a graph of the caller's keeps the seed of its capture. */
static status write_seed(const cuda_loaded *l, uint32_t rank, uint64_t seed) {
  CUstream stream = l->streams[cuda_main_stream(l, rank)].handle;
  CUdeviceptr at = l->ranks[rank].seed;
  TRY(cuda_try(l->cu->cuMemsetD32Async(at, (unsigned)seed, 1, stream), "writing the seed"));
  return cuda_try(l->cu->cuMemsetD32Async(at + 4, (unsigned)(seed >> 32), 1, stream),
                  "writing the seed");
}

status cuda_run_set_seed(cuda_loaded *l, bool captured, bool *copied) {
  uint64_t seed = *l->base.plan->seed;
  if (!l->draws || (l->has_seed && l->seed == seed && !captured)) return STATUS_OK;
  l->has_seed = false;
  for (uint32_t r = 0; r < l->n_ranks; r++) {
    if (!cuda_is_here(l, r)) continue;
    TRY(cuda_try(cuda_run_make_current(l, r), "making a context current"));
    TRY(write_seed(l, r, seed));
    *copied = true;
  }
  l->outlived = l->outlived || captured;
  l->has_seed = !l->outlived;
  l->seed = seed;
  return STATUS_OK;
}

status cuda_run_copy_in(cuda_loaded *l, bool *copied) {
  for (uint32_t i = 0; i < l->n_externals; i++)
    if (cuda_is_here(l, l->externals[i].rank)) TRY(copy_in(l, &l->externals[i], copied));
  return STATUS_OK;
}

status cuda_run_copy_out(cuda_loaded *l, bool *copied) {
  for (uint32_t i = 0; i < l->n_externals; i++)
    if (cuda_is_here(l, l->externals[i].rank)) TRY(copy_out(l, &l->externals[i], copied));
  return STATUS_OK;
}
