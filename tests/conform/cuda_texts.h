/* Compiles, with NVRTC where it is installed, every text that the emulator has collected. */
#ifndef WEIR_TESTS_CONFORM_CUDA_TEXTS_H
#define WEIR_TESTS_CONFORM_CUDA_TEXTS_H

#include "conform/cuda_emulator.h"
#include "conform/cuda_nvrtc.h"
#include "test.h"

enum { PROGRAM = 64 }; /* texts joined into one program */

static void compile_program(const cuda_compiler *c, uint32_t begin, uint32_t end) {
  const char *options[] = {"--gpu-architecture=compute_90", "--std=c++17", "--disable-warnings",
                           "--minimal", "--Ofast-compile=max"};
  void *joined = NULL;
  size_t bytes = 1;
  int major = 0, minor;
  for (uint32_t i = begin; i < end; i++) bytes += strlen(emulator_kernels[i].source);
  char *text = malloc(bytes), *at = text;
  check(text != NULL);
  for (uint32_t i = begin; i < end; i++) at = stpcpy(at, emulator_kernels[i].source);
  check(c->nvrtcCreateProgram(&joined, text, "kernels.cu", 0, NULL, NULL) == 0);
  check(c->nvrtcVersion(&major, &minor) == 0);
  if (!EXPECT_INT(c->nvrtcCompileProgram(joined, major >= 13 ? 5 : 3, options), 0)) {
    char log[1 << 14] = "";
    size_t size = 0;
    if (c->nvrtcGetProgramLogSize(joined, &size) == 0 && size < sizeof log)
      (void)c->nvrtcGetProgramLog(joined, log);
    fprintf(stderr, "%s\n", log);
  }
  (void)c->nvrtcDestroyProgram(&joined);
  free(text);
}

static void compile_texts(void) {
  cuda_compiler c;
  if (!nvrtc_open(&c)) {
    printf("skipped: there is no NVRTC to compile the texts with\n");
    return;
  }
  for (uint32_t i = 0; i < emulator_n; i += PROGRAM)
    compile_program(&c, i, i + PROGRAM < emulator_n ? i + PROGRAM : emulator_n);
}

#endif
