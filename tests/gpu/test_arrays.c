/* The caller's arrays wherever they may be: in pageable and pinned memory of the host, on the rank's own
 * GPU, there but not aligned, on another GPU; elsewhere in every run of a loaded plan.
 *
 * Needs a GPU, or a stand-in for one; skips where there is neither. */
#include "conform/world_random.h"
#include "device/cuda/vendor.h"
#include "runtime/device.h"
#include "test.h"

typedef enum { PAGEABLE, PINNED, OWN, UNALIGNED, OTHER, N_PLACES } place;
enum { MAX_GPUS = 64, SHIFT = 8, RUNS = 6, MOST = 2 * WORLD_RANKS * WORLD_PLACES };

static const cuda_vendor *cu;
static int n_gpus;
static CUcontext contexts[MAX_GPUS];
static CUstream streams[MAX_GPUS]; /* the test's own: it waits for nothing else */
static uint64_t seed, draws;

static uint32_t below(uint32_t n) { return (uint32_t)(random_bits(seed, draws++) % n); }
static void must(CUresult r) { check(r == CUDA_SUCCESS); }

/* An array of the caller's, a copy of one of the world's. */
typedef struct array {
  place at;
  void *base, *data;
  int gpu;
} array;

static void make(array *a, uint32_t rank, const void *from, size_t size, bool own) {
  a->at = own ? OWN : (place)below(N_PLACES);
  a->gpu = (int)(rank % (uint32_t)n_gpus);
  if (a->at == OTHER) a->gpu = (a->gpu + 1) % n_gpus;
  must(cu->cuCtxSetCurrent(contexts[a->gpu]));
  CUdeviceptr p = 0;
  if (a->at == PAGEABLE) a->base = malloc(size);
  else if (a->at == PINNED) must(cu->cuMemHostAlloc(&a->base, size, CU_MEMHOSTALLOC_PORTABLE));
  else must(cu->cuMemAlloc(&p, size + SHIFT)), a->base = (void *)(uintptr_t)p;
  check(a->base != NULL);
  a->data = a->at == UNALIGNED ? (char *)a->base + SHIFT : a->base;
  if (!p) memcpy(a->data, from, size);
  else must(cu->cuMemcpyHtoDAsync((CUdeviceptr)(uintptr_t)a->data, from, size, streams[a->gpu]));
  must(cu->cuStreamSynchronize(streams[a->gpu]));
}

/* Takes what it holds, if asked for, and frees it. */
static void drop(const array *a, void *to, size_t size) {
  CUdeviceptr p = (CUdeviceptr)(uintptr_t)a->data;
  bool on_host = a->at == PAGEABLE || a->at == PINNED;
  must(cu->cuCtxSetCurrent(contexts[a->gpu]));
  if (to && on_host) memcpy(to, a->data, size);
  else if (to) must(cu->cuMemcpyDtoHAsync(to, p, size, streams[a->gpu]));
  must(cu->cuStreamSynchronize(streams[a->gpu]));
  if (a->at == PAGEABLE) free(a->base);
  else if (a->at == PINNED) must(cu->cuMemFreeHost(a->base));
  else must(cu->cuMemFree((CUdeviceptr)(uintptr_t)a->base));
}

/* Every second run keeps the arrays of the one before; any may be traced. */
static uint32_t run_world(rt_device *d, world *w) {
  rt_loaded *l = NULL;
  uint32_t n = w->n * WORLD_PLACES, wrong = 0;
  size_t size = (size_t)w->width * sizeof(int64_t);
  array in[MOST], out[MOST];
  void *inputs[MOST], *outputs[MOST];
  rt_span *spans = ARENA_ARRAY(&w->memory, w->plan->n_tasks + w->plan->n_posts, rt_span);
  if (!EXPECT_INT(d->ops->load(d, w->plan, &l), STATUS_OK)) return 1;
  for (int r = 0; r < RUNS; r++) {
    bool own = below(3) == 0; /* all of them: then nothing is copied, nothing waited for */
    world_clear(w);
    for (uint32_t i = 0; i < n && r % 2 == 0; i++) {
      make(&in[i], i / WORLD_PLACES, w->inputs[i], size, own);
      make(&out[i], i / WORLD_PLACES, w->outputs[i], size, own);
      inputs[i] = in[i].data;
      outputs[i] = out[i].data;
    }
    wrong += rt_run(l, inputs, outputs, below(2) ? spans : NULL, NULL) != STATUS_OK;
    if (r % 2 == 0) continue;
    for (uint32_t i = 0; i < n; i++) drop(&in[i], NULL, size), drop(&out[i], w->outputs[i], size);
    wrong += !world_is_right(w);
  }
  d->ops->unload(l);
  return wrong;
}

static void test_mode(const rt_device_options *o, const char *name) {
  enum { WORLDS = 6 };
  rt_device *d = NULL;
  if (!EXPECT_INT(rt_device_cuda.open(o, &memory_default, &d), STATUS_OK)) return;
  for (seed = 0; seed < WORLDS; seed++) {
    world w;
    world_make(&w, seed, 1 + (uint32_t)seed % 4, seed % 2 ? 12 : 700, 30);
    if (!EXPECT_INT(run_world(d, &w), 0))
      fprintf(stderr, "%s, world %d: %s\n", name, (int)seed, status_message());
    status_clear();
    world_destroy(&w);
  }
  d->ops->close(d);
}

/* Communicators are made anew after a failure, in the contexts of all GPUs; then the run begins, with
 * nothing to copy before it. */
static void test_after_failure(void) {
  rt_device *d = NULL;
  rt_loaded *l = NULL;
  world w;
  array arrays[2][MOST];
  void *lists[2][MOST];
  if (!getenv("WEIR_STANDIN_NCCL")) return;
  rt_device_options o = {.carrier = RT_CARRIER_NCCL};
  if (!EXPECT_INT(rt_device_cuda.open(&o, &memory_default, &d), STATUS_OK)) return;
  world_make(&w, 11, 4, 12, 30);
  size_t size = (size_t)w.width * sizeof(int64_t);
  for (uint32_t i = 0; i < 2 * w.n * WORLD_PLACES; i++) {
    uint32_t side = i % 2, at = i / 2;
    make(&arrays[side][at], at / WORLD_PLACES, side ? w.outputs[at] : w.inputs[at], size, true);
    lists[side][at] = arrays[side][at].data;
  }
  EXPECT_INT(d->ops->load(d, w.plan, &l), STATUS_OK);
  (void)setenv("WEIR_STANDIN_NCCL", "fail:ncclGroupEnd:2", 1);
  EXPECT_INT(rt_run(l, lists[0], lists[1], NULL, NULL), STATUS_UNAVAILABLE);
  (void)setenv("WEIR_STANDIN_NCCL", "", 1);
  status_clear();
  EXPECT_INT(rt_run(l, lists[0], lists[1], NULL, NULL), STATUS_OK);
  for (uint32_t i = 0; i < w.n * WORLD_PLACES; i++)
    drop(&arrays[0][i], NULL, size), drop(&arrays[1][i], w.outputs[i], size);
  EXPECT(world_is_right(&w));
  d->ops->unload(l);
  d->ops->close(d);
  world_destroy(&w);
}

static void open_gpus(void) {
  must(cu->cuDeviceGetCount(&n_gpus));
  if (n_gpus > MAX_GPUS) n_gpus = MAX_GPUS;
  for (int g = 0; g < n_gpus; g++) {
    must(cu->cuDevicePrimaryCtxRetain(&contexts[g], g));
    must(cu->cuCtxSetCurrent(contexts[g]));
    must(cu->cuStreamCreateWithPriority(&streams[g], CU_STREAM_NON_BLOCKING, 0));
  }
}

static void close_gpus(void) {
  for (int g = 0; g < n_gpus; g++) {
    must(cu->cuStreamDestroy(streams[g]));
    must(cu->cuDevicePrimaryCtxRelease(g));
  }
}

int main(void) {
  if (cuda_vendor_load(&cu) != STATUS_OK) {
    printf("skipped: %s\n", status_message());
    return EXPECT(true) ? test_finish() : 1;
  }
  open_gpus();
  test_mode(&(rt_device_options){.graph = false}, "direct");
  test_mode(&(rt_device_options){.graph = true}, "as graphs");
  test_mode(&(rt_device_options){.link_host = true}, "through the host");
  test_mode(&(rt_device_options){.adversarial = true, .seed = 5}, "delayed");
  test_after_failure();
  close_gpus();
  return test_finish();
}
