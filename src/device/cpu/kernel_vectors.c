/* Which level of the instruction set the loops use. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/kernel_internal.h"

extern const cpu_vector_loops cpu_vectors_baseline;

static bool always(void) { return true; }

#ifdef CPU_HAS_LEVELS
extern const cpu_vector_loops cpu_vectors_avx2, cpu_vectors_avx512;

static bool has_avx2(void) {
  return __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2");
}

static bool has_avx512(void) {
  return __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

#ifdef CPU_HAS_BF16_PAIRS
static bool has_avx512_bf16(void) { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }
#endif
#endif

/* The best first. */
static const cpu_level levels[] = {
#ifdef CPU_HAS_LEVELS
#ifdef CPU_HAS_BF16_PAIRS
    {"avx512_bf16", &cpu_vectors_avx512, has_avx512_bf16},
#endif
    {"avx512", &cpu_vectors_avx512, has_avx512},
    {"avx2", &cpu_vectors_avx2, has_avx2},
#endif
    {"baseline", &cpu_vectors_baseline, always},
};

/* Without a name the best one. NULL: the processor has no such level. */
static const cpu_level *find_level(const char *name) {
  for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
    if ((!name || strcmp(levels[i].name, name) == 0) && levels[i].is_here()) return &levels[i];
  return NULL;
}

static _Atomic(const cpu_level *) chosen;

const cpu_level *cpu_level_chosen(void) {
  const cpu_level *l = atomic_load_explicit(&chosen, memory_order_relaxed);
  if (l) return l;
  l = find_level(getenv("WEIR_CPU_ISA"));
  if (!l) l = find_level(NULL);
  atomic_store_explicit(&chosen, l, memory_order_relaxed);
  return l;
}

bool cpu_vectors_choose(const char *name) {
  const cpu_level *l = find_level(name);
  if (l) atomic_store_explicit(&chosen, l, memory_order_relaxed);
  return l != NULL;
}
