/* Modules and kernels. A module is what the stand-in for NVRTC makes: a head, then a shared library with,
 * for every kernel, call_NAME, sizes_NAME and barriers_NAME, and shim_launch for all. If kernels are to be
 * skipped, it is any machine code, and its kernels do nothing. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "standin/driver.h"
#include "standin/image.h"

struct CUfunc_st {
  CUfunction next;
  CUmodule module;
  char name[256];
  image_call *call;
  image_launch *launch;
  const unsigned *sizes; /* of the parameters, ended by 0 */
  int barriers;
  unsigned shared_bytes; /* that launches may ask for */
};

struct CUmod_st {
  CUcontext gpu;
  void *library; /* NULL: of kernels that are skipped */
  CUfunction functions;
};

/* ---- modules ---- */
static void *open_image(const image_head *head) {
  const char *folder = getenv("TMPDIR");
  char path[512];
  (void)snprintf(path, sizeof path, "%s/weir-standin-XXXXXX", folder ? folder : "/tmp");
  int file = mkstemp(path);
  if (file < 0) return NULL;
  const char *bytes = (const char *)(head + 1);
  size_t left = (size_t)head->size_bytes;
  while (left > 0) {
    ssize_t n = write(file, bytes, left);
    if (n <= 0) break;
    bytes += n;
    left -= (size_t)n;
  }
  (void)close(file);
  void *library = left == 0 ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  (void)unlink(path);
  return library;
}

static bool skips_kernels(void) {
  const char *text = getenv("WEIR_STANDIN_KERNELS");
  return text && strcmp(text, "skip") == 0;
}

CUresult cuModuleLoadData(CUmodule *m, const void *image) {
  ENTER(cuModuleLoadData);
  if (random_draw() % 2) settle_holding();
  const image_head *head = image;
  if (!current()) return MISUSE(CUDA_ERROR_INVALID_CONTEXT, "a module without a context");
  bool known = memcmp(head->magic, image_magic, sizeof head->magic) == 0, skips = skips_kernels();
  void *library = known && !skips ? open_image(head) : NULL;
  if (!library && !skips) return CUDA_ERROR_INVALID_IMAGE;
  *m = calloc(1, sizeof **m);
  if (!*m) abort();
  (*m)->gpu = current();
  (*m)->library = library;
  handle_add(*m);
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule m) {
  ENTER(cuModuleUnload);
  if (!handle_is_live(m)) return MISUSE(CUDA_ERROR_INVALID_HANDLE, "this is no module");
  handle_remove(m);
  for (CUfunction f = m->functions, next; f; f = next) {
    next = f->next;
    handle_remove(f);
    free(f);
  }
  if (m->library) (void)dlclose(m->library);
  free(m);
  return CUDA_SUCCESS;
}

static void *symbol(CUmodule m, const char *prefix, const char *name) {
  char text[512];
  (void)snprintf(text, sizeof text, "%s%s", prefix, name);
  return dlsym(m->library, text);
}

static void skip_kernel(image_call *call, void *const *params, const unsigned grid[3],
                        unsigned threads, int barriers) {
  (void)call, (void)params, (void)grid, (void)threads, (void)barriers;
}

/* POSIX promises that a function's address fits an object pointer. */
static bool find_kernel(CUmodule m, const char *name, CUfunction f) {
  static const unsigned no_sizes[] = {0};
  if (!m->library) {
    f->launch = skip_kernel;
    f->sizes = no_sizes;
    return true;
  }
  void *call = symbol(m, "call_", name), *launch = symbol(m, "shim_", "launch");
  const int *barriers = symbol(m, "barriers_", name);
  f->sizes = symbol(m, "sizes_", name);
  if (!call || !launch || !f->sizes || !barriers) return false;
  memcpy(&f->call, &call, sizeof call);
  memcpy(&f->launch, &launch, sizeof launch);
  f->barriers = *barriers;
  return true;
}

CUresult cuModuleGetFunction(CUfunction *result, CUmodule m, const char *name) {
  ENTER(cuModuleGetFunction);
  if (!handle_is_live(m)) return MISUSE(CUDA_ERROR_INVALID_HANDLE, "this is no module");
  CUfunction f = calloc(1, sizeof *f);
  if (!f) abort();
  if (strlen(name) >= sizeof f->name || !find_kernel(m, name, f)) {
    free(f);
    return CUDA_ERROR_NOT_FOUND;
  }
  (void)snprintf(f->name, sizeof f->name, "%s", name);
  f->module = m;
  f->next = m->functions;
  m->functions = f;
  handle_add(f);
  *result = f;
  return CUDA_SUCCESS;
}

/* Without asking, and at most, as on an H200. */
enum { LEAST_SHARED = 48 << 10, MOST_SHARED = 227 << 10 };

CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute which, int value) {
  ENTER(cuFuncSetAttribute);
  if (!handle_is_live(f)) return CUDA_ERROR_INVALID_HANDLE;
  if (which == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    if (value < 0 || value > MOST_SHARED) return CUDA_ERROR_INVALID_VALUE;
    f->shared_bytes = (unsigned)value;
  }
  return CUDA_SUCCESS;
}

/* ---- launches ---- */
typedef struct kernel_args {
  CUfunction function;
  unsigned grid[3], threads;
  size_t n_params;
  void *params[]; /* then what they point to */
} kernel_args;

static void run_kernel(op *o) {
  kernel_args *a = o->args;
  a->function->launch(a->function->call, a->params, a->grid, a->threads, a->function->barriers);
}

static size_t padded(size_t size) { return (size + 15) / 16 * 16; }

/* Whatever looks like an address of a block is one the kernel uses. */
static void touch_params(op *o, const char *param, size_t size) {
  for (size_t at = 0; at + sizeof(CUdeviceptr) <= size; at += sizeof(CUdeviceptr)) {
    CUdeviceptr p;
    memcpy(&p, param + at, sizeof p);
    if (block_at(p)) op_touch(o, p, 1);
  }
}

static op *make_launch(CUfunction f, CUstream s, void **params) {
  size_t n = 0, bytes = sizeof(kernel_args);
  for (; f->sizes[n]; n++) bytes += sizeof(void *) + padded(f->sizes[n]);
  op *o = op_new(f->name, s, bytes + 16);
  kernel_args *a = o->args;
  a->function = f;
  a->n_params = n;
  char *at = (char *)o->args + padded(sizeof *a + n * sizeof(void *));
  for (size_t i = 0; i < n; i++) {
    memcpy(at, params[i], f->sizes[i]);
    a->params[i] = at;
    touch_params(o, at, f->sizes[i]);
    at += padded(f->sizes[i]);
  }
  o->run = run_kernel;
  o->is_kernel = true;
  return o;
}

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared_bytes, CUstream s, void **params,
                        void **extra) {
  ENTER(cuLaunchKernel);
  if (!handle_is_live(f)) return MISUSE(CUDA_ERROR_INVALID_HANDLE, "this is no kernel");
  if (!stream_is_good(&s)) return CUDA_ERROR_INVALID_HANDLE;
  if (f->module->gpu != s->gpu || s->gpu != current())
    return MISUSE(CUDA_ERROR_INVALID_HANDLE, "%s: the kernel, the stream and the context differ",
                  f->name);
  if (!gx || !gy || !gz || !bx || bx > 1024 || gy > 65535 || gz > 65535)
    return MISUSE(CUDA_ERROR_INVALID_VALUE, "%s: a grid of %u x %u x %u blocks of %u", f->name, gx,
                  gy, gz, bx);
  if (shared_bytes > LEAST_SHARED && shared_bytes > f->shared_bytes)
    return MISUSE(CUDA_ERROR_INVALID_VALUE,
                  "%s: %u bytes of shared memory, which it did not ask for", f->name, shared_bytes);
  if (by != 1 || bz != 1 || extra)
    return MISUSE(CUDA_ERROR_NOT_SUPPORTED, "%s: a form that is not modelled", f->name);
  op *o = make_launch(f, s, params);
  kernel_args *a = o->args;
  a->grid[0] = gx;
  a->grid[1] = gy;
  a->grid[2] = gz;
  a->threads = bx;
  return submit(s, o);
}
