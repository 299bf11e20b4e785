/* What streams do: copies, fills, values, host functions, work of other libraries. */
#include <stdlib.h>
#include <string.h>

#include "standin/driver.h"

/* ---- copies ---- */
typedef struct copy_args {
  void *to;
  const void *from;
  size_t size_bytes;
  bool is_staged; /* the bytes follow */
} copy_args;

static void run_copy(op *o) {
  const copy_args *a = o->args;
  memmove(a->to, a->is_staged ? (const void *)(a + 1) : a->from, a->size_bytes);
}

static bool host_is_good(const void *p, size_t size_bytes, const char *used) {
  const block *b = block_at((CUdeviceptr)(uintptr_t)p);
  if (b && block_gpu(b)) {
    standin_misuse("%s: %p is memory of a GPU, not of the host", used, p);
    return false;
  }
  return !b || range_is_good((CUdeviceptr)(uintptr_t)p, size_bytes, used);
}

/* Of pageable memory the driver may take the bytes at once, or later: both happen. To pageable
 * memory it may wait for the end of the copy. */
static CUresult copy(CUstream s, const char *name, CUdeviceptr to, CUdeviceptr from,
                     size_t size_bytes, bool to_host, bool from_host) {
  if (!stream_is_good(&s)) return CUDA_ERROR_INVALID_HANDLE;
  if (size_bytes == 0) return CUDA_SUCCESS;
  void *target = (void *)(uintptr_t)to;
  const void *source = (const void *)(uintptr_t)from;
  if (to_host ? !host_is_good(target, size_bytes, name) : !range_is_good(to, size_bytes, name))
    return CUDA_ERROR_INVALID_VALUE;
  if (from_host ? !host_is_good(source, size_bytes, name) : !range_is_good(from, size_bytes, name))
    return CUDA_ERROR_INVALID_VALUE;
  bool is_pageable = from_host && !block_at(from);
  bool is_staged = is_pageable && !s->capture && random_draw() % 2;
  op *o = op_new(name, s, sizeof(copy_args) + (is_staged ? size_bytes : 0));
  copy_args *a = o->args;
  *a = (copy_args){target, source, size_bytes, is_staged};
  if (is_staged) memcpy(a + 1, source, size_bytes);
  o->run = run_copy;
  if (!to_host) op_touch(o, to, size_bytes);
  if (!from_host) op_touch(o, from, size_bytes);
  bool waits = to_host && !block_at(to) && !s->capture && random_draw() % 2;
  CUresult r = submit(s, o);
  return waits && r == CUDA_SUCCESS ? drain_holding(s) : r;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t size_bytes, CUstream s) {
  ENTER(cuMemcpyHtoDAsync);
  return copy(s, "cuMemcpyHtoDAsync", to, (CUdeviceptr)(uintptr_t)from, size_bytes, false, true);
}

CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t size_bytes, CUstream s) {
  ENTER(cuMemcpyDtoHAsync);
  return copy(s, "cuMemcpyDtoHAsync", (CUdeviceptr)(uintptr_t)to, from, size_bytes, true, false);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t size_bytes, CUstream s) {
  ENTER(cuMemcpyDtoDAsync);
  return copy(s, "cuMemcpyDtoDAsync", to, from, size_bytes, false, false);
}

/* Addresses tell where memory is. */
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size_bytes, CUstream s) {
  ENTER(cuMemcpyAsync);
  return copy(s, "cuMemcpyAsync", to, from, size_bytes, !block_at(to), !block_at(from));
}

static bool is_in(CUdeviceptr p, CUcontext c) {
  const block *b = block_at(p);
  if (b && block_gpu(b) == c) return true;
  standin_misuse("cuMemcpyPeerAsync: %#llx is not in the context that is given",
                 (unsigned long long)p);
  return false;
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here,
                           size_t size_bytes, CUstream s) {
  ENTER(cuMemcpyPeerAsync);
  if (size_bytes && (!is_in(to, there) || !is_in(from, here))) return CUDA_ERROR_INVALID_VALUE;
  return copy(s, "cuMemcpyPeerAsync", to, from, size_bytes, false, false);
}

/* Rows of bytes; each side is of the host, or told by its address. */
typedef struct rows_args {
  char *to;
  const char *from;
  size_t to_pitch, from_pitch, width, height;
} rows_args;

static void run_rows(op *o) {
  const rows_args *a = o->args;
  for (size_t i = 0; i < a->height; i++)
    memmove(a->to + i * a->to_pitch, a->from + i * a->from_pitch, a->width);
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D *c, CUstream s) {
  ENTER(cuMemcpy2DAsync);
  static const char name[] = "cuMemcpy2DAsync";
  bool to_host = c->dstMemoryType == CU_MEMORYTYPE_HOST;
  bool from_host = c->srcMemoryType == CU_MEMORYTYPE_HOST;
  rows_args a = {to_host ? c->dstHost : (char *)(uintptr_t)c->dstDevice,
                 from_host ? c->srcHost : (const char *)(uintptr_t)c->srcDevice,
                 c->dstPitch,
                 c->srcPitch,
                 c->WidthInBytes,
                 c->Height};
  if (!stream_is_good(&s)) return CUDA_ERROR_INVALID_HANDLE;
  if (c->srcXInBytes || c->srcY || c->dstXInBytes || c->dstY)
    return MISUSE(CUDA_ERROR_INVALID_VALUE, "%s: offsets are not modelled", name);
  if (a.height > 1 && (a.to_pitch < a.width || a.from_pitch < a.width))
    return MISUSE(CUDA_ERROR_INVALID_VALUE, "%s: rows overlap", name);
  if (a.width == 0 || a.height == 0) return CUDA_SUCCESS;
  size_t to_bytes = (a.height - 1) * a.to_pitch + a.width;
  size_t from_bytes = (a.height - 1) * a.from_pitch + a.width;
  CUdeviceptr to = (CUdeviceptr)(uintptr_t)a.to, from = (CUdeviceptr)(uintptr_t)a.from;
  if (to_host ? !host_is_good(a.to, to_bytes, name) : !range_is_good(to, to_bytes, name))
    return CUDA_ERROR_INVALID_VALUE;
  if (from_host ? !host_is_good(a.from, from_bytes, name) : !range_is_good(from, from_bytes, name))
    return CUDA_ERROR_INVALID_VALUE;
  op *o = op_new(name, s, sizeof a);
  memcpy(o->args, &a, sizeof a);
  o->run = run_rows;
  if (!to_host) op_touch(o, to, to_bytes);
  if (!from_host) op_touch(o, from, from_bytes);
  return submit(s, o);
}

static CUresult copy_now(const char *name, CUdeviceptr to, CUdeviceptr from, size_t size_bytes,
                         bool to_host, bool from_host) {
  CUstream s = NULL;
  CUresult r = copy(s, name, to, from, size_bytes, to_host, from_host);
  if (r != CUDA_SUCCESS || !stream_is_good(&s)) return r;
  return drain(s);
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t size_bytes) {
  ENTER(cuMemcpyHtoD);
  return copy_now("cuMemcpyHtoD", to, (CUdeviceptr)(uintptr_t)from, size_bytes, false, true);
}

CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t size_bytes) {
  ENTER(cuMemcpyDtoH);
  return copy_now("cuMemcpyDtoH", (CUdeviceptr)(uintptr_t)to, from, size_bytes, true, false);
}

CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t size_bytes) {
  ENTER(cuMemcpyDtoD);
  return copy_now("cuMemcpyDtoD", to, from, size_bytes, false, false);
}

/* ---- fills ---- */
typedef struct fill_args {
  void *to;
  size_t size_bytes;
  unsigned char value;
  unsigned word;
} fill_args;

static void run_fill(op *o) {
  const fill_args *a = o->args;
  memset(a->to, a->value, a->size_bytes);
}

/* A kernel of the driver's own, in effect. */
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t n, CUstream s) {
  ENTER(cuMemsetD8Async);
  if (!stream_is_good(&s)) return CUDA_ERROR_INVALID_HANDLE;
  if (s->gpu != current())
    return MISUSE(CUDA_ERROR_INVALID_CONTEXT, "cuMemsetD8Async on a stream of another context");
  if (n == 0) return CUDA_SUCCESS;
  if (!range_is_good(to, n, "cuMemsetD8Async")) return CUDA_ERROR_INVALID_VALUE;
  op *o = op_new("cuMemsetD8Async", s, sizeof(fill_args));
  fill_args *a = o->args;
  *a = (fill_args){.to = (void *)(uintptr_t)to, .size_bytes = n, .value = value};
  o->run = run_fill;
  o->is_kernel = true;
  op_touch(o, to, n);
  return submit(s, o);
}

static void run_fill_word(op *o) {
  const fill_args *a = o->args;
  for (size_t i = 0; i < a->size_bytes; i += sizeof a->word)
    memcpy((char *)a->to + i, &a->word, sizeof a->word);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t n, CUstream s) {
  ENTER(cuMemsetD32Async);
  size_t size_bytes = n * sizeof value;
  if (!stream_is_good(&s)) return CUDA_ERROR_INVALID_HANDLE;
  if (s->gpu != current())
    return MISUSE(CUDA_ERROR_INVALID_CONTEXT, "cuMemsetD32Async on a stream of another context");
  if (n == 0) return CUDA_SUCCESS;
  if (to % sizeof value != 0)
    return MISUSE(CUDA_ERROR_INVALID_VALUE, "cuMemsetD32Async of memory that is not aligned");
  if (!range_is_good(to, size_bytes, "cuMemsetD32Async")) return CUDA_ERROR_INVALID_VALUE;
  op *o = op_new("cuMemsetD32Async", s, sizeof(fill_args));
  fill_args *a = o->args;
  *a = (fill_args){.to = (void *)(uintptr_t)to, .size_bytes = size_bytes, .word = value};
  o->run = run_fill_word;
  o->is_kernel = true;
  op_touch(o, to, size_bytes);
  return submit(s, o);
}

CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t n) {
  CUresult r = cuMemsetD8Async(to, value, n, NULL);
  return r == CUDA_SUCCESS ? cuStreamSynchronize(NULL) : r;
}

/* ---- values in memory, seen by other streams and other processes ---- */
typedef struct value_args {
  void *at;
  uint64_t value;
  unsigned flags;
  bool is_wide;
} value_args;

static void run_write(op *o) {
  const value_args *a = o->args;
  if (a->is_wide) __atomic_store_n((uint64_t *)a->at, a->value, __ATOMIC_RELEASE);
  else __atomic_store_n((uint32_t *)a->at, (uint32_t)a->value, __ATOMIC_RELEASE);
}

static bool value_is_there(const op *o) {
  const value_args *a = o->args;
  if (standin.sticky != CUDA_SUCCESS || !op_is_good(o)) return true;
  uint64_t x = a->is_wide ? __atomic_load_n((uint64_t *)a->at, __ATOMIC_ACQUIRE)
                          : __atomic_load_n((uint32_t *)a->at, __ATOMIC_ACQUIRE);
  switch (a->flags & 3U) {
  case CU_STREAM_WAIT_VALUE_GEQ:
    return a->is_wide ? (int64_t)(x - a->value) >= 0
                      : (int32_t)((uint32_t)x - (uint32_t)a->value) >= 0;
  case CU_STREAM_WAIT_VALUE_EQ: return x == a->value;
  case CU_STREAM_WAIT_VALUE_AND: return (x & a->value) != 0;
  default: return (~(x | a->value) & (a->is_wide ? UINT64_MAX : UINT32_MAX)) != 0;
  }
}

static CUresult put_value(CUstream s, const char *name, const value_args *args, bool waits) {
  CUdeviceptr at = (CUdeviceptr)(uintptr_t)args->at;
  size_t size = args->is_wide ? sizeof(uint64_t) : sizeof(uint32_t);
  if (!stream_is_good(&s)) return CUDA_ERROR_INVALID_HANDLE;
  if (at % size || !range_is_good(at, size, name)) return CUDA_ERROR_INVALID_VALUE;
  if (!waits && args->flags != CU_STREAM_WRITE_VALUE_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  op *o = op_new(name, s, sizeof *args);
  memcpy(o->args, args, sizeof *args);
  if (waits) o->ready = value_is_there;
  else o->run = run_write;
  o->is_kernel = true;
  op_touch(o, at, size);
  return submit(s, o);
}

CUresult cuStreamWaitValue32(CUstream s, CUdeviceptr at, cuuint32_t value, unsigned flags) {
  ENTER(cuStreamWaitValue32);
  value_args a = {(void *)(uintptr_t)at, value, flags, false};
  return put_value(s, "cuStreamWaitValue32", &a, true);
}

CUresult cuStreamWaitValue64(CUstream s, CUdeviceptr at, cuuint64_t value, unsigned flags) {
  ENTER(cuStreamWaitValue64);
  value_args a = {(void *)(uintptr_t)at, value, flags, true};
  return put_value(s, "cuStreamWaitValue64", &a, true);
}

CUresult cuStreamWriteValue32(CUstream s, CUdeviceptr at, cuuint32_t value, unsigned flags) {
  ENTER(cuStreamWriteValue32);
  value_args a = {(void *)(uintptr_t)at, value, flags, false};
  return put_value(s, "cuStreamWriteValue32", &a, false);
}

CUresult cuStreamWriteValue64(CUstream s, CUdeviceptr at, cuuint64_t value, unsigned flags) {
  ENTER(cuStreamWriteValue64);
  value_args a = {(void *)(uintptr_t)at, value, flags, true};
  return put_value(s, "cuStreamWriteValue64", &a, false);
}

/* One item per operation: what is batched is in order all the same. */
CUresult cuStreamBatchMemOp(CUstream s, unsigned n, CUstreamBatchMemOpParams *ops, unsigned flags) {
  CUresult r = CUDA_SUCCESS;
  (void)flags;
  for (unsigned i = 0; i < n && r == CUDA_SUCCESS; i++) {
    const struct CUstreamMemOpWaitValueParams_st *w = &ops[i].waitValue;
    const struct CUstreamMemOpWriteValueParams_st *x = &ops[i].writeValue;
    switch ((int)ops[i].operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      r = cuStreamWaitValue32(s, w->address, w->value, w->flags);
      break;
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      r = cuStreamWaitValue64(s, w->address, w->value64, w->flags);
      break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      r = cuStreamWriteValue32(s, x->address, x->value, x->flags);
      break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      r = cuStreamWriteValue64(s, x->address, x->value64, x->flags);
      break;
    default: r = MISUSE(CUDA_ERROR_NOT_SUPPORTED, "an operation that is not modelled");
    }
  }
  return r;
}

/* ---- functions of the host ---- */
typedef struct host_args {
  CUhostFn fn;
  void *data;
} host_args;

static void run_host(op *o) {
  const host_args *a = o->args;
  set_host_function(true);
  a->fn(a->data);
  set_host_function(false);
}

CUresult cuLaunchHostFunc(CUstream s, CUhostFn fn, void *data) {
  ENTER(cuLaunchHostFunc);
  if (!stream_is_good(&s)) return CUDA_ERROR_INVALID_HANDLE;
  op *o = op_new("cuLaunchHostFunc", s, sizeof(host_args));
  host_args *a = o->args;
  *a = (host_args){fn, data};
  o->run = run_host;
  return submit(s, o);
}

/* ---- other libraries ---- */
typedef struct work_args {
  void (*run)(void *args);
  bool (*ready)(void *args);
  max_align_t args[];
} work_args;

static void run_work(op *o) {
  work_args *a = o->args;
  a->run(a->args);
}

static bool work_is_ready(const op *o) {
  const work_args *a = o->args;
  return a->ready((void *)(uintptr_t)a->args);
}

STANDIN_API CUresult standin_submit(CUstream s, const standin_work *work) {
  ENTER(standin_submit);
  if (!stream_is_good(&s)) return CUDA_ERROR_INVALID_HANDLE;
  if (s->gpu != current())
    return MISUSE(CUDA_ERROR_INVALID_HANDLE, "%s: the stream and the context differ", work->name);
  op *o = op_new(work->name, s, sizeof(work_args) + work->args_bytes);
  work_args *a = o->args;
  a->run = work->run;
  a->ready = work->ready;
  memcpy(a->args, work->args, work->args_bytes);
  o->run = run_work;
  if (work->ready) o->ready = work_is_ready;
  o->is_kernel = true;
  for (size_t i = 0; i < work->n_ranges; i++)
    if (work->ranges[i].size_bytes) op_touch(o, work->ranges[i].at, work->ranges[i].size_bytes);
  return submit(s, o);
}
