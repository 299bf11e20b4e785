/* Sets of streams or threads, changed by many threads at once. Setting and clearing a bit is
 * how something passes from one thread to another: the thread that clears a bit that was set has it. */
#ifndef WEIR_DEVICE_CPU_DEVICE_BITS_H
#define WEIR_DEVICE_CPU_DEVICE_BITS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/device.h"

typedef struct cpu_bits {
  _Atomic uint64_t *words;
  _Atomic uint32_t n; /* words that may have members; it only grows */
} cpu_bits;

static inline uint32_t cpu_bits_words(uint32_t members) { return (members + 63) / 64; }

/* `words` are zero, and stay the caller's. */
static inline void cpu_bits_init(cpu_bits *b, _Atomic uint64_t *words, uint32_t members) {
  b->words = words;
  atomic_init(&b->n, cpu_bits_words(members));
}

/* From now on there may be so many members; there is room for them. */
static inline void cpu_bits_grow(cpu_bits *b, uint32_t members) {
  uint32_t n = atomic_load(&b->n), wanted = cpu_bits_words(members);
  while (n < wanted && !atomic_compare_exchange_weak(&b->n, &n, wanted)) {
  }
}

static inline uint32_t cpu_bits_n(const cpu_bits *b) {
  return atomic_load_explicit(&b->n, memory_order_relaxed);
}

static inline void cpu_bits_set(cpu_bits *b, uint32_t i) {
  (void)atomic_fetch_or(&b->words[i / 64], (uint64_t)1 << (i % 64));
}

/* Whether the bit was set; if so, the caller now has it. */
static inline bool cpu_bits_clear(cpu_bits *b, uint32_t i) {
  uint64_t bit = (uint64_t)1 << (i % 64);
  if (!(atomic_load(&b->words[i / 64]) & bit)) return false;
  return atomic_fetch_and(&b->words[i / 64], ~bit) & bit;
}

static inline bool cpu_bits_has(const cpu_bits *b, uint32_t i) {
  return atomic_load(&b->words[i / 64]) >> (i % 64) & 1;
}

static inline bool cpu_bits_any(const cpu_bits *b) {
  for (uint32_t w = 0; w < cpu_bits_n(b); w++)
    if (atomic_load(&b->words[w])) return true;
  return false;
}

static inline bool cpu_bits_take_word(cpu_bits *b, uint32_t w, uint64_t mask, uint32_t *i) {
  for (;;) {
    uint64_t bits = atomic_load(&b->words[w]) & mask;
    if (!bits) return false;
    *i = w * 64 + (uint32_t)__builtin_ctzll(bits);
    if (cpu_bits_clear(b, *i)) return true;
  }
}

/* Takes any member, the next one from `from` on if there is one. */
static inline bool cpu_bits_take(cpu_bits *b, uint32_t from, uint32_t *i) {
  uint32_t n = cpu_bits_n(b), w = from / 64 < n ? from / 64 : 0;
  if (cpu_bits_take_word(b, w, UINT64_MAX << (from % 64), i)) return true;
  for (uint32_t k = 0; k < n; k++) {
    w = w + 1 < n ? w + 1 : 0;
    if (cpu_bits_take_word(b, w, UINT64_MAX, i)) return true;
  }
  return false;
}

/* Any member, the next one from `from` on if there is one; it stays. */
static inline bool cpu_bits_find(const cpu_bits *b, uint32_t from, uint32_t *i) {
  uint32_t n = cpu_bits_n(b), w = from / 64 < n ? from / 64 : 0;
  for (uint32_t k = 0; k <= n; k++, w = w + 1 < n ? w + 1 : 0) {
    uint64_t bits = atomic_load(&b->words[w]) & (k ? UINT64_MAX : UINT64_MAX << (from % 64));
    if (!bits) continue;
    *i = w * 64 + (uint32_t)__builtin_ctzll(bits);
    return true;
  }
  return false;
}

#endif
