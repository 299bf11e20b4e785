/* Timing the plans of one shape, once. */
#include <string.h>

#include "device/cuda/attention.h"

enum { WINDOWS = 3, MOST_RUNS = 50, ALIGN = 256, FILL = 0x3c }; /* f16 1.06, bf16 0.011 */
static const float window_ms = 2, gain = 0.98F;

typedef struct timing {
  const cuda_att_library *x;
  const cuda_vendor *cu;
  cuda_attention *a;
  cuda_att_run run;
  CUdeviceptr sides[N_ATT_SIDES];
  CUdeviceptr block;
  CUevent begin, end;
} timing;

static size_t side_bytes(const cuda_att_shape *s, uint32_t side) {
  size_t size = side == ATT_STATS ? sizeof(float) : sizeof(uint16_t);
  bool is_there = side <= ATT_O || side == ATT_STATS || s->backward;
  if (!is_there) return 0;
  return ((size_t)cuda_att_reach(s, (cuda_att_side)side) * size + ALIGN - 1) / ALIGN * ALIGN;
}

/* Allocates one block for all sides and the largest scratch memory; false: there is no memory for it. */
static bool allocate(timing *t, const cuda_att_plans *plans) {
  size_t bytes = 0, scratch = 0, at[N_ATT_SIDES];
  for (uint32_t i = 0; i < plans->n; i++) {
    t->a->workspace_bytes = cuda_att_workspace(t->x->dnn, plans->plans[i]);
    size_t need = cuda_attention_scratch(t->a);
    if (need > scratch) scratch = need;
  }
  for (uint32_t i = 0; i < N_ATT_SIDES; i++) {
    at[i] = bytes;
    bytes += side_bytes(&t->a->shape, i);
  }
  if (t->cu->cuMemAlloc(&t->block, bytes + scratch + ALIGN) != CUDA_SUCCESS) {
    t->block = 0;
    return false;
  }
  for (uint32_t i = 0; i < N_ATT_SIDES; i++) t->sides[i] = t->block + at[i];
  t->run.sides = t->sides;
  t->run.scratch = t->block + bytes;
  t->run.scale = 1;
  return t->cu->cuMemsetD8Async(t->block, FILL, bytes, t->run.stream) == CUDA_SUCCESS;
}

static bool prepare(timing *t, const cuda_att_plans *plans) {
  const cuda_vendor *cu = t->cu;
  if (cu->cuStreamCreateWithPriority(&t->run.stream, CU_STREAM_NON_BLOCKING, 0) != CUDA_SUCCESS)
    return false;
  return cu->cuEventCreate(&t->begin, CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
         cu->cuEventCreate(&t->end, CU_EVENT_DEFAULT) == CUDA_SUCCESS && allocate(t, plans);
}

static void clean_up(timing *t) {
  const cuda_vendor *cu = t->cu;
  if (t->run.stream) (void)cu->cuStreamSynchronize(t->run.stream);
  if (t->block) (void)cu->cuMemFree(t->block);
  if (t->begin) (void)cu->cuEventDestroy(t->begin);
  if (t->end) (void)cu->cuEventDestroy(t->end);
  if (t->run.stream) (void)cu->cuStreamDestroy(t->run.stream);
}

/* The time per run of `n` runs, one after the other; negative: it failed. */
static float time_runs(timing *t, uint32_t n) {
  const cuda_vendor *cu = t->cu;
  float ms = 0;
  if (cu->cuEventRecord(t->begin, t->run.stream) != CUDA_SUCCESS) return -1;
  for (uint32_t i = 0; i < n; i++)
    if (cuda_attention_run(t->x->dnn, t->x->load_handle, t->a, &t->run)) return -1;
  if (cu->cuEventRecord(t->end, t->run.stream) != CUDA_SUCCESS ||
      cu->cuEventSynchronize(t->end) != CUDA_SUCCESS ||
      cu->cuEventElapsedTime(&ms, t->begin, t->end) != CUDA_SUCCESS)
    return -1;
  return ms / (float)n;
}

/* The first run may load the kernel. */
static float time_plan(timing *t, void *plan) {
  t->a->plan = plan;
  t->a->workspace_bytes = cuda_att_workspace(t->x->dnn, plan);
  if (time_runs(t, 1) < 0) return -1;
  float once = time_runs(t, 1), best = -1;
  if (once < 0) return -1;
  uint32_t n = once * MOST_RUNS <= window_ms ? MOST_RUNS : (uint32_t)(window_ms / once) + 1;
  for (uint32_t i = 0; i < WINDOWS; i++) {
    float ms = time_runs(t, n);
    if (ms < 0) return -1;
    if (best < 0 || ms < best) best = ms;
  }
  return best;
}

/* A plan that is not the library's first choice must be clearly faster to be taken. */
uint32_t cuda_att_fastest(const cuda_att_library *x, const cuda_vendor *cu, cuda_attention *a,
                          const cuda_att_plans *plans) {
  timing t = {.x = x, .cu = cu, .a = a};
  uint32_t best = 0;
  if (prepare(&t, plans)) {
    float fastest = time_plan(&t, plans->plans[0]);
    for (uint32_t i = 1; i < plans->n; i++) {
      float ms = time_plan(&t, plans->plans[i]);
      if (ms < 0 || (fastest >= 0 && ms > fastest * gain)) continue;
      fastest = ms;
      best = i;
    }
  }
  clean_up(&t);
  a->plan = NULL;
  return best;
}

bool cuda_att_runs(const cuda_att_library *x, const cuda_vendor *cu, cuda_attention *a) {
  timing t = {.x = x, .cu = cu, .a = a};
  cuda_att_plans plans = {.n = 1, .plans = {a->plan}};
  bool runs = !prepare(&t, &plans) || time_runs(&t, 1) >= 0;
  clean_up(&t);
  return runs;
}
