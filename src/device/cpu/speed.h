/* How fast compute threads of this machine are. */
#ifndef WEIR_DEVICE_CPU_SPEED_H
#define WEIR_DEVICE_CPU_SPEED_H

#include <stdint.h>

typedef struct cpu_speed {
  double flops_per_ns;  /* f32 matrix products */
  double pairs_per_ns;  /* those of bf16; 0: they are computed as f32 */
  double copied_per_ns; /* bytes read and written by copying a few megabytes */
  /* Bytes that an elementwise operation reads and writes: of more than caches hold, and of what the inner ones hold. */
  double memory_bytes_per_ns, cache_bytes_per_ns;
  double function_ns; /* exp of one f32 */
} cpu_speed;

/* Of one thread while so many work at once, which share caches, memory and perhaps execution units: the median of
 * some tries, which take about 300 ms, of the slowest of them; 0: there was no memory for it. Of fewer threads, if no
 * more can be made. */
cpu_speed cpu_speed_measure(uint32_t threads);

#endif
