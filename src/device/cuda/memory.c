/* Memory of GPUs, for callers that have no open device: what an address is, and copies of any strides. */
#include "device/cuda/device.h"

/* ---- contexts ---- */
/* Makes a GPU's primary context current for a while. */
typedef struct visit {
  const cuda_vendor *cu;
  CUdevice gpu;
  CUcontext caller, context;
} visit;

static status enter(visit *v, uint32_t space) {
  int n = 0;
  TRY(cuda_vendor_load(&v->cu));
  TRY(cuda_try(v->cu->cuDeviceGetCount(&n), "counting GPUs"));
  if (space - 1 >= (uint32_t)n)
    return fail(STATUS_BAD_USAGE, "there is no GPU %u: this machine has %d", space - 1, n);
  TRY(cuda_try(v->cu->cuDeviceGet(&v->gpu, (int)(space - 1)), "finding a GPU"));
  TRY(cuda_try(v->cu->cuDevicePrimaryCtxRetain(&v->context, v->gpu), "opening a GPU"));
  v->caller = cuda_caller_enter(v->cu);
  return cuda_try(v->cu->cuCtxSetCurrent(v->context), "making a context current");
}

static void leave(const visit *v) {
  if (!v->context) return;
  cuda_caller_leave(v->cu, v->caller);
  (void)v->cu->cuDevicePrimaryCtxRelease(v->gpu);
}

/* ---- addresses ---- */
typedef struct place {
  unsigned kind;
  int gpu;
  CUcontext context; /* NULL: it belongs to none, or to all */
} place;

static status refuse(const place *at, const visit *v, const void *p, const char *what) {
  int gpu = (int)v->gpu;
  if (at->kind == CU_MEMORYTYPE_HOST)
    return fail(STATUS_BAD_USAGE, "%s is said to be on GPU %d, but is memory of the host", what,
                gpu);
  if (at->kind != CU_MEMORYTYPE_DEVICE)
    return fail(STATUS_BAD_USAGE,
                "%s is said to be on GPU %d, but the driver knows of no memory at %p", what, gpu,
                p);
  if (at->gpu != gpu)
    return fail(STATUS_BAD_USAGE, "%s is said to be on GPU %d, but is memory of GPU %d", what, gpu,
                at->gpu);
  if (at->context && at->context != v->context)
    return fail(STATUS_BAD_USAGE,
                "%s is memory of another context of GPU %d: only the primary context's can be used",
                what, gpu);
  return STATUS_OK;
}

static status memory_verify(uint32_t space, const void *p, const char *what) {
  visit v = {0};
  place at = {0};
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT};
  void *values[] = {&at.kind, &at.gpu, (void *)&at.context};
  status st = enter(&v, space);
  if (st == STATUS_OK)
    st = cuda_try(v.cu->cuPointerGetAttributes(3, which, values, (CUdeviceptr)(uintptr_t)p),
                  "asking for an address");
  if (st == STATUS_OK) st = refuse(&at, &v, p, what);
  leave(&v);
  return st;
}

static status memory_alloc_there(uint32_t space, size_t size_bytes, void **result) {
  visit v = {0};
  CUdeviceptr p = 0;
  status st = enter(&v, space);
  if (st == STATUS_OK)
    st = cuda_try(v.cu->cuMemAlloc(&p, size_bytes ? size_bytes : 1), "allocating memory");
  leave(&v);
  if (st == STATUS_OK) *result = (void *)(uintptr_t)p;
  return st;
}

static void memory_free_there(uint32_t space, void *block) {
  visit v = {0};
  if (!block) return;
  if (enter(&v, space) == STATUS_OK) (void)v.cu->cuMemFree((CUdeviceptr)(uintptr_t)block);
  leave(&v);
}

/* ---- copies ---- */
enum { TO, FROM };

/* Two arrays after dimensions that are contiguous in both are merged: rows of `bytes`. */
typedef struct walk {
  uint32_t rank;
  int64_t extents[IR_MAX_RANK], strides[2][IR_MAX_RANK]; /* in bytes */
  int64_t bytes;
} walk;

static void add_outer(walk *w, int64_t extent, int64_t to, int64_t from) {
  uint32_t last = w->rank ? w->rank - 1 : 0;
  if (extent == 1) return;
  if (w->rank == 0 && to == w->bytes && from == w->bytes) {
    w->bytes *= extent;
    return;
  }
  bool goes_on = w->rank > 0 && to == w->strides[TO][last] * w->extents[last] &&
                 from == w->strides[FROM][last] * w->extents[last];
  if (goes_on) {
    w->extents[last] *= extent;
    return;
  }
  w->extents[w->rank] = extent;
  w->strides[TO][w->rank] = to;
  w->strides[FROM][w->rank++] = from;
}

/* Merges dimensions, from the innermost to the outermost. */
static walk walk_of(const ir_array *to, const ir_array *from) {
  walk w = {.bytes = (int64_t)ir_dtype_size_bytes(to->dtype)};
  int64_t size = w.bytes;
  for (uint32_t d = to->rank; d-- > 0;)
    add_outer(&w, to->extents[d], to->strides[d] * size, from->strides[d] * size);
  return w;
}

/* Can the innermost of the remaining dimensions be the rows of one 2-D copy? */
static bool has_rows(const walk *w) {
  enum { LARGEST_PITCH = 0x7fffffff };
  for (int side = TO; side <= FROM && w->rank > 0; side++)
    if (w->strides[side][0] < w->bytes || w->strides[side][0] > LARGEST_PITCH) return false;
  return w->rank > 0;
}

static CUresult copy_rows(const visit *v, const walk *w, char *to, char *from,
                          const uint32_t spaces[2]) {
  bool rows = has_rows(w);
  CUDA_MEMCPY2D c = {.WidthInBytes = (size_t)w->bytes, .Height = rows ? (size_t)w->extents[0] : 1};
  c.dstMemoryType = spaces[TO] ? CU_MEMORYTYPE_UNIFIED : CU_MEMORYTYPE_HOST;
  c.srcMemoryType = spaces[FROM] ? CU_MEMORYTYPE_UNIFIED : CU_MEMORYTYPE_HOST;
  if (spaces[TO]) c.dstDevice = (CUdeviceptr)(uintptr_t)to;
  else c.dstHost = to;
  if (spaces[FROM]) c.srcDevice = (CUdeviceptr)(uintptr_t)from;
  else c.srcHost = from;
  c.dstPitch = (size_t)(rows ? w->strides[TO][0] : w->bytes);
  c.srcPitch = (size_t)(rows ? w->strides[FROM][0] : w->bytes);
  return v->cu->cuMemcpy2DAsync(&c, NULL);
}

static bool next_outer(const walk *w, uint32_t first, int64_t *index) {
  for (uint32_t d = first; d < w->rank; d++) {
    if (++index[d] < w->extents[d]) return true;
    index[d] = 0;
  }
  return false;
}

static CUresult copy_all(const visit *v, const ir_array *to, const ir_array *from) {
  walk w = walk_of(to, from);
  uint32_t first = has_rows(&w) ? 1 : 0;
  const uint32_t spaces[2] = {to->space, from->space};
  int64_t index[IR_MAX_RANK] = {0};
  CUresult r;
  do {
    char *at[2] = {to->data, from->data};
    for (uint32_t d = first; d < w.rank; d++) {
      at[TO] += index[d] * w.strides[TO][d];
      at[FROM] += index[d] * w.strides[FROM][d];
    }
    r = copy_rows(v, &w, at[TO], at[FROM], spaces);
  } while (r == CUDA_SUCCESS && next_outer(&w, first, index));
  CUresult done = v->cu->cuStreamSynchronize(NULL);
  return r == CUDA_SUCCESS ? done : r;
}

/* Copies on the default stream of the GPU, as a caller who names no stream expects. */
static status memory_copy(const ir_array *to, const ir_array *from) {
  visit v = {0};
  int64_t n;
  if (ir_array_count(to, &n) && n == 0) return STATUS_OK;
  status st = enter(&v, to->space ? to->space : from->space);
  if (st == STATUS_OK) st = cuda_try(copy_all(&v, to, from), "copying an array");
  leave(&v);
  return st;
}

static status memory_wait(const rt_stream *stream) {
  visit v = {0};
  CUstreamCaptureStatus how = CU_STREAM_CAPTURE_STATUS_NONE;
  status st = enter(&v, stream->space);
  if (st == STATUS_OK)
    st = cuda_try(v.cu->cuStreamIsCapturing(stream->handle, &how), "asking for a capture");
  if (st == STATUS_OK && how != CU_STREAM_CAPTURE_STATUS_NONE)
    st = fail(STATUS_BAD_USAGE,
              "the stream is being captured, and this run needs the host: it must be "
              "of a program on cuda, on dense tensors, without a profile");
  if (st == STATUS_OK)
    st = cuda_try(v.cu->cuStreamSynchronize(stream->handle), "waiting for a stream");
  leave(&v);
  return st;
}

/* ---- runs that are issued later ---- */
static status check_followed(const visit *v, const rt_stream *stream) {
  CUcontext context = NULL;
  CUstreamCaptureStatus how = CU_STREAM_CAPTURE_STATUS_NONE;
  TRY(cuda_try(v->cu->cuStreamGetCtx(stream->handle, &context), "asking for a stream"));
  if (context != v->context)
    return fail(STATUS_BAD_USAGE,
                "a stream is said to be of GPU %u, but belongs to another context",
                stream->space - 1);
  TRY(cuda_try(v->cu->cuStreamIsCapturing(stream->handle, &how), "asking for a capture"));
  if (how == CU_STREAM_CAPTURE_STATUS_NONE) return STATUS_OK;
  return fail(STATUS_BAD_USAGE,
              "the stream is being captured: a run that is issued later cannot be "
              "a part of that graph; use weir_run()");
}

static status order_after(const visit *v, CUstream later, CUstream first) {
  CUevent event = NULL;
  TRY(cuda_try(v->cu->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "making an event"));
  status st = cuda_try(v->cu->cuEventRecord(event, first), "following a stream");
  if (st == STATUS_OK)
    st = cuda_try(v->cu->cuStreamWaitEvent(later, event, 0), "following a stream");
  (void)v->cu->cuEventDestroy(event); /* the driver frees it once it has passed */
  return st;
}

static status follow(const visit *v, const rt_stream *stream, CUstream *result) {
  CUstream own = NULL;
  TRY(check_followed(v, stream));
  TRY(cuda_try(v->cu->cuStreamCreateWithPriority(&own, CU_STREAM_NON_BLOCKING, 0),
               "making a stream"));
  status st = order_after(v, own, stream->handle);
  if (st == STATUS_OK) *result = own;
  else (void)v->cu->cuStreamDestroy(own);
  return st;
}

static status memory_follow(const rt_stream *stream, rt_stream *result) {
  visit v = {0};
  CUstream own = NULL;
  status st = enter(&v, stream->space);
  if (st == STATUS_OK) st = follow(&v, stream, &own);
  if (st == STATUS_OK) {
    *result = (rt_stream){stream->space, own};
    v.context = NULL; /* kept while the stream lives */
    cuda_caller_leave(v.cu, v.caller);
  }
  leave(&v);
  return st;
}

static status memory_passed(const rt_stream *followed, bool *yes) {
  visit v = {0};
  status st = enter(&v, followed->space);
  CUresult r = st == STATUS_OK ? v.cu->cuStreamQuery(followed->handle) : CUDA_SUCCESS;
  *yes = r != CUDA_ERROR_NOT_READY;
  if (st == STATUS_OK && *yes) st = cuda_try(r, "asking for a stream");
  leave(&v);
  return st;
}

static void memory_end(const rt_stream *followed) {
  visit v = {0};
  if (enter(&v, followed->space) == STATUS_OK) {
    (void)v.cu->cuStreamDestroy(followed->handle);
    (void)v.cu->cuDevicePrimaryCtxRelease(v.gpu);
  }
  leave(&v);
}

const rt_memory_ops cuda_memory = {
    .verify = memory_verify,
    .alloc = memory_alloc_there,
    .free = memory_free_there,
    .copy = memory_copy,
    .wait = memory_wait,
    .follow = memory_follow,
    .passed = memory_passed,
    .end = memory_end,
};
