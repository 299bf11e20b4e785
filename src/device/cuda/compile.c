/* Compiles the kernels of a loaded plan: collects them GPU by GPU, then compiles all at once. */
#include "device/cuda/device.h"

typedef struct collected {
  cuda_loaded *l;
  uint32_t gpu, n;
  cuda_wanted *wanted;
  CUfunction **to; /* where each function goes */
} collected;

static void want(collected *c, const cg_launch *launch, CUfunction *to) {
  c->wanted[c->n] = (cuda_wanted){.launch = launch};
  c->to[c->n++] = to;
}

static bool is_mine(const collected *c, uint32_t rank) {
  /* mutant: cuda_kernels_too_equal */
  return cuda_is_here(c->l, rank) && c->l->ranks[rank].gpu == c->gpu;
}

static status collect(void *context) {
  collected *c = context;
  cuda_loaded *l = c->l;
  size_t most = l->order.folds.len + (size_t)1;
  for (uint32_t t = 0; t < l->plan->n_tasks; t++) most += l->tasks[t].n_calls;
  c->wanted = ARENA_ARRAY(&l->memory, most, cuda_wanted);
  c->to = ARENA_ARRAY(&l->memory, most, CUfunction *);
  for (uint32_t t = 0; t < l->plan->n_tasks; t++) {
    cuda_task *task = &l->tasks[t];
    if (task->n_calls == 0 || !is_mine(c, l->streams[task->stream].rank)) continue;
    for (uint32_t i = 0; i < task->n_calls; i++)
      if (task->calls[i].launch) want(c, task->calls[i].launch, &task->calls[i].function);
  }
  for (uint32_t f = 0; f < l->order.folds.len; f++) {
    if (!is_mine(c, l->order.folds.data[f].rank)) continue;
    cuda_fold_write(l, f);
    want(c, &l->folds[f].launch, &l->folds[f].function);
  }
  if (l->device->options.adversarial) want(c, &cuda_delay, &l->device->gpus[c->gpu].delay);
  return STATUS_OK;
}

static status compile_gpu(cuda_loaded *l, uint32_t gpu) {
  collected c = {.l = l, .gpu = gpu};
  cuda_gpu *g = &l->device->gpus[gpu];
  TRY(memory_guard(collect, &c));
  if (c.n == 0) return STATUS_OK;
  TRY(cuda_try(l->cu->cuCtxSetCurrent(g->context), "making a context current"));
  TRY(cuda_programs_get_all(g->programs, c.wanted, c.n));
  for (uint32_t i = 0; i < c.n; i++) *c.to[i] = c.wanted[i].function;
  return STATUS_OK;
}

/* The first rank on a GPU compiles for all ranks there. */
status cuda_program_compile(cuda_loaded *l) {
  bool done[CUDA_MAX_GPUS] = {false};
  for (uint32_t r = 0; r < l->n_ranks; r++) {
    uint32_t gpu = l->ranks[r].gpu;
    if (!cuda_is_here(l, r) || done[gpu]) continue;
    TRY(compile_gpu(l, gpu));
    done[gpu] = true;
  }
  return STATUS_OK;
}
