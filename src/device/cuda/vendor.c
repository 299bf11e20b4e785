#include "device/cuda/vendor.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cuda_vendor vendor;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static status loaded_status;
static char loaded_message[1024];

/* ---- finding ---- */
#define TEXT_OF(x) #x
#define SYMBOL_TEXT(name) TEXT_OF(name) /* after <cuda.h> has mapped it to its newest form */

/* Where toolkits are installed when the loader does not know them. */
static const char *const folders[] = {"", "/usr/local/cuda/lib64/", "/usr/local/cuda/lib/",
                                      "/opt/cuda/lib64/"};

void *cuda_library_open(const char *const *names, size_t n) {
  for (size_t i = 0; i < n; i++) {
    for (size_t k = 0; k < sizeof folders / sizeof *folders; k++) {
      char path[256];
      (void)snprintf(path, sizeof path, "%s%s", folders[k], names[i]);
      void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
      if (library) return library;
    }
  }
  return NULL;
}

/* POSIX promises that a function's address fits an object pointer. */
status cuda_library_find(void *library, const char *which, const cuda_symbol *symbols, size_t n,
                         void *functions) {
  for (size_t i = 0; i < n; i++) {
    void *address = dlsym(library, symbols[i].name);
    if (!address)
      return fail(STATUS_UNAVAILABLE, "cuda: %s has no %s: it is too old", which, symbols[i].name);
    memcpy((char *)functions + symbols[i].offset, &address, sizeof address);
  }
  return STATUS_OK;
}

#define SYMBOL(name) {SYMBOL_TEXT(name), offsetof(cuda_vendor, name)},
static const cuda_symbol driver_symbols[] = {
#include "device/cuda/driver.def"
};
static const cuda_symbol nvrtc_symbols[] = {
#include "device/cuda/nvrtc.def"
};
static const cuda_symbol cublaslt_symbols[] = {
#include "device/cuda/cublaslt.def"
};
#undef SYMBOL
#define COUNT(list) (sizeof(list) / sizeof *(list))

static status load_driver(void) {
  static const char *const names[] = {"libcuda.so.1"};
  void *library = cuda_library_open(names, COUNT(names));
  if (!library)
    return fail(STATUS_UNAVAILABLE, "cuda: cannot load %s: this machine has no NVIDIA driver",
                names[0]);
  return cuda_library_find(library, names[0], driver_symbols, COUNT(driver_symbols), &vendor);
}

static status load_nvrtc(void) {
  static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
  void *library = cuda_library_open(names, COUNT(names));
  if (!library)
    return fail(STATUS_UNAVAILABLE,
                "cuda: cannot load libnvrtc.so, the run-time compiler: install the CUDA toolkit, "
                "or name its folder in LD_LIBRARY_PATH");
  return cuda_library_find(library, "libnvrtc.so", nvrtc_symbols, COUNT(nvrtc_symbols), &vendor);
}

static status load_cublaslt(void) {
  static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
  void *library = cuda_library_open(names, COUNT(names));
  if (!library)
    return fail(STATUS_UNAVAILABLE,
                "cuda: cannot load libcublasLt.so, the matrix products: install the CUDA toolkit, "
                "or name its folder in LD_LIBRARY_PATH");
  return cuda_library_find(library, "libcublasLt.so", cublaslt_symbols, COUNT(cublaslt_symbols),
                           &vendor);
}

/* Asks for more hardware queues than the default of 8: streams that share a queue wait for one another. */
static void ask_for_queues(void) { (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); }

static status load_all(void) {
  ask_for_queues();
  TRY(load_driver());
  CUresult r = vendor.cuInit(0);
  if (r != CUDA_SUCCESS) {
    const char *text = NULL;
    (void)vendor.cuGetErrorString(r, &text);
    return fail(STATUS_UNAVAILABLE, "cuda: the driver finds no GPU it can use: %s",
                text ? text : "unknown error");
  }
  TRY(load_nvrtc());
  return load_cublaslt();
}

/* Keeps the message for every later caller, on any thread. */
static void load_once(void) {
  loaded_status = load_all();
  (void)snprintf(loaded_message, sizeof loaded_message, "%s", status_message());
}

status cuda_vendor_load(const cuda_vendor **result) {
  check(pthread_once(&once, load_once) == 0);
  if (loaded_status != STATUS_OK) return fail(loaded_status, "%s", loaded_message);
  *result = &vendor;
  return STATUS_OK;
}

/* ---- errors ---- */
/* After these errors CUDA refuses everything, and gives the process no other context, not even after a reset. */
static bool is_last(CUresult r) {
  static const CUresult last[] = {CUDA_ERROR_ILLEGAL_ADDRESS,     CUDA_ERROR_LAUNCH_FAILED,
                                  CUDA_ERROR_LAUNCH_TIMEOUT,      CUDA_ERROR_HARDWARE_STACK_ERROR,
                                  CUDA_ERROR_ILLEGAL_INSTRUCTION, CUDA_ERROR_MISALIGNED_ADDRESS,
                                  CUDA_ERROR_INVALID_PC,          CUDA_ERROR_ASSERT,
                                  CUDA_ERROR_ECC_UNCORRECTABLE};
  for (size_t i = 0; i < COUNT(last); i++)
    if (last[i] == r) return true;
  return false;
}

status cuda_try(CUresult r, const char *what) {
  if (r == CUDA_SUCCESS) return STATUS_OK;
  const char *text = NULL;
  (void)vendor.cuGetErrorString(r, &text);
  status st = r == CUDA_ERROR_OUT_OF_MEMORY ? STATUS_OUT_OF_MEMORY : STATUS_SYSTEM;
  return fail(st, "cuda: %s: %s (%d)%s", what, text ? text : "unknown error", (int)r,
              is_last(r) ? "; only a new process can use the GPU again" : "");
}

status cuda_try_lt(cublasStatus_t r, const char *what) {
  if (r == CUBLAS_STATUS_SUCCESS) return STATUS_OK;
  return fail(STATUS_SYSTEM, "cuda: %s: %s", what, vendor.cublasLtGetStatusString(r));
}

/* ---- for the kernels, which know no header of CUDA ---- */
static int compiler_version(int *major, int *minor) {
  return (int)vendor.nvrtcVersion(major, minor);
}
static int compiler_create(void **program, const char *text, const char *name, int n_headers,
                           const char *const *headers, const char *const *include_names) {
  return (int)vendor.nvrtcCreateProgram((nvrtcProgram *)program, text, name, n_headers, headers,
                                        include_names);
}
static int compiler_destroy(void **program) {
  return (int)vendor.nvrtcDestroyProgram((nvrtcProgram *)program);
}
static int compiler_compile(void *program, int n, const char *const *options) {
  return (int)vendor.nvrtcCompileProgram(program, n, options);
}
static int compiler_size(void *program, size_t *size_bytes) {
  return (int)vendor.nvrtcGetCUBINSize(program, size_bytes);
}
static int compiler_get(void *program, char *cubin) {
  return (int)vendor.nvrtcGetCUBIN(program, cubin);
}
static int compiler_log_size(void *program, size_t *size_bytes) {
  return (int)vendor.nvrtcGetProgramLogSize(program, size_bytes);
}
static int compiler_log(void *program, char *log) {
  return (int)vendor.nvrtcGetProgramLog(program, log);
}
static int module_load(void **module, const void *image) {
  return (int)vendor.cuModuleLoadData((CUmodule *)module, image);
}
static int module_unload(void *module) { return (int)vendor.cuModuleUnload(module); }
static int module_function(void **function, void *module, const char *name) {
  return (int)vendor.cuModuleGetFunction((CUfunction *)function, module, name);
}
static int function_attribute(void *function, int attribute, int value) {
  return (int)vendor.cuFuncSetAttribute(function, (CUfunction_attribute)attribute, value);
}

const cuda_compiler *cuda_vendor_compiler(void) {
  static const cuda_compiler compiler = {
      .nvrtcVersion = compiler_version,
      .nvrtcCreateProgram = compiler_create,
      .nvrtcDestroyProgram = compiler_destroy,
      .nvrtcCompileProgram = compiler_compile,
      .nvrtcGetCUBINSize = compiler_size,
      .nvrtcGetCUBIN = compiler_get,
      .nvrtcGetProgramLogSize = compiler_log_size,
      .nvrtcGetProgramLog = compiler_log,
      .cuModuleLoadData = module_load,
      .cuModuleUnload = module_unload,
      .cuModuleGetFunction = module_function,
      .cuFuncSetAttribute = function_attribute,
  };
  return &compiler;
}
