/* Counter-based random bits: element `index` of stream `key` depends on these two numbers alone, not on
 * the order in which elements are made or on the number of devices. */
#ifndef WEIR_BASE_RANDOM_H
#define WEIR_BASE_RANDOM_H

#include <stdint.h>

/* The finaliser of splitmix64: a bijection in which every input bit moves every output bit. */
static inline uint64_t random_mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

/* The key is mixed first, so that neighbouring keys do not give shifted copies of one stream. */
static inline uint64_t random_bits(uint64_t key, uint64_t index) {
  const uint64_t golden = 0x9e3779b97f4a7c15U;
  return random_mix(random_mix(key + golden) + (index + 1) * golden);
}

/* Uniform in [0, 1), 53 bits. */
static inline double random_unit(uint64_t bits) { return (double)(bits >> 11) * 0x1p-53; }

#endif
