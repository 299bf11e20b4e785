/* NVRTC, where it is installed: compiles texts without a GPU. */
#ifndef WEIR_TESTS_CONFORM_CUDA_NVRTC_H
#define WEIR_TESTS_CONFORM_CUDA_NVRTC_H

#include <dlfcn.h>

#include "device/cuda/kernel.h"

/* False: it is not there. What needs a driver stays NULL. */
static bool nvrtc_open(cuda_compiler *c) {
  static const char *const names[] = {"libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12",
                                      "/usr/local/cuda/lib64/libnvrtc.so"};
  void *library = NULL;
  for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
    library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  if (!library) return false;
  *c = (cuda_compiler){.cuModuleLoadData = NULL};
#define FUNCTION(name) *(void **)&c->name = dlsym(library, #name)
  FUNCTION(nvrtcVersion);
  FUNCTION(nvrtcCreateProgram);
  FUNCTION(nvrtcDestroyProgram);
  FUNCTION(nvrtcCompileProgram);
  FUNCTION(nvrtcGetCUBINSize);
  FUNCTION(nvrtcGetCUBIN);
  FUNCTION(nvrtcGetProgramLogSize);
  FUNCTION(nvrtcGetProgramLog);
#undef FUNCTION
  return c->nvrtcVersion && c->nvrtcCreateProgram && c->nvrtcDestroyProgram &&
         c->nvrtcCompileProgram && c->nvrtcGetCUBINSize && c->nvrtcGetCUBIN &&
         c->nvrtcGetProgramLogSize && c->nvrtcGetProgramLog;
}

#endif
