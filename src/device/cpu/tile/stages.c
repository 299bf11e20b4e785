#include "device/cpu/tile/stages.h"

#include "device/cpu/tile/body.h"

static cpu_stage nth(const cpu_kernel *k, uint32_t i, char *const *starts, char *scratch) {
  const tile_stages *s = (const tile_stages *)k;
  const tile_stage *stage = &s->list[i];
  char **places = (char **)(void *)scratch, **own = (char **)(void *)(scratch + s->starts_at);
  for (uint32_t g = 0; i == 0 && g < s->n_given; g++) places[g] = starts[g];
  for (uint32_t v = 0; i == 0 && v < s->n_own; v++) places[s->n_given + v] = scratch + s->own[v];
  if (!stage->places) return (cpu_stage){stage->kernel, places, s->inner_at};
  for (uint32_t x = 0; x < stage->n_starts; x++)
    own[x] = stage->places[x] == TILE_NO_PLACE ? NULL : places[stage->places[x]];
  return (cpu_stage){stage->kernel, own, s->inner_at};
}

/* Nothing had to be done. */
static status run_nothing(const cpu_kernel *k, char *const *starts, char *scratch) {
  (void)k, (void)starts, (void)scratch;
  return STATUS_OK;
}

tile_stages *tile_stages_new(arena *memory, uint32_t most, const char *name) {
  tile_stages *s = ARENA_NEW(memory, tile_stages);
  s->head = (cpu_kernel){.run = run_nothing, .stage = nth, .name = name};
  s->list = ARENA_ARRAY(memory, most + (size_t)1, tile_stage);
  return s;
}

void tile_stages_reset(tile_stages *s, uint32_t n_given, uint32_t n_own, uint32_t n_starts) {
  s->head.n_stages = s->n_own = 0;
  s->head.scratch_bytes = 0;
  s->n_given = n_given;
  s->starts_at = tile_aligned((n_given + (size_t)n_own) * sizeof(char *));
  s->inner_at = s->starts_at + tile_aligned(n_starts * sizeof(char *));
}

void tile_stages_add(tile_stages *s, tile_stage stage) {
  size_t bytes = cpu_kernel_scratch_bytes(stage.kernel);
  check(stage.kernel->n_stages == 0);
  s->list[s->head.n_stages++] = stage;
  if (bytes > s->head.scratch_bytes) s->head.scratch_bytes = bytes;
}

void tile_stages_end(tile_stages *s) { s->head.scratch_bytes += s->inner_at; }
