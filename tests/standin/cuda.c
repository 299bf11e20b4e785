/* The stand-in for the driver: starting, GPUs, contexts, errors. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin/driver.h"

state standin = {.lock = PTHREAD_MUTEX_INITIALIZER};
static _Thread_local CUcontext current_context;
static _Thread_local bool in_host_function;

/* Every function the device loads must be here: what is missing does not link. */
#define SYMBOL(name) (void (*)(void)) name,
__attribute__((used)) static void (*const all[])(void) = {
#include "device/cuda/driver.def"
};
#undef SYMBOL

/* ---- errors ---- */
STANDIN_API void standin_misuse(const char *format, ...) {
  const char *how = getenv("WEIR_STANDIN_MISUSE");
  va_list args;
  va_start(args, format);
  (void)fprintf(stderr, "standin: ");
  (void)vfprintf(stderr, format, args);
  (void)fprintf(stderr, "\n");
  va_end(args);
  if (!how || strcmp(how, "return") != 0) abort();
}

/* The calls of one function are counted, from when it is asked for: a test may ask for another one later. */
STANDIN_API bool standin_fails(const char *function) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static char counted[64];
  static unsigned long calls;
  const char *asked = getenv("WEIR_STANDIN_FAIL");
  size_t n = strlen(function);
  if (!asked || strncmp(asked, function, n) != 0 || asked[n] != ':') return false;
  (void)pthread_mutex_lock(&lock);
  if (strncmp(asked, counted, sizeof counted - 1) != 0) {
    (void)snprintf(counted, sizeof counted, "%s", asked);
    calls = 0;
  }
  char *end;
  unsigned long from = strtoul(asked + n + 1, &end, 10);
  bool fails = ++calls == from || (calls > from && *end == '+');
  (void)pthread_mutex_unlock(&lock);
  return fails;
}

static CUresult failure_of(const char *function) {
  if (strstr(function, "Alloc")) return CUDA_ERROR_OUT_OF_MEMORY;
  if (strstr(function, "Launch")) return CUDA_ERROR_LAUNCH_FAILED;
  return CUDA_ERROR_UNKNOWN;
}

/* Whether a thread must have made a context current before it calls the function. */
static bool needs_context(const char *function) {
  static const char *const families[] = {"cuMem",    "cuStream", "cuEvent",      "cuLaunch",
                                         "cuModule", "cuIpc",    "cuGraphLaunch"};
  for (size_t i = 0; i < sizeof families / sizeof *families; i++)
    if (strncmp(function, families[i], strlen(families[i])) == 0) return true;
  return false;
}

CUresult enter(const char *function) {
  if (in_host_function)
    return MISUSE(CUDA_ERROR_NOT_PERMITTED, "%s is called by a host function", function);
  if (!standin.ready) return MISUSE(CUDA_ERROR_NOT_INITIALIZED, "%s comes before cuInit", function);
  if (!current_context && needs_context(function))
    return MISUSE(CUDA_ERROR_INVALID_CONTEXT, "%s: the thread has no context", function);
  if (standin_fails(function)) return failure_of(function);
  return standin.sticky;
}

void leave(const int *guard) {
  (void)guard;
  (void)pthread_mutex_unlock(&standin.lock);
}

bool on_host_function(void) { return in_host_function; }
void set_host_function(bool on) { in_host_function = on; }

CUresult cuGetErrorString(CUresult error, const char **text) {
  static const struct {
    CUresult code;
    const char *text;
  } known[] = {{CUDA_SUCCESS, "no error"},
               {CUDA_ERROR_INVALID_VALUE, "invalid argument"},
               {CUDA_ERROR_OUT_OF_MEMORY, "out of memory"},
               {CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"},
               {CUDA_ERROR_INVALID_CONTEXT, "invalid device context"},
               {CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"},
               {CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"}};
  *text = "an error of the stand-in";
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (known[i].code == error) *text = known[i].text;
  return CUDA_SUCCESS;
}

/* ---- live handles ---- */
static const void **handles;
static size_t n_handles, cap_handles; /* with room for as many again */
static const char gone;

static size_t slot_of(const void *h) {
  size_t at = (size_t)(((uintptr_t)h >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 20);
  for (;; at++) {
    const void *x = handles[at % cap_handles];
    if (!x || x == h) return at % cap_handles;
  }
}

static void grow_handles(void) {
  const void **old = handles;
  size_t n = cap_handles, live = 0;
  for (size_t i = 0; i < n; i++) live += old[i] && old[i] != &gone;
  cap_handles = n == 0 ? 1024 : 4 * live < n ? n : 2 * n;
  handles = calloc(cap_handles, sizeof *handles);
  if (!handles) abort();
  n_handles = 0;
  for (size_t i = 0; i < n; i++)
    if (old[i] && old[i] != &gone) handles[slot_of(old[i])] = old[i], n_handles++;
  free(old);
}

void handle_add(const void *h) {
  if (2 * n_handles >= cap_handles) grow_handles();
  size_t at = slot_of(h);
  if (!handles[at]) n_handles++;
  handles[at] = h;
}

void handle_remove(const void *h) { handles[slot_of(h)] = &gone; }

bool handle_is_live(const void *h) { return h && cap_handles && handles[slot_of(h)] == h; }

/* ---- starting ---- */
static int number_of(const char *name, int otherwise) {
  const char *text = getenv(name);
  return text && text[0] ? atoi(text) : otherwise;
}

CUresult cuInit(unsigned flags) {
  (void)flags;
  if (standin_fails("cuInit")) return CUDA_ERROR_UNKNOWN;
  (void)pthread_mutex_lock(&standin.lock);
  if (!standin.ready) {
    standin.n_gpus = number_of("WEIR_STANDIN_GPUS", 1);
    if (standin.n_gpus > MAX_GPUS) standin.n_gpus = MAX_GPUS;
    standin.peers = number_of("WEIR_STANDIN_PEERS", 1) != 0;
    for (int i = 0; i < standin.n_gpus; i++) standin.gpus[i].index = i;
  }
  standin.ready = standin.n_gpus > 0;
  (void)pthread_mutex_unlock(&standin.lock);
  return standin.ready ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuDriverGetVersion(int *version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

/* ---- GPUs ---- */
static bool is_gpu(CUdevice d) { return d >= 0 && d < standin.n_gpus; }

CUresult cuDeviceGetCount(int *n) {
  ENTER(cuDeviceGetCount);
  *n = standin.n_gpus;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *d, int index) {
  ENTER(cuDeviceGet);
  if (!is_gpu(index)) return CUDA_ERROR_INVALID_DEVICE;
  *d = index;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice d) {
  ENTER(cuDeviceGetName);
  (void)snprintf(name, (size_t)size, "stand-in %d", d);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice d) {
  ENTER(cuDeviceGetUuid);
  memset(uuid, 0, sizeof *uuid);
  uuid->bytes[0] = (char)(d + 1);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice d) {
  ENTER(cuDeviceGetAttribute);
  if (!is_gpu(d)) return MISUSE(CUDA_ERROR_INVALID_DEVICE, "there is no GPU %d", d);
  if (which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) *value = 9;
  else if (which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) *value = 0;
  else if (which == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) *value = 132;
  else if (which == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) *value = 227 << 10;
  else *value = 1; /* it can do whatever is asked about */
  return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *yes, CUdevice a, CUdevice b) {
  ENTER(cuDeviceCanAccessPeer);
  if (!is_gpu(a) || !is_gpu(b))
    return MISUSE(CUDA_ERROR_INVALID_DEVICE, "there is no GPU %d or %d", a, b);
  *yes = a != b && standin.peers;
  return CUDA_SUCCESS;
}

/* NVRTC asks, to keep what it compiles among the driver's files; without an answer it does not. */
STANDIN_API CUresult cuGetExportTable(const void **table, const CUuuid *id) {
  (void)id;
  *table = NULL;
  return CUDA_ERROR_NOT_FOUND;
}

/* ---- contexts ---- */
static bool is_context(CUcontext c) {
  bool primary = c >= standin.gpus && c < standin.gpus + standin.n_gpus;
  bool other = c >= standin.others && c < standin.others + MAX_GPUS;
  return (primary || other) && c->retained > 0;
}

CUcontext current(void) { return current_context; }

CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) {
  ENTER(cuDevicePrimaryCtxRetain);
  if (!is_gpu(d)) return MISUSE(CUDA_ERROR_INVALID_DEVICE, "there is no GPU %d", d);
  standin.gpus[d].retained++;
  *c = &standin.gpus[d];
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice d) {
  ENTER(cuDevicePrimaryCtxRelease);
  if (!is_gpu(d) || standin.gpus[d].retained == 0)
    return MISUSE(CUDA_ERROR_INVALID_CONTEXT, "the context of GPU %d is not held", d);
  CUcontext c = &standin.gpus[d];
  if (--c->retained > 0) return CUDA_SUCCESS;
  memset(c->peer, 0, sizeof c->peer);
  uint32_t streams = 0, blocks = memory_live(c);
  for (CUstream s = standin.streams; s; s = s->next)
    streams += s->gpu == c && !s->destroyed && s != c->null_stream;
  if (streams || blocks)
    return MISUSE(CUDA_ERROR_INVALID_CONTEXT,
                  "the context of GPU %d is given back with %u streams and %u blocks of memory", d,
                  streams, blocks);
  return CUDA_SUCCESS;
}

/* A context beside the primary one, which becomes current. In the form that programs of older
 * versions call: newer headers have another. */
STANDIN_API CUresult cuCtxCreate_v2(CUcontext *c, unsigned flags, CUdevice d);
CUresult cuCtxCreate_v2(CUcontext *c, unsigned flags, CUdevice d) {
  ENTER(cuCtxCreate);
  int i = 0;
  (void)flags;
  while (i < MAX_GPUS && standin.others[i].retained) i++;
  if (!is_gpu(d) || i == MAX_GPUS) return CUDA_ERROR_INVALID_DEVICE;
  standin.others[i].index = d;
  standin.others[i].retained = 1;
  current_context = *c = &standin.others[i];
  return CUDA_SUCCESS;
}

CUresult cuCtxDestroy(CUcontext c) {
  ENTER(cuCtxDestroy);
  if (!is_context(c) || c < standin.others || c >= standin.others + MAX_GPUS)
    return MISUSE(CUDA_ERROR_INVALID_CONTEXT, "this is no context that was made");
  if (memory_live(c)) return MISUSE(CUDA_ERROR_INVALID_CONTEXT, "memory of the context is in use");
  c->retained = 0;
  if (current_context == c) current_context = NULL;
  return CUDA_SUCCESS;
}

/* A driver that has given up tells so here too, but the context becomes current. */
CUresult cuCtxSetCurrent(CUcontext c) {
  (void)pthread_mutex_lock(&standin.lock);
  if (standin.sticky != CUDA_SUCCESS) current_context = c;
  (void)pthread_mutex_unlock(&standin.lock);
  ENTER(cuCtxSetCurrent);
  if (c && !is_context(c)) return MISUSE(CUDA_ERROR_INVALID_CONTEXT, "this is no context");
  current_context = c;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *c) {
  ENTER(cuCtxGetCurrent);
  *c = current_context;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *d) {
  ENTER(cuCtxGetDevice);
  if (!current_context) return CUDA_ERROR_INVALID_CONTEXT;
  *d = current_context->index;
  return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext other, unsigned flags) {
  ENTER(cuCtxEnablePeerAccess);
  (void)flags;
  if (!is_context(other) || !current_context || other == current_context)
    return MISUSE(CUDA_ERROR_INVALID_CONTEXT, "peer access to what is no other context");
  if (!standin.peers) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  if (current_context->peer[other->index]) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  current_context->peer[other->index] = true;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *most) {
  ENTER(cuCtxGetStreamPriorityRange);
  *least = 0;
  *most = -5;
  return CUDA_SUCCESS;
}
