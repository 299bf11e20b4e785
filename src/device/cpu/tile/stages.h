/* Kernels of several stages: what a body becomes that is more than one tile program.
 *
 * Places. The stages of a body read and write what its task has in memory, and values of their own, which are in
 * scratch memory. While it runs, a table in scratch holds the addresses of both: those of the task first
 * (cpu_kernel_starts), then its own. */
#ifndef WEIR_DEVICE_CPU_TILE_STAGES_H
#define WEIR_DEVICE_CPU_TILE_STAGES_H

#include "device/cpu/kernel_internal.h"

typedef struct tile_stage {
  const cpu_kernel *kernel;
  uint32_t n_starts;
  const uint32_t
      *places; /* of its starts, in the table, or TILE_NO_PLACE; NULL: they are the table */
} tile_stage;

typedef struct tile_stages {
  cpu_kernel head;
  tile_stage *list;
  uint32_t n_given, n_own;
  size_t *own;      /* where own values are in scratch */
  size_t starts_at; /* of the stage that runs */
  size_t inner_at;  /* the end of own values, where the scratch of stages begins */
} tile_stages;

static inline size_t tile_aligned(size_t bytes) {
  return (bytes + CPU_SCRATCH_ALIGN - 1) & ~(size_t)(CPU_SCRATCH_ALIGN - 1);
}

/* `most`: stages. */
tile_stages *tile_stages_new(arena *memory, uint32_t most, const char *name);
/* None yet; places for `n_own` values at most, and for `n_starts` starts of a stage. */
void tile_stages_reset(tile_stages *s, uint32_t n_given, uint32_t n_own, uint32_t n_starts);
void tile_stages_add(tile_stages *s, tile_stage stage);
/* After the last stage and the last value. */
void tile_stages_end(tile_stages *s);

#endif
