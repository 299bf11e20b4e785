/* Generated kernels on the CPU: collects their texts, compiles all of them into one library with the
 * system's C compiler (cuda_shim.h stands in for CUDA), and runs launches. */
#ifndef WEIR_TESTS_CONFORM_CUDA_EMULATOR_H
#define WEIR_TESTS_CONFORM_CUDA_EMULATOR_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codegen/codegen.h"

typedef void emulator_call(void *const *params);
typedef void emulator_launch(emulator_call *call, void *const *params, const unsigned grid[3],
                             unsigned threads, int barriers);

typedef struct emulated {
  char *entry, *source;
  emulator_call *call;
  emulator_launch *launch;
  bool barriers;
} emulated;

enum { EMULATOR_BATCH = 150, EMULATOR_POINTERS = 128 }; /* kernels per library; of a launch */

static emulated *emulator_kernels;
static uint32_t emulator_n, emulator_cap;
static char emulator_folder[] = "/tmp/weir-kernels-XXXXXX";

static emulated *emulator_find(const char *entry) {
  for (uint32_t i = emulator_n; i-- > 0;)
    if (strcmp(emulator_kernels[i].entry, entry) == 0) return &emulator_kernels[i];
  return NULL;
}

static void emulator_add(const cg_launch *l) {
  if (emulator_find(l->entry)) return;
  if (emulator_n == emulator_cap) {
    emulator_cap = emulator_cap ? 2 * emulator_cap : 256;
    emulator_kernels = realloc(emulator_kernels, emulator_cap * sizeof *emulator_kernels);
    check(emulator_kernels != NULL);
  }
  emulated *k = &emulator_kernels[emulator_n++];
  *k = (emulated){.entry = strdup(l->entry), .source = strdup(l->source)};
  k->barriers = strstr(l->source, "__syncthreads();") || strstr(l->source, "__shfl_xor_sync(WEIR");
}

/* The first kernel brings what all share; of the others the guard skips it, so only theirs is read. */
static void emulator_write(FILE *f, uint32_t begin, uint32_t end) {
  fprintf(f, "#include \"cuda_shim.h\"\n");
  for (uint32_t i = begin; i < end; i++) {
    const emulated *k = &emulator_kernels[i];
    fprintf(f, "%s\nvoid call_%s(void *const *p);\n", k->source, k->entry);
    fprintf(f, "void call_%s(void *const *p) {\n", k->entry);
    fprintf(f, "  %s(*(const %s_p *)p[0], *(const %s_n *)p[1]);\n}\n", k->entry, k->entry,
            k->entry);
  }
}

static bool emulator_build(uint32_t begin, uint32_t end) {
  char path[256], command[1024];
  (void)snprintf(path, sizeof path, "%s/k%u.c", emulator_folder, begin);
  FILE *f = fopen(path, "w");
  if (!f) return false;
  emulator_write(f, begin, end);
  if (fclose(f) != 0) return false;
  (void)snprintf(
      command, sizeof command,
      "cc -std=gnu17 -O1 -w -ffp-contract=off -fwrapv -fno-strict-aliasing -shared -fPIC "
      "-Itests/standin -o %s/k%u.so %s -lm",
      emulator_folder, begin, path);
  if (system(command) != 0) return false;
  (void)snprintf(path, sizeof path, "%s/k%u.so", emulator_folder, begin);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) fprintf(stderr, "%s\n", dlerror());
  for (uint32_t i = begin; library && i < end; i++) {
    emulated *k = &emulator_kernels[i];
    (void)snprintf(path, sizeof path, "call_%s", k->entry);
    *(void **)&k->call = dlsym(library, path);
    *(void **)&k->launch = dlsym(library, "shim_launch");
  }
  return library != NULL;
}

/* Compiles all kernels added so far that have not been. False: something failed, and stderr says what. */
static bool emulator_compile(void) {
  char command[256];
  bool ok = mkdtemp(emulator_folder) != NULL;
  for (uint32_t i = 0; ok && i < emulator_n; i += EMULATOR_BATCH)
    ok = emulator_build(i, i + EMULATOR_BATCH < emulator_n ? i + EMULATOR_BATCH : emulator_n);
  (void)snprintf(command, sizeof command, "rm -rf %s", emulator_folder);
  if (!getenv("WEIR_KEEP_KERNELS") && system(command) != 0) ok = false;
  return ok;
}

/* Of the run. */
static uint64_t emulator_seed;

/* starts: of the task's result and operands, then of further results. False: the kernel was never added. */
static bool emulator_run(const cg_kernel *k, char *const *starts, void *scratch, cg_error *error) {
  for (uint32_t i = 0; i < k->n_launches; i++) {
    const cg_launch *l = &k->launches[i];
    const emulated *e = emulator_find(l->entry);
    char *pointers[EMULATOR_POINTERS] = {NULL};
    if (!e || !e->call) return false;
    check(l->n_pointers <= EMULATOR_POINTERS);
    for (uint32_t p = 0; p < l->n_pointers; p++) {
      uint32_t start = l->pointers[p].start;
      char *base = start == CG_START_ERROR     ? (char *)error
                   : start == CG_START_SCRATCH ? scratch
                   : start == CG_START_SEED    ? (char *)&emulator_seed
                                               : starts[start];
      pointers[p] = base + l->pointers[p].offset_bytes;
    }
    if (l->moves && pointers[0] == pointers[1]) continue;
    void *params[] = {pointers, (void *)(uintptr_t)l->numbers};
    e->launch(e->call, params, l->grid, l->block, e->barriers);
  }
  return true;
}

#endif
