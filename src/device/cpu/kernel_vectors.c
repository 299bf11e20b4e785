/* Which level of the instruction set the loops use. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/kernel_internal.h"

extern const cpu_vector_loops cpu_vectors_baseline;
#ifdef CPU_HAS_LEVELS
extern const cpu_vector_loops cpu_vectors_avx2, cpu_vectors_avx512;
#endif

/* The best first. */
enum { MAX_LEVELS = 3 };

static uint32_t list_levels(const cpu_vector_loops *levels[MAX_LEVELS]) {
  uint32_t n = 0;
#ifdef CPU_HAS_LEVELS
  bool fma = __builtin_cpu_supports("fma");
  if (fma && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    levels[n++] = &cpu_vectors_avx512;
  if (fma && __builtin_cpu_supports("avx2")) levels[n++] = &cpu_vectors_avx2;
#endif
  levels[n++] = &cpu_vectors_baseline;
  return n;
}

/* NULL: the processor has no such level. */
static const cpu_vector_loops *find_level(const char *name) {
  const cpu_vector_loops *levels[MAX_LEVELS];
  uint32_t n = list_levels(levels);
  for (uint32_t i = 0; i < n; i++)
    if (!name || strcmp(levels[i]->name, name) == 0) return levels[i];
  return NULL;
}

static _Atomic(const cpu_vector_loops *) chosen;

const cpu_vector_loops *cpu_vectors(void) {
  const cpu_vector_loops *v = atomic_load_explicit(&chosen, memory_order_relaxed);
  if (v) return v;
  v = find_level(getenv("WEIR_CPU_ISA"));
  if (!v) v = find_level(NULL);
  atomic_store_explicit(&chosen, v, memory_order_relaxed);
  return v;
}

bool cpu_vectors_choose(const char *name) {
  const cpu_vector_loops *v = find_level(name);
  if (v) atomic_store_explicit(&chosen, v, memory_order_relaxed);
  return v != NULL;
}
