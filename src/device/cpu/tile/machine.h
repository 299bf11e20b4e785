/* A tile program while it runs: shared by what walks over tiles (run.c) and what is done in one (instr.c). */
#ifndef WEIR_DEVICE_CPU_TILE_MACHINE_H
#define WEIR_DEVICE_CPU_TILE_MACHINE_H

#include "device/cpu/tile/program.h"

typedef struct tile_machine {
  const tile_program *p;
  char *const *places;
  char **values;      /* where each value is now */
  char **views;       /* where each view is at the outer position */
  char *temporary[2]; /* elements on their way */
  char *accumulators;
  int64_t index[TILE_LOOPS]; /* of the outer loops */
  int64_t row, column;       /* where the tile begins */
  int64_t rows, columns;     /* how large it is */
  const cpu_vector_loops *loops;
  /* The next tile, fetched line by line while this one is computed. */
  int64_t next_row, next_column; /* next_row < 0: there is none */
  uint32_t ahead_view;
  int64_t ahead_row, ahead_byte;
} tile_machine;

static inline cpu_element *tile_accumulator(const tile_machine *m, uint32_t k) {
  return (cpu_element *)(void *)m->accumulators + (int64_t)k * m->p->width;
}

/* The instructions that the tile needs. */
void tile_run_code(tile_machine *m, const tile_code *code);

#endif
