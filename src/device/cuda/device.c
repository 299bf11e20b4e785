#include "device/cuda/device.h"

#include <stdio.h>
#include <string.h>

#include "device/cuda/speed.h"

/* ---- callers ---- */
/* Calls may be nested; the outermost one counts. */
static _Thread_local struct {
  uint32_t depth;
  CUstreamCaptureMode mode; /* the caller's */
} relaxed;

static void exchange_mode(const cuda_vendor *cu) {
  (void)cu->cuThreadExchangeStreamCaptureMode(&relaxed.mode);
}

CUcontext cuda_caller_enter(const cuda_vendor *cu) {
  CUcontext context = NULL;
  if (relaxed.depth++ == 0) {
    relaxed.mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    exchange_mode(cu);
  }
  return cu->cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : NULL;
}

void cuda_caller_leave(const cuda_vendor *cu, CUcontext caller) {
  (void)cu->cuCtxSetCurrent(caller);
  if (--relaxed.depth == 0) exchange_mode(cu);
}

/* ---- GPUs ---- */
static status read_capability(cuda_device *d, cuda_gpu *g) {
  const cuda_vendor *cu = d->cu;
  TRY(cuda_try(
      cu->cuDeviceGetAttribute(&g->major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, g->id),
      "asking for the compute capability"));
  TRY(cuda_try(
      cu->cuDeviceGetAttribute(&g->minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, g->id),
      "asking for the compute capability"));
  TRY(cuda_try(cu->cuDeviceGetAttribute(&g->units, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, g->id),
               "asking for the multiprocessors"));
  return cuda_try(cu->cuDeviceGetAttribute(&g->shared_bytes,
                                           CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                                           g->id),
                  "asking for the shared memory");
}

static void close_gpu(cuda_device *d, cuda_gpu *g) {
  if (!g->context) return;
  (void)d->cu->cuCtxSetCurrent(g->context);
  cuda_matmuls_destroy(d->cu, g->matmuls, d->memory);
  cuda_att_close(&g->attention, d->cu, d->memory);
  cuda_programs_close(g->programs);
  if (g->entry) (void)d->cu->cuEventDestroy(g->entry);
  if (g->lt) (void)d->cu->cublasLtDestroy(g->lt);
  (void)d->cu->cuCtxSetCurrent(NULL);
  (void)d->cu->cuDevicePrimaryCtxRelease(g->id);
  g->context = NULL;
  g->programs = NULL;
  g->matmuls = NULL;
  g->lt = NULL;
  g->entry = NULL;
}

/* The library does not say whether the context is lost; the default stream does. */
static status open_products(const cuda_vendor *cu, cuda_gpu *g) {
  cublasStatus_t opened = cu->cublasLtCreate(&g->lt);
  CUresult r = opened == CUBLAS_STATUS_SUCCESS ? CUDA_SUCCESS : cu->cuStreamQuery(NULL);
  if (r != CUDA_ERROR_NOT_READY) TRY(cuda_try(r, "opening a GPU"));
  return cuda_try_lt(opened, "opening cublasLt");
}

status cuda_gpu_open(cuda_device *d, uint32_t gpu) {
  cuda_gpu *g = &d->gpus[gpu];
  const cuda_vendor *cu = d->cu;
  if (g->context) return cuda_try(cu->cuCtxSetCurrent(g->context), "making a context current");
  status st;
  TRY(cuda_try(cu->cuDeviceGet(&g->id, (int)gpu), "finding a GPU"));
  TRY(read_capability(d, g));
  TRY(cuda_try(cu->cuDevicePrimaryCtxRetain(&g->context, g->id), "opening a GPU"));
  TRY_OUT(cuda_try(cu->cuCtxSetCurrent(g->context), "making a context current"));
  cuda_programs_options o = {cuda_vendor_compiler(), g->major, g->minor, NULL};
  TRY_OUT(cuda_programs_open(&o, d->memory, &g->programs));
  TRY_OUT(open_products(cu, g));
out:
  if (st != STATUS_OK) close_gpu(d, g);
  return st;
}

status cuda_gpu_connect(cuda_device *d, uint32_t a, uint32_t b, bool *can) {
  const cuda_gpu *from = &d->gpus[a], *to = &d->gpus[b];
  int yes = 0;
  TRY(cuda_try(d->cu->cuDeviceCanAccessPeer(&yes, from->id, to->id), "asking for peer access"));
  *can = yes != 0;
  TRY(cuda_try(d->cu->cuCtxSetCurrent(from->context), "making a context current"));
  if (!yes) return STATUS_OK;
  CUresult r = d->cu->cuCtxEnablePeerAccess(to->context, 0);
  return r == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ? STATUS_OK
                                                     : cuda_try(r, "enabling peer access");
}

/* ---- devices ---- */
static void device_close(rt_device *device) {
  cuda_device *d = (cuda_device *)device;
  if (!d) return;
  CUcontext caller = cuda_caller_enter(d->cu);
  for (uint32_t i = 0; i < d->n_gpus && d->nccl; i++)
    if (d->gpus[i].context) (void)d->cu->cuCtxSetCurrent(d->gpus[i].context);
  cuda_nccl_close(d->nccl);
  cuda_blocks_close(d);
  for (uint32_t i = 0; i < d->n_gpus; i++) close_gpu(d, &d->gpus[i]);
  cuda_caller_leave(d->cu, caller);
  (void)pthread_mutex_destroy(&d->run);
  (void)pthread_mutex_destroy(&d->lock);
  cuda_world_destroy(&d->world);
  memory_free(d->memory, d);
}

static status make_locks(cuda_device *d) {
  if (pthread_mutex_init(&d->run, NULL) != 0) return fail(STATUS_SYSTEM, "cannot make a lock");
  if (pthread_mutex_init(&d->lock, NULL) == 0) return cuda_world_init(&d->world);
  (void)pthread_mutex_destroy(&d->run);
  return fail(STATUS_SYSTEM, "cannot make a lock");
}

static status open_carrier(cuda_device *d) {
  if (d->options.carrier == RT_CARRIER_CUDA_IPC && d->options.link_host)
    return fail(STATUS_BAD_USAGE, "--link host and --comm cuda-ipc exclude each other");
  if (d->options.carrier != RT_CARRIER_NCCL) return STATUS_OK;
  if (d->options.link_host)
    return fail(STATUS_BAD_USAGE,
                "--link host and --comm nccl exclude each other: NCCL chooses its "
                "own way");
  return cuda_nccl_open(d->memory, &d->nccl);
}

static status device_open(const rt_device_options *options, const allocator *memory,
                          rt_device **result) {
  const cuda_vendor *cu;
  int n = 0;
  TRY(cuda_vendor_load(&cu));
  TRY(cuda_try(cu->cuDeviceGetCount(&n), "counting GPUs"));
  if (n == 0) return fail(STATUS_UNAVAILABLE, "cuda: this machine has no GPU");
  cuda_device *d = memory_alloc(memory, sizeof *d);
  if (!d) return STATUS_OUT_OF_MEMORY;
  memset(d, 0, sizeof *d);
  d->base.ops = &rt_device_cuda;
  d->memory = memory;
  d->cu = cu;
  d->options = *options;
  d->n_gpus = n < CUDA_MAX_GPUS ? (uint32_t)n : CUDA_MAX_GPUS;
  status st = make_locks(d);
  if (st != STATUS_OK) {
    memory_free(memory, d);
    return st;
  }
  CUcontext caller = cuda_caller_enter(cu);
  st = cuda_gpu_open(d, d->options.first_gpu % d->n_gpus);
  if (st == STATUS_OK) st = open_carrier(d);
  cuda_caller_leave(cu, caller);
  if (st == STATUS_OK) *result = &d->base;
  else device_close(&d->base);
  return st;
}

/* Data move on streams of the GPUs. Processes need endpoints to find each other's memory, and to fail
 * together. */
static void device_attach(rt_device *device, rt_comm *const *endpoints, uint32_t n,
                          int64_t timeout_ns) {
  cuda_device *d = (cuda_device *)device;
  if (d->nccl) cuda_nccl_leave(d->nccl);
  d->timeout_ns = timeout_ns;
  cuda_world_attach(&d->world, endpoints, n, timeout_ns);
}

static void device_pulse(rt_device *device, rt_pulse *pulse) {
  cuda_world_pulse(&((cuda_device *)device)->world, pulse);
}

/* Can all of the first n GPUs read each other's memory? */
static bool all_peers(const cuda_device *d, uint32_t n) {
  for (uint32_t i = 0; i < n * n; i++) {
    CUdevice from, to;
    int can = 1;
    if (i / n == i % n) continue;
    if (d->cu->cuDeviceGet(&from, (int)(i / n)) != CUDA_SUCCESS ||
        d->cu->cuDeviceGet(&to, (int)(i % n)) != CUDA_SUCCESS ||
        d->cu->cuDeviceCanAccessPeer(&can, from, to) != CUDA_SUCCESS || !can)
      return false;
  }
  return true;
}

static void device_measure(rt_device *device, rt_speed *result) {
  cuda_device *d = (cuda_device *)device;
  CUcontext caller = cuda_caller_enter(d->cu);
  *result = cuda_speed_rates(cuda_speed_measure(d));
  cuda_caller_leave(d->cu, caller);
}

/* Ranks of other processes share the GPUs of this machine. */
static rt_speed device_speed(rt_device *device, const rt_speed *machine, uint32_t ranks) {
  cuda_device *d = (cuda_device *)device;
  if (d->world.endpoint) ranks = d->world.endpoint->n_ranks;
  cuda_sharing s = {.ranks = ranks, .gpus = d->n_gpus, .issued = d->world.endpoint ? 1 : ranks};
  s.through_host = d->options.link_host || !all_peers(d, ranks < d->n_gpus ? ranks : d->n_gpus);
  cuda_measured m = machine ? cuda_speed_figures(machine) : (cuda_measured){0};
  rt_speed result = cuda_speed_model(&m, &s);
  if (d->options.graph) result.issue_ns = result.call_ns = 0; /* the whole graph is one launch */
  return result;
}

/* ---- loaded plans ---- */
static void device_unload(rt_loaded *loaded) {
  cuda_loaded *l = (cuda_loaded *)loaded;
  if (!l) return;
  const cuda_device *d = l->device;
  CUcontext caller = cuda_caller_enter(d->cu);
  cuda_program_destroy(l);
  cuda_caller_leave(d->cu, caller);
  memory_free(d->memory, l);
}

/* Allocates memory, unless a run is under way: then the plan gets its memory when it first runs. */
static status take_memory(cuda_loaded *l) {
  cuda_device *d = l->device;
  if (pthread_mutex_trylock(&d->run) != 0) return STATUS_OK;
  status st = cuda_blocks_ready(l);
  (void)pthread_mutex_unlock(&d->run);
  return st;
}

/* Adds the program's place to a failure of the driver, which has no memory left for streams or something else that a
 * plan needs. */
static status place_failure(const rt_plan *plan, status st) {
  char message[256];
  bool is_drivers = strncmp(status_message(), "cuda: ", 6) == 0;
  if (st != STATUS_OUT_OF_MEMORY || !is_drivers || strstr(status_message(), " that begins at "))
    return st;
  (void)snprintf(message, sizeof message, "%s", status_message());
  status_clear();
  return rt_fail_in_run(plan, st, message);
}

/* `plans`: those of all ranks, if ranks are processes; NULL: all ranks are in `plan`. */
static status load(cuda_device *d, const rt_plan *plan, const rt_plan *const *plans, uint32_t n,
                   rt_loaded **result) {
  cuda_loaded *l = memory_alloc(d->memory, sizeof *l);
  if (!l) return STATUS_OUT_OF_MEMORY;
  memset(l, 0, sizeof *l);
  arena_init(&l->memory, d->memory);
  l->base = (rt_loaded){&rt_device_cuda, plan};
  l->plan = plan;
  l->device = d;
  l->cu = d->cu;
  CUcontext caller = cuda_caller_enter(d->cu);
  (void)pthread_mutex_lock(&d->lock);
  status st = plans ? cuda_share_open(l, plans, n) : STATUS_OK;
  if (st == STATUS_OK) st = cuda_program_init(l);
  if (st == STATUS_OK) st = take_memory(l);
  if (st != STATUS_OK) st = place_failure(plan, st);
  /* others learn why before its memory is gone, which they may be opening */
  /* mutant: cuda_failure_kept_to_oneself */
  if (st != STATUS_OK && plans) st = cuda_world_abort(&d->world, st);
  if (st != STATUS_OK) device_unload(&l->base);
  else *result = &l->base;
  (void)pthread_mutex_unlock(&d->lock);
  cuda_caller_leave(d->cu, caller);
  return st;
}

static status device_load(rt_device *device, const rt_plan *plan, rt_loaded **result) {
  return load((cuda_device *)device, plan, NULL, 0, result);
}

static status device_load_spread(rt_device *device, const rt_plan *plan,
                                 const rt_plan *const *plans, uint32_t n, rt_loaded **result) {
  cuda_device *d = (cuda_device *)device;
  if (!d->world.endpoint || d->world.endpoint->n_ranks != n)
    return fail(STATUS_BAD_USAGE, "the plan is of %u ranks, the device has no endpoint of them", n);
  cuda_world_set_busy(&d->world, true);
  status st = load(d, plan, plans, n, result);
  cuda_world_set_busy(&d->world, false);
  return st;
}

const rt_device_ops rt_device_cuda = {
    .name = "cuda",
    .summary = "streams of NVIDIA GPUs; several devices may share one",
    .takes_adversary = true,
    .folds_in_place = true,
    .takes_loops = RT_LOOPS_APART,
    .shares_pool = true,
    .carriers = 1u << RT_CARRIER_NCCL | 1u << RT_CARRIER_CUDA_IPC,
    .memory = &cuda_memory,
    .caller_comm = cuda_caller_comm,
    .caller_exchange = cuda_caller_exchange,
    .open = device_open,
    .close = device_close,
    .attach = device_attach,
    .measure = device_measure,
    .speed = device_speed,
    .examine = cuda_examine,
    .pulse = device_pulse,
    .load = device_load,
    .load_spread = device_load_spread,
    .unload = device_unload,
    .begin = cuda_begin,
    .launch = cuda_launch,
    .wait = cuda_launch,
    .finish = cuda_finish,
    .cancel = cuda_cancel,
    .run_on = cuda_run_on,
    .settle = cuda_settle,
};
