/* NCCL communicators of the caller: which ranks are in one, and an exchange of bytes through it, for
 * worlds (api/world.c).
 *
 * A communicator belongs to the library that made it, which the caller has loaded. The functions are
 * looked up there by name, so no header is needed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <time.h>

#include "device/cuda/device.h"

enum { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7, NCCL_INT8 = 0 };
static const int64_t longest_ns = INT64_C(60000000000);

typedef struct caller_nccl {
  int (*user_rank)(const void *comm, int *rank);
  int (*count)(const void *comm, int *count);
  int (*gpu)(const void *comm, int *gpu);
  int (*async_error)(void *comm, int *state);
  int (*allgather)(const void *in, void *out, size_t count, int dtype, void *comm, CUstream stream);
  const char *(*error_text)(int result);
} caller_nccl;

/* dlsym() returns the address of a function as that of an object. */
static void take(void *library, const char *name, void *function) {
  void *found = dlsym(library, name);
  memcpy(function, &found, sizeof found);
}

static status find_library(caller_nccl *n) {
  void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
  if (!library) library = RTLD_DEFAULT; /* linked into the program */
  take(library, "ncclCommUserRank", &n->user_rank);
  take(library, "ncclCommCount", &n->count);
  take(library, "ncclCommCuDevice", &n->gpu);
  take(library, "ncclCommGetAsyncError", &n->async_error);
  take(library, "ncclAllGather", &n->allgather);
  take(library, "ncclGetErrorString", &n->error_text);
  if (library) (void)dlclose(library); /* the caller keeps it */
  if (n->user_rank && n->count && n->gpu && n->async_error && n->allgather && n->error_text)
    return STATUS_OK;
  return fail(STATUS_UNAVAILABLE,
              "a communicator of NCCL is given, but this process has not loaded libnccl.so.2");
}

static status check_call(const caller_nccl *n, int result) {
  if (result == NCCL_SUCCESS) return STATUS_OK;
  return fail(STATUS_UNAVAILABLE, "the NCCL communicator of the caller: %s (%d)",
              n->error_text(result), result);
}

status cuda_caller_comm(void *comm, rt_caller_comm *result) {
  caller_nccl n = {0};
  int rank = -1, size = 0, gpu = -1;
  TRY(find_library(&n));
  TRY(check_call(&n, n.user_rank(comm, &rank)));
  TRY(check_call(&n, n.count(comm, &size)));
  TRY(check_call(&n, n.gpu(comm, &gpu)));
  *result = (rt_caller_comm){.rank = (uint32_t)rank, .size = (uint32_t)size, .gpu = gpu};
  return STATUS_OK;
}

/* ---- exchanging ---- */
typedef struct exchange {
  caller_nccl n;
  const cuda_vendor *cu;
  void *comm;
  CUdevice gpu;
  CUcontext context, caller;
  CUstream stream;
  CUdeviceptr block; /* the bytes of this rank, then those of all */
} exchange;

static status open_gpu(exchange *x, int gpu) {
  TRY(cuda_vendor_load(&x->cu));
  TRY(cuda_try(x->cu->cuDeviceGet(&x->gpu, gpu), "finding a GPU"));
  TRY(cuda_try(x->cu->cuDevicePrimaryCtxRetain(&x->context, x->gpu), "opening a GPU"));
  x->caller = cuda_caller_enter(x->cu);
  TRY(cuda_try(x->cu->cuCtxSetCurrent(x->context), "making a context current"));
  return cuda_try(x->cu->cuStreamCreateWithPriority(&x->stream, CU_STREAM_NON_BLOCKING, 0),
                  "making a stream");
}

static void close_gpu(exchange *x) {
  if (!x->context) return;
  if (x->block) (void)x->cu->cuMemFree(x->block);
  if (x->stream) (void)x->cu->cuStreamDestroy(x->stream);
  cuda_caller_leave(x->cu, x->caller);
  (void)x->cu->cuDevicePrimaryCtxRelease(x->gpu);
}

static void rest(void) { (void)nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL); }

/* Waits for a call, but not for ever: other ranks may not come. A communicator that does not block goes on while its
 * state is polled. */
static status await(const exchange *x, int result) {
  int64_t end_ns = rt_clock_ns() + longest_ns;
  for (;; rest()) {
    int state = NCCL_SUCCESS;
    if (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS)
      result = x->n.async_error(x->comm, &state);
    if (result == NCCL_SUCCESS) result = state;
    if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS) return check_call(&x->n, result);
    CUresult ended = x->cu->cuStreamQuery(x->stream);
    if (result == NCCL_SUCCESS && ended == CUDA_SUCCESS) return STATUS_OK;
    if (ended != CUDA_SUCCESS && ended != CUDA_ERROR_NOT_READY)
      return cuda_try(ended, "exchanging");
    if (rt_clock_ns() > end_ns)
      return fail(STATUS_UNAVAILABLE,
                  "not all ranks of the caller's NCCL communicator have come within 60 s");
  }
}

static status run(exchange *x, const void *mine, void *all, size_t size_bytes, uint32_t ranks) {
  const cuda_vendor *cu = x->cu;
  size_t total = size_bytes * ranks;
  TRY(cuda_try(cu->cuMemAlloc(&x->block, size_bytes + total), "exchanging"));
  CUdeviceptr gathered = x->block + size_bytes;
  TRY(cuda_try(cu->cuMemcpyHtoDAsync(x->block, mine, size_bytes, x->stream), "exchanging"));
  int result = x->n.allgather((const void *)(uintptr_t)x->block, (void *)(uintptr_t)gathered,
                              size_bytes, NCCL_INT8, x->comm, x->stream);
  TRY(await(x, result));
  TRY(cuda_try(cu->cuMemcpyDtoHAsync(all, gathered, total, x->stream), "exchanging"));
  return cuda_try(cu->cuStreamSynchronize(x->stream), "exchanging");
}

status cuda_caller_exchange(void *comm, const void *mine, void *all, size_t size_bytes) {
  rt_caller_comm about;
  exchange x = {.comm = comm};
  TRY(cuda_caller_comm(comm, &about));
  TRY(find_library(&x.n));
  status st = open_gpu(&x, about.gpu);
  if (st == STATUS_OK) st = run(&x, mine, all, size_bytes, about.size);
  close_gpu(&x);
  return st;
}
