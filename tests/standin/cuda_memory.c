/* Memory: every block known by range.
 *
 * A block lies at the end of pages of its own with a page behind it that nobody may touch, and on a file
 * without a name, so that other processes can map it through /proc. What was freed is kept for a while
 * as pages that nobody may touch either. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "standin/driver.h"

enum { PAGE = 4096, ALIGN = 256, GARBAGE = 0xa5, KEPT = 64 };

struct block {
  block *next;
  CUdeviceptr at;
  size_t size_bytes;
  CUcontext gpu; /* NULL: pinned */
  bool freed, imported, closed, registered, managed;
  int file;
  char *pages;
  size_t pages_bytes; /* with the last, which is closed */
  uint64_t id;
};

static block *blocks;
static uint64_t n_made;

/* ---- finding ---- */
static block *find(CUdeviceptr p, bool freed) {
  for (block *b = blocks; b; b = b->next)
    if (b->freed == freed && p >= b->at && p < b->at + b->size_bytes) return b;
  return NULL;
}

const block *block_at(CUdeviceptr p) { return find(p, false); }
CUcontext block_gpu(const block *b) { return b->managed ? NULL : b->gpu; }

uint32_t memory_live(CUcontext gpu) {
  uint32_t n = 0;
  for (const block *b = blocks; b; b = b->next) n += !b->freed && b->gpu == gpu;
  return n;
}

bool range_is_good(CUdeviceptr at, size_t size_bytes, const char *used) {
  const block *b = find(at, false);
  if (b && size_bytes <= b->at + b->size_bytes - at) return true;
  if (b)
    standin_misuse("%s: %zu bytes at byte %zu of a block of %zu", used, size_bytes,
                   (size_t)(at - b->at), b->size_bytes);
  else if (find(at, true)) standin_misuse("%s: %#llx was freed", used, (unsigned long long)at);
  else standin_misuse("%s: %#llx is no memory of a GPU", used, (unsigned long long)at);
  return false;
}

/* Kernels reach the memory of their GPU and of those it has access to. */
bool op_is_good(const op *o) {
  for (size_t i = 0; i < o->n_ranges; i++) {
    const standin_range *r = &o->ranges[i];
    if (!range_is_good(r->at, r->size_bytes, o->name)) return false;
    CUcontext owner = block_gpu(find(r->at, false));
    if (!o->is_kernel || !owner || owner == o->gpu || o->gpu->peer[owner->index]) continue;
    standin_misuse("%s on GPU %d uses memory of GPU %d, to which it has no access", o->name,
                   o->gpu->index, owner->index);
    return false;
  }
  return true;
}

static void protect(block *b, int how) {
  (void)mprotect(b->pages, b->pages_bytes - PAGE, how);
  b->closed = how == PROT_NONE;
}

bool memory_close(const op *o) {
  bool any = false;
  for (block *b = blocks; b && o->is_kernel && standin.n_gpus > 1; b = b->next) {
    if (b->freed || !block_gpu(b) || b->gpu == o->gpu || o->gpu->peer[b->gpu->index]) continue;
    protect(b, PROT_NONE);
    any = true;
  }
  return any;
}

void memory_open(void) {
  for (block *b = blocks; b; b = b->next)
    if (b->closed && !b->freed) protect(b, PROT_READ | PROT_WRITE);
}

/* ---- blocks ---- */
static block *map_file(int file, size_t pages_bytes) {
  block *b = calloc(1, sizeof *b);
  if (!b) abort();
  b->file = file;
  b->pages_bytes = pages_bytes + PAGE;
  b->pages = mmap(NULL, b->pages_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (b->pages == MAP_FAILED || mmap(b->pages, pages_bytes, PROT_READ | PROT_WRITE,
                                     MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
    if (b->pages != MAP_FAILED) (void)munmap(b->pages, b->pages_bytes);
    free(b);
    return NULL;
  }
  b->next = blocks;
  blocks = b;
  b->id = ++n_made;
  return b;
}

static block *make(size_t size_bytes, CUcontext gpu) {
  size_t rounded = (size_bytes + ALIGN - 1) / ALIGN * ALIGN;
  size_t pages_bytes = (rounded + PAGE - 1) / PAGE * PAGE;
  if (rounded < size_bytes || pages_bytes < rounded) return NULL;
  int file = memfd_create("weir-standin", MFD_CLOEXEC);
  if (file < 0) return NULL;
  block *b = ftruncate(file, (off_t)pages_bytes) == 0 ? map_file(file, pages_bytes) : NULL;
  if (!b) {
    (void)close(file);
    return NULL;
  }
  b->at = (CUdeviceptr)(uintptr_t)b->pages + pages_bytes - rounded;
  b->size_bytes = size_bytes;
  b->gpu = gpu;
  memset(b->pages, GARBAGE, pages_bytes);
  return b;
}

/* The oldest of those kept goes. */
static void forget_some(void) {
  block **oldest = NULL;
  uint32_t n = 0;
  for (block **b = &blocks; *b; b = &(*b)->next)
    if ((*b)->freed) oldest = b, n++;
  if (n <= KEPT) return;
  block *b = *oldest;
  *oldest = b->next;
  (void)munmap(b->pages, b->pages_bytes);
  free(b);
}

static void release(block *b) {
  b->freed = true;
  (void)close(b->file);
  (void)mmap(b->pages, b->pages_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  forget_some();
}

/* ---- calls ---- */
static CUresult begin_change(const char *what) {
  if (!current()) return MISUSE(CUDA_ERROR_INVALID_CONTEXT, "%s without a context", what);
  if (is_capturing_thread())
    return MISUSE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "%s during a capture", what);
  return CUDA_SUCCESS;
}

static bool touches(const op *o, const block *b) {
  bool any = false;
  for (size_t i = 0; i < o->n_ranges && !any; i++)
    any = o->ranges[i].at >= b->at && o->ranges[i].at < b->at + b->size_bytes;
  for (uint32_t i = 0; o->exec && i < o->exec->graph->n_nodes && !any; i++)
    any = touches(o->exec->graph->nodes[i].op, b);
  return any;
}

/* Work in a queue that would use the block: a real driver might wait for it, or not. */
static const op *still_used(const block *b) {
  for (CUstream s = standin.streams; s; s = s->next)
    for (const op *o = s->head; o; o = o->next)
      if (touches(o, b)) return o;
  return NULL;
}

CUresult cuMemAlloc(CUdeviceptr *p, size_t size_bytes) {
  ENTER(cuMemAlloc);
  CUresult r = begin_change("cuMemAlloc");
  if (r != CUDA_SUCCESS) return r;
  if (size_bytes == 0) return MISUSE(CUDA_ERROR_INVALID_VALUE, "cuMemAlloc of 0 bytes");
  const block *b = make(size_bytes, current());
  if (!b) return CUDA_ERROR_OUT_OF_MEMORY;
  *p = b->at;
  return CUDA_SUCCESS;
}

/* Memory that the host and all GPUs use. */
CUresult cuMemAllocManaged(CUdeviceptr *p, size_t size_bytes, unsigned flags) {
  ENTER(cuMemAllocManaged);
  (void)flags;
  CUresult r = begin_change("cuMemAllocManaged");
  if (r != CUDA_SUCCESS) return r;
  block *b = make(size_bytes, current());
  if (!b) return CUDA_ERROR_OUT_OF_MEMORY;
  b->managed = true;
  *p = b->at;
  return CUDA_SUCCESS;
}

static CUresult free_block(CUdeviceptr p, const char *function, bool pinned) {
  CUresult r = begin_change(function);
  if (r != CUDA_SUCCESS) return r;
  block *b = find(p, false);
  if (!b || b->at != p || pinned != !b->gpu || b->imported || b->registered)
    return MISUSE(CUDA_ERROR_INVALID_VALUE, "%s: %#llx is no block that it can free", function,
                  (unsigned long long)p);
  const op *o = still_used(b);
  if (o) return MISUSE(CUDA_ERROR_INVALID_VALUE, "%s: %s has yet to use it", function, o->name);
  release(b);
  return CUDA_SUCCESS;
}

CUresult cuMemFree(CUdeviceptr p) {
  ENTER(cuMemFree);
  return p ? free_block(p, "cuMemFree", false) : CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **p, size_t size_bytes, unsigned flags) {
  ENTER(cuMemHostAlloc);
  (void)flags;
  CUresult r = begin_change("cuMemHostAlloc");
  if (r != CUDA_SUCCESS) return r;
  const block *b = make(size_bytes, NULL);
  if (!b) return CUDA_ERROR_OUT_OF_MEMORY;
  *p = (void *)(uintptr_t)b->at;
  return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *p) {
  ENTER(cuMemFreeHost);
  return free_block((CUdeviceptr)(uintptr_t)p, "cuMemFreeHost", true);
}

/* Memory that the caller has made, known from now on as pinned. */
CUresult cuMemHostRegister(void *p, size_t size_bytes, unsigned flags) {
  ENTER(cuMemHostRegister);
  (void)flags;
  CUresult r = begin_change("cuMemHostRegister");
  if (r != CUDA_SUCCESS) return r;
  if (size_bytes == 0 || find((CUdeviceptr)(uintptr_t)p, false))
    return MISUSE(CUDA_ERROR_INVALID_VALUE, "cuMemHostRegister of nothing, or for the second time");
  block *b = calloc(1, sizeof *b);
  if (!b) return CUDA_ERROR_OUT_OF_MEMORY;
  *b = (block){.next = blocks, .at = (CUdeviceptr)(uintptr_t)p, .size_bytes = size_bytes};
  b->registered = true;
  b->id = ++n_made;
  blocks = b;
  return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *p) {
  ENTER(cuMemHostUnregister);
  block **at = &blocks;
  while (*at && ((*at)->at != (CUdeviceptr)(uintptr_t)p || !(*at)->registered)) at = &(*at)->next;
  block *b = *at;
  if (!b) return MISUSE(CUDA_ERROR_INVALID_VALUE, "cuMemHostUnregister of what is not registered");
  *at = b->next;
  free(b);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr *device, void *p, unsigned flags) {
  ENTER(cuMemHostGetDevicePointer);
  (void)flags;
  *device = (CUdeviceptr)(uintptr_t)p;
  return range_is_good(*device, 1, "cuMemHostGetDevicePointer") ? CUDA_SUCCESS
                                                                : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetInfo(size_t *free_bytes, size_t *all_bytes) {
  ENTER(cuMemGetInfo);
  *all_bytes = (size_t)1 << 34;
  *free_bytes = *all_bytes;
  for (const block *b = blocks; b; b = b->next)
    if (!b->freed && b->gpu == current()) *free_bytes -= b->size_bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *size_bytes, CUdeviceptr p) {
  ENTER(cuMemGetAddressRange);
  const block *b = find(p, false);
  if (!b || !b->gpu) return CUDA_ERROR_NOT_FOUND;
  if (base) *base = b->at;
  if (size_bytes) *size_bytes = b->size_bytes;
  return CUDA_SUCCESS;
}

/* ---- pointers ---- */
static CUresult attribute(const block *b, CUpointer_attribute which, void *value) {
  unsigned kind = b->gpu ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  int ordinal = b->gpu ? b->gpu->index : 0;
  unsigned long long id = b->id;
  unsigned managed = b->managed;
  switch ((int)which) {
  case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: memcpy(value, &kind, sizeof kind); break;
  case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: memcpy(value, &ordinal, sizeof ordinal); break;
  case CU_POINTER_ATTRIBUTE_IS_MANAGED: memcpy(value, &managed, sizeof managed); break;
  case CU_POINTER_ATTRIBUTE_BUFFER_ID: memcpy(value, &id, sizeof id); break;
  case CU_POINTER_ATTRIBUTE_CONTEXT: memcpy(value, &b->gpu, sizeof(CUcontext)); break;
  case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: memcpy(value, &b->at, sizeof b->at); break;
  case CU_POINTER_ATTRIBUTE_RANGE_SIZE: memcpy(value, &b->size_bytes, sizeof(size_t)); break;
  default: return MISUSE(CUDA_ERROR_INVALID_VALUE, "an attribute that is not modelled");
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute which, CUdeviceptr p) {
  ENTER(cuPointerGetAttribute);
  const block *b = find(p, false);
  return b ? attribute(b, which, value) : CUDA_ERROR_INVALID_VALUE;
}

/* Of other memory nothing is told, which is no error. */
CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute *which, void **values,
                                CUdeviceptr p) {
  ENTER(cuPointerGetAttributes);
  const block *b = find(p, false);
  for (unsigned i = 0; i < n; i++) {
    CUresult r = CUDA_SUCCESS;
    int none = which[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? -2 : 0;
    if (b) r = attribute(b, which[i], values[i]);
    else if (which[i] == CU_POINTER_ATTRIBUTE_CONTEXT) memset(values[i], 0, sizeof(CUcontext));
    else memcpy(values[i], &none, sizeof none);
    if (r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

/* ---- other processes ---- */
typedef struct ticket {
  int process, file;
  uint64_t pages_bytes, offset, size_bytes, id;
} ticket;
_Static_assert(sizeof(ticket) <= sizeof(CUipcMemHandle), "a ticket fits a handle");

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr p) {
  ENTER(cuIpcGetMemHandle);
  const block *b = find(p, false);
  if (!b || !b->gpu || b->imported)
    return MISUSE(CUDA_ERROR_INVALID_VALUE, "cuIpcGetMemHandle of what is no block of a GPU");
  ticket t = {.process = getpid(), .file = b->file, .size_bytes = b->size_bytes, .id = b->id};
  t.pages_bytes = b->pages_bytes - PAGE;
  t.offset = b->at - (CUdeviceptr)(uintptr_t)b->pages;
  memset(handle, 0, sizeof *handle);
  memcpy(handle, &t, sizeof t);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *p, CUipcMemHandle handle, unsigned flags) {
  ENTER(cuIpcOpenMemHandle);
  ticket t;
  char path[64];
  (void)flags;
  memcpy(&t, &handle, sizeof t);
  CUresult r = begin_change("cuIpcOpenMemHandle");
  if (r != CUDA_SUCCESS) return r;
  if (t.process == getpid())
    return MISUSE(CUDA_ERROR_INVALID_CONTEXT, "cuIpcOpenMemHandle in the process that made it");
  (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", t.process, t.file);
  int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return CUDA_ERROR_INVALID_VALUE;
  block *b = map_file(file, (size_t)t.pages_bytes);
  if (!b) {
    (void)close(file);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  b->at = (CUdeviceptr)(uintptr_t)b->pages + t.offset;
  b->size_bytes = (size_t)t.size_bytes;
  b->gpu = current();
  b->imported = true;
  *p = b->at;
  return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr p) {
  ENTER(cuIpcCloseMemHandle);
  block *b = find(p, false);
  if (!b || b->at != p || !b->imported)
    return MISUSE(CUDA_ERROR_INVALID_VALUE, "cuIpcCloseMemHandle of what was not opened");
  release(b);
  return CUDA_SUCCESS;
}
